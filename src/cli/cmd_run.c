// SPDX-License-Identifier: Apache-2.0
// hone run: a model once, or over a data set.
#include "cli/load.h"
#include "ir/compare.h"
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

typedef struct run_args {
    hn_cli_model model;
    const char *output_dir;
    bool json;
    int64_t hits, rows; // top-1 over labels
} run_args;

typedef struct summary {
    int64_t numbers, nan; // numbers: that are none
    double low, high, mean;
} summary;

static summary summarise(const hn_tensor *t) {
    summary s = {.low = INFINITY, .high = -INFINITY};
    double sum = 0;
    int64_t count = t->dtype == HN_STRING ? 0 : hn_tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        double v = hn_tensor_get_f64(t, i);
        if (isnan(v)) {
            s.nan++;
            continue;
        }
        s.low = v < s.low ? v : s.low;
        s.high = v > s.high ? v : s.high;
        sum += v;
    }
    s.numbers = count - s.nan;
    s.mean = sum / (double)s.numbers;
    return s;
}

static void describe(const hn_value *value, const hn_tensor *t) {
    hn_str text = {0};
    hn_shape_print(&text, &t->shape);
    summary s = summarise(t);
    hn_cli_printf("%-24s %-5s %-16s", value->name, hn_dtype_name(t->dtype), hn_str_get(&text));
    if (s.numbers) hn_cli_printf(" min %.6g max %.6g mean %.6g", s.low, s.high, s.mean);
    if (s.nan) hn_cli_printf(" NaN %lld", (long long)s.nan);
    hn_cli_printf("\n");
    hn_str_free(&text);
}

// Infinities have no place in JSON: null, like what is unknown.
static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *output_json(const hn_value *value, const hn_tensor *t) {
    summary s = summarise(t);
    json_t *shape = json_array();
    for (int i = 0; i < t->shape.rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape.dims[i]));
    return json_pack("{s:o,s:s,s:o,s:o,s:o,s:o,s:I}", "name", hn_cli_json_text(value->name),
                     "dtype", hn_dtype_name(t->dtype), "shape", shape, "min", number(s.low), "max",
                     number(s.high), "mean", number(s.numbers ? s.mean : NAN), "nan",
                     (json_int_t)s.nan);
}

static hn_status print_json(hone_error *err, const run_args *a, int64_t samples) {
    const hn_cli_model *m = &a->model;
    json_t *outputs = json_array(), *top1 = json_null();
    for (int i = 0; i < m->output_count; i++)
        json_array_append_new(outputs,
                              output_json(m->module->main->outputs.data[i], &m->outputs[i]));
    if (a->rows)
        top1 = json_pack("{s:f,s:I,s:I}", "rate", (double)a->hits / (double)a->rows, "hits",
                         (json_int_t)a->hits, "rows", (json_int_t)a->rows);
    return hn_cli_json(err, json_pack("{s:I,s:o,s:o}", "samples", (json_int_t)samples, "outputs",
                                      outputs, "top1", top1));
}

static hn_status write_outputs(hone_error *err, const run_args *a, int64_t sample) {
    const hn_cli_model *m = &a->model;
    for (int i = 0; i < m->output_count; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/%lld_%d.npy", a->output_dir, (long long)sample, i);
        if (n < 0 || (size_t)n >= sizeof path)
            HN_FAIL(err, HONE_ERR_USAGE, "--output-dir is too long");
        HN_TRY(hn_npy_write(err, path, &m->outputs[i]));
    }
    return HONE_OK;
}

static void count_hits(run_args *a, int64_t sample) {
    const int64_t *labels;
    const hn_tensor *out = &a->model.outputs[0];
    if (!a->model.dataset || !hn_dataset_labels(a->model.dataset, sample, &labels)) return;
    int64_t batch = hn_dataset_batch(a->model.dataset);
    int64_t classes = batch ? hn_tensor_count(out) / batch : 0;
    for (int64_t row = 0; row < batch && classes > 1; row++) {
        a->hits += hn_tensor_argmax(out, row * classes, classes) == labels[row];
        a->rows++;
    }
}

static hn_status run_all(hone_error *err, run_args *a) {
    hn_cli_model *m = &a->model;
    int64_t samples = m->dataset ? hn_dataset_count(m->dataset) : 1;
    for (int64_t s = 0; s < samples; s++) {
        HN_TRY(hn_cli_model_sample(err, m, s));
        HN_TRY(hn_cli_model_run(err, m));
        if (samples > 1) hn_cli_progress("running", (double)(s + 1), (double)samples);
        if (a->output_dir) HN_TRY(write_outputs(err, a, s));
        count_hits(a, s);
    }
    hn_cli_progress_end();
    if (a->json) return print_json(err, a, samples);
    if (samples > 1) hn_cli_printf("%lld samples; outputs of the last:\n", (long long)samples);
    for (int i = 0; i < m->output_count; i++)
        describe(m->module->main->outputs.data[i], &m->outputs[i]);
    if (a->rows)
        hn_cli_printf("top-1 %.4f (%lld of %lld)\n", (double)a->hits / (double)a->rows,
                      (long long)a->hits, (long long)a->rows);
    return HONE_OK;
}

hone_status hn_cmd_run(hone_error *err, int argc, char **argv, int *out_exit) {
    (void)out_exit;
    run_args a = {0};
    const hn_option options[] = {
        HN_CLI_MODEL_OPTIONS(&a.model),
        {"output-dir", "DIR", HN_OPT_STR, &a.output_dir, "write outputs there as SAMPLE_INDEX.npy"},
        {"json", NULL, HN_OPT_FLAG, &a.json, "print JSON"},
    };
    const char *path = NULL;
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &path, 1, &count));
    if (!path) HN_FAIL(err, HONE_ERR_USAGE, "run needs a MODEL");
    if (a.output_dir && mkdir(a.output_dir, 0777) != 0 && errno != EEXIST)
        HN_FAIL(err, HONE_ERR_IO, "cannot make the folder '%s': %s", a.output_dir, strerror(errno));
    HN_TRY(hn_cli_model_open(err, &a.model, path, false));
    hone_status status = run_all(err, &a);
    hn_cli_model_close(&a.model);
    return status;
}
