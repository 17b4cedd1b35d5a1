// SPDX-License-Identifier: Apache-2.0
// Convolution in plain order, avx512 level: see conv.h.
#define HN_K_TABLE hn_k_conv_avx512
#include "kernels/cpu/conv.inc"
