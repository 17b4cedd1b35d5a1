// SPDX-License-Identifier: Apache-2.0
// The store of what cards did and what jobs cost: one SQLite file (WAL), written by the exporter, top and
// exec, read by top, energy and whoever speaks SQL. docs/telemetry.md shows the tables.
//
//   devices(id, key, kind, uuid, name, host, gpu_index)      a card, MIG instance or host
//   seconds, minutes(t, device, n, joules, <metrics>)         roll-ups; t = Unix second of the tick's start
//   jobs(id, command, ..., <use>)                             a command that hone exec ran
//   phases(job, seq, phase, ..., <use>)                       train, validate, infer, idle, or what the job said
//   job_devices(job, device, <use>)                           one device's part in a job
//
// <metrics> are the tokens of metrics.def: means of gauges, last values of counters, the union of the bits of
// `reasons`. <use> are the rows of history_use.def. A column that an older file lacks is added when it is
// opened. Unknown is NULL. Bounded: rows beyond the retention go, and the file never passes max_bytes.
//
// A write is one transaction: kill -9 loses what was not committed, and nothing else. A damaged file is renamed
// to NAME.corrupt-DATE-TIME (one line in the log) and a new one begun. Where the disk is full, writes fail
// with HONE_ERR_IO; the file stays whole and later writes are tried as ever.
// A handle belongs to one thread at a time; processes may share the file.
#ifndef HN_FLEET_HISTORY_H
#define HN_FLEET_HISTORY_H
#include "fleet/span.h"

typedef struct hn_history hn_history;
typedef struct hn_history_options {
    const char *path;      // NULL: hn_history_path
    bool read_only;        // must exist; nothing is changed
    int64_t keep_second_s; // retention of `seconds`, 0 = a day
    int64_t keep_minute_s; // retention of `minutes`, 0 = 90 days
    int64_t keep_jobs;     // jobs kept, 0 = 10,000
    int64_t max_bytes;     // of the file, 0 = 1 GiB; the oldest seconds go first
} hn_history_options;

// The setting `history`, else $XDG_STATE_HOME/hone/history.db, ~/.local/state/hone/history.db, as root
// /var/lib/hone/history.db. Empty: the setting says "none".
hn_status hn_history_path(hone_error *err, char *out, size_t bytes);
// Makes missing folders and tables. HONE_ERR_IO where the file cannot be opened or is not there (read_only),
// HONE_ERR_UNSUPPORTED where a newer hone wrote it.
hn_status hn_history_open(hone_error *err, const hn_history_options *options, hn_history **out_history);
void hn_history_close(hn_history *history); // takes NULL
const char *hn_history_file(const hn_history *history);
int64_t hn_history_bytes(const hn_history *history); // file and log as they are on the disk, -1 unknown

// ---- roll-ups ---------------------------------------------------------------------------------
typedef enum hn_history_step { HN_HISTORY_SECONDS, HN_HISTORY_MINUTES, HN_HISTORY_STEPS } hn_history_step;
// Of the samples of a tick a roll-up keeps the last value, not the mean.
bool hn_history_takes_last(hn_metric metric);
typedef struct hn_history_row {
    int64_t t_s;    // Unix time of the tick's start
    int64_t device; // devices.id
    int64_t n;      // samples in it
    double joules;  // energy of the tick, NAN unknown
    hn_sample sample; // values and validity bits; wall_ns is the tick's start
} hn_history_row;

// The id of a device, which is added where it is new. The id follows from host and UUID alone: it is the same in
// every file. host NULL: this machine's name.
hn_status hn_history_device(hone_error *err, hn_history *history, const hn_device_info *info,
                            const char *host, int64_t *out_id);
// Writes the `minutes` rows of a minute (its first Unix second) from its `seconds`, of all devices. May be repeated.
hn_status hn_history_fold_minute(hone_error *err, hn_history *history, int64_t minute_s);
// All rows or none; a row of the same tick and device is replaced. Retention is done here, a little at a time.
hn_status hn_history_put(hone_error *err, hn_history *history, hn_history_step step,
                         const hn_history_row *rows, size_t count);
// In order of time, then device; device 0 = all; from_s <= t < to_s. `each` returns false to end.
typedef bool (*hn_history_each_row)(void *user, const hn_history_row *row);
hn_status hn_history_rows(hone_error *err, hn_history *history, hn_history_step step, int64_t device,
                          int64_t from_s, int64_t to_s, hn_history_each_row each, void *user);

typedef struct hn_history_device_row {
    int64_t id;
    hn_device_kind kind;
    const char *uuid, *name, *host; // borrowed for the call; "" unknown
    int64_t gpu_index;              // -1 = none
} hn_history_device_row;
typedef bool (*hn_history_each_device)(void *user, const hn_history_device_row *row);
hn_status hn_history_devices(hone_error *err, hn_history *history, hn_history_each_device each, void *user);

// ---- jobs -------------------------------------------------------------------------------------
typedef struct hn_use {
    hn_energy_method method; // of joules
#define HN_USE(name, unit, help) double name;
#include "fleet/history_use.def"
#undef HN_USE
} hn_use;
void hn_use_init(hn_use *use); // all unknown
// What spans of one stretch of time were together: cards, or the host where there is none.
void hn_use_of_spans(const hn_span *spans, int count, hn_use *out_use);

// Texts may be NULL where unknown; those that are read are borrowed for the call and "" where unknown.
typedef struct hn_job {
    int64_t id;          // 0: a new one, set by put
    const char *command; // with its arguments, as a shell would read it
    const char *name;    // what the user calls it, for comparing runs
    const char *host, *source, *cluster_job; // cluster_job: Slurm's job id, a pod's uid
    int64_t pid;
    int64_t start_ns, end_ns; // wall clock; end_ns 0: runs, or was killed with its exec
    int64_t exit_status;      // -1 unknown
    const char *unit;         // "sample", "token", ...
    double units;             // NAN unknown
    int64_t devices;          // cards watched
    bool complete;            // energy of all cards over the whole run
    hn_use use;
    const char *report; // JSON of hone exec
} hn_job;
typedef struct hn_phase {
    int64_t job, seq;
    const char *phase; // "train", "validate", "infer", "idle", or another word
    int64_t start_ns, end_ns;
    const char *unit;
    double units;
    hn_use use;
} hn_phase;
typedef struct hn_job_device {
    int64_t job, device; // device: devices.id
    hn_use use;
} hn_job_device;

// Adds a job (id 0) or writes it anew: once at its start, as often as wanted while it runs, at its end.
hn_status hn_history_job_put(hone_error *err, hn_history *history, hn_job *job);
hn_status hn_history_phase_put(hone_error *err, hn_history *history, const hn_phase *phase);
hn_status hn_history_job_device_put(hone_error *err, hn_history *history, const hn_job_device *part);

typedef struct hn_job_filter {
    int64_t id;               // 0 = all
    const char *like;         // part of command or name; NULL = all
    int64_t from_ns, to_ns;   // start_ns within; to_ns 0 = no end
    int64_t newest;           // the newest so many, 0 = all
    bool with_report;         // else report is ""
} hn_job_filter;
// Oldest first.
typedef bool (*hn_history_each_job)(void *user, const hn_job *job);
hn_status hn_history_jobs(hone_error *err, hn_history *history, const hn_job_filter *filter,
                          hn_history_each_job each, void *user);
typedef bool (*hn_history_each_phase)(void *user, const hn_phase *phase);
hn_status hn_history_phases(hone_error *err, hn_history *history, int64_t job, hn_history_each_phase each,
                            void *user);
typedef bool (*hn_history_each_job_device)(void *user, const hn_job_device *part);
hn_status hn_history_job_devices(hone_error *err, hn_history *history, int64_t job,
                                 hn_history_each_job_device each, void *user);
#endif
