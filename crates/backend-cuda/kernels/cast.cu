// y = x in another format, element by element.
//
// x f32 [count], y Y [count]. Block 256, any grid: threads stride over
// count. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void cast(Y* y, const float* x, u64 count) {
    wait_for_earlier_kernels();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x)
        write(y[i], x[i]);
}
