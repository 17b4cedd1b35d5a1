// SPDX-License-Identifier: Apache-2.0
// From the sampler's rings into the history, a row a second and device, on a thread of its own: a slow or full
// disk holds up neither the sampler nor its readers. Trouble with the file is told once, and once when it ends.
#ifndef HN_FLEET_ROLLUP_H
#define HN_FLEET_ROLLUP_H
#include "fleet/history.h"
#include "fleet/sampler.h"

typedef struct hn_rollup hn_rollup;
typedef struct hn_rollup_status {
    bool broken;      // the last write failed
    char why[256];    // of it
    int64_t rows;     // written
    int64_t dropped;  // lost to failed writes
    int64_t bytes;    // of the file, -1 unknown
} hn_rollup_status;
// Sampler and history are borrowed; the history is the thread's alone until hn_rollup_stop.
hn_status hn_rollup_start(hone_error *err, hn_sampler *sampler, hn_history *history, hn_rollup **out_rollup);
void hn_rollup_stop(hn_rollup *rollup); // writes what is there; takes NULL
void hn_rollup_read_status(hn_rollup *rollup, hn_rollup_status *out_status);
#endif
