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
    int64_t hits, rows; // top-1 over labels
} run_args;

static void describe(const hn_value *value, const hn_tensor *t) {
    hn_str text = {0};
    hn_shape_print(&text, &t->shape);
    double low = INFINITY, high = -INFINITY, sum = 0;
    int64_t nan = 0, count = hn_tensor_count(t);
    if (t->dtype == HN_STRING) count = 0; // no numbers
    for (int64_t i = 0; i < count; i++) {
        double v = hn_tensor_get_f64(t, i);
        if (isnan(v)) {
            nan++;
            continue;
        }
        low = v < low ? v : low;
        high = v > high ? v : high;
        sum += v;
    }
    printf("%-24s %-5s %-16s", value->name, hn_dtype_name(t->dtype), hn_str_get(&text));
    if (count > nan) printf(" min %.6g max %.6g mean %.6g", low, high, sum / (double)(count - nan));
    if (nan) printf(" NaN %lld", (long long)nan);
    printf("\n");
    hn_str_free(&text);
}

static hn_status write_outputs(hone_error *err, const run_args *a, int64_t sample) {
    const hn_cli_model *m = &a->model;
    for (int i = 0; i < m->output_count; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/%lld_%d.npy", a->output_dir, (long long)sample, i);
        if (n < 0 || (size_t)n >= sizeof path) HN_FAIL(err, HONE_ERR_USAGE, "--output-dir is too long");
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
    if (samples > 1) printf("%lld samples; outputs of the last:\n", (long long)samples);
    for (int i = 0; i < m->output_count; i++)
        describe(m->module->main->outputs.data[i], &m->outputs[i]);
    if (a->rows)
        printf("top-1 %.4f (%lld of %lld)\n", (double)a->hits / (double)a->rows, (long long)a->hits,
               (long long)a->rows);
    return HONE_OK;
}

hone_status hn_cmd_run(hone_error *err, int argc, char **argv, int *out_exit) {
    (void)out_exit;
    run_args a = {0};
    const hn_option options[] = {
        HN_CLI_MODEL_OPTIONS(&a.model),
        {"output-dir", "DIR", HN_OPT_STR, &a.output_dir, "write outputs there as SAMPLE_INDEX.npy"},
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
