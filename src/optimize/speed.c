// SPDX-License-Identifier: Apache-2.0
// Which layers are faster in the lower precision: two copies of the model, one with all of them low and one
// with none, take turns, and the fastest time of each layer's own steps is compared.
//
// For the objectives memory and size time is not what layers are chosen by.
//
// A layer's time is that of its own step and of what belongs to it: element-wise steps behind it, which the
// other precision may do by a table or inside the layer, and the conversions of its result. Steps are known by
// their node's name, which they keep: in both copies the nodes of a layer are "layer#<id of the layer's node in
// the base>", what a rewrite puts beside one has that name with something behind it, and conversions are named
// after the value (quantize.c).
#include "optimize/optimize_int.h"

#define PROFILE_RUNS 30
// Where the lower precision saves less than this it is not worth its error.
#define WORTH 0.95
#define NOBODY UINT32_MAX
// Two runs of a large model say what thirty of a small one do.
#define MIN_RUNS      8
#define PROFILE_NS    1500000000

void hn_timed_close(hn_timed_copy *t) {
    hn_session_free(t->session);
    hn_module_free(t->module);
    hn_free(t->steps);
    hn_free(t->owner);
    hn_free(t->ns);
    hn_free(t->run);
    hn_free(t->step_ns);
    *t = (hn_timed_copy){0};
}

hn_status hn_timed_open(hone_error *err, const hn_optimizer *o, const hn_module *base, hn_module *module,
                        hn_timed_copy *out) {
    size_t count = (size_t)base->next_node_id + 1;
    *out = (hn_timed_copy){.base = base, .module = module};
    out->ns = hn_calloc(count, sizeof *out->ns);
    out->run = hn_calloc(count, sizeof *out->run);
    if (!out->ns || !out->run || !module) HN_NOMEM(err, "timing layers");
    hn_session_options options = {.backend = o->backend, .profile = true};
    return hn_session_new(err, module, &options, &out->session);
}

// The layer that a step belongs to.
static uint32_t owner_of(const hn_module *base, const char *name) {
    char stem[256];
    unsigned id;
    if (!name) return NOBODY;
    if (sscanf(name, "layer#%u", &id) == 1) return id < base->next_node_id ? id : NOBODY;
    size_t length = strlen(name);
    if (length < 2 || length >= sizeof stem || strcmp(name + length - 2, "_q") != 0) return NOBODY;
    snprintf(stem, sizeof stem, "%.*s", (int)(length - 2), name);
    const hn_value *value = hn_graph_find(base->main, stem);
    return value && value->producer ? owner_of(base, value->producer->name) : NOBODY;
}

// One run, whose layers count where they were the fastest so far.
static hn_status copy_run(hone_error *err, const hn_gate *gate, hn_timed_copy *t, const hn_tensor *in) {
    hn_tensor out[HN_MAX_KERNEL_IO];
    uint32_t ids = t->base->next_node_id;
    if (t->count) hn_session_reset_profile(t->session);
    HN_TRY(hn_session_run(err, t->session, in, gate->input_count, out, gate->output_count));
    if (!t->count) { // the first run makes the plan and is not counted
        t->count = hn_session_steps(t->session, NULL, 0);
        t->steps = hn_calloc((size_t)t->count + 1, sizeof *t->steps);
        t->owner = hn_calloc((size_t)t->count + 1, sizeof *t->owner);
        t->step_ns = hn_calloc((size_t)t->count + 1, sizeof *t->step_ns);
        if (!t->steps || !t->owner || !t->step_ns) HN_NOMEM(err, "timing layers");
        hn_session_steps(t->session, t->steps, t->count);
        for (int i = 0; i < t->count; i++)
            t->owner[i] = owner_of(t->base, t->steps[i].name);
        return HONE_OK;
    }
    hn_session_steps(t->session, t->steps, t->count);
    memset(t->run, 0, ids * sizeof *t->run);
    for (int i = 0; i < t->count; i++) {
        const hn_step_info *step = &t->steps[i];
        double ns = step->runs ? step->total_ns / (double)step->runs : 0;
        if (ns > 0 && (t->step_ns[i] == 0 || ns < t->step_ns[i])) t->step_ns[i] = ns;
        if (t->owner[i] != NOBODY) t->run[t->owner[i]] += ns;
    }
    for (uint32_t id = 0; id < ids; id++)
        if (t->run[id] > 0 && (t->ns[id] == 0 || t->run[id] < t->ns[id])) t->ns[id] = t->run[id];
    return HONE_OK;
}

// The copies take turns, so that a busy machine hits both.
hn_status hn_timed_runs(hone_error *err, const hn_optimizer *o, const char *what, hn_timed_copy *a,
                        hn_timed_copy *b) {
    hn_tensor in[HN_MAX_KERNEL_IO];
    const hn_gate *gate = &o->gate;
    HN_TRY(hn_gate_inputs(err, gate, hn_gate_sample(gate, HN_SPLIT_CALIBRATE, 0), in));
    int64_t end = hn_clock_ns() + PROFILE_NS;
    for (int i = 0; i < PROFILE_RUNS && (i < MIN_RUNS || hn_clock_ns() < end); i++) {
        HN_TRY(copy_run(err, gate, a, in));
        HN_TRY(copy_run(err, gate, b, in));
        hn_optimizer_progress(o, what, (double)i / PROFILE_RUNS);
    }
    return HONE_OK;
}

static hn_status time_layers(hone_error *err, hn_layer_search *s, hn_timed_copy *wide, hn_timed_copy *low) {
    hn_module *module = NULL;
    char what[64];
    snprintf(what, sizeof what, "%s: timing layers", s->precision);
    HN_TRY(hn_timed_open(err, s->o, s->base, hn_module_clone(s->base, NULL), wide));
    HN_TRY(s->make(err, s, s->node_in, &module));
    HN_TRY(hn_timed_open(err, s->o, s->base, module, low));
    return hn_timed_runs(err, s->o, what, wide, low);
}

// The layer behind which an element-wise node hangs: the first operand that belongs to one decides.
static const hn_node *layer_of(const hn_layer_search *s, const hn_node *node, const uint32_t *owner) {
    if (s->node_in[node->id]) return node;
    for (int i = 0; hn_op_has(node->op, HN_T_ELEMENTWISE) && i < node->input_count; i++) {
        const hn_node *from = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (from && from->graph == node->graph && owner[from->id] != NOBODY) return from;
    }
    return NULL;
}

static hn_status name_layers(hone_error *err, hn_layer_search *s, const char **out_names) {
    uint32_t *owner = hn_malloc(((size_t)s->base->next_node_id + 1) * sizeof *owner);
    hone_status status = owner ? HONE_OK : HN_SET(err, HONE_ERR_NOMEM, "out of memory (timing layers)");
    for (hn_node *node = s->base->main->first; node && status == HONE_OK; node = node->next) {
        const hn_node *layer = layer_of(s, node, owner);
        owner[node->id] = !layer ? NOBODY : layer == node ? node->id : owner[layer->id];
        out_names[node->id] = node->name;
        const char *name = layer ? hn_arena_printf(&s->base->arena, "layer#%u", owner[node->id])
                                 : hn_arena_printf(&s->base->arena, "other#%u", node->id);
        if (!name) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (timing layers)");
        else node->name = name;
    }
    hn_free(owner);
    return status;
}

hn_status hn_layers_leave_slow(hone_error *err, hn_layer_search *s) {
    hn_objective objective = s->o->options->objective;
    if (objective == HN_OBJECTIVE_MEMORY || objective == HN_OBJECTIVE_SIZE) return HONE_OK;
    hn_timed_copy wide = {0}, low = {0};
    const char **names = hn_calloc((size_t)s->base->next_node_id + 1, sizeof *names);
    if (!names) HN_NOMEM(err, "timing layers");
    hone_status status = name_layers(err, s, names);
    if (status == HONE_OK) status = time_layers(err, s, &wide, &low);
    for (hn_node *node = s->base->main->first; node; node = node->next)
        if (names[node->id]) node->name = names[node->id];
    for (uint32_t id = 0; status == HONE_OK && id < s->base->next_node_id; id++) {
        if (!s->node_in[id] || wide.ns[id] <= 0 || low.ns[id] <= 0 || low.ns[id] < WORTH * wide.ns[id])
            continue;
        s->node_in[id] = false;
        snprintf(s->why[id], sizeof s->why[0], "not faster in %s: %.1f us against %.1f", s->precision,
                 low.ns[id] / 1e3, wide.ns[id] / 1e3);
    }
    if (status == HONE_OK) s->nodes = hn_layers_count(s);
    hn_timed_close(&wide);
    hn_timed_close(&low);
    hn_free(names);
    return status;
}
