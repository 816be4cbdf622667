// The row of a product of one row, where the product makes it.
#pragma once
#include "norm.cuh"
#include "ring.cuh"

// x = the norm of a + b, by `threads` of the block's threads, at least ROW_THREADS, of which this is number `thread`; the first block writes sum. `warps` has a
// place a warp that norms.
template <class T>
__device__ __forceinline__ void make_x(float* sum, T* x, const float* a, const float* b, const float* norm, u32 k, float epsilon, float* warps, u32 threads, u32 thread) {
    NormedRow row;
    bool has_part = thread < ROW_THREADS;
    if (has_part) row.load_weight(norm, k, thread);
    wait_for_earlier_kernels();
    if (has_part) {
        float part = fold_warp(row.load(a, b, k, thread));
        if (thread % 32 == 0) warps[thread / 32] = part;
    }
    barrier_of(threads);
    float squares = 0.0f;
    for (u32 warp = 0; warp < ROW_THREADS / 32; warp++) squares += warps[warp];
    if (has_part)
        row.store(blockIdx.x == 0 ? sum : 0, x, a, b, norm, 1.0f / sqrtf(squares / float(k) + epsilon), k, round_up(k, 64), thread);
    barrier_of(threads);
}
