// SPDX-License-Identifier: Apache-2.0
// Random ops. The stream depends on the node's 'seed' attribute if it has one, else on the call's
// seed: equal seeds give equal results on every machine.
#include "ops/random.h"
#include <math.h>

static hn_rng node_rng(const hn_call *call) {
    const hn_attr *given = hn_node_attr(call->node, "seed");
    if (!given) return hn_rng_seed(call->seed);
    uint32_t bits;
    memcpy(&bits, &given->f, sizeof bits);
    return hn_rng_seed(bits);
}

static hn_status wanted_dtype(hone_error *err, const hn_infer *ctx, hn_dtype otherwise,
                              hn_dtype *out_dtype) {
    const hn_attr *attr = hn_node_attr(ctx->node, "dtype");
    *out_dtype = attr ? hn_dtype_from_onnx(attr->i) : otherwise;
    if (attr && *out_dtype == HN_NONE)
        HN_BAD_NODE(err, ctx->node, "element type %lld does not exist", (long long)attr->i);
    return HONE_OK;
}

hone_status hn_infer_random(hone_error *err, hn_infer *ctx) {
    int64_t shape[HN_MAX_RANK];
    int rank;
    hn_dtype dtype;
    HN_TRY(hn_infer_attr_ints(err, ctx, "shape", shape, HN_MAX_RANK, &rank));
    HN_TRY(wanted_dtype(err, ctx, HN_F32, &dtype));
    for (int d = 0; d < rank; d++)
        if (shape[d] < 0) HN_BAD_NODE(err, ctx->node, "dim %d is negative", d);
    hn_infer_set(ctx, 0, dtype, rank, shape);
    return HONE_OK;
}

hone_status hn_infer_random_like(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    hn_dtype dtype;
    HN_TRY(wanted_dtype(err, ctx, type->dtype, &dtype));
    hn_infer_set(ctx, 0, dtype, type->rank, type->dims);
    return HONE_OK;
}

hone_status hn_ref_random(hone_error *err, const hn_call *call) {
    (void)err;
    const hn_node *node = call->node;
    bool normal = node->op == HN_OP_RANDOM_NORMAL || node->op == HN_OP_RANDOM_NORMAL_LIKE;
    double base = (double)hn_op_float(node, normal ? "mean" : "low");
    double span = (double)hn_op_float(node, normal ? "scale" : "high") - (normal ? 0 : base);
    hn_rng rng = node_rng(call);
    int64_t count = hn_tensor_count(call->outputs[0]);
    for (int64_t i = 0; i < count; i++)
        hn_tensor_set_f64(call->outputs[0], i,
                          base + span * (normal ? hn_rng_normal(&rng) : hn_rng_uniform(&rng)));
    return HONE_OK;
}

hone_status hn_ref_bernoulli(hone_error *err, const hn_call *call) {
    (void)err;
    hn_rng rng = node_rng(call);
    int64_t count = hn_tensor_count(call->outputs[0]);
    for (int64_t i = 0; i < count; i++)
        hn_tensor_set_f64(call->outputs[0], i,
                          hn_rng_uniform(&rng) < hn_tensor_get_f64(call->inputs[0], i));
    return HONE_OK;
}

hone_status hn_infer_multinomial(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    hn_dtype dtype;
    HN_TRY(wanted_dtype(err, ctx, HN_I32, &dtype));
    int64_t samples = hn_op_int(ctx->node, "sample_size");
    if (samples < 0) HN_BAD_NODE(err, ctx->node, "the sample size is negative");
    if (type->rank >= 0 && type->rank != 2)
        HN_BAD_NODE(err, ctx->node, "the input has %d dims where 2 are due", type->rank);
    hn_dim dims[2] = {type->rank == 2 ? type->dims[0] : hn_dim_fresh(ctx->dims, 0, INT64_MAX),
                      samples};
    hn_infer_set(ctx, 0, dtype, 2, dims);
    return HONE_OK;
}

// Inputs are unnormalised log probabilities: a class is drawn with chance exp(x) / sum.
hone_status hn_ref_multinomial(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    int64_t classes = in->shape.dims[1], samples = out->shape.dims[1];
    if (!classes && hn_tensor_count(out))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "there are no classes to draw from");
    hn_rng rng = node_rng(call);
    for (int64_t b = 0; b < out->shape.dims[0]; b++) {
        double top = -INFINITY, sum = 0;
        for (int64_t c = 0; c < classes; c++)
            top = fmax(top, hn_tensor_get_f64(in, b * classes + c));
        for (int64_t c = 0; c < classes; c++)
            sum += exp(hn_tensor_get_f64(in, b * classes + c) - top);
        for (int64_t s = 0; s < samples; s++) {
            double left = hn_rng_uniform(&rng) * sum;
            int64_t pick = 0;
            for (; pick < classes - 1; pick++) {
                left -= exp(hn_tensor_get_f64(in, b * classes + pick) - top);
                if (left < 0) break;
            }
            hn_tensor_set_i64(out, b * samples + s, pick);
        }
    }
    return HONE_OK;
}
