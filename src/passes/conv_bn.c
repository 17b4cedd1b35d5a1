// SPDX-License-Identifier: Apache-2.0
// Per-channel scales and offsets next to a convolution or matrix product go into its weights and
// bias: BatchNormalization, Mul, Div, Add, Sub by constants, behind it or (where exact) before it.
//
// All arithmetic is in double and rounded once. Float32 and float64 weights only: 16-bit ones would
// lose digits a second time. Shared weights are not copied beyond the fold limit.
#include "passes/match.h"
#include <math.h>

// y' = y * scale + shift, for each channel.
typedef struct affine {
    int64_t channels;
    double *scale, *shift; // owned
} affine;

static void affine_free(affine *a) {
    hn_free(a->scale);
    hn_free(a->shift);
    *a = (affine){0};
}

static bool affine_new(affine *a, int64_t channels) {
    *a = (affine){channels, hn_calloc((size_t)channels, sizeof(double)),
                  hn_calloc((size_t)channels, sizeof(double))};
    for (int64_t i = 0; a->scale && i < channels; i++)
        a->scale[i] = 1;
    if (!a->scale || !a->shift) affine_free(a);
    return a->scale != NULL;
}

static bool finite_affine(const affine *a) {
    for (int64_t i = 0; i < a->channels; i++)
        if (!isfinite(a->scale[i]) || !isfinite(a->shift[i])) return false;
    return true;
}

static bool wide_float(const hn_tensor *t) {
    return t->dtype == HN_F32 || t->dtype == HN_F64;
}

// ---- where the affine map comes from ------------------------------------------------------------

// From a BatchNormalization in inference mode. 1: made, 0: does not fit, -1: out of memory.
static int from_norm(const hn_match *m, const hn_node *bn, int64_t channels, affine *out) {
    if (hn_op_int(bn, "training_mode")) return 0;
    for (int i = 1; i < bn->output_count; i++)
        if (bn->outputs[i] && !hn_value_unused(bn->outputs[i])) return 0;
    const hn_tensor *t[] = {hn_match_tensor(m, "gamma"), hn_match_tensor(m, "beta"),
                            hn_match_tensor(m, "mean"), hn_match_tensor(m, "var")};
    for (int i = 0; i < 4; i++)
        if (!wide_float(t[i]) || hn_tensor_count(t[i]) != channels) return 0;
    if (!affine_new(out, channels)) return -1;
    double epsilon = (double)hn_node_float(bn, "epsilon", 1e-5f);
    for (int64_t i = 0; i < channels; i++) {
        out->scale[i] = hn_tensor_get_f64(t[0], i) / sqrt(hn_tensor_get_f64(t[3], i) + epsilon);
        out->shift[i] = hn_tensor_get_f64(t[1], i) - hn_tensor_get_f64(t[2], i) * out->scale[i];
    }
    return 1;
}

// The constant varies along `axis` of a value of that rank only (or is one number).
static bool per_channel(const hn_tensor *k, int rank, int axis, int64_t channels) {
    int64_t count = hn_tensor_count(k);
    if (!wide_float(k) || k->shape.rank > rank) return false;
    if (count == 1) return true;
    int at = axis - (rank - k->shape.rank);
    return at >= 0 && k->shape.dims[at] == channels && count == channels;
}

// From an element-wise op with a constant; `constant_first` for Sub(k, y).
static int from_elementwise(const hn_node *op, const hn_tensor *k, bool constant_first, int rank,
                            int axis, int64_t channels, affine *out) {
    if (!per_channel(k, rank, axis, channels)) return 0;
    if (!affine_new(out, channels)) return -1;
    bool one = hn_tensor_count(k) == 1;
    for (int64_t i = 0; i < channels; i++) {
        double value = hn_tensor_get_f64(k, one ? 0 : i);
        if (hn_pass_is(op, "Mul"))
            out->scale[i] = value;
        else if (hn_pass_is(op, "Div"))
            out->scale[i] = 1 / value;
        else
            out->shift[i] = hn_pass_is(op, "Sub") && !constant_first ? -value : value;
        if (constant_first && hn_pass_is(op, "Sub")) out->scale[i] = -1;
    }
    return 1;
}

// ---- weights ------------------------------------------------------------------------------------

// How a node's weights map to output channels.
typedef struct heavy {
    hn_node *node;
    const hn_tensor *w, *b; // b NULL: none
    int64_t channels, group;
    bool transposed_conv, gemm, matmul, trans_b;
} heavy;

static bool heavy_describe(hn_node *node, const hn_tensor *w, const hn_tensor *b, heavy *out) {
    heavy h = {.node = node, .w = w, .b = b};
    if (!w || !wide_float(w) || w->shape.rank < 2) return false;
    h.transposed_conv = hn_pass_is(node, "ConvTranspose");
    h.gemm = hn_pass_is(node, "Gemm");
    h.matmul = hn_pass_is(node, "MatMul");
    h.group = h.gemm || h.matmul ? 1 : hn_node_int(node, "group", 1);
    if (h.group < 1) return false;
    if (h.gemm || h.matmul) {
        if (w->shape.rank != 2) return false;
        h.trans_b = h.gemm && hn_node_int(node, "transB", 0);
        h.channels = w->shape.dims[h.trans_b ? 0 : 1];
    } else if (h.transposed_conv) {
        if (w->shape.dims[0] % h.group) return false;
        h.channels = w->shape.dims[1] * h.group;
    } else {
        h.channels = w->shape.dims[0];
    }
    int64_t bias = b ? hn_tensor_count(b) : h.channels;
    if (b && (!wide_float(b) || (bias != h.channels && !(h.gemm && bias == 1)))) return false;
    // A Gemm's bias [M, 1] has as many elements only by accident.
    if (b && h.gemm && bias > 1 && b->shape.dims[b->shape.rank - 1] != h.channels) return false;
    *out = h;
    return h.channels > 0;
}

static int64_t channel_of(const heavy *h, int64_t index) {
    const int64_t *dims = h->w->shape.dims;
    if (h->gemm || h->matmul) return h->trans_b ? index / dims[1] : index % dims[1];
    int64_t inner = hn_tensor_count(h->w) / dims[0];
    if (!h->transposed_conv) return index / inner;
    int64_t kernel = inner / dims[1], group = index / inner / (dims[0] / h->group);
    return group * dims[1] + index / kernel % dims[1];
}

static bool may_copy(const hn_pass_ctx *ctx, const hn_value *w) {
    return w->uses.count == 1 || w->constant->bytes <= ctx->fold_limit_bytes;
}

// A node like h->node with other weights and bias, before `before`; its output or NULL.
static hn_value *rebuild(const heavy *h, hn_node *before, hn_value *x, hn_tensor *w, hn_tensor *b) {
    bool biased = b->data != NULL;
    hn_value *in[3] = {x, hn_pass_add_constant(before, w), NULL};
    if (biased) in[2] = hn_pass_add_constant(before, b);
    if (!in[1] || (biased && !in[2])) return NULL;
    hn_node *node =
        hn_graph_add_node(before->graph, before, h->node->op, h->node->op_type, h->node->domain,
                          h->node->version, in, biased ? 3 : 2, 1);
    if (!node || !hn_node_copy_attrs(node, h->node)) return NULL;
    node->name = h->node->name;
    node->compute = h->node->compute;
    node->plain = h->node->plain;
    if (h->gemm && in[2] && !hn_node_set_float(node, "beta", 1)) return NULL;
    return hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

// Bakes y * scale + shift into copies of the weights and puts the new node in the match's place.
static hn_status bake(hone_error *err, hn_match *m, const heavy *h, const affine *a,
                      bool *out_done) {
    bool shifted = h->b != NULL;
    for (int64_t i = 0; i < a->channels; i++)
        shifted |= a->shift[i] != 0;
    if (!finite_affine(a) || (shifted && h->matmul)) return HONE_OK;
    hn_tensor w = {0}, b = {0};
    hn_shape bias_shape = {1, {h->channels}};
    HN_TRY(hn_tensor_new(err, h->w->dtype, &h->w->shape, &w));
    int64_t count = hn_tensor_count(&w);
    for (int64_t i = 0; i < count; i++)
        hn_tensor_set_f64(&w, i, hn_tensor_get_f64(h->w, i) * a->scale[channel_of(h, i)]);
    hone_status status =
        shifted ? hn_tensor_new(err, h->b ? h->b->dtype : h->w->dtype, &bias_shape, &b) : HONE_OK;
    if (status == HONE_OK) {
        double beta = h->gemm ? (double)hn_node_float(h->node, "beta", 1) : 1;
        bool one = h->b && hn_tensor_count(h->b) == 1;
        for (int64_t i = 0; shifted && i < h->channels; i++) {
            double old = h->b ? beta * hn_tensor_get_f64(h->b, one ? 0 : i) : 0;
            hn_tensor_set_f64(&b, i, old * a->scale[i] + a->shift[i]);
        }
        hn_value *made = rebuild(h, m->root, h->node->inputs[0], &w, &b);
        if (!made)
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (folding into weights)");
        else
            hn_pass_replace(m->ctx, m->root->outputs[0], made);
        *out_done = made != NULL;
    }
    hn_tensor_free(&w);
    hn_tensor_free(&b);
    return status;
}

// ---- rewrites behind the heavy node -------------------------------------------------------------

static bool describe_match(hn_match *m, heavy *h) {
    hn_value *w = hn_match_value(m, "w");
    bool has_bias = !hn_pass_is(hn_match_node(m, "c"), "MatMul");
    return heavy_describe(hn_match_node(m, "c"), w->constant,
                          has_bias ? hn_match_tensor(m, "b") : NULL, h) &&
           may_copy(m->ctx, w) && !hn_pass_pinned(m->ctx, m->root->outputs[0]);
}

static hone_status norm_behind(hone_error *err, hn_match *m, bool *out_done) {
    heavy h;
    affine a;
    if (!describe_match(m, &h)) return HONE_OK;
    int made = from_norm(m, m->root, h.channels, &a);
    if (made < 0) HN_NOMEM(err, "folding into weights");
    if (!made) return HONE_OK;
    hone_status status = bake(err, m, &h, &a, out_done);
    affine_free(&a);
    return status;
}

static hn_status elementwise_behind(hone_error *err, hn_match *m, bool constant_first,
                                    bool *out_done) {
    heavy h;
    affine a;
    int rank = hn_match_value(m, "c")->type.rank;
    if (rank < 2 || !describe_match(m, &h)) return HONE_OK;
    int axis = h.gemm || h.matmul ? rank - 1 : 1;
    int made = from_elementwise(m->root, hn_match_tensor(m, "k"), constant_first, rank, axis,
                                h.channels, &a);
    if (made < 0) HN_NOMEM(err, "folding into weights");
    if (!made) return HONE_OK;
    hone_status status = bake(err, m, &h, &a, out_done);
    affine_free(&a);
    return status;
}

static hone_status constant_behind(hone_error *err, hn_match *m, bool *out_done) {
    return elementwise_behind(err, m, false, out_done);
}

static hone_status subtracted_behind(hone_error *err, hn_match *m, bool *out_done) {
    return elementwise_behind(err, m, true, out_done);
}

static hone_status matmul_bias(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x"), *w = hn_match_value(m, "w"), *k = hn_match_value(m, "k");
    if (x->type.rank != 2 || w->type.rank != 2 || x->type.dtype != HN_F32 || !w->constant)
        return HONE_OK;
    hn_dim columns = w->type.dims[1];
    if (hn_pass_pinned(m->ctx, m->root->outputs[0])) return HONE_OK;
    const hn_tensor *bias = k->constant;
    bool fits = bias->shape.rank == 1 && hn_dim_is_const(columns) &&
                (bias->shape.dims[0] == columns || bias->shape.dims[0] == 1);
    if (!fits) return HONE_OK;
    hn_value *in[] = {x, w, k};
    hn_value *made = hn_pass_build(m->root, "Gemm", in, 3);
    if (!made) HN_NOMEM(err, "making a Gemm");
    made->producer->name = hn_match_node(m, "c")->name;
    made->producer->compute = hn_match_node(m, "c")->compute;
    hn_pass_replace(m->ctx, m->root->outputs[0], made);
    *out_done = true;
    return HONE_OK;
}

// One number behind a product, with only moves (and the bias) in between, as attention scales its
// queries and keys: the weights and the bias take it.
static hone_status scale_behind_moves(hone_error *err, hn_match *m, bool *out_done) {
    const hn_tensor *k = hn_match_tensor(m, "k");
    hn_value *y = hn_match_value(m, "y"), *at = y, *bias = NULL;
    hn_node *add = NULL;
    if (hn_tensor_count(k) != 1 || k->dtype != HN_F32 ||
        !hn_pass_same_type(y, m->root->outputs[0]) ||
        !hn_pass_can_replace(m->ctx, m->root->outputs[0], y))
        return HONE_OK;
    for (;; at = at->producer->inputs[0]) {
        if (!at->producer || !hn_pass_can_absorb(m->ctx, at)) return HONE_OK;
        if (!hn_pass_is(at->producer, "Transpose") && !hn_pass_is(at->producer, "Reshape")) break;
    }
    if (hn_pass_is(at->producer, "Add")) {
        add = at->producer;
        int which = hn_pass_constant(m->ctx, add->inputs[0]) ? 0 : 1;
        bias = add->inputs[which];
        at = add->inputs[1 - which];
        if (!hn_pass_constant(m->ctx, bias) || bias->type.dtype != HN_F32 || !at->producer ||
            !may_copy(m->ctx, bias) || !hn_pass_can_absorb(m->ctx, at))
            return HONE_OK;
    }
    hn_node *product = at->producer;
    hn_value *w = hn_pass_is(product, "MatMul") ? product->inputs[1] : NULL;
    if (!w || !hn_pass_constant(m->ctx, w) || w->type.dtype != HN_F32 || !may_copy(m->ctx, w))
        return HONE_OK;
    double factor = hn_tensor_get_f64(k, 0);
    hn_value *olds[] = {w, bias}, *news[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        hn_tensor scaled = {0};
        if (!olds[i]) continue;
        HN_TRY(hn_tensor_new(err, HN_F32, &olds[i]->constant->shape, &scaled));
        int64_t count = hn_tensor_count(&scaled);
        for (int64_t j = 0; j < count; j++)
            hn_tensor_set_f64(&scaled, j, hn_tensor_get_f64(olds[i]->constant, j) * factor);
        news[i] = hn_pass_add_constant(product, &scaled);
        if (!news[i]) HN_NOMEM(err, "folding into weights");
    }
    hn_node_set_input(product, 1, news[0]);
    if (add) hn_node_set_input(add, add->inputs[0] == bias ? 0 : 1, news[1]);
    hn_pass_replace(m->ctx, m->root->outputs[0], y);
    *out_done = true;
    return HONE_OK;
}

// ---- rewrites before a convolution --------------------------------------------------------------

static bool unpadded(const hn_node *conv) {
    hn_slice automatic = hn_node_string(conv, "auto_pad", "NOTSET");
    if (hn_slice_eq(automatic, "VALID")) return true;
    if (!hn_slice_eq(automatic, "NOTSET")) return false;
    int64_t count;
    const int64_t *pads = hn_node_ints(conv, "pads", &count);
    for (int64_t i = 0; i < count; i++)
        if (pads[i]) return false;
    return true;
}

// conv(x * scale + shift): the weights take the scale of their input channel, the bias the sum of
// weight * shift. With padding only where there is no shift: zeros are added after it.
static hn_status bake_before(hone_error *err, hn_match *m, const heavy *h, const affine *a,
                             bool *out_done) {
    bool shifted = false;
    for (int64_t i = 0; i < a->channels; i++)
        shifted |= a->shift[i] != 0;
    if (!finite_affine(a) || (shifted && !unpadded(h->node))) return HONE_OK;
    hn_tensor w = {0}, b = {0};
    hn_shape bias_shape = {1, {h->channels}};
    HN_TRY(hn_tensor_new(err, h->w->dtype, &h->w->shape, &w));
    hone_status status = hn_tensor_new(err, h->w->dtype, &bias_shape, &b);
    if (status == HONE_OK) {
        int64_t inner = h->w->shape.dims[1], kernel = hn_tensor_count(&w) / (h->channels * inner);
        for (int64_t c = 0; c < h->channels; c++) {
            double sum = h->b ? hn_tensor_get_f64(h->b, c) : 0;
            int64_t first = c / (h->channels / h->group) * inner; // input channel of the group
            for (int64_t i = 0; i < inner * kernel; i++) {
                int64_t at = c * inner * kernel + i, from = first + i / kernel;
                double value = hn_tensor_get_f64(h->w, at);
                hn_tensor_set_f64(&w, at, value * a->scale[from]);
                sum += value * a->shift[from];
            }
            hn_tensor_set_f64(&b, c, sum);
        }
        hn_value *made = rebuild(h, m->root, hn_match_value(m, "x"), &w, &b);
        if (!made)
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (folding into weights)");
        else
            hn_pass_replace(m->ctx, m->root->outputs[0], made);
        *out_done = made != NULL;
    }
    hn_tensor_free(&w);
    hn_tensor_free(&b);
    return status;
}

static bool describe_before(hn_match *m, heavy *h, int64_t *out_inputs) {
    hn_value *w = hn_match_value(m, "w");
    if (!heavy_describe(m->root, w->constant, hn_match_tensor(m, "b"), h)) return false;
    *out_inputs = w->constant->shape.dims[1] * h->group;
    return h->channels % h->group == 0 && w->constant->shape.dims[1] > 0 && may_copy(m->ctx, w) &&
           !hn_pass_pinned(m->ctx, m->root->outputs[0]);
}

static hone_status norm_before(hone_error *err, hn_match *m, bool *out_done) {
    heavy h;
    affine a;
    int64_t inputs;
    if (!describe_before(m, &h, &inputs)) return HONE_OK;
    int made = from_norm(m, hn_match_node(m, "bn"), inputs, &a);
    if (made < 0) HN_NOMEM(err, "folding into weights");
    if (!made) return HONE_OK;
    hone_status status = bake_before(err, m, &h, &a, out_done);
    affine_free(&a);
    return status;
}

static hone_status constant_before(hone_error *err, hn_match *m, bool *out_done) {
    heavy h;
    affine a;
    int64_t inputs;
    hn_value *x = hn_match_value(m, "x");
    if (x->type.rank < 3 || !describe_before(m, &h, &inputs)) return HONE_OK;
    int made = from_elementwise(hn_match_node(m, "e"), hn_match_tensor(m, "k"), false, x->type.rank,
                                1, inputs, &a);
    if (made < 0) HN_NOMEM(err, "folding into weights");
    if (!made) return HONE_OK;
    hone_status status = bake_before(err, m, &h, &a, out_done);
    affine_free(&a);
    return status;
}

static const hn_rule k_rules[] = {
    {"norm-behind",
     "BatchNormalization(Conv|ConvTranspose|Gemm:c(x, w!, b!?), gamma!, beta!, mean!, var!)",
     norm_behind},
    {"constant-behind", "Mul|Add|Div|Sub(Conv|ConvTranspose|Gemm:c(x, w!, b!?), k!)",
     constant_behind},
    {"subtracted-behind", "Sub(k!, Conv|ConvTranspose|Gemm:c(x, w!, b!?))", subtracted_behind},
    {"matmul-scale", "Mul|Div(MatMul:c(x, w!), k!)", constant_behind},
    {"scale-behind-moves", "Mul(y, k!)", scale_behind_moves},
    {"matmul-bias", "Add(MatMul:c(x, w), k!)", matmul_bias},
    {"norm-before", "Conv(BatchNormalization:bn(x, gamma!, beta!, mean!, var!), w!, b!?)",
     norm_before},
    {"constant-before", "Conv(Mul|Add|Div|Sub:e(x, k!), w!, b!?)", constant_before},
};

hone_status hn_pass_conv_bn(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_rules, HN_COUNT_OF(k_rules));
}
