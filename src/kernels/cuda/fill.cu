// SPDX-License-Identifier: Apache-2.0
// COUNT elements of type U set to one value.
extern "C" __global__ void __launch_bounds__(256) hn_k_fill(U *to, u64 value HN_PARAMS) {
    const span i = (span)blockIdx.x * 256 + threadIdx.x;
    if (i < COUNT) to[i] = (U)value;
}
