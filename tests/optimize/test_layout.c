// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// The strategy `layout`: the cut that chooses against all assignments tried one by one; a layer that is
// several times faster in plain order gets it, with both times in the report, in the file's metadata and
// in the steps of a session on the file; a replay gives the same bytes.
#include <stdlib.h>
#include <unistd.h>
#include "libs/dnnl.h"
#include "onnx/onnx.h"
#include "optimize/cut.h"
#include "optimize/optimize.h"
#include "support/test.h"

static hone_error err;
static char g_folder[64];
static uint64_t g_seed = 11;

static uint32_t rnd(uint32_t below) {
    g_seed = g_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(g_seed >> 33) % below;
}

// ---- the cut ------------------------------------------------------------------------------------
#define MOST 8

static void the_cut_is_the_cheapest_assignment(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        int nodes = 3 + (int)rnd(MOST - 2), arcs = (int)rnd(25);
        int64_t cost[MOST][MOST] = {{0}};
        hn_cut cut = {0};
        for (int n = 0; n < nodes; n++)
            assert_int_equal(hn_cut_node(&cut), n);
        for (int a = 0; a < arcs; a++) {
            int from = (int)rnd((uint32_t)nodes), to = (int)rnd((uint32_t)nodes);
            int64_t c = rnd(10) ? rnd(100) : 0;
            hn_cut_add(&cut, from, to, c);
            if (from != to) cost[from][to] += c;
        }
        int64_t least = INT64_MAX, found;
        for (int choice = 0; choice < 1 << nodes; choice++) { // bit: on the sink's side
            if ((choice >> HN_CUT_SOURCE & 1) || !(choice >> HN_CUT_SINK & 1)) continue;
            int64_t sum = 0;
            for (int from = 0; from < nodes; from++)
                for (int to = 0; to < nodes; to++)
                    if (!(choice >> from & 1) && (choice >> to & 1)) sum += cost[from][to];
            least = hn_min_i64(least, sum);
        }
        bool side[MOST];
        assert_int_equal(hn_cut_solve(&err, &cut, side, &found), HONE_OK);
        assert_int_equal(found, least);
        assert_true(side[HN_CUT_SOURCE] && !side[HN_CUT_SINK]);
        int64_t sum = 0;
        for (int from = 0; from < nodes; from++)
            for (int to = 0; to < nodes; to++)
                if (side[from] && !side[to]) sum += cost[from][to];
        assert_int_equal(sum, least);
        hn_cut_free(&cut);
    }
}

// ---- the strategy -------------------------------------------------------------------------------
// Two convolutions: one of many channels and one with a single output channel, a tenth of the machine's
// speed channels-last.
static const char k_model[] =
    "hone-ir 1\nir_version 9\nopset \"\" 20\ngraph \"\" {\n"
    "  input %x : f32[1, 32, 60, 88]\n"
    "  const %w1 : f32[32, 32, 3, 3] = random 0x11\n"
    "  const %w2 : f32[1, 32, 7, 3] = random 0x22\n"
    "  const %b2 : f32[1] = {0.5}\n"
    "  %h = Conv@11(%x, %w1) {pads = [1, 1, 1, 1]} name \"many\"\n"
    "  %r = Relu@14(%h)\n"
    "  %y = Conv@11(%r, %w2, %b2) {pads = [3, 1, 3, 1]} name \"one\"\n"
    "  output %y\n}\n";

static char *path_of(const char *name, char *out) {
    snprintf(out, 128, "%s/%s", g_folder, name);
    return out;
}

static void save_model(const char *text) {
    hn_module *m;
    char path[128];
    if (hn_module_parse(&err, text, &m) != HONE_OK) fail_msg("%s", err.text);
    assert_int_equal(hn_ops_resolve(&err, m), HONE_OK);
    assert_int_equal(hn_infer_module(&err, m), HONE_OK);
    if (hn_onnx_save(&err, m, path_of("m.onnx", path)) != HONE_OK) fail_msg("%s", err.text);
    hn_module_free(m);
}

static hn_optimize_result optimise(const char *out, const char *replay) {
    char model[128], to[128];
    hn_optimize_options o = {.model_path = path_of("m.onnx", model), .out_path = path_of(out, to), .seconds = 0.05,
                             .only = "layout", .force = "layout", .replay_path = replay};
    hn_optimize_result r;
    if (hn_optimize_run(&err, &o, &r) != HONE_OK) fail_msg("%s (%s)", err.text, err.frames[0]);
    assert_int_equal(r.verdict_count, 1);
    assert_int_equal(r.result.accuracy.nan, 0);
    assert_true(r.result.accuracy.cosine > 0.999999);
    return r;
}

static const hn_layer *layer(const hn_optimize_result *r, const char *name) {
    for (size_t i = 0; i < r->layers.count; i++)
        if (strcmp(r->layers.data[i].name, name) == 0) return &r->layers.data[i];
    fail_msg("the report has no layer '%s' (%s)", name, r->verdicts[0].reason);
    return NULL;
}

static int plain_steps(const char *path) {
    hn_backend *cpu;
    hn_module *m;
    hn_session *session;
    hn_step_info steps[16];
    assert_int_equal(hn_backend_open(&err, "cpu", 0, &cpu), HONE_OK);
    if (hn_onnx_load(&err, path, NULL, &m) != HONE_OK) fail_msg("%s", err.text);
    assert_int_equal(hn_session_new(&err, m, &(hn_session_options){.backend = cpu}, &session), HONE_OK);
    hn_tensor x = {.dtype = HN_F32, .shape = {4, {1, 32, 60, 88}}};
    assert_int_equal(hn_session_prepare(&err, session, &x, 1), HONE_OK);
    int count = hn_session_steps(session, steps, 16), plain = 0;
    for (int i = 0; i < count && i < 16; i++)
        plain += strcmp(steps[i].variant, "own:plain_conv") == 0;
    hn_session_free(session);
    hn_module_free(m);
    return plain;
}

static void same_bytes(const char *a, const char *b) {
    char *left, *right;
    size_t n, m;
    assert_int_equal(hn_file_read(&err, a, (size_t)1 << 24, &left, &n), HONE_OK);
    assert_int_equal(hn_file_read(&err, b, (size_t)1 << 24, &right, &m), HONE_OK);
    assert_int_equal(n, m);
    assert_memory_equal(left, right, n);
    hn_free(left);
    hn_free(right);
}

static void one_channel_is_computed_in_plain_order(void **state) {
    (void)state;
    const hn_dnnl *dnnl;
    if (hn_dnnl_get(NULL, &dnnl) != HONE_OK) skip(); // then all are plain
    char out[128], again[128], report[128];
    save_model(k_model);
    hn_optimize_result r = optimise("o.onnx", NULL);
    const hn_layer *one = layer(&r, "one"), *many = layer(&r, "many");
    if (strcmp(one->precision, "plain") != 0 || !r.verdicts[0].kept) fail_msg("%s; %s", one->why, r.verdicts[0].reason);
    assert_non_null(strstr(one->why, "plain order: "));
    assert_non_null(strstr(one->why, " us, channels-last: "));
    assert_non_null(strstr(many->why, " us, channels-last: "));
    assert_non_null(strstr(r.verdicts[0].reason, " of 2 convolutions in plain order"));
    assert_int_equal(plain_steps(path_of("o.onnx", out)), strcmp(many->precision, "plain") == 0 ? 2 : 1);
    assert_int_equal(plain_steps(path_of("m.onnx", out)), 0);

    hn_str text = {0};
    hn_optimize_options o = {0};
    assert_int_equal(hn_optimize_report(&err, &o, &r, "", &text), HONE_OK);
    assert_int_equal(hn_file_write(&err, path_of("r.json", report), hn_str_get(&text), text.length), HONE_OK);
    hn_str_free(&text);
    hn_optimize_result_free(&r);
    r = optimise("p.onnx", report);
    same_bytes(path_of("o.onnx", out), path_of("p.onnx", again));
    hn_optimize_result_free(&r);
}

static void what_has_no_choice_is_left_alone(void **state) {
    (void)state;
    save_model("hone-ir 1\nir_version 9\nopset \"\" 20\ngraph \"\" {\n"
               "  input %x : f32[1, 4, 8, 8]\n  input %w : f32[4, 4, 3, 3]\n"
               "  %y = Conv@11(%x, %w)\n  output %y\n}\n");
    hn_optimize_result r = optimise("o.onnx", NULL);
    assert_false(r.verdicts[0].kept);
    assert_string_equal(r.verdicts[0].reason, "no float32 convolution is left that could change its order");
    assert_true(r.copied);
    hn_optimize_result_free(&r);
}

int main(void) {
    snprintf(g_folder, sizeof g_folder, "/tmp/hone-layout-XXXXXX");
    if (!mkdtemp(g_folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_is_the_cheapest_assignment),
        cmocka_unit_test(one_channel_is_computed_in_plain_order),
        cmocka_unit_test(what_has_no_choice_is_left_alone),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const char *const names[] = {"m.onnx", "o.onnx", "p.onnx", "r.json"};
    for (size_t i = 0; i < HN_COUNT_OF(names); i++) {
        char path[128];
        unlink(path_of(names[i], path));
    }
    rmdir(g_folder);
    return failed;
}
