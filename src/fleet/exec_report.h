// SPDX-License-Identifier: Apache-2.0
// What `hone exec` says at the end, and `hone report` of a recording: text, JSON and HTML (exec_html.c).
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

// The spans of the whole job (phase -1) or of a phase (empty where a device has none), one a device in their
// order. NULL: out of memory; to be freed with hn_free.
hn_span *hn_exec_spans(const hn_exec_result *result, int phase);

// One phase, all cards together; NAN unknown.
typedef struct hn_exec_phase {
    const char *name;
    double seconds;
    hn_exec_totals totals;
    double sm_active, tensor_active, dram_active, idle_share; // means of the cards
    int bound; // hn_diagnosis of the first card that has one, -1 none
} hn_exec_phase;
bool hn_exec_phase_make(const hn_exec_result *result, int phase, hn_exec_phase *out_phase); // false: no memory

typedef struct hn_exec_findings {
    int count;
    hn_finding *items; // owned
    const hn_span *spans;
    const char *phase; // of which the bound is said, NULL: the whole job
} hn_exec_findings;
// Findings of a job. Spans are those of hn_exec_spans(result, -1) and must outlive it. Where one phase has most
// of the joules, the bound is said of that one: start-up and the like would dilute it. False: no memory.
bool hn_exec_findings_make(const hn_exec_result *result, const hn_span *spans, hn_exec_findings *out_findings);
// "gpu 0, gpu 2: throttled (power limit)" for the group of cards that share finding `at`; false where an
// earlier one has said it.
bool hn_exec_finding_title(const hn_exec_findings *all, int at, hn_str *out);

// Whether a goal of well-used hardware is set for a metric; goal as a ratio.
typedef struct hn_goal {
    hn_metric metric;
    const char *words;
    double ratio;
} hn_goal;
extern const hn_goal hn_goals[];
extern const size_t hn_goal_count;

// source: of the telemetry, NULL for none.
void hn_exec_text(const hn_exec_request *request, const hn_exec_result *result, const hn_exec_totals *totals,
                  hn_str *out);
json_t *hn_exec_json(const hn_exec_request *request, const hn_exec_result *result,
                     const hn_exec_totals *totals, const char *source); // NULL: out of memory
// A page that stands alone: figures, findings, plots over time, phases, energy. title: "" for the command.
void hn_exec_html(const hn_exec_request *request, const hn_exec_result *result, const hn_exec_totals *totals,
                  const char *source, const char *title, hn_str *out);
#endif
