// SPDX-License-Identifier: Apache-2.0
// hone bench: latency, throughput, memory of a model; paired against another with --vs.
#include "cli/load.h"
#include "tune/joules.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

typedef struct bench_args {
    hn_cli_model model, other;
    const char *vs;
    double seconds;
    bool json, profile, paced;
} bench_args;

static hone_status run_once(hone_error *err, void *user) {
    return hn_cli_model_run(err, user);
}

// Resident runs do not wait: many are started, then waited for once.
#define RESIDENT_RUNS 20
static hone_status run_resident(hone_error *err, void *user) {
    hn_cli_model *m = user;
    for (int i = 0; i < RESIDENT_RUNS; i++)
        HN_TRY(hn_cli_model_run(err, m));
    return m->backend->sync(err, m->backend);
}

static void per_run(hn_latency *l) {
    double *const numbers[] = {&l->p50_ms, &l->p90_ms, &l->p99_ms, &l->mean_ms, &l->min_ms};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        *numbers[i] /= RESIDENT_RUNS;
    l->calls *= RESIDENT_RUNS;
}

static hn_status measure_one(hone_error *err, hn_cli_model *m, const hn_measure_options *options, hn_latency *out) {
    if (!m->resident || !m->backend->on_device) return hn_measure_one(err, run_once, m, options, out);
    HN_TRY(hn_measure_one(err, run_resident, m, options, out));
    per_run(out);
    return HONE_OK;
}

// Time from opening the file to the first answer, and of the first run with planning alone.
typedef struct cold {
    double load_ms, first_ms;
    double joules; // of a steady call, NAN unknown
} cold;

static hn_status open_timed(hone_error *err, hn_cli_model *m, const char *path, bool profile,
                            cold *out) {
    int64_t start = hn_clock_ns();
    HN_TRY(hn_cli_model_open(err, m, path, profile));
    int64_t loaded = hn_clock_ns();
    HN_TRY(hn_cli_model_run(err, m));
    int64_t first = hn_clock_ns() - loaded;
    for (int i = 1; i < m->sets; i++) { // every set of inputs is brought to the device once
        HN_TRY(hn_cli_model_sample(err, m, i));
        HN_TRY(hn_cli_model_run(err, m));
    }
    *out = (cold){(double)(loaded - start) / 1e6, (double)first / 1e6, NAN};
    return HONE_OK;
}

static double rows_per_call(const hn_cli_model *m) {
    const hn_shape *shape = &m->inputs[0].shape;
    return m->input_count && shape->rank ? (double)shape->dims[0] : 1;
}

static json_t *latency_json(const hn_latency *l) {
    return json_pack("{s:f,s:f,s:f}", "p50", l->p50_ms, "p90", l->p90_ms, "p99", l->p99_ms);
}

// How the prepared forms of this process came about, and what of it is in memory.
static void add_memory(json_t *root) {
    hn_prepared_stats prepared;
    size_t own, files, peak;
    hn_prepared_get_stats(&prepared);
    hn_resident_bytes(&own, &files, &peak);
    json_object_set_new(root, "prepared",
                        json_pack("{s:I,s:f,s:I,s:f,s:I}", "made", (json_int_t)prepared.made, "make_ms",
                                  (double)prepared.make_ns / 1e6, "from_store", (json_int_t)prepared.mapped,
                                  "map_ms", (double)prepared.map_ns / 1e6, "shared",
                                  (json_int_t)prepared.shared));
    json_object_set_new(root, "rss_anon_bytes", json_integer((json_int_t)own));
    json_object_set_new(root, "rss_peak_bytes", json_integer((json_int_t)peak));
    json_object_set_new(root, "rss_file_bytes", json_integer((json_int_t)files));
}

static json_t *side_json(const hn_cli_model *m, const hn_latency *l, const cold *c) {
    hn_session_stats stats;
    hn_session_get_stats(m->session, &stats);
    return json_pack(
        "{s:o,s:f,s:I,s:I,s:I,s:I,s:f,s:f,s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "latency_ms", latency_json(l),
        "throughput_per_s", rows_per_call(m) * 1e3 / l->p50_ms, "peak_memory_bytes",
        (json_int_t)(stats.weight_bytes + stats.slab_bytes + stats.prepacked_bytes), "weight_bytes",
        (json_int_t)stats.weight_bytes, "slab_bytes", (json_int_t)stats.slab_bytes,
        "prepacked_bytes", (json_int_t)stats.prepacked_bytes, "load_ms", c->load_ms, "first_run_ms",
        c->first_ms, "energy_j_per_sample",
        isnan(c->joules) ? json_null() : json_real(c->joules / rows_per_call(m)), "steps", stats.steps, "reference_steps",
        stats.reference_steps, "reorder_steps", stats.reorder_steps, "heavy_steps",
        stats.heavy_steps, "heavy_reference_steps", stats.heavy_reference_steps,
        "device_steps", stats.device_steps, "host_steps", stats.host_steps, "transfer_steps",
        stats.transfer_steps);
}

static void print_side(const char *name, const hn_cli_model *m, const hn_latency *l,
                       const cold *c) {
    hn_session_stats stats;
    char a[32], b[32], d[32];
    hn_session_get_stats(m->session, &stats);
    hn_cli_printf("%s\n", name);
    hn_cli_printf("  latency      p50 %.4f ms, p90 %.4f, p99 %.4f (%lld calls)\n", l->p50_ms,
                  l->p90_ms, l->p99_ms, (long long)l->calls);
    hn_cli_printf("  throughput   %.1f /s\n", rows_per_call(m) * 1e3 / l->p50_ms);
    hn_cli_printf("  memory       weights %s, prepacked %s, slab %s\n",
                  hn_cli_bytes(a, sizeof a, (double)stats.weight_bytes),
                  hn_cli_bytes(b, sizeof b, (double)stats.prepacked_bytes),
                  hn_cli_bytes(d, sizeof d, (double)stats.slab_bytes));
    hn_cli_printf("  start        load %.2f ms, first run %.2f ms\n", c->load_ms, c->first_ms);
    if (!isnan(c->joules))
        hn_cli_printf("  energy       %.4g J a sample, %.4g samples a joule\n",
                      c->joules / rows_per_call(m), rows_per_call(m) / c->joules);
    hn_cli_printf("  steps        %d (%d layout changes, %d on the reference path)\n", stats.steps,
                  stats.reorder_steps, stats.reference_steps);
    if (stats.device_steps)
        hn_cli_printf("  device       %d steps on the card, %d on the host, %d copies of inputs and outputs, "
                      "%d recorded runs\n",
                      stats.device_steps, stats.host_steps, stats.transfer_steps, stats.recorded_segments);
}

static int by_time(const void *a, const void *b) {
    double x = ((const hn_step_info *)a)->total_ns, y = ((const hn_step_info *)b)->total_ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

// The steps, slowest first, in an array of the caller's; NULL when out of memory.
static hn_step_info *sorted_steps(hn_cli_model *m, int *out_count, double *out_total_ns) {
    int count = hn_session_steps(m->session, NULL, 0);
    hn_step_info *steps = hn_calloc((size_t)count + 1, sizeof *steps);
    if (!steps) return NULL;
    hn_session_steps(m->session, steps, count);
    *out_total_ns = 0;
    for (int i = 0; i < count; i++)
        *out_total_ns += steps[i].runs ? steps[i].total_ns / (double)steps[i].runs : 0;
    qsort(steps, (size_t)count, sizeof *steps, by_time);
    *out_count = count;
    return steps;
}

static json_t *profile_json(hn_cli_model *m) {
    int count;
    double total;
    hn_step_info *steps = sorted_steps(m, &count, &total);
    json_t *list = steps ? json_array() : NULL;
    for (int i = 0; steps && i < count; i++) {
        const hn_step_info *s = &steps[i];
        if (!s->runs) continue;
        double us = s->total_ns / (double)s->runs / 1e3;
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:o,s:f,s:f,s:f,s:f}", "op", s->op_type, "kernel",
                                        s->variant, "node", hn_cli_json_text(s->name), "us", us,
                                        "share", 1e3 * us / total, "flops", s->cost.flops, "bytes",
                                        s->cost.read_bytes + s->cost.write_bytes));
    }
    hn_free(steps);
    return list;
}

static hn_status print_profile(hone_error *err, hn_cli_model *m) {
    int count;
    double total;
    hn_step_info *steps = sorted_steps(m, &count, &total);
    if (!steps) HN_NOMEM(err, "listing steps");
    hn_cli_printf("%-20s %-28s %10s %6s %9s %9s  %s\n", "op", "kernel", "us", "%", "GFLOP/s",
                  "GB/s", "node");
    for (int i = 0; i < count && i < 40; i++) {
        const hn_step_info *s = &steps[i];
        if (!s->runs) continue;
        double ns = s->total_ns / (double)s->runs;
        hn_cli_printf("%-20s %-28s %10.2f %6.1f %9.1f %9.1f  %.40s\n", s->op_type, s->variant,
                      ns / 1e3, 100 * ns / total, s->cost.flops / ns,
                      (s->cost.read_bytes + s->cost.write_bytes) / ns, s->name);
    }
    hn_free(steps);
    return HONE_OK;
}

static hn_status measure_joules(hone_error *err, hn_cli_model *m, double *out_joules) {
    return hn_measure_joules(err, hn_joules_source(m->session), run_once, m, out_joules);
}

static hn_status bench_one(hone_error *err, bench_args *a, const char *path) {
    cold start;
    hn_latency latency;
    hn_measure_options options = {.seconds = a->seconds};
    HN_TRY(open_timed(err, &a->model, path, a->profile, &start));
    hn_session_reset_profile(a->model.session);
    HN_TRY(measure_one(err, &a->model, &options, &latency));
    HN_TRY(measure_joules(err, &a->model, &start.joules));
    if (a->json) {
        json_t *root = side_json(&a->model, &latency, &start);
        if (root) add_memory(root);
        if (root && a->profile) json_object_set_new(root, "profile", profile_json(&a->model));
        return hn_cli_json(err, root);
    }
    print_side(path, &a->model, &latency, &start);
    return a->profile ? print_profile(err, &a->model) : HONE_OK;
}

// ---- rounds when told ---------------------------------------------------------------------------
static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define PACED_BLOCKS 4096
static hn_status paced_round(hone_error *err, bench_args *a, int64_t *io_calls) {
    static double ms[PACED_BLOCKS];
    int blocks = 0, per_block = a->model.resident ? RESIDENT_RUNS : 1;
    for (int64_t begin = hn_clock_ns(), end = begin + (int64_t)(a->seconds * 1e9); blocks < PACED_BLOCKS && (blocks < 3 || begin < end);) {
        HN_TRY(a->model.resident ? run_resident(err, &a->model) : run_once(err, &a->model));
        int64_t now = hn_clock_ns();
        ms[blocks++] = (double)(now - begin) / 1e6 / per_block;
        begin = now;
    }
    qsort(ms, (size_t)blocks, sizeof *ms, ascending);
    *io_calls += (int64_t)blocks * per_block;
    return hn_cli_json_line(err, json_pack("{s:f,s:I}", "p50_ms", ms[blocks / 2], "calls", (json_int_t)blocks * per_block));
}

// The first output of the last run as .npy, and which set of inputs it is of.
static hn_status paced_save(hone_error *err, bench_args *a, int64_t calls, const char *path) {
    HN_TRY(hn_session_fetch(err, a->model.session));
    HN_TRY(hn_npy_write(err, path, &a->model.outputs[0]));
    return hn_cli_json_line(err, json_pack("{s:I}", "set", (json_int_t)(a->model.sets > 1 ? (calls - 1) % a->model.sets : 0)));
}

// A line "round" on standard input: measures one, answers with a line of JSON. "save FILE.npy": writes the
// first output. So another program can measure in turn with its own work, in one run.
static hn_status bench_paced(hone_error *err, bench_args *a, const char *path) {
    cold start;
    char line[4096];
    int64_t calls = 0;
    HN_TRY(open_timed(err, &a->model, path, false, &start));
    hn_latency none = {.p50_ms = start.first_ms, .p90_ms = start.first_ms, .p99_ms = start.first_ms};
    HN_TRY(hn_cli_json_line(err, side_json(&a->model, &none, &start)));
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strcmp(line, "round")) HN_TRY(paced_round(err, a, &calls));
        else if (!strncmp(line, "save ", 5)) HN_TRY(paced_save(err, a, calls, line + 5));
        else HN_FAIL(err, HONE_ERR_USAGE, "--paced knows 'round' and 'save FILE.npy', not '%.80s'", line);
    }
    return HONE_OK;
}

// What keeps two models from being given the same inputs, as a sentence; empty where nothing does.
static void compare_inputs(const hn_cli_model *a, const hn_cli_model *b, char *out, size_t size) {
    *out = '\0';
    if (a->input_count != b->input_count) {
        snprintf(out, size, "they have %d and %d inputs", a->input_count, b->input_count);
        return;
    }
    for (int i = 0; i < a->input_count && !*out; i++) {
        const char *x = a->module->main->inputs.data[i]->name,
                   *y = b->module->main->inputs.data[i]->name;
        const hn_tensor *s = &a->inputs[i], *t = &b->inputs[i];
        hn_str shapes[2] = {{0}, {0}};
        hn_shape_print(&shapes[0], &s->shape);
        hn_shape_print(&shapes[1], &t->shape);
        if (strcmp(x, y) != 0)
            snprintf(out, size, "input %d is '%.80s' in one and '%.80s' in the other", i, x, y);
        else if (s->dtype != t->dtype || !hn_shape_equal(&s->shape, &t->shape))
            snprintf(out, size, "input '%.80s' is %s%s in one and %s%s in the other", x,
                     hn_dtype_name(s->dtype), hn_str_get(&shapes[0]), hn_dtype_name(t->dtype),
                     hn_str_get(&shapes[1]));
        hn_str_free(&shapes[0]);
        hn_str_free(&shapes[1]);
    }
}

static hn_status bench_pair(hone_error *err, bench_args *a, const char *path) {
    cold start[2];
    hn_pair pair;
    hn_measure_options options = {.seconds = a->seconds};
    a->other = a->model;
    HN_TRY(open_timed(err, &a->model, path, false, &start[0]));
    HN_TRY(open_timed(err, &a->other, a->vs, false, &start[1]));
    char differences[512];
    compare_inputs(&a->model, &a->other, differences, sizeof differences);
    if (*differences)
        hn_log(HN_LOG_WARN, "'%s' and '%s' are not given the same work: %s", path, a->vs,
               differences);
    bool resident = a->model.resident && a->model.backend->on_device;
    hn_measure_fn run = resident ? run_resident : run_once;
    HN_TRY(hn_measure_pair(err, run, &a->model, run, &a->other, &options, &pair));
    if (resident) per_run(&pair.a), per_run(&pair.b);
    HN_TRY(measure_joules(err, &a->model, &start[0].joules));
    HN_TRY(measure_joules(err, &a->other, &start[1].joules));
    if (a->json) {
        json_t *root =
            json_pack("{s:o,s:o,s:f,s:[f,f],s:i}", "a", side_json(&a->model, &pair.a, &start[0]),
                      "b", side_json(&a->other, &pair.b, &start[1]), "speedup", pair.speedup,
                      "speedup_ci", pair.speedup_ci[0], pair.speedup_ci[1], "pairs", pair.pairs);
        if (root)
            json_object_set_new(root, "differences",
                                *differences ? hn_cli_json_text(differences) : json_null());
        return hn_cli_json(err, root);
    }
    print_side(path, &a->model, &pair.a, &start[0]);
    print_side(a->vs, &a->other, &pair.b, &start[1]);
    hn_cli_printf("%s is %.3f x as fast [%.3f, %.3f] (%d interleaved pairs)\n", a->vs, pair.speedup,
                  pair.speedup_ci[0], pair.speedup_ci[1], pair.pairs);
    return HONE_OK;
}

hone_status hn_cmd_bench(hone_error *err, int argc, char **argv, int *out_exit) {
    (void)out_exit;
    bench_args a = {.seconds = 2};
    const hn_option options[] = {
        HN_CLI_MODEL_OPTIONS(&a.model),
        {"vs", "MODEL2", HN_OPT_STR, &a.vs, "measure in interleaved pairs against this model"},
        {"seconds", "S", HN_OPT_F64, &a.seconds, "time to measure for (2)"},
        {"profile", NULL, HN_OPT_FLAG, &a.profile, "list the slowest steps"},
        {"resident", NULL, HN_OPT_FLAG, &a.model.resident, "on a card: inputs and outputs stay there (throughput of the card)"},
        {"paced", NULL, HN_OPT_FLAG, &a.paced, "measure when a line 'round' comes, 'save FILE.npy' the output; JSON lines"},
        {"json", NULL, HN_OPT_FLAG, &a.json, "print JSON"},
    };
    const char *path = NULL;
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &path, 1, &count));
    if (!path) HN_FAIL(err, HONE_ERR_USAGE, "bench needs a MODEL");
    if (!(a.seconds > 0 && a.seconds <= 86400))
        HN_FAIL(err, HONE_ERR_USAGE, "--seconds must be above 0 and at most 86400");
    hone_status status = a.vs ? bench_pair(err, &a, path) : a.paced ? bench_paced(err, &a, path) : bench_one(err, &a, path);
    hn_cli_model_close(&a.model);
    if (a.vs) hn_cli_model_close(&a.other);
    return status;
}
