// SPDX-License-Identifier: Apache-2.0
// Shape queries, views and constants. Views keep the bytes of input 0 in their order.
#include "ops/shape.h"
#include <math.h>
#include "ops/move.h"
#include "ops/random.h"

static void copy_elems(hn_infer *ctx) {
    int count;
    const hn_dim *elems = hn_infer_elems(ctx, ctx->node->inputs[0], &count);
    if (elems) hn_infer_set_elems(ctx, 0, elems, count);
}

static hn_status rank_limit(hone_error *err, const hn_infer *ctx, int64_t rank) {
    if (rank > HN_MAX_RANK)
        HN_FAIL_NODE(err, HONE_ERR_LIMIT, ctx->node, "gives %lld dims, the limit is %d",
                     (long long)rank, HN_MAX_RANK);
    return HONE_OK;
}

hn_status hn_infer_dims_input(hone_error *err, hn_infer *ctx, const hn_value *shape, int *out_rank,
                              hn_dim *out_dims) {
    int count;
    const hn_dim *elems = hn_infer_elems(ctx, shape, &count);
    *out_rank = -1;
    if (shape->type.rank > 1)
        HN_BAD_NODE(err, ctx->node, "a shape is given with %d dims", shape->type.rank);
    if (!elems) {
        if (shape->type.rank != 1 || !hn_dim_is_const(shape->type.dims[0])) return HONE_OK;
        HN_TRY(rank_limit(err, ctx, shape->type.dims[0]));
        *out_rank = (int)shape->type.dims[0];
        for (int d = 0; d < *out_rank; d++)
            out_dims[d] = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        return HONE_OK;
    }
    HN_TRY(rank_limit(err, ctx, count));
    for (int d = 0; d < count; d++) {
        int64_t lo, hi;
        hn_dim_range(ctx->dims, elems[d], &lo, &hi);
        if (hi < 0) HN_BAD_NODE(err, ctx->node, "dim %d is negative", d);
        // An element that nothing is known of; an expression whose range merely reaches below 0 must
        // be a valid size when the model runs.
        out_dims[d] = lo == HN_ELEM_UNKNOWN ? hn_dim_fresh(ctx->dims, 0, hi) : elems[d];
    }
    *out_rank = count;
    return HONE_OK;
}

// ---- Shape, Size --------------------------------------------------------------------------------
static void shape_slice(const hn_node *node, int rank, int *out_start, int *out_end) {
    int64_t start = hn_op_int(node, "start");
    int64_t end = hn_node_attr(node, "end") ? hn_op_int(node, "end") : rank;
    if (start < 0) start += rank;
    if (end < 0) end += rank;
    start = hn_min_i64(hn_max_i64(start, 0), rank);
    end = hn_min_i64(hn_max_i64(end, start), rank);
    *out_start = (int)start;
    *out_end = (int)end;
}

hone_status hn_infer_shape(hone_error *err, hn_infer *ctx) {
    (void)err;
    const hn_type *type = &ctx->node->inputs[0]->type;
    if (type->rank < 0) {
        hn_dim unknown = hn_dim_fresh(ctx->dims, 0, HN_MAX_RANK);
        hn_infer_set(ctx, 0, HN_I64, 1, &unknown);
        return HONE_OK;
    }
    int start, end;
    shape_slice(ctx->node, type->rank, &start, &end);
    hn_dim length = end - start;
    hn_infer_set(ctx, 0, HN_I64, 1, &length);
    hn_infer_set_elems(ctx, 0, type->dims + start, end - start);
    return HONE_OK;
}

hone_status hn_ref_shape(hone_error *err, const hn_call *call) {
    (void)err;
    const hn_shape *shape = &call->inputs[0]->shape;
    int start, end;
    shape_slice(call->node, shape->rank, &start, &end);
    int64_t *out = call->outputs[0]->data;
    for (int d = start; d < end; d++)
        out[d - start] = shape->dims[d];
    return HONE_OK;
}

hone_status hn_infer_size(hone_error *err, hn_infer *ctx) {
    (void)err;
    const hn_type *type = &ctx->node->inputs[0]->type;
    hn_infer_set(ctx, 0, HN_I64, 0, NULL);
    if (type->rank < 0) return HONE_OK;
    hn_dim size = hn_infer_product(ctx->dims, type->dims, 0, type->rank);
    hn_infer_set_elems(ctx, 0, &size, 1);
    return HONE_OK;
}

hone_status hn_ref_size(hone_error *err, const hn_call *call) {
    (void)err;
    *(int64_t *)call->outputs[0]->data = hn_tensor_count(call->inputs[0]);
    return HONE_OK;
}

// ---- views --------------------------------------------------------------------------------------
hone_status hn_infer_identity(hone_error *err, hn_infer *ctx) {
    (void)err;
    hn_infer_like(ctx, 0, ctx->node->inputs[0]);
    copy_elems(ctx);
    return HONE_OK;
}

hone_status hn_ref_copy(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    if (in->dtype == HN_STRING)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "string tensors are not supported");
    if (in->bytes != out->bytes)
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "%zu bytes do not fill %zu", in->bytes,
                     out->bytes);
    if (in->bytes && in->data != out->data) memcpy(out->data, in->data, in->bytes);
    return HONE_OK;
}

// The dim that -1 stands for: dims that occur on both sides cancel first, so that symbols need no
// division.
static hn_dim remaining_dim(hn_infer *ctx, const hn_type *in, const hn_dim *out, int rank, int hole) {
    bool used[HN_MAX_RANK] = {false};
    hn_dim total = 1, rest = 1, quotient;
    for (int d = 0; d < rank; d++) {
        if (d == hole) continue;
        int match = 0;
        while (match < in->rank && (used[match] || in->dims[match] != out[d]))
            match++;
        if (match < in->rank)
            used[match] = true;
        else
            rest = hn_dim_mul(ctx->dims, rest, out[d]);
    }
    for (int d = 0; d < in->rank; d++)
        if (!used[d]) total = hn_dim_mul(ctx->dims, total, in->dims[d]);
    if (rest == 1) return total;
    if (hn_dim_divide_exact(ctx->dims, total, rest, &quotient)) return quotient;
    return hn_dim_floordiv(ctx->dims, total, rest);
}

static hn_status check_count(hone_error *err, hn_infer *ctx, const hn_type *in, const hn_dim *out,
                             int rank) {
    hn_dim before = hn_infer_product(ctx->dims, in->dims, 0, in->rank);
    hn_dim after = hn_infer_product(ctx->dims, out, 0, rank);
    if (hn_dim_is_const(before) && hn_dim_is_const(after) && before != after)
        HN_BAD_NODE(err, ctx->node, "%lld elements cannot take a shape of %lld", (long long)before,
                    (long long)after);
    return HONE_OK;
}

static hn_status reshape_dims(hone_error *err, hn_infer *ctx, const hn_dim *elems, int count,
                              hn_dim *out) {
    const hn_type *in = &ctx->node->inputs[0]->type;
    bool allow_zero = hn_op_int(ctx->node, "allowzero") != 0, has_zero = false, guess = false;
    int hole = -1;
    for (int d = 0; d < count; d++) {
        int64_t lo, hi;
        hn_dim_range(ctx->dims, elems[d], &lo, &hi);
        out[d] = elems[d];
        if (elems[d] == 0 && !allow_zero) {
            if (in->rank >= 0 && d >= in->rank)
                HN_BAD_NODE(err, ctx->node, "dim %d is copied from an input of %d dims", d, in->rank);
            out[d] = in->rank >= 0 ? in->dims[d] : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        } else if (elems[d] == -1) {
            if (hole >= 0) HN_BAD_NODE(err, ctx->node, "the shape has more than one -1");
            hole = d;
        } else if (hi < 0) {
            HN_BAD_NODE(err, ctx->node, "dim %d is negative", d);
        } else if (lo < 0) {
            out[d] = hn_dim_fresh(ctx->dims, 0, INT64_MAX); // may turn out to be -1
            guess = true;
        }
        has_zero |= elems[d] == 0;
    }
    if (hole >= 0 && allow_zero && has_zero)
        HN_BAD_NODE(err, ctx->node, "the shape has both 0 and -1 with allowzero");
    if (hole >= 0) {
        if (in->rank < 0 || guess)
            out[hole] = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        else
            out[hole] = remaining_dim(ctx, in, out, count, hole);
    }
    if (in->rank >= 0) HN_TRY(check_count(err, ctx, in, out, count));
    return HONE_OK;
}

hone_status hn_infer_reshape(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_value *shape = node->inputs[1];
    hn_dtype dtype = node->inputs[0]->type.dtype;
    hn_dim dims[HN_MAX_RANK];
    int count;
    const hn_dim *elems = hn_infer_elems(ctx, shape, &count);
    if (!elems) {
        int rank;
        HN_TRY(hn_infer_dims_input(err, ctx, shape, &rank, dims));
        hn_infer_set(ctx, 0, dtype, rank, dims);
        return HONE_OK;
    }
    HN_TRY(rank_limit(err, ctx, count));
    HN_TRY(reshape_dims(err, ctx, elems, count, dims));
    hn_infer_set(ctx, 0, dtype, count, dims);
    copy_elems(ctx);
    return HONE_OK;
}

// Axes from input 1 as a mask of dims; *out_known false when they are not known.
static hn_status axes_mask(hone_error *err, hn_infer *ctx, int rank, uint32_t *out_mask,
                           bool *out_known) {
    int64_t axes[HN_MAX_RANK];
    int count;
    uint32_t mask = 0;
    *out_known = hn_infer_ints(ctx, hn_in(ctx->node, 1), axes, HN_MAX_RANK, &count);
    if (!*out_known) return HONE_OK;
    for (int i = 0; i < count; i++) {
        int axis;
        HN_TRY(hn_infer_axis(err, ctx, axes[i], rank, &axis));
        if (mask >> axis & 1) HN_BAD_NODE(err, ctx->node, "axis %d is given twice", axis);
        mask |= 1u << axis;
    }
    *out_mask = mask;
    return HONE_OK;
}

// Number of elements of a 1-D input if known, else -1.
static int64_t known_length(const hn_value *value) {
    if (!value || value->type.rank != 1 || !hn_dim_is_const(value->type.dims[0])) return -1;
    return value->type.dims[0];
}

hone_status hn_infer_squeeze(hone_error *err, hn_infer *ctx) {
    const hn_value *in = ctx->node->inputs[0], *axes = hn_in(ctx->node, 1);
    const hn_type *type = &in->type;
    uint32_t mask = 0;
    bool known = true;
    hn_dim dims[HN_MAX_RANK];
    int rank = 0;
    if (type->rank >= 0 && axes) {
        HN_TRY(axes_mask(err, ctx, type->rank, &mask, &known));
    } else if (type->rank >= 0) {
        for (int d = 0; d < type->rank; d++) {
            int64_t lo, hi;
            hn_dim_range(ctx->dims, type->dims[d], &lo, &hi);
            if (type->dims[d] == 1) mask |= 1u << d;
            else if (lo <= 1 && hi >= 1) known = false;
        }
    }
    if (type->rank < 0 || !known) {
        int64_t gone = axes && type->rank >= 0 ? known_length(axes) : -1;
        bool rank_known = gone >= 0 && gone <= type->rank;
        hn_infer_unknown(ctx, 0, type->dtype, rank_known ? type->rank - (int)gone : -1);
        return HONE_OK;
    }
    for (int d = 0; d < type->rank; d++) {
        if (!(mask >> d & 1))
            dims[rank++] = type->dims[d];
        else if (hn_dim_is_const(type->dims[d]) && type->dims[d] != 1)
            HN_BAD_NODE(err, ctx->node, "dim %d is %lld and cannot be squeezed", d,
                        (long long)type->dims[d]);
    }
    hn_infer_set(ctx, 0, type->dtype, rank, dims);
    copy_elems(ctx);
    return HONE_OK;
}

hone_status hn_infer_unsqueeze(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    const hn_value *axes = ctx->node->inputs[1];
    int count;
    int64_t length = known_length(axes);
    if (hn_infer_elems(ctx, axes, &count)) length = count; // a scalar is taken as one axis
    if (type->rank < 0 || length < 0) {
        hn_infer_unknown(ctx, 0, type->dtype, -1);
        return HONE_OK;
    }
    HN_TRY(rank_limit(err, ctx, type->rank + length));
    int rank = type->rank + (int)length, from = 0;
    uint32_t mask = 0;
    bool known;
    HN_TRY(axes_mask(err, ctx, rank, &mask, &known));
    if (!known) {
        hn_infer_unknown(ctx, 0, type->dtype, rank);
        return HONE_OK;
    }
    hn_dim dims[HN_MAX_RANK];
    for (int d = 0; d < rank; d++)
        dims[d] = mask >> d & 1 ? 1 : type->dims[from++];
    hn_infer_set(ctx, 0, type->dtype, rank, dims);
    copy_elems(ctx);
    return HONE_OK;
}

hone_status hn_infer_flatten(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    int64_t axis = hn_op_int(ctx->node, "axis");
    hn_dim dims[2];
    if (type->rank < 0) {
        hn_infer_unknown(ctx, 0, type->dtype, 2);
        return HONE_OK;
    }
    if (axis < -(int64_t)type->rank || axis > type->rank)
        HN_BAD_NODE(err, ctx->node, "axis %lld is outside of rank %d", (long long)axis, type->rank);
    int split = (int)(axis < 0 ? axis + type->rank : axis);
    dims[0] = hn_infer_product(ctx->dims, type->dims, 0, split);
    dims[1] = hn_infer_product(ctx->dims, type->dims, split, type->rank);
    hn_infer_set(ctx, 0, type->dtype, 2, dims);
    copy_elems(ctx);
    return HONE_OK;
}

// ---- Dropout --------------------------------------------------------------------------------------
hone_status hn_infer_dropout(hone_error *err, hn_infer *ctx) {
    (void)err;
    const hn_type *type = &ctx->node->inputs[0]->type;
    hn_infer_like(ctx, 0, ctx->node->inputs[0]);
    hn_infer_set(ctx, 1, HN_BOOL, type->rank, type->dims);
    return HONE_OK;
}

hone_status hn_ref_dropout(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0], *ratio = hn_call_in(call, 1);
    const hn_tensor *mode = hn_call_in(call, 2);
    hn_tensor *mask = hn_call_out(call, 1), *out = call->outputs[0];
    double drop = ratio && hn_tensor_count(ratio) == 1 ? hn_tensor_get_f64(ratio, 0) : 0.5;
    bool train = mode && hn_tensor_count(mode) == 1 && hn_tensor_get_i64(mode, 0) != 0;
    if (!train || drop == 0) {
        if (mask) memset(mask->data, 1, mask->bytes);
        return out ? hn_ref_copy(err, call) : HONE_OK;
    }
    if (!(drop >= 0 && drop < 1))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "the ratio is outside of 0 to 1");
    hn_rng rng = hn_rng_seed(call->seed);
    int64_t count = hn_tensor_count(in);
    for (int64_t i = 0; i < count; i++) {
        bool keep = hn_rng_uniform(&rng) >= drop;
        if (mask) ((uint8_t *)mask->data)[i] = keep;
        if (out) hn_tensor_set_f64(out, i, keep ? hn_tensor_get_f64(in, i) / (1 - drop) : 0);
    }
    return HONE_OK;
}

// ---- Expand, Tile -------------------------------------------------------------------------------
hone_status hn_infer_expand(hone_error *err, hn_infer *ctx) {
    const hn_value *in = ctx->node->inputs[0];
    hn_value target = {0}; // only its type is looked at
    hn_dim dims[HN_MAX_RANK];
    int rank;
    HN_TRY(hn_infer_dims_input(err, ctx, ctx->node->inputs[1], &target.type.rank, target.type.dims));
    const hn_value *both[2] = {in, &target};
    HN_TRY(hn_infer_broadcast(err, ctx, both, 2, &rank, dims));
    hn_infer_set(ctx, 0, in->type.dtype, rank, dims);
    int count;
    hn_shape shape;
    int64_t total;
    const hn_dim *elems = hn_infer_elems(ctx, in, &count);
    const hn_value *out = hn_out(ctx->node, 0);
    if (!elems || count != 1 || !out || !hn_type_shape(&out->type, &shape)) {
        hn_infer_move_elems(ctx, 1, hn_ref_expand);
    } else if (hn_shape_count(&shape, &total) && total <= HN_ELEMS_MAX) {
        hn_dim copies[HN_ELEMS_MAX];
        for (int64_t i = 0; i < total; i++)
            copies[i] = elems[0];
        hn_infer_set_elems(ctx, 0, copies, (int)total);
    }
    return HONE_OK;
}

static hone_status expand_items(hone_error *err, const hn_call *call) {
    hn_tensor *out = call->outputs[0];
    int64_t item = (int64_t)hn_item_bytes(out);
    hn_walk walk;
    HN_TRY(hn_walk_init(err, &out->shape, call->inputs, 1, &walk));
    char *to = out->data;
    while (hn_walk_next(&walk)) {
        const char *from = (const char *)call->inputs[0]->data + walk.offsets[0] * item;
        int64_t step = hn_walk_step(&walk, 0) * item;
        for (int64_t k = 0; k < walk.row; k++, to += item)
            memcpy(to, from + k * step, (size_t)item);
    }
    hn_walk_free(&walk);
    return HONE_OK;
}
hone_status hn_ref_expand(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, expand_items);
}

hone_status hn_infer_tile(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    int count;
    const hn_dim *repeats = hn_infer_elems(ctx, ctx->node->inputs[1], &count);
    hn_dim dims[HN_MAX_RANK];
    if (type->rank < 0 || !repeats) {
        hn_infer_unknown(ctx, 0, type->dtype, type->rank);
        return HONE_OK;
    }
    if (count != type->rank)
        HN_BAD_NODE(err, ctx->node, "%d repeats for %d dims", count, type->rank);
    for (int d = 0; d < count; d++) {
        if (hn_dim_is_const(repeats[d]) && repeats[d] < 0)
            HN_BAD_NODE(err, ctx->node, "repeat %d is negative", d);
        dims[d] = hn_dim_mul(ctx->dims, type->dims[d], repeats[d]);
    }
    hn_infer_set(ctx, 0, type->dtype, count, dims);
    hn_infer_move_elems(ctx, 1, hn_ref_tile);
    return HONE_OK;
}

static hone_status tile_items(hone_error *err, const hn_call *call) {
    (void)err;
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    size_t item = hn_item_bytes(out);
    int64_t strides[HN_MAX_RANK], index[HN_MAX_RANK] = {0};
    hn_strides(&in->shape, strides);
    char *to = out->data;
    int rank = out->shape.rank;
    for (int64_t left = hn_tensor_count(out); left > 0; left--, to += item) {
        int64_t from = 0;
        for (int d = 0; d < rank; d++)
            from += index[d] % in->shape.dims[d] * strides[d];
        memcpy(to, (const char *)in->data + (size_t)from * item, item);
        (void)hn_index_next(index, out->shape.dims, rank);
    }
    return HONE_OK;
}
hone_status hn_ref_tile(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, tile_items);
}

// ---- Constant, ConstantOfShape, Range, EyeLike ------------------------------------------------------
hone_status hn_infer_constant(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    if (node->attr_count != 1)
        HN_BAD_NODE(err, node, "has %d attributes where one is due", node->attr_count);
    const hn_attr *attr = &node->attrs[0];
    hn_dim length = attr->count;
    hn_type type;
    switch (attr->type) {
    case HN_ATTR_TENSOR:
        hn_type_set_shape(&type, attr->tensor->dtype, &attr->tensor->shape);
        hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
        break;
    case HN_ATTR_INT:
        hn_infer_set(ctx, 0, HN_I64, 0, NULL);
        hn_infer_set_elems(ctx, 0, &attr->i, 1);
        break;
    case HN_ATTR_INTS:
        hn_infer_set(ctx, 0, HN_I64, 1, &length);
        if (length <= HN_ELEMS_MAX) hn_infer_set_elems(ctx, 0, attr->ints, (int)length);
        break;
    case HN_ATTR_FLOAT: hn_infer_set(ctx, 0, HN_F32, 0, NULL); break;
    case HN_ATTR_FLOATS: hn_infer_set(ctx, 0, HN_F32, 1, &length); break;
    default:
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "attribute '%s' is not supported", attr->name);
    }
    return HONE_OK;
}

hone_status hn_ref_constant(hone_error *err, const hn_call *call) {
    const hn_attr *attr = &call->node->attrs[0];
    hn_tensor *out = call->outputs[0];
    const void *from = attr->type == HN_ATTR_TENSOR  ? attr->tensor->data
                       : attr->type == HN_ATTR_INT   ? (const void *)&attr->i
                       : attr->type == HN_ATTR_FLOAT ? (const void *)&attr->f
                       : attr->type == HN_ATTR_INTS  ? (const void *)attr->ints
                                                     : (const void *)attr->floats;
    if (out->dtype == HN_STRING)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "string tensors are not supported");
    if (out->bytes) memcpy(out->data, from, out->bytes);
    return HONE_OK;
}

static const hn_tensor *fill_value(const hn_node *node) {
    const hn_attr *attr = hn_node_attr(node, "value");
    return attr && attr->type == HN_ATTR_TENSOR ? attr->tensor : NULL;
}

hone_status hn_infer_constant_of_shape(hone_error *err, hn_infer *ctx) {
    const hn_tensor *value = fill_value(ctx->node);
    hn_dim dims[HN_MAX_RANK], copies[HN_ELEMS_MAX];
    int rank;
    if (value && hn_tensor_count(value) != 1)
        HN_BAD_NODE(err, ctx->node, "attribute 'value' has %lld elements where one is due",
                    (long long)hn_tensor_count(value));
    HN_TRY(hn_infer_dims_input(err, ctx, ctx->node->inputs[0], &rank, dims));
    hn_infer_set(ctx, 0, value ? value->dtype : HN_F32, rank, dims);
    if (rank < 0) return HONE_OK;
    hn_dim total = hn_infer_product(ctx->dims, dims, 0, rank);
    if (!hn_dim_is_const(total) || total > HN_ELEMS_MAX) return HONE_OK;
    if (value && hn_dtype_is_float(value->dtype) &&
        hn_tensor_get_f64(value, 0) != (double)hn_tensor_get_i64(value, 0))
        return HONE_OK;
    for (int64_t i = 0; i < total; i++)
        copies[i] = value ? hn_tensor_get_i64(value, 0) : 0;
    if (total && !hn_dim_is_const(copies[0])) return HONE_OK;
    hn_infer_set_elems(ctx, 0, copies, (int)total);
    return HONE_OK;
}

hone_status hn_ref_constant_of_shape(hone_error *err, const hn_call *call) {
    const hn_tensor *value = fill_value(call->node);
    hn_tensor *out = call->outputs[0];
    if (out->bytes) memset(out->data, 0, out->bytes);
    if (!value) return HONE_OK;
    if (!hn_dtype_is_plain(out->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "%s is not supported",
                     hn_dtype_name(out->dtype));
    hn_cell cells[HN_CHUNK];
    hn_class class = hn_dtype_class(out->dtype);
    hn_cells_load(value, 0, 0, HN_CHUNK, class, cells);
    int64_t total = hn_tensor_count(out);
    for (int64_t at = 0; at < total; at += HN_CHUNK)
        hn_cells_store(out, at, (int)hn_min_i64(HN_CHUNK, total - at), class, cells);
    return HONE_OK;
}

static hn_status range_count(hone_error *err, hn_infer *ctx, const double *number,
                             hn_dim *out_count) {
    double count = ceil((number[1] - number[0]) / number[2]);
    if (number[2] == 0) HN_BAD_NODE(err, ctx->node, "the step is 0");
    if (count > 0x1p53)
        HN_FAIL_NODE(err, HONE_ERR_LIMIT, ctx->node, "gives %.3g elements", count);
    *out_count = count > 0 ? (int64_t)count : 0;
    return HONE_OK;
}

static void range_elems(hn_infer *ctx, const hn_dim *start, const hn_dim *delta, hn_dim count) {
    hn_dim elems[HN_ELEMS_MAX];
    if (!hn_dim_is_const(count) || count > HN_ELEMS_MAX) return;
    hn_dim at = *start;
    for (int64_t i = 0; i < count; i++) {
        elems[i] = at;
        at = hn_dim_add(ctx->dims, at, *delta);
    }
    hn_infer_set_elems(ctx, 0, elems, (int)count);
}

hone_status hn_infer_range(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_dtype dtype = node->inputs[0]->type.dtype;
    double number[3];
    const hn_dim *parts[3];
    bool numbers = true, symbols = true;
    for (int i = 0; i < 3; i++) {
        int count;
        if (i) HN_TRY(hn_infer_same_dtype(err, ctx, 0, i));
        numbers = hn_infer_number(ctx, node->inputs[i], &number[i]) && numbers;
        parts[i] = hn_infer_elems(ctx, node->inputs[i], &count);
        symbols = symbols && parts[i] && count == 1;
    }
    hn_dim count;
    if (numbers) {
        HN_TRY(range_count(err, ctx, number, &count));
    } else if (symbols && hn_dim_is_const(*parts[2]) && *parts[2] > 0) {
        int64_t lo, hi;
        hn_dim span = hn_dim_sub(ctx->dims, *parts[1], *parts[0]);
        count = hn_dim_ceildiv(ctx->dims, span, *parts[2]);
        hn_dim_range(ctx->dims, count, &lo, &hi);
        if (lo < 0) count = hn_dim_max(ctx->dims, count, 0);
    } else {
        count = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    }
    hn_infer_set(ctx, 0, dtype, 1, &count);
    if (symbols) range_elems(ctx, parts[0], parts[2], count);
    return HONE_OK;
}

hone_status hn_ref_range(hone_error *err, const hn_call *call) {
    (void)err;
    hn_tensor *out = call->outputs[0];
    hn_class class = hn_dtype_class(out->dtype);
    hn_cell start, delta, cells[HN_CHUNK];
    hn_cells_load(call->inputs[0], 0, 0, 1, class, &start);
    hn_cells_load(call->inputs[2], 0, 0, 1, class, &delta);
    int64_t total = hn_tensor_count(out);
    for (int64_t at = 0; at < total; at += HN_CHUNK) {
        int count = (int)hn_min_i64(HN_CHUNK, total - at);
        for (int k = 0; k < count; k++) {
            if (class == HN_CLASS_F)
                cells[k].f = start.f + (double)(at + k) * delta.f;
            else
                cells[k].u = start.u + (uint64_t)(at + k) * delta.u;
        }
        hn_cells_store(out, at, count, class, cells);
    }
    return HONE_OK;
}

hone_status hn_infer_eye_like(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    const hn_attr *wanted = hn_node_attr(ctx->node, "dtype");
    hn_dtype dtype = wanted ? hn_dtype_from_onnx(wanted->i) : type->dtype;
    if (wanted && dtype == HN_NONE)
        HN_BAD_NODE(err, ctx->node, "element type %lld does not exist", (long long)wanted->i);
    if (type->rank >= 0 && type->rank != 2)
        HN_BAD_NODE(err, ctx->node, "the input has %d dims where 2 are due", type->rank);
    hn_infer_set(ctx, 0, dtype, type->rank, type->dims);
    return HONE_OK;
}

hone_status hn_ref_eye_like(hone_error *err, const hn_call *call) {
    (void)err;
    hn_tensor *out = call->outputs[0];
    int64_t rows = out->shape.dims[0], columns = out->shape.dims[1];
    int64_t shift = hn_op_int(call->node, "k"), column;
    if (out->bytes) memset(out->data, 0, out->bytes);
    for (int64_t r = 0; r < rows; r++)
        if (hn_add_i64(r, shift, &column) && column >= 0 && column < columns)
            hn_tensor_set_i64(out, r * columns + column, 1);
    return HONE_OK;
}
