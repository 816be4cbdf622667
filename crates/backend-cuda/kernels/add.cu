// y = a + b, element by element.
//
// a, b, y f32 [count]. Block 256, any grid: threads stride over
// count. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void add(float* __restrict__ y, const float* a, const float* b, u64 count) {
    join_chain();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x)
        y[i] = a[i] + b[i];
}
