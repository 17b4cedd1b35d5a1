// SPDX-License-Identifier: Apache-2.0
// Device pass: trees of element-wise operators that no heavy step took become one step
// (hn.Elementwise, ops/steps.h), which a kernel does block by block in the first cache.
//
// A tree grows from its last operator towards the inputs: an operator joins when all that reads its
// result is in the tree and the result has the tree's shape. DequantizeLinear at a leaf and
// QuantizeLinear at the end join too where they have one scale: the step then reads and writes 8-bit
// integers, and the result is that of the float32 operators between them.
#include "ops/elementwise.h"
#include "ops/steps.h"
#include "passes/pass_int.h"

typedef struct tree {
    hn_node *nodes[HN_STEPS_MAX]; // the last operator first
    int count;
    hn_value *inputs[HN_STEPS_MAX_INPUTS];
    int input_count;
} tree;

// Scale and zero point of Q or DQ as two numbers.
static bool quant_params(const hn_pass_ctx *ctx, const hn_node *node, float *scale, float *zero) {
    const hn_tensor *s = hn_pass_constant(ctx, hn_in(node, 1));
    const hn_tensor *z = hn_in(node, 2) ? hn_pass_constant(ctx, hn_in(node, 2)) : NULL;
    if (!s || s->dtype != HN_F32 || hn_tensor_count(s) != 1 || (hn_in(node, 2) && !z) ||
        (z && hn_tensor_count(z) != 1))
        return false;
    *scale = (float)hn_tensor_get_f64(s, 0);
    *zero = z ? (float)hn_tensor_get_i64(z, 0) : 0;
    return *scale > 0 && *scale < __builtin_inff();
}

// Reads one operator as a step whose operands are values. False: it does not take part.
static bool step_of(const hn_pass_ctx *ctx, const hn_node *node, hn_step *out, hn_value *operands[2]) {
    hn_step step = {.op = node->op};
    bool binary;
    double a, b, exponent;
    if (*node->domain || node->post_count || node->output_count != 1 || !node->outputs[0] || !hn_in(node, 0))
        return false;
    operands[0] = node->inputs[0];
    operands[1] = NULL;
    bool q = hn_pass_is(node, "QuantizeLinear"), dq = hn_pass_is(node, "DequantizeLinear");
    const hn_value *real = q ? node->inputs[0] : node->outputs[0];
    if (real->type.dtype != HN_F32 || real->type.rank < 0) return false;
    if (q || dq) {
        if (!hn_pass_is_8bit(q ? node->outputs[0] : node->inputs[0]) || !quant_params(ctx, node, &step.a, &step.b))
            return false;
    } else if (hn_pass_is(node, "Pow")) {
        const hn_tensor *e = hn_pass_constant(ctx, hn_in(node, 1));
        exponent = e && e->dtype == HN_F32 && hn_tensor_count(e) == 1 ? hn_tensor_get_f64(e, 0) : 0;
        if (exponent != 2) return false;
        step.op = hn_op_find("", "Mul");
        operands[1] = operands[0];
    } else if (!hn_pass_step_known(node->op_type, &binary)) {
        return false;
    } else if (binary) {
        if (node->input_count != 2) return false;
        operands[1] = node->inputs[1];
        if (!operands[1]) return false;
    } else if (hn_pass_is(node, "Clip")) {
        if (!hn_pass_clip_bounds(node, &step.a, &step.b) || !(step.a <= step.b)) return false;
    } else {
        hn_scalar_params(node, &a, &b);
        step.a = (float)a;
        step.b = (float)b;
    }
    for (int i = 0; i < 2 && !dq; i++)
        if (operands[i] && operands[i]->type.dtype != HN_F32) return false;
    *out = step;
    return true;
}

static int member(const tree *t, const hn_node *node) {
    for (int i = 0; i < t->count; i++)
        if (t->nodes[i] == node) return i;
    return -1;
}

// What the tree reads from outside; false where that is too much.
static bool collect_inputs(const hn_pass_ctx *ctx, tree *t) {
    t->input_count = 0;
    for (int n = 0; n < t->count; n++) {
        hn_step step;
        hn_value *operands[2];
        if (!step_of(ctx, t->nodes[n], &step, operands)) return false;
        for (int i = 0; i < 2; i++) {
            hn_value *v = operands[i];
            if (!v || (v->producer && member(t, v->producer) >= 0)) continue;
            int known = 0;
            while (known < t->input_count && t->inputs[known] != v)
                known++;
            if (known < t->input_count) continue;
            if (t->input_count == HN_STEPS_MAX_INPUTS) return false;
            t->inputs[t->input_count++] = v;
        }
    }
    return true;
}

static bool same_shape(const hn_value *a, const hn_value *b) {
    hn_shape x, y;
    return hn_type_shape(&a->type, &x) && hn_type_shape(&b->type, &y) && hn_shape_equal(&x, &y);
}

// An 8-bit input has no reader but its DequantizeLinear.
static bool read_alone(const tree *t, const hn_value *small) {
    int readers = 0;
    for (int n = 0; n < t->count; n++)
        readers += t->nodes[n]->inputs[0] == small && hn_pass_is(t->nodes[n], "DequantizeLinear");
    return readers == 0;
}

static bool joins(const hn_pass_ctx *ctx, tree *t, const hn_value *value) {
    hn_node *node = value->producer;
    hn_step step;
    hn_value *operands[2];
    const hn_value *result = t->nodes[0]->outputs[0];
    if (!node || node->graph != result->graph || member(t, node) >= 0 || t->count == HN_STEPS_MAX ||
        hn_pass_is(node, "QuantizeLinear") || !same_shape(value, result) || !step_of(ctx, node, &step, operands))
        return false;
    if (hn_pass_is_8bit(operands[0]) && !read_alone(t, operands[0])) return false;
    // DequantizeLinear is copied where others read it too: less to read than its result.
    bool copied = hn_pass_is(node, "DequantizeLinear");
    if (!copied && (value->graph_output_uses || hn_pass_pinned(ctx, value))) return false;
    for (size_t u = 0; u < value->uses.count && !copied; u++)
        if (member(t, value->uses.data[u].node) < 0) return false;
    t->nodes[t->count++] = node;
    if (collect_inputs(ctx, t)) return true;
    t->count--;
    return false;
}

static void grow(const hn_pass_ctx *ctx, tree *t) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int n = 0; n < t->count; n++)
            for (int i = 0; i < t->nodes[n]->input_count; i++)
                if (t->nodes[n]->inputs[i] && joins(ctx, t, t->nodes[n]->inputs[i])) changed = true;
    }
    (void)collect_inputs(ctx, t);
}

// Operand number of a value: an input, or the step that makes it, written first where it is not yet.
static int operand_of(const hn_pass_ctx *ctx, const tree *t, hn_value *value, int *numbers, hn_steps *out) {
    int at = value->producer ? member(t, value->producer) : -1;
    if (at < 0) {
        int i = 0;
        while (t->inputs[i] != value)
            i++;
        return i;
    }
    if (numbers[at] >= 0) return numbers[at];
    hn_step step;
    hn_value *operands[2];
    bool known = step_of(ctx, t->nodes[at], &step, operands);
    HN_ASSERT(known);
    for (int i = 0; i < 2; i++)
        step.operand[i] = operands[i] ? operand_of(ctx, t, operands[i], numbers, out) : -1;
    out->step[out->count] = step;
    return numbers[at] = t->input_count + out->count++;
}

static hn_status fuse(hone_error *err, hn_pass_ctx *ctx, const tree *t, hn_node **out_node) {
    hn_node *last = t->nodes[0];
    hn_value *result = last->outputs[0];
    hn_steps steps = {.input_count = t->input_count, .to = result->type.dtype};
    int numbers[HN_STEPS_MAX];
    for (int i = 0; i < t->count; i++)
        numbers[i] = -1;
    operand_of(ctx, t, result, numbers, &steps);
    hn_node *node = hn_node_make(last->graph, last, hn_op_find("hn", "Elementwise"), t->inputs, t->input_count, 1);
    if (!node || !hn_steps_write(node, &steps)) HN_NOMEM(err, "fusing element-wise steps");
    node->name = last->name;
    HN_TRY(hn_infer_node(err, node));
    hn_pass_replace(ctx, result, node->outputs[0]);
    *out_node = node;
    return HONE_OK;
}

static hone_status chains_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph) {
    // From the end: a tree is as large as it can be before its parts are looked at.
    for (hn_node *node = graph->last, *before; node; node = before) {
        hn_step step;
        hn_value *operands[2];
        before = node->prev;
        hn_shape shape;
        if (!step_of(ctx, node, &step, operands) || hn_pass_is(node, "DequantizeLinear") ||
            hn_pass_pinned(ctx, node->outputs[0]) || !hn_type_shape(&node->outputs[0]->type, &shape))
            continue;
        tree t = {.nodes = {node}, .count = 1};
        grow(ctx, &t);
        if (t.count < 2) continue;
        hn_node *made = NULL;
        HN_TRY(fuse(err, ctx, &t, &made));
        before = made->prev;
    }
    return HONE_OK;
}

hone_status hn_pass_chains(hone_error *err, hn_pass_ctx *ctx) {
    return hn_pass_each_graph(err, ctx, chains_graph);
}
