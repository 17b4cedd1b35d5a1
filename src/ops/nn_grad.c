// SPDX-License-Identifier: Apache-2.0
// Gradients of the neural-network families: forward nodes that compute them.
//
// Convolutions and pools go through internal hn.* products, which are exact for every stride, pad,
// dilation and group and map to one vendor call; the rest is written in standard ops.
#include "ops/grad_int.h"
#include "ops/nn_int.h"

static hn_value *grad_of(const hn_grad *ctx, int output) {
    return output < ctx->node->output_count ? ctx->grad_out[output] : NULL;
}

static hone_status need(hone_error *err, const hn_grad *ctx, const hn_value *value) {
    if (value) return HONE_OK;
    HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "its gradient cannot be built");
}

// Attributes of the node under differentiation, shared with the new node.
static bool copy_attrs(const hn_node *from, hn_node *to) {
    if (!to) return false;
    for (int i = 0; i < from->attr_count; i++) {
        const hn_attr *attr = &from->attrs[i];
        hn_attr *made = hn_node_add_attr(to, attr->name, attr->type);
        if (!made) return false;
        const char *name = made->name;
        *made = *attr; // lists live in the module's arena
        made->name = name;
    }
    return true;
}

// A node with the attributes of the one under differentiation.
static hn_value *grad_like(hn_grad *ctx, hn_op op, int count, hn_value *a, hn_value *b, hn_value *c) {
    hn_value *in[] = {a, b, c};
    hn_node *node = hn_node_make(ctx->graph, NULL, op, in, count, 1);
    if (!copy_attrs(ctx->node, node) || hn_infer_node(NULL, node) != HONE_OK) return NULL;
    return node->outputs[0];
}

static hn_value *with_int(hn_grad *ctx, const char *op, const char *name, int64_t number, hn_value *a,
                          hn_value *b, hn_value *c) {
    hn_value *in[] = {a, b, c};
    int count = c ? 3 : b ? 2 : 1;
    if (!a) return NULL;
    hn_node *node = hn_node_make(ctx->graph, NULL, hn_op_find("", op), in, count, 1);
    if (!node || !hn_node_set_int(node, name, number)) return NULL;
    return hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

static hn_value *sum_over(hn_grad *ctx, hn_value *value, const int64_t *axes, int count, bool keep) {
    hn_value *list = hn_grad_ints(ctx, axes, count);
    if (!value || !list) return NULL;
    return with_int(ctx, "ReduceSum", "keepdims", keep, value, list, NULL);
}

hn_status hn_grad_sum_to(hone_error *err, hn_grad *ctx, hn_value *grad, const hn_value *like,
                         hn_value **out_value) {
    HN_TRY(need(err, ctx, grad));
    const hn_type *from = &grad->type, *to = &like->type;
    int64_t lead[HN_MAX_RANK], ones[HN_MAX_RANK];
    int lead_count = 0, one_count = 0;
    if (from->rank < 0 || to->rank < 0 || from->rank < to->rank)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "the gradient needs known ranks");
    for (int i = 0; i < from->rank; i++) {
        int own = i - (from->rank - to->rank);
        if (own < 0) lead[lead_count++] = i;
        else if (to->dims[own] == 1 && from->dims[i] != 1) ones[one_count++] = i;
        else if (to->dims[own] != from->dims[i] && !(hn_dim_is_const(to->dims[own]) && to->dims[own] > 1))
            HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node,
                         "whether axis %d was broadcast is not known", i);
    }
    if (one_count) HN_TRY(need(err, ctx, grad = sum_over(ctx, grad, ones, one_count, true)));
    if (lead_count) HN_TRY(need(err, ctx, grad = sum_over(ctx, grad, lead, lead_count, false)));
    *out_value = grad;
    return HONE_OK;
}

// ---- convolutions and pools ---------------------------------------------------------------------
HN_GRAD_FN(hn_grad_conv) {
    hn_value *dy = grad_of(ctx, 0), *x = hn_in(ctx->node, 0), *w = hn_in(ctx->node, 1);
    if (!dy) return HONE_OK;
    ctx->grad_in[0] = grad_like(ctx, HN_OP_CONV_GRAD_DATA, 3, dy, w, x);
    ctx->grad_in[1] = grad_like(ctx, HN_OP_CONV_GRAD_WEIGHT, 3, dy, x, w);
    HN_TRY(need(err, ctx, ctx->grad_in[0]));
    HN_TRY(need(err, ctx, ctx->grad_in[1]));
    if (!hn_in(ctx->node, 2)) return HONE_OK;
    int64_t axes[HN_MAX_RANK] = {0};
    if (x->type.rank < 2)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "the gradient needs the data's rank");
    for (int i = 2; i < x->type.rank; i++) axes[i - 1] = i;
    ctx->grad_in[2] = sum_over(ctx, dy, axes, x->type.rank - 1, false);
    return need(err, ctx, ctx->grad_in[2]);
}

static hone_status pool_grad(hone_error *err, hn_grad *ctx, hn_op op) {
    hn_value *dy = grad_of(ctx, 0);
    if (!dy) return HONE_OK;
    ctx->grad_in[0] = grad_like(ctx, op, 2, dy, hn_in(ctx->node, 0), NULL);
    return need(err, ctx, ctx->grad_in[0]);
}
HN_GRAD_FN(hn_grad_max_pool) { return pool_grad(err, ctx, HN_OP_MAX_POOL_GRAD); }
HN_GRAD_FN(hn_grad_average_pool) { return pool_grad(err, ctx, HN_OP_AVERAGE_POOL_GRAD); }

HN_GRAD_FN(hn_grad_global_average_pool) {
    hn_value *dy = grad_of(ctx, 0), *x = hn_in(ctx->node, 0);
    if (!dy) return HONE_OK;
    // dy / (elements of x / elements of y), spread over the plane.
    hn_value *count = hn_grad_op(ctx, "Size", 1, x), *planes = hn_grad_op(ctx, "Size", 1, dy);
    hn_value *plane = hn_grad_op(ctx, "Div", 2, count, planes);
    hn_value *divisor = hn_grad_op(ctx, "CastLike", 2, plane, dy);
    hn_value *each = hn_grad_op(ctx, "Div", 2, dy, divisor);
    ctx->grad_in[0] = hn_grad_op(ctx, "Expand", 2, each, hn_grad_op(ctx, "Shape", 1, x));
    return need(err, ctx, ctx->grad_in[0]);
}

// ---- matrix products ----------------------------------------------------------------------------
static hn_value *gemm(hn_grad *ctx, hn_value *a, hn_value *b, bool trans_a, bool trans_b) {
    hn_value *in[] = {a, b};
    hn_node *node = hn_node_make(ctx->graph, NULL, hn_op_find("", "Gemm"), in, 2, 1);
    if (!node || !hn_node_set_int(node, "transA", trans_a) ||
        !hn_node_set_int(node, "transB", trans_b) ||
        !hn_node_set_float(node, "alpha", hn_op_float(ctx->node, "alpha")))
        return NULL;
    return hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

HN_GRAD_FN(hn_grad_gemm) {
    hn_value *dy = grad_of(ctx, 0), *a = hn_in(ctx->node, 0), *b = hn_in(ctx->node, 1);
    hn_value *c = hn_in(ctx->node, 2);
    bool ta = hn_op_int(ctx->node, "transA") != 0, tb = hn_op_int(ctx->node, "transB") != 0;
    if (!dy) return HONE_OK;
    ctx->grad_in[0] = ta ? gemm(ctx, b, dy, tb, true) : gemm(ctx, dy, b, false, !tb);
    ctx->grad_in[1] = tb ? gemm(ctx, dy, a, true, ta) : gemm(ctx, a, dy, !ta, false);
    HN_TRY(need(err, ctx, ctx->grad_in[0]));
    HN_TRY(need(err, ctx, ctx->grad_in[1]));
    if (!c) return HONE_OK;
    float beta = hn_op_float(ctx->node, "beta");
    hn_value *dc = dy;
    if (beta != 1) dc = hn_grad_op(ctx, "Mul", 2, dy, hn_grad_num(ctx, (double)beta, dy->type.dtype));
    return hn_grad_sum_to(err, ctx, dc, c, &ctx->grad_in[2]);
}

static hn_value *swap_last(hn_grad *ctx, hn_value *value) {
    int64_t perm[HN_MAX_RANK];
    int rank = value->type.rank;
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 1] = rank - 2;
    perm[rank - 2] = rank - 1;
    hn_node *node = hn_node_make(ctx->graph, NULL, hn_op_find("", "Transpose"), &value, 1, 1);
    if (!node || !hn_node_set_ints(node, "perm", perm, rank)) return NULL;
    return hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

static hn_value *unsqueeze(hn_grad *ctx, hn_value *value, int64_t axis) {
    return hn_grad_op(ctx, "Unsqueeze", 2, value, hn_grad_ints(ctx, &axis, 1));
}

HN_GRAD_FN(hn_grad_matmul) {
    hn_value *dy = grad_of(ctx, 0), *a = hn_in(ctx->node, 0), *b = hn_in(ctx->node, 1);
    if (!dy) return HONE_OK;
    if (a->type.rank < 1 || b->type.rank < 1)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "the gradient needs known ranks");
    // Vectors become matrices; their gradients lose the dim again.
    hn_value *wide_a = a->type.rank == 1 ? unsqueeze(ctx, a, 0) : a;
    hn_value *wide_b = b->type.rank == 1 ? unsqueeze(ctx, b, 1) : b;
    if (b->type.rank == 1) HN_TRY(need(err, ctx, dy = unsqueeze(ctx, dy, dy->type.rank)));
    if (a->type.rank == 1) HN_TRY(need(err, ctx, dy = unsqueeze(ctx, dy, dy->type.rank - 1)));
    HN_TRY(need(err, ctx, wide_a));
    HN_TRY(need(err, ctx, wide_b));
    hn_value *da = hn_grad_op(ctx, "MatMul", 2, dy, swap_last(ctx, wide_b));
    hn_value *db = hn_grad_op(ctx, "MatMul", 2, swap_last(ctx, wide_a), dy);
    HN_TRY(hn_grad_sum_to(err, ctx, da, wide_a, &da));
    HN_TRY(hn_grad_sum_to(err, ctx, db, wide_b, &db));
    int64_t first = 0, second = 1;
    if (wide_a != a) da = hn_grad_op(ctx, "Squeeze", 2, da, hn_grad_ints(ctx, &first, 1));
    if (wide_b != b) db = hn_grad_op(ctx, "Squeeze", 2, db, hn_grad_ints(ctx, &second, 1));
    HN_TRY(need(err, ctx, da));
    HN_TRY(need(err, ctx, db));
    ctx->grad_in[0] = da;
    ctx->grad_in[1] = db;
    return HONE_OK;
}

// ---- normalisations -----------------------------------------------------------------------------
// [C] -> [C, 1, ...] so that it broadcasts along the channels of x.
static hn_value *by_channel(hn_grad *ctx, hn_value *vector, int rank) {
    int64_t axes[HN_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) axes[i] = i + 1;
    if (!vector || rank <= 2) return vector;
    return hn_grad_op(ctx, "Unsqueeze", 2, vector, hn_grad_ints(ctx, axes, rank - 2));
}

static hn_value *channel_mean(hn_grad *ctx, hn_value *value) {
    int64_t axes[HN_MAX_RANK] = {0};
    if (!value) return NULL;
    for (int i = 2; i < value->type.rank; i++) axes[i - 1] = i;
    hn_value *list = hn_grad_ints(ctx, axes, value->type.rank - 1);
    return list ? with_int(ctx, "ReduceMean", "keepdims", 1, value, list, NULL) : NULL;
}

static hn_value *channel_sum(hn_grad *ctx, hn_value *value) {
    int64_t axes[HN_MAX_RANK] = {0};
    if (!value) return NULL;
    for (int i = 2; i < value->type.rank; i++) axes[i - 1] = i;
    return sum_over(ctx, value, axes, value->type.rank - 1, false);
}

HN_GRAD_FN(hn_grad_batch_norm) {
    hn_value *dy = grad_of(ctx, 0), *x = hn_in(ctx->node, 0), *scale = hn_in(ctx->node, 1);
    if (!dy) return HONE_OK;
    int rank = x->type.rank;
    if (rank < 2) HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "the gradient needs rank 2 or more");
    bool training = hn_op_int(ctx->node, "training_mode") != 0;
    hn_value *eps = hn_grad_num(ctx, (double)hn_op_float(ctx->node, "epsilon"), x->type.dtype);
    hn_value *mean = training ? channel_mean(ctx, x) : by_channel(ctx, hn_in(ctx->node, 3), rank);
    hn_value *centred = hn_grad_op(ctx, "Sub", 2, x, mean);
    hn_value *variance = training ? channel_mean(ctx, hn_grad_op(ctx, "Mul", 2, centred, centred))
                                  : by_channel(ctx, hn_in(ctx->node, 4), rank);
    hn_value *deviation = hn_grad_op(ctx, "Sqrt", 1, hn_grad_op(ctx, "Add", 2, variance, eps));
    hn_value *normal = hn_grad_op(ctx, "Div", 2, centred, deviation);
    hn_value *factor = hn_grad_op(ctx, "Div", 2, by_channel(ctx, scale, rank), deviation);
    hn_value *inner = dy, *weighted = hn_grad_op(ctx, "Mul", 2, dy, normal);
    if (training) { // the statistics depend on x as well
        inner = hn_grad_op(ctx, "Sub", 2, dy, channel_mean(ctx, dy));
        inner = hn_grad_op(ctx, "Sub", 2, inner,
                           hn_grad_op(ctx, "Mul", 2, normal, channel_mean(ctx, weighted)));
    }
    ctx->grad_in[0] = hn_grad_op(ctx, "Mul", 2, inner, factor);
    ctx->grad_in[1] = channel_sum(ctx, weighted);
    ctx->grad_in[2] = channel_sum(ctx, dy);
    for (int i = 0; i < 3; i++) HN_TRY(need(err, ctx, ctx->grad_in[i]));
    return HONE_OK;
}

// ---- Softmax, losses ----------------------------------------------------------------------------
HN_GRAD_FN(hn_grad_softmax) { // (dy - sum(dy * y)) * y
    hn_value *dy = grad_of(ctx, 0), *y = hn_out(ctx->node, 0);
    int64_t axis = hn_op_int(ctx->node, "axis");
    if (!dy) return HONE_OK;
    if (ctx->node->version < 13)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "no gradient of the form before opset 13");
    hn_value *dot = sum_over(ctx, hn_grad_op(ctx, "Mul", 2, dy, y), &axis, 1, true);
    ctx->grad_in[0] = hn_grad_op(ctx, "Mul", 2, hn_grad_op(ctx, "Sub", 2, dy, dot), y);
    return need(err, ctx, ctx->grad_in[0]);
}

HN_GRAD_FN(hn_grad_log_softmax) { // dy - exp(y) * sum(dy)
    hn_value *dy = grad_of(ctx, 0), *y = hn_out(ctx->node, 0);
    int64_t axis = hn_op_int(ctx->node, "axis");
    if (!dy) return HONE_OK;
    if (ctx->node->version < 13)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "no gradient of the form before opset 13");
    hn_value *share = hn_grad_op(ctx, "Mul", 2, hn_grad_op(ctx, "Exp", 1, y),
                                 sum_over(ctx, dy, &axis, 1, true));
    ctx->grad_in[0] = hn_grad_op(ctx, "Sub", 2, dy, share);
    return need(err, ctx, ctx->grad_in[0]);
}

// Weight of every label (0 where ignored), shaped like the labels; *io_labels becomes safe to index.
static hn_value *label_weights(hn_grad *ctx, hn_value *scores, hn_value **io_labels) {
    hn_value *labels = *io_labels, *weights = hn_in(ctx->node, 2), *ignored = NULL;
    hn_dtype dtype = scores->type.dtype;
    if (hn_node_attr(ctx->node, "ignore_index")) {
        hn_value *skip = hn_grad_num(ctx, (double)hn_node_int(ctx->node, "ignore_index", 0),
                                     labels->type.dtype);
        ignored = hn_grad_op(ctx, "Equal", 2, labels, skip);
        labels = hn_grad_op(ctx, "Where", 3, ignored,
                            hn_grad_num(ctx, 0, labels->type.dtype), labels);
    }
    *io_labels = labels;
    hn_value *each = weights ? hn_grad_op(ctx, "Gather", 2, weights, labels)
                             : hn_grad_op(ctx, "Expand", 2, hn_grad_num(ctx, 1, dtype),
                                          hn_grad_op(ctx, "Shape", 1, labels));
    if (!ignored) return each;
    return hn_grad_op(ctx, "Where", 3, ignored, hn_grad_num(ctx, 0, dtype), each);
}

static hn_value *one_hot(hn_grad *ctx, hn_value *labels, hn_value *scores) {
    hn_value *shape = hn_grad_op(ctx, "Shape", 1, scores);
    int64_t one = 1;
    hn_value *classes = hn_grad_op(ctx, "Gather", 2, shape, hn_grad_ints(ctx, &one, 1));
    hn_tensor tensor;
    hn_shape pair = {.rank = 1, .dims = {2}};
    if (hn_tensor_new(NULL, scores->type.dtype, &pair, &tensor) != HONE_OK) return NULL;
    hn_tensor_set_f64(&tensor, 0, 0);
    hn_tensor_set_f64(&tensor, 1, 1);
    hn_value *values = hn_graph_add_constant(ctx->graph, "", &tensor);
    return classes && labels && values
               ? with_int(ctx, "OneHot", "axis", 1, labels, classes, values)
               : NULL;
}

// loss = sum(w[l] * -log softmax(x)[l]) / norm: (softmax(x) - onehot(l)) * w[l] / norm * dloss.
HN_GRAD_FN(hn_grad_sce_loss) {
    hn_value *dloss = grad_of(ctx, 0), *dlog = grad_of(ctx, 1);
    hn_value *scores = hn_in(ctx->node, 0), *labels = hn_in(ctx->node, 1), *total = NULL;
    if (!dloss && !dlog) return HONE_OK;
    hn_value *share = with_int(ctx, "Softmax", "axis", 1, scores, NULL, NULL);
    if (dloss) {
        hn_value *weight = label_weights(ctx, scores, &labels);
        hn_slice reduction = hn_op_string(ctx->node, "reduction");
        hn_value *each = hn_grad_op(ctx, "Mul", 2, weight, dloss);
        if (hn_slice_eq(reduction, "mean")) {
            hn_value *norm = weight ? with_int(ctx, "ReduceSum", "keepdims", 0, weight, NULL, NULL)
                                    : NULL;
            each = hn_grad_op(ctx, "Div", 2, each, norm);
        }
        hn_value *miss = hn_grad_op(ctx, "Sub", 2, share, one_hot(ctx, labels, scores));
        total = each ? hn_grad_op(ctx, "Mul", 2, miss, unsqueeze(ctx, each, 1)) : NULL;
        HN_TRY(need(err, ctx, total));
    }
    if (dlog) { // through the second output: d - softmax * sum(d)
        int64_t axis = 1;
        hn_value *part = hn_grad_op(ctx, "Mul", 2, share, sum_over(ctx, dlog, &axis, 1, true));
        part = hn_grad_op(ctx, "Sub", 2, dlog, part);
        total = total ? hn_grad_op(ctx, "Add", 2, total, part) : part;
        HN_TRY(need(err, ctx, total));
    }
    ctx->grad_in[0] = total;
    return HONE_OK;
}
