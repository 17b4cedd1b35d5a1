// SPDX-License-Identifier: Apache-2.0
// The history's writer: see rollup.h. A tick is written a twentieth of a second after its end.
#include "fleet/rollup.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#define SECOND_NS INT64_C(1000000000)
#define AFTER_NS  (SECOND_NS / 20) // after the end of a second: its last samples are in
#define BATCH     64

typedef struct tick {
    uint64_t seq; // of the sampler's ring
    int64_t id;   // in the history, 0 = not known yet
    int64_t t_s;  // the tick being filled, 0 = none
    int64_t n, shift_ns; // shift: from a recording's wall clock to ours
    bool shifted;
    double sum[HN_METRIC_COUNT];
    int64_t count[HN_METRIC_COUNT];
    uint64_t bits;
    hn_energy energy;
    double joules; // told of energy so far
} tick;

struct hn_rollup {
    hn_sampler *sampler;
    hn_history *history;
    int device_count;
    tick *ticks; // owned
    hn_history_row *rows; // owned, two a device
    size_t row_count;
    hn_sample *batch; // owned
    hn_device_info info;
    int64_t minute_s, registered_s; // last folded; when devices were last written (monotonic)
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;               // under lock
    hn_rollup_status status; // under lock
};

static void tell(hn_rollup *r, hone_status status, const hone_error *err, int64_t rows) {
    int64_t bytes = hn_history_bytes(r->history);
    bool broken = status != HONE_OK;
    pthread_mutex_lock(&r->lock);
    bool changed = broken != r->status.broken;
    r->status.broken = broken;
    r->status.bytes = bytes;
    *(broken ? &r->status.dropped : &r->status.rows) += rows;
    snprintf(r->status.why, sizeof r->status.why, "%.*s", (int)sizeof r->status.why - 1, broken ? err->text : "");
    pthread_mutex_unlock(&r->lock);
    if (!changed) return;
    if (broken) hn_log(HN_LOG_WARN, "%s; readings go on, rows are lost until it can be written", err->text);
    else hn_log(HN_LOG_WARN, "history '%s' is written again", hn_history_file(r->history));
}

static void write_rows(hn_rollup *r) {
    hone_error err = {0};
    hone_status status = HONE_OK;
    int64_t now_s = hn_clock_ns() / SECOND_NS;
    if (r->row_count == 0) return;
    // Again every minute: the file may be a new one.
    bool all = r->registered_s == 0 || now_s - r->registered_s >= 60;
    for (int d = 0; d < r->device_count && all && status == HONE_OK; d++) {
        hn_sampler_info(r->sampler, d, &r->info);
        status = hn_history_device(&err, r->history, &r->info, NULL, &r->ticks[d].id);
    }
    if (all && status == HONE_OK) r->registered_s = now_s;
    for (size_t i = 0; i < r->row_count; i++) r->rows[i].device = r->ticks[r->rows[i].device].id;
    if (status == HONE_OK) status = hn_history_put(&err, r->history, HN_HISTORY_SECONDS, r->rows, r->row_count);
    tell(r, status, &err, (int64_t)r->row_count);
    r->row_count = 0;
}

// The tick is over: its row waits to be written (its device still by number).
static void close_tick(hn_rollup *r, int device) {
    tick *at = &r->ticks[device];
    if (at->n == 0) return;
    if (r->row_count == 2 * (size_t)r->device_count) write_rows(r);
    hn_history_row *row = &r->rows[r->row_count++];
    *row = (hn_history_row){.t_s = at->t_s, .device = device, .n = at->n, .joules = NAN};
    if (!isnan(at->energy.joules)) {
        row->joules = at->energy.joules - at->joules;
        at->joules = at->energy.joules;
    }
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (at->count[m] == 0) continue;
        bool last = hn_history_takes_last((hn_metric)m);
        hn_sample_put(&row->sample, (hn_metric)m,
                      m == HN_M_reasons ? (double)at->bits
                      : last            ? at->sum[m]
                                        : at->sum[m] / (double)at->count[m]);
    }
    memset(at->sum, 0, sizeof at->sum);
    memset(at->count, 0, sizeof at->count);
    at->bits = 0;
    at->n = 0;
}

static void add_sample(hn_rollup *r, int device, const hn_sample *s) {
    tick *at = &r->ticks[device];
    if (!at->shifted) {
        int64_t shift_ns = hn_clock_wall_ns() - s->wall_ns;
        // A recording's rows lie in the past, readings are a moment old.
        at->shift_ns = shift_ns > 30 * SECOND_NS || shift_ns < -30 * SECOND_NS ? shift_ns : 0;
        at->shifted = true;
    }
    int64_t t_s = (s->wall_ns + at->shift_ns) / SECOND_NS;
    if (t_s != at->t_s) close_tick(r, device);
    at->t_s = t_s;
    at->n++;
    hn_energy_add(&at->energy, s);
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (!hn_sample_has(s, (hn_metric)m)) continue;
        if (hn_history_takes_last((hn_metric)m)) at->sum[m] = s->value[m];
        else at->sum[m] += s->value[m];
        at->count[m]++;
    }
    if (hn_sample_has(s, HN_M_reasons)) at->bits |= (uint64_t)s->value[HN_M_reasons];
}

static void fold_minute(hn_rollup *r, int64_t minute_s) {
    hone_error err = {0};
    hone_status status = hn_history_fold_minute(&err, r->history, minute_s);
    if (status != HONE_OK) tell(r, status, &err, 0);
}

static void turn(hn_rollup *r, bool last) {
    int64_t now_s = hn_clock_wall_ns() / SECOND_NS;
    for (int d = 0; d < r->device_count; d++) {
        int got;
        while ((got = hn_sampler_read(r->sampler, d, &r->ticks[d].seq, r->batch, BATCH)) > 0)
            for (int i = 0; i < got; i++) add_sample(r, d, &r->batch[i]);
        if (r->ticks[d].t_s < now_s || last) close_tick(r, d);
    }
    write_rows(r);
    int64_t minute_s = now_s - now_s % 60;
    if (minute_s != r->minute_s || last) {
        // The one before too: at start that is what a killed writer left.
        if (minute_s != r->minute_s) fold_minute(r, minute_s - 60);
        if (last) fold_minute(r, minute_s);
        r->minute_s = minute_s;
    }
}

static void *thread(void *arg) {
    hn_rollup *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        // Ends of seconds are the wall clock's, which may jump: at most one second is waited for.
        int64_t wall_ns = hn_clock_wall_ns(), until_ns = wall_ns - wall_ns % SECOND_NS + SECOND_NS + AFTER_NS;
        int64_t wake_ns = hn_clock_ns() + (until_ns - wall_ns);
        struct timespec until = {.tv_sec = wake_ns / SECOND_NS, .tv_nsec = wake_ns % SECOND_NS};
        if (pthread_cond_timedwait(&r->wake, &r->lock, &until) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&r->lock);
        turn(r, false);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    turn(r, true);
    return NULL;
}

static void rollup_free(hn_rollup *r) {
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    hn_free(r->ticks);
    hn_free(r->rows);
    hn_free(r->batch);
    hn_free(r);
}

hn_status hn_rollup_start(hone_error *err, hn_sampler *sampler, hn_history *history, hn_rollup **out_rollup) {
    hn_rollup *r = hn_calloc(1, sizeof *r);
    if (!r) HN_NOMEM(err, "history");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&r->lock, NULL);
    r->sampler = sampler;
    r->history = history;
    r->device_count = hn_sampler_devices(sampler);
    r->status.bytes = -1;
    r->ticks = hn_calloc((size_t)r->device_count, sizeof *r->ticks);
    r->rows = hn_calloc(2 * (size_t)r->device_count, sizeof *r->rows);
    r->batch = hn_calloc(BATCH, sizeof *r->batch);
    if (!r->ticks || !r->rows || !r->batch) {
        rollup_free(r);
        HN_NOMEM(err, "history");
    }
    for (int d = 0; d < r->device_count; d++) {
        hn_sampler_info(sampler, d, &r->info);
        hn_energy_start(&r->ticks[d].energy, r->info.kind);
    }
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int failed = pthread_create(&r->thread, NULL, thread, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        rollup_free(r);
        HN_FAIL_VENDOR(err, HONE_ERR_IO, failed, "the thread that writes the history cannot be started");
    }
    pthread_setname_np(r->thread, "hone-history");
    *out_rollup = r;
    return HONE_OK;
}

void hn_rollup_stop(hn_rollup *rollup) {
    if (!rollup) return;
    pthread_mutex_lock(&rollup->lock);
    rollup->stop = true;
    pthread_cond_broadcast(&rollup->wake);
    pthread_mutex_unlock(&rollup->lock);
    pthread_join(rollup->thread, NULL);
    rollup_free(rollup);
}

void hn_rollup_read_status(hn_rollup *rollup, hn_rollup_status *out_status) {
    pthread_mutex_lock(&rollup->lock);
    *out_status = rollup->status;
    pthread_mutex_unlock(&rollup->lock);
}
