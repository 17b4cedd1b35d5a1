// SPDX-License-Identifier: Apache-2.0
// Device pass: what lies between one 8-bit value and a QuantizeLinear and computes element by element
// becomes a table of 256 entries (hn.Lookup, ops/fused.c).
//
// The region grows from the QuantizeLinear towards the inputs: element-wise operators of the same shape,
// DequantizeLinear and further QuantizeLinear with one scale, constants of one element. It must end at
// one 8-bit value; what is read outside the region stays outside (a DequantizeLinear is copied instead).
// The table is what the operators' references give for the 256 values.
#include "passes/pass_int.h"

#define REGION_MAX 24

typedef struct region {
    hn_node *nodes[REGION_MAX]; // the last operator first
    int count;
    hn_value *leaves[REGION_MAX]; // 8-bit values that it reads
    int leaf_count;
} region;

static bool contains(const region *r, const hn_node *node) {
    for (int i = 0; i < r->count; i++)
        if (r->nodes[i] == node) return true;
    return false;
}

static bool single(const hn_pass_ctx *ctx, const hn_value *value) {
    const hn_tensor *t = hn_pass_constant(ctx, value);
    return t && hn_tensor_count(t) == 1;
}

static bool same_shape(const hn_value *a, const hn_value *b) {
    hn_shape x, y;
    return hn_type_shape(&a->type, &x) && hn_type_shape(&b->type, &y) && hn_shape_equal(&x, &y);
}

// An operator that a table can stand for, of the shape of `result`.
static bool takes_part(const hn_pass_ctx *ctx, const hn_node *node, const hn_value *result) {
    if (!node || *node->domain || node->post_count || node->output_count != 1 || !node->outputs[0] ||
        node->graph != result->graph || node->input_count < 1 || !node->inputs[0] ||
        !same_shape(node->outputs[0], result))
        return false;
    if (hn_pass_is(node, "QuantizeLinear") || hn_pass_is(node, "DequantizeLinear")) {
        const hn_value *small = node->op_type[0] == 'Q' ? node->outputs[0] : node->inputs[0];
        return hn_pass_is_8bit(small) && single(ctx, hn_in(node, 1)) &&
               (!hn_in(node, 2) || single(ctx, hn_in(node, 2)));
    }
    return hn_op_has(node->op, HN_T_ELEMENTWISE) && !hn_op_has(node->op, HN_T_RANDOM) &&
           hn_op_get(node->op)->ref && hn_dtype_is_float(node->outputs[0]->type.dtype);
}

// Adds a value's producer and all that it reads up to 8-bit values. False: it reads something else.
static bool add(const hn_pass_ctx *ctx, region *r, hn_value *value) {
    hn_node *node = value->producer;
    const hn_value *result = r->count ? r->nodes[0]->outputs[0] : value;
    if (node && contains(r, node)) return true;
    if (r->count == REGION_MAX || !takes_part(ctx, node, result)) return false;
    bool dq = hn_pass_is(node, "DequantizeLinear"), quant = dq || hn_pass_is(node, "QuantizeLinear");
    if (r->count && !dq && (value->graph_output_uses || hn_pass_pinned(ctx, value))) return false;
    r->nodes[r->count++] = node;
    for (int i = 0; i < (quant ? 1 : node->input_count); i++) {
        hn_value *in = node->inputs[i];
        if (!in || single(ctx, in)) continue;
        if (!hn_pass_is_8bit(in)) {
            if (!add(ctx, r, in)) return false;
            continue;
        }
        int known = 0;
        while (known < r->leaf_count && r->leaves[known] != in)
            known++;
        if (known == REGION_MAX || !same_shape(in, result)) return false;
        if (known == r->leaf_count) r->leaves[r->leaf_count++] = in;
    }
    return true;
}

// All readers of what is computed inside are inside.
static bool closed(const region *r) {
    for (int n = 1; n < r->count; n++) {
        const hn_value *value = r->nodes[n]->outputs[0];
        if (hn_pass_is(r->nodes[n], "DequantizeLinear")) continue;
        for (size_t u = 0; u < value->uses.count; u++)
            if (!contains(r, value->uses.data[u].node)) return false;
    }
    return true;
}

// The region with leaf `at` read through, if that is possible.
static bool read_through(const hn_pass_ctx *ctx, const region *r, int at, region *out) {
    region wider = *r;
    hn_value *leaf = r->leaves[at];
    wider.leaves[at] = wider.leaves[--wider.leaf_count];
    if (!hn_pass_is(leaf->producer, "QuantizeLinear") || !add(ctx, &wider, leaf)) return false;
    *out = wider;
    return true;
}

// The widest region that ends at one 8-bit value.
static bool find(const hn_pass_ctx *ctx, hn_node *last, region *out) {
    region r = {0}, best = {0};
    if (!add(ctx, &r, last->outputs[0])) return false;
    for (bool more = true; more;) {
        if (r.leaf_count == 1 && closed(&r)) best = r;
        more = false;
        for (int i = 0; i < r.leaf_count && !more; i++)
            more = read_through(ctx, &r, i, &r);
    }
    *out = best;
    return best.count > 1;
}

// ---- the table ----------------------------------------------------------------------------------
typedef struct results {
    const region *r;
    hn_tensor of[REGION_MAX];
    bool done[REGION_MAX];
    hn_tensor all; // the 256 values of the leaf
} results;

static hn_status compute(hone_error *err, results *s, int index) {
    const hn_node *node = s->r->nodes[index];
    const hn_tensor *in[8] = {0};
    if (node->input_count > 8) HN_FAIL(err, HONE_ERR_INTERNAL, "%s with many inputs in a table", node->op_type);
    for (int i = 0; i < node->input_count; i++) {
        const hn_value *value = node->inputs[i];
        if (!value) continue;
        in[i] = value->constant ? value->constant : &s->all;
        for (int p = 0; p < s->r->count && value != s->r->leaves[0]; p++) {
            if (s->r->nodes[p] != value->producer) continue;
            if (!s->done[p]) HN_TRY(compute(err, s, p));
            in[i] = &s->of[p];
        }
    }
    HN_TRY(hn_ref_run(err, node, in, node->input_count, &s->of[index], 1, 0));
    s->done[index] = true;
    return HONE_OK;
}

static hn_status make_table(hone_error *err, const region *r, hn_tensor *out_table) {
    results s = {.r = r};
    hn_shape shape = {.rank = 1, .dims = {256}};
    HN_TRY(hn_tensor_new(err, r->leaves[0]->type.dtype, &shape, &s.all));
    for (int i = 0; i < 256; i++)
        ((uint8_t *)s.all.data)[i] = (uint8_t)i;
    hone_status status = compute(err, &s, 0);
    if (status == HONE_OK) {
        *out_table = s.of[0];
        out_table->shape = shape; // constants of rank > 1 leave leading ones
        s.of[0] = (hn_tensor){0};
    }
    for (int i = 0; i < r->count; i++)
        hn_tensor_free(&s.of[i]);
    hn_tensor_free(&s.all);
    return status;
}

static hone_status lookups_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    // From the end: the widest region first.
    for (hn_node *node = graph->last, *before; node; node = before) {
        region r;
        hn_tensor table;
        before = node->prev;
        if (!hn_pass_is(node, "QuantizeLinear") || !node->outputs[0] || hn_pass_pinned(ctx, node->outputs[0]) ||
            !find(ctx, node, &r))
            continue;
        HN_TRY(make_table(err, &r, &table));
        hn_value *in[] = {r.leaves[0], hn_pass_add_constant(node, &table)};
        hn_node *made = in[1] ? hn_node_make(graph, node, hn_op_find("hn", "Lookup"), in, 2, 1) : NULL;
        if (!made) HN_NOMEM(err, "making a table");
        made->name = node->name;
        HN_TRY(hn_infer_node(err, made));
        hn_pass_replace(ctx, node->outputs[0], made->outputs[0]);
        before = made->prev;
    }
    return HONE_OK;
}

hone_status hn_pass_lookups(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, lookups_graph);
}
