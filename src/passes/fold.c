// SPDX-License-Identifier: Apache-2.0
// Constant folding, by the references, within bounds: the file may not grow by more than the limit,
// the work may not exceed what a load can afford, and what carries meaning by being computed stays:
// quantisation pairs (DequantizeLinear of weights), randomness, overridable weights unless frozen.
#include "passes/pass_int.h"

// About 0.1 s of plain C.
#define MAX_FLOPS    5e7
#define MAX_ELEMENTS (1 << 24)

// Shape arithmetic: inference knows all elements, whether the inputs are constants or not.
static bool known_elems(const hn_value *out) {
    hn_shape shape;
    int64_t count;
    if (!out->elems || !hn_dtype_is_int(out->type.dtype)) return false;
    if (!hn_type_shape(&out->type, &shape) || !hn_shape_count(&shape, &count) ||
        count != out->elem_count)
        return false;
    for (int i = 0; i < out->elem_count; i++)
        if (!hn_dim_is_const(out->elems[i])) return false;
    return true;
}

static hn_status fold_elems(hone_error *err, hn_pass_ctx *ctx, hn_value *out) {
    hn_tensor tensor;
    hn_shape shape;
    if (!hn_type_shape(&out->type, &shape)) return HONE_OK;
    HN_TRY(hn_tensor_new(err, out->type.dtype, &shape, &tensor));
    for (int i = 0; i < out->elem_count; i++)
        hn_tensor_set_i64(&tensor, i, out->elems[i]);
    hn_value *constant = hn_graph_add_constant(out->graph, "", &tensor);
    hn_tensor_free(&tensor); // zeroed unless that failed
    if (!constant) HN_NOMEM(err, "folding");
    hn_pass_replace(ctx, out, constant);
    return HONE_OK;
}

// Bytes that go away with the node: constants that it alone uses.
static size_t freed_bytes(const hn_node *node) {
    size_t bytes = 0;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->uses.count == 1)
            bytes += node->inputs[i]->constant->bytes;
    return bytes;
}

static bool foldable(const hn_pass_ctx *ctx, const hn_node *node) {
    const uint32_t never = HN_T_RANDOM | HN_T_CONTROL | HN_T_QUANT | HN_T_INTERNAL;
    if (node->op == HN_OP_UNKNOWN || hn_op_has(node->op, never) || node->post_count) return false;
    if (!hn_op_get(node->op)->ref) return false;
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].type == HN_ATTR_GRAPH) return false;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && !hn_pass_constant(ctx, node->inputs[i])) return false;
    for (int i = 0; i < node->output_count; i++) {
        const hn_value *out = node->outputs[i];
        // An output of the graph stays the result of a node: some readers insist on it.
        if (out && (out->graph_output_uses || hn_pass_pinned(ctx, out))) return false;
    }
    hn_cost cost;
    hn_node_cost(node, &cost);
    return cost.flops <= MAX_FLOPS;
}

// False where the result would be too large.
static bool within_bounds(const hn_pass_ctx *ctx, const hn_node *node) {
    size_t total = 0, allowed = freed_bytes(node) + ctx->fold_limit_bytes;
    for (int i = 0; i < node->output_count; i++) {
        hn_shape shape;
        size_t bytes;
        int64_t count;
        if (!node->outputs[i]) continue;
        if (hn_op_has(node->op, HN_T_DYNAMIC)) continue; // known after the run
        if (!hn_type_shape(&node->outputs[i]->type, &shape) || !hn_shape_count(&shape, &count) ||
            !hn_shape_bytes(&shape, node->outputs[i]->type.dtype, &bytes) || count > MAX_ELEMENTS)
            return false;
        if (!hn_add_size(total, bytes, &total)) return false;
    }
    return total <= allowed;
}

#define MAX_IO 64

static hn_status fold_node(hone_error *err, hn_pass_ctx *ctx, hn_node *node) {
    const hn_tensor *inputs[MAX_IO];
    hn_tensor results[MAX_IO];
    if (node->input_count > MAX_IO || node->output_count > MAX_IO) return HONE_OK;
    size_t allowed = freed_bytes(node) + ctx->fold_limit_bytes, total = 0;
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = node->inputs[i] ? node->inputs[i]->constant : NULL;
    hone_status status =
        hn_ref_run(NULL, node, inputs, node->input_count, results, node->output_count, 0);
    // What the reference cannot do is left for whoever runs the graph to report.
    if (status == HONE_ERR_NOMEM) HN_NOMEM(err, "folding");
    if (status != HONE_OK) return HONE_OK;
    int outputs = node->output_count;
    for (int i = 0; i < outputs; i++)
        total += results[i].bytes;
    hn_value *olds[MAX_IO];
    memcpy(olds, node->outputs, (size_t)outputs * sizeof *olds);
    for (int i = 0; i < outputs && total <= allowed; i++) {
        if (!olds[i] || !results[i].buffer || hn_value_unused(olds[i])) continue;
        hn_value *constant = hn_graph_add_constant(node->graph, "", &results[i]);
        if (!constant) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (folding)");
        // Replacing sweeps the node away with its last used output.
        else hn_pass_replace(ctx, olds[i], constant);
    }
    for (int i = 0; i < outputs; i++)
        hn_tensor_free(&results[i]);
    return status;
}

static hone_status fold_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        hn_value *out = node->output_count == 1 ? node->outputs[0] : NULL;
        if (out && !out->graph_output_uses && !hn_pass_pinned(ctx, out) && known_elems(out) &&
            !hn_op_has(node->op, HN_T_QUANT | HN_T_RANDOM)) {
            HN_TRY(fold_elems(err, ctx, out));
            continue;
        }
        if (!foldable(ctx, node)) continue;
        // Constants made in this sweep give this node its shapes.
        if (hn_infer_node(NULL, node) != HONE_OK || !within_bounds(ctx, node)) continue;
        HN_TRY(fold_node(err, ctx, node));
    }
    return HONE_OK;
}

hone_status hn_pass_fold(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, fold_graph);
}
