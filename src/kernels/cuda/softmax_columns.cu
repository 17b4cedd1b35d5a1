// SPDX-License-Identifier: Apache-2.0
// Softmax and LogSoftmax along a dim with INNER elements between neighbours: one thread a column,
// neighbours in memory are neighbours in the warp.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_softmax_columns(const T *x, D *y HN_PARAMS) {
    const span column = (span)blockIdx.x * THREADS + threadIdx.x;
    if (column >= (span)OUTER * INNER) return;
    const span base = column / INNER * ((span)COUNT * INNER) + column % INNER;
    A top = -(A)HN_INF, sum = 0;
    for (int i = 0; i < COUNT; i++)
        top = max_of::merge(top, convert(x[base + (span)i * INNER]));
    for (int i = 0; i < COUNT; i++)
        sum += exp(convert(x[base + (span)i * INNER]) - top);
    const A scale = LOGARITHM ? log(sum) : 1 / sum;
    for (int i = 0; i < COUNT; i++) {
        const A shifted = convert(x[base + (span)i * INNER]) - top;
        y[base + (span)i * INNER] = store<D>::of(LOGARITHM ? shifted - scale : exp(shifted) * scale);
    }
}
