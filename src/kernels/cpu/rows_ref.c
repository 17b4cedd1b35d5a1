// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax and normalisations, ref level: see rows.h.
#define HN_K_TABLE hn_k_rows_ref
#include "kernels/cpu/rows.inc"
