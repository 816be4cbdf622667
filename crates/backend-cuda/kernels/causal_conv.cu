// y[t, c] = silu(sum_j weight[c, j] * x[t - (taps - 1) + j, c]); inputs before a sequence's rows come from its window.
//
// x, y f32 [rows][channels], weight f32 [channels][taps]; windows f32 [taps - 1][channels] in each unit, oldest input first;
// runs [sequences], row_sequence u32 [rows], row_unit u32 [rows]: the unit that takes the window after the row, or NO_UNIT. No unit
// that is read is written in the same launch, but by the only row that reads it. The sum goes by ascending j. Grid: (rows,
// ceil(channels / 256)); block 256. Bound: bytes.
#include "recurrent.cuh"

extern "C" __global__ void causal_conv(float* __restrict__ y, const float* x, const float* weight, float* windows, const Run* runs,
                                       const u32* row_sequence, const u32* row_unit, u64 unit_elements, u32 rows, u32 channels, u32 taps) {
    join_chain();
    u32 row = blockIdx.x, channel = blockIdx.y * blockDim.x + threadIdx.x;
    Run run = runs[row_sequence[row]];
    u32 place = row - run.first;
    if (place >= run.count || channel >= channels) return;
    const float* window = run.unit == NO_UNIT ? 0 : unit_at(windows, run.unit, unit_elements);
    auto input = [&](u32 tap) {
        if (place + tap + 1 >= taps) return x[u64(row + tap + 1 - taps) * channels + channel];
        return window ? window[(place + tap) * channels + channel] : 0.0f;
    };
    float sum = 0.0f;
    for (u32 tap = 0; tap < taps; tap++) sum = fmaf(input(tap), weight[u64(channel) * taps + tap], sum);
    y[u64(row) * channels + channel] = silu(sum);
    u32 unit = row_unit[row];
    if (unit == NO_UNIT) return;
    float* after = unit_at(windows, unit, unit_elements);
    for (u32 tap = 0; tap + 1 < taps; tap++) after[tap * channels + channel] = input(tap + 1);
}
