// y = decay * softplus(a + bias), the logarithm of a state's decay.
//
// a, y f32 [rows][heads], decay, bias f32 [heads]. Block 256, any grid: threads stride over count = rows * heads. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void decay_gate(float* __restrict__ y, const float* a, const float* decay, const float* bias, u64 count, u32 heads) {
    join_chain();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x) {
        u32 head = u32(i % heads);
        float x = a[i] + bias[head];
        y[i] = __fmul_rn(decay[head], fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
    }
}
