// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels, ref level: see elementwise.h.
#define HN_K_TABLE hn_k_elementwise_ref
#include "kernels/cpu/elementwise.inc"
