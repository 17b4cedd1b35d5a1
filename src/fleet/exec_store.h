// SPDX-License-Identifier: Apache-2.0
// What hone exec measured, into the history: a job, its phases, its devices.
#ifndef HN_FLEET_EXEC_STORE_H
#define HN_FLEET_EXEC_STORE_H
#include "fleet/exec_report.h"
#include "fleet/history.h"

typedef struct hn_exec_store {
    hn_history *history; // NULL: none is kept
    int64_t job;         // its id, once it has begun
    int64_t start_ns;
    bool ended;
    char command[1024];
    const char *name, *unit; // NULL unknown
    const char *source;
} hn_exec_store;

// Opens the history and enters the job as running, so that others can tell its processes (HONE_JOB). A setting
// of "none" gives a store without history.
hn_status hn_exec_store_begin(hone_error *err, hn_exec_store *store, char *const *argv);
// Enters what was measured. report: JSON, NULL for none.
hn_status hn_exec_store_end(hone_error *err, hn_exec_store *store, const hn_exec_result *result,
                            const hn_exec_totals *totals, const char *report);
// A job that was begun and not ended (its command was never started) is entered as over, without figures.
void hn_exec_store_close(hn_exec_store *store);
#endif
