// `linear` of each routed row with the matrix of its expert, with the bits of `linear` over that matrix: bound by reading once each matrix that has rows, and
// for codes by unpacking it.
//
// x X [..][k]: f32, which is rounded here, or the format that is multiplied, bf16 for codes, else W; weight: matrices of all experts, one after the other, each with n padded to 16: units of W (`codes.cuh`), tile order, or f32
// row-major [n][k] without padding; bias f32 [experts][n] or 0; y Y [rows * experts a token], rows of `stride` numbers. order, item_starts and items as `route_experts` makes
// them; x_rows u32: the row of x of each place in `order` (`tokens` where x has a row a token, else `order`).
//
// With GATE 1 (silu) or 2 (gelu_tanh) the matrices are of gate and up as `linear_few` has them, y has n / 2 numbers a row.
//
// The next kernel may start when the lists are there: so where it is another product of the same rows, `lists_are_there`, it reads them, and brings weights, before this one
// has ended.
//
// A block takes an item, ROWS of its rows after the other, and 16 outputs a warp (64 for f32). A warp has 16 outputs as the 16-wide operand of mma.sync and a ring of its own, which asynchronous
// copies fill with the stream of its weights; x lies in shared memory, `chunk` columns at once.
//
// Defines: W, X, Y, ROWS 8, 16 or 32 (32 for f32), KIND 0 f32, 1 bf16 or f16, 2 codes, GATE. Grid: (ceil(n / outputs of a block), the most items that there may be); blocks without
// an item end at once. Block at most 128; 256 for f32. Dynamic shared memory: warps * STAGES * SHARE + ROWS * (chunk * 2 + 16), chunk a multiple of 256; none for f32.
#if KIND == 2
#include "codes.cuh"
#else
#include "mma.cuh"
#endif
#include "outputs.cuh"

#if KIND == 0

// A tile of ROWS rows x 64 outputs, 2 x 4 a thread.
extern "C" __global__ void __launch_bounds__(256)
    expert_linear(Y* y, const float* x, const float* weight, const float* bias, const u32* order, const u32* x_rows, const u32* item_starts, const uint4* items,
                  u32 experts, u32 n, u32 k, u32 stride, u32, u32) {
    __shared__ float xs[16][ROWS + 1], ws[16][65];
    wait_for_earlier_kernels();
    let_next_kernel_start();
    if (blockIdx.y >= item_starts[experts]) return;
    uint4 item = items[blockIdx.y];
    const float* matrix = weight + u64(item.x) * n * k;
    u32 out0 = blockIdx.x * 64, across = threadIdx.x % 16, down = threadIdx.x / 16;
    for (u32 row0 = 0; row0 < item.z; row0 += ROWS) {
        float sum[ROWS / 16][4] = {};
        for (u32 start = 0; start < k; start += 16) {
            for (u32 i = threadIdx.x; i < ROWS * 16; i += 256) {
                u32 line = i / 16, column = start + i % 16;
                xs[i % 16][line] = column < k && row0 + line < item.z ? x[u64(x_rows[item.y + row0 + line]) * k + column] : 0.0f;
            }
            for (u32 i = threadIdx.x; i < 64 * 16; i += 256) {
                u32 line = i / 16, column = start + i % 16;
                ws[i % 16][line] = column < k && out0 + line < n ? matrix[u64(out0 + line) * k + column] : 0.0f;
            }
            __syncthreads();
            for (u32 c = 0; c < 16; c++)
                for (u32 i = 0; i < ROWS / 16; i++)
                    for (u32 j = 0; j < 4; j++) sum[i][j] = fmaf(xs[c][down + 16 * i], ws[c][across + 16 * j], sum[i][j]);
            __syncthreads();
        }
        for (u32 i = 0; i < ROWS / 16; i++)
            for (u32 j = 0; j < 4; j++) {
                u32 row = row0 + down + 16 * i, out = out0 + across + 16 * j;
                if (row < item.z && out < n)
                    write(y[u64(order[item.y + row]) * stride + out], sum[i][j] + (bias ? bias[u64(item.x) * n + out] : 0.0f));
            }
    }
}

#else

#if KIND == 2
typedef bf16 E;
// Columns and bytes of 16 outputs that a stage of a warp's ring has.
const u32 RUN = W::RUN, SHARE = 2 * W::UNIT, STAGES = W::RUN == 256 ? 3 : 8;
#else
typedef W E;
const u32 RUN = 64, SHARE = 2048, STAGES = 6;
#endif
const u32 GROUPS = ROWS / 8;

__device__ __forceinline__ void fetch(u32 to, const u8* from, u32 lane) {
#pragma unroll
    for (u32 i = 0; i < (SHARE + 511) / 512; i++) {
        u32 at = i * 512 + lane * 16;
        if (at < SHARE) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at), "l"(from + at) : "memory");
    }
}
__device__ __forceinline__ void fetch_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void fetch_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Eight neighbours, and one, as they are multiplied.
__device__ __forceinline__ uint4 eight_of(const E* from) {
    return *(const uint4*)from;
}
__device__ __forceinline__ uint4 eight_of(const f32* from) {
    float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
    return make_uint4(pack<E>(a.x, a.y), pack<E>(a.z, a.w), pack<E>(b.x, b.y), pack<E>(b.z, b.w));
}
__device__ __forceinline__ u32 bits_of(E x) {
    return x.bits;
}
__device__ __forceinline__ u32 bits_of(f32 x) {
    E y;
    write(y, x);
    return y.bits;
}

// Two neighbours from `column` on, zero beyond k.
__device__ __forceinline__ u32 two_columns(const X* row, u32 column, u32 k) {
    u32 low = column < k ? bits_of(row[column]) : 0, high = column + 1 < k ? bits_of(row[column + 1]) : 0;
    return low | high << 16;
}

// `count` rows of `width` columns from column `start` on, zero beyond k, by the whole block; where rows are whole pieces of eight, some are on their way at once.
__device__ __forceinline__ void load_rows(u8* to, u32 line_bytes, const X* x, const u32* x_rows, u32 count, u32 start, u32 width, u32 k) {
    const u32 AT_ONCE = 4;
    u32 pieces = width / 8, all = count * pieces;
    if (k % 8 != 0) {
        for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
            u32 column = start + i % pieces * 8;
            const X* row = x + u64(x_rows[i / pieces]) * k;
            u32 words[4];
            for (u32 j = 0; j < 4; j++) words[j] = two_columns(row, column + 2 * j, k);
            *(uint4*)(to + i / pieces * line_bytes + i % pieces * 16) = make_uint4(words[0], words[1], words[2], words[3]);
        }
        return;
    }
    for (u32 first = threadIdx.x; first < all; first += AT_ONCE * blockDim.x) {
        const X* from[AT_ONCE];
        u32 place[AT_ONCE];
        uint4 found[AT_ONCE];
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) {
            u32 i = min(first + j * blockDim.x, all - 1), row = i / pieces, piece = i - row * pieces, column = start + piece * 8;
            place[j] = row * line_bytes + piece * 16;
            from[j] = column < k ? x + u64(x_rows[row]) * k + column : 0;
        }
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) found[j] = from[j] ? eight_of(from[j]) : make_uint4(0, 0, 0, 0);
        // Those beyond the last are the last again.
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) *(uint4*)(to + place[j]) = found[j];
    }
}

struct Sums {
    float sum[GROUPS][4];

    // One stage of rows from x_at on, whose first column is there.
#if KIND == 2
    __device__ __forceinline__ void accumulate(const u8* codes, u32 x_at, u32 line_bytes, u32 count, u32 lane) {
        unpack_run<W, 2>(codes, lane, [&](const u32 (&b)[2][2][2], u32 slab, u32 half) {
#pragma unroll
            for (u32 group = 0; group < GROUPS; group++)
                if (GROUPS == 1 || group * 8 < count) {
                    u32 x[4];
                    load_matrices(x, x_at + slab * 128 + half * 64 + (group * 8 + lane % 8) * line_bytes + lane / 8 * 16);
                    mma_of_pair(sum[group], b[0], x[0], x[1]);
                    mma_of_pair(sum[group], b[1], x[2], x[3]);
                }
        });
    }
#else
    __device__ __forceinline__ void accumulate(const u8* tile, u32 x_at, u32 line_bytes, u32 count, u32 lane) {
        const u32* words = (const u32*)tile + lane;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 a[2][4];
#pragma unroll
            for (u32 step = 0; step < 2; step++) {
                const u32* cores = words + (half * 2 + step) * 64;
                a[step][0] = cores[0], a[step][1] = cores[256], a[step][2] = cores[32], a[step][3] = cores[288];
            }
#pragma unroll
            for (u32 group = 0; group < GROUPS; group++)
                if (GROUPS == 1 || group * 8 < count) {
                    u32 x[4];
                    load_matrices(x, x_at + half * 64 + (group * 8 + lane % 8) * line_bytes + lane / 8 * 16);
                    mma<E>(sum[group], a[0], x[0], x[1]);
                    mma<E>(sum[group], a[1], x[2], x[3]);
                }
        }
    }
#endif
};

extern "C" __global__ void __launch_bounds__(128, ROWS == 8 ? 6 : 4)
    expert_linear(Y* y, const X* x, const u8* weight, const float* bias, const u32* order, const u32* x_rows, const u32* item_starts, const uint4* items,
                  u32 experts, u32 n, u32 k, u32 stride, u32 chunk, u32 lists_are_there) {
    extern __shared__ __align__(16) u8 shared[];
    if (!lists_are_there) wait_for_earlier_kernels();
    // Both on their way at once; there are as many items as blocks across.
    u32 count_of_items = item_starts[experts];
    uint4 item = items[blockIdx.y];
    if (blockIdx.y >= count_of_items) return;
    u32 warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32, shares = round_up(n, 16) / 16, share = blockIdx.x * warps + warp;
    u32 columns = round_up(k, RUN), runs = share < shares ? columns / RUN : 0, line_bytes = chunk * 2 + 16;
    u8 *ring = shared + warp * STAGES * SHARE, *rows = shared + warps * STAGES * SHARE;
    u32 ring_at = shared_address(ring), rows_at = shared_address(rows);
    const u8* from = weight + (u64(item.x) * shares + share) * (columns / RUN) * SHARE;
    for (u32 row0 = 0; row0 < item.z; row0 += ROWS) {
        u32 count = min(item.z - row0, u32(ROWS));
        Sums sums = {};
        for (u32 run = 0; run < STAGES - 1; run++) {
            if (run < runs) fetch(ring_at + run * SHARE, from + u64(run) * SHARE, lane);
            fetch_commit();
        }
        if (row0 == 0) {
            if (lists_are_there) wait_for_earlier_kernels();
            let_next_kernel_start();
        }
        for (u32 start = 0, run = 0; start < columns; start += chunk) {
            u32 width = min(columns - start, chunk);
            __syncthreads();
            load_rows(rows, line_bytes, x, x_rows + item.y + row0, count, start, width, k);
            __syncthreads();
            for (; run < runs && run * RUN < start + width; run++) {
                fetch_wait<STAGES - 2>();
                __syncwarp();
                sums.accumulate(ring + run % STAGES * SHARE, rows_at + (run * RUN - start) * 2, line_bytes, count, lane);
                __syncwarp();
                u32 next = run + STAGES - 1;
                if (next < runs) fetch(ring_at + next % STAGES * SHARE, from + u64(next) * SHARE, lane);
                fetch_commit();
            }
        }
        if (share < shares)
            store_outputs(sums.sum, Listed{{y, stride}, order + item.y + row0}, bias ? bias + u64(item.x) * n : 0, share, count, n, lane);
    }
}

#endif
