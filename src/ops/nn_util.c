// SPDX-License-Identifier: Apache-2.0
// Shared small parts of the neural-network op families: operands as double or int64, checks of
// inference. References trust shapes (inference has checked them) but never values.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include "ops/nn_int.h"

hone_status hn_ref_scratch(hone_error *err, const hn_call *call, hn_ref_body body) {
    hn_arena scratch = {0};
    hone_status status = body(err, call, &scratch);
    hn_arena_free(&scratch);
    return status;
}

hone_status hn_scratch_f64(hone_error *err, hn_arena *scratch, int64_t count, double **out_values) {
    double *values = count < 0 ? NULL : hn_arena_array(scratch, (size_t)count + 1, sizeof *values);
    if (!values) HN_NOMEM(err, "scratch of a reference kernel");
    *out_values = values;
    return HONE_OK;
}

hone_status hn_scratch_i64(hone_error *err, hn_arena *scratch, int64_t count,
                           int64_t **out_values) {
    int64_t *values = count < 0 ? NULL : hn_arena_array(scratch, (size_t)count + 1, sizeof *values);
    if (!values) HN_NOMEM(err, "scratch of a reference kernel");
    *out_values = values;
    return HONE_OK;
}

hone_status hn_load_f64(hone_error *err, hn_arena *scratch, const hn_tensor *tensor,
                        const double **out_values) {
    *out_values = NULL;
    if (!tensor) return HONE_OK;
    if (tensor->dtype == HN_F64 && (uintptr_t)tensor->data % sizeof(double) == 0) {
        *out_values = tensor->data;
        return HONE_OK;
    }
    int64_t count = hn_tensor_count(tensor);
    double *values = NULL;
    HN_TRY(hn_scratch_f64(err, scratch, count, &values));
    if (tensor->dtype == HN_F32) {
        for (int64_t i = 0; i < count; i++) {
            float value;
            memcpy(&value, (const char *)tensor->data + i * 4, sizeof value);
            values[i] = (double)value;
        }
    } else {
        for (int64_t i = 0; i < count; i++) values[i] = hn_tensor_get_f64(tensor, i);
    }
    *out_values = values;
    return HONE_OK;
}

hone_status hn_load_i64(hone_error *err, hn_arena *scratch, const hn_tensor *tensor,
                        const int64_t **out_values) {
    *out_values = NULL;
    if (!tensor) return HONE_OK;
    int64_t count = hn_tensor_count(tensor);
    int64_t *values = NULL;
    HN_TRY(hn_scratch_i64(err, scratch, count, &values));
    for (int64_t i = 0; i < count; i++) values[i] = hn_tensor_get_i64(tensor, i);
    *out_values = values;
    return HONE_OK;
}

void hn_store_f64(hn_tensor *tensor, const double *values) {
    if (!tensor) return;
    int64_t count = hn_tensor_count(tensor);
    if (tensor->dtype == HN_F32) {
        float *data = tensor->data;
        for (int64_t i = 0; i < count; i++) data[i] = (float)values[i];
    } else if (tensor->dtype == HN_F64) {
        if (count > 0) memcpy(tensor->data, values, (size_t)count * sizeof *values);
    } else {
        for (int64_t i = 0; i < count; i++) hn_tensor_set_f64(tensor, i, values[i]);
    }
}

void hn_store_i64(hn_tensor *tensor, const int64_t *values) {
    if (!tensor) return;
    int64_t count = hn_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) hn_tensor_set_i64(tensor, i, values[i]);
}

double hn_round_even(double value) {
    return nearbyint(value); // the process runs in the default rounding mode
}

// ---- inference checks ---------------------------------------------------------------------------
hone_status hn_expect_rank(hone_error *err, const hn_infer *ctx, int input, int lo, int hi,
                           int *out_rank) {
    const hn_type *type = hn_in_type(ctx, input);
    *out_rank = -1;
    if (!type || type->rank < 0) return HONE_OK;
    if (type->rank < lo || type->rank > hi) {
        if (lo == hi)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d has rank %d, not %d", input,
                         type->rank, lo);
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d has rank %d, not %d to %d", input,
                     type->rank, lo, hi);
    }
    *out_rank = type->rank;
    return HONE_OK;
}

hone_status hn_expect_same(hone_error *err, const hn_infer *ctx, const char *what, hn_dim a,
                           hn_dim b, hn_dim *out_dim) {
    if (hn_dim_is_const(a) && hn_dim_is_const(b) && a != b)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%s: %lld and %lld differ", what,
                     (long long)a, (long long)b);
    if (out_dim) *out_dim = hn_dim_is_const(a) ? a : hn_dim_is_const(b) ? b : a;
    return HONE_OK;
}

hone_status hn_expect_size(hone_error *err, const hn_infer *ctx, const char *what, hn_dim dim) {
    if (dim == HN_DIM_FAILED) HN_NOMEM(err, "symbolic dims");
    if (hn_dim_is_const(dim) && dim < 0)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%s would be %lld", what, (long long)dim);
    return HONE_OK;
}

hone_status hn_expect_8bit(hone_error *err, const hn_infer *ctx, int input) {
    const hn_type *type = hn_in_type(ctx, input);
    if (!type || !type->dtype) return HONE_OK;
    bool number = hn_dtype_is_int(type->dtype) || hn_dtype_is_float(type->dtype);
    if (!number || hn_dtype_bits(type->dtype) != 8)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d is %s, not an 8-bit type", input,
                     hn_dtype_name(type->dtype));
    return HONE_OK;
}

void hn_infer_first(hn_infer *ctx, int output, hn_dtype dtype) {
    const hn_type *type = hn_in_type(ctx, 0);
    if (!type || type->rank < 0) return;
    hn_infer_set(ctx, output, dtype ? dtype : type->dtype, type->rank, type->dims);
}

hone_status hn_read_ints(hone_error *err, const hn_node *node, const char *name, int count,
                         int64_t lo, int64_t hi, int64_t absent, int64_t *out_values) {
    int64_t given;
    const int64_t *values = hn_node_ints(node, name, &given);
    if (!values) given = 0;
    if (given != 0 && given != count)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "attribute '%s' has %lld values, not %d", name,
                     (long long)given, count);
    for (int i = 0; i < count; i++) {
        int64_t value = given ? values[i] : absent;
        if (value < lo || value > hi)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "attribute '%s' holds %lld", name,
                         (long long)value);
        out_values[i] = value;
    }
    return HONE_OK;
}

// ---- gradients ----------------------------------------------------------------------------------
hn_value *hn_grad_op(hn_grad *ctx, const char *op_type, int count, ...) {
    hn_value *inputs[4] = {0};
    bool complete = true;
    va_list args;
    va_start(args, count);
    for (int i = 0; i < count && i < (int)HN_COUNT_OF(inputs); i++) {
        inputs[i] = va_arg(args, hn_value *);
        complete = complete && inputs[i];
    }
    va_end(args);
    if (!complete) return NULL;
    hn_node *node = hn_node_make(ctx->graph, NULL, hn_op_find("", op_type), inputs, count, 1);
    if (!node || hn_infer_node(NULL, node) != HONE_OK) return NULL;
    return node->outputs[0];
}
