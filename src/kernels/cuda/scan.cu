// SPDX-License-Identifier: Apache-2.0
// Running sums and products of lines of COUNT elements, INNER apart: a block a line, piece by piece, or
// (BY_COLUMN) a thread a line. Told: T, A, LOAD, PRODUCT, EXCLUSIVE, REVERSE, OUTER. Whole numbers wrap.
#define NEUTRAL ((A)PRODUCT)
#define EACH 4
__device__ __forceinline__ A join(A a, A b) { return (A)(PRODUCT ? (U)a * (U)b : (U)a + (U)b); }
__device__ __forceinline__ i64 at_step(i64 i) { return (REVERSE ? COUNT - 1 - i : i) * INNER; }

#if BY_COLUMN
extern "C" __global__ void __launch_bounds__(128) hn_k_scan(const T *x, T *y) {
    const i64 column = (i64)blockIdx.x * 128 + threadIdx.x;
    if (column >= OUTER * INNER) return;
    const i64 base = column / INNER * (COUNT * INNER) + column % INNER;
    A sum = NEUTRAL;
    for (i64 i = 0; i < COUNT; i++) {
        const i64 at = base + at_step(i);
        const A next = join(sum, LOAD(x[at]));
        y[at] = store<T>::of(EXCLUSIVE ? sum : next);
        sum = next;
    }
}
#else
extern "C" __global__ void __launch_bounds__(256) hn_k_scan(const T *x, T *y) {
    __shared__ A parts[8];
    const i64 line = blockIdx.x, base = line / INNER * (COUNT * INNER) + line % INNER;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    A carry = NEUTRAL;
    for (i64 begin = 0; begin < COUNT; begin += 256 * EACH) {
        const i64 first = begin + threadIdx.x * EACH;
        A in[EACH], sum = NEUTRAL;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            in[e] = first + e < COUNT ? (A)LOAD(x[base + at_step(first + e)]) : NEUTRAL;
            sum = join(sum, in[e]);
        }
#pragma unroll
        for (int step = 1; step < 32; step *= 2) { // of the warp, up to this thread
            const A below = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum = join(below, sum);
        }
        A before = __shfl_up_sync(0xffffffffu, sum, 1);
        if (lane == 0) before = NEUTRAL;
        if (lane == 31) parts[warp] = sum;
        __syncthreads();
        A ahead = carry;
        for (int w = 0; w < 8; w++) {
            if (w == warp) before = join(ahead, before);
            ahead = join(ahead, parts[w]);
        }
        carry = ahead;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const A next = join(before, in[e]);
            if (first + e < COUNT) y[base + at_step(first + e)] = store<T>::of(EXCLUSIVE ? before : next);
            before = next;
        }
        __syncthreads(); // parts are written again
    }
}
#endif
