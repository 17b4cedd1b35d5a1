// SPDX-License-Identifier: Apache-2.0
// Element-wise programs interpreted: what is written as a kernel of its own where NVRTC is at hand. STEPS
// steps over VEC elements a thread; each reads the value so far or an operand, or nothing (0). CLASS: 0
// floating, 1 signed, 2 unsigned; STEP_CASES_*: a case a row of ops/scalar.def and kernels/steps.def.
// Operands have strides of their own over up to 6 dims of the output, the last dim innermost.
#define SO_FAR  (-1) // as X, Y
#define NOTHING (-2)

__device__ __noinline__ A apply(int step, A x, A y, A a, A b) {
    typedef A T;
#if CLASS == 0
    typedef A U;
    switch (step) { STEP_CASES_F }
#elif CLASS == 1
    typedef u64 U;
    switch (step) { STEP_CASES_I }
#else
    typedef A U;
    switch (step) { STEP_CASES_U }
#endif
    return x;
}

// Numbers as cuda_type_code gives them.
#define EACH_TYPE(DO) DO(0, f32) DO(1, f16) DO(2, bf16) DO(3, f64) DO(4, i8) DO(5, i16) DO(6, i32) DO(7, i64) DO(8, u8) DO(9, u16) DO(10, u32) DO(11, u64) DO(12, b8)

__device__ __forceinline__ void fetch(A (&to)[VEC], const void *from, int type, int at, int stride) {
    switch (type) {
#define FETCH(CODE, S)                                                                             \
    case CODE: {                                                                                   \
        const S *p = (const S *)from + at;                                                         \
        vec<S, VEC> in;                                                                            \
        if (stride == 1) in = *(const vec<S, VEC> *)p;                                             \
        else                                                                                       \
            for (int e = 0; e < VEC; e++)                                                          \
                in.v[e] = p[e * stride];                                                           \
        for (int e = 0; e < VEC; e++)                                                              \
            to[e] = computed<A>::of(in.v[e]);                                                      \
        break;                                                                                     \
    }
        EACH_TYPE(FETCH)
#undef FETCH
    }
}

__device__ __forceinline__ void keep(void *to, int type, int at, const A (&from)[VEC]) {
    switch (type) {
#define KEEP(CODE, D)                                                                              \
    case CODE: {                                                                                   \
        vec<D, VEC> out;                                                                           \
        for (int e = 0; e < VEC; e++)                                                              \
            out.v[e] = store<D>::of(from[e]);                                                      \
        *(vec<D, VEC> *)((D *)to + at) = out;                                                      \
        break;                                                                                     \
    }
        EACH_TYPE(KEEP)
#undef KEEP
    }
}

extern "C" __global__ void __launch_bounds__(256)
    hn_k_steps(const void *p0, const void *p1, const void *p2, const void *p3, const void *p4, const void *p5, const void *p6, const void *p7,
               const void *p8, const void *p9, const void *p10, const void *p11, void *out HN_PARAMS) {
    __shared__ const void *from[12];
    if (threadIdx.x == 0) {
        const void *all[12] = {p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11};
#pragma unroll
        for (int o = 0; o < 12; o++)
            from[o] = all[o];
    }
    __syncthreads();
    const int i = (blockIdx.x * 256 + threadIdx.x) * VEC;
    if (i >= TOTAL) return;
    int place[6], rest = i;
#pragma unroll
    for (int d = 5; d >= 0; d--) {
        place[d] = 0;
        if (d < 6 - RANK) continue;
        place[d] = d > 6 - RANK ? rest % P.DIMS[d] : rest;
        if (d > 6 - RANK) rest /= P.DIMS[d];
    }
    A so_far[VEC], x[VEC], y[VEC];
    for (int s = 0; s < STEPS; s++) {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            A(&to)[VEC] = side ? y : x;
            const int source = side ? P.Y[s] : P.X[s];
            if (source < 0) {
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    to[e] = source == SO_FAR ? so_far[e] : (A)0;
                continue;
            }
            int at = 0;
#pragma unroll
            for (int d = 0; d < 6; d++)
                at += place[d] * P.STRIDES[source * 6 + d];
            fetch(to, from[source], P.TYPES[source], at, P.STRIDES[source * 6 + 5]);
        }
        const int step = P.OP[s];
#if CLASS == 0
        const A a = (A)__longlong_as_double(P.CA[s]), b = (A)__longlong_as_double(P.CB[s]);
#else
        const A a = (A)P.CA[s], b = (A)P.CB[s];
#endif
        if (step == STEP_CHOOSE) { // between x and y by the first operand
            int at = 0;
            A which[VEC];
#pragma unroll
            for (int d = 0; d < 6; d++)
                at += place[d] * P.STRIDES[d];
            fetch(which, from[0], P.TYPES[0], at, P.STRIDES[5]);
#pragma unroll
            for (int e = 0; e < VEC; e++)
                so_far[e] = which[e] != 0 ? x[e] : y[e];
            continue;
        }
#pragma unroll
        for (int e = 0; e < VEC; e++) {
#if CLASS == 0 // most steps: without the call
            if (step == STEP_F_ADD) so_far[e] = x[e] + y[e];
            else if (step == STEP_F_MUL) so_far[e] = x[e] * y[e];
            else if (step == STEP_F_RELU) so_far[e] = x[e] < 0 ? (A)0 : x[e];
            else if (step == STEP_TAKE) so_far[e] = x[e];
            else
#endif
                so_far[e] = apply(step, x[e], y[e], a, b);
        }
    }
    keep(out, TYPE, i, so_far);
}
