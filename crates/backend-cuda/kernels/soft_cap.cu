// y = cap * tanh(x / cap), element by element.
//
// x, y f32 [count]. Block 256, any grid: threads stride over
// count. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void soft_cap(float* __restrict__ y, const float* x, u64 count, float cap) {
    join_chain();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x)
        y[i] = cap * tanhf(x[i] / cap);
}
