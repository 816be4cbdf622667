// y = x in another format, element by element.
//
// x f32 [count], y Y [count]. Block 256, any grid: threads stride over
// count. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void cast(Y* __restrict__ y, const float* x, u64 count) {
    join_chain();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x)
        write(y[i], x[i]);
}
