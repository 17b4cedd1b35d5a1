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
#include "support/test.h"
#include <math.h>
#include "backends/cpu/cpu_int.h"

typedef struct kcase {
    const char *op, *attrs, *inputs, *posts, *flags;
} kcase;
static const kcase k_cases[] = {
#define HN_CASE(op, attrs, inputs, posts, flags) {op, attrs, inputs, posts, flags},
#include "kernels/cases.def"
#undef HN_CASE
};

static uint64_t g_seed = 20260101;
static bool g_bench;
static uint64_t next_random(void) {
    g_seed ^= g_seed << 13;
    g_seed ^= g_seed >> 7;
    g_seed ^= g_seed << 17;
    return g_seed;
}
static double uniform(void) { return (double)(next_random() >> 11) / 9007199254740992.0; }

// ---- building a node from its row ---------------------------------------------------------------
static hn_dtype dtype_by(const char *name, size_t n) {
    hn_slice s = {name, n};
    return hn_dtype_from_name(s);
}

static double draw(hn_dtype dtype, bool positive, bool special) {
    uint64_t r = next_random();
    if (dtype == HN_BOOL) return (double)(r & 1);
    if (dtype == HN_U8) return (double)(r % 256);
    if (dtype != HN_F32) return (double)(r % 21) - 10;
    if (special && r % 16 == 0) {
        static const double odd[] = {INFINITY, -INFINITY, NAN, 1e-40, -1e-40, 3e38, -3e38, 88.7, -104};
        return odd[r / 16 % 9];
    }
    if (!positive && r % 11 == 0) return 0;
    double v = uniform() * 4 - 2;
    return positive ? fabs(v) + 0.05 : v;
}

static void set_dims(const char **p, hn_shape *shape) {
    shape->rank = 0;
    while (**p != ']') {
        shape->dims[shape->rank++] = strtoll(*p, (char **)(uintptr_t)p, 10);
        if (**p == ',') ++*p;
    }
    ++*p;
}

// Places of a NaN, an infinity and a negative one in a drawn tensor.
static void spoil(hn_tensor *t) {
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    int64_t n = hn_tensor_count(t);
    for (int i = 0; t->dtype == HN_F32 && n && i < 3 && (i == 0 || n > 64); i++)
        hn_tensor_set_f64(t, (int64_t)(next_random() % (uint64_t)n), odd[i]);
}

// Parses one input description; false at the end. constant and tensor are the outcome.
static bool parse_input(const char **p, bool special, hn_tensor *t, bool *constant, bool *absent) {
    while (**p == ' ')
        ++*p;
    if (!**p) return false;
    *absent = **p == '-';
    if (*absent) {
        ++*p;
        return true;
    }
    const char *start = *p;
    while (**p != '[' && **p != '{' && **p != '+')
        ++*p;
    hn_dtype dtype = dtype_by(start, (size_t)(*p - start));
    assert_int_not_equal(dtype, HN_NONE);
    bool positive = **p == '+';
    if (positive) ++*p;
    hn_shape shape = {0};
    if (**p == '[') {
        ++*p;
        set_dims(p, &shape);
        assert_int_equal(hn_tensor_new(NULL, dtype, &shape, t), HONE_OK);
        for (int64_t i = 0; i < hn_tensor_count(t); i++)
            hn_tensor_set_f64(t, i, draw(dtype, positive, special));
    } else {
        double values[64];
        int n = 0;
        ++*p;
        while (**p != '}') {
            values[n++] = strtod(*p, (char **)(uintptr_t)p);
            if (**p == ',') ++*p;
        }
        ++*p;
        shape.rank = 1;
        shape.dims[0] = n;
        assert_int_equal(hn_tensor_new(NULL, dtype, &shape, t), HONE_OK);
        for (int i = 0; i < n; i++)
            hn_tensor_set_f64(t, i, values[i]);
    }
    *constant = **p == 'c';
    if (*constant) ++*p;
    if (**p == ':') { // other dims for given values
        ++*p;
        shape.rank = 0;
        while (**p && **p != ' ') {
            shape.dims[shape.rank++] = strtoll(*p, (char **)(uintptr_t)p, 10);
            if (**p == ',') ++*p;
        }
        t->shape = shape;
    }
    return true;
}

static void parse_attrs(hn_node *node, const char *p, int *outputs) {
    while (*p) {
        while (*p == ' ')
            p++;
        const char *eq = strchr(p, '=');
        if (!eq) break;
        char name[64], value[128];
        snprintf(name, sizeof name, "%.*s", (int)(eq - p), p);
        size_t n = strcspn(eq + 1, " ");
        snprintf(value, sizeof value, "%.*s", (int)n, eq + 1);
        p = eq + 1 + n;
        char *end;
        if (!strcmp(name, "outputs")) {
            *outputs = atoi(value);
            continue;
        }
        double number = strtod(value, &end);
        const char *schema = hn_op_get(node->op)->attrs;
        char list[80];
        snprintf(list, sizeof list, "%s:is", name);
        if (strchr(value, ',') || strstr(schema, list)) {
            int64_t ints[16];
            int count = 0;
            for (char *v = value; *v; count++) {
                ints[count] = strtoll(v, &v, 10);
                if (*v == ',') v++;
            }
            assert_true(hn_node_set_ints(node, name, ints, count));
        } else if (*end) assert_true(hn_node_set_string(node, name, value));
        else if (strchr(value, '.')) assert_true(hn_node_set_float(node, name, (float)number));
        else assert_true(hn_node_set_int(node, name, (int64_t)number));
    }
}

static void parse_posts(hn_node *node, const char *p, int *base_inputs) {
    while (*p) {
        char one[64], name[32] = "", a[16] = "", b[16] = "";
        size_t n = strcspn(p, ";");
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        p += n + (p[n] == ';');
        sscanf(one, "%31s %15s %15s", name, a, b);
        hn_post *post = &node->post[node->post_count++];
        *post = (hn_post){.op = hn_op_find("", name), .input = -1, .scale = -1, .zero = -1};
        post->op_type = hn_op_get(post->op)->name;
        assert_int_not_equal(post->op, HN_OP_UNKNOWN);
        if (a[0] == ':') { // :operand:scale:zero, each may be empty
            int *fields[] = {&post->input, &post->scale, &post->zero};
            char *at = a;
            for (int i = 0; i < 3 && *at == ':'; i++) {
                at++;
                if (*at >= '0' && *at <= '9') *fields[i] = (int)strtol(at, &at, 10);
                if (*fields[i] >= 0 && *fields[i] < *base_inputs) *base_inputs = *fields[i];
            }
        } else {
            post->alpha = (float)atof(a);
            post->beta = (float)atof(b);
        }
    }
    node->base_input_count = *base_inputs;
}

typedef struct built {
    hn_module *module;
    hn_node *node;
    int input_count, output_count;
    hn_tensor in[16], ref[4];
    const hn_tensor *in_list[16];
} built;

static void build(const kcase *c, bool spoiled, built *b) {
    memset(b, 0, sizeof *b);
    b->module = hn_module_new();
    assert_non_null(b->module);
    hn_value *values[16] = {0};
    const char *p = c->inputs;
    bool constant, absent, special = strchr(c->flags, 'S') != NULL;
    hn_tensor t;
    while (constant = absent = false, parse_input(&p, special, &t, &constant, &absent)) {
        int i = b->input_count++;
        if (absent) continue;
        b->in[i] = t;
        b->in_list[i] = &b->in[i];
        if (spoiled && !constant) spoil(&b->in[i]);
        if (constant) {
            hn_tensor copy = hn_tensor_ref(&t);
            values[i] = hn_graph_add_constant(b->module->main, "", &copy);
        } else {
            hn_type type;
            hn_type_set_shape(&type, t.dtype, &t.shape);
            char name[16];
            snprintf(name, sizeof name, "in%d", i);
            values[i] = hn_graph_add_input(b->module->main, name, &type);
        }
        assert_non_null(values[i]);
    }
    bool internal = !strncmp(c->op, "hn.", 3);
    hn_op op = hn_op_find(internal ? "hn" : "", internal ? c->op + 3 : c->op);
    if (!op) fail_msg("no op %s", c->op);
    b->output_count = 1;
    const char *given = strstr(c->attrs, "outputs=");
    if (given) {
        const char *own = !strncmp(c->attrs, "outputs=", 8) ? c->attrs : strstr(c->attrs, " outputs=");
        if (own) b->output_count = atoi(strchr(own + 1, '=') + 1);
    }
    b->node = hn_node_make(b->module->main, NULL, op, values, b->input_count, b->output_count);
    assert_non_null(b->node);
    int unused, base_inputs = b->input_count;
    parse_attrs(b->node, c->attrs, &unused);
    parse_posts(b->node, c->posts, &base_inputs);
    if (strchr(c->flags, 'B')) b->node->compute = HN_BF16;
    hone_error err = {0};
    if (hn_infer_node(&err, b->node) != HONE_OK) fail_msg("%s %s: %s", c->op, c->inputs, err.text);
    if (hn_ref_run(&err, b->node, b->in_list, b->input_count, b->ref, b->output_count, 1) != HONE_OK)
        fail_msg("%s %s: reference: %s", c->op, c->inputs, err.text);
}

static void drop(built *b) {
    for (int i = 0; i < b->input_count; i++)
        hn_tensor_free(&b->in[i]);
    for (int i = 0; i < b->output_count; i++)
        hn_tensor_free(&b->ref[i]);
    hn_module_free(b->module);
}

// ---- memory with guards -------------------------------------------------------------------------
#define GUARD 256
typedef struct guarded {
    unsigned char *block;
    size_t bytes;
} guarded;

static guarded guard_new(size_t bytes) {
    guarded g = {hn_malloc_aligned(bytes + 2 * GUARD), bytes};
    assert_non_null(g.block);
    memset(g.block, 0xa5, bytes + 2 * GUARD);
    return g;
}
static void *guard_data(const guarded *g) { return g->block ? g->block + GUARD : NULL; }
static bool guard_whole(const guarded *g) {
    if (!g->block) return true;
    for (size_t i = 0; i < GUARD; i++)
        if (g->block[i] != 0xa5 || g->block[GUARD + g->bytes + i] != 0xa5) return false;
    return true;
}

// Copies between plain and a layout.
static void relayout(const hn_tensor *like, hn_layout layout, const void *from, void *to, bool back) {
    int64_t s[HN_MAX_RANK], n = hn_tensor_count(like), at[HN_MAX_RANK] = {0};
    size_t bytes = hn_dtype_bytes(like->dtype);
    cpu_strides(&like->shape, layout, s);
    for (int64_t i = 0; i < n; i++) {
        int64_t o = 0;
        for (int d = 0; d < like->shape.rank; d++)
            o += at[d] * s[d];
        if (back) memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)o * bytes, bytes);
        else memcpy((char *)to + (size_t)o * bytes, (const char *)from + (size_t)i * bytes, bytes);
        for (int d = like->shape.rank - 1; d >= 0 && ++at[d] == like->shape.dims[d]; d--)
            at[d] = 0;
    }
}

// With `spread`, a NaN may also be where the reference has none.
static bool same(const hn_tensor *ref, const void *got_data, float rtol, float atol, bool spread,
                 double *worst) {
    hn_tensor got = *ref;
    got.data = (void *)(uintptr_t)got_data;
    int64_t n = hn_tensor_count(ref);
    double top = 0;
    *worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double r = fabs(hn_tensor_get_f64(ref, i));
        if (isfinite(r) && r > top) top = r;
    }
    for (int64_t i = 0; i < n; i++) {
        double r = hn_tensor_get_f64(ref, i), g = hn_tensor_get_f64(&got, i);
        if (isnan(g) && (isnan(r) || spread)) continue;
        if (r == g) continue;
        double d = fabs(r - g);
        if (isnan(d) || d > *worst) *worst = isnan(d) ? INFINITY : d;
        if (!(d <= rtol * top + atol)) return false;
    }
    return true;
}

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
                  s->spoiled ? ", with NaN" : "", what, (unsigned long long)g_seed);
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
static bool check_once(const setting *s, const built *b) {
    // Without bf16 the kernels compute in float32, which is not what the reference then says.
    if (b->node->compute == HN_BF16 && !dnnl_wants_bf16(s->cpu, b->node)) return false;
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
    guarded in[16] = {{0}}, out[4] = {{0}}, before[16] = {{0}}, workspace = guard_new(kernel->workspace_bytes);
    void *inputs[16] = {0}, *outputs[4] = {0};
    for (int i = 0; i < b->input_count; i++) {
        if (!b->in_list[i] || kernel->consumed >> i & 1) continue;
        in[i] = guard_new(b->in[i].bytes);
        before[i] = guard_new(b->in[i].bytes);
        relayout(&b->in[i], kernel->in_layout[i], b->in[i].data, guard_data(&in[i]), false);
        memcpy(guard_data(&before[i]), guard_data(&in[i]), b->in[i].bytes);
        inputs[i] = guard_data(&in[i]);
    }
    bool shared = false;
    for (int i = 0; i < b->output_count; i++) {
        int from = i < 2 ? kernel->inplace_input[i] : -1;
        if (s->in_place && from >= 0 && inputs[from] && b->in[from].bytes >= b->ref[i].bytes) {
            outputs[i] = inputs[from];
            shared = true;
            continue;
        }
        out[i] = guard_new(b->ref[i].bytes);
        outputs[i] = guard_data(&out[i]);
    }
    hn_args args = {inputs, outputs, guard_data(&workspace)};
    if (kernel->ops->bind && kernel->ops->bind(&err, kernel, &args) != HONE_OK) complain(s, err.text);
    if (s->in_place && !shared) goto done;
    uint64_t calls = hn_alloc_calls();
    if (kernel->ops->run(&err, kernel, &args) != HONE_OK) complain(s, err.text);
    if (hn_alloc_calls() != calls && !s->spoiled) complain(s, "the run allocated memory");
    const hn_op_info *info = hn_op_get(b->node->op);
    for (int i = 0; i < b->output_count; i++) {
        guarded plain = guard_new(b->ref[i].bytes);
        relayout(&b->ref[i], kernel->out_layout[i], outputs[i], guard_data(&plain), true);
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
        if (!same(&b->ref[i], guard_data(&plain), rtol, atol, spread, &worst)) {
            char text[160];
            snprintf(text, sizeof text, "output %d differs by up to %g (%s)", i, worst,
                     kernel->variant ? kernel->variant : "");
            complain(s, text);
        }
        hn_free(plain.block);
        if (!guard_whole(&out[i])) complain(s, "wrote outside its output");
    }
    if (!guard_whole(&workspace)) complain(s, "wrote outside its workspace");
    for (int i = 0; i < b->input_count; i++) {
        if (!in[i].block) continue;
        if (!guard_whole(&in[i])) complain(s, "wrote outside an input");
        bool is_output = false;
        for (int o = 0; o < b->output_count; o++)
            is_output = is_output || outputs[o] == inputs[i];
        if (!is_output && memcmp(guard_data(&in[i]), guard_data(&before[i]), in[i].bytes))
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
                      const built *b, bool spoiled) {
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
    if (seed) g_seed = strtoull(seed, NULL, 10);
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
            built b;
            build(&k_cases[i], spoiled, &b);
            for (size_t r = 0; r < row_count; r++)
                if (row_is(&rows[r], k_cases[i].op) &&
                    check_row(&k_cases[i], &rows[r], levels, level_count, &b, spoiled))
                    any = reached[r] = true;
            drop(&b);
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
