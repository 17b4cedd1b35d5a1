// SPDX-License-Identifier: Apache-2.0
// NonZero, Compress, Unique: ops whose output shape depends on values; and Col2Im.
#include <stdlib.h>
#include "ops/move.h"

// ---- NonZero ------------------------------------------------------------------------------------
hone_status hn_infer_non_zero(hone_error *err, hn_infer *ctx) {
    (void)err;
    int rank = ctx->node->inputs[0]->type.rank;
    hn_dim dims[2] = {rank >= 0 ? rank : hn_dim_fresh(ctx->dims, 0, HN_MAX_RANK),
                      hn_dim_fresh(ctx->dims, 0, INT64_MAX)};
    hn_infer_set(ctx, 0, HN_I64, 2, dims);
    return HONE_OK;
}

static bool is_non_zero(const hn_tensor *in, int64_t at) {
    return hn_dtype_is_float(in->dtype) ? hn_tensor_get_f64(in, at) != 0
                                        : hn_tensor_get_i64(in, at) != 0;
}

hone_status hn_ref_non_zero(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    if (!hn_dtype_is_plain(in->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                     hn_dtype_name(in->dtype));
    int64_t total = hn_tensor_count(in), found = 0, index[HN_MAX_RANK] = {0};
    for (int64_t i = 0; i < total; i++)
        found += is_non_zero(in, i);
    hn_shape shape = {2, {in->shape.rank, found}};
    HN_TRY(hn_call_output(err, call, 0, HN_I64, &shape));
    hn_tensor *out = hn_call_out(call, 0);
    if (!out) return HONE_OK;
    int64_t column = 0;
    for (int64_t i = 0; i < total; i++) {
        if (is_non_zero(in, i)) {
            for (int d = 0; d < in->shape.rank; d++)
                ((int64_t *)out->data)[d * found + column] = index[d];
            column++;
        }
        (void)hn_index_next(index, in->shape.dims, in->shape.rank);
    }
    return HONE_OK;
}

// ---- Compress -----------------------------------------------------------------------------------
hone_status hn_infer_compress(hone_error *err, hn_infer *ctx) {
    hn_type type = ctx->node->inputs[0]->type;
    const hn_attr *along = hn_node_attr(ctx->node, "axis");
    int axis = 0;
    if (!along) type.rank = 1;
    if (along && type.rank >= 0) HN_TRY(hn_infer_axis(err, ctx, along->i, type.rank, &axis));
    if (type.rank >= 0) type.dims[axis] = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    return HONE_OK;
}

hone_status hn_ref_compress(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0], *keep = call->inputs[1];
    const hn_attr *along = hn_node_attr(call->node, "axis");
    hn_shape shape = in->shape;
    int axis = 0;
    int64_t total;
    if (hn_dtype_bits(in->dtype) < 8)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                     hn_dtype_name(in->dtype));
    if (!hn_shape_count(&in->shape, &total)) total = 0;
    if (!along) shape = (hn_shape){1, {total}};
    else HN_TRY(hn_call_axis(err, call, along->i, in->shape.rank, &axis));
    int64_t dim = shape.dims[axis], given = hn_min_i64(hn_tensor_count(keep), dim), kept = 0;
    int64_t outer = hn_span(&shape, 0, axis);
    size_t block = (size_t)hn_span(&shape, axis + 1, shape.rank) * hn_item_bytes(in);
    for (int64_t i = 0; i < given; i++)
        kept += is_non_zero(keep, i);
    shape.dims[axis] = kept;
    HN_TRY(hn_call_output(err, call, 0, in->dtype, &shape));
    hn_tensor *out = hn_call_out(call, 0);
    if (!out || !total) return HONE_OK;
    char *to = out->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < given; i++) {
            if (!is_non_zero(keep, i)) continue;
            memcpy(to, (const char *)in->data + (size_t)(o * dim + i) * block, block);
            to += block;
        }
    return HONE_OK;
}

// ---- Unique -------------------------------------------------------------------------------------
hone_status hn_infer_unique(hone_error *err, hn_infer *ctx) {
    hn_type type = ctx->node->inputs[0]->type;
    const hn_attr *along = hn_node_attr(ctx->node, "axis");
    int axis = 0;
    hn_dim found = hn_dim_fresh(ctx->dims, 0, INT64_MAX), all = 0;
    if (along && type.rank >= 0) {
        HN_TRY(hn_infer_axis(err, ctx, along->i, type.rank, &axis));
        all = type.dims[axis];
        type.dims[axis] = found;
    } else {
        all = type.rank >= 0 ? hn_infer_product(ctx->dims, type.dims, 0, type.rank)
                             : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        if (!along) {
            type.rank = 1;
            type.dims[0] = found;
        }
    }
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    hn_infer_set(ctx, 1, HN_I64, 1, &found);
    hn_infer_set(ctx, 2, HN_I64, 1, &all);
    hn_infer_set(ctx, 3, HN_I64, 1, &found);
    return HONE_OK;
}

// Items are the slices of one axis: `length` elements each, at strides given by outer and inner.
typedef struct unique_ctx {
    const hn_tensor *in;
    int64_t items, outer, inner;
    hn_class class;
} unique_ctx;

static hn_cell item_cell(const unique_ctx *u, int64_t item, int64_t k) {
    hn_cell cell;
    int64_t at = (k / u->inner * u->items + item) * u->inner + k % u->inner;
    hn_cells_load(u->in, at, 0, 1, u->class, &cell);
    return cell;
}

// NaN counts as equal to NaN and stands last.
static int compare_cells(hn_class class, hn_cell a, hn_cell b) {
    if (class == HN_CLASS_I) return (a.i > b.i) - (a.i < b.i);
    if (class == HN_CLASS_U) return (a.u > b.u) - (a.u < b.u);
    if (a.f != a.f || b.f != b.f) return (a.f != a.f) - (b.f != b.f);
    return (a.f > b.f) - (a.f < b.f);
}

static int compare_items(const void *left, const void *right, void *user) {
    const unique_ctx *u = user;
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    for (int64_t k = 0; k < u->outer * u->inner; k++) {
        int order = compare_cells(u->class, item_cell(u, a, k), item_cell(u, b, k));
        if (order) return order;
    }
    return 0;
}

static int compare_stable(const void *left, const void *right, void *user) {
    int order = compare_items(left, right, user);
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return order ? order : (a > b) - (a < b);
}

static int compare_first(const void *left, const void *right) {
    int64_t a = **(int64_t *const *)left, b = **(int64_t *const *)right;
    return (a > b) - (a < b);
}

// order: item numbers sorted; groups[g]: where group g starts in `order`. With sorted = 0 the groups
// are put in the order of their first items. Writes the four outputs.
static hn_status unique_write(hone_error *err, const hn_call *call, const unique_ctx *u,
                              const hn_shape *shape, int axis, const int64_t *order,
                              int64_t *const *groups, int64_t count) {
    hn_shape out_shape = *shape, list = {1, {count}}, all = {1, {u->items}};
    out_shape.dims[axis] = count;
    HN_TRY(hn_call_output(err, call, 0, u->in->dtype, &out_shape));
    HN_TRY(hn_call_output(err, call, 1, HN_I64, &list));
    HN_TRY(hn_call_output(err, call, 2, HN_I64, &all));
    HN_TRY(hn_call_output(err, call, 3, HN_I64, &list));
    hn_tensor *y = hn_call_out(call, 0), *first = hn_call_out(call, 1);
    hn_tensor *inverse = hn_call_out(call, 2), *counts = hn_call_out(call, 3);
    for (int64_t g = 0; g < count; g++) {
        int64_t item = *groups[g], members = 0;
        for (const int64_t *at = groups[g]; at < order + u->items; at++, members++) {
            if (compare_items(at, groups[g], (void *)(uintptr_t)u)) break;
            if (inverse) ((int64_t *)inverse->data)[*at] = g;
        }
        if (first) ((int64_t *)first->data)[g] = item;
        if (counts) ((int64_t *)counts->data)[g] = members;
        for (int64_t k = 0; y && k < u->outer * u->inner; k++) {
            hn_cell cell = item_cell(u, item, k);
            int64_t at = (k / u->inner * count + g) * u->inner + k % u->inner;
            hn_cells_store(y, at, 1, u->class, &cell);
        }
    }
    return HONE_OK;
}

hone_status hn_ref_unique(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    const hn_attr *along = hn_node_attr(call->node, "axis");
    hn_shape shape = in->shape;
    int axis = 0;
    if (!hn_dtype_is_plain(in->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                     hn_dtype_name(in->dtype));
    if (along) HN_TRY(hn_call_axis(err, call, along->i, in->shape.rank, &axis));
    else shape = (hn_shape){1, {hn_tensor_count(in)}};
    unique_ctx u = {in, shape.dims[axis], hn_span(&shape, 0, axis),
                    hn_span(&shape, axis + 1, shape.rank), hn_dtype_class(in->dtype)};
    if (!hn_tensor_count(in)) u.items = 0;
    int64_t *order = hn_realloc_array(NULL, (size_t)u.items + 1, sizeof *order), count = 0;
    int64_t **groups = hn_realloc_array(NULL, (size_t)u.items + 1, sizeof *groups);
    hone_status status = HONE_OK;
    if (!order || !groups) {
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (Unique)");
    } else {
        for (int64_t i = 0; i < u.items; i++)
            order[i] = i;
        qsort_r(order, (size_t)u.items, sizeof *order, compare_stable, &u);
        for (int64_t i = 0; i < u.items; i++)
            if (i == 0 || compare_items(&order[i - 1], &order[i], &u)) groups[count++] = &order[i];
        if (!hn_op_int(call->node, "sorted"))
            qsort(groups, (size_t)count, sizeof *groups, compare_first);
        status = unique_write(err, call, &u, &shape, axis, order, groups, count);
    }
    hn_free(order);
    hn_free(groups);
    return status;
}

// ---- Col2Im -------------------------------------------------------------------------------------
typedef struct col2im_axis {
    int64_t image, block, stride, dilation, pad, steps;
} col2im_axis;

static int64_t listed(const hn_node *node, const char *name, int64_t at, int64_t absent) {
    int64_t count;
    const int64_t *list = hn_node_ints(node, name, &count);
    return list && at < count ? list[at] : absent;
}

// Fills one axis; false when the numbers make no sense or overflow.
static bool col2im_read(const hn_node *node, int axis, int axes, int64_t image, int64_t block,
                        col2im_axis *out) {
    col2im_axis a = {image, block, listed(node, "strides", axis, 1),
                     listed(node, "dilations", axis, 1), listed(node, "pads", axis, 0), 0};
    int64_t end = listed(node, "pads", axes + axis, 0), reach, room;
    if (image < 0 || block < 1 || a.stride < 1 || a.dilation < 1 || a.pad < 0 || end < 0) return false;
    if (!hn_mul_i64(a.dilation, block - 1, &reach) || !hn_add_i64(image, a.pad, &room) ||
        !hn_add_i64(room, end, &room) || room < reach + 1)
        return false;
    a.steps = (room - reach - 1) / a.stride + 1;
    *out = a;
    return true;
}

hone_status hn_infer_col2im(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *in = &node->inputs[0]->type;
    int64_t image[HN_MAX_RANK], block[HN_MAX_RANK], area = 1;
    int axes = 0, axes2 = 0;
    bool known = hn_infer_ints(ctx, node->inputs[1], image, HN_MAX_RANK - 2, &axes) &&
                 hn_infer_ints(ctx, node->inputs[2], block, HN_MAX_RANK - 2, &axes2);
    if (in->rank < 0 || !known) {
        hn_infer_unknown(ctx, 0, in->dtype, -1);
        return HONE_OK;
    }
    if (in->rank != 3 || axes != axes2 || axes < 1)
        HN_BAD_NODE(err, node, "the input must have 3 dims, image and block the same number");
    hn_dim dims[HN_MAX_RANK] = {in->dims[0]};
    int64_t steps = 1;
    for (int d = 0; d < axes; d++) {
        col2im_axis axis;
        if (!col2im_read(node, d, axes, image[d], block[d], &axis) ||
            !hn_mul_i64(area, block[d], &area) || !hn_mul_i64(steps, axis.steps, &steps))
            HN_BAD_NODE(err, node, "image, block, strides, dilations and pads of axis %d do not fit",
                        d);
        dims[2 + d] = image[d];
    }
    if (hn_dim_is_const(in->dims[1]) && in->dims[1] % area)
        HN_BAD_NODE(err, node, "%lld rows are not a multiple of the block's %lld",
                    (long long)in->dims[1], (long long)area);
    if (hn_dim_is_const(in->dims[2]) && in->dims[2] != steps)
        HN_BAD_NODE(err, node, "%lld columns where %lld are due", (long long)in->dims[2],
                    (long long)steps);
    if (!hn_dim_divide_exact(ctx->dims, in->dims[1], area, &dims[1]))
        dims[1] = hn_dim_floordiv(ctx->dims, in->dims[1], area);
    hn_infer_set(ctx, 0, in->dtype, 2 + axes, dims);
    return HONE_OK;
}

hone_status hn_ref_col2im(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    int axes = out->shape.rank - 2;
    col2im_axis axis[HN_MAX_RANK];
    int64_t dims[2 * HN_MAX_RANK], index[2 * HN_MAX_RANK] = {0}, strides[HN_MAX_RANK];
    if (!hn_dtype_is_plain(in->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                     hn_dtype_name(in->dtype));
    if (out->bytes) memset(out->data, 0, out->bytes);
    if (!hn_tensor_count(in) || !hn_tensor_count(out)) return HONE_OK;
    for (int d = 0; d < axes; d++) {
        if (!col2im_read(call->node, d, axes, out->shape.dims[2 + d],
                         hn_tensor_get_i64(call->inputs[2], d), &axis[d]))
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "axis %d does not fit", d);
        dims[d] = axis[d].block;
        dims[axes + d] = axis[d].steps;
    }
    hn_strides(&out->shape, strides);
    // The rows and columns of one channel come in the order of (block index, step index).
    int64_t channels = out->shape.dims[0] * out->shape.dims[1], at = 0;
    for (int64_t c = 0; c < channels; c++) {
        do {
            int64_t offset = c * strides[1];
            bool inside = true;
            for (int d = 0; d < axes; d++) {
                int64_t place = index[axes + d] * axis[d].stride + index[d] * axis[d].dilation -
                                axis[d].pad;
                inside &= place >= 0 && place < axis[d].image;
                offset += place * strides[2 + d];
            }
            if (inside)
                hn_tensor_set_f64(out, offset,
                                  hn_tensor_get_f64(out, offset) + hn_tensor_get_f64(in, at));
            at++;
        } while (hn_index_next(index, dims, 2 * axes));
    }
    return HONE_OK;
}
