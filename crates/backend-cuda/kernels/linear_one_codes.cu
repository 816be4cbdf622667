// `linear` for one row of weights in codes, with the bits of `linear_codes`: bound by reading the codes once, by unpacking them, or by the chain of an
// output's products, 25 cycles for 16 columns.
//
// weight: units of W (`codes.cuh`); bias f32 [n] or 0; y Y [n]. x bf16 [k], k a multiple of 8; or, where a is not 0, made here of a, b and norm as in
// `linear_one`.
//
// What waits for the row and what does not are warps of their own. A warp that multiplies has a chain of products, 16 outputs; `helpers` warps take the
// chain's pieces (256 columns) in turns and make fragments a of mma.sync of them. Codes come to a helper by bulk copies of its own, `depth` pieces ahead;
// its fragments lie in two parts of 128 columns, which nobody else writes and its chain alone reads. So no reader is ever two rounds of a part away from
// its writer, and a barrier a direction is enough. The first pieces are unpacked before the earlier kernel has ended, and while the last warps make the row.
//
// Grid: any number of blocks, chains go round over (round, block, chain). Block: 32 * chains * (helpers + 1) and ROW_THREADS, 8 to 16 helpers in all, and at most
// THREADS_MAX threads. Dynamic shared memory: HEAD + pieces * 512 + chains * helpers * (2 * PART_BYTES + depth * PIECE), where pieces = ceil(k / 256); more where
// no two blocks may lie side by side.
#include "codes.cuh"
#include "outputs.cuh"
#include "row.cuh"

#if __CUDA_ARCH__ >= 900

const u32 THREADS_MAX = 768, OUTS = 16, COLUMNS = 256, SLABS = 4, PARTS = 2, PART_SLABS = SLABS / PARTS;
// Bytes of two units side by side, and of a piece's codes; of the fragments of 64 columns and of a part.
const u32 PAIR = 2 * W::UNIT, RUNS = SLABS / W::SLABS, PIECE = PAIR * RUNS, SLAB_BYTES = 4 * 512, PART_BYTES = PART_SLABS * SLAB_BYTES;
// In shared memory: barriers of a helper, HELPERS_MAX times; that of x, the sums of warps that norm; then x, parts, codes.
const u32 HELPERS_MAX = 16, DEPTH_MAX = 8, PART_BARRIERS = PARTS * 16, BARRIERS = PART_BARRIERS + DEPTH_MAX * 8;
const u32 X_BARRIER = HELPERS_MAX * BARRIERS, WARP_SUMS = X_BARRIER + 16, HEAD = 2048;
static_assert(WARP_SUMS + ROW_THREADS / 32 * 4 <= HEAD, "all barriers and sums have a place");

// What a block multiplies.
struct Task {
    const u8* weight;
    u32 chains, helpers, shares, pieces, runs, rounds;
    __device__ __forceinline__ u32 share(u32 round, u32 chain) const {
        return (round * gridDim.x + blockIdx.x) * chains + chain;
    }
};

// That of a helper.
struct Memory {
    u8* shared;
    u32 start, parts_at, codes_at, depth;
    __device__ __forceinline__ u32 full(u32 helper, u32 part) const {
        return start + helper * BARRIERS + part * 16;
    }
    __device__ __forceinline__ u32 empty(u32 helper, u32 part) const {
        return full(helper, part) + 8;
    }
    __device__ __forceinline__ u8* part(u32 helper, u32 part) const {
        return shared + parts_at + (helper * PARTS + part) * PART_BYTES;
    }
    __device__ __forceinline__ u32 copied(u32 helper, u32 slot) const {
        return start + helper * BARRIERS + PART_BARRIERS + slot * 8;
    }
    __device__ __forceinline__ u32 codes(u32 helper, u32 slot) const {
        return codes_at + (helper * depth + slot) * PIECE;
    }
};

// Codes of a part of a piece.
struct Codes {
    Slab<W> slabs[PART_SLABS][2];
    __device__ __forceinline__ void load(const u8* piece, u32 part, u32 lane) {
#pragma unroll
        for (u32 i = 0; i < PART_SLABS; i++)
#pragma unroll
            for (u32 unit = 0; unit < 2; unit++) {
                u32 slab = part * PART_SLABS + i;
                slabs[i][unit].load(piece + slab / W::SLABS * PAIR + unit * W::UNIT, slab % W::SLABS, lane);
            }
    }
    // Fragments of the slabs that there are, zeros for the others.
    __device__ __forceinline__ void unpack(u8* to, const Block<W> (&block)[2], u32 present, u32 lane) const {
#pragma unroll
        for (u32 i = 0; i < PART_SLABS; i++)
#pragma unroll
            for (u32 step = 0; step < 4; step++) {
                uint4 a = make_uint4(0, 0, 0, 0);
                if (W::SLABS == SLABS || i < present) {
                    slabs[i][0].fragment(block[0], step, a.x, a.z);
                    slabs[i][1].fragment(block[1], step, a.y, a.w);
                }
                ((uint4*)(to + i * SLAB_BYTES))[step * 32 + lane] = a;
            }
    }
};

// A helper's pieces, and their copies.
struct Helper {
    const Memory& memory;
    const Task& task;
    u32 chain, warp, lane;
    // The piece that is copied next, whether there is such a chain in its round, and how many slabs each has of those on their way, the latest in the
    // lowest bits.
    u32 piece, round, slabs;
    bool is_there;
    const u8* from;
    // Where the piece lies that is unpacked next.
    Place place;

    __device__ __forceinline__ void open() {
        piece = warp % task.helpers, round = 0, slabs = 0;
        settle();
        for (u32 slot = 0; slot < memory.depth; slot++) fetch(slot);
        place = Place{0, 0};
    }
    __device__ __forceinline__ void settle() {
        for (; piece >= task.pieces; piece -= task.pieces) round++;
        u32 share = task.share(round, chain);
        is_there = share < task.shares;
        from = task.weight + (u64(share) * task.runs + piece * RUNS) * PAIR;
    }
    // Where there is no such chain, nothing comes.
    __device__ __forceinline__ void fetch(u32 slot) {
        slabs <<= 4;
        if (round >= task.rounds) return;
        u32 barrier = memory.copied(warp, slot), runs = RUNS == 1 ? 1 : min(task.runs - piece * RUNS, RUNS);
        if (is_there) slabs |= runs * W::SLABS;
        if (lane == 0) {
            if (is_there) {
                barrier_expect(barrier, runs * PAIR);
                copy_bulk(memory.start + memory.codes(warp, slot), from, runs * PAIR, barrier);
            } else {
                barrier_arrive(barrier);
            }
        }
        piece += task.helpers, from += task.helpers * PIECE;
        if (piece >= task.pieces) settle();
    }
    // Pieces of this warp.
    __device__ __forceinline__ u32 count() const {
        return (task.rounds * task.pieces + task.helpers - 1 - warp % task.helpers) / task.helpers;
    }
    // The `number`-th piece of this warp.
    __device__ __forceinline__ void unpack(u32 number) {
        u32 present = slabs >> 4 * (memory.depth - 1) & 15;
        const u8* codes_at = memory.shared + memory.codes(warp, place.stage);
        barrier_wait(memory.copied(warp, place.stage), place.round % 2);
        Block<W> block[2];
#pragma unroll
        for (u32 unit = 0; unit < 2; unit++) block[unit].load(codes_at + unit * W::UNIT, lane / 4);
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            Codes codes;
            codes.load(codes_at, part, lane);
            if (part + 1 == PARTS) {
                __syncwarp();
                fetch(place.stage);
            }
            if (number > 0) barrier_wait(memory.empty(warp, part), (number - 1) % 2);
            if (present > 0)
                codes.unpack(memory.part(warp, part), block, max(present, part * PART_SLABS) - part * PART_SLABS, lane);
            __syncwarp();
            if (lane == 0) barrier_arrive(memory.full(warp, part));
        }
        place.next(memory.depth);
    }
};

// 64 columns of a chain's weights, and of the row, which is every column of the products.
struct Fragments {
    uint4 weights[4];
    u32 x[2][4];
    __device__ __forceinline__ void load(const u8* part, u32 slab, u32 x_at, u32 lane) {
#pragma unroll
        for (u32 step = 0; step < 4; step++) weights[step] = ((const uint4*)(part + slab * SLAB_BYTES))[step * 32 + lane];
        load_matrices(x[0], x_at);
        load_matrices(x[1], x_at + 64);
    }
    __device__ __forceinline__ void multiply(float (&sum)[4]) const {
#pragma unroll
        for (u32 step = 0; step < 4; step++) {
            u32 a[4] = {weights[step].x, weights[step].y, weights[step].z, weights[step].w};
            mma<bf16>(sum, a, x[step / 2][step % 2 * 2], x[step / 2][step % 2 * 2 + 1]);
        }
    }
};

// Where the fragments of a chain's next part are: which of its helpers has them, and how often that one's part was used before.
struct Parts {
    u32 first, helper, part, round;
    __device__ __forceinline__ const u8* wait(const Memory& memory) const {
        barrier_wait(memory.full(first + helper, part), round % 2);
        return memory.part(first + helper, part);
    }
    __device__ __forceinline__ void release(const Memory& memory, u32 helpers, u32 lane) {
        __syncwarp();
        if (lane == 0) barrier_arrive(memory.empty(first + helper, part));
        if (++part < PARTS) return;
        part = 0;
        if (++helper == helpers) helper = 0, round++;
    }
};

// A chain from its first column to its last: the next fragments are in registers before the last ones are multiplied.
__device__ __forceinline__ void accumulate(float (&sum)[4], const Memory& memory, const Task& task, Parts& parts, u32 x_at, u32 lane) {
    Fragments even, odd;
    const u8* at = parts.wait(memory);
    even.load(at, 0, x_at, lane);
#pragma unroll 2
    for (u32 left = task.pieces * PARTS; left > 0; left--) {
        odd.load(at, 1, x_at + 128, lane);
        even.multiply(sum);
        parts.release(memory, task.helpers, lane);
        x_at += 256;
        if (left > 1) {
            at = parts.wait(memory);
            even.load(at, 0, x_at, lane);
        }
        odd.multiply(sum);
    }
}

__device__ __forceinline__ void multiply(Y* y, const float* bias, const Memory& memory, const Task& task, const bf16* x, u32 chain, u32 n, u32 k, u32 lane) {
    wait_for_earlier_kernels();
    if (x && chain == 0 && lane == 0) {
        barrier_expect(memory.start + X_BARRIER, k * 2);
        copy_bulk(memory.start + HEAD, x, k * 2, memory.start + X_BARRIER);
    }
    barrier_wait(memory.start + X_BARRIER, 0);
    Parts parts = {chain * task.helpers, 0, 0, 0};
    for (u32 round = 0; round < task.rounds; round++) {
        float sum[1][4] = {};
        accumulate(sum[0], memory, task, parts, memory.start + HEAD + lane / 8 * 16, lane);
        u32 share = task.share(round, chain);
        if (share < task.shares) store_outputs(sum, InOrder{y, n}, bias, share, 1, n, lane);
    }
}

// Not part of the kernel's own code, whose registers it would take.
__device__ __noinline__ void norm_row(float* sum, bf16* row, const float* a, const float* b, const float* norm, u32 k, float epsilon, float* warps, u32 barrier,
                                      u32 thread) {
    make_x(sum, row, a, b, norm, k, epsilon, warps, ROW_THREADS, thread);
    if (thread == 0) barrier_arrive(barrier);
}

extern "C" __global__ void __launch_bounds__(THREADS_MAX, 1)
    linear_one_codes(Y* y, float* sum, const bf16* x, const float* a, const float* b, const float* norm, const u8* weight, const float* bias, u32 n, u32 k,
                     float epsilon, u32 chains, u32 helpers, u32 depth) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, pieces = (k + COLUMNS - 1) / COLUMNS, shares = round_up(n, OUTS) / OUTS;
    u32 parts_at = HEAD + pieces * (COLUMNS * 2), groups = (shares + chains - 1) / chains, all = chains * helpers;
    Task task = {weight, chains, helpers, shares, pieces, (k + W::RUN - 1) / W::RUN, (groups + gridDim.x - 1) / gridDim.x};
    Memory memory = {shared, shared_address(shared), parts_at, parts_at + all * PARTS * PART_BYTES, depth};
    bf16* row = (bf16*)(shared + HEAD);
    if (threadIdx.x < all * (BARRIERS / 8)) barrier_init(memory.start + threadIdx.x * 8, 1);
    if (threadIdx.x == 0) barrier_init(memory.start + X_BARRIER, 1);
    barrier_init_done();
    for (u32 column = k + threadIdx.x; column < pieces * COLUMNS; column += blockDim.x) write(row[column], 0.0f);
    __syncthreads();
    if (warp >= all + chains) {
        if (!a) return;
        u32 thread = threadIdx.x - (all + chains) * 32;
        norm_row(sum, row, a, b, norm, k, epsilon, (float*)(shared + WARP_SUMS), memory.start + X_BARRIER, thread);
        return;
    }
    if (warp >= all) {
        multiply(y, bias, memory, task, a ? 0 : x, warp - all, n, k, lane);
        return;
    }
    Helper helper = {memory, task, warp / helpers, warp, lane};
    helper.open();
    let_next_kernel_start();
    u32 count = helper.count();
    for (u32 number = 0; number < count; number++) helper.unpack(number);
}

#endif
