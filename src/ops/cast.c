// SPDX-License-Identifier: Apache-2.0
// Cast, CastLike, BitCast.
//
// Floats become integers by truncation, saturating (ONNX leaves out-of-range values open) but for 4-
// and 2-bit ones, which keep the low bits as ONNX's test data do; integers become narrower ones by
// dropping high bits; 8-bit floats saturate or not as the attribute says; NaN as f4e2m1 is 0.
#include <math.h>
#include "ops/elementwise.h"

static void set_cast_type(hn_infer *ctx, hn_dtype to) {
    const hn_value *in = ctx->node->inputs[0];
    hn_infer_set(ctx, 0, to, in->type.rank, in->type.dims);
    hn_infer_scalar_elems(ctx);
}

static hn_status target_dtype(hone_error *err, const hn_infer *ctx, hn_dtype *out_dtype) {
    int64_t code = hn_op_int(ctx->node, "to");
    *out_dtype = hn_dtype_from_onnx(code);
    if (*out_dtype == HN_NONE)
        HN_BAD_NODE(err, ctx->node, "element type %lld does not exist", (long long)code);
    return HONE_OK;
}

hone_status hn_infer_cast(hone_error *err, hn_infer *ctx) {
    hn_dtype to;
    HN_TRY(target_dtype(err, ctx, &to));
    set_cast_type(ctx, to);
    return HONE_OK;
}

hone_status hn_infer_cast_like(hone_error *err, hn_infer *ctx) {
    (void)err;
    set_cast_type(ctx, ctx->node->inputs[1]->type.dtype);
    return HONE_OK;
}

hone_status hn_infer_bit_cast(hone_error *err, hn_infer *ctx) {
    hn_dtype to, from = ctx->node->inputs[0]->type.dtype;
    HN_TRY(target_dtype(err, ctx, &to));
    if (from != HN_NONE && hn_dtype_bits(from) != hn_dtype_bits(to))
        HN_BAD_NODE(err, ctx->node, "%s and %s have different widths", hn_dtype_name(from),
                    hn_dtype_name(to));
    const hn_type *type = &ctx->node->inputs[0]->type;
    hn_infer_set(ctx, 0, to, type->rank, type->dims);
    return HONE_OK;
}

hone_status hn_ref_bit_cast(hone_error *err, const hn_call *call) {
    hn_tensor *out = call->outputs[0];
    if (call->inputs[0]->dtype == HN_STRING || call->inputs[0]->bytes != out->bytes)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "such a reinterpretation does not exist");
    if (out->bytes) memcpy(out->data, call->inputs[0]->data, out->bytes);
    return HONE_OK;
}

// What the target has no value for, as cells that the plain store takes.
static hn_class prepare(hn_dtype to, hn_class class, hn_cell *cells, int count) {
    if (class != HN_CLASS_F || hn_dtype_bits(to) >= 8) return class;
    bool keep_float = hn_dtype_is_float(to);
    for (int k = 0; k < count; k++) {
        if (!keep_float) cells[k] = hn_cell_from_f64(HN_CLASS_I, cells[k].f);
        else if (cells[k].f != cells[k].f) cells[k].f = 0;
    }
    return keep_float ? class : HN_CLASS_I;
}

// Powers of two only. "nearest" looks at the mantissa: halves go up, as rounding to even does not
// exist where every number is a power of two.
static uint8_t exponent_bits(double value, hn_slice mode, bool saturate) {
    if (value != value) return 255;
    double magnitude = fabs(value);
    if (isinf(magnitude) || magnitude > 0x1p127 * 1.5) return saturate ? 254 : 255;
    if (magnitude < 0x1p-127) return 0;
    int exponent;
    double fraction = frexp(magnitude, &exponent) * 2; // [1, 2)
    exponent--;
    bool up = hn_slice_eq(mode, "up") ? fraction > 1
                                      : hn_slice_eq(mode, "nearest") && fraction >= 1.5;
    exponent += up;
    if (exponent > 127) return saturate ? 254 : 255;
    return (uint8_t)(exponent + 127);
}

static void store_small(const hn_node *node, hn_tensor *out, int64_t at, int count, hn_class class,
                        const hn_cell *cells) {
    bool saturate = hn_op_int(node, "saturate") != 0;
    hn_slice mode = hn_op_string(node, "round_mode");
    for (int k = 0; k < count; k++) {
        double value = hn_cell_to_f64(class, cells[k]);
        ((uint8_t *)out->data)[at + k] =
            out->dtype == HN_F8E8M0 ? exponent_bits(value, mode, saturate)
                                    : (uint8_t)hn_f64_to_small(out->dtype, value, saturate);
    }
}

hone_status hn_ref_cast(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    if (!hn_dtype_is_plain(in->dtype) || !hn_dtype_is_plain(out->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "conversion from %s to %s",
                     hn_dtype_name(in->dtype), hn_dtype_name(out->dtype));
    hn_class class = hn_dtype_class(in->dtype);
    bool small = hn_dtype_is_float(out->dtype) && hn_dtype_bits(out->dtype) == 8;
    hn_cell cells[HN_CHUNK];
    int64_t total = hn_tensor_count(out);
    for (int64_t at = 0; at < total; at += HN_CHUNK) {
        int count = (int)hn_min_i64(HN_CHUNK, total - at);
        hn_cells_load(in, at, 1, count, class, cells);
        if (small)
            store_small(call->node, out, at, count, class, cells);
        else
            hn_cells_store(out, at, count, prepare(out->dtype, class, cells, count), cells);
    }
    return HONE_OK;
}
