// SPDX-License-Identifier: Apache-2.0
// The reading thread: see watch.h.
#include "fleet/watch.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define STUCK_S 5

struct hn_watch {
    hn_probe *probe;
    hn_span *spans; // owned until handed out
    int *devices;   // owned; of the probe, one a span
    int count;
    int64_t period_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop; // under lock
};

static void read_all(hn_watch *w, bool anew) {
    for (int i = 0; i < w->count; i++) {
        hn_sample sample;
        hone_error ignored = {0};
        if (anew) hn_probe_refresh(w->probe, w->devices[i]);
        hone_status status = hn_probe_sample(&ignored, w->probe, w->devices[i], &sample);
        if (status == HONE_OK) hn_span_add(&w->spans[i], &sample);
        if (status == HONE_ERR_DEVICE_LOST) w->spans[i].lost = true;
    }
}

static void *watch_thread(void *arg) {
    hn_watch *w = arg;
    int64_t next_ns = hn_clock_ns() + w->period_ns;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct timespec until = {.tv_sec = next_ns / 1000000000, .tv_nsec = next_ns % 1000000000};
        if (pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&w->lock);
        read_all(w, false);
        int64_t now_ns = hn_clock_ns();
        next_ns += w->period_ns;
        if (next_ns < now_ns) next_ns = now_ns + w->period_ns; // missed turns are not made up for
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    read_all(w, true);
    return NULL;
}

static void watch_free(hn_watch *w) {
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    hn_free(w->spans);
    hn_free(w->devices);
    hn_free(w);
}

hn_status hn_watch_start(hone_error *err, hn_probe *probe, const bool *devices, double hz,
                         hn_watch **out_watch) {
    int all = hn_probe_device_count(probe);
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
    w->spans = hn_calloc((size_t)all + 1, sizeof *w->spans);
    w->devices = hn_calloc((size_t)all + 1, sizeof *w->devices);
    if (!w->spans || !w->devices) {
        watch_free(w);
        HN_NOMEM(err, "watch");
    }
    for (int d = 0; d < all; d++) {
        if (devices && !devices[d]) continue;
        hn_span_start(&w->spans[w->count], hn_probe_device(probe, d));
        w->devices[w->count++] = d;
    }
    read_all(w, true);
    // Signals are the main thread's.
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int failed = pthread_create(&w->thread, NULL, watch_thread, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        watch_free(w);
        HN_FAIL_VENDOR(err, HONE_ERR_IO, failed, "the thread that reads the cards cannot be started");
    }
    *out_watch = w;
    return HONE_OK;
}

bool hn_watch_stop(hn_watch *watch, hn_span **out_spans, int *out_count) {
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_cond_signal(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STUCK_S;
    if (pthread_timedjoin_np(watch->thread, NULL, &until) != 0) {
        pthread_detach(watch->thread);
        return false;
    }
    *out_spans = watch->spans;
    *out_count = watch->count;
    watch->spans = NULL;
    watch_free(watch);
    return true;
}
