// `attention_prefill` by wgmma (sm_90a), for DIM 64 and 128: the same arguments, the same work list, the same bits, bound by the tensor
// cores.
//
// A block takes (item, kv head) with at most 128 lines; two warpgroups have 64 lines each. Queries are operands in registers, keys and values
// come from two rings of blocks in core order, one bulk copy each. The products of the next block of keys and the values of this one run
// while the weights of the next are made. Totals of earlier splits lie in shared memory, where the queries were staged.
//
// With INT8 the third warpgroup makes f16 of codes on the way from two stages of them to the rings: the values of a block by column.
//
// Grid: (work items, kv_heads). Block 384. Dynamic shared memory 1,024 + 6 * DIM * 128 + 128 * DIM * 4, with INT8 and 2 * (DIM * 130 + 128).
#include "attention.cuh"
#include "wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

const u32 GROUPS = 2, STAGES = 3, STEPS = DIM / 16, STRIPE = DIM * 16;

struct Tile {
    u32 lines, group, first_block, last_block, last;
};

// Barriers: full and empty of each stage of keys, then of values.
__device__ __forceinline__ u32 barrier_at(u32 barriers, u32 values, u32 stage) {
    return barriers + (values * STAGES + stage) * 16;
}
__device__ __forceinline__ u32 block_at(u32 ring, u32 values, u32 stage) {
    return ring + (values * STAGES + stage) * BLOCK_BYTES;
}

// The stage of keys, or of values, once its earlier use has ended; its barrier.
__device__ __forceinline__ u32 empty_stage(u32 barriers, u32 values, const Place& place) {
    u32 full = barrier_at(barriers, values, place.stage);
    if (place.round > 0) barrier_wait(full + 8, (place.round - 1) % 2);
    return full;
}

#if INT8

// Registers of a thread that makes f16 of codes, and of one that multiplies.
#define FEW_REGISTERS "56"
#define MANY_REGISTERS "224"

// Codes in shared memory: two stages of keys and two of values, after what the other form has.
const u32 RAW_STAGES = 2;
__device__ __forceinline__ u32 raw_at(u32 raw, u32 values, u32 stage) {
    return raw + (values ? RAW_STAGES * KEY_BYTES + stage * VALUE_BYTES : stage * KEY_BYTES);
}
__device__ __forceinline__ u32 raw_barrier(u32 barriers, u32 values, u32 stage) {
    return barriers + 512 + (values * RAW_STAGES + stage) * 16;
}

__device__ __forceinline__ void load_words(u32 (&words)[4], u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void store_words(u32 address, const u32 (&words)[4]) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

// Cores of codes to cores of f16, whose rows are keys, or columns of values; `sixteens` of them along a row, of whose elements those from `valid` on
// become zero. By the 128 threads of a warpgroup.
__device__ __forceinline__ void decode_block(u32 from, u32 to, u32 sixteens, u32 valid) {
    const u32 ROWS = CODES_BYTES / 16 / 128;
    // A thread has one place in a row of cores, so its scales are those of all its rows.
    u32 first = threadIdx.x % 128, step = first / 8 % sixteens, codes[ROWS][4], scales[2][4], seen[2][4];
    load_words(scales[0], from + CODES_BYTES + step * 32);
    load_words(scales[1], from + CODES_BYTES + step * 32 + 16);
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) load_words(codes[i], from + (first + i * 128) * 16);
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 element = step * 16 + i * 2;
        seen[i / 4][i % 4] = (element < valid ? 0xffffu : 0u) | (element + 1 < valid ? 0xffff0000u : 0u);
    }
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        u32 made[2][4], row = to + (first / 8 + i * 16) * 256 + first % 8 * 16;
#pragma unroll
        for (u32 t = 0; t < 4; t++) {
            u32 pair[2];
            decode(pair, codes[i][t], {scales[0][t], scales[1][t]});
            made[0][t] = pair[0] & seen[0][t], made[1][t] = pair[1] & seen[1][t];
        }
        store_words(row, made[0]);
        store_words(row + 128, made[1]);
    }
    // For wgmma, which reads what was made, and for the copy that follows on what was read.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 4, 128;" ::: "memory");
}

// By a warpgroup: codes come by bulk copies two blocks ahead and become f16; the keys of the last block are f16 already.
__device__ __forceinline__ void produce(u32 ring, u32 raw, u32 barriers, const Blocks& from, const Tile& tile) {
    bool leads = threadIdx.x % 128 == 0;
    auto fetch = [&](u32 block, u32 stage) {
        if (block > tile.last_block || !leads) return;
        u32 page = from.table[block];
        if (block < tile.last_block) from.copy_keys(raw_at(raw, 0, stage), block, page, raw_barrier(barriers, 0, stage));
        from.copy_values(raw_at(raw, 1, stage), page, raw_barrier(barriers, 1, stage));
    };
    fetch(tile.first_block, 0);
    fetch(tile.first_block + 1, 1);
    Place place = {0, 0}, codes = {0, 0};
    for (u32 block = tile.first_block; block <= tile.last_block; block++, place.next(STAGES), codes.next(RAW_STAGES)) {
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            u32 full = empty_stage(barriers, part, place), to = block_at(ring, part, place.stage);
            if (part == 0 && block == tile.last_block) {
                if (leads) from.copy_keys(to, block, from.table[block], full);
                continue;
            }
            barrier_wait(raw_barrier(barriers, part, codes.stage), codes.round % 2);
            u32 valid = part ? valid_keys(tile.last, block) : DIM;
            decode_block(raw_at(raw, part, codes.stage), to, part ? BLOCK_KEYS / 16 : DIM / 16, valid);
            if (leads) barrier_arrive(full);
        }
        fetch(block + RAW_STAGES, codes.stage);
    }
}

#else

#define FEW_REGISTERS "24"
#define MANY_REGISTERS "240"

__device__ __forceinline__ void produce(u32 ring, u32 barriers, const Blocks& from, const Tile& tile) {
    Place place = {0, 0};
    for (u32 block = tile.first_block; block <= tile.last_block; block++, place.next(STAGES)) {
        u32 page = from.table[block];
        from.copy_keys(block_at(ring, 0, place.stage), block, page, empty_stage(barriers, 0, place));
        from.copy_values(block_at(ring, 1, place.stage), page, empty_stage(barriers, 1, place));
    }
}

#endif

__device__ __forceinline__ void issue_products(float (&s)[32], const u32 (&q)[STEPS][4], u32 keys) {
    u64 b = core_descriptor(keys, STRIPE);
#pragma unroll
    for (u32 step = 0; step < STEPS; step++) wgmma<0>((K*)0, s, q[step], b + step * (256 >> 4), step > 0);
    wgmma_commit();
}

// Values lie by token; where they were codes, by column.
__device__ __forceinline__ void issue_values(float (&y)[DIM / 2], const u32 (&p)[4][4], u32 values) {
#if INT8
    u64 b = core_descriptor(values, BLOCK_KEYS * 16);
#pragma unroll
    for (u32 step = 0; step < 4; step++) wgmma<0>((K*)0, y, p[step], b + step * (256 >> 4), 1);
#else
    u64 b = transposed_descriptor(values, STRIPE);
#pragma unroll
    for (u32 step = 0; step < 4; step++) wgmma<1>((K*)0, y, p[step], b + step * (2 * STRIPE >> 4), 1);
#endif
    wgmma_commit();
}

#if !INT8
// Values of keys that nobody sees may be anything: they become zero. By one warpgroup; the other writes the same zeros.
__device__ __forceinline__ void clear_values(u32 values, u32 valid, u32 group) {
    for (u32 i = threadIdx.x % 128; i < (BLOCK_KEYS - valid) * CORES; i += 128) {
        u32 key = valid + i / CORES;
        u32 at = values + key / 8 * STRIPE + i % CORES * 128 + key % 8 * 16;
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0u) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}
#endif

// Two lines of a thread.
struct Lines {
    float max[2], sum[2];
};

// Weights of a block from its products; how much of the earlier ones' sums remains.
__device__ __forceinline__ void soften(float (&s)[32], Lines& run, float (&factor)[2], const ScoreRule& rule, const Seen (&seen)[2], u32 block, u32 lane) {
    float (&blocks)[8][4] = reinterpret_cast<float (&)[8][4]>(s);
    float max[2], sum[2];
    scores(blocks, max, rule, seen, block, lane);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        max[i] = fmaxf(max[i], run.max[i]);
        factor[i] = remains(run.max[i], max[i]);
        run.max[i] = max[i];
    }
    weigh(blocks, sum, max, rule);
#pragma unroll
    for (u32 i = 0; i < 2; i++) run.sum[i] = fmaf(run.sum[i], factor[i], sum[i]);
}

__device__ __forceinline__ void pack_weights(u32 (&p)[4][4], const float (&s)[32]) {
#pragma unroll
    for (u32 i = 0; i < 16; i++) p[i / 4][i % 4] = pack<K>(s[i / 4 * 8 + i % 4 * 2], s[i / 4 * 8 + i % 4 * 2 + 1]);
}

// A split joins the totals: element i of thread t is at i * 256 + t.
__device__ __forceinline__ void fold(float* totals, Lines& total, const float (&y)[DIM / 2], const Lines& split) {
    Join factors[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) factors[i] = join(total.max[i], total.sum[i], split.max[i], fold_quad(split.sum[i]));
#pragma unroll
    for (u32 i = 0; i < DIM / 2; i++) totals[i * GROUPS * 128] = joined(totals[i * GROUPS * 128], y[i], factors[i / 2 % 2]);
}

extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1)
    attention_prefill(Y* y, const float* q, const u8* layer, const u32* row_sequence, const u32* row_index, const u32* pages,
                      const int* table_base, const float* sinks, const uint4* work, u32 heads, u32 kv_heads, u64 page_bytes,
                      u64 value_offset, float scale, float soft_cap, u32 window OPEN_PARAMETERS) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 barriers = shared_address(shared), ring = barriers + 1024;
    u8* queries = shared + 1024 + 2 * STAGES * BLOCK_BYTES;
    u32 group = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32, kv_head = blockIdx.y;
    if (threadIdx.x < 2 * STAGES) {
        barrier_init(barriers + threadIdx.x * 16, 1);
        barrier_init(barriers + threadIdx.x * 16 + 8, GROUPS);
#if INT8
        if (threadIdx.x < 2 * RAW_STAGES) barrier_init(raw_barrier(barriers, 0, threadIdx.x), 1);
#endif
        barrier_init_done();
    }
    join_chain();
    uint4 item = work[blockIdx.x];
    Tile tile;
    tile.group = heads / kv_heads, tile.lines = item.y * tile.group, tile.last = row_index[item.x + item.y - 1];
    tile.first_block = seen_at(row_index[item.x], window).first / BLOCK_KEYS, tile.last_block = tile.last / BLOCK_KEYS;
    load_queries(queries, q + (u64(item.x) * heads + kv_head * tile.group) * DIM, tile.lines, GROUPS * 64, tile.group, heads * DIM,
                 threadIdx.x, blockDim.x);
    __syncthreads();
    if (group == GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 " FEW_REGISTERS ";");
        Blocks from(PAGES, item.z, kv_head, kv_heads, tile.last_block);
#if INT8
        produce(ring, shared_address(queries) + GROUPS * 64 * DIM * 4, barriers, from, tile);
#else
        if (threadIdx.x == GROUPS * 128) produce(ring, barriers, from, tile);
#endif
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 " MANY_REGISTERS ";");
    u32 operand[STEPS][4];
#pragma unroll
    for (u32 step = 0; step < STEPS; step++)
        load_matrices(operand[step], shared_address(queries) + (warp * LINES + lane % 16) * QUERY_PITCH + lane / 16 * 16 + step * 32);
    barrier_of(GROUPS * 128); // the queries are read, their room becomes the totals'
    float* totals = (float*)queries + threadIdx.x;
#pragma unroll
    for (u32 i = 0; i < DIM / 2; i++) totals[i * GROUPS * 128] = 0.0f;
    ScoreRule rule = {scale, soft_cap};
    Seen seen[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 line = warp * LINES + lane / 4 + i * 8;
        seen[i] = line < tile.lines ? seen_at(row_index[item.x + line / tile.group], window) : Seen{1, 0};
    }
    bool leader = threadIdx.x % 128 == 0;
    Lines total = {{NONE, NONE}, {0.0f, 0.0f}}, run = total;
    float s[32], sum[DIM / 2], factor[2];
    u32 p[4][4];
#pragma unroll
    for (u32 i = 0; i < DIM / 2; i++) sum[i] = 0.0f;
    Place keys = {0, 0}, values = {0, 0};
    barrier_wait(barrier_at(barriers, 0, 0), 0);
    wgmma_begin();
    issue_products(s, operand, block_at(ring, 0, 0));
    wgmma_wait<0>();
    if (leader) barrier_arrive(barrier_at(barriers, 0, 0) + 8);
    keys.next(STAGES);
    soften(s, run, factor, rule, seen, tile.first_block, lane);
    pack_weights(p, s);
    for (u32 block = tile.first_block; block < tile.last_block; block++) {
        bool ends = block % (SPLIT_KEYS / BLOCK_KEYS) == SPLIT_KEYS / BLOCK_KEYS - 1;
        Lines split = run;
        if (ends) run = Lines{{NONE, NONE}, {0.0f, 0.0f}};
        barrier_wait(barrier_at(barriers, 1, values.stage), values.round % 2);
        barrier_wait(barrier_at(barriers, 0, keys.stage), keys.round % 2);
        wgmma_begin();
        issue_products(s, operand, block_at(ring, 0, keys.stage));
        issue_values(sum, p, block_at(ring, 1, values.stage));
        wgmma_wait<1>();
        if (leader) barrier_arrive(barrier_at(barriers, 0, keys.stage) + 8);
        keys.next(STAGES);
        soften(s, run, factor, rule, seen, block + 1, lane);
        wgmma_wait<0>();
        if (leader) barrier_arrive(barrier_at(barriers, 1, values.stage) + 8);
        values.next(STAGES);
        if (ends) fold(totals, total, sum, split);
        // After a split's end the factors are zero. (A choice here would part the accumulators from the instruction's pipeline.)
#pragma unroll
        for (u32 i = 0; i < DIM / 2; i++) sum[i] = __fmul_rn(sum[i], factor[i / 2 % 2]);
        pack_weights(p, s);
    }
    u32 last_values = block_at(ring, 1, values.stage);
    barrier_wait(barrier_at(barriers, 1, values.stage), values.round % 2);
#if !INT8
    u32 valid = valid_keys(tile.last, tile.last_block);
    if (valid < BLOCK_KEYS) clear_values(last_values, valid, group);
#endif
    wgmma_begin();
    issue_values(sum, p, last_values);
    wgmma_wait<0>();
    fold(totals, total, sum, run);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 line = warp * LINES + lane / 4 + i * 8;
        if (line >= tile.lines) continue;
        u32 head = kv_head * tile.group + line % tile.group;
        float whole = finish(total.max[i], total.sum[i], sinks, head);
        Y* out = y + (u64(item.x + line / tile.group) * heads + head) * DIM + lane % 4 * 2;
#pragma unroll
        for (u32 j = 0; j < DIM / 8; j++)
#pragma unroll
            for (u32 c = 0; c < 2; c++) write(out[j * 8 + c], __fmul_rn(totals[(j * 4 + i * 2 + c) * GROUPS * 128], whole));
    }
}

#endif
