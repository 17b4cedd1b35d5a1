// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// Broken, truncated and hostile files: each gives its status and one sentence with the reason.
#include "support/onnx_make.h"
#include "support/test.h"
#include <unistd.h>

static void header(hn_wire_out *w) {
    om_model(w, 8, 17);
    om_value(w, 11, "x", HN_F32, "1 4");
}

// Expects a failure whose text has all of the blank-separated words (underscores are blanks).
static void expect(hn_wire_out *w, hone_status status, const char *words) {
    hone_error err = {0};
    hn_module *module = NULL;
    char text[2048], word[128];
    hn_onnx_options options = {.keep_unknown = true};
    hone_status got = om_parse(&err, w, NULL, &options, &module);
    hone_error_format(&err, text, sizeof text);
    if (got != status) fail_msg("status %d (%s), not %d: %s", got, text, status, words);
    assert_null(strchr(err.text, '\n'));
    while (*words) {
        size_t length = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        for (char *c = word; *c; c++)
            if (*c == '_') *c = ' ';
        if (!strstr(text, word)) fail_msg("'%s' lacks '%s'", text, word);
        words += length;
        while (*words == ' ')
            words++;
    }
}

// A model with everything in it: weights, a sub-graph, a function, attributes of every kind.
static uint8_t *rich_model(size_t *out_bytes) {
    hn_wire_out w = {0};
    hn_wire_put_int(&w, 1, 8);
    om_opset(&w, 8, "", 17);
    om_opset(&w, 8, "f", 1);
    hn_wire_begin(&w, 25); // function f:Twice
    hn_wire_put_text(&w, 1, "Twice");
    hn_wire_put_text(&w, 10, "f");
    hn_wire_put_text(&w, 4, "a");
    hn_wire_put_text(&w, 5, "b");
    om_opset(&w, 9, "", 17);
    om_node_begin(&w, 7, "Add", "a a", "b");
    om_end(&w);
    hn_wire_end(&w);
    hn_wire_begin(&w, 7);
    hn_wire_put_text(&w, 2, "g");
    om_value(&w, 11, "x", HN_F32, "N 4");
    om_value(&w, 12, "y", HN_F32, "N 4");
    om_value(&w, 13, "h", HN_F32, "N 4");
    om_weights(&w, "w", "4 4", 16);
    om_node(&w, "MatMul", "x w", "h");
    om_node_begin(&w, 1, "LeakyRelu", "h", "r");
    om_float(&w, "alpha", 0.25f);
    om_end(&w);
    om_node(&w, "f:Twice", "r", "t");
    om_node_begin(&w, 1, "Transpose", "t", "p");
    om_ints(&w, "perm", (int64_t[]){0, 1}, 2);
    om_end(&w);
    om_node(&w, "ReduceMax", "p", "m");
    om_node_begin(&w, 1, "Cast", "m", "c");
    om_int(&w, "to", HN_BOOL);
    om_end(&w);
    om_node_begin(&w, 1, "If", "c", "y");
    om_graph_begin(&w, "then_branch");
    om_node(&w, "Relu", "p", "i");
    om_value(&w, 12, "i", HN_F32, NULL);
    om_end(&w);
    om_end(&w);
    om_graph_begin(&w, "else_branch");
    om_node(&w, "Neg", "p", "j");
    om_value(&w, 12, "j", HN_F32, NULL);
    om_end(&w);
    om_end(&w);
    om_end(&w);
    return om_finish(&w, out_bytes);
}

static hone_status parse(hone_error *err, const uint8_t *data, size_t bytes) {
    hn_module *module = NULL;
    hn_onnx_options options = {.keep_unknown = true};
    hone_status status = om_parse_bytes(err, data, bytes, NULL, &options, &module);
    if (status == HONE_OK) hn_module_free(module);
    return status;
}

static void test_truncated(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *data = rich_model(&bytes);
    hone_error err = {0};
    hone_status whole = parse(&err, data, bytes);
    if (whole != HONE_OK) fail_msg("%s", err.text);
    for (size_t cut = 0; cut < bytes; cut++) { // each byte, not only each 64th
        err = (hone_error){0};
        assert_int_equal(parse(&err, data, cut), HONE_ERR_FORMAT);
        assert_true(strlen(err.text) > 10);
    }
    hn_free(data);
}

// Any change of a byte gives a model or a sentence, never a crash.
static void test_flipped_bytes(void **state) {
    (void)state;
    static const uint8_t k_masks[] = {0x01, 0x80, 0xff, 0x07, 0x40};
    size_t bytes, failed = 0;
    uint8_t *data = rich_model(&bytes);
    for (size_t i = 0; i < bytes; i++) {
        for (size_t m = 0; m < HN_COUNT_OF(k_masks); m++) {
            hone_error err = {0};
            data[i] ^= k_masks[m];
            hone_status status = parse(&err, data, bytes);
            data[i] ^= k_masks[m];
            failed += status != HONE_OK;
            if (status == HONE_OK) continue;
            assert_true(status == HONE_ERR_FORMAT || status == HONE_ERR_LIMIT ||
                        status == HONE_ERR_UNSUPPORTED);
            assert_true(strlen(err.text) > 10);
        }
    }
    assert_true(failed > bytes);
    hn_free(data);
}

static void test_no_model(void **state) {
    (void)state;
    hone_error err = {0};
    assert_int_equal(parse(&err, (const uint8_t *)"", 0), HONE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "empty"));
    assert_int_equal(parse(&err, (const uint8_t *)"hello, world\n", 13), HONE_ERR_FORMAT);
    hn_wire_out w = {0};
    om_opset(&w, 8, "", 17);
    expect(&w, HONE_ERR_FORMAT, "no_ONNX_model");
    om_model(&w, 8, 6);
    expect(&w, HONE_ERR_UNSUPPORTED, "opset_6 7_to_27");
    om_model(&w, 8, 28);
    expect(&w, HONE_ERR_UNSUPPORTED, "opset_28");
    om_model(&w, 2, 17);
    expect(&w, HONE_ERR_UNSUPPORTED, "IR_version_2");
    header(&w);
    om_node(&w, "Relu", "x", "y");
    expect(&w, HONE_ERR_FORMAT, "no_outputs");
}

// ---- names --------------------------------------------------------------------------------------
static void test_names(void **state) {
    (void)state;
    hn_wire_out w = {0};
    header(&w);
    om_node(&w, "Relu", "nowhere", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "'nowhere' nothing_produces Relu 'y'");
    header(&w);
    om_node(&w, "Relu", "x", "y");
    om_node(&w, "Neg", "x", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "Neg 'y' already");
    header(&w);
    om_node(&w, "Relu", "x", "x");
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "Relu 'x' already");
    header(&w);
    om_value(&w, 11, "x", HN_F32, "1 4");
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "two_graph_inputs 'x'");
    header(&w);
    om_weights(&w, "w", "2", 2);
    om_weights(&w, "w", "2", 2);
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "two_weights 'w'");
    header(&w);
    om_value(&w, 12, "gone", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "output 'gone' no_node");
    header(&w);
    om_node_begin(&w, 1, "", "x", "y");
    om_end(&w);
    om_value(&w, 12, "y", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "'y' no_operator");
    header(&w);
    om_node_begin(&w, 1, "LeakyRelu", "x", "y");
    om_float(&w, "alpha", 1);
    om_float(&w, "alpha", 2);
    om_end(&w);
    om_value(&w, 12, "y", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "'alpha' twice LeakyRelu");
    header(&w);
    om_node(&w, "hn:ConvGradData", "x x x", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "ConvGradData 'hn' internal");
    header(&w); // a zero byte would cut the name short
    hn_wire_begin(&w, 1);
    hn_wire_put_text(&w, 1, "x");
    hn_wire_put_bytes(&w, 2, "y\0z", 3);
    hn_wire_put_text(&w, 4, "Relu");
    om_end(&w);
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "zero_byte");
}

static void test_cycles(void **state) {
    (void)state;
    hn_wire_out w = {0};
    header(&w);
    om_node(&w, "Add", "x b", "a");
    om_node(&w, "Relu", "a", "b");
    om_value(&w, 12, "b", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "cycle");
    header(&w);
    om_node(&w, "Add", "x a", "a");
    om_value(&w, 12, "a", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "cycle");
    // Through a capture: the If reads in its branch what is made of its result.
    header(&w);
    om_value(&w, 11, "c", HN_BOOL, "");
    om_node_begin(&w, 1, "If", "c", "y");
    for (int i = 0; i < 2; i++) {
        om_graph_begin(&w, i ? "else_branch" : "then_branch");
        om_node(&w, "Neg", "z", i ? "e" : "t");
        om_value(&w, 12, i ? "e" : "t", HN_F32, NULL);
        om_end(&w);
        om_end(&w);
    }
    om_end(&w);
    om_node(&w, "Relu", "y", "z");
    om_value(&w, 12, "z", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "cycle");
}

// ---- tensors ------------------------------------------------------------------------------------
static void tensor_case(hn_dtype dtype, const char *dims, size_t bytes, hone_status status,
                        const char *words) {
    static const char k_data[64];
    hn_wire_out w = {0};
    header(&w);
    om_tensor(&w, 5, "w", dtype, dims, k_data, bytes);
    om_node(&w, "Add", "x w", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    expect(&w, status, words);
}

static void test_tensors(void **state) {
    (void)state;
    tensor_case(HN_F32, "4", 12, HONE_ERR_FORMAT, "'w' 12_bytes 16");
    tensor_case(HN_F32, "2", 12, HONE_ERR_FORMAT, "'w' 12_bytes 8");
    tensor_case(HN_F32, "4", 0, HONE_ERR_FORMAT, "'w'");
    tensor_case(HN_F32, "-1", 4, HONE_ERR_FORMAT, "'w' negative_dim_-1");
    tensor_case(HN_F32, "4611686018427387904 4", 16, HONE_ERR_LIMIT, "'w' overflow");
    tensor_case(HN_F64, "2305843009213693952", 16, HONE_ERR_LIMIT, "'w' overflow");
    tensor_case(HN_F32, "1000000 1000000", 16, HONE_ERR_FORMAT, "'w' 16_bytes 4000000000000");
    tensor_case((hn_dtype)77, "4", 16, HONE_ERR_FORMAT, "'w' element_type_77");
    tensor_case(HN_NONE, "4", 16, HONE_ERR_FORMAT, "'w' element_type_0");
    tensor_case(HN_STRING, "1", 4, HONE_ERR_UNSUPPORTED, "'w' strings");
    tensor_case(HN_F32, "1 1 1 1 1 1 1 1 1", 4, HONE_ERR_UNSUPPORTED, "'w' 9_dims");
    tensor_case(HN_I4, "3", 1, HONE_ERR_FORMAT, "'w' 1_bytes 2");
}

static void begin_tensor(hn_wire_out *w, hn_dtype dtype, int64_t count) {
    header(w);
    om_node(w, "Add", "x w", "y");
    om_value(w, 12, "y", HN_F32, NULL);
    hn_wire_begin(w, 5);
    hn_wire_put_int(w, 1, count);
    hn_wire_put_int(w, 2, dtype);
    hn_wire_put_text(w, 8, "w");
}

static void test_typed_data(void **state) {
    (void)state;
    hn_wire_out w = {0};
    begin_tensor(&w, HN_I64, 3); // too few
    hn_wire_put_ints(&w, 7, (int64_t[]){1, 2}, 2);
    expect(&w, HONE_ERR_FORMAT, "'w' 2_elements 3");
    begin_tensor(&w, HN_I64, 1); // too many
    hn_wire_put_ints(&w, 7, (int64_t[]){1, 2}, 2);
    expect(&w, HONE_ERR_FORMAT, "'w' more_elements");
    begin_tensor(&w, HN_U8, 2); // out of range
    hn_wire_put_ints(&w, 5, (int64_t[]){255, 256}, 2);
    expect(&w, HONE_ERR_FORMAT, "element_1 'w' 256 u8");
    begin_tensor(&w, HN_I64, 1); // the wrong list for the type
    hn_wire_put_floats(&w, 4, (float[]){1}, 1);
    expect(&w, HONE_ERR_FORMAT, "'w'");
    begin_tensor(&w, HN_F32, 1); // two forms
    hn_wire_put_floats(&w, 4, (float[]){1}, 1);
    hn_wire_put_bytes(&w, 9, "abcd", 4);
    expect(&w, HONE_ERR_FORMAT, "'w' two_forms");
    begin_tensor(&w, HN_I64, (int64_t)1 << 50); // asks for all memory, has one byte
    hn_wire_put_ints(&w, 7, (int64_t[]){1}, 1);
    expect(&w, HONE_ERR_FORMAT, "'w'");
    begin_tensor(&w, HN_I64, 1); // a varint that never ends, inside a packed list
    hn_wire_put_bytes(&w, 7, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11);
    expect(&w, HONE_ERR_FORMAT, "'w' 64_bits");
    begin_tensor(&w, HN_F32, 1);
    hn_wire_begin(&w, 3); // segment
    hn_wire_put_int(&w, 1, 0);
    hn_wire_end(&w);
    expect(&w, HONE_ERR_UNSUPPORTED, "'w' segments");
}

static void test_sparse(void **state) {
    (void)state;
    hn_wire_out w = {0};
    static const struct {
        int64_t dim, index;
        hone_status status;
        const char *words;
    } k_cases[] = {
        {4, 4, HONE_ERR_FORMAT, "index_0 'w' outside"},
        {4, -1, HONE_ERR_FORMAT, "index_0 'w' outside"},
        {(int64_t)1 << 40, 1, HONE_ERR_LIMIT, "'w' 64_MiB"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        header(&w);
        om_value(&w, 12, "x", HN_F32, NULL);
        hn_wire_begin(&w, 15);
        om_tensor(&w, 1, "w", HN_F32, "1", "abcd", 4);
        om_tensor(&w, 2, "", HN_I64, "1", &k_cases[i].index, 8);
        hn_wire_put_int(&w, 3, k_cases[i].dim);
        hn_wire_end(&w);
        expect(&w, k_cases[i].status, k_cases[i].words);
    }
}

static void test_types(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "-7");
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "input 'x' negative_dim_-7");
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", (hn_dtype)99, "1");
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_FORMAT, "'x' element_type_99");
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "1 2 3 4 5 6 7 8 9");
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_UNSUPPORTED, "'x' 9_dims");
    om_model(&w, 8, 17); // a sequence
    hn_wire_begin(&w, 11);
    hn_wire_put_text(&w, 1, "x");
    hn_wire_begin(&w, 2);
    hn_wire_begin(&w, 4);
    hn_wire_end(&w);
    hn_wire_end(&w);
    hn_wire_end(&w);
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, HONE_ERR_UNSUPPORTED, "'x' no_tensor sequences");
}

// ---- nesting and functions ----------------------------------------------------------------------
// depth sub-graphs, written from the inside out: the writer's own bound does not matter here.
static uint8_t *nested(int depth, size_t *out_bytes) {
    hn_str inner = {0};
    for (int i = 0; i < depth; i++) {
        hn_wire_out w = {0};
        hn_wire_begin(&w, 1); // node of the graph around it
        hn_wire_put_text(&w, 1, "c");
        hn_wire_put_text(&w, 2, "o");
        hn_wire_put_text(&w, 4, "If");
        hn_wire_begin(&w, 5);
        hn_wire_put_text(&w, 1, "then_branch");
        hn_wire_put_int(&w, 20, 5);
        hn_wire_put_bytes(&w, 6, hn_str_get(&inner), inner.length);
        size_t bytes;
        uint8_t *data = om_finish(&w, &bytes);
        hn_str_free(&inner);
        hn_str_append_n(&inner, (const char *)data, bytes);
        hn_free(data);
    }
    hn_wire_out w = {0};
    hn_wire_put_int(&w, 1, 8);
    om_opset(&w, 8, "", 17);
    hn_wire_put_bytes(&w, 7, hn_str_get(&inner), inner.length);
    hn_str_free(&inner);
    return om_finish(&w, out_bytes);
}

static void test_deep_nesting(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *data = nested(10000, &bytes);
    hone_error err = {0};
    hone_status status = parse(&err, data, bytes);
    // The bound on depth is met, or the condition that nothing makes: either way before the stack.
    assert_true(status == HONE_ERR_LIMIT || status == HONE_ERR_FORMAT);
    hn_free(data);
    hn_wire_out w = {0};
    header(&w);
    om_value(&w, 11, "c", HN_BOOL, "");
    for (int i = 0; i < 40; i++) {
        om_node_begin(&w, 1, "If", "c", "o");
        om_graph_begin(&w, "then_branch");
    }
    expect(&w, HONE_ERR_LIMIT, "nested_deeper_than_32");
}

static void begin_functions(hn_wire_out *w) {
    hn_wire_put_int(w, 1, 8);
    om_opset(w, 8, "", 17);
    om_opset(w, 8, "f", 1);
}

static void function(hn_wire_out *w, const char *name, const char *body_op, int calls) {
    hn_wire_begin(w, 25);
    hn_wire_put_text(w, 1, name);
    hn_wire_put_text(w, 10, "f");
    hn_wire_put_text(w, 4, "a");
    hn_wire_put_text(w, 5, "b");
    om_opset(w, 9, "", 17);
    om_opset(w, 9, "f", 1);
    for (int i = 0; i < calls; i++) {
        char output[16];
        snprintf(output, sizeof output, i ? "b%d" : "b", i);
        om_node_begin(w, 7, body_op, "a", output);
        om_end(w);
    }
    hn_wire_end(w);
}

static void call_main(hn_wire_out *w, const char *op, const char *inputs, const char *outputs) {
    hn_wire_begin(w, 7);
    hn_wire_put_text(w, 2, "g");
    om_value(w, 11, "x", HN_F32, "1 4");
    om_node(w, op, inputs, outputs);
    om_value(w, 12, "y", HN_F32, NULL);
}

static void test_functions(void **state) {
    (void)state;
    hn_wire_out w = {0};
    begin_functions(&w);
    function(&w, "A", "f:A", 1);
    call_main(&w, "f:A", "x", "y");
    expect(&w, HONE_ERR_FORMAT, "'A' calls_itself");
    begin_functions(&w);
    function(&w, "A", "f:B", 1);
    function(&w, "B", "f:A", 1);
    call_main(&w, "f:A", "x", "y");
    expect(&w, HONE_ERR_FORMAT, "calls_itself");
    begin_functions(&w); // 10^20 nodes from a kilobyte
    for (int i = 0; i < 20; i++) {
        char name[8], next[8];
        snprintf(name, sizeof name, "L%d", i);
        snprintf(next, sizeof next, i == 19 ? "Relu" : "f:L%d", i + 1);
        function(&w, name, next, 10);
    }
    call_main(&w, "f:L0", "x", "y");
    expect(&w, HONE_ERR_LIMIT, "more_than nodes");
    begin_functions(&w); // deeper than calls may go
    for (int i = 0; i < 40; i++) {
        char name[8], next[8];
        snprintf(name, sizeof name, "L%d", i);
        snprintf(next, sizeof next, i == 39 ? "Relu" : "f:L%d", i + 1);
        function(&w, name, next, 1);
    }
    call_main(&w, "f:L0", "x", "y");
    expect(&w, HONE_ERR_LIMIT, "deeper_than_32");
    begin_functions(&w);
    function(&w, "A", "Relu", 0);
    call_main(&w, "f:A", "x", "y");
    expect(&w, HONE_ERR_FORMAT, "does_not_produce 'b'");
    begin_functions(&w);
    function(&w, "A", "Relu", 1);
    function(&w, "A", "Relu", 1);
    call_main(&w, "f:A", "x", "y");
    expect(&w, HONE_ERR_FORMAT, "two_model_functions 'A'");
    begin_functions(&w);
    function(&w, "A", "Relu", 1);
    call_main(&w, "f:A", "x x", "y");
    expect(&w, HONE_ERR_FORMAT, "2_inputs function_with_1");
    begin_functions(&w);
    function(&w, "A", "Relu", 1);
    call_main(&w, "f:A", "x", "y z");
    expect(&w, HONE_ERR_FORMAT, "2_outputs function_with_1");
}

// ---- external data ------------------------------------------------------------------------------
static void external(hn_wire_out *w, const char *location, const char *offset, const char *length) {
    const char *const entries[][2] = {
        {"location", location}, {"offset", offset}, {"length", length}};
    begin_tensor(w, HN_F32, 4);
    hn_wire_put_int(w, 14, 1);
    for (int i = 0; i < 3; i++) {
        if (!entries[i][1]) continue;
        hn_wire_begin(w, 13);
        hn_wire_put_text(w, 1, entries[i][0]);
        hn_wire_put_text(w, 2, entries[i][1]);
        hn_wire_end(w);
    }
}

static void expect_external(hn_wire_out *w, const char *folder, const char *words) {
    hone_error err = {0};
    hn_module *module = NULL;
    char text[2048];
    hn_onnx_options options = {.keep_unknown = true};
    hone_status got = om_parse(&err, w, folder, &options, &module);
    hone_error_format(&err, text, sizeof text);
    if (got != HONE_ERR_FORMAT || !strstr(text, words)) fail_msg("%d %s: %s", got, text, words);
    assert_non_null(strstr(text, "'w'"));
}

static void test_external(void **state) {
    (void)state;
    char folder[] = "external-XXXXXX", path[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/w.bin", folder);
    hone_error err = {0};
    assert_int_equal(hn_file_write(&err, path, "0123456789abcdefgh", 18), HONE_OK);
    char link_path[128];
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    assert_int_equal(symlink("/etc/passwd", link_path), 0);
    hn_wire_out w = {0};
    external(&w, "missing.bin", NULL, NULL);
    expect_external(&w, folder, "'missing.bin' is missing");
    external(&w, "../w.bin", NULL, NULL);
    expect_external(&w, folder, "not a plain path");
    external(&w, "a/../../w.bin", NULL, NULL);
    expect_external(&w, folder, "not a plain path");
    external(&w, "/etc/passwd", NULL, NULL);
    expect_external(&w, folder, "not a plain path");
    external(&w, "", NULL, NULL);
    expect_external(&w, folder, "not a plain path");
    external(&w, "link", NULL, NULL);
    expect_external(&w, folder, "leads out of");
    external(&w, "w.bin", "4", NULL);
    expect_external(&w, folder, "which has 18");
    external(&w, "w.bin", "9223372036854775807", NULL);
    expect_external(&w, folder, "which has 18");
    external(&w, "w.bin", "-1", NULL);
    expect_external(&w, folder, "no size");
    external(&w, "w.bin", "two", NULL);
    expect_external(&w, folder, "no size");
    external(&w, "w.bin", "0", "12");
    expect_external(&w, folder, "12 bytes");
    external(&w, "w.bin", "0", NULL);
    expect_external(&w, NULL, "not allowed");
    external(&w, "w.bin", "1", "16"); // misaligned, and right
    hn_module *module = NULL;
    hn_onnx_options options = {.keep_unknown = true};
    assert_int_equal(om_parse(&err, &w, folder, &options, &module), HONE_OK);
    const hn_value *value = hn_graph_find(module->main, "w");
    assert_memory_equal(value->constant->data, "123456789abcdefg", 16);
    hn_module_free(module);
    unlink(path);
    unlink(link_path);
    rmdir(folder);
}

// ---- memory -------------------------------------------------------------------------------------
// Each allocation fails once: a sentence, nothing leaked (seen by the sanitizer), no crash.
static void test_out_of_memory(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *data = rich_model(&bytes);
    uint8_t *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    hn_free(data);
    hone_status status = HONE_ERR_NOMEM;
    int n = 1;
    for (; n < 5000 && status != HONE_OK; n++) {
        hn_buffer *buffer = hn_buffer_wrap(copy, bytes, NULL, NULL);
        hn_onnx_options options = {.keep_unknown = true};
        hn_module *module = NULL;
        hone_error err = {0};
        hn_alloc_fail_nth((uint64_t)n);
        status = hn_onnx_parse(&err, buffer, NULL, &options, &module);
        hn_alloc_fail_nth(0);
        if (status != HONE_OK && status != HONE_ERR_NOMEM)
            fail_msg("allocation %d: status %d, %s", n, status, err.text);
        if (status == HONE_OK) hn_module_free(module);
        hn_buffer_unref(buffer);
    }
    assert_int_equal(status, HONE_OK);
    assert_true(n > 10);
    free(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated),     cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_no_model),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_cycles),        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_typed_data),    cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_types),         cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_functions),     cmocka_unit_test(test_external),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
