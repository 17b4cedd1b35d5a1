// SPDX-License-Identifier: Apache-2.0
// Inference: the walk over nodes and the helpers that the families' infer functions share.
#include "ops/ops.h"

// Shape arithmetic passes vectors of a few dims; longer ones are data.
#define MAX_ELEMS 1024

// A fresh symbol made at every inference would change types that did not change: an old unnamed
// symbol in the same place is kept.
static bool is_unnamed(const hn_module *module, hn_dim dim) {
    return hn_dim_is_symbol(module->dims, dim) && !*hn_dim_symbol_name(module->dims, dim);
}

void hn_infer_set(hn_infer *ctx, int index, hn_dtype dtype, int rank, const hn_dim *dims) {
    hn_value *out = hn_out(ctx->node, index);
    if (!out) return;
    hn_type type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) {
        type.dims[i] = dims[i];
        if (out->type.rank == rank && is_unnamed(ctx->module, dims[i]) &&
            is_unnamed(ctx->module, out->type.dims[i])) {
            int64_t lo, hi, old_lo, old_hi;
            hn_dim_range(ctx->dims, dims[i], &lo, &hi);
            hn_dim_range(ctx->dims, out->type.dims[i], &old_lo, &old_hi);
            if (lo == old_lo && hi == old_hi) type.dims[i] = out->type.dims[i];
        }
    }
    if (rank < 0 && out->type.dtype == dtype) return; // keeps what the file declared
    if (dtype == HN_NONE) type.dtype = out->type.dtype;
    out->type = type;
}

void hn_infer_like(hn_infer *ctx, int index, const hn_value *like) {
    hn_infer_set(ctx, index, like->type.dtype, like->type.rank, like->type.dims);
}

hn_status hn_infer_broadcast(hone_error *err, hn_infer *ctx, const hn_value *const *values,
                             int count, int *out_rank, hn_dim *out_dims) {
    char label[160];
    int rank = 0;
    for (int v = 0; v < count; v++) {
        if (!values[v]) continue;
        if (values[v]->type.rank < 0) {
            *out_rank = -1;
            return HONE_OK;
        }
        rank = values[v]->type.rank > rank ? values[v]->type.rank : rank;
    }
    hn_dim dims[HN_MAX_RANK];
    for (int axis = 0; axis < rank; axis++) {
        hn_dim result = 1;
        for (int v = 0; v < count; v++) {
            if (!values[v]) continue;
            int own = axis - (rank - values[v]->type.rank);
            hn_dim dim = own < 0 ? 1 : values[v]->type.dims[own];
            if (dim == result || dim == 1) continue;
            if (result == 1) {
                result = dim;
            } else if (hn_dim_is_const(dim) && hn_dim_is_const(result)) {
                HN_FAIL(err, HONE_ERR_FORMAT,
                        "%s: dims %lld and %lld on axis %d from the right do not broadcast",
                        hn_node_label(ctx->node, label, sizeof label), (long long)result,
                        (long long)dim, rank - 1 - axis);
            } else if (hn_dim_is_const(dim)) {
                result = dim; // the other must be 1 or the same
            } else if (!hn_dim_is_const(result)) {
                int64_t lo, hi, lo2, hi2;
                hn_dim_range(ctx->dims, result, &lo, &hi);
                hn_dim_range(ctx->dims, dim, &lo2, &hi2);
                if (lo >= 2 || hn_dim_max(ctx->dims, result, dim) == result) continue;
                if (lo2 >= 2 || hn_dim_max(ctx->dims, result, dim) == dim)
                    result = dim; // never smaller: equal, or the other is 1
                else
                    result = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
            }
        }
        dims[axis] = result;
    }
    memcpy(out_dims, dims, sizeof(hn_dim) * (size_t)rank);
    *out_rank = rank;
    return HONE_OK;
}

const hn_dim *hn_value_elems(hn_module *module, const hn_value *value, int *out_count) {
    if (!value) return NULL;
    if (value->elems) {
        *out_count = value->elem_count;
        return value->elems;
    }
    const hn_tensor *data = value->constant;
    if (!data || value->overridable || data->shape.rank > 1) return NULL;
    if (!hn_dtype_is_int(data->dtype) && data->dtype != HN_BOOL) return NULL;
    int64_t count = hn_tensor_count(data);
    if (count > MAX_ELEMS) return NULL;
    hn_dim *elems = hn_arena_array(&module->arena, (size_t)count + 1, sizeof *elems);
    if (!elems) return NULL;
    for (int64_t i = 0; i < count; i++) {
        elems[i] = hn_tensor_get_i64(data, i);
        // The lowest 2^32 numbers are handles. Exporters write INT64_MIN + 1 for "to the start" in
        // Slice; the lowest number that is no handle means the same there.
        if (!hn_dim_is_const(elems[i])) elems[i] = INT64_MIN + HN_DIM_HANDLES;
    }
    // Caching on a value that is logically const.
    hn_value *owner = (hn_value *)(uintptr_t)value;
    owner->elems = elems;
    owner->elem_count = (int)count;
    *out_count = (int)count;
    return elems;
}

bool hn_value_ints(hn_module *module, const hn_value *value, int64_t *out, int max,
                   int *out_count) {
    int count;
    const hn_dim *elems = hn_value_elems(module, value, &count);
    if (!elems || count > max) return false;
    for (int i = 0; i < count; i++) {
        if (!hn_dim_is_const(elems[i])) return false;
        out[i] = elems[i];
    }
    *out_count = count;
    return true;
}

void hn_infer_set_elems(hn_infer *ctx, int index, const hn_dim *elems, int count) {
    hn_value *out = hn_out(ctx->node, index);
    if (!out || count > MAX_ELEMS) return;
    for (int i = 0; i < count; i++)
        if (elems[i] == HN_DIM_FAILED) return;
    hn_dim *copy = hn_arena_array(&ctx->module->arena, (size_t)count + 1, sizeof *copy);
    if (!copy) return;
    memcpy(copy, elems, sizeof *copy * (size_t)count);
    out->elems = copy;
    out->elem_count = count;
}

bool hn_axis_normalise(int64_t axis, int rank, int *out_axis) {
    if (axis < -(int64_t)rank || axis >= rank) return false;
    *out_axis = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

hn_status hn_infer_node(hone_error *err, hn_node *node) {
    const hn_op_info *info = hn_op_get(node->op);
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) node->outputs[i]->elems = NULL;
    if (!info->infer) return HONE_OK;
    hn_infer ctx = {node, node->graph->module, node->graph->module->dims};
    char label[160];
    // Infer functions rely on this much; the rest of hn_ops_verify may come later.
    int given = 0, own = node->post_count ? node->base_input_count : node->input_count;
    while (given < own && given < info->min_in && node->inputs[given])
        given++;
    if (given < info->min_in)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: required input %d is absent",
                hn_node_label(node, label, sizeof label), given);
    // Operands of posts stand behind the op's own inputs: the op's function must not see them.
    int inputs = node->input_count;
    if (node->post_count) node->input_count = node->base_input_count;
    hone_status status = info->infer(err, &ctx);
    node->input_count = inputs;
    if (status != HONE_OK && err && !strstr(err->text, "'"))
        hn_error_frame(err, "inferring the shapes of %s", hn_node_label(node, label, sizeof label));
    if (status != HONE_OK || !node->post_count || !node->outputs[0]) return status;
    // Posts keep the shape; a final QuantizeLinear gives its zero point's type, a final Cast its own.
    const hn_post *last = &node->post[node->post_count - 1];
    if (last->op == hn_op_find("", "Cast")) {
        node->outputs[0]->type.dtype = hn_dtype_from_onnx((int64_t)last->alpha);
    } else if (last->op == hn_op_find("", "QuantizeLinear")) {
        const hn_value *zero = last->zero >= 0 ? node->inputs[last->zero] : NULL;
        node->outputs[0]->type.dtype = zero ? zero->type.dtype : HN_U8;
    }
    return HONE_OK;
}

hn_status hn_infer_graph(hone_error *err, hn_graph *graph) {
    for (hn_node *node = graph->first; node; node = node->next)
        HN_TRY(hn_infer_node(err, node));
    return HONE_OK;
}

hn_status hn_infer_module(hone_error *err, hn_module *module) {
    return hn_infer_graph(err, module->main);
}
