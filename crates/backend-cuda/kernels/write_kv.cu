// Writes each row's key and value at its index into the pages of its sequence.
//
// k f32 [rows][kv_heads * key_dim], v f32 [rows][kv_heads * value_dim]. `layer` is the layer's part of page 0, that of page p lies
// p * page_bytes further: keys K [kv_heads][64][key_dim], at value_offset bytes values V [kv_heads][64][value_dim]. The page of
// index i of sequence s is pages[table_base[s] + i / 64]. Grid: rows; block 256. Bound: bytes.
//
// With INT8 (`int8.cuh`) keys go to open pages in f16 and values become codes. Then `quantise_keys` makes the codes of the keys of each page that is full:
// fills u32 [grid.x], a row that is the last of its page, or 0xffffffff. Grid: (rows of which some fill a page, kv_heads); block 128.
#if INT8
#include "int8.cuh"
#else
#include "formats.cuh"
#define OPEN_PARAMETERS
#endif

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
                                    u32 kv_heads, u32 key_dim, u32 value_dim, u64 page_bytes, u64 value_offset OPEN_PARAMETERS) {
    join_chain();
    u32 row = blockIdx.x, index = row_index[row];
    u32 page = pages[table_base[row_sequence[row]] + int(index / 64)];
    u8* keys = layer + page * page_bytes;
    k += u64(row) * kv_heads * key_dim, v += u64(row) * kv_heads * value_dim;
#if INT8
    K* open = (K*)OPEN_PAGES.page(pages, row_sequence[row], index / 64, kv_heads, 128 * key_dim);
    write_heads(open, k, index % 64, kv_heads, key_dim);
    for (u32 head = threadIdx.x / 32; head < kv_heads; head += blockDim.x / 32)
        write_value_codes(keys + value_offset + u64(head) * value_bytes(value_dim), v + head * value_dim, index % 64, value_dim, threadIdx.x % 32);
#else
    write_heads((K*)keys, k, index % 64, kv_heads, key_dim);
    write_heads((V*)(keys + value_offset), v, index % 64, kv_heads, value_dim);
#endif
}

#if INT8

// The keys of a channel, which a thread has.
__device__ __forceinline__ void load_channel(float (&x)[64], const K* open, u32 channel, u32 dim) {
#pragma unroll
    for (u32 slot = 0; slot < 64; slot++)
#if CORE
        x[slot] = read(open[core_place(slot, channel, dim)]);
#else
        x[slot] = read(open[slot * dim + channel]);
#endif
}

extern "C" __global__ void __launch_bounds__(128)
    quantise_keys(u8* __restrict__ layer, const u32* fills, const u32* row_sequence, const u32* row_index, const u32* pages, const int* table_base,
                  u32 kv_heads, u32 key_dim, u64 page_bytes OPEN_PARAMETERS) {
    join_chain();
    u32 row = fills[blockIdx.x], head = blockIdx.y;
    if (row == 0xffffffffu) return;
    u32 sequence = row_sequence[row], number = row_index[row] / 64;
    const K* open = (const K*)OPEN_PAGES.page(pages, sequence, number, kv_heads, 128 * key_dim) + u64(head) * 64 * key_dim;
    u8* keys = layer + pages[table_base[sequence] + int(number)] * page_bytes + u64(head) * key_bytes(key_dim);
    for (u32 channel = threadIdx.x; channel < key_dim; channel += blockDim.x) {
        float x[64];
        load_channel(x, open, channel, key_dim);
        Largest all;
#pragma unroll
        for (u32 slot = 0; slot < 64; slot++) all.see(x[slot]);
        f16 scale = {scale_bits(all.found())};
        float step = read(scale);
#pragma unroll
        for (u32 slot = 0; slot < 64; slot++) keys[key_place(slot, channel, key_dim)] = code_byte(x[slot], step);
        ((f16*)(keys + 64 * key_dim))[channel] = scale;
    }
}

#endif
