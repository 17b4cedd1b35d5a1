// SPDX-License-Identifier: Apache-2.0
// Recurrent cells and small products, ref level: see rnn.h.
#define HN_K_TABLE hn_k_rnn_ref
#include "kernels/cpu/rnn.inc"
