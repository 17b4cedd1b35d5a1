// SPDX-License-Identifier: Apache-2.0
// From measured spans to what bound a job, why we think so and what to do. Pure: no state, no allocation.
//
// A class is claimed from readings only: where a reading is missing, classes that need it are not claimed.
// Thresholds are constants at the head of diagnose.c, each with its reason.
#ifndef HN_FLEET_DIAGNOSE_H
#define HN_FLEET_DIAGNOSE_H
#include "fleet/span.h"

typedef enum hn_diagnosis {
#define HN_DIAGNOSIS(token, ...) HN_DIAG_##token,
#include "fleet/diagnose.def"
#undef HN_DIAGNOSIS
    HN_DIAGNOSIS_COUNT
} hn_diagnosis;

typedef struct hn_diagnosis_row {
    const char *token, *words;
    bool bound;
    const char *remedy;
} hn_diagnosis_row;
extern const hn_diagnosis_row hn_diagnosis_rows[HN_DIAGNOSIS_COUNT];

typedef struct hn_finding {
    hn_diagnosis what;
    int span;      // position of the card in the spans
    double weight; // 0 to 1 and more: how much of the time or of a ceiling
    const char *reason; // throttled: which; "" else
    const char *remedy; // static
    char evidence[320];
} hn_finding;

#define HN_FINDINGS_MAX(spans) ((spans) * HN_DIAGNOSIS_COUNT)
// spans: cards, and the host where it was watched (its load is evidence). Findings come card by card, the
// bound first. Returns how many were written, at most `max`.
int hn_diagnose(const hn_span *spans, int count, hn_finding *out_findings, int max);
#endif
