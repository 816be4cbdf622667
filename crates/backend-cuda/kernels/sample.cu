// Draws of tokens from rows of scores f32 [rows][vocabulary], in three kernels after the forward pass, and the ways of tokens between steps.
//
//   argmax_parts    the largest score of each partition of 4,096 tokens, and
//   argmax          the likeliest token of each row, or NOT_FINITE: part of every step
//   sample_maxima   the largest score that a job leaves of each group of 64 tokens
//   sample_parts    of each partition of 4,096 tokens what needs the whole row: the noisiest token, the mass, or the sum of exponentials
//   sample_tokens   the token of each job, or its likeliest tokens
//   take_tokens     ids of a step's rows that an earlier step drew
//   count_tokens    counts of a sequence's tokens, from a list
//
// A job (sample.cuh) is one row's draw by one request's parameters, or its log-probabilities. What the filters keep is chosen by keys of
// score and id: the k-th largest key, and the least key down to which masses, whole numbers whose sums have no order, reach top-p. The
// largest of groups rule out all but few tokens, which are listed in shared memory; where they don't fit, all tokens are looked at
// instead. So a token is the same whatever the grid. Bound: the bytes of the scores, read once in sample_maxima and once in sample_parts.
#include "sample.cuh"

const u32 THREADS = 256;
const u32 WARPS = THREADS / 32;
// Tokens that are listed, and of the likeliest ones that log-probabilities are told of, at most.
const u32 LIST = 4096;
const u32 TOP = 256;
// Groups whose largest scores say how low top-p looks first, and how many more then.
const u32 TOP_P_FIRST = 256;
const u32 TOP_P_GROWTH = 8;

__device__ __forceinline__ u32 groups_of(u32 vocabulary) {
    return (vocabulary + GROUP - 1) / GROUP;
}
__device__ __forceinline__ u32 partitions_of(u32 vocabulary) {
    return (vocabulary + PARTITION - 1) / PARTITION;
}

// What a partition with a score that is not finite has in place of a key: more than any.
const u64 NO_KEY = ~0ull;

// parts u64 [rows][partitions]: the largest key of each. Grid: (partitions, rows); block 256.
extern "C" __global__ void __launch_bounds__(THREADS) argmax_parts(u64* __restrict__ parts, const float* logits, u32 rows, u32 vocabulary) {
    const u32 OWN = PARTITION / THREADS;
    join_chain();
    const float* scores = logits + u64(blockIdx.y) * vocabulary;
    u32 first = blockIdx.x * PARTITION + threadIdx.x;
    float own[OWN];
#pragma unroll
    for (u32 i = 0; i < OWN; i++) own[i] = first + i * THREADS < vocabulary ? scores[first + i * THREADS] : -infinity();
    u64 best = 0;
#pragma unroll
    for (u32 i = 0; i < OWN; i++) {
        u32 id = first + i * THREADS;
        // Zeros are equal, whatever their sign.
        if (id < vocabulary) best = larger(best, fabsf(own[i]) < infinity() ? key_of(own[i] + 0.0f, id) : NO_KEY);
    }
    best = block_max<THREADS>(best);
    if (threadIdx.x == 0) parts[u64(blockIdx.y) * gridDim.x + blockIdx.x] = best;
}

// tokens u32 [rows]: the likeliest token of each row, or NOT_FINITE. Grid: rows; block 256.
extern "C" __global__ void __launch_bounds__(THREADS) argmax(u32* __restrict__ tokens, const u64* parts, u32 rows, u32 partitions) {
    join_chain();
    u64 best = 0;
    for (u32 part = threadIdx.x; part < partitions; part += THREADS) best = larger(best, parts[u64(blockIdx.x) * partitions + part]);
    best = block_max<THREADS>(best);
    if (threadIdx.x == 0) tokens[blockIdx.x] = best == NO_KEY ? NOT_FINITE : id_of(best);
}

// maxima u32 [jobs][groups]: keys of scores, 0 where none may be drawn. Grid: (partitions, jobs); block 256.
extern "C" __global__ void __launch_bounds__(THREADS)
    sample_maxima(u32* __restrict__ maxima, const Job* jobs, const u32* tokens, const float* logits, u32 vocabulary) {
    join_chain();
    Job job = jobs[blockIdx.y];
    if (job.kind == SCORED || tokens[job.row] == NOT_FINITE) return;
    const float* scores = logits + u64(job.row) * vocabulary;
    maxima += u64(blockIdx.y) * groups_of(vocabulary);
    const u32 OWN = PARTITION / GROUP / WARPS;
    u32 lane = threadIdx.x % 32, first = blockIdx.x * (PARTITION / GROUP) + threadIdx.x / 32 * OWN;
    // All loads go before the first use.
    float own[OWN][2];
#pragma unroll
    for (u32 i = 0; i < OWN * 2; i++) {
        u32 token = first * GROUP + i * 32 + lane;
        own[i / 2][i % 2] = token < vocabulary ? scores[token] : 0.0f;
    }
#pragma unroll
    for (u32 i = 0; i < OWN; i++) {
        u32 key = 0;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 token = (first + i) * GROUP + half * 32 + lane;
            if (token < vocabulary) key = max(key, score_key(score_left(job, own[i][half], vocabulary, token)));
        }
        key = __reduce_max_sync(0xffffffffu, key);
        if (lane == 0 && (first + i) * GROUP < vocabulary) maxima[first + i] = key;
    }
}

// The key of the largest score of a job, the same in all threads.
__device__ __forceinline__ u32 largest_of(const u32* maxima, u32 groups) {
    u64 largest = 0;
    for (u32 group = threadIdx.x; group < groups; group += THREADS) largest = larger(largest, maxima[group]);
    return u32(block_max<THREADS>(largest));
}

// Whether top-p asks for the mass of the whole row, and whether no filter but min-p is there.
__device__ __forceinline__ bool weighs_all(const Job& job) {
    return job.kind == DRAWN && job.top_k == 0 && job.top_p < 1.0f;
}
__device__ __forceinline__ bool draws_from_all(const Job& job) {
    return job.kind == DRAWN && job.top_k == 0 && job.top_p >= 1.0f;
}

// The exponentials of a partition, each by its own score, summed in the order of `gannet_ops::numerics`.
__device__ __forceinline__ float exponentials(const float* scores, u32 first, u32 end, float max) {
    __shared__ float listed[PARTITION];
    for (u32 token = first + threadIdx.x; token < end; token += THREADS) listed[token - first] = exponential(scores[token] - max);
    __syncthreads();
    float sum = 0.0f;
    if (threadIdx.x < 32) {
        u32 lane = threadIdx.x % LANES;
        for (u32 place = lane; place < end - first; place += LANES) sum += listed[place];
        for (u32 half = LANES / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    }
    return sum;
}

// parts u64 [jobs][partitions]. Grid: (partitions, jobs); block 256.
extern "C" __global__ void __launch_bounds__(THREADS) sample_parts(u64* __restrict__ parts, const Job* jobs, const u32* tokens, const float* logits,
                                                                   const u32* maxima, u32 vocabulary) {
    join_chain();
    Job job = jobs[blockIdx.y];
    bool is_weighed = weighs_all(job);
    if (tokens[job.row] == NOT_FINITE || !(is_weighed || draws_from_all(job) || job.kind == LOGPROBS)) return;
    const float* scores = logits + u64(job.row) * vocabulary;
    u32 largest = largest_of(maxima + u64(blockIdx.y) * groups_of(vocabulary), groups_of(vocabulary));
    u32 first = blockIdx.x * PARTITION, end = min(vocabulary, first + PARTITION);
    u64 part = 0;
    if (job.kind == LOGPROBS) {
        part = __float_as_uint(exponentials(scores, first, end, unordered(largest)));
    } else if (largest != 0) {
        float max = unordered(largest) / job.temperature, best = -infinity();
        u64 noise = row_noise(job);
        for (u32 start = first; start < end; start += THREADS) {
            u32 token = start + threadIdx.x;
            float score = token < end ? score_of(job, scores, vocabulary, token) : -infinity();
            float divided = score / job.temperature;
            bool may_be = score > -infinity();
            if (is_weighed) {
                if (may_be) part += mass(exponential(divided - max));
                continue;
            }
            if (may_be && job.min_p > 0.0f) may_be = exponential(divided - max) >= job.min_p;
            if (may_be) part = larger(part, noisy_key(noise, divided, token, best));
            // What the warp has found rules out most of the rest.
            u32 found = __reduce_max_sync(0xffffffffu, u32(part >> 32));
            if (found != 0) best = unordered(found);
        }
        part = is_weighed ? block_sum<THREADS>(part) : block_max<THREADS>(part);
    }
    if (threadIdx.x == 0) parts[u64(blockIdx.y) * partitions_of(vocabulary) + blockIdx.x] = part;
}

// Tokens among which a job chooses: those that are listed, or all of the row.
struct Few {
    const Job* job;
    const float* scores;
    u32 vocabulary;
    const u64* listed;
    u32 count;

    // The key of an item, by the scores as they are; 0 where it may not be drawn.
    __device__ __forceinline__ u64 operator[](u32 place) const {
        if (listed) return listed[place];
        float score = score_of(*job, scores, vocabulary, place);
        return score > -infinity() ? key_of(score, place) : 0;
    }

    // The same by what is left of the score after its division.
    __device__ __forceinline__ u64 divided(u64 key) const {
        return key_of(unordered(u32(key >> 32)) / job->temperature, id_of(key));
    }
};

// Of so few keys each has a rank.
const u32 RANKED = 2 * THREADS;

// Room for one choice at a time.
struct Choosing {
    u64 keys[RANKED], weights[RANKED], above[WARPS], left;
    u32 low[THREADS], high[THREADS], digit;
};
__device__ __forceinline__ Choosing& choosing() {
    __shared__ Choosing room;
    return room;
}

template <class Key, class Weight> __device__ __forceinline__ u64 least_by_rank(u32 count, u64 needed, Key key_at, Weight weight_of) {
    Choosing& room = choosing();
    for (u32 place = threadIdx.x; place < count; place += THREADS) room.keys[place] = key_at(place), room.weights[place] = weight_of(room.keys[place]);
    __syncthreads();
    u64 found = 0;
    for (u32 place = threadIdx.x; place < count; place += THREADS) {
        u64 own = room.keys[place], reached = 0;
        for (u32 other = 0; other < count; other++) reached += room.keys[other] >= own ? room.weights[other] : 0;
        if (reached >= needed) found = larger(found, own);
    }
    return block_max<THREADS>(found);
}

// Adds the weights of a warp's lanes to those of their digits; lanes with the digit of the first of them, most of all where scores are flat, together.
__device__ __forceinline__ void add_weights(Choosing& room, u32 digit, u64 weight) {
    u32 lanes = __ballot_sync(0xffffffffu, weight != 0);
    if (lanes == 0) return;
    u32 lane = threadIdx.x % 32, first = __ffs(lanes) - 1;
    bool is_alike = digit == __shfl_sync(0xffffffffu, digit, first);
    u64 alike = is_alike ? weight : 0;
    u64 together = (u64(__reduce_add_sync(0xffffffffu, u32(alike >> 16))) << 16) + __reduce_add_sync(0xffffffffu, u32(alike) & 0xffffu);
    if (is_alike) weight = lane == first ? together : 0;
    if (weight == 0) return;
    u32 low = u32(weight), before = atomicAdd(&room.low[digit], low), carried = u32(weight >> 32) + (before + low < low);
    if (carried) atomicAdd(&room.high[digit], carried);
}

// Keys that a thread brings before it looks at the first.
const u32 AHEAD = 8;

// Digit by digit, of 8 bits, among the keys with the digits found so far; 1 where all weights together don't reach.
template <class Key, class Weight>
__device__ __forceinline__ u64 least_by_digits(u32 count, u64 needed, u32 bits_of_ids, Key key_at, Weight weight_of) {
    Choosing& room = choosing();
    u64 found = 0;
    for (u32 position = 64; position > 0;) {
        // All keys have the upper bits of their ids.
        if (position == 32) found |= 0xffffffffull & ~((1ull << bits_of_ids) - 1), position = bits_of_ids;
        if (position == 0) break;
        u64 known = position < 64 ? ~0ull << position : 0;
        u32 width = min(8u, position);
        position -= width;
        room.low[threadIdx.x] = room.high[threadIdx.x] = 0;
        if (threadIdx.x == 0) room.digit = THREADS;
        __syncthreads();
        for (u32 start = 0; start < count; start += THREADS * AHEAD) {
            u64 keys[AHEAD];
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                u32 place = start + i * THREADS + threadIdx.x;
                keys[i] = place < count ? key_at(place) : 0;
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                bool is_left = keys[i] != 0 && (keys[i] & known) == (found & known);
                add_weights(room, u32(keys[i] >> position) & ((1u << width) - 1), is_left ? weight_of(keys[i]) : 0);
            }
        }
        __syncthreads();
        // Each thread has a digit: its weights, and those from it on.
        u64 own = (u64(room.high[threadIdx.x]) << 32) + room.low[threadIdx.x], reached = own;
        for (u32 step = 1; step < 32; step *= 2) {
            u64 after = __shfl_down_sync(0xffffffffu, reached, step);
            if (threadIdx.x % 32 + step < 32) reached += after;
        }
        if (threadIdx.x % 32 == 0) room.above[threadIdx.x / 32] = reached;
        __syncthreads();
        for (u32 warp = threadIdx.x / 32 + 1; warp < WARPS; warp++) reached += room.above[warp];
        if (reached >= needed && reached - own < needed) room.digit = threadIdx.x, room.left = needed - (reached - own);
        __syncthreads();
        if (room.digit == THREADS) return 1;
        found |= u64(room.digit) << position;
        needed = room.left;
        __syncthreads();
    }
    return found;
}

// The largest key down to which the weights, of at most 2^32 each, reach `needed`; at most 1 where all together don't, and more than any where no weight is
// needed. `key_at` gives the key of a place, 0 for none, `weight_of` the weight of a key that is one.
template <class Key, class Weight>
__device__ __forceinline__ u64 least_key(u32 count, u64 needed, u32 bits_of_ids, Key key_at, Weight weight_of) {
    if (needed == 0) return ~0ull;
    return count <= RANKED ? least_by_rank(count, needed, key_at, weight_of) : least_by_digits(count, needed, bits_of_ids, key_at, weight_of);
}

// Groups whose maxima a thread keeps, where the vocabulary has no more, and the bits of a key that rule out most groups.
const u32 HELD = 16, COARSE_BITS = 20;

// A score's key, rounded down, such that `count` groups have one at least as large; 1 where there are fewer groups.
__device__ __forceinline__ u32 least_of_groups(const u32* maxima, u32 groups, u32 count) {
    if (count >= groups) return 1;
    __shared__ u32 counts[2][WARPS];
    u32 held[HELD], found = 0;
    bool holds_all = groups <= HELD * THREADS;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) held[i] = holds_all && threadIdx.x + i * THREADS < groups ? maxima[threadIdx.x + i * THREADS] : 0;
    for (int bit = 31; bit >= 32 - int(COARSE_BITS); bit--) {
        u32 tried = found | 1u << bit, more = 0;
#pragma unroll
        for (u32 i = 0; i < HELD; i++) more += held[i] >= tried;
        if (!holds_all)
            for (u32 group = threadIdx.x; group < groups; group += THREADS) more += maxima[group] >= tried;
        more = __reduce_add_sync(0xffffffffu, more);
        if (threadIdx.x % 32 == 0) counts[bit % 2][threadIdx.x / 32] = more;
        __syncthreads();
        more = 0;
        for (u32 warp = 0; warp < WARPS; warp++) more += counts[bit % 2][warp];
        if (more >= count) found = tried;
    }
    // Before anybody comes back to the counts.
    __syncthreads();
    return max(found, 1u);
}

// Lists the tokens with at least this score; says how many there are, which may be more than fit.
__device__ __forceinline__ u32 list_from(u32 least, const u32* maxima, const Few& all, u64* listed) {
    __shared__ u32 count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    u32 lane = threadIdx.x % 32, groups = groups_of(all.vocabulary);
    for (u32 start = threadIdx.x / 32 * 32; start < groups; start += THREADS) {
        u32 found = __ballot_sync(0xffffffffu, start + lane < groups && maxima[start + lane] >= least);
        for (; found; found &= found - 1) {
            u32 first = (start + __ffs(found) - 1) * GROUP;
            for (u32 half = 0; half < GROUP; half += 32) {
                u32 token = first + half + lane;
                u64 key = token < all.vocabulary ? all[token] : 0;
                u32 kept = __ballot_sync(0xffffffffu, u32(key >> 32) >= least), place = 0;
                if (lane == 0 && kept) place = atomicAdd(&count, u32(__popc(kept)));
                place = __shfl_sync(0xffffffffu, place, 0) + __popc(kept & ((1u << lane) - 1));
                if (u32(key >> 32) >= least && place < LIST) listed[place] = key;
            }
        }
    }
    __syncthreads();
    u32 found = count;
    __syncthreads();
    return found;
}

// The tokens of the `groups` likeliest groups and all that are as likely: a list where they fit, the whole row elsewhere.
__device__ __forceinline__ Few likeliest(u32 wanted, const u32* maxima, const Few& all, u64* listed) {
    u32 least = least_of_groups(maxima, groups_of(all.vocabulary), wanted);
    u32 count = least > 1 ? list_from(least, maxima, all, listed) : LIST + 1;
    if (count > LIST) return all;
    return Few{all.job, all.scores, all.vocabulary, listed, count};
}

// The least key, of divided scores, that top-p keeps of the keys from `least` on; 0 where `total` can't be reached among these.
__device__ __forceinline__ u64 top_p_key(const Few& few, u64 least, float max, u64 total, u32 bits_of_ids) {
    double share = __dmul_rn(double(few.job->top_p), double(total));
    u64 needed = u64(ceil(share));
    auto key_at = [&](u32 place) {
        u64 whole = few[place];
        return whole >= least && whole != 0 ? few.divided(whole) : 0;
    };
    auto weight_of = [&](u64 key) { return key == 0 ? 0 : mass(exponential(unordered(u32(key >> 32)) - max)); };
    return least_key(few.count, needed, bits_of_ids, key_at, weight_of);
}

// The mass of the keys from `least` on.
__device__ __forceinline__ u64 mass_of(const Few& few, u64 least, float max) {
    u64 sum = 0;
    for (u32 place = threadIdx.x; place < few.count; place += THREADS) {
        u64 key = few[place];
        if (key != 0 && key >= least) sum += mass(exponential(unordered(u32(key >> 32)) / few.job->temperature - max));
    }
    return block_sum<THREADS>(sum);
}

// The token that top-k, top-p and min-p leave and noise chooses.
__device__ __forceinline__ u32 narrowed(const Few& all, const u32* maxima, const u64* parts, u64* listed) {
    const Job& job = *all.job;
    u32 largest = largest_of(maxima, groups_of(all.vocabulary)), bits_of_ids = 32 - __clz(all.vocabulary - 1);
    if (largest == 0) return NONE_ALLOWED;
    float max = unordered(largest) / job.temperature;
    u32 wanted = job.top_k ? job.top_k : TOP_P_FIRST;
    Few few = likeliest(wanted, maxima, all, listed);
    u64 least = 0, total = 0;
    if (job.top_k) {
        auto once = [](u64 key) { return u64(key != 0); };
        least = least_key(few.count, job.top_k, bits_of_ids, [&](u32 place) { return few[place]; }, once);
        if (job.top_p < 1.0f) total = mass_of(few, least, max);
    } else {
        for (u32 part = 0; part < partitions_of(all.vocabulary); part++) total += parts[part];
        double needed = __dmul_rn(double(job.top_p), double(total));
        while (few.listed && double(mass_of(few, 0, max)) < needed) few = likeliest(wanted *= TOP_P_GROWTH, maxima, all, listed);
    }
    u64 least_divided = job.top_p < 1.0f ? top_p_key(few, least, max, total, bits_of_ids) : 0, best = 0, noise = row_noise(job);
    float noisiest = -infinity();
    for (u32 start = 0; start < few.count; start += THREADS) {
        u64 key = start + threadIdx.x < few.count ? few[start + threadIdx.x] : 0, left = key ? few.divided(key) : 0;
        float divided = unordered(u32(left >> 32));
        bool is_kept = key != 0 && key >= least && left >= least_divided && !(job.min_p > 0.0f && exponential(divided - max) < job.min_p);
        if (is_kept) best = larger(best, noisy_key(noise, divided, id_of(key), noisiest));
        // What the warp has found rules out most of the rest.
        u32 found = __reduce_max_sync(0xffffffffu, u32(best >> 32));
        if (found != 0) noisiest = unordered(found);
    }
    best = block_max<THREADS>(best);
    return best == 0 ? NONE_ALLOWED : id_of(best);
}

// The token of the largest score, the lowest of equals.
__device__ __forceinline__ u32 largest_token(const Few& all, const u32* maxima) {
    u64 best = 0;
    for (u32 group = threadIdx.x; group < groups_of(all.vocabulary); group += THREADS)
        if (maxima[group]) best = larger(best, u64(maxima[group]) << 32 | (0xffffffffu - group));
    best = block_max<THREADS>(best);
    if (best == 0) return NONE_ALLOWED;
    u32 first = id_of(best) * GROUP;
    u64 key = threadIdx.x < GROUP && first + threadIdx.x < all.vocabulary ? all[first + threadIdx.x] : 0;
    return id_of(block_max<THREADS>(key));
}

// The likeliest tokens of a row with their scores, most likely first, and what their log-probabilities follow from.
__device__ __forceinline__ void tell_likeliest(u32* told, const Few& all, const u32* maxima, const u64* parts, u64* listed) {
    __shared__ u64 chosen[TOP];
    __shared__ u32 count;
    u32 wanted = min(all.job->top, all.vocabulary), largest = largest_of(maxima, groups_of(all.vocabulary));
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (u32 part = 0; part < partitions_of(all.vocabulary); part++) sum += __uint_as_float(u32(parts[part]));
        told[0] = __float_as_uint(unordered(largest)), told[1] = __float_as_uint(sum);
        count = 0;
    }
    if (wanted == 0) return;
    Few few = likeliest(wanted, maxima, all, listed);
    auto once = [](u64) { return 1ull; };
    u64 least = least_key(few.count, wanted, 32 - __clz(all.vocabulary - 1), [&](u32 place) { return few[place]; }, once);
    for (u32 place = threadIdx.x; place < few.count; place += THREADS) {
        u64 key = few[place];
        if (key >= least) chosen[atomicAdd(&count, 1u)] = key;
    }
    __syncthreads();
    for (u32 place = threadIdx.x; place < wanted; place += THREADS) {
        u32 rank = 0;
        for (u32 other = 0; other < wanted; other++) rank += chosen[other] > chosen[place];
        told[2 + 2 * rank] = id_of(chosen[place]);
        told[3 + 2 * rank] = u32(__float_as_uint(unordered(u32(chosen[place] >> 32))));
    }
}

// tokens u32 [rows]: that of each job's row. told u32 [jobs][told_words]: of LOGPROBS the largest score, the sum of exponentials, then tokens and
// scores; of other jobs the score of the token, as the model has it; 0 where nobody asks. Grid: jobs; block 256.
extern "C" __global__ void __launch_bounds__(THREADS) sample_tokens(u32* __restrict__ tokens, u32* told, const Job* jobs, const float* logits,
                                                                    const u32* maxima, const u64* parts, u32 vocabulary, u32 told_words) {
    __shared__ u64 listed[LIST];
    join_chain();
    Job job = jobs[blockIdx.x];
    u32 token = tokens[job.row];
    // Others write the token of the row, once all threads have seen it.
    __syncthreads();
    if (token == NOT_FINITE) return;
    const float* scores = logits + u64(job.row) * vocabulary;
    maxima += u64(blockIdx.x) * groups_of(vocabulary);
    parts += u64(blockIdx.x) * partitions_of(vocabulary);
    told += u64(blockIdx.x) * told_words;
    Few all = {&job, scores, vocabulary, 0, vocabulary};
    if (job.kind == LOGPROBS) return tell_likeliest(told, all, maxima, parts, listed);
    if (job.kind == SCORED) {
        token = job.token;
    } else if (job.kind == LIKELIEST) {
        token = largest_token(all, maxima);
    } else if (draws_from_all(job)) {
        u64 best = 0;
        for (u32 part = threadIdx.x; part < partitions_of(vocabulary); part += THREADS) best = larger(best, parts[part]);
        best = block_max<THREADS>(best);
        token = best == 0 ? NONE_ALLOWED : id_of(best);
    } else {
        token = narrowed(all, maxima, parts, listed);
    }
    if (threadIdx.x != 0) return;
    if (told_words && token < vocabulary) told[0] = __float_as_uint(scores[token]);
    if (job.kind == SCORED) return;
    tokens[job.row] = token;
    if (job.counts && token < vocabulary) {
        job.counts[token] = max(job.counts[token], 1u) + 1;
        job.counts[vocabulary + token / 32] |= 1u << (token % 32);
    }
}

// ids[row] = tokens[output] for pairs u32 [count][2] of row and output; 0 in place of what is no token, since nobody looks at what such a row
// makes. Grid: ceil(count / 256); block 256.
extern "C" __global__ void take_tokens(u32* __restrict__ ids, const u32* tokens, const u32* pairs, u32 count, u32 vocabulary) {
    join_chain();
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= count) return;
    u32 token = tokens[pairs[2 * place + 1]];
    ids[pairs[2 * place]] = token < vocabulary ? token : 0;
}

// Writes the counts of pairs u32 [count][2] of token and count, over zeros. Grid: ceil(count / 256); block 256.
extern "C" __global__ void count_tokens(u32* __restrict__ counts, const u32* pairs, u32 count, u32 vocabulary) {
    join_chain();
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= count) return;
    u32 token = pairs[2 * place];
    if (token >= vocabulary) return;
    counts[token] = pairs[2 * place + 1];
    atomicOr(&counts[vocabulary + token / 32], 1u << (token % 32));
}
