// SPDX-License-Identifier: Apache-2.0
// Sampling at computed positions: GridSample, AffineGrid, RoiAlign; NonMaxSuppression.
//
// Positions come from tensors: NaN and infinities must land on an index inside the input. What is read
// at a NaN is NaN, not what happens to lie there.
#include <math.h>
#include "ops/nn_int.h"

// ---- GridSample ---------------------------------------------------------------------------------
HN_INFER_FN(hn_infer_grid_sample) {
    int rank, grid_rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 3, HN_MAX_RANK, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 3, HN_MAX_RANK, &grid_rank));
    const hn_type *x = hn_in_type(ctx, 0), *grid = hn_in_type(ctx, 1);
    if (rank < 0 || grid_rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    if (rank != grid_rank)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the data has rank %d, the grid has %d", rank,
                     grid_rank);
    hn_dim dims[HN_MAX_RANK] = {x->dims[0], x->dims[1]};
    HN_TRY(hn_expect_same(err, ctx, "batch of data and grid", x->dims[0], grid->dims[0], &dims[0]));
    HN_TRY(hn_expect_same(err, ctx, "coordinates of the grid and spatial dims",
                          grid->dims[rank - 1], rank - 2, NULL));
    for (int i = 2; i < rank; i++) dims[i] = grid->dims[i - 1];
    hn_infer_set(ctx, 0, x->dtype, rank, dims);
    return HONE_OK;
}

typedef enum grid_mode { GRID_LINEAR, GRID_NEAREST, GRID_CUBIC } grid_mode;
typedef enum grid_padding { PADDING_ZEROS, PADDING_BORDER, PADDING_REFLECTION } grid_padding;

typedef struct grid_sample {
    grid_mode mode;
    grid_padding padding;
    bool align;
    int spatial;
    int64_t dims[HN_MAX_SPATIAL], count;
} grid_sample;

static hone_status read_grid(hone_error *err, const hn_node *node, grid_sample *g) {
    hn_slice mode = hn_op_string(node, "mode"), padding = hn_op_string(node, "padding_mode");
    if (hn_slice_eq(mode, "linear") || hn_slice_eq(mode, "bilinear")) g->mode = GRID_LINEAR;
    else if (hn_slice_eq(mode, "nearest")) g->mode = GRID_NEAREST;
    else if (hn_slice_eq(mode, "cubic") || hn_slice_eq(mode, "bicubic")) g->mode = GRID_CUBIC;
    else
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "mode is '%.*s'", (int)mode.length, mode.data);
    if (hn_slice_eq(padding, "zeros")) g->padding = PADDING_ZEROS;
    else if (hn_slice_eq(padding, "border")) g->padding = PADDING_BORDER;
    else if (hn_slice_eq(padding, "reflection")) g->padding = PADDING_REFLECTION;
    else
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "padding_mode is '%.*s'", (int)padding.length,
                     padding.data);
    g->align = hn_op_int(node, "align_corners") != 0;
    return HONE_OK;
}

// Mirrors x into [lo, hi].
static double reflect(double x, double lo, double hi) {
    double range = hi - lo;
    if (range <= 0) return lo;
    double d = x < lo ? lo - x : x > hi ? x - hi : -1;
    if (d < 0) return x;
    double n = floor(d / range), rest = d - n * range;
    bool even = fmod(n, 2) == 0;
    if (x < lo) return even ? lo + rest : hi - rest;
    return even ? hi - rest : lo + rest;
}

// Position in elements of one grid coordinate, moved inside where the padding mode does that.
static double grid_position(const grid_sample *g, int axis, double coordinate) {
    double size = (double)g->dims[axis];
    double x = g->align ? (coordinate + 1) / 2 * (size - 1) : ((coordinate + 1) * size - 1) / 2;
    if (!(fabs(x) < 1e15)) x = x > 0 ? 1e15 : -1e15; // NaN too
    if (g->mode == GRID_NEAREST) x = hn_round_even(x);
    if (g->mode == GRID_CUBIC || g->padding == PADDING_ZEROS) return x; // taps are moved instead
    if (g->padding == PADDING_BORDER) return fmin(fmax(x, 0), size - 1);
    return g->align ? reflect(x, 0, size - 1) : reflect(x, -0.5, size - 0.5);
}

// Index of a tap, -1 where it reads zero.
static int64_t grid_tap(const grid_sample *g, int axis, double at) {
    double last = (double)g->dims[axis] - 1;
    if (at >= 0 && at <= last) return (int64_t)at;
    if (g->padding == PADDING_ZEROS) return -1;
    if (g->padding == PADDING_REFLECTION)
        at = g->align ? reflect(at, 0, last) : reflect(at, -0.5, last + 0.5);
    return (int64_t)fmin(fmax(at, 0), last);
}

static double cubic_weight(double t) { // a = -0.75
    const double a = -0.75;
    t = fabs(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

// The taps of one grid point: offset into a plane (-1: zero) and weight.
typedef struct tap_set {
    int64_t count;
    int64_t *offset;
    double *weight;
} tap_set;

static void grid_taps(const grid_sample *g, const double *point, tap_set *set) {
    int each = g->mode == GRID_NEAREST ? 1 : g->mode == GRID_LINEAR ? 2 : 4;
    int64_t at[HN_MAX_SPATIAL][4], choice[HN_MAX_SPATIAL] = {0}, limits[HN_MAX_SPATIAL];
    double weight[HN_MAX_SPATIAL][4];
    for (int d = 0; d < g->spatial; d++) {
        // The grid lists the fastest axis first.
        double x = grid_position(g, d, point[g->spatial - 1 - d]), low = floor(x);
        double first = each == 4 ? low - 1 : each == 2 ? low : x;
        limits[d] = each;
        for (int k = 0; k < each; k++) {
            double tap = first + k;
            at[d][k] = grid_tap(g, d, tap);
            weight[d][k] = each == 1 ? 1 : each == 2 ? 1 - fabs(x - tap) : cubic_weight(x - tap);
        }
    }
    set->count = 0;
    do {
        int64_t offset = 0;
        double product = 1;
        for (int d = 0; d < g->spatial; d++) {
            int64_t tap = at[d][choice[d]];
            offset = offset < 0 || tap < 0 ? -1 : offset * g->dims[d] + tap;
            product *= weight[d][choice[d]];
        }
        if (offset < 0 || product == 0) continue;
        set->offset[set->count] = offset;
        set->weight[set->count++] = product;
    } while (hn_index_next(choice, limits, g->spatial));
}

static hone_status grid_sample_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *tgrid = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    grid_sample g = {.spatial = tx->shape.rank - 2, .count = 1};
    const double *x, *grid;
    double *y;
    tap_set set = {0};
    HN_TRY(read_grid(err, call->node, &g));
    for (int d = 0; d < g.spatial; d++) g.count *= g.dims[d] = tx->shape.dims[2 + d];
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_f64(err, scratch, tgrid, &grid));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    int64_t most = 1;
    for (int d = 0; d < g.spatial; d++) most *= 4;
    HN_TRY(hn_scratch_i64(err, scratch, most, &set.offset));
    HN_TRY(hn_scratch_f64(err, scratch, most, &set.weight));
    int64_t channels = tx->shape.dims[1];
    int64_t points = hn_dims_product(ty->shape.dims, 2, ty->shape.rank);
    for (int64_t n = 0; n < tx->shape.dims[0]; n++)
        for (int64_t p = 0; p < points && g.count > 0; p++) {
            const double *point = grid + (n * points + p) * g.spatial;
            double start = 0;
            for (int d = 0; d < g.spatial; d++)
                if (isnan(point[d])) start = NAN;
            grid_taps(&g, point, &set);
            for (int64_t c = 0; c < channels; c++) {
                const double *plane = x + (n * channels + c) * g.count;
                double sum = start;
                for (int64_t t = 0; t < set.count; t++) sum += set.weight[t] * plane[set.offset[t]];
                y[(n * channels + c) * points + p] = sum;
            }
        }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_grid_sample) { return hn_ref_scratch(err, call, grid_sample_body); }

HN_COST_FN(hn_cost_grid_sample) {
    const hn_value *y = hn_out(node, 0);
    hn_slice mode = hn_op_string(node, "mode");
    if (!y) return;
    double taps = hn_slice_eq(mode, "nearest") ? 1 : hn_slice_eq(mode, "cubic") ? 4 : 2, flops = 2;
    for (int i = 0; i < y->type.rank; i++) flops *= (double)y->type.dims[i];
    for (int i = 2; i < y->type.rank; i++) flops *= taps;
    out_cost->flops = flops;
}

// ---- AffineGrid ---------------------------------------------------------------------------------
HN_INFER_FN(hn_infer_affine_grid) {
    int rank, size_rank, count = -1;
    HN_TRY(hn_expect_rank(err, ctx, 0, 3, 3, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 1, 1, &size_rank));
    const hn_type *theta = hn_in_type(ctx, 0);
    const hn_dim *size = hn_value_elems(ctx->module, hn_in(ctx->node, 1), &count);
    int spatial = size ? count - 2
                  : rank == 3 && hn_dim_is_const(theta->dims[1]) ? (int)theta->dims[1] : -1;
    if (spatial == -1) {
        hn_infer_set(ctx, 0, theta ? theta->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    if (spatial != 2 && spatial != 3)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "size has %d values, not 4 or 5", spatial + 2);
    hn_dim dims[5];
    for (int i = 0; i < spatial; i++)
        dims[1 + i] = size ? size[2 + i] : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    dims[0] = size ? size[0] : rank == 3 ? theta->dims[0] : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    dims[1 + spatial] = spatial;
    for (int i = 0; i < spatial + 2; i++) HN_TRY(hn_expect_size(err, ctx, "an output dim", dims[i]));
    if (rank == 3) {
        HN_TRY(hn_expect_same(err, ctx, "batch of theta and size", theta->dims[0], dims[0], NULL));
        HN_TRY(hn_expect_same(err, ctx, "rows of theta", theta->dims[1], spatial, NULL));
        HN_TRY(hn_expect_same(err, ctx, "columns of theta", theta->dims[2], spatial + 1, NULL));
    }
    hn_infer_set(ctx, 0, theta ? theta->dtype : HN_NONE, spatial + 2, dims);
    return HONE_OK;
}

static hone_status affine_grid_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *ttheta = hn_call_in(call, 0);
    hn_tensor *ty = hn_call_out(call, 0);
    int spatial = ty->shape.rank - 2;
    bool align = hn_op_int(call->node, "align_corners") != 0;
    const double *theta;
    double *y;
    HN_TRY(hn_load_f64(err, scratch, ttheta, &theta));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    const int64_t *dims = ty->shape.dims + 1;
    int64_t points = hn_dims_product(dims, 0, spatial), at = 0;
    for (int64_t n = 0; n < ty->shape.dims[0]; n++) {
        int64_t index[3] = {0};
        for (int64_t p = 0; p < points; p++) {
            double base[4] = {0};
            for (int d = 0; d < spatial; d++) { // x first
                double size = (double)dims[spatial - 1 - d], i = (double)index[spatial - 1 - d];
                base[d] = !align ? (2 * i + 1) / size - 1 : size > 1 ? 2 * i / (size - 1) - 1 : 0;
            }
            base[spatial] = 1;
            for (int r = 0; r < spatial; r++) {
                double sum = 0;
                for (int k = 0; k <= spatial; k++)
                    sum += theta[(n * spatial + r) * (spatial + 1) + k] * base[k];
                y[at++] = sum;
            }
            hn_index_next(index, dims, spatial);
        }
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_affine_grid) { return hn_ref_scratch(err, call, affine_grid_body); }

// ---- RoiAlign -----------------------------------------------------------------------------------
HN_INFER_FN(hn_infer_roi_align) {
    int rank, rois_rank, batch_rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 4, 4, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 2, 2, &rois_rank));
    HN_TRY(hn_expect_rank(err, ctx, 2, 1, 1, &batch_rank));
    const hn_type *x = hn_in_type(ctx, 0), *rois = hn_in_type(ctx, 1);
    int64_t height = hn_op_int(ctx->node, "output_height"), width = hn_op_int(ctx->node, "output_width");
    if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "an output of %lld x %lld",
                     (long long)height, (long long)width);
    if (rank < 0 || rois_rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    HN_TRY(hn_expect_same(err, ctx, "values of a roi", rois->dims[1], 4, NULL));
    hn_dim count = rois->dims[0];
    if (batch_rank == 1)
        HN_TRY(hn_expect_same(err, ctx, "rois and batch indices", count, hn_in_type(ctx, 2)->dims[0],
                              &count));
    hn_infer_set(ctx, 0, x->dtype, 4, (hn_dim[]){count, x->dims[1], height, width});
    return HONE_OK;
}

typedef struct roi_align {
    int64_t height, width, rows, columns, sampling;
    double scale;
    bool half_pixel, max;
} roi_align;

// The four neighbours of a point: offsets and weights; none (false) beyond one element outside.
static bool roi_neighbours(const roi_align *a, double y, double x, int64_t *offset,
                           double *weight) {
    if (!(y >= -1 && y <= (double)a->height && x >= -1 && x <= (double)a->width)) return false;
    y = fmax(y, 0);
    x = fmax(x, 0);
    int64_t y0 = hn_min_i64((int64_t)y, a->height - 1), x0 = hn_min_i64((int64_t)x, a->width - 1);
    int64_t y1 = hn_min_i64(y0 + 1, a->height - 1), x1 = hn_min_i64(x0 + 1, a->width - 1);
    double fy = y0 == a->height - 1 ? 0 : y - (double)y0;
    double fx = x0 == a->width - 1 ? 0 : x - (double)x0;
    int64_t offsets[4] = {y0 * a->width + x0, y0 * a->width + x1, y1 * a->width + x0,
                          y1 * a->width + x1};
    double weights[4] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
    memcpy(offset, offsets, sizeof offsets);
    memcpy(weight, weights, sizeof weights);
    return true;
}

// Samples of one axis that may lie inside the input: [*out_first, *out_end). A roi of any size then
// costs no more than the input has elements.
static void roi_range(double start, double length, int64_t samples, int64_t limit,
                      int64_t *out_first, int64_t *out_end) {
    double step = length / (double)samples;
    double first = (-1 - start) / step - 1, last = ((double)limit - start) / step + 1;
    *out_first = 0;
    *out_end = samples;
    if (!(fabs(step) > 0) || !(fabs(first) < 1e18) || !(fabs(last) < 1e18)) { // all in one place
        if (!(start >= -1 && start <= (double)limit)) *out_end = 0;
        else *out_end = hn_min_i64(samples, 10000);
        return;
    }
    double lo = fmax(fmin(first, last), 0), hi = fmin(fmax(first, last), (double)samples);
    *out_first = (int64_t)lo;
    *out_end = hi > lo ? (int64_t)hi : (int64_t)lo;
}

static double roi_bin(const roi_align *a, const double *plane, double top, double left, double tall,
                      double wide, int64_t ny, int64_t nx) {
    double sum = 0;
    int64_t y0, y1, x0, x1;
    if (ny < 1 || nx < 1) return 0;
    roi_range(top, tall, ny, a->height, &y0, &y1);
    roi_range(left, wide, nx, a->width, &x0, &x1);
    bool any = y1 - y0 < ny || x1 - x0 < nx; // what lies outside reads zero
    for (int64_t iy = y0; iy < y1; iy++)
        for (int64_t ix = x0; ix < x1; ix++) {
            int64_t offset[4];
            double weight[4], y = top + ((double)iy + 0.5) * tall / (double)ny;
            double x = left + ((double)ix + 0.5) * wide / (double)nx;
            bool inside = roi_neighbours(a, y, x, offset, weight);
            for (int k = 0; k < 4; k++) {
                // The maximum is taken over the four weighted neighbours, not over their sum.
                double term = inside ? weight[k] * plane[offset[k]] : 0;
                sum = !a->max ? sum + term : any ? fmax(sum, term) : term;
                any = true;
            }
        }
    return a->max ? sum : sum / ((double)ny * (double)nx);
}

static int64_t roi_samples(const roi_align *a, double length, int64_t bins) {
    if (a->sampling > 0) return a->sampling;
    double samples = ceil(length / (double)bins);
    return samples >= 1 ? (int64_t)fmin(samples, 1e12) : 0;
}

static hone_status read_roi_align(hone_error *err, const hn_call *call, roi_align *a) {
    const hn_node *node = call->node;
    hn_slice mode = hn_op_string(node, "mode"), coords = hn_node_string(
        node, "coordinate_transformation_mode", node->version < 16 ? "output_half_pixel" : "half_pixel");
    const hn_tensor *x = hn_call_in(call, 0), *y = hn_call_out(call, 0);
    *a = (roi_align){.height = x->shape.dims[2], .width = x->shape.dims[3],
                     .rows = y->shape.dims[2], .columns = y->shape.dims[3],
                     .sampling = hn_op_int(node, "sampling_ratio"),
                     .scale = (double)hn_op_float(node, "spatial_scale"),
                     .half_pixel = hn_slice_eq(coords, "half_pixel"),
                     .max = hn_slice_eq(mode, "max")};
    if (!a->max && !hn_slice_eq(mode, "avg"))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "mode is '%.*s'", (int)mode.length, mode.data);
    if (!a->half_pixel && !hn_slice_eq(coords, "output_half_pixel"))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "coordinate_transformation_mode is '%.*s'",
                     (int)coords.length, coords.data);
    if (a->sampling < 0 || a->sampling > 1000)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "sampling_ratio is %lld", (long long)a->sampling);
    return HONE_OK;
}

static hone_status roi_align_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *trois = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    roi_align a;
    const double *x, *rois;
    const int64_t *batch;
    double *y;
    HN_TRY(read_roi_align(err, call, &a));
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_f64(err, scratch, trois, &rois));
    HN_TRY(hn_load_i64(err, scratch, hn_call_in(call, 2), &batch));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    int64_t channels = tx->shape.dims[1], at = 0;
    double shift = a.half_pixel ? 0.5 : 0;
    for (int64_t r = 0; r < trois->shape.dims[0]; r++) {
        if (batch[r] < 0 || batch[r] >= tx->shape.dims[0])
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "roi %lld names batch item %lld",
                         (long long)r, (long long)batch[r]);
        double left = rois[r * 4] * a.scale - shift, top = rois[r * 4 + 1] * a.scale - shift;
        double wide = rois[r * 4 + 2] * a.scale - shift - left;
        double tall = rois[r * 4 + 3] * a.scale - shift - top;
        if (!a.half_pixel) { // the old form makes every roi at least one element large
            wide = fmax(wide, 1);
            tall = fmax(tall, 1);
        }
        int64_t ny = roi_samples(&a, tall, a.rows), nx = roi_samples(&a, wide, a.columns);
        tall /= (double)a.rows;
        wide /= (double)a.columns;
        for (int64_t c = 0; c < channels; c++) {
            const double *plane = x + (batch[r] * channels + c) * a.height * a.width;
            for (int64_t i = 0; i < a.rows; i++)
                for (int64_t j = 0; j < a.columns; j++)
                    y[at++] = a.height * a.width == 0 ? 0
                              : roi_bin(&a, plane, top + (double)i * tall, left + (double)j * wide,
                                        tall, wide, ny, nx);
        }
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_roi_align) { return hn_ref_scratch(err, call, roi_align_body); }

// ---- NonMaxSuppression --------------------------------------------------------------------------
HN_INFER_FN(hn_infer_nms) {
    int rank, score_rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 3, 3, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 3, 3, &score_rank));
    const hn_type *boxes = hn_in_type(ctx, 0), *scores = hn_in_type(ctx, 1);
    if (rank == 3) HN_TRY(hn_expect_same(err, ctx, "values of a box", boxes->dims[2], 4, NULL));
    if (rank == 3 && score_rank == 3) {
        HN_TRY(hn_expect_same(err, ctx, "batch of boxes and scores", boxes->dims[0],
                              scores->dims[0], NULL));
        HN_TRY(hn_expect_same(err, ctx, "number of boxes and scores", boxes->dims[1],
                              scores->dims[2], NULL));
    }
    hn_infer_set(ctx, 0, HN_I64, 2, (hn_dim[]){hn_dim_fresh(ctx->dims, 0, INT64_MAX), 3});
    return HONE_OK;
}

typedef struct box {
    double y0, x0, y1, x1;
} box;

static box read_box(const double *v, bool centred) {
    if (centred)
        return (box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    return (box){fmin(v[0], v[2]), fmin(v[1], v[3]), fmax(v[0], v[2]), fmax(v[1], v[3])};
}

static bool overlaps(box a, box b, double threshold) {
    double height = fmin(a.y1, b.y1) - fmax(a.y0, b.y0), width = fmin(a.x1, b.x1) - fmax(a.x0, b.x0);
    if (!(height > 0 && width > 0)) return false;
    double common = height * width, area_a = (a.y1 - a.y0) * (a.x1 - a.x0);
    double area_b = (b.y1 - b.y0) * (b.x1 - b.x0), both = area_a + area_b - common;
    return area_a > 0 && area_b > 0 && both > 0 && common / both > threshold;
}

typedef struct nms {
    const double *boxes, *scores;
    int64_t count, limit; // boxes an item, most kept a class
    double iou, score;
    bool has_score, centred;
    int64_t *order, *merge; // scratch of `count`
} nms;

// Stable merge sort by falling score.
static void sort_scores(const double *scores, int64_t *order, int64_t *spare, int64_t count) {
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t start = 0; start < count; start += 2 * width) {
            int64_t middle = hn_min_i64(start + width, count), end = hn_min_i64(start + 2 * width, count);
            int64_t a = start, b = middle;
            for (int64_t i = start; i < end; i++) {
                bool left = a < middle && (b >= end || !(scores[order[b]] > scores[order[a]]));
                spare[i] = left ? order[a++] : order[b++];
            }
        }
        memcpy(order, spare, sizeof *order * (size_t)count);
    }
}

// Indices kept of one class land at the front of s->order; returns their number.
static int64_t select_class(nms *s, const double *boxes, const double *scores) {
    int64_t candidates = 0, kept = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (!isnan(scores[i]) && (!s->has_score || scores[i] > s->score)) s->order[candidates++] = i;
    sort_scores(scores, s->order, s->merge, candidates);
    for (int64_t i = 0; i < candidates && kept < s->limit; i++) {
        box mine = read_box(boxes + s->order[i] * 4, s->centred);
        bool free = true;
        for (int64_t k = 0; k < kept && free; k++)
            free = !overlaps(mine, read_box(boxes + s->order[k] * 4, s->centred), s->iou);
        if (free) s->order[kept++] = s->order[i];
    }
    return kept;
}

static double scalar_or(const hn_tensor *tensor, double absent) {
    return tensor && hn_tensor_count(tensor) > 0 ? hn_tensor_get_f64(tensor, 0) : absent;
}

static hone_status nms_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tboxes = hn_call_in(call, 0), *tscores = hn_call_in(call, 1);
    const hn_tensor *tlimit = hn_call_in(call, 2), *tscore = hn_call_in(call, 4);
    nms s = {.count = tboxes->shape.dims[1], .iou = scalar_or(hn_call_in(call, 3), 0),
             .score = scalar_or(tscore, 0), .has_score = tscore && hn_tensor_count(tscore) > 0,
             .centred = hn_op_int(call->node, "center_point_box") != 0};
    if (tlimit && hn_tensor_count(tlimit) > 0) s.limit = hn_max_i64(hn_tensor_get_i64(tlimit, 0), 0);
    int64_t batch = tscores->shape.dims[0], classes = tscores->shape.dims[1], found = 0;
    int64_t most = hn_min_i64(s.limit, s.count);
    int64_t *rows;
    HN_TRY(hn_load_f64(err, scratch, tboxes, &s.boxes));
    HN_TRY(hn_load_f64(err, scratch, tscores, &s.scores));
    HN_TRY(hn_scratch_i64(err, scratch, s.count, &s.order));
    HN_TRY(hn_scratch_i64(err, scratch, s.count, &s.merge));
    HN_TRY(hn_scratch_i64(err, scratch, batch * classes * most * 3, &rows));
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < classes; c++) {
            int64_t kept = select_class(&s, s.boxes + n * s.count * 4,
                                        s.scores + (n * classes + c) * s.count);
            for (int64_t i = 0; i < kept; i++) {
                int64_t *row = rows + 3 * found++;
                row[0] = n;
                row[1] = c;
                row[2] = s.order[i];
            }
        }
    hn_shape shape = {.rank = 2, .dims = {found, 3}};
    HN_TRY(hn_call_output(err, call, 0, HN_I64, &shape));
    hn_store_i64(hn_call_out(call, 0), rows);
    return HONE_OK;
}
HN_REF_FN(hn_ref_nms) { return hn_ref_scratch(err, call, nms_body); }
