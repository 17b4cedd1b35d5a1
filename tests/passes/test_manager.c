// SPDX-License-Identifier: Apache-2.0
// The pass manager (names, disabling, trace, levels, fixed point) and the pattern matcher.
#include "support/test.h"
#include "passes/match.h"

static hone_error err;

static hn_module *load(const char *body) {
    hn_str text = {0};
    hn_module *m = NULL;
    hn_str_printf(&text, "hone-ir 1\ngraph \"\" {\n%s}\n", body);
    if (hn_module_parse(&err, hn_str_get(&text), &m) != HONE_OK) fail_msg("%s", err.text);
    hn_str_free(&text);
    assert_int_equal(hn_ops_resolve(&err, m), HONE_OK);
    assert_int_equal(hn_infer_module(&err, m), HONE_OK);
    return m;
}

static int count_nodes(const hn_module *m) {
    int count = 0;
    for (const hn_node *node = m->main->first; node; node = node->next)
        count++;
    return count;
}

static const char k_chain[] = "input %x : f32[2]\n"
                              "%a = Identity@1(%x)\n"
                              "%dead = Exp@13(%a)\n"
                              "%b = Relu@14(%a)\n"
                              "%c = Relu@14(%a)\n"
                              "%y = Add@14(%b, %c)\n"
                              "output %y\n";

static char seen[512];
static void note(void *user, const hn_pass *pass, int changes, int64_t ns) {
    assert_ptr_equal(user, seen);
    assert_true(ns >= 0);
    if (!changes) return;
    strcat(seen, pass->name);
    strcat(seen, " ");
}

static void test_table(void **state) {
    (void)state;
    size_t count;
    const hn_pass *table = hn_pass_table(&count);
    assert_true(count > 8);
    bool device = false;
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(hn_pass_find(table[i].name), &table[i]);
        assert_true(strlen(table[i].doc) > 10);
        assert_false(device && table[i].level == HN_PASS_PORTABLE); // portable rows come first
        device |= table[i].level == HN_PASS_DEVICE;
    }
    assert_null(hn_pass_find("no-such-pass"));
}

static void test_runs_to_a_fixed_point(void **state) {
    (void)state;
    hn_module *m = load(k_chain);
    hn_pass_options options = {.verify = true, .trace = note, .user = seen};
    seen[0] = 0;
    assert_int_equal(hn_passes_run(&err, m, HN_PASS_PORTABLE, &options), HONE_OK);
    assert_int_equal(count_nodes(m), 2);
    assert_non_null(strstr(seen, "clean"));
    assert_non_null(strstr(seen, "cse"));
    assert_non_null(strstr(seen, "dce"));
    seen[0] = 0;
    assert_int_equal(hn_passes_run(&err, m, HN_PASS_PORTABLE, &options), HONE_OK);
    assert_string_equal(seen, ""); // nothing left to do
    hn_module_free(m);
}

static void test_disable(void **state) {
    (void)state;
    hn_module *m = load(k_chain);
    hn_pass_options options = {.disable = "cse, clean", .verify = true};
    assert_int_equal(hn_passes_run(&err, m, HN_PASS_PORTABLE, &options), HONE_OK);
    assert_int_equal(count_nodes(m), 4); // only the dead node went
    options.disable = "cse,nonsense";
    assert_int_equal(hn_passes_run(&err, m, HN_PASS_PORTABLE, &options), HONE_ERR_USAGE);
    assert_non_null(strstr(err.text, "nonsense"));
    const char *const names[] = {"dce", "nonsense", NULL};
    assert_int_equal(hn_passes_run_list(&err, m, names, NULL), HONE_ERR_USAGE);
    hn_module_free(m);
}

static void test_device_level_includes_portable(void **state) {
    (void)state;
    static const char body[] = "input %x : f32[1, 1, 2, 2]\n"
                               "const %w : f32[1, 1, 1, 1] = {2}\n"
                               "%a = Identity@1(%x)\n"
                               "%c = Conv@11(%a, %w)\n"
                               "%y = Relu@14(%c)\n"
                               "output %y\n";
    hn_module *m = load(body);
    assert_int_equal(hn_passes_run(&err, m, HN_PASS_DEVICE, NULL), HONE_OK);
    assert_int_equal(count_nodes(m), 1);
    assert_int_equal(m->main->first->post_count, 1);
    hn_module_free(m);
    m = load(body);
    assert_int_equal(hn_passes_run(&err, m, HN_PASS_PORTABLE, NULL), HONE_OK);
    for (const hn_node *node = m->main->first; node; node = node->next) {
        assert_int_equal(node->post_count, 0); // nothing the exporter would refuse
        assert_false(hn_op_has(node->op, HN_T_INTERNAL));
    }
    hn_module_free(m);
}

// ---- matcher ------------------------------------------------------------------------------------

static bool matches(hn_module *m, const char *pattern, hn_match *out) {
    hn_pass_ctx ctx = {.module = m};
    return hn_match_at(&ctx, pattern, m->main->last, out);
}

static void test_matcher(void **state) {
    (void)state;
    hn_match m;
    hn_module *g = load("input %x : f32[2]\ninput %z : f32[2]\nconst %k : f32[] = {2}\noverridable "
                        "%o : f32[] = {2}\n"
                        "%p = Mul@14(%k, %x)\n%q = Mul@14(%z, %x)\n%s = Add@14(%q, %p)\n%r = "
                        "Relu@14(%s)\noutput %r\n");
    assert_true(matches(g, "Relu(a)", &m));
    assert_false(matches(g, "Abs(a)", &m));
    assert_true(matches(g, "Abs|Relu(Add(Mul(a, b), c))", &m));
    // Backtracking: only the second order of both Add and Mul fits.
    assert_true(matches(g, "Relu(Add(Mul(a, k!), Mul(a, b)))", &m));
    assert_string_equal(hn_match_value(&m, "a")->name, "x");
    assert_string_equal(hn_match_value(&m, "b")->name, "z");
    assert_true(hn_tensor_get_f64(hn_match_tensor(&m, "k"), 0) == 2);
    assert_true(matches(g, "Relu(Add:sum(Mul(a, 2.0), b))", &m));
    assert_string_equal(hn_match_node(&m, "sum")->op_type, "Add");
    assert_false(matches(g, "Relu(Add(Mul(a, 3.0), b))", &m));
    assert_false(matches(g, "Relu(Add(Mul(a, a), b))", &m));
    assert_false(matches(g, "Relu(Add(a))", &m)); // an input too many
    assert_true(matches(g, "Relu(Add(a, ...))", &m));
    assert_true(matches(g, "Relu(a, b?)", &m));
    assert_null(hn_match_value(&m, "b"));
    assert_false(matches(g, "Relu(", &m)); // malformed patterns match nothing
    assert_false(matches(g, "x", &m));
    hn_module_free(g);
}

static void test_matcher_legality(void **state) {
    (void)state;
    hn_match m;
    hn_module *g = load("input %x : f32[2]\n%e = Exp@13(%x)\n%d = Sub@14(%e, %x)\n%s = Mul@14(%d, "
                        "%e)\noutput %s\n");
    assert_true(matches(g, "Mul(Sub(Exp:e(x), x), e)", &m)); // both uses of Exp are inside
    hn_module_free(g);
    g = load("input %x : f32[2]\n%e = Exp@13(%x)\n%s = Relu@14(%e)\noutput %e\noutput %s\n");
    assert_false(matches(g, "Relu(Exp(x))", &m)); // an output of the graph
    assert_true(matches(g, "Relu(~Exp(x))", &m)); // it may stay
    hn_value *pinned[] = {hn_graph_find(g->main, "e")};
    hn_graph_set_output(g->main, 0, hn_graph_find(g->main, "s"));
    hn_pass_ctx ctx = {.module = g};
    assert_true(hn_match_at(&ctx, "Relu(Exp(x))", g->main->last, &m));
    ctx.pinned = pinned;
    ctx.pinned_count = 1;
    assert_false(hn_match_at(&ctx, "Relu(Exp(x))", g->main->last, &m));
    hn_module_free(g);
    g = load("input %x : f32[2]\noverridable %o : f32[] = {2}\n%s = Mul@14(%x, %o)\noutput %s\n");
    hn_pass_ctx freeze = {.module = g, .freeze_overridable = true};
    assert_false(matches(g, "Mul(x, k!)", &m));
    assert_true(hn_match_at(&freeze, "Mul(x, k!)", g->main->last, &m));
    hn_module_free(g);
}

// Each allocation of a whole run fails once: an error or a result that verifies, never a crash.
static void test_out_of_memory(void **state) {
    (void)state;
    int failed = 0;
    for (uint64_t nth = 1; nth < 400; nth += 3) {
        hn_module *m = load(
            "input %x : f32[1, 1, 2, 2]\nconst %w : f32[1, 1, 1, 1] = {2}\nconst %k : f32[] = {3}\n"
            "const %t : f32[] = {3}\n%a = Identity@1(%x)\n%c = Conv@11(%a, %w)\n%d = Mul@14(%c, "
            "%k)\n"
            "%u = Add@14(%k, %t)\n%e = Add@14(%d, %u)\n%y = Relu@14(%e)\noutput %y\n");
        hn_alloc_fail_nth(nth);
        hone_status status = hn_passes_run(&err, m, HN_PASS_DEVICE, NULL);
        hn_alloc_fail_nth(0);
        failed += status != HONE_OK;
        if (status == HONE_OK && hn_module_verify(&err, m) != HONE_OK)
            fail_msg("%llu: %s", (unsigned long long)nth, err.text);
        hn_module_free(m);
    }
    assert_true(failed > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),         cmocka_unit_test(test_runs_to_a_fixed_point),
        cmocka_unit_test(test_disable),       cmocka_unit_test(test_device_level_includes_portable),
        cmocka_unit_test(test_matcher),       cmocka_unit_test(test_matcher_legality),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
