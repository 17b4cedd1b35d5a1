// SPDX-License-Identifier: Apache-2.0
// hone optimize: the main job.
#include "cli/cli.h"
#include "optimize/optimize.h"
#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/load.h"

static void show_progress(void *user, const char *what, double share) {
    (void)user;
    hn_cli_progress(what, share, 1);
}

static void print_accuracy(const hn_accuracy *a) {
    if (!isnan(a->metric))
        hn_cli_printf("top-1 %.4f [%.4f, %.4f]", a->metric, a->metric_ci[0], a->metric_ci[1]);
    else if (!isnan(a->agreement))
        hn_cli_printf("agreement %.4f [%.4f, %.4f], cosine %.6f", a->agreement, a->agreement_ci[0],
               a->agreement_ci[1], a->cosine);
    else
        hn_cli_printf("cosine %.6f, max |diff| %.3g", a->cosine, a->max_abs);
}

static void print_side(const char *name, const hn_side *side) {
    char memory[32], file[32];
    hn_cli_printf("%-10s %10.4f %10.4f %10.4f %12.1f %12s %12s  ", name, side->latency.p50_ms,
           side->latency.p90_ms, side->latency.p99_ms, side->throughput_per_s,
           hn_cli_bytes(memory, sizeof memory, (double)side->peak_memory_bytes),
           hn_cli_bytes(file, sizeof file, (double)side->file_bytes));
    print_accuracy(&side->accuracy);
    hn_cli_printf("\n");
}

static void print_result(const hn_optimize_result *r, bool recheck) {
    for (int i = 0; i < r->note_count; i++)
        hn_cli_printf("note: %s\n", r->notes[i]);
    hn_cli_printf("A/A check: the input model against itself %.3fx [%.3f, %.3f] (%d pairs)\n\n",
           r->aa.speedup, r->aa.speedup_ci[0], r->aa.speedup_ci[1], r->aa.pairs);
    hn_cli_printf("%-12s %-9s %s\n", "strategy", "verdict", "reason");
    for (int i = 0; i < r->verdict_count; i++) {
        const hn_verdict *v = &r->verdicts[i];
        hn_cli_printf("%-12s %-9s %s", v->name, v->kept ? "kept" : v->tried ? "refused" : "-", v->reason);
        if (v->verdict_changed) hn_cli_printf("; CHANGED, it was %s", v->was_kept ? "kept" : "refused");
        if (v->accuracy.samples) {
            hn_cli_printf("; ");
            print_accuracy(&v->accuracy);
        }
        hn_cli_printf("\n");
    }
    if (recheck) {
        hn_cli_printf("\n%d of %d verdicts changed\n", r->changed, r->verdict_count);
        return;
    }
    hn_cli_printf("\n%-10s %10s %10s %10s %12s %12s %12s  %s\n", "", "p50 ms", "p90 ms", "p99 ms", "per s",
           "memory", "file", "accuracy");
    print_side("baseline", &r->baseline);
    print_side("result", &r->result);
    if (r->fresh.pairs)
        hn_cli_printf("\nin a fresh process %.3fx [%.3f, %.3f] (%d pairs): %s", r->fresh.speedup,
               r->fresh.speedup_ci[0], r->fresh.speedup_ci[1], r->fresh.pairs,
               r->fresh_agrees ? "agrees" : "does not agree");
    if (r->copied) {
        hn_cli_printf("\nnothing helped: the output is a copy of the input, the same bytes, so that there is no ratio\n");
        return;
    }
    hn_cli_printf("\nspeedup %.2fx [%.2f, %.2f], start %.1f -> %.1f ms%s\n", r->total.speedup,
           r->total.speedup_ci[0], r->total.speedup_ci[1], r->baseline.start_ms, r->result.start_ms,
           r->gathered ? "; nothing helped: the output is the input with its external weights"
                       : "");
}

static void join_command(hn_str *out, int argc, char **argv) {
    hn_str_append(out, "hone optimize");
    for (int i = 0; i < argc; i++) {
        // Quoted where a shell would split or expand.
        hn_str word = {0};
        hn_str_append_clean(&word, argv[i], strlen(argv[i]), HN_CLEAN_UTF8);
        bool plain = *argv[i] && !argv[i][strspn(argv[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTU"
                                                          "VWXYZ0123456789_-./=,:+@%")];
        hn_str_printf(out, plain ? " %s" : " '%s'", hn_str_get(&word));
        hn_str_free(&word);
    }
}

static hn_status make_folder(hone_error *err, const char *folder, bool *out_made) {
    *out_made = mkdir(folder, 0777) == 0;
    if (!*out_made && errno != EEXIST)
        HN_FAIL(err, HONE_ERR_IO, "cannot make the folder '%s': %s", folder, strerror(errno));
    struct stat info;
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        HN_FAIL(err, HONE_ERR_IO, "cannot write a report into '%s': it is no folder", folder);
    if (access(folder, W_OK | X_OK) != 0)
        HN_FAIL(err, HONE_ERR_IO, "cannot write into '%s': %s", folder, strerror(errno));
    return HONE_OK;
}

// What is written at the end is opened once before the work: minutes are not lost to a typing error.
static hn_status check_outputs(hone_error *err, const char *out, const char *folder) {
    hn_writer writer;
    if (out) {
        HN_TRY(hn_writer_open(err, out, &writer));
        hn_writer_cancel(&writer);
    }
    if (!folder) return HONE_OK;
    bool made, one = false;
    HN_TRY(make_folder(err, folder, &made));
    // The folder is there now, so both names can be resolved.
    char model[PATH_MAX], place[PATH_MAX], report[PATH_MAX];
    hone_status status = out ? hn_file_target(err, out, model) : HONE_OK;
    const char *slash = out && status == HONE_OK ? strrchr(model, '/') : NULL, *name = slash ? slash + 1 : model;
    static const char *const k_names[] = {"report.json", "report.html"};
    for (size_t i = 0; i < HN_COUNT_OF(k_names) && status == HONE_OK; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, k_names[i]);
        one = one || (out && strcmp(name, k_names[i]) == 0);
        if (length < 0 || (size_t)length >= sizeof path)
            status = HN_SET(err, HONE_ERR_USAGE, "--report: the path is too long");
        else if ((status = hn_writer_open(err, path, &writer)) == HONE_OK) hn_writer_cancel(&writer);
    }
    if (one && slash) model[slash - model + 1] = 0;
    one = one && realpath(slash ? model : ".", place) && realpath(folder, report) && strcmp(place, report) == 0;
    if (made) rmdir(folder); // an interrupted run leaves no empty folder
    if (status == HONE_OK && one)
        status = HN_SET(err, HONE_ERR_USAGE, "-o '%s' is where --report '%s' writes: the model would be lost", out, folder);
    return status;
}

static hn_status write_report(hone_error *err, const char *folder, const hn_str *json) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/report.json", folder);
    if (length < 0 || (size_t)length >= sizeof path)
        HN_FAIL(err, HONE_ERR_USAGE, "--report: the path is too long");
    bool made;
    HN_TRY(make_folder(err, folder, &made));
    return hn_file_write(err, path, hn_str_get(json), json->length);
}

// The table or, with --json, the report on standard output; the report in its folder.
static hn_status show(hone_error *err, const hn_optimize_options *options, const hn_optimize_result *r,
                      bool as_json, const char *folder, int argc, char **argv) {
    hn_str command = {0}, json = {0};
    if (!as_json) print_result(r, options->recheck_path != NULL);
    if (!as_json && !folder) return HONE_OK;
    join_command(&command, argc, argv);
    hone_status status = hn_optimize_report(err, options, r, hn_str_get(&command), &json);
    if (status == HONE_OK && as_json) hn_cli_put(hn_str_get(&json));
    if (status == HONE_OK && folder) status = write_report(err, folder, &json);
    if (status == HONE_OK && folder) {
        char path[4096];
        snprintf(path, sizeof path, "%s/report.html", folder);
        status = hn_optimize_report_html(err, options, r, hn_str_get(&command), path);
    }
    hn_str_free(&command);
    hn_str_free(&json);
    return status;
}

hone_status hn_cmd_optimize(hone_error *err, int argc, char **argv, int *out_exit) {
    hn_optimize_options o = {.seconds = 2, .progress = show_progress, .hone_path = "/proc/self/exe"};
    hn_option_list shapes = {0};
    const char *report = NULL, *objective = "latency";
    double budget = 1;
    bool json = false;
    int64_t seed = 0;
    const hn_option options[] = {
        {"o", "OUT", HN_OPT_STR, &o.out_path, "the file to write"},
        {"data", "PATH", HN_OPT_STR, &o.data_path, ".npz, folder of them, or ONNX test data"},
        {"budget", "POINTS", HN_OPT_F64, &budget, "largest drop of top-1 in points, or of agreement below 100 (1)"},
        {"objective", "NAME", HN_OPT_STR, &objective, "latency (default), throughput, memory, size or energy"},
        {"time-limit", "S", HN_OPT_F64, &o.time_limit_s, "start nothing new after this time; the best so far is written"},
        {"device", "NAME", HN_OPT_STR, &o.device, "cpu (default here)"},
        {"batch", "N", HN_OPT_I64, &o.batch, "rows per run where the first dim is free"},
        {"shape", "IN=1x3x8x8", HN_OPT_LIST, &shapes, "bind an input's free dims; repeat it"},
        {"seconds", "S", HN_OPT_F64, &o.seconds, "time for each paired measurement (2)"},
        {"only", "NAMES", HN_OPT_STR, &o.only, "strategies to try, comma-separated"},
        {"force", "NAMES", HN_OPT_STR, &o.force, "keep these strategies whatever the measurement says"},
        {"report", "DIR", HN_OPT_STR, &report, "write report.json and report.html there"},
        {"json", NULL, HN_OPT_FLAG, &json, "print report.json instead of the tables"},
        {"replay", "FILE", HN_OPT_STR, &o.replay_path, "follow the decisions of an earlier report.json"},
        {"recheck", "FILE", HN_OPT_STR, &o.recheck_path, "measure the strategies of an earlier report.json again; writes no model"},
        {"seed", "N", HN_OPT_I64, &seed, "of made inputs and intervals (0)"},
    };
    const char *path = NULL;
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &path, 1, &count));
    if (!path || (!o.out_path && !o.recheck_path))
        HN_FAIL(err, HONE_ERR_USAGE, "optimize needs MODEL and -o OUT");
    if (o.recheck_path && (o.out_path || o.replay_path))
        HN_FAIL(err, HONE_ERR_USAGE, "--recheck writes no model: it goes without -o and --replay");
    while (o.objective < HN_OBJECTIVE_END && strcmp(objective, hn_objective_name(o.objective)) != 0)
        o.objective++;
    if (o.objective == HN_OBJECTIVE_END)
        HN_FAIL(err, HONE_ERR_USAGE, "--objective '%s' is not known: latency, throughput, memory, size, energy",
                objective);
    if (!(o.time_limit_s >= 0 && o.time_limit_s <= 1e6))
        HN_FAIL(err, HONE_ERR_USAGE, "--time-limit must lie between 0 and 1000000 seconds");
    if (!(budget > 0 && budget <= 100))
        HN_FAIL(err, HONE_ERR_USAGE, "--budget must lie between 0 and 100 points");
    if (!(o.seconds > 0 && o.seconds <= 86400))
        HN_FAIL(err, HONE_ERR_USAGE, "--seconds must be above 0 and at most 86400");
    if (o.batch < 0) HN_FAIL(err, HONE_ERR_USAGE, "--batch must be 1 or more");
    o.model_path = path;
    o.details = report != NULL;
    o.shapes = shapes.items;
    o.shape_count = shapes.count;
    o.seed = (uint64_t)seed;
    o.budget.max_drop = budget / 100;
    o.budget.min_agreement = 1 - budget / 100;
    HN_TRY(check_outputs(err, o.out_path, report));
    hn_optimize_result result;
    HN_TRY(hn_optimize_run(err, &o, &result));
    hn_cli_progress_end();
    if (result.changed || result.broken) *out_exit = 1;
    hone_status status = show(err, &o, &result, json, report, argc, argv);
    hn_optimize_result_free(&result);
    return status;
}
