// SPDX-License-Identifier: Apache-2.0
// Running references: one node on concrete tensors, with its posts written out.
//
// hn_ref_run works on a scratch module that holds a copy of the node alone, its inputs as constants:
// inference then gives concrete output shapes, and the caller's graph stays as it is.
#include "ops/ops.h"

hn_status hn_call_output(hone_error *err, const hn_call *call, int index, hn_dtype dtype,
                         const hn_shape *shape) {
    if (index >= call->output_count || !call->outputs[index]) return HONE_OK;
    hn_tensor *out = call->outputs[index];
    hn_tensor_free(out);
    return hn_tensor_new(err, dtype, shape, out);
}

// What computing in bf16 means: both factors are rounded, sums and results are float32.
static hn_status call_narrow(hone_error *err, const hn_call *call) {
    hn_tensor rounded[2] = {{0}};
    const hn_tensor *inputs[64];
    char label[160];
    hone_status status = HONE_OK;
    if (call->input_count > 64)
        HN_FAIL(err, HONE_ERR_LIMIT, "%s has more than 64 inputs", call->node->op_type);
    memcpy(inputs, call->inputs, (size_t)call->input_count * sizeof *inputs);
    for (int i = 0; i < 2 && status == HONE_OK; i++) {
        const hn_tensor *in = inputs[i];
        if (!in || in->dtype != HN_F32) continue;
        status = hn_tensor_new(err, HN_F32, &in->shape, &rounded[i]);
        for (int64_t k = 0; status == HONE_OK && k < hn_tensor_count(in); k++)
            ((float *)rounded[i].data)[k] =
                hn_bf16_to_f32(hn_f32_to_bf16(((const float *)in->data)[k]));
        inputs[i] = &rounded[i];
    }
    hn_call inner = *call;
    inner.inputs = inputs;
    if (status == HONE_OK) status = hn_op_get(call->node->op)->ref(err, &inner);
    if (status != HONE_OK)
        hn_error_frame(err, "running %s", hn_node_label(call->node, label, sizeof label));
    hn_tensor_free(&rounded[0]);
    hn_tensor_free(&rounded[1]);
    return status;
}

hn_status hn_ref_call(hone_error *err, const hn_node *node, const hn_tensor *const *inputs,
                      int input_count, hn_tensor *const *outputs, int output_count, uint64_t seed) {
    const hn_op_info *info = hn_op_get(node->op);
    char label[160];
    if (!info->ref)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: the operator %s has no reference here",
                hn_node_label(node, label, sizeof label), node->op_type);
    hn_call call = {node, input_count, output_count, inputs, outputs, seed};
    if (node->compute == HN_BF16 && input_count >= 2 && !*node->domain) return call_narrow(err, &call);
    HN_TRY_CTX(err, info->ref(err, &call), "running %s", hn_node_label(node, label, sizeof label));
    return HONE_OK;
}

// ---- posts --------------------------------------------------------------------------------------
static hn_value *scalar(hn_graph *graph, float value, hn_dtype dtype) {
    if (dtype == HN_F32 || dtype == HN_NONE) return hn_graph_add_const_f32(graph, value);
    hn_tensor tensor;
    hn_shape shape = {0};
    if (hn_tensor_new(NULL, dtype, &shape, &tensor) != HONE_OK) return NULL;
    hn_tensor_set_f64(&tensor, 0, value);
    return hn_graph_add_constant(graph, "", &tensor);
}

// One post as nodes before `before`; returns the new accumulator or NULL when out of memory.
static hn_value *expand_post(hn_node *node, const hn_post *post, hn_value *acc, hn_node *before) {
    hn_graph *graph = node->graph;
    hn_value *operand = post->input >= 0 ? node->inputs[post->input] : NULL;
    hn_value *scale = post->scale >= 0 ? node->inputs[post->scale] : NULL;
    hn_value *zero = post->zero >= 0 ? node->inputs[post->zero] : NULL;
    hn_op quantize = hn_op_find("", "QuantizeLinear");
    if (post->op == quantize) {
        hn_value *in[] = {acc, scale, zero};
        return hn_build(graph, before, quantize, in, zero ? 3 : 2);
    }
    if (operand && scale) {
        hn_value *in[] = {operand, scale, zero};
        operand = hn_build(graph, before, hn_op_find("", "DequantizeLinear"), in, zero ? 3 : 2);
        if (!operand) return NULL;
    }
    hn_value *in[3] = {acc};
    int count = 1;
    if (operand) {
        in[post->swapped ? 1 : 0] = acc;
        in[post->swapped ? 0 : 1] = operand;
        count = 2;
    }
    hn_op clip = hn_op_find("", "Clip");
    if (post->op == clip) {
        in[1] = scalar(graph, post->alpha, acc->type.dtype);
        in[2] = scalar(graph, post->beta, acc->type.dtype);
        if (!in[1] || !in[2]) return NULL;
        count = 3;
    }
    hn_node *made = hn_node_make(graph, before, post->op, in, count, 1);
    if (!made) return NULL;
    if (post->op == hn_op_find("", "Cast") && !hn_node_set_int(made, "to", (int64_t)post->alpha)) return NULL;
    const char *schema = hn_op_get(post->op)->attrs;
    if (post->op != clip) {
        if (strstr(schema, "alpha:f") && !hn_node_set_float(made, "alpha", post->alpha)) return NULL;
        if (strstr(schema, "beta:f") && !hn_node_set_float(made, "beta", post->beta)) return NULL;
        // Gelu's tanh form is marked by alpha 1.
        if (strstr(schema, "approximate:s") && post->alpha == 1 &&
            !hn_node_set_string(made, "approximate", "tanh"))
            return NULL;
    }
    if (hn_infer_node(NULL, made) != HONE_OK) return NULL;
    return made->outputs[0];
}

hn_status hn_post_expand(hone_error *err, hn_node *node) {
    if (!node->post_count) return HONE_OK;
    hn_value *old = node->outputs[0];
    hn_node *before = node->next;
    hn_value *acc = hn_value_new(node->graph, "");
    if (!acc) HN_NOMEM(err, "writing out fused steps");
    int post_count = node->post_count;
    // The node gets a new output; the old value (with its name and uses) moves to the chain's end.
    old->producer = NULL;
    node->outputs[0] = NULL;
    node->post_count = 0;
    hn_node_set_output(node, 0, acc);
    acc->type = old->type;
    if (!hn_dtype_is_float(old->type.dtype) || node->post[post_count - 1].op == hn_op_find("", "Cast"))
        acc->type.dtype = HN_F32; // behind it: QuantizeLinear
    hn_value *last = acc;
    for (int p = 0; p < post_count && last; p++)
        last = expand_post(node, &node->post[p], last, before);
    if (!last) HN_NOMEM(err, "writing out fused steps");
    hn_node *end = last->producer;
    hn_node_set_output(end, 0, old);
    old->type = last->type;
    for (int i = node->base_input_count; i < node->input_count; i++)
        hn_node_set_input(node, i, NULL);
    node->input_count = node->base_input_count;
    return hn_infer_node(err, node);
}

// ---- scratch module -----------------------------------------------------------------------------
static hn_status scratch_node(hone_error *err, hn_module *scratch, const hn_node *node,
                              const hn_tensor *const *inputs, int input_count,
                              hn_node **out_node) {
    hn_value *values[64] = {0};
    if (input_count > 64)
        HN_FAIL(err, HONE_ERR_LIMIT, "%s has more than 64 inputs", node->op_type);
    for (int i = 0; i < input_count; i++) {
        if (!inputs[i]) continue;
        hn_tensor copy = hn_tensor_ref(inputs[i]);
        values[i] = hn_graph_add_constant(scratch->main, "", &copy);
        if (!values[i]) HN_NOMEM(err, "running a reference");
    }
    hn_node *made =
        hn_graph_add_node(scratch->main, NULL, node->op, node->op_type, node->domain,
                          node->version, values, input_count, node->output_count);
    if (!made) HN_NOMEM(err, "running a reference");
    made->name = node->name;
    // Attributes are borrowed: the scratch module goes before the caller's. Sub-graphs stay theirs.
    made->attrs = node->attrs;
    made->attr_count = node->attr_count;
    made->compute = node->compute;
    memcpy(made->post, node->post, sizeof made->post);
    made->post_count = node->post_count;
    made->base_input_count = node->post_count ? node->base_input_count : 0;
    for (int i = 0; i < node->output_count; i++)
        if (!node->outputs[i]) hn_node_set_output(made, i, NULL);
    *out_node = made;
    return HONE_OK;
}

static hn_status run_plain(hone_error *err, hn_node *node, hn_tensor *outputs, uint64_t seed) {
    char label[160];
    const hn_tensor *in[64];
    hn_tensor *out[64];
    if (node->output_count > 64)
        HN_FAIL(err, HONE_ERR_LIMIT, "%s has more than 64 outputs", node->op_type);
    for (int i = 0; i < node->input_count; i++)
        in[i] = node->inputs[i] ? node->inputs[i]->constant : NULL;
    HN_TRY(hn_infer_node(err, node));
    bool dynamic = hn_op_has(node->op, HN_T_DYNAMIC);
    for (int i = 0; i < node->output_count; i++) {
        outputs[i] = (hn_tensor){0};
        out[i] = node->outputs[i] ? &outputs[i] : NULL;
        if (!node->outputs[i] || dynamic) continue;
        hn_shape shape;
        if (!hn_type_shape(&node->outputs[i]->type, &shape) ||
            node->outputs[i]->type.dtype == HN_NONE)
            HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: the shape of output %d cannot be told",
                    hn_node_label(node, label, sizeof label), i);
        HN_TRY(hn_tensor_new(err, node->outputs[i]->type.dtype, &shape, &outputs[i]));
    }
    return hn_ref_call(err, node, in, node->input_count, out, node->output_count, seed);
}

static void free_all(hn_tensor *tensors, int count) {
    for (int i = 0; i < count; i++)
        hn_tensor_free(&tensors[i]);
}

// Runs the node and the chain that its posts became, each result a constant of the scratch module.
static hn_status run_chain(hone_error *err, hn_module *scratch, hn_node *first, hn_tensor *outputs,
                           uint64_t seed) {
    for (hn_node *node = first; node; node = node->next) {
        hn_tensor result[1] = {{0}};
        if (node->output_count != 1)
            HN_FAIL(err, HONE_ERR_INTERNAL, "%s has fused steps and %d outputs", node->op_type,
                    node->output_count);
        hone_status status = run_plain(err, node, result, seed);
        if (status != HONE_OK) {
            free_all(result, 1);
            return status;
        }
        if (!node->next) {
            outputs[0] = result[0];
            return HONE_OK;
        }
        hn_value *held = hn_graph_add_constant(scratch->main, "", &result[0]);
        if (!held) HN_NOMEM(err, "running a reference");
        hn_value_replace(node->outputs[0], held);
    }
    return HONE_OK;
}

hn_status hn_ref_run(hone_error *err, const hn_node *node, const hn_tensor *const *inputs,
                     int input_count, hn_tensor *outputs, int output_count, uint64_t seed) {
    if (output_count != node->output_count)
        HN_FAIL(err, HONE_ERR_INTERNAL, "%s: %d outputs asked of %d", node->op_type, output_count,
                node->output_count);
    hn_module *scratch = hn_module_new();
    if (!scratch) HN_NOMEM(err, "running a reference");
    hn_node *made = NULL;
    hone_status status = scratch_node(err, scratch, node, inputs, input_count, &made);
    for (int i = 0; i < output_count; i++)
        outputs[i] = (hn_tensor){0};
    if (status == HONE_OK && made->post_count) {
        // Which value is the chain's end must survive: it becomes a graph output.
        status = hn_infer_node(err, made);
        if (status == HONE_OK) status = hn_post_expand(err, made);
        if (status == HONE_OK) status = run_chain(err, scratch, made, outputs, seed);
    } else if (status == HONE_OK) {
        status = run_plain(err, made, outputs, seed);
    }
    if (status != HONE_OK) free_all(outputs, output_count);
    if (made) made->attr_count = 0; // borrowed
    hn_module_free(scratch);
    return status;
}
