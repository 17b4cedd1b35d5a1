// SPDX-License-Identifier: Apache-2.0
// The strategy `graph`, and what strategies share. Each makes a candidate from the best model so far;
// whether that is kept is decided elsewhere (judge.c).
#include "optimize/optimize_int.h"
#include "config/config.h"

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

// ---- tf32 ---------------------------------------------------------------------------------------
hone_status hn_strategy_tf32(hone_error *err, hn_optimizer *o, hn_module **out_module,
                             json_t **out_decision, char *why, size_t why_size) {
    if (hn_config_get()->cuda_tf32 || hn_module_meta(o->current, HN_HINT_TF32)) {
        snprintf(why, why_size, "products round to TF32 already");
        return HONE_OK;
    }
    HN_TRY(hn_rewritten(err, o, out_module));
    if (!hn_module_set_meta(*out_module, HN_HINT_TF32, "1")) HN_NOMEM(err, "choosing TF32");
    *out_decision = json_object();
    return HONE_OK;
}

// ---- shared -------------------------------------------------------------------------------------
const json_t *hn_replay_item(const hn_optimizer *o, const char *name) {
    size_t index;
    json_t *item;
    json_array_foreach(o->replay, index, item) {
        const char *given = json_string_value(json_object_get(item, "strategy"));
        if (given && strcmp(given, name) == 0) return item;
    }
    return NULL;
}

const json_t *hn_replay_of(const hn_optimizer *o, const char *name) {
    return json_object_get(hn_replay_item(o, name), "decision");
}

hn_status hn_decision_number(hone_error *err, const json_t *decision, const char *strategy, const char *key,
                             int64_t low, int64_t high, int64_t *out_number) {
    const json_t *item = json_object_get(decision, key);
    int64_t number = json_integer_value(item);
    if (!json_is_integer(item) || number < low || number > high)
        HN_FAIL(err, HONE_ERR_FORMAT, "the decisions of %s: '%s' is no whole number from %lld to %lld", strategy, key,
                (long long)low, (long long)high);
    *out_number = number;
    return HONE_OK;
}

char *hn_json_text(const json_t *json) {
    return json ? json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
}

// Weights that callers could replace become constants: what is done to them holds for these ones.
static void freeze(hn_module *module) {
    for (size_t i = 0; i < module->main->overridables.count; i++)
        module->main->overridables.data[i]->overridable = false;
    module->main->overridables.count = 0;
}

hn_status hn_rewritten(hone_error *err, const hn_optimizer *o, hn_module **out_module) {
    hn_module *module = hn_module_clone(o->current, NULL);
    if (!module) HN_NOMEM(err, "rewriting");
    freeze(module);
    hn_pass_options passes = {.freeze_overridable = true};
    hone_status status = hn_passes_run(err, module, HN_PASS_PORTABLE, &passes);
    if (status == HONE_OK) status = hn_name_values(err, module);
    if (status != HONE_OK) {
        hn_module_free(module);
        return status;
    }
    *out_module = module;
    return HONE_OK;
}
