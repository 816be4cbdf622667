// `linear` for 1 to ROWS rows (8, 16, 32 or 64), the same bits: bound by reading the weights once.
//
// x W [m][k], k a multiple of 32; weight W in core order; bias f32 [n] or 0; y Y [m][n].
//
// A consumer warp owns a tile of outputs for all rows of x: 16 as the 16-wide operand, or with -DNARROW=1 8 as the
// 8-wide operand, which gives twice as many tiles where n is small. A last warp feeds a ring of stages: `chunk` columns
// (a multiple of 64) of every tile's stripes and of x. Weights come before the earlier kernel has ended, x after.
//
// Grid: any number of blocks, tiles go round over (block, warp); best: SMs = S, tiles T = padded n / 16 (8 if narrow), a
// share P = ceil(T / S) of an SM, rounds R = ceil(P / 12), warps = ceil(P / R), blocks = min(S, ceil(T / warps)). Block: 32 * (warps + 1).
// Dynamic shared memory: 128 + stages * (warps * chunk * 32 (16 if narrow) + ROWS * (chunk * 2 + 16)).
#include "ring.cuh"

#if __CUDA_ARCH__ >= 900

#if NARROW
const u32 STRIPES = 1;
#else
const u32 STRIPES = 2;
#endif
const u32 STAGES_MAX = 8;

struct Stage {
    u32 weights, x, pitch, full, empty;
};

struct Ring {
    u32 base, warps, chunk, stages;
    __device__ __forceinline__ Stage at(u32 stage) const {
        u32 weight_bytes = warps * STRIPES * chunk * 16, pitch = chunk * 2 + 16;
        u32 start = base + 128 + stage * (weight_bytes + ROWS * pitch);
        return Stage{start, start + weight_bytes, pitch, base + stage * 8, base + STAGES_MAX * 8 + stage * 8};
    }
};

// The columns of a stage's weights and rows of x, from `start`.
struct Feed {
    const u8 *weight, *x;
    u32 m, k, padded, tiles, tile0;
    __device__ __forceinline__ u32 present(u32 warps) const {
        return tile0 >= tiles ? 0 : (tiles - tile0 < warps ? tiles - tile0 : warps);
    }
    __device__ __forceinline__ void weights(const Ring& ring, const Stage& stage, u32 start, u32 width, u32 lane) const {
        for (u32 i = lane; i < present(ring.warps) * STRIPES; i += 32)
            copy_bulk(stage.weights + i * ring.chunk * 16, weight + (u64(tile0 * STRIPES + i) * padded + start) * 16,
                      width * 16, stage.full);
    }
    __device__ __forceinline__ void rows(const Stage& stage, u32 start, u32 width, u32 lane) const {
        for (u32 i = lane; i < m; i += 32) copy_bulk(stage.x + i * stage.pitch, x + (u64(i) * k + start) * 2, width * 2, stage.full);
    }
    __device__ __forceinline__ u32 bytes(const Ring& ring, u32 width) const {
        return width * (present(ring.warps) * STRIPES * 16 + m * 2);
    }
};

__device__ __forceinline__ u32 width_at(u32 start, u32 chunk, u32 k) {
    return k - start < chunk ? k - start : chunk;
}

__device__ __forceinline__ void produce(const Ring& ring, Feed feed, u32 lane) {
    u32 chunks = (feed.k + ring.chunk - 1) / ring.chunk, step = gridDim.x * ring.warps;
    u32 early = chunks < ring.stages ? chunks : ring.stages;
    for (u32 i = 0; i < early; i++) {
        Stage stage = ring.at(i);
        u32 start = i * ring.chunk, width = width_at(start, ring.chunk, feed.k);
        if (lane == 0) barrier_expect(stage.full, feed.bytes(ring, width));
        __syncwarp();
        feed.weights(ring, stage, start, width, lane);
    }
    let_next_kernel_start();
    wait_for_earlier_kernels();
    for (u32 i = 0; i < early; i++) feed.rows(ring.at(i), i * ring.chunk, width_at(i * ring.chunk, ring.chunk, feed.k), lane);
    Place place = {early % ring.stages, early / ring.stages};
    u32 first = early;
    for (; feed.tile0 < feed.tiles; feed.tile0 += step, first = 0)
        for (u32 i = first; i < chunks; i++, place.next(ring.stages)) {
            Stage stage = ring.at(place.stage);
            u32 start = i * ring.chunk, width = width_at(start, ring.chunk, feed.k);
            if (place.round > 0) barrier_wait(stage.empty, (place.round - 1) % 2);
            if (lane == 0) barrier_expect(stage.full, feed.bytes(ring, width));
            __syncwarp();
            feed.weights(ring, stage, start, width, lane);
            feed.rows(stage, start, width, lane);
        }
}

#if NARROW
const u32 GROUP_ROWS = 16;
#else
const u32 GROUP_ROWS = 8;
#endif
const u32 GROUPS = (ROWS + GROUP_ROWS - 1) / GROUP_ROWS;

// 32 columns, two steps, of a tile's weights and of every group of rows.
struct Fragments {
#if NARROW
    u32 weights[4], x[GROUPS][2][4];
#else
    u32 weights[2][4], x[GROUPS][4];
#endif
    __device__ __forceinline__ void load(u32 weights_at, u32 x_at, u32 pitch, u32 stripe, u32 lane) {
#if NARROW
        load_matrices(weights, weights_at + lane * 16);
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++) {
            // Rows 8 to 15 of the operand repeat rows 0 to 7 where there are no others; their sums are not used.
            u32 row = group * 16 + lane % 8 + (ROWS > 8 ? lane / 8 % 2 * 8 : 0);
            load_matrices(x[group][0], x_at + row * pitch + lane / 16 * 16);
            load_matrices(x[group][1], x_at + row * pitch + lane / 16 * 16 + 32);
        }
#else
        u32 at = weights_at + lane / 8 % 2 * stripe + lane / 16 * 128 + lane % 8 * 16;
        load_matrices(weights[0], at);
        load_matrices(weights[1], at + 256);
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++)
            load_matrices(x[group], x_at + (group * 8 + lane % 8) * pitch + lane / 8 * 16);
#endif
    }
    __device__ __forceinline__ void multiply(float (&sum)[GROUPS][4]) const {
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++) {
#if NARROW
            mma<W>(sum[group], x[group][0], weights[0], weights[1]);
            mma<W>(sum[group], x[group][1], weights[2], weights[3]);
#else
            mma<W>(sum[group], weights[0], x[group][0], x[group][1]);
            mma<W>(sum[group], weights[1], x[group][2], x[group][3]);
#endif
        }
    }
};

__device__ __forceinline__ void store(const float (&sum)[GROUPS][4], Y* y, const float* bias, u32 tile, u32 m, u32 n, u32 lane) {
#pragma unroll
    for (u32 group = 0; group < GROUPS; group++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#if NARROW
            u32 out = tile * 8 + lane % 4 * 2 + i % 2, row = group * 16 + lane / 4 + i / 2 * 8;
#else
            u32 out = tile * 16 + lane / 4 + i / 2 * 8, row = group * 8 + lane % 4 * 2 + i % 2;
#endif
            if (row < m && out < n && row < ROWS) write(y[u64(row) * n + out], sum[group][i] + (bias ? bias[out] : 0.0f));
        }
}

extern "C" __global__ void __launch_bounds__(416, 1)
    linear_few(Y* y, const W* x, const W* weight, const float* bias, u32 m, u32 n, u32 k, u32 chunk, u32 stages) {
    extern __shared__ __align__(128) u8 shared[];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32 - 1;
    Ring ring = {shared_address(shared), warps, chunk, stages};
    if (threadIdx.x < stages) {
        barrier_init(ring.at(threadIdx.x).full, 1);
        barrier_init(ring.at(threadIdx.x).empty, warps);
        barrier_init_done();
    }
    __syncthreads();
    Feed feed = {(const u8*)weight, (const u8*)x, m, k, round_up(k, 64), round_up(n, 64) / (8 * STRIPES), blockIdx.x * warps};
    if (warp == warps) return produce(ring, feed, lane);
    wait_for_earlier_kernels();
    Place place = {0, 0};
    for (u32 tile0 = feed.tile0; tile0 < feed.tiles; tile0 += gridDim.x * warps) {
        float sum[GROUPS][4] = {};
        for (u32 start = 0; start < k; start += chunk, place.next(stages)) {
            Stage stage = ring.at(place.stage);
            u32 weights = stage.weights + warp * STRIPES * chunk * 16, width = width_at(start, chunk, k);
            barrier_wait(stage.full, place.round % 2);
            // The loads of the next 32 columns go before the products of these, which wait for one another.
            Fragments now, next;
            now.load(weights, stage.x, stage.pitch, chunk * 16, lane);
#pragma unroll 4
            for (u32 column = 32; column < width; column += 32) {
                next.load(weights + column * 16, stage.x + column * 2, stage.pitch, chunk * 16, lane);
                now.multiply(sum);
                now = next;
            }
            now.multiply(sum);
            __syncwarp();
            if (lane == 0) barrier_arrive(stage.empty);
        }
        if (tile0 + warp < feed.tiles) store(sum, y, bias, tile0 + warp, m, n, lane);
    }
}

#endif
