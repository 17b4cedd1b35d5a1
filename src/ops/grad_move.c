// SPDX-License-Identifier: Apache-2.0
// Gradients of views, moves and reductions.
//
// A moving op's gradient is the move back; where elements were copied more than once their gradients
// add up (Expand, Gather). Sizes are taken from the input at run time, so symbolic dims do.
#include "ops/grad_int.h"

#define UN(op, a)     hn_grad_un(ctx, HN_OP_##op, a)
#define BIN(op, a, b) hn_grad_bin(ctx, HN_OP_##op, a, b)
#define BEGIN                                                                                      \
    hn_value *dy = hn_grad_dy(ctx), *x = ctx->node->inputs[0];                                     \
    if (!dy) return HONE_OK;

static hn_value *shape_like(hn_grad *ctx, hn_value *grad, hn_value *like) {
    hn_value *in[] = {grad, UN(SHAPE, like)};
    return hn_grad_with(ctx, HN_OP_RESHAPE, "allowzero", 1, in, 2);
}

hone_status hn_grad_view(hone_error *err, hn_grad *ctx) {
    BEGIN
    return hn_grad_set(err, ctx, 0, shape_like(ctx, dy, x));
}

hone_status hn_grad_expand(hone_error *err, hn_grad *ctx) {
    BEGIN
    (void)x;
    return hn_grad_set(err, ctx, 0, dy); // set adds up what was copied
}

hone_status hn_grad_dropout(hone_error *err, hn_grad *ctx) {
    BEGIN
    const hn_node *node = ctx->node;
    const hn_value *mode = hn_in(node, 2);
    int64_t train = 0;
    int count;
    if (!mode || (hn_value_ints(ctx->graph->module, mode, &train, 1, &count) && !train))
        return hn_grad_set(err, ctx, 0, dy);
    hn_value *mask = hn_out(node, 1), *ratio = hn_in(node, 1);
    if (!mask)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "gradient without the mask output");
    hn_value *in[] = {mask};
    hn_value *kept = hn_grad_with(ctx, HN_OP_CAST, "to", dy->type.dtype, in, 1);
    if (ratio && ratio->type.dtype != dy->type.dtype)
        ratio = hn_grad_with(ctx, HN_OP_CAST, "to", dy->type.dtype, &ratio, 1);
    if (!ratio) ratio = hn_grad_num(ctx, 0.5, x->type.dtype);
    hn_value *rest = BIN(SUB, hn_grad_num(ctx, 1, x->type.dtype), ratio);
    return hn_grad_set(err, ctx, 0, BIN(DIV, BIN(MUL, dy, kept), rest));
}

// ---- Transpose, Concat, Split, Slice, Pad, Trilu, CumSum --------------------------------------------
static hn_value *permuted(hn_grad *ctx, hn_value *value, const int64_t *perm, int rank) {
    hn_node *node = value ? hn_node_make(ctx->graph, NULL, HN_OP_TRANSPOSE, &value, 1, 1) : NULL;
    if (!node || !hn_node_set_ints(node, "perm", perm, rank)) return NULL;
    return hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

hone_status hn_grad_transpose(hone_error *err, hn_grad *ctx) {
    BEGIN
    (void)x;
    int64_t count, back[HN_MAX_RANK];
    const int64_t *perm = hn_node_ints(ctx->node, "perm", &count);
    if (!perm || count > HN_MAX_RANK) return hn_grad_set(err, ctx, 0, UN(TRANSPOSE, dy));
    for (int64_t d = 0; d < count; d++)
        if (perm[d] >= 0 && perm[d] < count) back[perm[d]] = d;
    return hn_grad_set(err, ctx, 0, permuted(ctx, dy, back, (int)count));
}

hone_status hn_grad_concat(hone_error *err, hn_grad *ctx) {
    BEGIN
    const hn_node *node = ctx->node;
    int axis, parts = node->input_count;
    if (!hn_axis_normalise(hn_op_int(node, "axis"), x->type.rank, &axis))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "the gradient needs known ranks");
    hn_value **sizes = hn_arena_array(&ctx->graph->module->arena, (size_t)parts, sizeof *sizes);
    if (!sizes) HN_NOMEM(err, "the gradient of Concat");
    for (int i = 0; i < parts; i++) {
        hn_node *shape = hn_node_make(ctx->graph, NULL, HN_OP_SHAPE, &node->inputs[i], 1, 1);
        if (!shape || !hn_node_set_int(shape, "start", axis) ||
            !hn_node_set_int(shape, "end", axis + 1))
            HN_NOMEM(err, "the gradient of Concat");
        HN_TRY(hn_infer_node(err, shape));
        sizes[i] = shape->outputs[0];
    }
    hn_value *in[] = {dy, hn_grad_with(ctx, HN_OP_CONCAT, "axis", 0, sizes, parts)};
    hn_node *split = in[1] ? hn_node_make(ctx->graph, NULL, HN_OP_SPLIT, in, 2, parts) : NULL;
    if (!split || !hn_node_set_int(split, "axis", axis)) HN_NOMEM(err, "the gradient of Concat");
    HN_TRY(hn_infer_node(err, split));
    for (int i = 0; i < parts; i++)
        HN_TRY(hn_grad_set(err, ctx, i, split->outputs[i]));
    return HONE_OK;
}

hone_status hn_grad_split(hone_error *err, hn_grad *ctx) {
    const hn_node *node = ctx->node;
    int parts = node->output_count;
    bool any = false;
    hn_value **grads = hn_arena_array(&ctx->graph->module->arena, (size_t)parts, sizeof *grads);
    if (!grads) HN_NOMEM(err, "the gradient of Split");
    for (int i = 0; i < parts; i++) {
        any |= ctx->grad_out[i] != NULL;
        grads[i] = ctx->grad_out[i] ? ctx->grad_out[i]
                                    : (node->outputs[i] ? hn_grad_zeros(ctx, node->outputs[i]) : NULL);
        if (!grads[i] && !node->outputs[i])
            HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "gradient with an absent output");
    }
    if (!any) return HONE_OK;
    return hn_grad_set(err, ctx, 0, hn_grad_with(ctx, HN_OP_CONCAT, "axis", hn_op_int(node, "axis"),
                                                 grads, parts));
}

// A slice with steps of 1 is padded back; bounds must be known.
hone_status hn_grad_slice(hone_error *err, hn_grad *ctx) {
    BEGIN
    const hn_node *node = ctx->node;
    hn_module *module = ctx->graph->module;
    int64_t starts[HN_MAX_RANK], axes[HN_MAX_RANK], steps[HN_MAX_RANK];
    int64_t pads[2 * HN_MAX_RANK] = {0};
    int count, other, rank = x->type.rank;
    bool known = rank >= 0 && dy->type.rank == rank &&
                 hn_value_ints(module, node->inputs[1], starts, HN_MAX_RANK, &count);
    for (int i = 0; known && i < count; i++) {
        axes[i] = i;
        steps[i] = 1;
    }
    if (known && hn_in(node, 3)) known = hn_value_ints(module, node->inputs[3], axes, HN_MAX_RANK, &other) && other == count;
    if (known && hn_in(node, 4)) known = hn_value_ints(module, node->inputs[4], steps, HN_MAX_RANK, &other) && other == count;
    for (int i = 0; known && i < count; i++) {
        int axis;
        known = steps[i] == 1 && hn_axis_normalise(axes[i], rank, &axis) &&
                hn_dim_is_const(x->type.dims[axis]) && hn_dim_is_const(dy->type.dims[axis]);
        if (!known) break;
        int64_t dim = x->type.dims[axis], start = starts[i] < 0 ? starts[i] + dim : starts[i];
        pads[axis] = hn_min_i64(hn_max_i64(start, 0), dim);
        pads[rank + axis] = dim - pads[axis] - dy->type.dims[axis];
    }
    if (!known)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node,
                     "gradient of a slice with unknown bounds or a step other than 1");
    return hn_grad_set(err, ctx, 0, BIN(PAD, dy, hn_grad_ints(ctx, pads, 2 * rank)));
}

// Constant padding only: the pads taken back are negative pads.
hone_status hn_grad_pad(hone_error *err, hn_grad *ctx) {
    BEGIN
    (void)x;
    const hn_node *node = ctx->node;
    if (!hn_slice_eq(hn_op_string(node, "mode"), "constant"))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "gradient of a mode other than constant");
    hn_value *in[] = {dy, UN(NEG, node->inputs[1]), NULL, hn_in(node, 3)};
    if (!in[1]) HN_NOMEM(err, "the gradient of Pad");
    return hn_grad_set(err, ctx, 0, hn_build(ctx->graph, NULL, HN_OP_PAD, in, in[3] ? 4 : 2));
}

hone_status hn_grad_trilu(hone_error *err, hn_grad *ctx) {
    BEGIN
    (void)x;
    hn_value *in[] = {dy, hn_in(ctx->node, 1)};
    return hn_grad_set(err, ctx, 0, hn_grad_with(ctx, HN_OP_TRILU, "upper", hn_op_int(ctx->node, "upper"),
                                                 in, in[1] ? 2 : 1));
}

hone_status hn_grad_cum_sum(hone_error *err, hn_grad *ctx) {
    BEGIN
    (void)x;
    hn_value *in[] = {dy, ctx->node->inputs[1]};
    hn_node *node = hn_node_make(ctx->graph, NULL, HN_OP_CUM_SUM, in, 2, 1);
    if (!node || !hn_node_set_int(node, "reverse", !hn_op_int(ctx->node, "reverse")) ||
        !hn_node_set_int(node, "exclusive", hn_op_int(ctx->node, "exclusive")))
        HN_NOMEM(err, "the gradient of CumSum");
    HN_TRY(hn_infer_node(err, node));
    return hn_grad_set(err, ctx, 0, node->outputs[0]);
}

// ---- Gather and its like ------------------------------------------------------------------------
static hn_value *scattered(hn_grad *ctx, hn_op op, hn_value *zeros, hn_value *indices, hn_value *dy) {
    hn_value *in[] = {zeros, indices, dy};
    if (!zeros || !indices) return NULL;
    hn_node *node = hn_node_make(ctx->graph, NULL, op, in, 3, 1);
    if (!node || !hn_node_set_string(node, "reduction", "add")) return NULL;
    if (op == HN_OP_SCATTER_ELEMENTS &&
        !hn_node_set_int(node, "axis", hn_op_int(ctx->node, "axis")))
        return NULL;
    node->version = 18; // the opset that has 'reduction' in full
    return hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

// Rows of the gathered axis come first, are added up by ScatterND, and go back.
hone_status hn_grad_gather(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *indices = ctx->node->inputs[1];
    int axis, rank = x->type.rank, q = indices->type.rank;
    if (rank < 0 || q < 0 || !hn_axis_normalise(hn_op_int(ctx->node, "axis"), rank, &axis))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "the gradient needs known ranks");
    int64_t to_front[HN_MAX_RANK], order[HN_MAX_RANK], back[HN_MAX_RANK], last = -1;
    for (int i = 0; i < q; i++)
        to_front[i] = axis + i;
    for (int i = 0; i < rank - 1; i++)
        to_front[q + i] = i < axis ? i : q + i;
    for (int i = 0; i < rank; i++) {
        order[i] = i == 0 ? axis : (i <= axis ? i - 1 : i);
        back[order[i]] = i;
    }
    hn_value *moved = axis ? permuted(ctx, dy, to_front, q + rank - 1) : dy;
    hn_value *shape = UN(SHAPE, x);
    if (axis) shape = BIN(GATHER, shape, hn_grad_ints(ctx, order, rank));
    hn_value *zeros = BIN(EXPAND, hn_grad_num(ctx, 0, x->type.dtype), shape);
    hn_value *places = BIN(UNSQUEEZE, indices, hn_grad_ints(ctx, &last, 1));
    hn_value *sum = scattered(ctx, HN_OP_SCATTER_ND, zeros, places, moved);
    return hn_grad_set(err, ctx, 0, axis ? permuted(ctx, sum, back, rank) : sum);
}

hone_status hn_grad_gather_elements(hone_error *err, hn_grad *ctx) {
    BEGIN
    return hn_grad_set(err, ctx, 0, scattered(ctx, HN_OP_SCATTER_ELEMENTS, hn_grad_zeros(ctx, x),
                                              ctx->node->inputs[1], dy));
}

hone_status hn_grad_gather_nd(hone_error *err, hn_grad *ctx) {
    BEGIN
    if (hn_op_int(ctx->node, "batch_dims"))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "gradient with batch dims");
    return hn_grad_set(err, ctx, 0, scattered(ctx, HN_OP_SCATTER_ND, hn_grad_zeros(ctx, x),
                                              ctx->node->inputs[1], dy));
}

// ---- reductions ---------------------------------------------------------------------------------
// Brings the reduced form (dy or y) to the rank of x, with ones where axes went.
static hn_status with_kept_dims(hone_error *err, hn_grad *ctx, hn_value **value) {
    const hn_node *node = ctx->node;
    int64_t axes[HN_MAX_RANK];
    int count = 0, rank = node->inputs[0]->type.rank;
    if (hn_op_int(node, "keepdims")) return HONE_OK;
    if (rank < 0 || (hn_in(node, 1) && !hn_value_ints(ctx->graph->module, node->inputs[1], axes,
                                                     HN_MAX_RANK, &count)))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "the gradient needs known axes");
    if (!count && hn_op_int(node, "noop_with_empty_axes")) return HONE_OK;
    for (int i = 0; i < (count ? count : rank); i++) {
        int axis = i;
        if (count && !hn_axis_normalise(axes[i], rank, &axis))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "axis %lld is outside of rank %d",
                         (long long)axes[i], rank);
        axes[i] = axis;
    }
    *value = BIN(UNSQUEEZE, *value, hn_grad_ints(ctx, axes, count ? count : rank));
    return HONE_OK;
}

static hn_status spread(hone_error *err, hn_grad *ctx, hn_value *dy, hn_value **out) {
    HN_TRY(with_kept_dims(err, ctx, &dy));
    *out = BIN(EXPAND, dy, UN(SHAPE, ctx->node->inputs[0]));
    return HONE_OK;
}

hone_status hn_grad_reduce_sum(hone_error *err, hn_grad *ctx) {
    BEGIN
    (void)x;
    hn_value *all = NULL;
    HN_TRY(spread(err, ctx, dy, &all));
    return hn_grad_set(err, ctx, 0, all);
}

hone_status hn_grad_reduce_mean(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *all = NULL;
    HN_TRY(spread(err, ctx, dy, &all));
    hn_value *count = BIN(DIV, UN(SIZE, x), UN(SIZE, dy));
    hn_value *number = hn_grad_with(ctx, HN_OP_CAST, "to", x->type.dtype, &count, 1);
    return hn_grad_set(err, ctx, 0, BIN(DIV, all, number));
}

hone_status hn_grad_reduce_sum_square(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *all = NULL;
    HN_TRY(spread(err, ctx, dy, &all));
    return hn_grad_set(err, ctx, 0, BIN(MUL, BIN(MUL, x, hn_grad_num(ctx, 2, x->type.dtype)), all));
}

// Max and Min: equal elements share.
hone_status hn_grad_reduce_extreme(hone_error *err, hn_grad *ctx) {
    BEGIN
    const hn_node *node = ctx->node;
    hn_value *top = node->outputs[0], *all = NULL;
    HN_TRY(with_kept_dims(err, ctx, &top));
    HN_TRY(with_kept_dims(err, ctx, &dy));
    hn_value *equal = BIN(EQUAL, x, top);
    hn_value *won = hn_grad_with(ctx, HN_OP_CAST, "to", x->type.dtype, &equal, 1);
    hn_value *in[] = {won, hn_in(node, 1)};
    if (!won) HN_NOMEM(err, "the gradient of a reduction");
    hn_node *ties = hn_node_make(ctx->graph, NULL, HN_OP_REDUCE_SUM, in, in[1] ? 2 : 1, 1);
    if (!ties || !hn_node_set_int(ties, "noop_with_empty_axes",
                                  hn_op_int(node, "noop_with_empty_axes")))
        HN_NOMEM(err, "the gradient of a reduction");
    HN_TRY(hn_infer_node(err, ties));
    all = BIN(MUL, won, BIN(DIV, dy, ties->outputs[0]));
    return hn_grad_set(err, ctx, 0, all);
}
