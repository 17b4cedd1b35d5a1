// SPDX-License-Identifier: Apache-2.0
// Softmax attention of one head on float32, a few query rows at a time: scores, softmax and the weighted
// sum stay in the first cache. One table an ISA level.
//
// Keys are packed once a head, [size][padded] with padded a multiple of 16, so that scores of 16 keys go
// side by side. A row's result does not depend on which rows are done together.
#ifndef HN_KERNELS_ATTENTION_H
#define HN_KERNELS_ATTENTION_H
#include <stdint.h>

// Scores of the rows that are done together live on the stack.
#define HN_K_ATTENTION_FLOATS   16384
#define HN_K_ATTENTION_MAX_KEYS (HN_K_ATTENTION_FLOATS - 16)

typedef struct hn_k_attention_head {
    const float *q, *v, *mask;      // mask NULL: none
    float *y;
    const float *packed;            // keys
    int64_t q_row, v_row, y_row;    // floats from one row to the next
    int64_t mask_row, mask_key;     // 0: broadcast
    int64_t keys, padded, size, value_size;
    int64_t last;                   // query i sees keys up to i + last; INT64_MAX: all
    float scale;
    int empty_rows;                 // see ops/attention_step.c
} hn_k_attention_head;

typedef struct hn_k_attention {
    void (*pack)(const float *k, int64_t row, int64_t keys, int64_t size, float *out, int64_t padded);
    void (*rows)(const hn_k_attention_head *head, int64_t begin, int64_t end);
    // y = x * cos + turned(x) * sin of one row of 2 * half; tables are rows as well, or single numbers
    // (step 0).
    void (*rotate)(const float *x, const float *cosines, int64_t cos_step, const float *sines,
                   int64_t sin_step, float *y, int64_t half);
} hn_k_attention;
extern const hn_k_attention hn_k_attention_ref, hn_k_attention_avx2, hn_k_attention_avx512;
#endif
