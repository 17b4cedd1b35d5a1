// SPDX-License-Identifier: Apache-2.0
// Declarations of the functions that ops.def names, by family. A family with many of them has a
// header of its own, included here.
#ifndef HN_OPS_INT_H
#define HN_OPS_INT_H
#include "ops/ops.h"

#include "ops/control.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/move.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "ops/signal.h"

// ---- conv.c, pool.c, matmul.c, norm.c, rnn.c, resize.c, quant.c and their internal ops ----
#include "ops/nn_ops.h"

// ---- internal.c ----
hone_status hn_infer_q_average_pool(hone_error *err, hn_infer *ctx);
hone_status hn_ref_q_average_pool(hone_error *err, const hn_call *call);
hone_status hn_infer_q_conv(hone_error *err, hn_infer *ctx);
hone_status hn_infer_q_matmul(hone_error *err, hn_infer *ctx);
hone_status hn_ref_q_conv(hone_error *err, const hn_call *call);
hone_status hn_ref_q_matmul(hone_error *err, const hn_call *call);
void hn_cost_q_conv(const hn_node *node, hn_cost *out_cost);
void hn_cost_q_matmul(const hn_node *node, hn_cost *out_cost);

// ---- steps.c ----
hone_status hn_infer_steps(hone_error *err, hn_infer *ctx);
hone_status hn_ref_steps(hone_error *err, const hn_call *call);
void hn_cost_steps(const hn_node *node, hn_cost *out_cost);
hone_status hn_infer_lookup(hone_error *err, hn_infer *ctx);
hone_status hn_ref_lookup(hone_error *err, const hn_call *call);
hone_status hn_infer_add_norm(hone_error *err, hn_infer *ctx);
hone_status hn_ref_add_norm(hone_error *err, const hn_call *call);
void hn_cost_add_norm(const hn_node *node, hn_cost *out_cost);

#endif
