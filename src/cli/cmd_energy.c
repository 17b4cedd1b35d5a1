// SPDX-License-Identifier: Apache-2.0
// hone energy: what jobs did for a joule and what it cost; from the history, a recording, or measured now.
#include "cli/cli.h"
#include <math.h>
#include <stdio.h>
#include "fleet/matrix.h"
#include "fleet/recorded.h"
#include "fleet/segment.h"
#include "fleet/watch.h"

typedef struct setup {
    const char *source, *like, *unit, *csv_or_json, *compare_a, *compare_b;
    int64_t last, job;
    double price, co2, seconds, units;
    bool phases, json, csv, compare;
} setup;

static hone_status print(hone_error *err, const setup *s, const hn_matrix *a, const hn_matrix *b) {
    hn_str text = {0};
    if (s->json) {
        json_t *root = b ? hn_matrix_compare_json(a, b) : hn_matrix_json(a);
        char *dump = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
        hn_str_append(&text, dump ? dump : "");
        text.failed |= !dump;
        hn_str_append(&text, "\n");
        hn_free(dump);
        json_decref(root);
    } else if (b) {
        hn_matrix_compare_text(a, b, &text);
    } else if (s->csv) {
        hn_matrix_csv(a, &text);
    } else {
        hn_matrix_text(a, &text);
    }
    bool failed = text.failed;
    if (!failed) hn_cli_put(hn_str_get(&text));
    hn_str_free(&text);
    if (failed) HN_NOMEM(err, "matrix");
    return HONE_OK;
}

static hone_status from_history(hone_error *err, const setup *s, const hn_matrix *empty) {
    hn_history *history;
    hn_matrix a = *empty, b = *empty;
    hn_history_options options = {.read_only = true};
    HN_TRY(hn_history_open(err, &options, &history));
    hone_status status;
    if (s->compare) {
        status = hn_matrix_find(err, history, s->compare_a, &a);
        if (status == HONE_OK) status = hn_matrix_find(err, history, s->compare_b, &b);
        if (status == HONE_OK) status = print(err, s, &a, &b);
    } else {
        hn_job_filter filter = {.id = s->job, .like = s->like, .newest = s->job ? 0 : s->last};
        status = hn_matrix_read(err, history, &filter, s->phases, &a);
        if (status == HONE_OK && a.rows.count == 0)
            status = HN_SET(err, HONE_ERR_CHECK, "%s: no such job has been run under hone exec", hn_history_file(history));
        if (status == HONE_OK) status = print(err, s, &a, NULL);
    }
    hn_matrix_free(&a);
    hn_matrix_free(&b);
    hn_history_close(history);
    return status;
}

// All devices of a live source for some seconds, as the result of a command that did nothing.
static hone_status measure_now(hone_error *err, const setup *s, hn_exec_result *r) {
    hn_probe *probe;
    hn_watch *watch;
    HN_TRY(hn_exec_open_probe(err, s->source, &probe));
    hn_watch_options options = {.probe = probe, .hz = 10};
    hone_status status = hn_watch_start(err, &options, &watch);
    if (status != HONE_OK) {
        hn_probe_close(probe);
        return status;
    }
    hn_phase_list_init(&r->phases);
    r->units = NAN;
    r->exit_status = -1;
    r->start_wall_ns = hn_watch_start_wall_ns(watch);
    hn_sleep_ns((int64_t)(s->seconds * 1e9));
    r->seconds = s->seconds;
    r->stuck = !hn_watch_stop(watch, &r->tracks, &r->track_count, &r->record_error);
    if (!r->stuck) hn_probe_close(probe);
    return HONE_OK;
}

static hone_status from_source(hone_error *err, const setup *s, const hn_matrix *empty) {
    hn_matrix matrix = *empty;
    hn_exec_result *r = hn_calloc(1, sizeof *r);
    if (!r) HN_NOMEM(err, "energy");
    hone_status status;
    const char *name = s->source;
    if (strncmp(s->source, "text:", 5) == 0) {
        status = hn_recorded_read_text(err, s->source + 5, r);
        name = strrchr(s->source, '/') ? strrchr(s->source, '/') + 1 : s->source + 5;
    } else if (strncmp(s->source, "replay:", 7) == 0) {
        char path[1024];
        snprintf(path, sizeof path, "%s", s->source + 7);
        char *options = strrchr(path, '?');
        if (options) *options = '\0'; // all of it is read, at once
        status = hn_recorded_read(err, path, 0, INFINITY, NULL, r);
        if (status == HONE_OK && r->phases.count == 0 && !hn_segments_find(r->tracks, r->track_count, r->start_ns, &r->phases))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (phases)");
        name = strrchr(s->source, '/') ? strrchr(s->source, '/') + 1 : s->source + 7;
    } else {
        status = measure_now(err, s, r);
    }
    if (status == HONE_OK && !hn_matrix_add_result(&matrix, name, r, s->units, s->unit))
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (matrix)");
    if (status == HONE_OK) status = print(err, s, &matrix, NULL);
    hn_matrix_free(&matrix);
    hn_exec_result_free(r);
    hn_free(r);
    return status;
}

hone_status hn_cmd_energy(hone_error *err, int argc, char **argv, int *out_exit) {
    setup s = {.source = "", .last = 20, .price = NAN, .co2 = NAN, .seconds = 10, .units = NAN};
    (void)out_exit;
    const hn_option options[] = {
        {"last", "N", HN_OPT_I64, &s.last, "the newest N jobs (20)"},
        {"job", "ID", HN_OPT_I64, &s.job, "one job by its number"},
        {"like", "TEXT", HN_OPT_STR, &s.like, "jobs whose name or command holds this"},
        {"phases", NULL, HN_OPT_FLAG, &s.phases, "with the phases of each job"},
        {"compare", NULL, HN_OPT_FLAG, &s.compare, "two jobs, A B by number or name (the newest of it), side by side"},
        {"price", "P", HN_OPT_F64, &s.price, "price a kWh, for the cost"},
        {"co2", "G", HN_OPT_F64, &s.co2, "grams of CO2 a kWh"},
        {"json", NULL, HN_OPT_FLAG, &s.json, "as JSON"},
        {"csv", NULL, HN_OPT_FLAG, &s.csv, "as CSV"},
        {"source", "SOURCE", HN_OPT_STR, &s.source, "not the history: replay:FILE whole, or nvml, dcgm, host, nvml+host measured now"},
        {"seconds", "S", HN_OPT_F64, &s.seconds, "with a live --source: how long (10)"},
        {"units", "N", HN_OPT_F64, &s.units, "with --source: units of work that were done"},
        {"unit", "WORD", HN_OPT_STR, &s.unit, "with --source: what they are (sample, token)"},
    };
    const char *which[2] = {NULL, NULL};
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), which, 2, &count));
    if (s.compare != (count == 2) || (!s.compare && count))
        HN_FAIL(err, HONE_ERR_USAGE, "two jobs go with --compare, and with nothing else: hone energy --compare A B");
    if (s.last < 1 || s.job < 0) HN_FAIL(err, HONE_ERR_USAGE, "--last and --job are whole numbers from 1");
    if (s.price < 0 || s.co2 < 0) HN_FAIL(err, HONE_ERR_USAGE, "--price and --co2 are not negative");
    if (!(s.seconds > 0 && s.seconds <= 1e6)) HN_FAIL(err, HONE_ERR_USAGE, "--seconds must be above 0 and at most a million");
    if (!isnan(s.units) && !(s.units > 0)) HN_FAIL(err, HONE_ERR_USAGE, "--units must be above 0");
    s.compare_a = which[0];
    s.compare_b = which[1];
    hn_matrix empty = {.price_per_kwh = s.price, .co2_g_per_kwh = s.co2};
    return s.source[0] ? from_source(err, &s, &empty) : from_history(err, &s, &empty);
}
