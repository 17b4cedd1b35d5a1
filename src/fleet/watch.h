// SPDX-License-Identifier: Apache-2.0
// Threads that read devices of a probe into spans, one a device, until they are told to stop: a driver call
// that hangs for one card keeps no other from being read.
#ifndef HN_FLEET_WATCH_H
#define HN_FLEET_WATCH_H
#include "fleet/span.h"

typedef struct hn_watch hn_watch;
// devices: NULL for all, else by device of the probe.
hn_status hn_watch_start(hone_error *err, hn_probe *probe, const bool *devices, double hz,
                         hn_watch **out_watch);
// Reads once more, ends the threads and hands out what they read. False where a driver call does not come
// back within some seconds: that device's span is marked stuck and holds what came before, and the probe
// must be left alone for good. out_spans: NULL with no memory.
bool hn_watch_stop(hn_watch *watch, hn_span **out_spans, int *out_count);
#endif
