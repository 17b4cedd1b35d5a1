// SPDX-License-Identifier: Apache-2.0
// hone exporter: a page for Prometheus, from memory, and the history.
#include "cli/cli.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "fleet/exporter.h"

// Pages are fetched every ten seconds or so; listing processes costs more than most readings.
#define PROCESS_HZ 0.2

typedef struct setup {
    const char *source, *listen, *counters_file, *hostname, *job_dir, *kubelet;
    double hz, window;
    bool once, openmetrics;
    double keep_hours, keep_days;
    int64_t max_mib;
    hn_counters counters;
    hn_probe *probe;
    hn_history *history;
    hn_sampler *sampler;
    hn_rollup *rollup;
    hn_podres *pods;
    hn_page *page;
} setup;

static hone_status check(hone_error *err, setup *s) {
    if (!(s->hz >= 0.01 && s->hz <= 100)) HN_FAIL(err, HONE_ERR_USAGE, "--hz must be from 0.01 to 100");
    if (!(s->window >= 0 && s->window <= 10)) HN_FAIL(err, HONE_ERR_USAGE, "--window must be from 0 to 10 seconds");
    if (!(s->keep_hours > 0 && s->keep_hours <= 1e5) || !(s->keep_days > 0 && s->keep_days <= 1e5) || s->max_mib < 1 ||
        s->max_mib > 1 << 24)
        HN_FAIL(err, HONE_ERR_USAGE, "--keep-hours, --keep-days and --history-mib must be above 0 and of this world");
    if (s->openmetrics && !s->once)
        HN_FAIL(err, HONE_ERR_USAGE, "--openmetrics goes with --once: else each client asks for its format");
    if (!s->counters_file) {
        hn_counters_default(&s->counters);
        return HONE_OK;
    }
    HN_TRY(hn_counters_read(err, s->counters_file, &s->counters));
    if (s->counters.unknown)
        hn_log(HN_LOG_WARN, "%s: %d fields are not measured here and are left out, the first is %s", s->counters_file,
               s->counters.unknown, s->counters.unknown_name);
    return HONE_OK;
}

// Asked for, the history must work; by default it is kept for live sources, where it can be.
static hone_status open_history(hone_error *err, setup *s) {
    char path[1024];
    hone_error why = {0};
    bool asked = hn_config_get()->history[0] != '\0', live = !strchr(hn_probe_source(s->probe), ':');
    HN_TRY(hn_history_path(err, path, sizeof path));
    if (!path[0] || s->once || (!asked && !live)) return HONE_OK;
    hn_history_options keep = {.path = path, .keep_second_s = (int64_t)(s->keep_hours * 3600),
                               .keep_minute_s = (int64_t)(s->keep_days * 86400), .max_bytes = s->max_mib << 20};
    hone_status status = hn_history_open(&why, &keep, &s->history);
    if (status == HONE_OK) return HONE_OK;
    if (asked) {
        if (err) *err = why;
        return status;
    }
    hn_log(HN_LOG_WARN, "%s: no history is kept (--history FILE names another place, none says so)", why.text);
    return HONE_OK;
}

static hone_status start(hone_error *err, setup *s) {
    HN_TRY(hn_probe_open_with_host(err, s->source, &s->probe));
    if (hn_probe_note(s->probe)[0] && !s->once) hn_log(HN_LOG_WARN, "%s", hn_probe_note(s->probe));
    HN_TRY(open_history(err, s));
    HN_TRY(hn_sampler_start(err, s->probe, &(hn_sampler_options){.hz = s->hz, .process_hz = PROCESS_HZ, .job_dir = s->job_dir}, &s->sampler));
    if (s->history) HN_TRY(hn_rollup_start(err, s->sampler, s->history, &s->rollup));
    // Asked for, or where a kubelet is: its folder is there before its socket.
    bool here = !strchr(hn_probe_source(s->probe), ':') && access(HN_PODRES_FOLDER, F_OK) == 0;
    if (s->kubelet ? strcmp(s->kubelet, "none") != 0 : here) HN_TRY(hn_podres_start(err, s->kubelet, &s->pods));
    hn_page_options page = {.sampler = s->sampler, .rollup = s->rollup, .pods = s->pods, .counters = &s->counters,
                            .hostname = s->hostname, .version = hn_cli_version(), .window_s = s->window,
                            .over_too = s->once};
    return hn_page_open(err, &page, &s->page);
}

static void stop(setup *s) {
    hn_page_close(s->page);
    hn_podres_stop(s->pods);
    hn_rollup_stop(s->rollup);
    hn_history_close(s->history);
    // Where a driver call does not come back, its probe stays as it is: the process ends anyway.
    if (hn_sampler_stop(s->sampler)) hn_probe_close(s->probe);
}

static hone_status print_once(hone_error *err, setup *s) {
    hn_str text = {0};
    hn_sampler_wait(s->sampler, 5000);
    hn_podres_wait(s->pods);
    hone_status status = hn_page_render(err, s->page, s->openmetrics ? HN_PAGE_OPENMETRICS : HN_PAGE_TEXT, &text);
    if (status == HONE_OK) hn_cli_put(hn_str_get(&text));
    hn_str_free(&text);
    return status;
}

static hone_status serve(hone_error *err, setup *s, const sigset_t *ends) {
    hn_exporter *exporter = NULL;
    int number;
    if (strcmp(s->listen, "none") != 0) {
        HN_TRY(hn_exporter_start(err, s->page, s->listen, &exporter));
        fprintf(stderr, "hone: serving %s at http://%s/metrics%s\n", hn_probe_source(s->probe),
                hn_exporter_address(exporter), hn_exporter_is_local(exporter) ? "" : " to whoever can reach it");
    } else if (!s->history) {
        HN_FAIL(err, HONE_ERR_USAGE, "--listen none keeps the history alone, and there is none: name a file with --history");
    }
    if (s->history) fprintf(stderr, "hone: keeping history in %s\n", hn_history_file(s->history));
    sigwait(ends, &number);
    hn_exporter_stop(exporter);
    return HONE_OK;
}

hone_status hn_cmd_exporter(hone_error *err, int argc, char **argv, int *out_exit) {
    setup s = {.source = "", .listen = "127.0.0.1:9400", .hz = 10, .window = 1, .keep_hours = 24, .keep_days = 90, .max_mib = 1024};
    const hn_option options[] = {
        {"source", "SOURCE", HN_OPT_STR, &s.source,
         "auto, nvml, dcgm, host, nvml+host, replay:FILE[?loop=1&cards=N], text:FILE (the best that is here)"},
        {"listen", "ADDRESS:PORT", HN_OPT_STR, &s.listen,
         "numeric address; :PORT is all of them, port 0 a free one; none: only the history (127.0.0.1:9400)"},
        {"hz", "N", HN_OPT_F64, &s.hz, "readings a second and card, 0.01 to 100 (10)"},
        {"window", "SECONDS", HN_OPT_F64, &s.window,
         "activity, power and rates are means over so long; 0 shows the newest reading (1)"},
        {"counters", "FILE", HN_OPT_STR, &s.counters_file,
         "metrics to show, in dcgm-exporter's CSV format (all that are measured)"},
        {"hostname", "NAME", HN_OPT_STR, &s.hostname, "label Hostname (NODE_NAME, else this machine's name)"},
        {"hpc_job_mapping_dir", "DIR", HN_OPT_STR, &s.job_dir,
         "a file per card index whose lines are job ids: label hpc_job (else a process's Slurm job)"},
        {"pod_resources_kubelet_socket", "FILE", HN_OPT_STR, &s.kubelet,
         "labels container, namespace, pod of cards come from there; none: from processes alone (kubelet.sock in /var/lib/kubelet/pod-resources)"},
        {"keep_hours", "N", HN_OPT_F64, &s.keep_hours, "history: how long rows of a second are kept (24)"},
        {"keep_days", "N", HN_OPT_F64, &s.keep_days, "history: how long rows of a minute are kept (90)"},
        {"history_mib", "N", HN_OPT_I64, &s.max_mib, "history: largest size of the file; the oldest seconds make room (1024)"},
        {"once", NULL, HN_OPT_FLAG, &s.once, "print one page and end"},
        {"openmetrics", NULL, HN_OPT_FLAG, &s.openmetrics, "with --once: as OpenMetrics"},
    };
    int count;
    sigset_t ends;
    (void)out_exit;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), NULL, 0, &count));
    HN_TRY(check(err, &s));
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);
    if (!s.once) pthread_sigmask(SIG_BLOCK, &ends, NULL); // taken by sigwait, also while starting
    hone_status status = start(err, &s);
    if (status == HONE_OK) status = s.once ? print_once(err, &s) : serve(err, &s, &ends);
    stop(&s);
    return status;
}
