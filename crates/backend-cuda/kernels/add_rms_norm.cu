// sum = a + b; y = sum / sqrt(mean(sum^2) + epsilon) * weight, over a row. The same bits as `add` and then `rms_norm`.
//
// a, b, sum f32 [rows][width], weight f32 [width], y Y [rows][width]. Grid: rows; block 256. Bound: bytes.
#include "math.cuh"

// Columns of a thread that stay in registers; wider rows read the sum again.
const u32 KEPT = 16;

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    add_rms_norm(float* sum, Y* y, const float* a, const float* b, const float* weight, u32 rows, u32 width,
                 float epsilon) {
    wait_for_earlier_kernels();
    u64 start = u64(blockIdx.x) * width;
    a += start, b += start, sum += start, y += start;
    float kept[KEPT], squares = 0.0f;
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 column = threadIdx.x + i * ROW_THREADS;
        kept[i] = column < width ? a[column] + b[column] : 0.0f;
        if (column < width) sum[column] = kept[i];
    }
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) squares = fmaf(kept[i], kept[i], squares);
    for (u32 column = threadIdx.x + KEPT * ROW_THREADS; column < width; column += ROW_THREADS) {
        float x = a[column] + b[column];
        sum[column] = x;
        squares = fmaf(x, x, squares);
    }
    float factor = 1.0f / sqrtf(fold_block(squares) / float(width) + epsilon);
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 column = threadIdx.x + i * ROW_THREADS;
        if (column < width) write(y[column], kept[i] * factor * weight[column]);
    }
    for (u32 column = threadIdx.x + KEPT * ROW_THREADS; column < width; column += ROW_THREADS)
        write(y[column], sum[column] * factor * weight[column]);
}
