// SPDX-License-Identifier: Apache-2.0
// State shared by the parts of the NCCL reader: records (nccl_record.c) feed the scanner
// (nccl_scan.c), which fills facts, ranks, pairs and benchmark rows; nccl_cause.c draws
// conclusions.
#ifndef HN_PLACE_NCCL_INT_H
#define HN_PLACE_NCCL_INT_H
#include "place/nccl.h"

#define HN_NCCL_HOSTS_MAX 64 // hosts beyond share the last bit of host masks

typedef enum hn_nccl_fact {
#define HN_FACT(name, pattern)              HN_FACT_##name,
#define HN_FACT_ENV(name, variable, values) HN_FACT_##name,
#define HN_FACT_MADE(name, doc)             HN_FACT_##name,
#include "place/nccl_facts.def"
#undef HN_FACT
#undef HN_FACT_ENV
#undef HN_FACT_MADE
    HN_FACT_COUNT
} hn_nccl_fact;

// One log line as a record. Slices borrow from the line; -1 and empty slices are unknown.
typedef struct hn_nccl_record {
    enum { HN_NCCL_PLAIN, HN_NCCL_INFO, HN_NCCL_WARN, HN_NCCL_OTHER } level;
    hn_slice before; // what stands before the header: launcher prefix, or a torn tail
    hn_slice host;
    int64_t pid, tid;
    int device;
    int rank_hint;   // from the launcher's prefix
    hn_slice source; // "transport/nvls.cc:244"
    hn_slice message;
    hn_slice text;   // the line that the slices point into: runs of blanks are one blank
    hn_slice whole;  // the physical line, for evidence; terminated
    int64_t time_us; // INT64_MIN unknown
    int64_t line;
    bool torn;         // another header follows on the same line
    bool channel_read; // its path was counted before
} hn_nccl_record;

// A place in the input, with who said it. Its text is borrowed from the line until
// hn_nccl_mark_keep.
typedef struct hn_nccl_mark {
    const char *file, *text;
    hn_slice said; // the record's message with its tail; terminated once kept
    int64_t line, time_us;
    int proc; // -1 unknown
} hn_nccl_mark;

typedef struct hn_nccl_hit {
    hn_nccl_mark first;
    int64_t count;
    uint64_t hosts; // bit per host
    uint64_t last_record;
} hn_nccl_hit;

typedef struct hn_nccl_proc { // one rank, or the thread that drives one device
    const char *host;
    int host_index;
    int64_t pid;
    int device;
    int rank, ranks; // of its largest communicator; -1 unknown
    int rank_hint;
    bool started, completed;
    int64_t last_line;
    const char *network; // of its "Using network" line, NULL unknown
    hn_nccl_mark network_mark;
    int nics; // RDMA ports of its "NET/IB : Using" line, 0 unknown
    hn_nccl_mark nics_mark;
} hn_nccl_proc;

typedef struct hn_nccl_path { // one (from, to, class) of the channel lines
    int from, to;
    const char *via;
    int channels;
    int nic;       // -1 none
    int pxn;       // device whose NIC is used for it, -1 none
    bool received; // a receiver spoke of it: cards that send without GPUDirect reads are normal
    int host;      // host index of the speaker, -1
    hn_nccl_mark mark;
} hn_nccl_path;

typedef struct hn_nccl_device { // "# Rank 0 ... Pid 1 on host device 0 [..] NAME"
    int rank;
    const char *host, *name;
} hn_nccl_device;

typedef struct hn_nccl_address {
    const char *ip;
    int host;
} hn_nccl_address;

typedef struct hn_nccl_table { // of an index into a vector, by hash
    uint32_t *slots;           // index + 1, 0 empty
    size_t capacity;           // power of two
} hn_nccl_table;

typedef struct hn_nccl_env {
    const char *name, *value;
    hn_nccl_mark mark;
} hn_nccl_env;

typedef struct hn_nccl_made { // what code adds to a row that it raised
    int row;
    const char *detail;
} hn_nccl_made;

typedef struct hn_nccl_alternative { // one alternative of one pattern
    const char *text;                // squeezed; '*' is a gap
    uint16_t owner;                  // fact, or HN_FACT_COUNT + cause row
    uint16_t gram;                   // hash of the first three letters
    bool anchored;
} hn_nccl_alternative;

typedef struct hn_nccl_state {
    hn_arena *arena;
    hone_error *err;
    const char *file;
    uint64_t sequence; // of records
    HN_VEC(hn_nccl_alternative) alternatives;
    hn_nccl_hit facts[HN_FACT_COUNT];
    hn_nccl_hit *causes; // one a row
    HN_VEC(hn_nccl_proc) procs;
    hn_nccl_table proc_table;
    HN_VEC(hn_nccl_path) paths;
    hn_nccl_table path_table;
    HN_VEC(const char *) hosts;
    HN_VEC(hn_nccl_device) devices;
    HN_VEC(hn_nccl_address) addresses;
    HN_VEC(hn_nccl_env) env;
    HN_VEC(hn_nccl_bench_row) rows;
    HN_VEC(hn_nccl_mark) row_marks;
    HN_VEC(hn_nccl_made) made;
    const char *collective, *network, *version;
    int redop_root; // shape of the table: bit 0 a reduction, bit 1 a root >= 0; -1 unknown
    int table;      // tables seen
    int ranks, nodes, local_ranks; // largest stated, -1 unknown
    double graph_gbs;              // NCCL's own estimate of its rings inside a node, 0 unknown
    hn_nccl_mark warning;          // first WARN that no row knows
    int64_t warning_count;
    uint64_t warning_record; // sequence of the last one
    hn_nccl_mark trail;      // first "file.cc:12 -> 3"
    // RAS
    bool ras_seen, in_ras;
    int64_t ras_open, ras_unread; // headings of warnings without words that are known
    int ras_section;              // enum of nccl_ras.c
    int ras_rank;                 // first rank that is dead, silent or in error; -1
    int ras_low_rank;             // first listed rank of the group that launched least; -1
    int64_t ras_low, ras_high;    // operations launched by the slowest and fastest group; -1
    int64_t ras_operation;        // of the group whose ranks are being listed
    hn_nccl_mark end;             // the last record
    // Records whose text may go on: `torn` was cut by another record on its line and waits for its
    // tail before it is scanned; `last` is the line before, scanned again if the next one continues
    // it.
    struct hn_nccl_tail {
        hn_str line, message, whole; // what `record` borrows from
        hn_nccl_record record;
        uint64_t sequence;
        int age; // lines since
        bool active;
    } torn, last;
    hn_str collapsed;  // the line in hand, runs of blanks made one
    bool warning_open; // the record `last` is a warning that no row knows so far
    int64_t lines, records, torn_lines, table_lines;
    int64_t crumbs; // pieces of table rows and titles
    // Folding: nccl_fold.c.
    enum { HN_NCCL_FOLD_AUTO, HN_NCCL_FOLD_COLUMN, HN_NCCL_FOLD_BLANKS } fold_as;
    bool folded;
    bool fold_doubt;           // folded lines fit both ways; fold_as decides
    int64_t understood;        // things that parsed whole: the better joined, the more
    int64_t halves, half_line; // heads that end before "NCCL LEVEL", and the first one's line
    bool failed;               // out of memory
} hn_nccl_state;

// nccl_fold.c
hn_status hn_nccl_feed(hn_nccl_state *state, const hn_nccl_input *input);

// nccl_record.c
void hn_nccl_begin(hn_nccl_state *state, const char *name);
void hn_nccl_line(hn_nccl_state *state, hn_slice whole, int64_t line); // one logical line
void hn_nccl_end(hn_nccl_state *state);
// A record's head in the text; whether it names its host, and whether another head follows.
bool hn_nccl_has_header(hn_nccl_state *state, hn_slice text, bool *out_host, bool *out_more);
// Lower case without blanks; returns the length written, at most size - 1.
size_t hn_nccl_squeeze(hn_slice text, char *out, size_t size);

// nccl_scan.c
// Returns how many cause rows matched; a record scanned twice counts once.
int hn_nccl_scan(hn_nccl_state *state, const hn_nccl_record *record);
void hn_nccl_mark_set(hn_nccl_state *state, const hn_nccl_record *record, int proc,
                      hn_nccl_mark *out_mark);
hn_nccl_mark hn_nccl_mark_keep(hn_nccl_state *state, const hn_nccl_mark *mark);
int hn_nccl_host(hn_nccl_state *state, hn_slice host); // index, or -1
// The integer after a word ("nranks" in "rank 0 nranks 2"), case ignored; false if there is none.
bool hn_nccl_word_number(hn_slice text, const char *word, int64_t *out);
// The next run of non-blanks; false at the end.
bool hn_nccl_token(hn_slice *rest, hn_slice *out_token);
void hn_nccl_raise(hn_nccl_state *state, hn_nccl_fact fact, const hn_nccl_mark *mark);
static inline bool hn_nccl_is(const hn_nccl_state *state, hn_nccl_fact fact) {
    return state->facts[fact].count > 0;
}

// nccl_match.c
hn_status hn_nccl_patterns(hn_nccl_state *state);
// Runs all patterns over a squeezed text; returns how many cause rows matched.
int hn_nccl_match(hn_nccl_state *state, const char *text, size_t length, const hn_nccl_mark *mark,
                  bool warn, uint64_t record);
int hn_nccl_cause_row(const char *id); // first row of that id

// nccl_bench.c
bool hn_nccl_bench_line(hn_nccl_state *state, const hn_nccl_record *record);
// True if `row` is a table's row that was cut, and `next` its rest (a wrapped line): *out_blank
// says whether a blank belongs between them.
bool hn_nccl_bench_goes_on(hn_slice row, hn_slice next, bool *out_blank);
// True if the text begins like a table's row.
bool hn_nccl_bench_is_row(hn_slice text);
void hn_nccl_bench_judge(hn_nccl_state *state, hn_nccl_report *report);

// nccl_ras.c
bool hn_nccl_ras_line(hn_nccl_state *state, const hn_nccl_record *record);
// True if the whole text is a RAS report in JSON; it was read then.
bool hn_nccl_ras_json(hn_nccl_state *state, const hn_nccl_input *input);

// nccl_cause.c
void hn_nccl_made_add(hn_nccl_state *state, const char *id, const hn_nccl_mark *mark,
                      const char *fmt, ...) HN_PRINTF(4, 5);
hn_status hn_nccl_conclude(hone_error *err, hn_nccl_state *state, hn_nccl_report *report);

typedef struct hn_nccl_row {
    const char *id;
    hn_nccl_severity severity;
    double confidence;
    unsigned flags;
    const char *pattern;
    hn_nccl_fact all[4], none[5]; // HN_FACT_NONE ends
    const char *why, *mend;
} hn_nccl_row;
enum {
    HN_NCCL_F_WARN = 1,
    HN_NCCL_F_VICTIM = 2,
    HN_NCCL_F_DETAIL = 4,
    HN_NCCL_F_MADE = 8,
    HN_NCCL_F_GENERIC = 16
};
extern const hn_nccl_row hn_nccl_rows[];
extern const size_t hn_nccl_row_count;
#endif
