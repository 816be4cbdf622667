// y[row] = weight[ids[row]], or embeddings[row] where the id is 0xffffffff.
//
// ids u32 [rows]; weight W [vocabulary][width], row-major, or in tile order with -DTILED=1 (as `linear` has it);
// embeddings f32 [rows][width] or 0; y Y [rows][width]. Grid: rows; block 256. Bound: the bytes of y.
#include "formats.cuh"

extern "C" __global__ void embed(Y* __restrict__ y, const u32* ids, const W* weight, const float* embeddings, u32 rows,
                                 u32 vocabulary, u32 width) {
    join_chain();
    u32 row = blockIdx.x, id = ids[row];
    for (u32 column = threadIdx.x; column < width; column += blockDim.x) {
        float x;
        if (id < vocabulary) {
#if TILED
            x = read(weight[tile_place(id, column, round_up(width, 64))]);
#else
            x = read(weight[u64(id) * width + column]);
#endif
        } else {
            x = embeddings ? embeddings[u64(row) * width + column] : 0.0f;
        }
        write(y[u64(row) * width + column], x);
    }
}
