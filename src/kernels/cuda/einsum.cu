// SPDX-License-Identifier: Apache-2.0
// Einsum of any equation, a thread an output: what the pass that makes products of it leaves. Told: T, A,
// LOAD, COUNT outputs, SUMMED terms of each, OFFSETS (declares o0 ... from output i), STEPS (adds to p0 ...
// from term s), TERM (the product at p0 ...).
extern "C" __global__ void __launch_bounds__(128) hn_k_einsum(T *y, const T *x0, const T *x1, const T *x2, const T *x3, const T *x4, const T *x5,
                                                              const T *x6, const T *x7, const T *x8, const T *x9, const T *x10, const T *x11,
                                                              const T *x12, const T *x13, const T *x14, const T *x15) {
    i64 i = (i64)blockIdx.x * 128 + threadIdx.x;
    if (i >= COUNT) return;
    const i64 number = i;
    OFFSETS
    A sum = 0;
    for (i64 term = 0; term < SUMMED; term++) {
        i64 s = term;
        STEPS
        sum += TERM;
    }
    y[number] = store<T>::of(sum);
}
