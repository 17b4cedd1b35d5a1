// SPDX-License-Identifier: Apache-2.0
// The history file: opening, schema, damage, retention. See history.h.
#include "fleet/history_int.h"
#include "config/config.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define APPLICATION_ID 0x686f6e65 // "hone"
#define SCHEMA_VERSION 1
#define PAGE_BYTES     4096
#define DAY_S          INT64_C(86400)
#define BUSY_MS        2000
// Rows that retention takes out at once: a second's worth of 64 cards and more, in about a millisecond.
#define CUT_ROWS 512

const char *const hn_history_use_names[] = {
#define HN_USE(name, unit, help) #name,
#include "fleet/history_use.def"
#undef HN_USE
};
const int hn_history_use_count = (int)HN_COUNT_OF(hn_history_use_names);

// ---- texts of statements ----------------------------------------------------------------------
void hn_history_metric_columns(hn_str *out, const char *behind) {
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        hn_str_printf(out, "%s%s%s", m ? "," : "", hn_metric_rows[m].token, behind);
}

void hn_history_use_columns(hn_str *out, const char *behind) {
    hn_str_printf(out, "energy_method%s", *behind ? " TEXT" : "");
    for (int i = 0; i < hn_history_use_count; i++)
        hn_str_printf(out, ",%s%s", hn_history_use_names[i], behind);
}

void hn_history_marks(hn_str *out, int count) {
    for (int i = 0; i < count; i++)
        hn_str_append(out, i ? ",?" : "?");
}

static void put_text(hn_str *sql, const char *table, const char *keys, int key_count,
                     void (*columns)(hn_str *, const char *), int column_count) {
    hn_str_printf(sql, "INSERT OR REPLACE INTO %s(%s,", table, keys);
    columns(sql, "");
    hn_str_append(sql, ") VALUES(");
    hn_history_marks(sql, key_count + column_count);
    hn_str_append(sql, ")");
}

static void statement_text(hn_history_sql which, hn_str *sql) {
    switch (which) {
    case HN_SQL_BEGIN: hn_str_append(sql, "BEGIN IMMEDIATE"); break;
    case HN_SQL_COMMIT: hn_str_append(sql, "COMMIT"); break;
    case HN_SQL_ROLLBACK: hn_str_append(sql, "ROLLBACK"); break;
    case HN_SQL_PUT_SECOND:
    case HN_SQL_PUT_MINUTE:
        put_text(sql, which == HN_SQL_PUT_SECOND ? "seconds" : "minutes", "t,device,n,joules", 4,
                 hn_history_metric_columns, HN_METRIC_COUNT);
        break;
    case HN_SQL_OLDEST_SECOND: hn_str_append(sql, "SELECT min(t) FROM seconds"); break;
    case HN_SQL_CUT_SECOND:
    case HN_SQL_CUT_MINUTE: {
        const char *table = which == HN_SQL_CUT_SECOND ? "seconds" : "minutes";
        hn_str_printf(sql, "DELETE FROM %s WHERE t < ?1 AND (t,device) IN "
                           "(SELECT t,device FROM %s WHERE t < ?1 ORDER BY t LIMIT %d)",
                      table, table, CUT_ROWS);
        break;
    }
    case HN_SQL_CUT_JOBS:
        hn_str_append(sql, "DELETE FROM jobs WHERE id <= (SELECT max(id) FROM jobs) - ?1");
        break;
    case HN_SQL_PUT_PHASE:
        put_text(sql, "phases", "job,seq,phase,start_ns,end_ns,unit,units", 7, hn_history_use_columns,
                 hn_history_use_count + 1);
        break;
    case HN_SQL_PUT_JOB_DEVICE:
        put_text(sql, "job_devices", "job,device", 2, hn_history_use_columns, hn_history_use_count + 1);
        break;
    case HN_SQL_COUNT: break;
    }
}

hone_status hn_history_failed(hone_error *err, hn_history *h, int result) {
    const char *why = h->db ? sqlite3_errmsg(h->db) : "it could not be opened again";
    hone_status status = result == SQLITE_NOMEM ? HONE_ERR_NOMEM : HONE_ERR_IO;
    if (result == SQLITE_FULL) why = "the disk, or the size set for it, is full";
    HN_FAIL_VENDOR(err, status, result, "history '%s': %s", h->path, why);
}

hone_status hn_history_prepare(hone_error *err, hn_history *h, const char *sql, sqlite3_stmt **out_statement) {
    int result = h->db ? sqlite3_prepare_v2(h->db, sql, -1, out_statement, NULL) : SQLITE_IOERR;
    return result == SQLITE_OK ? HONE_OK : hn_history_failed(err, h, result);
}

hone_status hn_history_statement(hone_error *err, hn_history *h, hn_history_sql which,
                                 sqlite3_stmt **out_statement) {
    if (!h->statements[which]) {
        hn_str sql = {0};
        statement_text(which, &sql);
        hone_status status = sql.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (history)")
                                        : hn_history_prepare(err, h, hn_str_get(&sql), &h->statements[which]);
        hn_str_free(&sql);
        if (status != HONE_OK) return status;
    }
    sqlite3_reset(h->statements[which]);
    *out_statement = h->statements[which];
    return HONE_OK;
}

hone_status hn_history_step_done(hone_error *err, hn_history *h, sqlite3_stmt *statement) {
    int result = sqlite3_step(statement);
    hone_status status = result == SQLITE_DONE || result == SQLITE_ROW ? HONE_OK : hn_history_failed(err, h, result);
    sqlite3_reset(statement);
    return status;
}

static hone_status run_sql(hone_error *err, hn_history *h, const char *sql) {
    int result = h->db ? sqlite3_exec(h->db, sql, NULL, NULL, NULL) : SQLITE_IOERR;
    return result == SQLITE_OK ? HONE_OK : hn_history_failed(err, h, result);
}

void hn_history_bind_f64(sqlite3_stmt *statement, int index, double value) {
    if (isfinite(value)) sqlite3_bind_double(statement, index, value);
    else sqlite3_bind_null(statement, index);
}

void hn_history_bind_text(sqlite3_stmt *statement, int index, const char *text) {
    if (text && *text) sqlite3_bind_text(statement, index, text, -1, SQLITE_TRANSIENT);
    else sqlite3_bind_null(statement, index);
}

double hn_history_f64(sqlite3_stmt *statement, int column) {
    return sqlite3_column_type(statement, column) == SQLITE_NULL ? NAN : sqlite3_column_double(statement, column);
}

const char *hn_history_text(sqlite3_stmt *statement, int column) {
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? text : "";
}

// ---- schema -----------------------------------------------------------------------------------
static void schema_text(hn_str *sql) {
    hn_str_append(sql,
                  "CREATE TABLE IF NOT EXISTS devices(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,"
                  " kind TEXT NOT NULL, uuid TEXT, name TEXT, host TEXT, gpu_index INTEGER);");
    static const char *const k_steps[] = {"seconds", "minutes"};
    for (size_t i = 0; i < HN_COUNT_OF(k_steps); i++) {
        hn_str_printf(sql, "CREATE TABLE IF NOT EXISTS %s(t INTEGER NOT NULL, device INTEGER NOT NULL,"
                           " n INTEGER, joules REAL,", k_steps[i]);
        hn_history_metric_columns(sql, " REAL");
        hn_str_append(sql, ", PRIMARY KEY(t,device)) WITHOUT ROWID;");
    }
    hn_str_append(sql, "CREATE TABLE IF NOT EXISTS jobs(id INTEGER PRIMARY KEY AUTOINCREMENT, command TEXT,"
                       " name TEXT, host TEXT, source TEXT, cluster_job TEXT, pid INTEGER, start_ns INTEGER,"
                       " end_ns INTEGER, exit_status INTEGER, unit TEXT, units REAL, devices INTEGER,"
                       " complete INTEGER, report TEXT,");
    hn_history_use_columns(sql, " REAL");
    hn_str_append(sql, ", wh REAL GENERATED ALWAYS AS (joules / 3600.0) VIRTUAL);"
                       "CREATE INDEX IF NOT EXISTS jobs_start ON jobs(start_ns);"
                       "CREATE TABLE IF NOT EXISTS phases(job INTEGER NOT NULL, seq INTEGER NOT NULL,"
                       " phase TEXT NOT NULL, start_ns INTEGER, end_ns INTEGER, unit TEXT, units REAL,");
    hn_history_use_columns(sql, " REAL");
    hn_str_append(sql, ", wh REAL GENERATED ALWAYS AS (joules / 3600.0) VIRTUAL,"
                       " PRIMARY KEY(job,seq)) WITHOUT ROWID;"
                       "CREATE TABLE IF NOT EXISTS job_devices(job INTEGER NOT NULL, device INTEGER NOT NULL,");
    hn_history_use_columns(sql, " REAL");
    hn_str_append(sql, ", wh REAL GENERATED ALWAYS AS (joules / 3600.0) VIRTUAL,"
                       " PRIMARY KEY(job,device)) WITHOUT ROWID;"
                       "CREATE TRIGGER IF NOT EXISTS jobs_gone AFTER DELETE ON jobs BEGIN"
                       " DELETE FROM phases WHERE job = old.id;"
                       " DELETE FROM job_devices WHERE job = old.id; END;");
    hn_str_printf(sql, "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION_ID, SCHEMA_VERSION);
}

// Columns that this version knows and the file does not.
static hone_status add_columns(hone_error *err, hn_history *h, const char *table, const char *const *names,
                               int count) {
    char sql[256];
    bool *have = hn_calloc((size_t)count, sizeof *have);
    if (!have) HN_NOMEM(err, "history");
    sqlite3_stmt *list = NULL;
    snprintf(sql, sizeof sql, "SELECT name FROM pragma_table_info('%s')", table);
    hone_status status = hn_history_prepare(err, h, sql, &list);
    while (status == HONE_OK && sqlite3_step(list) == SQLITE_ROW)
        for (int i = 0; i < count; i++)
            have[i] |= strcmp(hn_history_text(list, 0), names[i]) == 0;
    sqlite3_finalize(list);
    for (int i = 0; status == HONE_OK && i < count; i++) {
        if (have[i]) continue;
        snprintf(sql, sizeof sql, "ALTER TABLE %s ADD COLUMN %s REAL", table, names[i]);
        status = run_sql(err, h, sql);
    }
    hn_free(have);
    return status;
}

static hone_status add_all_columns(hone_error *err, hn_history *h) {
    static const char *const k_uses[] = {"jobs", "phases", "job_devices"};
    const char *tokens[HN_METRIC_COUNT];
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        tokens[m] = hn_metric_rows[m].token;
    HN_TRY(add_columns(err, h, "seconds", tokens, HN_METRIC_COUNT));
    HN_TRY(add_columns(err, h, "minutes", tokens, HN_METRIC_COUNT));
    for (size_t i = 0; i < HN_COUNT_OF(k_uses); i++)
        HN_TRY(add_columns(err, h, k_uses[i], hn_history_use_names, hn_history_use_count));
    return HONE_OK;
}

static hone_status read_number(hone_error *err, hn_history *h, const char *sql, int64_t *out_value) {
    sqlite3_stmt *statement = NULL;
    HN_TRY(hn_history_prepare(err, h, sql, &statement));
    int result = sqlite3_step(statement);
    int64_t value = result == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    if (result != SQLITE_ROW) return hn_history_failed(err, h, result);
    *out_value = value;
    return HONE_OK;
}

// Before anything is set that writes: journal_mode alone changes the file.
static hone_status check_owner(hone_error *err, hn_history *h) {
    int64_t version, application, tables;
    HN_TRY(read_number(err, h, "PRAGMA user_version", &version));
    HN_TRY(read_number(err, h, "PRAGMA application_id", &application));
    HN_TRY(read_number(err, h, "SELECT count(*) FROM sqlite_master", &tables));
    if (tables > 0 && application != APPLICATION_ID)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "'%s' is a database of another program", h->path);
    if (version > SCHEMA_VERSION)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "history '%s' was written by a newer hone (layout %lld, not %d)",
                h->path, (long long)version, SCHEMA_VERSION);
    if (h->options.read_only && tables == 0) HN_FAIL(err, HONE_ERR_IO, "history '%s' is empty", h->path);
    return HONE_OK;
}

static hone_status make_schema(hone_error *err, hn_history *h) {
    hn_str sql = {0};
    schema_text(&sql);
    hone_status status = sql.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (history)")
                                    : run_sql(err, h, "BEGIN IMMEDIATE");
    if (status == HONE_OK) {
        status = run_sql(err, h, hn_str_get(&sql));
        if (status == HONE_OK) status = add_all_columns(err, h);
        if (status == HONE_OK) status = run_sql(err, h, "COMMIT");
        else (void)run_sql(NULL, h, "ROLLBACK");
    }
    hn_str_free(&sql);
    return status;
}

// ---- opening ----------------------------------------------------------------------------------
hn_status hn_history_path(hone_error *err, char *out, size_t bytes) {
    const char *set = hn_config_get()->history, *state = hn_config_env("XDG_STATE_HOME"),
               *home = hn_config_env("HOME");
    int length;
    if (strcmp(set, "none") == 0) length = snprintf(out, bytes, "%s", "");
    else if (*set) length = snprintf(out, bytes, "%s", set);
    else if (state && *state) length = snprintf(out, bytes, "%s/hone/history.db", state);
    else if (geteuid() == 0) length = snprintf(out, bytes, "/var/lib/hone/history.db");
    else if (home && *home) length = snprintf(out, bytes, "%s/.local/state/hone/history.db", home);
    else HN_FAIL(err, HONE_ERR_IO, "there is no place for the history: neither --history nor HOME is set");
    if (length < 0 || (size_t)length >= bytes || length >= HN_HISTORY_PATH_BYTES)
        HN_FAIL(err, HONE_ERR_USAGE, "the history's name is too long");
    return HONE_OK;
}

static void make_folders(const char *path) {
    char part[HN_HISTORY_PATH_BYTES];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        mkdir(part, 0755); // what is there is there; opening tells what is not
    }
}

static void close_db(hn_history *h) {
    for (int i = 0; i < HN_SQL_COUNT; i++) {
        sqlite3_finalize(h->statements[i]);
        h->statements[i] = NULL;
    }
    sqlite3_close(h->db);
    h->db = NULL;
}

static hone_status open_db(hone_error *err, hn_history *h) {
    char sql[256];
    struct stat file;
    int flags = h->options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int result = sqlite3_open_v2(h->path, &h->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (result != SQLITE_OK) {
        hone_status status = hn_history_failed(err, h, result);
        close_db(h);
        return status;
    }
    sqlite3_extended_result_codes(h->db, 1);
    sqlite3_busy_timeout(h->db, BUSY_MS);
    // With synchronous=NORMAL a killed process loses nothing that was committed, a power cut the last moments.
    snprintf(sql, sizeof sql,
             "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=4194304;"
             "PRAGMA cache_size=-1024; PRAGMA temp_store=MEMORY; PRAGMA max_page_count=%lld;",
             (long long)(h->options.max_bytes / PAGE_BYTES));
    hone_status status = check_owner(err, h);
    if (status == HONE_OK && !h->options.read_only) status = run_sql(err, h, "PRAGMA page_size=4096");
    if (status == HONE_OK && !h->options.read_only) status = run_sql(err, h, sql);
    if (status == HONE_OK && hn_history_add_functions(h->db) != SQLITE_OK)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (history)");
    if (status == HONE_OK && !h->options.read_only) status = make_schema(err, h);
    if (status != HONE_OK) close_db(h);
    else h->inode = stat(h->path, &file) == 0 ? file.st_ino : 0;
    return status;
}

static bool is_damage(const hone_error *err) {
    int code = err->vendor_code & 0xff;
    return err->status == HONE_ERR_IO && (code == SQLITE_CORRUPT || code == SQLITE_NOTADB ||
                                          err->vendor_code == SQLITE_IOERR_SHORT_READ);
}

// A file that never was a database: somebody's, named by mistake. Ours begins with SQLite's words, or with zeros where a
// crash of the machine took its first page.
static bool is_foreign(const char *path) {
    static const char k_magic[16] = "SQLite format 3", k_zeros[16] = "";
    char head[16];
    struct stat file;
    if (stat(path, &file) != 0 || file.st_size == 0) return false;
    if (!S_ISREG(file.st_mode)) return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, head, sizeof head) : 0;
    if (fd >= 0) close(fd);
    if (got <= 0) return false; // opening tells why
    return memcmp(head, k_magic, (size_t)got) != 0 && memcmp(head, k_zeros, (size_t)got) != 0;
}

// Renames the damaged file and begins a new one.
static hone_status set_aside(hone_error *err, hn_history *h) {
    static const char *const k_tails[] = {"", "-wal", "-shm"};
    char stamp[32], from[HN_HISTORY_PATH_BYTES + 8], to[HN_HISTORY_PATH_BYTES + 64];
    time_t now = time(NULL);
    struct tm parts;
    close_db(h);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", gmtime_r(&now, &parts));
    for (size_t i = 0; i < HN_COUNT_OF(k_tails); i++) {
        snprintf(from, sizeof from, "%s%s", h->path, k_tails[i]);
        snprintf(to, sizeof to, "%s.corrupt-%s%s", h->path, stamp, k_tails[i]);
        if (rename(from, to) != 0 && i == 0)
            HN_FAIL(err, HONE_ERR_IO, "history '%s' is damaged and cannot be set aside: %s", h->path,
                    strerror(errno));
    }
    hn_log(HN_LOG_WARN, "history '%s' is damaged: set aside as '%s.corrupt-%s', a new one is begun", h->path,
           h->path, stamp);
    return open_db(err, h);
}

hn_status hn_history_open(hone_error *err, const hn_history_options *options, hn_history **out_history) {
    hn_history *h = hn_calloc(1, sizeof *h);
    if (!h) HN_NOMEM(err, "history");
    h->options = *options;
    if (h->options.keep_second_s <= 0) h->options.keep_second_s = DAY_S;
    if (h->options.keep_minute_s <= 0) h->options.keep_minute_s = 90 * DAY_S;
    if (h->options.keep_jobs <= 0) h->options.keep_jobs = 10000;
    if (h->options.max_bytes <= 0) h->options.max_bytes = INT64_C(1) << 30;
    if (h->options.max_bytes < 64 * PAGE_BYTES) h->options.max_bytes = 64 * PAGE_BYTES;
    hone_status status = HONE_OK;
    if (options->path && strlen(options->path) >= sizeof h->path)
        status = HN_SET(err, HONE_ERR_USAGE, "the history's name is too long");
    else if (options->path) snprintf(h->path, sizeof h->path, "%s", options->path);
    else status = hn_history_path(err, h->path, sizeof h->path);
    if (status == HONE_OK && !h->path[0])
        status = HN_SET(err, HONE_ERR_USAGE, "the setting history is 'none': there is no history");
    h->options.path = h->path;
    if (status == HONE_OK) {
        hone_error why = {0};
        if (!options->read_only) make_folders(h->path);
        status = is_foreign(h->path) ? HN_SET(&why, HONE_ERR_FORMAT, "'%s' is no history of hone, and is left as it is", h->path)
                                     : open_db(&why, h);
        if (status != HONE_OK && is_damage(&why) && !options->read_only) {
            why = (hone_error){0};
            status = set_aside(&why, h);
        }
        if (status != HONE_OK && err) *err = why;
    }
    if (status != HONE_OK) {
        hn_free(h);
        return status;
    }
    *out_history = h;
    return HONE_OK;
}

void hn_history_close(hn_history *history) {
    if (!history) return;
    close_db(history);
    hn_free(history);
}

const char *hn_history_file(const hn_history *history) { return history->path; }

int64_t hn_history_bytes(const hn_history *history) {
    char log[HN_HISTORY_PATH_BYTES + 8];
    struct stat file;
    if (stat(history->path, &file) != 0) return -1;
    int64_t bytes = file.st_size;
    snprintf(log, sizeof log, "%s-wal", history->path);
    if (stat(log, &file) == 0) bytes += file.st_size;
    return bytes;
}

// ---- transactions -----------------------------------------------------------------------------
// Somebody may have removed or replaced the file: writing on into one without a name would lose everything.
static hone_status follow_name(hone_error *err, hn_history *h) {
    struct stat file;
    int64_t now_s = hn_clock_ns() / 1000000000;
    if (h->db && now_s - h->checked_s < 10) return HONE_OK;
    h->checked_s = now_s;
    if (h->db && stat(h->path, &file) == 0 && file.st_ino == h->inode) return HONE_OK;
    close_db(h);
    make_folders(h->path);
    return open_db(err, h);
}

// Older than the retention goes; where the file nears its bound, the oldest seconds do.
static hone_status retain(hone_error *err, hn_history *h) {
    int64_t now_s = hn_clock_ns() / 1000000000, wall_s = hn_clock_wall_ns() / 1000000000, pages, unused;
    if (now_s == h->cut_s) return HONE_OK;
    h->cut_s = now_s;
    HN_TRY(read_number(err, h, "PRAGMA page_count", &pages));
    HN_TRY(read_number(err, h, "PRAGMA freelist_count", &unused));
    bool near = (pages - unused) * PAGE_BYTES > h->options.max_bytes / 10 * 9;
    sqlite3_stmt *statement;
    for (int step = 0; step < 2; step++) {
        int64_t before_s = wall_s - (step ? h->options.keep_minute_s : h->options.keep_second_s);
        HN_TRY(hn_history_statement(err, h, step ? HN_SQL_CUT_MINUTE : HN_SQL_CUT_SECOND, &statement));
        if (near && step == 0) before_s = INT64_MAX; // the oldest, whatever their age
        sqlite3_bind_int64(statement, 1, before_s);
        HN_TRY(hn_history_step_done(err, h, statement));
        if (near && step == 0 && sqlite3_changes(h->db) > 0) near = false;
    }
    if (!near) return HONE_OK;
    HN_TRY(hn_history_statement(err, h, HN_SQL_CUT_MINUTE, &statement));
    sqlite3_bind_int64(statement, 1, INT64_MAX);
    return hn_history_step_done(err, h, statement);
}

static hone_status run_once(hone_error *err, hn_history *h, hn_history_work work, void *user) {
    sqlite3_stmt *statement;
    HN_TRY(follow_name(err, h));
    HN_TRY(hn_history_statement(err, h, HN_SQL_BEGIN, &statement));
    HN_TRY(hn_history_step_done(err, h, statement));
    hone_status status = retain(err, h);
    if (status == HONE_OK) status = work(err, h, user);
    if (status == HONE_OK) status = hn_history_statement(err, h, HN_SQL_COMMIT, &statement);
    if (status == HONE_OK) status = hn_history_step_done(err, h, statement);
    if (status != HONE_OK && !sqlite3_get_autocommit(h->db) &&
        hn_history_statement(NULL, h, HN_SQL_ROLLBACK, &statement) == HONE_OK)
        (void)hn_history_step_done(NULL, h, statement);
    return status;
}

hone_status hn_history_transact(hone_error *err, hn_history *h, hn_history_work work, void *user) {
    hone_error why = {0};
    if (h->options.read_only) HN_FAIL(err, HONE_ERR_USAGE, "history '%s' is open for reading", h->path);
    hone_status status = run_once(&why, h, work, user);
    if (status != HONE_OK && why.vendor_code == SQLITE_FULL) { // its own bound: what is oldest makes room
        why = (hone_error){0};
        h->cut_s = 0;
        status = run_once(&why, h, work, user);
    }
    if (status != HONE_OK && is_damage(&why)) {
        why = (hone_error){0};
        status = set_aside(&why, h);
        if (status == HONE_OK) status = run_once(&why, h, work, user);
    }
    if (status != HONE_OK && err) *err = why;
    return status;
}

hone_status hn_history_cut_jobs(hone_error *err, hn_history *h) {
    sqlite3_stmt *statement;
    HN_TRY(hn_history_statement(err, h, HN_SQL_CUT_JOBS, &statement));
    sqlite3_bind_int64(statement, 1, h->options.keep_jobs);
    return hn_history_step_done(err, h, statement);
}
