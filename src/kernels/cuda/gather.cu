// SPDX-License-Identifier: Apache-2.0
// Gather along one axis: OUTER x INDICES pieces of INNER units from an axis of AXIS entries. An index
// outside writes zeros and raises the device's fault flag.
struct alignas(16) u128 { u32 part[4]; };

extern "C" __global__ void __launch_bounds__(256) hn_k_gather(const U *x, const I *index, U *y, volatile u32 *fault) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= (i64)OUTER * INDICES * INNER) return;
    const i64 piece = i / INNER, unit = i % INNER;
    i64 at = index[piece % INDICES];
    if (at < 0) at += AXIS;
    if (at < 0 || at >= AXIS) {
        *fault = 1;
        y[i] = U{};
        return;
    }
    y[i] = x[(piece / INDICES * AXIS + at) * INNER + unit];
}
