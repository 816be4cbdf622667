// `linear` for one row, the same bits: bound by reading the weights once.
//
// weight W in tile order; bias f32 [n] or 0; y Y [n], or Y [n / 2] with GATE as in `linear_few`. x W [k], k a multiple of 8. Or, where a is not 0, x is
// made here, with the bits of `add_rms_norm`: sum f32 [k] = a + b, x = sum / sqrt(mean(sum^2) + epsilon) * norm, with a, b, norm f32 [k]; every
// block makes it for itself, the first writes sum.
//
// A consumer warp owns 16 outputs, the 16-wide operand; x lies whole in shared memory, the seven rows beside it are one line of zeros. A last warp
// feeds a ring of stages with `chunk` columns (a multiple of 64) of every warp's weights, which never waits for x. Weights come before the earlier
// kernel has ended. What a row waits for is the chain of its products, 25 cycles for 16 columns: so the next stage's weights are in
// registers before the last products of this one.
//
// Grid: any number of blocks, outputs go round over (block, warp), as in `linear_few`. Block: 32 * (max(warps, 8) + 1), of which `warps` multiply. Dynamic
// shared memory: 1,024 + padded k * 2 + stages * chunk * warps * 32; stages at most 16.
#include "outputs.cuh"
#include "row.cuh"

#if __CUDA_ARCH__ >= 900

const u32 OUTS = 16, STAGES_MAX = 16;
// Bytes of a warp's weights for 64 columns.
const u32 SLAB = OUTS * 128;
// In shared memory: barriers of the stages, that of x, the sums of warps, a line of zeros, x.
const u32 X_BARRIER = STAGES_MAX * 16, WARP_SUMS = X_BARRIER + 16, ZEROS = 1008, X = 1024;

struct Ring {
    u32 start, stages_at, warps, slabs, stages;
    __device__ __forceinline__ u32 full(u32 stage) const {
        return start + stage * 16;
    }
    __device__ __forceinline__ u32 empty(u32 stage) const {
        return start + stage * 16 + 8;
    }
    __device__ __forceinline__ u32 weights(u32 stage, u32 warp) const {
        return stages_at + (stage * warps + warp) * slabs * SLAB;
    }
};

// `width` slabs of every warp's weights, from slab `first` on.
__device__ __forceinline__ void feed(const Ring& ring, u32 stage, const u8* weight, u32 share0, u32 shares, u32 slabs, u32 first) {
    u32 count = min(shares - share0, ring.warps), width = min(slabs - first, ring.slabs), barrier = ring.full(stage);
    barrier_expect(barrier, width * count * SLAB);
    for (u32 warp = 0; warp < count; warp++)
        copy_bulk(ring.weights(stage, warp), weight + (u64(share0 + warp) * slabs + first) * SLAB, width * SLAB, barrier);
}

__device__ __forceinline__ void produce(const Ring& ring, const u8* weight, u32 shares, u32 slabs, const W* x, u32 k) {
    u32 share0 = blockIdx.x * ring.warps, first = 0;
    Place place = {0, 0};
    for (; share0 < shares && first < slabs && place.round == 0; first += ring.slabs, place.next(ring.stages))
        feed(ring, place.stage, weight, share0, shares, slabs, first);
    join_chain();
    if (x) {
        barrier_expect(ring.start + X_BARRIER, k * 2);
        copy_bulk(ring.start + X, x, k * 2, ring.start + X_BARRIER);
    }
    for (; share0 < shares; share0 += gridDim.x * ring.warps, first = 0)
        for (; first < slabs; first += ring.slabs, place.next(ring.stages)) {
            if (place.round > 0) barrier_wait(ring.empty(place.stage), (place.round - 1) % 2);
            feed(ring, place.stage, weight, share0, shares, slabs, first);
        }
}

// Half a slab, 32 columns in two steps.
struct Fragments {
    u32 weights[2][4], x[4];
    __device__ __forceinline__ void load(u32 weights_at, u32 x_at, u32 half) {
        load_matrices(weights[0], weights_at + half * 512);
        load_matrices(weights[1], weights_at + half * 512 + 256);
        load_matrices(x, x_at + half * 64);
    }
    __device__ __forceinline__ void multiply(float (&sum)[4]) const {
        mma<W>(sum, weights[0], x[0], x[1]);
        mma<W>(sum, weights[1], x[2], x[3]);
    }
};

// The outputs of this lane, by one pass over all columns.
__device__ __forceinline__ void accumulate(float (&sum)[4], const Ring& ring, Place& place, u32 slabs, u32 warp, u32 lane) {
    // A lane gives the address of a row of x: of the first one, or of zeros; the half's 64 bytes further are zeros too.
    u32 x_at = lane % 8 == 0 ? ring.start + X + lane / 8 * 16 : ring.start + ZEROS - 64, x_step = lane % 8 == 0 ? 128 : 0;
    u32 within = lane / 8 % 2 * 1024 + lane / 16 * 128 + lane % 8 * 16, at = ring.weights(place.stage, warp) + within, left = min(slabs, ring.slabs);
    barrier_wait(ring.full(place.stage), place.round % 2);
    Fragments even, odd;
    even.load(at, x_at, 0);
#pragma unroll 2
    for (u32 slab = 0; slab < slabs; slab++) {
        odd.load(at, x_at, 1);
        even.multiply(sum);
        at += SLAB, x_at += x_step;
        u32 used = place.stage;
        bool ends = --left == 0;
        if (ends) {
            place.next(ring.stages);
            left = min(slabs - slab - 1, ring.slabs);
            at = ring.weights(place.stage, warp) + within;
            if (left) barrier_wait(ring.full(place.stage), place.round % 2);
        }
        if (left) even.load(at, x_at, 0);
        odd.multiply(sum);
        if (ends) {
            __syncwarp();
            if (lane == 0) barrier_arrive(ring.empty(used));
        }
    }
}

extern "C" __global__ void __launch_bounds__(416, 1)
    linear_one(Y* y, float* sum, const W* x, const float* a, const float* b, const float* norm, const W* weight, const float* bias, u32 n, u32 k,
               float epsilon, u32 chunk, u32 stages, u32 warps) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, start = shared_address(shared), padded_k = round_up(k, 64);
    Ring ring = {start, start + X + padded_k * 2, warps, chunk / 64, stages};
    u32 slabs = padded_k / 64, shares = round_up(n, 64) / OUTS;
    W* row = (W*)(shared + X);
    if (threadIdx.x < stages) {
        barrier_init(ring.full(threadIdx.x), 1);
        barrier_init(ring.empty(threadIdx.x), warps);
    }
    if (threadIdx.x == 0) barrier_init(start + X_BARRIER, 1);
    barrier_init_done();
    // Of the zeros' line and the 112 bytes before it; beyond k.
    if (threadIdx.x < 32) ((u32*)(shared + X - 128))[threadIdx.x] = 0;
    if (threadIdx.x < padded_k - k) write(row[k + threadIdx.x], 0.0f);
    __syncthreads();
    if (warp == blockDim.x / 32 - 1) {
        if (lane == 0) produce(ring, (const u8*)weight, shares, slabs, a ? 0 : x, k);
        return;
    }
    if (a) {
        make_x(sum, row, a, b, norm, k, epsilon, (float*)(shared + WARP_SUMS), blockDim.x - 32, threadIdx.x);
        if (warp >= warps) return;
    } else {
        if (warp >= warps) return;
        wait_for_earlier_kernels();
        barrier_wait(start + X_BARRIER, 0);
    }
    Place place = {0, 0};
    for (u32 share0 = blockIdx.x * warps; share0 < shares; share0 += gridDim.x * warps) {
        // Column 0 of the products is the row.
        float sums[1][4] = {};
        accumulate(sums[0], ring, place, slabs, warp, lane);
        if (share0 + warp < shares) store_outputs(sums, InOrder{y, n}, bias, share0 + warp, 1, n, lane);
    }
}

#endif
