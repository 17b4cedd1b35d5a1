// SPDX-License-Identifier: Apache-2.0
// Layer, RMS, instance and group normalisation of rows that lie together. Told besides: RMS, EPSILON,
// S (stored scale and bias), AT(row, i): index of scale and bias, HAS_SCALE, HAS_BIAS, STATS: mean and
// inverse deviation are wanted.
extern "C" __global__ void __launch_bounds__(THREADS)
    hn_k_norm(const T *x, const S *scale, const S *bias, D *y, STAT *means, STAT *inverses) {
    const i64 row = (i64)blockIdx.x * ROWS_A_BLOCK + threadIdx.x / GROUP;
    const int lane = threadIdx.x % GROUP;
#if GROUP <= 32
    if (row >= OUTER) return;
#endif
    const T *from = x + row * COUNT;
    D *to = y + row * COUNT;
    A sum = 0, squares = 0;
#if REGISTERS
    A v[ITERATIONS][VEC];
#pragma unroll
    for (int i = 0; i < ITERATIONS; i++) {
        const int at = i * CHUNK + lane * VEC;
        if (at < COUNT) {
            const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                v[i][e] = convert(in.v[e]);
                sum += v[i][e];
            }
        }
    }
#define EACH(DO)                                                                                   \
    _Pragma("unroll") for (int i = 0; i < ITERATIONS; i++) {                                       \
        const int at = i * CHUNK + lane * VEC;                                                     \
        if (at < COUNT) {                                                                          \
            _Pragma("unroll") for (int e = 0; e < VEC; e++) {                                      \
                const A value = v[i][e];                                                           \
                DO;                                                                                \
            }                                                                                      \
        }                                                                                          \
    }
#else
#define EACH(DO)                                                                                   \
    for (int at = lane * VEC; at < COUNT; at += CHUNK) {                                           \
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);                                  \
        _Pragma("unroll") for (int e = 0; e < VEC; e++) {                                          \
            const A value = convert(in.v[e]);                                                      \
            DO;                                                                                    \
        }                                                                                          \
    }
    EACH(sum += value)
#endif
#if RMS
    const A mean = 0;
    EACH(squares += value * value)
#else
    const A mean = group_reduce<sum_of>(sum) / (A)COUNT;
    EACH(const A apart = value - mean; squares += apart * apart)
#endif
    const A inverse = 1 / sqrt(group_reduce<sum_of>(squares) / (A)COUNT + (A)EPSILON);
#if STATS
    if (lane == 0) {
        if (means) means[row] = store<STAT>::of(mean);
        if (inverses) inverses[row] = store<STAT>::of(inverse);
    }
#endif
#if REGISTERS
#pragma unroll
    for (int i = 0; i < ITERATIONS; i++) {
        const int at = i * CHUNK + lane * VEC;
        if (at >= COUNT) continue;
#else
    for (int at = lane * VEC; at < COUNT; at += CHUNK) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
#endif
        vec<D, VEC> out;
#if SCALE_IS_ROW // scale and bias follow the row's elements: vectors
#if HAS_SCALE
        const vec<S, VEC> s = *(const vec<S, VEC> *)(scale + at);
#endif
#if HAS_BIAS
        const vec<S, VEC> b = *(const vec<S, VEC> *)(bias + at);
#endif
#define SCALE_AT(e) s.v[e]
#define BIAS_AT(e) b.v[e]
#else
#define SCALE_AT(e) scale[AT(row, at + e)]
#define BIAS_AT(e) bias[AT(row, at + e)]
#endif
#pragma unroll
        for (int e = 0; e < VEC; e++) {
#if REGISTERS
            A value = (v[i][e] - mean) * inverse;
#else
            A value = (convert(in.v[e]) - mean) * inverse;
#endif
#if HAS_SCALE
            value *= load_param(SCALE_AT(e));
#endif
#if HAS_BIAS
            value += load_param(BIAS_AT(e));
#endif
            out.v[e] = store<D>::of(value);
        }
        *(vec<D, VEC> *)(to + at) = out;
    }
}
