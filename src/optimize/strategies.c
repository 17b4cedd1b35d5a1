// SPDX-License-Identifier: Apache-2.0
// The strategies: how each makes its candidate from the best model so far. Whether the candidate is
// kept is decided elsewhere (optimize.c).
#include "optimize/optimize_int.h"
#include "probe/cpu.h"
#include <math.h>
#include <stdlib.h>

hn_status hn_name_values(hone_error *err, hn_module *module) {
    hn_graph *main = module->main;
    for (size_t i = 0; i < main->values.count; i++) {
        hn_value *value = main->values.data[i];
        if (*value->name) continue;
        char name[64];
        snprintf(name, sizeof name, "hone_%u", value->id);
        for (int k = 1; hn_graph_find(main, name); k++)
            snprintf(name, sizeof name, "hone_%u_%d", value->id, k);
        value->name = hn_arena_strdup(&module->arena, name);
        if (!value->name) HN_NOMEM(err, "naming values");
    }
    return HONE_OK;
}

// ---- graph --------------------------------------------------------------------------------------
hone_status hn_strategy_graph(hone_error *err, hn_optimizer *o, hn_module **out_module,
                              json_t **out_decision, char *why, size_t why_size) {
    hn_module *module = hn_module_clone(o->current, NULL);
    if (!module) HN_NOMEM(err, "rewriting");
    hn_pass_options options = {.freeze_overridable = true};
    hone_status status = hn_passes_run(err, module, HN_PASS_PORTABLE, &options);
    if (status == HONE_OK) status = hn_name_values(err, module);
    hn_str before = {0}, after = {0};
    hn_module_print(&before, o->current);
    hn_module_print(&after, module);
    bool same = !before.failed && !after.failed && before.length == after.length &&
                memcmp(before.data, after.data, before.length) == 0;
    hn_str_free(&before);
    hn_str_free(&after);
    if (status != HONE_OK || same) {
        hn_module_free(module);
        if (status == HONE_OK) snprintf(why, why_size, "nothing to rewrite");
        return status;
    }
    *out_decision = json_object();
    *out_module = module;
    return HONE_OK;
}

// ---- int8 ---------------------------------------------------------------------------------------
// Rows of data (samples times batch): ranges stop moving long before, time does not.
#define CALIBRATION_ROWS 512
#define CHOICE_ROWS      512 // for choosing among methods
#define LAYER_ROWS       64  // for measuring layers one by one

static int64_t samples_for(const hn_optimizer *o, int64_t rows) {
    int64_t batch = o->gate.dataset ? hn_dataset_batch(o->gate.dataset) : 1;
    return hn_max_i64(4, rows / hn_max_i64(1, batch));
}

typedef struct int8_search {
    hn_optimizer *o;
    hn_module *base; // o->current with names
    hn_calibration calibration;
    bool *node_in; // by node id
    double *error; // by node id: 1 - cosine with this node alone in int8
    int nodes;
    int weight_max;
} int8_search;

typedef struct int8_try {
    hn_module *module;
    hn_quantize_plan plan;
    hn_accuracy accuracy;
} int8_try;

static void try_free(int8_try *t) {
    hn_module_free(t->module);
    hn_quantize_plan_free(&t->plan);
    *t = (int8_try){0};
}

static hn_status try_int8(hone_error *err, int8_search *s, hn_clip_method method,
                          const bool *node_in, int64_t limit, int8_try *out) {
    int8_try t = {0};
    hn_session *session = NULL;
    hone_status status = hn_quantize_plan_make(err, s->base, &s->calibration, method, node_in,
                                               s->weight_max, &t.plan);
    if (status == HONE_OK) {
        t.module = hn_module_clone(s->base, NULL);
        if (!t.module) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (quantising)");
    }
    if (status == HONE_OK) status = hn_quantize_apply(err, t.module, &t.plan);
    if (status == HONE_OK) status = hn_gate_session(err, &s->o->gate, t.module, &session);
    if (status == HONE_OK)
        status =
            hn_gate_accuracy(err, &s->o->gate, session, HN_SPLIT_CALIBRATE, limit, &t.accuracy);
    hn_session_free(session);
    if (status != HONE_OK) {
        try_free(&t);
        return status;
    }
    *out = t;
    return HONE_OK;
}

static bool better(const hn_accuracy *a, const hn_accuracy *b) {
    if (a->nan != b->nan) return a->nan < b->nan;
    return a->cosine > b->cosine;
}

static hn_status best_method(hone_error *err, int8_search *s, const bool *node_in,
                             hn_clip_method *out_method, int8_try *out) {
    int8_try best = {0};
    for (hn_clip_method m = 0; m < HN_CLIP_END; m++) {
        int8_try t;
        hone_status status = try_int8(err, s, m, node_in, samples_for(s->o, CHOICE_ROWS), &t);
        if (status != HONE_OK) {
            try_free(&best);
            return status;
        }
        hn_optimizer_progress(s->o, "int8: choosing ranges", (m + 1.0) / HN_CLIP_END);
        if (!best.module || better(&t.accuracy, &best.accuracy)) {
            try_free(&best);
            best = t;
            *out_method = m;
        } else {
            try_free(&t);
        }
    }
    *out = best;
    return HONE_OK;
}

// How much each layer alone disturbs the outputs.
static hn_status measure_layers(hone_error *err, int8_search *s, hn_clip_method method) {
    bool *alone = hn_calloc((size_t)s->base->next_node_id + 1, sizeof *alone);
    if (!alone) HN_NOMEM(err, "measuring layers");
    hone_status status = HONE_OK;
    int done = 0;
    for (hn_node *node = s->base->main->first; node && status == HONE_OK; node = node->next) {
        if (!s->node_in[node->id]) continue;
        int8_try t;
        alone[node->id] = true;
        status = try_int8(err, s, method, alone, samples_for(s->o, LAYER_ROWS), &t);
        alone[node->id] = false;
        if (status != HONE_OK) break;
        s->error[node->id] = t.accuracy.nan ? INFINITY : 1 - t.accuracy.cosine;
        try_free(&t);
        hn_optimizer_progress(s->o, "int8: measuring layers", (double)++done / s->nodes);
    }
    hn_free(alone);
    return status;
}

static bool fits(const int8_search *s, const hn_accuracy *a) {
    char why[160];
    return hn_gate_accepts(&s->o->gate.budget, &s->o->result->baseline.accuracy, a, false, why,
                           sizeof why);
}

typedef struct ranked {
    double error;
    uint32_t node;
} ranked;

static int by_error(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->error != y->error) return x->error < y->error ? 1 : -1;
    return x->node < y->node ? -1 : 1;
}

// The fewest layers, the most disturbing first, whose return to float keeps the budget on the
// calibration half: found by bisection. best->module stays NULL where no set of layers does.
static hn_status shrink(hone_error *err, int8_search *s, hn_clip_method method, int8_try *best) {
    ranked *order = hn_malloc(((size_t)s->nodes + 1) * sizeof *order);
    if (!order) HN_NOMEM(err, "choosing layers");
    int count = 0;
    for (uint32_t id = 0; id < s->base->next_node_id; id++)
        if (s->node_in[id]) order[count++] = (ranked){s->error[id], id};
    qsort(order, (size_t)count, sizeof *order, by_error);
    try_free(best);
    hone_status status = HONE_OK;
    for (int low = 1, high = count - 1; low <= high && status == HONE_OK;) {
        int drop = (low + high) / 2;
        int8_try t = {0};
        for (int i = 0; i < count; i++)
            s->node_in[order[i].node] = i >= drop;
        status = try_int8(err, s, method, s->node_in, 0, &t);
        if (status == HONE_OK && fits(s, &t.accuracy)) {
            try_free(best);
            *best = t;
            high = drop - 1;
        } else {
            try_free(&t);
            low = drop + 1;
        }
    }
    hn_free(order);
    return status;
}

static hn_status record_layers(hone_error *err, const int8_search *s, const int8_try *t) {
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        if (!hn_quantize_capable(node)) continue;
        hn_layer layer = {.error = s->error[node->id]};
        const char *name = *node->name ? node->name : node->outputs[0]->name;
        snprintf(layer.name, sizeof layer.name, "%s", name);
        snprintf(layer.op, sizeof layer.op, "%s", node->op_type);
        snprintf(layer.precision, sizeof layer.precision, "%s",
                 t->plan.node_in[node->id] ? "int8" : "float32");
        if (!hn_vec_push(&s->o->result->layers, layer)) HN_NOMEM(err, "recording layers");
    }
    return HONE_OK;
}

static hn_status search_int8(hone_error *err, int8_search *s, int8_try *out,
                             hn_clip_method *method) {
    for (hn_node *node = s->base->main->first; node; node = node->next) {
        s->error[node->id] = NAN;
        s->node_in[node->id] = hn_quantize_capable(node);
        s->nodes += s->node_in[node->id];
    }
    if (!s->nodes) return HONE_OK;
    HN_TRY(hn_calibrate(err, &s->o->gate, s->base, samples_for(s->o, CALIBRATION_ROWS),
                        s->o->options->progress, s->o->options->user, &s->calibration));
    HN_TRY(best_method(err, s, s->node_in, method, out));
    hone_status status = HONE_OK;
    if (!fits(s, &out->accuracy)) {
        status = measure_layers(err, s, *method);
        if (status == HONE_OK) status = shrink(err, s, *method, out);
    }
    if (status != HONE_OK) try_free(out);
    return status;
}

static hn_status replay_int8(hone_error *err, int8_search *s, const json_t *decision,
                             int8_try *out) {
    HN_TRY(hn_quantize_from_json(err, decision, s->base, &out->plan));
    out->module = hn_module_clone(s->base, NULL);
    hone_status status = out->module ? hn_quantize_apply(err, out->module, &out->plan)
                                     : HN_SET(err, HONE_ERR_NOMEM, "out of memory (replaying)");
    if (status != HONE_OK) try_free(out);
    return status;
}

static const json_t *replay_of(const hn_optimizer *o, const char *name) {
    size_t index;
    json_t *item;
    json_array_foreach(o->replay, index, item) {
        const char *given = json_string_value(json_object_get(item, "strategy"));
        if (given && strcmp(given, name) == 0) return json_object_get(item, "decision");
    }
    return NULL;
}

hone_status hn_strategy_int8(hone_error *err, hn_optimizer *o, hn_module **out_module,
                             json_t **out_decision, char *why, size_t why_size) {
    int8_search s = {.o = o, .weight_max = hn_cpu_isa() >= HN_ISA_VNNI ? 127 : 63};
    int8_try best = {0};
    hn_clip_method method = HN_CLIP_MINMAX;
    hone_status status = HONE_OK;
    s.base = hn_module_clone(o->current, NULL);
    if (!s.base) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (quantising)");
    // Normalisations must be inside the weights before these are quantised, also where the rewrites
    // by themselves were not worth keeping.
    hn_pass_options passes = {.freeze_overridable = true};
    if (status == HONE_OK) status = hn_passes_run(err, s.base, HN_PASS_PORTABLE, &passes);
    if (status == HONE_OK) status = hn_name_values(err, s.base);
    size_t count = s.base ? (size_t)s.base->next_node_id + 1 : 1;
    s.node_in = hn_calloc(count, sizeof *s.node_in);
    s.error = hn_calloc(count, sizeof *s.error);
    if (status == HONE_OK && (!s.node_in || !s.error))
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (quantising)");
    const json_t *decision = replay_of(o, "int8");
    if (status == HONE_OK)
        status =
            decision ? replay_int8(err, &s, decision, &best) : search_int8(err, &s, &best, &method);
    if (status == HONE_OK && best.module) {
        int kept = 0;
        for (uint32_t i = 0; i < best.plan.node_count; i++)
            kept += best.plan.node_in[i];
        status = record_layers(err, &s, &best);
        *out_decision = hn_quantize_to_json(s.base, &best.plan);
        json_object_set_new(*out_decision, "method", json_string(hn_clip_name(method)));
        *out_module = best.module;
        best.module = NULL;
        snprintf(why, why_size, "%d layers in int8, %s ranges", kept, hn_clip_name(method));
    } else if (status == HONE_OK) {
        snprintf(why, why_size,
                 s.nodes || s.calibration.count
                     ? "no set of layers stays inside the accuracy budget"
                     : "no Conv, Gemm or MatMul with constant float32 weights");
    }
    try_free(&best);
    hn_calibration_free(&s.calibration);
    hn_free(s.node_in);
    hn_free(s.error);
    hn_module_free(s.base);
    return status;
}
