// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels on contiguous runs of float32, one table an ISA level.
//
// In place is allowed (out equal to an input, not partly overlapping). NaN passes through all.
#ifndef HN_KERNELS_ELEMENTWISE_H
#define HN_KERNELS_ELEMENTWISE_H
#include <stdint.h>

// One row a function: HN_UNARY(token, value of x with parameters alpha and beta as vectors)
#define HN_K_UNARY_ROWS(HN_UNARY)                                                                  \
    HN_UNARY(copy, x)                                                                              \
    HN_UNARY(neg, -x)                                                                              \
    HN_UNARY(abs, v_abs(x))                                                                        \
    HN_UNARY(square, x *x)                                                                         \
    HN_UNARY(cube, x *x *x)                                                                        \
    HN_UNARY(sqrt, v_sqrt(x))                                                                      \
    HN_UNARY(pow_half, v_sqrt(v_sel(x == v_set(-__builtin_inff()), -x, x) + v_set(0)))              \
    HN_UNARY(reciprocal, v_set(1.f) / x)                                                           \
    HN_UNARY(exp, v_exp(x))                                                                        \
    HN_UNARY(log, v_log(x))                                                                        \
    HN_UNARY(tanh, v_tanh(x))                                                                      \
    HN_UNARY(erf, v_erf(x))                                                                        \
    HN_UNARY(sigmoid, v_sigmoid(x))                                                                \
    HN_UNARY(relu, v_sel(x < v_set(0), v_set(0), x))                                               \
    HN_UNARY(leaky_relu, v_sel(x < v_set(0), x *alpha, x))                                         \
    HN_UNARY(clip, v_sel(x > beta, beta, v_sel(x < alpha, alpha, x)))                              \
    HN_UNARY(elu, v_sel(x < v_set(0), alpha *(v_exp(x) - v_set(1.f)), x))                          \
    HN_UNARY(hard_sigmoid, clip01(v_fma(x, alpha, beta)))                                          \
    HN_UNARY(hard_swish, x *clip01(v_fma(x, v_set(1.f / 6), v_set(0.5f))))                         \
    HN_UNARY(gelu_erf, v_gelu_erf(x))                                                              \
    HN_UNARY(gelu_tanh, v_gelu_tanh(x))                                                            \
    HN_UNARY(swish, x *v_sigmoid(x *alpha))                                                        \
    HN_UNARY(softplus, v_sel(x > v_set(0), x, v_set(0)) + v_log(v_set(1.f) + v_exp(-v_abs(x))))    \
    HN_UNARY(linear, v_fma(x, alpha, beta))                                                        \
    HN_UNARY(add_scalar, x + alpha)                                                                \
    HN_UNARY(mul_scalar, x *alpha)

// HN_BINARY(token, value of a and b)
#define HN_K_BINARY_ROWS(HN_BINARY)                                                                \
    HN_BINARY(add, a + b)                                                                          \
    HN_BINARY(sub, a - b)                                                                          \
    HN_BINARY(mul, a *b)                                                                           \
    HN_BINARY(div, a / b)                                                                          \
    HN_BINARY(max, v_max(a, b))                                                                    \
    HN_BINARY(min, v_min(a, b))                                                                    \
    HN_BINARY(prelu, v_sel(a < v_set(0), a *b, a))

typedef enum hn_k_unary {
#define HN_UNARY(token, value) HN_K_UNARY_##token,
    HN_K_UNARY_ROWS(HN_UNARY)
#undef HN_UNARY
        HN_K_UNARY_END
} hn_k_unary;
typedef enum hn_k_binary {
#define HN_BINARY(token, value) HN_K_BINARY_##token,
    HN_K_BINARY_ROWS(HN_BINARY)
#undef HN_BINARY
        HN_K_BINARY_END
} hn_k_binary;

typedef void (*hn_k_unary_fn)(const float *x, float *out, int64_t n, float alpha, float beta);
typedef void (*hn_k_binary_fn)(const float *a, const float *b, float *out, int64_t n);

typedef struct hn_k_elementwise {
    hn_k_unary_fn unary[HN_K_UNARY_END];
    // By which operands are one broadcast element: none, the second, the first.
    hn_k_binary_fn binary[HN_K_BINARY_END][3];
} hn_k_elementwise;
extern const hn_k_elementwise hn_k_elementwise_ref, hn_k_elementwise_avx2, hn_k_elementwise_avx512;
#endif
