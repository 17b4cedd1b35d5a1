// SPDX-License-Identifier: Apache-2.0
// Reductions of [OUTER][COUNT][INNER] to [OUTER][INNER]. Told: T, D, A; TAKE: what an element counts as (0
// itself, 1 its square, 2 its magnitude); MERGE: 0 sum, 1 highest, 2 lowest, 3 product; FINISH: 0 nothing, 1
// mean, 2 square root, 3 logarithm; SPLIT pieces of COUNT, whose results lie in `partial` when SPLIT > 1.
#define PIECE ((COUNT + SPLIT - 1) / SPLIT)

template <class N> struct ends { static constexpr __device__ N low() { return -(N)HN_INF; } static constexpr __device__ N high() { return (N)HN_INF; } };
template <> struct ends<i64> { static __device__ i64 low() { return -0x7fffffffffffffffll - 1; } static __device__ i64 high() { return 0x7fffffffffffffffll; } };
template <> struct ends<u64> { static __device__ u64 low() { return 0; } static __device__ u64 high() { return 0xffffffffffffffffull; } };
__device__ __forceinline__ float finish_of(float a, int how) { return how == 2 ? sqrtf(a) : how == 3 ? logf(a) : a; }
__device__ __forceinline__ double finish_of(double a, int how) { return how == 2 ? sqrt(a) : how == 3 ? log(a) : a; }
template <class N> __device__ __forceinline__ N finish_of(N a, int) { return a; }

#define START (MERGE == 1 ? ends<A>::low() : MERGE == 2 ? ends<A>::high() : (A)(MERGE == 3))
__device__ __forceinline__ A take(A x HN_TAKES) { return TAKE == 1 ? x * x : TAKE == 2 && x < 0 ? (A)-x : x; }
__device__ __forceinline__ A merge(A a, A b HN_TAKES) {
    if (MERGE == 0) return a + b;
    if (MERGE == 3) return a * b;
    return (MERGE == 1 ? a > b : a < b) || a != a ? a : b;
}
__device__ __forceinline__ D finish(A a HN_TAKES) { return store<D>::of(FINISH == 1 ? a / (A)COUNT : finish_of(a, FINISH)); }

#if ROWS_KERNEL
// INNER is 1: a block of THREADS, or one warp of it, a row.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_reduce(const T *x, D *y, A *partial HN_PARAMS) {
    const span row = (span)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    const int lane = threadIdx.x % GROUP, piece = blockIdx.y;
#if GROUP <= 32
    if (row >= OUTER) return;
#endif
    const span begin = (span)piece * PIECE, end = begin + PIECE < COUNT ? begin + PIECE : COUNT;
    const T *from = x + (i64)row * COUNT;
    A value = START;
    HN_LOOP4
    for (span at = begin + lane * VEC; at < end; at += GROUP * VEC) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            value = merge(value, take(computed<A>::of(in.v[e]) HN_GIVES) HN_GIVES);
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value = merge(value, __shfl_xor_sync(0xffffffffu, value, step) HN_GIVES);
#if GROUP > 32
    __shared__ A parts[THREADS / 32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int w = 1; w < THREADS / 32; w++)
        value = merge(value, parts[w] HN_GIVES);
#endif
    if (lane) return;
    if (SPLIT > 1) partial[(i64)piece * OUTER + row] = value;
    else y[row] = finish(value HN_GIVES);
}
#else
// A thread a vector of columns.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_reduce(const T *x, D *y, A *partial HN_PARAMS) {
    const span column = ((span)blockIdx.x * THREADS + threadIdx.x) * VEC;
    const int piece = blockIdx.y;
    if (column >= (span)OUTER * INNER) return;
    const T *from = x + (i64)(column / INNER) * ((i64)COUNT * INNER) + column % INNER;
    const span begin = (span)piece * PIECE, end = begin + PIECE < COUNT ? begin + PIECE : COUNT;
    A value[VEC];
#pragma unroll
    for (int e = 0; e < VEC; e++)
        value[e] = START;
    HN_LOOP4
    for (span i = begin; i < end; i++) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + (i64)i * INNER);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            value[e] = merge(value[e], take(computed<A>::of(in.v[e]) HN_GIVES) HN_GIVES);
        }
    }
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        if (SPLIT > 1) partial[(i64)piece * ((i64)OUTER * INNER) + column + e] = value[e];
        else y[column + e] = finish(value[e] HN_GIVES);
    }
}
#endif

#if HN_GENERIC
#define IN_PIECES 1
#elif SPLIT > 1
#define IN_PIECES 1
#endif
#ifdef IN_PIECES
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_reduce_finish(const A *partial, D *y HN_PARAMS) {
    const span at = (span)blockIdx.x * THREADS + threadIdx.x;
    if (at >= (span)OUTER * INNER) return;
    A value = START;
    for (int piece = 0; piece < SPLIT; piece++)
        value = merge(value, partial[(i64)piece * ((i64)OUTER * INNER) + at] HN_GIVES);
    y[at] = finish(value HN_GIVES);
}
#endif
