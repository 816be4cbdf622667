// y = x * (1 + slope * ln(1 + floor(position / period))), by the row's position on the first axis.
//
// x, y f32 [rows][width]; positions u32 [rows][3]. Grid: rows; block 256. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void position_scale(float* __restrict__ y, const float* x, const u32* positions, u32 rows, u32 width,
                                          u32 period, float slope) {
    join_chain();
    u32 row = blockIdx.x;
    float factor = 1.0f + slope * logf(1.0f + float(positions[row * 3] / period));
    for (u32 column = threadIdx.x; column < width; column += blockDim.x)
        y[u64(row) * width + column] = x[u64(row) * width + column] * factor;
}
