// rms_norm of a row by ROW_THREADS threads: thread t has the columns t, t + 256, ...; the first KEPT of them stay in registers, wider rows are
// read again. Every load goes before the first store, for the compiler can't know that they don't overlap.
//
// And of heads: a warp takes one of `rows * heads`, lane l its elements l, l + 32, ...
#pragma once
#include "math.cuh"

const u32 KEPT = 16;

struct NormedRow {
    float x[KEPT], weight[KEPT];

    // May come before the row is there.
    __device__ __forceinline__ void load_weight(const float* from, u32 width, u32 thread) {
#pragma unroll
        for (u32 i = 0; i < KEPT; i++) weight[i] = thread + i * ROW_THREADS < width ? from[thread + i * ROW_THREADS] : 0.0f;
    }

    // x = a + b, or a where b is 0. The thread's sum of squares.
    __device__ __forceinline__ float load(const float* a, const float* b, u32 width, u32 thread) {
        float squares = 0.0f;
#pragma unroll
        for (u32 i = 0; i < KEPT; i++) x[i] = thread + i * ROW_THREADS < width ? a[thread + i * ROW_THREADS] : 0.0f;
        if (b) {
            // All on their way before the first is added.
            float other[KEPT];
#pragma unroll
            for (u32 i = 0; i < KEPT; i++) other[i] = thread + i * ROW_THREADS < width ? b[thread + i * ROW_THREADS] : 0.0f;
#pragma unroll
            for (u32 i = 0; i < KEPT; i++) x[i] += other[i];
        }
#pragma unroll
        for (u32 i = 0; i < KEPT; i++) squares = fmaf(x[i], x[i], squares);
        for (u32 column = thread + KEPT * ROW_THREADS; column < width; column += ROW_THREADS) {
            float wide = b ? a[column] + b[column] : a[column];
            squares = fmaf(wide, wide, squares);
        }
        return squares;
    }

    // sum = x where it is not 0; y = x * factor * weight, up to `padded` columns with zeros.
    template <class T>
    __device__ __forceinline__ void store(float* sum, T* y, const float* a, const float* b, const float* from, float factor, u32 width, u32 padded,
                                          u32 thread) const {
        if (sum)
#pragma unroll
            for (u32 i = 0; i < KEPT; i++)
                if (thread + i * ROW_THREADS < width) sum[thread + i * ROW_THREADS] = x[i];
#pragma unroll
        for (u32 i = 0; i < KEPT; i++)
            if (thread + i * ROW_THREADS < padded) write(y[thread + i * ROW_THREADS], x[i] * factor * weight[i]);
        for (u32 column = thread + KEPT * ROW_THREADS; column < padded; column += ROW_THREADS) {
            float wide = column < width ? (b ? a[column] + b[column] : a[column]) : 0.0f;
            if (sum && column < width) sum[column] = wide;
            write(y[column], column < width ? wide * factor * from[column] : 0.0f);
        }
    }
};

// The head of this warp.
__device__ __forceinline__ u64 head_of_warp() {
    return u64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
}

// The sum of the squares of a head, the same in every lane: each adds its own, then by halves.
__device__ __forceinline__ float squares_of_head(const float* x, u32 dim, u32 lane) {
    float sum = 0.0f;
    for (u32 i = lane; i < dim; i += 32) sum = fmaf(x[i], x[i], sum);
    return fold_warp(sum);
}
