// `linear` for 1 to ROWS rows (8, 16, 32 or 64), the same bits: bound by reading the weights once.
//
// x W [m][k], k a multiple of 8, read through a tensor map; weight W in tile order; bias f32 [n] or 0; y Y [m], rows of `stride` numbers.
//
// With GATE 1 (silu) or 2 (gelu_tanh) the matrix is gate and up as `repack` lays them, y has n / 2 numbers a row, the gate's function
// of one times the other, with the bits of `silu_gate` and `gelu_gate`; bias in the order of the rows.
//
// x_map: address in device memory of a CUtensorMap (64-byte aligned) over x as [rows][k]: 16-bit elements, dimensions {k, rows},
// stride {k * 2} bytes, box {64, ROWS}, element strides 1, no interleave, swizzle of 128 bytes, zeros out of bounds.
//
// A consumer warp owns 16 outputs, the 16-wide operand, for all rows of x. A last warp feeds a ring of stages: `chunk` columns (a multiple of 64) of every
// warp's weights and of x. Weights come before the earlier kernel has ended, x after.
//
// What did not help: x by a copy a row, in place of boxes (their number held the kernel up: 16 rows took 1.7 times one); stages of fewer than 256
// columns; letting the next kernel start after the last copy, not at once; rows kept whole in shared memory with a ring a warp, also where
// every block norms its rows itself; 8 outputs a warp as the 8-wide operand, which gives twice
// as many warps where n is small (n = 1,024: 3.8 us for 3.9 with k = 2,048, 7.0 for 5.4 with k = 3,072).
//
// Grid: any number of blocks, outputs go round over (block, warp); best: SMs = S, shares T = padded n / 16, a share of
// an SM P = ceil(T / S), rounds R = ceil(P / 12), warps = ceil(P / R), blocks = min(S, ceil(T / warps)). Block: 32 * (warps + 1). Dynamic
// shared memory, best close to 200 KB with a chunk of 256: 2,048 + stages * chunk * (warps * 32 + ROWS * 2); stages at most 8.
#include "outputs.cuh"
#include "ring.cuh"

#if __CUDA_ARCH__ >= 900

const u32 OUTS = 16, GROUPS = ROWS / 8;
// Bytes of a warp's weights and of x for 64 columns.
const u32 WEIGHT_SLAB = OUTS * 128, X_SLAB = ROWS * 128;

struct Ring {
    u32 barriers, stages_at, warps, slabs, stages;
    __device__ __forceinline__ u32 full(u32 stage) const {
        return barriers + stage * 16;
    }
    __device__ __forceinline__ u32 empty(u32 stage) const {
        return barriers + stage * 16 + 8;
    }
    __device__ __forceinline__ u32 weights(u32 stage, u32 warp) const {
        return stages_at + (stage * (warps * WEIGHT_SLAB + X_SLAB) + warp * WEIGHT_SLAB) * slabs;
    }
    __device__ __forceinline__ u32 x(u32 stage) const {
        return weights(stage, warps);
    }
};

// What one thread copies: weights of the block's outputs, and x, `slabs` times 64 columns from slab `start` on.
struct Feed {
    const u8* weight;
    const void* x_map;
    u32 slabs, shares, share0;

    __device__ __forceinline__ u32 present(u32 warps) const {
        return shares - share0 < warps ? shares - share0 : warps;
    }
    __device__ __forceinline__ void announce(const Ring& ring, u32 stage, u32 width) const {
        barrier_expect(ring.full(stage), width * (present(ring.warps) * WEIGHT_SLAB + X_SLAB));
    }
    __device__ __forceinline__ void weights(const Ring& ring, u32 stage, u32 start, u32 width) const {
        u32 count = present(ring.warps), barrier = ring.full(stage);
        for (u32 warp = 0; warp < count; warp++) {
            u32 share = share0 + warp, to = ring.weights(stage, warp);
            copy_bulk(to, weight + (u64(share) * slabs + start) * 2048, width * 2048, barrier);
        }
    }
    __device__ __forceinline__ void rows(const Ring& ring, u32 stage, u32 start, u32 width) const {
        for (u32 slab = 0; slab < width; slab++) copy_box(ring.x(stage) + slab * X_SLAB, x_map, (start + slab) * 64, 0, ring.full(stage));
    }
};

__device__ __forceinline__ u32 width_at(u32 start, u32 width, u32 slabs) {
    return slabs - start < width ? slabs - start : width;
}

__device__ __forceinline__ void produce(const Ring& ring, Feed feed) {
    u32 chunks = (feed.slabs + ring.slabs - 1) / ring.slabs, early = chunks < ring.stages ? chunks : ring.stages;
    if (feed.share0 < feed.shares)
        for (u32 i = 0; i < early; i++) {
            u32 width = width_at(i * ring.slabs, ring.slabs, feed.slabs);
            feed.announce(ring, i, width);
            feed.weights(ring, i, i * ring.slabs, width);
        }
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;\nprefetch.tensormap [%0];" ::"l"(feed.x_map) : "memory");
    join_chain();
    if (feed.share0 < feed.shares)
        for (u32 i = 0; i < early; i++) feed.rows(ring, i, i * ring.slabs, width_at(i * ring.slabs, ring.slabs, feed.slabs));
    Place place = {early % ring.stages, early / ring.stages};
    for (u32 first = early; feed.share0 < feed.shares; feed.share0 += gridDim.x * ring.warps, first = 0)
        for (u32 i = first; i < chunks; i++, place.next(ring.stages)) {
            u32 width = width_at(i * ring.slabs, ring.slabs, feed.slabs);
            if (place.round > 0) barrier_wait(ring.empty(place.stage), (place.round - 1) % 2);
            feed.announce(ring, place.stage, width);
            feed.weights(ring, place.stage, i * ring.slabs, width);
            feed.rows(ring, place.stage, i * ring.slabs, width);
        }
}

// Half a slab, 32 columns in two steps, of a warp's weights and of every group of rows.
struct Fragments {
    u32 weights[2][4], x[GROUPS][4];
    // The 16-byte piece q of row r of x lies at piece q ^ r % 8: the tensor map's swizzle.
    __device__ __forceinline__ void load(u32 weights_at, u32 x_at, u32 half, u32 lane) {
        u32 at = weights_at + lane / 8 % 2 * 1024 + half * 512 + lane / 16 * 128 + lane % 8 * 16;
        load_matrices(weights[0], at);
        load_matrices(weights[1], at + 256);
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++)
            load_matrices(x[group], x_at + (group * 8 + lane % 8) * 128 + ((half * 4 + lane / 8) ^ lane % 8) * 16);
    }
    __device__ __forceinline__ void multiply(float (&sum)[GROUPS][4]) const {
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++) {
            mma<W>(sum[group], weights[0], x[group][0], x[group][1]);
            mma<W>(sum[group], weights[1], x[group][2], x[group][3]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(416, 1)
    linear_few(Y* y, const void* x_map, const W* weight, const float* bias, u32 m, u32 n, u32 k, u32 stride, u32 chunk, u32 stages) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32 - 1, start = round_up(shared_address(shared), 1024);
    Ring ring = {start, start + 1024, warps, chunk / 64, stages};
    if (threadIdx.x < stages) {
        barrier_init(ring.full(threadIdx.x), 1);
        barrier_init(ring.empty(threadIdx.x), warps);
        barrier_init_done();
    }
    __syncthreads();
    Feed feed = {(const u8*)weight, x_map, round_up(k, 64) / 64, round_up(n, 64) / OUTS, blockIdx.x * warps};
    if (warp == warps) {
        if (lane == 0) produce(ring, feed);
        return;
    }
    wait_for_earlier_kernels();
    Place place = {0, 0};
    for (u32 share0 = feed.share0; share0 < feed.shares; share0 += gridDim.x * warps) {
        float sum[GROUPS][4] = {};
        for (u32 first = 0; first < feed.slabs; first += ring.slabs, place.next(stages)) {
            u32 weights = ring.weights(place.stage, warp), x = ring.x(place.stage), width = width_at(first, ring.slabs, feed.slabs);
            barrier_wait(ring.full(place.stage), place.round % 2);
            // The loads of a half go before the products of the half before, which wait for one another.
            Fragments even, odd;
            even.load(weights, x, 0, lane);
#pragma unroll 2
            for (u32 slab = 0; slab < width; slab++) {
                odd.load(weights, x, 1, lane);
                even.multiply(sum);
                weights += WEIGHT_SLAB, x += X_SLAB;
                if (slab + 1 < width) even.load(weights, x, 0, lane);
                odd.multiply(sum);
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(ring.empty(place.stage));
        }
        if (share0 + warp < feed.shares) store_outputs(sum, InOrder{y, stride}, bias, share0 + warp, m, n, lane);
    }
}

#endif
