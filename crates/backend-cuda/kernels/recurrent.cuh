// Where the rows of a step stand to recurrent state. A unit is one copy of a sequence's state over all layers.
#pragma once
#include "math.cuh"

// A unit that is none: zeros where it is read; where it would be written, nothing is.
const u32 NO_UNIT = 0xffffffffu;

// A sequence's rows in the step, and the unit with the state before them. Places beyond the step's sequences have no rows.
struct Run {
    u32 first, count, unit, unused;
};

// The place of a unit's part for a layer, where `base` is that of unit 0.
__device__ __forceinline__ float* unit_at(float* base, u32 unit, u64 unit_elements) {
    return base + unit * unit_elements;
}
