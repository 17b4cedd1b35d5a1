// SPDX-License-Identifier: Apache-2.0
// Device pass: a convolution that steps by its window, with no padding, is a product of the patches with
// the weights: [images * patches, channels * window] by [outputs, channels * window] transposed.
//
// What vision transformers begin with; libraries run it as any convolution, at a tenth of a product's
// speed (ViT-B/16 at batch 32 on an H200: 254 us). The patches are one copy; where the output goes on as
// rows of patches, [images, patches, outputs], it needs none.
#include "passes/pass_int.h"

#define LEAST_DEPTH 64 // numbers of a patch; below, the copy costs more than it gives

typedef struct patches {
    hn_value *x, *w, *b;
    int rank; // of the image
    int64_t images, channels, outputs, count[3], window[3], total, depth;
} patches;

static bool ints_are(const hn_node *node, const char *name, int64_t absent, const int64_t *want, int64_t length) {
    int64_t count;
    const int64_t *v = hn_node_ints(node, name, &count);
    for (int64_t i = 0; i < length; i++)
        if ((v && count == length ? v[i] : absent) != want[i]) return false;
    return !v || count == length;
}

static bool describe(const hn_pass_ctx *ctx, const hn_node *node, patches *p) {
    static const int64_t zeros[6] = {0}, ones[3] = {1, 1, 1};
    hn_shape x, w;
    if (!hn_pass_is(node, "Conv") || node->post_count || !hn_type_shape(&node->inputs[0]->type, &x) ||
        !hn_type_shape(&node->inputs[1]->type, &w) || !hn_pass_constant(ctx, node->inputs[1]) || x.rank < 3 || x.rank > 5 ||
        hn_op_int(node, "group") != 1 || w.dims[1] != x.dims[1])
        return false;
    *p = (patches){node->inputs[0], node->inputs[1], hn_in(node, 2), x.rank - 2, x.dims[0], x.dims[1], w.dims[0], {0}, {0}, 1, x.dims[1]};
    for (int i = 0; i < p->rank; i++) {
        p->window[i] = w.dims[2 + i];
        if (p->window[i] < 2 || x.dims[2 + i] % p->window[i]) return false;
        p->count[i] = x.dims[2 + i] / p->window[i];
        p->total *= p->count[i];
        p->depth *= p->window[i];
    }
    const char *auto_pad = "auto_pad";
    return p->depth >= LEAST_DEPTH && p->total > 0 && p->images > 0 && ints_are(node, "strides", 1, p->window, p->rank) &&
           ints_are(node, "dilations", 1, ones, p->rank) && ints_are(node, "pads", 0, zeros, 2 * p->rank) &&
           !hn_node_attr(node, auto_pad);
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

static hn_value *transpose(hone_error *err, hn_node *before, hn_value *x, const int64_t *perm, int rank) {
    hn_node *node = x ? hn_pass_make(before, "Transpose", &x, 1) : NULL;
    return node && hn_node_set_ints(node, "perm", perm, rank) && hn_infer_node(err, node) == HONE_OK ? node->outputs[0] : NULL;
}

// [images * patches, depth] of the image.
static hn_value *cut(hone_error *err, hn_node *before, const patches *p) {
    int64_t split[8] = {p->images, p->channels}, perm[8] = {0}, rows[] = {p->images * p->total, p->depth};
    int r = p->rank;
    perm[1 + r] = 1;
    for (int i = 0; i < r; i++) {
        split[2 + 2 * i] = p->count[i];
        split[3 + 2 * i] = p->window[i];
        perm[1 + i] = 2 + 2 * i;
        perm[2 + r + i] = 3 + 2 * i;
    }
    return reshape(before, transpose(err, before, reshape(before, p->x, split, 2 + 2 * r), perm, 2 + 2 * r), rows, 2);
}

// The value that is the output as [images, patches, outputs], made by Reshape and Transpose alone.
static hn_value *rows_of(const hn_pass_ctx *ctx, const hn_node *conv, const patches *p) {
    hn_value *y = conv->outputs[0];
    for (int step = 0; step < 2; step++) {
        if (!hn_pass_can_absorb(ctx, y)) return NULL;
        const hn_node *user = y->uses.data[0].node;
        if (user->post_count || y->uses.data[0].index != 0 || !hn_pass_is(user, step ? "Transpose" : "Reshape")) return NULL;
        y = user->outputs[0];
        static const int64_t turn[] = {0, 2, 1};
        if (y->type.rank != 3 || (step && !ints_are(user, "perm", -1, turn, 3))) return NULL;
    }
    const hn_dim *d = y->type.dims;
    return d[0] == p->images && d[1] == p->total && d[2] == p->outputs && !hn_pass_pinned(ctx, y) ? y : NULL;
}

static hn_status replace(hone_error *err, hn_pass_ctx *ctx, hn_node *conv, const patches *p) {
    const hn_tensor *w = hn_pass_constant(ctx, p->w);
    hn_tensor flat;
    HN_TRY(hn_tensor_new(err, w->dtype, &(hn_shape){.rank = 2, .dims = {p->outputs, p->depth}}, &flat));
    memcpy(flat.data, w->data, w->bytes);
    hn_value *weights = hn_pass_add_constant(conv, &flat), *rows = cut(err, conv, p);
    hn_value *in[] = {rows, weights, p->b};
    hn_node *gemm = rows && weights ? hn_pass_make(conv, "Gemm", in, p->b ? 3 : 2) : NULL;
    if (!gemm || !hn_node_set_int(gemm, "transB", 1)) HN_NOMEM(err, "making a product of a convolution");
    HN_TRY(hn_infer_node(err, gemm));
    hn_value *to = rows_of(ctx, conv, p), *y = gemm->outputs[0];
    int64_t dims[5] = {p->images, p->total, p->outputs}, perm[5] = {0, p->rank + 1};
    if (to) {
        y = reshape(conv, y, dims, 3);
    } else {
        to = conv->outputs[0];
        for (int i = 0; i < p->rank; i++) {
            dims[1 + i] = p->count[i];
            perm[2 + i] = 1 + i;
        }
        dims[1 + p->rank] = p->outputs;
        y = transpose(err, conv, reshape(conv, y, dims, p->rank + 2), perm, p->rank + 2);
    }
    if (!y) HN_NOMEM(err, "making a product of a convolution");
    hn_pass_replace(ctx, to, y);
    return HONE_OK;
}

static hone_status patches_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        patches p;
        next = node->next;
        if (!describe(ctx, node, &p) || hn_pass_pinned(ctx, node->outputs[0])) continue;
        HN_TRY(replace(err, ctx, node, &p));
        next = graph->first; // what lay behind may be gone
    }
    return HONE_OK;
}

hone_status hn_pass_patches(hone_error *err, hn_pass_ctx *ctx) { return hn_pass_each_graph(err, ctx, patches_graph); }
