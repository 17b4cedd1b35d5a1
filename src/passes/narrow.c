// SPDX-License-Identifier: Apache-2.0
// Device pass for cards: nodes marked to compute in a 16-bit float (hn_node.compute) do so with their
// operands and results stored in it, and what lies between them follows, so that values stay 16 bits wide
// from layer to layer. Casts stand where float32 begins and ends.
//
// A node follows where all float32 values it reads are there in 16 bits and some of its results are read
// in 16 bits. Normalisations, softmax and means follow with their storage only: kernels compute them in
// float32. What is steep or sums without bound (exp, log, powers, reductions) stays float32, and so does
// what leads to the graph's outputs alone. Quantised layers (hn.QConv, hn.QMatMul) end with a Cast of their
// own; QuantizeLinear reads either type.
#include "passes/pass_int.h"

typedef struct narrower {
    hn_pass_ctx *ctx;
    hn_graph *graph;
    hn_dtype dtype;
    bool *in;          // by node id: computes in dtype
    bool *there;       // by value id: is there in dtype
    uint32_t nodes, values;
    hn_value **low;    // by value id: the Cast of a float32 value, once made
} narrower;

static bool is_quantised_layer(const hn_node *node) {
    return !strcmp(node->domain, "hn") && (!strcmp(node->op_type, "QConv") || !strcmp(node->op_type, "QMatMul"));
}

static bool is_layer(const hn_node *node) {
    static const char *const k_ops[] = {"Conv", "ConvTranspose", "MatMul", "Gemm", "Attention"};
    for (size_t i = 0; i < HN_COUNT_OF(k_ops); i++)
        if (hn_pass_is(node, k_ops[i])) return true;
    return false;
}

static bool may_follow(const hn_node *node) {
    static const char *const k_ops[] = {
        "Add", "Sub", "Mul", "Div", "Max", "Min", "Neg", "Abs", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "Gelu",
        "HardSwish", "HardSigmoid", "Swish", "Elu", "Softplus", "Identity", "Dropout", "Reshape", "Transpose", "Flatten", "Squeeze",
        "Unsqueeze", "Slice", "Concat", "Split", "Pad", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Gather", "Where",
        "Resize", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Softmax", "LayerNormalization",
        "RMSNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization"};
    for (size_t i = 0; i < HN_COUNT_OF(k_ops); i++)
        if (hn_pass_is(node, k_ops[i])) return true;
    return false;
}

// Operands of a quantised layer's steps that come as numbers may come in 16 bits.
static bool is_step_operand(const hn_node *node, int index) {
    for (int i = 0; i < node->post_count; i++)
        if (node->post[i].input == index) return node->post[i].scale < 0 && !node->inputs[index]->constant;
    return false;
}

// An operand that is stored in 16 bits with the node: parameters by number or of statistics are not.
static bool operand_follows(const hn_node *node, int index) {
    const hn_value *in = node->inputs[index];
    if (!in || in->type.dtype != HN_F32) return false;
    if (hn_pass_is(node, "Resize") || hn_pass_is(node, "BatchNormalization")) return index == 0;
    return !is_quantised_layer(node);
}

static bool plain_float(const hn_node *node) {
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && node->outputs[i]->type.dtype != HN_F32) return false;
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].type == HN_ATTR_GRAPH) return false;
    return node->output_count > 0 && node->outputs[0] && !node->post_count;
}

static bool follows(const narrower *n, const hn_node *node) {
    bool any = false;
    if (!may_follow(node) || !plain_float(node)) return false;
    for (int i = 0; i < node->input_count; i++) {
        if (!operand_follows(node, i) || node->inputs[i]->constant) continue;
        if (node->inputs[i]->id >= n->values || !n->there[node->inputs[i]->id]) return false;
        any = true;
    }
    return any;
}

static void mark(narrower *n) {
    for (hn_node *node = n->graph->first; node; node = node->next) {
        bool quantised = is_quantised_layer(node);
        n->in[node->id] = node->compute == n->dtype && node->outputs[0] && node->outputs[0]->type.dtype == HN_F32 &&
                          (quantised || (is_layer(node) && plain_float(node)));
        for (int i = 0; n->in[node->id] && i < node->input_count; i++)
            if (operand_follows(node, i)) n->there[node->inputs[i]->id] = true;
    }
    for (hn_node *node = n->graph->first; node; node = node->next) {
        if (!n->in[node->id]) n->in[node->id] = follows(n, node);
        for (int i = 0; n->in[node->id] && i < node->output_count; i++)
            if (node->outputs[i]) n->there[node->outputs[i]->id] = true;
    }
}

static bool reads_narrow(const narrower *n, const hn_use *use) {
    const hn_node *node = use->node;
    if (node->graph != n->graph) return false;
    if (hn_pass_is(node, "QuantizeLinear") && use->index == 0) return true;
    if (is_quantised_layer(node)) return is_step_operand(node, use->index);
    return node->id < n->nodes && n->in[node->id] && operand_follows(node, use->index);
}

// What only float32 reads need not follow.
static void unmark(narrower *n) {
    for (hn_node *node = n->graph->last; node; node = node->prev) {
        if (!n->in[node->id] || node->compute == n->dtype) continue;
        bool wanted = false;
        for (int i = 0; i < node->output_count && !wanted; i++)
            for (size_t u = 0; node->outputs[i] && u < node->outputs[i]->uses.count && !wanted; u++)
                wanted = reads_narrow(n, &node->outputs[i]->uses.data[u]);
        n->in[node->id] = wanted;
    }
}

// ---- the rewrite --------------------------------------------------------------------------------
static int onnx_type(hn_dtype dtype) { return dtype == HN_F16 ? 10 : dtype == HN_BF16 ? 16 : 1; }

static hn_node *cast_make(hn_graph *graph, hn_node *before, hn_value *value, hn_dtype to) {
    hn_node *cast = hn_node_make(graph, before, hn_op_find("", "Cast"), &value, 1, 1);
    if (!cast || !hn_node_set_int(cast, "to", onnx_type(to))) return NULL;
    cast->version = 13;
    cast->outputs[0]->type = value->type;
    cast->outputs[0]->type.dtype = to;
    return cast;
}

static hn_status low_constant(hone_error *err, narrower *n, hn_node *at, const hn_tensor *wide, hn_value **out) {
    hn_tensor low;
    HN_TRY(hn_tensor_new(err, n->dtype, &wide->shape, &low));
    const float *from = wide->data;
    uint16_t *to = low.data;
    int64_t count = hn_tensor_count(wide);
    for (int64_t i = 0; i < count; i++)
        to[i] = n->dtype == HN_F16 ? hn_f32_to_f16(from[i]) : hn_f32_to_bf16(from[i]);
    *out = hn_pass_add_constant(at, &low);
    hn_tensor_free(&low);
    if (!*out) HN_NOMEM(err, "narrowing a weight");
    return HONE_OK;
}

// The value in 16 bits: a constant of its own, or one Cast for all that read it.
static hn_status low_of(hone_error *err, narrower *n, hn_node *at, hn_value *value, hn_value **out) {
    *out = n->low[value->id];
    if (*out) return HONE_OK;
    if (value->constant && value->constant->dtype == HN_F32) {
        HN_TRY(low_constant(err, n, at, value->constant, out));
    } else {
        hn_node *cast = cast_make(n->graph, value->producer ? value->producer->next : n->graph->first, value, n->dtype);
        if (!cast) HN_NOMEM(err, "narrowing a value");
        *out = cast->outputs[0];
    }
    n->low[value->id] = *out;
    return HONE_OK;
}

// The node's results become 16 bits wide; readers in float32 get a Cast back.
static hn_status narrow_outputs(hone_error *err, narrower *n, hn_node *node) {
    for (int o = 0; o < node->output_count; o++) {
        hn_value *value = node->outputs[o];
        if (!value) continue;
        bool wide = value->graph_output_uses > 0;
        for (size_t u = 0; u < value->uses.count; u++)
            if (!reads_narrow(n, &value->uses.data[u])) wide = true;
        value->type.dtype = n->dtype;
        if (!wide) continue;
        hn_node *cast = cast_make(n->graph, node->next, value, HN_F32);
        if (!cast) HN_NOMEM(err, "widening a value");
        hn_value *back = cast->outputs[0];
        // Everyone reads the float32 form, then those that want 16 bits are put back.
        hn_value_replace(value, back);
        hn_node_set_input(cast, 0, value);
        for (size_t u = back->uses.count; u > 0; u--) {
            hn_use use = back->uses.data[u - 1];
            if (use.node != cast && reads_narrow(n, &use)) hn_node_set_input(use.node, use.index, value);
        }
    }
    return HONE_OK;
}

// A quantised layer writes 16 bits by itself where nobody reads more.
static hn_status end_quantised(hone_error *err, narrower *n, hn_node *node) {
    hn_value *value = node->outputs[0];
    if (node->post_count == HN_MAX_POST) return HONE_OK;
    for (size_t u = 0; u < value->uses.count; u++)
        if (!reads_narrow(n, &value->uses.data[u])) return HONE_OK;
    if (value->graph_output_uses) return HONE_OK;
    (void)err;
    if (!node->post_count) node->base_input_count = node->input_count;
    node->post[node->post_count++] = (hn_post){.op = hn_op_find("", "Cast"), .op_type = "Cast", .input = -1, .scale = -1, .zero = -1,
                                               .alpha = (float)onnx_type(n->dtype)};
    value->type.dtype = n->dtype;
    return HONE_OK;
}

static hn_status rewrite(hone_error *err, narrower *n) {
    uint32_t nodes = n->nodes;
    for (hn_node *node = n->graph->first, *next; node; node = next) {
        next = node->next;
        if (node->id >= nodes || !n->in[node->id]) continue;
        n->ctx->changes++;
        if (is_quantised_layer(node)) {
            HN_TRY(end_quantised(err, n, node));
            continue;
        }
        for (int i = 0; i < node->input_count; i++) {
            hn_value *in = node->inputs[i], *low;
            if (!operand_follows(node, i)) continue;
            HN_TRY(low_of(err, n, node, in, &low));
            hn_node_set_input(node, i, low);
        }
        HN_TRY(narrow_outputs(err, n, node));
        node->compute = HN_NONE;
    }
    return HONE_OK;
}

static hn_status narrow_to(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph, hn_dtype dtype) {
    narrower n = {.ctx = ctx, .graph = graph, .dtype = dtype, .nodes = graph->module->next_node_id, .values = graph->module->next_value_id};
    bool any = false;
    for (const hn_node *node = graph->first; node; node = node->next)
        any = any || node->compute == dtype;
    if (!any) return HONE_OK;
    n.in = hn_calloc((size_t)n.nodes + 1, sizeof *n.in);
    n.there = hn_calloc((size_t)n.values + 1, sizeof *n.there);
    n.low = hn_calloc((size_t)n.values + 1, sizeof *n.low);
    hone_status status = HONE_OK;
    if (!n.in || !n.there || !n.low) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (narrowing)");
    if (status == HONE_OK) {
        mark(&n);
        unmark(&n);
        status = rewrite(err, &n);
    }
    hn_free(n.in);
    hn_free(n.there);
    hn_free(n.low);
    return status;
}

hone_status hn_pass_narrow(hone_error *err, hn_pass_ctx *ctx) {
    HN_TRY(narrow_to(err, ctx, ctx->module->main, HN_F16));
    return narrow_to(err, ctx, ctx->module->main, HN_BF16);
}
