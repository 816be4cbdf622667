// The function of gate and up that a linear of both ends with: GATE 1 silu, 2 gelu_tanh, 0 none.
#pragma once
#include "math.cuh"

__device__ __forceinline__ float gated(float gate, float up) {
#if GATE == 2
    return gelu_tanh(gate) * up;
#else
    return silu(gate) * up;
#endif
}
