// What lies between the product of a stacked q, k, v and attention, in one pass: head_norm and rope of q and k, write_kv of k and v, with the
// bits of those three.
//
// qkv f32 [rows][(heads + 2 kv_heads) * dim]; q f32 [rows][heads * dim] out; k f32 [rows][kv_heads * dim] out, or 0; q_weight, k_weight f32 [dim] or 0 (no norm); the rest as in `rope` and
// `write_kv`; pairs = 0: no rope. Keys and values have the same dim, at most 256. A warp takes a head of a row. Grid: (ceil((heads + 2 kv_heads)
// / 8), rows), block 256. Bound: bytes.
#include "rope.cuh"
#if INT8
#include "int8.cuh"
#else
#define OPEN_PARAMETERS
#endif

const u32 HEAD_DIM_MAX = 256, WARPS = 8;

template <class T>
__device__ __forceinline__ void write_head(T* page, const float* x, u32 head, u32 slot, u32 dim, u32 lane) {
    for (u32 i = lane; i < dim; i += 32)
#if CORE
        write(page[u64(head) * 64 * dim + core_place(slot, i, dim)], x[i]);
#else
        write(page[(u64(head) * 64 + slot) * dim + i], x[i]);
#endif
}

// What a lane needs of a head beside its values: it may come before they are there.
struct Beside {
    float weight[HEAD_DIM_MAX / 32];
    float2 angle[HEAD_DIM_MAX / 64];

    __device__ __forceinline__ void load(const float* norm, const u32* position, const float* inverse_frequencies, const u32* axes, u32 dim, u32 pairs,
                                         float attention_scale, u32 lane) {
#pragma unroll
        for (u32 i = 0; i < HEAD_DIM_MAX / 32; i++) weight[i] = norm && lane + i * 32 < dim ? norm[lane + i * 32] : 0.0f;
#pragma unroll
        for (u32 i = 0; i < HEAD_DIM_MAX / 64; i++) {
            u32 pair = lane + i * 32;
            if (pair < pairs) angle[i] = rope_angle(position[axes[pair]], inverse_frequencies[pair], attention_scale);
        }
    }

    // The lane's values of a head, normed.
    __device__ __forceinline__ void norm(float (&x)[HEAD_DIM_MAX / 32], float epsilon, u32 dim) const {
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < HEAD_DIM_MAX / 32; i++) sum = fmaf(x[i], x[i], sum);
        float factor = 1.0f / sqrtf(fold_warp(sum) / float(dim) + epsilon);
#pragma unroll
        for (u32 i = 0; i < HEAD_DIM_MAX / 32; i++) x[i] = __fmul_rn(__fmul_rn(x[i], factor), weight[i]);
    }

    // x [dim] in shared memory.
    __device__ __forceinline__ void rotate(float* x, u32 pairs, u32 lane) const {
#pragma unroll
        for (u32 i = 0; i < HEAD_DIM_MAX / 64; i++) {
            u32 pair = lane + i * 32;
            if (pair < pairs) {
                float2 turned = rotated(x[pair], x[pair + pairs], angle[i]);
                x[pair] = turned.x, x[pair + pairs] = turned.y;
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    finish_qkv(float* __restrict__ q, float* __restrict__ k, u8* __restrict__ layer, const float* qkv, const float* q_weight, const float* k_weight, const u32* positions,
               const float* inverse_frequencies, const u32* axes, const u32* row_sequence, const u32* row_index, const u32* pages,
               const int* table_base, u32 heads, u32 kv_heads, u32 dim, u32 pairs, float attention_scale, float epsilon, u64 page_bytes,
               u64 value_offset OPEN_PARAMETERS) {
    __shared__ float rows[WARPS][HEAD_DIM_MAX];
    u32 row = blockIdx.y, lane = threadIdx.x % 32, head = blockIdx.x * WARPS + threadIdx.x / 32;
    let_next_kernel_start();
    bool is_value = head >= heads + kv_heads;
    const float* norm = is_value ? 0 : head < heads ? q_weight : k_weight;
    Beside beside;
    beside.load(norm, positions + row * 3, inverse_frequencies, axes, dim, is_value ? 0 : pairs, attention_scale, lane);
    u32 index = row_index[row];
    u8* page = layer + pages[table_base[row_sequence[row]] + int(index / 64)] * page_bytes;
#if INT8
    K* keys = (K*)OPEN_PAGES.page(pages, row_sequence[row], index / 64, kv_heads, 128 * dim);
#else
    K* keys = (K*)page;
#endif
    wait_for_earlier_kernels();
    if (head >= heads + 2 * kv_heads) return;
    const float* from = qkv + (u64(row) * (heads + 2 * kv_heads) + head) * dim;
    float own[HEAD_DIM_MAX / 32];
#pragma unroll
    for (u32 i = 0; i < HEAD_DIM_MAX / 32; i++) own[i] = lane + i * 32 < dim ? from[lane + i * 32] : 0.0f;
    if (norm) beside.norm(own, epsilon, dim);
    float* x = rows[threadIdx.x / 32];
#pragma unroll
    for (u32 i = 0; i < HEAD_DIM_MAX / 32; i++)
        if (lane + i * 32 < dim) x[lane + i * 32] = own[i];
    __syncwarp();
    if (!is_value) beside.rotate(x, pairs, lane);
    __syncwarp();
    if (head < heads) {
        for (u32 i = lane; i < dim; i += 32) q[(u64(row) * heads + head) * dim + i] = x[i];
        return;
    }
    if (is_value) {
        u32 kv_head = head - heads - kv_heads;
#if INT8
        write_value_codes(page + value_offset + u64(kv_head) * value_bytes(dim), x, index % 64, dim, lane);
#else
        write_head((V*)(page + value_offset), x, kv_head, index % 64, dim, lane);
#endif
        return;
    }
    write_head(keys, x, head - heads, index % 64, dim, lane);
    if (k)
        for (u32 i = lane; i < dim; i += 32) k[(u64(row) * kv_heads + head - heads) * dim + i] = x[i];
}
