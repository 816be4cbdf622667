// For each value head with the state S: S *= exp(g); S += k (sigmoid(b) (v - S^T k))^T; y = S^T q; row after row of each sequence.
//
// q, k f32 [rows][key_heads * key_dim], v, y f32 [rows][value_heads * value_dim], g, b f32 [rows][value_heads]; matrices f32
// [value_heads][value_dim][key_dim] in each unit: a column of S is contiguous; runs [sequences], row_unit u32 [rows]: the unit that
// takes the state after the row, or NO_UNIT. `grouped`: value head j reads key head j / (value_heads / key_heads), else j % key_heads.
//
// A column stays in the registers of 8 lanes for all rows of the sequence: lane l has the elements l, l + 8, ..., PART of them. A sum
// over a column has four partial sums a lane, by place modulo 4, folded in pairs, then lanes by halves, so a row's bits depend on
// the state before it and on its own inputs. Rows pass through shared memory 16 at a time. Grid: (sequences, value_heads *
// ceil(value_dim / 16)); block 128. Bound: bytes of the state for a row, the chain of sums for many.
#include "recurrent.cuh"

const u32 LANES = 8;
const u32 COLUMNS = 16;
const u32 STAGED = 16;
const u32 KEY_ROOM = LANES * PART;

struct Staged {
    float k[STAGED][KEY_ROOM], q[STAGED][KEY_ROOM], v[STAGED][COLUMNS];
    float decay[STAGED], strength[STAGED];
    u32 unit[STAGED];
};

// The sum over a column's lanes, the same in each.
__device__ __forceinline__ float fold_lanes(float x) {
    for (u32 step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// sum of a[i] * b[i * LANES]
__device__ __forceinline__ float dot(const float (&a)[PART], const float* b) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (u32 i = 0; i < PART; i++) sums[i % 4] = fmaf(a[i], b[i * LANES], sums[i % 4]);
    return fold_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

extern "C" __global__ void __launch_bounds__(128) gated_delta_rule(float* __restrict__ y, const float* q, const float* k, const float* v, const float* g,
                                                                   const float* b, float* matrices, const Run* runs, const u32* row_unit,
                                                                   u64 unit_elements, u32 key_heads, u32 value_heads, u32 key_dim, u32 value_dim,
                                                                   u32 grouped) {
    __shared__ Staged staged;
    join_chain();
    Run run = runs[blockIdx.x];
    if (run.count == 0) return;
    u32 groups = (value_dim + COLUMNS - 1) / COLUMNS;
    u32 head = blockIdx.y / groups, first_column = blockIdx.y % groups * COLUMNS;
    u32 key_head = grouped ? head / (value_heads / key_heads) : head % key_heads;
    u32 lane = threadIdx.x % LANES, own = threadIdx.x / LANES, column = first_column + own;
    bool is_there = column < value_dim;
    u64 place = (u64(head) * value_dim + column) * key_dim;

    float state[PART];
    const float* before = run.unit == NO_UNIT ? 0 : unit_at(matrices, run.unit, unit_elements) + place;
#pragma unroll
    for (u32 i = 0; i < PART; i++) {
        u32 element = i * LANES + lane;
        state[i] = before && is_there && element < key_dim ? before[element] : 0.0f;
    }
    for (u32 start = 0; start < run.count; start += STAGED) {
        u32 count = min(STAGED, run.count - start);
        u64 first = run.first + start;
        __syncthreads();
        for (u32 i = threadIdx.x; i < count * KEY_ROOM; i += blockDim.x) {
            u32 row = i / KEY_ROOM, element = i % KEY_ROOM;
            u64 from = ((first + row) * key_heads + key_head) * key_dim + element;
            staged.k[row][element] = element < key_dim ? k[from] : 0.0f;
            staged.q[row][element] = element < key_dim ? q[from] : 0.0f;
        }
        for (u32 i = threadIdx.x; i < count * COLUMNS; i += blockDim.x) {
            u32 row = i / COLUMNS, at = first_column + i % COLUMNS;
            staged.v[row][i % COLUMNS] = at < value_dim ? v[((first + row) * value_heads + head) * value_dim + at] : 0.0f;
        }
        if (threadIdx.x < count) {
            u64 gate = (first + threadIdx.x) * value_heads + head;
            staged.decay[threadIdx.x] = expf(g[gate]);
            staged.strength[threadIdx.x] = sigmoid(b[gate]);
            staged.unit[threadIdx.x] = row_unit[first + threadIdx.x];
        }
        __syncthreads();
        for (u32 row = 0; row < count; row++) {
            const float *key = &staged.k[row][lane], *query = &staged.q[row][lane];
            float decay = staged.decay[row];
#pragma unroll
            for (u32 i = 0; i < PART; i++) state[i] = __fmul_rn(state[i], decay);
            float correction = __fmul_rn(staged.strength[row], staged.v[row][own] - dot(state, key));
#pragma unroll
            for (u32 i = 0; i < PART; i++) state[i] = fmaf(key[i * LANES], correction, state[i]);
            float read = dot(state, query);
            if (lane == 0 && is_there) y[((first + row) * value_heads + head) * value_dim + column] = read;
            u32 unit = staged.unit[row];
            if (unit != NO_UNIT && is_there) {
                float* after = unit_at(matrices, unit, unit_elements) + place;
#pragma unroll
                for (u32 i = 0; i < PART; i++)
                    if (i * LANES + lane < key_dim) after[i * LANES + lane] = state[i];
            }
        }
    }
}
