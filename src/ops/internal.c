// SPDX-License-Identifier: Apache-2.0
// The quantised heavy ops of device graphs: hn.QConv and hn.QMatMul.
//
// Inputs: x, x_scale, x_zero, w, w_scale, w_zero, [bias float32]. x and w are 8-bit; x has one
// scale and zero point, w one or one for each output channel (QConv: dim 0 of w; QMatMul: its last
// dim); zero points have one element or as many as the scales and are always there. The meaning is:
// dequantise, then Conv or MatMul in float32, then the bias, then the posts, which may end with
// QuantizeLinear.
#include "ops/ops_int.h"

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, BIAS, INPUTS };

// ---- inference ----------------------------------------------------------------------------------

// Lets the float op's function see the node as if x and w were float32.
static hn_status infer_as(hone_error *err, hn_infer *ctx, hn_infer_fn infer, bool bias) {
    hn_node as_float = *ctx->node;
    hn_value x = *hn_in(ctx->node, X), w = *hn_in(ctx->node, W);
    hn_value *inputs[] = {&x, &w, bias ? hn_in(ctx->node, BIAS) : NULL};
    x.type.dtype = w.type.dtype = HN_F32;
    as_float.inputs = inputs;
    as_float.input_count = bias && inputs[2] ? 3 : 2;
    as_float.post_count = 0;
    hn_infer inner = {&as_float, ctx->module, ctx->dims};
    HN_TRY(infer(err, &inner));
    if (hn_out(ctx->node, 0)) hn_out(ctx->node, 0)->type.dtype = HN_F32;
    return HONE_OK;
}

hone_status hn_infer_q_conv(hone_error *err, hn_infer *ctx) {
    return infer_as(err, ctx, hn_infer_conv, true);
}

hone_status hn_infer_q_matmul(hone_error *err, hn_infer *ctx) {
    return infer_as(err, ctx, hn_infer_matmul, false);
}

// ---- reference ----------------------------------------------------------------------------------

// Dense float32 copy; `inner` elements share a scale, `scales` of them repeat.
static hn_status dequantised(hone_error *err, const hn_tensor *q, const hn_tensor *scale,
                             const hn_tensor *zero, int64_t inner, hn_tensor *out) {
    int64_t count = hn_tensor_count(q), scales = hn_tensor_count(scale);
    HN_TRY(hn_tensor_new(err, HN_F32, &q->shape, out));
    for (int64_t i = 0; i < count; i++) {
        int64_t at = scales == 1 ? 0 : i / inner % scales;
        int64_t offset = zero ? hn_tensor_get_i64(zero, hn_tensor_count(zero) == 1 ? 0 : at) : 0;
        ((float *)out->data)[i] =
            (float)(hn_tensor_get_i64(q, i) - offset) * (float)hn_tensor_get_f64(scale, at);
    }
    return HONE_OK;
}

static hn_status run_as(hone_error *err, const hn_call *call, hn_ref_fn ref, int64_t w_inner,
                        const hn_tensor *bias) {
    hn_tensor x = {0}, w = {0};
    const hn_tensor *const *in = call->inputs;
    hone_status status = dequantised(err, in[X], in[X_SCALE], in[X_ZERO], 1, &x);
    if (status == HONE_OK) status = dequantised(err, in[W], in[W_SCALE], in[W_ZERO], w_inner, &w);
    if (status == HONE_OK) {
        const hn_tensor *inputs[] = {&x, &w, bias};
        hn_call inner = *call;
        inner.inputs = inputs;
        inner.input_count = bias ? 3 : 2;
        status = ref(err, &inner);
    }
    hn_tensor_free(&x);
    hn_tensor_free(&w);
    return status;
}

static const hn_tensor *bias_of(const hn_call *call) {
    return call->input_count > BIAS ? call->inputs[BIAS] : NULL;
}

hone_status hn_ref_q_conv(hone_error *err, const hn_call *call) {
    const hn_shape *w = &call->inputs[W]->shape;
    int64_t inner = 1;
    for (int i = 1; i < w->rank; i++)
        inner *= w->dims[i];
    return run_as(err, call, hn_ref_conv, inner, bias_of(call));
}

hone_status hn_ref_q_matmul(hone_error *err, const hn_call *call) {
    HN_TRY(run_as(err, call, hn_ref_matmul, 1, NULL));
    const hn_tensor *bias = bias_of(call);
    hn_tensor *out = call->outputs[0];
    if (!bias || !out) return HONE_OK;
    int64_t count = hn_tensor_count(out), biases = hn_tensor_count(bias);
    for (int64_t i = 0; i < count; i++)
        ((float *)out->data)[i] += (float)hn_tensor_get_f64(bias, i % biases);
    return HONE_OK;
}

// ---- cost ---------------------------------------------------------------------------------------

static void cost_as(const hn_node *node, hn_cost_fn cost, hn_cost *out_cost) {
    hn_node as_float = *node;
    hn_value *inputs[] = {hn_in(node, X), hn_in(node, W)};
    hn_cost plain = *out_cost;
    as_float.inputs = inputs;
    as_float.input_count = 2;
    cost(&as_float, &plain);
    out_cost->flops = plain.flops; // bytes stay those of the 8-bit inputs
}

void hn_cost_q_conv(const hn_node *node, hn_cost *out_cost) {
    cost_as(node, hn_cost_conv, out_cost);
}

void hn_cost_q_matmul(const hn_node *node, hn_cost *out_cost) {
    cost_as(node, hn_cost_matmul, out_cost);
}
