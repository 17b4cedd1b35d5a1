// SPDX-License-Identifier: Apache-2.0
// Losses (SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss) and the optimiser steps of
// ai.onnx.preview.training (Adagrad, Adam, Momentum).
#include <math.h>
#include "ops/nn_int.h"

// ---- losses -------------------------------------------------------------------------------------
typedef enum reduction { REDUCE_NONE, REDUCE_SUM, REDUCE_MEAN } reduction;

static hone_status read_reduction(hone_error *err, const hn_node *node, reduction *out_reduction) {
    hn_slice text = hn_op_string(node, "reduction");
    if (hn_slice_eq(text, "none")) *out_reduction = REDUCE_NONE;
    else if (hn_slice_eq(text, "sum")) *out_reduction = REDUCE_SUM;
    else if (hn_slice_eq(text, "mean")) *out_reduction = REDUCE_MEAN;
    else
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "reduction is '%.*s'", (int)text.length,
                     text.data);
    return HONE_OK;
}

static hone_status infer_loss(hone_error *err, hn_infer *ctx) {
    int rank, label_rank, weight_rank;
    reduction reduce = REDUCE_NONE;
    HN_TRY(read_reduction(err, ctx->node, &reduce));
    HN_TRY(hn_expect_rank(err, ctx, 0, 2, HN_MAX_RANK, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 1, HN_MAX_RANK - 1, &label_rank));
    HN_TRY(hn_expect_rank(err, ctx, 2, 1, 1, &weight_rank));
    const hn_type *x = hn_in_type(ctx, 0), *labels = hn_in_type(ctx, 1);
    hn_dtype dtype = x ? x->dtype : HN_NONE;
    if (reduce != REDUCE_NONE) hn_infer_set(ctx, 0, dtype, 0, NULL);
    else if (label_rank >= 0) hn_infer_set(ctx, 0, dtype, label_rank, labels->dims);
    else hn_infer_set(ctx, 0, dtype, -1, NULL);
    if (rank < 0) return HONE_OK;
    if (weight_rank == 1)
        HN_TRY(hn_expect_same(err, ctx, "number of weights and classes",
                              hn_in_type(ctx, 2)->dims[0], x->dims[1], NULL));
    if (label_rank < 0) return HONE_OK;
    if (label_rank != rank - 1)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "labels of rank %d for scores of rank %d",
                     label_rank, rank);
    for (int i = 0; i < label_rank; i++)
        HN_TRY(hn_expect_same(err, ctx, "dims of labels and scores", labels->dims[i],
                              x->dims[i ? i + 1 : 0], NULL));
    return HONE_OK;
}
HN_INFER_FN(hn_infer_nll_loss) { return infer_loss(err, ctx); }
HN_INFER_FN(hn_infer_sce_loss) {
    HN_TRY(infer_loss(err, ctx));
    const hn_value *x = hn_in(ctx->node, 0);
    if (x && x->type.rank >= 0) hn_infer_like(ctx, 1, x);
    return HONE_OK;
}

// From log-probabilities [n][classes][inner].
static hone_status loss_from(hone_error *err, const hn_call *call, hn_arena *scratch,
                             const double *log_prob) {
    const hn_tensor *tx = hn_call_in(call, 0), *tlabels = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    const int64_t *labels;
    const double *weights;
    double *losses, sum = 0, norm = 0;
    reduction reduce = REDUCE_NONE;
    HN_TRY(read_reduction(err, call->node, &reduce));
    HN_TRY(hn_load_i64(err, scratch, tlabels, &labels));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &weights));
    int64_t count = hn_tensor_count(tlabels), classes = tx->shape.dims[1];
    int64_t inner = hn_dims_product(tx->shape.dims, 2, tx->shape.rank);
    bool has_ignored = hn_node_attr(call->node, "ignore_index") != NULL;
    int64_t ignored = hn_node_int(call->node, "ignore_index", 0);
    HN_TRY(hn_scratch_f64(err, scratch, count, &losses));
    for (int64_t i = 0; i < count; i++) {
        if (has_ignored && labels[i] == ignored) continue;
        if (labels[i] < 0 || labels[i] >= classes)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "label %lld of %lld classes",
                         (long long)labels[i], (long long)classes);
        double weight = weights ? weights[labels[i]] : 1;
        double picked = log_prob[(i / inner * classes + labels[i]) * inner + i % inner];
        losses[i] = -picked * weight;
        sum += losses[i];
        norm += weight;
    }
    if (reduce == REDUCE_NONE) {
        hn_store_f64(ty, losses);
        return HONE_OK;
    }
    if (reduce == REDUCE_MEAN) sum /= norm; // all ignored: 0 / 0, as the standard has it
    hn_store_f64(ty, &sum);
    return HONE_OK;
}

static hone_status nll_loss_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const double *x;
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 0), &x));
    return loss_from(err, call, scratch, x);
}
static hone_status sce_loss_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0);
    const double *x;
    double *log_prob;
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(tx), &log_prob));
    int64_t batch = tx->shape.dims[0], classes = tx->shape.dims[1];
    int64_t inner = hn_dims_product(tx->shape.dims, 2, tx->shape.rank);
    for (int64_t n = 0; n < batch; n++)
        for (int64_t i = 0; i < inner; i++)
            hn_line_log_softmax(x + n * classes * inner + i, log_prob + n * classes * inner + i,
                                classes, inner);
    hn_store_f64(hn_call_out(call, 1), log_prob);
    return loss_from(err, call, scratch, log_prob);
}
HN_REF_FN(hn_ref_nll_loss) { return hn_ref_scratch(err, call, nll_loss_body); }
HN_REF_FN(hn_ref_sce_loss) { return hn_ref_scratch(err, call, sce_loss_body); }

// ---- optimiser steps ----------------------------------------------------------------------------
// Inputs: R, T, then one tensor a variable of each kind (X..., G..., state...); outputs the new X...
// and states. `kinds` counts the kinds of inputs (G is not an output).
static hone_status infer_step(hone_error *err, hn_infer *ctx, int kinds) {
    int count = ctx->node->input_count - 2;
    if (count < kinds || count % kinds != 0)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%d tensors in groups of %d", count, kinds);
    int variables = count / kinds;
    if (ctx->node->output_count > variables * (kinds - 1))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%d outputs", ctx->node->output_count);
    for (int i = 0; i < count; i++) {
        const hn_value *x = hn_in(ctx->node, 2 + i % variables), *other = hn_in(ctx->node, 2 + i);
        if (!x || !other) HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "a tensor is absent");
        if (x->type.rank < 0 || other->type.rank < 0) continue;
        if (x->type.rank != other->type.rank)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "tensors of one variable differ in rank");
        for (int d = 0; d < x->type.rank; d++)
            HN_TRY(hn_expect_same(err, ctx, "dims of one variable", x->type.dims[d],
                                  other->type.dims[d], NULL));
        int kind = i / variables; // 1 is the gradient
        if (kind == 0) hn_infer_like(ctx, i, x);
        else if (kind > 1) hn_infer_like(ctx, i - variables, x);
    }
    return HONE_OK;
}
HN_INFER_FN(hn_infer_adagrad) { return infer_step(err, ctx, 3); }
HN_INFER_FN(hn_infer_adam) { return infer_step(err, ctx, 4); }
HN_INFER_FN(hn_infer_momentum) { return infer_step(err, ctx, 3); }

// One element: rate, step count; x, g, states in and out.
typedef struct step_params {
    double rate, l2, a, b, epsilon, post; // a, b: the op's two decay factors
    bool nesterov;
} step_params;
typedef void (*step_fn)(const step_params *p, double *x, double g, double *s0, double *s1);

static void step_adagrad(const step_params *p, double *x, double g, double *s0, double *s1) {
    (void)s1;
    g += p->l2 * *x;
    *s0 += g * g;
    *x -= p->rate * g / (sqrt(*s0) + p->epsilon);
}
static void step_adam(const step_params *p, double *x, double g, double *s0, double *s1) {
    g += p->l2 * *x;
    *s0 = p->a * *s0 + (1 - p->a) * g;
    *s1 = p->b * *s1 + (1 - p->b) * g * g;
    *x = (1 - p->post) * (*x - p->rate * *s0 / (sqrt(*s1) + p->epsilon));
}
static void step_momentum(const step_params *p, double *x, double g, double *s0, double *s1) {
    (void)s1;
    g += p->l2 * *x;
    *s0 = p->a * *s0 + p->b * g;
    *x -= p->rate * (p->nesterov ? g + p->a * *s0 : *s0);
}

static hone_status run_steps(hone_error *err, const hn_call *call, hn_arena *scratch, int states,
                             const step_params *params, step_fn fn) {
    int variables = (call->input_count - 2) / (states + 2);
    for (int v = 0; v < variables; v++) {
        const double *in[4];
        double *out[3];
        int64_t count = hn_tensor_count(call->inputs[2 + v]);
        for (int k = 0; k < states + 2; k++)
            HN_TRY(hn_load_f64(err, scratch, call->inputs[2 + k * variables + v], &in[k]));
        for (int k = 0; k < 3; k++) HN_TRY(hn_scratch_f64(err, scratch, count, &out[k]));
        for (int64_t i = 0; i < count; i++) {
            out[0][i] = in[0][i];
            for (int k = 0; k < states; k++) out[1 + k][i] = in[2 + k][i];
            fn(params, &out[0][i], in[1][i], &out[1][i], &out[2][i]);
        }
        for (int k = 0; k <= states; k++)
            hn_store_f64(hn_call_out(call, k * variables + v), out[k]);
    }
    return HONE_OK;
}

static hone_status read_rate(hone_error *err, const hn_call *call, double *out_rate,
                             int64_t *out_step) {
    const hn_tensor *rate = hn_call_in(call, 0), *step = hn_call_in(call, 1);
    if (!rate || !step || hn_tensor_count(rate) != 1 || hn_tensor_count(step) != 1)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "rate and step count must be scalars");
    *out_rate = hn_tensor_get_f64(rate, 0);
    *out_step = hn_tensor_get_i64(step, 0);
    return HONE_OK;
}

static hone_status adagrad_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    step_params p = {.l2 = (double)hn_op_float(call->node, "norm_coefficient"),
                     .epsilon = (double)hn_op_float(call->node, "epsilon")};
    int64_t step = 0;
    HN_TRY(read_rate(err, call, &p.rate, &step));
    p.rate /= 1 + (double)step * (double)hn_op_float(call->node, "decay_factor");
    return run_steps(err, call, scratch, 1, &p, step_adagrad);
}
static hone_status adam_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    step_params p = {.l2 = (double)hn_op_float(call->node, "norm_coefficient"),
                     .post = (double)hn_op_float(call->node, "norm_coefficient_post"),
                     .epsilon = (double)hn_op_float(call->node, "epsilon"),
                     .a = (double)hn_op_float(call->node, "alpha"),
                     .b = (double)hn_op_float(call->node, "beta")};
    int64_t step = 0;
    HN_TRY(read_rate(err, call, &p.rate, &step));
    if (step > 0) p.rate *= sqrt(1 - pow(p.b, (double)step)) / (1 - pow(p.a, (double)step));
    return run_steps(err, call, scratch, 2, &p, step_adam);
}
static hone_status momentum_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    step_params p = {.l2 = (double)hn_op_float(call->node, "norm_coefficient"),
                     .a = (double)hn_op_float(call->node, "alpha"),
                     .b = (double)hn_op_float(call->node, "beta")};
    hn_slice mode = hn_op_string(call->node, "mode");
    int64_t step = 0;
    HN_TRY(read_rate(err, call, &p.rate, &step));
    if (step <= 0) p.b = 1;
    p.nesterov = hn_slice_eq(mode, "nesterov");
    if (!p.nesterov && !hn_slice_eq(mode, "standard"))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "mode is '%.*s'", (int)mode.length,
                     mode.data);
    return run_steps(err, call, scratch, 1, &p, step_momentum);
}
HN_REF_FN(hn_ref_adagrad) { return hn_ref_scratch(err, call, adagrad_body); }
HN_REF_FN(hn_ref_adam) { return hn_ref_scratch(err, call, adam_body); }
HN_REF_FN(hn_ref_momentum) { return hn_ref_scratch(err, call, momentum_body); }
