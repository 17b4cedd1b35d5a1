// SPDX-License-Identifier: Apache-2.0
// Operators that exporters write in pieces, put together again. One row a form.
//
// `recognise` is portable and gives ops that runtimes have had for long (HardSwish 14,
// LayerNormalization 17, Gelu 20); `recognise_device` gives newer ones (RMSNormalization 23,
// Swish 24), which only our own kernels are sure to have. Constants must agree to about six digits;
// shapes, axes and types are checked by the functions.
#include "passes/norm_match.h"
#include <math.h>

// The match's root becomes `made`. False when out of memory or not allowed.
static hone_status put(hone_error *err, hn_match *m, hn_value *made, bool *out_done) {
    if (!made) HN_NOMEM(err, "recognising an operator");
    hn_pass_replace(m->ctx, m->root->outputs[0], made);
    *out_done = true;
    return HONE_OK;
}

// One float input whose shape the whole expression keeps.
static bool plain_unary(const hn_match *m, const hn_value *x) {
    const hn_value *out = m->root->outputs[0];
    bool small = x->type.dtype == HN_F16 || x->type.dtype == HN_BF16;
    return (x->type.dtype == HN_F32 || small) && hn_pass_same_type(x, out) && !hn_pass_pinned(m->ctx, out);
}

static hone_status make_unary(hone_error *err, hn_match *m, const char *op, bool *out_done) {
    hn_value *x = hn_match_value(m, "x");
    if (!plain_unary(m, x)) return HONE_OK;
    return put(err, m, hn_pass_build(m->root, op, &x, 1), out_done);
}

// ---- activations --------------------------------------------------------------------------------

static hone_status gelu(hone_error *err, hn_match *m, bool *out_done) {
    return make_unary(err, m, "Gelu", out_done);
}

static hone_status gelu_tanh(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x");
    if (!plain_unary(m, x)) return HONE_OK;
    hn_node *node = hn_pass_make(m->root, "Gelu", &x, 1);
    if (!node || !hn_node_set_string(node, "approximate", "tanh"))
        HN_NOMEM(err, "recognising Gelu");
    HN_TRY(hn_infer_node(err, node));
    return put(err, m, node->outputs[0], out_done);
}

static hone_status hard_swish(hone_error *err, hn_match *m, bool *out_done) {
    return make_unary(err, m, "HardSwish", out_done);
}

static hone_status hard_swish_of_sigmoid(hone_error *err, hn_match *m, bool *out_done) {
    const hn_node *h = hn_match_node(m, "h");
    if (fabsf(hn_op_float(h, "alpha") - 1 / 6.f) > 1e-6f || hn_op_float(h, "beta") != 0.5f)
        return HONE_OK;
    return make_unary(err, m, "HardSwish", out_done);
}

static hone_status swish(hone_error *err, hn_match *m, bool *out_done) {
    return make_unary(err, m, "Swish", out_done);
}

static hone_status swish_scaled(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x");
    const hn_tensor *k = hn_match_tensor(m, "k");
    if (!plain_unary(m, x) || hn_tensor_count(k) != 1 || k->dtype != HN_F32) return HONE_OK;
    hn_node *node = hn_pass_make(m->root, "Swish", &x, 1);
    if (!node || !hn_node_set_float(node, "alpha", (float)hn_tensor_get_f64(k, 0)))
        HN_NOMEM(err, "recognising Swish");
    HN_TRY(hn_infer_node(err, node));
    return put(err, m, node->outputs[0], out_done);
}

// The operator of exporters that write CLIP and its kin: Swish by another name and default.
static hone_status quick_gelu(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x");
    if (!plain_unary(m, x)) return HONE_OK;
    hn_node *node = hn_pass_make(m->root, "Swish", &x, 1);
    if (!node || !hn_node_set_float(node, "alpha", hn_op_float(m->root, "alpha")))
        HN_NOMEM(err, "recognising QuickGelu");
    HN_TRY(hn_infer_node(err, node));
    return put(err, m, node->outputs[0], out_done);
}

// ---- normalisations -----------------------------------------------------------------------------

int hn_norm_trailing_axes(const hn_match *m, const hn_node *reduce) {
    int64_t axes[HN_MAX_RANK], attr_count;
    int count, rank = reduce->inputs[0]->type.rank;
    if (rank < 1 || !hn_op_int(reduce, "keepdims")) return -1;
    const int64_t *attr = hn_node_ints(reduce, "axes", &attr_count);
    if (attr) {
        if (attr_count > HN_MAX_RANK) return -1;
        count = (int)attr_count;
        memcpy(axes, attr, (size_t)count * sizeof *axes);
    } else if (!hn_value_ints(m->ctx->module, hn_in(reduce, 1), axes, HN_MAX_RANK, &count)) {
        return -1;
    }
    bool covered[HN_MAX_RANK] = {false};
    for (int i = 0; i < count; i++) {
        int axis;
        if (!hn_axis_normalise(axes[i], rank, &axis) || covered[axis]) return -1;
        covered[axis] = true;
    }
    int first = rank - count;
    for (int i = first; i < rank; i++)
        if (!covered[i]) return -1;
    return count ? first : -1;
}

bool hn_norm_scalar(const hn_match *m, const char *name, float *out) {
    const hn_tensor *t = hn_match_tensor(m, name);
    if (hn_tensor_count(t) != 1 || t->dtype != HN_F32) return false;
    *out = (float)hn_tensor_get_f64(t, 0);
    return *out >= 0;
}

// A weight whose shape is that of the normalised dims, leading ones aside.
static bool weight_fits(const hn_tensor *w, const hn_value *x, int first) {
    int lead = w->shape.rank - (x->type.rank - first);
    if (w->dtype != HN_F32 || lead < 0) return false;
    for (int i = 0; i < w->shape.rank; i++) {
        if (i < lead ? w->shape.dims[i] != 1 : w->shape.dims[i] != x->type.dims[first + i - lead])
            return false;
    }
    return true;
}

// The weight with its leading ones cut off.
static hn_value *trim_weight(hn_node *at, hn_value *w, int rank) {
    int lead = w->constant->shape.rank - rank;
    if (lead == 0) return w;
    hn_tensor cut = hn_tensor_ref(w->constant);
    memmove(cut.shape.dims, cut.shape.dims + lead, (size_t)rank * sizeof *cut.shape.dims);
    cut.shape.rank = rank;
    return hn_pass_add_constant(at, &cut);
}

// LayerNormalization or RMSNormalization of x with weight "g"; `reduces` are the match's
// reductions.
static hn_status make_norm(hone_error *err, hn_match *m, const char *op, const char *const *reduces,
                           int reduce_count, bool *out_done) {
    hn_value *x = hn_match_value(m, "x"), *g = hn_match_value(m, "g");
    float epsilon;
    if (!plain_unary(m, x) || !hn_norm_scalar(m, "eps", &epsilon)) return HONE_OK;
    int first = -1;
    for (int i = 0; i < reduce_count; i++) {
        int axis = hn_norm_trailing_axes(m, hn_match_node(m, reduces[i]));
        if (axis < 0 || (i && axis != first)) return HONE_OK;
        first = axis;
    }
    if (!weight_fits(g->constant, x, first)) return HONE_OK;
    hn_value *in[] = {x, trim_weight(m->root, g, x->type.rank - first)};
    hn_node *node = in[1] ? hn_pass_make(m->root, op, in, 2) : NULL;
    if (!node || !hn_node_set_int(node, "axis", first - x->type.rank) ||
        !hn_node_set_float(node, "epsilon", epsilon))
        HN_NOMEM(err, "recognising a normalisation");
    HN_TRY(hn_infer_node(err, node));
    return put(err, m, node->outputs[0], out_done);
}

static hone_status layer_norm(hone_error *err, hn_match *m, bool *out_done) {
    static const char *const k_reduces[] = {"mean", "var"};
    return make_norm(err, m, "LayerNormalization", k_reduces, 2, out_done);
}

static hone_status rms_norm(hone_error *err, hn_match *m, bool *out_done) {
    static const char *const k_reduces[] = {"ms"};
    return make_norm(err, m, "RMSNormalization", k_reduces, 1, out_done);
}

static hone_status norm_bias(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = hn_match_node(m, "n");
    hn_value *b = hn_match_value(m, "b"), *x = hn_match_value(m, "x");
    int first;
    if (!plain_unary(m, x) || !hn_axis_normalise(hn_op_int(node, "axis"), x->type.rank, &first) ||
        !weight_fits(b->constant, x, first))
        return HONE_OK;
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i]) return HONE_OK;
    hn_value *bias = trim_weight(m->root, b, x->type.rank - first);
    hn_value *in[] = {x, hn_match_value(m, "g"), bias};
    hn_node *made = bias ? hn_pass_make(m->root, "LayerNormalization", in, 3) : NULL;
    if (!made || !hn_node_copy_attrs(made, node)) HN_NOMEM(err, "recognising a normalisation");
    HN_TRY(hn_infer_node(err, made));
    return put(err, m, made->outputs[0], out_done);
}

// ---- rows ---------------------------------------------------------------------------------------

#define ERF_DIV         "Add(Erf(Div(x, 1.41421356)), 1)"
#define ERF_MUL         "Add(Erf(Mul(x, 0.70710678)), 1)"
#define CUBE_POW        "Pow(x, 3)"
#define CUBE_MUL        "Mul(Mul(x, x), x)"
#define TANH_OF(cube)   "Add(Tanh(Mul(Add(x, Mul(" cube ", 0.044715)), 0.79788456)), 1)"
#define GATE            "Clip(Add(x, 3), 0, 6)"
#define MEAN_SQUARE_POW "ReduceMean:ms(Pow(x, 2), ...)"
#define MEAN_SQUARE_MUL "ReduceMean:ms(Mul(x, x), ...)"

static const hn_rule k_portable[] = {
    {"gelu-1", "Mul(Mul(x, " ERF_DIV "), 0.5)", gelu},
    {"gelu-2", "Mul(Mul(x, 0.5), " ERF_DIV ")", gelu},
    {"gelu-3", "Mul(x, Mul(" ERF_DIV ", 0.5))", gelu},
    {"gelu-4", "Mul(Mul(x, " ERF_MUL "), 0.5)", gelu},
    {"gelu-5", "Mul(Mul(x, 0.5), " ERF_MUL ")", gelu},
    {"gelu-6", "Mul(x, Mul(" ERF_MUL ", 0.5))", gelu},
    {"gelu-tanh-1", "Mul(Mul(x, " TANH_OF(CUBE_POW) "), 0.5)", gelu_tanh},
    {"gelu-tanh-2", "Mul(Mul(x, 0.5), " TANH_OF(CUBE_POW) ")", gelu_tanh},
    {"gelu-tanh-3", "Mul(x, Mul(" TANH_OF(CUBE_POW) ", 0.5))", gelu_tanh},
    {"gelu-tanh-4", "Mul(Mul(x, " TANH_OF(CUBE_MUL) "), 0.5)", gelu_tanh},
    {"gelu-tanh-5", "Mul(Mul(x, 0.5), " TANH_OF(CUBE_MUL) ")", gelu_tanh},
    {"gelu-tanh-6", "Mul(x, Mul(" TANH_OF(CUBE_MUL) ", 0.5))", gelu_tanh},
    {"hard-swish-1", "Mul(x, Div(" GATE ", 6))", hard_swish},
    {"hard-swish-2", "Div(Mul(x, " GATE "), 6)", hard_swish},
    {"hard-swish-3", "Mul(x, Mul(" GATE ", 0.16666667))", hard_swish},
    {"hard-swish-4", "Mul(Mul(x, " GATE "), 0.16666667)", hard_swish},
    {"hard-swish-5", "Mul(x, HardSigmoid:h(x))", hard_swish_of_sigmoid},
    {"layer-norm-1", "Mul(Div(d, Sqrt(Add(" VARIANCE_POW ", eps!))), g!)", layer_norm},
    {"layer-norm-2", "Mul(Div(d, Sqrt(Add(" VARIANCE_MUL ", eps!))), g!)", layer_norm},
    {"layer-norm-3", "Mul(Mul(d, Reciprocal(Sqrt(Add(" VARIANCE_POW ", eps!)))), g!)", layer_norm},
    {"layer-norm-4", "Mul(Mul(d, Reciprocal(Sqrt(Add(" VARIANCE_MUL ", eps!)))), g!)", layer_norm},
    {"layer-norm-5", "Mul(Mul(d, Div(1, Sqrt(Add(" VARIANCE_POW ", eps!)))), g!)", layer_norm},
    {"layer-norm-6", "Mul(Div(d, Pow(Add(" VARIANCE_POW ", eps!), 0.5)), g!)", layer_norm},
    {"layer-norm-bias", "Add(LayerNormalization:n(x, g), b!)", norm_bias},
};

static const hn_rule k_device[] = {
    {"swish", "Mul(x, Sigmoid(x))", swish},
    {"swish-scaled", "Mul(x, Sigmoid(Mul(x, k!)))", swish_scaled},
    {"quick-gelu", "com.microsoft.QuickGelu(x)", quick_gelu},
    {"rms-norm-1", "Mul(Mul(x, Reciprocal(Sqrt(Add(" MEAN_SQUARE_POW ", eps!)))), g!)", rms_norm},
    {"rms-norm-2", "Mul(Mul(x, Reciprocal(Sqrt(Add(" MEAN_SQUARE_MUL ", eps!)))), g!)", rms_norm},
    {"rms-norm-3", "Mul(Div(x, Sqrt(Add(" MEAN_SQUARE_POW ", eps!))), g!)", rms_norm},
    {"rms-norm-4", "Mul(Mul(x, Div(1, Sqrt(Add(" MEAN_SQUARE_POW ", eps!)))), g!)", rms_norm},
};

hone_status hn_pass_recognise(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_portable, HN_COUNT_OF(k_portable));
}

hone_status hn_pass_recognise_device(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_device, HN_COUNT_OF(k_device));
}
