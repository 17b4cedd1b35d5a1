// SPDX-License-Identifier: Apache-2.0
// The strategies `fp16` and `bf16` on a card: which layers compute in 16-bit floats. What lies between two of
// them follows when a plan is made (passes/narrow.c); sums stay float32, and so do softmax and
// normalisations inside. Left float32 are layers whose numbers leave float16's range or whose results go into
// exp, log or softmax at a magnitude that so few bits do not carry.
//
// The file stays float32 with the choice in its metadata (onnx/hints.c): other runtimes, and hone on a CPU,
// compute it in float32. Layers are not timed one by one: values go from one to the next in 16 bits, so that
// only the whole says what is gained.
#include "optimize/optimize_int.h"
#include <math.h>

#define CALIBRATION_ROWS 128
#define F16_SAFE         30000.0 // half of what float16 holds: other data may reach further

typedef struct half {
    hn_dtype dtype;
    double steps; // a result moves by one part in this
} half;

static bool capable(const hn_node *node) {
    static const char *const k_ops[] = {"Conv", "ConvTranspose", "MatMul", "Gemm", "Attention"};
    const hn_value *a = hn_in(node, 0), *b = hn_in(node, 1), *y = hn_out(node, 0);
    if (*node->domain || !a || !b || !y || a->type.dtype != HN_F32 || b->type.dtype != HN_F32 || y->type.dtype != HN_F32) return false;
    for (size_t i = 0; i < HN_COUNT_OF(k_ops); i++)
        if (!strcmp(node->op_type, k_ops[i])) return true;
    return false;
}

// The lists in the metadata, from what the nodes say.
static bool set_hints(hn_module *module) {
    static const struct {
        const char *key;
        hn_dtype dtype;
    } k_hints[] = {{HN_HINT_F16, HN_F16}, {HN_HINT_BF16, HN_BF16}};
    bool good = true;
    for (size_t i = 0; i < HN_COUNT_OF(k_hints); i++) {
        hn_str list = {0};
        for (const hn_node *node = module->main->first; node; node = node->next)
            if (node->compute == k_hints[i].dtype && node->outputs[0])
                hn_str_printf(&list, "%s%s", list.length ? "\n" : "", node->outputs[0]->name);
        good = good && !list.failed && hn_module_set_meta(module, k_hints[i].key, list.length ? hn_str_get(&list) : NULL);
        hn_str_free(&list);
    }
    return good;
}

static hone_status make(hone_error *err, hn_layer_search *s, const bool *node_in, hn_module **out_module) {
    const half *h = s->self;
    hn_module *module = hn_module_clone(s->base, NULL);
    if (!module) HN_NOMEM(err, "choosing layers");
    for (hn_node *node = module->main->first; node; node = node->next)
        if (node->id < s->base->next_node_id && node_in[node->id]) node->compute = h->dtype;
    if (!set_hints(module)) {
        hn_module_free(module);
        HN_NOMEM(err, "choosing layers");
    }
    *out_module = module;
    return HONE_OK;
}

static double reach(const hn_value *value, const hn_calibration *calibration) {
    if (!value || value->id >= calibration->count) return 0;
    const hn_range *range = &calibration->ranges[value->id];
    if (value->constant && value->constant->dtype == HN_F32) {
        float most = 0;
        for (int64_t i = 0; i < hn_tensor_count(value->constant); i++) {
            float v = fabsf(((const float *)value->constant->data)[i]);
            most = v > most || v != v ? v : most;
        }
        return most;
    }
    return range->seen ? fmax(-(double)range->low, range->high) : 0;
}

static void leave_far(hn_layer_search *s, const hn_calibration *calibration) {
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        if (!s->node_in[node->id]) continue;
        double most = reach(node->outputs[0], calibration);
        for (int i = 0; i < node->input_count; i++)
            most = fmax(most, reach(node->inputs[i], calibration));
        if (most <= F16_SAFE) continue;
        s->node_in[node->id] = false;
        snprintf(s->why[node->id], sizeof s->why[0], "its numbers reach %.4g, float16 ends at 65504", most);
    }
}

static hn_status search(hone_error *err, hn_layer_search *s, hn_layer_try *out) {
    hn_optimizer *o = s->o;
    const half *h = s->self;
    hn_calibration calibration = {0};
    HN_TRY(hn_calibrate(err, &o->gate, s->base, hn_samples_for(o, CALIBRATION_ROWS, 0), false, o->options->progress, o->options->user, &calibration));
    hn_layers_leave_steep(s, &calibration, h->steps);
    if (h->dtype == HN_F16) leave_far(s, &calibration);
    hn_calibration_free(&calibration);
    s->nodes = hn_layers_count(s);
    if (!s->nodes) return HONE_OK;
    HN_TRY(hn_layers_try(err, s, s->node_in, 0, out));
    if (!hn_layers_fit(s, &out->accuracy)) HN_TRY(hn_layers_shrink(err, s, out));
    return HONE_OK;
}

static hn_status strategy(hone_error *err, hn_optimizer *o, const char *name, half *h, hn_module **out_module, json_t **out_decision,
                          char *why, size_t why_size) {
    hn_layer_search s;
    hn_layer_try best = {0};
    const json_t *given = hn_replay_of(o, name);
    HN_TRY(hn_layers_open(err, o, name, capable, &s));
    s.make = make;
    s.self = h;
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
        snprintf(why, why_size, "%d of %d layers in %s", hn_layers_count(&s), all, name);
        hn_layers_say(&s, why, why_size);
    } else if (status == HONE_OK) {
        snprintf(why, why_size, "%s",
                 !all       ? "no float32 Conv, ConvTranspose, Gemm, MatMul or Attention"
                 : !s.nodes ? "no layer's numbers fit"
                            : "");
        if (all && s.nodes) hn_layers_say_none(&s, why, why_size);
    }
    hn_layers_try_free(&best);
    hn_layers_close(&s);
    return status;
}

hone_status hn_strategy_card_fp16(hone_error *err, hn_optimizer *o, hn_module **out_module, json_t **out_decision, char *why,
                                  size_t why_size) {
    half h = {HN_F16, 4096};
    return strategy(err, o, "fp16", &h, out_module, out_decision, why, why_size);
}

hone_status hn_strategy_card_bf16(hone_error *err, hn_optimizer *o, hn_module **out_module, json_t **out_decision, char *why,
                                  size_t why_size) {
    half h = {HN_BF16, 512};
    return strategy(err, o, "bf16", &h, out_module, out_decision, why, why_size);
}
