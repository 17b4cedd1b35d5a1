// SPDX-License-Identifier: Apache-2.0
// Pooling: Max, Average, Lp, their global forms, MaxUnpool, MaxRoiPool, and the internal gradients
// of Max and Average.
//
// NaN wins a maximum. A window that lies in the padding alone gives the lowest value (Max) or zero.
#include <float.h>
#include <math.h>
#include "ops/nn_int.h"

// ---- inference ----------------------------------------------------------------------------------
static hone_status pool_kernel(hone_error *err, const hn_node *node, int spatial,
                               int64_t *out_kernel) {
    int64_t count;
    if (!hn_node_ints(node, "kernel_shape", &count) || count != spatial)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "kernel_shape has %lld values, not %d",
                     (long long)count, spatial);
    return hn_read_ints(err, node, "kernel_shape", spatial, 1, INT32_MAX, 1, out_kernel);
}

static hone_status infer_pool_at(hone_error *err, hn_infer *ctx, int input) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, input, 3, HN_MAX_RANK, &rank));
    const hn_type *x = hn_in_type(ctx, input);
    hn_dtype dtype = x ? x->dtype : HN_NONE;
    if (rank < 0) {
        hn_infer_set(ctx, 0, dtype, -1, NULL);
        hn_infer_set(ctx, 1, HN_I64, -1, NULL);
        return HONE_OK;
    }
    hn_window window;
    int64_t kernel[HN_MAX_SPATIAL];
    hn_dim dims[HN_MAX_RANK] = {x->dims[0], x->dims[1]};
    HN_TRY(hn_window_read(err, ctx->node, rank - 2, &window));
    HN_TRY(pool_kernel(err, ctx->node, rank - 2, kernel));
    HN_TRY(hn_window_infer(err, ctx, &window, x->dims + 2, kernel, dims + 2));
    hn_infer_set(ctx, 0, dtype, rank, dims);
    hn_infer_set(ctx, 1, HN_I64, rank, dims);
    return HONE_OK;
}

HN_INFER_FN(hn_infer_pool) { return infer_pool_at(err, ctx, 0); }

HN_INFER_FN(hn_infer_global_pool) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 2, HN_MAX_RANK, &rank));
    const hn_type *x = hn_in_type(ctx, 0);
    if (rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    hn_dim dims[HN_MAX_RANK] = {x->dims[0], x->dims[1], 1, 1, 1, 1, 1, 1};
    hn_infer_set(ctx, 0, x->dtype, rank, dims);
    return HONE_OK;
}

// Sizes that undo a pool: (in - 1) * stride + kernel - pads.
static hone_status unpool_dims(hone_error *err, hn_infer *ctx, const hn_type *x, hn_dim *out_dims) {
    hn_window window;
    int64_t kernel[HN_MAX_SPATIAL];
    HN_TRY(hn_window_read(err, ctx->node, x->rank - 2, &window));
    HN_TRY(pool_kernel(err, ctx->node, x->rank - 2, kernel));
    out_dims[0] = x->dims[0];
    out_dims[1] = x->dims[1];
    for (int i = 0; i < x->rank - 2; i++) {
        hn_dim span = hn_dim_mul(ctx->dims, hn_dim_sub(ctx->dims, x->dims[2 + i], 1),
                                 window.stride[i]);
        out_dims[2 + i] = hn_dim_add(ctx->dims, span,
                                     kernel[i] - window.pad_begin[i] - window.pad_end[i]);
        HN_TRY(hn_expect_size(err, ctx, "a spatial output dim", out_dims[2 + i]));
    }
    return HONE_OK;
}

HN_INFER_FN(hn_infer_max_unpool) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 3, HN_MAX_RANK, &rank));
    const hn_type *x = hn_in_type(ctx, 0), *indices = hn_in_type(ctx, 1);
    hn_dim dims[HN_MAX_RANK];
    if (rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    if (indices && indices->rank >= 0 && indices->rank != rank)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "data and indices have ranks %d and %d", rank,
                     indices->rank);
    for (int i = 0; indices && indices->rank >= 0 && i < rank; i++)
        HN_TRY(hn_expect_same(err, ctx, "dims of data and indices", x->dims[i], indices->dims[i],
                              NULL));
    HN_TRY(unpool_dims(err, ctx, x, dims));
    const hn_value *shape = hn_in(ctx->node, 2);
    if (shape) {
        int count;
        const hn_dim *elems = hn_value_elems(ctx->module, shape, &count);
        if (elems && count != rank)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "output_shape has %d values, not %d",
                         count, rank);
        for (int i = 0; i < rank; i++) {
            dims[i] = elems ? elems[i] : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
            HN_TRY(hn_expect_size(err, ctx, "an output dim", dims[i]));
        }
    }
    hn_infer_set(ctx, 0, x->dtype, rank, dims);
    return HONE_OK;
}

HN_INFER_FN(hn_infer_max_roi_pool) {
    int rank, rois_rank;
    int64_t pooled[2];
    HN_TRY(hn_expect_rank(err, ctx, 0, 4, 4, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 2, 2, &rois_rank));
    HN_TRY(hn_read_ints(err, ctx->node, "pooled_shape", 2, 1, INT32_MAX, 0, pooled));
    const hn_type *x = hn_in_type(ctx, 0), *rois = hn_in_type(ctx, 1);
    if (rois_rank == 2) HN_TRY(hn_expect_same(err, ctx, "values of a roi", rois->dims[1], 5, NULL));
    if (rank < 0 || rois_rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    hn_dim dims[4] = {rois->dims[0], x->dims[1], pooled[0], pooled[1]};
    hn_infer_set(ctx, 0, x->dtype, 4, dims);
    return HONE_OK;
}

// ---- windows ------------------------------------------------------------------------------------
// What one output of a plane is computed from.
typedef struct pool_taps {
    const int64_t *offsets;
    int64_t count;  // taps inside the input
    int64_t padded; // taps inside the padded input
} pool_taps;
// Value of one output; *out_index (flat in the plane) where the op has one.
typedef double (*pool_fn)(const double *plane, const pool_taps *taps, const hn_call *call,
                          int64_t *out_index);

static hone_status pool_geometry(hone_error *err, const hn_call *call, const hn_tensor *x,
                                 const hn_tensor *y, hn_geometry *out_geometry) {
    hn_window window;
    int64_t kernel[HN_MAX_SPATIAL];
    HN_TRY(hn_window_read(err, call->node, x->shape.rank - 2, &window));
    HN_TRY(pool_kernel(err, call->node, x->shape.rank - 2, kernel));
    return hn_geometry_make(err, call->node, &window, x->shape.dims + 2, kernel,
                            y->shape.dims + 2, out_geometry);
}

// Flat row-major offset in a plane -> flat column-major one (storage_order 1).
static int64_t column_major(const hn_geometry *g, int64_t offset) {
    int64_t result = 0, scale = 1, at[HN_MAX_SPATIAL];
    for (int i = g->rank - 1; i >= 0; i--) {
        at[i] = offset % g->in[i];
        offset /= g->in[i];
    }
    for (int i = 0; i < g->rank; i++) {
        result += at[i] * scale;
        scale *= g->in[i];
    }
    return result;
}

static hone_status pool_run(hone_error *err, const hn_call *call, hn_arena *scratch, pool_fn fn) {
    const hn_tensor *tx = hn_call_in(call, 0);
    hn_tensor *ty = hn_call_out(call, 0), *tindex = hn_call_out(call, 1);
    const hn_tensor *shape_of = ty ? ty : tindex;
    const double *x;
    double *y;
    int64_t *index = NULL, *input, *kernel;
    hn_geometry g;
    if (!shape_of) return HONE_OK;
    HN_TRY(pool_geometry(err, call, tx, shape_of, &g));
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    int64_t planes = tx->shape.dims[0] * tx->shape.dims[1];
    HN_TRY(hn_scratch_f64(err, scratch, planes * g.out_count, &y));
    if (tindex) HN_TRY(hn_scratch_i64(err, scratch, planes * g.out_count, &index));
    HN_TRY(hn_scratch_i64(err, scratch, g.tap_limit, &input));
    HN_TRY(hn_scratch_i64(err, scratch, g.tap_limit, &kernel));
    bool by_column = hn_node_int(call->node, "storage_order", 0) != 0;
    int64_t at[HN_MAX_SPATIAL] = {0};
    for (int64_t o = 0; o < g.out_count; o++) {
        pool_taps taps = {.offsets = input};
        taps.count = hn_geometry_taps(&g, at, input, kernel, &taps.padded);
        for (int64_t p = 0; p < planes; p++) {
            int64_t best = -1;
            y[p * g.out_count + o] = fn(x + p * g.in_count, &taps, call, &best);
            if (!index) continue;
            if (by_column && best >= 0) best = column_major(&g, best);
            index[p * g.out_count + o] = best < 0 ? -1 : p * g.in_count + best;
        }
        hn_index_next(at, g.out, g.rank);
    }
    hn_store_f64(ty, y);
    hn_store_i64(tindex, index);
    return HONE_OK;
}

static double pool_max(const double *plane, const pool_taps *taps, const hn_call *call,
                       int64_t *out_index) {
    (void)call;
    double best = -INFINITY; // integers saturate to their lowest value
    for (int64_t t = 0; t < taps->count; t++) {
        double value = plane[taps->offsets[t]];
        if (*out_index < 0 || value > best || (isnan(value) && !isnan(best))) {
            best = value;
            *out_index = taps->offsets[t];
        }
    }
    return best;
}

static double pool_average(const double *plane, const pool_taps *taps, const hn_call *call,
                           int64_t *out_index) {
    (void)out_index;
    double sum = 0;
    for (int64_t t = 0; t < taps->count; t++) sum += plane[taps->offsets[t]];
    int64_t count =
        hn_node_int(call->node, "count_include_pad", 0) != 0 ? taps->padded : taps->count;
    return count ? sum / (double)count : 0;
}

static double lp_norm(const double *values, const int64_t *offsets, int64_t count, double p) {
    double sum = 0;
    for (int64_t t = 0; t < count; t++) {
        double value = fabs(values[offsets ? offsets[t] : t]);
        sum += p == 1 ? value : p == 2 ? value * value : pow(value, p);
    }
    return p == 1 ? sum : p == 2 ? sqrt(sum) : pow(sum, 1 / p);
}

static double pool_lp(const double *plane, const pool_taps *taps, const hn_call *call,
                      int64_t *out_index) {
    (void)out_index;
    return lp_norm(plane, taps->offsets, taps->count, (double)hn_op_int(call->node, "p"));
}

static hone_status max_pool_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return pool_run(err, call, scratch, pool_max);
}
static hone_status average_pool_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return pool_run(err, call, scratch, pool_average);
}
static hone_status lp_pool_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return pool_run(err, call, scratch, pool_lp);
}
HN_REF_FN(hn_ref_max_pool) { return hn_ref_scratch(err, call, max_pool_body); }
HN_REF_FN(hn_ref_average_pool) { return hn_ref_scratch(err, call, average_pool_body); }
HN_REF_FN(hn_ref_lp_pool) { return hn_ref_scratch(err, call, lp_pool_body); }

// ---- global -------------------------------------------------------------------------------------
typedef double (*plane_fn)(const double *plane, int64_t count, const hn_call *call);

static double plane_mean(const double *plane, int64_t count, const hn_call *call) {
    (void)call;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += plane[i];
    return sum / (double)count;
}
static double plane_max(const double *plane, int64_t count, const hn_call *call) {
    (void)call;
    double best = -INFINITY;
    for (int64_t i = 0; i < count; i++)
        if (plane[i] > best || isnan(plane[i])) {
            best = plane[i];
            if (isnan(best)) break;
        }
    return best;
}
static double plane_lp(const double *plane, int64_t count, const hn_call *call) {
    return lp_norm(plane, NULL, count, (double)hn_op_int(call->node, "p"));
}

static hone_status global_run(hone_error *err, const hn_call *call, hn_arena *scratch,
                              plane_fn fn) {
    const hn_tensor *tx = hn_call_in(call, 0);
    const double *x;
    double *y;
    int64_t planes = tx->shape.dims[0] * tx->shape.dims[1];
    int64_t count = hn_dims_product(tx->shape.dims, 2, tx->shape.rank);
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_scratch_f64(err, scratch, planes, &y));
    for (int64_t p = 0; p < planes; p++) y[p] = fn(x + p * count, count, call);
    hn_store_f64(hn_call_out(call, 0), y);
    return HONE_OK;
}
static hone_status global_average_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return global_run(err, call, scratch, plane_mean);
}
static hone_status global_max_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return global_run(err, call, scratch, plane_max);
}
static hone_status global_lp_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return global_run(err, call, scratch, plane_lp);
}
HN_REF_FN(hn_ref_global_average_pool) { return hn_ref_scratch(err, call, global_average_body); }
HN_REF_FN(hn_ref_global_max_pool) { return hn_ref_scratch(err, call, global_max_body); }
HN_REF_FN(hn_ref_global_lp_pool) { return hn_ref_scratch(err, call, global_lp_body); }

// ---- MaxUnpool ----------------------------------------------------------------------------------
// Indices count in the tensor that the pool read, whose size follows from the attributes; a larger
// output_shape appends zeros at the ends of the dims.
static hone_status max_unpool_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *tindex = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    int rank = tx->shape.rank;
    const double *x;
    const int64_t *index;
    double *y;
    hn_window window;
    int64_t kernel[HN_MAX_SPATIAL], inner[HN_MAX_RANK] = {tx->shape.dims[0], tx->shape.dims[1]};
    HN_TRY(hn_window_read(err, call->node, rank - 2, &window));
    HN_TRY(pool_kernel(err, call->node, rank - 2, kernel));
    hn_shape inner_shape = {.rank = rank};
    for (int i = 2; i < rank; i++)
        inner[i] = (tx->shape.dims[i] - 1) * window.stride[i - 2] + kernel[i - 2] -
                   window.pad_begin[i - 2] - window.pad_end[i - 2];
    memcpy(inner_shape.dims, inner, sizeof inner);
    int64_t limit;
    for (int i = 0; i < rank; i++)
        if (inner[i] < 0 || !hn_shape_count(&inner_shape, &limit))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "the unpooled size is out of range");
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_i64(err, scratch, tindex, &index));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    for (int64_t i = 0; i < hn_tensor_count(tx); i++) {
        int64_t rest = index[i], offset = 0, scale = 1;
        if (rest < 0 || rest >= limit)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "index %lld is out of range",
                         (long long)rest);
        for (int d = rank - 1; d >= 0; d--) {
            int64_t at = rest % inner[d];
            rest /= inner[d];
            if (at >= ty->shape.dims[d])
                HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "index %lld is out of range",
                             (long long)index[i]);
            offset += at * scale;
            scale *= ty->shape.dims[d];
        }
        y[offset] = x[i];
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_max_unpool) { return hn_ref_scratch(err, call, max_unpool_body); }

// ---- MaxRoiPool ---------------------------------------------------------------------------------
// Bin `b` of `bins` over a span of `length` starting at `start`, clipped to [0, limit).
static void roi_bin(int64_t start, int64_t length, int64_t b, int64_t bins, int64_t limit,
                    int64_t *out_begin, int64_t *out_end) {
    double size = (double)length / (double)bins;
    double begin = floor((double)b * size) + (double)start;
    double end = ceil((double)(b + 1) * size) + (double)start;
    *out_begin = (int64_t)fmin(fmax(begin, 0), (double)limit);
    *out_end = (int64_t)fmin(fmax(end, 0), (double)limit);
}

static int64_t roi_coordinate(double value) {
    return isnan(value) ? 0 : (int64_t)fmin(fmax(round(value), -1e15), 1e15);
}

static hone_status max_roi_pool_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *trois = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    int64_t channels = tx->shape.dims[1], height = tx->shape.dims[2], width = tx->shape.dims[3];
    int64_t rows = ty->shape.dims[2], columns = ty->shape.dims[3];
    double scale = (double)hn_op_float(call->node, "spatial_scale");
    const double *x, *rois;
    double *y;
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_f64(err, scratch, trois, &rois));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    double *at = y;
    for (int64_t r = 0; r < trois->shape.dims[0]; r++) {
        const double *roi = rois + r * 5;
        if (!(roi[0] >= 0 && roi[0] < (double)tx->shape.dims[0]))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "roi %lld names batch item %g",
                         (long long)r, roi[0]);
        int64_t left = roi_coordinate(roi[1] * scale), top = roi_coordinate(roi[2] * scale);
        int64_t wide = hn_max_i64(roi_coordinate(roi[3] * scale) - left + 1, 1);
        int64_t tall = hn_max_i64(roi_coordinate(roi[4] * scale) - top + 1, 1);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++) {
                    int64_t y0, y1, x0, x1;
                    roi_bin(top, tall, i, rows, height, &y0, &y1);
                    roi_bin(left, wide, j, columns, width, &x0, &x1);
                    double best = y1 <= y0 || x1 <= x0 ? 0 : -INFINITY;
                    const double *plane = x + ((int64_t)roi[0] * channels + c) * height * width;
                    for (int64_t h = y0; h < y1; h++)
                        for (int64_t w = x0; w < x1; w++) {
                            double value = plane[h * width + w];
                            if (value > best || isnan(value)) best = value;
                        }
                    *at++ = best;
                }
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_max_roi_pool) { return hn_ref_scratch(err, call, max_roi_pool_body); }

// ---- gradients ----------------------------------------------------------------------------------
// hn.MaxPoolGrad(dY, X) and hn.AveragePoolGrad(dY, X), attributes as the pool's.
HN_INFER_FN(hn_infer_pool_grad) {
    const hn_value *x = hn_in(ctx->node, 1), *out = hn_out(ctx->node, 0);
    const hn_type *dy = hn_in_type(ctx, 0);
    HN_TRY(infer_pool_at(err, ctx, 1));
    if (out && dy && dy->rank >= 0 && out->type.rank >= 0) {
        int rank;
        HN_TRY(hn_expect_rank(err, ctx, 0, out->type.rank, out->type.rank, &rank));
        for (int i = 0; i < rank; i++)
            HN_TRY(hn_expect_same(err, ctx, "dims of the output and its gradient", dy->dims[i],
                                  out->type.dims[i], NULL));
    }
    if (x) hn_infer_like(ctx, 0, x);
    return HONE_OK;
}

static hone_status pool_grad_run(hone_error *err, const hn_call *call, hn_arena *scratch,
                                 bool max) {
    const hn_tensor *tdy = hn_call_in(call, 0), *tx = hn_call_in(call, 1);
    hn_tensor *tdx = hn_call_out(call, 0);
    const double *dy, *x;
    double *dx;
    int64_t *input, *kernel;
    hn_geometry g;
    HN_TRY(pool_geometry(err, call, tx, tdy, &g));
    HN_TRY(hn_load_f64(err, scratch, tdy, &dy));
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(tdx), &dx));
    HN_TRY(hn_scratch_i64(err, scratch, g.tap_limit, &input));
    HN_TRY(hn_scratch_i64(err, scratch, g.tap_limit, &kernel));
    bool with_pad = hn_node_int(call->node, "count_include_pad", 0) != 0;
    int64_t planes = tx->shape.dims[0] * tx->shape.dims[1], at[HN_MAX_SPATIAL] = {0};
    for (int64_t o = 0; o < g.out_count; o++) {
        pool_taps taps = {.offsets = input};
        taps.count = hn_geometry_taps(&g, at, input, kernel, &taps.padded);
        int64_t count = with_pad ? taps.padded : taps.count;
        for (int64_t p = 0; p < planes; p++) {
            double *plane = dx + p * g.in_count, value = dy[p * g.out_count + o];
            int64_t best = -1;
            if (max) {
                (void)pool_max(x + p * g.in_count, &taps, call, &best);
                if (best >= 0) plane[best] += value;
            }
            for (int64_t t = 0; !max && t < taps.count; t++)
                plane[taps.offsets[t]] += value / (double)count;
        }
        hn_index_next(at, g.out, g.rank);
    }
    hn_store_f64(tdx, dx);
    return HONE_OK;
}
static hone_status max_pool_grad_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return pool_grad_run(err, call, scratch, true);
}
static hone_status average_pool_grad_body(hone_error *err, const hn_call *call,
                                          hn_arena *scratch) {
    return pool_grad_run(err, call, scratch, false);
}
HN_REF_FN(hn_ref_max_pool_grad) { return hn_ref_scratch(err, call, max_pool_grad_body); }
HN_REF_FN(hn_ref_average_pool_grad) { return hn_ref_scratch(err, call, average_pool_grad_body); }

// ---- cost ---------------------------------------------------------------------------------------
// One addition an input of each window; maxima are comparisons and count as none.
HN_COST_FN(hn_cost_average_pool) {
    const hn_value *out = hn_out(node, 0);
    int64_t count;
    const int64_t *kernel = hn_node_ints(node, "kernel_shape", &count);
    if (!out) return;
    double flops = 1;
    for (int i = 0; i < out->type.rank; i++) flops *= (double)out->type.dims[i];
    for (int64_t i = 0; kernel && i < count; i++) flops *= (double)kernel[i];
    out_cost->flops = flops;
}
HN_COST_FN(hn_cost_read) { // one flop an element of input 0
    const hn_value *in = hn_in(node, 0);
    if (!in) return;
    double flops = 1;
    for (int i = 0; i < in->type.rank; i++) flops *= (double)in->type.dims[i];
    out_cost->flops = flops;
}
