// y = x / sqrt(mean(x^2) + epsilon) * weight, over a row.
//
// x f32 [rows][width], weight f32 [width], y Y [rows][width]. Grid: rows; block 256. Thread t sums the squares of columns
// t, t + 256, ...; then `fold_block`. Bound: the bytes of x and y; the second reading of x is from the cache.
#include "math.cuh"

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    rms_norm(Y* y, const float* x, const float* weight, u32 rows, u32 width, float epsilon) {
    wait_for_earlier_kernels();
    x += u64(blockIdx.x) * width;
    y += u64(blockIdx.x) * width;
    float sum = 0.0f;
    for (u32 column = threadIdx.x; column < width; column += ROW_THREADS) sum = fmaf(x[column], x[column], sum);
    float factor = 1.0f / sqrtf(fold_block(sum) / float(width) + epsilon);
    for (u32 column = threadIdx.x; column < width; column += ROW_THREADS)
        write(y[column], x[column] * factor * weight[column]);
}
