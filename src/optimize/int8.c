// SPDX-License-Identifier: Apache-2.0
// The strategy `int8`: calibrate, choose the way ranges are cut by what the outputs say, and the layers.
#include "optimize/optimize_int.h"
#include "probe/cpu.h"
#include <math.h>

// Rows of data (samples times batch): ranges stop moving long before, time does not.
#define CALIBRATION_ROWS 512
#define CHOICE_ROWS      512 // for choosing among methods

typedef struct int8_state {
    hn_calibration calibration;
    hn_clip_method method;
    bool between; // also what lies between the layers, in hn_quantize_plan
    int weight_max;
} int8_state;

static hn_status plan_of(hone_error *err, hn_layer_search *s, const bool *node_in,
                         hn_quantize_plan *out) {
    const int8_state *i = s->self;
    return hn_quantize_plan_make(err, s->base, &i->calibration, i->method, node_in, i->weight_max,
                                 i->between, out);
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
        hone_status status = hn_layers_try(err, s, s->node_in, hn_samples_for(s->o, CHOICE_ROWS), &t);
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

// ---- by time ------------------------------------------------------------------------------------
// Takes the other candidate where it is not slower; it is freed otherwise.
static hn_status take_faster(hone_error *err, hn_layer_search *s, hn_layer_try *best, hn_layer_try *other,
                             bool *out_taken) {
    const hn_gate *gate = &s->o->gate;
    hn_session *a = NULL, *b = NULL;
    hn_pair pair = {0};
    hone_status status = hn_gate_session(err, gate, best->module, &a);
    if (status == HONE_OK) status = hn_gate_session(err, gate, other->module, &b);
    if (status == HONE_OK) status = hn_gate_pair(err, &s->o->gate, a, b, &pair);
    hn_session_free(a);
    hn_session_free(b);
    *out_taken = status == HONE_OK && pair.speedup >= 1;
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
        status = hn_layers_try(err, s, s->node_in, hn_samples_for(s->o, CHOICE_ROWS), &fast);
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

// The same question for sums and activations between the layers.
static hn_status try_between(hone_error *err, hn_layer_search *s, hn_layer_try *best) {
    int8_state *i = s->self;
    hn_layer_try other = {0};
    bool taken = false;
    hn_objective objective = s->o->options->objective;
    if (objective == HN_OBJECTIVE_MEMORY || objective == HN_OBJECTIVE_SIZE) return HONE_OK;
    i->between = true;
    hone_status status = hn_layers_try(err, s, s->node_in, hn_samples_for(s->o, CHOICE_ROWS), &other);
    if (status == HONE_OK && other.accuracy.nan == 0 && hn_layers_fit(s, &other.accuracy))
        status = take_faster(err, s, best, &other, &taken);
    else hn_layers_try_free(&other);
    i->between = taken;
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

static hn_status search(hone_error *err, hn_layer_search *s, hn_layer_try *out, json_t **decision) {
    int8_state *i = s->self;
    hn_optimizer *o = s->o;
    HN_TRY(hn_calibrate(err, &o->gate, s->base, hn_samples_for(o, CALIBRATION_ROWS),
                        o->options->progress, o->options->user, &i->calibration));
    HN_TRY(best_method(err, s, out));
    HN_TRY(leave_slow(err, s, out));
    HN_TRY(try_between(err, s, out));
    if (!hn_layers_fit(s, &out->accuracy)) HN_TRY(hn_layers_shrink(err, s, out));
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
        json_object_set_new(*decision, "method", json_string(hn_clip_name(i->method)));
    }
    hn_quantize_plan_free(&plan);
    return status;
}

// Without VNNI the products' sums saturate at 16 bits: weights of 7 bits never do.
// One less than what adds up exactly without VNNI (hn_backend.int8_weight_max): seven bits, as other tools write them.
int hn_int8_weight_max(void) { return hn_cpu_isa() >= HN_ISA_VNNI ? 127 : 63; }

hone_status hn_strategy_int8(hone_error *err, hn_optimizer *o, hn_module **out_module,
                             json_t **out_decision, char *why, size_t why_size) {
    int8_state state = {.weight_max = hn_int8_weight_max()};
    hn_layer_search s;
    hn_layer_try best = {0};
    HN_TRY(hn_layers_open(err, o, "int8", hn_quantize_capable, &s));
    s.self = &state;
    s.make = make;
    const json_t *given = hn_replay_of(o, "int8");
    int all = s.nodes;
    hone_status status = HONE_OK;
    if (given) status = replay(err, &s, given, &best, out_decision);
    else if (all) status = search(err, &s, &best, out_decision);
    if (status == HONE_OK && all) status = hn_layers_record(err, &s);
    if (status == HONE_OK && best.module) {
        *out_module = best.module;
        best.module = NULL;
        snprintf(why, why_size, "%d of %d layers%s in int8, %s ranges%s", hn_layers_count(&s), all,
                 state.between ? " and what lies between" : "", hn_clip_name(state.method), state.weight_max < 127 ? ", 7-bit weights" : "");
    } else if (status == HONE_OK) {
        snprintf(why, why_size, "%s",
                 all ? "no set of layers stays inside the accuracy budget"
                     : "no Conv, Gemm or MatMul with constant float32 weights");
    }
    hn_layers_try_free(&best);
    hn_calibration_free(&state.calibration);
    hn_layers_close(&s);
    return status;
}
