// SPDX-License-Identifier: Apache-2.0
// A thread that reads devices of a probe into spans until it is told to stop.
#ifndef HN_FLEET_WATCH_H
#define HN_FLEET_WATCH_H
#include "fleet/span.h"

typedef struct hn_watch hn_watch;
// devices: NULL for all, else by device of the probe.
hn_status hn_watch_start(hone_error *err, hn_probe *probe, const bool *devices, double hz,
                         hn_watch **out_watch);
// Reads once more and ends the thread. False where the driver does not come back within some seconds: the
// thread, what it uses and the probe must then be left alone for good.
bool hn_watch_stop(hn_watch *watch, hn_span **out_spans, int *out_count);
#endif
