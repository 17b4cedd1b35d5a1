// SPDX-License-Identifier: Apache-2.0
// Device pass: hn.Attention reads its operands where they come from, and writes where its output goes.
//
// What lies between a product and attention only moves elements: q, k, v are slices of one product, cut
// into heads and turned round. A chain of Reshape, Transpose, Slice, Split, Gather of one entry and the
// like is one strided view of the value it begins at; where the four dims of an operand are evenly strided
// there, the step gets offset and strides instead (`view`), and the moves die. The output likewise,
// forwards through Transpose and Reshape.
#include "passes/pass_int.h"
#include "ops/nn_int.h"

#define MAX_STEPS  12 // moves looked through
#define MAX_PIECES 16

// A value as parts of another: per dim a list of (count, stride), outermost first; elements of the other.
typedef struct piece {
    int64_t count, stride;
} piece;
typedef struct layout {
    hn_value *root;
    int64_t offset;
    int rank, counts[HN_MAX_RANK]; // pieces of each dim
    piece pieces[HN_MAX_RANK][MAX_PIECES];
} layout;

static bool begin_at(hn_value *root, layout *out) {
    hn_shape shape;
    if (!hn_type_shape(&root->type, &shape)) return false;
    *out = (layout){.root = root, .rank = shape.rank};
    int64_t stride = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        out->counts[i] = 1;
        out->pieces[i][0] = (piece){shape.dims[i], stride};
        stride *= shape.dims[i];
    }
    return stride > 0;
}

// All dims as one list, without ones, neighbours that walk evenly merged.
static int flat(const layout *l, piece out[MAX_PIECES]) {
    int n = 0;
    for (int d = 0; d < l->rank; d++)
        for (int i = 0; i < l->counts[d]; i++) {
            piece p = l->pieces[d][i];
            if (p.count == 1) continue;
            if (n && out[n - 1].stride == p.stride * p.count) out[n - 1] = (piece){out[n - 1].count * p.count, p.stride};
            else if (n == MAX_PIECES) return -1;
            else out[n++] = p;
        }
    return n;
}

static bool reshape(layout *l, const hn_shape *to) {
    piece list[MAX_PIECES];
    int n = flat(l, list);
    if (n < 0) return false;
    l->rank = to->rank;
    for (int d = to->rank - 1; d >= 0; d--) {
        piece taken[MAX_PIECES];
        int count = 0;
        for (int64_t need = to->dims[d]; need > 1;) {
            if (n == 0 || count == MAX_PIECES) return false;
            piece *last = &list[n - 1];
            if (need % last->count == 0) {
                taken[count++] = *last;
                need /= last->count;
                n--;
            } else if (last->count % need == 0) {
                taken[count++] = (piece){need, last->stride};
                *last = (piece){last->count / need, last->stride * need};
                need = 1;
            } else {
                return false;
            }
        }
        l->counts[d] = count;
        for (int i = 0; i < count; i++)
            l->pieces[d][i] = taken[count - 1 - i];
    }
    return n == 0;
}

static bool transpose(const hn_node *node, layout *l) {
    int64_t count;
    const int64_t *perm = hn_node_ints(node, "perm", &count);
    layout from = *l;
    for (int d = 0; d < l->rank; d++) {
        int64_t at = perm ? (count == l->rank ? perm[d] : -1) : l->rank - 1 - d;
        if (at < 0 || at >= l->rank) return false;
        l->counts[d] = from.counts[at];
        memcpy(l->pieces[d], from.pieces[at], sizeof l->pieces[d]);
    }
    return true;
}

// Entries begin, begin + step, ... of a dim.
static bool cut(layout *l, int dim, int64_t begin, int64_t step, int64_t count) {
    if (l->counts[dim] > 1 || step < 1) return false;
    piece *p = &l->pieces[dim][0];
    if (l->counts[dim] == 0) *p = (piece){1, 0};
    if (begin < 0 || begin + (count - 1) * step >= p->count) return false;
    l->offset += begin * p->stride;
    *p = (piece){count, p->stride * step};
    l->counts[dim] = 1;
    return true;
}

static bool one_int(hn_module *module, const hn_value *value, int64_t *out) {
    int n;
    return value && hn_value_ints(module, value, out, 1, &n) && n == 1;
}

static bool gather(hn_module *module, const hn_node *node, layout *l) {
    int64_t index;
    int axis;
    if (!one_int(module, hn_in(node, 1), &index) || !hn_axis_normalise(hn_op_int(node, "axis"), l->rank, &axis)) return false;
    if (index < 0) index += node->inputs[0]->type.dims[axis];
    return cut(l, axis, index, 1, 1); // the reshape that follows brings the rank right
}

static bool slice(hn_module *module, const hn_node *node, const hn_shape *to, layout *l) {
    int64_t begin, axis, step = 1;
    int at;
    if (!one_int(module, hn_in(node, 1), &begin) || !one_int(module, hn_in(node, 3), &axis) ||
        (hn_in(node, 4) && !one_int(module, hn_in(node, 4), &step)) || !hn_axis_normalise(axis, l->rank, &at))
        return false;
    if (begin < 0) begin += node->inputs[0]->type.dims[at];
    return to->dims[at] > 0 && cut(l, at, begin, step, to->dims[at]);
}

static bool split(const hn_node *node, const hn_value *value, layout *l) {
    int axis;
    int64_t begin = 0;
    if (!hn_axis_normalise(hn_op_int(node, "axis"), l->rank, &axis)) return false;
    for (int i = 0; i < node->output_count; i++) {
        const hn_value *out = node->outputs[i];
        if (!out || !hn_dim_is_const(out->type.dims[axis])) return false;
        if (out == value) return out->type.dims[axis] > 0 && cut(l, axis, begin, 1, out->type.dims[axis]);
        begin += out->type.dims[axis];
    }
    return false;
}

static bool keeps_order(const hn_node *node) {
    return hn_pass_is(node, "Reshape") || hn_pass_is(node, "Unsqueeze") || hn_pass_is(node, "Squeeze") || hn_pass_is(node, "Flatten");
}

// The value as a view of what lies up to `steps` moves before it.
static bool look(hn_module *module, hn_value *value, int steps, layout *out) {
    hn_node *node = value->producer;
    hn_shape shape;
    if (steps == 0 || !node || node->post_count || node->graph != value->graph || !hn_type_shape(&value->type, &shape)) return begin_at(value, out);
    bool moves = keeps_order(node) || hn_pass_is(node, "Transpose") || hn_pass_is(node, "Gather") || hn_pass_is(node, "Slice") ||
                 hn_pass_is(node, "Split");
    if (!moves || !look(module, node->inputs[0], steps - 1, out)) return begin_at(value, out);
    bool good = hn_pass_is(node, "Transpose") ? transpose(node, out)
                : hn_pass_is(node, "Gather")  ? gather(module, node, out)
                : hn_pass_is(node, "Slice")   ? slice(module, node, &shape, out)
                : hn_pass_is(node, "Split")   ? split(node, value, out)
                                              : true;
    if (good && (keeps_order(node) || hn_pass_is(node, "Gather"))) good = reshape(out, &shape);
    return good || begin_at(value, out);
}

// Strides of four dims (element strides in `value`, dense there) over the root of its view.
static bool heads_in(const layout *l, const int64_t dims[4], const int64_t strides[4], hn_heads *out) {
    // As if `value` were reshaped to one dim and cut again: its pieces by their strides in the value.
    piece list[MAX_PIECES];
    int64_t own[MAX_PIECES], dense = 1, found[4] = {0};
    int n = flat(l, list);
    for (int i = n - 1; i >= 0; i--) {
        own[i] = dense;
        dense *= list[i].count;
    }
    for (int a = 0; a < 4 && n >= 0; a++) {
        bool good = dims[a] == 1;
        for (int i = 0; i < n && !good; i++) {
            int64_t reach = own[i] * list[i].count;
            if (strides[a] < own[i] || strides[a] % own[i] || strides[a] * dims[a] > reach) continue;
            found[a] = strides[a] / own[i] * list[i].stride;
            good = true;
        }
        if (!good) return false;
    }
    *out = (hn_heads){l->offset, found[0], found[1], found[2]};
    return n >= 0 && (dims[3] == 1 || found[3] == 1);
}

static bool operand(hn_module *module, hn_value *value, const int64_t dims[4], const hn_heads *now, hn_heads *out, hn_value **out_root) {
    int64_t strides[] = {now->batch, now->head, now->row, 1};
    for (int steps = MAX_STEPS; steps > 0; steps--) {
        layout l;
        if (!look(module, value, steps, &l) || l.root == value || l.root->type.dtype != value->type.dtype) continue;
        if (!heads_in(&l, dims, strides, out)) continue;
        *out_root = l.root;
        return true;
    }
    *out = *now;
    *out_root = value;
    return false;
}

// Forwards: the last value that the output becomes by Transpose and Reshape alone, and strides into it.
static bool destination(const hn_pass_ctx *ctx, const hn_attention *a, hn_value *y, hn_heads *out, hn_value **out_last) {
    layout l;
    int64_t dims[] = {a->batch, a->heads, a->queries, a->value_size}, strides[] = {a->y.batch, a->y.head, a->y.row, 1};
    *out_last = y;
    *out = a->y;
    if (!begin_at(y, &l)) return false;
    for (hn_value *at = y; at->uses.count == 1 && hn_pass_can_absorb(ctx, at);) {
        hn_node *node = at->uses.data[0].node;
        hn_shape shape;
        if (at->uses.data[0].index != 0 || node->post_count || (!keeps_order(node) && !hn_pass_is(node, "Transpose"))) break;
        at = node->outputs[0];
        if (hn_pass_pinned(ctx, at) || !hn_type_shape(&at->type, &shape)) break;
        if (!(hn_pass_is(node, "Transpose") ? transpose(node, &l) : reshape(&l, &shape))) break;
        // Each dim of the output: one even walk through `at`?
        piece list[MAX_PIECES];
        int n = flat(&l, list);
        int64_t found[4] = {0}, dense = 1;
        bool good = n >= 0;
        for (int i = n - 1; i >= 0 && good; i--) {
            piece p = list[i];
            while (p.count > 1 && good) {
                int d = 0;
                while (d < 4 && (dims[d] == 1 || strides[d] != p.stride))
                    d++;
                good = d < 4 && found[d] == 0 && p.count % dims[d] == 0;
                if (!good) break;
                found[d] = dense;
                dense *= dims[d];
                p = (piece){p.count / dims[d], p.stride * dims[d]};
            }
        }
        if (!good || (dims[3] > 1 && found[3] != 1)) continue;
        *out = (hn_heads){0, found[0], found[1], found[2]};
        *out_last = at;
    }
    return *out_last != y;
}

static hn_status view(hone_error *err, hn_pass_ctx *ctx, hn_node *node, const hn_attention *a, bool *out_changed) {
    hn_heads heads[4];
    hn_value *in[4] = {NULL}, *last;
    int64_t dims[3][4] = {{a->batch, a->heads, a->queries, a->size},
                          {a->batch, a->kv_heads, a->keys, a->size},
                          {a->batch, a->kv_heads, a->keys, a->value_size}};
    const hn_heads *now[] = {&a->q, &a->k, &a->v};
    bool changed = false;
    for (int i = 0; i < 3; i++)
        changed = operand(ctx->module, node->inputs[i], dims[i], now[i], &heads[i], &in[i]) || changed;
    changed = destination(ctx, a, node->outputs[0], &heads[3], &last) || changed;
    if (!changed) return HONE_OK;
    in[3] = node->input_count > 3 ? node->inputs[3] : NULL;
    hn_shape shape;
    int64_t v[HN_ATTENTION_VIEW] = {a->batch, a->heads, a->kv_heads, a->queries, a->keys, a->size, a->value_size};
    for (int i = 0; i < 3; i++)
        memcpy(v + 7 + 4 * i, (int64_t[]){heads[i].offset, heads[i].batch, heads[i].head, heads[i].row}, 4 * sizeof *v);
    memcpy(v + 19, (int64_t[]){heads[3].batch, heads[3].head, heads[3].row}, 3 * sizeof *v);
    hn_node *made = hn_node_make(node->graph, node, hn_op_find("hn", "Attention"), in, in[3] ? 4 : 3, 1);
    if (!made || !hn_type_shape(&last->type, &shape) || !hn_node_set_float(made, "scale", hn_op_float(node, "scale")) ||
        (hn_op_int(node, "empty_rows") && !hn_node_set_int(made, "empty_rows", hn_op_int(node, "empty_rows"))) ||
        !hn_node_set_ints(made, "view", v, HN_ATTENTION_VIEW) || !hn_node_set_ints(made, "shape", shape.dims, shape.rank))
        HN_NOMEM(err, "looking through moves");
    made->name = node->name;
    HN_TRY(hn_infer_node(err, made));
    hn_pass_replace(ctx, last, made->outputs[0]);
    *out_changed = true;
    return HONE_OK;
}

static hone_status views_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    int op = hn_op_find("hn", "Attention");
    for (hn_node *node = graph->first, *next; node; node = next) {
        hn_attention a;
        int64_t count;
        next = node->next;
        if (node->op != op || node->post_count || hn_node_ints(node, "view", &count) || !hn_attention_read(node, node->input_count, &a)) continue;
        bool changed = false;
        HN_TRY(view(err, ctx, node, &a, &changed));
        if (changed) next = graph->first; // what lay behind may be gone
    }
    return HONE_OK;
}

hone_status hn_pass_attention_views(hone_error *err, hn_pass_ctx *ctx) { return hn_pass_each_graph(err, ctx, views_graph); }
