// SPDX-License-Identifier: Apache-2.0
// Threads that read devices of a probe into tracks, one a device, until they are told to stop: a driver call
// that hangs for one card keeps no other from being read.
#ifndef HN_FLEET_WATCH_H
#define HN_FLEET_WATCH_H
#include "fleet/track.h"

typedef struct hn_watch_options {
    hn_probe *probe;
    const bool *devices; // NULL for all, else by device of the probe
    double hz;
    const char *record; // file that replay reads; NULL: none
} hn_watch_options;

typedef struct hn_watch hn_watch;
hn_status hn_watch_start(hone_error *err, const hn_watch_options *options, hn_watch **out_watch);
int64_t hn_watch_start_ns(const hn_watch *watch);      // of the probe's clock
int64_t hn_watch_start_wall_ns(const hn_watch *watch); // the same moment
// A phase begins, by number of the job's phase list and name: every device is read anew at once.
void hn_watch_phase(hn_watch *watch, int phase, const char *name);
// Reads once more, ends the threads and hands out what they read (tracks are the caller's). False where a
// driver call does not come back within some seconds: that device's span is marked stuck and holds what came
// before, and the probe must be left alone for good. *out_tracks: NULL with no memory. out_recorded: why
// the recording is not whole, HONE_OK if it is.
bool hn_watch_stop(hn_watch *watch, hn_track ***out_tracks, int *out_count, hone_error *out_recorded);
#endif
