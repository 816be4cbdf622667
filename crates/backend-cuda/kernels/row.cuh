// The row of a product of one row, where the product makes it.
#pragma once
#include "norm.cuh"
#include "ring.cuh"

// x = the norm of a + b, by the block's first `threads` threads, at least ROW_THREADS; the first block writes sum. `warps` has a place a warp that norms.
template <class T>
__device__ __forceinline__ void make_x(float* sum, T* x, const float* a, const float* b, const float* norm, u32 k, float epsilon, float* warps, u32 threads) {
    NormedRow row;
    bool has_part = threadIdx.x < ROW_THREADS;
    if (has_part) row.load_weight(norm, k, threadIdx.x);
    wait_for_earlier_kernels();
    if (has_part) {
        float part = fold_warp(row.load(a, b, k, threadIdx.x));
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = part;
    }
    barrier_of(threads);
    float squares = 0.0f;
    for (u32 warp = 0; warp < ROW_THREADS / 32; warp++) squares += warps[warp];
    if (has_part)
        row.store(blockIdx.x == 0 ? sum : 0, x, a, b, norm, 1.0f / sqrtf(squares / float(k) + epsilon), k, round_up(k, 64), threadIdx.x);
    barrier_of(threads);
}
