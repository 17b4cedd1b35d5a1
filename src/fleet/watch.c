// SPDX-License-Identifier: Apache-2.0
// The reading threads: see watch.h. A lane's lock is held while its track changes, never during a driver call.
#include "fleet/watch.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include "probe/record.h"

#define STUCK_NS   INT64_C(5000000000)
#define FLUSH_NS   INT64_C(1000000000)
#define REFRESH_NS INT64_C(500000000) // reading everything anew costs milliseconds: not for phases of a blink

typedef struct lane {
    hn_watch *watch;
    int device; // of the probe
    pthread_t thread;
    pthread_mutex_t lock;
    hn_track *track; // owned, under lock
    int64_t refreshed_ns;
} lane;

struct hn_watch {
    hn_probe *probe;
    lane *lanes; // owned
    int count, started;
    int64_t period_ns, start_ns, start_wall_ns;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;          // under lock
    int phase;          // under lock, as the next
    unsigned phase_seq; // changes with each phase
    pthread_mutex_t record_lock;
    hn_recorder *recorder; // under record_lock, NULL = none
    int64_t flushed_ns;
    hone_error record_error;
};

static void record_row(hn_watch *w, int device, const hn_sample *sample) {
    pthread_mutex_lock(&w->record_lock);
    if (w->recorder && w->record_error.status == HONE_OK) {
        hone_status status = hn_recorder_put(&w->record_error, w->recorder, device, sample);
        int64_t now_ns = hn_clock_ns();
        if (status == HONE_OK && now_ns - w->flushed_ns >= FLUSH_NS) {
            status = hn_recorder_flush(&w->record_error, w->recorder);
            w->flushed_ns = now_ns;
        }
    }
    pthread_mutex_unlock(&w->record_lock);
}

static void record_event(hn_watch *w, hn_event_kind kind, int device, const char *text) {
    hn_event event = {.kind = kind, .device = device, .t_ns = hn_probe_clock_ns(w->probe)};
    snprintf(event.text, sizeof event.text, "%s", text);
    pthread_mutex_lock(&w->record_lock);
    if (w->recorder && w->record_error.status == HONE_OK)
        (void)!hn_recorder_event(&w->record_error, w->recorder, &event); // kept in record_error
    pthread_mutex_unlock(&w->record_lock);
}

static void read_lane(lane *at, bool anew, int phase) {
    hn_watch *w = at->watch;
    hn_sample sample;
    hone_error ignored = {0};
    if (anew) hn_probe_refresh(w->probe, at->device);
    hone_status status = hn_probe_sample(&ignored, w->probe, at->device, &sample);
    pthread_mutex_lock(&at->lock);
    bool fell = status == HONE_ERR_DEVICE_LOST && !at->track->span.lost;
    hn_track_phase(at->track, phase);
    if (status == HONE_OK) hn_track_add(at->track, &sample);
    if (status == HONE_ERR_DEVICE_LOST) at->track->span.lost = true;
    pthread_mutex_unlock(&at->lock);
    if (status == HONE_OK) record_row(w, at->device, &sample);
    if (fell) record_event(w, HN_EVENT_LOST, at->device, "");
}

static void *lane_thread(void *arg) {
    lane *at = arg;
    hn_watch *w = at->watch;
    int64_t next_ns = hn_clock_ns() + w->period_ns;
    pthread_mutex_lock(&w->lock);
    unsigned seen = 0; // a phase that came before this thread is new to it
    while (!w->stop) {
        struct timespec until = {.tv_sec = next_ns / 1000000000, .tv_nsec = next_ns % 1000000000};
        bool changed = seen != w->phase_seq;
        if (!changed && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT) continue;
        int phase = w->phase;
        seen = w->phase_seq;
        pthread_mutex_unlock(&w->lock);
        int64_t now_ns = hn_clock_ns();
        bool anew = changed && now_ns - at->refreshed_ns >= REFRESH_NS;
        if (anew) at->refreshed_ns = now_ns;
        read_lane(at, anew, phase);
        now_ns = hn_clock_ns();
        if (!changed) next_ns += w->period_ns;
        if (next_ns < now_ns) next_ns = now_ns + w->period_ns; // missed turns are not made up for
        pthread_mutex_lock(&w->lock);
    }
    int phase = w->phase;
    pthread_mutex_unlock(&w->lock);
    read_lane(at, true, phase);
    return NULL;
}

static void watch_free(hn_watch *w) {
    for (int i = 0; i < w->count; i++) {
        pthread_mutex_destroy(&w->lanes[i].lock);
        hn_track_free(w->lanes[i].track);
    }
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->record_lock);
    hn_free(w->lanes);
    hn_free(w);
}

static hn_status make_lanes(hone_error *err, hn_watch *w, const hn_watch_options *o) {
    int all = hn_probe_device_count(o->probe);
    w->lanes = hn_calloc((size_t)all + 1, sizeof *w->lanes);
    if (!w->lanes) HN_NOMEM(err, "watch");
    for (int d = 0; d < all; d++) {
        if (o->devices && !o->devices[d]) continue;
        lane *at = &w->lanes[w->count++];
        at->watch = w;
        at->device = d;
        pthread_mutex_init(&at->lock, NULL);
        at->track = hn_track_new(hn_probe_device(o->probe, d), w->period_ns);
        if (!at->track) HN_NOMEM(err, "watch");
    }
    if (o->record)
        HN_TRY(hn_recorder_open(err, o->record, hn_probe_source(o->probe), w->start_ns, w->start_wall_ns,
                                hn_probe_device(o->probe, 0), all, &w->recorder));
    return HONE_OK;
}

// Signals are the main thread's.
static hn_status start_threads(hone_error *err, hn_watch *w) {
    sigset_t every, before;
    int failed = 0;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    while (w->started < w->count && !failed) {
        failed = pthread_create(&w->lanes[w->started].thread, NULL, lane_thread, &w->lanes[w->started]);
        w->started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        HN_FAIL_VENDOR(err, HONE_ERR_IO, failed, "the threads that read the cards cannot be started");
    return HONE_OK;
}

hn_status hn_watch_start(hone_error *err, const hn_watch_options *options, hn_watch **out_watch) {
    hn_watch *w = hn_calloc(1, sizeof *w);
    if (!w) HN_NOMEM(err, "watch");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->record_lock, NULL);
    w->probe = options->probe;
    w->period_ns = (int64_t)(1e9 / options->hz);
    w->phase = -1;
    w->start_ns = hn_probe_clock_ns(w->probe);
    w->start_wall_ns = hn_clock_wall_ns();
    hone_status status = make_lanes(err, w, options);
    for (int i = 0; i < w->count && status == HONE_OK; i++) read_lane(&w->lanes[i], true, -1);
    if (status == HONE_OK) status = start_threads(err, w);
    if (status != HONE_OK) {
        hn_track **tracks;
        int count;
        hone_error ignored = {0};
        if (hn_watch_stop(w, &tracks, &count, &ignored))
            for (int i = 0; i < count; i++) hn_track_free(tracks[i]);
        hn_free(tracks);
        return status;
    }
    *out_watch = w;
    return HONE_OK;
}

int64_t hn_watch_start_ns(const hn_watch *watch) { return watch->start_ns; }
int64_t hn_watch_start_wall_ns(const hn_watch *watch) { return watch->start_wall_ns; }

void hn_watch_phase(hn_watch *watch, int phase, const char *name) {
    record_event(watch, HN_EVENT_PHASE, -1, name);
    pthread_mutex_lock(&watch->lock);
    watch->phase = phase;
    watch->phase_seq++;
    pthread_cond_broadcast(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
}

// The lane's track, or a copy of it where its thread may still come back.
static hn_track *take_track(lane *at, bool back) {
    pthread_mutex_lock(&at->lock);
    hn_track *track = back ? at->track : hn_track_copy(at->track);
    if (back) at->track = NULL;
    pthread_mutex_unlock(&at->lock);
    if (track) hn_track_end(track);
    if (track && !back) track->span.stuck = true;
    return track;
}

bool hn_watch_stop(hn_watch *watch, hn_track ***out_tracks, int *out_count, hone_error *out_recorded) {
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_cond_broadcast(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
    hn_track **tracks = hn_calloc((size_t)watch->count + 1, sizeof *tracks);
    int64_t end_ns = hn_clock_wall_ns() + STUCK_NS; // one limit for all
    struct timespec until = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    bool all_back = true;
    int taken = 0;
    for (int i = 0; i < watch->count; i++) {
        lane *at = &watch->lanes[i];
        bool back = i >= watch->started || pthread_timedjoin_np(at->thread, NULL, &until) == 0;
        if (tracks && at->track && (tracks[taken] = take_track(at, back))) taken++;
        if (back) continue;
        pthread_detach(at->thread);
        all_back = false;
    }
    pthread_mutex_lock(&watch->record_lock);
    *out_recorded = watch->record_error;
    if (watch->recorder) {
        hone_error closing = {0};
        if (hn_recorder_close(&closing, watch->recorder) != HONE_OK) hn_error_merge(out_recorded, &closing);
        watch->recorder = NULL;
    }
    pthread_mutex_unlock(&watch->record_lock);
    *out_tracks = tracks;
    *out_count = taken;
    if (all_back) watch_free(watch); // a stuck thread may come back to what it uses
    return all_back;
}
