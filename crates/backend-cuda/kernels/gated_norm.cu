// y = x / sqrt(mean(x^2) + epsilon) * weight * silu(z), over each head of a row; one weight for all heads.
//
// x, z f32 [rows][heads * dim], weight f32 [dim], y Y as x. A warp takes a head, as in `head_norm`. Grid:
// ceil(rows * heads / 8); block 256. Bound: bytes.
#include "norm.cuh"

extern "C" __global__ void gated_norm(Y* __restrict__ y, const float* x, const float* z, const float* weight, u32 rows, u32 heads, u32 dim,
                                      float epsilon) {
    join_chain();
    u64 head = head_of_warp();
    if (head >= u64(rows) * heads) return;
    u32 lane = threadIdx.x % 32;
    x += head * dim;
    z += head * dim;
    y += head * dim;
    float factor = 1.0f / sqrtf(squares_of_head(x, dim, lane) / float(dim) + epsilon);
    for (u32 i = lane; i < dim; i += 32) write(y[i], __fmul_rn(__fmul_rn(__fmul_rn(x[i], factor), weight[i]), silu(z[i])));
}
