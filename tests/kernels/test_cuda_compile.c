// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 900
// Every row of kernels.def for cards is selected and compiled for sm_80, 86, 89 and 90, in float32 and
// a 16-bit type, with no card: the driver is a scripted one, NVRTC is real. Skips where NVRTC is not installed.
// All operators of a row are tried for sm_80 in float32, one of them for the other cards and types. The generic
// forms that the build carries are asked for the same cases, by a driver that knows their names.
// Rows of libraries (cuBLASLt, cuDNN) need a card and are left out here.
#include "support/kcase.h"
#include <stdio.h>
#include "backends/cuda/cuda_int.h"

static const kcase k_cases[] = {
#define HN_CASE(op, attrs, inputs, posts, flags) {op, attrs, inputs, posts, flags},
#include "kernels/cases.def"
#undef HN_CASE
};

static bool is_library(const cuda_row *row) { return !strncmp(row->variant, "cublas", 6) || !strncmp(row->variant, "cudnn", 5); }
// Operators of our own are written with their domain.
static bool row_is(const cuda_row *row, const char *op) {
    if (!strncmp(op, "hn.", 3)) return !strcmp(row->domain, "hn") && !strcmp(row->op, op + 3);
    return !*row->domain && (!strcmp(row->op, "*") || !strcmp(row->op, op));
}

typedef struct seen {
    char op[48];
    size_t row;
} seen;

// One case an operator and row, or (brief) one a row.
static int compile_all(cuda_device *d, const char *type, bool brief, bool *reached) {
    size_t row_count;
    const cuda_row *rows = cuda_rows(&row_count);
    static seen done[1024];
    int done_count = 0, kernels = 0;
    for (size_t c = 0; c < HN_COUNT_OF(k_cases); c++) {
        bool wanted = false;
        for (size_t r = 0; r < row_count; r++) {
            bool have = is_library(&rows[r]) || !row_is(&rows[r], k_cases[c].op) || rows[r].min_cc > d->caps.cc;
            for (int s = 0; s < done_count && !have; s++)
                have = done[s].row == r && (brief || !strcmp(done[s].op, k_cases[c].op));
            wanted = wanted || !have;
        }
        // Scales of quantised layers are float32.
        if (!wanted || (strcmp(type, "f32") && !strncmp(k_cases[c].op, "hn.Q", 4))) continue;
        char inputs[512];
        kcase_retype(k_cases[c].inputs, type, inputs, sizeof inputs);
        kcase changed = k_cases[c];
        changed.inputs = inputs;
        kcase_built b;
        kcase_build(&changed, false, &b);
        hn_layout hints[16];
        for (int layout = 0; layout < (brief ? 1 : 2); layout++)
            for (size_t r = 0; r < row_count; r++) {
                if (is_library(&rows[r]) || !row_is(&rows[r], k_cases[c].op)) continue;
                for (int i = 0; i < 16; i++)
                    hints[i] = i < b.input_count && b.in_list[i] && b.in[i].shape.rank >= 3 && layout ? CUDA_LAST : CUDA_PLAIN;
                hn_select what = {.node = b.node, .in_layout = hints, .threads = 1};
                hn_kernel *kernel = NULL;
                hone_error err = {0};
                hone_status status = rows[r].select(&err, d, &what, &kernel);
                if (status == HONE_ERR_UNSUPPORTED) continue;
                if (status != HONE_OK) fail_msg("%s '%s' %s (sm_%d, %s): %s", changed.op, changed.attrs, inputs, d->caps.cc, type, err.text);
                if (((cuda_kernel *)kernel)->launches.count == 0 && hn_tensor_count(&b.ref[0]) > 0)
                    fail_msg("%s %s: a kernel without launches", changed.op, inputs);
                kernel->ops->destroy(kernel);
                kernels++;
                reached[r] = true;
                if (layout == 0 && done_count < (int)HN_COUNT_OF(done)) {
                    snprintf(done[done_count].op, sizeof done[0].op, "%s", k_cases[c].op);
                    done[done_count++].row = r;
                }
            }
        kcase_drop(&b);
    }
    return kernels;
}

static void every_row_compiles_for_every_card(void **state) {
    (void)state;
    size_t row_count;
    const cuda_row *rows = cuda_rows(&row_count);
    bool *reached = hn_calloc(row_count, sizeof *reached);
    assert_non_null(reached);
    for (int index = 0; index < 4; index++) {
        cuda_device *d;
        hone_error err = {0};
        if (cuda_device_open(&err, index, &d) != HONE_OK) fail_msg("%s", err.text);
        const char *types[] = {"f32", index % 2 ? "bf16" : "f16"};
        for (int t = 0; t < 2; t++) {
            if ((index == 1 || index == 2) && t == 0) continue; // what differs between those and the others is little
            bool brief = index != 0 || t != 0;
            int kernels = compile_all(d, types[t], brief, reached);
            print_message("sm_%d %s: %d kernels selected, %d compiled so far in %.1f s\n", d->caps.cc, types[t], kernels, d->compiled,
                          (double)d->compile_ns / 1e9);
        }
        cuda_modules_free(d);
        assert_null(d->constants); // every kernel gave its weights back
        cuda_device_close(d);
    }
    int missed = 0;
    for (size_t r = 0; r < row_count; r++)
        if (!reached[r] && !is_library(&rows[r])) {
            print_message("no case reaches %s %s\n", rows[r].op, rows[r].variant);
            missed++;
        }
    hn_free(reached);
    assert_int_equal(missed, 0);
}

static void every_row_has_a_generic_form(void **state) {
    (void)state;
    size_t row_count, form_count;
    const cuda_row *rows = cuda_rows(&row_count);
    const cuda_form *forms = cuda_forms(&form_count);
    if (!cuda_embedded_count()) {
        print_message("this build carries no machine code\n");
        skip();
    }
    static const cuda_code k_codes[] = {CUDA_CODE_FORMS, CUDA_CODE_FORMS, CUDA_CODE_FORMS, CUDA_CODE_FORMS, CUDA_CODE_PTX};
    bool *reached = hn_calloc(row_count, sizeof *reached);
    assert_non_null(reached);
    for (int i = 0; i < 5; i++) {
        cuda_device *d;
        hone_error err = {0};
        if (cuda_device_open(&err, i % 4, &d) != HONE_OK) fail_msg("%s", err.text);
        cuda_modules_free(d);
        d->code = k_codes[i];
        for (size_t f = 0; f < form_count; f++) { // of the card's own architecture
            char *code;
            size_t bytes;
            if (cuda_embedded_code(&err, forms[f].name, d->caps.cc, d->code == CUDA_CODE_PTX, &code, &bytes) != HONE_OK) fail_msg("%s", err.text);
            // A build for fewer architectures has PTX for the others.
            if (d->code == CUDA_CODE_PTX || memcmp(code, "\177ELF", 4) != 0) assert_non_null(strstr(code, ".target sm_80"));
            hn_free(code);
        }
        const char *types[] = {"f32", "f16", "bf16"};
        int kernels = 0;
        for (int t = 0; t < 3; t++)
            kernels += compile_all(d, types[t], i != 0, reached);
        print_message("sm_%d: %d kernels of generic forms%s\n", d->caps.cc, kernels, d->code == CUDA_CODE_PTX ? " as PTX" : "");
        assert_int_equal(d->compiled, 0);
        cuda_modules_free(d);
        assert_null(d->constants);
        d->code = CUDA_CODE_OWN;
        cuda_device_close(d);
    }
    int missed = 0;
    for (size_t r = 0; r < row_count; r++)
        if (!reached[r] && kcase_has_form(rows[r].variant)) {
            print_message("no case reaches a generic form of %s %s\n", rows[r].op, rows[r].variant);
            missed++;
        }
    hn_free(reached);
    assert_int_equal(missed, 0);
}

static void every_row_names_a_known_op(void **state) {
    (void)state;
    size_t row_count;
    const cuda_row *rows = cuda_rows(&row_count);
    for (size_t r = 0; r < row_count; r++)
        if (strcmp(rows[r].op, "*") && !hn_op_find(rows[r].domain, rows[r].op)) fail_msg("kernels.def: no op %s", rows[r].op);
}

int main(void) {
    char fake[4096];
    const char *build = getenv("HONE_BUILD_DIR");
    snprintf(fake, sizeof fake, "%s/fakes/libcuda_run.so", build ? build : ".");
    setenv("HONE_CUDA_LIB", fake, 1);
    setenv("FAKE_CUDA_TEXT", "1", 1);
    const hn_nvrtc *nvrtc;
    hone_error err = {0};
    if (hn_nvrtc_get(&err, &nvrtc) != HONE_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_names_a_known_op),
        cmocka_unit_test(every_row_has_a_generic_form),
        cmocka_unit_test(every_row_compiles_for_every_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
