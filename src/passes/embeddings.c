// SPDX-License-Identifier: Apache-2.0
// Device pass: embeddings side by side become one hn.Embeddings (ops/gather.c).
//
//   Concat(axis 1) of, for each table, Gather(table, Gather(indices, column, axis 1), axis 0),
//   each with a dim of 1 put in between or not, and of plain rows [batch, size] likewise.
//
// Tables are constants; two of them at least make it worth a step.
#include "passes/pass_int.h"
#include "ops/nn_int.h"

#define LEAST_TABLES 2

typedef struct found {
    hn_value *indices, *parts[HN_EMBEDDING_PARTS];
    int64_t columns[HN_EMBEDDING_PARTS];
    int count, tables;
    hn_dim batch, size;
} found;

// The rows [batch, size] that `value` is, without the dim of 1 that stacking puts in.
static hn_value *rows_of(hn_value *value, int rank) {
    if (rank == 2) return value;
    hn_node *node = value->producer;
    if (!node || node->post_count || (!hn_pass_is(node, "Unsqueeze") && !hn_pass_is(node, "Reshape"))) return NULL;
    hn_value *rows = node->inputs[0];
    const hn_type *t = &value->type, *r = &rows->type;
    return r->rank == 2 && t->rank == 3 && t->dims[1] == 1 && r->dims[0] == t->dims[0] && r->dims[1] == t->dims[2] ? rows : NULL;
}

static bool gathers(const hn_node *node, int64_t want_axis, int rank) {
    int axis;
    return hn_pass_is(node, "Gather") && !node->post_count && node->inputs[0]->type.rank == rank &&
           hn_axis_normalise(hn_op_int(node, "axis"), rank, &axis) && axis == want_axis;
}

// A table and the column of the indices, where the rows are looked up.
static bool look_up_of(const hn_pass_ctx *ctx, hn_value *rows, found *f) {
    hn_node *gather = rows->producer, *pick;
    int n;
    if (!gathers(gather, 0, 2) || !hn_pass_constant(ctx, gather->inputs[0]) || gather->inputs[1]->type.rank != 1) return false;
    pick = gather->inputs[1]->producer;
    int64_t *column = &f->columns[f->count];
    if (!gathers(pick, 1, 2) || !hn_value_ints(ctx->module, pick->inputs[1], column, 1, &n) || n != 1 || pick->inputs[1]->type.rank != 0)
        return false;
    if (f->indices && pick->inputs[0] != f->indices) return false;
    if (*column < 0) *column += pick->inputs[0]->type.dims[1];
    f->indices = pick->inputs[0];
    f->parts[f->count] = gather->inputs[0];
    f->tables++;
    return true;
}

static bool describe(const hn_pass_ctx *ctx, hn_node *concat, found *f) {
    const hn_type *out = &concat->outputs[0]->type;
    int axis;
    *f = (found){0};
    if (concat->post_count || concat->input_count > HN_EMBEDDING_PARTS || (out->rank != 2 && out->rank != 3) ||
        !hn_axis_normalise(hn_op_int(concat, "axis"), out->rank, &axis) || axis != 1)
        return false;
    for (; f->count < concat->input_count; f->count++) {
        hn_value *rows = rows_of(concat->inputs[f->count], out->rank);
        if (!rows || rows->type.rank != 2 || !hn_dim_is_const(rows->type.dims[1])) return false;
        if (f->count == 0) {
            f->batch = rows->type.dims[0];
            f->size = rows->type.dims[1];
        }
        if (rows->type.dims[0] != f->batch || rows->type.dims[1] != f->size || rows->type.dtype != out->dtype) return false;
        if (look_up_of(ctx, rows, f)) continue;
        f->parts[f->count] = rows;
        f->columns[f->count] = -1;
    }
    return f->tables >= LEAST_TABLES;
}

static hone_status embeddings_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        found f;
        next = node->next;
        if (!hn_pass_is(node, "Concat") || hn_pass_pinned(ctx, node->outputs[0]) || !describe(ctx, node, &f)) continue;
        hn_value *in[HN_EMBEDDING_PARTS + 1] = {f.indices};
        memcpy(in + 1, f.parts, (size_t)f.count * sizeof *in);
        hn_node *made = hn_node_make(graph, node, hn_op_find("hn", "Embeddings"), in, f.count + 1, 1);
        if (!made || !hn_node_set_ints(made, "columns", f.columns, f.count)) HN_NOMEM(err, "looking up");
        made->name = node->name;
        HN_TRY(hn_infer_node(err, made));
        hn_value *out = made->outputs[0];
        if (node->outputs[0]->type.rank == 2) {
            hn_tensor shape;
            hn_shape flat;
            if (!hn_type_shape(&node->outputs[0]->type, &flat)) continue;
            HN_TRY(hn_tensor_new(err, HN_I64, &(hn_shape){.rank = 1, .dims = {flat.rank}}, &shape));
            memcpy(shape.data, flat.dims, (size_t)flat.rank * sizeof flat.dims[0]);
            hn_value *to = hn_pass_add_constant(node, &shape), *both[] = {out, to};
            out = to ? hn_pass_build(node, "Reshape", both, 2) : NULL;
            if (!out) HN_NOMEM(err, "looking up");
        }
        hn_pass_replace(ctx, node->outputs[0], out);
    }
    return HONE_OK;
}

hone_status hn_pass_embeddings(hone_error *err, hn_pass_ctx *ctx) { return hn_pass_each_graph(err, ctx, embeddings_graph); }
