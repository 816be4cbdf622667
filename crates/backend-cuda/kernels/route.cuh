// The choice of a row's experts by a warp, and the lists of the rows of each expert; what they are is said in `route_experts.cu`.
#pragma once
#include "math.cuh"

__device__ __forceinline__ u32 most_of_warp(u32 x) {
    u32 y;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
__device__ __forceinline__ u32 least_of_warp(u32 x) {
    u32 y;
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}

const u32 CHOSEN = 0x80000000;

// Of a lane's experts that aren't chosen yet, the most likely one: its likelihood as an ordered number, 0 where there is none, and its id.
__device__ __forceinline__ void find_best(const u32* likely, u32 experts, u32 lane, u32& key, u32& id) {
    key = 0, id = 0;
    for (u32 expert = lane; expert < experts; expert += 32) {
        u32 found = likely[expert] & CHOSEN ? 0 : likely[expert] + 1;
        if (found > key) key = found, id = expert;
    }
}

// Likelihoods as bits, which are ordered as the numbers are, what is no number above all.
__device__ __forceinline__ void find_likely(u32* likely, const float* logits, u32 experts, u32 lane) {
    float most = __uint_as_float(0xff800000), sum = 0.0f;
    for (u32 expert = lane; expert < experts; expert += 32) most = fmaxf(most, logits[expert]);
    for (u32 step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    for (u32 expert = lane; expert < experts; expert += 32) {
        float weight = expf(logits[expert] - most);
        likely[expert] = __float_as_uint(weight);
        sum += weight;
    }
    sum = fold_warp(sum);
    for (u32 expert = lane; expert < experts; expert += 32)
        likely[expert] = __float_as_uint(__uint_as_float(likely[expert]) / sum) & ~CHOSEN;
}

__device__ __forceinline__ void route(u32* ids, float* weights, const float* logits, u32* likely, u32 experts, u32 k, u32 renormalise, u32 lane) {
    find_likely(likely, logits, experts, lane);
    u32 key, id;
    find_best(likely, experts, lane, key, id);
    for (u32 pick = 0; pick < k; pick++) {
        u32 winner = least_of_warp(key == most_of_warp(key) ? id : 0xffffffff);
        if (winner % 32 == lane) {
            likely[winner] |= CHOSEN;
            find_best(likely, experts, lane, key, id);
        }
    }
    __syncwarp();
    float sum = 0.0f;
    for (u32 expert = lane; expert < round_up(experts, 32); expert += 32) {
        u32 bits = expert < experts ? likely[expert] : 0;
        for (u32 left = __ballot_sync(0xffffffffu, bits & CHOSEN); left; left &= left - 1)
            sum += __uint_as_float(__shfl_sync(0xffffffffu, bits, __ffs(left) - 1) & ~CHOSEN);
    }
    float whole = renormalise ? sum : 1.0f;
    for (u32 expert = lane, place = 0; expert < round_up(experts, 32); expert += 32) {
        u32 bits = expert < experts ? likely[expert] : 0, chosen = __ballot_sync(0xffffffffu, bits & CHOSEN);
        u32 at = place + __popc(chosen & ((1u << lane) - 1));
        if (bits & CHOSEN) ids[at] = expert, weights[at] = __uint_as_float(bits & ~CHOSEN) / whole;
        place += __popc(chosen);
    }
    __syncwarp();
}

// The exclusive sum of a warp's numbers, from `before` on, which then is the sum of all.
__device__ __forceinline__ u32 place_in_warp(u32 count, u32& before, u32 lane) {
    u32 sum = count;
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    u32 place = before + sum - count;
    before += __shfl_sync(0xffffffffu, sum, 31);
    return place;
}

// Sorts routed rows by their experts, by one block. shared: counts, next places and first items of experts.
__device__ __forceinline__ void group(u32* order, u32* tokens, u32* item_starts, uint4* items, const u32* ids, u32* shared, u32 count, u32 experts, u32 k, u32 tile) {
    u32 *counts = shared, *next = shared + experts, *first_items = next + experts, lane = threadIdx.x % 32;
    for (u32 expert = threadIdx.x; expert < experts; expert += blockDim.x) counts[expert] = 0;
    __syncthreads();
    for (u32 row = threadIdx.x; row < count; row += blockDim.x) atomicAdd(counts + ids[row], 1u);
    __syncthreads();
    if (threadIdx.x < 32) {
        u32 rows_before = 0, items_before = 0;
        for (u32 expert = lane; expert < round_up(experts, 32); expert += 32) {
            u32 rows = expert < experts ? counts[expert] : 0;
            u32 place = place_in_warp(rows, rows_before, lane), item = place_in_warp((rows + tile - 1) / tile, items_before, lane);
            if (expert < experts) next[expert] = place, first_items[expert] = item, item_starts[expert] = item;
        }
        if (lane == 0) item_starts[experts] = items_before;
    }
    __syncthreads();
    for (u32 expert = threadIdx.x; expert < experts; expert += blockDim.x)
        for (u32 first = 0, item = first_items[expert]; first < counts[expert]; first += tile, item++)
            items[item] = make_uint4(expert, next[expert] + first, min(tile, counts[expert] - first), 0);
    __syncthreads();
    for (u32 row = threadIdx.x; row < count; row += blockDim.x) {
        u32 place = atomicAdd(next + ids[row], 1u);
        order[place] = row, tokens[place] = row / k;
    }
}

// The lists of a step's only row, by the warp that chose.
__device__ __forceinline__ void group_one(u32* order, u32* tokens, u32* item_starts, uint4* items, const u32* likely, u32 experts, u32 lane) {
    u32 place = 0;
    for (u32 expert = lane; expert < round_up(experts, 32); expert += 32) {
        bool is_chosen = expert < experts && likely[expert] & CHOSEN;
        u32 chosen = __ballot_sync(0xffffffffu, is_chosen), at = place + __popc(chosen & ((1u << lane) - 1));
        if (expert < experts) item_starts[expert] = at;
        if (is_chosen) order[at] = at, tokens[at] = 0, items[at] = make_uint4(expert, at, 1, 0);
        place += __popc(chosen);
    }
    if (lane == 0) item_starts[experts] = place;
}
