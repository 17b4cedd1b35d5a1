// SPDX-License-Identifier: Apache-2.0
// Softmax and LogSoftmax over rows that lie together. REGISTERS: the row stays in registers between the
// passes; else it is read twice. FILL stands for what lies behind a row's end.
#define FILL (-(A)HN_INF)

extern "C" __global__ void __launch_bounds__(THREADS) hn_k_softmax(const T *x, D *y HN_PARAMS) {
    const span row = (span)blockIdx.x * ROWS_A_BLOCK + threadIdx.x / GROUP;
    const int lane = threadIdx.x % GROUP;
#if GROUP <= 32
    if (row >= OUTER) return;
#endif
    const T *from = x + row * COUNT;
    D *to = y + row * COUNT;
#if REGISTERS
    A v[ITERATIONS][VEC];
    A top = FILL;
#pragma unroll
    for (int i = 0; i < ITERATIONS; i++) {
        const int at = i * CHUNK + lane * VEC;
        if (at < COUNT) {
            const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
#pragma unroll
            for (int e = 0; e < VEC; e++)
                v[i][e] = convert(in.v[e]);
        } else {
#pragma unroll
            for (int e = 0; e < VEC; e++)
                v[i][e] = FILL;
        }
#pragma unroll
        for (int e = 0; e < VEC; e++)
            top = max_of::merge(top, v[i][e]);
    }
    top = group_reduce<max_of>(top);
    A sum = 0;
#pragma unroll
    for (int i = 0; i < ITERATIONS; i++)
#pragma unroll
        for (int e = 0; e < VEC; e++)
            if (i * CHUNK + lane * VEC < COUNT) {
#if LOGARITHM
                v[i][e] -= top;
                sum += exp(v[i][e]);
#else
                v[i][e] = exp(v[i][e] - top);
                sum += v[i][e];
#endif
            }
    sum = group_reduce<sum_of>(sum);
    const A scale = LOGARITHM ? log(sum) : 1 / sum;
#pragma unroll
    for (int i = 0; i < ITERATIONS; i++) {
        const int at = i * CHUNK + lane * VEC;
        if (at >= COUNT) continue;
        vec<D, VEC> out;
#pragma unroll
        for (int e = 0; e < VEC; e++)
            out.v[e] = store<D>::of(LOGARITHM ? v[i][e] - scale : v[i][e] * scale);
        *(vec<D, VEC> *)(to + at) = out;
    }
#else
    A top = FILL, sum = 0;
    HN_LOOP
    for (int at = lane * VEC; at < COUNT; at += CHUNK) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
        A high = top;
#pragma unroll
        for (int e = 0; e < VEC; e++)
            high = max_of::merge(high, convert(in.v[e]));
        A part = 0;
        if (high == FILL) continue; // nothing but -inf so far
#pragma unroll
        for (int e = 0; e < VEC; e++)
            part += exp(convert(in.v[e]) - high);
        sum = sum * exp(top - high) + part;
        top = high;
    }
    const A high = group_reduce<max_of>(top);
    sum = group_reduce<sum_of>(top == FILL ? (high == FILL ? HN_NAN : 0) : sum * exp(top - high));
    const A scale = LOGARITHM ? log(sum) : 1 / sum;
    HN_LOOP
    for (int at = lane * VEC; at < COUNT; at += CHUNK) {
        const vec<T, VEC> in = *(const vec<T, VEC> *)(from + at);
        vec<D, VEC> out;
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const A shifted = convert(in.v[e]) - high;
            out.v[e] = store<D>::of(LOGARITHM ? shifted - scale : exp(shifted) * scale);
        }
        *(vec<D, VEC> *)(to + at) = out;
    }
#endif
}
