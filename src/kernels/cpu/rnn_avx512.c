// SPDX-License-Identifier: Apache-2.0
// Recurrent cells and small products, avx512 level: see rnn.h.
#define HN_K_TABLE hn_k_rnn_avx512
#include "kernels/cpu/rnn.inc"
