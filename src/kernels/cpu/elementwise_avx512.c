// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels, avx512 level: see elementwise.h.
#define HN_K_TABLE hn_k_elementwise_avx512
#include "kernels/cpu/elementwise.inc"
