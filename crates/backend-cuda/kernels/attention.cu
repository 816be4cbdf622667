// y = sum_j exp(s_j - max) v_j / (sum_j exp(s_j - max) + exp(sink - max)),   s_j = soft_cap(scale * q . k_j)
//
// The plain form, for every size and page format: a block a (row, head). Keys go in blocks of 64 by absolute index; a
// split of 256 keys has a running maximum of its own; splits are folded from left to right; the sink comes last. A
// split or block without a visible key is skipped.
//
// q f32 [rows][heads * key_dim]; pages as in `write_kv`; sinks f32 [heads] or 0; y Y [rows][heads * value_dim],
// value_dim at most 512. Row r sees the keys j <= index and, with a window, j > index - window (0xffffffff: none).
// With INT8 (`int8.cuh`) a row sees the keys of its own page in f16 and those of earlier pages, and all values, as codes times scales.
// Grid: (rows, heads); block 64; dynamic shared memory key_dim * 4 bytes. Bound: far from any; see `attention_split.cu`.
#include "math.cuh"
#if INT8
#include "int8.cuh"
#else
#define OPEN_PARAMETERS
#endif

const u32 KEYS = 64, SPLIT = 256, COLUMNS_KEPT = 8;
#define NONE __int_as_float(0xff800000)

// Sums and maxima over the block of 64.
__device__ __forceinline__ float fold_sum(float x) {
    __shared__ float halves[2];
    x = fold_warp(x);
    if (threadIdx.x % 32 == 0) halves[threadIdx.x / 32] = x;
    __syncthreads();
    x = halves[0] + halves[1];
    __syncthreads();
    return x;
}
__device__ __forceinline__ float fold_max(float x) {
    __shared__ float halves[2];
    for (u32 step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    if (threadIdx.x % 32 == 0) halves[threadIdx.x / 32] = x;
    __syncthreads();
    x = fmaxf(halves[0], halves[1]);
    __syncthreads();
    return x;
}

struct Sums {
    float max, sum, y[COLUMNS_KEPT];
    __device__ void clear() {
        max = NONE, sum = 0.0f;
        for (u32 i = 0; i < COLUMNS_KEPT; i++) y[i] = 0.0f;
    }
    __device__ void rescale(float factor) {
        sum *= factor;
        for (u32 i = 0; i < COLUMNS_KEPT; i++) y[i] *= factor;
    }
    // A maximum that rises from nothing scales zeros.
    __device__ void raise(float to) {
        rescale(max == NONE ? 0.0f : expf(max - to));
        max = to;
    }
    __device__ void fold(Sums& other) {
        if (other.max == NONE) return;
        float to = fmaxf(max, other.max);
        raise(to);
        other.raise(to);
        sum += other.sum;
        for (u32 i = 0; i < COLUMNS_KEPT; i++) y[i] += other.y[i];
    }
};

// Numbers as they lie, read by element.
template <class T> struct Plain {
    const T* numbers;
    __device__ __forceinline__ float operator[](u32 i) const {
        return read(numbers[i]);
    }
};

#if INT8
// A key: that of an open page for a row of the same page.
struct CodedKey {
    const K* open;
    const u8* codes;
    u32 slot, dim;
    bool is_own;
    __device__ __forceinline__ float operator[](u32 i) const {
        return is_own ? read(open[i]) : code_of(codes[slot * dim + i]) * read(((const f16*)(codes + 64 * dim))[i]);
    }
};
// The values of a page.
struct CodedValues {
    const u8* codes;
    u32 dim;
    __device__ __forceinline__ float operator[](u32 i) const {
        return code_of(codes[i]) * read(((const f16*)(codes + 64 * dim))[i / dim]);
    }
};
#endif

extern "C" __global__ void __launch_bounds__(64)
    attention(Y* y, const float* q, const u8* layer, const u32* row_sequence, const u32* row_index, const u32* pages,
              const int* table_base, const float* sinks, u32 rows, u32 heads, u32 kv_heads, u32 key_dim, u32 value_dim,
              u64 page_bytes, u64 value_offset, float scale, float soft_cap, u32 window OPEN_PARAMETERS) {
    extern __shared__ float query[];
    __shared__ float weights[KEYS];
    join_chain();
    u32 row = blockIdx.x, head = blockIdx.y, kv_head = head / (heads / kv_heads), thread = threadIdx.x;
    u32 index = row_index[row], first = window > index ? 0 : index + 1 - window;
    const u32* table = pages + table_base[row_sequence[row]];
    q += (u64(row) * heads + head) * key_dim;
    for (u32 i = thread; i < key_dim; i += KEYS) query[i] = q[i];
    __syncthreads();
    Sums total, split;
    total.clear(), split.clear();
    for (u32 block = first / KEYS; block <= index / KEYS; block++) {
        const u8* page = layer + table[block] * page_bytes;
#if INT8
        bool is_own = block == index / KEYS;
        const K* open = (const K*)OPEN_PAGES.page(pages, row_sequence[row], index / KEYS, kv_heads, 128 * key_dim);
        CodedKey key = {open + (u64(kv_head) * KEYS + thread) * key_dim, page + u64(kv_head) * key_bytes(key_dim), thread, key_dim, is_own};
        CodedValues value = {page + value_offset + u64(kv_head) * value_bytes(value_dim), value_dim};
#else
        Plain<K> key = {(const K*)page + (u64(kv_head) * KEYS + thread) * key_dim};
        Plain<V> value = {(const V*)(page + value_offset) + u64(kv_head) * KEYS * value_dim};
#endif
        float score = NONE;
        u32 place = block * KEYS + thread;
        if (place >= first && place <= index) {
            float product = 0.0f;
            for (u32 i = 0; i < key_dim; i++) product = fmaf(query[i], key[i], product);
            score = scale * product;
            if (soft_cap > 0.0f) score = soft_cap * tanhf(score / soft_cap);
        }
        // A score that is no number must not be lost with a maximum that never rises.
        split.raise(fmaxf(split.max, fold_max(score != score ? 0.0f : score)));
        float weight = score == NONE ? 0.0f : expf(score - split.max);
        weights[thread] = weight;
        split.sum += fold_sum(weight);
#pragma unroll
        for (u32 i = 0; i < COLUMNS_KEPT; i++)
            if (thread + i * KEYS < value_dim)
                // Keys that are not seen may hold anything, NaN too.
                for (u32 j = 0; j < KEYS; j++)
                    if (block * KEYS + j >= first && block * KEYS + j <= index)
                        split.y[i] = fmaf(weights[j], value[j * value_dim + thread + i * KEYS], split.y[i]);
        __syncthreads();
        if (block % (SPLIT / KEYS) == SPLIT / KEYS - 1 || block == index / KEYS) total.fold(split), split.clear();
    }
    if (sinks) {
        float to = fmaxf(total.max, sinks[head]);
        total.raise(to);
        total.sum += expf(sinks[head] - to);
    }
    y += (u64(row) * heads + head) * value_dim;
#pragma unroll
    for (u32 i = 0; i < COLUMNS_KEPT; i++)
        if (thread + i * KEYS < value_dim) write(y[thread + i * KEYS], total.y[i] / total.sum);
}
