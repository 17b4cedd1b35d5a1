// SPDX-License-Identifier: Apache-2.0
// If with a known condition: the branch taken moves into the graph, the other goes.
#include "passes/pass_int.h"

// 1 or 0, or -1 where the condition depends on the run.
static int known_condition(hn_pass_ctx *ctx, const hn_value *value) {
    if (!value) return -1;
    const hn_tensor *tensor = hn_pass_constant(ctx, value);
    if (tensor) return hn_tensor_count(tensor) == 1 ? hn_tensor_get_i64(tensor, 0) != 0 : -1;
    if (value->constant || !value->elems || value->elem_count != 1) return -1;
    return hn_dim_is_const(value->elems[0]) ? value->elems[0] != 0 : -1;
}

static bool may_go(const hn_pass_ctx *ctx, const hn_node *node) {
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && hn_pass_pinned(ctx, node->outputs[i])) return false;
    return true;
}

static hn_status take_branch(hone_error *err, hn_pass_ctx *ctx, hn_node *node, hn_graph *branch) {
    if (branch->outputs.count < (size_t)node->output_count)
        HN_FAIL(err, HONE_ERR_FORMAT, "a branch of an If has fewer outputs than the If");
    HN_TRY(hn_graph_splice(err, branch, node));
    for (int i = 0; i < node->output_count; i++) {
        hn_value *old = node->outputs[i], *result = branch->outputs.data[i];
        if (!old || hn_value_unused(old)) continue;
        if (!hn_pass_can_replace(ctx, old, result)) {
            // Two graph outputs may be one branch value, and each needs its name.
            hn_value *in[] = {result};
            result = hn_pass_build(node, "Identity", in, 1);
            if (!result) HN_NOMEM(err, "inlining a branch");
        }
        hn_value_replace(old, result);
    }
    branch->outputs.count = 0;
    hn_node_remove(node);
    ctx->changes++;
    return HONE_OK;
}

static hone_status if_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (!hn_pass_is(node, "If") || node->input_count < 1) continue;
        int condition = known_condition(ctx, node->inputs[0]);
        if (condition < 0 || !may_go(ctx, node)) continue;
        const hn_attr *attr = hn_node_attr(node, condition ? "then_branch" : "else_branch");
        if (attr && attr->type == HN_ATTR_GRAPH) HN_TRY(take_branch(err, ctx, node, attr->graph));
    }
    return HONE_OK;
}

hone_status hn_pass_static_if(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, if_graph);
}
