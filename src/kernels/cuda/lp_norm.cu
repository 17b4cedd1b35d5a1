// SPDX-License-Identifier: Apache-2.0
// Lines of COUNT elements, INNER apart, divided by the sum of their sizes (P 1) or the root of their squares'
// sum (P 2); a line of zeros stays one. A block a line.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_lp_norm(const T *x, D *y) {
    const i64 line = (i64)blockIdx.x, base = line / INNER * (COUNT * INNER) + line % INNER;
    A sum = 0;
    for (i64 i = threadIdx.x; i < COUNT; i += THREADS) {
        const A v = convert(x[base + i * INNER]);
        sum += P == 1 ? fabs(v) : v * v;
    }
    sum = group_reduce<sum_of>(sum);
    const A norm = P == 1 ? sum : sqrt(sum);
    for (i64 i = threadIdx.x; i < COUNT; i += THREADS)
        y[base + i * INNER] = store<D>::of(norm == 0 ? (A)0 : convert(x[base + i * INNER]) / norm);
}
