// y = x / sqrt(mean(x^2) + epsilon) * weight, over a row.
//
// x f32 [rows][width], weight f32 [width], y Y [rows][width]. Grid: rows; block 256. Bound: the bytes of x and y.
#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    rms_norm(Y* y, const float* x, const float* weight, u32 rows, u32 width, float epsilon) {
    NormedRow row;
    row.load_weight(weight, width, threadIdx.x);
    join_chain();
    x += u64(blockIdx.x) * width;
    float squares = fold_block(row.load(x, nullptr, width, threadIdx.x));
    row.store(nullptr, y + u64(blockIdx.x) * width, x, nullptr, weight, 1.0f / sqrtf(squares / float(width) + epsilon), width, width, threadIdx.x);
}
