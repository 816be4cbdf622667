// `linear` for one row of weights in codes with many outputs, or with a gate, with the bits of `linear_codes`: bound by unpacking them.
//
// weight: units of W (`codes.cuh`); bias f32 [n] or 0; y Y [n], with GATE 1 (silu) or 2 (gelu_tanh) Y [n / 2] as in `linear_codes`. x bf16 [k], k a multiple
// of 8; or, where a is not 0, made here of a, b and norm as in `linear_one`.
//
// A warp unpacks what it multiplies, 16 outputs from their first column to their last. It brings their codes by itself, pieces of 256 columns by bulk copies
// into two places in turns: nobody waits for another warp. The first come before the earlier kernel has ended. Codes and columns of the row are in registers 64
// columns before they are multiplied.
//
// Grid: any number of blocks, outputs go round over (round, block, warp). Block: 32 * warps, of which the first `warps`, at most WARPS_MAX, have outputs; at least
// ROW_THREADS. Dynamic shared memory: HEAD + pieces * 512 + warps * 2 * PIECE, where pieces = ceil(k / 256); more where no two blocks may lie side by side.
#include "codes.cuh"
#include "outputs.cuh"
#include "row.cuh"

#if __CUDA_ARCH__ >= 900

const u32 WARPS_MAX = 12, OUTS = 16, COLUMNS = 256, SLABS = 4, SLAB_BYTES = 128;
// Bytes of two units side by side, and of a piece's codes.
const u32 PAIR = 2 * W::UNIT, RUNS = SLABS / W::SLABS, PIECE = PAIR * RUNS;
// In shared memory: two barriers a warp, that of x, the sums of warps that norm; then x, codes.
const u32 X_BARRIER = WARPS_MAX * 16, WARP_SUMS = X_BARRIER + 16, HEAD = 1024;
static_assert(WARP_SUMS + ROW_THREADS / 32 * 4 <= HEAD, "all barriers and sums have a place");

// The pieces of a warp on their way: all of its outputs, one after the other.
struct Stream {
    const u8* from;
    // Of outputs, and between this warp's and its next.
    u64 share_bytes, step_bytes;
    u32 pieces, last_bytes, left, piece, barriers, memory;

    // Into one of the two places.
    __device__ __forceinline__ void fetch(u32 place, u32 lane) {
        if (left == 0) return;
        u32 bytes = RUNS > 1 && piece + 1 == pieces ? last_bytes : PIECE;
        if (lane == 0) {
            barrier_expect(barriers + place * 8, bytes);
            copy_bulk(memory + place * PIECE, from, bytes, barriers + place * 8);
        }
        left--, from += bytes;
        if (++piece == pieces) piece = 0, from += step_bytes - share_bytes;
    }
};

// What 64 columns are multiplied from.
struct Columns {
    Slab<W> slabs[2];
    u32 x[2][4];
    __device__ __forceinline__ void load(const u8* piece, u32 slab, u32 x_at, u32 lane) {
        load_matrices(x[0], x_at);
        load_matrices(x[1], x_at + SLAB_BYTES / 2);
#pragma unroll
        for (u32 unit = 0; unit < 2; unit++) slabs[unit].load(piece + slab / W::SLABS * PAIR + unit * W::UNIT, slab % W::SLABS, lane);
    }
    __device__ __forceinline__ void multiply(float (&sum)[4], const Block<W> (&block)[2]) const {
#pragma unroll
        for (u32 step = 0; step < 4; step++) {
            u32 a[4];
            slabs[0].fragment(block[0], step, a[0], a[2]);
            slabs[1].fragment(block[1], step, a[1], a[3]);
            mma<bf16>(sum, a, x[step / 2][step % 2 * 2], x[step / 2][step % 2 * 2 + 1]);
        }
    }
};

// A warp's way through its pieces.
struct Way {
    Stream stream;
    const u8* codes;
    u32 count, number, piece, last_slabs, x_at, lane;
    Columns now, next;
    Block<W> block[2], next_block[2];

    __device__ __forceinline__ void load_block(const u8* at) {
#pragma unroll
        for (u32 unit = 0; unit < 2; unit++) next_block[unit].load(at + unit * W::UNIT, lane / 4);
    }
    __device__ __forceinline__ void begin() {
        load_block(codes);
        next.load(codes, 0, x_at, lane);
    }
    // The piece in one of the two places; whether it was the last of its outputs.
    __device__ __forceinline__ bool multiply(float (&sum)[4], u32 place) {
        bool is_last = piece + 1 == stream.pieces;
        u32 x = x_at + piece * (SLABS * SLAB_BYTES), present = RUNS > 1 && is_last ? last_slabs : SLABS;
        piece = is_last ? 0 : piece + 1;
#pragma unroll
        for (u32 unit = 0; unit < 2; unit++) block[unit] = next_block[unit];
#pragma unroll
        for (u32 slab = 0; slab < SLABS; slab++) {
            if (RUNS > 1 && slab >= present) continue;
            now = next;
            if (slab + 1 < present) {
                next.load(codes + place * PIECE, slab + 1, x + (slab + 1) * SLAB_BYTES, lane);
            } else {
                // This place is free.
                __syncwarp();
                stream.fetch(place, lane);
                number++;
                if (number < count) {
                    const u8* at = codes + (place ^ 1) * PIECE;
                    barrier_wait(stream.barriers + (place ^ 1) * 8, number / 2 % 2);
                    load_block(at);
                    next.load(at, 0, x_at + piece * (SLABS * SLAB_BYTES), lane);
                }
            }
            now.multiply(sum, block);
        }
        return is_last;
    }
};

extern "C" __global__ void __launch_bounds__(WARPS_MAX * 32, 1)
    linear_one_wide(Y* y, float* sum, const bf16* x, const float* a, const float* b, const float* norm, const u8* weight, const float* bias, u32 n, u32 k,
                    float epsilon, u32 warps) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, start = shared_address(shared), x_barrier = start + X_BARRIER;
    u32 pieces = (k + COLUMNS - 1) / COLUMNS, codes_at = HEAD + pieces * (COLUMNS * 2) + warp * 2 * PIECE;
    u32 runs = round_up(k, W::RUN) / W::RUN, last_runs = runs - (pieces - 1) * RUNS;
    u32 shares = round_up(n, OUTS) / OUTS, step = gridDim.x * warps, share = warp < warps ? blockIdx.x * warps + warp : shares;
    u32 count = share < shares ? (shares - share + step - 1) / step * pieces : 0;
    u64 share_bytes = u64(runs) * PAIR;
    Stream stream = {weight + share * share_bytes, share_bytes, step * share_bytes, pieces, last_runs * PAIR, count, 0, start + warp * 16, start + codes_at};
    bf16* row = (bf16*)(shared + HEAD);
    if (lane < 2) barrier_init(stream.barriers + lane * 8, 1);
    if (threadIdx.x == 0) barrier_init(x_barrier, 1);
    barrier_init_done();
    __syncwarp();
    stream.fetch(0, lane);
    stream.fetch(1, lane);
    let_next_kernel_start();
    for (u32 column = k + threadIdx.x; column < pieces * COLUMNS; column += blockDim.x) write(row[column], 0.0f);
    if (a) {
        make_x(sum, row, a, b, norm, k, epsilon, (float*)(shared + WARP_SUMS), blockDim.x, threadIdx.x);
    } else {
        wait_for_earlier_kernels();
        if (threadIdx.x == 0) {
            barrier_expect(x_barrier, k * 2);
            copy_bulk(start + HEAD, x, k * 2, x_barrier);
        }
        __syncthreads();
        barrier_wait(x_barrier, 0);
    }
    if (count == 0) return;
    barrier_wait(stream.barriers, 0);
    Way way = {stream, shared + codes_at, count, 0, 0, last_runs * W::SLABS, start + HEAD + lane / 8 * 16, lane};
    way.begin();
    float sums[1][4] = {};
    while (true) {
#pragma unroll
        for (u32 place = 0; place < 2; place++) {
            if (way.multiply(sums[0], place)) {
                store_outputs(sums, InOrder{y, n}, bias, share, 1, n, lane);
                share += step;
#pragma unroll
                for (u32 i = 0; i < 4; i++) sums[0][i] = 0.0f;
            }
            if (way.number == count) return;
        }
    }
}

#endif
