// `linear` of f32 for few rows or few outputs, the same bits: bound by the chain of an output's products, 4 cycles a column.
//
// x f32 [m][k], weight f32 [n][k], k a multiple of 4; bias f32 [n] or 0; y f32 [m], rows of `stride` numbers.
//
// A thread has one output for ROWS rows. Stages of 32 columns come by asynchronous copies: weights before the earlier kernel has ended, x after. Columns go
// on to the next multiple of 16, zeros, as in `linear`.
//
// Defines: ROWS 1 or 8. Grid: (ceil(n / 32), ceil(m / ROWS)), block 32.
#include "math.cuh"

const u32 COLUMNS = 32, STAGES = 4;

__device__ __forceinline__ void fetch(float* to, const float* from, bool inside) {
    u32 address = u32(__cvta_generic_to_shared(to)), bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

// `lines` lines of 32 columns from `start` on, the first of which is line `first` of a matrix with `all` lines; the last line in place of those beyond.
__device__ __forceinline__ void fetch_lines(float* to, u32 line_floats, const float* from, u32 first, u32 lines, u32 all, u32 start, u32 k) {
#pragma unroll
    for (u32 i = threadIdx.x; i < lines * (COLUMNS / 4); i += 32) {
        u32 line = i / (COLUMNS / 4), column = i % (COLUMNS / 4) * 4;
        bool inside = start + column < k;
        fetch(to + line * line_floats + column, from + u64(min(first + line, all - 1)) * k + (inside ? start + column : 0), inside);
    }
}

extern "C" __global__ void __launch_bounds__(32)
    linear_narrow(float* y, const float* x, const float* weight, const float* bias, u32 m, u32 n, u32 k, u32 stride) {
    // Four floats more a line: no two lanes in the same bank.
    __shared__ __align__(16) float ws[STAGES][32][COLUMNS + 4], xs[STAGES][ROWS][COLUMNS];
    u32 out0 = blockIdx.x * 32, row0 = blockIdx.y * ROWS, lane = threadIdx.x, steps = (k + COLUMNS - 1) / COLUMNS, columns = round_up(k, 16);
    for (u32 step = 0; step < STAGES - 1 && step < steps; step++) fetch_lines(ws[step][0], COLUMNS + 4, weight, out0, 32, n, step * COLUMNS, k);
    join_chain();
    for (u32 step = 0; step < STAGES - 1; step++) {
        if (step < steps) fetch_lines(xs[step][0], COLUMNS, x, row0, ROWS, m, step * COLUMNS, k);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    float sum[ROWS] = {};
    for (u32 step = 0; step < steps; step++) {
        u32 stage = step % STAGES, next = step + STAGES - 1, width = min(COLUMNS, columns - step * COLUMNS);
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncwarp();
        if (next < steps) {
            fetch_lines(ws[next % STAGES][0], COLUMNS + 4, weight, out0, 32, n, next * COLUMNS, k);
            fetch_lines(xs[next % STAGES][0], COLUMNS, x, row0, ROWS, m, next * COLUMNS, k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll
        for (u32 column = 0; column < COLUMNS; column += 4) {
            if (column >= width) break;
            float4 w = *(const float4*)&ws[stage][lane][column];
#pragma unroll
            for (u32 row = 0; row < ROWS; row++) {
                float4 v = *(const float4*)&xs[stage][row][column];
                sum[row] = fmaf(v.w, w.w, fmaf(v.z, w.z, fmaf(v.y, w.y, fmaf(v.x, w.x, sum[row]))));
            }
        }
        __syncwarp();
    }
    u32 out = out0 + lane;
    if (out >= n) return;
    float first = bias ? bias[out] : 0.0f;
    for (u32 row = 0; row < ROWS && row0 + row < m; row++) y[u64(row0 + row) * stride + out] = sum[row] + first;
}
