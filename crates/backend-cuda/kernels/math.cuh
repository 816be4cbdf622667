// Elementary functions, accurate to a few units in the last place, and the fold of a block's partial sums.
//
// No fast-math: `expf`, `logf`, `tanhf` and `sincosf` of the compiler's own library, the same on every device of one
// build. A row's bits depend on the row alone: the order of a sum is fixed by the width.
#pragma once
#include "formats.cuh"

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

__device__ __forceinline__ float silu(float x) {
    return x / (1.0f + expf(-x));
}

__device__ __forceinline__ float gelu_tanh(float x) {
    float inner = 0.7978845608f * fmaf(0.044715f * x * x, x, x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

__device__ __forceinline__ float fold_warp(float x) {
    for (u32 step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// Threads of a kernel that takes a row: the order of its sums follows from this number.
const u32 ROW_THREADS = 256;

// The sum over a block of ROW_THREADS, the same in every thread: lanes by halves, then warps from first to last.
__device__ __forceinline__ float fold_block(float x) {
    __shared__ float warps[ROW_THREADS / 32];
    x = fold_warp(x);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0.0f;
    for (u32 warp = 0; warp < ROW_THREADS / 32; warp++) sum += warps[warp];
    __syncthreads();
    return sum;
}
