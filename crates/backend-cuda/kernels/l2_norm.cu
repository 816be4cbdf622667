// y = x / sqrt(sum(x^2) + epsilon) * scale, over each head of a row.
//
// x, y f32 [rows][heads * dim]. A warp takes a head: lane l sums the squares of l, l + 32, ...; then by halves. Grid:
// ceil(rows * heads / 8); block 256. Bound: bytes.
#include "norm.cuh"

extern "C" __global__ void l2_norm(float* __restrict__ y, const float* x, u32 rows, u32 heads, u32 dim, float epsilon, float scale) {
    join_chain();
    u64 head = head_of_warp();
    if (head >= u64(rows) * heads) return;
    u32 lane = threadIdx.x % 32;
    x += head * dim;
    y += head * dim;
    float root = sqrtf(squares_of_head(x, dim, lane) + epsilon);
    for (u32 i = lane; i < dim; i += 32) y[i] = __fmul_rn(x[i] / root, scale);
}
