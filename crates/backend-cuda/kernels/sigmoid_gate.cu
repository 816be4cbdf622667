// y = x * sigmoid(gate); a gate of one column is for the whole row.
//
// x f32 [rows][width], gate f32 [rows][gate_width], gate_width = width or 1, y Y [rows][width]. Grid: rows; block 256. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void sigmoid_gate(Y* __restrict__ y, const float* x, const float* gate, u32 rows, u32 width, u32 gate_width) {
    join_chain();
    u64 row = blockIdx.x;
    for (u32 column = threadIdx.x; column < width; column += blockDim.x) {
        float g = gate[row * gate_width + (gate_width == 1 ? 0 : column)];
        write(y[row * width + column], x[row * width + column] * sigmoid(g));
    }
}
