// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax and normalisations, avx512 level: see rows.h.
#define HN_K_TABLE hn_k_rows_avx512
#include "kernels/cpu/rows.inc"
