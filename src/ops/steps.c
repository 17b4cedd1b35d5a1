// SPDX-License-Identifier: Apache-2.0
// hn.Elementwise(x0, x1, ...): element-wise steps on float32 as one node (ops/steps.h).
//
// Inputs broadcast as numpy does. The meaning is that of the operators one by one: every step's result
// is rounded to float32.
#include "ops/steps.h"
#include <math.h>
#include "ops/nn_int.h"
#include "ops/ops_int.h"

static bool read_operand(hn_slice *rest, int *out) {
    int value = 0;
    if (!rest->length || *rest->data != ':') return false;
    rest->data++, rest->length--;
    size_t digits = 0;
    for (; digits < rest->length && digits < 4 && rest->data[digits] >= '0' && rest->data[digits] <= '9'; digits++)
        value = value * 10 + (rest->data[digits] - '0');
    rest->data += digits, rest->length -= digits;
    *out = value;
    return digits > 0;
}

// "Op:a" or "Op:a:b"; defined: how many operands exist.
static bool read_step(hn_slice text, int defined, hn_step *out) {
    char name[32];
    const char *colon = memchr(text.data, ':', text.length);
    size_t length = colon ? (size_t)(colon - text.data) : 0;
    if (!length || length >= sizeof name) return false;
    memcpy(name, text.data, length);
    name[length] = 0;
    hn_step step = {.op = hn_op_find("", name), .operand = {-1, -1}};
    text.data += length, text.length -= length;
    if (!read_operand(&text, &step.operand[0])) return false;
    bool two = text.length > 0;
    if (two && (!read_operand(&text, &step.operand[1]) || text.length)) return false;
    if (step.operand[0] >= defined || step.operand[1] >= defined) return false;
    bool has_form = two ? hn_scalar_binary(step.op, HN_CLASS_F) != NULL
                        : hn_scalar_unary(step.op, HN_CLASS_F) != NULL || hn_op_has(step.op, HN_T_QUANT);
    *out = step;
    return has_form && step.op != HN_OP_MEAN;
}

// 8-bit inputs have no reader but the step that makes them float32; integers are the result only.
static bool types_agree(hn_steps *steps) {
    bool real[HN_STEPS_MAX_INPUTS] = {false};
    for (int s = 0; s < steps->count; s++) {
        const hn_step *one = &steps->step[s];
        bool in = one->op == HN_OP_DEQUANTIZE_LINEAR, out = one->op == HN_OP_QUANTIZE_LINEAR;
        if (hn_op_has(one->op, HN_T_QUANT) && ((!in && !out) || !(one->a > 0))) return false;
        if (out != (s == steps->count - 1 && steps->to != HN_F32)) return false;
        if (in && one->operand[0] >= steps->input_count) return false;
        for (int i = 0; i < 2; i++)
            if (one->operand[i] >= 0 && one->operand[i] < steps->input_count)
                *(in ? &steps->small[one->operand[i]] : &real[one->operand[i]]) = true;
    }
    for (int i = 0; i < steps->input_count; i++)
        if (steps->small[i] && real[i]) return false;
    return steps->to == HN_F32 || steps->to == HN_I8 || steps->to == HN_U8;
}

hn_status hn_steps_read(hone_error *err, const hn_node *node, hn_steps *out_steps) {
    int inputs = node->post_count ? node->base_input_count : node->input_count;
    hn_steps steps = {.input_count = inputs, .to = (hn_dtype)hn_op_int(node, "to")};
    hn_slice rest = hn_op_string(node, "steps");
    const hn_attr *params = hn_node_attr(node, "params");
    if (inputs < 1 || inputs > HN_STEPS_MAX_INPUTS)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "%d inputs, 1 to %d are possible", inputs, HN_STEPS_MAX_INPUTS);
    for (int i = 0; i < inputs; i++)
        if (!node->inputs[i]) HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "input %d is absent", i);
    while (rest.length) {
        const char *end = memchr(rest.data, ';', rest.length);
        hn_slice one = {rest.data, end ? (size_t)(end - rest.data) : rest.length};
        if (steps.count == HN_STEPS_MAX)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "more than %d steps", HN_STEPS_MAX);
        if (!read_step(one, inputs + steps.count, &steps.step[steps.count]))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "step %d, '%.*s', has no meaning", steps.count,
                         (int)hn_min_i64((int64_t)one.length, 60), one.data);
        steps.count++;
        rest.length -= one.length + (end != NULL);
        rest.data += one.length + (end != NULL);
    }
    if (!steps.count) HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "it has no steps");
    if (params && (params->type != HN_ATTR_FLOATS || params->count != 2 * steps.count))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "%lld parameters for %d steps", (long long)params->count,
                     steps.count);
    for (int i = 0; params && i < steps.count; i++) {
        steps.step[i].a = params->floats[2 * i];
        steps.step[i].b = params->floats[2 * i + 1];
    }
    if (!types_agree(&steps))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "its steps mix float32 and 8-bit integers");
    *out_steps = steps;
    return HONE_OK;
}

bool hn_steps_write(hn_node *node, const hn_steps *steps) {
    hn_str text = {0};
    float params[2 * HN_STEPS_MAX];
    bool any = false;
    for (int i = 0; i < steps->count; i++) {
        const hn_step *s = &steps->step[i];
        hn_str_printf(&text, "%s%s:%d", i ? ";" : "", hn_op_get(s->op)->name, s->operand[0]);
        if (s->operand[1] >= 0) hn_str_printf(&text, ":%d", s->operand[1]);
        params[2 * i] = s->a;
        params[2 * i + 1] = s->b;
        any = any || s->a != 0 || s->b != 0;
    }
    bool ok = !text.failed && hn_node_set_string(node, "steps", hn_str_get(&text)) &&
              (steps->to == HN_F32 || hn_node_set_int(node, "to", steps->to)) &&
              (!any || hn_node_set_floats(node, "params", params, 2 * steps->count));
    hn_str_free(&text);
    return ok;
}

hone_status hn_infer_steps(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_steps steps;
    hn_dim dims[HN_MAX_RANK];
    int rank;
    HN_TRY(hn_steps_read(err, node, &steps));
    for (int i = 0; i < steps.input_count; i++) {
        hn_dtype dtype = node->inputs[i]->type.dtype;
        bool fits = steps.small[i] ? dtype == HN_I8 || dtype == HN_U8 : dtype == HN_F32;
        if (dtype && !fits)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "input %d is %s, which its steps do not take", i,
                         hn_dtype_name(dtype));
    }
    HN_TRY(hn_infer_broadcast(err, ctx, (const hn_value *const *)node->inputs, steps.input_count, &rank, dims));
    hn_infer_set(ctx, 0, steps.to, rank, dims);
    return HONE_OK;
}

// Saturating, half to even; NaN gives 0.
static void quantise(const hn_cell *x, hn_cell *y, int count, const hn_step *step, hn_dtype to) {
    double low = to == HN_I8 ? -128 : 0, high = to == HN_I8 ? 127 : 255;
    for (int k = 0; k < count; k++) {
        double v = (double)nearbyintf((float)x[k].f / step->a) + (double)step->b;
        y[k].f = x[k].f != x[k].f ? 0 : v < low ? low : v > high ? high : v;
    }
}

// One row of cells for each input, then for each step.
static void run_row(const hn_call *call, const hn_steps *steps, const hn_walk *walk, int64_t done, int count,
                    hn_cell (*cells)[HN_CHUNK]) {
    for (int i = 0; i < steps->input_count; i++) {
        int64_t step = hn_walk_step(walk, i);
        hn_cells_load(call->inputs[i], walk->offsets[i] + done * step, step, count, HN_CLASS_F, cells[i]);
    }
    for (int s = 0; s < steps->count; s++) {
        const hn_step *one = &steps->step[s];
        hn_cell *out = cells[steps->input_count + s];
        hn_cell a = {.f = (double)one->a}, b = {.f = (double)one->b};
        const hn_cell *x = cells[one->operand[0]];
        if (one->op == HN_OP_QUANTIZE_LINEAR) {
            quantise(x, out, count, one, steps->to);
            continue;
        }
        if (one->op == HN_OP_DEQUANTIZE_LINEAR)
            for (int k = 0; k < count; k++)
                out[k].f = (x[k].f - b.f) * a.f;
        else if (one->operand[1] < 0)
            hn_scalar_unary(one->op, HN_CLASS_F)(x, out, count, a, b);
        else
            hn_scalar_binary(one->op, HN_CLASS_F)(x, cells[one->operand[1]], out, count, a);
        for (int k = 0; k < count; k++)
            out[k].f = (double)(float)out[k].f;
    }
}

static hone_status steps_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    hn_steps steps;
    hn_walk walk;
    HN_TRY(hn_steps_read(err, call->node, &steps));
    size_t rows = (size_t)(steps.input_count + steps.count);
    hn_cell(*cells)[HN_CHUNK] = hn_arena_array(scratch, rows, sizeof *cells);
    if (!cells) HN_NOMEM(err, "running a reference");
    HN_TRY(hn_walk_init(err, &call->outputs[0]->shape, call->inputs, steps.input_count, &walk));
    for (int64_t at = 0; hn_walk_next(&walk); at += walk.row)
        for (int64_t done = 0; done < walk.row; done += HN_CHUNK) {
            int count = (int)hn_min_i64(HN_CHUNK, walk.row - done);
            run_row(call, &steps, &walk, done, count, cells);
            hn_cells_store(call->outputs[0], at + done, count, HN_CLASS_F, cells[rows - 1]);
        }
    hn_walk_free(&walk);
    return HONE_OK;
}

hone_status hn_ref_steps(hone_error *err, const hn_call *call) {
    return hn_ref_scratch(err, call, steps_body);
}

void hn_cost_steps(const hn_node *node, hn_cost *out_cost) {
    hn_steps steps;
    hn_shape shape;
    int64_t count;
    if (hn_steps_read(NULL, node, &steps) != HONE_OK || !hn_type_shape(&node->outputs[0]->type, &shape) ||
        !hn_shape_count(&shape, &count))
        return;
    out_cost->flops = (double)count * steps.count;
}
