// SPDX-License-Identifier: Apache-2.0
// Device pass: softmax attention and rotary embedding, as exporters write them out, become one step each
// (hn.Attention and hn.RotateHalf, ops/attention_step.c).
//
//   scores = q kT  [scaled by constants, on either side of the product]  [+ mask]
//   w = Softmax(scores)  [Where(IsNaN(w), 0, w)]
//   y = w v  [transposed to the heads behind the rows]
//
// Transposes of the operands that only bring the heads forward are read through, so are keys and values
// repeated for groups of query heads. All values in between must be used here only. `attention` takes float32,
// `attention_half` 16-bit floats with heads of at most HALF_SIZE numbers, what the cards' kernel is for.
#include "passes/match.h"
#include <math.h>

#define HALF_SIZE 128

typedef struct found {
    hn_node *softmax, *last; // last: the product with the values
    hn_value *q, *k, *v, *mask, *y;
    int64_t packed;
    double scale;
    bool zero_nan;
    hn_dim batch, heads, queries, keys;
} found;

static bool is_half(hn_dtype dtype) { return dtype == HN_F16 || dtype == HN_BF16; }
static bool is_narrow_float(hn_dtype dtype) { return dtype == HN_F32 || is_half(dtype); }

static bool inner(const hn_pass_ctx *ctx, const hn_value *value, size_t uses) {
    return value->uses.count == uses && !value->graph_output_uses && !hn_pass_pinned(ctx, value) &&
           is_narrow_float(value->type.dtype);
}

static bool scalar(const hn_pass_ctx *ctx, const hn_value *value, double *out) {
    const hn_tensor *t = value ? hn_pass_constant(ctx, value) : NULL;
    if (!t || !is_narrow_float(t->dtype) || hn_tensor_count(t) != 1) return false;
    *out = hn_tensor_get_f64(t, 0);
    return isfinite(*out);
}

static bool perm_is(const hn_node *node, const int64_t *want, int rank) {
    int64_t count;
    const int64_t *perm = hn_pass_is(node, "Transpose") ? hn_node_ints(node, "perm", &count) : NULL;
    if (!perm || count != rank) return false;
    for (int i = 0; i < rank; i++)
        if (perm[i] != want[i]) return false;
    return true;
}
static const int64_t k_heads_behind[] = {0, 2, 1, 3}, k_keys_last[] = {0, 1, 3, 2},
                     k_both[] = {0, 2, 3, 1}, k_keys_last3[] = {0, 2, 1};

// Reads through multiplications and divisions by one number.
static hn_value *unscaled(const hn_pass_ctx *ctx, hn_value *value, double *scale) {
    for (;;) {
        hn_node *node = value->producer;
        double factor;
        if (!node || node->post_count || !inner(ctx, value, 1)) return value;
        if (hn_pass_is(node, "Mul") && scalar(ctx, node->inputs[1], &factor)) *scale *= factor;
        else if (hn_pass_is(node, "Mul") && scalar(ctx, node->inputs[0], &factor)) {
            *scale *= factor;
            value = node->inputs[1];
            continue;
        } else if (hn_pass_is(node, "Div") && scalar(ctx, node->inputs[1], &factor) && factor != 0)
            *scale /= factor;
        else return value;
        value = node->inputs[0];
    }
}

static bool dims_are(const hn_value *v, int rank, const hn_dim *dims) {
    if (v->type.rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (v->type.dims[i] != dims[i]) return false;
    return true;
}

// [batch, heads, keys, size] that repeats each of fewer heads: what is repeated, [batch, fewer, ..].
static hn_value *ungrouped(hn_value *value, const hn_dim *d) {
    hn_node *reshape = value->producer;
    hn_value *wide = hn_pass_is(reshape, "Reshape") ? reshape->inputs[0] : NULL;
    hn_node *expand = wide ? wide->producer : NULL;
    if (!hn_pass_is(expand, "Expand") || wide->type.rank != 5) return NULL;
    hn_value *narrow = expand->inputs[0];
    const hn_dim *w = wide->type.dims, fewer = w[1];
    hn_dim one[] = {d[0], fewer, 1, d[2], d[3]}, all[] = {d[0], fewer, w[2], d[2], d[3]};
    if (!dims_are(narrow, 5, one) || !dims_are(wide, 5, all) || !hn_dim_is_const(fewer) ||
        !hn_dim_is_const(w[2]) || !hn_dim_is_const(d[1]) || fewer * w[2] != d[1])
        return NULL;
    hn_node *step = narrow->producer;
    hn_dim want[] = {d[0], fewer, d[2], d[3]};
    if (!step || (!hn_pass_is(step, "Unsqueeze") && !hn_pass_is(step, "Reshape")) ||
        !dims_are(step->inputs[0], 4, want))
        return NULL;
    return step->inputs[0];
}

// A value [batch, heads, rows, size], or what it is the transpose of; *packed gets the bit then.
static hn_value *heads_behind(hn_value *value, int64_t bit, int64_t *packed) {
    if (!perm_is(value->producer, k_heads_behind, 4)) return value;
    *packed |= bit;
    return value->producer->inputs[0];
}

// Keys from their transpose, the right operand of the first product.
static hn_value *keys_of(hn_value *kt, int64_t *packed, bool *out_grouped) {
    hn_node *node = kt->producer;
    int rank = kt->type.rank;
    if (!node || node->post_count) return NULL;
    if (rank == 3) return perm_is(node, k_keys_last3, 3) ? node->inputs[0] : NULL;
    if (perm_is(node, k_both, 4)) {
        *packed |= 2;
        return node->inputs[0];
    }
    const hn_dim *t = kt->type.dims;
    hn_dim d[] = {t[0], t[1], t[3], t[2]};
    hn_value *k = NULL;
    if (perm_is(node, k_keys_last, 4)) {
        k = node->inputs[0];
    } else if (hn_pass_is(node, "Reshape") && perm_is(node->inputs[0]->producer, k_keys_last3, 3)) {
        // Batch and heads made one around the transposition. The inner Reshape may hide a group.
        hn_value *flat = node->inputs[0]->producer->inputs[0];
        hn_value *grouped = ungrouped(flat, d);
        if (grouped) {
            *out_grouped = true;
            return heads_behind(grouped, 2, packed);
        }
        hn_node *reshape = flat->producer;
        if (hn_pass_is(reshape, "Reshape") && dims_are(reshape->inputs[0], 4, d)) k = reshape->inputs[0];
    }
    if (!k) return NULL;
    hn_value *grouped = ungrouped(k, d);
    if (grouped) *out_grouped = true;
    return heads_behind(grouped ? grouped : k, 2, packed);
}

// The first product and the mask from what the softmax reads.
static bool read_scores(const hn_pass_ctx *ctx, hn_value *value, found *f, hn_node **out_product) {
    f->scale = 1;
    hn_node *add = value->producer;
    hn_value *scores = value;
    if (!inner(ctx, value, 1)) return false;
    if (hn_pass_is(add, "Add") && !add->post_count) {
        scores = NULL;
        for (int i = 0; i < 2 && !scores; i++) {
            double scale = 1;
            hn_value *one = unscaled(ctx, add->inputs[i], &scale);
            if (!hn_pass_is(one->producer, "MatMul") || !hn_pass_same_type(add->inputs[i], value)) continue;
            if (!inner(ctx, add->inputs[i], 1)) continue;
            f->mask = add->inputs[1 - i];
            scores = add->inputs[i];
        }
        if (!scores || f->mask->type.dtype != value->type.dtype || f->mask->type.rank < 0 ||
            f->mask->type.rank > value->type.rank)
            return false;
    }
    scores = unscaled(ctx, scores, &f->scale);
    hn_node *product = scores->producer;
    if (!hn_pass_is(product, "MatMul") || product->post_count || !inner(ctx, scores, 1)) return false;
    *out_product = product;
    return true;
}

// The product with the values, and the guard against NaN before it.
static bool read_weights(const hn_pass_ctx *ctx, hn_value *w, found *f) {
    hn_node *user = w->uses.count ? w->uses.data[0].node : NULL;
    if (inner(ctx, w, 2)) {
        hn_node *is_nan = NULL, *where = NULL;
        for (size_t i = 0; i < 2; i++) {
            hn_node *node = w->uses.data[i].node;
            if (hn_pass_is(node, "IsNaN")) is_nan = node;
            if (hn_pass_is(node, "Where") && w->uses.data[i].index == 2) where = node;
        }
        double zero;
        if (!is_nan || !where || where->inputs[0] != is_nan->outputs[0] ||
            is_nan->outputs[0]->uses.count != 1 || is_nan->outputs[0]->graph_output_uses ||
            !scalar(ctx, where->inputs[1], &zero) || zero != 0 || !inner(ctx, where->outputs[0], 1) ||
            !hn_pass_same_type(where->outputs[0], w))
            return false;
        f->zero_nan = true;
        w = where->outputs[0];
        user = w->uses.data[0].node;
    } else if (!inner(ctx, w, 1)) {
        return false;
    }
    if (!hn_pass_is(user, "MatMul") || user->post_count || w->uses.data[0].index != 0 ||
        user->inputs[1] == w || user->graph != w->graph)
        return false;
    f->last = user;
    return true;
}

static bool mask_fits(const found *f) {
    if (!f->mask) return true;
    hn_dim want[4] = {f->batch, f->heads, f->queries, f->keys};
    const hn_type *t = &f->mask->type;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] != 1 && t->dims[i] != want[4 - t->rank + i]) return false;
    return true;
}

// The cards' kernel is compiled for its sizes.
static bool fits_half(const found *f) {
    const hn_type *types[] = {&f->k->type, &f->v->type};
    for (int i = 0; i < 2; i++) {
        hn_dim size = types[i]->dims[types[i]->rank - 1];
        if (!hn_dim_is_const(size) || size > HALF_SIZE) return false;
    }
    return true;
}

static bool describe(const hn_pass_ctx *ctx, hn_node *softmax, bool half, found *f) {
    *f = (found){.softmax = softmax};
    hn_value *w = softmax->outputs[0];
    int rank = w->type.rank, axis;
    hn_node *product;
    if ((half ? !is_half(w->type.dtype) : w->type.dtype != HN_F32) || softmax->post_count || (rank != 3 && rank != 4) || softmax->version < 13 ||
        !hn_axis_normalise(hn_op_int(softmax, "axis"), rank, &axis) || axis != rank - 1)
        return false;
    if (!read_scores(ctx, softmax->inputs[0], f, &product) || !read_weights(ctx, w, f)) return false;
    hn_value *q = unscaled(ctx, product->inputs[0], &f->scale);
    hn_value *kt = unscaled(ctx, product->inputs[1], &f->scale), *v = f->last->inputs[1];
    if (q->type.dtype != w->type.dtype || q->type.rank != rank || kt->type.rank != rank || v->type.rank != rank ||
        !isfinite((float)f->scale))
        return false;
    const hn_dim *d = w->type.dims;
    f->batch = rank == 4 ? d[0] : d[0];
    f->heads = rank == 4 ? d[1] : 1;
    f->queries = d[rank - 2];
    f->keys = d[rank - 1];
    // The batch dims of all three are equal: nothing broadcasts.
    for (int i = 0; i < rank - 2; i++)
        if (q->type.dims[i] != d[i] || kt->type.dims[i] != d[i] || v->type.dims[i] != d[i]) return false;
    bool k_grouped = false, v_grouped = false;
    int64_t k_bit = 0, v_bit = 0, q_bit = 0;
    f->k = keys_of(kt, &k_bit, &k_grouped);
    if (!f->k) return false;
    f->q = heads_behind(q, 1, &q_bit);
    f->v = v;
    if (rank == 4) {
        hn_value *grouped = ungrouped(v, v->type.dims);
        v_grouped = grouped != NULL;
        f->v = heads_behind(grouped ? grouped : v, 4, &v_bit);
    }
    f->packed = q_bit | k_bit | v_bit;
    f->y = f->last->outputs[0];
    if (k_grouped != v_grouped || f->y->type.dtype != w->type.dtype || hn_pass_pinned(ctx, f->y) || !mask_fits(f) ||
        (half && !fits_half(f)))
        return false;
    if (rank == 4 && inner(ctx, f->y, 1) && perm_is(f->y->uses.data[0].node, k_heads_behind, 4) &&
        !hn_pass_pinned(ctx, f->y->uses.data[0].node->outputs[0])) {
        f->packed |= 8;
        f->y = f->y->uses.data[0].node->outputs[0];
    }
    return true;
}

static hn_status fuse(hone_error *err, hn_pass_ctx *ctx, const found *f) {
    hn_value *in[] = {f->q, f->k, f->v, f->mask};
    hn_node *node = hn_node_make(f->last->graph, f->last, hn_op_find("hn", "Attention"), in, f->mask ? 4 : 3, 1);
    if (!node || (f->packed && !hn_node_set_int(node, "packed", f->packed)) ||
        !hn_node_set_float(node, "scale", (float)f->scale) ||
        (f->zero_nan && !hn_node_set_int(node, "empty_rows", 1)))
        HN_NOMEM(err, "fusing attention");
    node->name = f->last->name;
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(ctx, f->y, node->outputs[0]);
    hn_rule_note(ctx, "attention", true);
    return HONE_OK;
}

static hn_status fuse_all(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph, bool half) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        found f;
        next = node->next;
        if (!hn_pass_is(node, "Softmax") || !describe(ctx, node, half, &f)) continue;
        // What goes lies before the last product or is the transpose behind it.
        next = f.last->next;
        while (next && next->outputs[0] == f.y)
            next = next->next;
        HN_TRY(fuse(err, ctx, &f));
    }
    return HONE_OK;
}

static hone_status attention_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) { return fuse_all(err, ctx, graph, false); }
static hone_status half_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) { return fuse_all(err, ctx, graph, true); }
hone_status hn_pass_attention_half(hone_error *err, hn_pass_ctx *ctx) { return hn_pass_each_graph(err, ctx, half_graph); }

// ---- rotary embedding ---------------------------------------------------------------------------
// One slice along the last dim, with unit step; where it begins and ends.
static bool slice_of(hn_match *m, const char *name, hn_dim size, int64_t *out_begin, int64_t *out_end) {
    const hn_node *node = hn_match_node(m, name);
    int64_t begin[2], end[2], axis[2], step[2];
    int n[4], rank = node->inputs[0]->type.rank, at;
    hn_module *module = m->ctx->module;
    if (!hn_value_ints(module, hn_in(node, 1), begin, 1, &n[0]) || n[0] != 1 ||
        !hn_value_ints(module, hn_in(node, 2), end, 1, &n[1]) || n[1] != 1 ||
        !hn_value_ints(module, hn_in(node, 3), axis, 1, &n[2]) || n[2] != 1)
        return false;
    if (hn_in(node, 4) && (!hn_value_ints(module, hn_in(node, 4), step, 1, &n[3]) || n[3] != 1 || step[0] != 1))
        return false;
    if (!hn_axis_normalise(axis[0], rank, &at) || at != rank - 1) return false;
    *out_begin = begin[0] < 0 ? begin[0] + size : begin[0];
    *out_end = end[0] < 0 ? end[0] + size : end[0] > size ? size : end[0];
    return true;
}

static bool table_fits(const hn_value *table, const hn_value *x) {
    if (table->type.dtype != HN_F32 || table->type.rank < 0 || table->type.rank > x->type.rank) return false;
    for (int i = 0; i < table->type.rank; i++) {
        hn_dim want = x->type.dims[x->type.rank - table->type.rank + i];
        if (table->type.dims[i] != 1 && table->type.dims[i] != want) return false;
    }
    return true;
}

static hone_status rotate_half(hone_error *err, hn_match *m, bool *out_done) {
    hn_value *x = hn_match_value(m, "x"), *in[] = {x, hn_match_value(m, "c"), hn_match_value(m, "s")};
    hn_node *join = hn_match_node(m, "turned");
    int rank = x->type.rank, axis;
    if (rank < 2 || x->type.dtype != HN_F32 || !hn_dim_is_const(x->type.dims[rank - 1])) return HONE_OK;
    hn_dim size = x->type.dims[rank - 1];
    int64_t b1, e1, b2, e2;
    if (size % 2 || !hn_axis_normalise(hn_op_int(join, "axis"), rank, &axis) || axis != rank - 1 ||
        !slice_of(m, "high", size, &b1, &e1) || !slice_of(m, "low", size, &b2, &e2) || b1 != size / 2 ||
        e1 != size || b2 != 0 || e2 != size / 2 || !table_fits(in[1], x) || !table_fits(in[2], x))
        return HONE_OK;
    if (!hn_pass_same_type(m->root->outputs[0], x)) return HONE_OK;
    hn_node *node = hn_node_make(m->root->graph, m->root, hn_op_find("hn", "RotateHalf"), in, 3, 1);
    if (!node) HN_NOMEM(err, "fusing a rotary embedding");
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(m->ctx, m->root->outputs[0], node->outputs[0]);
    *out_done = true;
    return HONE_OK;
}

static const hn_rule k_rotary[] = {
    {"rotate-half", "Add(Mul(x, c), Mul(Concat:turned(Neg(Slice:high(x, ...)), Slice:low(x, ...)), s))",
     rotate_half},
};

hone_status hn_pass_attention(hone_error *err, hn_pass_ctx *ctx) {
    hn_rule_note(ctx, "attention", false);
    HN_TRY(hn_rules_run(err, ctx, k_rotary, HN_COUNT_OF(k_rotary)));
    return hn_pass_each_graph(err, ctx, attention_graph);
}
