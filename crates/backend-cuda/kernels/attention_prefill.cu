// `attention` for many rows of a sequence at once, by mma: bound by the tensor cores. The bits of `attention_split`.
//
// q f32 [rows][heads * DIM]; pages with keys and values in core order [kv_head][64/8][DIM/8][8][8]; sinks f32 [heads] or 0; y Y
// [rows][heads * DIM]. work uint4 {first_row, row_count, sequence, -} [work_count], row_count * (heads / kv_heads) at most
// WARPS * 16 lines; the list should begin with the rows that see most.
//
// A block takes (item, kv head); a warp 16 lines over all their keys; a last warp feeds a ring of blocks of keys and of values, one
// bulk copy each. Grid: (work items, kv_heads). Block 32 * (WARPS + 1), WARPS 8, or 4 where DIM > 128. Dynamic shared memory
// 1,024 + STAGES * DIM * 128 + WARPS * 16 * (DIM * 2 + 16), and with DIM > 64 WARPS * 16 * DIM * 4 more; STAGES 4.
#include "attention.cuh"

#if __CUDA_ARCH__ >= 900

#if DIM > 128
const u32 WARPS = 4;
#else
const u32 WARPS = 8;
#endif
const u32 STAGES = 4, PAIRS = DIM / 16;

struct Tile {
    u32 first_row, lines, group, first_block, last_block, last;
};

__device__ __forceinline__ void produce(u32 ring, u32 barriers, const Blocks& from, const Tile& tile) {
    Place place = {0, 0};
    for (u32 block = tile.first_block; block <= tile.last_block; block++) {
        for (u32 part = 0; part < 2; part++, place.next(STAGES)) {
            u32 full = barriers + place.stage * 16, to = ring + place.stage * BLOCK_BYTES;
            if (place.round > 0) barrier_wait(full + 8, (place.round - 1) % 2);
            if (part == 0)
                from.copy_keys(to, block, from.table[block], full);
            else
                from.copy_values(to, from.table[block], full);
        }
    }
}

// What a warp's 16 lines have come to: two lines a thread.
struct Running {
    float max[2], sum[2], y[PAIRS][2][4];
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (u32 line = 0; line < 2; line++) max[line] = NONE, sum[line] = 0.0f;
#pragma unroll
        for (u32 i = 0; i < PAIRS * 8; i++) y[i / 8][i / 4 % 2][i % 4] = 0.0f;
    }
};

#if DIM > 64
// Totals of wide heads don't fit the registers: element i of thread t is at i * threads + t of shared memory.
#define TOTAL(i) total_y[(i) * WARPS * 32]
#else
#define TOTAL(i) total_y[i]
#endif

extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), 1)
    attention_prefill(Y* y, const float* q, const u8* layer, const u32* row_sequence, const u32* row_index, const u32* pages,
                      const int* table_base, const float* sinks, const uint4* work, u32 heads, u32 kv_heads, u64 page_bytes,
                      u64 value_offset, float scale, float soft_cap, u32 window OPEN_PARAMETERS) {
    extern __shared__ __align__(128) u8 shared[];
    u8* queries = shared + 1024;
    u32 barriers = shared_address(shared), ring = barriers + 1024 + WARPS * LINES * QUERY_PITCH;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, kv_head = blockIdx.y;
    if (threadIdx.x < STAGES) {
        barrier_init(barriers + threadIdx.x * 16, 1);
        barrier_init(barriers + threadIdx.x * 16 + 8, WARPS);
        barrier_init_done();
    }
    join_chain();
    uint4 item = work[blockIdx.x];
    Tile tile;
    tile.group = heads / kv_heads, tile.first_row = item.x, tile.lines = item.y * tile.group;
    tile.last = row_index[item.x + item.y - 1];
    tile.first_block = seen_at(row_index[item.x], window).first / BLOCK_KEYS, tile.last_block = tile.last / BLOCK_KEYS;
    load_queries(queries, q + (u64(item.x) * heads + kv_head * tile.group) * DIM, tile.lines, WARPS * LINES, tile.group, heads * DIM,
                 threadIdx.x, blockDim.x);
    __syncthreads();
    if (warp == WARPS) {
        if (lane == 0)
            produce(ring, barriers, Blocks(PAGES, item.z, kv_head, kv_heads, tile.last_block), tile);
        return;
    }
    ScoreRule rule = {scale, soft_cap};
    Seen seen[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 line = warp * LINES + lane / 4 + i * 8;
        seen[i] = line < tile.lines ? seen_at(row_index[item.x + line / tile.group], window) : Seen{1, 0};
    }
    Running split;
    split.clear();
    float total_max[2] = {NONE, NONE}, total_sum[2] = {0.0f, 0.0f};
#if DIM > 64
    float* total_y = (float*)(shared + 1024 + WARPS * LINES * QUERY_PITCH + STAGES * BLOCK_BYTES) + threadIdx.x;
#else
    float total_y[PAIRS * 8];
#endif
#pragma unroll
    for (u32 i = 0; i < PAIRS * 8; i++) TOTAL(i) = 0.0f;
    Place place = {0, 0};
    for (u32 block = tile.first_block; block <= tile.last_block; block++) {
        float s[8][4], max[2], sum[2], factor[2];
        u32 full = barriers + place.stage * 16;
        barrier_wait(full, place.round % 2);
        u32 keys = ring + place.stage * BLOCK_BYTES;
#if INT8
        if (block == tile.last_block)
            products(s, shared_address(queries) + warp * LINES * QUERY_PITCH, Keys(keys), lane);
        else
#endif
            products(s, shared_address(queries) + warp * LINES * QUERY_PITCH, PageKeys(keys), lane);
        __syncwarp();
        if (lane == 0) barrier_arrive(full + 8);
        place.next(STAGES);
        scores(s, max, rule, seen, block, lane);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            max[i] = fmaxf(max[i], split.max[i]);
            factor[i] = remains(split.max[i], max[i]);
            split.max[i] = max[i];
        }
        weigh(s, sum, max, rule);
#pragma unroll
        for (u32 i = 0; i < 2; i++) split.sum[i] = fmaf(split.sum[i], factor[i], sum[i]);
#pragma unroll
        for (u32 i = 0; i < PAIRS * 8; i++) {
            float& sum_y = split.y[i / 8][i / 4 % 2][i % 4];
            sum_y = __fmul_rn(sum_y, factor[i / 2 % 2]);
        }
        full = barriers + place.stage * 16;
        barrier_wait(full, place.round % 2);
        u32 valid = valid_keys(tile.last, block);
        u32 p[4][4];
#pragma unroll
        for (u32 i = 0; i < 16; i++) p[i / 4][i % 4] = pack<K>(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (u32 pair = 0; pair < PAIRS; pair += PAIRS_AT_ONCE)
            add_values(reinterpret_cast<float (&)[PAIRS_AT_ONCE][2][4]>(split.y[pair]), p, PageValues<PAIRS_AT_ONCE>(ring + place.stage * BLOCK_BYTES, pair, 1, lane), valid, lane);
        __syncwarp();
        if (lane == 0) barrier_arrive(full + 8);
        place.next(STAGES);
        if (block % (SPLIT_KEYS / BLOCK_KEYS) == SPLIT_KEYS / BLOCK_KEYS - 1 || block == tile.last_block) {
            Join factors[2];
#pragma unroll
            for (u32 i = 0; i < 2; i++) factors[i] = join(total_max[i], total_sum[i], split.max[i], fold_quad(split.sum[i]));
#pragma unroll
            for (u32 i = 0; i < PAIRS * 8; i++)
                TOTAL(i) = joined(TOTAL(i), split.y[i / 8][i / 4 % 2][i % 4], factors[i / 2 % 2]);
            split.clear();
        }
    }
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 line = warp * LINES + lane / 4 + i * 8;
        if (line >= tile.lines) continue;
        u32 head = kv_head * tile.group + line % tile.group;
        float factor = finish(total_max[i], total_sum[i], sinks, head);
        Y* out = y + (u64(item.x + line / tile.group) * heads + head) * DIM + lane % 4 * 2;
#pragma unroll
        for (u32 j = 0; j < PAIRS * 2; j++)
#pragma unroll
            for (u32 c = 0; c < 2; c++) write(out[j * 8 + c], __fmul_rn(TOTAL(j * 4 + i * 2 + c), factor));
    }
}

#endif
