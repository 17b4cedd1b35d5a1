// SPDX-License-Identifier: Apache-2.0
// GatherElements (an index an element) and GatherND (DEPTH indices a piece of INNER units). Told: U, I,
// COUNT outputs; for elements PLACE, which makes the offset of all dims but the axis from i, AXIS and
// STEP of it; for pieces DIM(k) and STRIDE(k) of the indexed dims, ROWS_A_BATCH rows, BATCH_STEP units.
// An index outside writes zeros and raises the device's fault flag.

extern "C" __global__ void __launch_bounds__(256) hn_k_gather_elements(const U *x, const I *index, U *y, volatile u32 *fault) {
    const i64 number = (i64)blockIdx.x * 256 + threadIdx.x;
    if (number >= COUNT) return;
#if BY_ELEMENT
    i64 offset = 0, i = number, at = index[number];
    PLACE
    if (at < 0) at += AXIS;
    bool good = at >= 0 && at < AXIS;
    offset += at * STEP;
#else
    const i64 row = number / INNER;
    i64 offset = row / ROWS_A_BATCH * BATCH_STEP + number % INNER;
    bool good = true;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        i64 at = index[row * DEPTH + k];
        if (at < 0) at += DIM(k);
        good = good && at >= 0 && at < DIM(k);
        offset += at * STRIDE(k);
    }
#endif
    if (!good) *fault = 1;
    y[number] = good ? x[offset] : U{};
}
