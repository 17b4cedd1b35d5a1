// SPDX-License-Identifier: Apache-2.0
// Layer, RMS, instance and group normalisation of rows that lie together. Told besides: RMS, EPSILON,
// S (stored scale and bias), SCALE_IS_ROW (they follow a row's elements), else AT_GROUPS, AT_STEP, AT_RUN: where
// they lie by row and element; HAS_SCALE, HAS_BIAS, STATS: mean and inverse deviation are wanted.
#define AT(row, i) ((row) % AT_GROUPS * AT_STEP + (i) / AT_RUN)
extern "C" __global__ void __launch_bounds__(THREADS)
    hn_k_norm(const T *x, const S *scale, const S *bias, D *y, STAT *means, STAT *inverses HN_PARAMS) {
    const span row = (span)blockIdx.x * ROWS_A_BLOCK + threadIdx.x / GROUP;
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
    HN_LOOP for (int at = lane * VEC; at < COUNT; at += CHUNK) {                                   \
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);                                  \
        _Pragma("unroll") for (int e = 0; e < VEC; e++) {                                          \
            const A value = convert(in.v[e]);                                                      \
            DO;                                                                                    \
        }                                                                                          \
    }
    EACH(sum += value)
#endif
    A mean = 0;
    if (RMS) {
        EACH(squares += value * value)
    } else {
        mean = group_reduce<sum_of>(sum) / (A)COUNT;
        EACH(const A apart = value - mean; squares += apart * apart)
    }
    const A inverse = 1 / sqrt(group_reduce<sum_of>(squares) / (A)COUNT + (A)EPSILON);
    if (STATS && lane == 0) {
        if (means) means[row] = store<STAT>::of(mean);
        if (inverses) inverses[row] = store<STAT>::of(inverse);
    }
#if REGISTERS
#pragma unroll
    for (int i = 0; i < ITERATIONS; i++) {
        const int at = i * CHUNK + lane * VEC;
        if (at >= COUNT) continue;
#else
    HN_LOOP
    for (int at = lane * VEC; at < COUNT; at += CHUNK) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
#endif
        vec<D, VEC> out;
        vec<S, VEC> s = {}, b = {}; // of rows whose elements scale and bias follow
        if (SCALE_IS_ROW && HAS_SCALE) s = *(const vec<S, VEC> *)(scale + at);
        if (SCALE_IS_ROW && HAS_BIAS) b = *(const vec<S, VEC> *)(bias + at);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
#if REGISTERS
            A value = (v[i][e] - mean) * inverse;
#else
            A value = (convert(in.v[e]) - mean) * inverse;
#endif
            if (HAS_SCALE) value *= computed<A>::of(SCALE_IS_ROW ? s.v[e] : scale[AT(row, at + e)]);
            if (HAS_BIAS) value += computed<A>::of(SCALE_IS_ROW ? b.v[e] : bias[AT(row, at + e)]);
            out.v[e] = store<D>::of(value);
        }
        *(vec<D, VEC> *)(to + at) = out;
    }
}
