// SPDX-License-Identifier: Apache-2.0
// Quantisation, avx512 level: see quant.h.
#define HN_K_TABLE hn_k_quant_avx512
#include "kernels/cpu/quant.inc"
