// SPDX-License-Identifier: Apache-2.0
// Quantisation, ref level: see quant.h.
#define HN_K_TABLE hn_k_quant_ref
#include "kernels/cpu/quant.inc"
