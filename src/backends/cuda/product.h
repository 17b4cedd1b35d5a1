// SPDX-License-Identifier: Apache-2.0
// What a MatMul or Gemm is, for the library's kernel (matmul.c) and ours (product.c).
#ifndef HN_CUDA_PRODUCT_H
#define HN_CUDA_PRODUCT_H
#include "backends/cuda/cuda_int.h"

#define CUDA_MAX_CALLS 256
typedef struct product {
    cpu_value a, b, c;
    bool trans_a, trans_b;
    int64_t m, n, k, batch;
    int64_t step_a, step_b, step_c;  // elements between matrices of a batch
    int calls;                       // with outer batches: several calls
    int64_t at_a[CUDA_MAX_CALLS], at_b[CUDA_MAX_CALLS]; // elements
    int64_t narrow;                  // k before it was filled up to whole 16 bytes, 0: it was not
    float alpha;
    bool turned;                     // b comes as the other layout: the same matrices, turned
    int epilogue;
    int bias, residual;              // node inputs, -1: none
    int posts_done;
    int scale_post;                  // post that became alpha, -1: none
} product;

// False: no product that either knows.
bool cuda_product_read(const hn_select *what, product *p);
// Posts that become the product's own scale, bias and residual; with the library's, its activation too.
void cuda_product_posts(const hn_node *node, bool library, product *p);
#endif
