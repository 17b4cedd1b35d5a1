// SPDX-License-Identifier: Apache-2.0
// The strategy `fp16`: weights stored as float16 behind a Cast, computed in float32.
//
// Half the bytes of the file and nothing else: a session makes the weights float32 when it loads. Since
// no activation is float16, none can overflow; a weight beyond float16's range keeps its layer float32,
// and so do weights of which more than one in a thousand would become 0.
#include "optimize/optimize_int.h"
#include <math.h>

#define MIN_ELEMENTS 256
#define FP16_MAX     65504.0f
#define FP16_TINY    2.98023224e-8f // half the smallest subnormal: below, a weight becomes 0

static bool stores(const hn_value *value) {
    return value && value->constant && value->constant->dtype == HN_F32 && !value->overridable &&
           hn_tensor_count(value->constant) >= MIN_ELEMENTS;
}

static bool capable(const hn_node *node) {
    if (hn_op_has(node->op, HN_T_QUANT) || !node->outputs[0]) return false;
    for (int i = 0; i < node->input_count; i++)
        if (stores(node->inputs[i])) return true;
    return false;
}

static int64_t leave_extreme(hn_layer_search *s) {
    int64_t flushed_in_all = 0;
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        for (int i = 0; i < node->input_count && s->node_in[node->id]; i++) {
            if (!stores(node->inputs[i])) continue;
            const hn_tensor *w = node->inputs[i]->constant;
            int64_t count = hn_tensor_count(w), flushed = 0;
            float most = 0;
            bool finite = true;
            for (int64_t k = 0; k < count; k++) {
                float v = fabsf(((const float *)w->data)[k]);
                finite = finite && isfinite(v);
                most = v > most ? v : most;
                flushed += v > 0 && v < FP16_TINY;
            }
            char *why = s->why[node->id];
            if (!finite) snprintf(why, sizeof s->why[0], "a weight is not finite");
            else if (most > FP16_MAX)
                snprintf(why, sizeof s->why[0], "a weight is %.4g, float16 ends at 65504", (double)most);
            else if (flushed * 1000 > count)
                snprintf(why, sizeof s->why[0], "%lld of %lld weights would become 0", (long long)flushed,
                         (long long)count);
            s->node_in[node->id] = !*why;
            flushed_in_all += *why ? 0 : flushed;
        }
    }
    return flushed_in_all;
}

static hn_value *stored(hone_error *err, hn_module *module, hn_value *value, hn_value **made) {
    if (made[value->id]) return made[value->id];
    const hn_tensor *w = value->constant;
    hn_tensor half;
    if (hn_tensor_new(err, HN_F16, &w->shape, &half) != HONE_OK) return NULL;
    for (int64_t k = 0; k < hn_tensor_count(w); k++)
        ((uint16_t *)half.data)[k] = hn_f32_to_f16(((const float *)w->data)[k]);
    const char *base = *value->name ? value->name : hn_arena_printf(&module->arena, "weight_%u", value->id);
    const char *name = base ? hn_arena_printf(&module->arena, "%s_f16", base) : NULL;
    hn_value *constant = name ? hn_graph_add_constant(module->main, name, &half) : NULL;
    hn_tensor_free(&half); // zeroed where it was taken over
    hn_node *cast = constant ? hn_node_make(module->main, module->main->first, hn_op_find("", "Cast"),
                                            &constant, 1, 1)
                             : NULL;
    if (!cast || !hn_node_set_int(cast, "to", 1)) return NULL;
    cast->version = 13;
    cast->outputs[0]->name = hn_arena_printf(&module->arena, "%s_f32", base);
    cast->name = cast->outputs[0]->name;
    if (!cast->name || hn_infer_node(err, cast) != HONE_OK) return NULL;
    return made[value->id] = cast->outputs[0];
}

static hone_status make(hone_error *err, hn_layer_search *s, const bool *node_in,
                        hn_module **out_module) {
    hn_module *module = hn_module_clone(s->base, NULL);
    hn_value **made = hn_calloc((size_t)s->base->next_value_id + 1, sizeof(hn_value *));
    uint32_t nodes = s->base->next_node_id, values = s->base->next_value_id;
    bool ok = module && made;
    for (hn_node *node = ok ? module->main->first : NULL; node && ok; node = node->next) {
        if (node->id >= nodes || !node_in[node->id]) continue;
        for (int i = 0; i < node->input_count && ok; i++) {
            if (!stores(node->inputs[i]) || node->inputs[i]->id >= values) continue;
            hn_value *half = stored(err, module, node->inputs[i], made);
            ok = half != NULL;
            if (ok) hn_node_set_input(node, i, half);
        }
    }
    hn_free(made);
    static const char *const k_clean[] = {"dce", NULL};
    hone_status status = ok ? hn_passes_run_list(err, module, k_clean, NULL)
                            : HN_SET(err, HONE_ERR_NOMEM, "out of memory (storing weights)");
    if (status != HONE_OK) {
        hn_module_free(module);
        return status;
    }
    *out_module = module;
    return HONE_OK;
}

hone_status hn_strategy_fp16(hone_error *err, hn_optimizer *o, hn_module **out_module,
                             json_t **out_decision, char *why, size_t why_size) {
    hn_layer_search s;
    hn_layer_try best = {0};
    HN_TRY(hn_layers_open(err, o, "fp16", capable, &s));
    s.make = make;
    int all = s.nodes;
    int64_t flushed = 0;
    hone_status status = HONE_OK;
    const json_t *given = hn_replay_of(o, "fp16");
    if (given) {
        status = hn_layers_from_json(err, &s, given);
        if (status == HONE_OK) status = make(err, &s, s.node_in, &best.module);
    } else {
        flushed = leave_extreme(&s);
        s.nodes = hn_layers_count(&s);
        if (s.nodes) status = hn_layers_try(err, &s, s.node_in, 0, &best);
        if (status == HONE_OK && best.module && !hn_layers_fit(&s, &best.accuracy))
            status = hn_layers_shrink(err, &s, &best);
    }
    if (status == HONE_OK && all) status = hn_layers_record(err, &s);
    if (status == HONE_OK && best.module) {
        *out_decision = hn_layers_to_json(&s);
        *out_module = best.module;
        best.module = NULL;
        snprintf(why, why_size, "weights of %d of %d layers as float16, %lld weights become 0",
                 hn_layers_count(&s), all, (long long)flushed);
        hn_layers_say(&s, why, why_size);
    } else if (status == HONE_OK) {
        snprintf(why, why_size, "%s",
                 !all       ? "no layer has 256 float32 weights or more"
                 : !s.nodes ? "no layer's weights fit float16"
                            : "");
        if (all && s.nodes) hn_layers_say_none(&s, why, why_size);
    }
    hn_layers_try_free(&best);
    hn_layers_close(&s);
    return status;
}
