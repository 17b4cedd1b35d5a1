// SPDX-License-Identifier: Apache-2.0
// Which layers disturb the outputs most, at a price that does not grow with one model run a layer.
//
// Two measurements, both on data. First, where the strategy can put a layer's twin beside it: one session
// in which every layer runs in both precisions on the float inputs, and the squared difference at its own
// output over the squared output ("own error"); all layers in one run. Second, the outputs of the model
// with some layers low and the rest float: for the layers of the largest own errors one by one, for the
// others in groups that grow as the errors fall. A group whose share of the whole disturbance is more than
// 1 / SPLIT_SHARE is halved and both halves are measured. Where the outputs as a whole are inside the budget and
// the answers are not, answers are what counts. What is left in a group shares its disturbance by own
// errors. The order that comes out is only an order: whether a set fits the budget is measured (layers.c).
#include <math.h>
#include <stdlib.h>
#include "optimize/optimize_int.h"

#define RANK_ROWS     64    // few rows give the order; the choice itself is checked on more
#define RANK_ELEMENTS 65536 // of outputs: an image detector has them in one sample
#define SPLIT_SHARE   24
#define CONCAT_MAX    32    // inputs of one node

int64_t hn_samples_for(const hn_optimizer *o, int64_t rows, int64_t elements) {
    const hn_gate *gate = &o->gate;
    int64_t batch = gate->dataset ? hn_dataset_batch(gate->dataset) : 1, outputs = 0;
    int64_t samples = hn_max_i64(4, rows / hn_max_i64(1, batch));
    // The baseline ran before: what one sample's outputs hold is known.
    const hn_tensor *of = &gate->references[hn_gate_sample(gate, HN_SPLIT_GATE, 0) * gate->output_count];
    for (int i = 0; i < gate->output_count && elements > 0; i++)
        if (hn_dtype_is_float(of[i].dtype)) outputs += hn_tensor_count(&of[i]);
    if (outputs > 0) samples = hn_min_i64(samples, hn_max_i64(4, elements / outputs));
    return samples;
}

// ---- own errors ---------------------------------------------------------------------------------
// The sum of squares as a vector of one element.
static hn_value *square_sum(hn_graph *graph, hn_node *before, hn_value *x, hn_value *one) {
    hn_node *sum = hn_node_make(graph, before, hn_op_find("", "ReduceSumSquare"), &x, 1, 1);
    if (!sum || !hn_node_set_int(sum, "keepdims", 0) || hn_infer_node(NULL, sum) != HONE_OK) return NULL;
    hn_value *in[] = {sum->outputs[0], one};
    hn_node *flat = hn_node_make(graph, before, hn_op_find("", "Reshape"), in, 2, 1);
    return flat && hn_infer_node(NULL, flat) == HONE_OK ? flat->outputs[0] : NULL;
}

// All vectors in one, a few at a time: a node has no room for hundreds. Overwrites the list.
static hn_value *joined(hn_graph *graph, hn_value **list, int count) {
    while (count > 1) {
        int made = 0;
        for (int at = 0; at < count; at += CONCAT_MAX) {
            int n = count - at < CONCAT_MAX ? count - at : CONCAT_MAX;
            hn_node *node = hn_node_make(graph, NULL, hn_op_find("", "Concat"), list + at, n, 1);
            if (!node || !hn_node_set_int(node, "axis", 0) || hn_infer_node(NULL, node) != HONE_OK) return NULL;
            list[made++] = node->outputs[0];
        }
        count = made;
    }
    return count ? list[0] : NULL;
}

// A copy of the base whose last output holds, two numbers a layer, the squares of its twin's difference and
// of itself; layers[] says whose.
static hn_status twins_make(hone_error *err, hn_layer_search *s, hn_value **sums, uint32_t *layers,
                            int *out_count, hn_module *module) {
    int64_t minus_one = -1;
    hn_graph *graph = module->main;
    hn_value *one = hn_graph_add_const_i64(graph, &minus_one, 1, false), *all;
    int count = 0;
    if (!one) HN_NOMEM(err, "measuring layers");
    for (hn_node *node = graph->first, *next; node; node = next) {
        hn_value *twin = NULL;
        next = node->next;
        if (node->id >= s->base->next_node_id || !s->node_in[node->id]) continue;
        HN_TRY(s->twin(err, s, node, &twin));
        if (!twin) continue;
        hn_value *in[] = {node->outputs[0], twin};
        hn_node *difference = hn_node_make(graph, next, hn_op_find("", "Sub"), in, 2, 1);
        if (!difference || hn_infer_node(NULL, difference) != HONE_OK) HN_NOMEM(err, "measuring layers");
        sums[2 * count] = square_sum(graph, next, difference->outputs[0], one);
        sums[2 * count + 1] = square_sum(graph, next, node->outputs[0], one);
        if (!sums[2 * count] || !sums[2 * count + 1]) HN_NOMEM(err, "measuring layers");
        layers[count++] = node->id;
    }
    *out_count = count;
    if (!count) return HONE_OK;
    all = joined(graph, sums, 2 * count);
    if (!all || !hn_value_set_name(all, "own_errors#") || !hn_graph_add_output(graph, all))
        HN_NOMEM(err, "measuring layers");
    return HONE_OK;
}

static hn_status twins_run(hone_error *err, hn_layer_search *s, const hn_module *module, const uint32_t *layers,
                           int count, double *sums) {
    hn_gate *gate = &s->o->gate;
    hn_tensor in[HN_MAX_KERNEL_IO], out[HN_MAX_KERNEL_IO];
    hn_session *session;
    int outputs = gate->output_count + 1;
    int64_t samples = hn_min_i64(hn_gate_samples(gate, HN_SPLIT_CALIBRATE), hn_samples_for(s->o, RANK_ROWS, RANK_ELEMENTS));
    HN_TRY(hn_gate_session(err, gate, module, &session));
    hone_status status = HONE_OK;
    for (int64_t i = 0; i < samples && status == HONE_OK; i++) {
        status = hn_gate_inputs(err, gate, hn_gate_sample(gate, HN_SPLIT_CALIBRATE, i), in);
        if (status == HONE_OK) status = hn_session_run(err, session, in, gate->input_count, out, outputs);
        const float *got = status == HONE_OK ? out[outputs - 1].data : NULL;
        for (int k = 0; got && k < 2 * count; k++)
            sums[k] += got[k];
    }
    hn_session_free(session);
    for (int k = 0; k < count && status == HONE_OK; k++) {
        double error = sums[2 * k] / sums[2 * k + 1];
        if (sums[2 * k] == 0) error = 0;
        // The layer itself may be beyond float32's squares: then nothing is known of it.
        s->own[layers[k]] = isfinite(sums[2 * k + 1]) ? (isfinite(error) ? error : INFINITY) : NAN;
    }
    return status;
}

hn_status hn_layers_own_errors(hone_error *err, hn_layer_search *s) {
    if (!s->twin || s->o->gate.output_count + 1 > HN_MAX_KERNEL_IO) return HONE_OK;
    size_t room = 2 * (size_t)s->nodes + 1;
    hn_module *module = hn_module_clone(s->base, NULL);
    hn_value **list = hn_malloc(room * sizeof(hn_value *));
    uint32_t *layers = hn_malloc(room * sizeof *layers);
    double *sums = hn_calloc(room, sizeof *sums);
    int count = 0;
    hone_status status = HONE_OK;
    if (!module || !list || !layers || !sums) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (measuring layers)");
    if (status == HONE_OK) status = twins_make(err, s, list, layers, &count, module);
    if (status == HONE_OK && count) status = twins_run(err, s, module, layers, count, sums);
    hn_module_free(module);
    hn_free(list);
    hn_free(layers);
    hn_free(sums);
    return status;
}

// ---- groups -------------------------------------------------------------------------------------
typedef struct group {
    int first, count; // in the order by own errors
    double error;     // 1 - cosine of the outputs with these layers low; NaN: not measured
    double turned;    // share of the rows whose answer changes; NaN: no classes
    double weight;    // what the order is by
} group;

typedef struct ranking {
    hn_layer_search *s;
    hn_ranked *order;
    int layers;
    group *groups;
    int count, runs;
    bool *low; // by node id
    int64_t samples;
} ranking;

static int by_score(const void *a, const void *b) {
    const hn_ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static hn_status measure_group(hone_error *err, ranking *r, group *g) {
    hn_layer_try t;
    char what[64];
    snprintf(what, sizeof what, "%s: measuring layers", r->s->precision);
    for (int i = g->first; i < g->first + g->count; i++)
        r->low[r->order[i].node] = true;
    hone_status status = hn_layers_try(err, r->s, r->low, r->samples, &t);
    for (int i = g->first; i < g->first + g->count; i++)
        r->low[r->order[i].node] = false;
    if (status != HONE_OK) return status;
    g->error = t.accuracy.nan ? INFINITY : fmax(0, 1 - t.accuracy.cosine);
    g->turned = 1 - t.accuracy.agreement;
    g->weight = r->s->by_class && !isnan(g->turned) ? g->error + g->turned : g->error;
    hn_layers_try_free(&t);
    r->runs++;
    hn_optimizer_progress(r->s->o, what, (double)r->runs / (r->runs + 8.0));
    return HONE_OK;
}

// 1, 1, 1, 1, 2, 2, 4, 4, ... where the own errors are known, else equal ones.
static int first_size(const ranking *r, bool own, int index) {
    int size = own ? 1 << (index < 4 ? 0 : index / 2 - 1 < 20 ? index / 2 - 1 : 20) : (r->layers + 11) / 12;
    return size < 1 ? 1 : size;
}

// The group to halve next: of the largest error, NULL where each is a small part of the whole.
static group *to_split(const ranking *r, int most_runs) {
    double whole = 0;
    group *worst = NULL;
    for (int i = 0; i < r->count; i++) {
        group *g = &r->groups[i];
        if (isfinite(g->weight)) whole += g->weight;
        if (g->count > 1 && !isnan(g->weight) && (!worst || g->weight > worst->weight)) worst = g;
    }
    if (!worst || isinf(worst->weight)) return worst; // what makes NaN is always found
    return worst->weight * SPLIT_SHARE > whole && r->runs < most_runs ? worst : NULL;
}

static hn_status measure_groups(hone_error *err, ranking *r, bool own) {
    for (int at = 0; at < r->layers; r->count++) {
        int size = first_size(r, own, r->count);
        if (size > r->layers - at) size = r->layers - at;
        r->groups[r->count] = (group){at, size, NAN, NAN, NAN};
        at += size;
    }
    for (int i = 0; i < r->count && !hn_optimizer_late(r->s->o); i++)
        HN_TRY(measure_group(err, r, &r->groups[i]));
    int most_runs = 16 + r->layers / 4;
    for (group *g; !hn_optimizer_late(r->s->o) && (g = to_split(r, most_runs));) {
        int half = g->count / 2;
        group *rest = &r->groups[r->count++];
        *rest = (group){g->first + half, g->count - half, NAN, NAN, NAN};
        *g = (group){g->first, half, NAN, NAN, NAN};
        HN_TRY(measure_group(err, r, g));
        HN_TRY(measure_group(err, r, rest));
    }
    return HONE_OK;
}

// Each layer's part of its group's disturbance. Groups that the time limit left out go by own errors, at the
// rate that the measured ones have.
static void share_out(const ranking *r) {
    double measured = 0, own_measured = 0;
    for (int i = 0; i < r->count; i++)
        for (int k = 0; k < r->groups[i].count && isfinite(r->groups[i].weight); k++) {
            double own = r->order[r->groups[i].first + k].own;
            if (!k) measured += r->groups[i].weight;
            if (isfinite(own)) own_measured += own;
        }
    double rate = own_measured > 0 && measured > 0 ? measured / own_measured : 1;
    for (int i = 0; i < r->count; i++) {
        const group *g = &r->groups[i];
        hn_ranked *of = r->order + g->first;
        double sum = 0;
        for (int k = 0; k < g->count; k++)
            sum += isfinite(of[k].own) ? of[k].own : 0;
        for (int k = 0; k < g->count; k++) {
            double own = isnan(of[k].own) ? 0 : of[k].own;
            of[k].together = isnan(g->error) ? 0 : g->count;
            of[k].error = g->error;
            of[k].turned = g->turned;
            if (isnan(g->weight)) of[k].score = own * rate;
            else if (g->count == 1 || isinf(g->weight) || !(sum > 0)) of[k].score = g->weight / g->count;
            else of[k].score = isinf(own) ? INFINITY : g->weight * own / sum;
        }
    }
}

hn_status hn_layers_rank(hone_error *err, hn_layer_search *s, hn_ranked *order, int *out_count) {
    // Answers are counted by rows: few of them show only layers that turn many.
    ranking r = {.s = s, .order = order,
                 .samples = hn_samples_for(s->o, s->by_class ? 8 * RANK_ROWS : RANK_ROWS,
                                           s->by_class ? 8 * RANK_ELEMENTS : RANK_ELEMENTS)};
    bool own = false;
    for (const hn_node *node = s->base->main->first; node; node = node->next) {
        if (!s->node_in[node->id]) continue;
        own = own || !isnan(s->own[node->id]);
        order[r.layers++] = (hn_ranked){.own = s->own[node->id], .node = node->id,
                                        .score = isnan(s->own[node->id]) ? INFINITY : s->own[node->id]};
    }
    if (own) qsort(order, (size_t)r.layers, sizeof *order, by_score);
    r.groups = hn_malloc(((size_t)r.layers + 1) * sizeof *r.groups);
    r.low = hn_calloc((size_t)s->base->next_node_id + 1, sizeof *r.low);
    hone_status status = HONE_OK;
    if (!r.groups || !r.low) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (measuring layers)");
    if (status == HONE_OK) status = measure_groups(err, &r, own);
    if (status == HONE_OK) {
        share_out(&r);
        qsort(order, (size_t)r.layers, sizeof *order, by_score);
        for (int i = 0; i < r.layers; i++) {
            s->error[order[i].node] = order[i].error;
            s->together[order[i].node] = order[i].together;
            s->turned[order[i].node] = order[i].turned;
        }
        s->runs += r.runs;
        *out_count = r.layers;
    }
    hn_free(r.groups);
    hn_free(r.low);
    return status;
}
