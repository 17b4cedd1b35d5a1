// SPDX-License-Identifier: Apache-2.0
// Hann, Hamming and Blackman windows, MelWeightMatrix, DFT and STFT.
//
// The transform is the definition itself, in double, with one table of roots of unity; lengths that
// are powers of two take the radix-2 way.
#include "ops/signal.h"
#include <math.h>
#include "ops/move.h"

#define TWO_PI 6.283185307179586477

static hn_status output_dtype(hone_error *err, const hn_infer *ctx, hn_dtype *out) {
    int64_t code = hn_op_int(ctx->node, "output_datatype");
    *out = hn_dtype_from_onnx(code);
    if (!hn_dtype_is_plain(*out))
        HN_BAD_NODE(err, ctx->node, "output type %lld is not a number", (long long)code);
    return HONE_OK;
}

// ---- windows ------------------------------------------------------------------------------------
hone_status hn_infer_window(hone_error *err, hn_infer *ctx) {
    hn_dtype dtype;
    int count;
    HN_TRY(output_dtype(err, ctx, &dtype));
    const hn_dim *size = hn_infer_elems(ctx, ctx->node->inputs[0], &count);
    hn_dim dim = size && count == 1 ? *size : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    if (hn_dim_is_const(dim) && dim < 0) HN_BAD_NODE(err, ctx->node, "the size is negative");
    hn_infer_set(ctx, 0, dtype, 1, &dim);
    return HONE_OK;
}

hone_status hn_ref_window(hone_error *err, const hn_call *call) {
    (void)err;
    // a0 - a1 cos(t) + a2 cos(2t)
    static const struct {
        hn_op op;
        double a0, a1, a2;
    } k_rows[] = {{HN_OP_HANN_WINDOW, 0.5, 0.5, 0},
                  {HN_OP_HAMMING_WINDOW, 25.0 / 46, 21.0 / 46, 0},
                  {HN_OP_BLACKMAN_WINDOW, 0.42, 0.5, 0.08}};
    size_t row = 0;
    while (row < HN_COUNT_OF(k_rows) - 1 && k_rows[row].op != call->node->op)
        row++;
    int64_t size = hn_tensor_count(call->outputs[0]);
    int64_t period = hn_op_int(call->node, "periodic") ? size : size - 1;
    for (int64_t i = 0; i < size; i++) {
        double t = period ? TWO_PI * (double)i / (double)period : 0;
        double value = k_rows[row].a0 - k_rows[row].a1 * cos(t) + k_rows[row].a2 * cos(2 * t);
        hn_tensor_set_f64(call->outputs[0], i, period ? value : 1);
    }
    return HONE_OK;
}

// ---- MelWeightMatrix ------------------------------------------------------------------------------
hone_status hn_infer_mel_weights(hone_error *err, hn_infer *ctx) {
    hn_dtype dtype;
    int count;
    HN_TRY(output_dtype(err, ctx, &dtype));
    hn_dim dims[2];
    for (int i = 0; i < 2; i++) {
        const hn_dim *size = hn_infer_elems(ctx, ctx->node->inputs[i], &count);
        dims[1 - i] = size && count == 1 ? *size : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        if (hn_dim_is_const(dims[1 - i]) && dims[1 - i] < 0)
            HN_BAD_NODE(err, ctx->node, "input %d is negative", i);
    }
    dims[0] = hn_dim_add(ctx->dims, hn_dim_floordiv(ctx->dims, dims[0], 2), 1);
    hn_infer_set(ctx, 0, dtype, 2, dims);
    return HONE_OK;
}

static void mel_triangle(hn_tensor *out, int64_t band, int64_t left, int64_t center, int64_t right) {
    int64_t rows = out->shape.dims[0], bands = out->shape.dims[1];
    if (left == center && center >= 0 && center < rows)
        hn_tensor_set_f64(out, center * bands + band, 1);
    for (int64_t j = hn_max_i64(left, 0); left < center && j <= center && j < rows; j++)
        hn_tensor_set_f64(out, j * bands + band, (double)(j - left) / (double)(center - left));
    for (int64_t j = hn_max_i64(center, 0); j < right && j < rows; j++)
        hn_tensor_set_f64(out, j * bands + band, (double)(right - j) / (double)(right - center));
}

hone_status hn_ref_mel_weights(hone_error *err, const hn_call *call) {
    hn_tensor *out = call->outputs[0];
    int64_t bands = out->shape.dims[1], length = hn_tensor_get_i64(call->inputs[1], 0);
    double rate = hn_tensor_get_f64(call->inputs[2], 0);
    double low = log1p(hn_tensor_get_f64(call->inputs[3], 0) / 700);
    double high = log1p(hn_tensor_get_f64(call->inputs[4], 0) / 700);
    if (!(rate > 0) || !(high >= low) || !isfinite(high))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "the rate and the edges make no sense");
    double step = (high - low) / (double)(bands + 2);
    if (out->bytes) memset(out->data, 0, out->bytes);
    for (int64_t b = 0; b < bands; b++) {
        int64_t edge[3];
        for (int k = 0; k < 3; k++) {
            double hertz = 700 * expm1(low + step * (double)(b + k));
            edge[k] = hn_cell_from_f64(HN_CLASS_I, floor((double)(length + 1) * hertz / rate)).i;
        }
        mel_triangle(out, b, edge[0], edge[1], edge[2]);
    }
    return HONE_OK;
}

// ---- the transform ------------------------------------------------------------------------------
typedef struct complex_f64 {
    double re, im;
} complex_f64;

// Work space of one transform length.
typedef struct fourier {
    int64_t n;
    bool inverse;
    complex_f64 *in, *out, *root; // n each; root[k] = exp(-+2 pi i k / n)
} fourier;

static void fourier_free(fourier *f) { hn_free(f->in); }

static hn_status fourier_new(hone_error *err, int64_t n, bool inverse, fourier *out) {
    int64_t slots;
    fourier f = {.n = n, .inverse = inverse};
    if (n < 1 || !hn_mul_i64(n, 3, &slots))
        HN_FAIL(err, HONE_ERR_INPUT, "a transform of length %lld is not possible", (long long)n);
    f.in = hn_calloc((size_t)slots, sizeof *f.in);
    if (!f.in) HN_NOMEM(err, "a Fourier transform");
    f.out = f.in + n;
    f.root = f.out + n;
    for (int64_t k = 0; k < n; k++) {
        double angle = TWO_PI * (double)k / (double)n;
        f.root[k] = (complex_f64){cos(angle), inverse ? sin(angle) : -sin(angle)};
    }
    *out = f;
    return HONE_OK;
}

static complex_f64 multiply(complex_f64 a, complex_f64 b) {
    return (complex_f64){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static void radix2(fourier *f) {
    for (int64_t i = 0, j = 0; i < f->n; i++) { // bit-reversed order
        f->out[j] = f->in[i];
        int64_t bit = f->n >> 1;
        for (; bit && (j & bit); bit >>= 1)
            j ^= bit;
        j |= bit;
    }
    for (int64_t half = 1; half < f->n; half *= 2)
        for (int64_t base = 0; base < f->n; base += 2 * half)
            for (int64_t k = 0; k < half; k++) {
                complex_f64 *a = &f->out[base + k], *b = a + half;
                complex_f64 t = multiply(*b, f->root[k * (f->n / (2 * half))]);
                *b = (complex_f64){a->re - t.re, a->im - t.im};
                *a = (complex_f64){a->re + t.re, a->im + t.im};
            }
}

static void fourier_run(fourier *f) {
    if ((f->n & (f->n - 1)) == 0) {
        radix2(f);
    } else {
        for (int64_t k = 0; k < f->n; k++) {
            complex_f64 sum = {0, 0};
            for (int64_t i = 0, at = 0; i < f->n; i++, at = (at + k) % f->n) {
                complex_f64 t = multiply(f->in[i], f->root[at]);
                sum.re += t.re;
                sum.im += t.im;
            }
            f->out[k] = sum;
        }
    }
    for (int64_t k = 0; f->inverse && k < f->n; k++) {
        f->out[k].re /= (double)f->n;
        f->out[k].im /= (double)f->n;
    }
}

// ---- DFT ----------------------------------------------------------------------------------------
hone_status hn_infer_dft(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_type type = node->inputs[0]->type;
    bool inverse = hn_op_int(node, "inverse") != 0, onesided = hn_op_int(node, "onesided") != 0;
    double number = -2;
    int count, axis;
    if (type.rank < 0 || (hn_in(node, 2) && !hn_infer_number(ctx, node->inputs[2], &number))) {
        hn_infer_unknown(ctx, 0, type.dtype, type.rank);
        return HONE_OK;
    }
    HN_TRY(hn_infer_axis(err, ctx, (int64_t)number, type.rank, &axis));
    if (axis == type.rank - 1) HN_BAD_NODE(err, node, "the axis is that of the complex parts");
    hn_dim parts = type.dims[type.rank - 1];
    if (hn_dim_is_const(parts) && parts != 1 && parts != 2)
        HN_BAD_NODE(err, node, "the last dim is %lld where 1 or 2 is due", (long long)parts);
    if (onesided && hn_dim_is_const(parts) && parts != (inverse ? 2 : 1))
        HN_BAD_NODE(err, node, "a onesided transform of such parts does not exist");
    hn_dim length = type.dims[axis];
    if (inverse && onesided)
        length = hn_dim_mul(ctx->dims, hn_dim_sub(ctx->dims, length, 1), 2);
    if (hn_in(node, 1)) {
        const hn_dim *given = hn_infer_elems(ctx, node->inputs[1], &count);
        length = given && count == 1 ? *given : hn_dim_fresh(ctx->dims, 1, INT64_MAX);
    }
    if (hn_dim_is_const(length) && length < 1)
        HN_BAD_NODE(err, node, "a transform of length %lld is not possible", (long long)length);
    if (onesided && !inverse)
        length = hn_dim_add(ctx->dims, hn_dim_floordiv(ctx->dims, length, 2), 1);
    type.dims[axis] = length;
    type.dims[type.rank - 1] = inverse && onesided ? 1 : 2;
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    return HONE_OK;
}

// One line in: `have` elements of `parts` numbers, step elements apart; the rest is zero. With
// mirror the second half is the conjugate of the first (inverse of a onesided spectrum).
static void load_line(fourier *f, const hn_tensor *in, int64_t at, int64_t step, int64_t have,
                      int64_t parts, bool mirror) {
    int64_t limit = mirror ? f->n / 2 + 1 : f->n;
    for (int64_t i = 0; i < f->n; i++) {
        f->in[i] = (complex_f64){0, 0};
        if (i >= have || i >= limit) continue;
        f->in[i].re = hn_tensor_get_f64(in, (at + i * step) * parts);
        if (parts == 2) f->in[i].im = hn_tensor_get_f64(in, (at + i * step) * parts + 1);
    }
    for (int64_t i = limit; i < f->n; i++)
        f->in[i] = (complex_f64){f->in[f->n - i].re, -f->in[f->n - i].im};
}

hone_status hn_ref_dft(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0], *given = hn_call_in(call, 1), *where = hn_call_in(call, 2);
    hn_tensor *out = call->outputs[0];
    int axis, rank = in->shape.rank;
    bool inverse = hn_op_int(call->node, "inverse") != 0;
    bool mirror = inverse && hn_op_int(call->node, "onesided");
    HN_TRY(hn_call_axis(err, call, where ? hn_tensor_get_i64(where, 0) : -2, rank, &axis));
    int64_t have = in->shape.dims[axis], bins = out->shape.dims[axis];
    int64_t length = given ? hn_tensor_get_i64(given, 0) : (mirror ? 2 * (have - 1) : have);
    int64_t parts = in->shape.dims[rank - 1], out_parts = out->shape.dims[rank - 1];
    int64_t inner = hn_span(&in->shape, axis + 1, rank - 1);
    if (!hn_tensor_count(out)) return HONE_OK;
    fourier f;
    HN_TRY(fourier_new(err, length, inverse, &f));
    int64_t lines = hn_span(&in->shape, 0, axis) * inner;
    for (int64_t line = 0; line < lines; line++) {
        int64_t from = line / inner * have * inner + line % inner;
        int64_t to = line / inner * bins * inner + line % inner;
        load_line(&f, in, from, inner, have, parts, mirror);
        fourier_run(&f);
        for (int64_t k = 0; k < bins; k++) {
            hn_tensor_set_f64(out, (to + k * inner) * out_parts, f.out[k].re);
            if (out_parts == 2) hn_tensor_set_f64(out, (to + k * inner) * 2 + 1, f.out[k].im);
        }
    }
    fourier_free(&f);
    return HONE_OK;
}

// ---- STFT ---------------------------------------------------------------------------------------
hone_status hn_infer_stft(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *type = &node->inputs[0]->type;
    const hn_value *window = hn_in(node, 2);
    int count;
    if (type->rank >= 0 && type->rank != 3)
        HN_BAD_NODE(err, node, "the signal has %d dims where 3 are due", type->rank);
    if (type->rank < 0) {
        hn_infer_unknown(ctx, 0, type->dtype, 4);
        return HONE_OK;
    }
    hn_dim length = type->dims[1];
    if (hn_in(node, 3)) {
        const hn_dim *given = hn_infer_elems(ctx, node->inputs[3], &count);
        length = given && count == 1 ? *given : hn_dim_fresh(ctx->dims, 1, INT64_MAX);
    } else if (window) {
        length = window->type.rank == 1 ? window->type.dims[0] : hn_dim_fresh(ctx->dims, 1, INT64_MAX);
    }
    const hn_dim *step = hn_infer_elems(ctx, node->inputs[1], &count);
    bool step_known = step && count == 1 && hn_dim_is_const(*step);
    if (step_known && *step < 1) HN_BAD_NODE(err, node, "the frame step is %lld", (long long)*step);
    hn_dim room = hn_dim_sub(ctx->dims, type->dims[1], length), frames, bins = length;
    int64_t lo, hi;
    hn_dim_range(ctx->dims, room, &lo, &hi);
    if (hi < 0 || (hn_dim_is_const(length) && length < 1))
        HN_BAD_NODE(err, node, "frames do not fit the signal");
    frames = step_known ? hn_dim_add(ctx->dims, hn_dim_floordiv(ctx->dims, room, *step), 1)
                        : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    if (hn_op_int(node, "onesided"))
        bins = hn_dim_add(ctx->dims, hn_dim_floordiv(ctx->dims, length, 2), 1);
    hn_dim dims[4] = {type->dims[0], frames, bins, 2};
    hn_infer_set(ctx, 0, type->dtype, 4, dims);
    return HONE_OK;
}

hone_status hn_ref_stft(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0], *window = hn_call_in(call, 2);
    hn_tensor *out = call->outputs[0];
    int64_t signal = in->shape.dims[1], parts = in->shape.dims[2];
    int64_t step = hn_tensor_get_i64(call->inputs[1], 0), length = signal;
    if (hn_call_in(call, 3)) length = hn_tensor_get_i64(call->inputs[3], 0);
    else if (window) length = hn_tensor_count(window);
    if (!hn_tensor_count(out)) return HONE_OK;
    if (step < 1 || length < 1 || length > signal || parts < 1 || parts > 2 ||
        (window && hn_tensor_count(window) != length))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "frame step, length and window do not fit");
    fourier f;
    HN_TRY(fourier_new(err, length, false, &f));
    int64_t frames = out->shape.dims[1], bins = out->shape.dims[2], at = 0;
    for (int64_t line = 0; line < in->shape.dims[0] * frames; line++) {
        int64_t from = line / frames * signal + line % frames * step;
        load_line(&f, in, from, 1, length, parts, false);
        for (int64_t i = 0; window && i < length; i++) {
            double w = hn_tensor_get_f64(window, i);
            f.in[i] = (complex_f64){f.in[i].re * w, f.in[i].im * w};
        }
        fourier_run(&f);
        for (int64_t k = 0; k < bins; k++) {
            hn_tensor_set_f64(out, at++, f.out[k].re);
            hn_tensor_set_f64(out, at++, f.out[k].im);
        }
    }
    fourier_free(&f);
    return HONE_OK;
}
