// y[token] = the sum of its k experts' rows times their weights, by ascending expert id, the shared expert's row last.
//
// rows f32 [tokens * k][width], weights f32 [tokens * k], shared f32 [tokens][width] or 0, y f32 [tokens][width]. Grid: (tokens, ceil(width / 256)), block
// 256. Bound: bytes.
#include "formats.cuh"

extern "C" __global__ void combine_experts(float* __restrict__ y, const float* rows, const float* weights, const float* shared, u32 tokens, u32 width, u32 k) {
    join_chain();
    u32 token = blockIdx.x, column = blockIdx.y * 256 + threadIdx.x;
    if (column >= width || token >= tokens) return;
    const float *row = rows + u64(token) * k * width + column, *weight = weights + u64(token) * k;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 expert = 0; expert < k; expert++) sum = fmaf(weight[expert], row[u64(expert) * width], sum);
    y[u64(token) * width + column] = shared ? sum + shared[u64(token) * width + column] : sum;
}
