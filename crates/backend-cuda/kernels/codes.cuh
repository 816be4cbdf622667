// Weights as codes: their formats, their order in memory, and the one function by which each becomes bf16 for mma.sync.
//
// A format is a struct with the name that the define W carries. What its codes mean is said in `gannet_tensor::decode::codes`, whose
// `Coding` holds the same numbers; a weight is rounded once to float32, then to bf16, here as there.
//
// A matrix [n][k] lies as [n/16][k/RUN][2] units of 8 outputs x RUN columns (64, or 256 where 256 elements share a scale; k is filled up with
// zeros). A unit is the fragments b of its columns for m16n8k16, plane by plane: lane l has the output l / 4 and, of each step of 16 columns, the
// codes of columns 2t, 2t + 1, 2t + 8, 2t + 9 with t = l % 4, numbered c = 4 * (step % 4) + i in a slab of 64 columns:
//
//   nibbles  [slabs][32 lanes] 2 words: the lowest 4 bits of code c at bit 8 * i + 4 * (step % 2) of word step / 2, the word rotated left by 7 - BITS; of a
//            table's, at 16 * (step % 2) + 4 * i
//   pairs    [slabs][32 lanes] a word: 2 bits (those above the nibble, or the lowest two where there is none) at bit 8 * i + 2 * step
//   singles  [slabs / 2][32 lanes] a word: the highest bit of 3 or 5, at bit 8 * i + 4 * (slab % 2) + step
//   bytes    [slabs][32 lanes] 4 words: a word a step
//   scales   [slabs][8 outputs][64 / GROUP] in the format of SCALES
//   blocks   [8 outputs], of 256 columns: the f16 of SIGNED, the two of PAIRS
#pragma once
#include "mma.cuh"

enum Values { LINEAR, MINIMA, TABLE, E4M3 };
enum Scales { HALF, HALVES, BRAIN, SINGLE, SIGNED, PAIRS };

template <u32 Bits, u32 Group, Values Kind, Scales Stored, u32 Zero> struct Coded {
    static const u32 BITS = Bits, GROUP = Group, ZERO = Zero;
    static const Values VALUES = Kind;
    static const Scales SCALES = Stored;
    static const u32 RUN = Stored == SIGNED || Stored == PAIRS ? 256 : 64, SLABS = RUN / 64;
    static const bool HAS_NIBBLES = Bits == 4 || Bits == 5 || Bits == 6, HAS_PAIRS = Bits == 2 || Bits == 3 || Bits == 6, HAS_SINGLES = Bits == 3 || Bits == 5;
    static const u32 GROUP_BYTES = Stored == SIGNED ? 1 : Stored == HALVES || Stored == SINGLE ? 4 : 2;
    static const u32 SCALE_BYTES = GROUP_BYTES * (64 / Group), BLOCK_BYTES = Stored == PAIRS ? 4 : Stored == SIGNED ? 2 : 0;
    // Where the parts of a unit begin.
    static const u32 PAIRS_AT = HAS_NIBBLES ? SLABS * 256 : 0, SINGLES_AT = PAIRS_AT + (HAS_PAIRS ? SLABS * 128 : 0);
    static const u32 SCALES_AT = SINGLES_AT + (HAS_SINGLES ? SLABS * 64 : 0) + (Bits == 8 ? SLABS * 512 : 0);
    static const u32 BLOCKS_AT = SCALES_AT + SLABS * 8 * SCALE_BYTES, UNIT = BLOCKS_AT + 8 * BLOCK_BYTES;
};

struct q8_0 : Coded<8, 32, LINEAR, HALF, 128> {};
struct q4_0 : Coded<4, 32, LINEAR, HALF, 8> {};
struct q4_1 : Coded<4, 32, MINIMA, HALVES, 0> {};
struct q5_0 : Coded<6, 32, LINEAR, HALF, 16> {};
struct q5_1 : Coded<6, 32, MINIMA, HALVES, 0> {};
struct q2_k : Coded<2, 16, MINIMA, PAIRS, 0> {};
struct q3_k : Coded<3, 16, LINEAR, SIGNED, 4> {};
struct q4_k : Coded<4, 32, MINIMA, PAIRS, 0> {};
struct q5_k : Coded<5, 32, MINIMA, PAIRS, 0> {};
struct q6_k : Coded<6, 16, LINEAR, SIGNED, 32> {};
// The bytes of a table are 128 more than its numbers, four a word.
struct Uneven {
    static const u32 T0 = 0x3f2d1801, T1 = 0x766a5d4f, T2 = 0xa6998d81, T3 = 0xf1d9c5b5;
};
struct TwiceE2M1 {
    static const u32 T0 = 0x83828180, T1 = 0x8c888684, T2 = 0x7d7e7f80, T3 = 0x74787a7c;
};
struct iq4_nl : Coded<4, 32, TABLE, HALF, 128>, Uneven {};
struct iq4_xs : Coded<4, 32, TABLE, SIGNED, 128>, Uneven {};
struct mxfp4 : Coded<4, 32, TABLE, BRAIN, 128>, TwiceE2M1 {};
struct f8_scaled : Coded<8, 32, E4M3, SINGLE, 0> {};
struct f8_e4m3 : Coded<8, 32, E4M3, SINGLE, 0> {};

__device__ __forceinline__ u32 choose_bytes(u32 low, u32 high, u32 selector) {
    u32 y;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(low), "r"(high), "r"(selector));
    return y;
}

// Byte `place` of a word as the float 32,768 more.
__device__ __forceinline__ float float_of_byte(u32 word, u32 place) {
    return __uint_as_float(choose_bytes(word, 0x47000000, 0x7404 | place << 4));
}

// a & mask | b.
__device__ __forceinline__ u32 masked_or(u32 a, u32 mask, u32 b) {
    u32 y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(a), "r"(mask), "r"(b));
    return y;
}

__device__ __forceinline__ u32 shift_left(u32 word, int count) {
    return count >= 0 ? word << count : word >> -count;
}

__device__ __forceinline__ float half_at(u32 word, u32 place) {
    f16 x = {u16(word >> 16 * place)};
    return read(x);
}

// What 256 columns of an output share, ready for `float_of_byte`: x[0] * (32,768 + b) + x[1] is a product with b.
template <class F> struct Block {
    float x[4];
    __device__ __forceinline__ void load(const u8* unit, u32 output) {
        if (F::SCALES == PAIRS) {
            u32 word = *(const u32*)(unit + F::BLOCKS_AT + output * 4);
            x[0] = half_at(word, 0), x[2] = -half_at(word, 1);
            x[1] = -32768.0f * x[0], x[3] = -32768.0f * x[2];
        } else if (F::SCALES == SIGNED) {
            x[0] = half_at(*(const u16*)(unit + F::BLOCKS_AT + output * 2), 0);
            x[1] = -32896.0f * x[0];
        }
    }
};

// A lane's codes of 64 columns, and their scales.
template <class F> struct Slab {
    u32 nibbles[F::HAS_NIBBLES ? 2 : 1], pairs, singles, bytes[F::BITS == 8 ? 4 : 1], scales[(F::SCALE_BYTES + 3) / 4];

    __device__ __forceinline__ void load(const u8* unit, u32 slab, u32 lane) {
        if (F::HAS_NIBBLES) {
            uint2 two = ((const uint2*)unit)[slab * 32 + lane];
            nibbles[0] = two.x, nibbles[F::HAS_NIBBLES ? 1 : 0] = two.y;
        }
        if (F::HAS_PAIRS) pairs = ((const u32*)(unit + F::PAIRS_AT))[slab * 32 + lane];
        if (F::HAS_SINGLES) singles = ((const u32*)(unit + F::SINGLES_AT))[slab / 2 * 32 + lane] >> slab % 2 * 4;
        if (F::BITS == 8) {
            uint4 four = ((const uint4*)unit)[slab * 32 + lane];
            const u32 last = F::BITS == 8 ? 1 : 0;
            bytes[0] = four.x, bytes[last] = four.y, bytes[2 * last] = four.z, bytes[3 * last] = four.w;
        }
        const u8* from = unit + F::SCALES_AT + (slab * 8 + lane / 4) * F::SCALE_BYTES;
        if (F::SCALE_BYTES == 2) scales[0] = *(const u16*)from;
        if (F::SCALE_BYTES == 4) scales[0] = *(const u32*)from;
        if (F::SCALE_BYTES == 8) {
            uint2 two = *(const uint2*)from;
            scales[0] = two.x, scales[F::SCALE_BYTES == 8 ? 1 : 0] = two.y;
        }
    }

    // Scale and minimum of a group.
    __device__ __forceinline__ float2 factors(const Block<F>& block, u32 group) const {
        u32 word = scales[group * F::GROUP_BYTES / 4], place = group * F::GROUP_BYTES % 4;
        if (F::SCALES == HALF) return make_float2(half_at(word, place / 2), 0.0f);
        if (F::SCALES == HALVES) return make_float2(half_at(word, 0), half_at(word, 1));
        if (F::SCALES == BRAIN) return make_float2(__uint_as_float(place ? word & 0xffff0000 : word << 16), 0.0f);
        if (F::SCALES == SINGLE) return make_float2(__uint_as_float(word), 0.0f);
        float scale = fmaf(block.x[0], float_of_byte(word, place), block.x[1]);
        if (F::SCALES == SIGNED) return make_float2(scale, 0.0f);
        return make_float2(scale, fmaf(block.x[2], float_of_byte(word, place + 1), block.x[3]));
    }

    // The codes of a step, a byte each, below 8 bits: of LINEAR and MINIMA with what makes them the upper bits of the mantissa of 2^BITS + code.
    __device__ __forceinline__ u32 placed(u32 step) const {
        const int shift = F::BITS < 8 ? 7 - int(F::BITS) : 0;
        u32 y = F::BITS % 2 == 0 ? 0x80808080 : 0;
        if (F::HAS_NIBBLES) {
            u32 word = nibbles[step / 2];
            y = masked_or(step % 2 ? __funnelshift_r(word, word, 4) : word, 0x0f0f0f0fu << (F::HAS_NIBBLES ? shift : 0), y);
        }
        if (F::HAS_PAIRS) {
            const int at = shift + (F::HAS_NIBBLES ? 4 : 0);
            y = masked_or(shift_left(pairs, at - int(step) * 2), 0x03030303u << at, y);
        }
        if (F::HAS_SINGLES) y = masked_or(shift_left(singles, 6 - int(step)), 0x40404040, y);
        return y;
    }

    // Weight i of a step's codes, in float32.
    __device__ __forceinline__ float weight(u32 codes, u32 i, float scale, float offset) const {
        if (F::VALUES == E4M3) {
            u32 top = choose_bytes(codes, 0, 0x0444 | i << 12);
            return __uint_as_float((top & 0x80000000) | (top >> 4 & 0x07f00000)) * 0x1p120f * scale;
        }
        if (F::VALUES == TABLE) return (float_of_byte(codes, i) - 32896.0f) * scale;
        if (F::BITS == 8) return fmaf(float_of_byte(codes, i), scale, offset);
        return fmaf(__uint_as_float(choose_bytes(codes, (127u + F::BITS) / 2 << 24, 0x7044 | i << 8)), scale, offset);
    }

    // The fragments b of a step of 16 columns.
    __device__ __forceinline__ void fragment(const Block<F>& block, u32 step, u32& b0, u32& b1) const {
        float2 found = factors(block, step * 16 / F::GROUP);
        u32 codes = F::BITS == 8 ? bytes[F::BITS == 8 ? step : 0] : placed_or_looked_up(step);
        const float base = F::BITS == 8 ? 32768.0f : float(1 << F::BITS);
        float offset = F::VALUES == MINIMA ? fmaf(found.x, -base, found.y) : found.x * -(base + float(F::ZERO));
        float w[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) w[i] = weight(codes, i, found.x, offset);
        b0 = pack<bf16>(w[0], w[1]), b1 = pack<bf16>(w[2], w[3]);
    }

    __device__ __forceinline__ u32 placed_or_looked_up(u32 step) const {
        if constexpr (F::VALUES == TABLE) {
            u32 places = nibbles[step / 2] >> step % 2 * 16, low = places & 0x7777;
            return choose_bytes(choose_bytes(F::T0, F::T1, low), choose_bytes(F::T2, F::T3, low), (places >> 1 & 0x4444) | 0x3210);
        } else {
            return placed(step);
        }
    }
};

// The place of unit (row / 8, run) of a matrix with so many runs, in units.
__device__ __forceinline__ u64 unit_place(u32 eight, u32 run, u32 runs) {
    return (u64(eight / 2) * runs + run) * 2 + eight % 2;
}

// The weights of one run of columns of COUNT neighbouring units, two steps of 16 columns at once: add(fragments b of each step and unit, slab, half of it).
template <class F, u32 COUNT, class Add> __device__ __forceinline__ void unpack_run(const u8* codes, u32 lane, const Add& add) {
    Block<F> block[COUNT];
#pragma unroll
    for (u32 unit = 0; unit < COUNT; unit++) block[unit].load(codes + unit * F::UNIT, lane / 4);
#pragma unroll
    for (u32 slab = 0; slab < F::SLABS; slab++) {
        Slab<F> found[COUNT];
#pragma unroll
        for (u32 unit = 0; unit < COUNT; unit++) found[unit].load(codes + unit * F::UNIT, slab, lane);
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 b[2][COUNT][2];
#pragma unroll
            for (u32 step = 0; step < 2; step++)
#pragma unroll
                for (u32 unit = 0; unit < COUNT; unit++) found[unit].fragment(block[unit], half * 2 + step, b[step][unit][0], b[step][unit][1]);
            add(b, slab, half);
        }
    }
}

// The fragment a of 16 outputs: units are its upper and lower half.
__device__ __forceinline__ void mma_of_pair(float (&sum)[4], const u32 (&b)[2][2], u32 x0, u32 x1) {
    u32 a[4] = {b[0][0], b[1][0], b[0][1], b[1][1]};
    mma<bf16>(sum, a, x0, x1);
}
