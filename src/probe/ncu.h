// SPDX-License-Identifier: Apache-2.0
// Exports of Nsight Compute (ncu --csv): kernels with their metrics and the rules' remarks.
//
// Read are the details page (one row a metric, rule rows between) and --print-summary (minimum,
// maximum and average). Lines of the tool (==PROF==) and of the profiled program are skipped;
// numbers may have thousands separators; rows may be shorter than the header. A broken quotation is
// an error that names its line.
#ifndef HN_PROBE_NCU_H
#define HN_PROBE_NCU_H
#include "base/base.h"

typedef struct hn_ncu_metric {
    const char *section, *name, *unit, *text; // in the report's arena
    double value, minimum, maximum;           // NAN where the text is no number or no summary
} hn_ncu_metric;
typedef struct hn_ncu_kernel {
    int64_t id, invocations; // invocations: 1, or what a summary counted
    const char *name, *process;
    int cc_major, cc_minor;
    int64_t block_threads, grid_blocks; // 0 = unknown
    HN_VEC(hn_ncu_metric) metrics;
    HN_VEC(const char *) remarks; // "SOLBottleneck: ..." of the rules
} hn_ncu_kernel;
typedef struct hn_ncu_report {
    HN_VEC(hn_ncu_kernel) kernels;
    int skipped_lines; // of the profiled program
    hn_arena arena;
} hn_ncu_report;

hn_status hn_ncu_parse(hone_error *err, const char *name, const char *data, size_t bytes,
                       hn_ncu_report *out_report);
void hn_ncu_free(hn_ncu_report *report);
// A metric by name (any section), NULL if the kernel lacks it.
const hn_ncu_metric *hn_ncu_find(const hn_ncu_kernel *kernel, const char *name);
double hn_ncu_duration_ns(const hn_ncu_kernel *kernel); // NAN = not told
typedef enum hn_ncu_bound { HN_NCU_UNKNOWN, HN_NCU_MEMORY, HN_NCU_COMPUTE } hn_ncu_bound;
// Which of the two throughputs (per cent of peak) is higher.
hn_ncu_bound hn_ncu_bound_by(const hn_ncu_kernel *kernel);
#endif
