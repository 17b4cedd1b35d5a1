// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// What users of other tools ran into, each trap in a small model; the numbers are those of the table in
// docs/optimize.md, where the rows that are tested elsewhere name their test.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "onnx/onnx.h"
#include "optimize/optimize.h"
#include "passes/passes.h"
#include "support/module_run.h"
#include "support/onnx_make.h"
#include "support/test.h"

static hone_error err;
static char g_folder[64];

static hn_module *load(const char *body) {
    hn_str text = {0};
    hn_module *m = NULL;
    hn_str_printf(&text, "hone-ir 1\n%s", body);
    if (hn_module_parse(&err, hn_str_get(&text), &m) != HONE_OK || hn_ops_resolve(&err, m) != HONE_OK ||
        hn_infer_module(&err, m) != HONE_OK)
        fail_msg("%s (%s)", err.text, err.frames[0]);
    hn_str_free(&text);
    return m;
}

static hn_module *parse(hn_wire_out *w) {
    hn_module *m = NULL;
    hn_onnx_options options = {.keep_unknown = false};
    if (om_parse(&err, w, NULL, &options, &m) != HONE_OK) fail_msg("%s (%s)", err.text, err.frames[0]);
    return m;
}

static int count_of(const hn_graph *graph, const char *op) {
    int count = 0;
    for (const hn_node *node = graph->first; node; node = node->next) {
        count += strcmp(node->op_type, op) == 0;
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) count += count_of(node->attrs[i].graph, op);
    }
    return count;
}

// All portable rewrites, and the same numbers before and after; `size` is what free dims are bound to.
static void rewrite(hn_module *m, int64_t size) {
    hn_tensor in[8] = {{0}}, a[8] = {{0}}, b[8] = {{0}};
    hn_pass_options options = {.verify = true};
    if (test_module_inputs(&err, m, 3, size, in) != HONE_OK || test_module_run(&err, m, in, a) != HONE_OK ||
        hn_passes_run(&err, m, HN_PASS_PORTABLE, &options) != HONE_OK ||
        test_module_run(&err, m, in, b) != HONE_OK)
        fail_msg("%s (%s)", err.text, err.frames[0]);
    for (size_t i = 0; i < m->main->outputs.count; i++)
        assert_true(test_tensors_distance(&a[i], &b[i], 1e-5, 1e-6) <= 1);
    test_tensors_free(in, 8);
    test_tensors_free(a, 8);
    test_tensors_free(b, 8);
}

// Written, read back, run: what a file has to survive.
static hn_module *through_a_file(hn_module *m) {
    char path[128];
    hn_module *again = NULL;
    snprintf(path, sizeof path, "%s/m.onnx", g_folder);
    if (hn_onnx_save(&err, m, path) != HONE_OK || hn_onnx_load(&err, path, NULL, &again) != HONE_OK)
        fail_msg("%s (%s)", err.text, err.frames[0]);
    return again;
}

// A Reshape whose target is put together from the batch: 0 and -1 are operators, no dims.
static void field_01(void **state) {
    (void)state;
    hn_module *m = load("graph \"\" {\n  input %x : f32[N, 6, 2]\n  const %i : i64[1] = {0}\n  const %rest : i64[2] = {0, -1}\n"
                        "  %s = Shape@15(%x)\n  %n = Gather@13(%s, %i) {axis = 0}\n  %t = Concat@13(%n, %rest) {axis = 0}\n"
                        "  %y = Reshape@14(%x, %t)\n  output %y\n}\n");
    const hn_type *y = &m->main->outputs.data[0]->type, *x = &m->main->inputs.data[0]->type;
    assert_int_equal(y->rank, 3);
    assert_true(y->dims[0] == x->dims[0] && y->dims[1] == 6 && y->dims[2] == 2);
    rewrite(m, 5);
    hn_module_free(m);
}

// The batch is traced through Shape, Slice, Mul, Cast and Concat.
static void field_02(void **state) {
    (void)state;
    hn_module *m = load("graph \"\" {\n  input %x : f32[N, 4, 6]\n  const %b : i64[1] = {0}\n  const %e : i64[1] = {2}\n"
                        "  const %i0 : i64[1] = {0}\n  const %i1 : i64[1] = {1}\n  const %six : i64[1] = {6}\n"
                        "  %s = Shape@15(%x)\n  %h = Slice@13(%s, %b, %e)\n  %n = Gather@13(%h, %i0) {axis = 0}\n"
                        "  %c = Gather@13(%h, %i1) {axis = 0}\n  %nc = Mul@14(%n, %c)\n  %w = Cast@13(%nc) {to = 6}\n"
                        "  %v = Cast@13(%w) {to = 7}\n  %t = Concat@13(%v, %six) {axis = 0}\n  %y = Reshape@14(%x, %t)\n  output %y\n}\n");
    const hn_type *y = &m->main->outputs.data[0]->type;
    assert_int_equal(y->rank, 2);
    assert_int_equal(y->dims[1], 6);
    assert_false(hn_dim_is_const(y->dims[0]));
    assert_true(y->dims[0] != HN_DIM_FAILED);
    hn_shape shape = {3, {5, 4, 6}};
    hn_type_set_shape(&m->main->inputs.data[0]->type, HN_F32, &shape);
    assert_int_equal(hn_infer_module(&err, m), HONE_OK);
    assert_int_equal(m->main->outputs.data[0]->type.dims[0], 20);
    hn_module_free(m);
}

static hn_optimize_result optimise(hn_module *m, const char *strategy, hn_objective objective) {
    char path[128], out[128];
    snprintf(path, sizeof path, "%s/b.onnx", g_folder);
    snprintf(out, sizeof out, "%s/o.onnx", g_folder);
    m->ir_version = 8;
    if (!m->opsets.count) assert_true(hn_vec_push(&m->opsets, ((hn_opset){"", 17})));
    if (hn_onnx_save(&err, m, path) != HONE_OK) fail_msg("%s", err.text);
    hn_optimize_options o = {.model_path = path, .out_path = out, .seconds = 0.02, .only = strategy, .objective = objective};
    hn_optimize_result r;
    if (hn_optimize_run(&err, &o, &r) != HONE_OK) fail_msg("%s (%s)", err.text, err.frames[0]);
    assert_int_equal(r.verdict_count, 1);
    return r;
}

// A batch is only made larger where rows are proven not to meet: here a softmax runs along the batch, there
// a constant has batch 1 baked in. Both are refusals with their reason, and the file stays as it is.
static void field_05(void **state) {
    (void)state;
    static const char *const k_bodies[] = {
        "graph \"\" {\n  input %x : f32[N, 8]\n  %y = Softmax@13(%x) {axis = 0}\n  output %y\n}\n",
        "graph \"\" {\n  input %x : f32[N, 8]\n  const %s : i64[3] = {1, 2, 4}\n  %r = Reshape@14(%x, %s)\n"
        "  %y = Relu@14(%r)\n  output %y\n}\n",
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_bodies); i++) {
        hn_module *m = load(k_bodies[i]);
        hn_optimize_result r = optimise(m, "batch", HN_OBJECTIVE_THROUGHPUT);
        assert_false(r.verdicts[0].kept);
        assert_true(strlen(r.verdicts[0].reason) > 10);
        assert_true(r.copied);
        hn_optimize_result_free(&r);
        hn_module_free(m);
    }
}

// Files of opset 7 are read, rewritten and written without a converter.
static void field_07(void **state) {
    (void)state;
    for (int opset = 7; opset <= 21; opset += 7) {
        hn_wire_out w = {0};
        om_model(&w, 7, opset);
        om_value(&w, 11, "x", HN_F32, "N 2 5 5");
        om_weights(&w, "k", "3 2 3 3", 54);
        om_weights(&w, "c", "1", 1);
        om_node(&w, "Conv", "x k", "a");
        om_node(&w, "Identity", "a", "b");
        om_node(&w, "Sub", "b c", "y");
        om_value(&w, 12, "y", HN_F32, "N 3 3 3");
        hn_module *m = parse(&w);
        rewrite(m, 2);
        assert_int_equal(count_of(m->main, "Identity"), 0);
        hn_module *again = through_a_file(m);
        assert_int_equal(again->opsets.data[0].version, opset); // no pass needed more
        hn_module_free(again);
        hn_module_free(m);
    }
}

// Weights are values, whether graph.input lists them or not.
static void field_08(void **state) {
    (void)state;
    for (int listed = 0; listed < 2; listed++) {
        hn_wire_out w = {0};
        om_model(&w, 3, 9);
        om_value(&w, 11, "x", HN_F32, "N 4");
        if (listed) om_value(&w, 11, "k", HN_F32, "4 4");
        om_weights(&w, "k", "4 4", 16);
        om_node(&w, "MatMul", "x k", "y");
        om_value(&w, 12, "y", HN_F32, "N 4");
        hn_module *m = parse(&w);
        assert_int_equal(m->main->inputs.count, 1);
        rewrite(m, 3);
        hn_module_free(through_a_file(m));
        hn_module_free(m);
    }
}

// Rewrites reach the bodies of If, and what a body takes from outside stays.
static void field_09(void **state) {
    (void)state;
    hn_module *m = load("graph \"\" {\n  input %x : f32[4, 8]\n  input %c : bool[]\n  const %one : f32[] = {1}\n"
                        "  const %r2 : f32[] = {1.4142135}\n  const %half : f32[] = {0.5}\n"
                        "  %y = If@16(%c) {then_branch = graph \"t\" {\n    %i = Identity@16(%x)\n    %d = Div@14(%i, %r2)\n"
                        "    %e = Erf@13(%d)\n    %a = Add@14(%e, %one)\n    %p = Mul@14(%i, %a)\n    %g = Mul@14(%p, %half)\n    output %g\n"
                        "  }, else_branch = graph \"e\" {\n    %n = Neg@13(%x)\n    output %n\n  }}\n  output %y\n}\n");
    rewrite(m, 2);
    assert_int_equal(count_of(m->main, "Identity"), 0);
    assert_int_equal(count_of(m->main, "Gelu"), 1);
    assert_int_equal(count_of(m->main, "Erf"), 0);
    hn_module_free(m);
}

// Branches of different rank: the type is what both can be, the one taken runs.
static void field_14(void **state) {
    (void)state;
    hn_module *m = load("graph \"\" {\n  input %x : f32[4, 1]\n  input %c : bool[]\n  const %axis : i64[1] = {1}\n"
                        "  %y = If@16(%c) {then_branch = graph \"t\" {\n    %a = Squeeze@13(%x, %axis)\n    output %a\n"
                        "  }, else_branch = graph \"e\" {\n    %b = Neg@13(%x)\n    output %b\n  }}\n  output %y\n}\n");
    assert_true(m->main->outputs.data[0]->type.rank < 0);
    for (int taken = 0; taken < 2; taken++) {
        hn_tensor in[2] = {{0}}, out[1] = {{0}};
        assert_int_equal(test_module_inputs(&err, m, 3, 2, in), HONE_OK);
        *(bool *)in[1].data = taken;
        assert_int_equal(test_module_run(&err, m, in, out), HONE_OK);
        assert_int_equal(out[0].shape.rank, taken ? 1 : 2);
        test_tensors_free(in, 2);
        test_tensors_free(out, 1);
    }
    rewrite(m, 2);
    hn_module_free(m);
}

// A Split by sizes that are only known when it runs is no error.
static void field_15(void **state) {
    (void)state;
    hn_module *m = load("graph \"\" {\n  input %x : f32[6, 2]\n  input %s : i64[2]\n  %a, %b = Split@13(%x, %s) {axis = 0}\n"
                        "  %y = Relu@14(%a)\n  output %y\n  output %b\n}\n");
    assert_int_equal(m->main->outputs.data[0]->type.rank, 2);
    hn_tensor in[2] = {{0}}, out[2] = {{0}};
    assert_int_equal(test_module_inputs(&err, m, 3, 2, in), HONE_OK);
    memcpy(in[1].data, (const int64_t[]){4, 2}, 16);
    hn_pass_options options = {.verify = true};
    assert_int_equal(hn_passes_run(&err, m, HN_PASS_PORTABLE, &options), HONE_OK);
    assert_int_equal(test_module_run(&err, m, in, out), HONE_OK);
    assert_int_equal(out[0].shape.dims[0], 4);
    assert_int_equal(out[1].shape.dims[0], 2);
    test_tensors_free(in, 2);
    test_tensors_free(out, 2);
    hn_module_free(m);
}

// With ceil_mode a window that would begin in the padding on the right does not count: no NaN, no row more.
static void field_18(void **state) {
    (void)state;
    static const struct { int width, kernel, stride, pad, want; } k_cases[] = {
        {2, 1, 2, 0, 1}, {4, 2, 3, 0, 2}, {5, 2, 2, 1, 3}, {3, 1, 3, 1, 2}, {6, 3, 2, 1, 4},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        char body[512];
        snprintf(body, sizeof body,
                 "graph \"\" {\n  input %%x : f32[1, 1, %d]\n  %%y = AveragePool@19(%%x) {kernel_shape = [%d], strides = [%d], "
                 "pads = [%d, %d], ceil_mode = 1, count_include_pad = 0}\n  output %%y\n}\n",
                 k_cases[i].width, k_cases[i].kernel, k_cases[i].stride, k_cases[i].pad, k_cases[i].pad);
        hn_module *m = load(body);
        const hn_type *y = &m->main->outputs.data[0]->type;
        if (y->dims[2] != k_cases[i].want) fail_msg("case %zu: %lld windows", i, (long long)y->dims[2]);
        hn_tensor in[1] = {{0}}, out[1] = {{0}};
        assert_int_equal(test_module_inputs(&err, m, 3, 2, in), HONE_OK);
        assert_int_equal(test_module_run(&err, m, in, out), HONE_OK);
        for (int64_t k = 0; k < hn_tensor_count(&out[0]); k++)
            assert_true(isfinite(((float *)out[0].data)[k]));
        test_tensors_free(in, 1);
        test_tensors_free(out, 1);
        hn_module_free(m);
    }
}

// float16 storage: only weights of products change type, a Resize keeps its float32 scales, and the file
// loads again with nodes in order.
static void field_30(void **state) {
    (void)state;
    char path[128], data[128], out[128];
    hn_wire_out w = {0};
    om_model(&w, 8, 13);
    om_value(&w, 11, "x", HN_F32, "1 4 6 6");
    om_weights(&w, "k", "8 4 3 3", 288);
    om_tensor(&w, 5, "scales", HN_F32, "4", (const float[]){1, 1, 2, 2}, 16);
    om_node(&w, "Conv", "x k", "a");
    om_node_begin(&w, 1, "Resize", "a - scales", "y");
    om_string(&w, "mode", "nearest");
    om_end(&w);
    om_value(&w, 12, "y", HN_F32, NULL);
    hn_module *m = parse(&w);
    snprintf(path, sizeof path, "%s/b.onnx", g_folder);
    snprintf(data, sizeof data, "%s/d.npz", g_folder);
    snprintf(out, sizeof out, "%s/o.onnx", g_folder);
    assert_int_equal(hn_onnx_save(&err, m, path), HONE_OK);
    hn_npz npz = {0};
    hn_npz_item item = {hn_strdup("x"), {0}};
    assert_int_equal(hn_tensor_new(&err, HN_F32, &(hn_shape){4, {8, 4, 6, 6}}, &item.tensor), HONE_OK);
    for (int i = 0; i < 8 * 4 * 36; i++)
        ((float *)item.tensor.data)[i] = (float)sin(i);
    assert_true(hn_vec_push(&npz.items, item));
    assert_int_equal(hn_npz_write(&err, data, &npz), HONE_OK);
    hn_npz_free(&npz);
    hn_optimize_options o = {.model_path = path, .out_path = out, .data_path = data, .seconds = 0.02, .only = "fp16", .force = "fp16",
                             .objective = HN_OBJECTIVE_SIZE};
    hn_optimize_result r;
    if (hn_optimize_run(&err, &o, &r) != HONE_OK) fail_msg("%s (%s)", err.text, err.frames[0]);
    assert_true(r.verdicts[0].kept);
    hn_optimize_result_free(&r);
    hn_module_free(m);
    assert_int_equal(hn_onnx_load(&err, out, NULL, &m), HONE_OK);
    int halves = 0;
    for (size_t i = 0; i < m->main->values.count; i++)
        halves += m->main->values.data[i]->constant && m->main->values.data[i]->type.dtype == HN_F16;
    assert_int_equal(halves, 1);
    for (const hn_node *node = m->main->first; node; node = node->next)
        if (strcmp(node->op_type, "Resize") == 0) {
            assert_int_equal(node->inputs[0]->type.dtype, HN_F32);
            assert_null(node->inputs[1]); // an absent input stays absent (field report 16)
            assert_int_equal(node->inputs[2]->type.dtype, HN_F32);
        }
    assert_int_equal(count_of(m->main, "Resize"), 1);
    hn_module_free(m);
}

int main(void) {
    snprintf(g_folder, sizeof g_folder, "/tmp/hone-field-XXXXXX");
    if (!mkdtemp(g_folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(field_01), cmocka_unit_test(field_02), cmocka_unit_test(field_05),
        cmocka_unit_test(field_07), cmocka_unit_test(field_08), cmocka_unit_test(field_09),
        cmocka_unit_test(field_14), cmocka_unit_test(field_15), cmocka_unit_test(field_18),
        cmocka_unit_test(field_30),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const k_names[] = {"m.onnx", "b.onnx", "o.onnx", "d.npz"};
    for (size_t i = 0; i < HN_COUNT_OF(k_names); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", g_folder, k_names[i]);
        unlink(path);
    }
    rmdir(g_folder);
    return failed;
}
