// SPDX-License-Identifier: Apache-2.0
// Reductions, ArgMax, TopK, cumulative sums: the functions that ops.def names.
#ifndef HN_OPS_REDUCE_H
#define HN_OPS_REDUCE_H
#include "ops/common.h"

hone_status hn_infer_reduce(hone_error *err, hn_infer *ctx);
hone_status hn_infer_arg_extreme(hone_error *err, hn_infer *ctx);
hone_status hn_infer_top_k(hone_error *err, hn_infer *ctx);
hone_status hn_infer_cumulative(hone_error *err, hn_infer *ctx);
hone_status hn_ref_reduce(hone_error *err, const hn_call *call);
hone_status hn_ref_arg_extreme(hone_error *err, const hn_call *call);
hone_status hn_ref_top_k(hone_error *err, const hn_call *call);
hone_status hn_ref_cumulative(hone_error *err, const hn_call *call);
void hn_cost_reduce(const hn_node *node, hn_cost *out_cost);
#endif
