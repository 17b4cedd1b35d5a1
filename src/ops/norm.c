// SPDX-License-Identifier: Apache-2.0
// Normalisations over channels, groups, trailing axes or windows; Softmax and its kin.
//
// Statistics are taken in double by the two-pass form, whatever the storage type.
#include <math.h>
#include "ops/nn_int.h"

// ---- shared -------------------------------------------------------------------------------------
// A tensor as outer x size x inner around one axis (or a run of axes).
typedef struct axis_split {
    int64_t outer, size, inner;
} axis_split;

static axis_split split_at(const hn_shape *shape, int first, int last) {
    return (axis_split){hn_dims_product(shape->dims, 0, first),
                        hn_dims_product(shape->dims, first, last),
                        hn_dims_product(shape->dims, last, shape->rank)};
}

typedef struct moments {
    double mean, variance; // population variance
} moments;

static moments moments_of(const double *x, int64_t count, int64_t step) {
    moments m = {0};
    for (int64_t i = 0; i < count; i++) m.mean += x[i * step];
    m.mean /= (double)count;
    for (int64_t i = 0; i < count; i++) {
        double d = x[i * step] - m.mean;
        m.variance += d * d;
    }
    m.variance /= (double)count;
    return m;
}

static hone_status expect_vector(hone_error *err, const hn_infer *ctx, int input, hn_dim length) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, input, 1, 1, &rank));
    if (rank != 1) return HONE_OK;
    return hn_expect_same(err, ctx, "length of a parameter and the channels",
                          hn_in_type(ctx, input)->dims[0], length, NULL);
}

// x and y may not alias in a reference.
typedef struct xy {
    const hn_tensor *tx;
    const double *x;
    double *y;
} xy;
static hone_status load_xy(hone_error *err, const hn_call *call, hn_arena *scratch, xy *out) {
    out->tx = hn_call_in(call, 0);
    HN_TRY(hn_load_f64(err, scratch, out->tx, &out->x));
    return hn_scratch_f64(err, scratch, hn_tensor_count(out->tx), &out->y);
}

// ---- BatchNormalization -------------------------------------------------------------------------
HN_INFER_FN(hn_infer_batch_norm) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 1, HN_MAX_RANK, &rank));
    const hn_type *x = hn_in_type(ctx, 0), *mean = hn_in_type(ctx, 3);
    hn_infer_first(ctx, 0, HN_NONE);
    if (rank < 0) return HONE_OK;
    hn_dim channels = rank > 1 ? x->dims[1] : 1;
    for (int i = 1; i < 5; i++) HN_TRY(expect_vector(err, ctx, i, channels));
    for (int i = 1; i < 5; i++) // a parameter may know better
        if (hn_in_type(ctx, i) && hn_in_type(ctx, i)->rank == 1 && !hn_dim_is_const(channels))
            channels = hn_in_type(ctx, i)->dims[0];
    for (int i = 1; i < 3; i++) hn_infer_set(ctx, i, mean ? mean->dtype : HN_NONE, 1, &channels);
    return HONE_OK;
}

static hone_status batch_norm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    xy v;
    const double *p[4]; // scale, bias, mean, variance
    double *running_mean, *running_var, *plane;
    HN_TRY(load_xy(err, call, scratch, &v));
    for (int i = 0; i < 4; i++) HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 1 + i), &p[i]));
    const hn_shape *shape = &v.tx->shape;
    axis_split s = shape->rank > 1 ? split_at(shape, 1, 2)
                                   : (axis_split){hn_tensor_count(v.tx), 1, 1};
    int64_t per_channel = s.outer * s.inner;
    HN_TRY(hn_scratch_f64(err, scratch, s.size, &running_mean));
    HN_TRY(hn_scratch_f64(err, scratch, s.size, &running_var));
    HN_TRY(hn_scratch_f64(err, scratch, per_channel, &plane));
    double epsilon = (double)hn_op_float(call->node, "epsilon");
    double momentum = (double)hn_op_float(call->node, "momentum");
    bool training = hn_op_int(call->node, "training_mode") != 0;
    for (int64_t c = 0; c < s.size; c++) {
        moments m = {p[2][c], p[3][c]};
        if (training) {
            for (int64_t n = 0; n < s.outer; n++)
                for (int64_t i = 0; i < s.inner; i++)
                    plane[n * s.inner + i] = v.x[(n * s.size + c) * s.inner + i];
            m = moments_of(plane, per_channel, 1);
        }
        running_mean[c] = training ? p[2][c] * momentum + m.mean * (1 - momentum) : p[2][c];
        running_var[c] = training ? p[3][c] * momentum + m.variance * (1 - momentum) : p[3][c];
        double factor = p[0][c] / sqrt(m.variance + epsilon);
        for (int64_t n = 0; n < s.outer; n++)
            for (int64_t i = 0; i < s.inner; i++) {
                int64_t at = (n * s.size + c) * s.inner + i;
                v.y[at] = (v.x[at] - m.mean) * factor + p[1][c];
            }
    }
    hn_store_f64(hn_call_out(call, 0), v.y);
    hn_store_f64(hn_call_out(call, 1), running_mean);
    hn_store_f64(hn_call_out(call, 2), running_var);
    return HONE_OK;
}
HN_REF_FN(hn_ref_batch_norm) { return hn_ref_scratch(err, call, batch_norm_body); }

// ---- LayerNormalization, RMSNormalization -------------------------------------------------------
static hone_status trailing_axis(hone_error *err, const hn_node *node, int rank, int *out_axis) {
    int64_t axis = hn_op_int(node, "axis");
    if (!hn_axis_normalise(axis, rank, out_axis))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "axis %lld of rank %d", (long long)axis, rank);
    return HONE_OK;
}

// A parameter must broadcast to input 0 without enlarging it.
static hone_status expect_broadcast(hone_error *err, const hn_infer *ctx, int input) {
    const hn_type *x = hn_in_type(ctx, 0), *p = hn_in_type(ctx, input);
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, input, 0, x->rank, &rank));
    for (int i = 0; i < rank; i++) {
        if (p->dims[i] == 1) continue;
        HN_TRY(hn_expect_same(err, ctx, "dims of a parameter and the data", p->dims[i],
                              x->dims[x->rank - rank + i], NULL));
    }
    return HONE_OK;
}

static hone_status infer_trailing(hone_error *err, hn_infer *ctx, hn_dtype dtype,
                                  int statistics) {
    int rank, axis;
    HN_TRY(hn_expect_rank(err, ctx, 0, 1, HN_MAX_RANK, &rank));
    hn_infer_first(ctx, 0, dtype);
    if (rank < 0) return HONE_OK;
    HN_TRY(trailing_axis(err, ctx->node, rank, &axis));
    for (int i = 1; i < ctx->node->input_count; i++) HN_TRY(expect_broadcast(err, ctx, i));
    hn_dim dims[HN_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i < axis ? hn_in_type(ctx, 0)->dims[i] : 1;
    hn_dtype stash = hn_dtype_from_onnx(hn_op_int(ctx->node, "stash_type"));
    for (int i = 1; i <= statistics; i++) hn_infer_set(ctx, i, stash, rank, dims);
    return HONE_OK;
}
HN_INFER_FN(hn_infer_layer_norm) { return infer_trailing(err, ctx, HN_NONE, 2); }
HN_INFER_FN(hn_infer_rms_norm) {
    const hn_type *scale = hn_in_type(ctx, 1);
    return infer_trailing(err, ctx, scale ? scale->dtype : HN_NONE, 0);
}

// Flat index of a broadcast parameter for the element at `index`.
static int64_t broadcast_at(const hn_shape *param, const int64_t *index, int rank) {
    int64_t at = 0;
    for (int i = 0; i < param->rank; i++)
        at = at * param->dims[i] + (param->dims[i] == 1 ? 0 : index[rank - param->rank + i]);
    return at;
}

static hone_status trailing_norm(hone_error *err, const hn_call *call, hn_arena *scratch,
                                 bool centred) {
    xy v;
    const hn_tensor *tscale = hn_call_in(call, 1), *tbias = hn_call_in(call, 2);
    const double *scale, *bias;
    double *mean, *inverse;
    int axis;
    HN_TRY(load_xy(err, call, scratch, &v));
    HN_TRY(hn_load_f64(err, scratch, tscale, &scale));
    HN_TRY(hn_load_f64(err, scratch, tbias, &bias));
    const hn_shape *shape = &v.tx->shape;
    HN_TRY(trailing_axis(err, call->node, shape->rank, &axis));
    axis_split s = split_at(shape, axis, shape->rank);
    HN_TRY(hn_scratch_f64(err, scratch, s.outer, &mean));
    HN_TRY(hn_scratch_f64(err, scratch, s.outer, &inverse));
    double epsilon = (double)hn_op_float(call->node, "epsilon");
    int64_t index[HN_MAX_RANK] = {0};
    for (int64_t o = 0; o < s.outer && s.size > 0; o++) {
        const double *x = v.x + o * s.size;
        moments m = {0};
        if (centred) m = moments_of(x, s.size, 1);
        for (int64_t i = 0; !centred && i < s.size; i++)
            m.variance += x[i] * x[i] / (double)s.size;
        mean[o] = m.mean;
        inverse[o] = 1 / sqrt(m.variance + epsilon);
        for (int64_t i = 0; i < s.size; i++) {
            double value = (x[i] - m.mean) * inverse[o];
            if (scale) value *= scale[broadcast_at(&tscale->shape, index, shape->rank)];
            if (bias) value += bias[broadcast_at(&tbias->shape, index, shape->rank)];
            v.y[o * s.size + i] = value;
            hn_index_next(index, shape->dims, shape->rank);
        }
    }
    hn_store_f64(hn_call_out(call, 0), v.y);
    if (centred) {
        hn_store_f64(hn_call_out(call, 1), mean);
        hn_store_f64(hn_call_out(call, 2), inverse);
    }
    return HONE_OK;
}
static hone_status layer_norm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return trailing_norm(err, call, scratch, true);
}
static hone_status rms_norm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return trailing_norm(err, call, scratch, false);
}
HN_REF_FN(hn_ref_layer_norm) { return hn_ref_scratch(err, call, layer_norm_body); }
HN_REF_FN(hn_ref_rms_norm) { return hn_ref_scratch(err, call, rms_norm_body); }

// ---- GroupNormalization, InstanceNormalization --------------------------------------------------
HN_INFER_FN(hn_infer_group_norm) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 2, HN_MAX_RANK, &rank));
    hn_infer_first(ctx, 0, HN_NONE);
    if (rank < 0) return HONE_OK;
    hn_dim channels = hn_in_type(ctx, 0)->dims[1];
    int64_t groups = hn_op_int(ctx->node, "num_groups");
    if (groups < 1 || (hn_dim_is_const(channels) && channels % groups != 0))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%lld channels in %lld groups",
                     hn_dim_is_const(channels) ? (long long)channels : -1LL, (long long)groups);
    // Opset 18 had a scale and a bias a group.
    hn_dim length = ctx->node->version < 21 ? groups : channels;
    HN_TRY(expect_vector(err, ctx, 1, length));
    return expect_vector(err, ctx, 2, length);
}

HN_INFER_FN(hn_infer_instance_norm) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 2, HN_MAX_RANK, &rank));
    hn_infer_first(ctx, 0, HN_NONE);
    if (rank < 0) return HONE_OK;
    hn_dim channels = hn_in_type(ctx, 0)->dims[1];
    HN_TRY(expect_vector(err, ctx, 1, channels));
    return expect_vector(err, ctx, 2, channels);
}

static hone_status grouped_norm(hone_error *err, const hn_call *call, hn_arena *scratch,
                                int64_t groups) {
    xy v;
    const double *scale, *bias;
    HN_TRY(load_xy(err, call, scratch, &v));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 1), &scale));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &bias));
    axis_split s = split_at(&v.tx->shape, 1, 2);
    int64_t per_group = s.size / groups, count = per_group * s.inner;
    bool by_group = hn_tensor_count(hn_call_in(call, 1)) == groups && groups != s.size;
    double epsilon = (double)hn_op_float(call->node, "epsilon");
    for (int64_t g = 0; g < s.outer * groups && count > 0; g++) {
        moments m = moments_of(v.x + g * count, count, 1);
        double inverse = 1 / sqrt(m.variance + epsilon);
        for (int64_t i = 0; i < count; i++) {
            int64_t c = g % groups * per_group + i / s.inner, p = by_group ? g % groups : c;
            v.y[g * count + i] = (v.x[g * count + i] - m.mean) * inverse * scale[p] + bias[p];
        }
    }
    hn_store_f64(hn_call_out(call, 0), v.y);
    return HONE_OK;
}
static hone_status group_norm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return grouped_norm(err, call, scratch, hn_op_int(call->node, "num_groups"));
}
static hone_status instance_norm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    int64_t channels = hn_call_in(call, 0)->shape.dims[1];
    return channels ? grouped_norm(err, call, scratch, channels) : HONE_OK;
}
HN_REF_FN(hn_ref_group_norm) { return hn_ref_scratch(err, call, group_norm_body); }
HN_REF_FN(hn_ref_instance_norm) { return hn_ref_scratch(err, call, instance_norm_body); }

// ---- LRN, LpNormalization, MeanVarianceNormalization --------------------------------------------
HN_INFER_FN(hn_infer_lrn) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 2, HN_MAX_RANK, &rank));
    if (hn_op_int(ctx->node, "size") < 1)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "size is %lld",
                     (long long)hn_op_int(ctx->node, "size"));
    hn_infer_first(ctx, 0, HN_NONE);
    return HONE_OK;
}

static hone_status lrn_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    xy v;
    HN_TRY(load_xy(err, call, scratch, &v));
    axis_split s = split_at(&v.tx->shape, 1, 2);
    int64_t size = hn_op_int(call->node, "size");
    double alpha = (double)hn_op_float(call->node, "alpha") / (double)size;
    double beta = (double)hn_op_float(call->node, "beta");
    double bias = (double)hn_op_float(call->node, "bias");
    int64_t before = (size - 1) / 2, after = size - 1 - before;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t c = 0; c < s.size; c++) {
            int64_t first = hn_max_i64(c - before, 0);
            int64_t last = after >= s.size - c ? s.size - 1 : c + after;
            for (int64_t i = 0; i < s.inner; i++) {
                const double *x = v.x + o * s.size * s.inner + i;
                double sum = 0;
                for (int64_t k = first; k <= last; k++) sum += x[k * s.inner] * x[k * s.inner];
                v.y[(o * s.size + c) * s.inner + i] = x[c * s.inner] / pow(bias + alpha * sum, beta);
            }
        }
    hn_store_f64(hn_call_out(call, 0), v.y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_lrn) { return hn_ref_scratch(err, call, lrn_body); }

HN_INFER_FN(hn_infer_one_axis) {
    int rank, axis;
    HN_TRY(hn_expect_rank(err, ctx, 0, 0, HN_MAX_RANK, &rank));
    hn_infer_first(ctx, 0, HN_NONE);
    if (rank < 1) return HONE_OK;
    if (ctx->node->version < 13) return HONE_OK; // the flattening forms take axis = rank as well
    return trailing_axis(err, ctx->node, rank, &axis);
}

HN_INFER_FN(hn_infer_lp_norm) {
    int rank, axis;
    HN_TRY(hn_expect_rank(err, ctx, 0, 1, HN_MAX_RANK, &rank));
    hn_infer_first(ctx, 0, HN_NONE);
    return rank < 0 ? HONE_OK : trailing_axis(err, ctx->node, rank, &axis);
}

static hone_status lp_norm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    xy v;
    int axis;
    HN_TRY(load_xy(err, call, scratch, &v));
    HN_TRY(trailing_axis(err, call->node, v.tx->shape.rank, &axis));
    axis_split s = split_at(&v.tx->shape, axis, axis + 1);
    int64_t p = hn_op_int(call->node, "p");
    if (p != 1 && p != 2) HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "p is %lld", (long long)p);
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            int64_t base = o * s.size * s.inner + i;
            double norm = 0;
            for (int64_t k = 0; k < s.size; k++) {
                double value = v.x[base + k * s.inner];
                norm += p == 1 ? fabs(value) : value * value;
            }
            if (p == 2) norm = sqrt(norm);
            for (int64_t k = 0; k < s.size; k++) // a zero vector stays zero
                v.y[base + k * s.inner] = norm == 0 ? 0 : v.x[base + k * s.inner] / norm;
        }
    hn_store_f64(hn_call_out(call, 0), v.y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_lp_norm) { return hn_ref_scratch(err, call, lp_norm_body); }

static hone_status mvn_axes(hone_error *err, const hn_node *node, int rank, bool *out_reduced) {
    static const int64_t k_default[] = {0, 2, 3};
    int64_t count;
    const int64_t *axes = hn_node_ints(node, "axes", &count);
    if (!axes) {
        axes = k_default;
        count = 3;
    }
    for (int i = 0; i < rank; i++) out_reduced[i] = false;
    for (int64_t i = 0; i < count; i++) {
        int axis;
        if (!hn_axis_normalise(axes[i], rank, &axis))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "axis %lld of rank %d", (long long)axes[i],
                         rank);
        out_reduced[axis] = true;
    }
    return HONE_OK;
}

HN_INFER_FN(hn_infer_mvn) {
    int rank;
    bool reduced[HN_MAX_RANK];
    HN_TRY(hn_expect_rank(err, ctx, 0, 0, HN_MAX_RANK, &rank));
    hn_infer_first(ctx, 0, HN_NONE);
    return rank < 0 ? HONE_OK : mvn_axes(err, ctx->node, rank, reduced);
}

static hone_status mvn_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    xy v;
    bool reduced[HN_MAX_RANK];
    HN_TRY(load_xy(err, call, scratch, &v));
    const hn_shape *shape = &v.tx->shape;
    HN_TRY(mvn_axes(err, call->node, shape->rank, reduced));
    int64_t kept[HN_MAX_RANK], groups = 1, count = hn_tensor_count(v.tx);
    for (int i = 0; i < shape->rank; i++) groups *= kept[i] = reduced[i] ? 1 : shape->dims[i];
    double *mean, *square;
    int64_t *group_of, index[HN_MAX_RANK] = {0};
    HN_TRY(hn_scratch_f64(err, scratch, groups, &mean));
    HN_TRY(hn_scratch_f64(err, scratch, groups, &square));
    HN_TRY(hn_scratch_i64(err, scratch, count, &group_of));
    double per_group = groups ? (double)count / (double)groups : 1;
    for (int64_t i = 0; i < count; i++) {
        for (int d = 0; d < shape->rank; d++)
            group_of[i] = group_of[i] * kept[d] + (reduced[d] ? 0 : index[d]);
        mean[group_of[i]] += v.x[i] / per_group;
        hn_index_next(index, shape->dims, shape->rank);
    }
    for (int64_t i = 0; i < count; i++) {
        double d = v.x[i] - mean[group_of[i]];
        square[group_of[i]] += d * d / per_group;
    }
    for (int64_t i = 0; i < count; i++) // the standard adds 1e-9 to the deviation
        v.y[i] = (v.x[i] - mean[group_of[i]]) / (sqrt(square[group_of[i]]) + 1e-9);
    hn_store_f64(hn_call_out(call, 0), v.y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_mvn) { return hn_ref_scratch(err, call, mvn_body); }

// ---- Softmax and its kin ------------------------------------------------------------------------
// Before opset 13 these flattened the tensor to a matrix at the axis.
static hone_status softmax_split(hone_error *err, const hn_node *node, const hn_shape *shape,
                                 axis_split *out_split) {
    int axis;
    if (shape->rank == 0) {
        *out_split = (axis_split){1, 1, 1};
        return HONE_OK;
    }
    if (node->version < 13) {
        int64_t given = hn_node_int(node, "axis", 1);
        if (given < 0) given += shape->rank;
        if (given < 0 || given > shape->rank)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "axis %lld of rank %d", (long long)given,
                         shape->rank);
        *out_split = split_at(shape, (int)given, shape->rank);
        return HONE_OK;
    }
    HN_TRY(trailing_axis(err, node, shape->rank, &axis));
    *out_split = split_at(shape, axis, axis + 1);
    return HONE_OK;
}

typedef void (*line_fn)(const double *x, double *y, int64_t count, int64_t step);

static double line_max(const double *x, int64_t count, int64_t step) {
    double top = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(x[i * step])) return x[i * step];
        if (x[i * step] > top) top = x[i * step];
    }
    return top;
}

static void line_softmax(const double *x, double *y, int64_t count, int64_t step) {
    double top = line_max(x, count, step), sum = 0;
    for (int64_t i = 0; i < count; i++) sum += y[i * step] = exp(x[i * step] - top);
    for (int64_t i = 0; i < count; i++) y[i * step] /= sum;
}

void hn_line_log_softmax(const double *x, double *y, int64_t count, int64_t step) {
    double top = line_max(x, count, step), sum = 0;
    for (int64_t i = 0; i < count; i++) sum += exp(x[i * step] - top);
    for (int64_t i = 0; i < count; i++) y[i * step] = x[i * step] - top - log(sum);
}

static void line_hardmax(const double *x, double *y, int64_t count, int64_t step) {
    double top = line_max(x, count, step);
    bool done = false;
    for (int64_t i = 0; i < count; i++) {
        bool here = !done && (x[i * step] == top || isnan(x[i * step]));
        y[i * step] = here ? 1 : 0;
        done = done || here;
    }
}

static hone_status lines(hone_error *err, const hn_call *call, hn_arena *scratch, line_fn fn) {
    xy v;
    axis_split s = {0};
    HN_TRY(load_xy(err, call, scratch, &v));
    HN_TRY(softmax_split(err, call->node, &v.tx->shape, &s));
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            int64_t base = o * s.size * s.inner + i;
            fn(v.x + base, v.y + base, s.size, s.inner);
        }
    hn_store_f64(hn_call_out(call, 0), v.y);
    return HONE_OK;
}
static hone_status softmax_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return lines(err, call, scratch, line_softmax);
}
static hone_status log_softmax_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return lines(err, call, scratch, hn_line_log_softmax);
}
static hone_status hardmax_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return lines(err, call, scratch, line_hardmax);
}
HN_REF_FN(hn_ref_softmax) { return hn_ref_scratch(err, call, softmax_body); }
HN_REF_FN(hn_ref_log_softmax) { return hn_ref_scratch(err, call, log_softmax_body); }
HN_REF_FN(hn_ref_hardmax) { return hn_ref_scratch(err, call, hardmax_body); }

// ---- cost ---------------------------------------------------------------------------------------
static double elements(const hn_value *value) {
    double n = 1;
    if (!value) return 0;
    for (int i = 0; i < value->type.rank; i++) n *= (double)value->type.dims[i];
    return n;
}
// Two passes for the statistics, one for scale and shift.
HN_COST_FN(hn_cost_norm) { out_cost->flops = 7 * elements(hn_in(node, 0)); }
HN_COST_FN(hn_cost_batch_norm) {
    out_cost->flops = (hn_op_int(node, "training_mode") ? 7 : 2) * elements(hn_in(node, 0));
}
HN_COST_FN(hn_cost_softmax) { out_cost->flops = 4 * elements(hn_in(node, 0)); }
HN_COST_FN(hn_cost_lrn) {
    out_cost->flops = (2 * (double)hn_op_int(node, "size") + 3) * elements(hn_in(node, 0));
}
