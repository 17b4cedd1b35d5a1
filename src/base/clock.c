// SPDX-License-Identifier: Apache-2.0
// Clocks: see clock.h.
#include "base/clock.h"
#include <time.h>

static int64_t read_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t hn_clock_ns(void) { return read_ns(CLOCK_MONOTONIC); }
int64_t hn_clock_thread_ns(void) { return read_ns(CLOCK_THREAD_CPUTIME_ID); }
int64_t hn_clock_wall_ns(void) { return read_ns(CLOCK_REALTIME); }

void hn_sleep_ns(int64_t ns) {
    if (ns <= 0) return;
    struct timespec wait = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&wait, NULL);
}
