// SPDX-License-Identifier: Apache-2.0
// A recording as the result of a measured command: what hone exec would have said of it, as far as a recording
// tells (no processes, no exit status).
#ifndef HN_FLEET_RECORDED_H
#define HN_FLEET_RECORDED_H
#include "fleet/exec.h"

// from_s, to_s: the part to look at, 0 and INFINITY for all. only: the phase whose spans are wanted, NULL: all.
// HONE_ERR_FORMAT for a file that is no recording, HONE_ERR_USAGE where the part or the phase is not in it.
hn_status hn_recorded_read(hone_error *err, const char *path, double from_s, double to_s, const char *only,
                           hn_exec_result *out_result);
// The same of another tool's text whose rows tell times (nvidia-smi --query-gpu=timestamp,... -l 1): joules are power
// integrated, across gaps of 10 s at most. HONE_ERR_UNSUPPORTED where there are no two times.
hn_status hn_recorded_read_text(hone_error *err, const char *path, hn_exec_result *out_result);
#endif
