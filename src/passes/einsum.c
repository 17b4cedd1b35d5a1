// SPDX-License-Identifier: Apache-2.0
// Device pass: an Einsum of two operands is a product of matrices with transposes around it; one of a single
// operand that sums nothing is a Transpose.
//
// Only where the sums are the same ones: no label twice in a term, no dim of 1 that is spread, none that
// one operand alone is summed over (a sum of its own would come before the product).
#include "ops/einsum.h"
#include "passes/pass_int.h"

typedef struct labels {
    int count, list[HN_MAX_RANK];
} labels;

typedef struct contraction {
    hn_einsum e;
    int64_t dims[HN_EINSUM_LABELS];
    labels batch, left, right, summed;
} contraction;

static bool holds(const hn_einsum_term *t, int label) {
    for (int i = 0; i < t->count; i++)
        if (t->labels[i] == label) return true;
    return false;
}

static bool describe(const hn_node *node, contraction *c) {
    *c = (contraction){0};
    if (!hn_pass_is(node, "Einsum") || node->post_count || node->input_count > 2 || !hn_dtype_is_float(node->inputs[0]->type.dtype) ||
        hn_einsum_read(NULL, node, &c->e) != HONE_OK)
        return false;
    for (int o = 0; o < c->e.operands; o++) {
        hn_shape shape;
        const hn_einsum_term *t = &c->e.in[o];
        if (!hn_type_shape(&node->inputs[o]->type, &shape)) return false;
        for (int i = 0; i < t->count; i++) {
            int label = t->labels[i];
            int64_t *dim = &c->dims[label];
            if (shape.dims[i] < 1 || (o && holds(&c->e.in[0], label) && *dim != shape.dims[i])) return false;
            for (int j = 0; j < i; j++)
                if (t->labels[j] == label) return false;
            *dim = shape.dims[i];
            bool here = holds(&c->e.out, label), there = c->e.operands == 2 && holds(&c->e.in[1 - o], label);
            if (!here && !there) return false;
            if (there && o == 1) continue; // met in the first operand
            labels *to = there ? (here ? &c->batch : &c->summed) : o ? &c->right : &c->left;
            to->list[to->count++] = label;
        }
    }
    return true;
}

static int64_t size(const contraction *c, const labels *l) {
    int64_t n = 1;
    for (int i = 0; i < l->count; i++)
        n *= c->dims[l->list[i]];
    return n;
}

static void append(labels *to, const labels *from) {
    for (int i = 0; i < from->count; i++)
        to->list[to->count++] = from->list[i];
}

static hn_value *shape_constant(hn_node *at, const int64_t *dims, int rank) {
    hn_tensor t;
    if (hn_tensor_new(NULL, HN_I64, &(hn_shape){.rank = 1, .dims = {rank}}, &t) != HONE_OK) return NULL;
    memcpy(t.data, dims, (size_t)rank * sizeof *dims);
    return hn_pass_add_constant(at, &t);
}

static hn_value *reshape(hn_node *before, hn_value *x, const int64_t *dims, int rank) {
    hn_value *in[] = {x, x ? shape_constant(before, dims, rank) : NULL};
    return in[1] ? hn_pass_build(before, "Reshape", in, 2) : NULL;
}

// x, whose dims are `have`, in the order `want`.
static hn_value *arrange(hone_error *err, hn_node *before, hn_value *x, const int *have, const labels *want) {
    int64_t perm[HN_MAX_RANK];
    bool same = true;
    for (int i = 0; x && i < want->count; i++) {
        int at = 0;
        while (have[at] != want->list[i])
            at++;
        perm[i] = at;
        same = same && at == i;
    }
    if (!x || same) return x;
    hn_node *node = hn_pass_make(before, "Transpose", &x, 1);
    return node && hn_node_set_ints(node, "perm", perm, want->count) && hn_infer_node(err, node) == HONE_OK ? node->outputs[0] : NULL;
}

static hn_value *product(hone_error *err, hn_node *node, const contraction *c) {
    int64_t batch = size(c, &c->batch), m = size(c, &c->left), n = size(c, &c->right), k = size(c, &c->summed);
    labels a = c->batch, b = c->batch, y = c->batch;
    append(&a, &c->left);
    append(&a, &c->summed);
    append(&b, &c->summed);
    append(&b, &c->right);
    append(&y, &c->left);
    append(&y, &c->right);
    int skip = c->batch.count ? 0 : 1;
    int64_t dims_a[] = {batch, m, k}, dims_b[] = {batch, k, n}, dims_y[HN_MAX_RANK];
    hn_value *in[] = {reshape(node, arrange(err, node, node->inputs[0], c->e.in[0].labels, &a), dims_a + skip, 3 - skip),
                      reshape(node, arrange(err, node, node->inputs[1], c->e.in[1].labels, &b), dims_b + skip, 3 - skip)};
    if (!in[0] || !in[1]) return NULL;
    for (int i = 0; i < y.count; i++)
        dims_y[i] = c->dims[y.list[i]];
    labels out = {.count = c->e.out.count};
    memcpy(out.list, c->e.out.labels, sizeof out.list);
    return arrange(err, node, reshape(node, hn_pass_build(node, "MatMul", in, 2), dims_y, y.count), y.list, &out);
}

static hone_status einsum_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        contraction c;
        next = node->next;
        if (hn_pass_pinned(ctx, node->outputs[0]) || !describe(node, &c)) continue;
        labels out = {.count = c.e.out.count};
        memcpy(out.list, c.e.out.labels, sizeof out.list);
        hn_value *y = c.e.operands == 2 ? product(err, node, &c) : arrange(err, node, node->inputs[0], c.e.in[0].labels, &out);
        if (!y) HN_NOMEM(err, "making a product of an Einsum");
        hn_pass_replace(ctx, node->outputs[0], y);
        next = graph->first;
    }
    return HONE_OK;
}

hone_status hn_pass_einsum(hone_error *err, hn_pass_ctx *ctx) { return hn_pass_each_graph(err, ctx, einsum_graph); }
