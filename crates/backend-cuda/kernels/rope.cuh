// The rotation of a pair, rounded alike in every kernel.
#pragma once
#include "math.cuh"

// Cosine and sine of position * inverse frequency, times `scale`.
__device__ __forceinline__ float2 rope_angle(u32 position, float inverse_frequency, float scale) {
    float sine, cosine;
    sincosf(__fmul_rn(float(position), inverse_frequency), &sine, &cosine);
    return make_float2(__fmul_rn(cosine, scale), __fmul_rn(sine, scale));
}

// (a cos - b sin, b cos + a sin).
__device__ __forceinline__ float2 rotated(float a, float b, float2 angle) {
    return make_float2(fmaf(a, angle.x, -__fmul_rn(b, angle.y)), fmaf(b, angle.x, __fmul_rn(a, angle.y)));
}
