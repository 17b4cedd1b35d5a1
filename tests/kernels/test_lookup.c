// SPDX-License-Identifier: Apache-2.0
// 8-bit data: rounding of the fast forms where a division's result lies at a half or beside it. Tables of 256 entries: every kernel this CPU has on all values, all tail lengths and places; and that a
// table made of quantised operators gives, for every 8-bit value, the very integer that they give.
#include <math.h>
#include "support/module_run.h"
#include "support/test.h"
#include "kernels/cpu/quant.h"
#include "passes/passes.h"
#include "probe/cpu.h"

static uint8_t g_table[256], g_x[1024], g_y[1024];

static void check(void (*lookup)(const uint8_t *, const uint8_t *, uint8_t *, int64_t)) {
    for (int n = 0; n <= 700; n++) {
        memset(g_y, 0xee, sizeof g_y);
        lookup(g_x + n % 7, g_table, g_y + n % 5, n);
        for (int i = 0; i < n; i++)
            assert_int_equal(g_y[n % 5 + i], g_table[g_x[n % 7 + i]]);
        for (int i = 0; i < n % 5; i++)
            assert_int_equal(g_y[i], 0xee);
        for (int i = n % 5 + n; i < 1024; i++)
            assert_int_equal(g_y[i], 0xee);
    }
    memcpy(g_y, g_x, sizeof g_y); // in place
    lookup(g_y, g_table, g_y, 1000);
    for (int i = 0; i < 1024; i++)
        assert_int_equal(g_y[i], i < 1000 ? g_table[g_x[i]] : g_x[i]);
}

static void kernels_read_the_table(void **state) {
    (void)state;
    for (int i = 0; i < 256; i++)
        g_table[i] = (uint8_t)(i * 167 + 13); // a permutation
    for (int i = 0; i < 1024; i++)
        g_x[i] = (uint8_t)(i * 29 + i / 256);
    const hn_cpu *cpu = hn_cpu_get();
    check(hn_k_quant_ref.lookup);
    if (cpu->isa >= HN_ISA_AVX2) check(hn_k_quant_avx2.lookup);
    if (cpu->isa >= HN_ISA_AVX512) check(hn_k_quant_avx512.lookup);
    if (cpu->avx512_vbmi) check(hn_k_lookup_vbmi);
}

// Numbers at and around every half of the range, and what no integer holds.
static void rounding_is_that_of_the_division(void **state) {
    (void)state;
    static const float scales[] = {0.037f, 1.0f / 3, 0.0039215689f, 0.1f, 1, 7.3f, 1e-30f, 1e30f, 1e-36f, 1e-42f, 3e38f, 0.02f};
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0, -0.0f, 1e-45f, 2147483520.0f, -2147483648.0f};
    static float x[601 * 9 + HN_COUNT_OF(odd)];
    static uint8_t want[HN_COUNT_OF(x)], got[HN_COUNT_OF(x)];
    const hn_cpu *cpu = hn_cpu_get();
    for (size_t s = 0; s < HN_COUNT_OF(scales); s++)
        for (int form = 0; form < 6; form++) {
            size_t n = 0;
            for (int k = -300; k <= 300; k++) {
                float v = (float)(((double)k + 0.5) * (double)scales[s]);
                for (int i = 0; i < 4; i++)
                    v = nextafterf(v, -INFINITY);
                for (int i = 0; i < 9; i++, v = nextafterf(v, INFINITY))
                    x[n++] = v;
            }
            for (size_t i = 0; i < HN_COUNT_OF(odd); i++)
                x[n++] = odd[i];
            bool is_signed = form >= 3;
            int zero = (int[]){0, 255, 117, -128, 127, 5}[form];
            hn_k_quant_ref.quantise(x, want, (int64_t)n, scales[s], zero, is_signed);
            for (int level = 0; level < 2; level++) {
                if (cpu->isa < (level ? HN_ISA_AVX512 : HN_ISA_AVX2)) continue;
                (level ? hn_k_quant_avx512 : hn_k_quant_avx2).quantise(x, got, (int64_t)n, scales[s], zero, is_signed);
                for (size_t i = 0; i < n; i++)
                    if (got[i] != want[i])
                        fail_msg("%.9g / %.9g, zero %d: %d, not %d", (double)x[i], (double)scales[s], zero, got[i], want[i]);
            }
        }
}

// The 256 values through the graph as it is and through its table.
static void check_op(const char *op, const char *in, const char *out, int zero, double scale_out) {
    hone_error err = {0};
    hn_str text = {0};
    hn_module *m = NULL;
    hn_str_printf(&text,
                  "hone-ir 1\ngraph \"\" {\n  input %%x : %s[256]\n  const %%s : f32[] = {0.037}\n"
                  "  const %%z : %s[] = {%d}\n  const %%t : f32[] = {%.9g}\n  const %%u : %s[] = {5}\n"
                  "  %%d = DequantizeLinear@21(%%x, %%s, %%z)\n  %%a = %s(%%d)\n"
                  "  %%y = QuantizeLinear@21(%%a, %%t, %%u)\n  output %%y\n}\n",
                  in, in, zero, scale_out, out, op);
    assert_int_equal(hn_module_parse(&err, hn_str_get(&text), &m), HONE_OK);
    assert_int_equal(hn_ops_resolve(&err, m), HONE_OK);
    assert_int_equal(hn_infer_module(&err, m), HONE_OK);
    hn_tensor x, a[1] = {{0}}, b[1] = {{0}};
    hn_shape shape = {.rank = 1, .dims = {256}};
    hn_dtype dtype = m->main->inputs.data[0]->type.dtype;
    assert_int_equal(hn_tensor_new(&err, dtype, &shape, &x), HONE_OK);
    for (int i = 0; i < 256; i++)
        ((uint8_t *)x.data)[i] = (uint8_t)i;
    assert_int_equal(test_module_run(&err, m, &x, a), HONE_OK);
    static const char *const passes[] = {"lookups", "device_dce", NULL};
    assert_int_equal(hn_passes_run_list(&err, m, passes, NULL), HONE_OK);
    assert_string_equal(m->main->first->op_type, "Lookup");
    assert_null(m->main->first->next);
    assert_int_equal(test_module_run(&err, m, &x, b), HONE_OK);
    if (memcmp(a->data, b->data, 256)) fail_msg("%s from %s to %s: the table differs", op, in, out);
    hn_tensor_free(&x);
    hn_tensor_free(a);
    hn_tensor_free(b);
    hn_module_free(m);
    hn_str_free(&text);
}

static void tables_are_bit_equal(void **state) {
    (void)state;
    static const char *const ops[] = {"Sigmoid@13", "Tanh@13", "HardSwish@22", "Swish@24", "Gelu@20", "LeakyRelu@16",
                                      "Relu@14", "Elu@22", "HardSigmoid@22", "Softplus@22", "Mish@22", "Exp@13", "Erf@13",
                                      "Log@13", "Sqrt@13", "Reciprocal@13", "Abs@13", "Neg@13", "Softsign@22", "Sin@22"};
    static const char *const types[] = {"u8", "i8"};
    for (size_t o = 0; o < HN_COUNT_OF(ops); o++)
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++) {
                check_op(ops[o], types[i], types[j], i ? -20 : 110, 0.0041);
                check_op(ops[o], types[i], types[j], 0, 0.09);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_read_the_table),
        cmocka_unit_test(rounding_is_that_of_the_division),
        cmocka_unit_test(tables_are_bit_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
