// y = g * sigmoid(alpha * g) * (u + 1), with g = min(gate, limit) and u the up within -limit .. limit.
//
// gate, up f32 [count], y Y [count]. Block 256, any grid: threads stride over count. Bound: bytes.
#include "math.cuh"

extern "C" __global__ void clamped_gate(Y* __restrict__ y, const float* gate, const float* up, u64 count, float alpha, float limit) {
    join_chain();
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x) {
        // Written so that NaN passes, which fminf would swallow.
        float g = gate[i] > limit ? limit : gate[i];
        float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        write(y[i], g * sigmoid(alpha * g) * (u + 1.0f));
    }
}
