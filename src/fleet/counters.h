// SPDX-License-Identifier: Apache-2.0
// Which metrics the exporter shows, under which names: all of metrics.def, or what a file in dcgm-exporter's CSV
// format names ("NAME, gauge|counter|label, help" a line; # begins a comment).
//
// Names of dcgm-exporter choose from its family of names; names of hone (hone_...) from the other, of which
// everything is shown where the file names none. A field of DCGM that hone does not measure is left out and counted.
#ifndef HN_FLEET_COUNTERS_H
#define HN_FLEET_COUNTERS_H
#include "probe/probe.h"

#define HN_COUNTERS_LABELS_MAX 8
#define HN_COUNTERS_HELP_BYTES 200

typedef struct hn_counter {
    hn_metric metric;
    bool legacy; // by dcgm-exporter's name, else by hone's
    hn_metric_kind kind;
    char help[HN_COUNTERS_HELP_BYTES];
} hn_counter;
typedef struct hn_counter_label {
    const char *name;      // of the label
    const hn_info_row *row; // whose value it has
} hn_counter_label;
typedef struct hn_counters {
    hn_counter items[2 * HN_METRIC_COUNT];
    int count;
    hn_counter_label labels[HN_COUNTERS_LABELS_MAX];
    int label_count;
    int unknown;       // fields of DCGM that are not measured here
    char unknown_name[64]; // the first of them
} hn_counters;

void hn_counters_default(hn_counters *out_counters);
// HONE_ERR_INPUT where the file is not there, HONE_ERR_FORMAT with its name and line where a line is wrong.
hn_status hn_counters_read(hone_error *err, const char *path, hn_counters *out_counters);
hn_status hn_counters_parse(hone_error *err, const char *name, hn_slice text, hn_counters *out_counters);
#endif
