// SPDX-License-Identifier: Apache-2.0
// Convolution in plain order, ref level: see conv.h.
#define HN_K_TABLE hn_k_conv_ref
#include "kernels/cpu/conv.inc"
