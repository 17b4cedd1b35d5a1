// SPDX-License-Identifier: Apache-2.0
// Attention, avx2 level: see attention.h.
#define HN_K_TABLE hn_k_attention_avx2
#include "kernels/cpu/attention.inc"
