// `linear` for many rows, the same bits, by wgmma (sm_90a): bound by the tensor cores.
//
// x W [m][k], k a multiple of 8, read through a tensor map; weight W in tile order; bias f32 [n] or 0; y Y [m], rows of `stride` numbers.
//
// GATE as in `linear_few`.
//
// x_map: address in device memory of a CUtensorMap (64-byte aligned) over x as [rows][k]: 16-bit elements, dimensions {k, rows},
// stride {k * 2} bytes, box {64, 64}, element strides 1, no interleave, swizzle of 128 bytes, zeros out of bounds.
//
// A tile is GROUPS * 64 outputs x ROWS rows. Outputs are the 64-wide operand, a warpgroup each 64; the rows of x are the N of the
// instruction. The four warps of a last warpgroup feed a ring of STAGES of 64 columns (one alone could not issue the copies in time): weights by bulk copies of tiles of
// 2 KB (smaller ones, one an 8 outputs, held the whole kernel up by their number), x by boxes. Tiles go round over the blocks; neighbours share weights, 16 tiles of rows at a time, whose x stays in L2.
//
// With EXPERTS it is `expert_linear` for many rows: weight has the matrices of some experts one after the other, from `first_expert` on, each with n padded to 16, 48 rows
// more after the last; x has a row for each place in `order`; bias f32 [experts][n]; a tile of rows is an item (`route_experts`, tile = ROWS), m is not read.
//
// Defines: ROWS 64, 128 or 256; GROUPS 1 or 2; STAGES; EXPERTS. Grid: min(SMs, tiles), tiles = ceil(padded n / (64 GROUPS)) * ceil(m / ROWS), or any with EXPERTS.
// Block 128 * (GROUPS + 1). Dynamic shared memory 1,024 + STAGES * (GROUPS * 8,192 + ROWS * 128 + 16).
#include "gate.cuh"
#include "wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

const u32 WEIGHT_BYTES = GROUPS * 64 * 128, X_BYTES = ROWS * 128, STAGE_BYTES = WEIGHT_BYTES + X_BYTES;
const u32 TILES_OF_ROWS = 16; // that share weights

struct Sizes {
    u32 m, n, k, stride, padded_n, padded_k, outs, rows;
#if EXPERTS
    const u32* order;
    const uint4* items;
    u32 first_expert;
#endif
};

// Which tile of outputs and which of rows: the first row and where they end, and the expert, 0 where there is one matrix.
struct Tile {
    u32 out, row, end, expert;
#if EXPERTS
    __device__ __forceinline__ Tile(u32 number, const Sizes& size) {
        uint4 item = size.items[number / size.outs];
        out = number % size.outs * GROUPS * 64, row = item.y, end = item.y + item.z, expert = item.x;
    }
    // Rows of 16 outputs before the expert's.
    __device__ __forceinline__ u32 tiles_before(const Sizes& size) const {
        return (expert - size.first_expert) * (round_up(size.n, 16) / 16);
    }
#else
    __device__ __forceinline__ Tile(u32 number, const Sizes& size) {
        u32 band = number / (TILES_OF_ROWS * size.outs), left = size.rows - band * TILES_OF_ROWS;
        u32 high = left < TILES_OF_ROWS ? left : TILES_OF_ROWS, within = number - band * TILES_OF_ROWS * size.outs;
        out = within / high * GROUPS * 64, row = (band * TILES_OF_ROWS + within % high) * ROWS, end = size.m, expert = 0;
    }
    __device__ __forceinline__ u32 tiles_before(const Sizes&) const {
        return 0;
    }
#endif
};

__device__ __forceinline__ u32 full(u32 ring, u32 stage) {
    return ring + STAGES * STAGE_BYTES + stage * 16;
}
__device__ __forceinline__ u32 empty(u32 ring, u32 stage) {
    return full(ring, stage) + 8;
}

// One thread of each of four warps: every fourth tile and box.
__device__ __forceinline__ void produce(u32 ring, const u8* weight, const void* x_map, const Sizes& size) {
    u32 first = threadIdx.x / 32 % 4;
    Place place = {0, 0};
    u64 row_of_tiles = u64(size.padded_k) * 32;
    for (u32 number = blockIdx.x; number < size.outs * size.rows; number += gridDim.x) {
        Tile tile(number, size);
        u32 tiles = (size.padded_n - tile.out) / 16 < GROUPS * 4 ? (size.padded_n - tile.out) / 16 : GROUPS * 4;
        u32 bytes = (tiles + 3 - first) / 4 * 2048 + (ROWS / 64 + 3 - first) / 4 * 8192;
        const u8* from = weight + (tile.tiles_before(size) + tile.out / 16) * row_of_tiles;
        for (u32 start = 0; start < size.padded_k; start += 64, from += 2048, place.next(STAGES)) {
            u32 to = ring + place.stage * STAGE_BYTES, barrier = full(ring, place.stage);
            if (place.round > 0) barrier_wait(empty(ring, place.stage), (place.round - 1) % 2);
            barrier_expect(barrier, bytes);
            if (first < ROWS / 64) copy_box(to + WEIGHT_BYTES + first * 8192, x_map, start, tile.row + first * 64, barrier);
#pragma unroll
            for (u32 i = first; i < GROUPS * 4; i += 4)
                if (i < tiles) copy_bulk(to + i * 2048, from + i * row_of_tiles, 2048, barrier);
        }
    }
    let_next_kernel_start();
}

// The sums of one tile, 64 outputs of this warpgroup.
__device__ __forceinline__ void accumulate(float (&sum)[ROWS / 2], u32 ring, u32 padded_k, Place& place) {
    u32 group = threadIdx.x / 128, previous = STAGES;
    for (u32 start = 0; start < padded_k; start += 64, place.next(STAGES)) {
        u32 stage = ring + place.stage * STAGE_BYTES;
        barrier_wait(full(ring, place.stage), place.round % 2);
        u64 weights = core_descriptor(stage + group * 8192, 1024), rows = swizzled_descriptor(stage + WEIGHT_BYTES);
        wgmma_begin();
#pragma unroll
        for (u32 step = 0; step < 4; step++)
            wgmma((W*)0, sum, weights + step * (256 >> 4), rows + step * (32 >> 4), start + step > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (previous < STAGES && threadIdx.x % 128 == 0) barrier_arrive(empty(ring, previous));
        previous = place.stage;
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) barrier_arrive(empty(ring, previous));
}

__device__ __forceinline__ void store(const float (&sum)[ROWS / 2], Y* y, const float* bias, const Tile& tile, const Sizes& size) {
    u32 lane = threadIdx.x % 32, out = tile.out + threadIdx.x / 32 * 16 + lane / 4;
    const float* own = bias + u64(tile.expert) * size.n;
    float first = bias && out < size.n ? own[out] : 0.0f, second = bias && out + 8 < size.n ? own[out + 8] : 0.0f;
#pragma unroll
    for (u32 i = 0; i < ROWS / 2; i += 4)
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            u32 row = tile.row + i * 2 + lane % 4 * 2 + j;
            if (row >= tile.end) continue;
#if EXPERTS
            row = size.order[row];
#endif
#if GATE
            Y* place = y + u64(row) * size.stride + out / 16 * 8 + out % 8;
            if (out < size.n) write(*place, gated(sum[i + j] + first, sum[i + j + 2] + second));
#else
            Y* line = y + u64(row) * size.stride + out;
            if (out < size.n) write(line[0], sum[i + j] + first);
            if (out + 8 < size.n) write(line[8], sum[i + j + 2] + second);
#endif
        }
}

extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1)
    linear_many(Y* y, const void* x_map, const W* weight, const float* bias, u32 m, u32 n, u32 k, u32 stride
#if EXPERTS
                , const u32* order, const u32* item_starts, const uint4* items, u32 first_expert, u32 experts
#endif
    ) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 ring = round_up(shared_address(shared), 1024);
    if (threadIdx.x < STAGES) {
        barrier_init(full(ring, threadIdx.x), 4);
        barrier_init(empty(ring, threadIdx.x), GROUPS);
        barrier_init_done();
    }
    __syncthreads();
    wait_for_earlier_kernels();
    u32 padded_n = round_up(n, 64);
    Sizes size = {m, n, k, stride, padded_n, round_up(k, 64), (padded_n / 64 + GROUPS - 1) / GROUPS, (m + ROWS - 1) / ROWS};
#if EXPERTS
    u32 first_item = item_starts[first_expert];
    size.rows = item_starts[first_expert + experts] - first_item, size.order = order, size.items = items + first_item, size.first_expert = first_expert;
#endif
    if (threadIdx.x / 128 == GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x % 32 == 0) {
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(x_map) : "memory");
            produce(ring, (const u8*)weight, x_map, size);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        Place place = {0, 0};
        for (u32 number = blockIdx.x; number < size.outs * size.rows; number += gridDim.x) {
            float sum[ROWS / 2];
            accumulate(sum, ring, size.padded_k, place);
            store(sum, y, bias, Tile(number, size), size);
        }
    }
}

#endif
