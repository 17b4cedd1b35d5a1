// SPDX-License-Identifier: Apache-2.0
// The strategy `int8`: calibrate, choose the way ranges are cut by what the outputs say, and the layers.
#include "optimize/optimize_int.h"
#include "probe/cpu.h"
#include <math.h>

// Rows of data (samples times batch): ranges stop moving long before, time does not.
#define CALIBRATION_ROWS 512
#define CHOICE_ROWS      512 // for choosing among methods
#define CHOICE_ELEMENTS  (1 << 21)

static int64_t choice_samples(const hn_layer_search *s) {
    return hn_samples_for(s->o, CHOICE_ROWS, CHOICE_ELEMENTS);
}

typedef struct int8_state {
    hn_calibration calibration;
    hn_clip_method method;
    bool between; // also what lies between the layers, in hn_quantize_plan
    bool card;
    int weight_max;
    hn_quantize_plan plan; // of the layers that are in, for their twins
} int8_state;

static hn_status plan_of(hone_error *err, hn_layer_search *s, const bool *node_in,
                         hn_quantize_plan *out) {
    const int8_state *i = s->self;
    return hn_quantize_plan_make(err, s->base, &i->calibration, i->method, node_in, i->weight_max,
                                 i->between, i->card, out);
}

static hn_status quantised(hone_error *err, const hn_layer_search *s, const hn_quantize_plan *plan,
                           hn_module **out_module) {
    hn_module *module = hn_module_clone(s->base, NULL);
    if (!module) HN_NOMEM(err, "quantising");
    hone_status status = hn_quantize_apply(err, module, plan);
    if (status != HONE_OK) {
        hn_module_free(module);
        return status;
    }
    *out_module = module;
    return HONE_OK;
}

static hone_status make(hone_error *err, hn_layer_search *s, const bool *node_in,
                        hn_module **out_module) {
    hn_quantize_plan plan = {0};
    HN_TRY(plan_of(err, s, node_in, &plan));
    hone_status status = quantised(err, s, &plan, out_module);
    hn_quantize_plan_free(&plan);
    return status;
}

static hone_status twin(hone_error *err, hn_layer_search *s, hn_node *node, hn_value **out) {
    return hn_quantize_twin(err, &((int8_state *)s->self)->plan, node, out);
}

// How much each layer is off at its own output, whatever becomes of it.
static hn_status own_errors(hone_error *err, hn_layer_search *s) {
    int8_state *i = s->self;
    HN_TRY(plan_of(err, s, s->node_in, &i->plan));
    hone_status status = hn_layers_own_errors(err, s);
    hn_quantize_plan_free(&i->plan);
    return status;
}

static bool better(const hn_accuracy *a, const hn_accuracy *b) {
    if (a->nan != b->nan) return a->nan < b->nan;
    return a->cosine > b->cosine;
}

static hn_status best_method(hone_error *err, hn_layer_search *s, hn_layer_try *out) {
    int8_state *i = s->self;
    hn_layer_try best = {0};
    hn_clip_method chosen = HN_CLIP_MINMAX;
    for (hn_clip_method m = 0; m < HN_CLIP_END; m++) {
        hn_layer_try t;
        i->method = m;
        hone_status status = hn_layers_try(err, s, s->node_in, choice_samples(s), &t);
        if (status != HONE_OK) {
            hn_layers_try_free(&best);
            return status;
        }
        hn_optimizer_progress(s->o, "int8: choosing ranges", (m + 1.0) / HN_CLIP_END);
        if (!best.module || better(&t.accuracy, &best.accuracy)) {
            hn_layers_try_free(&best);
            best = t;
            chosen = m;
        } else {
            hn_layers_try_free(&t);
        }
    }
    i->method = chosen;
    *out = best;
    return HONE_OK;
}

static bool for_time(const hn_layer_search *s) {
    hn_objective objective = s->o->options->objective;
    return objective != HN_OBJECTIVE_MEMORY && objective != HN_OBJECTIVE_SIZE;
}

// ---- by time ------------------------------------------------------------------------------------
// Is b not slower than a?
static hn_status compare(hone_error *err, hn_layer_search *s, const hn_module *a, const hn_module *b, bool *out) {
    hn_gate *gate = &s->o->gate;
    hn_session *first = NULL, *second = NULL;
    hn_pair pair = {0};
    hone_status status = hn_gate_session(err, gate, a, &first);
    if (status == HONE_OK) status = hn_gate_session(err, gate, b, &second);
    if (status == HONE_OK) status = hn_gate_pair(err, gate, first, second, &pair);
    hn_session_free(first);
    hn_session_free(second);
    *out = status == HONE_OK && pair.speedup >= 1;
    return status;
}

// Takes the other candidate where it is not slower; it is freed otherwise.
static hn_status take_faster(hone_error *err, hn_layer_search *s, hn_layer_try *best, hn_layer_try *other,
                             bool *out_taken) {
    hone_status status = compare(err, s, best->module, other->module, out_taken);
    if (*out_taken) {
        hn_layers_try_free(best);
        *best = *other;
        *other = (hn_layer_try){0};
    }
    hn_layers_try_free(other);
    return status;
}

// A layer that is not faster stays float, unless that makes the whole slower: its neighbours then have to
// convert what they could hand on as integers.
static hn_status leave_slow(hone_error *err, hn_layer_search *s, hn_layer_try *best) {
    size_t bytes = s->base->next_node_id * sizeof *s->node_in;
    int all = hn_layers_count(s);
    bool *before = hn_malloc(bytes + 1), taken = false;
    if (!before) HN_NOMEM(err, "choosing layers");
    memcpy(before, s->node_in, bytes);
    hone_status status = hn_layers_leave_slow(err, s);
    int left = hn_layers_count(s);
    if (status == HONE_OK && left && left < all) {
        hn_layer_try fast = {0};
        status = hn_layers_try(err, s, s->node_in, choice_samples(s), &fast);
        if (status == HONE_OK) status = take_faster(err, s, best, &fast, &taken);
    }
    for (uint32_t id = 0; !taken && id < s->base->next_node_id; id++) {
        if (before[id] && !s->node_in[id]) s->why[id][0] = '\0';
        s->node_in[id] = before[id];
    }
    hn_free(before);
    s->nodes = hn_layers_count(s);
    return status;
}

// The same question for sums and activations between the layers, with all layers: whether few layers hand
// integers on does not matter. *best stays what it is where that is faster, the other one is then in *out_plain.
static hn_status try_between(hone_error *err, hn_layer_search *s, hn_layer_try *best, hn_layer_try *out_plain) {
    int8_state *i = s->self;
    hn_layer_try other = {0}, plain = *best;
    bool taken = false;
    i->between = true;
    hone_status status = hn_layers_try(err, s, s->node_in, choice_samples(s), &other);
    if (status == HONE_OK && other.accuracy.nan == 0) status = compare(err, s, best->module, other.module, &taken);
    i->between = taken;
    if (!taken) hn_layers_try_free(&other);
    else *best = other;
    if (taken) *out_plain = plain;
    return status;
}

// What the calibration saw, added to why a layer stays float.
static void explain(hn_layer_search *s) {
    const int8_state *i = s->self;
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        if (!s->capable[node->id] || s->node_in[node->id]) continue;
        const hn_range *range = &i->calibration.ranges[node->inputs[0]->id];
        char *why = s->why[node->id];
        size_t length = strlen(why);
        if (!range->seen)
            snprintf(why, sizeof s->why[0], "its input was never seen by the calibration");
        else if (range->not_finite)
            snprintf(why, sizeof s->why[0], "its input holds %lld values that are not finite",
                     (long long)range->not_finite);
        else if (range->bins) {
            float low, high, most = fmaxf(-range->low, range->high);
            hn_range_clip(range, HN_CLIP_PERCENTILE, &low, &high);
            float usual = fmaxf(-low, high);
            if (usual > 0 && most / usual > 4)
                snprintf(why + length, sizeof s->why[0] - length,
                         "%soutliers: its input reaches %.3g, 99.99 %% stay below %.3g",
                         length ? "; " : "", (double)most, (double)usual);
        }
    }
}

// Fewer layers until the budget holds. Integers between the layers disturb more than the layers alone: where
// all layers without them fit, the faster of the two is taken; where nothing fits with them, it is tried without.
static hn_status shrink(hone_error *err, hn_layer_search *s, hn_layer_try *best, hn_layer_try *plain) {
    int8_state *i = s->self;
    HN_TRY(hn_layers_shrink(err, s, best));
    if (!i->between) return HONE_OK;
    bool taken = !best->module, fits = plain->module && hn_layers_fit(s, &plain->accuracy);
    if (fits && best->module) HN_TRY(take_faster(err, s, best, plain, &taken));
    else if (fits) *best = *plain, *plain = (hn_layer_try){0};
    if (!taken) return HONE_OK;
    i->between = false;
    s->nodes = 0;
    for (uint32_t id = 0; id < s->base->next_node_id; id++) {
        s->node_in[id] = s->capable[id];
        s->why[id][0] = '\0';
        s->nodes += s->capable[id];
    }
    return best->module ? HONE_OK : hn_layers_shrink(err, s, best);
}

static hn_status search_layers(hone_error *err, hn_layer_search *s, hn_layer_try *out, hn_layer_try *plain) {
    int8_state *i = s->self;
    hn_optimizer *o = s->o;
    HN_TRY(hn_calibrate(err, &o->gate, s->base, hn_samples_for(o, CALIBRATION_ROWS, 0),
                        true, o->options->progress, o->options->user, &i->calibration));
    HN_TRY(best_method(err, s, out));
    HN_TRY(own_errors(err, s));
    if (for_time(s) && !i->card) HN_TRY(try_between(err, s, out, plain));
    HN_TRY(leave_slow(err, s, out));
    return hn_layers_fit(s, &out->accuracy) ? HONE_OK : shrink(err, s, out, plain);
}

static hn_status search(hone_error *err, hn_layer_search *s, hn_layer_try *out, json_t **decision) {
    int8_state *i = s->self;
    hn_layer_try plain = {0};
    hone_status status = search_layers(err, s, out, &plain);
    hn_layers_try_free(&plain);
    if (status != HONE_OK) return status;
    hn_quantize_plan plan = {0};
    if (!out->module) {
        explain(s);
        return HONE_OK;
    }
    HN_TRY(plan_of(err, s, s->node_in, &plan));
    // What the plan itself left out (never seen, a bias that does not fit) is float as well.
    memcpy(s->node_in, plan.node_in, plan.node_count * sizeof *s->node_in);
    *decision = hn_quantize_to_json(s->base, &plan);
    json_object_set_new(*decision, "method", json_string(hn_clip_name(i->method)));
    hn_quantize_plan_free(&plan);
    explain(s);
    return HONE_OK;
}

static hn_status replay(hone_error *err, hn_layer_search *s, const json_t *given, hn_layer_try *out,
                        json_t **decision) {
    hn_quantize_plan plan = {0};
    int8_state *i = s->self;
    HN_TRY(hn_quantize_from_json(err, given, s->base, &plan));
    hone_status status = quantised(err, s, &plan, &out->module);
    if (status == HONE_OK) {
        memcpy(s->node_in, plan.node_in, plan.node_count * sizeof *s->node_in);
        *decision = hn_quantize_to_json(s->base, &plan);
        i->between = plan.between;
        const char *method = json_string_value(json_object_get(given, "method"));
        i->method = hn_clip_by_name(method ? method : "");
        if (i->method == HN_CLIP_END)
            status = HN_SET(err, HONE_ERR_FORMAT, "the decisions of int8: '%.40s' is no way to cut ranges", method ? method : "");
        json_object_set_new(*decision, "method", json_string(hn_clip_name(i->method)));
    }
    hn_quantize_plan_free(&plan);
    return status;
}

// Without VNNI the products' sums saturate at 16 bits: weights of 7 bits never do.
// One less than what adds up exactly without VNNI (hn_backend.int8_weight_max): seven bits, as other tools write them.
int hn_int8_weight_max(void) { return hn_cpu_isa() >= HN_ISA_VNNI ? 127 : 63; }

static bool capable_host(const hn_node *node) { return node->compute == HN_NONE && hn_quantize_capable(node); }

// What the card's kernels would compute in float anyway is left out from the start, with the reason.
static void leave_refused(hn_layer_search *s) {
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        const char *why = s->node_in[node->id] ? hn_qdq_card_refuses(node, node->inputs[1]->constant) : NULL;
        if (!why) continue;
        s->node_in[node->id] = false;
        s->nodes--;
        snprintf(s->why[node->id], sizeof s->why[0], "%s", why);
    }
}

hone_status hn_strategy_int8(hone_error *err, hn_optimizer *o, hn_module **out_module,
                             json_t **out_decision, char *why, size_t why_size) {
    bool card = hn_gate_on_card(&o->gate);
    int8_state state = {.weight_max = card ? 127 : hn_int8_weight_max(), .card = card};
    hn_layer_search s;
    hn_layer_try best = {0};
    HN_TRY(hn_layers_open(err, o, "int8", card ? hn_quantize_capable : capable_host, &s));
    s.self = &state;
    s.make = make;
    s.twin = twin;
    const json_t *given = hn_replay_of(o, "int8");
    int all = s.nodes;
    if (card) leave_refused(&s);
    hone_status status = HONE_OK;
    if (given) status = replay(err, &s, given, &best, out_decision);
    else if (s.nodes) status = search(err, &s, &best, out_decision);
    if (status == HONE_OK && all) status = hn_layers_record(err, &s);
    if (status == HONE_OK && best.module) {
        *out_module = best.module;
        best.module = NULL;
        snprintf(why, why_size, "%d of %d layers%s in int8, %s ranges%s", hn_layers_count(&s), all,
                 state.between ? " and what lies between" : "", hn_clip_name(state.method), state.weight_max < 127 ? ", 7-bit weights" : "");
        hn_layers_say(&s, why, why_size);
    } else if (status == HONE_OK) {
        snprintf(why, why_size, "%s",
                 !s.nodes && all ? "no layer has an integer form on the card"
                 : all ? ""
                     : "no Conv, Gemm or MatMul with constant float32 weights");
        if (all && s.nodes) hn_layers_say_none(&s, why, why_size);
    }
    hn_layers_try_free(&best);
    hn_calibration_free(&state.calibration);
    hn_layers_close(&s);
    return status;
}
