// SPDX-License-Identifier: Apache-2.0
// What the attributes of RNN, GRU and LSTM nodes say: for the references and for generated kernels.
#ifndef HN_OPS_RNN_H
#define HN_OPS_RNN_H
#include "ops/ops.h"

typedef enum hn_rnn_kind { HN_RNN_PLAIN, HN_RNN_GRU, HN_RNN_LSTM } hn_rnn_kind;
typedef struct hn_activation {
    double (*fn)(double x, double alpha, double beta);
    const char *text; // the same as an expression of x, a, b in C and CUDA C; T is the type computed in
    double alpha, beta;
} hn_activation;

typedef struct hn_rnn_attrs {
    hn_rnn_kind kind;
    int directions, gates, functions; // functions: activations a direction
    bool reverse;                     // a single direction that runs backwards
    bool batch_first, input_forget, linear_before_reset;
    double clip;                      // 0: none
    hn_activation act[2][3];
} hn_rnn_attrs;
hn_status hn_rnn_read(hone_error *err, const hn_node *node, hn_rnn_kind kind, hn_rnn_attrs *out_attrs);
#endif
