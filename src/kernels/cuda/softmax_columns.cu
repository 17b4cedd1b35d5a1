// SPDX-License-Identifier: Apache-2.0
// Softmax and LogSoftmax along a dim with INNER elements between neighbours: one thread a column,
// neighbours in memory are neighbours in the warp.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_softmax_columns(const T *x, D *y) {
    const i64 column = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (column >= (i64)OUTER * INNER) return;
    const i64 base = column / INNER * ((i64)COUNT * INNER) + column % INNER;
    A top = -(A)HN_INF, sum = 0;
    for (int i = 0; i < COUNT; i++)
        top = max_of::merge(top, convert(x[base + (i64)i * INNER]));
    for (int i = 0; i < COUNT; i++)
        sum += exp(convert(x[base + (i64)i * INNER]) - top);
    const A scale = LOGARITHM ? log(sum) : 1 / sum;
    for (int i = 0; i < COUNT; i++) {
        const A shifted = convert(x[base + (i64)i * INNER]) - top;
        y[base + (i64)i * INNER] = store<D>::of(LOGARITHM ? shifted - scale : exp(shifted) * scale);
    }
}
