// y = columns start .. start + width of each group of columns of x.
//
// x f32 [rows][groups * group_width], y Y [rows][groups * width]. Grid: rows; block 256. Bound: bytes.
#include "formats.cuh"

extern "C" __global__ void slice(Y* __restrict__ y, const float* x, u32 rows, u32 groups, u32 group_width, u32 start, u32 width) {
    join_chain();
    u64 row = blockIdx.x;
    for (u32 i = threadIdx.x; i < groups * width; i += blockDim.x) {
        u32 from = i / width * group_width + start + i % width;
        write(y[row * groups * width + i], x[row * groups * group_width + from]);
    }
}
