// SPDX-License-Identifier: Apache-2.0
// What `hone exec` says at the end, as text and as JSON.
#ifndef HN_FLEET_EXEC_REPORT_H
#define HN_FLEET_EXEC_REPORT_H
#include <jansson.h>
#include "fleet/diagnose.h"
#include "fleet/exec.h"

typedef struct hn_exec_totals {
    double joules, watts; // of the cards, else of the host; NAN unknown
    int devices;          // that they are the sum of
    bool complete;        // every card was read to the end
    double units, units_per_second, joules_per_unit;
} hn_exec_totals;
// units: given by the user; NAN: those that were seen.
void hn_exec_totals_make(const hn_exec_result *result, double units, hn_exec_totals *out_totals);

// source: of the telemetry, NULL for none.
void hn_exec_text(const hn_exec_request *request, const hn_exec_result *result, const hn_exec_totals *totals,
                  hn_str *out);
json_t *hn_exec_json(const hn_exec_request *request, const hn_exec_result *result,
                     const hn_exec_totals *totals, const char *source); // NULL: out of memory
#endif
