// SPDX-License-Identifier: Apache-2.0
// The exporter's page, made from the sampler's memory: no driver call, no waiting. Prometheus' text format 0.0.4 or
// OpenMetrics 1.0.0, by the same rows.
//
// What is unknown has no line. Devices that are lost or stale have no values, only hone_gpu_up 0 and their age. A
// counter of dcgm-exporter does not end in _total, which OpenMetrics demands: there its type is "unknown".
// Labels of a card are dcgm-exporter's, in its order. A container is a card's label where the kubelet gave the card to it
// alone; without a kubelet, a pod or job is where all that runs on the card belongs to it; else the series of the processes tell.
#ifndef HN_FLEET_PAGE_H
#define HN_FLEET_PAGE_H
#include "fleet/counters.h"
#include "fleet/podres.h"
#include "fleet/rollup.h"

typedef enum hn_page_format { HN_PAGE_TEXT, HN_PAGE_OPENMETRICS } hn_page_format;
#define HN_PAGE_TEXT_TYPE        "text/plain; version=0.0.4; charset=utf-8"
#define HN_PAGE_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

typedef struct hn_page_options {
    hn_sampler *sampler;  // borrowed, as all here
    hn_rollup *rollup;    // NULL = no history
    hn_podres *pods;      // NULL = the kubelet is not asked
    const hn_counters *counters;
    const char *hostname; // NULL = where a source names one that, else this machine's
    const char *version;
    double window_s;      // gauges of activity, power and rates are means over so long; 0 = the newest reading
    bool over_too;        // values of a recording that has ended are shown
} hn_page_options;

typedef struct hn_page hn_page;
hn_status hn_page_open(hone_error *err, const hn_page_options *options, hn_page **out_page);
void hn_page_close(hn_page *page); // takes NULL
// Appends a page. For one thread at a time. `out` keeps its memory between pages where the caller resets its length.
hn_status hn_page_render(hone_error *err, hn_page *page, hn_page_format format, hn_str *out);
// Whether all is well; if not, appends a line for each trouble.
bool hn_page_health(hn_page *page, hn_str *out);
// The format that an Accept header asks for (NULL: none given).
hn_page_format hn_page_negotiate(const char *accept);
// For tests: a value as the page writes it; a label's value, escaped.
void hn_page_number(hn_str *out, double value);
void hn_page_label(hn_str *out, const char *text);
#endif
