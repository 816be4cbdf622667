// Writes each row's key and value at its index into the pages of its sequence.
//
// k f32 [rows][kv_heads * key_dim], v f32 [rows][kv_heads * value_dim]. `layer` is the layer's part of page 0, that of page p lies
// p * page_bytes further: keys K [kv_heads][64][key_dim], at value_offset bytes values V [kv_heads][64][value_dim]. The page of
// index i of sequence s is pages[table_base[s] + i / 64]. Grid: rows; block 256. Bound: bytes.
#include "formats.cuh"

template <class T>
__device__ __forceinline__ void write_heads(T* page, const float* x, u32 slot, u32 heads, u32 dim) {
    for (u32 i = threadIdx.x; i < heads * dim; i += blockDim.x)
#if CORE
        write(page[u64(i / dim) * 64 * dim + core_place(slot, i % dim, dim)], x[i]);
#else
        write(page[(u64(i / dim) * 64 + slot) * dim + i % dim], x[i]);
#endif
}

extern "C" __global__ void write_kv(u8* __restrict__ layer, const float* k, const float* v, const u32* row_sequence,
                                    const u32* row_index, const u32* pages, const int* table_base, u32 rows,
                                    u32 kv_heads, u32 key_dim, u32 value_dim, u64 page_bytes, u64 value_offset) {
    join_chain();
    u32 row = blockIdx.x, index = row_index[row];
    u32 page = pages[table_base[row_sequence[row]] + int(index / 64)];
    u8* keys = layer + page * page_bytes;
    write_heads((K*)keys, k + u64(row) * kv_heads * key_dim, index % 64, kv_heads, key_dim);
    write_heads((V*)(keys + value_offset), v + u64(row) * kv_heads * value_dim, index % 64, kv_heads, value_dim);
}
