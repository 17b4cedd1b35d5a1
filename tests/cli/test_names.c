// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// Names in a model that would steer the terminal or end a line: tables and error sentences write them
// out, JSON holds them as they are.
#include <jansson.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/onnx_make.h"
#include "support/test.h"

#define IN  "x\x1b[31m\xe2\x80\xae"
#define MID "m\x1b]0;title\x07"
#define OUT "y\nhone:\xc2\x9b" "1m\x7f"

static char g_folder[] = "cli-names-XXXXXX";
static char g_model[64], g_text[65536];

static void write_model(hn_wire_out *w) {
    size_t bytes;
    uint8_t *data = om_finish(w, &bytes);
    FILE *file = fopen(g_model, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    hn_free(data);
}

static void model(const char *op) {
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, IN, HN_F32, "1 4");
    om_node(&w, "Exp", IN, MID);
    om_node(&w, op, MID, OUT);
    om_value(&w, 12, OUT, HN_F32, "1 4");
    write_model(&w);
}

// Output of a command, both streams together; what main gave back.
static int run(const char *arguments) {
    char call[1024];
    snprintf(call, sizeof call, "\"$HONE\" %s %s 2>&1", arguments, g_model);
    FILE *pipe = popen(call, "r");
    assert_non_null(pipe);
    size_t n = fread(g_text, 1, sizeof g_text - 1, pipe);
    g_text[n] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_harmless(const char *arguments) {
    size_t n = strlen(g_text);
    assert_true(n > 0);
    if (!hn_utf8_valid(g_text, n)) fail_msg("hone %s prints what is not UTF-8: %s", arguments, g_text);
    hn_str clean = {0};
    hn_str_append_clean(&clean, g_text, n, HN_CLEAN_LINES);
    if (strcmp(hn_str_get(&clean), g_text) != 0)
        fail_msg("hone %s prints control characters: %s", arguments, hn_str_get(&clean));
    hn_str_free(&clean);
    if (strstr(g_text, "\nhone:\xc2")) fail_msg("hone %s: a name ended a line", arguments);
}

static void tables_write_names_out(void **state) {
    (void)state;
    static const char *const k_commands[] = {"inspect", "run", "bench --seconds 0.05 --profile"};
    model("Relu");
    for (size_t i = 0; i < HN_COUNT_OF(k_commands); i++) {
        assert_int_equal(run(k_commands[i]), 0);
        expect_harmless(k_commands[i]);
    }
    assert_int_equal(run("run"), 0);
    assert_non_null(strstr(g_text, "y\\nhone:\\u009b1m\\u007f"));
    assert_ptr_equal(strchr(g_text, '\n'), g_text + strlen(g_text) - 1); // one output, one line
}

static void errors_write_names_out(void **state) {
    (void)state;
    model("No\x1b[1mSuch");
    assert_int_equal(run("run"), 4);
    expect_harmless("run");
    model("Relu");
    assert_int_equal(run("run --shape 'y\x1b[1m=1'"), 2);
    expect_harmless("run --shape");
    assert_int_equal(run("run --data $(printf 'no\\033file')"), 3);
    expect_harmless("run --data");
}

static void json_holds_names_as_they_are(void **state) {
    (void)state;
    model("Relu");
    static const char *const k_commands[] = {"inspect --json", "run --json"};
    for (size_t i = 0; i < HN_COUNT_OF(k_commands); i++) {
        assert_int_equal(run(k_commands[i]), 0);
        expect_harmless(k_commands[i]);
        json_t *root = json_loads(g_text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(root);
        const json_t *output = json_array_get(json_object_get(root, "outputs"), 0);
        assert_string_equal(json_string_value(json_object_get(output, "name")), OUT);
        json_decref(root);
    }
}

static void names_are_utf8(void **state) {
    (void)state;
    hn_wire_out w = {0};
    om_model(&w, 8, 17);
    om_value(&w, 11, "x\xff", HN_F32, "1 4");
    om_node(&w, "Relu", "x\xff", "y");
    om_value(&w, 12, "y", HN_F32, "1 4");
    write_model(&w);
    assert_int_equal(run("inspect --json"), 3);
    expect_harmless("inspect --json");
    assert_non_null(strstr(g_text, "UTF-8"));
}

int main(void) {
    if (!mkdtemp(g_folder)) return 1;
    snprintf(g_model, sizeof g_model, "%s/model.onnx", g_folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_write_names_out),
        cmocka_unit_test(errors_write_names_out),
        cmocka_unit_test(json_holds_names_as_they_are),
        cmocka_unit_test(names_are_utf8),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(g_model);
    (void)rmdir(g_folder);
    return failed;
}
