// SPDX-License-Identifier: Apache-2.0
// Quantisation: QuantizeLinear and DequantizeLinear (per tensor, per axis, blocked),
// DynamicQuantizeLinear, QLinearConv, QLinearMatMul.
//
// x / scale is taken in float32 (float64 only where the data is), as every runtime does, so that
// ties fall the same way; integer results round half to even and saturate.
#include <math.h>
#include "ops/nn_int.h"

// ---- element rounding ---------------------------------------------------------------------------
// Largest finite value of a small float type; 0 for types that are not.
static double small_float_max(hn_dtype dtype) {
    switch (dtype) {
    case HN_F8E4M3FN: return 448;
    case HN_F8E4M3FNUZ: return 240;
    case HN_F8E5M2: return 57344;
    case HN_F8E5M2FNUZ: return 57344;
    case HN_F4E2M1: return 6;
    default: return 0;
    }
}

void hn_quantize_store(hn_tensor *tensor, int64_t index, double scaled, int64_t zero,
                       bool saturate) {
    double top = small_float_max(tensor->dtype);
    if (top == 0) {
        hn_tensor_set_f64(tensor, index, hn_round_even(scaled) + (double)zero);
        return;
    }
    if (saturate && !isnan(scaled)) scaled = fmin(fmax(scaled, -top), top);
    hn_tensor_set_f64(tensor, index, scaled);
}

// 64-bit integers are none: their differences from a zero point would overflow.
static bool is_quantised(hn_dtype dtype) {
    return (hn_dtype_is_int(dtype) && hn_dtype_bits(dtype) <= 32) || small_float_max(dtype) != 0;
}

// ---- where the scale of an element is -----------------------------------------------------------
typedef enum granularity { PER_TENSOR, PER_AXIS, BLOCKED } granularity;
typedef struct quant_form {
    granularity kind;
    int axis;
    int64_t block;
} quant_form;

static hone_status quant_form_of(hone_error *err, const hn_node *node, int rank, int scale_rank,
                                 bool one_scale, quant_form *out_form) {
    quant_form form = {.block = hn_op_int(node, "block_size")};
    int64_t axis = hn_op_int(node, "axis");
    if (form.block < 0 || form.block > INT32_MAX)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "block_size is %lld", (long long)form.block);
    if (scale_rank == 0 || (one_scale && form.block == 0)) {
        form.kind = PER_TENSOR;
    } else {
        form.kind = form.block ? BLOCKED : PER_AXIS;
        if (!hn_axis_normalise(axis, rank, &form.axis))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "axis %lld of rank %d", (long long)axis, rank);
        if (scale_rank != (form.block ? rank : 1))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "a scale of rank %d for data of rank %d",
                         scale_rank, rank);
    }
    *out_form = form;
    return HONE_OK;
}

static hone_status check_params(hone_error *err, const hn_infer *ctx) {
    const hn_type *x = hn_in_type(ctx, 0), *scale = hn_in_type(ctx, 1), *zero = hn_in_type(ctx, 2);
    if (!x || !scale || x->rank < 0 || scale->rank < 0) return HONE_OK;
    quant_form form = {0};
    bool one = scale->rank == 1 && scale->dims[0] == 1;
    HN_TRY(quant_form_of(err, ctx->node, x->rank, scale->rank, one, &form));
    if (form.kind == PER_AXIS)
        HN_TRY(hn_expect_same(err, ctx, "scales and the axis", scale->dims[0], x->dims[form.axis],
                              NULL));
    for (int i = 0; form.kind == BLOCKED && i < x->rank; i++) {
        hn_dim want = i == form.axis ? hn_dim_ceildiv(ctx->dims, x->dims[i], form.block) : x->dims[i];
        HN_TRY(hn_expect_same(err, ctx, "dims of the blocked scale", scale->dims[i], want, NULL));
    }
    if (!zero || zero->rank < 0) return HONE_OK;
    if (zero->rank != scale->rank && !(zero->rank + scale->rank == 1 && form.kind == PER_TENSOR))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "scale and zero point have ranks %d and %d",
                     scale->rank, zero->rank);
    for (int i = 0; zero->rank == scale->rank && i < zero->rank; i++)
        HN_TRY(hn_expect_same(err, ctx, "dims of scale and zero point", scale->dims[i],
                              zero->dims[i], NULL));
    return HONE_OK;
}

HN_INFER_FN(hn_infer_quantize) {
    const hn_type *zero = hn_in_type(ctx, 2);
    int64_t given = hn_op_int(ctx->node, "output_dtype");
    hn_dtype dtype = given ? hn_dtype_from_onnx(given) : HN_U8;
    if (zero) dtype = zero->dtype;
    if (given && dtype != HN_NONE && dtype != hn_dtype_from_onnx(given))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "output_dtype and the zero point's type differ");
    if (dtype != HN_NONE && !is_quantised(dtype))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%s is no quantised type",
                     hn_dtype_name(dtype));
    HN_TRY(check_params(err, ctx));
    const hn_type *x = hn_in_type(ctx, 0);
    hn_infer_set(ctx, 0, dtype, x ? x->rank : -1, x ? x->dims : NULL);
    return HONE_OK;
}

HN_INFER_FN(hn_infer_dequantize) {
    const hn_type *x = hn_in_type(ctx, 0), *scale = hn_in_type(ctx, 1), *zero = hn_in_type(ctx, 2);
    int64_t given = hn_op_int(ctx->node, "output_dtype");
    hn_dtype dtype = given ? hn_dtype_from_onnx(given) : scale ? scale->dtype : HN_NONE;
    if (x && x->dtype != HN_NONE && !is_quantised(x->dtype))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%s is no quantised type",
                     hn_dtype_name(x->dtype));
    if (x && zero && x->dtype != HN_NONE && zero->dtype != HN_NONE && x->dtype != zero->dtype)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the data is %s, its zero point %s",
                     hn_dtype_name(x->dtype), hn_dtype_name(zero->dtype));
    HN_TRY(check_params(err, ctx));
    hn_infer_set(ctx, 0, dtype, x ? x->rank : -1, x ? x->dims : NULL);
    return HONE_OK;
}

// Index of the scale of element `index`.
static int64_t param_at(const quant_form *form, const hn_shape *x, const int64_t *index) {
    if (form->kind == PER_TENSOR) return 0;
    if (form->kind == PER_AXIS) return index[form->axis];
    int64_t at = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t dim = x->dims[i], own = index[i];
        if (i == form->axis) {
            dim = hn_ceil_div_i64(dim, form->block);
            own /= form->block;
        }
        at = at * dim + own;
    }
    return at;
}

typedef struct quant_run {
    const hn_tensor *x;
    quant_form form;
    const double *scale;
    const int64_t *zero; // integers; floats have zero 0
    bool wide;           // divide in double
} quant_run;

static hone_status quant_read(hone_error *err, const hn_call *call, hn_arena *scratch,
                              quant_run *run) {
    const hn_tensor *scale = hn_call_in(call, 1), *zero = hn_call_in(call, 2);
    run->x = hn_call_in(call, 0);
    bool one = scale->shape.rank == 1 && scale->shape.dims[0] == 1;
    HN_TRY(quant_form_of(err, call->node, run->x->shape.rank, scale->shape.rank, one, &run->form));
    HN_TRY(hn_load_f64(err, scratch, scale, &run->scale));
    run->zero = NULL;
    if (zero && hn_dtype_is_int(zero->dtype)) HN_TRY(hn_load_i64(err, scratch, zero, &run->zero));
    run->wide = run->x->dtype == HN_F64;
    return HONE_OK;
}

static hone_status quantize_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    quant_run run = {0};
    HN_TRY(quant_read(err, call, scratch, &run));
    hn_tensor *ty = hn_call_out(call, 0);
    bool saturate = hn_op_int(call->node, "saturate") != 0;
    // `precision` names the type to divide in; absent: that of the scale and data, float32 at least.
    int64_t index[HN_MAX_RANK] = {0}, count = hn_tensor_count(run.x);
    hn_dtype divide = hn_dtype_from_onnx(hn_op_int(call->node, "precision"));
    for (int64_t i = 0; i < count; i++) {
        int64_t p = param_at(&run.form, &run.x->shape, index);
        double x = hn_tensor_get_f64(run.x, i), ratio = x / run.scale[p];
        if (!run.wide) ratio = (double)((float)x / (float)run.scale[p]);
        if (divide == HN_F16) ratio = (double)hn_f16_to_f32(hn_f32_to_f16((float)ratio));
        if (divide == HN_BF16) ratio = (double)hn_bf16_to_f32(hn_f32_to_bf16((float)ratio));
        hn_quantize_store(ty, i, ratio, run.zero ? run.zero[p] : 0, saturate);
        hn_index_next(index, run.x->shape.dims, run.x->shape.rank);
    }
    return HONE_OK;
}
HN_REF_FN(hn_ref_quantize) { return hn_ref_scratch(err, call, quantize_body); }

static hone_status dequantize_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    quant_run run = {0};
    HN_TRY(quant_read(err, call, scratch, &run));
    hn_tensor *ty = hn_call_out(call, 0);
    int64_t index[HN_MAX_RANK] = {0}, count = hn_tensor_count(run.x);
    bool whole = hn_dtype_is_int(run.x->dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t p = param_at(&run.form, &run.x->shape, index);
        double value = whole ? (double)(hn_tensor_get_i64(run.x, i) - (run.zero ? run.zero[p] : 0))
                             : hn_tensor_get_f64(run.x, i);
        hn_tensor_set_f64(ty, i, (double)((float)value * (float)run.scale[p]));
        hn_index_next(index, run.x->shape.dims, run.x->shape.rank);
    }
    return HONE_OK;
}
HN_REF_FN(hn_ref_dequantize) { return hn_ref_scratch(err, call, dequantize_body); }

// ---- DynamicQuantizeLinear ----------------------------------------------------------------------
HN_INFER_FN(hn_infer_dynamic_quantize) {
    (void)err;
    const hn_type *x = hn_in_type(ctx, 0);
    hn_infer_set(ctx, 0, HN_U8, x ? x->rank : -1, x ? x->dims : NULL);
    hn_infer_set(ctx, 1, HN_F32, 0, NULL);
    hn_infer_set(ctx, 2, HN_U8, 0, NULL);
    return HONE_OK;
}

static hone_status dynamic_quantize_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0);
    hn_tensor *ty = hn_call_out(call, 0), *tscale = hn_call_out(call, 1), *tzero = hn_call_out(call, 2);
    const double *x;
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    int64_t count = hn_tensor_count(tx);
    float lo = 0, hi = 0; // the range always holds zero
    for (int64_t i = 0; i < count; i++) {
        if ((float)x[i] < lo) lo = (float)x[i];
        if ((float)x[i] > hi) hi = (float)x[i];
    }
    float scale = (hi - lo) / 255.0f, zero = 0;
    if (scale == 0) scale = 1; // all zeros
    else zero = fminf(fmaxf(nearbyintf(-lo / scale), 0), 255);
    for (int64_t i = 0; ty && i < count; i++)
        hn_quantize_store(ty, i, (double)((float)x[i] / scale), (int64_t)zero, true);
    if (tscale) hn_tensor_set_f64(tscale, 0, (double)scale);
    if (tzero) hn_tensor_set_f64(tzero, 0, (double)zero);
    return HONE_OK;
}
HN_REF_FN(hn_ref_dynamic_quantize) { return hn_ref_scratch(err, call, dynamic_quantize_body); }

// ---- QLinearConv, QLinearMatMul -----------------------------------------------------------------
static hone_status check_scalar(hone_error *err, const hn_call *call, int input, const char *what) {
    if (hn_tensor_count(hn_call_in(call, input)) != 1)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "the %s is not a scalar", what);
    return HONE_OK;
}

static hone_status qlinear_conv_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tw_scale = hn_call_in(call, 4);
    hn_tensor *ty = hn_call_out(call, 0);
    int64_t *acc, count = hn_tensor_count(ty), channels = ty->shape.dims[1];
    const int64_t *bias;
    const double *w_scale;
    HN_TRY(check_scalar(err, call, 1, "data's scale"));
    HN_TRY(check_scalar(err, call, 6, "output's scale"));
    HN_TRY(check_scalar(err, call, 7, "output's zero point"));
    int64_t scales = hn_tensor_count(tw_scale);
    if (scales != 1 && scales != channels)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "%lld weight scales for %lld channels",
                     (long long)scales, (long long)channels);
    HN_TRY(hn_scratch_i64(err, scratch, count, &acc));
    HN_TRY(hn_conv_integer_sums(err, call, scratch, hn_call_in(call, 0), hn_call_in(call, 3),
                                hn_call_in(call, 2), hn_call_in(call, 5), ty, acc));
    HN_TRY(hn_load_i64(err, scratch, hn_call_in(call, 8), &bias));
    HN_TRY(hn_load_f64(err, scratch, tw_scale, &w_scale));
    float x_scale = (float)hn_tensor_get_f64(hn_call_in(call, 1), 0);
    float y_scale = (float)hn_tensor_get_f64(hn_call_in(call, 6), 0);
    int64_t zero = hn_tensor_get_i64(hn_call_in(call, 7), 0);
    int64_t inner = hn_dims_product(ty->shape.dims, 2, ty->shape.rank);
    for (int64_t i = 0; i < count; i++) {
        int64_t m = i / inner % channels, sum = acc[i] + (bias ? bias[m] : 0);
        float factor = x_scale * (float)w_scale[scales == 1 ? 0 : m] / y_scale;
        hn_quantize_store(ty, i, (double)((float)sum * factor), zero, true);
    }
    return HONE_OK;
}
HN_REF_FN(hn_ref_qlinear_conv) { return hn_ref_scratch(err, call, qlinear_conv_body); }

// (value - zero) and the scale of every element of one operand.
typedef struct q_operand {
    const hn_tensor *tensor, *scale;
    const double *value, *scales;
} q_operand;

static hone_status load_operand(hone_error *err, const hn_call *call, hn_arena *scratch, int first,
                                bool by_row, q_operand *o) {
    const hn_tensor *zero = hn_call_in(call, first + 2);
    const int64_t *zeros = NULL;
    o->tensor = hn_call_in(call, first);
    o->scale = hn_call_in(call, first + 1);
    HN_TRY(hn_matmul_param_check(err, call->node, o->tensor, o->scale, by_row));
    HN_TRY(hn_matmul_param_check(err, call->node, o->tensor, zero, by_row));
    HN_TRY(hn_load_f64(err, scratch, o->tensor, &o->value));
    HN_TRY(hn_load_f64(err, scratch, o->scale, &o->scales));
    if (!zero || !hn_dtype_is_int(zero->dtype)) return HONE_OK;
    HN_TRY(hn_load_i64(err, scratch, zero, &zeros));
    double *values = (double *)(uintptr_t)o->value; // scratch: 8-bit types are never read in place
    for (int64_t i = 0; i < hn_tensor_count(o->tensor); i++)
        values[i] -= (double)zeros[hn_matmul_param_at(o->tensor, zero, by_row, i)];
    return HONE_OK;
}

static hone_status qlinear_matmul_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    q_operand a, b;
    hn_tensor *ty = hn_call_out(call, 0);
    hn_matmul_plan plan;
    HN_TRY(check_scalar(err, call, 6, "output's scale"));
    HN_TRY(check_scalar(err, call, 7, "output's zero point"));
    HN_TRY(load_operand(err, call, scratch, 0, true, &a));
    HN_TRY(load_operand(err, call, scratch, 3, false, &b));
    hn_matmul_plan_make(a.tensor, b.tensor, &plan);
    float y_scale = (float)hn_tensor_get_f64(hn_call_in(call, 6), 0);
    const hn_tensor *tzero = hn_call_in(call, 7);
    int64_t zero = hn_dtype_is_int(tzero->dtype) ? hn_tensor_get_i64(tzero, 0) : 0, out = 0;
    for (int64_t n = 0; n < plan.batches; n++) {
        int64_t at_a, at_b;
        hn_matmul_plan_at(&plan, n, &at_a, &at_b);
        for (int64_t i = 0; i < plan.rows; i++)
            for (int64_t j = 0; j < plan.columns; j++) {
                int64_t row = (at_a * plan.rows + i) * plan.inner;
                int64_t column = at_b * plan.inner * plan.columns + j;
                double sum = 0; // exact: products of 9-bit integers
                for (int64_t k = 0; k < plan.inner; k++)
                    sum += a.value[row + k] * b.value[column + k * plan.columns];
                double sa = a.scales[hn_matmul_param_at(a.tensor, a.scale, true, row)];
                double sb = b.scales[hn_matmul_param_at(b.tensor, b.scale, false, column)];
                float factor = (float)sa * (float)sb / y_scale;
                hn_quantize_store(ty, out++, (double)((float)sum * factor), zero, true);
            }
    }
    return HONE_OK;
}
HN_REF_FN(hn_ref_qlinear_matmul) { return hn_ref_scratch(err, call, qlinear_matmul_body); }

HN_COST_FN(hn_cost_quantize) { // scale, shift
    const hn_value *x = hn_in(node, 0);
    if (!x) return;
    double flops = 2;
    for (int i = 0; i < x->type.rank; i++) flops *= (double)x->type.dims[i];
    out_cost->flops = flops;
}
