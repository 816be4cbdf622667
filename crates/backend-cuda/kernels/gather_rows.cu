// y[row] = x[row_map[row]]; also `select_outputs`, with the rows that results are asked of.
//
// x X [n][width], y X [rows][width], row_map u32 [rows]. Grid: rows; block 256. Bound: bytes, by 16 at once
// where rows are whole pieces of these.
#include "formats.cuh"

extern "C" __global__ void gather_rows(X* __restrict__ y, const X* x, const u32* row_map, u32 rows, u32 width) {
    join_chain();
    u64 to = u64(blockIdx.x) * width, from = u64(row_map[blockIdx.x]) * width;
    if (width * sizeof(X) % 16 == 0) {
        for (u32 piece = threadIdx.x; piece < width * sizeof(X) / 16; piece += blockDim.x)
            ((uint4*)(y + to))[piece] = ((const uint4*)(x + from))[piece];
        return;
    }
    for (u32 column = threadIdx.x; column < width; column += blockDim.x) y[to + column] = x[from + column];
}
