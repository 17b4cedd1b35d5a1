// SPDX-License-Identifier: Apache-2.0
// The reading threads: see watch.h. A lane's lock is held while its span changes, never during a driver call.
#include "fleet/watch.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define STUCK_NS INT64_C(5000000000)

typedef struct lane {
    hn_watch *watch;
    int device; // of the probe
    pthread_t thread;
    pthread_mutex_t lock;
    hn_span span; // under lock
} lane;

struct hn_watch {
    hn_probe *probe;
    lane *lanes; // owned
    int count, started;
    int64_t period_ns;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop; // under lock
};

static void read_lane(lane *at, bool anew) {
    hn_sample sample;
    hone_error ignored = {0};
    if (anew) hn_probe_refresh(at->watch->probe, at->device);
    hone_status status = hn_probe_sample(&ignored, at->watch->probe, at->device, &sample);
    pthread_mutex_lock(&at->lock);
    if (status == HONE_OK) hn_span_add(&at->span, &sample);
    if (status == HONE_ERR_DEVICE_LOST) at->span.lost = true;
    pthread_mutex_unlock(&at->lock);
}

static void *lane_thread(void *arg) {
    lane *at = arg;
    hn_watch *w = at->watch;
    int64_t next_ns = hn_clock_ns() + w->period_ns;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct timespec until = {.tv_sec = next_ns / 1000000000, .tv_nsec = next_ns % 1000000000};
        if (pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&w->lock);
        read_lane(at, false);
        int64_t now_ns = hn_clock_ns();
        next_ns += w->period_ns;
        if (next_ns < now_ns) next_ns = now_ns + w->period_ns; // missed turns are not made up for
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    read_lane(at, true);
    return NULL;
}

static void watch_free(hn_watch *w) {
    for (int i = 0; i < w->count; i++) pthread_mutex_destroy(&w->lanes[i].lock);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    hn_free(w->lanes);
    hn_free(w);
}

hn_status hn_watch_start(hone_error *err, hn_probe *probe, const bool *devices, double hz,
                         hn_watch **out_watch) {
    int all = hn_probe_device_count(probe), failed = 0;
    hn_watch *w = hn_calloc(1, sizeof *w);
    if (!w) HN_NOMEM(err, "watch");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&w->lock, NULL);
    w->probe = probe;
    w->period_ns = (int64_t)(1e9 / hz);
    w->lanes = hn_calloc((size_t)all + 1, sizeof *w->lanes);
    if (!w->lanes) {
        watch_free(w);
        HN_NOMEM(err, "watch");
    }
    for (int d = 0; d < all; d++) {
        if (devices && !devices[d]) continue;
        lane *at = &w->lanes[w->count++];
        at->watch = w;
        at->device = d;
        pthread_mutex_init(&at->lock, NULL);
        hn_span_start(&at->span, hn_probe_device(probe, d));
        read_lane(at, true);
    }
    // Signals are the main thread's.
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    while (w->started < w->count && !failed) {
        failed = pthread_create(&w->lanes[w->started].thread, NULL, lane_thread, &w->lanes[w->started]);
        w->started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        hn_span *spans;
        int count;
        if (hn_watch_stop(w, &spans, &count)) hn_free(spans);
        HN_FAIL_VENDOR(err, HONE_ERR_IO, failed, "the threads that read the cards cannot be started");
    }
    *out_watch = w;
    return HONE_OK;
}

bool hn_watch_stop(hn_watch *watch, hn_span **out_spans, int *out_count) {
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_cond_broadcast(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
    hn_span *spans = hn_calloc((size_t)watch->count + 1, sizeof *spans);
    int64_t end_ns = hn_clock_wall_ns() + STUCK_NS; // one limit for all
    struct timespec until = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    bool all_back = true;
    for (int i = 0; i < watch->count; i++) {
        lane *at = &watch->lanes[i];
        bool back = i >= watch->started || pthread_timedjoin_np(at->thread, NULL, &until) == 0;
        pthread_mutex_lock(&at->lock);
        if (spans) spans[i] = at->span;
        pthread_mutex_unlock(&at->lock);
        if (back) continue;
        if (spans) spans[i].stuck = true;
        pthread_detach(at->thread);
        all_back = false;
    }
    *out_spans = spans;
    *out_count = spans ? watch->count : 0;
    if (all_back) watch_free(watch); // a stuck thread may come back to what it uses
    return all_back;
}
