// y = factor * x, element by element.
//
// x, y f32 [count]. Block 256, any grid: threads stride over
// count. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void scale(float* __restrict__ y, const float* x, u64 count, float factor) {
    join_chain();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x)
        y[i] = factor * x[i];
}
