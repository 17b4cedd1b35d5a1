// SPDX-License-Identifier: Apache-2.0
// Reductions of [OUTER][COUNT][INNER] to [OUTER][INNER]. Told: T, D, A, START, TAKE(x) (what an element
// counts as), MERGE(a, b), FINISH(a); SPLIT pieces of COUNT, whose results lie in `partial` when SPLIT > 1.
#define PIECE ((COUNT + SPLIT - 1) / SPLIT)

__device__ __forceinline__ A merge(A a, A b) { return MERGE(a, b); }

#if ROWS_KERNEL
// INNER is 1: a block of THREADS, or one warp of it, a row.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_reduce(const T *x, D *y, A *partial) {
    const i64 row = (i64)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    const int lane = threadIdx.x % GROUP, piece = blockIdx.y;
#if GROUP <= 32
    if (row >= OUTER) return;
#endif
    const i64 begin = (i64)piece * PIECE, end = begin + PIECE < COUNT ? begin + PIECE : COUNT;
    const T *from = x + row * COUNT;
    A value = START;
#pragma unroll 4
    for (i64 at = begin + lane * VEC; at < end; at += GROUP * VEC) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const A element = LOAD(in.v[e]);
            value = merge(value, TAKE(element));
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value = merge(value, __shfl_xor_sync(0xffffffffu, value, step));
#if GROUP > 32
    __shared__ A parts[THREADS / 32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int w = 1; w < THREADS / 32; w++)
        value = merge(value, parts[w]);
#endif
    if (lane) return;
#if SPLIT > 1
    partial[(i64)piece * OUTER + row] = value;
#else
    y[row] = store<D>::of(FINISH(value));
#endif
}
#else
// A thread a vector of columns.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_reduce(const T *x, D *y, A *partial) {
    const i64 column = ((i64)blockIdx.x * THREADS + threadIdx.x) * VEC;
    const int piece = blockIdx.y;
    if (column >= (i64)OUTER * INNER) return;
    const T *from = x + column / INNER * ((i64)COUNT * INNER) + column % INNER;
    const i64 begin = (i64)piece * PIECE, end = begin + PIECE < COUNT ? begin + PIECE : COUNT;
    A value[VEC];
#pragma unroll
    for (int e = 0; e < VEC; e++)
        value[e] = START;
#pragma unroll 4
    for (i64 i = begin; i < end; i++) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + i * INNER);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const A element = LOAD(in.v[e]);
            value[e] = merge(value[e], TAKE(element));
        }
    }
#pragma unroll
    for (int e = 0; e < VEC; e++) {
#if SPLIT > 1
        partial[(i64)piece * ((i64)OUTER * INNER) + column + e] = value[e];
#else
        y[column + e] = store<D>::of(FINISH(value[e]));
#endif
    }
}
#endif

#if SPLIT > 1
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_reduce_finish(const A *partial, D *y) {
    const i64 at = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= (i64)OUTER * INNER) return;
    A value = START;
    for (int piece = 0; piece < SPLIT; piece++)
        value = merge(value, partial[(i64)piece * ((i64)OUTER * INNER) + at]);
    y[at] = store<D>::of(FINISH(value));
}
#endif
