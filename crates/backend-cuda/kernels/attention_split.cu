// `attention` for few rows of many keys, split over the keys: bound by reading keys and values once. Two entries: partial sums of each
// split of 256 keys, then their fold in the order of position. The bits of `attention_prefill`.
//
// q f32 [rows][heads * DIM]; pages with keys and values in core order [kv_head][64/8][DIM/8][8][8]; work uint4 {first_row, row_count,
// sequence, split} [*work_count], row_count * (heads / kv_heads) at most 64 lines; every (row, split) that the row sees is in one item.
// scratch f32 [partials][heads][DIM + 2]: y, maximum, sum; that of (row, split) is number partial_offset[row] + split. Rows that see one split
// only have their result at once. Metadata and the keys and values of earlier steps (blocks that end by
// sequence_length[sequence]) are read before the earlier kernel has ended: they must be complete before the step's first kernel starts.
//
// `attention_split`: blocks walk over (item, kv head), so the grid is fixed and one launch fits every mixture. Four warps: warp w has
// the keys of block w of the split for the scores, and a quarter of the columns for all keys of the split for the result; weights,
// maxima and sums change hands in shared memory. A fifth warp feeds a ring of blocks of keys and values and runs ahead into the next
// items. Two blocks an SM, where they fit, hide one's barriers behind the other's products; over codes three, since their unpacking is to be hidden too.
// `lines` is the most lines of an item, a multiple of 16. Grid: 2 * SMs, over codes 3 * SMs where DIM <= 128. Block 160. Dynamic shared memory
// STAGES * STAGE_BYTES + lines * (DIM * 2 + 544): the host has the same numbers.
//
// A stage has a block of keys or of values. Over codes it is as large as a block of codes, and the keys of a row's own block, which are in f16, take two.
// All keys of an item have to be there at once, so with fewer stages than they take the ring would stand still.
//
// Items of 16 lines are best for few sequences: with 64, 16 rows of one took twice the time.
//
// What did not help: stages of values given free one by one, as soon as they are used (over f16 3 % lost); the work of `finish_qkv` done here, where each item has one row (its wait is hidden, its work is not); a fold by the last block to finish (at a depth of 65,536 twice the time, at 300 nothing gained).
//
// `attention_fold`: a block has 32 columns of a (row, head). The maxima before each split come from a scan, so all factors are made at
// once; then sums and columns go through the splits in order. Grid: (rows, heads, ceil(DIM / 32)), block 128.
#include "attention.cuh"

#if INT8
#define STAGES (DIM <= 64 ? 9 : DIM <= 128 ? 6 : 5)
#define BLOCKS_OF_SM (DIM <= 128 ? 3 : 2)
#else
#define STAGES (DIM <= 64 ? 8 : DIM <= 128 ? 5 : 4)
#define BLOCKS_OF_SM (DIM <= 128 ? 2 : 1)
#endif

#if __CUDA_ARCH__ >= 900

const u32 WARPS = 4, PAIRS = DIM / 16;
static_assert(PAIRS % WARPS == 0, "warps have as many columns each");
const u32 LINES_MAX = 64, TILES_MAX = LINES_MAX / LINES;
const u32 WEIGHT_PITCH = SPLIT_KEYS * 2 + 16;
const u32 BLOCKS = SPLIT_KEYS / BLOCK_KEYS;
#if INT8
const u32 STAGE_BYTES = KEY_BYTES, OPEN_STAGES = 2;
#else
const u32 STAGE_BYTES = BLOCK_BYTES, OPEN_STAGES = 1;
#endif
// Stages of the keys of an item, at most.
const u32 KEY_STAGES_MAX = BLOCKS - 1 + OPEN_STAGES;
static_assert(STAGES >= KEY_STAGES_MAX, "all keys of an item are there at once");
static_assert(STAGE_BYTES >= VALUE_BYTES && STAGE_BYTES * OPEN_STAGES >= BLOCK_BYTES, "a stage has room for what comes to it");

struct Shared {
    u64 barriers[2 * STAGES];
    // Of each line: the largest score of each block.
    float max[TILES_MAX][BLOCKS][LINES];
    // Of each line and block: the sums of four threads.
    float sum[TILES_MAX][BLOCKS][LINES][4];
};

// The blocks of keys that an item reads.
struct Span {
    u32 first, last; // of blocks, by absolute index
    u32 last_key;
    __device__ __forceinline__ Span(const uint4& item, const u32* row_index, u32 window) {
        u32 first_key = seen_at(row_index[item.x], window).first, start = item.w * BLOCKS;
        last_key = row_index[item.x + item.y - 1];
        first = first_key / BLOCK_KEYS > start ? first_key / BLOCK_KEYS : start;
        last = last_key / BLOCK_KEYS < start + BLOCKS - 1 ? last_key / BLOCK_KEYS : start + BLOCKS - 1;
    }
    __device__ __forceinline__ u32 blocks() const {
        return last - first + 1;
    }
    // Stages that the keys take.
    __device__ __forceinline__ u32 key_stages() const {
        return blocks() + (last == last_key / BLOCK_KEYS ? OPEN_STAGES - 1 : 0);
    }
};

// Copies of one item: blocks of keys, then blocks of values.
struct Copies {
    Blocks from;
    u32 first, blocks, key_stages, pages[BLOCKS];

    __device__ __forceinline__ Copies(const Blocks& from, const Span& span)
        : from(from), first(span.first), blocks(span.blocks()), key_stages(span.key_stages()) {
#pragma unroll
        for (u32 i = 0; i < BLOCKS; i++) pages[i] = i < blocks ? from.table[int(first + i)] : 0;
    }
    // The blocks of keys and of values into the stages from `place` on, when those of earlier uses are empty. In two passes: first those of the
    // `early` first blocks, as far as there are stages; then all others.
    __device__ __forceinline__ void issue(u32 ring, u32 barriers, Place place, u32 early, bool is_early) const {
#pragma unroll
        for (u32 i = 0; i < KEY_STAGES_MAX + BLOCKS; i++) {
            // Of several stages of the last block's keys, each has the same block.
            u32 block = i >= key_stages ? i - key_stages : i < blocks ? i : blocks - 1;
            if (i < key_stages + blocks && (block < early && i < STAGES) == is_early) {
                u32 full = barriers + place.stage * 16, to = ring + place.stage * STAGE_BYTES, page = 0;
#pragma unroll
                for (u32 j = 0; j < BLOCKS; j++) page = j == block ? pages[j] : page;
                if (place.round > 0) barrier_wait(full + 8, (place.round - 1) % 2);
                if (i >= key_stages)
                    from.copy_values(to, page, full);
#if INT8
                else if (first + block == from.own)
                    from.copy_open(to, (i - block) * (BLOCK_BYTES / OPEN_STAGES), BLOCK_BYTES / OPEN_STAGES, full);
#endif
                else
                    from.copy_keys(to, first + block, page, full);
            }
            place.next(STAGES);
        }
    }
};

__device__ __forceinline__ void produce(u32 ring, u32 barriers, const Pages& from, const uint4* work, u32 units, u32 kv_heads,
                                        const u32* row_index, const u32* sequence_length, u32 window) {
    Place place = {0, 0};
    for (u32 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        uint4 item = work[unit / kv_heads];
        Span span(item, row_index, window);
        Copies copies(Blocks(from, item.z, unit % kv_heads, kv_heads, span.last_key / BLOCK_KEYS), span);
        u32 early = 0;
        if (unit == blockIdx.x) {
            // What earlier steps wrote need not wait, as far as it finds a stage that nobody used.
            u32 settled = sequence_length[item.z] / BLOCK_KEYS;
            early = settled > span.first ? settled - span.first : 0;
            copies.issue(ring, barriers, place, early, true);
            wait_for_earlier_kernels();
        }
        copies.issue(ring, barriers, place, early, false);
        for (u32 i = 0; i < copies.key_stages + copies.blocks; i++) place.next(STAGES);
    }
}

__device__ __forceinline__ u32 stage_at(const Place& place, u32 further) {
    return (place.stage + further) % STAGES;
}
__device__ __forceinline__ void wait_stage(u32 barriers, const Place& place, u32 further) {
    u32 round = place.round + (place.stage + further) / STAGES;
    barrier_wait(barriers + stage_at(place, further) * 16, round % 2);
}

// One item for one kv head: what the four warps share.
struct Unit {
    uint4 item;
    u32 kv_head, heads, group, lines, blocks, key_stages, first_block, last_key, window;
    const u32* row_index;
    u32 ring, barriers, queries;
    u8* weights;
    Place place;
    float* scratch;
    const int* partial_offset;
    const float* sinks;
    Y* y;

    __device__ __forceinline__ void open(const uint4* work, u32 number, u32 kv_heads) {
        item = work[number / kv_heads], kv_head = number % kv_heads, lines = item.y * group;
        Span span(item, row_index, window);
        blocks = span.blocks(), key_stages = span.key_stages(), first_block = span.first, last_key = span.last_key;
    }

    // Stages that the keys of a warp's block take; the first of them is the warp's number.
    __device__ __forceinline__ u32 own_stages(u32 warp) const {
        return warp + 1 == blocks ? key_stages - warp : warp < blocks ? 1 : 0;
    }

    __device__ __forceinline__ u32 head_of(u32 line) const {
        return kv_head * group + line % group;
    }
    __device__ __forceinline__ float* partial(u32 row, u32 line, u32 split) const {
        return scratch + (u64(partial_offset[row] + int(split)) * heads + head_of(line)) * (DIM + 2);
    }

    __device__ __forceinline__ u32 stage(u32 further) const {
        return ring + stage_at(place, further) * STAGE_BYTES;
    }

    // Scores and weights of the block that is this warp's, for 16 lines.
    __device__ __forceinline__ void weigh_block(Shared& shared, const ScoreRule& rule, u32 tile, u32 warp, u32 lane) const {
        float s[8][4], max[2], sum[2];
        Seen seen[2];
        if (warp < blocks) {
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                u32 line = tile * LINES + lane / 4 + j * 8;
                seen[j] = line < lines ? seen_at(row_index[item.x + line / group], window) : Seen{1, 0};
            }
#if INT8
            if (first_block + warp == last_key / BLOCK_KEYS)
                products(s, queries + tile * LINES * QUERY_PITCH, Keys(stage(warp), stage(warp + 1)), lane);
            else
#endif
                products(s, queries + tile * LINES * QUERY_PITCH, PageKeys(stage(warp)), lane);
            scores(s, max, rule, seen, first_block + warp, lane);
            if (lane % 4 == 0) shared.max[tile][warp][lane / 4] = max[0], shared.max[tile][warp][lane / 4 + 8] = max[1];
        }
        barrier_of(WARPS * 32);
        if (warp >= blocks) return;
#pragma unroll
        for (u32 j = 0; j < 2; j++)
            for (u32 before = 0; before < warp; before++) max[j] = fmaxf(max[j], shared.max[tile][before][lane / 4 + j * 8]);
        weigh(s, sum, max, rule);
        u8* to = weights + (tile * LINES + lane / 4) * WEIGHT_PITCH + (warp * BLOCK_KEYS + lane % 4 * 2) * 2;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            shared.sum[tile][warp][lane / 4 + half * 8][lane % 4] = sum[half];
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                *(u32*)(to + half * 8 * WEIGHT_PITCH + j * 16) = pack<K>(s[j][half * 2], s[j][half * 2 + 1]);
        }
    }

    // Values under the weights, for 16 lines and this warp's columns: into scratch, or into y where there is no other split.
    __device__ __forceinline__ void add_block_values(const Shared& shared, u32 tile, u32 warp, u32 lane) const {
        const u32 OWN = PAIRS / WARPS;
        float y_sums[OWN][2][4] = {}, max[2] = {NONE, NONE}, sum[2] = {0.0f, 0.0f};
        for (u32 block = 0; block < blocks; block++) {
            float factor[2];
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                u32 line = lane / 4 + j * 8;
                float to = fmaxf(max[j], shared.max[tile][block][line]);
                factor[j] = remains(max[j], to);
                sum[j] = fmaf(sum[j], factor[j], shared.sum[tile][block][line][lane % 4]);
                max[j] = to;
            }
            wait_stage(barriers, place, key_stages + block);
            u32 valid = valid_keys(last_key, first_block + block);
#pragma unroll
            for (u32 i = 0; i < OWN * 8; i++) {
                float& value = y_sums[i / 8][i / 4 % 2][i % 4];
                value = __fmul_rn(value, factor[i / 2 % 2]);
            }
            u32 p[4][4];
#pragma unroll
            for (u32 step = 0; step < 4; step++)
                load_matrices(p[step], shared_address(weights) + (tile * LINES + lane % 16) * WEIGHT_PITCH + (block * BLOCK_KEYS + step * 16) * 2 + lane / 16 * 16);
            add_values(y_sums, p, PageValues<OWN>(stage(key_stages + block), warp, WARPS, lane), valid, lane);
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            float whole = fold_quad(sum[j]);
            u32 line = tile * LINES + lane / 4 + j * 8;
            if (line >= lines) continue;
            u32 row = item.x + line / group;
            Seen seen = seen_at(row_index[row], window);
            if (seen.last / SPLIT_KEYS < item.w || seen.first / SPLIT_KEYS > item.w) continue;
            bool alone = seen.first / SPLIT_KEYS == seen.last / SPLIT_KEYS;
            float factor = alone ? finish(max[j], whole, sinks, head_of(line)) : 1.0f;
            float* to = alone ? nullptr : partial(row, line, item.w);
            Y* out = y + (u64(row) * heads + head_of(line)) * DIM;
            if (!alone && warp == 0 && lane % 4 == 0) to[DIM] = max[j], to[DIM + 1] = whole;
#pragma unroll
            for (u32 i = 0; i < OWN; i++)
#pragma unroll
                for (u32 half = 0; half < 2; half++) {
                    u32 column = (warp + i * WARPS) * 16 + half * 8 + lane % 4 * 2;
                    float first = __fmul_rn(y_sums[i][half][j * 2], factor), second = __fmul_rn(y_sums[i][half][j * 2 + 1], factor);
                    if (alone)
                        write(out[column], first), write(out[column + 1], second);
                    else
                        *(float2*)(to + column) = make_float2(first, second);
                }
        }
    }
};

extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), BLOCKS_OF_SM)
    attention_split(Y* y, float* scratch, const float* q, const u8* layer, const u32* row_index, const u32* pages, const int* table_base,
                    const float* sinks, const uint4* work, const u32* work_count, const int* partial_offset, const u32* sequence_length,
                    u32 heads, u32 kv_heads, u64 page_bytes, u64 value_offset, float scale, float soft_cap, u32 window, u32 lines OPEN_PARAMETERS) {
    extern __shared__ __align__(128) u8 bytes[];
    __shared__ Shared shared;
    u8* queries = bytes + STAGES * STAGE_BYTES;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, barriers = shared_address(shared.barriers);
    if (threadIdx.x < STAGES) {
        barrier_init(barriers + threadIdx.x * 16, 1);
        barrier_init(barriers + threadIdx.x * 16 + 8, WARPS);
        barrier_init_done();
    }
    __syncthreads();
    let_next_kernel_start();
    u32 units = *work_count * kv_heads;
    // A block without work makes room for the next kernel's; the first waits in any case, for the order of kernels.
    if (blockIdx.x >= units && blockIdx.x > 0) return;
    if (warp == WARPS) {
        if (lane == 0)
            produce(shared_address(bytes), barriers, PAGES, work, units, kv_heads, row_index, sequence_length, window);
        return;
    }
    Unit unit;
    unit.heads = heads, unit.group = heads / kv_heads, unit.row_index = row_index, unit.window = window;
    unit.ring = shared_address(bytes), unit.barriers = barriers, unit.queries = shared_address(queries);
    unit.weights = queries + lines * QUERY_PITCH, unit.place = Place{0, 0};
    unit.scratch = scratch, unit.partial_offset = partial_offset, unit.sinks = sinks, unit.y = y;
    if (blockIdx.x < units) unit.open(work, blockIdx.x, kv_heads);
    wait_for_earlier_kernels();
    for (u32 number = blockIdx.x; number < units; number += gridDim.x) {
        if (number != blockIdx.x) unit.open(work, number, kv_heads);
        u32 tiles = (unit.lines + LINES - 1) / LINES;
        load_queries(queries, q + (u64(unit.item.x) * heads + unit.kv_head * unit.group) * DIM, unit.lines, tiles * LINES, unit.group, heads * DIM,
                     threadIdx.x, WARPS * 32);
        barrier_of(WARPS * 32);
        u32 own_stages = unit.own_stages(warp);
        for (u32 i = 0; i < own_stages; i++) wait_stage(barriers, unit.place, warp + i);
        for (u32 tile = 0; tile < tiles; tile++) unit.weigh_block(shared, ScoreRule{scale, soft_cap}, tile, warp, lane);
        // Nobody else read this warp's block of keys.
        __syncwarp();
        if (lane == 0)
            for (u32 i = 0; i < own_stages; i++) barrier_arrive_for(barriers + stage_at(unit.place, warp + i) * 16 + 8, WARPS);
        barrier_of(WARPS * 32);
        for (u32 tile = 0; tile < tiles; tile++) unit.add_block_values(shared, tile, warp, lane);
        __syncwarp();
        for (u32 i = 0; i < unit.key_stages + unit.blocks; i++, unit.place.next(STAGES))
            if (i >= unit.key_stages && lane == 0) barrier_arrive(barriers + unit.place.stage * 16 + 8);
    }
}

const u32 FOLD_COLUMNS = 32, FOLD_SPLITS = 128; // of a pass

// The largest of the values of this thread and of those before it.
__device__ __forceinline__ float scan_max(float x, float (&warps)[4]) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) {
        float before = __shfl_up_sync(0xffffffffu, x, step);
        if (lane >= step) x = fmaxf(x, before);
    }
    if (lane == 31) warps[warp] = x;
    __syncthreads();
    for (u32 i = 0; i < warp; i++) x = fmaxf(x, warps[i]);
    return x;
}

extern "C" __global__ void __launch_bounds__(128)
    attention_fold(Y* y, const float* scratch, const u32* row_index, const int* partial_offset, const float* sinks, u32 heads, u32 window) {
    __shared__ float columns[FOLD_SPLITS][FOLD_COLUMNS], maxima[FOLD_SPLITS + 1], sums[FOLD_SPLITS], warps[4];
    __shared__ Join factors[FOLD_SPLITS];
    join_chain();
    u32 row = blockIdx.x, head = blockIdx.y, column0 = blockIdx.z * FOLD_COLUMNS, thread = threadIdx.x, lane = thread % 32;
    Seen seen = seen_at(row_index[row], window);
    if (seen.first / SPLIT_KEYS == seen.last / SPLIT_KEYS) return;
    u32 last = seen.last / SPLIT_KEYS, width = DIM - column0 < FOLD_COLUMNS ? DIM - column0 : FOLD_COLUMNS;
    u64 step = u64(heads) * (DIM + 2);
    const float* partials = scratch + (u64(partial_offset[row] + int(seen.first / SPLIT_KEYS)) * heads + head) * (DIM + 2);
    float total = 0.0f, max = NONE, sum = 0.0f;
    for (u32 first = seen.first / SPLIT_KEYS; first <= last; first += FOLD_SPLITS, partials += FOLD_SPLITS * step) {
        u32 count = last - first + 1 < FOLD_SPLITS ? last - first + 1 : FOLD_SPLITS;
#pragma unroll 8
        for (u32 i = thread / 32; i < count; i += 4)
            if (lane < width) columns[i][lane] = partials[i * step + column0 + lane];
        float own = thread < count ? partials[thread * step + DIM] : NONE;
        float own_sum = thread < count ? partials[thread * step + DIM + 1] : 0.0f;
        // What `join` does, with the maxima known beforehand. Splits without a key have no part in the maximum.
        float to = fmaxf(max, scan_max(own_sum == 0.0f ? NONE : own, warps));
        maxima[thread + 1] = to;
        if (thread == 0) maxima[0] = max;
        sums[thread] = own_sum;
        __syncthreads();
        bool empty = own_sum == 0.0f;
        factors[thread] = Join{empty ? 1.0f : remains(maxima[thread], to), empty ? 0.0f : exp2_fast(__fsub_rn(own, to))};
        __syncthreads();
        if (thread < 32) {
#pragma unroll 8
            for (u32 i = 0; i < count; i++) {
                Join factor = factors[i];
                sum = fmaf(sums[i], factor.added, __fmul_rn(sum, factor.old));
                total = joined(total, columns[i][lane], factor);
            }
        }
        max = maxima[count];
        __syncthreads();
    }
    if (thread < width) write(y[(u64(row) * heads + head) * DIM + column0 + thread], __fmul_rn(total, finish(max, sum, sinks, head)));
}

#endif
