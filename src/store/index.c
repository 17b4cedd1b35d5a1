// SPDX-License-Identifier: Apache-2.0
// The index: one SQLite file, and the one place that calls SQLite for the store.
//
// One connection, used under the store's lock. WAL, so that readers do not wait for a writer; a
// commit is not synced (a lost row is found again by its file). Rows: blob (a file each), record
// (small texts), content (digests of pieces of files).
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include "store/store_int.h"

struct hn_index {
    sqlite3 *db;
};

static const char k_schema[] =
    "CREATE TABLE blob(name TEXT PRIMARY KEY, text TEXT NOT NULL, bytes INT NOT NULL, made INT NOT NULL,"
    " used INT NOT NULL, verified TEXT) WITHOUT ROWID;"
    "CREATE INDEX blob_used ON blob(used);"
    "CREATE TABLE record(name TEXT PRIMARY KEY, text TEXT NOT NULL, value TEXT NOT NULL,"
    " used INT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE content(device INT, inode INT, at INT, bytes INT, stamp TEXT NOT NULL,"
    " sample BLOB NOT NULL, digest BLOB NOT NULL, used INT NOT NULL,"
    " PRIMARY KEY(device, inode, at, bytes)) WITHOUT ROWID;";

static hn_index_result result_of(int code) {
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW: return HN_INDEX_OK;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_MISMATCH:
    case SQLITE_ERROR: return HN_INDEX_BROKEN; // a table or column that is missing, mostly
    default: return HN_INDEX_FAILED;
    }
}

static int version_of(sqlite3 *db, int *out_version) {
    sqlite3_stmt *stmt = NULL;
    int code = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &stmt, NULL);
    if (code == SQLITE_OK) code = sqlite3_step(stmt);
    if (code == SQLITE_ROW) *out_version = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return code == SQLITE_ROW ? SQLITE_OK : code;
}

// Makes the tables where the file is new. Two processes may come here at once.
static hn_index_result make_tables(sqlite3 *db) {
    char set[64];
    int version = 0;
    snprintf(set, sizeof set, "PRAGMA user_version = %d", HN_STORE_VERSION);
    int code = version_of(db, &version);
    if (code != SQLITE_OK) return result_of(code);
    if (version == 0) {
        code = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (code == SQLITE_OK) code = version_of(db, &version);
        if (code == SQLITE_OK && version == 0) {
            code = sqlite3_exec(db, k_schema, NULL, NULL, NULL);
            if (code == SQLITE_OK) code = sqlite3_exec(db, set, NULL, NULL, NULL);
            version = HN_STORE_VERSION;
        }
        if (code == SQLITE_OK) code = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
        if (code != SQLITE_OK) {
            (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
            return result_of(code);
        }
    }
    return version == HN_STORE_VERSION ? HN_INDEX_OK : HN_INDEX_BROKEN;
}

static hn_index_result open_writable(const char *path, sqlite3 **out_db) {
    int code = sqlite3_open_v2(path, out_db,
                               SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) return result_of(code);
    sqlite3_busy_timeout(*out_db, 5000);
    if (sqlite3_db_readonly(*out_db, "main")) return HN_INDEX_FAILED;
    // Where two processes make the file at once SQLite answers busy without waiting: one would have to
    // give way to the other.
    for (int try = 0; try < 200; try++) {
        code = sqlite3_exec(*out_db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
        if ((code & 0xff) != SQLITE_BUSY) break;
        hn_sleep_ns(10000000);
    }
    return code == SQLITE_OK ? make_tables(*out_db) : result_of(code);
}

// A folder that cannot be written: the file as it is, without a log beside it.
static hn_index_result open_readable(const char *path, sqlite3 **out_db) {
    hn_str uri = {0};
    int version = 0;
    hn_str_append(&uri, "file:");
    for (const char *c = path; *c; c++)
        hn_str_printf(&uri, strchr("?#%", *c) ? "%%%02X" : "%c", (unsigned char)*c);
    hn_str_append(&uri, "?immutable=1");
    int code = uri.failed ? SQLITE_NOMEM
                          : sqlite3_open_v2(uri.data, out_db,
                                            SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
                                            NULL);
    hn_str_free(&uri);
    if (code == SQLITE_OK) code = version_of(*out_db, &version);
    if (code != SQLITE_OK) return result_of(code);
    return version == HN_STORE_VERSION ? HN_INDEX_OK : HN_INDEX_FAILED;
}

hn_index_result hn_index_open(const char *path, bool *writable, hn_index **out_index) {
    sqlite3 *db = NULL;
    hn_index_result result = *writable ? open_writable(path, &db) : HN_INDEX_FAILED;
    if (result == HN_INDEX_FAILED) {
        sqlite3_close(db);
        db = NULL;
        *writable = false;
        result = access(path, R_OK) == 0 ? open_readable(path, &db) : HN_INDEX_FAILED;
    }
    hn_index *index = result == HN_INDEX_OK ? hn_calloc(1, sizeof *index) : NULL;
    if (!index) {
        sqlite3_close(db);
        return result == HN_INDEX_OK ? HN_INDEX_FAILED : result;
    }
    index->db = db;
    *out_index = index;
    return HN_INDEX_OK;
}

void hn_index_close(hn_index *index) {
    if (!index) return;
    sqlite3_close(index->db);
    hn_free(index);
}

hn_index_result hn_index_run(hn_index *index, const char *sql, const char *bind, const char *columns, ...) {
    sqlite3_stmt *stmt = NULL;
    va_list args;
    va_start(args, columns);
    int code = sqlite3_prepare_v2(index->db, sql, -1, &stmt, NULL);
    for (int i = 0; code == SQLITE_OK && bind[i]; i++) {
        if (bind[i] == 's') {
            code = sqlite3_bind_text(stmt, i + 1, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
        } else if (bind[i] == 'i') {
            code = sqlite3_bind_int64(stmt, i + 1, va_arg(args, int64_t));
        } else {
            hn_digest digest = va_arg(args, hn_digest);
            code = sqlite3_bind_blob(stmt, i + 1, &digest, sizeof digest, SQLITE_TRANSIENT);
        }
    }
    if (code == SQLITE_OK) code = sqlite3_step(stmt);
    bool row = code == SQLITE_ROW;
    for (int i = 0; row && columns[i]; i++) {
        if (columns[i] == 's') {
            const char *text = (const char *)sqlite3_column_text(stmt, i);
            hn_str_append(va_arg(args, hn_str *), text ? text : "");
        } else if (columns[i] == 'i') {
            *va_arg(args, int64_t *) = sqlite3_column_int64(stmt, i);
        } else {
            hn_digest *digest = va_arg(args, hn_digest *);
            if (sqlite3_column_bytes(stmt, i) == sizeof *digest)
                memcpy(digest, sqlite3_column_blob(stmt, i), sizeof *digest);
            else row = false;
        }
    }
    va_end(args);
    sqlite3_finalize(stmt);
    if (code != SQLITE_ROW && code != SQLITE_DONE) return result_of(code);
    return row || !*columns ? HN_INDEX_OK : HN_INDEX_NONE;
}

hn_index_result hn_index_each(hn_index *index, const char *sql,
                              void (*fn)(void *user, const char *const *column), void *user) {
    sqlite3_stmt *stmt = NULL;
    const char *column[16];
    int code = sqlite3_prepare_v2(index->db, sql, -1, &stmt, NULL);
    int count = code == SQLITE_OK ? sqlite3_column_count(stmt) : 0;
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = sqlite3_step(stmt);
        if (code != SQLITE_ROW) break;
        for (int i = 0; i < count && i < (int)HN_COUNT_OF(column); i++)
            column[i] = (const char *)sqlite3_column_text(stmt, i);
        fn(user, column);
    }
    sqlite3_finalize(stmt);
    return result_of(code);
}
