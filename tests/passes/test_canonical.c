// SPDX-License-Identifier: Apache-2.0
// One encoder layer as two exporters write it: in pieces (TorchScript: norms, gelu and the mask's gather
// written out) and in operators (dynamo). After all passes both are the same graph and give the same
// numbers; the real pair of files is compared by tests/field/test_passes.c.
#include "support/test.h"
#include "support/canonical.h"
#include "support/module_run.h"
#include "passes/passes.h"

static hone_error err;

#define WEIGHTS                                                                                    \
    "  const %wq : f32[72, 72] = random 0x11\n  const %wk : f32[72, 72] = random 0x12\n"               \
    "  const %wv : f32[72, 72] = random 0x13\n  const %wo : f32[72, 72] = random 0x14\n"               \
    "  const %w1 : f32[72, 144] = random 0x15\n  const %w2 : f32[144, 72] = random 0x16\n"             \
    "  const %bq : f32[72] = random 0x21\n  const %bk : f32[72] = random 0x22\n"                     \
    "  const %bv : f32[72] = random 0x23\n  const %bo : f32[72] = random 0x24\n"                     \
    "  const %b1 : f32[144] = random 0x25\n  const %b2 : f32[72] = random 0x26\n"                    \
    "  const %g : f32[72] = random 0x31\n  const %b : f32[72] = random 0x32\n"                       \
    "  const %last : i64[1] = {-1}\n  const %zero : f32[] = {0}\n  const %far : f32[] = {-10000}\n"                               \
    "  const %heads : i64[4] = {2, 3, 2, 36}\n  const %back : i64[3] = {2, 3, 72}\n"

// A layer normalisation in pieces: %TO of %FROM.
#define NORM(from, to)                                                                             \
    "  %" to "m = ReduceMean@18(%" from ", %last)\n"                                               \
    "  %" to "d = Sub@14(%" from ", %" to "m)\n"                                                   \
    "  %" to "p = Pow@13(%" to "d, %two)\n"                                                        \
    "  %" to "v = ReduceMean@18(%" to "p, %last)\n"                                                \
    "  %" to "e = Add@14(%" to "v, %eps)\n"                                                        \
    "  %" to "s = Sqrt@13(%" to "e)\n"                                                             \
    "  %" to "n = Div@14(%" to "d, %" to "s)\n"                                                    \
    "  %" to "w = Mul@14(%" to "n, %g)\n"                                                          \
    "  %" to " = Add@14(%" to "w, %b)\n"

static const char k_pieces[] =
    "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 3, 72]\n  input %mask : bool[2, 3]\n" WEIGHTS
    "  const %two : f32[] = {2}\n  const %eps : f32[] = {1e-05}\n  const %r2 : f32[] = {1.4142135}\n"
    "  const %one : f32[] = {1}\n  const %half : f32[] = {0.5}\n  const %scale : f32[] = {0.70710677}\n"
    "  const %places : i64[2, 1, 1, 3] = {0, 1, 2, 3, 4, 5}\n  const %wide : i64[4] = {2, 1, 1, 3}\n"
    NORM("x", "x1")
    "  %q0 = MatMul@13(%x1, %wq)\n  %q1 = Add@14(%bq, %q0)\n  %q2 = Reshape@14(%q1, %heads)\n"
    "  %k0 = MatMul@13(%x1, %wk)\n  %k1 = Add@14(%bk, %k0)\n  %k2 = Reshape@14(%k1, %heads)\n"
    "  %v0 = MatMul@13(%x1, %wv)\n  %v1 = Add@14(%bv, %v0)\n  %v2 = Reshape@14(%v1, %heads)\n"
    "  %q = Transpose@13(%q2) {perm = [0, 2, 1, 3]}\n  %v = Transpose@13(%v2) {perm = [0, 2, 1, 3]}\n"
    "  %k3 = Transpose@13(%k2) {perm = [0, 2, 1, 3]}\n  %k = Transpose@13(%k3) {perm = [0, 1, 3, 2]}\n"
    "  %m0 = Flatten@13(%mask) {axis = 2}\n  %m1 = Gather@13(%m0, %places) {axis = 0}\n"
    "  %m2 = Reshape@14(%m1, %wide)\n  %m3 = Where@16(%m2, %zero, %far)\n"
    "  %qs = Mul@14(%q, %scale)\n  %ks = Mul@14(%k, %scale)\n  %s0 = MatMul@13(%qs, %ks)\n"
    "  %s1 = Add@14(%s0, %m3)\n  %s2 = Softmax@13(%s1) {axis = -1}\n"
    "  %a0 = MatMul@13(%s2, %v)\n  %a1 = Transpose@13(%a0) {perm = [0, 2, 1, 3]}\n"
    "  %a2 = Reshape@14(%a1, %back)\n  %o0 = MatMul@13(%a2, %wo)\n  %o1 = Add@14(%bo, %o0)\n"
    "  %o2 = Add@14(%o1, %x1)\n" NORM("o2", "x2")
    "  %f0 = MatMul@13(%x2, %w1)\n  %f1 = Add@14(%b1, %f0)\n  %e0 = Div@14(%f1, %r2)\n  %e1 = Erf@13(%e0)\n"
    "  %e2 = Add@14(%e1, %one)\n  %e3 = Mul@14(%f1, %e2)\n  %f2 = Mul@14(%e3, %half)\n"
    "  %f3 = MatMul@13(%f2, %w2)\n  %f4 = Add@14(%b2, %f3)\n  %f5 = Add@14(%f4, %x2)\n" NORM("f5", "y")
    "  output %y\n}\n";

static const char k_operators[] =
    "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 3, 72]\n  input %mask : bool[2, 3]\n" WEIGHTS
    "  const %scale : f32[1] = {0.70710677}\n  const %flat : i64[3] = {4, 3, 36}\n  const %keys : i64[4] = {2, 2, 36, 3}\n"
    "  const %nd : i64[2, 1, 1, 3, 2] = {0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2}\n"
    "  %m2 = GatherND@12(%mask, %nd)\n  %m3 = Where@16(%m2, %zero, %far)\n"
    "  %x1 = LayerNormalization@17(%x, %g, %b) {stash_type = 1, epsilon = 1e-05f}\n"
    "  %q0 = MatMul@13(%x1, %wq)\n  %q1 = Add@14(%q0, %bq)\n  %q2 = Reshape@14(%q1, %heads) {allowzero = 1}\n"
    "  %k0 = MatMul@13(%x1, %wk)\n  %k1 = Add@14(%k0, %bk)\n  %k2 = Reshape@14(%k1, %heads) {allowzero = 1}\n"
    "  %v0 = MatMul@13(%x1, %wv)\n  %v1 = Add@14(%v0, %bv)\n  %v2 = Reshape@14(%v1, %heads) {allowzero = 1}\n"
    "  %q = Transpose@13(%q2) {perm = [0, 2, 1, 3]}\n  %v = Transpose@13(%v2) {perm = [0, 2, 1, 3]}\n"
    "  %k3 = Transpose@13(%k2) {perm = [0, 2, 1, 3]}\n  %k4 = Reshape@14(%k3, %flat)\n"
    "  %k5 = Transpose@13(%k4) {perm = [0, 2, 1]}\n  %k = Reshape@14(%k5, %keys)\n"
    "  %qs = Mul@14(%q, %scale)\n  %ks = Mul@14(%k, %scale)\n  %s0 = MatMul@13(%qs, %ks)\n"
    "  %s1 = Add@14(%s0, %m3)\n"
    "  %s2 = Softmax@13(%s1) {axis = -1}\n  %a0 = MatMul@13(%s2, %v)\n"
    "  %a1 = Transpose@13(%a0) {perm = [0, 2, 1, 3]}\n  %a2 = Reshape@14(%a1, %back) {allowzero = 1}\n"
    "  %o0 = MatMul@13(%a2, %wo)\n  %o1 = Add@14(%o0, %bo)\n  %o2 = Add@14(%x1, %o1)\n"
    "  %x2 = LayerNormalization@17(%o2, %g, %b) {stash_type = 1, epsilon = 1e-05f}\n"
    "  %f0 = MatMul@13(%x2, %w1)\n  %f1 = Add@14(%f0, %b1)\n  %f2 = Gelu@20(%f1) {approximate = \"none\"}\n"
    "  %f3 = MatMul@13(%f2, %w2)\n  %f4 = Add@14(%f3, %b2)\n  %f5 = Add@14(%x2, %f4)\n"
    "  %y = LayerNormalization@17(%f5, %g, %b) {stash_type = 1, epsilon = 1e-05f}\n"
    "  output %y\n}\n";

static hn_module *load(const char *text) {
    hn_module *m;
    if (hn_module_parse(&err, text, &m) != HONE_OK || hn_ops_resolve(&err, m) != HONE_OK ||
        hn_infer_module(&err, m) != HONE_OK)
        fail_msg("%s (%s)", err.text, err.frames[0]);
    return m;
}

static void both_exporters_end_in_one_graph(void **state) {
    (void)state;
    const char *const texts[] = {k_pieces, k_operators};
    uint64_t digests[2];
    hn_tensor in[2] = {{0}}, out[2][2] = {{{0}}};
    hn_str census[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        hn_module *m = load(texts[i]);
        if (!i) assert_int_equal(test_module_inputs(&err, m, 5, 2, in), HONE_OK);
        assert_int_equal(test_module_run(&err, m, in, &out[i][0]), HONE_OK);
        hn_pass_options options = {.verify = true};
        if (hn_passes_run(&err, m, HN_PASS_PORTABLE, &options) != HONE_OK ||
            hn_passes_run(&err, m, HN_PASS_DEVICE, &options) != HONE_OK)
            fail_msg("%s (%s)", err.text, err.frames[0]);
        assert_int_equal(test_module_run(&err, m, in, &out[i][1]), HONE_OK);
        digests[i] = test_graph_digest(m);
        test_graph_census(m, &census[i]);
        if (getenv("HONE_DUMP")) {
            hn_str text = {0};
            hn_module_print(&text, m);
            puts(hn_str_get(&text));
            hn_str_free(&text);
        }
        hn_module_free(m);
    }
    assert_string_equal(hn_str_get(&census[0]), hn_str_get(&census[1]));
    assert_true(digests[0] == digests[1]);
    assert_true(test_tensors_distance(&out[0][0], &out[0][1], 1e-5, 1e-6) <= 1);
    assert_true(test_tensors_distance(&out[1][0], &out[1][1], 1e-5, 1e-6) <= 1);
    assert_true(test_tensors_distance(&out[0][1], &out[1][1], 1e-5, 1e-6) <= 1);
    for (int i = 0; i < 2; i++) {
        test_tensors_free(out[i], 2);
        hn_str_free(&census[i]);
    }
    test_tensors_free(in, 2);
}

// The comparison is no rubber stamp: another scale, another norm, another wiring are seen.
static void the_digest_sees_differences(void **state) {
    (void)state;
    static const char *const k_texts[] = {
        "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 8]\n  input %z : f32[2, 8]\n  %y = Sub@14(%x, %z)\n  output %y\n}\n",
        "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 8]\n  input %z : f32[2, 8]\n  %y = Sub@14(%z, %x)\n  output %y\n}\n",
        "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 8]\n  input %z : f32[2, 8]\n  %y = Elu@6(%x)\n  output %y\n}\n",
        "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 8]\n  input %z : f32[2, 8]\n  %y = Elu@6(%x) {alpha = 2f}\n  output %y\n}\n",
        "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 8]\n  input %z : f32[2, 8]\n  %y = Add@14(%x, %z)\n  output %y\n}\n",
        "hone-ir 1\ngraph \"\" {\n  input %x : f32[2, 8]\n  input %z : f32[2, 8]\n  %y = Add@14(%z, %x)\n  output %y\n}\n",
    };
    uint64_t d[HN_COUNT_OF(k_texts)];
    for (size_t i = 0; i < HN_COUNT_OF(k_texts); i++) {
        hn_module *m = load(k_texts[i]);
        d[i] = test_graph_digest(m);
        hn_module_free(m);
    }
    for (size_t i = 0; i < 5; i++)
        for (size_t j = i + 1; j < 5; j++)
            assert_true(d[i] != d[j]);
    assert_true(d[4] == d[5]); // addition commutes
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_exporters_end_in_one_graph),
        cmocka_unit_test(the_digest_sees_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
