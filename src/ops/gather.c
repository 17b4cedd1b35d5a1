// SPDX-License-Identifier: Apache-2.0
// Gather, Scatter and their like: moves that an index tensor directs. An index outside of its dim is
// HONE_ERR_INPUT, found before anything is read or written there.
#include "ops/nn_int.h"
#include "ops/elementwise.h"
#include "ops/move.h"

static hn_status read_index(hone_error *err, const hn_call *call, const hn_tensor *indices,
                            int64_t at, int64_t dim, int64_t *out) {
    int64_t index = hn_tensor_get_i64(indices, at);
    if (index < -dim || index >= dim)
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "index %lld is outside of a dim of %lld",
                     (long long)index, (long long)dim);
    *out = index < 0 ? index + dim : index;
    return HONE_OK;
}

static hn_status limit_rank(hone_error *err, const hn_infer *ctx, int64_t rank) {
    if (rank > HN_MAX_RANK)
        HN_FAIL_NODE(err, HONE_ERR_LIMIT, ctx->node, "gives %lld dims, the limit is %d",
                     (long long)rank, HN_MAX_RANK);
    return HONE_OK;
}

// ---- Gather -------------------------------------------------------------------------------------
hone_status hn_infer_gather(hone_error *err, hn_infer *ctx) {
    const hn_type *data = &ctx->node->inputs[0]->type, *indices = &ctx->node->inputs[1]->type;
    hn_dim dims[HN_MAX_RANK];
    int axis, rank = 0;
    if (data->rank < 0 || indices->rank < 0) {
        hn_infer_unknown(ctx, 0, data->dtype, -1);
        return HONE_OK;
    }
    HN_TRY(hn_infer_axis(err, ctx, hn_op_int(ctx->node, "axis"), data->rank, &axis));
    HN_TRY(limit_rank(err, ctx, data->rank + indices->rank - 1));
    for (int d = 0; d < axis; d++)
        dims[rank++] = data->dims[d];
    for (int d = 0; d < indices->rank; d++)
        dims[rank++] = indices->dims[d];
    for (int d = axis + 1; d < data->rank; d++)
        dims[rank++] = data->dims[d];
    hn_infer_set(ctx, 0, data->dtype, rank, dims);
    hn_infer_move_elems(ctx, 1, hn_ref_gather);
    return HONE_OK;
}

static hone_status gather_items(hone_error *err, const hn_call *call) {
    const hn_tensor *data = call->inputs[0], *indices = call->inputs[1];
    hn_tensor *out = call->outputs[0];
    int axis;
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), data->shape.rank, &axis));
    int64_t outer = hn_span(&data->shape, 0, axis), dim = data->shape.dims[axis];
    size_t block = (size_t)hn_span(&data->shape, axis + 1, data->shape.rank) * hn_item_bytes(data);
    int64_t count = hn_tensor_count(indices);
    char *to = out->data;
    if (!hn_tensor_count(out)) return HONE_OK;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < count; i++, to += block) {
            int64_t index = 0;
            HN_TRY(read_index(err, call, indices, i, dim, &index));
            memcpy(to, (const char *)data->data + (size_t)(o * dim + index) * block, block);
        }
    return HONE_OK;
}
hone_status hn_ref_gather(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, gather_items);
}

// ---- GatherElements -----------------------------------------------------------------------------
hone_status hn_infer_gather_elements(hone_error *err, hn_infer *ctx) {
    const hn_type *data = &ctx->node->inputs[0]->type, *indices = &ctx->node->inputs[1]->type;
    int axis;
    if (data->rank >= 0 && indices->rank >= 0 && data->rank != indices->rank)
        HN_BAD_NODE(err, ctx->node, "data and indices have %d and %d dims", data->rank,
                    indices->rank);
    int rank = data->rank >= 0 ? data->rank : indices->rank;
    if (rank >= 0) HN_TRY(hn_infer_axis(err, ctx, hn_op_int(ctx->node, "axis"), rank, &axis));
    hn_infer_set(ctx, 0, data->dtype, indices->rank, indices->dims);
    hn_infer_move_elems(ctx, 1, hn_ref_gather_elements);
    return HONE_OK;
}

// Element offset in `data` of index tensor position `at` (its multi-index given), along axis.
static hn_status element_offset(hone_error *err, const hn_call *call, const hn_tensor *data,
                                const hn_tensor *indices, int axis, const int64_t *index,
                                const int64_t *strides, int64_t at, int64_t *out) {
    int64_t offset = 0, picked = 0;
    HN_TRY(read_index(err, call, indices, at, data->shape.dims[axis], &picked));
    for (int d = 0; d < data->shape.rank; d++) {
        int64_t place = d == axis ? picked : index[d];
        if (place >= data->shape.dims[d])
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "the indices reach beyond axis %d", d);
        offset += place * strides[d];
    }
    *out = offset;
    return HONE_OK;
}

static hone_status gather_elements_items(hone_error *err, const hn_call *call) {
    const hn_tensor *data = call->inputs[0], *indices = call->inputs[1];
    size_t item = hn_item_bytes(data);
    int axis, rank = data->shape.rank;
    int64_t strides[HN_MAX_RANK], index[HN_MAX_RANK] = {0}, count = hn_tensor_count(indices);
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), rank, &axis));
    hn_strides(&data->shape, strides);
    char *to = call->outputs[0]->data;
    for (int64_t at = 0; at < count; at++, to += item) {
        int64_t offset = 0;
        HN_TRY(element_offset(err, call, data, indices, axis, index, strides, at, &offset));
        memcpy(to, (const char *)data->data + (size_t)offset * item, item);
        (void)hn_index_next(index, indices->shape.dims, rank);
    }
    return HONE_OK;
}
hone_status hn_ref_gather_elements(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, gather_elements_items);
}

// ---- GatherND -----------------------------------------------------------------------------------
hone_status hn_infer_gather_nd(hone_error *err, hn_infer *ctx) {
    const hn_type *data = &ctx->node->inputs[0]->type, *indices = &ctx->node->inputs[1]->type;
    int64_t batch = hn_op_int(ctx->node, "batch_dims");
    hn_dim dims[HN_MAX_RANK];
    if (data->rank < 0 || indices->rank < 0 ||
        (indices->rank > 0 && !hn_dim_is_const(indices->dims[indices->rank - 1]))) {
        hn_infer_unknown(ctx, 0, data->dtype, -1);
        return HONE_OK;
    }
    if (data->rank < 1 || indices->rank < 1 || batch < 0 || batch >= indices->rank ||
        batch >= data->rank)
        HN_BAD_NODE(err, ctx->node, "%lld batch dims do not fit the inputs", (long long)batch);
    int64_t depth = indices->dims[indices->rank - 1];
    if (depth < 1 || depth > data->rank - batch)
        HN_BAD_NODE(err, ctx->node, "indices of %lld numbers do not fit data of %d dims",
                    (long long)depth, data->rank);
    int rank = 0, tail = (int)(batch + depth);
    HN_TRY(limit_rank(err, ctx, indices->rank - 1 + data->rank - tail));
    for (int d = 0; d < indices->rank - 1; d++) {
        dims[rank++] = indices->dims[d];
        if (d < batch)
            HN_TRY(hn_infer_merge_dim(err, ctx, data->dims[d], indices->dims[d], d, &dims[d]));
    }
    for (int d = tail; d < data->rank; d++)
        dims[rank++] = data->dims[d];
    hn_infer_set(ctx, 0, data->dtype, rank, dims);
    return HONE_OK;
}

// Offset in elements that row `row` of an index tensor names, counted over dims [first, first+depth).
static hn_status nd_offset(hone_error *err, const hn_call *call, const hn_tensor *data,
                           const hn_tensor *indices, int64_t row, int first, int64_t depth,
                           const int64_t *strides, int64_t *out) {
    int64_t offset = 0, index = 0;
    for (int64_t k = 0; k < depth; k++) {
        HN_TRY(read_index(err, call, indices, row * depth + k, data->shape.dims[first + k], &index));
        offset += index * strides[first + k];
    }
    *out = offset;
    return HONE_OK;
}

static hone_status gather_nd_items(hone_error *err, const hn_call *call) {
    const hn_tensor *data = call->inputs[0], *indices = call->inputs[1];
    hn_tensor *out = call->outputs[0];
    int batch = (int)hn_op_int(call->node, "batch_dims"), last = indices->shape.rank - 1;
    int64_t depth = indices->shape.dims[last], strides[HN_MAX_RANK];
    hn_strides(&data->shape, strides);
    if (!hn_tensor_count(out)) return HONE_OK;
    int64_t rows = hn_span(&indices->shape, 0, last);
    int64_t batches = hn_span(&data->shape, 0, batch), per_batch = rows / batches;
    int64_t batch_step = hn_span(&data->shape, batch, data->shape.rank);
    size_t item = hn_item_bytes(data);
    size_t block = (size_t)hn_span(&data->shape, batch + (int)depth, data->shape.rank) * item;
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = 0;
        HN_TRY(nd_offset(err, call, data, indices, row, batch, depth, strides, &offset));
        offset += row / per_batch * batch_step;
        memcpy((char *)out->data + (size_t)row * block,
               (const char *)data->data + (size_t)offset * item, block);
    }
    return HONE_OK;
}
hone_status hn_ref_gather_nd(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, gather_nd_items);
}

// ---- ScatterElements, ScatterND -----------------------------------------------------------------
// The op that combines old and new; HN_OP_UNKNOWN replaces.
static hn_status read_reduction(hone_error *err, const hn_node *node, hn_op *out_op) {
    static const struct {
        const char *name;
        hn_op op;
    } k_rows[] = {{"none", HN_OP_UNKNOWN}, {"add", HN_OP_ADD}, {"mul", HN_OP_MUL},
                  {"max", HN_OP_MAX},      {"min", HN_OP_MIN}};
    hn_slice name = hn_op_string(node, "reduction");
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++)
        if (hn_slice_eq(name, k_rows[i].name)) {
            *out_op = k_rows[i].op;
            return HONE_OK;
        }
    HN_BAD_NODE(err, node, "reduction '%.*s' does not exist", (int)name.length, name.data);
}

hone_status hn_infer_scatter_elements(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *data = &node->inputs[0]->type;
    int axis;
    hn_op op = HN_OP_UNKNOWN;
    HN_TRY(read_reduction(err, node, &op));
    HN_TRY(hn_infer_same_dtype(err, ctx, 0, 2));
    if (data->rank >= 0) HN_TRY(hn_infer_axis(err, ctx, hn_op_int(node, "axis"), data->rank, &axis));
    for (int i = 1; i < 3; i++)
        if (data->rank >= 0 && hn_known_rank(node->inputs[i]) &&
            node->inputs[i]->type.rank != data->rank)
            HN_BAD_NODE(err, node, "input %d has %d dims where %d are due", i,
                        node->inputs[i]->type.rank, data->rank);
    for (int d = 0; hn_known_rank(node->inputs[1]) && hn_known_rank(node->inputs[2]) &&
                    d < node->inputs[1]->type.rank; d++) {
        hn_dim merged;
        HN_TRY(hn_infer_merge_dim(err, ctx, node->inputs[1]->type.dims[d],
                                  node->inputs[2]->type.dims[d], d, &merged));
    }
    hn_infer_like(ctx, 0, node->inputs[0]);
    if (op == HN_OP_UNKNOWN) hn_infer_move_elems(ctx, 5, hn_ref_scatter_elements);
    return HONE_OK;
}

hone_status hn_infer_scatter_nd(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *data = &node->inputs[0]->type, *indices = &node->inputs[1]->type;
    const hn_type *updates = &node->inputs[2]->type;
    hn_op op = HN_OP_UNKNOWN;
    HN_TRY(read_reduction(err, node, &op));
    HN_TRY(hn_infer_same_dtype(err, ctx, 0, 2));
    if (data->rank >= 0 && indices->rank >= 0) {
        hn_dim last = indices->rank ? indices->dims[indices->rank - 1] : 0;
        if (data->rank < 1 || indices->rank < 1 ||
            (hn_dim_is_const(last) && (last < 0 || last > data->rank)))
            HN_BAD_NODE(err, node, "the indices do not fit data of %d dims", data->rank);
        int64_t due = hn_dim_is_const(last) ? indices->rank - 1 + data->rank - last : -1;
        if (due >= 0 && updates->rank >= 0 && updates->rank != due)
            HN_BAD_NODE(err, node, "the updates have %d dims where %lld are due", updates->rank,
                        (long long)due);
        for (int d = 0; due >= 0 && d < updates->rank; d++) {
            hn_dim merged, other = d < indices->rank - 1
                                       ? indices->dims[d]
                                       : data->dims[d - (indices->rank - 1) + last];
            HN_TRY(hn_infer_merge_dim(err, ctx, updates->dims[d], other, d, &merged));
        }
    }
    hn_infer_like(ctx, 0, node->inputs[0]);
    if (op == HN_OP_UNKNOWN) hn_infer_move_elems(ctx, 5, hn_ref_scatter_nd);
    return HONE_OK;
}

// out[to .. to+count) = op(out, updates[from ..)).
static void combine(hn_op op, hn_tensor *out, int64_t to, const hn_tensor *updates, int64_t from,
                    int64_t count) {
    size_t item = hn_item_bytes(out);
    if (op == HN_OP_UNKNOWN) {
        memcpy((char *)out->data + (size_t)to * item,
               (const char *)updates->data + (size_t)from * item, (size_t)count * item);
        return;
    }
    hn_class class = hn_dtype_class(out->dtype);
    // bool: adding is or, multiplying is and.
    if (out->dtype == HN_BOOL) op = op == HN_OP_ADD ? HN_OP_MAX : (op == HN_OP_MUL ? HN_OP_MIN : op);
    hn_binary_fn fn = hn_scalar_binary(op, class);
    for (int64_t done = 0; done < count; done += HN_CHUNK) {
        int chunk = (int)hn_min_i64(HN_CHUNK, count - done);
        hn_cell old[HN_CHUNK], new[HN_CHUNK];
        hn_cells_load(out, to + done, 1, chunk, class, old);
        hn_cells_load(updates, from + done, 1, chunk, class, new);
        fn(old, new, old, chunk, (hn_cell){0});
        hn_cells_store(out, to + done, chunk, class, old);
    }
}

static hn_status start_scatter(hone_error *err, const hn_call *call, hn_op *out_op) {
    const hn_tensor *data = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    HN_TRY(read_reduction(err, call->node, out_op));
    if (*out_op != HN_OP_UNKNOWN && !hn_dtype_is_plain(data->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "reduction of %s",
                     hn_dtype_name(data->dtype));
    if (data->bytes && out->data != data->data) memcpy(out->data, data->data, data->bytes);
    return HONE_OK;
}

static hone_status scatter_elements_items(hone_error *err, const hn_call *call) {
    const hn_tensor *data = call->inputs[0], *indices = call->inputs[1], *updates = call->inputs[2];
    hn_op op = HN_OP_UNKNOWN;
    int axis, rank = data->shape.rank;
    int64_t strides[HN_MAX_RANK], index[HN_MAX_RANK] = {0}, count = hn_tensor_count(indices);
    HN_TRY(start_scatter(err, call, &op));
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), rank, &axis));
    hn_strides(&data->shape, strides);
    for (int64_t at = 0; at < count; at++) {
        int64_t offset = 0;
        HN_TRY(element_offset(err, call, data, indices, axis, index, strides, at, &offset));
        combine(op, call->outputs[0], offset, updates, at, 1);
        (void)hn_index_next(index, indices->shape.dims, rank);
    }
    return HONE_OK;
}
hone_status hn_ref_scatter_elements(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, scatter_elements_items);
}

static hone_status scatter_nd_items(hone_error *err, const hn_call *call) {
    const hn_tensor *data = call->inputs[0], *indices = call->inputs[1];
    int last = indices->shape.rank - 1;
    int64_t depth = indices->shape.dims[last], strides[HN_MAX_RANK];
    hn_op op = HN_OP_UNKNOWN;
    HN_TRY(start_scatter(err, call, &op));
    hn_strides(&data->shape, strides);
    int64_t rows = hn_span(&indices->shape, 0, last);
    int64_t block = hn_span(&data->shape, (int)depth, data->shape.rank);
    if (!hn_tensor_count(call->inputs[2])) return HONE_OK;
    if (rows * block != hn_tensor_count(call->inputs[2]))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "the updates do not fit the indices");
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = 0;
        HN_TRY(nd_offset(err, call, data, indices, row, 0, depth, strides, &offset));
        combine(op, call->outputs[0], offset, call->inputs[2], row * block, block);
    }
    return HONE_OK;
}
hone_status hn_ref_scatter_nd(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, scatter_nd_items);
}

// ---- TensorScatter ------------------------------------------------------------------------------
hone_status hn_infer_tensor_scatter(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *past = &node->inputs[0]->type, *update = &node->inputs[1]->type;
    HN_TRY(hn_infer_same_dtype(err, ctx, 0, 1));
    if (past->rank >= 0) {
        int axis;
        HN_TRY(hn_infer_axis(err, ctx, hn_op_int(node, "axis"), past->rank, &axis));
        if (axis == 0) HN_BAD_NODE(err, node, "axis 0 is the batch");
        if (update->rank >= 0 && update->rank != past->rank)
            HN_BAD_NODE(err, node, "the update has %d dims where %d are due", update->rank,
                        past->rank);
        for (int d = 0; d < update->rank; d++) {
            hn_dim merged;
            if (d != axis)
                HN_TRY(hn_infer_merge_dim(err, ctx, past->dims[d], update->dims[d], d, &merged));
        }
    }
    hn_infer_like(ctx, 0, node->inputs[0]);
    return HONE_OK;
}

static hone_status tensor_scatter_items(hone_error *err, const hn_call *call) {
    const hn_tensor *past = call->inputs[0], *update = call->inputs[1];
    const hn_tensor *starts = hn_call_in(call, 2);
    hn_tensor *out = call->outputs[0];
    int axis;
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), past->shape.rank, &axis));
    bool circular = hn_slice_eq(hn_op_string(call->node, "mode"), "circular");
    if (past->bytes && out->data != past->data) memcpy(out->data, past->data, past->bytes);
    if (!hn_tensor_count(update)) return HONE_OK;
    int64_t room = past->shape.dims[axis], length = update->shape.dims[axis];
    int64_t batches = past->shape.dims[0], middle = hn_span(&past->shape, 1, axis);
    size_t block = (size_t)hn_span(&past->shape, axis + 1, past->shape.rank) * hn_item_bytes(past);
    if (starts && hn_tensor_count(starts) != batches)
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "%lld positions for a batch of %lld",
                     (long long)hn_tensor_count(starts), (long long)batches);
    for (int64_t b = 0; b < batches; b++) {
        int64_t start = starts ? hn_tensor_get_i64(starts, b) : 0;
        if (start < 0 || length > room || (circular ? start >= room : start > room - length))
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node,
                         "position %lld with %lld new entries is outside of %lld", (long long)start,
                         (long long)length, (long long)room);
        for (int64_t m = b * middle; m < (b + 1) * middle; m++)
            for (int64_t i = 0; i < length; i++)
                memcpy((char *)out->data + (size_t)(m * room + (start + i) % room) * block,
                       (const char *)update->data + (size_t)(m * length + i) * block, block);
    }
    return HONE_OK;
}
hone_status hn_ref_tensor_scatter(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, tensor_scatter_items);
}

// ---- OneHot -------------------------------------------------------------------------------------
hone_status hn_infer_one_hot(hone_error *err, hn_infer *ctx) {
    const hn_type *indices = &ctx->node->inputs[0]->type;
    hn_dtype dtype = ctx->node->inputs[2]->type.dtype;
    hn_dim dims[HN_MAX_RANK];
    int axis, count;
    double number;
    if (indices->rank < 0) {
        hn_infer_unknown(ctx, 0, dtype, -1);
        return HONE_OK;
    }
    HN_TRY(limit_rank(err, ctx, indices->rank + 1));
    HN_TRY(hn_infer_axis(err, ctx, hn_op_int(ctx->node, "axis"), indices->rank + 1, &axis));
    const hn_dim *depth = hn_infer_elems(ctx, ctx->node->inputs[1], &count);
    for (int d = 0; d <= indices->rank; d++)
        dims[d] = d < axis ? indices->dims[d] : indices->dims[d - (d > 0)];
    if (depth && count == 1)
        dims[axis] = *depth;
    else if (hn_infer_number(ctx, ctx->node->inputs[1], &number))
        dims[axis] = hn_cell_from_f64(HN_CLASS_I, number).i;
    else
        dims[axis] = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    if (hn_dim_is_const(dims[axis]) && dims[axis] < 0)
        HN_BAD_NODE(err, ctx->node, "the depth is negative");
    hn_infer_set(ctx, 0, dtype, indices->rank + 1, dims);
    return HONE_OK;
}

static hone_status one_hot_items(hone_error *err, const hn_call *call) {
    const hn_tensor *indices = call->inputs[0], *values = call->inputs[2];
    hn_tensor *out = call->outputs[0];
    int axis;
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), out->shape.rank, &axis));
    if (hn_tensor_count(values) != 2)
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "%lld values where off and on are due",
                     (long long)hn_tensor_count(values));
    size_t item = hn_item_bytes(out);
    int64_t total = hn_tensor_count(out), depth = out->shape.dims[axis];
    int64_t inner = hn_span(&out->shape, axis + 1, out->shape.rank);
    for (int64_t i = 0; i < total; i++)
        memcpy((char *)out->data + (size_t)i * item, values->data, item);
    int64_t count = total ? hn_tensor_count(indices) : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t index = hn_tensor_get_i64(indices, i);
        if (index < -depth || index >= depth) continue; // a row of "off"
        index += index < 0 ? depth : 0;
        int64_t at = (i / inner * depth + index) * inner + i % inner;
        memcpy((char *)out->data + (size_t)at * item, (const char *)values->data + item, item);
    }
    return HONE_OK;
}
hone_status hn_ref_one_hot(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, one_hot_items);
}

// ---- hn.Embeddings ----------------------------------------------------------------------------------
// hn.Embeddings(indices [batch, columns], part ...): row i of the output [batch, parts, size] is, for each part,
// its row that indices[i, columns[part]] names, or where columns[part] is -1 its own row i. What models of
// recommendation begin with, in one step.
hone_status hn_infer_embeddings(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    int parts = node->input_count - 1;
    int64_t columns[HN_EMBEDDING_PARTS];
    if (parts > HN_EMBEDDING_PARTS) HN_BAD_NODE(err, node, "has %d parts, the limit is %d", parts, HN_EMBEDDING_PARTS);
    HN_TRY(hn_read_ints(err, node, "columns", parts, -1, INT64_MAX, 0, columns));
    const hn_type *indices = &node->inputs[0]->type, *first = &node->inputs[1]->type;
    if (indices->rank >= 0 && indices->rank != 2) HN_BAD_NODE(err, node, "its indices have %d dims", indices->rank);
    hn_dim dims[3] = {indices->rank == 2 ? indices->dims[0] : HN_DIM_FAILED, parts, HN_DIM_FAILED};
    for (int i = 0; i < parts; i++) {
        const hn_type *part = &node->inputs[1 + i]->type;
        if (part->rank >= 0 && part->rank != 2) HN_BAD_NODE(err, node, "part %d has %d dims", i, part->rank);
        if (indices->rank == 2 && hn_dim_is_const(indices->dims[1]) && columns[i] >= indices->dims[1])
            HN_BAD_NODE(err, node, "there is no column %lld", (long long)columns[i]);
        if (part->rank == 2) dims[2] = part->dims[1];
    }
    if (dims[0] == HN_DIM_FAILED || dims[2] == HN_DIM_FAILED) hn_infer_unknown(ctx, 0, first->dtype, 3);
    else hn_infer_set(ctx, 0, first->dtype, 3, dims);
    return HONE_OK;
}

static hone_status embeddings_items(hone_error *err, const hn_call *call) {
    const hn_tensor *indices = call->inputs[0], *out = call->outputs[0];
    int parts = (int)out->shape.dims[1];
    int64_t columns[HN_EMBEDDING_PARTS], batch = out->shape.dims[0], size = out->shape.dims[2];
    HN_TRY(hn_read_ints(err, call->node, "columns", parts, -1, INT64_MAX, 0, columns));
    char *to = out->data;
    for (int64_t i = 0; i < batch; i++)
        for (int p = 0; p < parts; p++) {
            const hn_tensor *part = call->inputs[1 + p];
            size_t row = (size_t)size * hn_item_bytes(part);
            int64_t index = i;
            if (part->shape.dims[1] != size || (columns[p] < 0 && part->shape.dims[0] != batch))
                HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "part %d does not fit the others", p);
            if (columns[p] >= 0)
                HN_TRY(read_index(err, call, indices, i * indices->shape.dims[1] + columns[p], part->shape.dims[0], &index));
            memcpy(to, (const char *)part->data + (size_t)index * row, row);
            to += row;
        }
    return HONE_OK;
}
hone_status hn_ref_embeddings(hone_error *err, const hn_call *call) { return hn_move_call(err, call, embeddings_items); }
