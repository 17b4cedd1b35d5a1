// SPDX-License-Identifier: Apache-2.0
// Element-wise ops: the rows' functions, and the scalar functions that fused steps and kernels use.
#ifndef HN_OPS_ELEMENTWISE_H
#define HN_OPS_ELEMENTWISE_H
#include "ops/common.h"

hone_status hn_infer_unary(hone_error *err, hn_infer *ctx);
hone_status hn_infer_predicate(hone_error *err, hn_infer *ctx); // bool result
hone_status hn_infer_binary(hone_error *err, hn_infer *ctx);    // also Sum, Max and their like
hone_status hn_infer_compare(hone_error *err, hn_infer *ctx);
hone_status hn_infer_prelu(hone_error *err, hn_infer *ctx);
hone_status hn_infer_where(hone_error *err, hn_infer *ctx);
hone_status hn_infer_clip(hone_error *err, hn_infer *ctx);
hone_status hn_infer_cast(hone_error *err, hn_infer *ctx);
hone_status hn_infer_cast_like(hone_error *err, hn_infer *ctx);
hone_status hn_infer_bit_cast(hone_error *err, hn_infer *ctx);
hone_status hn_ref_unary(hone_error *err, const hn_call *call);
hone_status hn_ref_binary(hone_error *err, const hn_call *call); // also Sum, Max and their like
hone_status hn_ref_where(hone_error *err, const hn_call *call);
hone_status hn_ref_clip(hone_error *err, const hn_call *call);
hone_status hn_ref_cast(hone_error *err, const hn_call *call);
hone_status hn_ref_bit_cast(hone_error *err, const hn_call *call);

// y[k] = op(x[k]) over cells of one class. NULL: the op has no such form.
typedef void (*hn_unary_fn)(const hn_cell *x, hn_cell *y, int count, hn_cell a, hn_cell b);
typedef void (*hn_binary_fn)(const hn_cell *x, const hn_cell *y, hn_cell *z, int count, hn_cell a);
hn_unary_fn hn_scalar_unary(hn_op op, hn_class class);
hn_binary_fn hn_scalar_binary(hn_op op, hn_class class);
// The op's parameters from the node's attributes (0 where it has none).
void hn_scalar_params(const hn_node *node, double *out_a, double *out_b);
// Expression text of the op's form for a class, NULL if it has none; for generated kernels.
const char *hn_scalar_text(hn_op op, hn_class class);
#endif
