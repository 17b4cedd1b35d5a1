// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 900
// TEST-SERIAL
// kcheck on a card: every row of kernels.def for cards against the C reference, on the shape table
// cases.def, in float32, float16 and bfloat16, plain and channels-last, with guard bands around outputs
// and workspaces. Skips where there is no card. HONE_KCHECK_SEED sets the seed, HONE_KCHECK_OP one
// operator or several with commas, HONE_CUDA_CODE=embedded the build's generic forms instead of NVRTC's, HONE_KCHECK_SKIP the start of those that are left out, HONE_KCHECK_RAW=1 leaves workspaces and outputs as they come (for initcheck), HONE_KCHECK_BENCH=1 prints times (device clock, of what passed), registers and spills.
#include "support/kcase.h"
#include <math.h>
#include <stdio.h>
#include "backends/cuda/cuda_int.h"
#include "config/config.h"

static const kcase k_cases[] = {
#define HN_CASE(op, attrs, inputs, posts, flags) {op, attrs, inputs, posts, flags},
#include "kernels/cases.def"
#undef HN_CASE
};
static cuda_device *g_device;
static int g_failures, g_checked;
static bool g_bench, g_raw;

typedef struct setting {
    const kcase *c;
    const cuda_row *row;
    const char *type;
    hn_layout layout;
} setting;

static void complain(const setting *s, const char *what) {
    print_message("FAILED %s '%s' inputs '%s' posts '%s': row %s, layout %u: %s (seed %llu)\n", s->c->op, s->c->attrs, s->c->inputs,
                  s->c->posts, s->row->variant, s->layout, what, (unsigned long long)kcase_seed);
    g_failures++;
}

#define CU(call) assert_int_equal((call), 0)

// Device memory with bands of 0xa5 on both sides.
typedef struct banded {
    hn_cu_ptr block;
    size_t bytes;
} banded;
static banded band_new(size_t bytes) {
    banded b = {0, bytes};
    CU(g_device->api->cuMemAlloc_v2(&b.block, bytes + 2 * GUARD));
    if (!g_raw) CU(g_device->api->cuMemsetD8Async(b.block, 0xa5, bytes + 2 * GUARD, g_device->stream));
    CU(g_device->api->cuMemsetD8Async(b.block, 0xa5, GUARD, g_device->stream));
    CU(g_device->api->cuMemsetD8Async(b.block + GUARD + bytes, 0xa5, GUARD, g_device->stream));
    return b;
}
static void band_free(banded *b) {
    if (b->block) g_device->api->cuMemFree_v2(b->block);
}
static bool band_whole(const banded *b) {
    unsigned char edges[2 * GUARD];
    CU(g_device->api->cuMemcpyDtoHAsync_v2(edges, b->block, GUARD, g_device->stream));
    CU(g_device->api->cuMemcpyDtoHAsync_v2(edges + GUARD, b->block + GUARD + b->bytes, GUARD, g_device->stream));
    CU(g_device->api->cuStreamSynchronize(g_device->stream));
    for (int i = 0; i < 2 * GUARD; i++)
        if (edges[i] != 0xa5) return false;
    return true;
}

static void tolerance(const kcase_built *b, int output, float *rtol, float *atol) {
    const hn_op_info *info = hn_op_get(b->node->op);
    hn_dtype dtype = b->ref[output].dtype;
    *rtol = info->rtol > 0 || !b->node->post_count ? info->rtol : 1e-4f;
    *atol = info->atol > 0 || !b->node->post_count ? info->atol : 1e-6f;
    // Rounded once more than the reference, and to fewer bits.
    bool computes = *rtol > 0 || b->node->post_count;
    if (dtype == HN_F16 && computes) *rtol = 1e-3f;
    // A step behind a library's product starts from a value that was rounded to 16 bits.
    for (int p = 0; p < b->node->post_count; p++)
        if (cuda_is_float16(dtype) && !strcmp(b->node->post[p].op_type, "Exp")) *rtol = 3e-2f;
    if (dtype == HN_BF16 && computes) *rtol = 8e-3f;
    // A number between two integers may go to either.
    int posts = b->node->post_count;
    if (!strcmp(posts ? b->node->post[posts - 1].op_type : b->node->op_type, "QuantizeLinear")) *rtol = 0, *atol = 1;
}

static void bench(const setting *s, hn_kernel *kernel, const hn_args *args, const hn_node *node) {
    const hn_cuda *api = g_device->api;
    hn_cu_event begin, end;
    float best = 1e9f, ms;
    CU(api->cuEventCreate(&begin, 0));
    CU(api->cuEventCreate(&end, 0));
    for (int round = 0; round < 5; round++) {
        CU(api->cuEventRecord(begin, g_device->stream));
        for (int i = 0; i < 10; i++)
            assert_int_equal(kernel->ops->run(NULL, kernel, args), HONE_OK);
        CU(api->cuEventRecord(end, g_device->stream));
        CU(api->cuEventSynchronize(end));
        CU(api->cuEventElapsedTime(&ms, begin, end));
        if (ms / 10 < best) best = ms / 10;
    }
    hn_cost cost;
    hn_node_cost(node, &cost);
    const cuda_kernel *k = (cuda_kernel *)kernel;
    int registers = k->launches.count ? k->launches.data[0].function.registers : 0, spills = k->launches.count ? k->launches.data[0].function.spill_bytes : 0;
    print_message("%-22s %-20s %-5s %-4s %8.2f us %9.1f GFLOP/s %8.1f GB/s %3d regs %d spilled  %s\n", s->c->op,
                  kernel->variant ? kernel->variant : s->row->variant, s->type, s->layout == CUDA_LAST ? "last" : "", best * 1e3,
                  cost.flops / best / 1e6, (cost.read_bytes + cost.write_bytes) / best / 1e6, registers, spills, s->c->inputs);
    api->cuEventDestroy_v2(begin);
    api->cuEventDestroy_v2(end);
}

static void check_outputs(const setting *s, const kcase_built *b, hn_kernel *kernel, const banded *out) {
    for (int i = 0; i < b->output_count; i++) {
        char text[160];
        double worst;
        float rtol, atol;
        size_t bytes = b->ref[i].bytes;
        unsigned char *got = hn_malloc(bytes + 1), *plain = hn_malloc(bytes + 1);
        if (bytes) CU(g_device->api->cuMemcpyDtoHAsync_v2(got, out[i].block + GUARD, bytes, g_device->stream));
        CU(g_device->api->cuStreamSynchronize(g_device->stream));
        kcase_relayout(&b->ref[i], cuda_to_host(kernel->out_layout[i]), got, plain, true);
        tolerance(b, i, &rtol, &atol);
        if (!kcase_same(&b->ref[i], plain, rtol, atol, hn_op_has(b->node->op, HN_T_MATMUL), &worst)) {
            snprintf(text, sizeof text, "output %d differs by up to %g", i, worst);
            complain(s, text);
        } else if (!band_whole(&out[i])) {
            complain(s, "wrote outside its output");
        }
        hn_free(got);
        hn_free(plain);
    }
}

// Operators of our own are written with their domain.
static bool row_is(const cuda_row *row, const char *op) {
    if (!strncmp(op, "hn.", 3)) return !strcmp(row->domain, "hn") && !strcmp(row->op, op + 3);
    return !*row->domain && (!strcmp(row->op, "*") || !strcmp(row->op, op));
}

// False where the row does not take the case.
static bool check_once(const setting *s, const kcase_built *b) {
    hn_layout hints[16];
    for (int i = 0; i < 16; i++)
        hints[i] = i < b->input_count && b->in_list[i] && b->in[i].shape.rank >= 3 && !b->node->inputs[i]->constant ? s->layout : CUDA_PLAIN;
    hn_select what = {.node = b->node, .in_layout = hints, .threads = 1};
    hn_kernel *kernel = NULL;
    hone_error err = {0};
    hone_status status = s->row->select(&err, g_device, &what, &kernel);
    if (status == HONE_ERR_UNSUPPORTED) return false;
    g_checked++;
    if (status != HONE_OK) {
        complain(s, err.text);
        return true;
    }
    banded in[16] = {{0}}, out[4] = {{0}}, workspace = band_new(kernel->workspace_bytes);
    void *inputs[16] = {0}, *outputs[4] = {0};
    for (int i = 0; i < b->input_count; i++) {
        if (!b->in_list[i] || kernel->consumed >> i & 1) continue;
        in[i] = band_new(b->in[i].bytes);
        unsigned char *host = hn_malloc(b->in[i].bytes + 1);
        kcase_relayout(&b->in[i], cuda_to_host(kernel->in_layout[i]), b->in[i].data, host, false);
        if (b->in[i].bytes) CU(g_device->api->cuMemcpyHtoDAsync_v2(in[i].block + GUARD, host, b->in[i].bytes, g_device->stream));
        CU(g_device->api->cuStreamSynchronize(g_device->stream));
        hn_free(host);
        inputs[i] = cuda_pointer(in[i].block + GUARD);
    }
    for (int i = 0; i < b->output_count; i++) {
        out[i] = band_new(b->ref[i].bytes);
        outputs[i] = cuda_pointer(out[i].block + GUARD);
    }
    hn_args args = {inputs, outputs, cuda_pointer(workspace.block + GUARD)};
    status = kernel->ops->run(&err, kernel, &args);
    if (status == HONE_OK) status = g_device->backend.sync(&err, &g_device->backend);
    if (status != HONE_OK) {
        complain(s, err.text);
        if (g_device->lost) fail_msg("the card is lost");
    } else {
        int before = g_failures;
        check_outputs(s, b, kernel, out);
        if (!band_whole(&workspace)) complain(s, "wrote outside its workspace");
        for (int i = 0; i < b->input_count; i++)
            if (in[i].block && !band_whole(&in[i])) complain(s, "wrote outside an input");
        if (g_bench && g_failures == before) bench(s, kernel, &args, b->node);
    }
    for (int i = 0; i < 16; i++)
        band_free(&in[i]);
    for (int i = 0; i < 4; i++)
        band_free(&out[i]);
    band_free(&workspace);
    kernel->ops->destroy(kernel);
    return true;
}

// Is `op` one of the names in a list with commas?
static bool is_named(const char *list, const char *op) {
    size_t length = strlen(op);
    for (const char *at = list; (at = strstr(at, op)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return true;
    return false;
}

static void every_row_agrees_with_the_reference(void **state) {
    (void)state;
    const char *seed = getenv("HONE_KCHECK_SEED"), *only = getenv("HONE_KCHECK_OP"), *skip = getenv("HONE_KCHECK_SKIP");
    if (seed) kcase_seed = strtoull(seed, NULL, 10);
    g_bench = getenv("HONE_KCHECK_BENCH") != NULL;
    g_raw = getenv("HONE_KCHECK_RAW") != NULL;
    size_t row_count;
    const cuda_row *rows = cuda_rows(&row_count);
    bool *reached = hn_calloc(row_count, sizeof *reached);
    static const char *const k_types[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        if ((only && !is_named(only, k_cases[i].op)) || (skip && !strncmp(k_cases[i].op, skip, strlen(skip))) ||
            strchr(k_cases[i].flags, 'B'))
            continue;
        bool known = false; // operators of the other backend's own have references in float32 only
        for (size_t r = 0; r < row_count && !known; r++)
            known = row_is(&rows[r], k_cases[i].op);
        if (!known) continue;
        bool any = false, quantised = !strncmp(k_cases[i].op, "hn.Q", 4); // its scales are float32
        for (int t = 0; t < (quantised ? 1 : 3) && (t == 0 || strstr(k_cases[i].inputs, "f32")); t++) {
            char inputs[512];
            kcase_retype(k_cases[i].inputs, k_types[t], inputs, sizeof inputs);
            kcase changed = k_cases[i];
            changed.inputs = inputs;
            kcase_built b;
            // The second time with a NaN and infinities among the inputs.
            bool spoil = !strchr(changed.flags, 'F');
            for (int spoiled = 0; spoiled <= (spoil && t < 2); spoiled++) {
            kcase_build(&changed, spoiled, &b);
            for (size_t r = 0; r < row_count; r++)
                for (int layout = 0; layout < 2; layout++) {
                    setting s = {&changed, &rows[r], k_types[t], layout ? CUDA_LAST : CUDA_PLAIN};
                    if (!row_is(&rows[r], changed.op)) continue;
                    bool library = !strcmp(rows[r].variant, "cudnn"); // chooses its own layout, builds slowly
                    if (library && (layout || t == 2)) continue;
                    if (check_once(&s, &b)) any = reached[r] = true;
                }
            kcase_drop(&b);
            }
        }
        if (!any) print_message("no row takes %s %s %s\n", k_cases[i].op, k_cases[i].attrs, k_cases[i].inputs);
    }
    int missed = 0;
    for (size_t r = 0; r < row_count && !only; r++)
        if (!reached[r] && (!cuda_is_generic(g_device) || kcase_has_form(rows[r].variant))) {
            print_message("no case reaches %s %s\n", rows[r].op, rows[r].variant);
            missed++;
        }
    hn_free(reached);
    print_message("%d kernels checked on %s, %d wrong, %d rows not reached; %d compiled in %.1f s\n", g_checked, g_device->device, g_failures,
                  missed, g_device->compiled, (double)g_device->compile_ns / 1e9);
    assert_int_equal(g_failures + missed, 0);
}

int main(void) {
    hone_error err = {0};
    hn_backend *backend;
    if (hn_config_init(&err) != HONE_OK) fail_msg("%s", err.text);
    if (hn_backend_open(&err, "cuda", 0, &backend) != HONE_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    g_device = backend->state;
    g_device->tries = 1; // this checks, it does not choose
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_agrees_with_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
