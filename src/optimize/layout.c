// SPDX-License-Identifier: Apache-2.0
// The strategy `layout`: the order of dims that convolutions work in, region by region.
//
// Every convolution with a kernel for both orders is timed in the model in both: two copies take turns,
// one all channels-last (what sessions do by themselves), one all plain. What follows its inputs' order
// (element-wise steps, concatenations) is timed in both as well; the rest has the one order it has. Turning
// a value round costs what the backend's kernel for it takes, measured. Which convolutions keep the plain
// order is then the least cut between the two orders: of all assignments the one whose measured sum is
// least. Neighbours of equal order make a region. The gate measures the whole; the file's metadata says
// which (onnx/hints.c).
#include "optimize/optimize_int.h"
#include "optimize/cut.h"
#include <math.h>

#define TURNS 7 // of one value, to find the least time
// Plain order must be ahead by this much, so that equals do not change sides from run to run.
#define WORTH 1.05

// What the choice knows of one step of the channels-last copy.
typedef struct layout_step {
    const hn_node *node;
    const hn_step_info *last, *plain; // the step in both copies
    bool candidate, follows;          // has a choice; has the order of what it reads
    bool keeps_plain;                 // chosen, of those that are not fixed: has it from the start
    unsigned layer;                   // id in the model, of candidates
    int cut, region;                  // node of the cut; towards the region's root, an index of a step
    int number;                       // of the region, at its root
    double ns[2];                     // channels-last, plain
} layout_step;

typedef struct layout_search {
    hn_optimizer *o;
    hn_module *base;      // owned: the best model, values named
    const char **names;   // by node id: the nodes' own names
    hn_timed_copy copy[2]; // channels-last, plain
    layout_step *steps;
    int count;
    int *by_node, *plain_by_node; // by node id of the copies' device graphs: step, -1
    uint32_t ids;                 // of them
    hn_cut cut;
    bool *keep_plain; // by node id of base
} layout_search;

static bool has_choice(const hn_node *node) {
    const hn_value *w = hn_in(node, 1), *in = hn_in(node, 0);
    return !*node->domain && strcmp(node->op_type, "Conv") == 0 && node->compute == HN_NONE && in &&
           in->type.dtype == HN_F32 && !in->constant && w && w->constant && w->constant->dtype == HN_F32;
}

static void search_free(layout_search *s) {
    hn_timed_close(&s->copy[0]);
    hn_timed_close(&s->copy[1]);
    hn_cut_free(&s->cut);
    hn_module_free(s->base);
    hn_free(s->names);
    hn_free(s->steps);
    hn_free(s->by_node);
    hn_free(s->plain_by_node);
    hn_free(s->keep_plain);
}

// ---- timing -------------------------------------------------------------------------------------
static hn_status copy_of(hone_error *err, const layout_search *s, bool plain, hn_module **out_module) {
    hn_module *module = hn_module_clone(s->base, NULL);
    if (!module) HN_NOMEM(err, "timing layers");
    for (hn_node *node = module->main->first; node; node = node->next) {
        node->plain = plain && has_choice(node);
        node->name = hn_arena_printf(&module->arena, "layer#%u", node->id);
        if (node->name) continue;
        hn_module_free(module);
        HN_NOMEM(err, "timing layers");
    }
    *out_module = module;
    return HONE_OK;
}

static hn_status time_both(hone_error *err, layout_search *s) {
    for (int c = 0; c < 2; c++) {
        hn_module *module = NULL;
        HN_TRY(copy_of(err, s, c == 1, &module));
        HN_TRY(hn_timed_open(err, s->o, s->base, module, &s->copy[c]));
    }
    return hn_timed_runs(err, s->o, "layout: timing layers", &s->copy[0], &s->copy[1]);
}

// The least time of turning such a value round.
static hn_status turn_ns(hone_error *err, hn_backend *backend, const hn_type *type, hn_layout from, hn_layout to,
                         double *out_ns) {
    size_t bytes;
    hn_kernel *kernel;
    HN_TRY(backend->layout_bytes(err, backend, type, to, &bytes));
    HN_TRY(backend->reorder(err, backend, type, from, to, &kernel));
    void *in = hn_malloc_aligned(bytes + 64), *out = hn_malloc_aligned(bytes + 64);
    void *workspace = hn_malloc_aligned(kernel->workspace_bytes + 64);
    hone_status status = in && out && workspace ? HONE_OK : HN_SET(err, HONE_ERR_NOMEM, "out of memory (choosing layers)");
    hn_args args = {&in, &out, workspace};
    if (status == HONE_OK) memset(in, 0, bytes);
    if (status == HONE_OK && kernel->ops->bind) status = kernel->ops->bind(err, kernel, &args);
    *out_ns = INFINITY;
    for (int i = 0; i < TURNS && status == HONE_OK; i++) {
        int64_t start = hn_clock_ns();
        status = kernel->ops->run(err, kernel, &args);
        *out_ns = fmin(*out_ns, (double)(hn_clock_ns() - start));
    }
    hn_free(in);
    hn_free(out);
    hn_free(workspace);
    kernel->ops->destroy(kernel);
    return status;
}

// ---- steps --------------------------------------------------------------------------------------
static hn_status index_steps(hone_error *err, const hn_timed_copy *t, uint32_t ids, const hn_module *module,
                             int **out_index) {
    int *index = hn_malloc(((size_t)ids + 1) * sizeof *index);
    if (!index) HN_NOMEM(err, "choosing layers");
    for (uint32_t i = 0; i <= ids; i++)
        index[i] = -1;
    for (int i = 0; i < t->count; i++) {
        const hn_node *node = t->steps[i].node;
        if (node && (!module || node->graph->module == module) && node->id < ids) index[node->id] = i;
    }
    *out_index = index;
    return HONE_OK;
}

static bool is_last(const hn_step_info *step, int output) {
    return step->out_layout[output] == HN_LAYOUT_CHANNELS_LAST;
}

// The static part of the plan; what is planned late reads plain values anyhow.
static const hn_module *plan_module(const hn_timed_copy *t) {
    for (int i = 0; i < t->count; i++)
        if (t->steps[i].node) return t->steps[i].node->graph->module;
    return NULL;
}

static hn_status list_steps(hone_error *err, layout_search *s) {
    const hn_timed_copy *last = &s->copy[0], *plain = &s->copy[1];
    const hn_module *module = plan_module(last);
    s->ids = module ? module->next_node_id : 0;
    HN_TRY(index_steps(err, last, s->ids, module, &s->by_node));
    HN_TRY(index_steps(err, plain, s->ids, plan_module(plain), &s->plain_by_node));
    s->steps = hn_calloc((size_t)last->count + 1, sizeof *s->steps);
    if (!s->steps) HN_NOMEM(err, "choosing layers");
    s->count = last->count;
    for (int i = 0; i < s->count; i++) {
        layout_step *step = &s->steps[i];
        const hn_step_info *info = &last->steps[i];
        if (!info->node || info->node->graph->module != module) continue;
        int other = s->plain_by_node[info->node->id];
        step->node = info->node;
        step->last = info;
        step->plain = other >= 0 ? &plain->steps[other] : NULL;
        step->region = i;
        step->ns[0] = last->step_ns[i];
        bool turns = step->plain && is_last(info, 0) && !is_last(step->plain, 0);
        // One channel lies the same in both orders, so layouts need not tell: kernels do.
        bool other_kernel = step->plain && info->variant != step->plain->variant;
        unsigned id = 0;
        step->candidate = other_kernel && sscanf(info->node->name, "layer#%u", &id) == 1 &&
                          id < s->base->next_node_id && strcmp(info->node->op_type, "Conv") == 0 &&
                          last->ns[id] > 0 && plain->ns[id] > 0;
        step->follows = turns && !step->candidate;
        step->keeps_plain = !is_last(info, 0);
        if (step->follows) step->ns[1] = plain->step_ns[other];
        if (!step->candidate) continue;
        step->layer = id;
        step->ns[0] = last->ns[id];
        step->ns[1] = plain->ns[id];
    }
    return HONE_OK;
}

// ---- the cut ------------------------------------------------------------------------------------
static bool is_free(const layout_step *step) { return step->candidate || step->follows; }

// The source's side is channels-last, the sink's plain.
static int side_of(const layout_step *step) {
    return is_free(step) ? step->cut : step->keeps_plain ? HN_CUT_SINK : HN_CUT_SOURCE;
}

// What a use asks for: a node of the cut, or -1: it takes either.
static int asked_by(const layout_search *s, const hn_use *use) {
    if (use->node->id >= s->ids || s->by_node[use->node->id] < 0) return HN_CUT_SINK; // a view, or late
    const layout_step *step = &s->steps[s->by_node[use->node->id]];
    if (use->index >= HN_MAX_KERNEL_IO || !step->last) return HN_CUT_SINK;
    bool last = step->last->in_layout[use->index] == HN_LAYOUT_CHANNELS_LAST;
    bool plain = !step->plain || step->plain->in_layout[use->index] != HN_LAYOUT_CHANNELS_LAST;
    if (last && plain) return is_free(step) ? step->cut : -1;
    return last ? HN_CUT_SOURCE : HN_CUT_SINK;
}

static int64_t ticks(double ns) { return ns > 0 ? (int64_t)(ns * 16) + 1 : 0; }

// A value is turned round once, however many want it.
static hn_status add_value(hone_error *err, layout_search *s, const hn_value *value, int from) {
    hn_shape shape;
    if (!hn_type_shape(&value->type, &shape) || shape.rank < 3 || shape.dims[1] == 1) return HONE_OK;
    bool same = true; // where all of the rest is 1, both orders are the same bytes
    for (int i = 2; i < shape.rank; i++)
        same = same && shape.dims[i] == 1;
    bool choice = from > HN_CUT_SINK;
    for (size_t u = 0; u < value->uses.count; u++)
        choice = choice || asked_by(s, &value->uses.data[u]) > HN_CUT_SINK;
    if (same || !choice) return HONE_OK;
    double down, up;
    hn_backend *backend = s->o->backend;
    HN_TRY(turn_ns(err, backend, &value->type, HN_LAYOUT_CHANNELS_LAST, HN_LAYOUT_PLAIN, &down));
    HN_TRY(turn_ns(err, backend, &value->type, HN_LAYOUT_PLAIN, HN_LAYOUT_CHANNELS_LAST, &up));
    int wants_plain = hn_cut_node(&s->cut), wants_last = hn_cut_node(&s->cut);
    hn_cut_add(&s->cut, from, wants_plain, ticks(down));
    hn_cut_add(&s->cut, wants_last, from, ticks(up));
    if (value->graph_output_uses) hn_cut_add(&s->cut, wants_plain, HN_CUT_SINK, HN_CUT_NEVER);
    for (size_t u = 0; u < value->uses.count; u++) {
        int to = asked_by(s, &value->uses.data[u]);
        if (to < 0) continue;
        hn_cut_add(&s->cut, wants_plain, to, HN_CUT_NEVER);
        hn_cut_add(&s->cut, to, wants_last, HN_CUT_NEVER);
    }
    return HONE_OK;
}

static hn_status solve(hone_error *err, layout_search *s) {
    for (int i = 0; i < 2; i++)
        hn_cut_node(&s->cut);
    for (int i = 0; i < s->count; i++) {
        layout_step *step = &s->steps[i];
        if (!is_free(step)) continue;
        step->cut = hn_cut_node(&s->cut);
        hn_cut_add(&s->cut, step->cut, HN_CUT_SINK, ticks(step->ns[0]));
        hn_cut_add(&s->cut, HN_CUT_SOURCE, step->cut, ticks(step->ns[1] * (step->candidate ? WORTH : 1)));
    }
    const hn_module *module = plan_module(&s->copy[0]);
    for (size_t i = 0; module && i < module->main->inputs.count; i++)
        HN_TRY(add_value(err, s, module->main->inputs.data[i], HN_CUT_SINK));
    for (int i = 0; i < s->count; i++)
        for (int k = 0; s->steps[i].node && k < s->steps[i].node->output_count; k++)
            if (s->steps[i].node->outputs[k])
                HN_TRY(add_value(err, s, s->steps[i].node->outputs[k], side_of(&s->steps[i])));
    bool *side = hn_calloc(s->cut.first.count + 1, sizeof *side);
    int64_t cost;
    if (!side) HN_NOMEM(err, "choosing layers");
    hone_status status = hn_cut_solve(err, &s->cut, side, &cost);
    for (int i = 0; i < s->count && status == HONE_OK; i++)
        if (is_free(&s->steps[i])) s->steps[i].keeps_plain = !side[s->steps[i].cut];
    hn_free(side);
    return status;
}

// ---- regions ------------------------------------------------------------------------------------
static int root_of(const layout_search *s, int step) {
    while (s->steps[step].region != step)
        step = s->steps[step].region;
    return step;
}

// Steps with a choice that took the same order and read each other. Returns how many regions are plain.
static int join_regions(layout_search *s) {
    int plain = 0, number = 0;
    for (int i = 0; i < s->count; i++) {
        const layout_step *step = &s->steps[i];
        for (int k = 0; step->node && k < step->node->input_count; k++) {
            const hn_value *in = step->node->inputs[k];
            int from = in && in->producer && in->producer->id < s->ids ? s->by_node[in->producer->id] : -1;
            if (from < 0 || !is_free(step) || !is_free(&s->steps[from]) ||
                s->steps[from].keeps_plain != step->keeps_plain)
                continue;
            int a = root_of(s, i), b = root_of(s, from);
            s->steps[a > b ? a : b].region = a < b ? a : b;
        }
    }
    for (int i = 0; i < s->count; i++) {
        if (!s->steps[i].candidate) continue;
        layout_step *root = &s->steps[root_of(s, i)];
        if (root->number) continue;
        root->number = ++number;
        plain += root->keeps_plain;
    }
    return plain;
}

static hn_status record(hone_error *err, const layout_search *s) {
    for (int i = 0; i < s->count; i++) {
        const layout_step *step = &s->steps[i];
        if (!step->candidate) continue;
        const char *name = s->names[step->layer];
        hn_layer layer = {.error = NAN, .own_error = NAN, .strategy = "layout"};
        for (const hn_node *node = s->base->main->first; node && !*name; node = node->next)
            if (node->id == step->layer) name = node->outputs[0]->name;
        snprintf(layer.name, sizeof layer.name, "%s", name);
        snprintf(layer.op, sizeof layer.op, "%s", step->node->op_type);
        snprintf(layer.precision, sizeof layer.precision, "%s", step->keeps_plain ? "plain" : "channels-last");
        snprintf(layer.why, sizeof layer.why, "plain order: %.1f us, channels-last: %.1f us; region %d",
                 step->ns[1] / 1e3, step->ns[0] / 1e3, s->steps[root_of(s, i)].number);
        if (!hn_vec_push(&s->o->result->layers, layer)) HN_NOMEM(err, "recording layers");
    }
    return HONE_OK;
}

// ---- the strategy -------------------------------------------------------------------------------
static hn_status search_open(hone_error *err, hn_optimizer *o, layout_search *s) {
    *s = (layout_search){.o = o, .base = hn_module_clone(o->current, NULL)};
    if (!s->base) HN_NOMEM(err, "choosing layers");
    HN_TRY(hn_name_values(err, s->base));
    size_t count = (size_t)s->base->next_node_id + 1;
    s->names = hn_calloc(count, sizeof *s->names);
    s->keep_plain = hn_calloc(count, sizeof *s->keep_plain);
    if (!s->names || !s->keep_plain) HN_NOMEM(err, "choosing layers");
    for (hn_node *node = s->base->main->first; node; node = node->next)
        s->names[node->id] = node->name;
    return HONE_OK;
}

static hn_status from_json(hone_error *err, layout_search *s, const json_t *json) {
    const json_t *names = json_object_get(json, "plain");
    size_t index;
    json_t *item;
    if (!json_is_array(names)) HN_FAIL(err, HONE_ERR_FORMAT, "the decisions of %s are incomplete", "layout");
    json_array_foreach(names, index, item) {
        const char *name = json_string_value(item);
        const hn_value *value = name ? hn_graph_find(s->base->main, name) : NULL;
        if (!value || !value->producer || !has_choice(value->producer))
            HN_FAIL(err, HONE_ERR_FORMAT, "the decisions' layer '%s' does not fit the model",
                    name ? name : "?");
        s->keep_plain[value->producer->id] = true;
    }
    return HONE_OK;
}

static hn_status make(hone_error *err, layout_search *s, hn_module **out_module, json_t **out_decision) {
    hn_str list = {0};
    json_t *names = json_array();
    for (hn_node *node = s->base->main->first; node; node = node->next) {
        node->plain = s->keep_plain[node->id];
        if (!node->plain) continue;
        hn_str_printf(&list, "%s%s", list.length ? "\n" : "", node->outputs[0]->name);
        json_array_append_new(names, json_string(node->outputs[0]->name));
    }
    bool ok = !list.failed && hn_module_set_meta(s->base, HN_HINT_PLAIN, hn_str_get(&list));
    hn_str_free(&list);
    *out_decision = json_pack("{s:o}", "plain", names);
    if (!ok || !*out_decision) HN_NOMEM(err, "recording a choice");
    *out_module = s->base;
    s->base = NULL;
    return HONE_OK;
}

static double total_us(const hn_timed_copy *t) {
    double ns = 0;
    for (int i = 0; i < t->count; i++)
        ns += t->step_ns[i];
    return ns / 1e3;
}

static hn_status search(hone_error *err, layout_search *s, int candidates, int *out_plain, char *why,
                        size_t why_size) {
    HN_TRY(time_both(err, s));
    HN_TRY(list_steps(err, s));
    HN_TRY(solve(err, s));
    int regions = join_regions(s), plain = 0;
    for (int i = 0; i < s->count; i++) {
        if (!s->steps[i].candidate || !s->steps[i].keeps_plain) continue;
        s->keep_plain[s->steps[i].layer] = true;
        plain++;
    }
    HN_TRY(record(err, s));
    *out_plain = plain;
    if (plain)
        snprintf(why, why_size, "%d of %d convolutions in plain order, in %d regions", plain, candidates, regions);
    else
        snprintf(why, why_size,
                 "no region is faster in plain order: all in it take %.1f us a run, channels-last %.1f",
                 total_us(&s->copy[1]), total_us(&s->copy[0]));
    return HONE_OK;
}

hone_status hn_strategy_layout(hone_error *err, hn_optimizer *o, hn_module **out_module, json_t **out_decision,
                               char *why, size_t why_size) {
    layout_search s;
    const json_t *given = hn_replay_of(o, "layout");
    hone_status status = search_open(err, o, &s);
    int candidates = 0, plain = 0;
    for (const hn_node *node = s.base ? s.base->main->first : NULL; node; node = node->next)
        candidates += has_choice(node);
    if (status == HONE_OK && given) status = from_json(err, &s, given);
    else if (status == HONE_OK && candidates) status = search(err, &s, candidates, &plain, why, why_size);
    else if (status == HONE_OK) snprintf(why, why_size, "no float32 convolution is left that could change its order");
    if (status == HONE_OK && (given || plain)) status = make(err, &s, out_module, out_decision);
    search_free(&s);
    return status;
}
