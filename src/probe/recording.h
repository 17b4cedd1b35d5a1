// SPDX-License-Identifier: Apache-2.0
// Recording a probe: one thread, all devices in turn at a fixed rate, until told to stop.
#ifndef HN_PROBE_RECORDING_H
#define HN_PROBE_RECORDING_H
#include "probe/record.h"

typedef struct hn_recording_options {
    const char *path;
    double hz, seconds; // seconds 0 = until keep_going says no or the source ends
    int phase_fd;       // non-blocking; each line starts a phase; -1 = none
    bool (*keep_going)(void *user, double seconds, int64_t rows); // NULL = always
    void *user;
} hn_recording_options;
typedef struct hn_recording_summary {
    int64_t rows, late; // late: turns that began more than half a period after their time
    double seconds, cpu_seconds;
} hn_recording_summary;
hn_status hn_recording_run(hone_error *err, hn_probe *probe, const hn_recording_options *options,
                           hn_recording_summary *out_summary);
#endif
