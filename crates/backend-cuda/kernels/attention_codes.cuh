// What `attention.cuh` does over keys and values in int8 (`int8.cuh`, in cores): fragments of mma are made of codes and scales in registers, each
// number rounded to f16 once, and multiplied in the same order. So a block of codes has the bits of a block with these numbers in f16.
//
// Lines of one item see their own page in f16, so items don't reach over the edge of a page.
#pragma once
#include "int8.cuh"

const u32 CODES_BYTES = 64 * DIM, KEY_BYTES = CODES_BYTES + 2 * DIM, VALUE_BYTES = CODES_BYTES + 128;

// Two codes (bytes of `codes` as `bytes` picks them) times their scales.
__device__ __forceinline__ u32 decode_pair(u32 codes, u32 bytes, u32 scales) {
    // In f16, 0x6400 and a byte in its lower half is 1,024 and the byte; 0x6480 is 1,152.
    u32 pair = __byte_perm(codes, 0x64646464u, bytes);
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x64806480u));
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(scales));
    return pair;
}
// The fragment of one word of codes, and the scales of its four.
__device__ __forceinline__ void decode(u32 (&b)[2], u32 codes, const u32 (&scales)[2]) {
    b[0] = decode_pair(codes, 0x4140, scales[0]);
    b[1] = decode_pair(codes, 0x4342, scales[1]);
}

__device__ __forceinline__ u32 load_word(u32 address) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

// A lane's scales of four steps of 16 (channels, or keys), from the first on.
__device__ __forceinline__ void load_scales(u32 (&scales)[4][2], u32 head, u32 step, u32 lane) {
#pragma unroll
    for (u32 i = 0; i < 4; i++)
#pragma unroll
        for (u32 half = 0; half < 2; half++) scales[i][half] = load_word(head + CODES_BYTES + (step + i) * 32 + half * 16 + lane % 4 * 4);
}

// `Keys` in int8. All codes come first, so that eight chains of products go side by side.
struct PageKeys {
    static const u32 STEPS = 4;
    u32 keys, scales[4][2], codes[8][4];
    __device__ __forceinline__ explicit PageKeys(u32 keys) : keys(keys) {}
    __device__ __forceinline__ void load(u32 step, u32 lane) {
        load_scales(scales, keys, step, lane);
#pragma unroll
        for (u32 j = 0; j < 8; j++) load_matrices(codes[j], keys + (j * (DIM / 16) + step + lane / 8) * 128 + lane % 8 * 16);
    }
    __device__ __forceinline__ void fragment(u32 (&b)[2], u32 step, u32 eight) const {
        decode(b, codes[eight][step], scales[step]);
    }
};

// `Values` in int8; more pairs at once would be more codes than there are registers.
const u32 PAIRS_AT_ONCE = 2;
template <u32 COUNT> struct PageValues {
    u32 scales[4][2], codes[COUNT][2][4];
    __device__ __forceinline__ PageValues(u32 values, u32 pair, u32 stride, u32 lane) {
        load_scales(scales, values, 0, lane);
#pragma unroll
        for (u32 i = 0; i < COUNT * 2; i++) load_matrices(codes[i / 2][i % 2], values + ((pair + i / 2 * stride) * 2 + i % 2) * 512 + lane * 16);
    }
    __device__ __forceinline__ void fragments(u32 (&b)[4], u32 step, u32 i, u32) const {
        u32 half[2][2];
#pragma unroll
        for (u32 eight = 0; eight < 2; eight++) decode(half[eight], codes[i][eight][step], scales[step]);
        b[0] = half[0][0], b[1] = half[0][1], b[2] = half[1][0], b[3] = half[1][1];
    }
};
