// SPDX-License-Identifier: Apache-2.0
// Device pass: a sum that is normalised next becomes one step with it (hn.AddNormalization,
// ops/fused.c). The sum is a second result where others read it: a residual that goes on.
//
// It runs behind the posts: a sum that a product took over costs nothing there.
#include "passes/match.h"

// The last dims of x, with ones or nothing before them, at least from `axis` on.
static bool repeats_rows(const hn_value *r, const hn_value *x, int axis) {
    hn_shape a, b;
    if (!hn_type_shape(&x->type, &a) || !hn_type_shape(&r->type, &b) || b.rank > a.rank) return false;
    int i = a.rank - 1, j = b.rank - 1;
    for (; j >= 0 && b.dims[j] == a.dims[i]; i--, j--) {}
    if (i >= axis) return false;
    for (; j >= 0; j--)
        if (b.dims[j] != 1) return false;
    return true;
}

static hone_status add_norm(hone_error *err, hn_match *m, bool *out_done) {
    hn_node *norm = m->root, *add = hn_match_node(m, "s");
    hn_value *sum = add->outputs[0], *x = hn_match_value(m, "x"), *r = hn_match_value(m, "r"), *g = hn_in(norm, 1);
    bool rms = hn_pass_is(norm, "RMSNormalization");
    int axis;
    for (int i = 1; i < norm->output_count; i++)
        if (norm->outputs[i]) return HONE_OK;
    if (add->post_count || norm->post_count || sum->type.dtype != HN_F32 || hn_pass_pinned(m->ctx, sum) ||
        hn_pass_pinned(m->ctx, norm->outputs[0]) ||
        !hn_axis_normalise(hn_op_int(norm, "axis"), sum->type.rank, &axis))
        return HONE_OK;
    if (!hn_pass_same_type(x, sum)) {
        hn_value *other = x;
        x = r;
        r = other;
    }
    // The new node stands where the sum does, so that those who read the sum find it made.
    for (int i = 1; i < norm->input_count; i++)
        if (norm->inputs[i] && !norm->inputs[i]->constant) return HONE_OK;
    hn_shape scale, bias, whole;
    int64_t want, have;
    if (!hn_pass_same_type(x, sum) || !repeats_rows(r, x, axis) || !hn_type_shape(&x->type, &whole)) return HONE_OK;
    want = 1;
    for (int i = axis; i < whole.rank; i++)
        want *= whole.dims[i];
    if (g && (!hn_type_shape(&g->type, &scale) || !hn_shape_count(&scale, &have) || have != want)) return HONE_OK;
    hn_value *b = hn_in(norm, 2);
    if (b && (!hn_type_shape(&b->type, &bias) || !hn_shape_count(&bias, &have) || have != want)) return HONE_OK;
    hn_value *in[] = {x, r, g, b};
    bool goes_on = sum->uses.count > 1 || sum->graph_output_uses;
    hn_node *node = hn_node_make(add->graph, add, hn_op_find("hn", "AddNormalization"), in, b ? 4 : 3, goes_on ? 2 : 1);
    if (!node || !hn_node_set_int(node, "axis", axis) ||
        !hn_node_set_float(node, "epsilon", hn_op_float(norm, "epsilon")) ||
        (rms && !hn_node_set_int(node, "rms", 1)))
        HN_NOMEM(err, "fusing a sum and its normalisation");
    node->name = norm->name;
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(m->ctx, norm->outputs[0], node->outputs[0]);
    if (goes_on) hn_pass_replace(m->ctx, sum, node->outputs[1]);
    *out_done = true;
    return HONE_OK;
}

static const hn_rule k_rules[] = {
    {"add-norm", "LayerNormalization|RMSNormalization(~Add:s(x, r), ...)", add_norm},
};

hone_status hn_pass_add_norm(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_rules, HN_COUNT_OF(k_rules));
}
