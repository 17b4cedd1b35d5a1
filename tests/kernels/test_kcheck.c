// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 240
// kcheck: every row of kernels.def against the C reference, on the shape table cases.def.
//
// For each case and each row of its op: all instruction set levels the CPU has, inputs plain and
// channels-last, one and two threads. Memory the kernel gets ends in guard bands that must stay as
// they were; inputs must too, unless the kernel works in place, which is then tried as well. Each
// case with float inputs runs a second time with a NaN and both infinities among them: the result
// must have its NaNs where the reference has them. A row that no case reaches is a failure. HONE_KCHECK_SEED sets the seed (printed on failure);
// HONE_KCHECK_BENCH=1 prints times, of rows that passed only.
#include "support/kcase.h"
#include <math.h>
#include "backends/cpu/cpu_int.h"

static const kcase k_cases[] = {
#define HN_CASE(op, attrs, inputs, posts, flags) {op, attrs, inputs, posts, flags},
#include "kernels/cases.def"
#undef HN_CASE
};
static bool g_bench;

// ---- one run ------------------------------------------------------------------------------------
typedef struct setting {
    const kcase *c;
    const cpu_row *row;
    cpu_state *cpu;
    hn_layout layout;
    int threads;
    bool in_place, spoiled;
} setting;
static int g_complaints;

static void complain(const setting *s, const char *what) {
    g_complaints++;
    print_message("%s '%s' inputs '%s' posts '%s': row %s, isa %s, layout %u, %d threads%s%s: %s (seed %llu)\n",
                  s->c->op, s->c->attrs, s->c->inputs, s->c->posts, s->row->variant,
                  hn_isa_name(s->cpu->isa), s->layout, s->threads, s->in_place ? ", in place" : "",
                  s->spoiled ? ", with NaN" : "", what, (unsigned long long)kcase_seed);
}

static void bench(const setting *s, hn_kernel *kernel, const hn_args *args, const hn_node *node) {
    hn_cost cost;
    hn_node_cost(node, &cost);
    double best = 1e30;
    for (int i = 0; i < 50; i++) {
        int64_t t = hn_clock_ns();
        if (kernel->ops->run(NULL, kernel, args) != HONE_OK) return;
        double ns = (double)(hn_clock_ns() - t);
        if (ns < best) best = ns;
    }
    print_message("%-22s %-28s %-8s %d thr %s  %9.2f us  %7.2f GFLOP/s  %7.2f GB/s  %s\n", s->c->op,
                  kernel->variant ? kernel->variant : s->row->variant, hn_isa_name(s->cpu->isa),
                  s->threads, s->layout ? "nhwc" : "    ", best / 1e3, cost.flops / best,
                  (cost.read_bytes + cost.write_bytes) / best, s->c->inputs);
}

// False where the row does not take the case.
static bool check_once(const setting *s, const kcase_built *b) {
    // Without bf16 the kernels compute in float32, which is not what the reference then says.
    if (b->node->compute == HN_BF16 && !dnnl_wants_bf16(s->cpu, b->node)) return false;
    // Such a node never comes to the others: what they fall back to would be this one.
    if (b->node->plain && strcmp(s->row->variant, "own:plain_conv") != 0) return false;
    hn_layout hints[16];
    for (int i = 0; i < b->input_count; i++)
        hints[i] = b->in_list[i] && b->in[i].shape.rank >= 3 && !b->node->inputs[i]->constant
                       ? s->layout
                       : HN_LAYOUT_PLAIN;
    hn_select what = {.node = b->node, .in_layout = hints, .threads = s->threads};
    hn_kernel *kernel = NULL;
    hone_error err = {0};
    hone_status status = s->row->select(&err, s->cpu, &what, &kernel);
    if (status == HONE_ERR_UNSUPPORTED) return false;
    if (status != HONE_OK) {
        complain(s, err.text);
        return true;
    }
    kcase_guarded in[16] = {{0}}, out[4] = {{0}}, before[16] = {{0}}, workspace = kcase_guard_new(kernel->workspace_bytes);
    void *inputs[16] = {0}, *outputs[4] = {0};
    for (int i = 0; i < b->input_count; i++) {
        if (!b->in_list[i] || kernel->consumed >> i & 1) continue;
        in[i] = kcase_guard_new(b->in[i].bytes);
        before[i] = kcase_guard_new(b->in[i].bytes);
        kcase_relayout(&b->in[i], kernel->in_layout[i], b->in[i].data, kcase_guard_data(&in[i]), false);
        memcpy(kcase_guard_data(&before[i]), kcase_guard_data(&in[i]), b->in[i].bytes);
        inputs[i] = kcase_guard_data(&in[i]);
    }
    bool shared = false;
    for (int i = 0; i < b->output_count; i++) {
        int from = i < 2 ? kernel->inplace_input[i] : -1;
        if (s->in_place && from >= 0 && inputs[from] && b->in[from].bytes >= b->ref[i].bytes) {
            outputs[i] = inputs[from];
            shared = true;
            continue;
        }
        out[i] = kcase_guard_new(b->ref[i].bytes);
        outputs[i] = kcase_guard_data(&out[i]);
    }
    hn_args args = {inputs, outputs, kcase_guard_data(&workspace)};
    if (kernel->ops->bind && kernel->ops->bind(&err, kernel, &args) != HONE_OK) complain(s, err.text);
    if (s->in_place && !shared) goto done;
    uint64_t calls = hn_alloc_calls();
    if (kernel->ops->run(&err, kernel, &args) != HONE_OK) complain(s, err.text);
    if (hn_alloc_calls() != calls && !s->spoiled) complain(s, "the run allocated memory");
    const hn_op_info *info = hn_op_get(b->node->op);
    for (int i = 0; i < b->output_count; i++) {
        kcase_guarded plain = kcase_guard_new(b->ref[i].bytes);
        kcase_relayout(&b->ref[i], kernel->out_layout[i], outputs[i], kcase_guard_data(&plain), true);
        double worst;
        // A fused step adds its own rounding: an exact op with posts gets the float32 tolerance.
        float rtol = info->rtol > 0 || !b->node->post_count ? info->rtol : 1e-4f;
        float atol = info->atol > 0 || !b->node->post_count ? info->atol : 1e-6f;
        // Quantised results: a tie may fall on the other side after another order of the factors.
        if (b->ref[i].dtype != HN_F32 && hn_op_has(b->node->op, HN_T_MATMUL)) {
            rtol = 0;
            atol = 1;
        }
        // oneDNN's bf16 products fill groups of channels up with neighbours times 0.
        bool spread = s->spoiled && b->node->compute == HN_BF16;
        if (!kcase_same(&b->ref[i], kcase_guard_data(&plain), rtol, atol, spread, &worst)) {
            char text[160];
            snprintf(text, sizeof text, "output %d differs by up to %g (%s)", i, worst,
                     kernel->variant ? kernel->variant : "");
            complain(s, text);
        }
        hn_free(plain.block);
        if (!kcase_guard_whole(&out[i])) complain(s, "wrote outside its output");
    }
    if (!kcase_guard_whole(&workspace)) complain(s, "wrote outside its workspace");
    for (int i = 0; i < b->input_count; i++) {
        if (!in[i].block) continue;
        if (!kcase_guard_whole(&in[i])) complain(s, "wrote outside an input");
        bool is_output = false;
        for (int o = 0; o < b->output_count; o++)
            is_output = is_output || outputs[o] == inputs[i];
        if (!is_output && memcmp(kcase_guard_data(&in[i]), kcase_guard_data(&before[i]), in[i].bytes))
            complain(s, "wrote to an input");
    }
    if (g_bench && !s->in_place && !s->spoiled) bench(s, kernel, &args, b->node);
done:
    for (int i = 0; i < b->input_count; i++) {
        hn_free(in[i].block);
        hn_free(before[i].block);
    }
    for (int i = 0; i < b->output_count; i++)
        hn_free(out[i].block);
    hn_free(workspace.block);
    kernel->ops->destroy(kernel);
    return true;
}

static bool row_is(const cpu_row *row, const char *op) {
    if (!strncmp(op, "hn.", 3)) return !strcmp(row->domain, "hn") && !strcmp(row->op, op + 3);
    return !*row->domain && !strcmp(row->op, op);
}

static void nothing(void *arg, int64_t begin, int64_t end) { (void)arg, (void)begin, (void)end; }

static bool check_row(const kcase *c, const cpu_row *row, cpu_state *levels, int level_count,
                      const kcase_built *b, bool spoiled) {
    bool reached = false;
    for (int l = 0; l < level_count; l++) {
        if (row->isa > levels[l].isa || (row->dnnl && (!levels[l].dnnl || l + 1 < level_count))) continue;
        for (int layout = 0; layout < 2; layout++)
            for (int threads = 1; threads <= 2; threads++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    setting s = {c, row, &levels[l], (hn_layout)layout, threads, in_place, spoiled};
                    hn_parallel_set_threads(threads);
                    hn_parallel_for(threads, 1, nothing, NULL); // a process's first region makes its helpers
                    if (check_once(&s, b)) reached = true;
                }
    }
    return reached;
}

static void every_row_agrees_with_the_reference(void **state) {
    (void)state;
    const char *seed = getenv("HONE_KCHECK_SEED");
    if (seed) kcase_seed = strtoull(seed, NULL, 10);
    g_bench = getenv("HONE_KCHECK_BENCH") != NULL;
    const char *only = getenv("HONE_KCHECK_OP");
    cpu_state *cpu, levels[3];
    assert_int_equal(cpu_state_get(NULL, &cpu), HONE_OK);
    int level_count = 0;
    static const hn_isa isas[] = {HN_ISA_REF, HN_ISA_AVX2};
    for (int i = 0; i < 2; i++)
        if (isas[i] < cpu->isa) {
            levels[level_count] = *cpu;
            cpu_state_cap(&levels[level_count++], isas[i]);
        }
    levels[level_count++] = *cpu;
    size_t row_count;
    const cpu_row *rows = cpu_rows(&row_count);
    bool *reached = hn_calloc(row_count, sizeof *reached);
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        if (only && strcmp(only, k_cases[i].op)) continue;
        bool floats = strstr(k_cases[i].inputs, "f32[") || strstr(k_cases[i].inputs, "f32+[");
        bool any = false;
        for (int spoiled = 0; spoiled <= (floats && !strchr(k_cases[i].flags, 'F')); spoiled++) {
            kcase_built b;
            kcase_build(&k_cases[i], spoiled, &b);
            for (size_t r = 0; r < row_count; r++)
                if (row_is(&rows[r], k_cases[i].op) &&
                    check_row(&k_cases[i], &rows[r], levels, level_count, &b, spoiled))
                    any = reached[r] = true;
            kcase_drop(&b);
        }
        if (!any) print_message("no row takes %s %s %s\n", k_cases[i].op, k_cases[i].attrs, k_cases[i].inputs);
    }
    int missed = 0;
    for (size_t r = 0; r < row_count && !only; r++)
        if (!reached[r] && (cpu->dnnl || !rows[r].dnnl) && rows[r].isa <= cpu->isa) {
            print_message("no case reaches %s %s\n", rows[r].op, rows[r].variant);
            missed++;
        }
    hn_free(reached);
    assert_int_equal(missed, 0);
    assert_int_equal(g_complaints, 0);
}

static void every_row_names_a_known_op(void **state) {
    (void)state;
    size_t row_count;
    const cpu_row *rows = cpu_rows(&row_count);
    for (size_t r = 0; r < row_count; r++)
        if (!hn_op_find(rows[r].domain, rows[r].op)) fail_msg("kernels.def: no op %s", rows[r].op);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_names_a_known_op),
        cmocka_unit_test(every_row_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
