// SPDX-License-Identifier: Apache-2.0
// One device over a job: the whole span, a span for each phase, and a series over time. Phases are stretches
// with a name; stretches of one name count as one phase.
#ifndef HN_FLEET_TRACK_H
#define HN_FLEET_TRACK_H
#include "fleet/series.h"
#include "fleet/span.h"

#define HN_PHASES_MAX    32 // names; what comes later is counted as the last, "others"
#define HN_PHASE_BYTES   64
#define HN_STRETCHES_MAX 512

typedef struct hn_phase_stretch {
    int phase;
    double from_s, to_s; // from the start of measuring
} hn_phase_stretch;

// The phases of a job, in the order in which they first came.
typedef struct hn_phase_list {
    int count;
    char names[HN_PHASES_MAX][HN_PHASE_BYTES];
    double seconds[HN_PHASES_MAX];
    double units[HN_PHASES_MAX]; // by progress; NAN unknown
    int stretch_count; // beyond HN_STRETCHES_MAX they count for `seconds` alone
    hn_phase_stretch stretches[HN_STRETCHES_MAX];
    int now; // -1: none yet
    double since_s, units_before;
    bool found; // by activity, not told
} hn_phase_list;
void hn_phase_list_init(hn_phase_list *list);
// A phase begins; units: done so far, NAN unknown. Its number.
int hn_phase_list_begin(hn_phase_list *list, const char *name, double now_s, double units);
void hn_phase_list_end(hn_phase_list *list, double now_s, double units); // of the job

typedef struct hn_track {
    hn_span span; // whole
    hn_series series;
    hn_span *phases[HN_PHASES_MAX]; // owned; NULL: not seen on this device
    int phase, next_phase;          // -1 none
    hn_span stretch;
    bool failed; // out of memory: phases are not whole
} hn_track;
// period_ns: of samples. NULL: out of memory.
hn_track *hn_track_new(const hn_device_info *info, int64_t period_ns);
hn_track *hn_track_copy(const hn_track *track);
void hn_track_free(hn_track *track); // takes NULL
void hn_track_add(hn_track *track, const hn_sample *sample);
// The next sample ends the present stretch and begins one of `phase`.
void hn_track_phase(hn_track *track, int phase);
void hn_track_end(hn_track *track); // ends the last stretch
#endif
