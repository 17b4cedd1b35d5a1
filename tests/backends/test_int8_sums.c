// SPDX-License-Identifier: Apache-2.0
// Quantised products with the largest numbers there are, at every instruction set level this CPU has: below VNNI
// libraries add pairs of products in 16 bits, and a model that sums 2 * 255 * 127 there must not be given to them.
// A level holds for a process, so each has its own.
#include <sys/wait.h>
#include <unistd.h>
#include "config/config.h"
#include "plan/plan.h"
#include "probe/cpu.h"
#include "support/module_run.h"
#include "support/test.h"

// Two channels of data, weights a and b for each output, a zero point of the weights.
typedef struct sums {
    const char *x, *w; // types
    int x_zero, w_zero, a, b;
} sums;

static const sums k_sums[] = {
    {"u8", "i8", 0, 0, 127, 127},  {"u8", "i8", 0, 0, -128, -128}, {"u8", "i8", 0, 0, 64, 64},
    {"u8", "i8", 0, 0, 65, 64},    {"i8", "i8", 0, 0, 127, 127},   {"i8", "i8", -128, 0, 3, 5},
    {"u8", "u8", 255, 128, 255, 0}, {"u8", "u8", 3, 200, 255, 199}, {"u8", "i8", 128, 0, -65, -63},
};

// In the child: cmocka's own would go on with the other levels there.
#define MUST(what, ...)                                                                                    \
    do {                                                                                                   \
        if (!(what)) {                                                                                     \
            fprintf(stderr, __VA_ARGS__);                                                                  \
            fputc('\n', stderr);                                                                           \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)

static hn_module *product(const sums *s, bool conv) {
    hone_error err = {0};
    hn_str text = {0};
    hn_module *m = NULL;
    hn_str_printf(&text, "hone-ir 1\ngraph \"\" {\n  input %%x : %s%s\n  const %%xs : f32[] = {0.02}\n"
                         "  const %%xz : %s[] = {%d}\n  const %%w : %s%s = {%d, %d, %d, %d, %d, %d, %d, %d}\n"
                         "  const %%ws : f32[] = {0.01}\n  const %%wz : %s[] = {%d}\n"
                         "  %%d = DequantizeLinear@21(%%x, %%xs, %%xz)\n"
                         "  %%e = DequantizeLinear@21(%%w, %%ws, %%wz)\n  %%y = %s(%%d, %%e)\n  output %%y\n}\n",
                  s->x, conv ? "[1, 4, 3, 3]" : "[5, 4]", s->x, s->x_zero, s->w, conv ? "[2, 4, 1, 1]" : "[4, 2]",
                  s->a, s->b, s->a, s->b, s->b, s->a, s->b, s->a, s->w, s->w_zero, conv ? "Conv@11" : "MatMul@13");
    MUST(hn_module_parse(&err, hn_str_get(&text), &m) == HONE_OK && hn_ops_resolve(&err, m) == HONE_OK &&
             hn_infer_module(&err, m) == HONE_OK,
         "%s", err.text);
    hn_str_free(&text);
    return m;
}

static void check(hn_backend *backend, const sums *s, bool conv) {
    hone_error err = {0};
    hn_module *m = product(s, conv);
    hn_type type = m->main->inputs.data[0]->type;
    hn_shape shape;
    hn_tensor x, want[1] = {{0}}, got[1] = {{0}};
    MUST(hn_type_shape(&type, &shape) && hn_tensor_new(&err, type.dtype, &shape, &x) == HONE_OK, "%s", err.text);
    for (int64_t i = 0; i < hn_tensor_count(&x); i++)
        ((uint8_t *)x.data)[i] = type.dtype == HN_U8 ? (i % 5 == 4 ? 0 : 255) : (i % 5 == 4 ? 0x80 : 127);
    MUST(test_module_run(&err, m, &x, want) == HONE_OK, "%s", err.text);
    hn_session_options options = {.backend = backend, .threads = 1};
    hn_session *session;
    MUST(hn_session_new(&err, m, &options, &session) == HONE_OK, "%s", err.text);
    MUST(hn_session_run(&err, session, &x, 1, got, 1) == HONE_OK, "%s", err.text);
    MUST(test_tensors_distance(want, got, 1e-5, 1e-5) <= 1, "%s %s of %s by %s, weights %d and %d: %g, not %g",
         hn_isa_name(hn_cpu_isa()), conv ? "convolution" : "product", s->x, s->w, s->a, s->b,
         ((float *)got->data)[0], ((float *)want->data)[0]);
    hn_session_free(session);
    hn_tensor_free(&x);
    hn_tensor_free(want);
    hn_module_free(m);
}

static void at_level(void **state) {
    const char *level = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hone_error err = {0};
        hn_backend *backend;
        setenv("HONE_ISA", level, 1);
        if (hn_config_init(&err) != HONE_OK || hn_backend_open(&err, "cpu", 0, &backend) != HONE_OK) _exit(2);
        for (size_t i = 0; i < HN_COUNT_OF(k_sums); i++)
            for (int conv = 0; conv < 2; conv++)
                check(backend, &k_sums[i], conv);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("level %s: status %#x", level, (unsigned)status);
}

int main(void) {
    static char levels[][8] = {"ref", "avx2", "avx512", "vnni", "amx"}; // a level the CPU lacks is its best
    struct CMUnitTest tests[HN_COUNT_OF(levels)];
    for (size_t i = 0; i < HN_COUNT_OF(levels); i++)
        tests[i] = (struct CMUnitTest){.name = levels[i], .test_func = at_level, .initial_state = levels[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
