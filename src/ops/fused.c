// SPDX-License-Identifier: Apache-2.0
// Small fused ops of device graphs: hn.AddNormalization, hn.Lookup and hn.QAveragePool.
//
// hn.AddNormalization(x, r, [scale], [bias]) -> y, [sum]: sum = x + r, y its LayerNormalization from
// `axis` on (`rms`: RMSNormalization, without bias). r broadcasts to x.
//
// hn.Lookup(x, table): table[x] for 8-bit x; the 256 entries stand in the order of x's bytes as
// unsigned numbers (int8 -1 reads entry 255).
//
// hn.QAveragePool(x, x_scale, x_zero, y_scale, y_zero): AveragePool of 8-bit x, dequantised, quantised as y;
// the result has y_zero's type.
#include <math.h>
#include "ops/nn_int.h"
#include "ops/ops_int.h"

// ---- AddNormalization ---------------------------------------------------------------------------
hone_status hn_infer_add_norm(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *x = hn_in_type(ctx, 0), *r = hn_in_type(ctx, 1);
    int rank;
    if (!x || !r) HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "input %d is absent", x ? 1 : 0);
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->type.dtype && node->inputs[i]->type.dtype != HN_F32)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "input %d is %s, not float32", i,
                         hn_dtype_name(node->inputs[i]->type.dtype));
    HN_TRY(hn_expect_rank(err, ctx, 1, 0, x->rank < 0 ? HN_MAX_RANK : x->rank, &rank));
    for (int d = 0; x->rank >= 0 && d < rank; d++)
        if (r->dims[d] != 1)
            HN_TRY(hn_expect_same(err, ctx, "dims of the summands", r->dims[d], x->dims[x->rank - rank + d],
                                  NULL));
    hn_node norm = *node;
    hn_value *inputs[] = {hn_in(node, 0), hn_in(node, 2), hn_in(node, 3)};
    norm.inputs = inputs;
    norm.input_count = inputs[2] ? 3 : inputs[1] ? 2 : 1;
    norm.output_count = 1;
    hn_infer inner = {&norm, ctx->module, ctx->dims};
    HN_TRY(hn_infer_layer_norm(err, &inner));
    hn_infer_set(ctx, 0, HN_F32, x->rank, x->dims);
    hn_infer_set(ctx, 1, HN_F32, x->rank, x->dims);
    return HONE_OK;
}

static hone_status add_norm_with(hone_error *err, const hn_call *call, hn_tensor *sum) {
    hn_walk walk;
    HN_TRY(hn_walk_init(err, &sum->shape, call->inputs, 2, &walk));
    for (float *to = sum->data; hn_walk_next(&walk); to += walk.row)
        for (int64_t k = 0; k < walk.row; k++) {
            const float *x = call->inputs[0]->data, *r = call->inputs[1]->data;
            to[k] = x[walk.offsets[0] + k * hn_walk_step(&walk, 0)] +
                    r[walk.offsets[1] + k * hn_walk_step(&walk, 1)];
        }
    hn_walk_free(&walk);
    const hn_tensor *inputs[] = {sum, hn_call_in(call, 2), hn_call_in(call, 3)};
    hn_tensor *outputs[] = {hn_call_out(call, 0)};
    hn_call norm = *call;
    norm.inputs = inputs;
    norm.outputs = outputs;
    norm.input_count = 3;
    norm.output_count = 1;
    HN_TRY(hn_op_int(call->node, "rms") ? hn_ref_rms_norm(err, &norm) : hn_ref_layer_norm(err, &norm));
    hn_tensor *out = hn_call_out(call, 1);
    if (out) memcpy(out->data, sum->data, sum->bytes);
    return HONE_OK;
}

hone_status hn_ref_add_norm(hone_error *err, const hn_call *call) {
    hn_tensor sum = {0};
    HN_TRY(hn_tensor_new(err, HN_F32, &call->inputs[0]->shape, &sum));
    hone_status status = add_norm_with(err, call, &sum);
    hn_tensor_free(&sum);
    return status;
}

void hn_cost_add_norm(const hn_node *node, hn_cost *out_cost) {
    hn_cost_norm(node, out_cost);
    hn_shape shape;
    int64_t count;
    if (hn_type_shape(&node->inputs[0]->type, &shape) && hn_shape_count(&shape, &count))
        out_cost->flops += (double)count;
}

// ---- Lookup -------------------------------------------------------------------------------------
hone_status hn_infer_lookup(hone_error *err, hn_infer *ctx) {
    const hn_type *x = hn_in_type(ctx, 0), *table = hn_in_type(ctx, 1);
    int rank;
    if (!x || !table) HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d is absent", x ? 1 : 0);
    HN_TRY(hn_expect_8bit(err, ctx, 0));
    HN_TRY(hn_expect_8bit(err, ctx, 1));
    HN_TRY(hn_expect_rank(err, ctx, 1, 1, 1, &rank));
    if (rank == 1) HN_TRY(hn_expect_same(err, ctx, "entries of the table and 256", table->dims[0], 256, NULL));
    hn_infer_first(ctx, 0, table->dtype);
    return HONE_OK;
}

hone_status hn_ref_lookup(hone_error *err, const hn_call *call) {
    const uint8_t *x = call->inputs[0]->data, *table = call->inputs[1]->data;
    uint8_t *y = call->outputs[0]->data;
    int64_t count = hn_tensor_count(call->inputs[0]);
    (void)err;
    for (int64_t i = 0; i < count; i++)
        y[i] = table[x[i]];
    return HONE_OK;
}

// ---- QAveragePool -------------------------------------------------------------------------------
hone_status hn_infer_q_average_pool(hone_error *err, hn_infer *ctx) {
    const hn_type *x = hn_in_type(ctx, 0), *zero = hn_in_type(ctx, 4);
    int rank;
    for (int i = 0; i < 5; i++)
        if (!hn_in(ctx->node, i)) HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d is absent", i);
    HN_TRY(hn_expect_8bit(err, ctx, 0));
    HN_TRY(hn_expect_8bit(err, ctx, 4));
    if (x->dtype && hn_in_type(ctx, 2)->dtype && x->dtype != hn_in_type(ctx, 2)->dtype)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the data is %s, its zero point %s", hn_dtype_name(x->dtype),
                     hn_dtype_name(hn_in_type(ctx, 2)->dtype));
    for (int i = 1; i < 5; i++) {
        HN_TRY(hn_expect_rank(err, ctx, i, 0, 1, &rank));
        if (rank == 1)
            HN_TRY(hn_expect_same(err, ctx, "parameters and 1", hn_in_type(ctx, i)->dims[0], 1, NULL));
    }
    hn_node as_float = *ctx->node;
    hn_value real = *hn_in(ctx->node, 0), *inputs[] = {&real};
    real.type.dtype = HN_F32;
    as_float.inputs = inputs;
    as_float.input_count = 1;
    hn_infer inner = {&as_float, ctx->module, ctx->dims};
    HN_TRY(hn_infer_pool(err, &inner));
    if (hn_out(ctx->node, 0)) hn_out(ctx->node, 0)->type.dtype = zero->dtype;
    return HONE_OK;
}

static hone_status pooled(hone_error *err, const hn_call *call, hn_tensor *x, hn_tensor *y) {
    const hn_tensor *q = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    float scale = (float)hn_tensor_get_f64(call->inputs[1], 0), to = (float)hn_tensor_get_f64(call->inputs[3], 0);
    int64_t zero = hn_tensor_get_i64(call->inputs[2], 0), add = hn_tensor_get_i64(call->inputs[4], 0);
    double low = out->dtype == HN_I8 ? -128 : 0, high = out->dtype == HN_I8 ? 127 : 255;
    HN_TRY(hn_tensor_new(err, HN_F32, &q->shape, x));
    HN_TRY(hn_tensor_new(err, HN_F32, &out->shape, y));
    for (int64_t i = 0; i < hn_tensor_count(q); i++)
        ((float *)x->data)[i] = (float)(hn_tensor_get_i64(q, i) - zero) * scale;
    const hn_tensor *inputs[] = {x};
    hn_tensor *outputs[] = {y};
    hn_call pool = *call;
    pool.inputs = inputs;
    pool.outputs = outputs;
    pool.input_count = pool.output_count = 1;
    HN_TRY(hn_ref_average_pool(err, &pool));
    for (int64_t i = 0; i < hn_tensor_count(out); i++) {
        double v = (double)nearbyintf(((const float *)y->data)[i] / to) + (double)add;
        hn_tensor_set_i64(out, i, (int64_t)(v < low ? low : v > high ? high : v));
    }
    return HONE_OK;
}

hone_status hn_ref_q_average_pool(hone_error *err, const hn_call *call) {
    hn_tensor x = {0}, y = {0};
    hone_status status = pooled(err, call, &x, &y);
    hn_tensor_free(&x);
    hn_tensor_free(&y);
    return status;
}
