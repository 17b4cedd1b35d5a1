// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// What is delivered is never slower than the input: a strategy that claims a speed-up of its own and makes the
// model slower is taken back by the confirmation, and what was kept before it stays.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "onnx/onnx.h"
#include "optimize/optimize_int.h"
#include "support/test.h"

#define ROWS  64
#define WIDTH 64
#define WIDE  4096
#define LOOP  640  // of the detour: stays below what memory may grow by

static hone_error err;
static char g_folder[64];

static hn_value *matrix(hn_module *m, const char *name, int rows, int columns, float size) {
    hn_tensor t;
    assert_int_equal(hn_tensor_new(&err, HN_F32, &(hn_shape){2, {rows, columns}}, &t), HONE_OK);
    uint32_t seed = 9;
    for (int i = 0; i < rows * columns; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)t.data)[i] = size * ((float)(seed >> 8) / 16777216.0f - 0.5f);
    }
    hn_value *value = hn_graph_add_constant(m->main, name, &t);
    assert_non_null(value);
    return value;
}

static hn_node *add(hn_module *m, hn_node *before, const char *op, hn_value *a, hn_value *b, const char *name) {
    hn_value *in[] = {a, b};
    hn_node *node = hn_node_make(m->main, before, hn_op_find("", op), in, b ? 2 : 1, 1);
    assert_non_null(node);
    assert_int_equal(hn_infer_node(&err, node), HONE_OK);
    if (name) assert_true(hn_value_set_name(node->outputs[0], name));
    return node;
}

static const char *at(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", g_folder, name);
    return path;
}

// y = Relu(x A) B, where A is a product of constants that is worked out whenever the file is loaded: `graph`
// wins by its start.
static void save_model(void) {
    hn_module *m = hn_module_new();
    hn_type type = {.dtype = HN_F32, .rank = 2, .dims = {hn_dim_symbol(m->dims, "N"), WIDTH}};
    hn_value *x = hn_graph_add_input(m->main, "x", &type);
    assert_true(hn_vec_push(&m->opsets, ((hn_opset){"", 20})));
    m->ir_version = 9;
    hn_value *a = matrix(m, "left", WIDTH, WIDE, 0.1f), *b = matrix(m, "right", WIDE, WIDTH, 0.1f);
    hn_node *weight = add(m, NULL, "MatMul", a, b, "made");
    hn_node *h = add(m, NULL, "Relu", add(m, NULL, "MatMul", x, weight->outputs[0], "h0")->outputs[0], NULL, "h");
    hn_node *y = add(m, NULL, "MatMul", h->outputs[0], matrix(m, "last", WIDTH, WIDTH, 0.3f), "y");
    assert_true(hn_graph_add_output(m->main, y->outputs[0]));
    if (hn_onnx_save(&err, m, at("m.onnx")) != HONE_OK) fail_msg("%s", err.text);
    hn_module_free(m);
    hn_npz npz = {0};
    hn_npz_item item = {hn_strdup("x"), {0}};
    assert_int_equal(hn_tensor_new(&err, HN_F32, &(hn_shape){2, {ROWS, WIDTH}}, &item.tensor), HONE_OK);
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)item.tensor.data)[i] = (float)((i * 37) % 101) / 50 - 1;
    assert_true(hn_vec_push(&npz.items, item));
    assert_int_equal(hn_npz_write(&err, at("d.npz"), &npz), HONE_OK);
    hn_npz_free(&npz);
}

// Puts a detour through LOOP columns beside the first product, whose result hardly changes anything, and says
// that it is twice as fast.
static hone_status plant(hone_error *e, hn_optimizer *o, hn_module **out_module, json_t **out_decision, char *why,
                         size_t why_size) {
    (void)e;
    hn_module *m = hn_module_clone(o->current, NULL);
    assert_non_null(m);
    hn_node *last = m->main->last;
    hn_value *x = m->main->inputs.data[0], *h = last->inputs[0];
    hn_value *wide = matrix(m, "planted_1", WIDTH, LOOP, 1e-6f), *back = matrix(m, "planted_2", LOOP, WIDTH, 1e-6f);
    hn_node *far = add(m, last, "MatMul", x, wide, "planted_far");
    far = add(m, last, "Relu", far->outputs[0], NULL, "planted_relu");
    far = add(m, last, "MatMul", far->outputs[0], back, "planted_near");
    far = add(m, last, "Add", h, far->outputs[0], "planted_sum");
    hn_node_set_input(last, 0, far->outputs[0]);
    *out_module = m;
    *out_decision = json_object();
    o->given = (hn_pair){.speedup = 2, .speedup_ci = {1.9, 2.1}, .pairs = 50};
    o->has_given = true;
    snprintf(why, why_size, "planted");
    return HONE_OK;
}

static void takes_back(const char *hone_path) {
    const hn_strategy planted = {"planted", HN_ON_ANY, true, false, "latency", "slow, and says that it is fast", plant};
    hn_optimize_options o = {.model_path = at("m.onnx"), .out_path = at("o.onnx"), .data_path = at("d.npz"),
                             .batch = 16, .seconds = 0.1, .only = "graph", .extra = &planted, .hone_path = hone_path};
    hn_optimize_result r;
    if (hn_optimize_run(&err, &o, &r) != HONE_OK) fail_msg("%s (%s)", err.text, err.frames[0]);
    assert_int_equal(r.verdict_count, 2);
    const hn_verdict *graph = &r.verdicts[0], *slow = &r.verdicts[1];
    assert_string_equal(slow->name, "planted");
    assert_false(slow->kept);
    if (!strstr(slow->reason, "not confirmed") || !strstr(slow->reason, "2.000x"))
        fail_msg("the planted strategy was refused because: %s", slow->reason);
    if (!graph->kept) fail_msg("graph went as well: %s", graph->reason);
    assert_true(r.withdrawn >= 1);
    assert_null(strstr(r.decisions, "planted"));
    assert_non_null(strstr(r.decisions, "graph"));
    assert_false(r.copied);
    hn_module *made;
    assert_int_equal(hn_onnx_load(&err, at("o.onnx"), NULL, &made), HONE_OK);
    int products = 0;
    for (const hn_node *node = made->main->first; node; node = node->next)
        products += strcmp(node->op_type, "MatMul") == 0;
    assert_int_equal(products, 2); // folded, and without the detour
    hn_module_free(made);
    hn_optimize_result_free(&r);
}

static void a_slow_strategy_is_taken_back(void **state) {
    (void)state;
    takes_back(NULL);
}

static void a_fresh_process_takes_it_back(void **state) {
    (void)state;
    const char *hone = getenv("HONE");
    if (!hone) skip();
    takes_back(hone);
}

int main(void) {
    snprintf(g_folder, sizeof g_folder, "/tmp/hone-confirm-XXXXXX");
    if (!mkdtemp(g_folder)) return 1;
    save_model();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_strategy_is_taken_back),
        cmocka_unit_test(a_fresh_process_takes_it_back),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const char *const names[] = {"m.onnx", "d.npz", "o.onnx"};
    for (size_t i = 0; i < HN_COUNT_OF(names); i++)
        unlink(at(names[i]));
    rmdir(g_folder);
    return failed;
}
