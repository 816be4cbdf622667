// `embed` from a table of codes: y[row] = weight[ids[row]] in bf16, or embeddings[row] where the id is 0xffffffff.
//
// ids u32 [rows]; weight: units of W (`codes.cuh`), [vocabulary][width]; embeddings f32 [rows][width] or 0; y Y [rows][width]. Four threads, one for
// each lane of an output, take 64 columns. Grid: rows; block 256. Bound: the bytes of y.
#include "codes.cuh"

extern "C" __global__ void embed_codes(Y* __restrict__ y, const u32* ids, const u8* weight, const float* embeddings, u32 rows, u32 vocabulary,
                                       u32 width) {
    join_chain();
    u32 row = blockIdx.x, id = ids[row], runs = round_up(width, W::RUN) / W::RUN;
    y += u64(row) * width;
    if (id >= vocabulary) {
        for (u32 column = threadIdx.x; column < width; column += blockDim.x)
            write(y[column], embeddings ? embeddings[u64(row) * width + column] : 0.0f);
        return;
    }
    u32 t = threadIdx.x % 4, lane = id % 8 * 4 + t;
    for (u32 start = threadIdx.x / 4 * 64; start < width; start += blockDim.x / 4 * 64) {
        const u8* unit = weight + unit_place(id / 8, start / W::RUN, runs) * W::UNIT;
        Block<W> block;
        block.load(unit, lane / 4);
        Slab<W> codes;
        codes.load(unit, start % W::RUN / 64, lane);
#pragma unroll
        for (u32 step = 0; step < 4; step++) {
            u32 b[2];
            codes.fragment(block, step, b[0], b[1]);
            for (u32 i = 0; i < 4; i++) {
                u32 column = start + step * 16 + i / 2 * 8 + t * 2 + i % 2;
                bf16 x = {u16(b[i / 2] >> i % 2 * 16)};
                if (column < width) write(y[column], read(x));
            }
        }
    }
}
