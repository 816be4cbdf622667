// The arithmetic that `attention_split` and `attention_prefill` share, so that a row has the same bits from both.
//
// A warp has 16 lines, a line is a (row, head) pair of one kv head. Keys go in blocks of 64 by absolute index. For a block:
//   s = q . k by mma steps of 16 channels, ascending, capped where asked; -inf where not seen; u = scale * log2(e)
//   max' = max(max, u max s); c = 2^(max - max'); p = 2^(u s - max'); sum = sum * c + (sum of p); y = y * c + p v
// p v by mma steps of 16 keys, ascending, p rounded to the pages' format, the sum of p not. A thread sums the p of its own
// columns; four threads are folded at the end of a split of 256 keys. Splits are folded from left to right. Every
// rounding is spelled out, for a compiler that contracts one kernel's and not the other's would part them.
//
// With INT8 pages are those of `int8.cuh`, and `attention_codes.cuh` has what differs; K is f16.
//
// K is f16 or bf16, values have the same format and DIM (a multiple of 16) is the size of keys and values. -DSOFT_CAP=1 where there is one.
#pragma once
#include "ring.cuh"

#ifndef SOFT_CAP
#define SOFT_CAP 0
#endif
#define NONE __int_as_float(0xff800000)
const u32 BLOCK_KEYS = 64, SPLIT_KEYS = 256, LINES = 16;
const u32 BLOCK_BYTES = BLOCK_KEYS * DIM * 2;
// A line of queries in shared memory; 16 bytes more than it has, against bank conflicts.
const u32 QUERY_PITCH = DIM * 2 + 16;
const u32 CORES = DIM / 8;
const float LOG2_E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    // Volatile: it stays where it is written, beside matrix instructions that are under way.
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// How much of an old sum remains when its maximum rises to `max`.
__device__ __forceinline__ float remains(float old_max, float max) {
    return old_max == NONE ? 0.0f : exp2_fast(__fsub_rn(old_max, max));
}

// Scores are kept as products of q and k until they are weights; with a soft cap they are capped first.
struct ScoreRule {
    float scale, soft_cap;
    // From a kept score to log2 units.
    __device__ __forceinline__ float unit() const {
        return SOFT_CAP ? LOG2_E : __fmul_rn(scale, LOG2_E);
    }
    __device__ __forceinline__ float capped(float product) const {
        return __fmul_rn(soft_cap, tanhf(__fmul_rn(product, scale) / soft_cap));
    }
};

// The keys that a line sees, both ends included; none where last < first.
struct Seen {
    u32 first, last;
};
__device__ __forceinline__ Seen seen_at(u32 index, u32 window) {
    return Seen{window > index ? 0 : index + 1 - window, index};
}

// 64 keys of a block in core order, the lower 32 and the upper, as fragments b of mma: `STEPS` steps of 16 channels at once.
struct Keys {
    static const u32 STEPS = 1;
    u32 lower, upper, found[4][4];
    __device__ __forceinline__ explicit Keys(u32 keys) : lower(keys), upper(keys + BLOCK_BYTES / 2) {}
    __device__ __forceinline__ Keys(u32 lower, u32 upper) : lower(lower), upper(upper) {}
    __device__ __forceinline__ void load(u32 step, u32 lane) {
#pragma unroll
        for (u32 j = 0; j < 4; j++)
            load_matrices(found[j], (j < 2 ? lower : upper) + ((j % 2 * 2 + lane / 16) * CORES + step * 2 + lane / 8 % 2) * 128 + lane % 8 * 16);
    }
    // Of eight keys.
    __device__ __forceinline__ void fragment(u32 (&b)[2], u32, u32 eight) const {
        b[0] = found[eight / 2][eight % 2 * 2], b[1] = found[eight / 2][eight % 2 * 2 + 1];
    }
};

// Products of a warp's 16 lines with 64 keys: s[j][i] is line lane / 4 + i / 2 * 8, key 8 j + lane % 4 * 2 + i % 2.
template <class Keys> __device__ __forceinline__ void products(float (&s)[8][4], u32 queries, Keys keys, u32 lane) {
#pragma unroll
    for (u32 j = 0; j < 8; j++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) s[j][i] = 0.0f;
#pragma unroll
    for (u32 step = 0; step < DIM / 16; step += Keys::STEPS) {
        u32 q[Keys::STEPS][4];
#pragma unroll
        for (u32 i = 0; i < Keys::STEPS; i++) load_matrices(q[i], queries + lane % 16 * QUERY_PITCH + lane / 16 * 16 + (step + i) * 32);
        keys.load(step, lane);
#pragma unroll
        for (u32 i = 0; i < Keys::STEPS; i++)
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                u32 b[2];
                keys.fragment(b, i, j);
                mma<K>(s[j], q[i], b[0], b[1]);
            }
    }
}

// Scores in place of products; the largest of the thread's two lines, in log2 units.
__device__ __forceinline__ void scores(float (&s)[8][4], float (&max)[2], const ScoreRule& rule, const Seen (&seen)[2], u32 block, u32 lane) {
    max[0] = max[1] = NONE;
    bool whole = true;
#pragma unroll
    for (u32 line = 0; line < 2; line++)
        whole &= seen[line].first <= block * BLOCK_KEYS && seen[line].last >= block * BLOCK_KEYS + BLOCK_KEYS - 1;
    whole = __all_sync(0xffffffffu, whole);
#if SOFT_CAP
#pragma unroll
    for (u32 j = 0; j < 8; j++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) s[j][i] = rule.capped(s[j][i]);
#endif
    if (!whole) {
#pragma unroll
        for (u32 j = 0; j < 8; j++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 key = block * BLOCK_KEYS + j * 8 + lane % 4 * 2 + i % 2;
                if (key < seen[i / 2].first || key > seen[i / 2].last) s[j][i] = NONE;
            }
    }
#pragma unroll
    for (u32 j = 0; j < 8; j++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) max[i / 2] = fmaxf(max[i / 2], s[j][i]);
#pragma unroll
    for (u32 line = 0; line < 2; line++) {
        max[line] = fmaxf(max[line], __shfl_xor_sync(0xffffffffu, max[line], 1));
        max[line] = __fmul_rn(fmaxf(max[line], __shfl_xor_sync(0xffffffffu, max[line], 2)), rule.unit());
    }
}

// Weights in place of scores, under these maxima, and the sums of the thread's own.
__device__ __forceinline__ void weigh(float (&s)[8][4], float (&sum)[2], const float (&max)[2], const ScoreRule& rule) {
    sum[0] = sum[1] = 0.0f;
    // Without a key there is no maximum to subtract; 2^-inf is 0, and what is no number stays so.
    float from[2] = {max[0] == NONE ? 0.0f : max[0], max[1] == NONE ? 0.0f : max[1]};
#pragma unroll
    for (u32 j = 0; j < 8; j++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            s[j][i] = exp2_fast(fmaf(s[j][i], rule.unit(), -from[i / 2]));
            sum[i / 2] = __fadd_rn(sum[i / 2], s[j][i]);
        }
}

// 64 values of a block in core order, as fragments b of mma for COUNT times 16 columns: `pair` and each `stride` after it.
template <u32 COUNT> struct Values {
    u32 values, pair, stride;
    __device__ __forceinline__ Values(u32 values, u32 pair, u32 stride, u32) : values(values), pair(pair), stride(stride) {}
    // Of 16 keys, for two times eight columns.
    __device__ __forceinline__ void fragments(u32 (&b)[4], u32 step, u32 i, u32 lane) const {
        load_matrices_transposed(b, values + ((step * 2 + lane / 8 % 2) * CORES + (pair + i * stride) * 2 + lane / 16) * 128 + lane % 8 * 16);
    }
};

// y += p v for 64 keys and COUNT times 16 columns. Keys from `valid` on, of the block, may hold anything and count as zero.
template <u32 COUNT, class Values>
__device__ __forceinline__ void add_values(float (&y)[COUNT][2][4], const u32 (&p)[4][4], const Values& values, u32 valid, u32 lane) {
#pragma unroll
    for (u32 step = 0; step < 4; step++) {
        u32 seen[2] = {0xffffffffu, 0xffffffffu};
        if (valid < step * 16 + 16) {
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                u32 key = step * 16 + half * 8 + lane % 4 * 2;
                seen[half] = (key < valid ? 0xffffu : 0u) | (key + 1 < valid ? 0xffff0000u : 0u);
            }
        }
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            u32 b[4];
            values.fragments(b, step, i, lane);
            mma<K>(y[i][0], p[step], b[0] & seen[0], b[1] & seen[1]);
            mma<K>(y[i][1], p[step], b[2] & seen[0], b[3] & seen[1]);
        }
    }
}

// Keys of a block that any line of the tile sees, from its beginning.
__device__ __forceinline__ u32 valid_keys(u32 last, u32 block) {
    u32 keys = last + 1 - block * BLOCK_KEYS;
    return keys < BLOCK_KEYS ? keys : BLOCK_KEYS;
}

__device__ __forceinline__ float fold_quad(float x) {
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// How a split joins a line's total: total = total * old + split * added.
struct Join {
    float old, added;
};
__device__ __forceinline__ Join join(float& max, float& sum, float split_max, float split_sum) {
    // A split without a key changes nothing.
    if (split_sum == 0.0f) return Join{1.0f, 0.0f};
    float to = fmaxf(max, split_max);
    Join factors = {remains(max, to), exp2_fast(__fsub_rn(split_max, to))};
    sum = fmaf(split_sum, factors.added, __fmul_rn(sum, factors.old));
    max = to;
    return factors;
}
__device__ __forceinline__ float joined(float total, float split, Join factors) {
    return fmaf(split, factors.added, __fmul_rn(total, factors.old));
}

// The factor that turns a line's total into its result, its sink counted.
__device__ __forceinline__ float finish(float max, float sum, const float* sinks, u32 head) {
    if (!sinks) return __frcp_rn(sum);
    float sink = __fmul_rn(sinks[head], LOG2_E), to = fmaxf(max, sink), kept = remains(max, to);
    return __fmul_rn(kept, __frcp_rn(fmaf(sum, kept, exp2_fast(__fsub_rn(sink, to)))));
}

// The queries of `lines` lines as K into shared memory, line l being row l / group, head l % group of the kv head; zeros beyond, up
// to `room` lines.
__device__ __forceinline__ void load_queries(u8* to, const float* q, u32 lines, u32 room, u32 group, u32 row_width, u32 thread, u32 threads) {
    for (u32 i = thread; i < room * (DIM / 2); i += threads) {
        u32 line = i / (DIM / 2), column = i % (DIM / 2) * 2;
        float2 pair = line < lines ? *(const float2*)(q + u64(line / group) * row_width + line % group * DIM + column) : make_float2(0.0f, 0.0f);
        *(u32*)(to + line * QUERY_PITCH + column * 2) = pack<K>(pair.x, pair.y);
    }
}

#if INT8
#include "attention_codes.cuh"
#else
typedef Keys PageKeys;
template <u32 COUNT> using PageValues = Values<COUNT>;
// Pairs of eight columns that a warp with all of them takes at once.
const u32 PAIRS_AT_ONCE = DIM / 16;
const u32 KEY_BYTES = BLOCK_BYTES, VALUE_BYTES = BLOCK_BYTES;
#define OPEN_PARAMETERS
#endif

// Where the keys and values of a layer lie.
struct Pages {
    const u8* layer;
    const u32* pages;
    const int* table_base;
    u64 page_bytes, value_offset;
#if INT8
    OpenPages open;
#endif
};
// From the parameters of a kernel.
#if INT8
#define PAGES Pages{layer, pages, table_base, page_bytes, value_offset, OPEN_PAGES}
#else
#define PAGES Pages{layer, pages, table_base, page_bytes, value_offset}
#endif

// The blocks of one kv head of a sequence, whose keys and values are fetched by bulk copies; `last` is the last that its rows see.
struct Blocks {
    const u8 *keys, *values;
    const u32* table;
    u64 page_bytes;
#if INT8
    u32 own; // the last block, whose keys are in f16
    const u8* open;
#endif
    __device__ __forceinline__ Blocks(const Pages& from, u32 sequence, u32 kv_head, u32 kv_heads, u32 last)
        : keys(from.layer + u64(kv_head) * KEY_BYTES), values(from.layer + from.value_offset + u64(kv_head) * VALUE_BYTES),
          table(from.pages + from.table_base[sequence]), page_bytes(from.page_bytes) {
#if INT8
        own = last;
        open = from.open.page(from.pages, sequence, last, kv_heads, BLOCK_BYTES) + u64(kv_head) * BLOCK_BYTES;
#endif
    }
    // Those of a block in this page; `full` is the barrier of the place that they go to.
    __device__ __forceinline__ void copy_keys(u32 to, u32 block, u32 page, u32 full) const {
#if INT8
        if (block == own) {
            copy_open(to, 0, BLOCK_BYTES, full);
            return;
        }
#endif
        barrier_expect(full, KEY_BYTES);
        copy_bulk(to, keys + page * page_bytes, KEY_BYTES, full);
    }
#if INT8
    // Bytes of the last block's keys, from `start` on.
    __device__ __forceinline__ void copy_open(u32 to, u32 start, u32 bytes, u32 full) const {
        barrier_expect(full, bytes);
        copy_bulk(to, open + start, bytes, full);
    }
#endif
    __device__ __forceinline__ void copy_values(u32 to, u32 page, u32 full) const {
        barrier_expect(full, VALUE_BYTES);
        copy_bulk(to, values + page * page_bytes, VALUE_BYTES, full);
    }
};
