// SPDX-License-Identifier: Apache-2.0
// Recurrent cells and small products, avx2 level: see rnn.h.
#define HN_K_TABLE hn_k_rnn_avx2
#include "kernels/cpu/rnn.inc"
