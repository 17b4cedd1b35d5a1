// SPDX-License-Identifier: Apache-2.0
// What other tools print, read into devices and samples: nvidia-smi -q, -q -x (schemas v11 to v13),
// --query-gpu CSV, dmon, pmon, and Prometheus pages of dcgm-exporter, nvidia_smi exporters and hone.
//
// A value is taken only if it is a number (or a known word) in a unit that the metric can be
// converted from. "N/A", "[Unknown Error]", "ERR!", "-", DCGM's blank numbers and whatever else a
// driver prints instead of a value are not numbers: they are absent. Lines that fit nothing are
// counted, not guessed.
#ifndef HN_PROBE_TEXT_H
#define HN_PROBE_TEXT_H
#include "probe/probe.h"

#define HN_TEXT_DEVICES_MAX 256
#define HN_TEXT_ROWS_MAX    65536
#define HN_TEXT_BYTES_MAX   (64 << 20)

typedef struct hn_text_row {
    int device;
    hn_sample sample; // wall_ns 0 = the text tells no time
} hn_text_row;
typedef struct hn_text_process {
    int device;
    hn_process process;
} hn_text_process;

typedef struct hn_text {
    const char *format; // "nvidia-smi -q", ...
    HN_VEC(hn_device_info) devices;
    HN_VEC(hn_text_row) rows;          // in the text's order
    HN_VEC(hn_text_process) processes; // the last listing
    int skipped;       // lines or values that were neither known nor rightly absent
    int skipped_line;  // the first of them
    char driver[HN_INFO_BYTES], cuda[HN_INFO_BYTES];
} hn_text;

// `name` is for messages. On failure nothing is left to free.
hn_status hn_text_parse(hone_error *err, const char *name, const char *data, size_t bytes,
                        hn_text *out_text);
void hn_text_free(hn_text *text);
#endif
