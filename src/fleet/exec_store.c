// SPDX-License-Identifier: Apache-2.0
// Measured commands into the history: see exec_store.h.
#include "fleet/exec_store.h"
#include <stdio.h>
#include <unistd.h>
#include "config/config.h"

// As a shell would read it back; cut where it is very long.
static void quote(char *const *argv, char *out, size_t bytes) {
    hn_str text = {0};
    for (size_t i = 0; argv[i]; i++) {
        bool plain = argv[i][0] && strspn(argv[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") == strlen(argv[i]);
        hn_str_append(&text, i ? " " : "");
        if (plain) {
            hn_str_append(&text, argv[i]);
            continue;
        }
        hn_str_append(&text, "'");
        for (const char *at = argv[i]; *at; at++) {
            if (*at == '\'') hn_str_append(&text, "'\\''");
            else hn_str_append_n(&text, at, 1);
        }
        hn_str_append(&text, "'");
    }
    snprintf(out, bytes, "%s", hn_str_get(&text));
    hn_str_free(&text);
}

static void describe(const hn_exec_store *s, hn_job *job) {
    static _Thread_local char host[256];
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    *job = (hn_job){.id = s->job, .command = s->command, .name = s->name, .host = host, .source = s->source,
                    .cluster_job = hn_config_env("SLURM_JOB_ID"), .pid = getpid(), .exit_status = -1, .unit = s->unit, .units = NAN};
    hn_use_init(&job->use);
}

hn_status hn_exec_store_begin(hone_error *err, hn_exec_store *s, char *const *argv) {
    char path[4096];
    hn_job job;
    HN_TRY(hn_history_path(err, path, sizeof path));
    if (!path[0]) return HONE_OK;
    hn_history_options options = {.path = path};
    quote(argv, s->command, sizeof s->command);
    HN_TRY(hn_history_open(err, &options, &s->history));
    describe(s, &job);
    job.start_ns = s->start_ns = hn_clock_wall_ns();
    HN_TRY(hn_history_job_put(err, s->history, &job));
    s->job = job.id;
    return HONE_OK;
}

static hn_status put_phases(hone_error *err, const hn_exec_store *s, const hn_exec_result *r) {
    for (int i = 0; i < r->phases.count; i++) {
        hn_span *spans = hn_exec_spans(r, i);
        if (!spans) HN_NOMEM(err, "history");
        double from_s = INFINITY, to_s = 0;
        for (int k = 0; k < r->phases.stretch_count; k++) {
            if (r->phases.stretches[k].phase != i) continue;
            from_s = fmin(from_s, r->phases.stretches[k].from_s);
            to_s = fmax(to_s, r->phases.stretches[k].to_s);
        }
        if (!isfinite(from_s)) from_s = to_s = 0;
        hn_phase phase = {.job = s->job, .seq = i, .phase = r->phases.names[i], .unit = s->unit, .units = r->phases.units[i],
                          .start_ns = r->start_wall_ns + (int64_t)(from_s * 1e9), .end_ns = r->start_wall_ns + (int64_t)(to_s * 1e9)};
        hn_use_of_spans(spans, r->track_count, &phase.use);
        // Stretches of one phase have others between them: its time is their sum.
        phase.end_ns = phase.start_ns + (int64_t)(r->phases.seconds[i] * 1e9);
        hn_free(spans);
        HN_TRY(hn_history_phase_put(err, s->history, &phase));
    }
    return HONE_OK;
}

hn_status hn_exec_store_end(hone_error *err, hn_exec_store *s, const hn_exec_result *r, const hn_exec_totals *totals,
                            const char *report) {
    hn_job job;
    if (!s->history) return HONE_OK;
    hn_span *spans = hn_exec_spans(r, -1);
    if (!spans) HN_NOMEM(err, "history");
    describe(s, &job);
    job.start_ns = r->start_wall_ns;
    job.end_ns = r->start_wall_ns + (int64_t)(r->seconds * 1e9);
    if (job.end_ns <= job.start_ns) job.end_ns = job.start_ns + 1; // 0 would be a job that runs
    s->ended = true;
    job.exit_status = r->exit_status;
    job.units = totals->units;
    job.devices = totals->devices;
    job.complete = totals->devices > 0 && totals->complete;
    job.report = report;
    hn_use_of_spans(spans, r->track_count, &job.use);
    hone_status status = hn_history_job_put(err, s->history, &job);
    if (status == HONE_OK) status = put_phases(err, s, r);
    for (int i = 0; i < r->track_count && status == HONE_OK; i++) {
        hn_job_device part = {.job = s->job};
        hn_use_of_spans(&spans[i], 1, &part.use);
        status = hn_history_device(err, s->history, &spans[i].info, NULL, &part.device);
        if (status == HONE_OK) status = hn_history_job_device_put(err, s->history, &part);
    }
    hn_free(spans);
    return status;
}

void hn_exec_store_close(hn_exec_store *s) {
    hone_error ignored = {0};
    hn_job job;
    if (s->history && s->job && !s->ended) {
        describe(s, &job);
        job.start_ns = s->start_ns;
        job.end_ns = s->start_ns + 1;
        (void)!hn_history_job_put(&ignored, s->history, &job);
    }
    hn_history_close(s->history);
    s->history = NULL;
}
