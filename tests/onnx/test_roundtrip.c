// SPDX-License-Identifier: Apache-2.0
// Import, export, import: what was read is written and reads back as the same graph. Given
// arguments this is a tool for the other tests: it reads lines "IN OUT" and says for each one of
// "ok IN", "unsupported IN: why", "failed IN: why".
#include "support/onnx_make.h"
#include "support/test.h"
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static hone_status read_all(hone_error *err, const char *path, char **out_data, size_t *out_bytes) {
    return hn_file_read(err, path, (size_t)1 << 31, out_data, out_bytes);
}

// Constants that nothing reads are not written.
static void drop_unused(hn_module *module) {
    for (size_t g = 0; g < module->graphs.count; g++) {
        hn_graph *graph = module->graphs.data[g];
        for (size_t i = graph->values.count; i-- > 0;) {
            hn_value *value = graph->values.data[i];
            if (value->constant && hn_value_unused(value) && !value->overridable)
                hn_value_remove(value);
        }
    }
}

// Unnamed dims have numbers that mean nothing, and a file cannot hold terms over them: every dim
// with one in it becomes "?".
static void append_normal(hn_str *out, const char *text) {
    while (*text) {
        size_t plain = strcspn(text, "[");
        hn_str_append_n(out, text, plain);
        text += plain;
        size_t inside = strcspn(text, "]\n");
        while (inside) {
            size_t dim = 1 + strcspn(text + 1, ",]\n");
            bool unnamed = memchr(text, '?', dim) != NULL;
            hn_str_append_n(out, unnamed ? "?" : text, unnamed ? 1 : dim);
            text += dim;
            inside -= dim;
        }
    }
}

// Text form of a module without the header (versions may rise); verified first.
static hone_status text_of(hone_error *err, const hn_module *module, hn_str *out_text) {
    hn_str whole = {0};
    HN_TRY(hn_module_verify(err, module));
    hn_module_print(&whole, module);
    const char *graph = strstr(hn_str_get(&whole), "\ngraph \"");
    if (graph) append_normal(out_text, graph);
    bool failed = !graph || whole.failed || out_text->failed;
    hn_str_free(&whole);
    if (failed) HN_FAIL(err, HONE_ERR_CHECK, "the text form has no graph");
    return HONE_OK;
}

// Writes the module to `out`, reads that, compares the text forms and the bytes of a second
// writing.
static hone_status check(hone_error *err, hn_module *module, const char *out,
                         const hn_onnx_options *options) {
    hn_str first = {0}, second = {0};
    hn_module *again = NULL;
    char *a = NULL, *b = NULL, path[1100];
    size_t a_bytes = 0, b_bytes = 0;
    snprintf(path, sizeof path, "%s.again", out);
    drop_unused(module);
    hone_status status = text_of(err, module, &first);
    if (status == HONE_OK) status = hn_onnx_save(err, module, out);
    if (status == HONE_OK) status = hn_onnx_load(err, out, options, &again);
    if (status == HONE_OK) status = text_of(err, again, &second);
    if (status == HONE_OK && strcmp(hn_str_get(&first), hn_str_get(&second)) != 0) {
        size_t at = 0;
        while (first.data[at] == second.data[at])
            at++;
        while (at && first.data[at - 1] != '\n')
            at--;
        status = HN_SET(err, HONE_ERR_CHECK, "the text differs: <%.160s> became <%.160s>",
                        first.data + at, second.data + at);
    }
    if (status == HONE_OK) status = hn_onnx_save(err, again, path);
    if (status == HONE_OK) status = read_all(err, out, &a, &a_bytes);
    if (status == HONE_OK) status = read_all(err, path, &b, &b_bytes);
    if (status == HONE_OK && (a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0))
        status = HN_SET(err, HONE_ERR_CHECK, "a second writing gives other bytes");
    unlink(path);
    hn_free(a);
    hn_free(b);
    hn_str_free(&first);
    hn_str_free(&second);
    hn_module_free(again);
    return status;
}

// ---- tool ---------------------------------------------------------------------------------------
static int tool(void) {
    char line[2200], in[1024], out[1024], text[2048];
    int failed = 0;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%1023s %1023s", in, out) != 2) continue;
        const hn_onnx_options options = {.keep_unknown = true};
        hone_error err = {0};
        hn_module *module = NULL;
        hone_status status = hn_onnx_load(&err, in, &options, &module);
        bool loaded = status == HONE_OK;
        if (loaded) status = check(&err, module, out, &options);
        hn_module_free(module);
        hone_error_format(&err, text, sizeof text);
        if (status == HONE_OK)
            printf("ok %s\n", in);
        else if (status == HONE_ERR_UNSUPPORTED && !loaded)
            printf("unsupported %s: %s\n", in, text);
        else
            printf("failed %s: %s\n", in, text), failed = 1;
    }
    return failed;
}

// ---- tests --------------------------------------------------------------------------------------
static hn_module *parse(hn_wire_out *w) {
    hone_error err = {0};
    hn_module *module = NULL;
    hn_onnx_options options = {.keep_unknown = true};
    if (om_parse(&err, w, NULL, &options, &module) != HONE_OK) {
        char text[2048];
        fail_msg("%s", hone_error_format(&err, text, sizeof text));
    }
    return module;
}

static hn_module *save_and_load(const hn_module *module, const char *path,
                                const hn_onnx_save_options *save) {
    hone_error err = {0};
    char text[2048];
    hn_module *again = NULL;
    hn_onnx_options options = {.keep_unknown = true};
    if (hn_onnx_save_with(&err, module, path, save) != HONE_OK ||
        hn_onnx_load(&err, path, &options, &again) != HONE_OK)
        fail_msg("%s", hone_error_format(&err, text, sizeof text));
    return again;
}

static void expect_round_trip(hn_module *module) {
    hone_error err = {0};
    char text[2048];
    hn_onnx_options options = {.keep_unknown = true};
    if (check(&err, module, "roundtrip.onnx", &options) != HONE_OK)
        fail_msg("%s", hone_error_format(&err, text, sizeof text));
    unlink("roundtrip.onnx");
}

static const hn_node *node_of(const hn_module *module, const char *op) {
    for (const hn_node *node = module->main->first; node; node = node->next)
        if (strcmp(node->op_type, op) == 0) return node;
    fail_msg("no %s", op);
    return NULL;
}

// IR 3: weights that are listed as inputs are constants. IR 4 and later: they may be overridden.
static void test_weights_as_inputs(void **state) {
    (void)state;
    for (int ir = 3; ir <= 8; ir += 5) { // field report 12
        hn_wire_out w = {0};
        om_model(&w, ir, 9);
        om_value(&w, 11, "x", HN_F32, "N 4");
        om_value(&w, 11, "w", HN_F32, "4");
        om_weights(&w, "w", "4", 4);
        om_weights(&w, "b", "4", 4);
        om_node(&w, "Add", "x w", "h");
        om_node(&w, "Add", "h b", "y");
        om_value(&w, 12, "y", HN_F32, "N 4");
        hn_module *module = parse(&w);
        assert_int_equal(module->main->inputs.count, 1);
        assert_int_equal(module->main->overridables.count, ir >= 4);
        const hn_value *weight = hn_graph_find(module->main, "w");
        assert_non_null(weight->constant);
        assert_int_equal(weight->overridable, ir >= 4);
        assert_false(hn_graph_find(module->main, "b")->overridable);
        expect_round_trip(module);
        hn_module_free(module);
    }
}

static void test_metadata(void **state) {
    (void)state;
    hn_wire_out w = {0};
    hn_wire_put_int(&w, 1, 7);
    hn_wire_put_text(&w, 2, "maker");
    hn_wire_put_text(&w, 3, "1.5");
    hn_wire_put_text(&w, 4, "org.example");
    hn_wire_put_int(&w, 5, 42);
    hn_wire_put_text(&w, 6, "about the model");
    for (int i = 0; i < 2; i++) {
        hn_wire_begin(&w, 14);
        hn_wire_put_text(&w, 1, i ? "author" : "license");
        hn_wire_put_text(&w, 2, i ? "somebody" : "a text\nof two lines");
        hn_wire_end(&w);
    }
    om_opset(&w, 8, "", 13);
    om_opset(&w, 8, "ai.onnx.ml", 2);
    hn_wire_begin(&w, 7);
    hn_wire_put_text(&w, 2, "a graph");
    hn_wire_put_text(&w, 10, "about the graph");
    hn_wire_begin(&w, 11); // an input with denotations
    hn_wire_put_text(&w, 1, "x");
    hn_wire_begin(&w, 2);
    hn_wire_begin(&w, 1);
    hn_wire_put_int(&w, 1, 1);
    hn_wire_begin(&w, 2);
    for (int i = 0; i < 2; i++) {
        hn_wire_begin(&w, 1);
        if (i)
            hn_wire_put_int(&w, 1, 3);
        else
            hn_wire_put_text(&w, 2, "batch size");
        hn_wire_put_text(&w, 3, i ? "DATA_CHANNEL" : "DATA_BATCH");
        hn_wire_end(&w);
    }
    hn_wire_end(&w);
    hn_wire_end(&w);
    hn_wire_put_text(&w, 6, "IMAGE");
    hn_wire_end(&w);
    hn_wire_put_text(&w, 3, "the picture");
    hn_wire_end(&w);
    om_node(&w, "Relu", "x", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    hn_module *module = parse(&w);
    hn_module *again = save_and_load(module, "meta.onnx", NULL);
    assert_int_equal(again->ir_version, 7);
    assert_int_equal(again->model_version, 42);
    assert_string_equal(again->producer_name, "maker");
    assert_string_equal(again->producer_version, "1.5");
    assert_string_equal(again->domain, "org.example");
    assert_string_equal(again->doc, "about the model");
    assert_string_equal(again->graph_doc, "about the graph");
    assert_string_equal(again->main->name, "a graph");
    assert_int_equal(again->metadata.count, 2);
    assert_string_equal(again->metadata.data[0].value, "a text\nof two lines");
    assert_string_equal(again->metadata.data[1].key, "author");
    const hn_value *x = again->main->inputs.data[0];
    assert_string_equal(x->doc, "the picture");
    assert_string_equal(x->denotation, "IMAGE;DATA_BATCH,DATA_CHANNEL");
    assert_string_equal(hn_dim_symbol_name(again->dims, x->type.dims[0]), "batch size");
    assert_int_equal(again->opsets.count, 2);
    hn_module_free(module);
    hn_module_free(again);
    unlink("meta.onnx");
}

// Declared dims come out as they went in, also where inference knows more. Field reports 4, 5.
static void test_declared_dims(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "batch ? 4");
    om_node(&w, "Relu", "x", "y");
    om_node(&w, "Relu", "y", "z");
    om_value(&w, 12, "y", HN_F32, "rows ? cols");
    om_value(&w, 12, "z", HN_F32, NULL);
    hn_module *module = parse(&w);
    hn_module *again = save_and_load(module, "dims.onnx", NULL);
    const hn_type *in = &again->main->inputs.data[0]->type, *out = &again->main->declared.data[0];
    assert_int_equal(in->rank, 3);
    assert_string_equal(hn_dim_symbol_name(again->dims, in->dims[0]), "batch");
    assert_false(hn_dim_is_const(in->dims[1]));
    assert_string_equal(hn_dim_symbol_name(again->dims, in->dims[1]), "");
    assert_int_equal(in->dims[2], 4);
    assert_int_equal(out->rank, 3);
    assert_string_equal(hn_dim_symbol_name(again->dims, out->dims[0]), "rows");
    assert_string_equal(hn_dim_symbol_name(again->dims, out->dims[1]), "");
    assert_string_equal(hn_dim_symbol_name(again->dims, out->dims[2]), "cols");
    hn_module_free(module);
    hn_module_free(again);
    unlink("dims.onnx");
}

// Every storage form gives the same elements.
static void test_storage_forms(void **state) {
    (void)state;
    static const struct {
        hn_dtype dtype;
        uint32_t field; // 4 float, 5 int32, 7 int64, 10 double, 11 uint64
        int64_t values[3];
        double expected[3];
    } k_cases[] = {
        {HN_F32, 4, {1, 2, 3}, {1, 2, 3}},
        {HN_F64, 10, {1, 2, 3}, {1, 2, 3}},
        {HN_I32, 5, {-1, 2, 2147483647}, {-1, 2, 2147483647}},
        {HN_I8, 5, {-128, 0, 127}, {-128, 0, 127}},
        {HN_U8, 5, {255, 0, 127}, {255, 0, 127}},
        {HN_I16, 5, {-32768, 5, 32767}, {-32768, 5, 32767}},
        {HN_U16, 5, {65535, 5, 0}, {65535, 5, 0}},
        {HN_BOOL, 5, {0, 1, 7}, {0, 1, 1}},
        {HN_F16, 5, {0x3c00, 0xc000, 0}, {1, -2, 0}},
        {HN_BF16, 5, {0x3f80, 0xc000, 0}, {1, -2, 0}},
        {HN_I64, 7, {INT64_C(-5), 1, 1 << 30}, {-5, 1, 1 << 30}},
        {HN_U32, 11, {4294967295, 1, 0}, {4294967295, 1, 0}},
        {HN_U64, 11, {1, 2, 3}, {1, 2, 3}},
        {HN_U4, 5, {0x21, 0x0f}, {1, 2, 15}},
        {HN_I4, 5, {0xf1, 0x08}, {1, -1, -8}},
        {HN_F8E4M3FN, 5, {0x38, 0xb8, 0}, {1, -1, 0}},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        for (int packed = 0; packed < 2; packed++) {
            hn_wire_out w = {0};
            int count = hn_dtype_bits(k_cases[i].dtype) < 8 ? 2 : 3;
            om_model(&w, 10, 21);
            hn_wire_begin(&w, 5);
            hn_wire_put_int(&w, 1, 3);
            hn_wire_put_int(&w, 2, k_cases[i].dtype);
            hn_wire_put_text(&w, 8, "w");
            float f[3];
            double d[3];
            for (int k = 0; k < 3; k++) {
                f[k] = (float)k_cases[i].values[k];
                d[k] = (double)k_cases[i].values[k];
            }
            uint32_t field = k_cases[i].field;
            if (field == 4 && packed)
                hn_wire_put_floats(&w, 4, f, 3);
            else if (field == 10 && packed)
                hn_wire_put_bytes(&w, 10, d, sizeof d);
            else if (packed)
                hn_wire_put_ints(&w, field, k_cases[i].values, count);
            for (int k = 0; k < count && !packed; k++) {
                if (field == 4)
                    hn_wire_put_float(&w, 4, f[k]);
                else if (field == 10)
                    hn_wire_put_bytes(&w, 10, &d[k], 8); // a chunk of one
                else
                    hn_wire_put_int(&w, field, k_cases[i].values[k]);
            }
            hn_wire_end(&w);
            om_node(&w, "Identity", "w", "y");
            om_value(&w, 12, "y", k_cases[i].dtype, "3");
            hn_module *module = parse(&w);
            for (int round = 0; round < 2; round++) { // as read, and after writing raw data
                const hn_value *value = hn_graph_find(module->main, "w");
                assert_int_equal(value->type.dtype, k_cases[i].dtype);
                for (int k = 0; k < 3; k++)
                    if (hn_tensor_get_f64(value->constant, k) != k_cases[i].expected[k])
                        fail_msg("%s element %d: %g", hn_dtype_name(k_cases[i].dtype), k,
                                 hn_tensor_get_f64(value->constant, k));
                if (round) break;
                expect_round_trip(module);
                hn_module *again = save_and_load(module, "forms.onnx", NULL);
                hn_module_free(module);
                module = again;
            }
            hn_module_free(module);
        }
    }
    unlink("forms.onnx");
}

static void test_sparse(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    hn_wire_begin(&w, 15);
    om_tensor(&w, 1, "w", HN_F32, "2", (float[]){5, 7}, 8);
    om_tensor(&w, 2, "", HN_I64, "2 2", (int64_t[]){0, 2, 1, 0}, 32);
    hn_wire_put_ints(&w, 3, (int64_t[]){2, 3}, 2);
    hn_wire_end(&w);
    om_node(&w, "Identity", "w", "y");
    om_value(&w, 12, "y", HN_F32, "2 3");
    hn_module *module = parse(&w);
    const float expected[6] = {0, 0, 5, 7, 0, 0};
    assert_memory_equal(hn_graph_find(module->main, "w")->constant->data, expected, 24);
    hn_module_free(module);
}

// Absent inputs keep their place; nodes may come in any order; a shadowed name in a sub-graph is
// not the outer one. Field reports 11, 16.
static void test_graphs(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "1 1 2 2");
    om_value(&w, 11, "c", HN_BOOL, "");
    om_node(&w, "Neg", "r", "n"); // before what it reads
    om_node_begin(&w, 1, "Resize", "x - s", "r");
    om_string(&w, "mode", "nearest");
    om_end(&w);
    om_tensor(&w, 5, "s", HN_F32, "4", (float[]){1, 1, 2, 2}, 16);
    om_node_begin(&w, 1, "If", "c", "y");
    for (int i = 0; i < 2; i++) {
        om_graph_begin(&w, i ? "else_branch" : "then_branch");
        om_node(&w, "Abs", "n", "t");  // captured n; the same inner names in both branches
        om_node(&w, "Relu", "t", "r"); // hides the outer r
        om_value(&w, 12, i ? "n" : "r", HN_F32, NULL); // an outer value as output
        om_end(&w);
        om_end(&w);
    }
    om_end(&w);
    om_value(&w, 12, "y", HN_F32, NULL);
    hn_module *module = parse(&w);
    hone_error err = {0};
    assert_int_equal(hn_module_verify(&err, module), HONE_OK);
    const hn_node *resize = node_of(module, "Resize");
    assert_int_equal(resize->input_count, 3);
    assert_null(resize->inputs[1]);
    assert_string_equal(resize->inputs[2]->name, "s");
    assert_ptr_equal(module->main->first, resize);
    const hn_node *branch = node_of(module, "If");
    const hn_graph *then_graph = hn_node_attr(branch, "then_branch")->graph;
    assert_ptr_equal(then_graph->first->inputs[0], node_of(module, "Neg")->outputs[0]);
    assert_ptr_equal(then_graph->outputs.data[0], then_graph->first->next->outputs[0]);
    const hn_graph *else_graph = hn_node_attr(branch, "else_branch")->graph;
    assert_string_equal(else_graph->outputs.data[0]->producer->op_type, "Identity");
    expect_round_trip(module);
    hn_module_free(module);
}

static void test_constants(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "2");
    om_node_begin(&w, 1, "Constant", "", "a");
    om_floats(&w, "value_floats", (float[]){1.5f, -2}, 2);
    om_end(&w);
    om_node_begin(&w, 1, "Constant", "", "b");
    om_int(&w, "value_int", -7);
    om_end(&w);
    om_node_begin(&w, 1, "Constant", "", "c");
    om_ints(&w, "value_ints", (int64_t[]){1, -2, 3}, 3);
    om_end(&w);
    om_node_begin(&w, 1, "Constant", "", "d");
    om_float(&w, "value_float", 0.5f);
    om_end(&w);
    om_node(&w, "Add", "x a", "y");
    const char *const outputs[] = {"y", "b", "c", "d", "x"}; // constants and an input as outputs
    for (int i = 0; i < 5; i++)
        om_value(&w, 12, outputs[i], i == 1 || i == 2 ? HN_I64 : HN_F32, NULL);
    hn_module *module = parse(&w);
    assert_ptr_equal(module->main->first, module->main->last); // the Add alone
    assert_int_equal(((const int64_t *)module->main->outputs.data[1]->constant->data)[0], -7);
    assert_int_equal(module->main->outputs.data[1]->type.rank, 0);
    assert_int_equal(((const int64_t *)module->main->outputs.data[2]->constant->data)[2], 3);
    expect_round_trip(module);
    hn_module_free(module);
}

// Nested functions with attribute references, defaults, absent inputs, passed-through outputs.
static void test_functions(void **state) {
    (void)state;
    hn_wire_out w = {0};
    hn_wire_put_int(&w, 1, 8);
    om_opset(&w, 8, "", 17);
    om_opset(&w, 8, "f", 1);
    hn_wire_begin(&w, 25); // Leaky(a, unused) -> b with attribute slope, default 0.5
    hn_wire_put_text(&w, 1, "Leaky");
    hn_wire_put_text(&w, 10, "f");
    hn_wire_put_text(&w, 4, "a");
    hn_wire_put_text(&w, 4, "low");
    hn_wire_put_text(&w, 5, "b");
    om_opset(&w, 9, "", 17);
    hn_wire_begin(&w, 11);
    hn_wire_put_text(&w, 1, "slope");
    hn_wire_put_float(&w, 2, 0.5f);
    hn_wire_put_int(&w, 20, 1);
    hn_wire_end(&w);
    om_node_begin(&w, 7, "LeakyRelu", "a", "t");
    om_ref(&w, "alpha", "slope", 1);
    om_end(&w);
    om_node_begin(&w, 7, "Clip", "t low", "b");
    om_end(&w);
    hn_wire_end(&w);
    hn_wire_begin(&w, 25); // Pair(a) -> a, d: calls Leaky with its own attribute k
    hn_wire_put_text(&w, 1, "Pair");
    hn_wire_put_text(&w, 10, "f");
    hn_wire_put_text(&w, 4, "a");
    hn_wire_put_text(&w, 5, "a");
    hn_wire_put_text(&w, 5, "d");
    hn_wire_put_text(&w, 6, "k");
    om_opset(&w, 9, "", 17);
    om_opset(&w, 9, "f", 1);
    om_node_begin(&w, 7, "f:Leaky", "a", "d");
    om_ref(&w, "slope", "k", 1);
    om_end(&w);
    hn_wire_end(&w);
    hn_wire_begin(&w, 7);
    hn_wire_put_text(&w, 2, "g");
    om_value(&w, 11, "x", HN_F32, "4");
    om_node_begin(&w, 1, "f:Pair", "x", "p q");
    om_float(&w, "k", 0.125f);
    om_end(&w);
    om_node(&w, "f:Leaky", "q", "y"); // the default slope
    om_value(&w, 12, "p", HN_F32, "4");
    om_value(&w, 12, "y", HN_F32, "4");
    hn_module *module = parse(&w);
    int leaky = 0, identities = 0, others = 0;
    for (const hn_node *node = module->main->first; node; node = node->next) {
        if (strcmp(node->op_type, "LeakyRelu") == 0) {
            float alpha = hn_node_float(node, "alpha", -1);
            assert_true(alpha == (leaky ? 0.5f : 0.125f));
            leaky++;
        } else if (strcmp(node->op_type, "Clip") == 0) {
            assert_int_equal(node->input_count, 1); // the absent input is absent inside as well
        } else if (strcmp(node->op_type, "Identity") == 0) {
            assert_string_equal(node->outputs[0]->name, "p");
            identities++;
        } else {
            others++;
        }
    }
    assert_int_equal(leaky, 2);
    assert_int_equal(identities, 1);
    assert_int_equal(others, 0);
    expect_round_trip(module);
    hn_module_free(module);
}

// Weights beyond the limit go to a file of their own; the same module gives the same bytes.
static void test_external_data(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "4 1000");
    om_weights(&w, "w", "1000 10", 10000);
    om_weights(&w, "v", "10 1000", 10000);
    om_weights(&w, "small", "10", 10);
    om_node(&w, "MatMul", "x w", "a");
    om_node(&w, "Add", "a small", "b");
    om_node(&w, "MatMul", "b v", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    hn_module *module = parse(&w);
    char folder[] = "save-XXXXXX", path[64], data[72];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    snprintf(data, sizeof data, "%s.data", path);
    hn_module *again = save_and_load(module, path, &(hn_onnx_save_options){4096});
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size < 2000);
    assert_int_equal(stat(data, &info), 0);
    assert_int_equal(info.st_size, 40960 + 40000);
    const char *const names[] = {"w", "v", "small"};
    for (int i = 0; i < 3; i++) {
        const hn_tensor *a = hn_graph_find(module->main, names[i])->constant,
                        *b = hn_graph_find(again->main, names[i])->constant;
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
        if (i < 2) assert_int_equal((uintptr_t)b->data % 4096, 0); // a view of the mapping
    }
    // Written over the files that it is mapped from.
    hone_error err = {0};
    assert_int_equal(hn_onnx_save_with(&err, again, path, &(hn_onnx_save_options){4096}), HONE_OK);
    assert_memory_equal(hn_graph_find(module->main, "v")->constant->data,
                        hn_graph_find(again->main, "v")->constant->data, 40000);
    hn_module_free(again);
    again = save_and_load(module, path, NULL); // all inside
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size > 80000);
    hn_module_free(again);
    hn_module_free(module);
    unlink(path);
    unlink(data);
    rmdir(folder);
}

// Nothing is left behind where the model cannot be written.
static void test_failed_save(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "4");
    om_node(&w, "Relu", "x", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    hn_module *module = parse(&w);
    hone_error err = {0};
    assert_int_equal(hn_onnx_save(&err, module, "no-such-folder/m.onnx"), HONE_ERR_IO);
    module->main->first->post_count = 1; // a fused step of a device graph
    module->main->first->base_input_count = 1;
    assert_int_equal(hn_onnx_save(&err, module, "internal.onnx"), HONE_ERR_INTERNAL);
    assert_non_null(strstr(err.text, "Relu"));
    assert_int_not_equal(access("internal.onnx", F_OK), 0);
    hn_module_free(module);
}

static int files_in(const char *folder) {
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

// Each allocation of a save fails once: out of memory, and no file left, neither whole nor in part.
static void test_save_out_of_memory(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 11);
    om_value(&w, 11, "x", HN_F32, "N 1000");
    om_weights(&w, "w", "1000 10", 10000);
    for (int i = 0; i < 40; i++) {
        char in[16], out[16];
        snprintf(in, sizeof in, i ? "v%d w" : "x w", i - 1);
        snprintf(out, sizeof out, "v%d", i);
        om_node(&w, i ? "Relu" : "MatMul", i ? strtok(in, " ") : in, out);
    }
    om_value(&w, 12, "v39", HN_F32, NULL);
    hn_module *module = parse(&w);
    char folder[] = "oom-XXXXXX", path[64], data[72];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    snprintf(data, sizeof data, "%s.data", path);
    hone_status status = HONE_ERR_NOMEM;
    int n = 0;
    while (status != HONE_OK) {
        hone_error err = {0};
        hn_alloc_fail_nth((uint64_t)++n);
        status = hn_onnx_save_with(&err, module, path, &(hn_onnx_save_options){4096});
        hn_alloc_fail_nth(0);
        if (status != HONE_OK && status != HONE_ERR_NOMEM) fail_msg("%d: %s", n, err.text);
        assert_int_equal(files_in(folder), status == HONE_OK ? 2 : 0);
        assert_true(n < 1000);
    }
    assert_true(n > 5);
    unlink(path);
    unlink(data);
    rmdir(folder);
    hn_module_free(module);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return tool();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_as_inputs),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_declared_dims),
        cmocka_unit_test(test_storage_forms),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_external_data),
        cmocka_unit_test(test_failed_save),
        cmocka_unit_test(test_save_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
