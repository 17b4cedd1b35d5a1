// SPDX-License-Identifier: Apache-2.0
// A float vector as wide as the file's ISA: 16 (AVX-512), 8 (AVX2) or 4 (portable) lanes, with the
// transcendental functions the kernels share. Included by *_avx512.c, *_avx2.c and *_ref.c through
// the kernels' .inc files; the names are static, so the three copies do not meet.
//
// Accuracy (checked by tests/kernels): exp, log, tanh, erf, sigmoid within 4e-7 of max(1, |result|)
// or a few ulp. NaN passes through everywhere; infinities give their limits.
#ifndef HN_KERNELS_VEC_H
#define HN_KERNELS_VEC_H
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VN 16
#elif defined(__AVX2__)
#define VN 8
#else
#define VN 4
#endif
typedef float vf __attribute__((vector_size(VN * 4), may_alias));
typedef int32_t vi __attribute__((vector_size(VN * 4), may_alias));
typedef uint32_t vu __attribute__((vector_size(VN * 4), may_alias));

#define V_INLINE static inline __attribute__((always_inline, unused))

V_INLINE vf v_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
V_INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
V_INLINE vf v_set(float x) { return x - (vf){0}; } // x - 0 keeps -0 and NaN
V_INLINE vi v_seti(int32_t x) { return x + (vi){0}; }
#if VN == 8
V_INLINE __m256i v_first(int64_t n) { // a mask of the first n lanes
    static const int32_t k_mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(k_mask + 8 - n));
}
#endif
// The first n <= VN lanes; the rest are zero.
V_INLINE vf v_load_n(const float *p, int64_t n) {
#if VN == 16
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
#elif VN == 8
    return (vf)_mm256_maskload_ps(p, v_first(n));
#else
    vf v = {0};
    for (int64_t i = 0; i < n; i++)
        v[i] = p[i];
    return v;
#endif
}
V_INLINE void v_store_n(float *p, vf v, int64_t n) {
#if VN == 16
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#elif VN == 8
    _mm256_maskstore_ps(p, v_first(n), (__m256)v);
#else
    for (int64_t i = 0; i < n; i++)
        p[i] = v[i];
#endif
}
V_INLINE vf v_fma(vf a, vf b, vf c) { // a * b + c
#if VN == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VN == 8
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}
V_INLINE vf v_sel(vi mask, vf yes, vf no) {
#if VN == 16
    return (vf)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)no, (__m512)yes);
#else
    return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
#endif
}
V_INLINE vf v_abs(vf x) { return (vf)((vi)x & v_seti(0x7fffffff)); }
V_INLINE vf v_sign_of(vf magnitude, vf sign) {
    return (vf)(((vi)magnitude & v_seti(0x7fffffff)) | ((vi)sign & v_seti((int32_t)0x80000000)));
}
// a < b ? yes : no, without a detour of the mask through a vector.
V_INLINE vf v_sel_lt(vf a, vf b, vf yes, vf no) {
#if VN == 16
    return (vf)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ), (__m512)no,
                                    (__m512)yes);
#else
    return v_sel(a < b, yes, no);
#endif
}
// The first n < VN lanes; the rest are `fill`.
V_INLINE vf v_load_fill(const float *p, int64_t n, vf fill) {
#if VN == 16
    return (vf)_mm512_mask_loadu_ps((__m512)fill, (__mmask16)((1u << n) - 1u), p);
#else
    for (int64_t i = 0; i < n; i++)
        fill[i] = p[i];
    return fill;
#endif
}
// NaN in either operand passes.
V_INLINE vf v_max(vf a, vf b) {
#if VN == 16 // the instruction gives its second operand where one is NaN
    __m512 m = _mm512_max_ps((__m512)b, (__m512)a), v = (__m512)b;
    return (vf)_mm512_mask_mov_ps(m, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v);
#else
    return v_sel((a >= b) | (a != a), a, b);
#endif
}
V_INLINE vf v_min(vf a, vf b) {
#if VN == 16
    __m512 m = _mm512_min_ps((__m512)b, (__m512)a), v = (__m512)b;
    return (vf)_mm512_mask_mov_ps(m, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v);
#else
    return v_sel((a <= b) | (a != a), a, b);
#endif
}
V_INLINE vf v_sqrt(vf x) {
#if VN == 16
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif VN == 8
    return (vf)_mm256_sqrt_ps((__m256)x);
#else
    vf r;
    for (int i = 0; i < VN; i++)
        r[i] = __builtin_sqrtf(x[i]);
    return r;
#endif
}
// Round half to even, for |x| < 2^22.
V_INLINE vf v_rint_small(vf x) {
    vf magic = v_set(12582912.f);
    return (x + magic) - magic;
}
V_INLINE float v_sum(vf v) {
#if VN == 16
    return _mm512_reduce_add_ps((__m512)v);
#else
    for (int width = VN / 2; width; width /= 2)
        for (int i = 0; i < width; i++)
            v[i] += v[i + width];
    return v[0];
#endif
}
V_INLINE float v_max_of(vf v) { // NaN wins
#if VN == 16
    if (_mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q)) return __builtin_nanf("");
    return _mm512_reduce_max_ps((__m512)v);
#else
    float m = v[0];
    for (int i = 1; i < VN; i++)
        m = m >= v[i] || m != m ? m : v[i];
    return m;
#endif
}

#if VN == 16
// scalef takes care of the upper end. Results below the smallest normal number are 0: making
// subnormals costs the CPU 150 cycles a vector, and masked attention is full of them.
// min and max give their second operand when there is a NaN, which so passes through.
V_INLINE vf v_exp(vf x) {
    __m512 c = _mm512_min_ps(_mm512_set1_ps(89.f), (__m512)x);
    c = _mm512_max_ps(_mm512_set1_ps(-87.3f), c);
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(c, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = v_fma((vf)n, v_set(-0.693359375f), (vf)c);
    r = v_fma((vf)n, v_set(2.12194440e-4f), r);
    vf p = v_set(0.00139261775f);
    p = v_fma(p, r, v_set(0.00836317418f));
    p = v_fma(p, r, v_set(0.0416665547f));
    p = v_fma(p, r, v_set(0.16666577f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p * r, r, r) + v_set(1.f);
    return (vf)_mm512_maskz_scalef_ps(normal, (__m512)p, n);
}
#else
V_INLINE vf v_exp(vf x) {
    vf hi = v_set(88.7228394f), lo = v_set(-103.972084f);
    vf c = v_sel(x > hi, hi, x);
    c = v_sel(x < lo, lo, c);
    vf n = v_rint_small(c * v_set(1.44269504f));
    vf r = v_fma(n, v_set(-0.693359375f), c);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf p = v_set(0.00139261775f);
    p = v_fma(p, r, v_set(0.00836317418f));
    p = v_fma(p, r, v_set(0.0416665547f));
    p = v_fma(p, r, v_set(0.16666577f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p * r, r, r) + v_set(1.f);
    // 2^n in two factors, so that subnormal results come out right. NaN has a garbage n: see below.
    vi k = __builtin_convertvector(v_sel(n == n, n, v_set(0)), vi);
    vi k1 = k >> 1, k2 = k - k1;
    vf s1 = (vf)((k1 + 127) << 23), s2 = (vf)((k2 + 127) << 23);
    vf y = p * s1 * s2;
    y = v_sel(x > hi, v_set(__builtin_inff()), y);
    y = v_sel(x < lo, v_set(0), y);
    return v_sel(x == x, y, x);
}
#endif
// e^-x may be infinite, which gives 0.
V_INLINE vf v_sigmoid(vf x) { return v_set(1.f) / (v_set(1.f) + v_exp(-x)); }
V_INLINE vf v_tanh(vf x) {
    vf a = v_abs(x), u = x * x;
    vf p = v_set(-0.00559978503f);
    p = v_fma(p, u, v_set(0.020536972f));
    p = v_fma(p, u, v_set(-0.0537042774f));
    p = v_fma(p, u, v_set(0.133309172f));
    p = v_fma(p, u, v_set(-0.333332514f));
    p = v_fma(p * u, x, x);
    vf e = v_exp(v_set(-2.f) * a);
    vf big = v_sign_of((v_set(1.f) - e) / (v_set(1.f) + e), x);
    return v_sel_lt(a, v_set(0.63f), p, big); // NaN comes out of big
}
V_INLINE vf v_erf(vf x) {
    vf a = v_abs(x), u = x * x;
    vf p = v_set(7.8758751e-05f);
    p = v_fma(p, u, v_set(-0.00080168643f));
    p = v_fma(p, u, v_set(0.00518908743f));
    p = v_fma(p, u, v_set(-0.026854212f));
    p = v_fma(p, u, v_set(0.112835947f));
    p = v_fma(p, u, v_set(-0.376126267f));
    p = v_fma(p, u, v_set(1.12837917f));
    vf c = v_sel_lt(v_set(4.f), a, v_set(4.f), a);
    vf q = v_set(-2.16618047e-07f);
    q = v_fma(q, c, v_set(3.23675464e-06f));
    q = v_fma(q, c, v_set(-1.58438891e-06f));
    q = v_fma(q, c, v_set(-0.000331685445f));
    q = v_fma(q, c, v_set(0.00383551132f));
    q = v_fma(q, c, v_set(-0.0243323055f));
    q = v_fma(q, c, v_set(0.107022514f));
    q = v_fma(q, c, v_set(0.634617255f));
    q = v_fma(q, c, v_set(1.12879281f));
    vf big = v_sign_of(v_set(1.f) - v_exp(-c * q), x);
    return v_sel_lt(a, v_set(1.f), p * x, big); // NaN comes out of big
}
V_INLINE vf v_log(vf x) {
    // Subnormals are scaled up by 2^23 first.
    vi tiny = x < v_set(1.17549435e-38f);
    vf s = v_sel(tiny, x * v_set(8388608.f), x);
    vu bits = (vu)s; // unsigned: what negative numbers give is replaced below, and must wrap
    vi e = (vi)(bits - 0x3f3504f3u) >> 23;
    vf m = (vf)(bits - ((vu)e << 23)); // sqrt(1/2) .. sqrt(2)
    vf f = m - v_set(1.f);
    vf n = __builtin_convertvector(e, vf) - (vf)((vi)v_set(23.f) & tiny);
    vf p = v_set(-0.0767364148f);
    p = v_fma(p, f, v_set(0.127226728f));
    p = v_fma(p, f, v_set(-0.131275557f));
    p = v_fma(p, f, v_set(0.14204856f));
    p = v_fma(p, f, v_set(-0.166266456f));
    p = v_fma(p, f, v_set(0.200012345f));
    p = v_fma(p, f, v_set(-0.250007812f));
    p = v_fma(p, f, v_set(0.3333333f));
    p = v_fma(p, f, v_set(-0.499999976f));
    vf y = v_fma(n, v_set(-2.12194440e-4f), p * f * f);
    y = v_fma(n, v_set(0.693359375f), y + f);
    vf inf = v_set(__builtin_inff());
    y = v_sel(x == inf, inf, y);
    y = v_sel(x == v_set(0), -inf, y);
    y = v_sel(x < v_set(0), v_set(__builtin_nanf("")), y);
    return v_sel(x == x, y, x);
}
V_INLINE vf v_gelu_erf(vf x) {
    return v_set(0.5f) * x * (v_set(1.f) + v_erf(x * v_set(0.707106781f)));
}
V_INLINE vf v_gelu_tanh(vf x) {
    vf inner = v_set(0.797884561f) * v_fma(x * x * x, v_set(0.044715f), x);
    return v_set(0.5f) * x * (v_set(1.f) + v_tanh(inner));
}
#endif
