// Codes to bf16: some outputs of a matrix in units (`codes.cuh`) into tile order, as products of many rows read it.
//
// weight: units [n/16][k/RUN][2] of W from output 0 on, n a multiple of 16; out bf16 in tile order [n/16][k/64][2][8][8][8], k filled up to a multiple of
// 64. A warp takes a unit. Grid: ceil(n / 8 * ceil(k / RUN) / 8), block 256. Bound: the bytes of out.
#include "codes.cuh"

extern "C" __global__ void __launch_bounds__(256) unpack(u32* __restrict__ out, const u8* weight, u32 n, u32 k) {
    join_chain();
    u32 runs = round_up(k, W::RUN) / W::RUN, columns = round_up(k, 64), lane = threadIdx.x % 32;
    u64 number = u64(blockIdx.x) * 8 + threadIdx.x / 32;
    if (number >= u64(n / 8) * runs) return;
    u32 eight = u32(number / 2 / runs) * 2 + u32(number % 2), run = u32(number / 2 % runs);
    const u8* unit = weight + number * W::UNIT;
    Block<W> block;
    block.load(unit, lane / 4);
#pragma unroll
    for (u32 slab = 0; slab < W::SLABS; slab++) {
        u32 column = run * W::RUN + slab * 64;
        if (column >= columns) return;
        Slab<W> codes;
        codes.load(unit, slab, lane);
        u32* to = out + tile_place(eight * 8, column, columns) / 2 + lane;
#pragma unroll
        for (u32 step = 0; step < 4; step++) {
            u32 b0, b1;
            codes.fragment(block, step, b0, b1);
            to[step * 64] = b0, to[step * 64 + 32] = b1;
        }
    }
}

// Units of one matrix into their places in another that has more parts: from the first-th eight rows on, every one, or every other (gate and up).
// in: units [n/16][runs][2]; pieces of 16 bytes. Grid: ceil(eights * runs * UNIT / 16 / 256), block 256.
extern "C" __global__ void place_units(uint4* out, const uint4* in, u32 eights, u32 runs, u32 first, u32 every) {
    join_chain();
    u64 piece = u64(blockIdx.x) * 256 + threadIdx.x;
    u64 number = piece / (W::UNIT / 16);
    u32 eight = u32(number / runs), run = u32(number % runs), rest = u32(piece % (W::UNIT / 16));
    if (eight >= eights) return;
    out[unit_place(first + eight * every, run, runs) * (W::UNIT / 16) + rest] = in[unit_place(eight, run, runs) * (W::UNIT / 16) + rest];
}
