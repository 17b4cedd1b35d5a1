// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax and normalisations, avx2 level: see rows.h.
#define HN_K_TABLE hn_k_rows_avx2
#include "kernels/cpu/rows.inc"
