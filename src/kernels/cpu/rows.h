// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax and normalisations on float32 rows and columns, one table an ISA level.
//
// A "row" is contiguous; "columns" are [count][width] with the reduction over count, so that width
// lanes go side by side. In place is allowed where there is an output of the input's shape.
#ifndef HN_KERNELS_ROWS_H
#define HN_KERNELS_ROWS_H
#include <stdbool.h>
#include <stdint.h>

typedef enum hn_k_reduce {
    HN_K_REDUCE_SUM,
    HN_K_REDUCE_MAX,
    HN_K_REDUCE_MIN,
    HN_K_REDUCE_SUM_SQUARE,
    HN_K_REDUCE_SUM_ABS,
    HN_K_REDUCE_END
} hn_k_reduce;

typedef struct hn_k_rows {
    float (*reduce_row[HN_K_REDUCE_END])(const float *x, int64_t n);
    // out[w] = reduction over count of x[count][stride], w < width.
    void (*reduce_columns[HN_K_REDUCE_END])(const float *x, int64_t count, int64_t stride,
                                            int64_t width, float *out);
    void (*softmax_row)(const float *x, float *out, int64_t n, bool logarithm);
    void (*softmax_columns)(const float *x, float *out, int64_t count, int64_t stride, int64_t width,
                            bool logarithm);
    // scale and bias may be NULL.
    void (*layer_norm_row)(const float *x, const float *scale, const float *bias, float *out,
                           int64_t n, float epsilon);
    void (*rms_norm_row)(const float *x, const float *scale, float *out, int64_t n, float epsilon);
    // One channel of `n` values: (x - mean) / sqrt(var + epsilon) * scale + bias.
    void (*standardise_row)(const float *x, float scale, float bias, float *out, int64_t n,
                            float epsilon);
    // Mean and 1/sqrt(var + epsilon) of columns, two passes.
    void (*moments_columns)(const float *x, int64_t count, int64_t stride, int64_t width,
                            float epsilon, float *out_mean, float *out_inverse);
    // Mean and variance of a row; sums over count of (x[count][stride][w] - mean[w])^2.
    void (*moments_row)(const float *x, int64_t n, float *out_mean, float *out_variance);
    void (*deviation_columns)(const float *x, int64_t count, int64_t stride, int64_t width,
                              const float *mean, float *out);
    // out[r][w] = x[r][w] * scale[w] + shift[w]; slope: negative results are multiplied by it (1:
    // none), a fused leaky activation.
    void (*scale_shift_columns)(const float *x, const float *scale, const float *shift, float *out,
                                int64_t count, int64_t width, float slope);
} hn_k_rows;
extern const hn_k_rows hn_k_rows_ref, hn_k_rows_avx2, hn_k_rows_avx512;
#endif
