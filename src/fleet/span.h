// SPDX-License-Identifier: Apache-2.0
// One device over a measured span (a job, a phase): joules, means, peaks, counter differences, idle time.
//
// Gauges of a sample stand for the time since the device's sample before it (that is what activity
// counters average over). A card is idle while no kernel runs and its host link is quiet. Means are kept
// over the whole span and over the time in which it was not idle. What was never read stays unknown (NAN).
#ifndef HN_FLEET_SPAN_H
#define HN_FLEET_SPAN_H
#include "probe/energy.h"

#define HN_SPAN_REASONS 9 // bits of the metric `reasons`

typedef struct hn_span_metric {
    double sum, weight_s;           // whole span
    double busy_sum, busy_weight_s; // while not idle
    double max, first, last;
    double rise; // of a counter; what lies before a reset of it is lost
    bool any;
} hn_span_metric;

typedef struct hn_span {
    hn_device_info info;
    hn_energy energy;
    int64_t samples, first_ns, last_ns;
    int64_t judged_ns, idle_ns; // judged: activity was known
    int64_t joined_ns;          // length of the spans that were joined to this one
    int64_t inner_idle_ns;      // idle between two busy times: neither start-up nor end
    int64_t pending_idle_ns;    // state
    int stalls;                 // how often it went idle and came back
    bool was_busy;
    bool lost;  // fell off the bus
    bool stuck; // the driver stopped answering: what came after is not in here
    int64_t reason_ns[HN_SPAN_REASONS], reason_known_ns;
    hn_span_metric metrics[HN_METRIC_COUNT];
} hn_span;

void hn_span_start(hn_span *span, const hn_device_info *info);
void hn_span_add(hn_span *span, const hn_sample *sample); // samples of one device, in order
// Adds what a later span of the same device was; `span` then takes no more samples. Time between them
// counts for neither. Joules are those of both, by the weaker method.
void hn_span_join(hn_span *span, const hn_span *later);

double hn_span_mean(const hn_span *span, hn_metric metric);
double hn_span_busy_mean(const hn_span *span, hn_metric metric); // the mean where it was never idle
double hn_span_max(const hn_span *span, hn_metric metric);
double hn_span_rise(const hn_span *span, hn_metric metric); // of a counter
double hn_span_seconds(const hn_span *span);
double hn_span_idle_share(const hn_span *span); // of the judged time
double hn_span_watts(const hn_span *span);      // joules by covered time
// Bytes a second and direction that the host link can carry as it is now; NAN unknown.
double hn_span_link_bytes_s(const hn_span *span);
// Card memory at its peak, of what programs can get (reserved memory left out); NAN unknown.
double hn_span_memory_share(const hn_span *span);
#endif
