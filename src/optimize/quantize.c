// SPDX-License-Identifier: Apache-2.0
// Static INT8 in QDQ form: which values are quantised, and the rewrite.
//
// A node "computes in int8" when its activation and weight inputs come through DequantizeLinear. The
// activation inputs of such nodes are quantised once, behind their producer. Ops that only move or
// select elements hand the parameters through, so that they run on the integers. At a residual Add
// only the skip operand is quantised, never the convolution that feeds it directly: the convolution
// then keeps its accumulator until the sum. A plan with `between` also hands integers to what computes
// element by element between two quantised values and hangs behind no layer: the runtime makes tables of
// activations and one step of the rest.
#include "optimize/optimize_int.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

static hn_op op_named(const char *name) { return hn_op_find("", name); }

static bool is_op(const hn_node *node, const char *name) {
    return node && !*node->domain && strcmp(node->op_type, name) == 0;
}

static const hn_tensor *weight_of(const hn_node *node) {
    const hn_value *value = hn_in(node, 1);
    const hn_tensor *weight = value ? value->constant : NULL;
    return weight && weight->dtype == HN_F32 && !value->overridable ? weight : NULL;
}

bool hn_quantize_capable(const hn_node *node) {
    const hn_value *in = hn_in(node, 0);
    if (!in || in->type.dtype != HN_F32 || in->constant) return false;
    const hn_tensor *weight = weight_of(node);
    if (!weight) return false;
    const hn_value *bias = hn_in(node, 2);
    if (bias && (!bias->constant || bias->constant->dtype != HN_F32)) return false;
    if (is_op(node, "Conv")) return weight->shape.rank >= 3;
    if (is_op(node, "MatMul")) return weight->shape.rank == 2;
    if (is_op(node, "Gemm"))
        return weight->shape.rank == 2 && hn_op_float(node, "alpha") == 1 &&
               hn_op_float(node, "beta") == 1 && hn_op_int(node, "transA") == 0 &&
               (!bias || bias->constant->shape.rank == 1);
    return false;
}

// Axis of the output channels in the weight.
static int channel_axis(const hn_node *node) {
    if (is_op(node, "Conv")) return 0;
    if (is_op(node, "Gemm") && hn_op_int(node, "transB")) return 0;
    return 1;
}

// Ops whose output elements are input elements (or zeros): they keep scale and zero point.
static bool passes_through(const hn_node *node) {
    static const char *const k_ops[] = {"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze",
                                        "Unsqueeze", "Slice", "Concat", "Split"};
    if (!node || (node->output_count != 1 && !is_op(node, "Split"))) return false;
    for (size_t i = 0; i < HN_COUNT_OF(k_ops); i++)
        if (is_op(node, k_ops[i])) return true;
    return false;
}

// Element by element, from and to numbers.
static bool is_step(const hn_node *node) {
    static const char *const k_ops[] = {
        "Add",   "Sub",       "Mul",         "Sigmoid", "Tanh",     "Gelu", "HardSwish", "HardSigmoid",
        "Swish", "LeakyRelu", "Elu",         "Softplus", "Clip",    "Erf",  "Relu"};
    if (!node || node->output_count != 1 || !node->outputs[0]) return false;
    for (size_t i = 0; i < HN_COUNT_OF(k_ops); i++)
        if (is_op(node, k_ops[i])) return true;
    return false;
}

// A mean over a window: integers in, integers out, and never part of a layer.
static bool is_mean(const hn_node *node) {
    return is_op(node, "AveragePool") || is_op(node, "GlobalAveragePool");
}

static int pass_inputs(const hn_node *node) {
    return is_op(node, "Concat") ? node->input_count : 1;
}

// ---- which values -------------------------------------------------------------------------------
typedef struct chooser {
    hn_module *module;
    const hn_calibration *calibration;
    hn_quantize_plan *plan;
    uint32_t *group;  // union-find by value id: values that share parameters
    float *low, *high; // by group root
} chooser;

static uint32_t find_group(chooser *c, uint32_t id) {
    while (c->group[id] != id)
        id = c->group[id] = c->group[c->group[id]];
    return id;
}

static void join(chooser *c, uint32_t a, uint32_t b) {
    a = find_group(c, a);
    b = find_group(c, b);
    if (a == b) return;
    if (b < a) { // the lower id leads: independent of the order of visits
        uint32_t swap = a;
        a = b;
        b = swap;
    }
    c->group[b] = a;
}

static bool computes_int8(const chooser *c, const hn_node *node) {
    return node && node->id < c->plan->node_count && c->plan->node_in[node->id];
}

static bool has_range(const chooser *c, const hn_value *value) {
    const hn_range *range =
        value->id < c->calibration->count ? &c->calibration->ranges[value->id] : NULL;
    return range && range->seen && range->not_finite == 0 && value->type.dtype == HN_F32;
}

static void mark(chooser *c, const hn_value *value) {
    c->plan->params[value->id].set = true;
}

// A quantised result that nobody outside reads; of a Split every one of them.
static bool pieces_are_quantised(const chooser *c, const hn_node *node) {
    for (int i = 0; i < node->output_count; i++) {
        const hn_value *out = node->outputs[i];
        if (!out || !c->plan->params[out->id].set || out->graph_output_uses) return false;
    }
    return true;
}

// Does the value come out of a layer as a number that only this step reads? It then hangs behind it.
static bool hangs_behind(const chooser *c, const hn_value *value) {
    return computes_int8(c, value->producer) && value->uses.count == 1 && !value->graph_output_uses;
}

// A step whose result is quantised reads integers where its operands are values of their own. A chain of
// steps is one: what only the next step reads stays a number inside.
static void propagate_step(chooser *c, const hn_node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const hn_value *in = node->inputs[i];
        if (!in || in->constant || !has_range(c, in) || hangs_behind(c, in)) continue;
        bool inside = is_step(in->producer) && in->uses.count == 1 && !in->graph_output_uses;
        if (inside) propagate_step(c, in->producer);
        else if (in->type.rank >= 3) mark(c, in);
    }
}

// From consumers to producers: a quantised value made by a pass-through op wants quantised inputs.
static void propagate(chooser *c) {
    for (hn_node *node = c->module->main->last; node; node = node->prev) {
        hn_value *out = node->output_count ? node->outputs[0] : NULL;
        if (c->plan->between && is_step(node) && c->plan->params[out->id].set) propagate_step(c, node);
        if (c->plan->between && out && is_mean(node) && c->plan->params[out->id].set &&
            has_range(c, node->inputs[0]))
            mark(c, node->inputs[0]);
        if (!out || !passes_through(node) || !pieces_are_quantised(c, node)) continue;
        bool possible = true;
        for (int i = 0; i < pass_inputs(node); i++) {
            const hn_value *in = node->inputs[i];
            possible = possible && in && !in->constant && has_range(c, in);
        }
        for (int i = 0; possible && i < pass_inputs(node); i++) {
            mark(c, node->inputs[i]);
            join(c, out->id, node->inputs[i]->id);
        }
        for (int i = 1; possible && i < node->output_count; i++)
            join(c, out->id, node->outputs[i]->id);
    }
}

// 127 steps to either side; a range without extent gives scale 1.
static hn_qparam around_zero(float low, float high) {
    float scale = fmaxf(-low, high) / 127;
    return (hn_qparam){true, scale >= 1.2e-38f && isfinite(scale) ? scale : 1, 0, true};
}

static hn_status choose(hone_error *err, chooser *c, hn_clip_method method) {
    hn_graph *main = c->module->main;
    uint32_t count = c->plan->value_count;
    for (uint32_t i = 0; i < count; i++)
        c->group[i] = i;
    for (hn_node *node = main->first; node; node = node->next) {
        if (!computes_int8(c, node)) continue;
        if (has_range(c, node->inputs[0]))
            mark(c, node->inputs[0]);
        else
            c->plan->node_in[node->id] = false; // never seen: stays float
    }
    propagate(c);
    for (uint32_t i = 0; i < count; i++) {
        c->low[i] = INFINITY;
        c->high[i] = -INFINITY;
    }
    for (uint32_t i = 0; i < count && i < c->calibration->count; i++) {
        if (!c->plan->params[i].set) continue;
        float low, high;
        uint32_t root = find_group(c, i);
        hn_range_clip(&c->calibration->ranges[i], method, &low, &high);
        if (low < c->low[root]) c->low[root] = low;
        if (high > c->high[root]) c->high[root] = high;
    }
    for (uint32_t i = 0; i < count; i++) {
        hn_qparam *p = &c->plan->params[i];
        uint32_t root = find_group(c, i);
        if (p->set && c->plan->symmetric) *p = around_zero(c->low[root], c->high[root]);
        else if (p->set) hn_range_params(c->low[root], c->high[root], &p->scale, &p->zero);
    }
    (void)err;
    return HONE_OK;
}

hn_status hn_quantize_plan_make(hone_error *err, hn_module *module, const hn_calibration *calibration,
                                hn_clip_method method, const bool *node_in, int weight_max,
                                bool between, bool symmetric, hn_quantize_plan *out_plan) {
    hn_quantize_plan plan = {.node_count = module->next_node_id,
                             .value_count = module->next_value_id,
                             .weight_max = weight_max,
                             .between = between,
                             .symmetric = symmetric};
    size_t values = (size_t)plan.value_count + 1;
    plan.node_in = hn_calloc((size_t)plan.node_count + 1, sizeof *plan.node_in);
    plan.params = hn_calloc(values, sizeof *plan.params);
    chooser c = {module, calibration, &plan, hn_calloc(values, sizeof(uint32_t)),
                 hn_calloc(values, sizeof(float)), hn_calloc(values, sizeof(float))};
    hone_status status = HONE_OK;
    if (!plan.node_in || !plan.params || !c.group || !c.low || !c.high)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (quantising)");
    for (hn_node *node = module->main->first; node && status == HONE_OK; node = node->next)
        plan.node_in[node->id] = node_in[node->id] && hn_quantize_capable(node);
    if (status == HONE_OK) status = choose(err, &c, method);
    hn_free(c.group);
    hn_free(c.low);
    hn_free(c.high);
    if (status != HONE_OK) {
        hn_quantize_plan_free(&plan);
        return status;
    }
    *out_plan = plan;
    return HONE_OK;
}

void hn_quantize_plan_free(hn_quantize_plan *plan) {
    hn_free(plan->node_in);
    hn_free(plan->params);
    *plan = (hn_quantize_plan){0};
}

// ---- the rewrite --------------------------------------------------------------------------------
typedef struct rewriter {
    hn_module *module;
    hn_graph *graph;
    const hn_quantize_plan *plan;
    hn_value **quantised;  // by value id: the QuantizeLinear's output
    hn_value **scales, **zeros;
} rewriter;

static hn_value *constant_of(hn_graph *graph, const char *name, hn_dtype dtype, const hn_shape *shape,
                             hn_tensor *out_tensor) {
    if (hn_tensor_new(NULL, dtype, shape, out_tensor) != HONE_OK) return NULL;
    hn_tensor held = *out_tensor;
    return hn_graph_add_constant(graph, name, &held);
}

// QDQ nodes of opset 13: the oldest that know per-channel scales.
static hn_node *qdq_node(hn_graph *graph, hn_node *before, const char *op, hn_value *x,
                         hn_value *scale, hn_value *zero, int axis, const char *suffix) {
    hn_value *in[] = {x, scale, zero};
    hn_node *node = hn_node_make(graph, before, op_named(op), in, 3, 1);
    if (!node) return NULL;
    node->version = 13;
    if (axis >= 0 && !hn_node_set_int(node, "axis", axis)) return NULL;
    node->outputs[0]->name = hn_arena_printf(&graph->module->arena, "%s%s", x->name, suffix);
    node->name = node->outputs[0]->name;
    if (!node->name || hn_infer_node(NULL, node) != HONE_OK) return NULL;
    return node;
}

// QuantizeLinear of a value: its output, scale and zero point, named after the value and `tag`.
static hn_status quantise_at(hone_error *err, hn_graph *graph, hn_node *before, hn_value *value,
                             const hn_qparam *p, const char *tag, hn_value *out[3]) {
    hn_arena *arena = &graph->module->arena;
    hn_shape scalar = {0};
    hn_tensor scale, zero;
    const char *scale_name = hn_arena_printf(arena, "%s_scale%s", value->name, tag);
    const char *zero_name = hn_arena_printf(arena, "%s_zero%s", value->name, tag);
    const char *suffix = hn_arena_printf(arena, "_q%s", tag);
    if (!scale_name || !zero_name || !suffix) HN_NOMEM(err, "quantising");
    out[1] = constant_of(graph, scale_name, HN_F32, &scalar, &scale);
    out[2] = constant_of(graph, zero_name, p->around_zero ? HN_I8 : HN_U8, &scalar, &zero);
    if (!out[1] || !out[2]) HN_NOMEM(err, "quantising");
    *(float *)scale.data = p->scale;
    *(uint8_t *)zero.data = p->zero;
    hn_node *node = qdq_node(graph, before, "QuantizeLinear", value, out[1], out[2], -1, suffix);
    if (!node) HN_NOMEM(err, "quantising");
    out[0] = node->outputs[0];
    return HONE_OK;
}

static hn_status quantise_value(hone_error *err, rewriter *r, hn_value *value) {
    hn_value *made[3];
    hn_node *before = value->producer ? value->producer->next : r->graph->first;
    HN_TRY(quantise_at(err, r->graph, before, value, &r->plan->params[value->id], "", made));
    r->quantised[value->id] = made[0];
    r->scales[value->id] = made[1];
    r->zeros[value->id] = made[2];
    return HONE_OK;
}

// Gives input `index` of `node` the dequantised form: a DequantizeLinear of its own for each
// consumer, as the runtimes that fuse QDQ expect.
static hn_status read_quantised(hone_error *err, rewriter *r, hn_node *node, int index) {
    hn_value *value = node->inputs[index];
    char suffix[32];
    snprintf(suffix, sizeof suffix, "_dq_%u_%d", node->id, index);
    hn_node *dq = qdq_node(r->graph, node, "DequantizeLinear", r->quantised[value->id],
                           r->scales[value->id], r->zeros[value->id], -1, suffix);
    if (!dq) HN_NOMEM(err, "quantising");
    hn_node_set_input(node, index, dq->outputs[0]);
    return HONE_OK;
}

static float channel_max(const hn_tensor *weight, int axis, int64_t channel) {
    int64_t inner = 1, channels = weight->shape.dims[axis], outer = 1;
    for (int i = axis + 1; i < weight->shape.rank; i++)
        inner *= weight->shape.dims[i];
    for (int i = 0; i < axis; i++)
        outer *= weight->shape.dims[i];
    float most = 0;
    const float *data = weight->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            float value = fabsf(data[(o * channels + channel) * inner + i]);
            most = value > most ? value : most;
        }
    return most;
}

static void quantise_channel(const hn_tensor *weight, int axis, int64_t channel, float scale,
                             int limit, int8_t *out) {
    int64_t inner = 1, channels = weight->shape.dims[axis], outer = 1;
    for (int i = axis + 1; i < weight->shape.rank; i++)
        inner *= weight->shape.dims[i];
    for (int i = 0; i < axis; i++)
        outer *= weight->shape.dims[i];
    const float *data = weight->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t at = (o * channels + channel) * inner + i;
            float value = nearbyintf(data[at] / scale);
            value = value < (float)-limit ? (float)-limit : value > (float)limit ? (float)limit : value;
            out[at] = (int8_t)value;
        }
}

// [K, N] of [N, K].
static hn_status transpose_codes(hone_error *err, hn_tensor *q, int64_t n, int64_t k) {
    int8_t *copy = hn_malloc(q->bytes + 1);
    if (!copy) HN_NOMEM(err, "quantising");
    memcpy(copy, q->data, q->bytes);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            ((int8_t *)q->data)[j * n + i] = copy[i * k + j];
    hn_free(copy);
    return HONE_OK;
}

// A name for a constant made of this node's weight; the node's id keeps names apart where two share one.
static const char *weight_name(const hn_node *node, const char *what) {
    hn_arena *arena = &node->graph->module->arena;
    const hn_value *weight = node->inputs[1];
    if (*weight->name) return hn_arena_printf(arena, "%s_%s_%u", weight->name, what, node->id);
    return hn_arena_printf(arena, "weight_%u_%s_%u", weight->id, what, node->id);
}

// Layers that share a weight share its codes, too.
static hn_value *once(hn_value *made) {
    const hn_tensor *t = made->constant;
    hn_graph *graph = made->graph;
    for (size_t i = 0; i < graph->values.count; i++) {
        hn_value *other = graph->values.data[i];
        const hn_tensor *o = other->constant;
        if (other == made || !o || other->overridable || o->dtype != t->dtype ||
            !hn_shape_equal(&o->shape, &t->shape) || memcmp(o->data, t->data, t->bytes) != 0)
            continue;
        hn_value_remove(made);
        return other;
    }
    return made;
}

hn_status hn_quantize_weight(hone_error *err, hn_node *node, int weight_max, bool by_columns,
                             hn_int8_weight *out) {
    const hn_tensor *weight = weight_of(node);
    int axis = channel_axis(node);
    int64_t channels = weight->shape.dims[axis];
    bool turn = by_columns && axis == 0;
    hn_shape vector = {.rank = 1, .dims = {channels}}, shape = weight->shape;
    hn_tensor q, scale;
    const char *q_name = weight_name(node, "q"), *scale_name = weight_name(node, "scale");
    if (!q_name || !scale_name) HN_NOMEM(err, "quantising");
    if (turn) shape = (hn_shape){2, {weight->shape.dims[1], channels}};
    out->q = constant_of(node->graph, q_name, HN_I8, &shape, &q);
    out->scale = constant_of(node->graph, scale_name, HN_F32, &vector, &scale);
    out->axis = turn ? 1 : axis;
    if (!out->q || !out->scale) HN_NOMEM(err, "quantising");
    for (int64_t c = 0; c < channels; c++) {
        float most = channel_max(weight, axis, c);
        float step = most / (float)weight_max;
        // A dead channel, or one whose step would be denormal, gets a harmless scale.
        if (!(step >= 1e-30f)) step = 1e-30f;
        ((float *)scale.data)[c] = step;
        quantise_channel(weight, axis, c, step, weight_max, q.data);
    }
    if (turn) HN_TRY(transpose_codes(err, &q, channels, weight->shape.dims[1]));
    out->q = once(out->q);
    out->scale = once(out->scale);
    return HONE_OK;
}

// Weight and bias of one node become int8 and int32 constants with DequantizeLinear.
static hn_status quantise_weights(hone_error *err, hn_node *node, int weight_max, float in_scale) {
    hn_graph *graph = node->graph;
    hn_value *bias = hn_in(node, 2);
    hn_int8_weight w;
    hn_tensor zero, bias_q, bias_scale, bias_zero;
    HN_TRY(hn_quantize_weight(err, node, weight_max, false, &w));
    const float *scale = w.scale->constant->data;
    hn_shape vector = w.scale->constant->shape;
    int64_t channels = vector.dims[0];
    const char *names[] = {weight_name(node, "zero"), weight_name(node, "bias_q"),
                           weight_name(node, "bias_scale"), weight_name(node, "bias_zero")};
    for (size_t i = 0; i < HN_COUNT_OF(names); i++)
        if (!names[i]) HN_NOMEM(err, "quantising");
    hn_value *vz = constant_of(graph, names[0], HN_I8, &vector, &zero);
    if (!vz) HN_NOMEM(err, "quantising");
    memset(zero.data, 0, zero.bytes);
    hn_node *dq = qdq_node(graph, node, "DequantizeLinear", w.q, w.scale, vz, w.axis, "_dq");
    if (!dq) HN_NOMEM(err, "quantising");
    hn_node_set_input(node, 1, dq->outputs[0]);
    if (!bias) return HONE_OK;
    hn_value *vbq = constant_of(graph, names[1], HN_I32, &vector, &bias_q);
    hn_value *vbs = constant_of(graph, names[2], HN_F32, &vector, &bias_scale);
    hn_value *vbz = constant_of(graph, names[3], HN_I32, &vector, &bias_zero);
    if (!vbq || !vbs || !vbz) HN_NOMEM(err, "quantising");
    memset(bias_zero.data, 0, bias_zero.bytes);
    for (int64_t c = 0; c < channels; c++) {
        double step = (double)scale[c] * in_scale;
        double value = nearbyint((double)((const float *)bias->constant->data)[c] / step);
        value = value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : value;
        ((float *)bias_scale.data)[c] = (float)step;
        ((int32_t *)bias_q.data)[c] = (int32_t)value;
    }
    hn_node *bias_dq = qdq_node(graph, node, "DequantizeLinear", vbq, vbs, vbz, 0, "_dq");
    if (!bias_dq) HN_NOMEM(err, "quantising");
    hn_node_set_input(node, 2, bias_dq->outputs[0]);
    return HONE_OK;
}

// A bias too large for int32 at this scale, or of the wrong length, would be clipped.
static bool bias_fits(const hn_node *node, float in_scale, int limit) {
    const hn_value *bias = hn_in(node, 2);
    if (!bias) return true;
    const hn_tensor *weight = weight_of(node);
    int axis = channel_axis(node);
    if (hn_tensor_count(bias->constant) != weight->shape.dims[axis]) return false;
    for (int64_t c = 0; c < weight->shape.dims[axis]; c++) {
        double step = (double)channel_max(weight, axis, c) / limit * in_scale;
        double value = fabs((double)((const float *)bias->constant->data)[c]);
        if (value > 0 && !(value / step < 2.0e9)) return false;
    }
    return true;
}

// Is `add` a residual sum: one operand from an int8 convolution alone, the other quantised anyway?
static bool residual_skip(const rewriter *r, const hn_node *add, int index) {
    if (!is_op(add, "Add") || add->input_count != 2) return false;
    const hn_value *direct = add->inputs[1 - index];
    if (!direct || !direct->producer || direct->uses.count != 1 || direct->graph_output_uses)
        return false;
    const hn_node *from = direct->producer;
    return is_op(from, "Conv") && from->id < r->plan->node_count && r->plan->node_in[from->id];
}

// Does the step hang behind a layer that computes in int8? Its own operand is then a residual's.
static bool ends_layer(const rewriter *r, const hn_node *step) {
    for (int i = 0; i < step->input_count; i++) {
        const hn_value *in = step->inputs[i];
        const hn_node *from = in && in->uses.count == 1 && !in->graph_output_uses ? in->producer : NULL;
        if (from && from->id < r->plan->node_count && r->plan->node_in[from->id]) return true;
    }
    return false;
}

// Does this use read the integers?
static bool reads_quantised(const rewriter *r, const hn_node *node, int index) {
    if (node->id >= r->plan->node_count) return false; // a QuantizeLinear made here
    if (r->plan->node_in[node->id]) return index == 0;
    if (passes_through(node) && index < pass_inputs(node) && node->outputs[0] &&
        r->plan->params[node->outputs[0]->id].set)
        return true;
    if (r->plan->between && (is_mean(node) || (is_step(node) && !ends_layer(r, node)))) return true;
    return residual_skip(r, node, index);
}

static hn_status rewrite(hone_error *err, rewriter *r) {
    uint32_t known_values = r->plan->value_count;
    for (size_t i = 0; i < r->graph->values.count; i++) {
        hn_value *value = r->graph->values.data[i];
        if (value->id < known_values && r->plan->params[value->id].set)
            HN_TRY(quantise_value(err, r, value));
    }
    for (hn_node *node = r->graph->first; node; node = node->next) {
        if (node->id >= r->plan->node_count) continue;
        bool quantised = r->plan->node_in[node->id];
        if (quantised && !bias_fits(node, r->plan->params[node->inputs[0]->id].scale,
                                    r->plan->weight_max)) {
            r->plan->node_in[node->id] = quantised = false;
        }
        float in_scale = quantised ? r->plan->params[node->inputs[0]->id].scale : 1;
        for (int i = 0; i < node->input_count; i++) {
            hn_value *in = node->inputs[i];
            if (in && in->id < known_values && r->plan->params[in->id].set &&
                reads_quantised(r, node, i))
                HN_TRY(read_quantised(err, r, node, i));
        }
        if (quantised) HN_TRY(quantise_weights(err, node, r->plan->weight_max, in_scale));
    }
    return HONE_OK;
}

hn_status hn_quantize_apply(hone_error *err, hn_module *module, const hn_quantize_plan *plan) {
    size_t values = (size_t)plan->value_count + 1;
    rewriter r = {module, module->main, plan, hn_calloc(values, sizeof(hn_value *)),
                  hn_calloc(values, sizeof(hn_value *)), hn_calloc(values, sizeof(hn_value *))};
    hone_status status = HONE_OK;
    if (!r.quantised || !r.scales || !r.zeros)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (quantising)");
    if (status == HONE_OK) status = rewrite(err, &r);
    hn_free(r.quantised);
    hn_free(r.scales);
    hn_free(r.zeros);
    // Q without readers (a node fell back to float) and the float weights go.
    static const char *const k_clean[] = {"dce", NULL};
    hn_pass_options options = {.freeze_overridable = true};
    if (status == HONE_OK) status = hn_passes_run_list(err, module, k_clean, &options);
    if (status == HONE_OK) status = hn_infer_module(err, module);
    return status;
}

hn_status hn_quantize_twin(hone_error *err, const hn_quantize_plan *plan, hn_node *node, hn_value **out) {
    hn_value *x = node->inputs[0], *made[3];
    const hn_qparam *p = x->id < plan->value_count ? &plan->params[x->id] : NULL;
    if (node->id >= plan->node_count || !plan->node_in[node->id] || !p || !p->set ||
        !bias_fits(node, p->scale, plan->weight_max))
        return HONE_OK;
    hn_graph *graph = node->graph;
    hn_node *after = node->next;
    char tag[32];
    snprintf(tag, sizeof tag, "_twin_%u", node->id);
    HN_TRY(quantise_at(err, graph, after, x, p, tag, made));
    hn_node *dq = qdq_node(graph, after, "DequantizeLinear", made[0], made[1], made[2], -1, "_dq");
    hn_node *twin = hn_graph_add_node(graph, after, node->op, node->op_type, node->domain, node->version,
                                      node->inputs, node->input_count, 1);
    if (!dq || !twin || !hn_node_copy_attrs(twin, node)) HN_NOMEM(err, "quantising");
    HN_TRY(quantise_weights(err, twin, plan->weight_max, p->scale));
    hn_node_set_input(twin, 0, dq->outputs[0]);
    HN_TRY(hn_infer_node(err, twin));
    *out = twin->outputs[0];
    return HONE_OK;
}

// ---- decisions ----------------------------------------------------------------------------------
// Scales as hexadecimal floats: what is read back is the same bits.
json_t *hn_quantize_to_json(const hn_module *module, const hn_quantize_plan *plan) {
    json_t *nodes = json_array(), *values = json_object();
    for (const hn_node *node = module->main->first; node; node = node->next)
        if (node->id < plan->node_count && plan->node_in[node->id])
            json_array_append_new(nodes, json_integer(node->id));
    for (size_t i = 0; i < module->main->values.count; i++) {
        const hn_value *value = module->main->values.data[i];
        if (value->id >= plan->value_count || !plan->params[value->id].set) continue;
        char scale[40];
        snprintf(scale, sizeof scale, "%a", (double)plan->params[value->id].scale);
        json_object_set_new(values, value->name,
                            json_pack("[s,i]", scale, (int)plan->params[value->id].zero));
    }
    return json_pack("{s:i,s:o,s:o,s:b,s:b}", "weight_max", plan->weight_max, "nodes", nodes, "values",
                     values, "between", plan->between, "symmetric", plan->symmetric);
}

// A hexadecimal float as it was written: positive, finite, not denormal, with nothing behind it.
static bool read_scale(const json_t *json, float *out_scale) {
    const char *text = json_string_value(json);
    char *end;
    if (!text || strncmp(text, "0x", 2) != 0) return false;
    float scale = strtof(text, &end);
    *out_scale = scale;
    return *end == '\0' && isfinite(scale) && scale >= FLT_MIN;
}

hn_status hn_quantize_from_json(hone_error *err, const json_t *json, const hn_module *module,
                                hn_quantize_plan *out_plan) {
    hn_quantize_plan plan = {.node_count = module->next_node_id,
                             .value_count = module->next_value_id};
    plan.node_in = hn_calloc((size_t)plan.node_count + 1, sizeof *plan.node_in);
    plan.params = hn_calloc((size_t)plan.value_count + 1, sizeof *plan.params);
    json_t *nodes = json_object_get(json, "nodes"), *values = json_object_get(json, "values"), *item;
    const json_t *flags[] = {json_object_get(json, "between"), json_object_get(json, "symmetric")};
    int64_t weight_max = 0;
    hone_status status = hn_decision_number(err, json, "int8", "weight_max", 1, 127, &weight_max);
    plan.between = json_is_true(flags[0]);
    plan.symmetric = json_is_true(flags[1]);
    plan.weight_max = (int)weight_max;
    if (!plan.node_in || !plan.params)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (replaying)");
    else if (status == HONE_OK && (!json_is_array(nodes) || !json_is_object(values) ||
             (flags[0] && !json_is_boolean(flags[0])) || (flags[1] && !json_is_boolean(flags[1]))))
        status = HN_SET(err, HONE_ERR_FORMAT, "the decisions of %s are incomplete", "int8");
    size_t index;
    json_array_foreach(nodes, index, item) {
        json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (status == HONE_OK && (id < 0 || id >= (json_int_t)plan.node_count || plan.node_in[id]))
            status = HN_SET(err, HONE_ERR_FORMAT, "the decisions name node %lld, which is not there or there twice",
                            (long long)id);
        if (status == HONE_OK) plan.node_in[id] = true;
    }
    const char *name;
    json_object_foreach(values, name, item) {
        const hn_value *value = hn_graph_find(module->main, name);
        const json_t *second = json_array_get(item, 1);
        json_int_t zero = json_is_integer(second) ? json_integer_value(second) : -1;
        float scale;
        if (status != HONE_OK) break;
        if (!value || json_array_size(item) != 2 || !read_scale(json_array_get(item, 0), &scale) || zero < 0 ||
            zero > (plan.symmetric ? 0 : 255)) {
            status = HN_SET(err, HONE_ERR_FORMAT, "the decisions' value '%s' does not fit the model",
                            name);
            break;
        }
        plan.params[value->id] = (hn_qparam){true, scale, (uint8_t)zero, plan.symmetric};
    }
    for (const hn_node *node = module->main->first; node && status == HONE_OK; node = node->next)
        if (plan.node_in[node->id] &&
            (!hn_quantize_capable(node) || !plan.params[node->inputs[0]->id].set))
            status = HN_SET(err, HONE_ERR_FORMAT, "the decisions' node %u does not fit the model",
                            node->id);
    if (status != HONE_OK) {
        hn_quantize_plan_free(&plan);
        return status;
    }
    *out_plan = plan;
    return HONE_OK;
}
