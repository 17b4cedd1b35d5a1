// SPDX-License-Identifier: Apache-2.0
// The pass table and its manager: see passes.h.
#include "passes/pass_int.h"

// A round that still changes something after so many is a pass that undoes another: a bug.
#define MAX_ROUNDS 12

static const hn_pass k_passes[] = {
#define HN_PASS(name, level, on, doc) {#name, HN_PASS_##level, on, hn_pass_##name, doc},
#include "passes/passes.def"
#undef HN_PASS
};

const hn_pass *hn_pass_table(size_t *out_count) {
    *out_count = HN_COUNT_OF(k_passes);
    return k_passes;
}

static const hn_pass *find(hn_slice name) {
    for (size_t i = 0; i < HN_COUNT_OF(k_passes); i++)
        if (hn_slice_eq(name, k_passes[i].name)) return &k_passes[i];
    return NULL;
}

const hn_pass *hn_pass_find(const char *name) {
    return find((hn_slice){name, strlen(name)});
}

static bool next_name(hn_slice *rest, hn_slice *out) {
    while (rest->length) {
        const char *comma = memchr(rest->data, ',', rest->length);
        size_t length = comma ? (size_t)(comma - rest->data) : rest->length;
        *out = hn_slice_trim((hn_slice){rest->data, length});
        if (comma) length++;
        *rest = (hn_slice){rest->data + length, rest->length - length};
        if (out->length) return true;
    }
    return false;
}

static hn_status check_names(hone_error *err, const char *list) {
    hn_slice rest = {list, list ? strlen(list) : 0}, name;
    while (next_name(&rest, &name))
        if (!find(name))
            HN_FAIL(err, HONE_ERR_USAGE, "there is no pass named '%.*s'", (int)name.length,
                    name.data);
    return HONE_OK;
}

static bool disabled(const hn_pass *pass, const char *list) {
    hn_slice rest = {list, list ? strlen(list) : 0}, name;
    while (next_name(&rest, &name))
        if (find(name) == pass) return true;
    return false;
}

static hn_status verify(hone_error *err, const hn_module *module, const hn_pass_options *options) {
#if !defined(HN_ASSERTS)
    if (!options->verify) return HONE_OK;
#endif
    (void)options;
    HN_TRY(hn_module_verify(err, module));
    return hn_ops_verify(err, module, true);
}

static hn_status run_one(hone_error *err, hn_module *module, const hn_pass *pass,
                         const hn_pass_options *options, int *changes) {
    hn_pass_ctx ctx = {
        .module = module,
        .freeze_overridable = options->freeze_overridable,
        .fold_limit_bytes =
            options->fold_limit_bytes ? options->fold_limit_bytes : HN_FOLD_LIMIT_BYTES,
        .expand_storage = options->expand_storage,
        .int8_weight_max = options->int8_weight_max,
        .pinned = options->pinned,
        .pinned_count = options->pinned_count,
        .rule = options->rule,
        .user = options->user,
    };
    int64_t start = hn_clock_ns();
    HN_TRY_CTX(err, pass->run(err, &ctx), "in pass %s", pass->name);
    if (ctx.changes) {
        HN_TRY_CTX(err, verify(err, module, options), "after pass %s", pass->name);
        HN_TRY_CTX(err, hn_infer_module(err, module), "after pass %s", pass->name);
    }
    if (options->trace) options->trace(options->user, pass, ctx.changes, hn_clock_ns() - start);
    *changes += ctx.changes;
    return HONE_OK;
}

hn_status hn_passes_run(hone_error *err, hn_module *module, hn_pass_level level,
                        const hn_pass_options *options) {
    const hn_pass_options none = {0};
    if (!options) options = &none;
    HN_TRY(check_names(err, options->disable));
    HN_TRY(hn_infer_module(err, module));
    for (int round = 0; round < MAX_ROUNDS; round++) {
        int changes = 0;
        for (size_t i = 0; i < HN_COUNT_OF(k_passes); i++) {
            const hn_pass *pass = &k_passes[i];
            // What is legal in a file is legal on a device, and constant dims let more of it fold.
            if (pass->level > level || !pass->on_by_default || disabled(pass, options->disable))
                continue;
            HN_TRY(run_one(err, module, pass, options, &changes));
        }
        if (!changes) return HONE_OK;
    }
    hn_log(HN_LOG_WARN, "passes were still changing the graph after %d rounds", MAX_ROUNDS);
    return HONE_OK;
}

hn_status hn_passes_run_list(hone_error *err, hn_module *module, const char *const *names,
                             const hn_pass_options *options) {
    const hn_pass_options none = {0};
    if (!options) options = &none;
    HN_TRY(check_names(err, options->disable));
    HN_TRY(hn_infer_module(err, module));
    int changes = 0;
    for (; *names; names++) {
        const hn_pass *pass = hn_pass_find(*names);
        if (!pass) HN_FAIL(err, HONE_ERR_USAGE, "there is no pass named '%s'", *names);
        if (!disabled(pass, options->disable))
            HN_TRY(run_one(err, module, pass, options, &changes));
    }
    return HONE_OK;
}

// ---- legality -----------------------------------------------------------------------------------

bool hn_pass_pinned(const hn_pass_ctx *ctx, const hn_value *value) {
    for (int i = 0; i < ctx->pinned_count; i++)
        if (ctx->pinned[i] == value) return true;
    return false;
}

bool hn_pass_can_absorb(const hn_pass_ctx *ctx, const hn_value *value) {
    return value->uses.count == 1 && value->graph_output_uses == 0 &&
           value->uses.data[0].node->graph == value->graph && !hn_pass_pinned(ctx, value);
}

bool hn_pass_can_replace(const hn_pass_ctx *ctx, const hn_value *from, const hn_value *to) {
    return !hn_pass_pinned(ctx, from) && hn_value_can_replace(from, to);
}

const hn_tensor *hn_pass_constant(const hn_pass_ctx *ctx, const hn_value *value) {
    if (!value || !value->constant) return NULL;
    return value->overridable && !ctx->freeze_overridable ? NULL : value->constant;
}

// ---- editing ------------------------------------------------------------------------------------

static hn_status each_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph, hn_graph_fn fn) {
    for (hn_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(each_graph(err, ctx, node->attrs[i].graph, fn));
    return fn(err, ctx, graph);
}

hn_status hn_pass_each_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph_fn fn) {
    return each_graph(err, ctx, ctx->module->main, fn);
}

void hn_pass_replace(hn_pass_ctx *ctx, hn_value *from, hn_value *to) {
    hn_node *producer = from->producer;
    if (to->type.dtype == HN_NONE) to->type.dtype = from->type.dtype;
    if (to->type.rank < 0 && from->type.rank >= 0) to->type = from->type;
    hn_value_replace(from, to);
    ctx->changes++;
    if (producer) hn_pass_sweep(ctx, producer);
}

static bool node_dead(const hn_pass_ctx *ctx, const hn_node *node) {
    for (int i = 0; i < node->output_count; i++) {
        const hn_value *out = node->outputs[i];
        if (out && (!hn_value_unused(out) || hn_pass_pinned(ctx, out))) return false;
    }
    return true;
}

void hn_pass_sweep(hn_pass_ctx *ctx, hn_node *node) {
    HN_VEC(hn_node *) work = {0};
    bool ok = hn_vec_push(&work, node);
    while (ok && work.count) {
        hn_node *next = work.data[--work.count];
        if (!node_dead(ctx, next)) continue;
        // Each producer once: a node that reads a value twice must not be queued twice.
        for (int i = 0; ok && i < next->input_count; i++) {
            hn_node *from = next->inputs[i] ? next->inputs[i]->producer : NULL;
            bool queued = !from || from->graph != next->graph;
            for (size_t j = 0; !queued && j < work.count; j++)
                queued = work.data[j] == from;
            if (!queued) ok = hn_vec_push(&work, from);
        }
        hn_node_remove(next);
    }
    hn_vec_free(&work);
}

bool hn_pass_same_type(const hn_value *a, const hn_value *b) {
    if (a->type.dtype == HN_NONE || a->type.dtype != b->type.dtype) return false;
    if (a->type.rank < 0 || a->type.rank != b->type.rank) return false;
    for (int i = 0; i < a->type.rank; i++)
        if (a->type.dims[i] != b->type.dims[i] || a->type.dims[i] == HN_DIM_FAILED) return false;
    return true;
}

bool hn_pass_is_8bit(const hn_value *value) {
    return value && (value->type.dtype == HN_I8 || value->type.dtype == HN_U8);
}

bool hn_pass_is(const hn_node *node, const char *op_type) {
    return node && !*node->domain && strcmp(node->op_type, op_type) == 0;
}

hn_node *hn_pass_make(hn_node *before, const char *op_type, hn_value *const *inputs, int count) {
    return hn_node_make(before->graph, before, hn_op_find("", op_type), inputs, count, 1);
}

hn_value *hn_pass_build(hn_node *before, const char *op_type, hn_value *const *inputs, int count) {
    return hn_build(before->graph, before, hn_op_find("", op_type), inputs, count);
}

hn_value *hn_pass_add_constant(hn_node *at, hn_tensor *tensor) {
    return hn_graph_add_constant(at->graph, "", tensor);
}
