// SPDX-License-Identifier: Apache-2.0
// Reading of NCCL's words: NCCL_DEBUG logs of one or many ranks, RAS reports, nccl-tests tables.
//
// The reader never guesses over damage: a line that it cannot take apart is counted and left alone,
// what a log does not say is null (or -1) in the report. Causes come from nccl_causes.def, one row
// one cause; every cause carries the line that proves it. All strings of a report live in its
// arena.
#ifndef HN_PLACE_NCCL_H
#define HN_PLACE_NCCL_H
#include "base/base.h"

// Largest log that is read, all files together: more is a mistake, not a log.
#define HN_NCCL_MAX_BYTES ((size_t)4 << 30)

typedef struct hn_nccl_input {
    const char *name; // as shown in evidence; borrowed
    hn_slice text;
} hn_nccl_input;

// How bad a cause is. A job is healthy when it has none above NOTE.
typedef enum hn_nccl_severity {
    HN_NCCL_NOTE,  // true, and harmless in this job
    HN_NCCL_RISK,  // works now; set in a way that will bite
    HN_NCCL_SLOW,  // works below what the hardware gives
    HN_NCCL_FAULT, // fails or hangs
} hn_nccl_severity;

typedef struct hn_nccl_evidence {
    const char *file;
    int64_t line;     // from 1; 0 where a cause rests on what is absent
    const char *text; // the line without colours and line end
} hn_nccl_evidence;

typedef struct hn_nccl_cause {
    const char *id, *why, *mend;
    hn_nccl_severity severity;
    double confidence; // 0..1
    hn_nccl_evidence evidence;
    int64_t count; // records that say so
    bool victim;   // says that somebody else failed
} hn_nccl_cause;

typedef struct hn_nccl_pair {
    int from, to;         // ranks
    const char *via;      // "P2P/CUMEM", "SHM", "NET/IB/GDRDMA"
    const char *expected; // what it should be, NULL where the log does not tell
    int channels;
    int pxn; // card that lends its NIC (PXN), -1 none
} hn_nccl_pair;

typedef struct hn_nccl_failure { // the first failing process in time
    const char *host;            // NULL unknown
    int64_t pid;
    int device, rank; // -1 unknown
    hn_nccl_evidence evidence;
} hn_nccl_failure;

typedef struct hn_nccl_bench_row {
    int64_t bytes, count;
    double time_us, algbw_gbs, busbw_gbs; // computed from bytes and time, better of the two halves
    double printed_busbw_gbs;             // as the table says
    int64_t line;
    int table;
} hn_nccl_bench_row;

typedef struct hn_nccl_bench {
    const char *collective; // "all_reduce", NULL where the table does not tell
    int ranks;              // -1 unknown
    const hn_nccl_bench_row *rows;
    size_t row_count;
    double peak_busbw_gbs; // best row at or above half of the largest size
    int64_t peak_bytes;
    double ceiling_gbs; // < 0 unknown
    const char *ceiling_of;
    double share; // peak / ceiling, < 0 unknown
    const char
        *explained_by; // topology, transport, protocol, message size, slow member, none; NULL
    const char *sentence;
    double worst_formula_error; // relative, computed against printed busbw
} hn_nccl_bench;

typedef struct hn_nccl_setting {
    const char *name, *value;
    int64_t line;
} hn_nccl_setting;

typedef struct hn_nccl_report {
    hn_arena arena;
    bool healthy;
    const char *transport, *expected_transport, *network, *version; // NULL unknown
    const hn_nccl_cause *causes;
    size_t cause_count;
    int first_rank; // -1 unknown or none
    bool failed;    // `failure` is filled
    hn_nccl_failure failure;
    int ranks, nodes, ranks_seen; // -1 unknown
    int one_node;                 // 1 yes, 0 no, -1 unknown
    const char **hosts;
    size_t host_count;
    const hn_nccl_pair *pairs;
    size_t pair_count;
    const hn_nccl_setting *settings;
    size_t setting_count;
    bool has_bench;
    hn_nccl_bench bench;
    int64_t lines, records, torn;
} hn_nccl_report;

// HONE_ERR_FORMAT where no input holds anything that NCCL, RAS or nccl-tests print.
hn_status hn_nccl_read(hone_error *err, const hn_nccl_input *inputs, size_t input_count,
                       hn_nccl_report *out_report);
// Reads files ("-" is standard input), then as above.
hn_status hn_nccl_read_files(hone_error *err, const char *const *paths, size_t path_count,
                             hn_nccl_report *out_report);
void hn_nccl_report_free(hn_nccl_report *report);

hn_status hn_nccl_report_json(hone_error *err, const hn_nccl_report *report, hn_str *out_text);
void hn_nccl_report_text(const hn_nccl_report *report, hn_str *out_text);

// nccl-tests' factor from algorithm to bus bandwidth for `ranks` ranks; 0 for an unknown
// collective.
double hn_nccl_bus_factor(const char *collective, int ranks);
const char *hn_nccl_severity_name(hn_nccl_severity severity);
#endif
