// SPDX-License-Identifier: Apache-2.0
// An Einsum's equation as labels: for its reference, for kernels and for passes.
#ifndef HN_OPS_EINSUM_H
#define HN_OPS_EINSUM_H
#include "ops/ops.h"

#define HN_EINSUM_OPERANDS 16
#define HN_EINSUM_LABELS (52 + HN_MAX_RANK) // letters, then the dims under an ellipsis, from the right

typedef struct hn_einsum_term {
    int count;
    int labels[HN_MAX_RANK]; // one a dim
} hn_einsum_term;
typedef struct hn_einsum {
    int operands;
    hn_einsum_term in[HN_EINSUM_OPERANDS], out;
} hn_einsum;
// The equation of a node whose inputs have known ranks; HONE_ERR_UNSUPPORTED where one has not.
hn_status hn_einsum_read(hone_error *err, const hn_node *node, hn_einsum *out_equation);
#endif
