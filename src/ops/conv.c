// SPDX-License-Identifier: Apache-2.0
// Convolutions of any rank: Conv, ConvTranspose, ConvInteger, DeformConv, CausalConvWithState, and
// the two internal products that are Conv's gradients.
//
// All of them are sums over the same taps: for an output position, the pairs of flat offsets into
// the input and the kernel (hn_geometry_taps). Taps are listed once a position and used for every
// batch item and channel.
#include <math.h>
#include "ops/nn_int.h"

// Sizes that every convolution shares: N, channels, groups.
typedef struct conv_sizes {
    int64_t batch, in_channels, out_channels, group;
    int64_t group_in, group_out; // channels of one group
} conv_sizes;

// ---- inference ----------------------------------------------------------------------------------
// Ranks of data and weights agree; *out_rank is -1 where either is unknown.
static hone_status conv_ranks(hone_error *err, const hn_infer *ctx, int data, int weight,
                              int *out_rank) {
    int data_rank, weight_rank;
    HN_TRY(hn_expect_rank(err, ctx, data, 2, HN_MAX_RANK, &data_rank));
    HN_TRY(hn_expect_rank(err, ctx, weight, 2, HN_MAX_RANK, &weight_rank));
    *out_rank = -1;
    if (data_rank < 0 || weight_rank < 0) return HONE_OK;
    if (data_rank != weight_rank)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the data has rank %d, the weights have %d",
                     data_rank, weight_rank);
    *out_rank = data_rank;
    return HONE_OK;
}

static hone_status read_group(hone_error *err, const hn_node *node, int64_t *out_group) {
    *out_group = hn_node_int(node, "group", 1);
    if (*out_group < 1 || *out_group > INT32_MAX)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "group is %lld", (long long)*out_group);
    return HONE_OK;
}

// Spatial kernel dims from the weights, checked against kernel_shape.
static hone_status read_kernel(hone_error *err, const hn_infer *ctx, const hn_type *weight,
                               int spatial, hn_dim *out_kernel) {
    int64_t given[HN_MAX_SPATIAL];
    HN_TRY(hn_read_ints(err, ctx->node, "kernel_shape", spatial, 0, INT32_MAX, 0, given));
    for (int i = 0; i < spatial; i++) {
        out_kernel[i] = weight->dims[2 + i];
        if (given[i])
            HN_TRY(hn_expect_same(err, ctx, "kernel_shape and the weights' dim", out_kernel[i],
                                  given[i], &out_kernel[i]));
    }
    return HONE_OK;
}

static hone_status check_bias(hone_error *err, const hn_infer *ctx, int input, hn_dim channels) {
    const hn_type *bias = hn_in_type(ctx, input);
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, input, 1, 1, &rank));
    if (rank != 1) return HONE_OK;
    return hn_expect_same(err, ctx, "channels of the bias and the output", bias->dims[0], channels,
                          NULL);
}

// Shape of a Conv: data and weights at the given inputs; dtype as told.
static hone_status infer_conv_at(hone_error *err, hn_infer *ctx, int data, int weight, int bias,
                                 hn_dtype dtype) {
    int rank;
    int64_t group;
    HN_TRY(conv_ranks(err, ctx, data, weight, &rank));
    HN_TRY(read_group(err, ctx->node, &group));
    if (rank < 0) {
        hn_infer_set(ctx, 0, dtype, -1, NULL);
        return HONE_OK;
    }
    const hn_type *x = hn_in_type(ctx, data), *w = hn_in_type(ctx, weight);
    hn_window window;
    hn_dim kernel[HN_MAX_SPATIAL], dims[HN_MAX_RANK] = {x->dims[0], w->dims[0]};
    HN_TRY(hn_window_read(err, ctx->node, rank - 2, &window));
    HN_TRY(read_kernel(err, ctx, w, rank - 2, kernel));
    HN_TRY(hn_expect_same(err, ctx, "channels of the data and the weights", x->dims[1],
                          hn_dim_mul(ctx->dims, w->dims[1], group), NULL));
    if (hn_dim_is_const(w->dims[0]) && w->dims[0] % group != 0)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%lld output channels in %lld groups",
                     (long long)w->dims[0], (long long)group);
    if (bias >= 0) HN_TRY(check_bias(err, ctx, bias, w->dims[0]));
    HN_TRY(hn_window_infer(err, ctx, &window, x->dims + 2, kernel, dims + 2));
    hn_infer_set(ctx, 0, dtype, rank, dims);
    return HONE_OK;
}

HN_INFER_FN(hn_infer_conv) {
    const hn_type *x = hn_in_type(ctx, 0);
    return infer_conv_at(err, ctx, 0, 1, 2, x ? x->dtype : HN_NONE);
}

HN_INFER_FN(hn_infer_conv_integer) {
    HN_TRY(hn_expect_8bit(err, ctx, 0));
    HN_TRY(hn_expect_8bit(err, ctx, 1));
    return infer_conv_at(err, ctx, 0, 1, -1, HN_I32);
}

HN_INFER_FN(hn_infer_qlinear_conv) {
    const hn_type *zero = hn_in_type(ctx, 7);
    HN_TRY(hn_expect_8bit(err, ctx, 0));
    HN_TRY(hn_expect_8bit(err, ctx, 3));
    return infer_conv_at(err, ctx, 0, 3, 8, zero ? zero->dtype : HN_NONE);
}

HN_INFER_FN(hn_infer_deform_conv) {
    const hn_type *x = hn_in_type(ctx, 0), *w = hn_in_type(ctx, 1);
    HN_TRY(infer_conv_at(err, ctx, 0, 1, 3, x ? x->dtype : HN_NONE));
    const hn_value *out = hn_out(ctx->node, 0);
    if (!x || !w || !out || x->rank < 0 || w->rank < 0) return HONE_OK;
    int64_t groups = hn_node_int(ctx->node, "offset_group", 1);
    if (groups < 1 || groups > INT32_MAX || (hn_dim_is_const(x->dims[1]) && x->dims[1] % groups))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "offset_group is %lld", (long long)groups);
    for (int input = 2; input <= 4; input += 2) { // offset, mask
        const hn_type *type = hn_in_type(ctx, input);
        int rank;
        HN_TRY(hn_expect_rank(err, ctx, input, x->rank, x->rank, &rank));
        if (!type || rank < 0) continue;
        hn_dim channels = input == 2 ? groups * (x->rank - 2) : groups;
        for (int i = 2; i < rank; i++) {
            channels = hn_dim_mul(ctx->dims, channels, w->dims[i]);
            HN_TRY(hn_expect_same(err, ctx, "spatial dims of the offset or mask and the output",
                                  type->dims[i], out->type.dims[i], NULL));
        }
        HN_TRY(hn_expect_same(err, ctx, "batch of the offset or mask and the data", type->dims[0],
                              x->dims[0], NULL));
        HN_TRY(hn_expect_same(err, ctx, "channels of the offset or mask", type->dims[1], channels,
                              NULL));
    }
    return HONE_OK;
}

// Output size along one spatial axis and the padding before it; op values may be symbolic in `in`.
typedef struct transpose_pads {
    int64_t output_padding[HN_MAX_SPATIAL], output_shape[HN_MAX_SPATIAL]; // shape 0: not given
    hn_window window;
} transpose_pads;

static hone_status transpose_read(hone_error *err, const hn_node *node, int spatial,
                                  transpose_pads *out_pads) {
    HN_TRY(hn_window_read(err, node, spatial, &out_pads->window));
    HN_TRY(hn_read_ints(err, node, "output_padding", spatial, 0, INT32_MAX, 0,
                        out_pads->output_padding));
    int64_t given;
    const int64_t *shape = hn_node_ints(node, "output_shape", &given);
    if (shape && given == spatial + 2) { // some writers list N and C as well
        for (int i = 0; i < spatial; i++) out_pads->output_shape[i] = shape[2 + i];
        for (int i = 0; i < spatial; i++)
            if (shape[2 + i] < 1)
                HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "output_shape holds %lld",
                             (long long)shape[2 + i]);
        return HONE_OK;
    }
    return hn_read_ints(err, node, "output_shape", spatial, 0, INT64_MAX / 4, 0,
                        out_pads->output_shape);
}

HN_INFER_FN(hn_infer_conv_transpose) {
    int rank;
    int64_t group;
    HN_TRY(conv_ranks(err, ctx, 0, 1, &rank));
    HN_TRY(read_group(err, ctx->node, &group));
    const hn_type *x = hn_in_type(ctx, 0), *w = hn_in_type(ctx, 1);
    if (rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    transpose_pads pads;
    hn_dims *table = ctx->dims;
    hn_dim kernel[HN_MAX_SPATIAL], dims[HN_MAX_RANK] = {x->dims[0]};
    HN_TRY(transpose_read(err, ctx->node, rank - 2, &pads));
    HN_TRY(read_kernel(err, ctx, w, rank - 2, kernel));
    HN_TRY(hn_expect_same(err, ctx, "channels of the data and the weights", x->dims[1], w->dims[0],
                          NULL));
    if (hn_dim_is_const(x->dims[1]) && x->dims[1] % group != 0)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%lld input channels in %lld groups",
                     (long long)x->dims[1], (long long)group);
    dims[1] = hn_dim_mul(table, w->dims[1], group);
    HN_TRY(check_bias(err, ctx, 2, dims[1]));
    const hn_window *win = &pads.window;
    for (int i = 0; i < rank - 2; i++) {
        hn_dim in = x->dims[2 + i], out;
        if (hn_dim_is_const(kernel[i]) && kernel[i] < 1)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "kernel size %lld", (long long)kernel[i]);
        if (pads.output_shape[i]) {
            out = pads.output_shape[i];
        } else if (win->auto_pad == HN_PAD_SAME_UPPER || win->auto_pad == HN_PAD_SAME_LOWER) {
            out = hn_dim_mul(table, in, win->stride[i]);
        } else {
            hn_dim reach = hn_dim_mul(table, hn_dim_sub(table, kernel[i], 1), win->dilation[i]);
            out = hn_dim_mul(table, hn_dim_sub(table, in, 1), win->stride[i]);
            out = hn_dim_add(table, out, hn_dim_add(table, reach, 1));
            out = hn_dim_add(table, out,
                             pads.output_padding[i] - win->pad_begin[i] - win->pad_end[i]);
        }
        HN_TRY(hn_expect_size(err, ctx, "a spatial output dim", out));
        dims[2 + i] = out;
    }
    hn_infer_set(ctx, 0, x->dtype, rank, dims);
    return HONE_OK;
}

HN_INFER_FN(hn_infer_causal_conv) {
    int rank, weight_rank, state_rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 3, 3, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 3, 3, &weight_rank));
    HN_TRY(hn_expect_rank(err, ctx, 3, 3, 3, &state_rank));
    hn_infer_first(ctx, 0, HN_NONE);
    if (rank < 0 || weight_rank < 0) return HONE_OK;
    const hn_type *x = hn_in_type(ctx, 0), *w = hn_in_type(ctx, 1), *state = hn_in_type(ctx, 3);
    HN_TRY(hn_expect_same(err, ctx, "channels of the data and the weights", x->dims[1], w->dims[0],
                          NULL));
    HN_TRY(hn_expect_same(err, ctx, "the weights' dim 1", w->dims[1], 1, NULL));
    HN_TRY(check_bias(err, ctx, 2, x->dims[1]));
    hn_dim dims[3] = {x->dims[0], x->dims[1], hn_dim_sub(ctx->dims, w->dims[2], 1)};
    HN_TRY(hn_expect_size(err, ctx, "the state's length", dims[2]));
    for (int i = 0; state_rank == 3 && i < 3; i++)
        HN_TRY(hn_expect_same(err, ctx, "dims of the past state", state->dims[i], dims[i], NULL));
    hn_infer_set(ctx, 1, x->dtype, 3, dims);
    return HONE_OK;
}

// ---- references ---------------------------------------------------------------------------------
static conv_sizes conv_sizes_of(const hn_node *node, const hn_tensor *x, int64_t out_channels) {
    conv_sizes s = {.batch = x->shape.dims[0], .in_channels = x->shape.dims[1],
                    .out_channels = out_channels, .group = hn_node_int(node, "group", 1)};
    s.group_in = s.in_channels / s.group;
    s.group_out = s.out_channels / s.group;
    return s;
}

static hone_status conv_geometry(hone_error *err, const hn_call *call, const hn_tensor *x,
                                 const hn_tensor *w, const hn_tensor *y, hn_geometry *out_geometry) {
    hn_window window;
    HN_TRY(hn_window_read(err, call->node, x->shape.rank - 2, &window));
    return hn_geometry_make(err, call->node, &window, x->shape.dims + 2, w->shape.dims + 2,
                            y->shape.dims + 2, out_geometry);
}

// Visits the output positions of a geometry with their taps.
typedef struct tap_walk {
    const hn_geometry *geometry;
    int64_t at[HN_MAX_SPATIAL], position; // flat
    int64_t *input, *kernel, count;
} tap_walk;

static hone_status tap_walk_start(hone_error *err, hn_arena *scratch, const hn_geometry *geometry,
                                  tap_walk *out_walk) {
    *out_walk = (tap_walk){.geometry = geometry, .position = -1};
    HN_TRY(hn_scratch_i64(err, scratch, geometry->tap_limit, &out_walk->input));
    return hn_scratch_i64(err, scratch, geometry->tap_limit, &out_walk->kernel);
}

static bool tap_walk_next(tap_walk *walk) {
    const hn_geometry *g = walk->geometry;
    if (++walk->position >= g->out_count) return false;
    if (walk->position > 0) hn_index_next(walk->at, g->out, g->rank);
    walk->count = hn_geometry_taps(g, walk->at, walk->input, walk->kernel, NULL);
    return true;
}

static hone_status conv_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *tw = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    const double *x, *w, *bias;
    double *y;
    hn_geometry g;
    tap_walk walk;
    HN_TRY(conv_geometry(err, call, tx, tw, ty, &g));
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_f64(err, scratch, tw, &w));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &bias));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    HN_TRY(tap_walk_start(err, scratch, &g, &walk));
    conv_sizes s = conv_sizes_of(call->node, tx, tw->shape.dims[0]);
    while (tap_walk_next(&walk)) {
        for (int64_t n = 0; n < s.batch; n++)
            for (int64_t m = 0; m < s.out_channels; m++) {
                int64_t first = m / s.group_out * s.group_in;
                double sum = bias ? bias[m] : 0;
                for (int64_t c = 0; c < s.group_in; c++) {
                    const double *xc = x + (n * s.in_channels + first + c) * g.in_count;
                    const double *wc = w + (m * s.group_in + c) * g.kernel_count;
                    for (int64_t t = 0; t < walk.count; t++)
                        sum += xc[walk.input[t]] * wc[walk.kernel[t]];
                }
                y[(n * s.out_channels + m) * g.out_count + walk.position] = sum;
            }
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_conv) { return hn_ref_scratch(err, call, conv_body); }

// Zero point of channel m: none, one for all, or one a channel.
static int64_t zero_at(const hn_tensor *zero, const int64_t *values, int64_t m) {
    return !zero ? 0 : values[hn_tensor_count(zero) == 1 ? 0 : m];
}

// Integer convolution with zero points; acc holds exact sums. Used by ConvInteger and QLinearConv.
hone_status hn_conv_integer_sums(hone_error *err, const hn_call *call, hn_arena *scratch,
                                 const hn_tensor *tx, const hn_tensor *tw, const hn_tensor *x_zero,
                                 const hn_tensor *w_zero, const hn_tensor *ty, int64_t *acc) {
    const int64_t *x, *w, *xz, *wz;
    hn_geometry g;
    tap_walk walk;
    conv_sizes s = conv_sizes_of(call->node, tx, tw->shape.dims[0]);
    if (x_zero && hn_tensor_count(x_zero) != 1)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "the data's zero point is not a scalar");
    if (w_zero && hn_tensor_count(w_zero) != 1 && hn_tensor_count(w_zero) != s.out_channels)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "%lld zero points for %lld channels",
                     (long long)hn_tensor_count(w_zero), (long long)s.out_channels);
    HN_TRY(conv_geometry(err, call, tx, tw, ty, &g));
    HN_TRY(hn_load_i64(err, scratch, tx, &x));
    HN_TRY(hn_load_i64(err, scratch, tw, &w));
    HN_TRY(hn_load_i64(err, scratch, x_zero, &xz));
    HN_TRY(hn_load_i64(err, scratch, w_zero, &wz));
    HN_TRY(tap_walk_start(err, scratch, &g, &walk));
    while (tap_walk_next(&walk)) {
        for (int64_t n = 0; n < s.batch; n++)
            for (int64_t m = 0; m < s.out_channels; m++) {
                int64_t first = m / s.group_out * s.group_in, sum = 0;
                int64_t x0 = zero_at(x_zero, xz, 0), w0 = zero_at(w_zero, wz, m);
                for (int64_t c = 0; c < s.group_in; c++) {
                    const int64_t *xc = x + (n * s.in_channels + first + c) * g.in_count;
                    const int64_t *wc = w + (m * s.group_in + c) * g.kernel_count;
                    for (int64_t t = 0; t < walk.count; t++)
                        sum += (xc[walk.input[t]] - x0) * (wc[walk.kernel[t]] - w0);
                }
                acc[(n * s.out_channels + m) * g.out_count + walk.position] = sum;
            }
    }
    return HONE_OK;
}

static hone_status conv_integer_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    hn_tensor *ty = hn_call_out(call, 0);
    int64_t *acc;
    HN_TRY(hn_scratch_i64(err, scratch, hn_tensor_count(ty), &acc));
    HN_TRY(hn_conv_integer_sums(err, call, scratch, hn_call_in(call, 0), hn_call_in(call, 1),
                                hn_call_in(call, 2), hn_call_in(call, 3), ty, acc));
    hn_store_i64(ty, acc);
    return HONE_OK;
}
HN_REF_FN(hn_ref_conv_integer) { return hn_ref_scratch(err, call, conv_integer_body); }

// The geometry of the convolution whose transpose this is: its input is our output.
static hone_status transpose_geometry(hone_error *err, const hn_call *call, const hn_tensor *x,
                                      const hn_tensor *w, const hn_tensor *y,
                                      hn_geometry *out_geometry) {
    transpose_pads pads;
    int spatial = x->shape.rank - 2;
    HN_TRY(transpose_read(err, call->node, spatial, &pads));
    hn_window window = pads.window;
    window.auto_pad = HN_PAD_EXPLICIT;
    bool upper = pads.window.auto_pad == HN_PAD_SAME_UPPER;
    bool same = upper || pads.window.auto_pad == HN_PAD_SAME_LOWER;
    for (int i = 0; i < spatial; i++) {
        if (!pads.output_shape[i] && !same) continue;
        int64_t reach, full;
        if (!hn_mul_i64(w->shape.dims[2 + i] - 1, window.dilation[i], &reach) ||
            !hn_mul_i64(x->shape.dims[2 + i] - 1, window.stride[i], &full) ||
            !hn_add_i64(full, reach + 1 + pads.output_padding[i], &full))
            HN_FAIL_NODE(err, HONE_ERR_LIMIT, call->node, "the window is too large");
        int64_t total = hn_max_i64(full - y->shape.dims[2 + i], 0);
        window.pad_begin[i] = upper ? total / 2 : total - total / 2;
        window.pad_end[i] = total - window.pad_begin[i];
    }
    return hn_geometry_make(err, call->node, &window, y->shape.dims + 2, w->shape.dims + 2,
                            x->shape.dims + 2, out_geometry);
}

// Scatters: every input element adds to the outputs under its window. `y` starts as the bias.
static void conv_scatter(const conv_sizes *s, const hn_geometry *g, tap_walk *walk, const double *x,
                         const double *w, double *y) {
    while (tap_walk_next(walk)) {
        for (int64_t n = 0; n < s->batch; n++)
            for (int64_t c = 0; c < s->in_channels; c++) {
                double value = x[(n * s->in_channels + c) * g->out_count + walk->position];
                int64_t first = c / s->group_in * s->group_out;
                for (int64_t m = 0; m < s->group_out; m++) {
                    const double *wm = w + (c * s->group_out + m) * g->kernel_count;
                    double *ym = y + (n * s->out_channels + first + m) * g->in_count;
                    for (int64_t t = 0; t < walk->count; t++)
                        ym[walk->input[t]] += value * wm[walk->kernel[t]];
                }
            }
    }
}

static hone_status conv_transpose_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *tw = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    const double *x, *w, *bias;
    double *y;
    hn_geometry g;
    tap_walk walk;
    HN_TRY(transpose_geometry(err, call, tx, tw, ty, &g));
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_f64(err, scratch, tw, &w));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &bias));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    HN_TRY(tap_walk_start(err, scratch, &g, &walk));
    conv_sizes s = conv_sizes_of(call->node, tx, ty->shape.dims[1]);
    for (int64_t i = 0; bias && i < s.batch * s.out_channels; i++)
        for (int64_t j = 0; j < g.in_count; j++)
            y[i * g.in_count + j] = bias[i % s.out_channels];
    conv_scatter(&s, &g, &walk, x, w, y);
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_conv_transpose) { return hn_ref_scratch(err, call, conv_transpose_body); }

// ---- DeformConv ---------------------------------------------------------------------------------
// Multilinear sample of one channel at a fractional position; zero outside.
static double sample_zero(const double *plane, const hn_geometry *g, const double *pos) {
    double sum = 0;
    for (int corner = 0; corner < 1 << g->rank; corner++) {
        double weight = 1;
        int64_t offset = 0;
        for (int i = 0; i < g->rank && weight != 0; i++) {
            double low = floor(pos[i]), part = pos[i] - low;
            bool high = (corner >> i) & 1;
            weight *= high ? part : 1 - part;
            double at = low + (high ? 1 : 0);
            if (!(at >= 0 && at < (double)g->in[i])) weight = 0;
            else offset = offset * g->in[i] + (int64_t)at;
        }
        if (weight != 0) sum += weight * plane[offset];
    }
    return sum;
}

typedef struct deform {
    conv_sizes sizes;
    hn_geometry g;
    const double *x, *w, *offset, *mask, *bias;
    int64_t offset_groups;
} deform;

// Output of batch item n at `at`, all channels. The columns are sampled once and used by each.
static void deform_position(const deform *d, int64_t n, const int64_t *at, int64_t position,
                            double *columns, double *y) {
    const hn_geometry *g = &d->g;
    const conv_sizes *s = &d->sizes;
    int64_t per_group = s->in_channels / d->offset_groups, k = 0;
    int64_t tap[HN_MAX_SPATIAL] = {0};
    do {
        for (int64_t og = 0; og < d->offset_groups; og++) {
            int64_t base = (n * d->offset_groups + og) * g->kernel_count + k;
            double pos[HN_MAX_SPATIAL], scale = d->mask ? d->mask[base * g->out_count + position] : 1;
            for (int i = 0; i < g->rank; i++)
                pos[i] = (double)(at[i] * g->stride[i] + tap[i] * g->dilation[i] -
                                  g->pad_begin[i]) +
                         d->offset[(base * g->rank + i) * g->out_count + position];
            for (int64_t c = og * per_group; c < (og + 1) * per_group; c++)
                columns[c * g->kernel_count + k] =
                    scale * sample_zero(d->x + (n * s->in_channels + c) * g->in_count, g, pos);
        }
        k++;
    } while (hn_index_next(tap, g->kernel, g->rank));
    for (int64_t m = 0; m < s->out_channels; m++) {
        const double *column = columns + m / s->group_out * s->group_in * g->kernel_count;
        const double *wm = d->w + m * s->group_in * g->kernel_count;
        double sum = d->bias ? d->bias[m] : 0;
        for (int64_t j = 0; j < s->group_in * g->kernel_count; j++) sum += column[j] * wm[j];
        y[(n * s->out_channels + m) * g->out_count + position] = sum;
    }
}

static hone_status deform_conv_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *tw = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    deform d = {.sizes = conv_sizes_of(call->node, tx, tw->shape.dims[0]),
                .offset_groups = hn_node_int(call->node, "offset_group", 1)};
    double *y, *columns;
    HN_TRY(conv_geometry(err, call, tx, tw, ty, &d.g));
    HN_TRY(hn_load_f64(err, scratch, tx, &d.x));
    HN_TRY(hn_load_f64(err, scratch, tw, &d.w));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &d.offset));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 3), &d.bias));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 4), &d.mask));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    HN_TRY(hn_scratch_f64(err, scratch, d.sizes.in_channels * d.g.kernel_count, &columns));
    for (int64_t n = 0; n < d.sizes.batch; n++) {
        int64_t at[HN_MAX_SPATIAL] = {0};
        for (int64_t p = 0; p < d.g.out_count; p++) {
            deform_position(&d, n, at, p, columns, y);
            hn_index_next(at, d.g.out, d.g.rank);
        }
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_deform_conv) { return hn_ref_scratch(err, call, deform_conv_body); }

// ---- CausalConvWithState ------------------------------------------------------------------------
static hone_status causal_conv_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *tw = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0), *tstate = hn_call_out(call, 1);
    hn_slice activation = hn_op_string(call->node, "activation");
    bool silu = hn_slice_eq(activation, "silu") || hn_slice_eq(activation, "swish");
    if (!silu && !hn_slice_eq(activation, "none"))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "activation is '%.*s'",
                     (int)activation.length, activation.data);
    int64_t batch = tx->shape.dims[0], channels = tx->shape.dims[1], length = tx->shape.dims[2];
    int64_t taps = tw->shape.dims[2], keep = taps - 1;
    const double *x, *w, *bias, *past;
    double *y, *state, *line;
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_f64(err, scratch, tw, &w));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &bias));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 3), &past));
    HN_TRY(hn_scratch_f64(err, scratch, batch * channels * length, &y));
    HN_TRY(hn_scratch_f64(err, scratch, batch * channels * keep, &state));
    HN_TRY(hn_scratch_f64(err, scratch, keep + length, &line));
    for (int64_t row = 0; row < batch * channels; row++) {
        int64_t c = row % channels;
        for (int64_t i = 0; i < keep; i++) line[i] = past ? past[row * keep + i] : 0;
        for (int64_t i = 0; i < length; i++) line[keep + i] = x[row * length + i];
        for (int64_t i = 0; i < length; i++) {
            double sum = bias ? bias[c] : 0;
            for (int64_t t = 0; t < taps; t++) sum += w[c * taps + t] * line[i + t];
            y[row * length + i] = silu ? sum / (1 + exp(-sum)) : sum;
        }
        for (int64_t i = 0; i < keep; i++) state[row * keep + i] = line[length + i];
    }
    hn_store_f64(ty, y);
    hn_store_f64(tstate, state);
    return HONE_OK;
}
HN_REF_FN(hn_ref_causal_conv) { return hn_ref_scratch(err, call, causal_conv_body); }

// ---- gradients ----------------------------------------------------------------------------------
// dY must be what the convolution of x and w gives; the result is like input 2.
static hone_status infer_conv_grad(hone_error *err, hn_infer *ctx, int x, int w) {
    const hn_value *out = hn_out(ctx->node, 0), *like = hn_in(ctx->node, 2);
    const hn_type *dy = hn_in_type(ctx, 0);
    HN_TRY(infer_conv_at(err, ctx, x, w, -1, dy ? dy->dtype : HN_NONE));
    if (out && dy && dy->rank >= 0 && out->type.rank >= 0) {
        int rank;
        HN_TRY(hn_expect_rank(err, ctx, 0, out->type.rank, out->type.rank, &rank));
        for (int i = 0; i < rank; i++)
            HN_TRY(hn_expect_same(err, ctx, "dims of the output and its gradient", dy->dims[i],
                                  out->type.dims[i], NULL));
    }
    if (like) hn_infer_like(ctx, 0, like);
    return HONE_OK;
}

// hn.ConvGradData(dY, W, X): gradient of X, which is named for its shape only.
HN_INFER_FN(hn_infer_conv_grad_data) { return infer_conv_grad(err, ctx, 2, 1); }

static hone_status conv_grad_data_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tdy = hn_call_in(call, 0), *tw = hn_call_in(call, 1);
    hn_tensor *tdx = hn_call_out(call, 0);
    const double *dy, *w;
    double *dx;
    hn_geometry g;
    tap_walk walk;
    HN_TRY(conv_geometry(err, call, tdx, tw, tdy, &g));
    HN_TRY(hn_load_f64(err, scratch, tdy, &dy));
    HN_TRY(hn_load_f64(err, scratch, tw, &w));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(tdx), &dx));
    HN_TRY(tap_walk_start(err, scratch, &g, &walk));
    conv_sizes s = conv_sizes_of(call->node, tdy, tdx->shape.dims[1]);
    conv_scatter(&s, &g, &walk, dy, w, dx);
    hn_store_f64(tdx, dx);
    return HONE_OK;
}
HN_REF_FN(hn_ref_conv_grad_data) { return hn_ref_scratch(err, call, conv_grad_data_body); }

// hn.ConvGradWeight(dY, X, W): gradient of W, which is named for its shape only.
HN_INFER_FN(hn_infer_conv_grad_weight) { return infer_conv_grad(err, ctx, 1, 2); }

static hone_status conv_grad_weight_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tdy = hn_call_in(call, 0), *tx = hn_call_in(call, 1);
    hn_tensor *tdw = hn_call_out(call, 0);
    const double *dy, *x;
    double *dw;
    hn_geometry g;
    tap_walk walk;
    HN_TRY(conv_geometry(err, call, tx, tdw, tdy, &g));
    HN_TRY(hn_load_f64(err, scratch, tdy, &dy));
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(tdw), &dw));
    HN_TRY(tap_walk_start(err, scratch, &g, &walk));
    conv_sizes s = conv_sizes_of(call->node, tx, tdy->shape.dims[1]);
    while (tap_walk_next(&walk)) {
        for (int64_t n = 0; n < s.batch; n++)
            for (int64_t m = 0; m < s.out_channels; m++) {
                double value = dy[(n * s.out_channels + m) * g.out_count + walk.position];
                int64_t first = m / s.group_out * s.group_in;
                for (int64_t c = 0; c < s.group_in; c++) {
                    const double *xc = x + (n * s.in_channels + first + c) * g.in_count;
                    double *wc = dw + (m * s.group_in + c) * g.kernel_count;
                    for (int64_t t = 0; t < walk.count; t++)
                        wc[walk.kernel[t]] += value * xc[walk.input[t]];
                }
            }
    }
    hn_store_f64(tdw, dw);
    return HONE_OK;
}
HN_REF_FN(hn_ref_conv_grad_weight) { return hn_ref_scratch(err, call, conv_grad_weight_body); }

// ---- cost ---------------------------------------------------------------------------------------
static double dims_product(const hn_value *value, int from) {
    double n = 1;
    if (!value) return 0;
    for (int i = from; i < value->type.rank; i++) n *= (double)value->type.dims[i];
    return n;
}

HN_COST_FN(hn_cost_conv) {
    bool bias = hn_in(node, 2) != NULL;
    out_cost->flops = dims_product(hn_out(node, 0), 0) *
                      (2 * dims_product(hn_in(node, 1), 1) + (bias ? 1 : 0));
}

HN_COST_FN(hn_cost_qlinear_conv) {
    out_cost->flops = 2 * dims_product(hn_out(node, 0), 0) * dims_product(hn_in(node, 3), 1);
}

// Every input element meets the kernels of its channel.
HN_COST_FN(hn_cost_conv_transpose) {
    out_cost->flops = 2 * dims_product(hn_in(node, 0), 0) * dims_product(hn_in(node, 1), 1);
}

HN_COST_FN(hn_cost_conv_grad_weight) {
    out_cost->flops = 2 * dims_product(hn_in(node, 0), 0) * dims_product(hn_out(node, 0), 1);
}

// dY [N][M][out]: each element meets the weights of its channel.
HN_COST_FN(hn_cost_conv_grad_data) {
    out_cost->flops = 2 * dims_product(hn_in(node, 0), 0) * dims_product(hn_in(node, 1), 1);
}
