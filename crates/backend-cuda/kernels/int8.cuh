// Keys and values in int8, by the rule of `gannet_ops::int8`: scale = largest |x| / 127, rounded up to f16; code = round(x / scale), ties to even.
//
// A head's keys in a page are 64 * dim codes and then dim scales (f16), one a channel; its values 64 * dim codes and then 64 scales, one a token; heads
// lie one after the other. A byte is 128 more than its code. With CORE the codes lie as the fragments of mma read them: in cores of 8 rows of 16
// bytes, where a row is sixteen codes of one key (or of one column of values), in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15, so that word t of a row is
// what lane t of four has of it. Cores of keys are [64/8][dim/16], those of values [dim/8][64/16].
//
// Keys are made codes when the last row of their page is written. Until then, and for the rows of their page for ever, they are read in f16, from
// an open page [kv_head][64][dim] (in core order with CORE): one of the group's open pages, or, for a page that this step begins and
// fills, a page of the plan's scratch, since nobody reads it later.
#pragma once
#include "formats.cuh"

const float CODES = 127.0f, ROUNDER = 12582912.0f; // 1.5 * 2^23
const u32 CODE_OFFSET = 128;

// No number where the magnitude is none: what does not fit ends as a score or a value that is not finite.
__device__ __forceinline__ u16 scale_bits(float largest) {
    float exact = largest / CODES;
    f16 nearest;
    write(nearest, exact);
    return read(nearest) < exact ? nearest.bits + 1 : nearest.bits;
}

__device__ __forceinline__ u8 code_byte(float x, float scale) {
    u32 code = __float_as_uint(__fadd_rn(x / scale, ROUNDER)) - __float_as_uint(ROUNDER);
    return u8((scale > 0.0f ? code : 0) + CODE_OFFSET);
}

__device__ __forceinline__ float code_of(u8 byte) {
    return float(int(byte) - int(CODE_OFFSET));
}

// The largest magnitude so far, and whether a number was none.
struct Largest {
    float largest = 0.0f;
    bool has_none = false;
    __device__ __forceinline__ void see(float x) {
        largest = fmaxf(largest, fabsf(x));
        has_none |= x != x;
    }
    __device__ __forceinline__ float found() const {
        return has_none && largest <= 3.402823466e38f ? __int_as_float(0x7fffffff) : largest;
    }
    // That of all lanes of a warp.
    __device__ __forceinline__ float found_by_warp() {
        for (u32 step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        has_none = __any_sync(0xffffffffu, has_none);
        return found();
    }
};

// The place of an element of sixteen in its row of a core.
__device__ __forceinline__ u32 place_in_row(u32 element) {
    return element % 8 / 2 * 4 + element / 8 * 2 + element % 2;
}
// The place of a code of (row, column) in cores of [rows/8][columns/16].
__device__ __forceinline__ u32 code_place(u32 row, u32 column, u32 columns) {
    return (row / 8 * (columns / 16) + column / 16) * 128 + row % 8 * 16 + place_in_row(column % 16);
}
__device__ __forceinline__ u32 key_place(u32 slot, u32 channel, u32 dim) {
#if CORE
    return code_place(slot, channel, dim);
#else
    return slot * dim + channel;
#endif
}
__device__ __forceinline__ u32 value_place(u32 slot, u32 column, u32 dim) {
#if CORE
    return code_place(column, slot, 64);
#else
    return slot * dim + column;
#endif
}

// Bytes of a head's keys, and of its values.
__host__ __device__ __forceinline__ u32 key_bytes(u32 dim) {
    return dim * 66;
}
__host__ __device__ __forceinline__ u32 value_bytes(u32 dim) {
    return dim * 64 + 128;
}

// A token's values of a head, x [dim], into its page, by a warp.
__device__ __forceinline__ void write_value_codes(u8* values, const float* x, u32 slot, u32 dim, u32 lane) {
    Largest all;
    for (u32 i = lane; i < dim; i += 32) all.see(x[i]);
    f16 scale = {scale_bits(all.found_by_warp())};
    float step = read(scale);
    for (u32 i = lane; i < dim; i += 32) values[value_place(slot, i, dim)] = code_byte(x[i], step);
    if (lane == 0) ((f16*)(values + 64 * dim))[slot] = scale;
}

// Where the layer's keys of pages that fill lie. Pages from `scratch_from` on are those of the scratch.
struct OpenPages {
    u8* layer;
    u8* scratch;
    const int* table_base;
    u64 page_bytes;
    u32 scratch_from;
    // That of page `number` of a sequence, whose keys are `head_bytes` a head.
    __device__ __forceinline__ u8* page(const u32* pages, u32 sequence, u32 number, u32 kv_heads, u32 head_bytes) const {
        u32 page = pages[table_base[sequence] + int(number)];
        return page < scratch_from ? layer + page * page_bytes : scratch + u64(page - scratch_from) * kv_heads * head_bytes;
    }
};

// The last parameters of every kernel over pages in int8.
#define OPEN_PARAMETERS , u8 *open_layer, u8 *open_scratch, const int *open_base, u64 open_bytes, u32 scratch_from
#define OPEN_PAGES OpenPages{open_layer, open_scratch, open_base, open_bytes, scratch_from}
