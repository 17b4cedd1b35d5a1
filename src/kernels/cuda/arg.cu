// SPDX-License-Identifier: Apache-2.0
// Where the first item of each line of COUNT elements lies: ArgMax and ArgMin write its place, Hardmax
// (ONE_HOT) a line with a 1 there. Lines that lie together: GROUP threads each; else a thread a line.
#if INNER == 1
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_arg(const T *x, D *y) {
    const i64 row = (i64)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    const int lane = threadIdx.x % GROUP;
#if GROUP <= 32
    if (row >= OUTER) return;
#endif
    const T *from = x + row * COUNT;
    item best = none();
    for (i64 at = lane; at < COUNT; at += GROUP) {
        const item now = item_of(from[at], (u32)at);
        if (before(now, best)) best = now;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const item now = other(best, step);
        if (before(now, best)) best = now;
    }
#if GROUP > 32
    __shared__ item parts[THREADS / 32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = best;
    __syncthreads();
    best = parts[0];
    for (int w = 1; w < THREADS / 32; w++)
        if (before(parts[w], best)) best = parts[w];
#endif
    const i64 place = place_of(best);
#if ONE_HOT
    for (i64 at = lane; at < COUNT; at += GROUP)
        y[row * COUNT + at] = store<D>::of(at == place ? 1.f : 0.f);
#else
    if (lane == 0) y[row] = place;
#endif
}
#else
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_arg(const T *x, D *y) {
    const i64 column = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (column >= OUTER * INNER) return;
    const i64 base = column / INNER * (COUNT * INNER) + column % INNER;
    item best = none();
    for (i64 at = 0; at < COUNT; at++) {
        const item now = item_of(x[base + at * INNER], (u32)at);
        if (before(now, best)) best = now;
    }
    const i64 place = place_of(best);
#if ONE_HOT
    for (i64 at = 0; at < COUNT; at++)
        y[base + at * INNER] = store<D>::of(at == place ? 1.f : 0.f);
#else
    y[column] = place;
#endif
}
#endif
