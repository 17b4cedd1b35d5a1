// SPDX-License-Identifier: Apache-2.0
// Normalisations of channels that exporters write in pieces: InstanceNormalization and
// GroupNormalization. One row a form.
//
// `channel_norm` is portable: means and variances over all spatial dims become InstanceNormalization,
// which every runtime has had from the start; scales and offsets of channels behind one go into its own.
// Groups stay what exporters make of them, an InstanceNormalization between two Reshapes: runtimes run
// that faster than GroupNormalization (21), for which they have only the function's body.
// `group_norm` is for our own kernels, which keep the layout of the convolutions around.
#include "passes/norm_match.h"

// Constants that broadcast to x along its channels, one or one a channel, as `count` numbers.
static bool channel_values(const hn_match *m, const hn_tensor *t, const hn_value *x, int64_t *out_channels) {
    int lead = x->type.rank - t->shape.rank;
    (void)m;
    if (t->dtype != HN_F32 || x->type.rank < 2 || lead < 0 || !hn_dim_is_const(x->type.dims[1])) return false;
    int64_t channels = x->type.dims[1];
    bool each = hn_tensor_count(t) != 1;
    for (int i = 0; i < t->shape.rank; i++)
        if (t->shape.dims[i] != (each && i + lead == 1 ? channels : 1)) return false;
    if (each && lead > 1) return false;
    *out_channels = channels;
    return true;
}

static float value_at(const hn_tensor *t, int64_t channel, int64_t channels) {
    int64_t count = hn_tensor_count(t);
    return ((const float *)t->data)[count == 1 ? 0 : channel * count / channels];
}

// A constant of `channels` numbers a * b + c; b, c: NULL for 1 and 0. The vectors may be shorter: each of
// their numbers is then for as many channels in a row.
static hn_value *channel_constant(hn_node *at, int64_t channels, const hn_tensor *a, const hn_tensor *b,
                                  const hn_tensor *c) {
    hn_tensor t;
    hn_shape shape = {.rank = 1, .dims = {channels}};
    if (hn_tensor_new(NULL, HN_F32, &shape, &t) != HONE_OK) return NULL;
    for (int64_t i = 0; i < channels; i++) {
        float v = a ? value_at(a, i, channels) : 0;
        if (b) v *= value_at(b, i, channels);
        if (c) v += value_at(c, i, channels);
        ((float *)t.data)[i] = v;
    }
    return hn_pass_add_constant(at, &t);
}

// ---- InstanceNormalization ----------------------------------------------------------------------
// x over its channels as the match's reductions say.
static bool over_channels(const hn_match *m, const hn_value *x, const hn_value *out, float *epsilon) {
    if (x->type.dtype != HN_F32 || x->type.rank < 3 || !hn_pass_same_type(x, out) || hn_pass_pinned(m->ctx, out) ||
        !hn_dim_is_const(x->type.dims[1]) || x->type.dims[1] < 1 || !hn_norm_scalar(m, "eps", epsilon))
        return false;
    return hn_norm_trailing_axes(m, hn_match_node(m, "mean")) == 2 &&
           hn_norm_trailing_axes(m, hn_match_node(m, "var")) == 2;
}

static hn_status make_instance(hone_error *err, hn_match *m, hn_value *x, hn_value *out, hn_value *scale,
                               hn_value *bias, float epsilon, bool *out_done) {
    hn_value *in[] = {x, scale, bias};
    hn_node *node = scale && bias ? hn_pass_make(m->root, "InstanceNormalization", in, 3) : NULL;
    if (!node || !hn_node_set_float(node, "epsilon", epsilon)) HN_NOMEM(err, "recognising a normalisation");
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(m->ctx, out, node->outputs[0]);
    *out_done = true;
    return HONE_OK;
}

static hone_status instance_norm(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x"), *out = m->root->outputs[0];
    const hn_tensor *g = hn_match_tensor(m, "g");
    int64_t channels;
    float epsilon;
    if (!over_channels(m, x, out, &epsilon) || !channel_values(m, g, x, &channels)) return HONE_OK;
    return make_instance(err, m, x, out, channel_constant(m->root, channels, g, NULL, NULL),
                         channel_constant(m->root, channels, NULL, NULL, NULL), epsilon, out_done);
}

// Groups: what is normalised comes from a Reshape, and a Reshape follows.
static hone_status instance_of_groups(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x"), *out = hn_match_value(m, "n");
    float epsilon;
    if (!hn_pass_is(x->producer, "Reshape") || !over_channels(m, x, out, &epsilon)) return HONE_OK;
    int64_t groups = x->type.dims[1];
    hn_tensor one;
    HN_TRY(hn_tensor_new(err, HN_F32, &(hn_shape){0}, &one));
    ((float *)one.data)[0] = 1;
    hn_value *scale = channel_constant(m->root, groups, &one, NULL, NULL);
    hn_tensor_free(&one);
    return make_instance(err, m, x, out, scale, channel_constant(m->root, groups, NULL, NULL, NULL), epsilon,
                         out_done);
}

// A constant of channels behind a normalisation of channels: into its scale or offset.
static hn_status absorb(hone_error *err, hn_match *m, bool multiply, bool *out_done) {
    hn_node *norm = hn_match_node(m, "n");
    hn_value *x = hn_match_value(m, "x"), *out = m->root->outputs[0];
    const hn_tensor *g = hn_match_tensor(m, "g"), *z = hn_match_tensor(m, "z"), *k = hn_match_tensor(m, "k");
    int64_t channels;
    bool group = hn_pass_is(norm, "GroupNormalization");
    if (x->type.dtype != HN_F32 || g->dtype != HN_F32 || z->dtype != HN_F32 || !channel_values(m, k, x, &channels) ||
        !hn_pass_same_type(x, out) || hn_pass_pinned(m->ctx, out) || (group && norm->version < 21) ||
        hn_tensor_count(g) != channels || hn_tensor_count(z) != channels)
        return HONE_OK;
    hn_value *in[] = {x, channel_constant(m->root, channels, g, multiply ? k : NULL, NULL),
                      channel_constant(m->root, channels, z, multiply ? k : NULL, multiply ? NULL : k)};
    hn_node *node = in[1] && in[2] ? hn_pass_make(m->root, norm->op_type, in, 3) : NULL;
    if (!node || !hn_node_copy_attrs(node, norm)) HN_NOMEM(err, "recognising a normalisation");
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(m->ctx, out, node->outputs[0]);
    *out_done = true;
    return HONE_OK;
}
static hone_status absorb_scale(hone_error *err, hn_match *m, bool *out_done) {
    return absorb(err, m, true, out_done);
}
static hone_status absorb_offset(hone_error *err, hn_match *m, bool *out_done) {
    return absorb(err, m, false, out_done);
}

// ---- GroupNormalization -------------------------------------------------------------------------
static hone_status group_norm(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x"), *split = hn_match_value(m, "split"), *out = m->root->outputs[0];
    const hn_tensor *g = hn_match_tensor(m, "g"), *z = hn_match_tensor(m, "z");
    if (x->type.dtype != HN_F32 || x->type.rank < 3 || split->type.rank < 3 || !hn_pass_same_type(x, out) ||
        hn_pass_pinned(m->ctx, out) || split->type.dims[0] != x->type.dims[0])
        return HONE_OK;
    int64_t channels = x->type.dims[1], groups = split->type.dims[1];
    // A group is whole channels: the same first dim, then groups that channels divide into.
    if (!hn_dim_is_const(channels) || !hn_dim_is_const(groups) || groups < 1 || channels % groups != 0 ||
        g->dtype != HN_F32 || z->dtype != HN_F32 || hn_tensor_count(g) != groups || hn_tensor_count(z) != groups)
        return HONE_OK;
    hn_value *in[] = {x, channel_constant(m->root, channels, g, NULL, NULL),
                      channel_constant(m->root, channels, z, NULL, NULL)};
    hn_node *node = in[1] && in[2] ? hn_pass_make(m->root, "GroupNormalization", in, 3) : NULL;
    if (!node || !hn_node_set_int(node, "num_groups", groups) ||
        !hn_node_set_float(node, "epsilon", hn_op_float(hn_match_node(m, "n"), "epsilon")))
        HN_NOMEM(err, "recognising a normalisation");
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(m->ctx, out, node->outputs[0]);
    *out_done = true;
    return HONE_OK;
}

// ---- rows ---------------------------------------------------------------------------------------
#define ROOT(variance) "Sqrt(Add(" variance ", eps!))"

static const hn_rule k_portable[] = {
    {"instance-norm-1", "Mul(Div(d, " ROOT(VARIANCE_POW) "), g!)", instance_norm},
    {"instance-norm-2", "Mul(Div(d, " ROOT(VARIANCE_MUL) "), g!)", instance_norm},
    {"instance-norm-3", "Mul(Mul(d, Reciprocal(" ROOT(VARIANCE_POW) ")), g!)", instance_norm},
    {"instance-norm-4", "Mul(Mul(d, Reciprocal(" ROOT(VARIANCE_MUL) ")), g!)", instance_norm},
    {"instance-norm-5", "Mul(Mul(d, Div(1, " ROOT(VARIANCE_POW) ")), g!)", instance_norm},
    {"instance-groups-1", "Reshape(Div:n(d, " ROOT(VARIANCE_POW) "), s)", instance_of_groups},
    {"instance-groups-2", "Reshape(Div:n(d, " ROOT(VARIANCE_MUL) "), s)", instance_of_groups},
    {"instance-groups-3", "Reshape(Mul:n(d, Reciprocal(" ROOT(VARIANCE_POW) ")), s)", instance_of_groups},
    {"instance-groups-4", "Reshape(Mul:n(d, Reciprocal(" ROOT(VARIANCE_MUL) ")), s)", instance_of_groups},
    {"instance-groups-5", "Reshape(Mul:n(d, Div(1, " ROOT(VARIANCE_POW) ")), s)", instance_of_groups},
    {"instance-scale", "Mul(InstanceNormalization:n(x, g!, z!), k!)", absorb_scale},
    {"instance-offset", "Add(InstanceNormalization:n(x, g!, z!), k!)", absorb_offset},
};

static const hn_rule k_device[] = {
    {"group-norm", "Reshape(InstanceNormalization:n(Reshape:split(x, s1), g!, z!), s2)", group_norm},
    {"group-scale", "Mul(GroupNormalization:n(x, g!, z!), k!)", absorb_scale},
    {"group-offset", "Add(GroupNormalization:n(x, g!, z!), k!)", absorb_offset},
};

hone_status hn_pass_channel_norm(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_portable, HN_COUNT_OF(k_portable));
}

hone_status hn_pass_group_norm(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_device, HN_COUNT_OF(k_device));
}
