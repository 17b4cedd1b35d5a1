// SPDX-License-Identifier: Apache-2.0
// The quantised heavy ops of device graphs: hn.QConv and hn.QMatMul.
//
// Inputs: x, x_scale, [x_zero], w, w_scale, [w_zero], [bias float32]. x and w are 8-bit; x has one
// scale and zero point, w one or one for each output channel (QConv: dim 0 of w; QMatMul: its last
// dim); a zero point has its data's type and one element or as many as there are channels. The
// meaning is: dequantise, then Conv or MatMul in float32, then the bias, then the posts, which may
// end with QuantizeLinear.
#include "ops/nn_int.h"
#include "ops/ops_int.h"

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, BIAS, INPUTS };

// ---- inference ----------------------------------------------------------------------------------

// The scale and zero point of one operand; those of x are single, of w single or one a channel.
static hn_status infer_params(hone_error *err, const hn_infer *ctx, int data, bool channels) {
    const hn_type *x = hn_in_type(ctx, data), *scale = hn_in_type(ctx, data + 1);
    const hn_type *zero = hn_in_type(ctx, data + 2);
    int rank;
    if (!x || !scale)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d is absent", x ? data + 1 : data);
    HN_TRY(hn_expect_8bit(err, ctx, data));
    if (x->dtype && !hn_dtype_is_int(x->dtype))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d is %s, not an integer", data,
                     hn_dtype_name(x->dtype));
    if (scale->dtype && scale->dtype != HN_F32)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the scale of input %d is %s", data,
                     hn_dtype_name(scale->dtype));
    if (zero && zero->dtype && x->dtype && zero->dtype != x->dtype)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d is %s, its zero point %s", data,
                     hn_dtype_name(x->dtype), hn_dtype_name(zero->dtype));
    for (int i = data + 1; i <= data + 2; i++) {
        HN_TRY(hn_expect_rank(err, ctx, i, 0, 1, &rank));
        if (rank == 1 && !channels)
            HN_TRY(hn_expect_same(err, ctx, "parameters of the data and 1",
                                  hn_in_type(ctx, i)->dims[0], 1, NULL));
    }
    return HONE_OK;
}

// Lets the float op's function see the node as if x and w were float32.
static hn_status infer_as(hone_error *err, hn_infer *ctx, hn_infer_fn infer, bool bias) {
    HN_TRY(infer_params(err, ctx, X, false));
    HN_TRY(infer_params(err, ctx, W, true));
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
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, BIAS, 1, 1, &rank));
    return infer_as(err, ctx, hn_infer_matmul, false);
}

// ---- reference ----------------------------------------------------------------------------------

// One, or one a channel; a parameter that is not there is fine.
static hn_status check_count(hone_error *err, const hn_call *call, const hn_tensor *param,
                             int64_t channels) {
    int64_t count = param ? hn_tensor_count(param) : 1;
    if (count == 1 || count == channels) return HONE_OK;
    HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node,
                 "%lld scales, zero points or biases for %lld channels", (long long)count,
                 (long long)channels);
}

// Dense float32 copy of the operand at `data`: `inner` elements share a scale, those of `channels`
// channels repeat.
static hn_status dequantised(hone_error *err, const hn_call *call, int data, int64_t channels,
                             int64_t inner, hn_tensor *out) {
    const hn_tensor *q = call->inputs[data], *scale = call->inputs[data + 1];
    const hn_tensor *zero = data + 2 < call->input_count ? call->inputs[data + 2] : NULL;
    HN_TRY(check_count(err, call, scale, channels));
    HN_TRY(check_count(err, call, zero, channels));
    int64_t count = hn_tensor_count(q);
    bool many_scales = hn_tensor_count(scale) != 1, many_zeros = zero && hn_tensor_count(zero) != 1;
    HN_TRY(hn_tensor_new(err, HN_F32, &q->shape, out));
    for (int64_t i = 0; i < count; i++) {
        int64_t channel = i / inner % channels; // both are positive where there is an element
        int64_t offset = zero ? hn_tensor_get_i64(zero, many_zeros ? channel : 0) : 0;
        ((float *)out->data)[i] = (float)(hn_tensor_get_i64(q, i) - offset) *
                                  (float)hn_tensor_get_f64(scale, many_scales ? channel : 0);
    }
    return HONE_OK;
}

static hn_status run_as(hone_error *err, const hn_call *call, hn_ref_fn ref, int64_t channels,
                        int64_t w_inner, const hn_tensor *bias) {
    hn_tensor x = {0}, w = {0};
    hone_status status = dequantised(err, call, X, 1, 1, &x);
    if (status == HONE_OK) status = dequantised(err, call, W, channels, w_inner, &w);
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
    return run_as(err, call, hn_ref_conv, w->dims[0], hn_dims_product(w->dims, 1, w->rank),
                  bias_of(call));
}

hone_status hn_ref_q_matmul(hone_error *err, const hn_call *call) {
    const hn_shape *w = &call->inputs[W]->shape;
    const hn_tensor *bias = bias_of(call);
    hn_tensor *out = call->outputs[0];
    int64_t channels = w->dims[w->rank - 1];
    HN_TRY(check_count(err, call, bias, channels));
    HN_TRY(run_as(err, call, hn_ref_matmul, channels, 1, NULL));
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
