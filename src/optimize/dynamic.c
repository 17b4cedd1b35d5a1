// SPDX-License-Identifier: Apache-2.0
// The strategy `int8-dynamic`: products with constant weights on integers, whose data is quantised by the
// range that it has in that very call.
//
// Nothing is calibrated, so nothing can be out of range; data only judges. Standard operators:
// DynamicQuantizeLinear, MatMulInteger, Cast, and the product of the two scales; one quantisation for all
// products that read the same value. Weights have a scale a column. The device pass qdq_dynamic makes one
// step of it again. A layer that is not faster this way stays float.
#include "optimize/optimize_int.h"
#include "probe/cpu.h"

static bool capable(const hn_node *node) {
    return node->compute == HN_NONE && hn_quantize_capable(node) && strcmp(node->op_type, "Conv") != 0;
}

// ---- the rewrite --------------------------------------------------------------------------------
typedef struct rewriter {
    hn_module *module;
    hn_node **quantise; // by value id: its DynamicQuantizeLinear
    uint32_t values;
    int weight_max;
} rewriter;

static hn_node *node_of(hn_node *before, const char *op, int version, hn_value *const *in, int inputs,
                        int outputs) {
    hn_node *node = hn_node_make(before->graph, before, hn_op_find("", op), in, inputs, outputs);
    if (node) node->version = version;
    return node;
}

// The value `stem` + `suffix`; unnamed where that is taken, which hn_name_values repairs.
static void name_value(hn_value *value, const char *stem, const char *suffix) {
    hn_graph *graph = value->graph;
    const char *name = hn_arena_printf(&graph->module->arena, "%s%s", stem, suffix);
    if (name && !hn_graph_find(graph, name)) value->name = name;
}

static hn_node *quantised(rewriter *r, hn_node *before) {
    static const char *const k_suffixes[] = {"_dynamic_q", "_dynamic_scale", "_dynamic_zero"};
    hn_value *x = before->inputs[0];
    if (r->quantise[x->id]) return r->quantise[x->id];
    hn_node *node = node_of(before, "DynamicQuantizeLinear", 11, &x, 1, 3);
    if (!node || hn_infer_node(NULL, node) != HONE_OK) return NULL;
    for (int i = 0; i < 3; i++)
        name_value(node->outputs[i], x->name, k_suffixes[i]);
    node->name = hn_arena_printf(&r->module->arena, "%s_quantise", before->name);
    r->quantise[x->id] = node;
    return node->name ? node : NULL;
}

static hn_value *one(hn_node *before, const char *op, int version, hn_value *a, hn_value *b) {
    hn_value *in[] = {a, b};
    hn_node *node = node_of(before, op, version, in, 2, 1);
    return node && hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

static hn_status rewrite_layer(hone_error *err, rewriter *r, hn_node *old) {
    hn_int8_weight w;
    hn_value *bias = hn_in(old, 2);
    HN_TRY(hn_quantize_weight(err, old, r->weight_max, true, &w));
    hn_node *x = quantised(r, old);
    hn_value *in[] = {x ? x->outputs[0] : NULL, w.q, x ? x->outputs[2] : NULL};
    hn_node *sums = x ? node_of(old, "MatMulInteger", 10, in, 3, 1) : NULL;
    if (!sums || hn_infer_node(NULL, sums) != HONE_OK) HN_NOMEM(err, "quantising");
    sums->name = old->name;
    hn_node *cast = node_of(old, "Cast", 13, sums->outputs, 1, 1);
    if (!cast || !hn_node_set_int(cast, "to", 1) ||
        hn_infer_node(NULL, cast) != HONE_OK)
        HN_NOMEM(err, "quantising");
    hn_value *scale = one(old, "Mul", 14, x->outputs[1], w.scale);
    hn_value *y = scale ? one(old, "Mul", 14, cast->outputs[0], scale) : NULL;
    if (y && bias) y = one(old, "Add", 14, y, bias);
    if (!y) HN_NOMEM(err, "quantising");
    hn_value *was = old->outputs[0];
    const char *name = was->name;
    hn_value_replace(was, y);
    was->name = "";
    y->name = name;
    hn_node_remove(old);
    return HONE_OK;
}

static hn_status apply(hone_error *err, const hn_layer_search *s, const bool *node_in, int weight_max,
                       hn_module *module) {
    rewriter r = {.module = module, .values = module->next_value_id, .weight_max = weight_max};
    r.quantise = hn_calloc((size_t)r.values + 1, sizeof *r.quantise);
    hone_status status = HONE_OK;
    if (!r.quantise) HN_NOMEM(err, "quantising");
    for (hn_node *node = module->main->first, *next; node && status == HONE_OK; node = next) {
        next = node->next;
        if (node->id >= s->base->next_node_id || !node_in[node->id]) continue;
        // A product that reads another one's result: that value is new and has no place in the table.
        if (node->inputs[0]->id >= r.values) {
            hn_node **wider = hn_realloc(r.quantise, ((size_t)module->next_value_id + 1) * sizeof *wider);
            if (!wider) {
                status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (quantising)");
                break;
            }
            memset(wider + r.values, 0, (module->next_value_id + 1 - r.values) * sizeof *wider);
            r.quantise = wider;
            r.values = module->next_value_id;
        }
        status = rewrite_layer(err, &r, node);
    }
    hn_free(r.quantise);
    static const char *const k_clean[] = {"dce", NULL};
    hn_pass_options options = {.freeze_overridable = true};
    if (status == HONE_OK) status = hn_passes_run_list(err, module, k_clean, &options);
    if (status == HONE_OK) status = hn_infer_module(err, module);
    if (status == HONE_OK) status = hn_name_values(err, module);
    return status;
}

static hone_status make(hone_error *err, hn_layer_search *s, const bool *node_in,
                        hn_module **out_module) {
    hn_module *module = hn_module_clone(s->base, NULL);
    if (!module) HN_NOMEM(err, "quantising");
    hone_status status = apply(err, s, node_in, *(const int *)s->self, module);
    if (status != HONE_OK) {
        hn_module_free(module);
        return status;
    }
    *out_module = module;
    return HONE_OK;
}

// ---- the strategy -------------------------------------------------------------------------------
static hn_status search(hone_error *err, hn_layer_search *s, hn_layer_try *out) {
    HN_TRY(hn_layers_leave_slow(err, s));
    if (!hn_layers_count(s)) return HONE_OK;
    HN_TRY(hn_layers_try(err, s, s->node_in, 0, out));
    if (!hn_layers_fit(s, &out->accuracy)) HN_TRY(hn_layers_shrink(err, s, out));
    return HONE_OK;
}

static hn_status replay(hone_error *err, hn_layer_search *s, const json_t *given, hn_layer_try *out) {
    int *weight_max = s->self;
    int64_t most;
    HN_TRY(hn_decision_number(err, given, "int8-dynamic", "weight_max", 1, 127, &most));
    *weight_max = (int)most;
    HN_TRY(hn_layers_from_json(err, s, given));
    return make(err, s, s->node_in, &out->module);
}

hone_status hn_strategy_int8_dynamic(hone_error *err, hn_optimizer *o, hn_module **out_module,
                                     json_t **out_decision, char *why, size_t why_size) {
    int weight_max = hn_int8_weight_max();
    hn_layer_search s;
    hn_layer_try best = {0};
    HN_TRY(hn_layers_open(err, o, "int8-dynamic", capable, &s));
    s.self = &weight_max;
    s.make = make;
    int all = s.nodes;
    const json_t *given = hn_replay_of(o, "int8-dynamic");
    hone_status status = HONE_OK;
    if (given) status = replay(err, &s, given, &best);
    else if (all) status = search(err, &s, &best);
    if (status == HONE_OK && all) status = hn_layers_record(err, &s);
    if (status == HONE_OK && best.module) {
        *out_decision = hn_layers_to_json(&s);
        json_object_set_new(*out_decision, "weight_max", json_integer(weight_max));
        *out_module = best.module;
        best.module = NULL;
        snprintf(why, why_size, "%d of %d layers in int8 by the range of each call%s",
                 hn_layers_count(&s), all, weight_max < 127 ? ", 7-bit weights" : "");
        hn_layers_say(&s, why, why_size);
    } else if (status == HONE_OK) {
        snprintf(why, why_size, "%s",
                 !all       ? "no Gemm or MatMul with constant float32 weights is left"
                 : !s.nodes ? "no layer is faster in int8 by the range of each call"
                            : "");
        if (all && s.nodes) hn_layers_say_none(&s, why, why_size);
    }
    hn_layers_try_free(&best);
    hn_layers_close(&s);
    return status;
}
