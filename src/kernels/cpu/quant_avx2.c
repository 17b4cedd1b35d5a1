// SPDX-License-Identifier: Apache-2.0
// Quantisation, avx2 level: see quant.h.
#define HN_K_TABLE hn_k_quant_avx2
#include "kernels/cpu/quant.inc"
