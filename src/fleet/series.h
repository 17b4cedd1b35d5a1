// SPDX-License-Identifier: Apache-2.0
// What one device did over time, in memory of fixed size: at most HN_SERIES_POINTS points, whose width
// doubles whenever the run outgrows them. A point has mean, least and most of what fell into it; what was
// never read in it is unknown. For plots and for finding phases.
#ifndef HN_FLEET_SERIES_H
#define HN_FLEET_SERIES_H
#include "probe/probe.h"

#define HN_SERIES_POINTS 720

// Columns: a metric, or the share of time in which bits of `reasons` were set.
typedef enum hn_series_column {
#define HN_SERIES_METRIC(token) HN_S_##token,
#define HN_SERIES_REASON(token, bits, words) HN_S_##token,
#include "fleet/series.def"
#undef HN_SERIES_METRIC
#undef HN_SERIES_REASON
    HN_SERIES_COLUMNS
} hn_series_column;

typedef struct hn_series_cell {
    float sum, weight_s; // mean = sum / weight
    float low, high;
} hn_series_cell;

typedef struct hn_series {
    int64_t start_ns, width_ns; // of the probe's clock
    int count;                  // points begun
    int64_t last_ns;
    bool any;
    hn_series_cell cells[HN_SERIES_COLUMNS][HN_SERIES_POINTS];
} hn_series;

void hn_series_start(hn_series *series, int64_t width_ns);
void hn_series_add(hn_series *series, const hn_sample *sample); // samples of one device, in order
bool hn_series_has(const hn_series *series, hn_series_column column); // any reading
double hn_series_mean(const hn_series *series, hn_series_column column, int point); // NAN unknown
const char *hn_series_reason_words(hn_series_column column); // "" for a metric
#endif
