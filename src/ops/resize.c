// SPDX-License-Identifier: Apache-2.0
// Resize (and Upsample, and Resize of opset 10, which is Upsample by another name).
//
// Interpolation is separable: for every resized axis and output index a short list of input indices
// and weights; the axes are done one after another in double. Nearest copies elements and is exact
// for every type.
#include <float.h>
#include <math.h>
#include "ops/nn_int.h"

typedef enum resize_mode { MODE_NEAREST, MODE_LINEAR, MODE_CUBIC } resize_mode;
typedef enum resize_coords {
    COORDS_HALF_PIXEL, COORDS_HALF_PIXEL_SYMMETRIC, COORDS_PYTORCH_HALF_PIXEL, COORDS_ALIGN_CORNERS,
    COORDS_ASYMMETRIC, COORDS_TF_HALF_PIXEL_FOR_NN, COORDS_TF_CROP_AND_RESIZE
} resize_coords;
typedef enum resize_nearest { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, ROUND_FLOOR, ROUND_CEIL } resize_nearest;
typedef enum resize_aspect { ASPECT_STRETCH, ASPECT_NOT_LARGER, ASPECT_NOT_SMALLER } resize_aspect;

static const char *const k_modes[] = {"nearest", "linear", "cubic", NULL};
static const char *const k_coords[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                       "align_corners", "asymmetric", "tf_half_pixel_for_nn",
                                       "tf_crop_and_resize", NULL};
static const char *const k_nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil",
                                        NULL};
static const char *const k_aspect[] = {"stretch", "not_larger", "not_smaller", NULL};

typedef struct resize_attrs {
    bool old_form; // inputs X, scales; asymmetric, floor
    int mode, coords, nearest, aspect;
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
    int axis_count;
    int axes[HN_MAX_RANK];
} resize_attrs;

static hone_status pick(hone_error *err, const hn_node *node, const char *name,
                        const char *const *words, int *out_index) {
    hn_slice text = hn_op_string(node, name);
    for (int i = 0; words[i]; i++)
        if (hn_slice_eq(text, words[i])) {
            *out_index = i;
            return HONE_OK;
        }
    if (strcmp(name, "mode") == 0 && hn_slice_eq(text, "bilinear")) { // Upsample 1's word
        *out_index = MODE_LINEAR;
        return HONE_OK;
    }
    HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "%s is '%.*s'", name, (int)text.length, text.data);
}

static hone_status read_attrs(hone_error *err, const hn_node *node, int rank, resize_attrs *a) {
    *a = (resize_attrs){.old_form = node->op == HN_OP_UPSAMPLE || node->version < 11};
    HN_TRY(pick(err, node, "mode", k_modes, &a->mode));
    if (a->old_form) {
        a->coords = COORDS_ASYMMETRIC;
        a->nearest = ROUND_FLOOR;
    } else {
        HN_TRY(pick(err, node, "coordinate_transformation_mode", k_coords, &a->coords));
        HN_TRY(pick(err, node, "nearest_mode", k_nearest, &a->nearest));
        HN_TRY(pick(err, node, "keep_aspect_ratio_policy", k_aspect, &a->aspect));
        a->antialias = hn_op_int(node, "antialias") != 0;
        a->exclude_outside = hn_op_int(node, "exclude_outside") != 0;
        a->cubic_a = (double)hn_op_float(node, "cubic_coeff_a");
        a->extrapolation = (double)hn_op_float(node, "extrapolation_value");
    }
    int64_t count;
    const int64_t *axes = hn_node_ints(node, "axes", &count);
    a->axis_count = rank;
    for (int i = 0; i < rank; i++) a->axes[i] = i;
    if (!axes) return HONE_OK;
    if (count > rank) HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "%lld axes", (long long)count);
    a->axis_count = (int)count;
    for (int i = 0; i < a->axis_count; i++) {
        if (!hn_axis_normalise(axes[i], rank, &a->axes[i]))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "axis %lld of rank %d", (long long)axes[i],
                         rank);
        for (int j = 0; j < i; j++)
            if (a->axes[i] == a->axes[j])
                HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "axis %d is named twice", a->axes[i]);
    }
    return HONE_OK;
}

// Input index of the scales and sizes; an empty tensor counts as absent.
static int scales_input(const resize_attrs *a) { return a->old_form ? 1 : 2; }
static int sizes_input(const resize_attrs *a) { return a->old_form ? 64 : 3; }

// ---- inference ----------------------------------------------------------------------------------
// floor(in * scale) in float32, as the standard's own inference has it.
static hone_status scaled_size(hone_error *err, const hn_infer *ctx, hn_dim in, float scale,
                               hn_dim *out_dim) {
    if (!(scale > 0) || scale > 1e9f)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "scale is %g", (double)scale);
    if (hn_dim_is_const(in)) {
        float size = floorf((float)in * scale);
        if (size > 1e15f)
            HN_FAIL_NODE(err, HONE_ERR_LIMIT, ctx->node, "an output dim would be %g", (double)size);
        *out_dim = (int64_t)size;
        return HONE_OK;
    }
    for (int64_t q = 1; q <= 64; q *= 2) { // exact in binary: in * p / q
        float p = scale * (float)q;
        if (p != floorf(p) || p > 1e6f) continue;
        *out_dim = hn_dim_floordiv(ctx->dims, hn_dim_mul(ctx->dims, in, (int64_t)p), q);
        return HONE_OK;
    }
    *out_dim = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    return HONE_OK;
}

// The uniform scale of the aspect policies and the size it gives (halves round up).
static double aspect_scale(const resize_attrs *a, const int64_t *in, const int64_t *sizes) {
    double best = a->aspect == ASPECT_NOT_LARGER ? INFINITY : 0;
    for (int i = 0; i < a->axis_count; i++) {
        double scale = (double)sizes[i] / (double)in[a->axes[i]];
        best = a->aspect == ASPECT_NOT_LARGER ? fmin(best, scale) : fmax(best, scale);
    }
    return best;
}
static int64_t aspect_size(double scale, int64_t in) {
    return (int64_t)fmin(floor(scale * (double)in + 0.5), 1e15);
}

static hone_status sizes_to_dims(hone_error *err, hn_infer *ctx, const resize_attrs *a,
                                 const hn_value *sizes, hn_dim *dims) {
    int count;
    const hn_dim *elems = hn_value_elems(ctx->module, sizes, &count);
    if (elems && count != a->axis_count)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%d sizes for %d axes", count, a->axis_count);
    int64_t in[HN_MAX_RANK] = {0}, want[HN_MAX_RANK];
    bool constant = elems != NULL;
    for (int i = 0; i < a->axis_count; i++) {
        hn_dim dim = dims[a->axes[i]];
        constant = constant && hn_dim_is_const(elems[i]) && hn_dim_is_const(dim) && dim > 0;
        if (!constant) continue;
        in[a->axes[i]] = dim;
        want[i] = elems[i];
    }
    double scale = constant && a->aspect != ASPECT_STRETCH ? aspect_scale(a, in, want) : 0;
    for (int i = 0; i < a->axis_count; i++) {
        hn_dim *dim = &dims[a->axes[i]];
        if (!elems || (a->aspect != ASPECT_STRETCH && !constant))
            *dim = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
        else
            *dim = a->aspect == ASPECT_STRETCH ? elems[i] : aspect_size(scale, in[a->axes[i]]);
        HN_TRY(hn_expect_size(err, ctx, "an output dim", *dim));
    }
    return HONE_OK;
}

// Known to be a list without elements.
static bool is_empty(const hn_value *value) {
    return value && value->type.rank == 1 && value->type.dims[0] == 0;
}

HN_INFER_FN(hn_infer_resize) {
    int rank;
    resize_attrs a;
    HN_TRY(hn_expect_rank(err, ctx, 0, 0, HN_MAX_RANK, &rank));
    const hn_type *x = hn_in_type(ctx, 0);
    if (rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    HN_TRY(read_attrs(err, ctx->node, rank, &a));
    const hn_value *scales = hn_in(ctx->node, scales_input(&a));
    const hn_value *sizes = hn_in(ctx->node, sizes_input(&a));
    if (is_empty(scales)) scales = NULL;
    if (is_empty(sizes)) sizes = NULL;
    if (!scales && !sizes)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "neither scales nor sizes are given");
    hn_dim dims[HN_MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    const hn_tensor *data = scales && !scales->overridable ? scales->constant : NULL;
    if (sizes) {
        HN_TRY(sizes_to_dims(err, ctx, &a, sizes, dims));
    } else if (data) {
        if (hn_tensor_count(data) != a.axis_count)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%lld scales for %d axes",
                         (long long)hn_tensor_count(data), a.axis_count);
        for (int i = 0; i < a.axis_count; i++)
            HN_TRY(scaled_size(err, ctx, dims[a.axes[i]], (float)hn_tensor_get_f64(data, i),
                               &dims[a.axes[i]]));
    } else {
        for (int i = 0; i < a.axis_count; i++)
            dims[a.axes[i]] = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    }
    hn_infer_set(ctx, 0, x->dtype, rank, dims);
    return HONE_OK;
}

// ---- one axis -----------------------------------------------------------------------------------
typedef struct axis_plan {
    int64_t in, out;
    double scale, roi_start, roi_end;
} axis_plan;

// In float32, as runtimes have it: ties of nearest depend on the rounding.
static double original_coordinate(const resize_attrs *a, const axis_plan *p, int64_t x) {
    float at = (float)x, in = (float)p->in, out = (float)p->out, scale = (float)p->scale;
    switch ((resize_coords)a->coords) {
    case COORDS_HALF_PIXEL: return (double)((at + 0.5f) / scale - 0.5f);
    case COORDS_HALF_PIXEL_SYMMETRIC: {
        float adjustment = out / (scale * in), centre = in / 2;
        return (double)(centre * (1 - adjustment) + (at + 0.5f) / scale - 0.5f);
    }
    case COORDS_PYTORCH_HALF_PIXEL: return p->out > 1 ? (double)((at + 0.5f) / scale - 0.5f) : 0;
    case COORDS_ALIGN_CORNERS: {
        // Before rounding to whole elements, as the standard's tests have it; a scale that is the ratio of
        // two sizes means these.
        float length = scale * in;
        if (fabsf(length - (float)p->out) < 1e-3f) length = (float)p->out;
        return p->out == 1 || length == 1 ? 0 : (double)(at * (in - 1) / (length - 1));
    }
    case COORDS_ASYMMETRIC: return (double)(at / scale);
    case COORDS_TF_HALF_PIXEL_FOR_NN: return (double)((at + 0.5f) / scale);
    case COORDS_TF_CROP_AND_RESIZE: {
        float start = (float)p->roi_start, end = (float)p->roi_end;
        if (p->out <= 1) return (double)(0.5f * (start + end) * (in - 1));
        return (double)(start * (in - 1) + at * (end - start) * (in - 1) / (out - 1));
    }
    }
    return 0;
}

static double cubic_kernel(double t, double a) {
    t = fabs(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    if (t < 2) return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
    return 0;
}

static int64_t nearest_index(const resize_attrs *a, double x, int64_t in) {
    double r = 0;
    switch ((resize_nearest)a->nearest) {
    case ROUND_PREFER_FLOOR: r = ceil(x - 0.5); break;
    case ROUND_PREFER_CEIL: r = floor(x + 0.5); break;
    case ROUND_FLOOR: r = floor(x); break;
    case ROUND_CEIL: r = ceil(x); break;
    }
    return (int64_t)fmin(fmax(r, 0), (double)(in - 1));
}

// Calls for every input index under the kernel at x; weights are normalised where they do not add
// up to one by themselves.
typedef struct weights {
    int64_t first, count; // unclamped input indices first..first+count-1
    double *value;
} weights;

static int64_t weight_limit(const resize_attrs *a, const axis_plan *p) {
    double support = a->mode == MODE_CUBIC ? 2 : 1;
    if (a->antialias && p->scale < 1) support /= p->scale;
    return support > 1e9 ? -1 : 2 * (int64_t)ceil(support) + 2;
}

static void make_weights(const resize_attrs *a, const axis_plan *p, double x, weights *w) {
    double support = a->mode == MODE_CUBIC ? 2 : 1;
    double stretch = a->antialias ? fmin(p->scale, 1) : 1, sum = 0;
    double first = floor(x - support / stretch) + 1;
    w->first = (int64_t)first;
    w->count = (int64_t)(ceil(x + support / stretch) - first);
    for (int64_t i = 0; i < w->count; i++) {
        double t = ((double)(w->first + i) - x) * stretch;
        double value = a->mode == MODE_CUBIC ? cubic_kernel(t, a->cubic_a) : fmax(1 - fabs(t), 0);
        int64_t at = w->first + i;
        if (a->exclude_outside && (at < 0 || at >= p->in)) value = 0;
        w->value[i] = value;
        sum += value;
    }
    for (int64_t i = 0; (a->antialias || a->exclude_outside) && i < w->count; i++)
        w->value[i] /= sum;
}

// x [outer][in][inner] -> y [outer][out][inner]
static hone_status resize_axis(hone_error *err, const hn_call *call, hn_arena *scratch,
                               const resize_attrs *a, const axis_plan *p, const double *x,
                               int64_t outer, int64_t inner, double *y) {
    weights w;
    int64_t limit = weight_limit(a, p);
    if (limit < 0) HN_FAIL_NODE(err, HONE_ERR_LIMIT, call->node, "scale is %g", p->scale);
    HN_TRY(hn_scratch_f64(err, scratch, limit, &w.value));
    for (int64_t o = 0; o < p->out; o++) {
        double at = original_coordinate(a, p, o);
        if (!(fabs(at) < 1e15)) HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "the roi is not finite");
        make_weights(a, p, at, &w);
        for (int64_t n = 0; n < outer; n++)
            for (int64_t i = 0; i < inner; i++) {
                double sum = 0;
                for (int64_t k = 0; k < w.count; k++) {
                    int64_t from = hn_min_i64(hn_max_i64(w.first + k, 0), p->in - 1);
                    if (w.value[k] != 0) sum += w.value[k] * x[(n * p->in + from) * inner + i];
                }
                y[(n * p->out + o) * inner + i] = sum;
            }
    }
    return HONE_OK;
}

// ---- the op -------------------------------------------------------------------------------------
static const hn_tensor *present(const hn_call *call, int index) {
    const hn_tensor *tensor = hn_call_in(call, index);
    return tensor && hn_tensor_count(tensor) > 0 ? tensor : NULL;
}

static hone_status make_plans(hone_error *err, const hn_call *call, const resize_attrs *a,
                              axis_plan *plans) {
    const hn_tensor *tx = hn_call_in(call, 0);
    const hn_tensor *ty = hn_call_out(call, 0);
    const hn_tensor *scales = present(call, scales_input(a)), *sizes = present(call, sizes_input(a));
    const hn_tensor *roi = a->coords == COORDS_TF_CROP_AND_RESIZE ? present(call, 1) : NULL;
    for (int i = 0; i < tx->shape.rank; i++)
        plans[i] = (axis_plan){tx->shape.dims[i], ty->shape.dims[i], 1, 0, 1};
    if (a->coords == COORDS_TF_CROP_AND_RESIZE &&
        (!roi || hn_tensor_count(roi) != 2 * (int64_t)a->axis_count))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "the roi does not fit %d axes", a->axis_count);
    int64_t want[HN_MAX_RANK] = {0};
    for (int i = 0; sizes && i < a->axis_count; i++) want[i] = hn_tensor_get_i64(sizes, i);
    double uniform = sizes && a->aspect != ASPECT_STRETCH ? aspect_scale(a, tx->shape.dims, want) : 0;
    for (int i = 0; i < a->axis_count; i++) {
        axis_plan *p = &plans[a->axes[i]];
        if (sizes) p->scale = uniform != 0 ? uniform : (double)p->out / (double)p->in;
        else p->scale = hn_tensor_get_f64(scales, i);
        if (roi) {
            p->roi_start = hn_tensor_get_f64(roi, i);
            p->roi_end = hn_tensor_get_f64(roi, a->axis_count + i);
        }
        if (p->in == 0 && p->out != 0)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "nothing can be resized to something");
    }
    return HONE_OK;
}

static bool is_resized(const resize_attrs *a, const axis_plan *plans, int axis) {
    for (int i = 0; i < a->axis_count; i++)
        if (a->axes[i] == axis)
            return plans[axis].in != plans[axis].out || plans[axis].scale != 1 ||
                   a->coords == COORDS_TF_CROP_AND_RESIZE;
    return false;
}

static hone_status run_nearest(hone_error *err, const hn_call *call, hn_arena *scratch,
                               const resize_attrs *a, const axis_plan *plans) {
    const hn_tensor *tx = hn_call_in(call, 0);
    hn_tensor *ty = hn_call_out(call, 0);
    int rank = tx->shape.rank;
    int64_t *map[HN_MAX_RANK], index[HN_MAX_RANK] = {0};
    for (int d = 0; d < rank; d++) {
        HN_TRY(hn_scratch_i64(err, scratch, plans[d].out, &map[d]));
        for (int64_t o = 0; o < plans[d].out; o++) {
            double at = is_resized(a, plans, d) ? original_coordinate(a, &plans[d], o) : (double)o;
            bool outside = a->coords == COORDS_TF_CROP_AND_RESIZE &&
                           !(at >= 0 && at <= (double)(plans[d].in - 1));
            map[d][o] = outside ? -1 : nearest_index(a, at, plans[d].in);
        }
    }
    size_t bytes = hn_dtype_bytes(tx->dtype);
    int64_t count = hn_tensor_count(ty);
    for (int64_t i = 0; i < count; i++) {
        int64_t from = 0;
        for (int d = 0; d < rank && from >= 0; d++)
            from = map[d][index[d]] < 0 ? -1 : from * tx->shape.dims[d] + map[d][index[d]];
        if (from < 0) hn_tensor_set_f64(ty, i, a->extrapolation);
        else if (bytes)
            memcpy((char *)ty->data + (size_t)i * bytes, (const char *)tx->data + (size_t)from * bytes,
                   bytes);
        else hn_tensor_set_i64(ty, i, hn_tensor_get_i64(tx, from)); // 4-bit types
        hn_index_next(index, ty->shape.dims, rank);
    }
    return HONE_OK;
}

// Where tf_crop_and_resize looks outside the input along any axis, the result is a constant.
static void extrapolate(const resize_attrs *a, const axis_plan *plans, const hn_shape *shape,
                        double *y) {
    int64_t index[HN_MAX_RANK] = {0}, count;
    if (!hn_shape_count(shape, &count)) return;
    for (int64_t i = 0; i < count; i++) {
        for (int d = 0; d < shape->rank; d++) {
            if (!is_resized(a, plans, d)) continue;
            double at = original_coordinate(a, &plans[d], index[d]);
            if (!(at >= 0 && at <= (double)(plans[d].in - 1))) y[i] = a->extrapolation;
        }
        hn_index_next(index, shape->dims, shape->rank);
    }
}

static hone_status resize_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0);
    hn_tensor *ty = hn_call_out(call, 0);
    int rank = tx->shape.rank;
    resize_attrs a;
    axis_plan plans[HN_MAX_RANK];
    HN_TRY(read_attrs(err, call->node, rank, &a));
    HN_TRY(make_plans(err, call, &a, plans));
    if (hn_tensor_count(ty) == 0) return HONE_OK;
    if (tx->dtype == HN_STRING)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "strings cannot be resized here");
    if (a.mode == MODE_NEAREST) return run_nearest(err, call, scratch, &a, plans);
    const double *x;
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    hn_shape shape = tx->shape;
    for (int d = 0; d < rank; d++) {
        if (!is_resized(&a, plans, d)) continue;
        double *y;
        int64_t outer = hn_dims_product(shape.dims, 0, d);
        int64_t inner = hn_dims_product(shape.dims, d + 1, rank), count;
        shape.dims[d] = plans[d].out;
        if (!hn_shape_count(&shape, &count))
            HN_FAIL_NODE(err, HONE_ERR_LIMIT, call->node, "an intermediate is too large");
        HN_TRY(hn_scratch_f64(err, scratch, count, &y));
        HN_TRY(resize_axis(err, call, scratch, &a, &plans[d], x, outer, inner, y));
        x = y;
    }
    if (a.coords == COORDS_TF_CROP_AND_RESIZE) // then every axis was resized: x is scratch
        extrapolate(&a, plans, &shape, (double *)(uintptr_t)x);
    double *y = (double *)(uintptr_t)x; // integers are cut off, as everyone does, after float32
    for (int64_t i = 0; hn_dtype_is_int(ty->dtype) && x != tx->data && i < hn_tensor_count(ty); i++)
        y[i] = trunc((double)(float)y[i]);
    hn_store_f64(ty, x);
    return HONE_OK;
}
HN_REF_FN(hn_ref_resize) { return hn_ref_scratch(err, call, resize_body); }

// Linear reads two inputs an axis, cubic four; nearest moves only.
HN_COST_FN(hn_cost_resize) {
    const hn_value *y = hn_out(node, 0);
    hn_slice mode = hn_op_string(node, "mode");
    if (!y || hn_slice_eq(mode, "nearest")) return;
    double flops = hn_slice_eq(mode, "cubic") ? 16 : 8;
    for (int i = 0; i < y->type.rank; i++) flops *= (double)y->type.dims[i];
    out_cost->flops = flops;
}
