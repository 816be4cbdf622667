// y[p] = x[p] cos - x[p + pairs] sin;  y[p + pairs] = x[p + pairs] cos + x[p] sin, in each head; what lies beyond
// 2 * pairs passes. The angle is position[axis of the pair] * inverse frequency; cosine and sine times attention_scale.
//
// x, y f32 [rows][heads * head_dim]; positions u32 [rows][3]; inverse_frequencies f32 [pairs]; axes u32 [pairs]. Grid: rows; block
// 256: an angle is computed once a row and kept in shared memory (dynamic, pairs * 8 bytes). Bound: bytes.
#include "rope.cuh"

extern "C" __global__ void rope(float* __restrict__ y, const float* x, const u32* positions, const float* inverse_frequencies,
                                const u32* axes, u32 rows, u32 heads, u32 head_dim, u32 pairs, float attention_scale) {
    extern __shared__ float2 angles[]; // [pairs] cosine, sine
    join_chain();
    u32 row = blockIdx.x;
    for (u32 pair = threadIdx.x; pair < pairs; pair += blockDim.x)
        angles[pair] = rope_angle(positions[row * 3 + axes[pair]], inverse_frequencies[pair], attention_scale);
    __syncthreads();
    x += u64(row) * heads * head_dim;
    y += u64(row) * heads * head_dim;
    for (u32 i = threadIdx.x; i < heads * head_dim; i += blockDim.x) {
        u32 place = i % head_dim;
        if (place < pairs) {
            float2 turned = rotated(x[i], x[i + pairs], angles[place]);
            y[i] = turned.x;
            y[i + pairs] = turned.y;
        } else if (place >= 2 * pairs) {
            y[i] = x[i];
        }
    }
}
