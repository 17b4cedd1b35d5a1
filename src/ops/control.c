// SPDX-License-Identifier: Apache-2.0
// Types through If, Loop and Scan.
//
// If gives what both branches agree on. The state of a loop starts with the type of its initial
// value; a dim that the body changes becomes unknown and the body is inferred again, until nothing
// changes (each dim changes at most once, each rank at most once).
#include "ops/control.h"
#include "ops/move.h"

static hn_status body_of(hone_error *err, const hn_infer *ctx, const char *name, hn_graph **out) {
    const hn_attr *attr = hn_node_attr(ctx->node, name);
    if (!attr || attr->type != HN_ATTR_GRAPH || !attr->graph)
        HN_BAD_NODE(err, ctx->node, "sub-graph '%s' is missing", name);
    *out = attr->graph;
    return HONE_OK;
}

static bool same_type(const hn_type *a, const hn_type *b) {
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}

// The type that covers both. Dims that differ become unknown; `old` (the type of the last inference)
// lends its unknown so that symbols do not multiply.
static hn_type cover(hn_infer *ctx, const hn_type *a, const hn_type *b, const hn_type *old) {
    hn_type type = *a;
    if (type.dtype == HN_NONE) type.dtype = b->dtype;
    if (a->rank != b->rank) type.rank = -1;
    for (int d = 0; d < type.rank; d++) {
        if (a->dims[d] == b->dims[d]) continue;
        bool lends = old && old->rank == a->rank && !hn_dim_is_const(old->dims[d]) &&
                     old->dims[d] != HN_DIM_FAILED &&
                     !*hn_dim_symbol_name(ctx->dims, old->dims[d]);
        type.dims[d] = lends ? old->dims[d] : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    }
    return type;
}

static void set_type(hn_infer *ctx, int index, const hn_type *type) {
    hn_infer_set(ctx, index, type->dtype, type->rank, type->dims);
}

// ---- If -----------------------------------------------------------------------------------------
// A branch that contradicts itself for the shapes at hand cannot be the one taken: exporters guard
// a Squeeze of a dim by If. An error counts only where it is the branch that will run, or both.
hone_status hn_infer_if(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_graph *branch[2] = {NULL, NULL}; // 0: else
    HN_TRY(body_of(err, ctx, "else_branch", &branch[0]));
    HN_TRY(body_of(err, ctx, "then_branch", &branch[1]));
    int64_t taken = -1;
    int count;
    if (hn_infer_ints(ctx, node->inputs[0], &taken, 1, &count) && count == 1) taken = taken != 0;
    else taken = -1;
    hone_status status[2];
    hone_error errors[2] = {{0}};
    for (int b = 0; b < 2; b++) {
        if ((int)branch[b]->outputs.count != node->output_count)
            HN_BAD_NODE(err, node, "a branch has %zu outputs where %d are due",
                        branch[b]->outputs.count, node->output_count);
        status[b] = hn_infer_graph(&errors[b], branch[b]);
        if (status[b] == HONE_OK || (status[b] == HONE_ERR_FORMAT && taken == !b)) continue;
        if (status[b] == HONE_ERR_FORMAT && taken < 0 && (b == 0 || status[0] == HONE_OK)) continue;
        if (err) *err = errors[b];
        return status[b];
    }
    for (int i = 0; i < node->output_count; i++) {
        hn_value *out = node->outputs[i];
        if (!out) continue;
        const hn_value *from[2] = {branch[0]->outputs.data[i], branch[1]->outputs.data[i]};
        int only = taken >= 0 ? (int)taken : (status[0] != HONE_OK ? 1 : (status[1] != HONE_OK ? 0 : -1));
        if (only >= 0) {
            set_type(ctx, i, &from[only]->type);
            const hn_dim *elems = taken >= 0 ? hn_infer_elems(ctx, from[only], &count) : NULL;
            if (elems) hn_infer_set_elems(ctx, i, elems, count);
            continue;
        }
        const hn_type *a = &from[0]->type, *b = &from[1]->type;
        if (a->dtype && b->dtype && a->dtype != b->dtype)
            HN_BAD_NODE(err, node, "the branches give %s and %s for output %d",
                        hn_dtype_name(b->dtype), hn_dtype_name(a->dtype), i);
        hn_type both = cover(ctx, a, b, &out->type);
        set_type(ctx, i, &both);
    }
    return HONE_OK;
}

// ---- Loop and Scan ------------------------------------------------------------------------------
typedef struct loop_state {
    hn_type old;     // of the last inference: lends its unknown dims
    uint32_t opened; // dims that the body changes: unknown from then on
} loop_state;

// One round: compares what goes in with what comes out. Returns whether a state had to be opened.
static hn_status settle_round(hone_error *err, hn_infer *ctx, hn_value *in, const hn_type *after,
                              int index, loop_state *state, bool *changed) {
    if (after->dtype && in->type.dtype && after->dtype != in->type.dtype)
        HN_BAD_NODE(err, ctx->node, "state %d starts as %s and becomes %s", index,
                    hn_dtype_name(in->type.dtype), hn_dtype_name(after->dtype));
    hn_type both = cover(ctx, &in->type, after, &state->old);
    for (int d = 0; d < both.rank; d++) {
        if (state->opened >> d & 1) both.dims[d] = in->type.dims[d];
        else if (both.dims[d] != in->type.dims[d]) state->opened |= 1u << d;
    }
    *changed |= !same_type(&both, &in->type);
    in->type = both;
    return HONE_OK;
}

// Infers a body until the types of its state (inputs first_in.., outputs first_out..) hold.
static hn_status settle(hone_error *err, hn_infer *ctx, hn_graph *body, int first_in, int first_out,
                        int states, int first_initial) {
    loop_state *state = hn_calloc((size_t)states + 1, sizeof *state);
    if (!state) HN_NOMEM(err, "inferring a loop");
    for (int i = 0; i < states; i++) {
        hn_value *in = body->inputs.data[first_in + i];
        const hn_value *initial = hn_in(ctx->node, first_initial + i);
        state[i].old = in->type;
        if (initial) in->type = initial->type;
        if (in->type.dtype == HN_NONE) in->type.dtype = state[i].old.dtype;
    }
    hone_status status = HONE_OK;
    bool changed = true;
    for (int round = 0; changed && status == HONE_OK && round < HN_MAX_RANK + 2; round++) {
        changed = false;
        status = hn_infer_graph(err, body);
        for (int i = 0; i < states && status == HONE_OK; i++)
            status = settle_round(err, ctx, body->inputs.data[first_in + i],
                                  &body->outputs.data[first_out + i]->type, i, &state[i], &changed);
    }
    hn_free(state);
    return status;
}

static void clear_elems(hn_graph *body) {
    for (size_t i = 0; i < body->inputs.count; i++)
        if (!body->inputs.data[i]->constant) body->inputs.data[i]->elems = NULL;
}

// Both the trip count and the condition may be absent, so the row can demand no input.
hone_status hn_infer_loop(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_graph *body = NULL;
    HN_TRY(body_of(err, ctx, "body", &body));
    int states = node->input_count - 2, scans = node->output_count - states;
    if (states < 0 || scans < 0 || (int)body->inputs.count != 2 + states ||
        (int)body->outputs.count != 1 + states + scans)
        HN_BAD_NODE(err, node, "its body has %zu inputs and %zu outputs where %d and %d are due",
                    body->inputs.count, body->outputs.count, 2 + states, 1 + node->output_count);
    clear_elems(body);
    body->inputs.data[0]->type = (hn_type){.dtype = HN_I64};
    body->inputs.data[1]->type = (hn_type){.dtype = HN_BOOL};
    HN_TRY(settle(err, ctx, body, 2, 1, states, 2));
    for (int i = 0; i < states; i++)
        set_type(ctx, i, &body->inputs.data[2 + i]->type);
    int64_t most = INT64_MAX;
    int count;
    if (!hn_infer_ints(ctx, node->inputs[0], &most, 1, &count) || count != 1) most = INT64_MAX;
    hn_dim trips = scans ? hn_dim_fresh(ctx->dims, 0, hn_max_i64(most, 0)) : 0;
    for (int i = states; i < node->output_count; i++) {
        const hn_type *each = &body->outputs.data[1 + i]->type;
        hn_dim dims[HN_MAX_RANK];
        if (each->rank >= HN_MAX_RANK)
            HN_FAIL_NODE(err, HONE_ERR_LIMIT, node, "gives more than %d dims", HN_MAX_RANK);
        dims[0] = trips;
        for (int d = 0; d < each->rank; d++)
            dims[d + 1] = each->dims[d];
        hn_infer_set(ctx, i, each->dtype, each->rank < 0 ? -1 : each->rank + 1, dims);
    }
    return HONE_OK;
}

static int64_t listed(const hn_node *node, const char *name, int at) {
    int64_t count;
    const int64_t *list = hn_node_ints(node, name, &count);
    return list && at < count ? list[at] : 0;
}

hone_status hn_infer_scan(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_graph *body = NULL;
    if (node->version < 9)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "Scan before opset 9 is not supported");
    HN_TRY(body_of(err, ctx, "body", &body));
    int64_t scanned = hn_op_int(node, "num_scan_inputs");
    int states = node->input_count - (int)scanned, scans = node->output_count - states;
    if (scanned < 1 || scanned > node->input_count || scans < 0 ||
        (int)body->inputs.count != node->input_count ||
        (int)body->outputs.count != node->output_count)
        HN_BAD_NODE(err, node, "its body has %zu inputs and %zu outputs where %d and %d are due",
                    body->inputs.count, body->outputs.count, node->input_count, node->output_count);
    clear_elems(body);
    hn_dim length = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    for (int i = states; i < node->input_count; i++) {
        const hn_value *from = node->inputs[i];
        hn_type each = {.dtype = from ? from->type.dtype : HN_NONE, .rank = -1};
        int axis;
        if (hn_known_rank(from)) {
            HN_TRY(hn_infer_axis(err, ctx, listed(node, "scan_input_axes", i - states),
                                 from->type.rank, &axis));
            each.rank = 0;
            for (int d = 0; d < from->type.rank; d++)
                if (d != axis) each.dims[each.rank++] = from->type.dims[d];
            if (hn_dim_is_const(length) || i > states)
                HN_TRY(hn_infer_merge_dim(err, ctx, length, from->type.dims[axis], axis, &length));
            else
                length = from->type.dims[axis];
        }
        body->inputs.data[i]->type = each;
    }
    HN_TRY(settle(err, ctx, body, 0, 0, states, 0));
    for (int i = 0; i < node->output_count; i++) {
        hn_type type = body->outputs.data[i]->type;
        if (i < states) {
            set_type(ctx, i, &body->inputs.data[i]->type);
            continue;
        }
        int axis = 0;
        if (type.rank >= HN_MAX_RANK)
            HN_FAIL_NODE(err, HONE_ERR_LIMIT, node, "gives more than %d dims", HN_MAX_RANK);
        if (type.rank >= 0) {
            HN_TRY(hn_infer_axis(err, ctx, listed(node, "scan_output_axes", i - states),
                                 type.rank + 1, &axis));
            for (int d = type.rank++; d > axis; d--)
                type.dims[d] = type.dims[d - 1];
            type.dims[axis] = length;
        }
        set_type(ctx, i, &type);
    }
    return HONE_OK;
}
