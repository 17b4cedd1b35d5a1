// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// Broken and hostile models at the command line: every command that takes a model gives exit status
// 3, one sentence on stderr, nothing on stdout, and leaves no output file.
#include "support/onnx_make.h"
#include "support/test.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char g_folder[] = "cli-malformed-XXXXXX";
static char g_model[64], g_result[64], g_out[64], g_err[64];

static const char *const k_commands[] = {
    "inspect --no-plan %s",
    "run %s",
    "run --json %s",
    "bench --seconds 0.05 --json %s",
    "optimize %s -o %s",
};

static size_t read_text(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(text, 1, size - 1, file);
    (void)fclose(file);
    text[length] = 0;
    return length;
}

// One command on the model file; the sentence must hold all of the blank-separated words.
static void expect_command(int command, const char *words) {
    char line[512], call[1024], text[4096], word[64];
    struct stat info;
    snprintf(line, sizeof line, k_commands[command], g_model, g_result);
    snprintf(call, sizeof call, "\"$HONE\" %s >%s 2>%s", line, g_out, g_err);
    int status = system(call);
    size_t length = read_text(g_err, text, sizeof text);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
        fail_msg("hone %s: wait status %d, not exit 3 with '%s': %s", line, status, words, text);
    if (strncmp(text, "hone: ", 6) != 0 || length < 16 || strchr(text, '\n') != text + length - 1)
        fail_msg("hone %s: not one sentence: %s", line, text);
    while (*words) {
        size_t count = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)count, words);
        if (!strstr(text, word)) fail_msg("hone %s: '%s' lacks '%s'", line, text, word);
        words += count;
        while (*words == ' ')
            words++;
    }
    assert_int_equal(stat(g_out, &info), 0);
    assert_int_equal(info.st_size, 0);
    assert_int_equal(access(g_result, F_OK), -1);
}

static void write_model(const void *data, size_t bytes) {
    FILE *file = fopen(g_model, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void expect_bytes(const void *data, size_t bytes, const char *words) {
    write_model(data, bytes);
    for (int i = 0; i < (int)HN_COUNT_OF(k_commands); i++)
        expect_command(i, words);
}

static void expect(hn_wire_out *w, const char *words) {
    size_t bytes;
    uint8_t *data = om_finish(w, &bytes);
    expect_bytes(data, bytes, words);
    hn_free(data);
}

static void header(hn_wire_out *w) {
    om_model(w, 8, 17);
    om_value(w, 11, "x", HN_F32, "1 4");
    om_value(w, 12, "y", HN_F32, NULL);
}

static uint8_t *good_model(size_t *out_bytes) {
    hn_wire_out w = {0};
    header(&w);
    om_weights(&w, "w", "4 64", 256);
    om_node(&w, "MatMul", "x w", "h");
    om_node(&w, "Relu", "h", "y");
    return om_finish(&w, out_bytes);
}

// ---- cases --------------------------------------------------------------------------------------
static void test_truncated(void **state) {
    (void)state;
    size_t bytes;
    int command = 0;
    uint8_t *data = good_model(&bytes);
    assert_true(bytes > 1024);
    for (size_t cut = 0; cut < bytes; cut += 64) {
        write_model(data, cut);
        expect_command(command, g_model);
        command = (command + 1) % (int)HN_COUNT_OF(k_commands);
    }
    hn_free(data);
    expect_bytes("no model at all\n", 16, "no ONNX");
}

static void test_wrong_types(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", (hn_dtype)99, "1 4");
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, "'x' type 99");
    header(&w);
    om_tensor(&w, 5, "w", (hn_dtype)77, "4", "0123456789abcdef", 16);
    om_node(&w, "Add", "x w", "y");
    expect(&w, "'w' type 77");
    header(&w);
    om_node_begin(&w, 1, "Softmax", "x", "y");
    om_float(&w, "axis", 1);
    om_end(&w);
    expect(&w, "Softmax 'axis'");
    header(&w);
    om_i64(&w, "w", (int64_t[]){1, 2, 3, 4}, 4);
    om_node(&w, "Add", "x w", "y");
    expect(&w, "Add f32 i64");
}

static void test_dims(void **state) {
    (void)state;
    hn_wire_out w = {0};
    header(&w);
    om_tensor(&w, 5, "w", HN_F32, "4611686018427387904 4", "0123456789abcdef", 16);
    om_node(&w, "Add", "x w", "y");
    expect(&w, "'w' overflow");
    header(&w);
    om_tensor(&w, 5, "w", HN_F32, "1000000 1000000", "0123456789abcdef", 16);
    om_node(&w, "Add", "x w", "y");
    expect(&w, "'w' 16 bytes");
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "-7");
    om_value(&w, 12, "x", HN_F32, NULL);
    expect(&w, "'x' negative");
    header(&w);
    om_weights(&w, "w", "5 2", 10);
    om_node(&w, "MatMul", "x w", "y");
    expect(&w, "MatMul 4 5");
}

static void test_graphs(void **state) {
    (void)state;
    hn_wire_out w = {0};
    header(&w);
    om_node(&w, "Add", "x b", "a");
    om_node(&w, "Relu", "a", "b");
    om_node(&w, "Relu", "b", "y");
    expect(&w, "cycle");
    header(&w);
    om_node(&w, "Add", "x y", "y");
    expect(&w, "cycle");
    header(&w);
    om_node(&w, "Relu", "x", "y");
    om_node(&w, "Neg", "x", "y");
    expect(&w, "Neg 'y' already");
    header(&w);
    om_value(&w, 11, "x", HN_F32, "1 4");
    om_node(&w, "Relu", "x", "y");
    expect(&w, "two graph inputs 'x'");
    header(&w);
    om_weights(&w, "w", "4", 4);
    om_weights(&w, "w", "4", 4);
    om_node(&w, "Add", "x w", "y");
    expect(&w, "two weights 'w'");
    header(&w);
    om_node(&w, "Relu", "nowhere", "y");
    expect(&w, "'nowhere' nothing produces");
    header(&w);
    om_node(&w, "hn:ConvGradData", "x x x", "y");
    expect(&w, "ConvGradData 'hn' internal");
}

static void test_external(void **state) {
    (void)state;
    hn_wire_out w = {0};
    header(&w);
    hn_wire_begin(&w, 5);
    hn_wire_put_int(&w, 1, 4);
    hn_wire_put_int(&w, 2, HN_F32);
    hn_wire_put_text(&w, 8, "w");
    hn_wire_begin(&w, 13);
    hn_wire_put_text(&w, 1, "location");
    hn_wire_put_text(&w, 2, "missing.bin");
    hn_wire_end(&w);
    hn_wire_put_int(&w, 14, 1);
    hn_wire_end(&w);
    om_node(&w, "Add", "x w", "y");
    expect(&w, "'w' 'missing.bin' is missing");
}

// An If whose then-branch is the graph of these bytes.
static void put_if(hn_wire_out *w, const hn_str *branch) {
    hn_wire_begin(w, 1);
    hn_wire_put_text(w, 1, "c");
    hn_wire_put_text(w, 2, "y");
    hn_wire_put_text(w, 4, "If");
    hn_wire_begin(w, 5);
    hn_wire_put_text(w, 1, "then_branch");
    hn_wire_put_int(w, 20, 5);
    hn_wire_put_bytes(w, 6, hn_str_get(branch), branch->length);
    hn_wire_end(w);
    hn_wire_end(w);
}

// Written from the inside out: the writer's own bound on nesting does not matter.
static void test_deep(void **state) {
    (void)state;
    hn_str inner = {0};
    hn_wire_out w = {0};
    size_t bytes;
    for (int i = 1; i < 10000; i++) {
        put_if(&w, &inner);
        uint8_t *data = om_finish(&w, &bytes);
        hn_str_free(&inner);
        hn_str_append_n(&inner, (const char *)data, bytes);
        hn_free(data);
    }
    om_model(&w, 8, 17);
    om_value(&w, 11, "c", HN_BOOL, "");
    om_value(&w, 12, "y", HN_F32, NULL);
    put_if(&w, &inner);
    hn_str_free(&inner);
    expect(&w, "nested deeper");
}

// The frame that the cases stand on is a model that works.
static void test_good(void **state) {
    (void)state;
    char call[512];
    size_t bytes;
    uint8_t *data = good_model(&bytes);
    write_model(data, bytes);
    hn_free(data);
    snprintf(call, sizeof call, "\"$HONE\" run %s >%s 2>%s", g_model, g_out, g_err);
    assert_int_equal(system(call), 0);
}

static int setup(void **state) {
    (void)state;
    if (!getenv("HONE") || !mkdtemp(g_folder)) return -1;
    snprintf(g_model, sizeof g_model, "%s/bad.onnx", g_folder);
    snprintf(g_result, sizeof g_result, "%s/result.onnx", g_folder);
    snprintf(g_out, sizeof g_out, "%s/out", g_folder);
    snprintf(g_err, sizeof g_err, "%s/err", g_folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unlink(g_model);
    unlink(g_out);
    unlink(g_err);
    return rmdir(g_folder); // nothing else may be left there
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_dims),   cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_graphs), cmocka_unit_test(test_external),
        cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
