// y[row][n] = sum_k x[row][k] * weight[n][k] + bias[n]: one float32 accumulator an output, k ascending, never split.
//
// x W [m][k] row-major; weight W: bf16 and f16 in tile order [n/16][k/64][2][8][8][8], n and k padded with zeros to
// multiples of 64, by `repack`; f32 row-major [n][k]. bias f32 [n] or 0; y Y [m], rows of `stride`
// numbers (more than n where y has the products of other matrices too).
//
// `linear` takes any number of rows and needs nothing but sm_80: the plain form that the fast ones are held against, and
// the f32 form. Grid: (ceil(n / 64), ceil(m / 64)); block 128 for bf16 and f16, 256 for f32.
#include "mma.cuh"

// Row-major [n][k] into tile order, at rows first, first + 1, ... of a matrix that may have more parts (q, k and v; all that the
// host does not write it has cleared); columns are padded with zeros. With gated = 1 the parts are gate (first = 0) and up (first = 8), as
// the epilogue of GATE wants them: 8 rows of one, 8 of the other. Grid: ceil(n * padded k / 8 / 256), block 256; 16 bytes a thread.
extern "C" __global__ void repack(u16* out, const u16* in, u32 n, u32 k, u32 first, u32 gated) {
    join_chain();
    u32 columns = round_up(k, 64);
    u64 piece = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    u32 row = u32(piece / (columns / 8)), column = u32(piece % (columns / 8)) * 8;
    if (row >= n) return;
    u16* to = out + tile_place(gated ? row / 8 * 16 + first + row % 8 : first + row, column, columns);
    for (u32 i = 0; i < 8; i++) to[i] = column + i < k ? in[u64(row) * k + column + i] : 0;
}

#if W_IS_F32

// A tile of 64 rows x 64 outputs, 4 x 4 a thread.
extern "C" __global__ void __launch_bounds__(256)
    linear(Y* y, const float* x, const float* weight, const float* bias, u32 m, u32 n, u32 k, u32 stride) {
    __shared__ float xs[16][65], ws[16][65];
    join_chain();
    u32 row0 = blockIdx.y * 64, out0 = blockIdx.x * 64;
    u32 across = threadIdx.x % 16, down = threadIdx.x / 16;
    float sum[4][4] = {};
    for (u32 start = 0; start < k; start += 16) {
        for (u32 i = threadIdx.x; i < 64 * 16; i += 256) {
            u32 line = i / 16, column = start + i % 16;
            bool inside = column < k;
            xs[i % 16][line] = inside && row0 + line < m ? x[u64(row0 + line) * k + column] : 0.0f;
            ws[i % 16][line] = inside && out0 + line < n ? weight[u64(out0 + line) * k + column] : 0.0f;
        }
        __syncthreads();
        for (u32 c = 0; c < 16; c++)
            for (u32 i = 0; i < 4; i++)
                for (u32 j = 0; j < 4; j++)
                    sum[i][j] = fmaf(xs[c][down + 16 * i], ws[c][across + 16 * j], sum[i][j]);
        __syncthreads();
    }
    for (u32 i = 0; i < 4; i++)
        for (u32 j = 0; j < 4; j++) {
            u32 row = row0 + down + 16 * i, out = out0 + across + 16 * j;
            if (row < m && out < n) write(y[u64(row) * stride + out], sum[i][j] + (bias ? bias[out] : 0.0f));
        }
}

#else

// Two neighbours of a row of x, zero beyond its end. An odd k leaves rows unaligned.
__device__ __forceinline__ u32 pair_of(const W* x, u32 row, u32 column, u32 m, u32 k) {
    if (row >= m) return 0;
    u32 low = column < k ? x[u64(row) * k + column].bits : 0;
    u32 high = column + 1 < k ? x[u64(row) * k + column + 1].bits : 0;
    return low | high << 16;
}

// A warp has 16 outputs as the 16-wide operand, and 8 groups of 8 rows.
extern "C" __global__ void __launch_bounds__(128)
    linear(Y* y, const W* x, const W* weight, const float* bias, u32 m, u32 n, u32 k, u32 stride) {
    join_chain();
    u32 lane = threadIdx.x % 32, out0 = blockIdx.x * 64 + threadIdx.x / 32 * 16, row0 = blockIdx.y * 64;
    u32 columns = round_up(k, 64);
    const u32* tiles = (const u32*)weight + u64(out0) * columns / 2 + lane;
    float sum[8][4] = {};
    for (u32 start = 0; start < columns; start += 16) {
        const u32* cores = tiles + start / 64 * 512 + start % 64 * 4;
        u32 a[4] = {cores[0], cores[256], cores[32], cores[288]};
#pragma unroll
        for (u32 group = 0; group < 8; group++) {
            u32 row = row0 + group * 8 + lane / 4, column = start + lane % 4 * 2;
            mma<W>(sum[group], a, pair_of(x, row, column, m, k), pair_of(x, row, column + 8, m, k));
        }
    }
#pragma unroll
    for (u32 group = 0; group < 8; group++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 out = out0 + lane / 4 + i / 2 * 8, row = row0 + group * 8 + lane % 4 * 2 + i % 2;
            if (row < m && out < n) write(y[u64(row) * stride + out], sum[group][i] + (bias ? bias[out] : 0.0f));
        }
}

#endif
