// y = silu(gate) * up, element by element.
//
// gate, up f32 [count], y Y [count]. Block 256, any grid: threads stride over
// count. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void silu_gate(Y* __restrict__ y, const float* gate, const float* up, u64 count) {
    join_chain();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x)
        write(y[i], silu(gate[i]) * up[i]);
}
