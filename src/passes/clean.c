// SPDX-License-Identifier: Apache-2.0
// Operators that change nothing, and chains of casts, transposes and views that one can do.
#include "passes/match.h"

// The output becomes x where the interface allows it.
static hone_status drop_to(hn_match *m, hn_value *x, bool *out_done) {
    hn_value *out = m->root->outputs[0];
    if (!out || !x || !hn_pass_can_replace(m->ctx, out, x)) return HONE_OK;
    for (int i = 1; i < m->root->output_count; i++)
        if (m->root->outputs[i] && !hn_value_unused(m->root->outputs[i])) return HONE_OK;
    hn_pass_replace(m->ctx, out, x);
    *out_done = true;
    return HONE_OK;
}

static hone_status identity(hone_error *err, hn_match *m, bool *out_done) {
    (void)err;
    return drop_to(m, hn_match_value(m, "x"), out_done);
}

// A constant input that takes part in broadcasting may enlarge the result: types must agree.
static hone_status neutral(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x");
    return hn_pass_same_type(x, m->root->outputs[0]) ? identity(err, m, out_done) : HONE_OK;
}

static hone_status dropout(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *training = hn_match_value(m, "training");
    const hn_tensor *flag = hn_pass_constant(m->ctx, training);
    if (training && (!flag || hn_tensor_count(flag) != 1 || hn_tensor_get_i64(flag, 0)))
        return HONE_OK;
    return identity(err, m, out_done);
}

// ---- casts --------------------------------------------------------------------------------------

static bool plain_float(hn_dtype t) {
    return t == HN_F16 || t == HN_BF16 || t == HN_F32 || t == HN_F64;
}

// Bits of an integer magnitude that a floating type holds exactly.
static int mantissa(hn_dtype t) {
    return t == HN_F64 ? 53 : t == HN_F32 ? 24 : t == HN_F16 ? 11 : 8;
}

// Every value of `from` is a value of `to`.
static bool lossless(hn_dtype from, hn_dtype to) {
    if (from == to) return true;
    int bits = hn_dtype_bits(from);
    if (from == HN_BOOL) return hn_dtype_is_int(to) || plain_float(to);
    if (plain_float(from))
        return to == HN_F64 || (to == HN_F32 && (from == HN_F16 || from == HN_BF16));
    if (!hn_dtype_is_int(from)) return false;
    int magnitude = hn_dtype_is_signed(from) ? bits - 1 : bits;
    if (plain_float(to)) return magnitude <= mantissa(to) && to != HN_F16;
    if (!hn_dtype_is_int(to) || (hn_dtype_is_signed(from) && !hn_dtype_is_signed(to))) return false;
    return magnitude <= hn_dtype_bits(to) - hn_dtype_is_signed(to);
}

static hone_status cast_same(hone_error *err, hn_match *m, bool *out_done) {
    hn_dtype from = hn_match_value(m, "x")->type.dtype;
    if (from == HN_NONE || hn_node_int(m->root, "to", 0) != from) return HONE_OK;
    return identity(err, m, out_done);
}

static hone_status cast_cast(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *inner = hn_match_node(m, "inner");
    hn_value *x = hn_match_value(m, "x");
    hn_dtype middle = hn_dtype_from_onnx(hn_node_int(inner, "to", 0));
    if (x->type.dtype == HN_NONE || !lossless(x->type.dtype, middle)) return HONE_OK;
    if (hn_node_int(m->root, "to", 0) == x->type.dtype) return identity(err, m, out_done);
    hn_node_set_input(m->root, 0, x);
    m->ctx->changes++;
    hn_pass_sweep(m->ctx, inner);
    *out_done = true;
    return HONE_OK;
}

// ---- transposes ---------------------------------------------------------------------------------

// The permutation, the default one (reversal) included; false where it does not fit the rank.
static bool permutation(const hn_node *node, int64_t *out, int *out_rank) {
    int64_t count;
    const int64_t *perm = hn_node_ints(node, "perm", &count);
    int rank = node->inputs[0]->type.rank;
    if (!perm && rank < 0) return false;
    if (!perm) count = rank;
    if (count > HN_MAX_RANK || (rank >= 0 && count != rank)) return false;
    for (int i = 0; i < count; i++) {
        out[i] = perm ? perm[i] : count - 1 - i;
        if (out[i] < 0 || out[i] >= count) return false;
    }
    *out_rank = (int)count;
    return true;
}

static hone_status transpose_none(hone_error *err, hn_match *m, bool *out_done) {
    int64_t perm[HN_MAX_RANK];
    int rank;
    if (!permutation(m->root, perm, &rank)) return HONE_OK;
    for (int i = 0; i < rank; i++)
        if (perm[i] != i) return HONE_OK;
    return identity(err, m, out_done);
}

static hone_status transpose_transpose(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *inner = hn_match_node(m, "inner");
    int64_t outer[HN_MAX_RANK], first[HN_MAX_RANK], both[HN_MAX_RANK];
    int rank, inner_rank;
    if (!permutation(m->root, outer, &rank) || !permutation(inner, first, &inner_rank) ||
        rank != inner_rank)
        return HONE_OK;
    for (int i = 0; i < rank; i++)
        both[i] = first[outer[i]];
    if (!hn_node_set_ints(m->root, "perm", both, rank)) HN_NOMEM(err, "merging transposes");
    hn_node_set_input(m->root, 0, hn_match_value(m, "x"));
    m->ctx->changes++;
    hn_pass_sweep(m->ctx, inner);
    *out_done = true;
    return HONE_OK;
}

// ---- views --------------------------------------------------------------------------------------

#define VIEWS "Reshape|Squeeze|Unsqueeze|Flatten"

static hone_status same_shape(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root;
    hn_value *x = hn_match_value(m, "x");
    if (!node->outputs[0] || !hn_pass_same_type(x, node->outputs[0])) return HONE_OK;
    int64_t ints[2 * HN_MAX_RANK];
    int count = 0;
    if (hn_pass_is(node, "Pad")) { // pads of +1 and -1 keep the shape as well
        if (!hn_value_ints(m->ctx->module, hn_in(node, 1), ints, 2 * HN_MAX_RANK, &count))
            return HONE_OK;
        for (int i = 0; i < count; i++)
            if (ints[i]) return HONE_OK;
    }
    if (hn_pass_is(node, "Slice") && hn_in(node, 4)) {
        if (!hn_value_ints(m->ctx->module, hn_in(node, 4), ints, HN_MAX_RANK, &count))
            return HONE_OK;
        for (int i = 0; i < count; i++)
            if (ints[i] != 1) return HONE_OK;
    }
    return identity(err, m, out_done);
}

// Shape operand of a Reshape that gives this type: numbers, one -1 for a symbolic dim.
static bool shape_operand(const hn_type *type, int64_t *out) {
    int unknown = 0;
    bool zero = false;
    if (type->rank < 0) return false;
    for (int i = 0; i < type->rank; i++) {
        bool is_const = hn_dim_is_const(type->dims[i]);
        unknown += !is_const;
        zero |= type->dims[i] == 0;
        out[i] = is_const ? type->dims[i] : -1;
    }
    return unknown <= 1 && !zero;
}

static hone_status view_of_view(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root, *inner = hn_match_node(m, "inner");
    hn_value *x = hn_match_value(m, "x"), *out = node->outputs[0];
    if (hn_pass_same_type(x, out)) return identity(err, m, out_done);
    int64_t shape[HN_MAX_RANK], given[HN_MAX_RANK];
    int count;
    if (!shape_operand(&out->type, shape)) return HONE_OK;
    if (hn_pass_is(node, "Reshape")) {
        // Its own operand serves unless it copies dims (0) from the value that goes.
        bool copies = !hn_value_ints(m->ctx->module, hn_in(node, 1), given, HN_MAX_RANK, &count);
        for (int i = 0; !copies && i < count; i++)
            copies = given[i] == 0;
        if (!copies) {
            hn_node_set_input(node, 0, x);
            m->ctx->changes++;
            hn_pass_sweep(m->ctx, inner);
            *out_done = true;
            return HONE_OK;
        }
    }
    if (!hn_pass_can_replace(m->ctx, out, x) && hn_pass_pinned(m->ctx, out)) return HONE_OK;
    hn_value *operand = hn_graph_add_const_i64(node->graph, shape, out->type.rank, false);
    hn_value *in[] = {x, operand};
    hn_value *made = operand ? hn_pass_build(node, "Reshape", in, 2) : NULL;
    if (!made) HN_NOMEM(err, "merging views");
    hn_pass_replace(m->ctx, out, made);
    *out_done = true;
    return HONE_OK;
}

// Indices that name each place of the leading `depth` dims once, in order: the result is a view. Exporters
// write masks of attention so.
static hone_status gather_all(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *node = m->root;
    hn_value *x = hn_match_value(m, "x"), *out = node->outputs[0];
    const hn_tensor *index = hn_match_tensor(m, "i");
    bool nd = hn_pass_is(node, "GatherND");
    int axis = 0, rank = x->type.rank, last = index->shape.rank - 1;
    if (rank < 1 || (nd ? last < 0 || hn_op_int(node, "batch_dims") != 0
                        : !hn_axis_normalise(hn_op_int(node, "axis"), rank, &axis) || axis != 0))
        return HONE_OK;
    int64_t depth = nd ? index->shape.dims[last] : 1, places = 1, shape[HN_MAX_RANK];
    if (depth < 1 || depth > rank || hn_pass_pinned(m->ctx, out)) return HONE_OK;
    for (int64_t d = 0; d < depth; d++)
        if (!hn_dim_is_const(x->type.dims[d]) || !hn_mul_i64(places, x->type.dims[d], &places))
            return HONE_OK;
    if (places < 1 || hn_tensor_count(index) / depth != places || !shape_operand(&out->type, shape))
        return HONE_OK;
    for (int64_t place = 0; place < places; place++)
        for (int64_t d = depth - 1, rest = place; d >= 0; rest /= x->type.dims[d--])
            if (hn_tensor_get_i64(index, place * depth + d) != rest % x->type.dims[d]) return HONE_OK;
    hn_value *operand = hn_graph_add_const_i64(node->graph, shape, out->type.rank, false);
    hn_value *in[] = {x, operand};
    hn_value *made = operand ? hn_pass_build(node, "Reshape", in, 2) : NULL;
    if (!made) HN_NOMEM(err, "replacing a gather");
    hn_pass_replace(m->ctx, out, made);
    *out_done = true;
    return HONE_OK;
}

// Leading dims merged, the last two swapped, leading dims split again: one Transpose.
static hone_status batched_transpose(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x"), *out = m->root->outputs[0];
    hn_node *swap = hn_match_node(m, "swap");
    int64_t perm[HN_MAX_RANK];
    int rank = x->type.rank, inner_rank;
    if (rank < 4 || out->type.rank != rank || hn_pass_pinned(m->ctx, out)) return HONE_OK;
    if (!permutation(swap, perm, &inner_rank) || inner_rank != 3 || perm[0] != 0 || perm[1] != 2)
        return HONE_OK;
    const hn_type *merged = &swap->inputs[0]->type;
    for (int i = 0; i < rank; i++) {
        int from = i == rank - 1 ? rank - 2 : i == rank - 2 ? rank - 1 : i;
        if (out->type.dims[i] != x->type.dims[from] || out->type.dims[i] == HN_DIM_FAILED)
            return HONE_OK;
        perm[i] = from;
    }
    if (merged->rank != 3 || merged->dims[1] != x->type.dims[rank - 2] ||
        merged->dims[2] != x->type.dims[rank - 1])
        return HONE_OK;
    hn_node *made = hn_pass_make(m->root, "Transpose", &x, 1);
    if (!made || !hn_node_set_ints(made, "perm", perm, rank)) HN_NOMEM(err, "merging a transpose");
    HN_TRY(hn_infer_node(err, made));
    hn_pass_replace(m->ctx, out, made->outputs[0]);
    *out_done = true;
    return HONE_OK;
}

static const hn_rule k_rules[] = {
    {"identity", "Identity(x)", identity},
    {"dropout", "Dropout(x, ratio?, training?)", dropout},
    {"single-input", "Concat|Sum|Max|Min|Mean(x)", identity},
    {"cast-same", "Cast(x)", cast_same},
    {"cast-cast", "Cast(~Cast:inner(x))", cast_cast},
    {"transpose-none", "Transpose(x)", transpose_none},
    {"transpose-transpose", "Transpose(~Transpose:inner(x))", transpose_transpose},
    {"same-shape", VIEWS "|Expand|Tile|Slice|Pad(x, ...)", same_shape},
    {"batched-transpose", "Reshape(Transpose:swap(Reshape(x, s)), t)", batched_transpose},
    {"view-of-view", VIEWS "(~" VIEWS ":inner(x, ...), ...)", view_of_view},
    {"gather-all", "Gather|GatherND(x, i!)", gather_all},
    {"add-zero", "Add(x, 0)", neutral},
    {"subtract-zero", "Sub(x, 0)", neutral},
    {"times-one", "Mul(x, 1)", neutral},
    {"over-one", "Div(x, 1)", neutral},
    {"power-one", "Pow(x, 1)", neutral},
};

hone_status hn_pass_clean(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_rules, HN_COUNT_OF(k_rules));
}
