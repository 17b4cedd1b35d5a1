// SPDX-License-Identifier: Apache-2.0
// Joules of one call: those of about a second of calls less those of as long a pause, from a probe. Unknown
// (NAN) where nothing here counts energy, and where the calls drew no more than the pause.
#ifndef HN_TUNE_JOULES_H
#define HN_TUNE_JOULES_H
#include "tune/measure.h"
#include "plan/plan.h"

// source: as for hn_probe_open; "" = the setting energy_source. A host's joules are those of its CPU packages, other
// sources' those of all their cards together. Fails only where fn fails.
hn_status hn_measure_joules(hone_error *err, const char *source, hn_measure_fn fn, void *user, double *out_joules);
// The source for a session that has run: what runs on a card is counted there, unless the settings say where.
const char *hn_joules_source(const hn_session *session);
#endif
