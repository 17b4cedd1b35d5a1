// SPDX-License-Identifier: Apache-2.0
// Shared by history.c (file, schema, retention), history_rows.c (roll-ups) and history_jobs.c (jobs).
#ifndef HN_FLEET_HISTORY_INT_H
#define HN_FLEET_HISTORY_INT_H
#include <sqlite3.h>
#include <sys/types.h>
#include "fleet/history.h"

#define HN_HISTORY_PATH_BYTES 1024

// Statements that are prepared once and kept.
typedef enum hn_history_sql {
    HN_SQL_BEGIN, HN_SQL_COMMIT, HN_SQL_ROLLBACK,
    HN_SQL_PUT_SECOND, HN_SQL_PUT_MINUTE,
    HN_SQL_OLDEST_SECOND, HN_SQL_CUT_SECOND, HN_SQL_CUT_MINUTE, HN_SQL_CUT_JOBS,
    HN_SQL_PUT_PHASE, HN_SQL_PUT_JOB_DEVICE,
    HN_SQL_COUNT
} hn_history_sql;

struct hn_history {
    sqlite3 *db; // owned; NULL after damage that could not be mended
    sqlite3_stmt *statements[HN_SQL_COUNT]; // owned, made when first used
    hn_history_options options; // with the defaults put in
    char path[HN_HISTORY_PATH_BYTES];
    ino_t inode;        // of the file that is open
    int64_t checked_s;  // monotonic: when the file's name was last looked at
    int64_t cut_s;      // monotonic: when retention was last done
};

// The statement, ready to be bound. Its text is made by history.c.
hone_status hn_history_statement(hone_error *err, hn_history *h, hn_history_sql which, sqlite3_stmt **out_statement);
hone_status hn_history_prepare(hone_error *err, hn_history *h, const char *sql, sqlite3_stmt **out_statement);
// What a failed call says. Never HONE_OK.
hone_status hn_history_failed(hone_error *err, hn_history *h, int result);
// Runs a statement that gives no rows.
hone_status hn_history_step_done(hone_error *err, hn_history *h, sqlite3_stmt *statement);
// Runs `work` as one transaction. Where the file turns out to be damaged it is set aside, and the work is done
// once more in a new one.
typedef hone_status (*hn_history_work)(hone_error *err, hn_history *h, void *user);
hone_status hn_history_transact(hone_error *err, hn_history *h, hn_history_work work, void *user);

void hn_history_bind_f64(sqlite3_stmt *statement, int index, double value); // NAN is NULL
void hn_history_bind_text(sqlite3_stmt *statement, int index, const char *text); // NULL is NULL
double hn_history_f64(sqlite3_stmt *statement, int column);
const char *hn_history_text(sqlite3_stmt *statement, int column); // "" for NULL

// Columns of metrics and of uses, joined by commas, each followed by `behind`.
void hn_history_metric_columns(hn_str *out, const char *behind);
void hn_history_use_columns(hn_str *out, const char *behind);
void hn_history_marks(hn_str *out, int count); // ?,?,?
extern const char *const hn_history_use_names[];
extern const int hn_history_use_count;
// Use figures: energy_method, then the rows of history_use.def. Return the next index.
int hn_history_bind_use(sqlite3_stmt *statement, int index, const hn_use *use);
int hn_history_read_use(sqlite3_stmt *statement, int column, hn_use *out_use);
int hn_history_add_functions(sqlite3 *db); // hn_last, hn_union
hone_status hn_history_cut_jobs(hone_error *err, hn_history *h);
#endif
