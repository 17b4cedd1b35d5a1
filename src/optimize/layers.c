// SPDX-License-Identifier: Apache-2.0
// The search that all strategies of precision share: which layers may be in the lower precision.
//
// All of them first. Where that leaves the budget on the calibration half, each layer's own
// disturbance of the outputs is measured and the fewest layers, the most disturbing first, go back to
// float: found by bisection. A layer that is not finite alone is the first to go.
#include "optimize/optimize_int.h"
#include <math.h>
#include <stdlib.h>

#define LAYER_ROWS 64 // for measuring layers one by one

int64_t hn_samples_for(const hn_optimizer *o, int64_t rows) {
    int64_t batch = o->gate.dataset ? hn_dataset_batch(o->gate.dataset) : 1;
    return hn_max_i64(4, rows / hn_max_i64(1, batch));
}

hn_status hn_layers_open(hone_error *err, hn_optimizer *o, const char *precision,
                         bool (*capable)(const hn_node *), hn_layer_search *out) {
    hn_layer_search s = {.o = o, .precision = precision};
    // Normalisations must be inside the weights before these change, also where the rewrites by
    // themselves were not worth keeping.
    HN_TRY(hn_rewritten(err, o, &s.base));
    size_t count = (size_t)s.base->next_node_id + 1;
    s.node_in = hn_calloc(count, sizeof *s.node_in);
    s.capable = hn_calloc(count, sizeof *s.capable);
    s.error = hn_calloc(count, sizeof *s.error);
    s.why = hn_calloc(count, sizeof *s.why);
    if (!s.node_in || !s.capable || !s.error || !s.why) {
        hn_layers_close(&s);
        HN_NOMEM(err, "choosing layers");
    }
    for (hn_node *node = s.base->main->first; node; node = node->next) {
        s.error[node->id] = NAN;
        s.node_in[node->id] = s.capable[node->id] = capable(node);
        s.nodes += s.node_in[node->id];
    }
    *out = s;
    return HONE_OK;
}

void hn_layers_close(hn_layer_search *s) {
    hn_module_free(s->base);
    hn_free(s->node_in);
    hn_free(s->capable);
    hn_free(s->error);
    hn_free(s->why);
    *s = (hn_layer_search){0};
}

hn_status hn_layers_try(hone_error *err, hn_layer_search *s, const bool *node_in, int64_t limit,
                        hn_layer_try *out) {
    hn_layer_try t = {0};
    hn_session *session = NULL;
    hone_status status = s->make(err, s, node_in, &t.module);
    if (status == HONE_OK) status = hn_gate_session(err, &s->o->gate, t.module, &session);
    if (status == HONE_OK)
        status = hn_gate_accuracy(err, &s->o->gate, session, HN_SPLIT_CALIBRATE, limit, &t.accuracy);
    hn_session_free(session);
    if (status != HONE_OK) {
        hn_module_free(t.module);
        return status;
    }
    *out = t;
    return HONE_OK;
}

void hn_layers_try_free(hn_layer_try *t) {
    hn_module_free(t->module);
    *t = (hn_layer_try){0};
}

// The gate judges on other data: a choice that only just fits here would fail there half of the time.
#define HEADROOM 0.7

bool hn_layers_fit(const hn_layer_search *s, const hn_accuracy *a) {
    char why[200];
    hn_budget budget = s->o->gate.budget;
    budget.max_drop *= HEADROOM;
    budget.min_agreement = 1 - (1 - budget.min_agreement) * HEADROOM;
    budget.min_cosine = 1 - (1 - budget.min_cosine) * HEADROOM;
    return hn_gate_accepts(&budget, &s->o->result->baseline.accuracy, a, NULL, why,
                           sizeof why);
}

// How much each layer alone disturbs the outputs.
static hn_status measure_layers(hone_error *err, hn_layer_search *s) {
    bool *alone = hn_calloc((size_t)s->base->next_node_id + 1, sizeof *alone);
    if (!alone) HN_NOMEM(err, "measuring layers");
    char what[64];
    snprintf(what, sizeof what, "%s: measuring layers", s->precision);
    hone_status status = HONE_OK;
    int done = 0;
    for (hn_node *node = s->base->main->first; node && status == HONE_OK; node = node->next) {
        if (!s->node_in[node->id]) continue;
        if (hn_optimizer_late(s->o)) {
            status = HN_SET(err, HONE_ERR_UNSUPPORTED,
                            "the time limit ended the measurement of layers (%d of %d)", done,
                            s->nodes);
            break;
        }
        hn_layer_try t;
        alone[node->id] = true;
        status = hn_layers_try(err, s, alone, hn_samples_for(s->o, LAYER_ROWS), &t);
        alone[node->id] = false;
        if (status != HONE_OK) break;
        s->error[node->id] = t.accuracy.nan ? INFINITY : 1 - t.accuracy.cosine;
        hn_layers_try_free(&t);
        hn_optimizer_progress(s->o, what, (double)++done / s->nodes);
    }
    hn_free(alone);
    return status;
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

static void say_why(hn_layer_search *s, const ranked *order, int drop) {
    for (int i = 0; i < drop; i++) {
        char *why = s->why[order[i].node];
        if (isinf(order[i].error))
            snprintf(why, sizeof s->why[0], "makes NaN where the model has none");
        else
            snprintf(why, sizeof s->why[0],
                     "disturbs the outputs by %.2g alone (1 - cosine), place %d of %d", order[i].error,
                     i + 1, s->nodes);
    }
}

hn_status hn_layers_shrink(hone_error *err, hn_layer_search *s, hn_layer_try *best) {
    hn_layers_try_free(best);
    HN_TRY(measure_layers(err, s));
    ranked *order = hn_malloc(((size_t)s->nodes + 1) * sizeof *order);
    if (!order) HN_NOMEM(err, "choosing layers");
    int count = 0, chosen = 0;
    for (uint32_t id = 0; id < s->base->next_node_id; id++)
        if (s->node_in[id]) order[count++] = (ranked){s->error[id], id};
    qsort(order, (size_t)count, sizeof *order, by_error);
    hone_status status = HONE_OK;
    for (int low = 1, high = count - 1; low <= high && status == HONE_OK;) {
        int drop = (low + high) / 2;
        hn_layer_try t = {0};
        for (int i = 0; i < count; i++)
            s->node_in[order[i].node] = i >= drop;
        status = hn_layers_try(err, s, s->node_in, 0, &t);
        if (status == HONE_OK && hn_layers_fit(s, &t.accuracy)) {
            hn_layers_try_free(best);
            *best = t;
            chosen = drop;
            high = drop - 1;
        } else {
            hn_layers_try_free(&t);
            low = drop + 1;
        }
    }
    for (int i = 0; i < count; i++)
        s->node_in[order[i].node] = best->module && i >= chosen;
    say_why(s, order, best->module ? chosen : count);
    hn_free(order);
    return status;
}

hn_status hn_layers_record(hone_error *err, const hn_layer_search *s) {
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        if (!s->capable[node->id]) continue;
        hn_layer layer = {.error = s->error[node->id], .strategy = s->precision};
        const char *name = *node->name ? node->name : node->outputs[0]->name;
        snprintf(layer.name, sizeof layer.name, "%s", name);
        snprintf(layer.op, sizeof layer.op, "%s", node->op_type);
        snprintf(layer.precision, sizeof layer.precision, "%s",
                 s->node_in[node->id] ? s->precision : "float32");
        if (!s->node_in[node->id]) snprintf(layer.why, sizeof layer.why, "%s", s->why[node->id]);
        if (!hn_vec_push(&s->o->result->layers, layer)) HN_NOMEM(err, "recording layers");
    }
    return HONE_OK;
}

int hn_layers_count(const hn_layer_search *s) {
    int count = 0;
    for (uint32_t id = 0; id < s->base->next_node_id; id++)
        count += s->node_in[id];
    return count;
}

// Layers are named by their first output: unique, and kept by every pass.
json_t *hn_layers_to_json(const hn_layer_search *s) {
    json_t *names = json_array();
    for (const hn_node *node = s->base->main->first; node; node = node->next)
        if (s->node_in[node->id]) json_array_append_new(names, json_string(node->outputs[0]->name));
    return json_pack("{s:o}", "layers", names);
}

hn_status hn_layers_from_json(hone_error *err, hn_layer_search *s, const json_t *json) {
    const json_t *names = json_object_get(json, "layers");
    size_t index;
    json_t *item;
    if (!json_is_array(names))
        HN_FAIL(err, HONE_ERR_FORMAT, "the decisions of %s are incomplete", s->precision);
    memset(s->node_in, 0, s->base->next_node_id * sizeof *s->node_in);
    json_array_foreach(names, index, item) {
        const char *name = json_string_value(item);
        const hn_value *value = name ? hn_graph_find(s->base->main, name) : NULL;
        if (!value || !value->producer || !s->capable[value->producer->id])
            HN_FAIL(err, HONE_ERR_FORMAT, "the decisions' layer '%s' does not fit the model",
                    name ? name : "?");
        s->node_in[value->producer->id] = true;
    }
    return HONE_OK;
}
