// Columns y_start .. y_start + x_width of y = x; one launch a part.
//
// x f32 [rows][x_width], y f32 [rows][y_width]. Grid: rows; block 256. Bound: bytes.
#include "formats.cuh"

extern "C" __global__ void concat(float* __restrict__ y, const float* x, u32 rows, u32 x_width, u32 y_width, u32 y_start) {
    join_chain();
    u64 row = blockIdx.x;
    for (u32 i = threadIdx.x; i < x_width; i += blockDim.x) y[row * y_width + y_start + i] = x[row * x_width + i];
}
