// SPDX-License-Identifier: Apache-2.0
// Ops that move elements: each finds steps, then one strided copy does the work. Every element size
// goes the same way; 4- and 2-bit tensors are opened to bytes by hn_move_call.
#include "ops/move.h"

void hn_copy_strided(char *to, const int64_t *to_steps, const char *from, const int64_t *from_steps,
                     const int64_t *dims, int rank, size_t item) {
    int64_t index[HN_MAX_RANK] = {0};
    int64_t size = (int64_t)item;
    for (int d = 0; d < rank; d++)
        if (dims[d] == 0) return;
    int inner = rank - 1;
    int64_t row = rank ? dims[inner] : 1;
    int64_t to_step = rank ? to_steps[inner] * size : 0, from_step = rank ? from_steps[inner] * size : 0;
    for (;;) {
        if (to_step == size && from_step == size)
            memcpy(to, from, (size_t)(row * size));
        else
            for (int64_t k = 0; k < row; k++)
                memcpy(to + k * to_step, from + k * from_step, item);
        int d = inner - 1;
        for (; d >= 0; d--) {
            to += to_steps[d] * size;
            from += from_steps[d] * size;
            if (++index[d] < dims[d]) break;
            to -= to_steps[d] * dims[d] * size;
            from -= from_steps[d] * dims[d] * size;
            index[d] = 0;
        }
        if (d < 0) return;
    }
}

hn_status hn_infer_merge_dim(hone_error *err, const hn_infer *ctx, hn_dim a, hn_dim b, int axis,
                             hn_dim *out_dim) {
    if (hn_dim_is_const(a) && hn_dim_is_const(b) && a != b)
        HN_BAD_NODE(err, ctx->node, "dims %lld and %lld on axis %d must be equal", (long long)a,
                    (long long)b, axis);
    *out_dim = hn_dim_is_const(b) ? b : a;
    return HONE_OK;
}

void hn_infer_unknown(hn_infer *ctx, int index, hn_dtype dtype, int rank) {
    hn_dim dims[HN_MAX_RANK];
    for (int d = 0; d < rank; d++)
        dims[d] = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    hn_infer_set(ctx, index, dtype, rank, dims);
}

static hn_status need_rank(hone_error *err, const hn_infer *ctx, int input, int rank) {
    const hn_value *value = ctx->node->inputs[input];
    if (value->type.rank >= 0 && value->type.rank != rank)
        HN_BAD_NODE(err, ctx->node, "input %d has %d dims where %d are due", input,
                    value->type.rank, rank);
    return HONE_OK;
}

// ---- Transpose ----------------------------------------------------------------------------------
static bool read_perm(const hn_node *node, int rank, int *out_perm) {
    int64_t count;
    const int64_t *perm = hn_node_ints(node, "perm", &count);
    uint32_t seen = 0;
    if (perm && count != rank) return false;
    for (int d = 0; d < rank; d++) {
        int64_t axis = perm ? perm[d] : rank - 1 - d;
        if (axis < 0 || axis >= rank || (seen >> axis & 1)) return false;
        seen |= 1u << axis;
        out_perm[d] = (int)axis;
    }
    return true;
}

hone_status hn_infer_transpose(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    int perm[HN_MAX_RANK];
    hn_dim dims[HN_MAX_RANK];
    if (type->rank < 0) {
        int64_t count;
        const int64_t *list = hn_node_ints(ctx->node, "perm", &count);
        hn_infer_unknown(ctx, 0, type->dtype, list && count <= HN_MAX_RANK ? (int)count : -1);
        return HONE_OK;
    }
    if (!read_perm(ctx->node, type->rank, perm))
        HN_BAD_NODE(err, ctx->node, "'perm' is not an order of %d dims", type->rank);
    for (int d = 0; d < type->rank; d++)
        dims[d] = type->dims[perm[d]];
    hn_infer_set(ctx, 0, type->dtype, type->rank, dims);
    hn_infer_move_elems(ctx, 1, hn_ref_transpose);
    return HONE_OK;
}

static hone_status transpose_items(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    int perm[HN_MAX_RANK];
    int64_t strides[HN_MAX_RANK], from[HN_MAX_RANK], to[HN_MAX_RANK];
    if (!read_perm(call->node, in->shape.rank, perm))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "'perm' is not an order of %d dims",
                     in->shape.rank);
    hn_strides(&in->shape, strides);
    hn_strides(&out->shape, to);
    for (int d = 0; d < in->shape.rank; d++)
        from[d] = strides[perm[d]];
    hn_copy_strided(out->data, to, in->data, from, out->shape.dims, out->shape.rank,
                    hn_item_bytes(in));
    return HONE_OK;
}
hone_status hn_ref_transpose(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, transpose_items);
}

// ---- Concat -------------------------------------------------------------------------------------
// A vector put together from parts: what is not known of one part becomes fresh symbols.
static void concat_elems(hn_infer *ctx, hn_dim length) {
    const hn_node *node = ctx->node;
    hn_dim elems[HN_ELEMS_MAX];
    int at = 0;
    bool any = false;
    if (!hn_dim_is_const(length) || length > HN_ELEMS_MAX) return;
    if (!hn_dtype_is_int(node->inputs[0]->type.dtype)) return;
    for (int i = 0; i < node->input_count; i++) {
        int count;
        const hn_dim *part = hn_infer_elems(ctx, node->inputs[i], &count);
        any |= part != NULL;
        if (!part) count = (int)node->inputs[i]->type.dims[0];
        for (int k = 0; k < count && at < HN_ELEMS_MAX; k++)
            elems[at++] = part ? part[k] : hn_dim_fresh(ctx->dims, HN_ELEM_UNKNOWN, INT64_MAX);
    }
    if (any && at == length) hn_infer_set_elems(ctx, 0, elems, at);
}

hone_status hn_infer_concat(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_type type = {.rank = -1};
    int axis = 0;
    hn_dim sum = 0;
    bool complete = true;
    for (int i = 0; i < node->input_count; i++) {
        if (!node->inputs[i]) HN_BAD_NODE(err, node, "input %d is absent", i);
        const hn_type *own = &node->inputs[i]->type;
        HN_TRY(hn_infer_same_dtype(err, ctx, 0, i));
        if (!type.dtype) type.dtype = own->dtype;
        if (own->rank < 0) {
            complete = false;
            continue;
        }
        if (type.rank < 0) {
            HN_TRY(hn_infer_axis(err, ctx, hn_op_int(node, "axis"), own->rank, &axis));
            hn_dtype dtype = type.dtype;
            type = *own;
            type.dtype = dtype;
        } else if (own->rank != type.rank) {
            HN_BAD_NODE(err, node, "inputs have %d and %d dims", type.rank, own->rank);
        }
        for (int d = 0; d < own->rank; d++)
            if (d != axis)
                HN_TRY(hn_infer_merge_dim(err, ctx, type.dims[d], own->dims[d], d, &type.dims[d]));
        sum = hn_dim_add(ctx->dims, sum, own->dims[axis]);
    }
    if (type.rank >= 0) type.dims[axis] = complete ? sum : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    if (type.rank == 1 && complete)
        concat_elems(ctx, sum);
    else if (type.rank > 1)
        hn_infer_move_elems(ctx, ~0ull, hn_ref_concat);
    return HONE_OK;
}

static hone_status concat_items(hone_error *err, const hn_call *call) {
    hn_tensor *out = call->outputs[0];
    int axis;
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), out->shape.rank, &axis));
    size_t item = hn_item_bytes(out);
    int64_t outer = hn_span(&out->shape, 0, axis);
    size_t row = (size_t)hn_span(&out->shape, axis, out->shape.rank) * item, at = 0;
    if (!hn_tensor_count(out)) return HONE_OK;
    for (int i = 0; i < call->input_count; i++) {
        const hn_tensor *in = call->inputs[i];
        size_t part = (size_t)hn_span(&in->shape, axis, in->shape.rank) * item;
        for (int64_t o = 0; part && o < outer; o++)
            memcpy((char *)out->data + (size_t)o * row + at,
                   (const char *)in->data + (size_t)o * part, part);
        at += part;
    }
    return HONE_OK;
}
hone_status hn_ref_concat(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, concat_items);
}

// ---- Split --------------------------------------------------------------------------------------
static hn_status split_sizes(hone_error *err, hn_infer *ctx, hn_dim dim, int parts, hn_dim *out) {
    const hn_node *node = ctx->node;
    const hn_value *given = hn_in(node, 1);
    int count;
    const hn_dim *sizes = given ? hn_infer_elems(ctx, given, &count) : NULL;
    if (sizes && count != parts)
        HN_BAD_NODE(err, node, "%d sizes for %d outputs", count, parts);
    hn_dim sum = 0, chunk = hn_dim_ceildiv(ctx->dims, dim, parts);
    for (int i = 0; i < parts; i++) {
        if (given)
            out[i] = sizes ? sizes[i] : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        else
            out[i] = i < parts - 1 ? chunk : hn_dim_sub(ctx->dims, dim, sum);
        if (hn_dim_is_const(out[i]) && out[i] < 0)
            HN_BAD_NODE(err, node, "part %d has %lld elements", i, (long long)out[i]);
        sum = hn_dim_add(ctx->dims, sum, out[i]);
    }
    if (hn_dim_is_const(sum) && hn_dim_is_const(dim) && sum != dim)
        HN_BAD_NODE(err, node, "the parts have %lld elements of %lld", (long long)sum,
                    (long long)dim);
    return HONE_OK;
}

hone_status hn_infer_split(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *type = &node->inputs[0]->type;
    int axis, parts = node->output_count;
    const hn_attr *wanted = hn_node_attr(node, "num_outputs");
    if (wanted && wanted->i != parts)
        HN_BAD_NODE(err, node, "'num_outputs' is %lld with %d outputs", (long long)wanted->i, parts);
    if (type->rank < 0) {
        for (int i = 0; i < parts; i++)
            hn_infer_unknown(ctx, i, type->dtype, -1);
        return HONE_OK;
    }
    HN_TRY(hn_infer_axis(err, ctx, hn_op_int(node, "axis"), type->rank, &axis));
    hn_dim *sizes = hn_calloc((size_t)parts + 1, sizeof *sizes);
    if (!sizes) HN_NOMEM(err, "inferring Split");
    hone_status status = split_sizes(err, ctx, type->dims[axis], parts, sizes);
    for (int i = 0; i < parts && status == HONE_OK; i++) {
        hn_type own = *type;
        own.dims[axis] = sizes[i];
        hn_infer_set(ctx, i, own.dtype, own.rank, own.dims);
    }
    hn_free(sizes);
    if (status == HONE_OK) hn_infer_move_elems(ctx, 1, hn_ref_split);
    return status;
}

static hone_status split_items(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    int axis;
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), in->shape.rank, &axis));
    size_t item = hn_item_bytes(in), at = 0;
    int64_t outer = hn_span(&in->shape, 0, axis);
    size_t row = (size_t)hn_span(&in->shape, axis, in->shape.rank) * item;
    int64_t inner = hn_span(&in->shape, axis + 1, in->shape.rank), used = 0;
    int64_t chunk = hn_ceil_div_i64(in->shape.dims[axis], call->output_count);
    const hn_tensor *sizes = hn_call_in(call, 1);
    if (!hn_tensor_count(in)) return HONE_OK;
    for (int i = 0; i < call->output_count; i++) {
        hn_tensor *out = call->outputs[i];
        int64_t length = sizes ? hn_tensor_get_i64(sizes, i)
                               : hn_min_i64(chunk, in->shape.dims[axis] - used);
        size_t part = (size_t)(length * inner) * item;
        for (int64_t o = 0; out && part && o < outer; o++)
            memcpy((char *)out->data + (size_t)o * part,
                   (const char *)in->data + (size_t)o * row + at, part);
        at += part;
        used += length;
    }
    return HONE_OK;
}
hone_status hn_ref_split(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, split_items);
}

// ---- Slice --------------------------------------------------------------------------------------
// Minimum and maximum that use what the difference of the operands is known to be.
static hn_dim lesser(hn_dims *dims, hn_dim a, hn_dim b) {
    int64_t lo, hi;
    hn_dim_range(dims, hn_dim_sub(dims, a, b), &lo, &hi);
    return hi <= 0 ? a : (lo >= 0 ? b : hn_dim_min(dims, a, b));
}
static hn_dim greater(hn_dims *dims, hn_dim a, hn_dim b) {
    return lesser(dims, a, b) == a ? b : (lesser(dims, a, b) == b ? a : hn_dim_max(dims, a, b));
}

// A start or end counted from the front, clamped to [low, high]; false if its sign is unknown. Ends
// beyond every 32-bit number mean the border: exporters write them so.
static bool slice_bound(hn_dims *dims, hn_dim bound, hn_dim dim, hn_dim low, hn_dim high,
                        hn_dim *out) {
    int64_t lo, hi;
    hn_dim_range(dims, bound, &lo, &hi);
    if (lo >= INT32_MAX) {
        *out = high;
    } else if (hi <= -(int64_t)INT32_MAX) {
        *out = lesser(dims, low, high); // high is -1 where dim is 0
    } else if (lo >= 0) {
        *out = lesser(dims, greater(dims, bound, low), high);
    } else if (hi < 0) {
        hn_dim place = hn_dim_add(dims, dim, bound);
        if (high == dim) *out = greater(dims, place, low); // below high as it is
        else if (bound == -1) *out = place;                // high itself, also where dim is 0
        else *out = lesser(dims, greater(dims, place, low), high);
    } else {
        return false;
    }
    return true;
}

static hn_dim slice_length(hn_dims *dims, hn_dim dim, hn_dim start, hn_dim end, int64_t step) {
    hn_dim from, to, high = step > 0 ? dim : hn_dim_sub(dims, dim, 1);
    // With a negative step the clamped range is -1 .. dim-1; an end of -1 is already "dim - 1".
    if (!slice_bound(dims, start, dim, 0, high, &from) ||
        !slice_bound(dims, end, dim, step > 0 ? 0 : -1, high, &to))
        return hn_dim_fresh(dims, 0, INT64_MAX);
    hn_dim span = step > 0 ? hn_dim_sub(dims, to, from) : hn_dim_sub(dims, from, to);
    int64_t size = step > 0 ? step : (step == INT64_MIN ? INT64_MAX : -step), lo, hi;
    if (hn_dim_is_const(span)) return span > 0 ? (span - 1) / size + 1 : 0;
    hn_dim length = size == 1 ? span : hn_dim_ceildiv(dims, span, size);
    hn_dim_range(dims, length, &lo, &hi);
    return lo >= 0 ? length : greater(dims, length, 0);
}

// Starts or ends. Constants near the lowest number, which "up to the front" is written as, are no
// elements of shape arithmetic: they are read here and mean the same after clamping.
static const hn_dim *slice_elems(hn_infer *ctx, const hn_value *value, hn_dim *buffer,
                                 int *out_count) {
    const hn_dim *elems = hn_infer_elems(ctx, value, out_count);
    const hn_tensor *data = value->constant;
    if (elems || !data || value->overridable || !hn_dtype_is_int(data->dtype)) return elems;
    int64_t count = hn_tensor_count(data);
    if (count > HN_MAX_RANK) return NULL;
    for (int64_t i = 0; i < count; i++)
        buffer[i] = hn_max_i64(hn_tensor_get_i64(data, i), INT64_MIN / 2);
    *out_count = (int)count;
    return buffer;
}

hone_status hn_infer_slice(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_dim buffers[2][HN_MAX_RANK];
    hn_type type = node->inputs[0]->type;
    int64_t axes[HN_MAX_RANK], steps[HN_MAX_RANK];
    int starts_count, ends_count, axes_count, steps_count;
    for (int i = 1; i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->type.dtype &&
            !hn_dtype_is_int(node->inputs[i]->type.dtype))
            HN_BAD_NODE(err, node, "input %d has type %s where integers are due", i,
                        hn_dtype_name(node->inputs[i]->type.dtype));
    const hn_dim *starts = slice_elems(ctx, node->inputs[1], buffers[0], &starts_count);
    const hn_dim *ends = slice_elems(ctx, node->inputs[2], buffers[1], &ends_count);
    if (type.rank < 0) {
        hn_infer_unknown(ctx, 0, type.dtype, -1);
        return HONE_OK;
    }
    bool has_axes = hn_in(node, 3) != NULL, has_steps = hn_in(node, 4) != NULL;
    int count = starts ? starts_count : (ends ? ends_count : -1);
    bool axes_known = has_axes && hn_infer_ints(ctx, node->inputs[3], axes, HN_MAX_RANK, &axes_count);
    bool steps_known =
        has_steps && hn_infer_ints(ctx, node->inputs[4], steps, HN_MAX_RANK, &steps_count);
    if (axes_known && count < 0) count = axes_count;
    if ((has_axes && !axes_known) || count < 0) {
        hn_infer_unknown(ctx, 0, type.dtype, type.rank);
        return HONE_OK;
    }
    if (count > type.rank || (starts && starts_count != count) || (ends && ends_count != count) ||
        (axes_known && axes_count != count) || (steps_known && steps_count != count))
        HN_BAD_NODE(err, node, "its starts, ends, axes and steps have different lengths");
    uint32_t seen = 0;
    for (int i = 0; i < count; i++) {
        int axis;
        HN_TRY(hn_infer_axis(err, ctx, has_axes ? axes[i] : i, type.rank, &axis));
        if (seen >> axis & 1) HN_BAD_NODE(err, node, "axis %d is given twice", axis);
        seen |= 1u << axis;
        int64_t step = steps_known ? steps[i] : 1, lo, hi;
        if (step == 0) HN_BAD_NODE(err, node, "the step of axis %d is 0", axis);
        hn_dim_range(ctx->dims, type.dims[axis], &lo, &hi);
        type.dims[axis] = starts && ends && (steps_known || !has_steps)
                              ? slice_length(ctx->dims, type.dims[axis], starts[i], ends[i], step)
                              : hn_dim_fresh(ctx->dims, 0, hi);
    }
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    hn_infer_move_elems(ctx, 1, hn_ref_slice);
    return HONE_OK;
}

static hone_status slice_items(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0], *axes = hn_call_in(call, 3), *steps = hn_call_in(call, 4);
    hn_tensor *out = call->outputs[0];
    int64_t from[HN_MAX_RANK], to[HN_MAX_RANK], offset = 0;
    if (!hn_tensor_count(out)) return HONE_OK;
    hn_strides(&in->shape, from);
    hn_strides(&out->shape, to);
    int64_t count = hn_tensor_count(call->inputs[1]);
    for (int i = 2; i < call->input_count; i++)
        if (call->inputs[i] && hn_tensor_count(call->inputs[i]) != count)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node,
                         "its starts, ends, axes and steps have different lengths");
    for (int64_t i = 0; i < count; i++) {
        int axis;
        HN_TRY(hn_call_axis(err, call, axes ? hn_tensor_get_i64(axes, i) : i, in->shape.rank, &axis));
        int64_t step = steps ? hn_tensor_get_i64(steps, i) : 1, dim = in->shape.dims[axis];
        int64_t start = hn_tensor_get_i64(call->inputs[1], i);
        if (start < 0) start += dim;
        start = hn_max_i64(0, hn_min_i64(start, step > 0 ? dim : dim - 1));
        offset += start * from[axis];
        // A single element needs no step; a huge one could not be multiplied.
        from[axis] = out->shape.dims[axis] > 1 ? from[axis] * step : 0;
    }
    int64_t lowest = offset, highest = offset;
    for (int d = 0; d < out->shape.rank; d++) {
        int64_t reach = (out->shape.dims[d] - 1) * from[d];
        *(reach < 0 ? &lowest : &highest) += reach;
    }
    if (lowest < 0 || highest >= hn_tensor_count(in))
        HN_FAIL_NODE(err, HONE_ERR_INTERNAL, call->node,
                     "elements %lld to %lld of %lld do not agree with the inferred size",
                     (long long)lowest, (long long)highest, (long long)hn_tensor_count(in));
    size_t item = hn_item_bytes(in);
    hn_copy_strided(out->data, to, (const char *)in->data + (size_t)offset * item, from,
                    out->shape.dims, out->shape.rank, item);
    return HONE_OK;
}
hone_status hn_ref_slice(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, slice_items);
}

// ---- DepthToSpace, SpaceToDepth -----------------------------------------------------------------
static hn_status block_size(hone_error *err, const hn_infer *ctx, int64_t *out_block) {
    HN_TRY(need_rank(err, ctx, 0, 4));
    *out_block = hn_op_int(ctx->node, "blocksize");
    if (*out_block < 1 || *out_block > INT32_MAX)
        HN_BAD_NODE(err, ctx->node, "'blocksize' is %lld", (long long)*out_block);
    return HONE_OK;
}

static hn_status divide_dim(hone_error *err, hn_infer *ctx, hn_dim dim, int64_t by, hn_dim *out) {
    if (hn_dim_is_const(dim) && dim % by)
        HN_BAD_NODE(err, ctx->node, "%lld is not a multiple of %lld", (long long)dim, (long long)by);
    if (!hn_dim_divide_exact(ctx->dims, dim, by, out)) *out = hn_dim_floordiv(ctx->dims, dim, by);
    return HONE_OK;
}

hone_status hn_infer_depth_to_space(hone_error *err, hn_infer *ctx) {
    hn_type type = ctx->node->inputs[0]->type;
    int64_t block;
    HN_TRY(block_size(err, ctx, &block));
    if (type.rank == 4) {
        HN_TRY(divide_dim(err, ctx, type.dims[1], block * block, &type.dims[1]));
        for (int d = 2; d < 4; d++)
            type.dims[d] = hn_dim_mul(ctx->dims, type.dims[d], block);
    }
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    return HONE_OK;
}

hone_status hn_infer_space_to_depth(hone_error *err, hn_infer *ctx) {
    hn_type type = ctx->node->inputs[0]->type;
    int64_t block;
    HN_TRY(block_size(err, ctx, &block));
    if (type.rank == 4) {
        type.dims[1] = hn_dim_mul(ctx->dims, type.dims[1], block * block);
        for (int d = 2; d < 4; d++)
            HN_TRY(divide_dim(err, ctx, type.dims[d], block, &type.dims[d]));
    }
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    return HONE_OK;
}

// Both see the deep side as [n, a, b, c, h, w] (DCR: a, b are the block's rows and columns; CRD has
// the channel first) and the wide side as [n, c, h, rows, w, columns].
static void move_blocks(const hn_call *call, const hn_tensor *deep, const hn_tensor *wide, bool crd,
                        bool to_wide) {
    int64_t block = hn_op_int(call->node, "blocksize"), n = deep->shape.dims[0];
    int64_t h = deep->shape.dims[2], w = deep->shape.dims[3], c = wide->shape.dims[1];
    // order of the walk: n, rows, columns, c, h, w
    int64_t dims[6] = {n, block, block, c, h, w}, area = h * w;
    int64_t deep_steps[6] = {c * block * block * area, block * c * area, c * area, area, w, 1};
    if (crd) {
        deep_steps[1] = block * area;
        deep_steps[2] = area;
        deep_steps[3] = block * block * area;
    }
    int64_t wide_steps[6] = {c * h * block * w * block, w * block, 1, h * block * w * block,
                             block * w * block, block};
    char *to = call->outputs[0]->data;
    hn_copy_strided(to, to_wide ? wide_steps : deep_steps, call->inputs[0]->data,
                    to_wide ? deep_steps : wide_steps, dims, 6, hn_item_bytes(deep));
}

static hone_status depth_to_space_items(hone_error *err, const hn_call *call) {
    (void)err;
    bool crd = hn_slice_eq(hn_op_string(call->node, "mode"), "CRD");
    if (hn_tensor_count(call->outputs[0]))
        move_blocks(call, call->inputs[0], call->outputs[0], crd, true);
    return HONE_OK;
}
hone_status hn_ref_depth_to_space(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, depth_to_space_items);
}
static hone_status space_to_depth_items(hone_error *err, const hn_call *call) {
    (void)err;
    if (hn_tensor_count(call->outputs[0]))
        move_blocks(call, call->outputs[0], call->inputs[0], false, false);
    return HONE_OK;
}
hone_status hn_ref_space_to_depth(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, space_to_depth_items);
}

// ---- Trilu --------------------------------------------------------------------------------------
hone_status hn_infer_trilu(hone_error *err, hn_infer *ctx) {
    const hn_value *in = ctx->node->inputs[0];
    if (in->type.rank >= 0 && in->type.rank < 2)
        HN_BAD_NODE(err, ctx->node, "the input has fewer than 2 dims");
    hn_infer_like(ctx, 0, in);
    return HONE_OK;
}

static hone_status trilu_items(hone_error *err, const hn_call *call) {
    (void)err;
    const hn_tensor *in = call->inputs[0], *k = hn_call_in(call, 1);
    hn_tensor *out = call->outputs[0];
    bool upper = hn_op_int(call->node, "upper") != 0;
    int64_t shift = k && hn_tensor_count(k) ? hn_tensor_get_i64(k, 0) : 0;
    int rank = in->shape.rank;
    int64_t rows = in->shape.dims[rank - 2], columns = in->shape.dims[rank - 1];
    size_t item = hn_item_bytes(in);
    shift = hn_max_i64(-rows, hn_min_i64(shift, columns));
    if (out->bytes) memset(out->data, 0, out->bytes);
    int64_t total = hn_tensor_count(in);
    for (int64_t at = 0, line = 0; columns && at < total; at += columns, line++) {
        int64_t edge = hn_max_i64(0, hn_min_i64(line % rows + shift + !upper, columns));
        int64_t from = upper ? edge : 0, to = upper ? columns : edge;
        memcpy((char *)out->data + (size_t)(at + from) * item,
               (const char *)in->data + (size_t)(at + from) * item, (size_t)(to - from) * item);
    }
    return HONE_OK;
}
hone_status hn_ref_trilu(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, trilu_items);
}

// ---- ReverseSequence ----------------------------------------------------------------------------
hone_status hn_infer_reverse_sequence(hone_error *err, hn_infer *ctx) {
    int64_t batch = hn_op_int(ctx->node, "batch_axis"), time = hn_op_int(ctx->node, "time_axis");
    const hn_value *in = ctx->node->inputs[0];
    if (batch == time || batch < 0 || batch > 1 || time < 0 || time > 1)
        HN_BAD_NODE(err, ctx->node, "the batch and time axes must be 0 and 1");
    if (in->type.rank >= 0 && in->type.rank < 2)
        HN_BAD_NODE(err, ctx->node, "the input has fewer than 2 dims");
    hn_infer_like(ctx, 0, in);
    return HONE_OK;
}

static hone_status reverse_sequence_items(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0], *lengths = call->inputs[1];
    hn_tensor *out = call->outputs[0];
    int batch_axis = (int)hn_op_int(call->node, "batch_axis");
    int64_t strides[HN_MAX_RANK];
    hn_strides(&in->shape, strides);
    int64_t batches = in->shape.dims[batch_axis], times = in->shape.dims[1 - batch_axis];
    size_t row = (size_t)strides[1] * hn_item_bytes(in);
    if (!hn_tensor_count(in)) return HONE_OK;
    if (hn_tensor_count(lengths) != batches)
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "%lld lengths for a batch of %lld",
                     (long long)hn_tensor_count(lengths), (long long)batches);
    for (int64_t b = 0; b < batches; b++) {
        int64_t length = hn_tensor_get_i64(lengths, b);
        if (length < 0 || length > times)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "a length of %lld with %lld steps",
                         (long long)length, (long long)times);
        for (int64_t t = 0; t < times; t++) {
            int64_t source = t < length ? length - 1 - t : t;
            int64_t base = b * strides[batch_axis], step = strides[1 - batch_axis];
            memcpy((char *)out->data + (size_t)(base + t * step) * hn_item_bytes(in),
                   (const char *)in->data + (size_t)(base + source * step) * hn_item_bytes(in), row);
        }
    }
    return HONE_OK;
}
hone_status hn_ref_reverse_sequence(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, reverse_sequence_items);
}
