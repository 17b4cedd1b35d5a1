// SPDX-License-Identifier: Apache-2.0
// Constant folding, by the references, within bounds: the file may not grow by more than the limit,
// the work may not exceed what a load can afford, and what carries meaning by being computed stays:
// quantisation pairs (DequantizeLinear of weights), randomness, overridable weights unless frozen.
//
// Growth is judged by groups: exporters cut recurrent weights into gates and put them together in
// another order, and every one of those steps alone would seem to add a copy. A group is all
// foldable nodes that share values or constants; it goes if what it leaves behind is no larger than
// the constants that go with it.
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

// Could be computed now if its inputs were constants.
static bool computable(const hn_pass_ctx *ctx, const hn_node *node) {
    const uint32_t never = HN_T_RANDOM | HN_T_CONTROL | HN_T_QUANT | HN_T_INTERNAL;
    if (node->op == HN_OP_UNKNOWN || hn_op_has(node->op, never) || node->post_count) return false;
    if (!hn_op_get(node->op)->ref) return false;
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].type == HN_ATTR_GRAPH) return false;
    for (int i = 0; i < node->output_count; i++) {
        const hn_value *out = node->outputs[i];
        // An output of the graph stays the result of a node: some readers insist on it.
        if (out && (out->graph_output_uses || hn_pass_pinned(ctx, out))) return false;
    }
    hn_cost cost;
    hn_node_cost(node, &cost);
    return cost.flops <= MAX_FLOPS;
}

static bool foldable(const hn_pass_ctx *ctx, const hn_node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && !hn_pass_constant(ctx, node->inputs[i])) return false;
    return computable(ctx, node);
}

// ---- groups -------------------------------------------------------------------------------------

#define MAX_GROUP_FLOPS 5e8

typedef struct groups {
    uint32_t *parent; // by node id: union-find; UINT32_MAX: not in any group
    int64_t *growth;  // by root
    uint32_t *user;   // by value id of a constant: a node of the group that uses it, + 1
    double flops;
} groups;

static uint32_t root_of(const groups *g, uint32_t node) {
    while (g->parent[node] != node)
        node = g->parent[node] = g->parent[g->parent[node]];
    return node;
}

static void join(groups *g, uint32_t a, uint32_t b) {
    g->parent[root_of(g, a)] = root_of(g, b);
}

static bool known_bytes(const hn_value *value, int64_t *out) {
    hn_shape shape;
    size_t bytes;
    int64_t count;
    if (!hn_type_shape(&value->type, &shape) || !hn_shape_count(&shape, &count) ||
        !hn_shape_bytes(&shape, value->type.dtype, &bytes) || count > MAX_ELEMENTS)
        return false;
    *out = (int64_t)bytes;
    return true;
}

static bool in_group(const groups *g, const hn_node *node) {
    return node && g->parent[node->id] != UINT32_MAX;
}

static bool joins(const hn_pass_ctx *ctx, groups *g, const hn_node *node) {
    int64_t bytes;
    if (!computable(ctx, node) || hn_op_has(node->op, HN_T_DYNAMIC)) return false;
    for (int i = 0; i < node->input_count; i++) {
        const hn_value *in = node->inputs[i];
        if (in && !hn_pass_constant(ctx, in) && !in_group(g, in->producer)) return false;
    }
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && !known_bytes(node->outputs[i], &bytes)) return false;
    hn_cost cost;
    hn_node_cost(node, &cost);
    g->flops += cost.flops;
    return g->flops <= MAX_GROUP_FLOPS;
}

// Nodes in order, sub-graphs where they stand, so producers are met first.
static void gather(const hn_pass_ctx *ctx, groups *g, const hn_graph *graph) {
    for (const hn_node *node = graph->first; node; node = node->next) {
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) gather(ctx, g, node->attrs[i].graph);
        if (!joins(ctx, g, node)) continue;
        g->parent[node->id] = node->id;
        for (int i = 0; i < node->input_count; i++) {
            const hn_value *in = node->inputs[i];
            if (!in) continue;
            if (in->producer)
                join(g, in->producer->id, node->id);
            else if (g->user[in->id])
                join(g, g->user[in->id] - 1, node->id);
            else
                g->user[in->id] = node->id + 1;
        }
    }
}

static bool used_outside(const groups *g, const hn_value *value) {
    for (size_t u = 0; u < value->uses.count; u++)
        if (!in_group(g, value->uses.data[u].node)) return true;
    return value->graph_output_uses > 0;
}

// What each group adds (values that others read) and takes away (constants that only it reads).
static void weigh(const hn_pass_ctx *ctx, groups *g) {
    const hn_module *module = ctx->module;
    for (size_t i = 0; i < module->graphs.count; i++) {
        const hn_graph *graph = module->graphs.data[i];
        for (size_t j = 0; j < graph->values.count; j++) {
            const hn_value *value = graph->values.data[j];
            int64_t bytes;
            if (in_group(g, value->producer) && used_outside(g, value) &&
                known_bytes(value, &bytes))
                g->growth[root_of(g, value->producer->id)] += bytes;
            if (hn_pass_constant(ctx, value) && g->user[value->id] && !used_outside(g, value))
                g->growth[root_of(g, g->user[value->id] - 1)] -= (int64_t)value->constant->bytes;
        }
    }
}

static bool group_may_go(const hn_pass_ctx *ctx, const groups *g, const hn_node *node) {
    return in_group(g, node) && g->growth[root_of(g, node->id)] <= (int64_t)ctx->fold_limit_bytes;
}

// ---- folding ------------------------------------------------------------------------------------

// False where the result would be too large.
static bool within_bounds(const hn_pass_ctx *ctx, const hn_node *node) {
    size_t total = 0, allowed = freed_bytes(node) + ctx->fold_limit_bytes;
    for (int i = 0; i < node->output_count; i++) {
        int64_t bytes;
        if (!node->outputs[i]) continue;
        if (hn_op_has(node->op, HN_T_DYNAMIC)) continue; // known after the run
        if (!known_bytes(node->outputs[i], &bytes)) return false;
        if (!hn_add_size(total, (size_t)bytes, &total)) return false;
    }
    return total <= allowed;
}

#define MAX_IO 64

static hn_status fold_node(hone_error *err, hn_pass_ctx *ctx, hn_node *node, bool any_size) {
    const hn_tensor *inputs[MAX_IO];
    hn_tensor results[MAX_IO];
    if (node->input_count > MAX_IO || node->output_count > MAX_IO) return HONE_OK;
    size_t allowed = any_size ? SIZE_MAX : freed_bytes(node) + ctx->fold_limit_bytes, total = 0;
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
        else
            hn_pass_replace(ctx, olds[i], constant);
    }
    for (int i = 0; i < outputs; i++)
        hn_tensor_free(&results[i]);
    return status;
}

// Weights that a file stores in 16 bits: a session computes with float32 and gives the memory.
static bool stored_narrow(const hn_pass_ctx *ctx, const hn_node *node) {
    if (!ctx->expand_storage || !hn_pass_is(node, "Cast")) return false;
    hn_dtype from = node->inputs[0]->type.dtype, to = node->outputs[0]->type.dtype;
    return (from == HN_F16 || from == HN_BF16) && to == HN_F32;
}

static hn_status fold_graph(hone_error *err, hn_pass_ctx *ctx, const groups *g, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(fold_graph(err, ctx, g, node->attrs[i].graph));
        hn_value *out = node->output_count == 1 ? node->outputs[0] : NULL;
        if (out && !out->graph_output_uses && !hn_pass_pinned(ctx, out) && known_elems(out) &&
            !hn_op_has(node->op, HN_T_QUANT | HN_T_RANDOM)) {
            HN_TRY(fold_elems(err, ctx, out));
            continue;
        }
        if (!foldable(ctx, node)) continue;
        // Constants made in this sweep give this node its shapes.
        if (hn_infer_node(NULL, node) != HONE_OK) continue;
        bool grouped = group_may_go(ctx, g, node) || stored_narrow(ctx, node);
        if (grouped || within_bounds(ctx, node)) HN_TRY(fold_node(err, ctx, node, grouped));
    }
    return HONE_OK;
}

static hone_status float_weights_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (!hn_pass_is(node, "DequantizeLinear")) continue;
        const hn_value *out = node->outputs[0];
        bool constant = out && !out->graph_output_uses && !hn_pass_pinned(ctx, out);
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] && !hn_pass_constant(ctx, node->inputs[i])) constant = false;
        if (constant) HN_TRY(fold_node(err, ctx, node, true));
    }
    return HONE_OK;
}

hone_status hn_pass_float_weights(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, float_weights_graph);
}

hone_status hn_pass_fold(hone_error *err, hn_pass_ctx *ctx) {
    size_t nodes = (size_t)ctx->module->next_node_id + 1;
    size_t values = (size_t)ctx->module->next_value_id + 1;
    groups g = {hn_malloc(nodes * sizeof *g.parent), hn_calloc(nodes, sizeof *g.growth),
                hn_calloc(values, sizeof *g.user), 0};
    hone_status status;
    if (g.parent && g.growth && g.user) {
        memset(g.parent, 0xff, nodes * sizeof *g.parent);
        gather(ctx, &g, ctx->module->main);
        weigh(ctx, &g);
        status = fold_graph(err, ctx, &g, ctx->module->main);
    } else {
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (folding)");
    }
    hn_free(g.parent);
    hn_free(g.growth);
    hn_free(g.user);
    return status;
}
