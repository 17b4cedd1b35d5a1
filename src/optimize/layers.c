// SPDX-License-Identifier: Apache-2.0
// The search that all strategies of precision share: which layers may be in the lower precision.
//
// All of them first. Where that leaves the budget on the calibration half, layers are ordered by how much they
// disturb the outputs (rank.c) and the fewest layers, the most disturbing first, go back to float: found by
// bisection, on a part of the half where that is large, and confirmed on all of it. A layer that is not finite
// alone is the first to go.
#include "optimize/optimize_int.h"
#include <math.h>
#include <stdlib.h>

#define PROBE_ROWS     512 // for the bisection
#define PROBE_ELEMENTS (1 << 22)

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
    s.own = hn_calloc(count, sizeof *s.own);
    s.turned = hn_calloc(count, sizeof *s.turned);
    s.together = hn_calloc(count, sizeof *s.together);
    s.why = hn_calloc(count, sizeof *s.why);
    if (!s.node_in || !s.capable || !s.error || !s.own || !s.turned || !s.together || !s.why) {
        hn_layers_close(&s);
        HN_NOMEM(err, "choosing layers");
    }
    for (hn_node *node = s.base->main->first; node; node = node->next) {
        s.error[node->id] = s.own[node->id] = s.turned[node->id] = NAN;
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
    hn_free(s->own);
    hn_free(s->turned);
    hn_free(s->together);
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

static void say_why(hn_layer_search *s, const hn_ranked *order, int drop) {
    for (int i = 0; i < drop; i++) {
        const hn_ranked *l = &order[i];
        char *why = s->why[l->node];
        size_t size = sizeof s->why[0];
        if (isinf(l->error) && l->together == 1)
            snprintf(why, size, "makes NaN where the model has none");
        else if (l->together == 1 && s->by_class && !isnan(l->turned))
            snprintf(why, size, "changes %.2g %% of the answers alone and disturbs the outputs by %.2g (1 - cosine), "
                     "place %d of %d", 100 * l->turned, l->error, i + 1, s->nodes);
        else if (l->together == 1)
            snprintf(why, size, "disturbs the outputs by %.2g alone (1 - cosine), place %d of %d", l->error,
                     i + 1, s->nodes);
        else if (l->together > 1 && !isnan(l->own))
            snprintf(why, size, "one of %d layers that disturb the outputs by %.2g together (1 - cosine), its own "
                     "output by %.2g; place %d of %d", l->together, l->error, l->own, i + 1, s->nodes);
        else if (l->together > 1)
            snprintf(why, size, "one of %d layers that disturb the outputs by %.2g together (1 - cosine); "
                     "place %d of %d", l->together, l->error, i + 1, s->nodes);
        else
            snprintf(why, size, "its own output is disturbed by %.2g, place %d of %d; the time limit left no "
                     "more to measure", l->own, i + 1, s->nodes);
    }
}

static void drop_first(hn_layer_search *s, const hn_ranked *order, int count, int drop) {
    for (int i = 0; i < count; i++)
        s->node_in[order[i].node] = i >= drop;
}

// Does it fit with the first `drop` layers float? Then it becomes *best.
static hn_status probe(hone_error *err, hn_layer_search *s, const hn_ranked *order, int count, int drop,
                       int64_t limit, hn_layer_try *best, bool *out_fits) {
    hn_layer_try t = {0};
    drop_first(s, order, count, drop);
    HN_TRY(hn_layers_try(err, s, s->node_in, limit, &t));
    s->runs++;
    s->last = t.accuracy;
    s->last_low = count - drop;
    *out_fits = hn_layers_fit(s, &t.accuracy);
    if (*out_fits) {
        hn_layers_try_free(best);
        *best = t;
    } else {
        hn_layers_try_free(&t);
    }
    return HONE_OK;
}

hn_status hn_layers_shrink(hone_error *err, hn_layer_search *s, hn_layer_try *best) {
    if (best->module)
        s->by_class = !isnan(best->accuracy.agreement) && 1 - best->accuracy.cosine <=
                      HEADROOM * (1 - s->o->gate.budget.min_cosine) && !best->accuracy.nan;
    hn_layers_try_free(best);
    hn_ranked *order = hn_malloc(((size_t)s->nodes + 1) * sizeof *order);
    if (!order) HN_NOMEM(err, "choosing layers");
    int count = 0, chosen = 0;
    int64_t all = hn_gate_samples(&s->o->gate, HN_SPLIT_CALIBRATE);
    int64_t limit = hn_min_i64(all, hn_samples_for(s->o, PROBE_ROWS, PROBE_ELEMENTS));
    bool fits;
    hone_status status = hn_layers_rank(err, s, order, &count);
    for (int low = 1, high = count - 1; low <= high && status == HONE_OK;) {
        int drop = (low + high) / 2;
        if (best->module && hn_optimizer_late(s->o)) break; // a set that fits is there, if not the largest
        status = probe(err, s, order, count, drop, limit, best, &fits);
        if (status != HONE_OK) break;
        if (fits) chosen = drop;
        if (fits) high = drop - 1;
        else low = drop + 1;
    }
    // What fits a part may miss the budget on the whole by a little.
    for (bool sure = limit == all; status == HONE_OK && best->module && !sure;) {
        status = probe(err, s, order, count, chosen, 0, best, &sure);
        if (status == HONE_OK && !sure) {
            chosen += chosen / 8 + 1;
            if (chosen >= count) hn_layers_try_free(best);
        }
    }
    drop_first(s, order, count, best->module ? chosen : 0);
    if (status == HONE_OK) say_why(s, order, best->module ? chosen : count);
    if (!best->module) memset(s->node_in, 0, s->base->next_node_id * sizeof *s->node_in);
    hn_free(order);
    return status;
}

void hn_layers_say(const hn_layer_search *s, char *text, size_t size) {
    size_t length = strlen(text);
    if (s->runs)
        snprintf(text + length, size - length, "; %d runs with some of %d layers low chose them", s->runs, s->nodes);
}

void hn_layers_say_none(const hn_layer_search *s, char *text, size_t size) {
    const hn_accuracy *a = &s->last;
    if (!s->last_low)
        snprintf(text, size, "no set of layers stays inside the accuracy budget");
    else if (isnan(a->agreement))
        snprintf(text, size, "no set of layers stays inside the accuracy budget: cosine %.5f with %d of %d layers low, "
                 "the last of %d runs", a->cosine, s->last_low, s->nodes, s->runs);
    else
        snprintf(text, size, "no set of layers stays inside the accuracy budget: cosine %.5f, agreement %.4f with %d of "
                 "%d layers low, the last of %d runs", a->cosine, a->agreement, s->last_low, s->nodes, s->runs);
}

hn_status hn_layers_record(hone_error *err, const hn_layer_search *s) {
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        if (!s->capable[node->id]) continue;
        hn_layer layer = {.error = s->error[node->id], .together = s->together[node->id],
                          .turned = s->turned[node->id], .own_error = s->own[node->id], .strategy = s->precision};
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
