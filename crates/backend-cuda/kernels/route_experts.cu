// Who computes a token: softmax over all experts, the k most likely ones (ties to the lower id) by ascending id, their weights, divided by their sum where
// asked; and the token's rows in the order of their experts, as products read them.
//
// logits f32 [rows][experts]; ids u32 and weights f32 [rows][k]: routed row r of token r / k. Of the routed rows, sorted by expert: order u32 [rows * k] their
// numbers, tokens u32 [rows * k] those of their tokens. items uint4 [..]: expert, first place in `order`, count (at most `tile`), 0, by ascending expert;
// item_starts u32 [experts + 1]: the first item of each expert, then the number of all. Which of an expert's rows comes first is left to chance: each is
// computed for itself.
//
// `route_experts`: a warp a row. Grid: any; of one block, which then sorts too; else `group_experts` follows, one block. Dynamic shared memory: 4 bytes an
// expert and warp, at least 12 an expert; `group_experts` 12 an expert. Bound: the time of a launch.
//
// Sums: 32 partial sums by expert modulo 32, folded by halves; the chosen weights by ascending id.
#include "route.cuh"

extern "C" __global__ void __launch_bounds__(1024)
    route_experts(u32* ids, float* weights, const float* logits, u32* order, u32* tokens, u32* item_starts, uint4* items, u32 rows, u32 experts, u32 k,
                  u32 renormalise, u32 tile) {
    extern __shared__ u32 shared[];
    join_chain();
    u32 warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 row = blockIdx.x * warps + warp; row < rows; row += gridDim.x * warps)
        route(ids + u64(row) * k, weights + u64(row) * k, logits + u64(row) * experts, shared + warp * experts, experts, k, renormalise, lane);
    if (gridDim.x > 1) return;
    __syncthreads();
    group(order, tokens, item_starts, items, ids, shared, rows * k, experts, k, tile);
}

extern "C" __global__ void __launch_bounds__(1024)
    group_experts(u32* order, u32* tokens, u32* item_starts, uint4* items, const u32* ids, u32 rows, u32 experts, u32 k, u32 tile) {
    extern __shared__ u32 shared[];
    join_chain();
    group(order, tokens, item_starts, items, ids, shared, rows * k, experts, k, tile);
}
