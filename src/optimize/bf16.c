// SPDX-License-Identifier: Apache-2.0
// The strategy `bf16`: which convolutions and products compute in bf16.
//
// bf16 has float32's range and 8 bits of precision, and only these layers take it: normalisations,
// softmax, exp, log, pow and reductions stay float32 because they are other nodes, also where an
// exporter wrote them out. Left float as well are layers whose result goes into exp, log, pow or
// softmax with a magnitude at which 8 bits are too few, and layers that are not faster here. Sums are
// float32 at any length. The file stays float32 with the choice in its metadata (onnx/hints.c).
#include "optimize/optimize_int.h"
#include "probe/cpu.h"
#include <math.h>

#define CALIBRATION_ROWS 128
#define BF16_STEPS       512 // half a unit in the last place is 2^-9 of the value
// In front of exp it becomes a relative error.
#define MAX_EXPONENT_ERROR 0.125

static bool capable(const hn_node *node) {
    return hn_quantize_capable(node) && node->outputs[0] && node->compute == HN_NONE;
}

static hone_status make(hone_error *err, hn_layer_search *s, const bool *node_in,
                        hn_module **out_module) {
    hn_module *module = hn_module_clone(s->base, NULL);
    if (!module) HN_NOMEM(err, "choosing layers");
    hn_str list = {0};
    for (hn_node *node = module->main->first; node; node = node->next) {
        bool in = node->id < s->base->next_node_id && node_in[node->id];
        if (in) node->compute = HN_BF16;
        if (in) hn_str_printf(&list, "%s%s", list.length ? "\n" : "", node->outputs[0]->name);
    }
    bool ok = !list.failed && hn_module_set_meta(module, HN_HINT_BF16, hn_str_get(&list));
    hn_str_free(&list);
    if (!ok) {
        hn_module_free(module);
        HN_NOMEM(err, "choosing layers");
    }
    *out_module = module;
    return HONE_OK;
}

// ---- by magnitude -------------------------------------------------------------------------------
static bool steep(const hn_node *node) {
    static const char *const k_ops[] = {"Exp", "Softmax", "LogSoftmax", "Log", "Pow", "Sinh", "Cosh"};
    for (size_t i = 0; i < HN_COUNT_OF(k_ops); i++)
        if (!*node->domain && strcmp(node->op_type, k_ops[i]) == 0) return true;
    return false;
}

static bool follows(const hn_node *node) { // still the same numbers, or a few of them added
    static const char *const k_ops[] = {"Add", "Sub", "Mul", "Div", "Reshape", "Transpose", "Identity",
                                        "Flatten", "Squeeze", "Unsqueeze", "Neg", "Where"};
    for (size_t i = 0; i < HN_COUNT_OF(k_ops); i++)
        if (!*node->domain && strcmp(node->op_type, k_ops[i]) == 0) return true;
    return false;
}

// The steep operator that reads this value, at most a few steps on; *out_value is what it reads.
static const hn_node *steep_user(const hn_value *value, int depth, const hn_value **out_value) {
    for (size_t i = 0; i < value->uses.count; i++) {
        const hn_node *user = value->uses.data[i].node;
        *out_value = value;
        if (steep(user)) return user;
        if (depth > 0 && follows(user) && user->outputs[0]) {
            const hn_node *found = steep_user(user->outputs[0], depth - 1, out_value);
            if (found) return found;
        }
    }
    return NULL;
}

void hn_layers_leave_steep(hn_layer_search *s, const hn_calibration *calibration, double steps) {
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        const hn_value *value;
        if (!s->node_in[node->id]) continue;
        const hn_range *in = &calibration->ranges[node->inputs[0]->id];
        if (in->not_finite) {
            snprintf(s->why[node->id], sizeof s->why[0], "its input holds %lld values that are not finite",
                     (long long)in->not_finite);
            s->node_in[node->id] = false;
            continue;
        }
        const hn_node *user = steep_user(node->outputs[0], 4, &value);
        if (!user || value->id >= calibration->count || !calibration->ranges[value->id].seen) continue;
        const hn_range *range = &calibration->ranges[value->id];
        double most = fmax(-(double)range->low, range->high), moved = most / steps;
        if (moved <= MAX_EXPONENT_ERROR) continue;
        s->node_in[node->id] = false;
        snprintf(s->why[node->id], sizeof s->why[0],
                 "feeds %s with values up to %.3g, which %s would move by %.2g", user->op_type, most,
                 s->precision, moved);
    }
}

// ---- the strategy -------------------------------------------------------------------------------
static hn_status search(hone_error *err, hn_layer_search *s, hn_layer_try *out) {
    hn_optimizer *o = s->o;
    hn_calibration calibration = {0};
    HN_TRY(hn_calibrate(err, &o->gate, s->base, hn_samples_for(o, CALIBRATION_ROWS, 0),
                        false, o->options->progress, o->options->user, &calibration));
    hn_layers_leave_steep(s, &calibration, BF16_STEPS);
    hn_calibration_free(&calibration);
    HN_TRY(hn_layers_leave_slow(err, s));
    if (!hn_layers_count(s)) return HONE_OK;
    HN_TRY(hn_layers_try(err, s, s->node_in, 0, out));
    if (!hn_layers_fit(s, &out->accuracy)) HN_TRY(hn_layers_shrink(err, s, out));
    return HONE_OK;
}

static bool here(void) {
    const hn_cpu *cpu = hn_cpu_get();
    return hn_cpu_isa() == cpu->isa && (cpu->amx_bf16 || cpu->avx512_bf16);
}

hone_status hn_strategy_bf16(hone_error *err, hn_optimizer *o, hn_module **out_module,
                             json_t **out_decision, char *why, size_t why_size) {
    const json_t *given = hn_replay_of(o, "bf16");
    if (!given && !here()) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "this CPU has no bf16 products");
    hn_layer_search s;
    hn_layer_try best = {0};
    HN_TRY(hn_layers_open(err, o, "bf16", capable, &s));
    s.make = make;
    int all = s.nodes;
    hone_status status = HONE_OK;
    if (given) {
        status = hn_layers_from_json(err, &s, given);
        if (status == HONE_OK) status = make(err, &s, s.node_in, &best.module);
    } else if (all) {
        status = search(err, &s, &best);
    }
    if (status == HONE_OK && all) status = hn_layers_record(err, &s);
    if (status == HONE_OK && best.module) {
        *out_decision = hn_layers_to_json(&s);
        *out_module = best.module;
        best.module = NULL;
        snprintf(why, why_size, "%d of %d layers in bf16", hn_layers_count(&s), all);
        hn_layers_say(&s, why, why_size);
    } else if (status == HONE_OK) {
        snprintf(why, why_size, "%s",
                 !all       ? "no Conv, Gemm or MatMul with constant float32 weights is left"
                 : !s.nodes ? "no layer is faster in bf16 at a magnitude that allows it"
                            : "");
        if (all && s.nodes) hn_layers_say_none(&s, why, why_size);
    }
    hn_layers_try_free(&best);
    hn_layers_close(&s);
    return status;
}
