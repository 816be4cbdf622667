// How a warp leaves its sums of 16 outputs, the 16-wide operand of mma.sync, with GROUPS times eight rows.
#pragma once
#include "gate.cuh"

// Row after row of so many numbers.
struct InOrder {
    Y* y;
    u32 stride;
    __device__ __forceinline__ Y* operator()(u32 row) const {
        return y + u64(row) * stride;
    }
};

// Rows with the numbers of a list.
struct Listed {
    InOrder rows;
    const u32* numbers;
    __device__ __forceinline__ Y* operator()(u32 row) const {
        return rows(numbers[row]);
    }
};

// Outputs `share` * 16 and on of `count` rows; with GATE the half as many that gate and up make.
template <u32 GROUPS, class Rows>
__device__ __forceinline__ void store_outputs(const float (&sum)[GROUPS][4], const Rows& rows, const float* bias, u32 share, u32 count, u32 n, u32 lane) {
    u32 out = share * 16 + lane / 4;
    float first = bias && out < n ? bias[out] : 0.0f, second = bias && out + 8 < n ? bias[out + 8] : 0.0f;
#pragma unroll
    for (u32 group = 0; group < GROUPS; group++)
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 row = group * 8 + lane % 4 * 2 + i;
            if (row >= count) continue;
            float upper = sum[group][i] + first, lower = sum[group][i + 2] + second;
            Y* line = rows(row);
#if GATE
            if (out < n) write(line[share * 8 + lane / 4], gated(upper, lower));
#else
            if (out < n) write(line[out], upper);
            if (out + 8 < n) write(line[out + 8], lower);
#endif
        }
}
