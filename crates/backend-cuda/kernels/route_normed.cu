// For few rows: the norm of a sum, the router's product and the choice of experts in one launch, with the bits of `add_rms_norm`, `linear` in f32 and
// `route_experts`: bound by the chain of a logit's products, 4 cycles a column.
//
// a, b, sum f32 [rows][k], sum = a + b; y Y [rows][k], its norm by `norm` f32 [k]; weight f32 [experts][k], k a multiple of 16; bias f32 [experts] or 0. What
// follows is as in `route_experts`; of one row the lists are made here, of more by `group_experts` after it.
//
// A cluster of eight blocks has ROWS rows. Each block norms them for itself; it has an eighth of the experts, whose weights its last warp brings before
// the earlier kernel has ended, in a ring of stages of COLUMNS columns; a thread has an expert and a row. Logits go to the first block's shared memory,
// where a warp chooses for a row.
//
// Defines: ROWS 1 or 4, Y. Grid: 8 * ceil(rows / ROWS), block 288; ceil(experts / 8) * ROWS at most 256. Dynamic shared memory: ROWS * k * 4 +
// ROWS * experts up to a multiple of 4 * 8 + stages * ceil(experts / 8) * (COLUMNS * 4 + 16); at most 16 stages.
#include "norm.cuh"
#include "ring.cuh"
#include "route.cuh"

#if __CUDA_ARCH__ >= 900

const u32 BLOCKS = 8, COLUMNS = 256, LINE = COLUMNS * 4 + 16, STAGES_MAX = 16;

__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Into the memory of the cluster's first block, at this block's address of it.
__device__ __forceinline__ void store_to_first(const float* at, float x) {
    asm volatile("{\n"
                 ".reg .u32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, 0;\n"
                 "st.shared::cluster.f32 [there], %1;\n"
                 "}" ::"r"(shared_address(at)), "f"(x) : "memory");
}

struct Ring {
    u32 barriers, stages_at, outs, stages;
    __device__ __forceinline__ u32 full(u32 stage) const {
        return barriers + stage * 16;
    }
    __device__ __forceinline__ u32 empty(u32 stage) const {
        return barriers + stage * 16 + 8;
    }
};

// Brings the weights of `count` experts, a lane a line.
__device__ __forceinline__ void produce(const Ring& ring, const float* weight, u32 count, u32 k, u32 lane) {
    Place place = {0, 0};
    for (u32 start = 0; start < k; start += COLUMNS, place.next(ring.stages)) {
        u32 bytes = min(COLUMNS, k - start) * 4, barrier = ring.full(place.stage), to = ring.stages_at + place.stage * ring.outs * LINE;
        if (place.round > 0) barrier_wait(ring.empty(place.stage), (place.round - 1) % 2);
        if (lane == 0) barrier_expect(barrier, count * bytes);
        __syncwarp();
        for (u32 out = lane; out < count; out += 32) copy_bulk(to + out * LINE, weight + u64(out) * k + start, bytes, barrier);
    }
}

// The product of a row with a line of each stage, where the thread has one.
__device__ __forceinline__ float product(const Ring& ring, const u8* stages, const float* x, u32 line, u32 k, bool has_one, u32 lane) {
    float sum = 0.0f;
    Place place = {0, 0};
    for (u32 start = 0; start < k; start += COLUMNS, place.next(ring.stages)) {
        barrier_wait(ring.full(place.stage), place.round % 2);
        const float4 *w = (const float4*)(stages + (place.stage * ring.outs + line) * LINE), *v = (const float4*)(x + start);
        u32 fours = has_one ? min(COLUMNS, k - start) / 4 : 0;
#pragma unroll 8
        for (u32 i = 0; i < fours; i++) {
            float4 a = v[i], b = w[i];
            sum = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.empty(place.stage));
    }
    return sum;
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(288)
    route_normed(float* sum, Y* y, u32* ids, float* weights, const float* a, const float* b, const float* norm, const float* weight, const float* bias, u32* order,
                 u32* tokens, u32* item_starts, uint4* items, u32 rows, u32 k, u32 experts, u32 chosen, u32 renormalise, u32 stages, float epsilon) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ __align__(16) u64 barriers[2 * STAGES_MAX];
    __shared__ float warp_sums[ROW_THREADS / 32];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = rank_in_cluster(), row0 = blockIdx.x / BLOCKS * ROWS, outs = (experts + BLOCKS - 1) / BLOCKS;
    u32 count = min(rows - row0, u32(ROWS)), first = min(rank * outs, experts), present = min(outs, experts - first);
    u32 places = ROWS * round_up(experts, 4);
    float *x = (float*)shared, *logits = x + ROWS * k;
    u32* likely = (u32*)logits + places;
    u8* stages_of = (u8*)(likely + places);
    Ring ring = {shared_address(barriers), shared_address(stages_of), outs, stages};
    if (threadIdx.x < stages) {
        barrier_init(ring.full(threadIdx.x), 1);
        barrier_init(ring.empty(threadIdx.x), ROW_THREADS / 32);
        barrier_init_done();
    }
    __syncthreads();
    cluster_arrive();
    if (warp == ROW_THREADS / 32) {
        produce(ring, weight + u64(first) * k, present, k, lane);
        let_next_kernel_start();
        wait_for_earlier_kernels();
        cluster_wait();
    } else {
        NormedRow row;
        row.load_weight(norm, k, threadIdx.x);
        join_chain();
        for (u32 i = 0; i < count; i++) {
            u64 start = u64(row0 + i) * k;
            float part = fold_warp(row.load(a + start, b + start, k, threadIdx.x)), squares = 0.0f;
            if (lane == 0) warp_sums[warp] = part;
            barrier_of(ROW_THREADS);
            for (u32 other = 0; other < ROW_THREADS / 32; other++) squares += warp_sums[other];
            float factor = 1.0f / sqrtf(squares / float(k) + epsilon);
            row.store(rank == 0 ? sum + start : 0, x + i * k, a + start, b + start, norm, factor, k, k, threadIdx.x);
            if (rank == 1) row.store(0, y + start, a + start, b + start, norm, factor, k, k, threadIdx.x);
            barrier_of(ROW_THREADS);
        }
        u32 line = threadIdx.x % outs, mine = threadIdx.x / outs;
        bool sums = line < present && mine < count;
        float found = product(ring, stages_of, x + (sums ? mine : 0) * k, line, k, sums, lane);
        // The first block runs by now: it arrived when it began.
        cluster_wait();
        if (sums) store_to_first(logits + mine * experts + first + line, found + (bias ? bias[first + line] : 0.0f));
    }
    cluster_arrive();
    cluster_wait();
    if (rank != 0 || warp >= count) return;
    u64 own = u64(row0 + warp) * chosen;
    likely += warp * experts;
    route(ids + own, weights + own, logits + warp * experts, likely, experts, chosen, renormalise, lane);
    if (rows == 1) group_one(order, tokens, item_starts, items, likely, experts, lane);
}

#endif
