// SPDX-License-Identifier: Apache-2.0
// Dead code: nodes and constants that nothing uses, and optional outputs that nobody reads.
#include "passes/pass_int.h"

// Outputs that a node need not produce: trailing or positional optional ones become absent, which
// lets backends leave the work out (Dropout's mask, MaxPool's indices, LSTM's last state).
static void drop_unused_outputs(hn_pass_ctx *ctx, hn_node *node) {
    const hn_op_info *info = hn_op_get(node->op);
    if (node->op == HN_OP_UNKNOWN || info->max_out < 0 || (info->traits & HN_T_CONTROL)) return;
    for (int i = info->min_out; i < node->output_count; i++) {
        hn_value *out = node->outputs[i];
        if (!out || !hn_value_unused(out) || hn_pass_pinned(ctx, out)) continue;
        hn_node_set_output(node, i, NULL);
        ctx->changes++;
    }
    while (node->output_count > info->min_out && node->output_count > 1 &&
           !node->outputs[node->output_count - 1])
        node->output_count--;
}

static bool all_unused(const hn_pass_ctx *ctx, const hn_node *node) {
    for (int i = 0; i < node->output_count; i++) {
        const hn_value *out = node->outputs[i];
        if (out && (!hn_value_unused(out) || hn_pass_pinned(ctx, out))) return false;
    }
    return true;
}

static hone_status clean_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    (void)err;
    // From the end: a removed node frees its producers before they are looked at.
    for (hn_node *node = graph->last, *prev; node; node = prev) {
        prev = node->prev;
        if (all_unused(ctx, node)) {
            hn_node_remove(node);
            ctx->changes++;
        } else {
            drop_unused_outputs(ctx, node);
        }
    }
    for (size_t i = graph->values.count; i-- > 0;) {
        hn_value *value = graph->values.data[i];
        if (!value->constant || !hn_value_unused(value) || hn_pass_pinned(ctx, value)) continue;
        if (value->overridable && !ctx->freeze_overridable) continue; // part of the interface
        hn_value_remove(value);
        ctx->changes++;
    }
    return HONE_OK;
}

hone_status hn_pass_dce(hone_error *err, hn_pass_ctx *ctx) {
    // Sub-graphs come first, so a dead node's sub-graph costs a little, and what a cleaned
    // sub-graph no longer captures can go in the same sweep.
    return hn_pass_each_graph(err, ctx, clean_graph);
}

hone_status hn_pass_device_dce(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_dce(err, ctx);
}
