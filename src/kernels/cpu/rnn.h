// SPDX-License-Identifier: Apache-2.0
// Small matrix products with packed right operands, and the cells of LSTM and GRU on float32.
//
// For the small hidden sizes and batches of real recurrent models a call per step is all overhead;
// these kernels have none.
#ifndef HN_KERNELS_RNN_H
#define HN_KERNELS_RNN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hn_k_rnn {
    // c[m][n] = init[n] (0 when NULL; c itself when accumulate) + a[m][k] * b, where b is k rows of
    // ldb floats, ldb at least n rounded up to 16, padded with anything finite. Lanes beyond n are
    // not written.
    void (*gemm)(const float *a, int64_t lda, const float *b, int64_t ldb, const float *init,
                 bool accumulate, float *c, int64_t ldc, int64_t m, int64_t n, int64_t k);
    // gates: i, o, f, c pre-activations of `hidden` floats each. c and h are updated.
    void (*lstm_cell)(const float *gates, float *c, float *h, int64_t hidden);
    // gates: z and r pre-activations; candidate_x and candidate_h the two parts of the third one.
    // With reset_after: candidate = tanh(cx + r * ch), else the caller has put all of it in cx.
    void (*gru_cell)(const float *gates, const float *candidate_x, const float *candidate_h,
                     const float *h, float *out_h, int64_t hidden);
    // out = sigmoid(r) * h
    void (*gru_reset)(const float *r, const float *h, float *out, int64_t hidden);
} hn_k_rnn;
extern const hn_k_rnn hn_k_rnn_ref, hn_k_rnn_avx2, hn_k_rnn_avx512;
#endif
