// SPDX-License-Identifier: Apache-2.0
// Loop and Scan whose number of rounds is known and small: the body is written out once a round.
//
// Known means: the trip count is a constant or follows from shapes, and the condition is true at the start
// and stays so whatever the data (or is false after the first round, or false from the start). Carried values
// run from copy to copy, stacked outputs are put together with Concat. A body that draws random numbers
// or holds control flow of its own, and one that would grow beyond the bounds below, stays a loop. Bodies of
// inner loops are written out first.
#include "passes/pass_int.h"
#include "passes/match.h"

#define MAX_ROUNDS 64  // also what one Concat takes
#define MAX_NODES  512 // of all copies

typedef struct unroll {
    hn_pass_ctx *ctx;
    hn_node *node;
    hn_graph *body;
    int64_t rounds;
    int carried, scans, scan_inputs; // scan_inputs: of a Scan
    int first_in, first_out;         // of the carried values among the body's inputs and outputs
    uint32_t ids;                    // value ids that the map covers
    hn_value **map;                  // by id: what stands for a value of the body in this round
    hn_value **state, **slices;      // carried values; stacked ones: scan * rounds + round
} unroll;

// A known integer or truth value.
static bool known(hn_pass_ctx *ctx, const hn_value *value, int64_t *out) {
    const hn_tensor *tensor = hn_pass_constant(ctx, value);
    if (tensor && hn_tensor_count(tensor) == 1 &&
        (hn_dtype_is_int(tensor->dtype) || tensor->dtype == HN_BOOL)) {
        *out = hn_tensor_get_i64(tensor, 0);
        return true;
    }
    if (value->constant || !value->elems || value->elem_count != 1 || !hn_dim_is_const(value->elems[0]))
        return false;
    *out = value->elems[0];
    return true;
}

static bool may_go(const hn_pass_ctx *ctx, const hn_node *node) {
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && hn_pass_pinned(ctx, node->outputs[i])) return false;
    return true;
}

// How many rounds a Loop takes, -1: not known.
static int64_t loop_rounds(hn_pass_ctx *ctx, const hn_node *node, const hn_graph *body) {
    int64_t trips = INT64_MAX, start = 1, after;
    if (hn_in(node, 0) && !known(ctx, node->inputs[0], &trips)) return -1;
    if (hn_in(node, 1) && !known(ctx, node->inputs[1], &start)) return -1;
    if (trips <= 0 || !start) return 0;
    const hn_value *going = body->outputs.data[0];
    while (going->producer && hn_pass_is(going->producer, "Identity") && going->producer->inputs[0])
        going = going->producer->inputs[0];
    if (going == body->inputs.data[1]) return trips;
    if (!known(ctx, going, &after)) return -1;
    return after ? trips : 1;
}

static int64_t listed(const hn_node *node, const char *name, int at) {
    int64_t count;
    const int64_t *list = hn_node_ints(node, name, &count);
    return list && at < count ? list[at] : 0;
}

static bool scan_axis(const hn_node *node, int carried, int index, int *out_axis) {
    const hn_value *in = hn_in(node, carried + index);
    return in && in->type.rank > 0 && hn_axis_normalise(listed(node, "scan_input_axes", index), in->type.rank, out_axis);
}

static int64_t scan_rounds(const hn_node *node, int carried, int scan_inputs) {
    int64_t rounds = -1;
    for (int i = 0; i < scan_inputs; i++) {
        int axis;
        if (!scan_axis(node, carried, i, &axis)) return -1;
        hn_dim dim = node->inputs[carried + i]->type.dims[axis];
        if (!hn_dim_is_const(dim) || (rounds >= 0 && rounds != dim)) return -1;
        rounds = dim;
    }
    return rounds;
}

static bool body_may_repeat(const hn_graph *body, int64_t rounds) {
    int64_t nodes = 0;
    for (const hn_node *node = body->first; node; node = node->next) {
        if (hn_op_has(node->op, HN_T_RANDOM | HN_T_CONTROL) || node->op == HN_OP_UNKNOWN || node->post_count)
            return false;
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) return false;
        nodes++;
    }
    return rounds <= MAX_ROUNDS && rounds * nodes <= MAX_NODES;
}

// ---- one round ----------------------------------------------------------------------------------
static hn_value *scalar(hn_node *at, hn_dtype dtype, int64_t value) {
    hn_tensor t;
    if (hn_tensor_new(NULL, dtype, &(hn_shape){0}, &t) != HONE_OK) return NULL;
    if (dtype == HN_BOOL) *(uint8_t *)t.data = value != 0;
    else *(int64_t *)t.data = value;
    return hn_pass_add_constant(at, &t);
}

static hn_value *mapped(const unroll *u, hn_value *value) {
    return value && value->graph == u->body ? u->map[value->id] : value;
}

// A copy of a body's node in front of the loop.
static hn_status copy_node(hone_error *err, unroll *u, const hn_node *from) {
    hn_node *made = hn_graph_add_node(u->node->graph, u->node, from->op, from->op_type, from->domain, from->version,
                                      NULL, 0, from->output_count);
    bool ok = made && hn_node_copy_attrs(made, from);
    for (int i = 0; ok && i < from->input_count; i++)
        ok = hn_node_add_input(made, mapped(u, from->inputs[i]));
    if (!ok) HN_NOMEM(err, "unrolling a loop");
    made->name = from->name;
    made->compute = from->compute;
    made->plain = from->plain;
    for (int i = 0; i < from->output_count; i++) {
        if (from->outputs[i]) u->map[from->outputs[i]->id] = made->outputs[i];
        else hn_node_set_output(made, i, NULL);
    }
    return HONE_OK;
}

// What a round of a Scan reads: one element along the axis, which goes.
static hn_status take_slices(hone_error *err, unroll *u, int64_t round) {
    for (int i = 0; i < u->scan_inputs; i++) {
        int axis;
        bool backwards = listed(u->node, "scan_input_directions", i) != 0;
        hn_value *from = u->node->inputs[u->carried + i];
        if (!scan_axis(u->node, u->carried, i, &axis)) HN_FAIL(err, HONE_ERR_INTERNAL, "a Scan lost its axis");
        hn_value *in[] = {from, scalar(u->node, HN_I64, backwards ? u->rounds - 1 - round : round)};
        hn_node *gather = in[1] ? hn_pass_make(u->node, "Gather", in, 2) : NULL;
        if (!gather || !hn_node_set_int(gather, "axis", axis)) HN_NOMEM(err, "unrolling a loop");
        HN_TRY(hn_infer_node(err, gather));
        u->map[u->body->inputs.data[u->carried + i]->id] = gather->outputs[0];
    }
    return HONE_OK;
}

static hn_status write_round(hone_error *err, unroll *u, int64_t round) {
    hn_graph *body = u->body;
    for (int i = 0; i < u->carried; i++)
        u->map[body->inputs.data[u->first_in + i]->id] = u->state[i];
    if (u->scan_inputs) {
        HN_TRY(take_slices(err, u, round));
    } else {
        hn_value *number = scalar(u->node, HN_I64, round), *going = scalar(u->node, HN_BOOL, 1);
        if (!number || !going) HN_NOMEM(err, "unrolling a loop");
        u->map[body->inputs.data[0]->id] = number;
        u->map[body->inputs.data[1]->id] = going;
    }
    for (const hn_node *node = body->first; node; node = node->next)
        HN_TRY(copy_node(err, u, node));
    for (int i = 0; i < u->scans; i++)
        u->slices[i * u->rounds + round] = mapped(u, body->outputs.data[u->first_out + u->carried + i]);
    // All of them at once: one may be another's value of the round before.
    for (int i = 0; i < u->carried; i++)
        u->state[i] = mapped(u, body->outputs.data[u->first_out + i]);
    for (int i = 0; i < u->carried; i++)
        if (!u->state[i]) HN_FAIL(err, HONE_ERR_INTERNAL, "a loop's body gives no value");
    return HONE_OK;
}

// ---- what comes out -----------------------------------------------------------------------------
static hn_status stacked(hone_error *err, unroll *u, int scan, hn_value **out) {
    hn_value *parts[MAX_ROUNDS];
    hn_value **slices = u->slices + scan * u->rounds;
    int64_t axis = u->scan_inputs ? listed(u->node, "scan_output_axes", scan) : 0;
    bool backwards = u->scan_inputs && listed(u->node, "scan_output_directions", scan);
    hn_tensor t;
    HN_TRY(hn_tensor_new(err, HN_I64, &(hn_shape){1, {1}}, &t));
    *(int64_t *)t.data = axis;
    hn_value *axes = hn_pass_add_constant(u->node, &t);
    for (int64_t r = 0; r < u->rounds; r++) {
        hn_value *in[] = {slices[backwards ? u->rounds - 1 - r : r], axes};
        hn_node *made = axes ? hn_pass_make(u->node, "Unsqueeze", in, 2) : NULL;
        if (!made) HN_NOMEM(err, "unrolling a loop");
        parts[r] = made->outputs[0];
    }
    *out = parts[0];
    if (u->rounds == 1) return HONE_OK;
    hn_node *concat = hn_pass_make(u->node, "Concat", parts, (int)u->rounds);
    if (!concat || !hn_node_set_int(concat, "axis", axis)) HN_NOMEM(err, "unrolling a loop");
    *out = concat->outputs[0];
    return HONE_OK;
}

static hn_status put_result(hone_error *err, unroll *u, hn_value *old, hn_value *result) {
    if (!hn_pass_can_replace(u->ctx, old, result)) {
        hn_value *in[] = {result};
        result = hn_pass_build(u->node, "Identity", in, 1);
        if (!result) HN_NOMEM(err, "unrolling a loop");
    }
    hn_value_replace(old, result);
    return HONE_OK;
}

static hn_status write_out(hone_error *err, unroll *u) {
    for (size_t i = 0; i < u->body->values.count; i++) {
        hn_value *value = u->body->values.data[i];
        if (!value->constant) continue;
        hn_tensor shared = hn_tensor_ref(value->constant);
        u->map[value->id] = hn_pass_add_constant(u->node, &shared);
        if (!u->map[value->id]) HN_NOMEM(err, "unrolling a loop");
    }
    for (int i = 0; i < u->carried; i++)
        u->state[i] = u->node->inputs[u->node->input_count - u->carried - u->scan_inputs + i];
    for (int64_t round = 0; round < u->rounds; round++)
        HN_TRY(write_round(err, u, round));
    for (int i = 0; i < u->node->output_count; i++) {
        hn_value *old = u->node->outputs[i], *result = NULL;
        if (!old || hn_value_unused(old)) continue;
        if (i < u->carried) result = u->state[i];
        else HN_TRY(stacked(err, u, i - u->carried, &result));
        HN_TRY(put_result(err, u, old, result));
    }
    hn_node_remove(u->node);
    u->ctx->changes++;
    return HONE_OK;
}

// ---- which --------------------------------------------------------------------------------------
// Without a round the stacked outputs are empty, of a shape that only the body's types could tell.
static bool can_be_empty(const unroll *u) {
    for (int i = u->carried; i < u->node->output_count; i++)
        if (u->node->outputs[i] && !hn_value_unused(u->node->outputs[i])) return false;
    return true;
}

static bool describe(hn_pass_ctx *ctx, hn_node *node, unroll *u) {
    bool scan = hn_pass_is(node, "Scan");
    const hn_attr *attr = hn_node_attr(node, "body");
    if (!(scan || hn_pass_is(node, "Loop")) || !attr || attr->type != HN_ATTR_GRAPH || !may_go(ctx, node) ||
        (scan && node->version < 9))
        return false;
    *u = (unroll){.ctx = ctx, .node = node, .body = attr->graph, .ids = ctx->module->next_value_id};
    u->scan_inputs = scan ? (int)hn_node_int(node, "num_scan_inputs", 0) : 0;
    u->first_in = scan ? 0 : 2;
    u->first_out = scan ? 0 : 1;
    u->carried = node->input_count - (scan ? u->scan_inputs : 2);
    u->scans = node->output_count - u->carried;
    if (u->carried < 0 || u->scans < 0 || (scan && u->scan_inputs < 1) ||
        (int)u->body->inputs.count != u->first_in + u->carried + u->scan_inputs ||
        (int)u->body->outputs.count != u->first_out + u->carried + u->scans || u->body->overridables.count)
        return false;
    for (int i = node->input_count - u->carried - u->scan_inputs; i < node->input_count; i++)
        if (!node->inputs[i]) return false;
    u->rounds = scan ? scan_rounds(node, u->carried, u->scan_inputs) : loop_rounds(ctx, node, u->body);
    return u->rounds >= 0 && body_may_repeat(u->body, u->rounds) && (u->rounds > 0 || can_be_empty(u));
}

static hone_status loop_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        unroll u;
        next = node->next;
        const char *rule = hn_pass_is(node, "Scan") ? "static-scan" : "static-loop";
        if (hn_pass_is(node, "Loop") || hn_pass_is(node, "Scan")) hn_rule_note(ctx, rule, false);
        if (!describe(ctx, node, &u)) continue;
        u.map = hn_calloc((size_t)u.ids + 1, sizeof *u.map);
        u.state = hn_calloc((size_t)u.carried + 1, sizeof *u.state);
        u.slices = hn_calloc((size_t)u.scans * (size_t)u.rounds + 1, sizeof *u.slices);
        hone_status status = u.map && u.state && u.slices
                                 ? write_out(err, &u)
                                 : HN_SET(err, HONE_ERR_NOMEM, "out of memory (unrolling a loop)");
        hn_free(u.map);
        hn_free(u.state);
        hn_free(u.slices);
        HN_TRY(status);
        hn_rule_note(ctx, rule, true);
    }
    return HONE_OK;
}

hone_status hn_pass_static_loop(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, loop_graph);
}
