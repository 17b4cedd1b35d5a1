// SPDX-License-Identifier: Apache-2.0
// Attention, ref level: see attention.h.
#define HN_K_TABLE hn_k_attention_ref
#include "kernels/cpu/attention.inc"
