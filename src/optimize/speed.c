// SPDX-License-Identifier: Apache-2.0
// Which layers are faster in the lower precision: two copies of the model, one with all of them low and one
// with none, take turns, and the fastest time of each layer's own steps is compared.
//
// For the objectives memory and size time is not what layers are chosen by.
//
// A layer is known by its node's name, which steps keep: in both copies it is "layer#<id of the base's
// node>", what a rewrite puts beside it has that name with something behind it, and its time is the sum.
#include "optimize/optimize_int.h"

#define PROFILE_RUNS 30
// Where the lower precision saves less than this it is not worth its error.
#define WORTH 0.95

typedef struct timed_copy {
    hn_module *module;
    hn_session *session;
    hn_step_info *steps;
    int count;
    double *ns, *run; // by the id of the base's node: the least time of a layer; that of one run. 0: not seen
} timed_copy;

static void copy_free(timed_copy *t) {
    hn_session_free(t->session);
    hn_module_free(t->module);
    hn_free(t->steps);
    hn_free(t->ns);
    hn_free(t->run);
}

static hn_status copy_make(hone_error *err, hn_layer_search *s, bool low, timed_copy *t) {
    size_t count = (size_t)s->base->next_node_id + 1;
    t->ns = hn_calloc(count, sizeof *t->ns);
    t->run = hn_calloc(count, sizeof *t->run);
    if (!t->ns || !t->run) HN_NOMEM(err, "timing layers");
    if (low) HN_TRY(s->make(err, s, s->node_in, &t->module));
    else t->module = hn_module_clone(s->base, NULL);
    if (!t->module) HN_NOMEM(err, "timing layers");
    hn_session_options options = {.backend = s->o->backend, .profile = true};
    return hn_session_new(err, t->module, &options, &t->session);
}

// One run, whose layers count where they were the fastest so far.
static hn_status copy_run(hone_error *err, const hn_layer_search *s, timed_copy *t, const hn_tensor *in) {
    hn_tensor out[HN_MAX_KERNEL_IO];
    const hn_gate *gate = &s->o->gate;
    uint32_t ids = s->base->next_node_id;
    if (t->count) hn_session_reset_profile(t->session);
    HN_TRY(hn_session_run(err, t->session, in, gate->input_count, out, gate->output_count));
    if (!t->count) { // the first run makes the plan and is not counted
        t->count = hn_session_steps(t->session, NULL, 0);
        t->steps = hn_calloc((size_t)t->count + 1, sizeof *t->steps);
        if (!t->steps) HN_NOMEM(err, "timing layers");
        return HONE_OK;
    }
    hn_session_steps(t->session, t->steps, t->count);
    memset(t->run, 0, ids * sizeof *t->run);
    for (int i = 0; i < t->count; i++) {
        unsigned id;
        const hn_step_info *step = &t->steps[i];
        if (step->name && step->runs && sscanf(step->name, "layer#%u", &id) == 1 && id < ids)
            t->run[id] += step->total_ns / (double)step->runs;
    }
    for (uint32_t id = 0; id < ids; id++)
        if (t->run[id] > 0 && (t->ns[id] == 0 || t->run[id] < t->ns[id])) t->ns[id] = t->run[id];
    return HONE_OK;
}

// The copies take turns, so that a busy machine hits both.
static hn_status time_layers(hone_error *err, hn_layer_search *s, timed_copy *wide, timed_copy *low) {
    hn_tensor in[HN_MAX_KERNEL_IO];
    const hn_gate *gate = &s->o->gate;
    char what[64];
    snprintf(what, sizeof what, "%s: timing layers", s->precision);
    HN_TRY(hn_gate_inputs(err, gate, hn_gate_sample(gate, HN_SPLIT_CALIBRATE, 0), in));
    HN_TRY(copy_make(err, s, false, wide));
    HN_TRY(copy_make(err, s, true, low));
    for (int i = 0; i < PROFILE_RUNS; i++) {
        HN_TRY(copy_run(err, s, wide, in));
        HN_TRY(copy_run(err, s, low, in));
        hn_optimizer_progress(s->o, what, (double)i / PROFILE_RUNS);
    }
    return HONE_OK;
}

static hn_status name_layers(hone_error *err, hn_layer_search *s, const char **out_names) {
    for (hn_node *node = s->base->main->first; node; node = node->next)
        out_names[node->id] = node->name;
    for (hn_node *node = s->base->main->first; node; node = node->next) {
        const char *name = hn_arena_printf(&s->base->arena, s->node_in[node->id] ? "layer#%u" : "other#%u",
                                           node->id);
        if (!name) HN_NOMEM(err, "timing layers");
        node->name = name;
    }
    return HONE_OK;
}

hn_status hn_layers_leave_slow(hone_error *err, hn_layer_search *s) {
    hn_objective objective = s->o->options->objective;
    if (objective == HN_OBJECTIVE_MEMORY || objective == HN_OBJECTIVE_SIZE) return HONE_OK;
    timed_copy wide = {0}, low = {0};
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
    copy_free(&wide);
    copy_free(&low);
    hn_free(names);
    return status;
}
