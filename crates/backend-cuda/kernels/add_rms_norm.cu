// sum = a + b; y = sum / sqrt(mean(sum^2) + epsilon) * weight, over a row. The same bits as `add` and then `rms_norm`.
//
// a, b, sum f32 [rows][width], weight f32 [width], y Y [rows][width]. Grid: rows; block 256. Bound: bytes.
#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    add_rms_norm(float* sum, Y* y, const float* a, const float* b, const float* weight, u32 rows, u32 width, float epsilon) {
    NormedRow row;
    row.load_weight(weight, width, threadIdx.x);
    join_chain();
    u64 start = u64(blockIdx.x) * width;
    float squares = fold_block(row.load(a + start, b + start, width, threadIdx.x));
    row.store(sum + start, y + start, a + start, b + start, weight, 1.0f / sqrtf(squares / float(width) + epsilon), width, width, threadIdx.x);
}
