// SPDX-License-Identifier: Apache-2.0
// Device passes on QuantizeLinear / DequantizeLinear pairs (QDQ models).
//
// qdq_move: DequantizeLinear moves down through what only moves elements, until it meets a
// QuantizeLinear of equal parameters and both go, or an op that can compute on integers. The values
// are the same: one scale and zero point for the whole tensor commute with moving its elements.
// qdq_fuse: DequantizeLinear -> Conv / MatMul / Gemm (with posts) [-> QuantizeLinear] becomes
// hn.QConv or hn.QMatMul (ops/internal.c), quantised residuals included.
// qdq_card: the same for cards, of signed data around zero only; what they do not take stays float.
// qdq_dynamic: a product of integers whose data was quantised by its own range at run time takes the
// same form, so that posts and qdq_fuse see it.
#include "passes/match.h"

static bool is_byte(hn_dtype dtype) {
    return dtype == HN_U8 || dtype == HN_I8;
}

static bool same_content(const hn_value *a, const hn_value *b) {
    if (a == b) return true;
    if (!a || !b || !a->constant || !b->constant) return false;
    const hn_tensor *x = a->constant, *y = b->constant;
    return x->dtype == y->dtype && x->bytes == y->bytes &&
           hn_tensor_count(x) == hn_tensor_count(y) && memcmp(x->data, y->data, x->bytes) == 0;
}

// What a DequantizeLinear or QuantizeLinear of 8-bit data with constant parameters says.
typedef struct quant {
    hn_value *q, *scale, *zero; // zero NULL: 0
    int64_t scales;             // 1: per tensor
    int64_t axis;
    hn_dtype dtype;
} quant;

// Parameters may be values of the graph; then `scales` is 1 where the type says so, else 0.
static bool read_any_quant(const hn_pass_ctx *ctx, const hn_node *node, quant *out) {
    bool dequantise = hn_pass_is(node, "DequantizeLinear");
    if (!dequantise && !hn_pass_is(node, "QuantizeLinear")) return false;
    quant r = {.q = dequantise ? node->inputs[0] : node->outputs[0],
               .scale = hn_in(node, 1),
               .zero = hn_in(node, 2),
               .axis = hn_op_int(node, "axis")};
    const hn_value *real = dequantise ? node->outputs[0] : node->inputs[0];
    if (!r.q || !real || real->type.dtype != HN_F32 || !is_byte(r.q->type.dtype)) return false;
    if (!r.scale || r.scale->type.dtype != HN_F32 || hn_op_int(node, "block_size")) return false;
    const hn_tensor *scale = hn_pass_constant(ctx, r.scale);
    r.scales = scale ? hn_tensor_count(scale) : r.scale->type.rank == 0;
    r.dtype = r.q->type.dtype;
    if (r.axis < 0 && r.q->type.rank >= 0) r.axis += r.q->type.rank;
    *out = r;
    return r.scales >= 1;
}

static bool read_quant(const hn_pass_ctx *ctx, const hn_node *node, quant *out) {
    quant r;
    if (!read_any_quant(ctx, node, &r) || !hn_pass_constant(ctx, r.scale) ||
        (r.zero && !hn_pass_constant(ctx, r.zero)))
        return false;
    *out = r;
    return true;
}

static bool zero_is_nothing(const hn_value *zero) {
    if (!zero) return true;
    for (int64_t i = 0; i < hn_tensor_count(zero->constant); i++)
        if (hn_tensor_get_i64(zero->constant, i)) return false;
    return true;
}

// Same mapping between integers and numbers, per tensor.
static bool same_quant(const quant *a, const quant *b) {
    if (a->scales != 1 || b->scales != 1 || a->dtype != b->dtype) return false;
    if (!same_content(a->scale, b->scale)) return false;
    return same_content(a->zero, b->zero) || (zero_is_nothing(a->zero) && zero_is_nothing(b->zero));
}

// ---- qdq_move -----------------------------------------------------------------------------------

#define MOVERS                                                                                     \
    "MaxPool|Transpose|Reshape|Flatten|Squeeze|Unsqueeze|Slice|Gather|Expand|Tile|DepthToSpace|"   \
    "SpaceToDepth|Identity|Resize"

// A DequantizeLinear of `q` like the one given, before `before`.
static hn_value *dequantise_like(hn_node *before, hn_value *q, const hn_node *like) {
    hn_value *in[] = {q, like->inputs[1], hn_in(like, 2)};
    hn_node *node = hn_pass_make(before, "DequantizeLinear", in, in[2] ? 3 : 2);
    if (!node || !hn_node_copy_attrs(node, like) || hn_infer_node(NULL, node) != HONE_OK)
        return NULL;
    return node->outputs[0];
}

// A copy of the node that reads integers in place of its first inputs.
static hn_value *copy_on(hn_node *node, hn_value *const *first, int count) {
    hn_node *copy = hn_graph_add_node(node->graph, node, node->op, node->op_type, node->domain,
                                      node->version, first, count, 1);
    if (!copy || !hn_node_copy_attrs(copy, node)) return NULL;
    for (int i = count; i < node->input_count; i++)
        if (!hn_node_add_input(copy, node->inputs[i])) return NULL;
    copy->name = node->name;
    if (hn_infer_node(NULL, copy) != HONE_OK) return NULL;
    return copy->outputs[0];
}

static bool one_output(const hn_node *node) {
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i] && !hn_value_unused(node->outputs[i])) return false;
    return node->outputs[0] != NULL;
}

static hone_status sink(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root, *dq = hn_match_node(m, "dq");
    quant q;
    if (!read_quant(m->ctx, dq, &q) || q.scales != 1 || !one_output(node)) return HONE_OK;
    // A crop brings in a number from outside, which is not the integer of that value.
    if (hn_pass_is(node, "Resize") &&
        (!hn_slice_eq(hn_op_string(node, "mode"), "nearest") ||
         hn_slice_eq(hn_op_string(node, "coordinate_transformation_mode"), "tf_crop_and_resize")))
        return HONE_OK;
    if (hn_pass_pinned(m->ctx, node->outputs[0])) return HONE_OK;
    hn_value *moved = copy_on(node, &q.q, 1);
    hn_value *real = moved ? dequantise_like(node, moved, dq) : NULL;
    if (!real) HN_NOMEM(err, "moving a DequantizeLinear");
    hn_pass_replace(m->ctx, node->outputs[0], real);
    *out_done = true;
    return HONE_OK;
}

// Zero padding of the numbers is padding by the zero point of the integers.
static hone_status sink_pad(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root, *dq = hn_match_node(m, "dq");
    hn_value *value = hn_match_value(m, "value");
    quant q;
    if (!read_quant(m->ctx, dq, &q) || q.scales != 1 || hn_pass_pinned(m->ctx, node->outputs[0]))
        return HONE_OK;
    bool constant = hn_slice_eq(hn_op_string(node, "mode"), "constant");
    const hn_tensor *number = hn_pass_constant(m->ctx, value);
    if (constant && value &&
        (!number || hn_tensor_count(number) != 1 || hn_tensor_get_f64(number, 0) != 0))
        return HONE_OK;
    hn_tensor zero;
    HN_TRY(hn_tensor_new(err, q.dtype, &(hn_shape){0}, &zero));
    hn_tensor_set_i64(&zero, 0, q.zero ? hn_tensor_get_i64(q.zero->constant, 0) : 0);
    hn_value *fill = hn_pass_add_constant(node, &zero);
    hn_value *in[] = {q.q, hn_in(node, 1), constant ? fill : NULL};
    hn_value *moved = fill ? copy_on(node, in, 3) : NULL;
    hn_value *real = moved ? dequantise_like(node, moved, dq) : NULL;
    if (!real) HN_NOMEM(err, "moving a DequantizeLinear");
    hn_pass_replace(m->ctx, node->outputs[0], real);
    *out_done = true;
    return HONE_OK;
}

static hone_status sink_concat(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root, *like = NULL;
    hn_value *inputs[64];
    quant first, q;
    if (node->input_count > 64 || !one_output(node) || hn_pass_pinned(m->ctx, node->outputs[0]))
        return HONE_OK;
    for (int i = 0; i < node->input_count; i++) {
        hn_node *dq = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (!hn_pass_is(dq, "DequantizeLinear") || !read_quant(m->ctx, dq, &q)) return HONE_OK;
        if (i == 0) first = q, like = dq;
        if (!same_quant(&first, &q)) return HONE_OK;
        inputs[i] = q.q;
    }
    if (!like) return HONE_OK;
    hn_value *moved = copy_on(node, inputs, node->input_count);
    hn_value *real = moved ? dequantise_like(node, moved, like) : NULL;
    if (!real) HN_NOMEM(err, "moving a DequantizeLinear");
    hn_pass_replace(m->ctx, node->outputs[0], real);
    *out_done = true;
    return HONE_OK;
}

// Each output dequantised for itself.
static hone_status sink_split(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root, *dq = hn_match_node(m, "dq");
    hn_value *outs[64];
    quant q;
    int count = node->output_count;
    if (!read_quant(m->ctx, dq, &q) || q.scales != 1 || count > 64) return HONE_OK;
    for (int i = 0; i < count; i++) {
        outs[i] = node->outputs[i];
        if (!outs[i] || hn_pass_pinned(m->ctx, outs[i])) return HONE_OK;
    }
    hn_node *copy = hn_graph_add_node(node->graph, node, node->op, node->op_type, node->domain, node->version,
                                      node->inputs, node->input_count, count);
    if (!copy || !hn_node_copy_attrs(copy, node)) HN_NOMEM(err, "moving a DequantizeLinear");
    hn_node_set_input(copy, 0, q.q);
    copy->name = node->name;
    HN_TRY(hn_infer_node(err, copy));
    for (int i = 0; i < count; i++) {
        hn_value *real = dequantise_like(node, copy->outputs[i], dq);
        if (!real) HN_NOMEM(err, "moving a DequantizeLinear");
        hn_value_replace(outs[i], real);
    }
    m->ctx->changes++;
    hn_pass_sweep(m->ctx, node);
    *out_done = true;
    return HONE_OK;
}

// Quantising what was put together is putting together what was quantised.
static hone_status quantise_parts(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *root = m->root, *concat = hn_match_node(m, "c");
    hn_value *parts[64];
    quant q;
    bool small = false;
    if (!read_quant(m->ctx, root, &q) || q.scales != 1 || concat->input_count > 64 ||
        hn_pass_pinned(m->ctx, root->outputs[0]))
        return HONE_OK;
    for (int i = 0; i < concat->input_count; i++)
        small = small || hn_pass_is(concat->inputs[i]->producer, "DequantizeLinear");
    if (!small) return HONE_OK;
    for (int i = 0; i < concat->input_count; i++) {
        hn_value *in[] = {concat->inputs[i], root->inputs[1], hn_in(root, 2)};
        hn_node *part = hn_pass_make(root, "QuantizeLinear", in, in[2] ? 3 : 2);
        if (!part || !hn_node_copy_attrs(part, root)) HN_NOMEM(err, "quantising parts");
        HN_TRY(hn_infer_node(err, part));
        parts[i] = part->outputs[0];
    }
    hn_node *whole = hn_graph_add_node(root->graph, root, concat->op, concat->op_type, concat->domain,
                                       concat->version, parts, concat->input_count, 1);
    if (!whole || !hn_node_copy_attrs(whole, concat)) HN_NOMEM(err, "quantising parts");
    whole->name = concat->name;
    HN_TRY(hn_infer_node(err, whole));
    hn_pass_replace(m->ctx, root->outputs[0], whole->outputs[0]);
    *out_done = true;
    return HONE_OK;
}

// Quantising what was just dequantised by the same numbers gives the integers back.
static hone_status cancel(hone_error *err, hn_match *m, bool *out_done) {
    (void)err;
    quant q, dq;
    hn_value *out = m->root->outputs[0];
    if (!read_quant(m->ctx, m->root, &q) || !read_quant(m->ctx, hn_match_node(m, "dq"), &dq))
        return HONE_OK;
    if (!same_quant(&q, &dq) || !hn_pass_can_replace(m->ctx, out, dq.q)) return HONE_OK;
    hn_pass_replace(m->ctx, out, dq.q);
    *out_done = true;
    return HONE_OK;
}

// Quantisation whose zero point is the least integer cuts negative numbers off by itself.
static hone_status drop_relu(hone_error *err, hn_match *m, bool *out_done) {
    (void)err;
    quant q;
    if (!read_quant(m->ctx, m->root, &q) || q.scales != 1) return HONE_OK;
    int64_t zero = q.zero ? hn_tensor_get_i64(q.zero->constant, 0) : 0;
    if (zero != (q.dtype == HN_U8 ? 0 : -128)) return HONE_OK;
    hn_node *relu = hn_match_node(m, "relu");
    hn_node_set_input(m->root, 0, hn_match_value(m, "x"));
    m->ctx->changes++;
    hn_pass_sweep(m->ctx, relu);
    *out_done = true;
    return HONE_OK;
}

static const hn_rule k_moves[] = {
    {"cancel", "QuantizeLinear(~DequantizeLinear:dq(x, s!, z!?), s2!, z2!?)", cancel},
    {"sink", MOVERS "(~DequantizeLinear:dq(x, s!, z!?), ...)", sink},
    {"sink-pad", "Pad(~DequantizeLinear:dq(x, s!, z!?), pads, value?, axes?)", sink_pad},
    {"sink-concat", "Concat(~DequantizeLinear(x, s!, z!?), ...)", sink_concat},
    {"sink-split", "Split(~DequantizeLinear:dq(x, s!, z!?), ...)", sink_split},
    {"quantise-parts", "QuantizeLinear(Concat:c(...), s!, z!?)", quantise_parts},
    {"relu-in-quantise", "QuantizeLinear(Relu:relu(x), s!, z!?)", drop_relu},
};

hone_status hn_pass_qdq_move(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_moves, HN_COUNT_OF(k_moves));
}

// ---- qdq_dynamic --------------------------------------------------------------------------------

// One for all columns, or one a column.
static bool for_columns(const hn_tensor *param, int64_t columns) {
    int64_t count = hn_tensor_count(param);
    return param->shape.rank <= 1 && (count == 1 || count == columns);
}

// The weight's zero points in the form of its scales; *out NULL: all are zero.
static hn_status zeros_like(hone_error *err, hn_node *at, hn_value *zero, const hn_value *scale,
                            hn_value **out) {
    *out = NULL;
    if (zero_is_nothing(zero)) return HONE_OK;
    hn_tensor wide;
    HN_TRY(hn_tensor_new(err, zero->type.dtype, &scale->constant->shape, &wide));
    bool one = hn_tensor_count(zero->constant) == 1;
    for (int64_t i = 0; i < hn_tensor_count(&wide); i++)
        hn_tensor_set_i64(&wide, i, hn_tensor_get_i64(zero->constant, one ? 0 : i));
    *out = hn_pass_add_constant(at, &wide);
    hn_tensor_free(&wide);
    if (!*out) HN_NOMEM(err, "reading a dynamically quantised product");
    return HONE_OK;
}

// (sum of (x - xz)(w - wz)) * (xs * ws) is the product of the dequantised operands.
static hone_status dynamic_product(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root, *product = hn_match_node(m, "product");
    hn_value *x = hn_match_value(m, "x"), *w = hn_match_value(m, "w");
    hn_value *x_scale = hn_match_value(m, "xs"), *x_zero = hn_match_value(m, "xz");
    hn_value *w_scale = hn_match_value(m, "ws"), *w_zero = hn_match_value(m, "wz");
    const hn_node *from = x->producer;
    if (!hn_pass_is(from, "DynamicQuantizeLinear") || from->outputs[0] != x ||
        hn_out(from, 1) != x_scale || hn_out(from, 2) != x_zero)
        return HONE_OK;
    const hn_tensor *weight = w->constant, *scale = w_scale->constant;
    if (!is_byte(weight->dtype) || weight->shape.rank != 2 || scale->dtype != HN_F32 ||
        node->outputs[0]->type.dtype != HN_F32)
        return HONE_OK;
    int64_t columns = weight->shape.dims[1];
    if (!for_columns(scale, columns) || (w_zero && !for_columns(w_zero->constant, columns)) ||
        (w_zero && hn_tensor_count(w_zero->constant) > hn_tensor_count(scale)) ||
        hn_pass_pinned(m->ctx, node->outputs[0]))
        return HONE_OK;
    hn_value *zeros;
    HN_TRY(zeros_like(err, node, w_zero, w_scale, &zeros));
    hn_value *in[] = {x, x_scale, x_zero}, *win[] = {w, w_scale, zeros};
    hn_value *real = hn_pass_build(node, "DequantizeLinear", in, 3);
    hn_node *weights = hn_pass_make(node, "DequantizeLinear", win, zeros ? 3 : 2);
    if (!real || !weights || !hn_node_set_int(weights, "axis", 1) ||
        hn_infer_node(NULL, weights) != HONE_OK)
        HN_NOMEM(err, "reading a dynamically quantised product");
    hn_value *factors[] = {real, weights->outputs[0]};
    hn_value *result = hn_pass_build(node, "MatMul", factors, 2);
    if (!result) HN_NOMEM(err, "reading a dynamically quantised product");
    result->producer->name = product->name;
    hn_pass_replace(m->ctx, node->outputs[0], result);
    *out_done = true;
    return HONE_OK;
}

static const hn_rule k_dynamic[] = {
    {"dynamic-product-1",
     "Mul(Cast(MatMulInteger:product(x, w!, xz, wz!?)), ~Mul(xs, ws!))", dynamic_product},
    {"dynamic-product-2",
     "Mul(Mul(Cast(MatMulInteger:product(x, w!, xz, wz!?)), xs), ws!)", dynamic_product},
};

hone_status hn_pass_qdq_dynamic(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_dynamic, HN_COUNT_OF(k_dynamic));
}

// ---- qdq_pool -----------------------------------------------------------------------------------
static hn_value *zero_or_none(hn_node *at, const quant *q);

// A mean of integers between its DequantizeLinear and QuantizeLinear.
static hone_status average(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *pool = hn_match_node(m, "p");
    const hn_value *x = hn_match_node(m, "dq")->outputs[0];
    quant q, dq;
    hn_shape shape;
    bool global = hn_pass_is(pool, "GlobalAveragePool");
    int64_t count, dilations;
    const int64_t *list = hn_node_ints(pool, "dilations", &dilations);
    if (!read_quant(m->ctx, m->root, &q) || !read_quant(m->ctx, hn_match_node(m, "dq"), &dq) || q.scales != 1 ||
        dq.scales != 1 || hn_pass_pinned(m->ctx, m->root->outputs[0]) || !hn_type_shape(&x->type, &shape) ||
        !hn_shape_count(&shape, &count) || count == 0 || shape.rank < 3 || shape.rank > 5)
        return HONE_OK;
    for (int i = 0; list && i < dilations; i++)
        if (list[i] != 1) return HONE_OK;
    hn_value *in[] = {dq.q, dq.scale, zero_or_none(m->root, &dq), q.scale, zero_or_none(m->root, &q)};
    hn_node *node = in[2] && in[4] ? hn_node_make(m->root->graph, m->root, hn_op_find("hn", "QAveragePool"), in, 5, 1) : NULL;
    if (!node || (global ? !hn_node_set_ints(node, "kernel_shape", shape.dims + 2, shape.rank - 2)
                         : !hn_node_copy_attrs(node, pool)))
        HN_NOMEM(err, "fusing a quantised mean");
    node->name = pool->name;
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(m->ctx, m->root->outputs[0], node->outputs[0]);
    *out_done = true;
    return HONE_OK;
}

static const hn_rule k_pools[] = {
    {"average-1", "QuantizeLinear(AveragePool:p(~DequantizeLinear:dq(x, s!, z!?)), s2!, z2!?)", average},
    {"average-2", "QuantizeLinear(GlobalAveragePool:p(~DequantizeLinear:dq(x, s!, z!?)), s2!, z2!?)", average},
};

hone_status hn_pass_qdq_pool(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_pools, HN_COUNT_OF(k_pools));
}

// ---- qdq_fuse -----------------------------------------------------------------------------------

enum { BASE_INPUTS = 7 };

typedef struct group {
    hn_node *node;
    bool conv, trans_b;
    quant x, w;
    hn_value *bias; // float32; NULL: none
} group;

// The bias of a quantised model is int32 with scale x_scale * w_scale; the kernel wants float32.
static hn_status float_bias(hone_error *err, const hn_pass_ctx *ctx, hn_node *at, hn_value *bias,
                            hn_value **out) {
    hn_node *dq = bias->producer;
    const hn_tensor *q =
        hn_pass_is(dq, "DequantizeLinear") ? hn_pass_constant(ctx, dq->inputs[0]) : NULL;
    const hn_tensor *scale = q ? hn_pass_constant(ctx, hn_in(dq, 1)) : NULL;
    const hn_value *zero = q ? hn_in(dq, 2) : NULL;
    *out = bias;
    if (!scale || (zero && !hn_pass_constant(ctx, zero))) return HONE_OK;
    int64_t count = hn_tensor_count(q), scales = hn_tensor_count(scale);
    int64_t zeros = zero ? hn_tensor_count(zero->constant) : 1;
    // One for all or one an element; with blocks the node stays as it is.
    if ((scales != 1 && scales != count) || (zeros != 1 && zeros != count)) return HONE_OK;
    hn_tensor real;
    HN_TRY(hn_tensor_new(err, HN_F32, &q->shape, &real));
    for (int64_t i = 0; i < count; i++) {
        int64_t offset =
            zero ? hn_tensor_get_i64(zero->constant, zeros == 1 ? 0 : i) : 0;
        ((float *)real.data)[i] = (float)((double)(hn_tensor_get_i64(q, i) - offset) *
                                          hn_tensor_get_f64(scale, scales == 1 ? 0 : i));
    }
    *out = hn_pass_add_constant(at, &real);
    hn_tensor_free(&real);
    if (!*out) HN_NOMEM(err, "fusing a quantised group");
    return HONE_OK;
}

static bool gemm_fits(const hn_node *node) {
    return hn_op_float(node, "alpha") == 1 && hn_op_float(node, "beta") == 1 &&
           !hn_op_int(node, "transA");
}

// Is this node such a group? Only looks.
// Does the device add these products up exactly (hn_backend.int8_weight_max)? Signed data is worse off
// there: libraries shift it to unsigned and halve the weights.
static bool exact_sums(const hn_pass_ctx *ctx, const group *g, const hn_tensor *w) {
    int max = ctx->int8_weight_max;
    if (!max) return true;
    const hn_tensor *zero = g->w.zero ? hn_pass_constant(ctx, g->w.zero) : NULL;
    if (g->x.q->type.dtype != HN_U8 || (g->w.zero && !zero)) return false;
    int64_t count = hn_tensor_count(w), zeros = zero ? hn_tensor_count(zero) : 0, inner = 1;
    for (int i = g->w.axis + 1; i < w->shape.rank; i++)
        inner *= w->shape.dims[i];
    for (int64_t i = 0; i < count; i++) {
        int64_t v = hn_tensor_get_i64(w, i);
        if (zeros) v -= hn_tensor_get_i64(zero, zeros > 1 ? i / inner % zeros : 0);
        if (v < -max || v > max) return false;
    }
    return true;
}

static bool describe(const hn_pass_ctx *ctx, hn_node *node, group *out) {
    group g = {.node = node, .conv = hn_pass_is(node, "Conv")};
    bool gemm = hn_pass_is(node, "Gemm");
    if (!g.conv && !gemm && !hn_pass_is(node, "MatMul")) return false;
    int base = node->post_count ? node->base_input_count : node->input_count;
    hn_node *x = node->inputs[0]->producer, *w = node->inputs[1]->producer;
    if (!x || !w || !hn_pass_is(x, "DequantizeLinear") || !hn_pass_is(w, "DequantizeLinear"))
        return false;
    // A product's data may have a scale and zero point of each run.
    bool known = g.conv ? read_quant(ctx, x, &g.x) : read_any_quant(ctx, x, &g.x);
    if (!known || !read_quant(ctx, w, &g.w) || g.x.scales != 1) return false;
    const hn_tensor *weights = hn_pass_constant(ctx, g.w.q);
    if (!weights || (!g.conv && weights->shape.rank != 2) || (gemm && !gemm_fits(node)))
        return false;
    g.trans_b = gemm && hn_op_int(node, "transB");
    int axis = g.conv || g.trans_b ? 0 : 1;
    if (g.w.scales != 1 && (g.w.axis != axis || g.w.scales != weights->shape.dims[axis]))
        return false;
    if (!exact_sums(ctx, &g, weights)) return false;
    g.bias = base > 2 ? node->inputs[2] : NULL;
    if (g.bias) {
        hn_shape shape;
        int64_t channels = weights->shape.dims[axis];
        if (g.bias->type.dtype != HN_F32 || !hn_type_shape(&g.bias->type, &shape) ||
            shape.rank != 1 || shape.dims[0] != channels)
            return false;
    }
    *out = g;
    return true;
}

// Constant int8 weights [N, K] as [K, N].
static hn_value *transposed(hn_node *at, const hn_tensor *w) {
    hn_tensor out;
    int64_t n = w->shape.dims[0], k = w->shape.dims[1];
    if (hn_tensor_new(NULL, w->dtype, &(hn_shape){2, {k, n}}, &out) != HONE_OK) return NULL;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            ((uint8_t *)out.data)[j * n + i] = ((const uint8_t *)w->data)[i * k + j];
    hn_value *value = hn_pass_add_constant(at, &out);
    hn_tensor_free(&out);
    return value;
}

// Kernels always get zero points.
static hn_value *zero_or_none(hn_node *at, const quant *q) {
    hn_tensor zero;
    if (q->zero) return q->zero;
    if (hn_tensor_new(NULL, q->dtype, &(hn_shape){0}, &zero) != HONE_OK) return NULL;
    hn_tensor_set_i64(&zero, 0, 0);
    hn_value *value = hn_pass_add_constant(at, &zero);
    hn_tensor_free(&zero);
    return value;
}

static bool add_operand(hn_node *node, hn_value *value, int *out_index) {
    *out_index = node->input_count;
    return hn_node_add_input(node, value);
}

// The posts of the float node, with residuals read as integers where they come that way.
static hn_status carry_posts(hone_error *err, const hn_pass_ctx *ctx, const hn_node *from,
                             hn_node *to) {
    for (int i = 0; i < from->post_count; i++) {
        hn_post post = from->post[i];
        bool ok = true;
        if (post.input >= 0) {
            hn_value *operand = from->inputs[post.input];
            quant q;
            if (operand->producer && hn_pass_is(operand->producer, "DequantizeLinear") &&
                read_quant(ctx, operand->producer, &q) && q.scales == 1 && !q.q->constant) {
                ok = add_operand(to, q.q, &post.input) && add_operand(to, q.scale, &post.scale) &&
                     (!q.zero || add_operand(to, q.zero, &post.zero));
            } else {
                ok = add_operand(to, operand, &post.input);
            }
        }
        if (!ok) HN_NOMEM(err, "fusing a quantised group");
        to->post[to->post_count++] = post;
    }
    return HONE_OK;
}

// A QuantizeLinear that alone reads the node's output ends its posts.
static hn_status absorb_quantise(hone_error *err, hn_pass_ctx *ctx, hn_node *node) {
    hn_value *out = node->outputs[0];
    quant q;
    if (node->post_count == HN_MAX_POST || !hn_pass_can_absorb(ctx, out)) return HONE_OK;
    hn_node *step = out->uses.data[0].node;
    if (!hn_pass_is(step, "QuantizeLinear") || !read_quant(ctx, step, &q) || q.scales != 1 ||
        hn_pass_pinned(ctx, q.q))
        return HONE_OK;
    hn_post post = {
        .op = step->op, .op_type = "QuantizeLinear", .input = -1, .scale = -1, .zero = -1};
    if (!add_operand(node, q.scale, &post.scale) ||
        (q.zero && !add_operand(node, q.zero, &post.zero)))
        HN_NOMEM(err, "fusing a quantised group");
    return hn_pass_absorb(err, ctx, node, step, &post);
}

static hn_status fuse(hone_error *err, hn_pass_ctx *ctx, const group *g) {
    hn_node *old = g->node;
    hn_value *w = g->trans_b ? transposed(old, g->w.q->constant) : g->w.q, *bias = NULL;
    if (!w) HN_NOMEM(err, "fusing a quantised group");
    if (g->bias) HN_TRY(float_bias(err, ctx, old, g->bias, &bias));
    hn_value *in[BASE_INPUTS] = {g->x.q, g->x.scale, zero_or_none(old, &g->x),
                                 w,      g->w.scale, zero_or_none(old, &g->w),
                                 bias};
    if (!in[2] || !in[5]) HN_NOMEM(err, "fusing a quantised group");
    hn_op op = hn_op_find("hn", g->conv ? "QConv" : "QMatMul");
    hn_node *node = hn_node_make(old->graph, old, op, in, BASE_INPUTS, 1);
    if (!node || (g->conv && !hn_node_copy_attrs(node, old)))
        HN_NOMEM(err, "fusing a quantised group");
    node->name = old->name;
    node->compute = old->compute;
    node->base_input_count = BASE_INPUTS;
    HN_TRY(carry_posts(err, ctx, old, node));
    node->outputs[0]->type = old->outputs[0]->type;
    hn_pass_replace(ctx, old->outputs[0], node->outputs[0]);
    HN_TRY(absorb_quantise(err, ctx, node));
    if (!node->post_count) node->base_input_count = 0;
    return HONE_OK;
}

// ---- qdq_card -----------------------------------------------------------------------------------
// What the tensor cores take: signed integers around zero on both sides, 16 of them side by side.
const char *hn_qdq_card_refuses(const hn_node *node, const hn_tensor *weight) {
    bool conv = hn_pass_is(node, "Conv");
    if (conv && hn_op_int(node, "group") != 1) return "grouped convolutions have no integer form on cards";
    if (weight->shape.rank < 2 || weight->shape.rank > 5) return "no integer form of this rank on cards";
    int64_t depth = weight->shape.dims[conv ? 1 : hn_pass_is(node, "Gemm") && hn_op_int(node, "transB") ? 1 : 0];
    if (depth % 16) return conv ? "its input channels are no multiple of 16" : "its depth is no multiple of 16";
    return NULL;
}

static const char *card_refuses(const hn_pass_ctx *ctx, const group *g) {
    const hn_tensor *zero = g->x.zero ? hn_pass_constant(ctx, g->x.zero) : NULL;
    if (g->x.dtype != HN_I8 || g->w.dtype != HN_I8) return "its integers are unsigned";
    if (!hn_pass_constant(ctx, g->x.scale) || (g->x.zero && !zero)) return "its scale is known at run time only";
    if (!zero_is_nothing(g->x.zero) || !zero_is_nothing(g->w.zero)) return "its zero point is not 0";
    return hn_qdq_card_refuses(g->node, g->w.q->constant);
}

// Steps hang behind a layer only where it becomes one: a float layer's are the business of other passes.
static hone_status card_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    HN_VEC(hn_node *) nodes = {0};
    hone_status status = HONE_OK;
    for (hn_node *node = graph->first; node && status == HONE_OK; node = node->next)
        if ((hn_pass_is(node, "Conv") || hn_pass_is(node, "Gemm") || hn_pass_is(node, "MatMul")) &&
            !hn_vec_push(&nodes, node))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (fusing quantised groups)");
    for (size_t i = 0; i < nodes.count && status == HONE_OK; i++) {
        group g;
        hn_node *node = nodes.data[i];
        if (!node->outputs[0] || hn_pass_pinned(ctx, node->outputs[0]) || !describe(ctx, node, &g)) continue;
        const char *why = card_refuses(ctx, &g);
        if (why) {
            hn_log(HN_LOG_INFO, "%s '%s' is quantised and runs as float on the card: %s", node->op_type, node->name, why);
            continue;
        }
        status = hn_pass_absorb_steps(err, ctx, node);
        if (status == HONE_OK && describe(ctx, node, &g)) status = fuse(err, ctx, &g);
    }
    hn_vec_free(&nodes);
    return status;
}

hone_status hn_pass_qdq_card(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, card_graph);
}

static hone_status fuse_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    // From the end: a group that goes takes only nodes before it, and fusing moves nodes down.
    HN_VEC(hn_node *) nodes = {0};
    hone_status status = HONE_OK;
    for (hn_node *node = graph->first; node && status == HONE_OK; node = node->next)
        if ((hn_pass_is(node, "Conv") || hn_pass_is(node, "Gemm") || hn_pass_is(node, "MatMul")) &&
            !hn_vec_push(&nodes, node))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (fusing quantised groups)");
    for (size_t i = 0; i < nodes.count && status == HONE_OK; i++) {
        group g;
        if (nodes.data[i]->outputs[0] && !hn_pass_pinned(ctx, nodes.data[i]->outputs[0]) &&
            describe(ctx, nodes.data[i], &g))
            status = fuse(err, ctx, &g);
    }
    hn_vec_free(&nodes);
    return status;
}

hone_status hn_pass_qdq_fuse(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, fuse_graph);
}
