// SPDX-License-Identifier: Apache-2.0
// Pad (every mode, negative pads, axes) and CenterCropPad.
#include "ops/move.h"

// ---- Pad ----------------------------------------------------------------------------------------
// Pads by dim, from the pads and axes inputs given as numbers or symbols.
static hn_status pad_axes(hone_error *err, hn_infer *ctx, int rank, int *out_axes, int *out_count) {
    const hn_value *axes = hn_in(ctx->node, 3);
    int64_t given[HN_MAX_RANK];
    uint32_t seen = 0;
    *out_count = rank;
    for (int d = 0; d < rank; d++)
        out_axes[d] = d;
    if (!axes) return HONE_OK;
    if (!hn_infer_ints(ctx, axes, given, HN_MAX_RANK, out_count)) {
        *out_count = -1;
        return HONE_OK;
    }
    for (int i = 0; i < *out_count; i++) {
        HN_TRY(hn_infer_axis(err, ctx, given[i], rank, &out_axes[i]));
        if (seen >> out_axes[i] & 1)
            HN_BAD_NODE(err, ctx->node, "axis %d is given twice", out_axes[i]);
        seen |= 1u << out_axes[i];
    }
    return HONE_OK;
}

hone_status hn_infer_pad(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_type type = node->inputs[0]->type;
    int count, length, axes[HN_MAX_RANK];
    hn_slice mode = hn_op_string(node, "mode");
    if (!hn_slice_eq(mode, "constant") && !hn_slice_eq(mode, "reflect") &&
        !hn_slice_eq(mode, "edge") && !hn_slice_eq(mode, "wrap"))
        HN_BAD_NODE(err, node, "mode '%.*s' does not exist", (int)mode.length, mode.data);
    if (type.rank < 0) {
        hn_infer_unknown(ctx, 0, type.dtype, -1);
        return HONE_OK;
    }
    HN_TRY(pad_axes(err, ctx, type.rank, axes, &count));
    const hn_dim *pads = hn_infer_elems(ctx, node->inputs[1], &length);
    if (count < 0 || !pads) {
        hn_infer_unknown(ctx, 0, type.dtype, type.rank);
        return HONE_OK;
    }
    if (length != 2 * count)
        HN_BAD_NODE(err, node, "%d pads are given for %d axes", length, count);
    for (int i = 0; i < count; i++) {
        hn_dim both = hn_dim_add(ctx->dims, pads[i], pads[count + i]);
        hn_dim dim = hn_dim_add(ctx->dims, type.dims[axes[i]], both);
        bool known = hn_dim_is_const(pads[i]) && hn_dim_is_const(pads[count + i]) &&
                     hn_dim_is_const(type.dims[axes[i]]);
        if (dim == HN_DIM_FAILED || (known && !hn_dim_is_const(dim)) ||
            (hn_dim_is_const(dim) && dim < 0))
            HN_BAD_NODE(err, node, "the pads of axis %d leave no valid size", axes[i]);
        type.dims[axes[i]] = dim;
    }
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    hn_infer_move_elems(ctx, 5, hn_ref_pad);
    return HONE_OK;
}

typedef enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP } pad_mode;

static pad_mode read_mode(const hn_node *node) {
    hn_slice mode = hn_op_string(node, "mode");
    if (hn_slice_eq(mode, "reflect")) return PAD_REFLECT;
    if (hn_slice_eq(mode, "edge")) return PAD_EDGE;
    return hn_slice_eq(mode, "wrap") ? PAD_WRAP : PAD_CONSTANT;
}

// Where position `at` of the kept part (size n, positions may lie outside) comes from; -1: the fill.
static int64_t source_of(int64_t at, int64_t n, pad_mode mode) {
    if (at >= 0 && at < n) return at;
    switch (mode) {
    case PAD_EDGE: return at < 0 ? 0 : n - 1;
    case PAD_WRAP: return ((at % n) + n) % n;
    case PAD_REFLECT: {
        if (n == 1) return 0;
        int64_t period = 2 * (n - 1), phase = ((at % period) + period) % period;
        return phase < n ? phase : period - phase;
    }
    default: return -1;
    }
}

typedef struct pad_axis {
    int64_t begin, crop, kept; // leading pad (>= 0), leading elements cut off, elements that stay
} pad_axis;

static hn_status read_pads(hone_error *err, const hn_call *call, pad_mode mode, pad_axis *out) {
    const hn_tensor *in = call->inputs[0], *pads = call->inputs[1], *axes = hn_call_in(call, 3);
    int64_t count = axes ? hn_tensor_count(axes) : in->shape.rank;
    for (int d = 0; d < in->shape.rank; d++)
        out[d] = (pad_axis){0, 0, in->shape.dims[d]};
    if (hn_tensor_count(pads) != 2 * count)
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "%lld pads are given for %lld axes",
                     (long long)hn_tensor_count(pads), (long long)count);
    for (int64_t i = 0; i < count; i++) {
        int axis;
        HN_TRY(hn_call_axis(err, call, axes ? hn_tensor_get_i64(axes, i) : i, in->shape.rank, &axis));
        int64_t begin = hn_tensor_get_i64(pads, i), end = hn_tensor_get_i64(pads, count + i);
        int64_t dim = in->shape.dims[axis];
        pad_axis *pad = &out[axis];
        pad->begin = hn_max_i64(begin, 0);
        // What negative pads cut off; a cut beyond the other end leaves nothing.
        pad->crop = begin < 0 ? hn_min_i64(begin <= -dim ? dim : -begin, dim) : 0;
        int64_t cut = end < 0 ? (end <= -dim ? dim : -end) : 0;
        pad->kept = hn_max_i64(0, dim - pad->crop - cut);
        if (mode != PAD_CONSTANT && pad->kept == 0 && out[axis].begin + hn_max_i64(end, 0) > 0)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "axis %d is empty and cannot be extended",
                         axis);
    }
    return HONE_OK;
}

static void pad_fill(const hn_call *call, const pad_axis *pads, pad_mode mode, int64_t *map) {
    const hn_tensor *in = call->inputs[0], *fill = hn_call_in(call, 2);
    hn_tensor *out = call->outputs[0];
    size_t item = hn_item_bytes(out);
    int rank = out->shape.rank;
    int64_t strides[HN_MAX_RANK], index[HN_MAX_RANK] = {0}, *maps[HN_MAX_RANK];
    static const char k_zero[16] = {0};
    const char *filling = fill && hn_tensor_count(fill) ? fill->data : k_zero;
    hn_strides(&in->shape, strides);
    for (int d = 0; d < rank; d++) {
        maps[d] = map;
        for (int64_t i = 0; i < out->shape.dims[d]; i++) {
            int64_t source = source_of(i - pads[d].begin, pads[d].kept, mode);
            *map++ = source < 0 ? -1 : (source + pads[d].crop) * strides[d];
        }
    }
    char *to = out->data;
    for (int64_t left = hn_tensor_count(out); left > 0; left--, to += item) {
        int64_t offset = 0;
        bool inside = true;
        for (int d = 0; d < rank; d++) {
            inside &= maps[d][index[d]] >= 0;
            offset += maps[d][index[d]];
        }
        memcpy(to, inside ? (const char *)in->data + (size_t)offset * item : filling, item);
        (void)hn_index_next(index, out->shape.dims, rank);
    }
}

static hone_status pad_items(hone_error *err, const hn_call *call) {
    hn_tensor *out = call->outputs[0];
    pad_mode mode = read_mode(call->node);
    pad_axis pads[HN_MAX_RANK];
    if (!hn_tensor_count(out)) return HONE_OK;
    HN_TRY(read_pads(err, call, mode, pads));
    int64_t slots = 1;
    for (int d = 0; d < out->shape.rank; d++)
        slots += out->shape.dims[d];
    int64_t *map = hn_realloc_array(NULL, (size_t)slots, sizeof *map);
    if (!map) HN_NOMEM(err, "padding");
    pad_fill(call, pads, mode, map);
    hn_free(map);
    return HONE_OK;
}
hone_status hn_ref_pad(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, pad_items);
}

// ---- CenterCropPad ------------------------------------------------------------------------------
hone_status hn_infer_center_crop_pad(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_type type = node->inputs[0]->type;
    int64_t axes[HN_MAX_RANK];
    int count, length;
    if (type.rank < 0) {
        hn_infer_unknown(ctx, 0, type.dtype, -1);
        return HONE_OK;
    }
    HN_TRY(hn_infer_attr_ints(err, ctx, "axes", axes, HN_MAX_RANK, &count));
    bool all = !hn_node_attr(node, "axes");
    if (all) count = type.rank;
    const hn_dim *target = hn_infer_elems(ctx, node->inputs[1], &length);
    if (target && length != count)
        HN_BAD_NODE(err, node, "%d sizes are given for %d axes", length, count);
    uint32_t seen = 0;
    for (int i = 0; i < count; i++) {
        int axis;
        HN_TRY(hn_infer_axis(err, ctx, all ? i : axes[i], type.rank, &axis));
        if (seen >> axis & 1) HN_BAD_NODE(err, node, "axis %d is given twice", axis);
        seen |= 1u << axis;
        type.dims[axis] = target ? target[i] : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        if (hn_dim_is_const(type.dims[axis]) && type.dims[axis] < 0)
            HN_BAD_NODE(err, node, "the size of axis %d is negative", axis);
    }
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    return HONE_OK;
}

static hone_status center_crop_pad_items(hone_error *err, const hn_call *call) {
    (void)err;
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    int64_t from[HN_MAX_RANK], to[HN_MAX_RANK], dims[HN_MAX_RANK], source = 0, target = 0;
    if (out->bytes) memset(out->data, 0, out->bytes);
    hn_strides(&in->shape, from);
    hn_strides(&out->shape, to);
    for (int d = 0; d < in->shape.rank; d++) {
        int64_t have = in->shape.dims[d], want = out->shape.dims[d];
        dims[d] = hn_min_i64(have, want);
        if (have > want)
            source += (have - want) / 2 * from[d];
        else
            target += (want - have) / 2 * to[d];
    }
    if (!hn_tensor_count(in) || !hn_tensor_count(out)) return HONE_OK;
    size_t item = hn_item_bytes(in);
    hn_copy_strided((char *)out->data + (size_t)target * item, to,
                    (const char *)in->data + (size_t)source * item, from, dims, in->shape.rank, item);
    return HONE_OK;
}
hone_status hn_ref_center_crop_pad(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, center_crop_pad_items);
}
