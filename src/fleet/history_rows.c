// SPDX-License-Identifier: Apache-2.0
// The history's devices and roll-ups: see history.h.
#include "fleet/history_int.h"
#include <stdio.h>
#include <unistd.h>

static const char *const k_kinds[] = {"gpu", "mig", "host"};

// ---- devices ----------------------------------------------------------------------------------
typedef struct device_work {
    const hn_device_info *info;
    const char *host;
    int64_t id;
} device_work;

static hone_status put_device(hone_error *err, hn_history *h, void *user) {
    device_work *w = user;
    char key[2 * HN_INFO_BYTES + 80], label[64];
    const char *unique = w->info->uuid[0] ? w->info->uuid : hn_device_label(w->info, label, sizeof label);
    snprintf(key, sizeof key, "%s/%s", w->host, unique);
    sqlite3_stmt *put = NULL;
    // Facts may change (a card moves to another slot); the id stays.
    HN_TRY(hn_history_prepare(err, h,
                              "INSERT INTO devices(key,kind,uuid,name,host,gpu_index,id) VALUES(?,?,?,?,?,?,?)"
                              " ON CONFLICT(key) DO UPDATE SET name=excluded.name, gpu_index=excluded.gpu_index"
                              " RETURNING id", &put));
    hn_history_bind_text(put, 1, key);
    hn_history_bind_text(put, 2, k_kinds[w->info->kind]);
    hn_history_bind_text(put, 3, w->info->uuid);
    hn_history_bind_text(put, 4, w->info->name);
    hn_history_bind_text(put, 5, w->host);
    hn_history_bind_f64(put, 6, w->info->kind == HN_DEVICE_HOST ? NAN : w->info->gpu_index);
    // 40 bits: short in each row, and still unlikely to meet another's.
    sqlite3_bind_int64(put, 7, (int64_t)(hn_hash_bytes(key, strlen(key), HN_HASH_SEED) >> 24) | 1);
    int result = sqlite3_step(put);
    if (result == SQLITE_ROW) w->id = sqlite3_column_int64(put, 0);
    if (result == SQLITE_ROW) result = sqlite3_step(put); // the change counts when the statement has ended
    hone_status status = result == SQLITE_DONE ? HONE_OK : hn_history_failed(err, h, result);
    sqlite3_finalize(put);
    return status;
}

hn_status hn_history_device(hone_error *err, hn_history *history, const hn_device_info *info, const char *host,
                            int64_t *out_id) {
    char own[HN_INFO_BYTES] = "";
    device_work work = {.info = info, .host = host};
    if (!work.host || !*work.host) {
        if (info->hostname[0]) snprintf(own, sizeof own, "%s", info->hostname);
        else if (gethostname(own, sizeof own - 1) != 0) snprintf(own, sizeof own, "localhost");
        work.host = own;
    }
    HN_TRY(hn_history_transact(err, history, put_device, &work));
    *out_id = work.id;
    return HONE_OK;
}

hn_status hn_history_devices(hone_error *err, hn_history *history, hn_history_each_device each, void *user) {
    sqlite3_stmt *list = NULL;
    HN_TRY(hn_history_prepare(err, history, "SELECT id,kind,uuid,name,host,gpu_index FROM devices ORDER BY id", &list));
    int result;
    while ((result = sqlite3_step(list)) == SQLITE_ROW) {
        hn_history_device_row row = {.id = sqlite3_column_int64(list, 0), .uuid = hn_history_text(list, 2),
                                     .name = hn_history_text(list, 3), .host = hn_history_text(list, 4)};
        for (int k = 0; k < (int)HN_COUNT_OF(k_kinds); k++)
            if (strcmp(hn_history_text(list, 1), k_kinds[k]) == 0) row.kind = (hn_device_kind)k;
        row.gpu_index = sqlite3_column_type(list, 5) == SQLITE_NULL ? -1 : sqlite3_column_int64(list, 5);
        if (!each(user, &row)) break;
    }
    hone_status status = result == SQLITE_DONE || result == SQLITE_ROW ? HONE_OK
                                                                       : hn_history_failed(err, history, result);
    sqlite3_finalize(list);
    return status;
}

// ---- aggregates that SQLite lacks -------------------------------------------------------------
typedef struct folded {
    bool any;
    double last;
    int64_t bits;
} folded;

static void fold_step(sqlite3_context *context, int count, sqlite3_value **values) {
    folded *f = sqlite3_aggregate_context(context, sizeof *f);
    if (!f || count != 1 || sqlite3_value_type(values[0]) == SQLITE_NULL) return;
    f->any = true;
    f->last = sqlite3_value_double(values[0]);
    f->bits |= sqlite3_value_int64(values[0]);
}
static void fold_last(sqlite3_context *context) {
    const folded *f = sqlite3_aggregate_context(context, 0);
    if (f && f->any) sqlite3_result_double(context, f->last);
    else sqlite3_result_null(context);
}
static void fold_union(sqlite3_context *context) {
    const folded *f = sqlite3_aggregate_context(context, 0);
    if (f && f->any) sqlite3_result_double(context, (double)f->bits);
    else sqlite3_result_null(context);
}

int hn_history_add_functions(sqlite3 *db) {
    int result = sqlite3_create_function(db, "hn_last", 1, SQLITE_UTF8, NULL, NULL, fold_step, fold_last);
    if (result != SQLITE_OK) return result;
    return sqlite3_create_function(db, "hn_union", 1, SQLITE_UTF8, NULL, NULL, fold_step, fold_union);
}

bool hn_history_takes_last(hn_metric metric) {
    return hn_metric_rows[metric].kind == HN_KIND_counter || metric == HN_M_xid;
}

// ---- roll-ups ---------------------------------------------------------------------------------
typedef struct rows_work {
    hn_history_step step;
    const hn_history_row *rows;
    size_t count;
} rows_work;

static hone_status put_rows(hone_error *err, hn_history *h, void *user) {
    const rows_work *w = user;
    sqlite3_stmt *put;
    for (size_t i = 0; i < w->count; i++) {
        const hn_history_row *row = &w->rows[i];
        HN_TRY(hn_history_statement(err, h, w->step == HN_HISTORY_SECONDS ? HN_SQL_PUT_SECOND : HN_SQL_PUT_MINUTE,
                                    &put));
        sqlite3_bind_int64(put, 1, row->t_s);
        sqlite3_bind_int64(put, 2, row->device);
        sqlite3_bind_int64(put, 3, row->n);
        hn_history_bind_f64(put, 4, row->joules);
        for (int m = 0; m < HN_METRIC_COUNT; m++)
            hn_history_bind_f64(put, 5 + m, hn_sample_or(&row->sample, (hn_metric)m, NAN));
        HN_TRY(hn_history_step_done(err, h, put));
    }
    return HONE_OK;
}

// A gauge's mean weighs by samples; counters have their last value, `reasons` all bits that were seen.
static void fold_text(hn_str *sql) {
    hn_str_append(sql, "INSERT OR REPLACE INTO minutes(t,device,n,joules,");
    hn_history_metric_columns(sql, "");
    hn_str_append(sql, ") SELECT ?1,device,sum(n),sum(joules)");
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        const char *token = hn_metric_rows[m].token;
        if (m == HN_M_reasons) hn_str_printf(sql, ",hn_union(%s)", token);
        else if (hn_history_takes_last((hn_metric)m)) hn_str_printf(sql, ",hn_last(%s)", token);
        else hn_str_printf(sql, ",sum(%s*n)/sum(iif(%s IS NULL,NULL,n))", token, token);
    }
    hn_str_append(sql, " FROM (SELECT * FROM seconds WHERE t >= ?1 AND t < ?1 + 60 ORDER BY device,t) GROUP BY device");
}

static hone_status fold(hone_error *err, hn_history *h, void *user) {
    hn_str sql = {0};
    sqlite3_stmt *put = NULL;
    fold_text(&sql);
    hone_status status = sql.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (history)")
                                    : hn_history_prepare(err, h, hn_str_get(&sql), &put);
    hn_str_free(&sql);
    if (status != HONE_OK) return status;
    sqlite3_bind_int64(put, 1, *(const int64_t *)user);
    status = hn_history_step_done(err, h, put);
    sqlite3_finalize(put);
    return status;
}

hn_status hn_history_fold_minute(hone_error *err, hn_history *history, int64_t minute_s) {
    return hn_history_transact(err, history, fold, &minute_s);
}

hn_status hn_history_put(hone_error *err, hn_history *history, hn_history_step step, const hn_history_row *rows,
                         size_t count) {
    rows_work work = {step, rows, count};
    return hn_history_transact(err, history, put_rows, &work);
}

hn_status hn_history_rows(hone_error *err, hn_history *history, hn_history_step step, int64_t device,
                          int64_t from_s, int64_t to_s, hn_history_each_row each, void *user) {
    hn_str sql = {0};
    sqlite3_stmt *list = NULL;
    // By name, and only what the file has: an older file read without changing it lacks columns.
    const char *table = step == HN_HISTORY_SECONDS ? "seconds" : "minutes";
    int metrics[HN_METRIC_COUNT], count = 0;
    hn_str_printf(&sql, "SELECT name FROM pragma_table_info('%s')", table);
    hone_status status = hn_history_prepare(err, history, hn_str_get(&sql), &list);
    sql.length = 0;
    hn_str_append(&sql, "SELECT t,device,n,joules");
    while (status == HONE_OK && sqlite3_step(list) == SQLITE_ROW) {
        const char *name = hn_history_text(list, 0);
        hn_metric metric = hn_metric_by_token((hn_slice){name, strlen(name)});
        if (metric == HN_METRIC_COUNT || count == HN_METRIC_COUNT) continue;
        metrics[count++] = metric;
        hn_str_printf(&sql, ",%s", name);
    }
    sqlite3_finalize(list);
    list = NULL;
    hn_str_printf(&sql, " FROM %s WHERE t >= ?1 AND t < ?2 AND (?3 = 0 OR device = ?3) ORDER BY t,device", table);
    if (status == HONE_OK) status = sql.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (history)")
                                               : hn_history_prepare(err, history, hn_str_get(&sql), &list);
    hn_str_free(&sql);
    if (status != HONE_OK) return status;
    sqlite3_bind_int64(list, 1, from_s);
    sqlite3_bind_int64(list, 2, to_s);
    sqlite3_bind_int64(list, 3, device);
    int result;
    while ((result = sqlite3_step(list)) == SQLITE_ROW) {
        hn_history_row row = {.t_s = sqlite3_column_int64(list, 0), .device = sqlite3_column_int64(list, 1),
                              .n = sqlite3_column_int64(list, 2), .joules = hn_history_f64(list, 3)};
        row.sample.t_ns = row.sample.wall_ns = row.t_s * 1000000000;
        for (int i = 0; i < count; i++)
            hn_sample_put(&row.sample, (hn_metric)metrics[i], hn_history_f64(list, 4 + i));
        if (!each(user, &row)) break;
    }
    status = result == SQLITE_DONE || result == SQLITE_ROW ? HONE_OK : hn_history_failed(err, history, result);
    sqlite3_finalize(list);
    return status;
}
