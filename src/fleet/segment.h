// SPDX-License-Identifier: Apache-2.0
// Phases by activity, for jobs that tell none: the run is cut where power, SM, tensor, memory and link activity
// of the cards change for good, and parts that look alike get one name: "idle", "load 1", "load 2", ...
// What a load is for (training, validating) cannot be seen, so it is not claimed.
#ifndef HN_FLEET_SEGMENT_H
#define HN_FLEET_SEGMENT_H
#include "fleet/track.h"

// Fills `phases` (which must be empty) and the tracks' phase spans, made from their series: means, peaks,
// joules by integrated power. Nothing where there is no card, or no more than one phase. start_ns: the zero
// of the list's times. False: out of memory.
bool hn_segments_find(hn_track *const *tracks, int count, int64_t start_ns, hn_phase_list *phases);
#endif
