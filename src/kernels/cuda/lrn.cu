// SPDX-License-Identifier: Apache-2.0
// LRN: x divided by a power of the sum of squares of the channels around it. Told: T, A, LOAD, COUNT
// elements, CHANNELS, STEP between channels, BEFORE and AFTER, ALPHA (by the size), BETA, BIAS.
extern "C" __global__ void __launch_bounds__(256) hn_k_lrn(const T *x, T *y) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= COUNT) return;
    const i64 c = i / STEP % CHANNELS, first = c - BEFORE < 0 ? 0 : c - BEFORE, last = AFTER >= CHANNELS - c ? CHANNELS - 1 : c + AFTER;
    A sum = 0;
    for (i64 k = first; k <= last; k++) {
        const A v = LOAD(x[i + (k - c) * STEP]);
        sum += v * v;
    }
    y[i] = store<T>::of(LOAD(x[i]) / pow((A)BIAS + (A)ALPHA * sum, (A)BETA));
}
