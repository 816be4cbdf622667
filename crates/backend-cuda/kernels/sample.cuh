// What a draw reads: a job's parameters, the scores that they leave of a row, and the functions by which all draws are the same token:
// exponential, logarithm, noise and masses as `gannet_ops::math` and `gannet_ops::sampling` define them, bit for bit.
//
// Multiplications beside additions are spelled `__fmul_rn`, so that no compiler joins them.
#pragma once
#include "formats.cuh"

// Tokens that share one maximum, and those of a partition of the vocabulary.
const u32 GROUP = 64;
const u32 PARTITION = 4096;
const u32 LANES = 16;

// In place of a token: a score of the row is not finite; no token may be drawn.
const u32 NOT_FINITE = 0xffffffffu;
const u32 NONE_ALLOWED = 0xfffffffeu;

// What a job asks of its row.
const u32 LIKELIEST = 0, DRAWN = 1, SCORED = 2, LOGPROBS = 3;

// Of a token's count: seen, and how often generated, as 1 + times; 0 where it was never seen.
struct Job {
    u32 kind, row;
    float temperature, top_p, min_p;
    u32 top_k;
    u64 seed;
    // Bits of the tokens that may be drawn, or 0.
    const u32* mask;
    // For each token its count, and behind them a bit for each that was seen; or 0.
    u32* counts;
    // Changed tokens, ascending, each with what is added, or minus infinity where it is banned.
    const u32* changes;
    u32 mask_words, change_count;
    float repetition, presence, frequency;
    // The given token of SCORED, and how many of the likeliest LOGPROBS wants.
    u32 token, top;
    // Which of the request's answers, and the index that the token will have.
    u32 choice, index, padding;
};

__device__ __forceinline__ float infinity() {
    return __int_as_float(0x7f800000);
}

// Ascending as floats are, zeros by their sign; 0 is less than that of any finite number.
__device__ __forceinline__ u32 ordered(float x) {
    u32 bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float unordered(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// More likely is larger, and of equals the lower id.
__device__ __forceinline__ u64 key_of(float score, u32 id) {
    return u64(ordered(score)) << 32 | (0xffffffffu - id);
}
__device__ __forceinline__ u32 id_of(u64 key) {
    return 0xffffffffu - u32(key);
}

__device__ __forceinline__ float power_of_two(int n) {
    return __uint_as_float(u32(n + 127) << 23);
}

// exp(x), as `gannet_ops::math::exp`.
__device__ __forceinline__ float exponential(float x) {
    const float rounder = 12582912.0f;
    float shifted = fmaf(x, 1.44269504088896341f, rounder);
    float n = shifted - rounder;
    float r = fmaf(n, 2.1219444e-4f, fmaf(n, -0.6933594f, x));
    float p = 1.9875691e-4f;
    p = fmaf(p, r, 1.3982e-3f);
    p = fmaf(p, r, 8.333452e-3f);
    p = fmaf(p, r, 4.1665796e-2f);
    p = fmaf(p, r, 1.6666665e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    float y = fmaf(p, r, 1.0f);
    int whole = int(__float_as_uint(shifted) - __float_as_uint(rounder)), half = whole >> 1;
    float scaled = y * power_of_two(half) * power_of_two(whole - half);
    float bounded = x < -87.3f ? 0.0f : scaled;
    return x > 88.72283f ? infinity() : bounded;
}

// ln((1 + f) * 2^e).
__device__ __forceinline__ float ln_reduced(float f, float e) {
    float p = 7.0376836e-2f;
    p = fmaf(p, f, -1.151461e-1f);
    p = fmaf(p, f, 1.1676998e-1f);
    p = fmaf(p, f, -1.2420141e-1f);
    p = fmaf(p, f, 1.4249323e-1f);
    p = fmaf(p, f, -1.6668058e-1f);
    p = fmaf(p, f, 2.0000714e-1f);
    p = fmaf(p, f, -2.4999994e-1f);
    p = fmaf(p, f, 3.333333e-1f);
    float square = __fmul_rn(f, f);
    float tail = fmaf(e, -2.1219444e-4f, fmaf(__fmul_rn(square, f), p, __fmul_rn(-0.5f, square)));
    return fmaf(e, 0.6933594f, f + tail);
}

const u32 SQRT_HALF = 0x3f3504f3u;

// ln(x) of a normal positive number.
__device__ __forceinline__ float ln(float x) {
    u32 shifted = __float_as_uint(x) - SQRT_HALF;
    float m = __uint_as_float((shifted & 0x007fffffu) + SQRT_HALF);
    return ln_reduced(m - 1.0f, float(int(shifted) >> 23));
}

// ln(1 + f).
__device__ __forceinline__ float ln_1p(float f) {
    bool near_one = f > -0.29f && f < 0.41f;
    u32 shifted = __float_as_uint(near_one ? 1.0f : 1.0f + f) - SQRT_HALF;
    float m = __uint_as_float((shifted & 0x007fffffu) + SQRT_HALF);
    return ln_reduced(near_one ? f : m - 1.0f, float(int(shifted) >> 23));
}

__device__ __forceinline__ u64 mix(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// What seed, choice and index contribute to the noise of all tokens of a row.
__device__ __forceinline__ u64 row_noise(const Job& job) {
    return mix(mix(job.seed) + (u64(job.choice) << 32 | job.index));
}

// The Gumbel noise of a token, as `gannet_ops::sampling::noise`; minus infinity where it is sure not to be above `at_least`.
__device__ __forceinline__ float noise_above(u64 row, u32 token, float at_least) {
    u64 bits = mix(row + token);
    float half = __fmul_rn(__uint2float_rn(u32(bits >> 32)) + 0.5f, 1.0f / 8589934592.0f);
    bool is_upper = bits & 1;
    if (at_least > 0.0f) {
        int doublings = int(fminf(at_least * 1.44269504f, 64.0f));
        if (is_upper ? half * power_of_two(doublings) >= 1.0f : at_least > 0.37f) return -infinity();
    }
    float exponential = is_upper ? -ln_1p(-half) : -ln(half);
    return -ln(exponential);
}

// The mass of an exponential of at most 1: a whole number of 2^-32.
__device__ __forceinline__ u64 mass(float exponential) {
    return __float2ull_rn(__fmul_rn(exponential, 4294967296.0f));
}

// The place of the first change whose token is not below this.
__device__ __forceinline__ u32 change_from(const Job& job, u32 token) {
    u32 low = 0, high = job.change_count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (job.changes[2 * middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// What a job leaves of a token's score; minus infinity where it may not be drawn.
__device__ __forceinline__ float score_left(const Job& job, float score, u32 vocabulary, u32 token) {
    if (job.mask && (token / 32 >= job.mask_words || !(job.mask[token / 32] >> (token % 32) & 1))) return -infinity();
    bool is_changed = false;
    if (job.change_count) {
        u32 place = change_from(job, token);
        if (place < job.change_count && job.changes[2 * place] == token) {
            float added = __uint_as_float(job.changes[2 * place + 1]);
            if (added == -infinity()) return -infinity();
            score += added;
            is_changed = true;
        }
    }
    if (job.counts && job.counts[vocabulary + token / 32] >> (token % 32) & 1) {
        u32 generated = job.counts[token] - 1;
        score = score > 0.0f ? score / job.repetition : __fmul_rn(score, job.repetition);
        if (generated > 0) score = __fsub_rn(score, __fadd_rn(job.presence, __fmul_rn(__uint2float_rn(generated), job.frequency)));
        is_changed = true;
    }
    // A score that overflows is still that of a token that may be drawn; Rust's `clamp` leaves what is no number.
    if (is_changed) score = score < -3.40282347e38f ? -3.40282347e38f : score > 3.40282347e38f ? 3.40282347e38f : score;
    // Zeros are equal, whatever their sign.
    return score + 0.0f;
}

__device__ __forceinline__ float score_of(const Job& job, const float* scores, u32 vocabulary, u32 token) {
    return score_left(job, scores[token], vocabulary, token);
}

__device__ __forceinline__ u32 score_key(float score) {
    return score == -infinity() ? 0 : ordered(score);
}

// A draw from what is left: the key of score and noise.
__device__ __forceinline__ u64 noisy_key(u64 row, float divided, u32 token, float at_least) {
    float noise = noise_above(row, token, at_least - divided);
    return noise == -infinity() ? 0 : key_of(divided + noise, token);
}

__device__ __forceinline__ u64 larger(u64 a, u64 b) {
    return a > b ? a : b;
}

// What all threads of a block of THREADS have together, the same in each.
template <u32 THREADS> __device__ __forceinline__ u64 block_max(u64 x) {
    __shared__ u64 warps[THREADS / 32];
    for (u32 step = 16; step > 0; step /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    for (u32 warp = 0; warp < THREADS / 32; warp++) x = larger(x, warps[warp]);
    __syncthreads();
    return x;
}

template <u32 THREADS> __device__ __forceinline__ u64 block_sum(u64 x) {
    __shared__ u64 warps[THREADS / 32];
    for (u32 step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (u32 warp = 0; warp < THREADS / 32; warp++) x += warps[warp];
    __syncthreads();
    return x;
}
