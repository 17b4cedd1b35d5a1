// SPDX-License-Identifier: Apache-2.0
// Two SGD steps of an MLP and of a small CNN, as one hand-built graph each: forward, gradients by
// the rows' functions, update. Losses and weights are compared with numbers that a numpy script
// found by the complex step (train_expect.py).
#include "support/test.h"
#include <math.h>
#include "ops/train_expect.h"
#include "ops/ops.h"

#define RATE 0.1
#define MAX_VALUES 4096

typedef struct net {
    hn_module *module;
    hn_value *weights[16];
    int weight_count;
    hn_tensor results[MAX_VALUES]; // by value id
} net;

static hn_value *filled(hn_graph *graph, const hn_shape *shape, double seed) {
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, HN_F64, shape, &tensor), HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&tensor); i++)
        hn_tensor_set_f64(&tensor, i, sin((double)i * 0.7 + seed) * 0.5);
    hn_value *value = hn_graph_add_constant(graph, "", &tensor);
    assert_non_null(value);
    return value;
}

static hn_value *weight(net *n, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    hn_shape shape = {.rank = rank, .dims = {a, b, c, d}};
    hn_value *value = filled(n->module->main, &shape, n->weight_count + 1);
    return n->weights[n->weight_count++] = value;
}

static hn_node *add(net *n, const char *op, int outputs, hn_value *const *in, int count) {
    hn_node *node = hn_node_make(n->module->main, NULL, hn_op_find("", op), in, count, outputs);
    assert_non_null(node);
    return node;
}

static hn_value *settle(hn_node *node) {
    hone_error err = {0};
    if (hn_infer_node(&err, node) != HONE_OK) fail_msg("%s", err.text);
    return node->outputs[0];
}

static hn_value *simple(net *n, const char *op, hn_value *a, hn_value *b, hn_value *c) {
    hn_value *in[] = {a, b, c};
    return settle(add(n, op, 1, in, c ? 3 : b ? 2 : 1));
}

static hn_value *dense(net *n, hn_value *x, hn_value *w, hn_value *b) {
    hn_value *in[] = {x, w, b};
    hn_node *node = add(n, "Gemm", 1, in, 3);
    hn_node_set_int(node, "transB", 1);
    return settle(node);
}

static hn_value *scalar(net *n, double number) {
    hn_shape shape = {0};
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, HN_F64, &shape, &tensor), HONE_OK);
    hn_tensor_set_f64(&tensor, 0, number);
    return hn_graph_add_constant(n->module->main, "", &tensor);
}

// Walks the nodes backwards from the loss; grads[] by value id.
static void differentiate(net *n, hn_node *first, hn_value *loss, hn_value **grads) {
    grads[loss->id] = scalar(n, 1);
    hn_node *last = n->module->main->last;
    for (hn_node *node = last; node; node = node->prev) {
        hn_value *in[16] = {0}, *out[8] = {0};
        bool flows = false;
        for (int o = 0; o < node->output_count; o++) {
            out[o] = node->outputs[o] ? grads[node->outputs[o]->id] : NULL;
            flows = flows || out[o];
        }
        if (flows) {
            hn_grad ctx = {n->module->main, node, out, in};
            hone_error err = {0};
            hn_grad_fn fn = hn_op_get(node->op)->grad;
            if (!fn) fail_msg("%s has no gradient", node->op_type);
            if (fn(&err, &ctx) != HONE_OK) fail_msg("%s: %s", node->op_type, err.text);
        }
        for (int i = 0; i < node->input_count; i++) {
            if (!in[i]) continue;
            hn_value **sum = &grads[node->inputs[i]->id];
            *sum = *sum ? simple(n, "Add", *sum, in[i], NULL) : in[i];
        }
        if (node == first) break;
    }
}

// Adds one step: the update of every weight; n->weights become the new ones.
static void descend(net *n, hn_node *first, hn_value *loss) {
    hn_value **grads = calloc(MAX_VALUES, sizeof *grads);
    differentiate(n, first, loss, grads);
    hn_value *rate = scalar(n, RATE);
    for (int i = 0; i < n->weight_count; i++) {
        hn_value *grad = grads[n->weights[i]->id];
        assert_non_null(grad);
        n->weights[i] = simple(n, "Sub", n->weights[i], simple(n, "Mul", grad, rate, NULL), NULL);
    }
    free(grads);
    assert_true(n->module->next_value_id < MAX_VALUES);
}

static void run(net *n) {
    for (hn_node *node = n->module->main->first; node; node = node->next) {
        const hn_tensor *in[16];
        hn_tensor out[8] = {{0}};
        hone_error err = {0};
        for (int i = 0; i < node->input_count; i++) {
            const hn_value *value = node->inputs[i];
            in[i] = !value ? NULL : value->constant ? value->constant : &n->results[value->id];
        }
        if (hn_ref_run(&err, node, in, node->input_count, out, node->output_count, 1) != HONE_OK)
            fail_msg("%s: %s", node->op_type, err.text);
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i]) n->results[node->outputs[i]->id] = out[i];
    }
}

static hn_value *loss_node(net *n, hn_value *scores, const int64_t *labels, int count) {
    hn_value *list = hn_graph_add_const_i64(n->module->main, labels, count, false);
    return simple(n, "SoftmaxCrossEntropyLoss", scores, list, NULL);
}

typedef hn_value *(*model_fn)(net *n, hn_value *x);

static hn_value *mlp(net *n, hn_value *x) {
    hn_value *hidden = simple(n, "Relu", dense(n, x, n->weights[0], n->weights[1]), NULL, NULL);
    return dense(n, hidden, n->weights[2], n->weights[3]);
}

static hn_value *cnn(net *n, hn_value *x) {
    static const int64_t k_pads[] = {1, 1, 1, 1}, k_two[] = {2, 2};
    hn_shape two = {.rank = 1, .dims = {2}};
    hn_value **w = n->weights, *conv_in[] = {x, w[0], w[1]};
    hn_node *conv = add(n, "Conv", 1, conv_in, 3);
    hn_node_set_ints(conv, "pads", k_pads, 4);
    hn_value *norm_in[] = {settle(conv), w[2], w[3], filled(n->module->main, &two, 0),
                           filled(n->module->main, &two, 1)};
    hn_node *norm = add(n, "BatchNormalization", 3, norm_in, 5);
    hn_node_set_int(norm, "training_mode", 1);
    hn_value *active = simple(n, "Relu", settle(norm), NULL, NULL);
    hn_node *pool = add(n, "MaxPool", 1, &active, 1);
    hn_node_set_ints(pool, "kernel_shape", k_two, 2);
    hn_node_set_ints(pool, "strides", k_two, 2);
    hn_value *second = simple(n, "Conv", settle(pool), w[4], w[5]);
    hn_value *mean = simple(n, "GlobalAveragePool", second, NULL, NULL);
    return dense(n, simple(n, "Flatten", mean, NULL, NULL), w[6], w[7]);
}

static void train(net *n, model_fn model, hn_value *x, const int64_t *labels, int count,
                  const double *losses, const double *weights, size_t weight_total) {
    hn_value *loss[3];
    for (int step = 0; step < 3; step++) {
        hn_node *before = n->module->main->last;
        loss[step] = loss_node(n, model(n, x), labels, count);
        hn_node *first = before ? before->next : n->module->main->first;
        if (step < 2) descend(n, first, loss[step]);
    }
    run(n);
    double last = INFINITY;
    for (int step = 0; step < 3; step++) {
        double got = hn_tensor_get_f64(&n->results[loss[step]->id], 0);
        print_message("loss %d: %.12f\n", step, got);
        assert_true(fabs(got - losses[step]) < 1e-12);
        assert_true(got < last);
        last = got;
    }
    size_t at = 0;
    for (int i = 0; i < n->weight_count; i++) {
        const hn_tensor *w = &n->results[n->weights[i]->id];
        for (int64_t k = 0; k < hn_tensor_count(w); k++, at++) {
            assert_true(at < weight_total);
            if (!(fabs(hn_tensor_get_f64(w, k) - weights[at]) < 1e-12))
                fail_msg("weight %d element %lld is %.17g, not %.17g", i, (long long)k,
                         hn_tensor_get_f64(w, k), weights[at]);
        }
    }
    assert_int_equal(at, weight_total);
    for (int i = 0; i < MAX_VALUES; i++) hn_tensor_free(&n->results[i]);
    hn_module_free(n->module);
}

static void test_mlp(void **state) {
    (void)state;
    static net n;
    static const int64_t k_labels[] = {0, 2, 1, 2};
    n = (net){.module = hn_module_new()};
    hn_shape shape = {.rank = 2, .dims = {4, 3}};
    hn_value *x = filled(n.module->main, &shape, 20);
    weight(&n, 2, 4, 3, 0, 0);
    weight(&n, 1, 4, 0, 0, 0);
    weight(&n, 2, 3, 4, 0, 0);
    weight(&n, 1, 3, 0, 0, 0);
    train(&n, mlp, x, k_labels, 4, k_mlp_losses, k_mlp_weights, HN_COUNT_OF(k_mlp_weights));
}

static void test_cnn(void **state) {
    (void)state;
    static net n;
    static const int64_t k_labels[] = {2, 0};
    n = (net){.module = hn_module_new()};
    hn_shape shape = {.rank = 4, .dims = {2, 1, 6, 6}};
    hn_value *x = filled(n.module->main, &shape, 30);
    weight(&n, 4, 2, 1, 3, 3);
    for (int i = 0; i < 3; i++) weight(&n, 1, 2, 0, 0, 0); // bias, scale, shift
    weight(&n, 4, 3, 2, 2, 2);
    weight(&n, 1, 3, 0, 0, 0);
    weight(&n, 2, 3, 3, 0, 0);
    weight(&n, 1, 3, 0, 0, 0);
    train(&n, cnn, x, k_labels, 2, k_cnn_losses, k_cnn_weights, HN_COUNT_OF(k_cnn_weights));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mlp), cmocka_unit_test(test_cnn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
