// `linear` for 1 to ROWS rows (8, 16 or 32) of weights in codes, with the bits of `linear` over the same weights in bf16: bound by reading the codes once,
// and by unpacking them.
//
// x bf16 [m][k], k a multiple of 8, read through a tensor map; weight: units of W (`codes.cuh`); bias f32 [n] or 0; y Y, rows of `stride` numbers.
//
// With GATE 1 (silu) or 2 (gelu_tanh) units of gate and up alternate, y is Y [m][n / 2], the gate's function of one times the other, as in `linear_few`.
//
// x_map: as in `linear_few`, box {64, ROWS}.
//
// A warp has 16 outputs as the 16-wide operand of mma.sync, or 8 as the 8-wide one (UNITS 2 and 1), so that matrices with few outputs have a warp a
// scheduler. A lane's codes of a unit belong to one output, whose scales it makes once a group. A last warp feeds a ring of stages, a lane a warp's
// codes: `chunk` columns (a multiple of RUN) of every warp and of x. Codes come before the earlier kernel has ended, x after.
//
// Defines: ROWS, UNITS 1 or 2 (2 with GATE), W, Y. Grid and block as in `linear_few`, for shares of UNITS * 8 outputs. Dynamic shared memory
// 2,048 + stages * chunk * (warps * UNITS * UNIT / RUN + ROWS * 2), each part rounded up to 1,024; at most 8 stages and 16 warps.
#include "codes.cuh"
#include "outputs.cuh"
#include "ring.cuh"

#if __CUDA_ARCH__ >= 900

const u32 X_SLAB = ROWS * 128;

struct Ring {
    u8* memory;
    u32 barriers, stages_at, warps, runs, stages;
    __device__ __forceinline__ u32 full(u32 stage) const {
        return barriers + stage * 16;
    }
    __device__ __forceinline__ u32 empty(u32 stage) const {
        return barriers + stage * 16 + 8;
    }
    // x first, whose boxes are aligned.
    __device__ __forceinline__ u32 stage_bytes() const {
        return runs * W::SLABS * X_SLAB + round_up(warps * runs * UNITS * W::UNIT, 1024);
    }
    __device__ __forceinline__ u32 x(u32 stage) const {
        return stages_at + stage * stage_bytes();
    }
    __device__ __forceinline__ u32 codes_at(u32 stage, u32 warp) const {
        return stage * stage_bytes() + runs * W::SLABS * X_SLAB + warp * runs * UNITS * W::UNIT;
    }
};

__device__ __forceinline__ u32 width_at(u32 start, u32 width, u32 all) {
    return all - start < width ? all - start : width;
}

// What the last warp copies.
struct Feed {
    const u8* weight;
    const void* x_map;
    u32 runs, slabs, shares, share0;

    // Codes of a warp's outputs, one warp a lane.
    __device__ __forceinline__ void codes(const Ring& ring, u32 stage, u32 start, u32 width, u32 lane) const {
        u32 present = shares - share0 < ring.warps ? shares - share0 : ring.warps;
        u32 x_slabs = width_at(start * W::SLABS, width * W::SLABS, slabs);
        if (lane == 0) barrier_expect(ring.full(stage), width * present * UNITS * W::UNIT + x_slabs * X_SLAB);
        __syncwarp();
        if (lane >= present) return;
        u32 share = share0 + lane, to = ring.stages_at + ring.codes_at(stage, lane), barrier = ring.full(stage);
#if UNITS == 2
        copy_bulk(to, weight + (u64(share) * runs + start) * 2 * W::UNIT, width * 2 * W::UNIT, barrier);
#else
        for (u32 run = 0; run < width; run++)
            copy_bulk(to + run * W::UNIT, weight + unit_place(share, start + run, runs) * W::UNIT, W::UNIT, barrier);
#endif
    }
    __device__ __forceinline__ void rows(const Ring& ring, u32 stage, u32 start, u32 width, u32 lane) const {
        u32 x_slabs = width_at(start * W::SLABS, width * W::SLABS, slabs);
        if (lane < x_slabs) copy_box(ring.x(stage) + lane * X_SLAB, x_map, (start * W::SLABS + lane) * 64, 0, ring.full(stage));
    }
};

__device__ __forceinline__ void produce(const Ring& ring, Feed feed, u32 lane) {
    u32 chunks = (feed.runs + ring.runs - 1) / ring.runs, early = chunks < ring.stages ? chunks : ring.stages;
    if (feed.share0 < feed.shares)
        for (u32 i = 0; i < early; i++) feed.codes(ring, i, i * ring.runs, width_at(i * ring.runs, ring.runs, feed.runs), lane);
    let_next_kernel_start();
    wait_for_earlier_kernels();
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(feed.x_map) : "memory");
    Place place = {0, 0};
    for (u32 round = 0; feed.share0 < feed.shares; round++, feed.share0 += gridDim.x * ring.warps)
        for (u32 i = 0; i < chunks; i++, place.next(ring.stages)) {
            u32 start = i * ring.runs, width = width_at(start, ring.runs, feed.runs);
            if (place.round > 0) barrier_wait(ring.empty(place.stage), (place.round - 1) % 2);
            if (round > 0 || i >= early) feed.codes(ring, place.stage, start, width, lane);
            feed.rows(ring, place.stage, start, width, lane);
        }
}

// The sums of a warp for all rows. The 16-byte piece q of row r of x lies at piece q ^ r % 8: the tensor map's swizzle.
#if UNITS == 2

// Weights are the 16-wide operand: units are its upper and lower half.
struct Sums {
    static const u32 GROUPS = ROWS / 8;
    float sum[GROUPS][4];

    // Two steps of 16 columns.
    __device__ __forceinline__ void add(const u32 (&b)[2][UNITS][2], u32 x_at, u32 half, u32, u32 lane) {
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++) {
            u32 x[4];
            load_matrices(x, x_at + (group * 8 + lane % 8) * 128 + ((half * 4 + lane / 8) ^ lane % 8) * 16);
#pragma unroll
            for (u32 step = 0; step < 2; step++) mma_of_pair(sum[group], b[step], x[step * 2], x[step * 2 + 1]);
        }
    }
    __device__ __forceinline__ void store(Y* y, const float* bias, u32 share, u32 m, u32 n, u32 stride, u32 lane) const {
        store_outputs(sum, InOrder{y, stride}, bias, share, m, n, lane);
    }
};

#else

// Weights are the 8-wide operand, rows the 16-wide one; where there are 8, the others are read from a place of zeros.
struct Sums {
    static const u32 GROUPS = (ROWS + 15) / 16;
    float sum[GROUPS][4];

    __device__ __forceinline__ void add(const u32 (&b)[2][UNITS][2], u32 x_at, u32 half, u32 zeros, u32 lane) {
#pragma unroll
        for (u32 step = 0; step < 2; step++)
#pragma unroll
            for (u32 group = 0; group < GROUPS; group++) {
                u32 a[4], at = x_at + (group * 16 + lane % 16) * 128 + ((half * 4 + step * 2 + lane / 16) ^ lane % 8) * 16;
                load_matrices(a, ROWS == 8 && lane % 16 >= 8 ? zeros : at);
                mma<bf16>(sum[group], a, b[step][0][0], b[step][0][1]);
            }
    }
    __device__ __forceinline__ void store(Y* y, const float* bias, u32 share, u32 m, u32 n, u32 stride, u32 lane) const {
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 row = group * 16 + lane / 4 + i / 2 * 8, out = share * 8 + lane % 4 * 2 + i % 2;
                if (row < m && out < n) write(y[u64(row) * stride + out], sum[group][i] + (bias ? bias[out] : 0.0f));
            }
    }
};

#endif

// One run of columns.
__device__ __forceinline__ void accumulate(Sums& sums, const u8* codes, u32 x_at, u32 zeros, u32 lane) {
    unpack_run<W, UNITS>(codes, lane, [&](const u32 (&b)[2][UNITS][2], u32 slab, u32 half) { sums.add(b, x_at + slab * X_SLAB, half, zeros, lane); });
}

extern "C" __global__ void __launch_bounds__(544, 1)
    linear_codes(Y* y, const void* x_map, const u8* weight, const float* bias, u32 m, u32 n, u32 k, u32 stride, u32 chunk, u32 stages) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32 - 1, base = shared_address(shared), start = round_up(base, 1024);
    Ring ring = {shared + (start + 1024 - base), start, start + 1024, warps, chunk / W::RUN, stages};
    if (threadIdx.x < stages) {
        barrier_init(ring.full(threadIdx.x), 1);
        barrier_init(ring.empty(threadIdx.x), warps);
        barrier_init_done();
    }
    u32 zeros = start + 512;
    if (threadIdx.x >= 32 && threadIdx.x < 36) *(u32*)(shared + (zeros - base) + (threadIdx.x - 32) * 4) = 0;
    __syncthreads();
    Feed feed = {weight, x_map, round_up(k, W::RUN) / W::RUN, round_up(k, 64) / 64, round_up(n, 16) / (UNITS * 8), blockIdx.x * warps};
    if (warp == warps) {
        produce(ring, feed, lane);
        return;
    }
    wait_for_earlier_kernels();
    Place place = {0, 0};
    for (u32 share0 = feed.share0; share0 < feed.shares; share0 += gridDim.x * warps) {
        Sums sums = {};
        for (u32 first = 0; first < feed.runs; first += ring.runs, place.next(stages)) {
            u32 width = width_at(first, ring.runs, feed.runs), x = ring.x(place.stage);
            const u8* codes = ring.memory + ring.codes_at(place.stage, warp);
            barrier_wait(ring.full(place.stage), place.round % 2);
#pragma unroll (4 / W::SLABS)
            for (u32 run = 0; run < width; run++) accumulate(sums, codes + run * UNITS * W::UNIT, x + run * W::SLABS * X_SLAB, zeros, lane);
            __syncwarp();
            if (lane == 0) barrier_arrive(ring.empty(place.stage));
        }
        if (share0 + warp < feed.shares) sums.store(y, bias, share0 + warp, m, n, stride, lane);
    }
}

#endif
