// SPDX-License-Identifier: Apache-2.0
// The loop behind hone record: see recording.h.
#include "probe/recording.h"
#include <time.h>
#include <unistd.h>

#define FLUSH_NS INT64_C(1000000000)

typedef struct loop {
    hn_probe *probe;
    hn_recorder *recorder;
    const hn_recording_options *options;
    bool lost[HN_RECORD_DEVICES_MAX]; // told
    char line[64];                    // phase line that is not complete yet
    size_t line_length;
    hn_recording_summary summary;
} loop;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static hone_status put_event(hone_error *err, loop *l, hn_event_kind kind, int device, int64_t xid,
                             const char *text) {
    hn_event event = {.kind = kind, .device = device, .xid = xid,
                      .t_ns = hn_probe_clock_ns(l->probe)};
    if (text) memcpy(event.text, text, strnlen(text, sizeof event.text - 1));
    return hn_recorder_event(err, l->recorder, &event);
}

static hone_status read_phases(hone_error *err, loop *l) {
    char buf[256];
    ssize_t got;
    while (l->options->phase_fd >= 0 && (got = read(l->options->phase_fd, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (buf[i] != '\n') {
                if (l->line_length + 1 < sizeof l->line) l->line[l->line_length++] = buf[i];
                continue;
            }
            l->line[l->line_length] = '\0';
            if (l->line_length) HN_TRY(put_event(err, l, HN_EVENT_PHASE, -1, 0, l->line));
            for (int d = 0; l->line_length && d < hn_probe_device_count(l->probe); d++)
                hn_probe_refresh(l->probe, d); // joules of the phases
            l->line_length = 0;
        }
    return HONE_OK;
}

// A device that is lost or refuses a turn does not end the recording; all of them at once do.
static hone_status one_turn(hone_error *err, loop *l) {
    hn_sample sample;
    int good = 0, ended = 0, devices = hn_probe_device_count(l->probe);
    for (int d = 0; d < devices; d++) {
        hone_error why = {0};
        hone_status status = hn_probe_sample(&why, l->probe, d, &sample);
        bool is_lost = status == HONE_ERR_DEVICE_LOST;
        if (is_lost != l->lost[d] && (is_lost || status == HONE_OK)) {
            HN_TRY(put_event(err, l, is_lost ? HN_EVENT_LOST : HN_EVENT_BACK, d, 0, NULL));
            l->lost[d] = is_lost;
            if (is_lost) hn_log(HN_LOG_WARN, "%s", why.text);
        }
        ended += status == HONE_ERR_TIMEOUT;
        if (status != HONE_OK) {
            if (!ended) hn_error_merge(err, &why);
            continue;
        }
        good++;
        HN_TRY(hn_recorder_put(err, l->recorder, d, &sample));
        l->summary.rows++;
    }
    if (good) {
        if (err) *err = (hone_error){0};
        return HONE_OK;
    }
    if (ended) return HONE_ERR_TIMEOUT;
    return HONE_ERR_DEVICE;
}

static hone_status run_loop(hone_error *err, loop *l) {
    const hn_recording_options *o = l->options;
    int64_t start_ns = hn_clock_ns(), period_ns = (int64_t)(1e9 / o->hz), next_ns = start_ns,
            flushed_ns = start_ns;
    double cpu = cpu_seconds();
    hone_status status = HONE_OK;
    for (;;) {
        int64_t now_ns = hn_clock_ns();
        l->summary.seconds = (double)(now_ns - start_ns) * 1e-9;
        l->summary.cpu_seconds = cpu_seconds() - cpu;
        if (status != HONE_OK || (o->seconds > 0 && l->summary.seconds >= o->seconds)) break;
        if (o->keep_going && !o->keep_going(o->user, l->summary.seconds, l->summary.rows)) break;
        if (now_ns - next_ns > period_ns / 2) l->summary.late++;
        status = read_phases(err, l);
        if (status == HONE_OK) status = one_turn(err, l);
        if (status == HONE_OK && now_ns - flushed_ns >= FLUSH_NS) {
            status = hn_recorder_flush(err, l->recorder);
            flushed_ns = now_ns;
        }
        next_ns += period_ns;
        now_ns = hn_clock_ns();
        if (next_ns < now_ns) next_ns += (now_ns - next_ns) / period_ns * period_ns;
        if (next_ns > now_ns && status == HONE_OK) hn_sleep_ns(next_ns - now_ns);
    }
    return status == HONE_ERR_TIMEOUT ? HONE_OK : status; // the source was a recording
}

hn_status hn_recording_run(hone_error *err, hn_probe *probe, const hn_recording_options *options,
                           hn_recording_summary *out_summary) {
    loop *l = hn_calloc(1, sizeof *l);
    if (!l) HN_NOMEM(err, "recording");
    l->probe = probe;
    l->options = options;
    hone_status status = hn_recorder_open(
        err, options->path, hn_probe_source(probe), hn_probe_clock_ns(probe), hn_clock_wall_ns(),
        hn_probe_device(probe, 0), hn_probe_device_count(probe), &l->recorder);
    if (status == HONE_OK) {
        status = run_loop(err, l);
        hone_status closed = hn_recorder_close(status == HONE_OK ? err : NULL, l->recorder);
        if (status == HONE_OK) status = closed;
    }
    if (status == HONE_OK) *out_summary = l->summary;
    hn_free(l);
    return status;
}
