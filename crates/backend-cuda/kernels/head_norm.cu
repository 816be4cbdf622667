// y = x / sqrt(mean(x^2) + epsilon) * weight, over each head of a row; one weight for all heads.
//
// x, y f32 [rows][heads * dim], weight f32 [dim]. A warp takes a head: lane l sums the squares of l, l + 32, ...; then
// by halves. Grid: ceil(rows * heads / 8); block 256. Bound: bytes.
#include "norm.cuh"

extern "C" __global__ void head_norm(float* __restrict__ y, const float* x, const float* weight, u32 rows, u32 heads, u32 dim,
                                     float epsilon) {
    join_chain();
    u64 head = head_of_warp();
    if (head >= u64(rows) * heads) return;
    u32 lane = threadIdx.x % 32;
    x += head * dim;
    y += head * dim;
    float factor = 1.0f / sqrtf(squares_of_head(x, dim, lane) / float(dim) + epsilon);
    for (u32 i = lane; i < dim; i += 32) y[i] = __fmul_rn(__fmul_rn(x[i], factor), weight[i]);
}
