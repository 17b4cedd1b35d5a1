// SPDX-License-Identifier: Apache-2.0
// Device pass: element-wise steps behind a heavy node become its posts (ir/graph.h), so that a
// kernel does them while the result is still in registers or cache.
//
// A step is taken when it is the heavy node's only user and keeps its shape and float32. The heavy
// node moves down to the step's place: its own inputs stay defined, the step's other operand is.
#include "passes/pass_int.h"

// What may become a post or a step of hn.Elementwise: every backend of device graphs has these in
// float32.
static const struct {
    const char *op;
    bool binary;
} k_steps[] = {
    {"Abs", false},       {"Clip", false}, {"Elu", false},         {"Erf", false},
    {"Exp", false},       {"Gelu", false}, {"HardSigmoid", false}, {"HardSwish", false},
    {"LeakyRelu", false}, {"Neg", false},  {"Relu", false},        {"Sigmoid", false},
    {"Softplus", false},  {"Sqrt", false}, {"Swish", false},       {"Tanh", false},
    {"Add", true},        {"Div", true},   {"Max", true},          {"Min", true},
    {"Mul", true},        {"PRelu", true}, {"Sub", true},
};

static bool heavy(const hn_node *node) {
    return hn_pass_is(node, "Conv") || hn_pass_is(node, "ConvTranspose") ||
           hn_pass_is(node, "Gemm") || hn_pass_is(node, "MatMul");
}

static bool only_output(const hn_node *node) {
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i]) return false;
    return node->output_count > 0 && node->outputs[0];
}

bool hn_pass_step_known(const char *op_type, bool *out_binary) {
    for (size_t row = 0; row < HN_COUNT_OF(k_steps); row++)
        if (!strcmp(k_steps[row].op, op_type)) {
            *out_binary = k_steps[row].binary;
            return true;
        }
    return false;
}

bool hn_pass_clip_bounds(const hn_node *clip, float *out_low, float *out_high) {
    *out_low = -__builtin_inff();
    *out_high = __builtin_inff();
    float *bounds[] = {out_low, out_high};
    for (int i = 0; i < 2; i++) {
        const hn_value *bound = hn_in(clip, i + 1);
        if (!bound) continue;
        if (!bound->constant || hn_tensor_count(bound->constant) != 1) return false;
        *bounds[i] = (float)hn_tensor_get_f64(bound->constant, 0);
    }
    return true;
}

// The element type of a step: float32; `wide`: the 16-bit floats too.
static bool fuses(hn_dtype dtype, bool wide) {
    return dtype == HN_F32 || (wide && (dtype == HN_F16 || dtype == HN_BF16));
}

static bool post_of(const hn_pass_ctx *ctx, const hn_node *producer, bool wide, hn_node **out_step,
                    hn_post *out_post, hn_value **out_operand) {
    if (!only_output(producer) || producer->post_count == HN_MAX_POST) return false;
    const hn_value *value = producer->outputs[0];
    if (!fuses(value->type.dtype, wide) || !hn_pass_can_absorb(ctx, value)) return false;
    hn_node *step = value->uses.data[0].node;
    int index = value->uses.data[0].index;
    if (!only_output(step) || step->post_count || *step->domain) return false;
    const hn_value *result = step->outputs[0];
    if (!hn_pass_same_type(value, result) || hn_pass_pinned(ctx, result)) return false;
    bool binary;
    if (!hn_pass_step_known(step->op_type, &binary)) return false;
    hn_post post = {.op = step->op, .op_type = hn_op_get(step->op)->name, .input = -1, .scale = -1, .zero = -1};
    hn_value *operand = NULL;
    if (binary) {
        if (step->input_count != 2) return false;
        operand = step->inputs[1 - index];
        if (!operand || operand->type.dtype != value->type.dtype || operand->type.rank < 0) return false;
        post.swapped = index == 1;
        if (post.swapped && hn_pass_is(step, "PRelu")) return false; // the slope is no accumulator
    } else if (hn_pass_is(step, "Clip")) {
        if (index != 0 || !hn_pass_clip_bounds(step, &post.alpha, &post.beta)) return false;
    } else {
        const char *schema = hn_op_get(step->op)->attrs;
        if (strstr(schema, "alpha:f")) post.alpha = hn_op_float(step, "alpha");
        if (strstr(schema, "beta:f")) post.beta = hn_op_float(step, "beta");
        if (hn_slice_eq(hn_node_string(step, "approximate", "none"), "tanh")) post.alpha = 1;
    }
    *out_step = step;
    *out_post = post;
    *out_operand = operand;
    return true;
}

bool hn_pass_post_of(const hn_pass_ctx *ctx, const hn_node *producer, hn_node **out_step,
                     hn_post *out_post, hn_value **out_operand) {
    return post_of(ctx, producer, false, out_step, out_post, out_operand);
}

hn_status hn_pass_absorb(hone_error *err, hn_pass_ctx *ctx, hn_node *node, hn_node *step,
                         const hn_post *post) {
    hn_value *out = node->outputs[0], *result = step->outputs[0];
    if (node->post_count == 0) // the inputs that the caller appended are operands already
        HN_ASSERT(node->base_input_count > 0);
    node->post[node->post_count++] = *post;
    hn_node_move_before(node, step);
    for (int i = 0; i < step->input_count; i++)
        if (step->inputs[i] == out) hn_node_set_input(step, i, NULL);
    // The value now is what the step's result was: type and name follow.
    out->type = result->type;
    bool output = result->graph_output_uses > 0;
    hn_value_replace(result, out);
    if (!output) out->name = result->name, result->name = "";
    hn_node_remove(step);
    ctx->changes++;
    (void)err;
    return HONE_OK;
}

static hn_status absorb_steps(hone_error *err, hn_pass_ctx *ctx, hn_node *node, bool wide) {
    hn_node *step;
    hn_post post;
    hn_value *operand;
    while (post_of(ctx, node, wide, &step, &post, &operand)) {
        if (node->post_count == 0) node->base_input_count = node->input_count;
        if (operand) {
            post.input = node->input_count;
            // Moved first, so that the new input is defined before the node at every moment.
            hn_node_move_before(node, step);
            if (!hn_node_add_input(node, operand)) HN_NOMEM(err, "fusing a step");
        }
        HN_TRY(hn_pass_absorb(err, ctx, node, step, &post));
    }
    return HONE_OK;
}

hn_status hn_pass_absorb_steps(hone_error *err, hn_pass_ctx *ctx, hn_node *node) {
    return absorb_steps(err, ctx, node, false);
}

// Element-wise nodes that a backend writes kernels for can take steps as well as the heavy ones.
static bool takes_steps(const hn_node *node, bool wide) {
    if (heavy(node)) return true;
    return wide && node->op && !*node->domain && node->output_count == 1 && node->outputs[0] &&
           fuses(node->outputs[0]->type.dtype, true) &&
           (hn_op_has(node->op, HN_T_ELEMENTWISE) || hn_pass_is(node, "BatchNormalization") ||
            hn_pass_is(node, "InstanceNormalization"));
}

static hn_status absorb_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph, bool wide) {
    // Nodes move while steps go: the walk needs a list of its own. A node that has become a step of an
    // earlier one is gone and has no place in a graph any more.
    HN_VEC(hn_node *) nodes = {0};
    hone_status status = HONE_OK;
    for (int pass = 0; pass < 2 && status == HONE_OK; pass++) { // heavy ones have the first choice
        nodes.count = 0;
        for (hn_node *node = graph->first; node && status == HONE_OK; node = node->next)
            if (heavy(node) == (pass == 0) && takes_steps(node, wide) && !hn_vec_push(&nodes, node))
                status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (fusing steps)");
        for (size_t i = 0; i < nodes.count && status == HONE_OK; i++)
            if (nodes.data[i]->output_count && nodes.data[i]->outputs[0] && nodes.data[i]->outputs[0]->producer == nodes.data[i])
                status = absorb_steps(err, ctx, nodes.data[i], wide);
    }
    hn_vec_free(&nodes);
    return status;
}

static hone_status posts_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    return absorb_graph(err, ctx, graph, false);
}
hone_status hn_pass_posts(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, posts_graph);
}

static hone_status posts_wide_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    return absorb_graph(err, ctx, graph, true);
}
hone_status hn_pass_posts_wide(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, posts_wide_graph);
}

// The kernels of channel normalisations end with a leaky activation.
static hone_status posts_norm_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        hn_node *step;
        hn_post post;
        hn_value *operand;
        next = node->next;
        if ((!hn_pass_is(node, "InstanceNormalization") && !hn_pass_is(node, "GroupNormalization")) ||
            node->post_count || !post_of(ctx, node, false, &step, &post, &operand) ||
            (!hn_pass_is(step, "Relu") && !hn_pass_is(step, "LeakyRelu")))
            continue;
        node->base_input_count = node->input_count;
        HN_TRY(hn_pass_absorb(err, ctx, node, step, &post));
        next = node->next;
    }
    return HONE_OK;
}
hone_status hn_pass_posts_norm(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, posts_norm_graph);
}
