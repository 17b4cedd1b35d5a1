// SPDX-License-Identifier: Apache-2.0
// See grad_case.h.
#include "support/test.h"
#include <math.h>
#include "support/grad_case.h"

#define STEP 1e-5

// Runs every node of the main graph by references; results by value id.
static bool run_graph(hn_graph *graph, hn_tensor *results, hone_error *err) {
    for (hn_node *node = graph->first; node; node = node->next) {
        const hn_tensor *in[64];
        hn_tensor out[16] = {{0}};
        for (int i = 0; i < node->input_count; i++) {
            const hn_value *value = node->inputs[i];
            in[i] = !value ? NULL : value->constant ? value->constant : &results[value->id];
        }
        if (hn_ref_run(err, node, in, node->input_count, out, node->output_count, 7) != HONE_OK)
            return false;
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i]) results[node->outputs[i]->id] = out[i];
            else hn_tensor_free(&out[i]);
    }
    return true;
}

static double weight(int output, int64_t i) { return 0.5 + (double)((i * 7 + output * 3) % 11) * 0.25; }

static double loss_of(const hn_node *node, const hn_tensor *inputs, int count) {
    const hn_tensor *in[OP_CASE_INPUTS];
    hn_tensor out[OP_CASE_OUTPUTS] = {{0}};
    hone_error err = {0};
    for (int i = 0; i < count; i++) in[i] = inputs[i].dtype ? &inputs[i] : NULL;
    if (hn_ref_run(&err, node, in, count, out, node->output_count, 7) != HONE_OK)
        fail_msg("%s: %s", node->op_type, err.text);
    double loss = 0;
    for (int o = 0; o < node->output_count; o++) {
        if (out[o].dtype == HN_F64)
            for (int64_t i = 0; i < hn_tensor_count(&out[o]); i++)
                loss += weight(o, i) * hn_tensor_get_f64(&out[o], i);
        hn_tensor_free(&out[o]);
    }
    return loss;
}

static bool compare(const grad_case *c, const hn_node *node, hn_tensor *inputs, int count, int index,
                    const hn_tensor *got) {
    hn_tensor *x = &inputs[index];
    if (got->dtype != HN_F64 || !hn_shape_equal(&got->shape, &x->shape)) {
        print_error("%s: the gradient of input %d has another type or shape\n", c->op, index);
        return false;
    }
    for (int64_t i = 0; i < hn_tensor_count(x); i++) {
        double was = hn_tensor_get_f64(x, i);
        hn_tensor_set_f64(x, i, was + STEP);
        double above = loss_of(node, inputs, count);
        hn_tensor_set_f64(x, i, was - STEP);
        double want = (above - loss_of(node, inputs, count)) / (2 * STEP);
        hn_tensor_set_f64(x, i, was);
        double is = hn_tensor_get_f64(got, i);
        if (fabs(is - want) <= 1e-6 * (1 + fabs(want))) continue;
        print_error("%s %s: input %d element %lld: gradient %.9g, difference %.9g\n", c->op,
                    c->attrs ? c->attrs : "", index, (long long)i, is, want);
        return false;
    }
    return true;
}

// Builds the gradient graph; grads[i] is set where there is one.
static bool build(const grad_case *c, hn_node *node, hn_value **grads) {
    hn_value *dy[OP_CASE_OUTPUTS] = {0};
    hone_error err = {0};
    for (int o = 0; o < node->output_count; o++) {
        hn_shape shape;
        if (!node->outputs[o] || node->outputs[o]->type.dtype != HN_F64) continue;
        if (!hn_type_shape(&node->outputs[o]->type, &shape)) fail_msg("%s: no shape", c->op);
        hn_tensor ones;
        assert_int_equal(hn_tensor_new(NULL, HN_F64, &shape, &ones), HONE_OK);
        for (int64_t i = 0; i < hn_tensor_count(&ones); i++)
            hn_tensor_set_f64(&ones, i, weight(o, i));
        assert_non_null(dy[o] = hn_graph_add_constant(node->graph, "", &ones));
    }
    hn_grad ctx = {node->graph, node, dy, grads};
    hn_grad_fn fn = hn_op_get(node->op)->grad;
    if (!fn) fail_msg("%s has no gradient", c->op);
    hone_status status = fn(&err, &ctx);
    if (!c->fails) {
        if (status != HONE_OK) print_error("%s: %s\n", c->op, err.text);
        return status == HONE_OK;
    }
    if (status == HONE_OK || !strstr(err.text, c->fails))
        print_error("%s: '%s' lacks '%s'\n", c->op, err.text, c->fails);
    return status != HONE_OK && strstr(err.text, c->fails);
}

static bool run_case(const grad_case *c) {
    op_case shell = {.name = c->op, .op = c->op, .attrs = c->attrs};
    memcpy(shell.in, c->in, sizeof shell.in);
    for (int o = 0; o < (c->outputs ? c->outputs : 1); o++) shell.out[o] = "wanted";
    hn_module *module = hn_module_new();
    hn_tensor inputs[OP_CASE_INPUTS];
    hn_value *grads[OP_CASE_INPUTS] = {0};
    int count;
    hn_node *node = op_case_node(module, &shell, inputs, &count);
    for (int i = 0; i < count; i++) { // indices, axes and bounds are known numbers
        if (!inputs[i].dtype || hn_dtype_is_float(inputs[i].dtype)) continue;
        hn_tensor copy = hn_tensor_ref(&inputs[i]);
        hn_node_set_input(node, i, hn_graph_add_constant(module->main, "", &copy));
    }
    hone_error err = {0};
    bool good = hn_infer_node(&err, node) == HONE_OK;
    if (!good) print_error("%s: %s\n", c->op, err.text);
    if (good) good = build(c, node, grads);
    if (good && !c->fails) {
        hn_tensor *results = calloc(module->next_value_id + 1, sizeof *results);
        for (int i = 0; i < count; i++)
            if (node->inputs[i] && !node->inputs[i]->constant)
                results[node->inputs[i]->id] = hn_tensor_ref(&inputs[i]);
        good = run_graph(module->main, results, &err);
        if (!good) print_error("%s: %s\n", c->op, err.text);
        for (int i = 0; good && i < count; i++) {
            bool due = strchr(c->check, '0' + i) != NULL;
            if (due != (grads[i] != NULL))
                print_error("%s: input %d has %s gradient\n", c->op, i, due ? "no" : "a");
            good = due == (grads[i] != NULL);
            if (good && due)
                good = compare(c, node, inputs, count, i,
                               grads[i]->constant ? grads[i]->constant : &results[grads[i]->id]);
        }
        for (uint32_t i = 0; i <= module->next_value_id; i++) hn_tensor_free(&results[i]);
        free(results);
    }
    for (int i = 0; i < count; i++) hn_tensor_free(&inputs[i]);
    hn_module_free(module);
    return good;
}

void grad_cases_run(const grad_case *cases, size_t count) {
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += !run_case(&cases[i]);
    if (failed) fail_msg("%d of %zu gradients failed", failed, count);
}
