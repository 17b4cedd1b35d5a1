// SPDX-License-Identifier: Apache-2.0
// Where the rewrite to QDQ form puts integers: into layers always, through what only moves elements, and
// with `between` into sums and activations that hang behind no layer. What it computes stays near the model.
#include "onnx/onnx.h"
#include "optimize/optimize_int.h"
#include "support/module_run.h"
#include "support/test.h"
#include <math.h>

static hone_error err;

static const char k_model[] =
    "hone-ir 1\n"
    "graph \"\" {\n"
    "  input %x : f32[1, 4, 6, 6]\n"
    "  const %w : f32[4, 4, 1, 1] = {0.5, -0.25, 0.125, 0.3, -0.4, 0.2, 0.6, -0.1, 0.3, 0.7, -0.2, 0.1, 0.25, -0.5, 0.4, 0.15}\n"
    "  const %v : f32[4, 2, 1, 1] = {0.5, -0.25, 0.125, 0.3, -0.4, 0.2, 0.6, -0.1}\n"
    "  const %half : i64[2] = {2, 2}\n"
    "  const %four : i64[2] = {4, 4}\n"
    "  %c = Conv@11(%x, %w)\n"
    "  %s = Sigmoid@13(%c)\n"
    "  %m = Mul@14(%c, %s)\n"   // of its own: two read the convolution
    "  %p, %q = Split@13(%m, %half) {axis = 1}\n"
    "  %a = Conv@11(%p, %v)\n"
    "  %b = Conv@11(%q, %v)\n"
    "  %r = Add@14(%a, %m)\n"   // a residual sum: hangs behind %a
    "  %t = Concat@13(%b, %r) {axis = 1}\n"
    "  %u, %z = Split@13(%t, %four) {axis = 1}\n"
    "  %y = Conv@11(%u, %w)\n"
    "  %d = Conv@11(%z, %w)\n"
    "  %e = AveragePool@11(%d) {kernel_shape = [2, 2], strides = [2, 2]}\n"
    "  %k = Conv@11(%e, %w)\n"
    "  output %y\n"
    "  output %k\n"
    "}\n";

static hn_module *model(void) {
    hn_module *m = NULL;
    if (hn_module_parse(&err, k_model, &m) != HONE_OK) fail_msg("%s", err.text);
    if (hn_ops_resolve(&err, m) != HONE_OK || hn_infer_module(&err, m) != HONE_OK) fail_msg("%s", err.text);
    return m;
}

static const hn_value *value(const hn_module *m, const char *name) {
    const hn_value *v = hn_graph_find(m->main, name);
    if (!v) fail_msg("no value '%s'", name);
    return v;
}

static bool reads_integers(const hn_module *m, const char *made, int input) {
    const hn_node *from = value(m, made)->producer->inputs[input]->producer;
    return from && strcmp(from->op_type, "DequantizeLinear") == 0;
}

// Every value was seen in -3 .. 3.
static bool around_zero; // as cards want it
static hn_module *quantised(hn_module *m, bool between, hn_quantize_plan *plan) {
    hn_calibration c = {.count = m->next_value_id};
    c.ranges = hn_calloc(c.count, sizeof *c.ranges);
    bool *in = hn_calloc(m->next_node_id, sizeof *in);
    assert_true(c.ranges && in);
    for (uint32_t i = 0; i < c.count; i++)
        c.ranges[i] = (hn_range){.seen = true, .low = -3, .high = 3, .count = 1};
    for (const hn_node *node = m->main->first; node; node = node->next)
        in[node->id] = hn_quantize_capable(node);
    assert_int_equal(hn_quantize_plan_make(&err, m, &c, HN_CLIP_MINMAX, in, 127, between, around_zero, plan), HONE_OK);
    hn_module *copy = hn_module_clone(m, NULL);
    assert_int_equal(hn_quantize_apply(&err, copy, plan), HONE_OK);
    hn_free(in);
    hn_calibration_free(&c);
    return copy;
}

static void same_answers(const hn_module *a, const hn_module *b) {
    hn_tensor x, ya[2] = {{0}}, yb[2] = {{0}};
    assert_int_equal(hn_tensor_new(&err, HN_F32, &(hn_shape){4, {1, 4, 6, 6}}, &x), HONE_OK);
    for (int i = 0; i < 144; i++)
        ((float *)x.data)[i] = sinf((float)i) * 2;
    if (test_module_run(&err, a, &x, ya) != HONE_OK || test_module_run(&err, b, &x, yb) != HONE_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        hn_diff diff;
        assert_int_equal(hn_tensor_diff(&err, &yb[i], &ya[i], &diff), HONE_OK);
        if (!(diff.cosine > 0.999)) fail_msg("output %d: cosine %g", i, diff.cosine);
        hn_tensor_free(&ya[i]);
        hn_tensor_free(&yb[i]);
    }
    hn_tensor_free(&x);
}

static void layers_and_movers_read_integers(void **state) {
    (void)state;
    hn_module *m = model();
    hn_quantize_plan plan;
    hn_module *q = quantised(m, false, &plan);
    assert_true(reads_integers(q, "c", 0) && reads_integers(q, "a", 0) && reads_integers(q, "y", 0));
    assert_true(reads_integers(q, "p", 0)); // Split and Concat hand the parameters through
    assert_true(reads_integers(q, "t", 0) && reads_integers(q, "t", 1));
    const hn_qparam *p = &plan.params[value(m, "p")->id], *o = &plan.params[value(m, "q")->id];
    assert_true(p->set && o->set && p->scale == o->scale && p->zero == o->zero);
    assert_true(reads_integers(q, "r", 1) && !reads_integers(q, "r", 0)); // the skip alone
    assert_false(reads_integers(q, "m", 0));
    assert_false(reads_integers(q, "e", 0));
    same_answers(m, q);
    hn_module_free(q);
    hn_quantize_plan_free(&plan);
    hn_module_free(m);
}

static void steps_between_layers_read_integers_if_told(void **state) {
    (void)state;
    hn_module *m = model();
    hn_quantize_plan plan;
    hn_module *q = quantised(m, true, &plan);
    assert_true(reads_integers(q, "m", 0));   // x * sigmoid(x) of one 8-bit value: a table
    assert_true(reads_integers(q, "s", 0));
    assert_false(reads_integers(q, "m", 1));  // a number inside
    assert_false(reads_integers(q, "r", 0));  // hangs behind %a: its sum stays in the accumulator
    assert_true(reads_integers(q, "r", 1));
    assert_true(reads_integers(q, "e", 0));   // a mean of integers
    same_answers(m, q);
    // The decision says so, and makes the same again.
    json_t *json = hn_quantize_to_json(m, &plan);
    hn_quantize_plan again;
    assert_int_equal(hn_quantize_from_json(&err, json, m, &again), HONE_OK);
    assert_true(again.between);
    hn_module *r = hn_module_clone(m, NULL);
    assert_int_equal(hn_quantize_apply(&err, r, &again), HONE_OK);
    hn_str first = {0}, second = {0};
    hn_module_print(&first, q);
    hn_module_print(&second, r);
    assert_string_equal(hn_str_get(&first), hn_str_get(&second));
    hn_str_free(&first);
    hn_str_free(&second);
    json_decref(json);
    hn_quantize_plan_free(&plan);
    hn_quantize_plan_free(&again);
    hn_module_free(q);
    hn_module_free(r);
    hn_module_free(m);
}

// Signed, no zero point anywhere, and the decision says so.
static void cards_get_integers_around_zero(void **state) {
    (void)state;
    hn_module *m = model();
    hn_quantize_plan plan, again;
    around_zero = true;
    hn_module *q = quantised(m, false, &plan);
    around_zero = false;
    int quantisers = 0;
    for (const hn_node *node = q->main->first; node; node = node->next) {
        if (strcmp(node->op_type, "QuantizeLinear")) continue;
        const hn_tensor *zero = node->inputs[2]->constant;
        assert_true(zero && zero->dtype == HN_I8 && hn_tensor_get_i64(zero, 0) == 0);
        assert_true(node->outputs[0]->type.dtype == HN_I8);
        quantisers++;
    }
    assert_true(quantisers > 2);
    const hn_qparam *p = &plan.params[value(m, "p")->id];
    assert_true(p->around_zero && p->scale == 3.0f / 127);
    same_answers(m, q);
    json_t *json = hn_quantize_to_json(m, &plan);
    assert_int_equal(hn_quantize_from_json(&err, json, m, &again), HONE_OK);
    assert_true(again.symmetric && again.params[value(m, "p")->id].around_zero);
    // A zero point does not fit such a decision.
    json_array_set_new(json_object_get(json_object_get(json, "values"), "p"), 1, json_integer(3));
    hn_quantize_plan_free(&again);
    assert_int_equal(hn_quantize_from_json(&err, json, m, &again), HONE_ERR_FORMAT);
    json_decref(json);
    hn_module_free(q);
    hn_quantize_plan_free(&plan);
    hn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_get_integers_around_zero),
        cmocka_unit_test(layers_and_movers_read_integers),
        cmocka_unit_test(steps_between_layers_read_integers_if_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
