// The greedy token of each row: the lowest id of the largest score; 0xffffffff where any score of the row is not finite.
//
// logits f32 [rows][vocabulary], tokens u32 [rows]. Grid: rows; block 1024. The largest is the same in any order, so the
// order follows the threads. Bound: the bytes of the scores.
#include "formats.cuh"

const u32 GREEDY_THREADS = 1024;

struct Best {
    float score;
    u32 id;
    bool finite;
};

__device__ __forceinline__ Best better(Best a, Best b) {
    bool second = b.score > a.score || (b.score == a.score && b.id < a.id);
    return Best{second ? b.score : a.score, second ? b.id : a.id, a.finite && b.finite};
}

__device__ __forceinline__ Best fold_best(Best best) {
    for (u32 step = 16; step > 0; step /= 2) {
        Best other = {__shfl_xor_sync(0xffffffffu, best.score, step), __shfl_xor_sync(0xffffffffu, best.id, step),
                      bool(__shfl_xor_sync(0xffffffffu, int(best.finite), step))};
        best = better(best, other);
    }
    return best;
}

extern "C" __global__ void __launch_bounds__(GREEDY_THREADS)
    argmax(u32* __restrict__ tokens, const float* logits, u32 rows, u32 vocabulary) {
    __shared__ Best warps[GREEDY_THREADS / 32];
    join_chain();
    logits += u64(blockIdx.x) * vocabulary;
    Best best = {-__int_as_float(0x7f800000), 0xffffffffu, true};
    for (u32 id = threadIdx.x; id < vocabulary; id += GREEDY_THREADS) {
        float score = logits[id];
        best.finite &= fabsf(score) < __int_as_float(0x7f800000);
        if (score > best.score) best.score = score, best.id = id;
    }
    best = fold_best(best);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
        best = fold_best(warps[threadIdx.x]);
        if (threadIdx.x == 0) tokens[blockIdx.x] = best.finite ? best.id : 0xffffffffu;
    }
}
