// SPDX-License-Identifier: Apache-2.0
// Gather along one axis: OUTER x INDICES pieces of INNER units from an axis of AXIS entries. An index
// outside writes zeros and raises the device's fault flag.

extern "C" __global__ void __launch_bounds__(256) hn_k_gather(const U *x, const I *index, U *y, volatile u32 *fault HN_PARAMS) {
    const span i = (span)blockIdx.x * 256 + threadIdx.x;
    if (i >= (span)OUTER * INDICES * INNER) return;
    const span piece = i / INNER, unit = i % INNER;
    i64 at = index[piece % INDICES];
    if (at < 0) at += AXIS;
    if (at < 0 || at >= AXIS) {
        *fault = 1;
        y[i] = U{};
        return;
    }
    y[i] = x[((i64)(piece / INDICES) * AXIS + at) * INNER + unit];
}
