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
                              "INSERT INTO devices(key,kind,uuid,name,host,gpu_index) VALUES(?,?,?,?,?,?)"
                              " ON CONFLICT(key) DO UPDATE SET name=excluded.name, gpu_index=excluded.gpu_index"
                              " RETURNING id", &put));
    hn_history_bind_text(put, 1, key);
    hn_history_bind_text(put, 2, k_kinds[w->info->kind]);
    hn_history_bind_text(put, 3, w->info->uuid);
    hn_history_bind_text(put, 4, w->info->name);
    hn_history_bind_text(put, 5, w->host);
    hn_history_bind_f64(put, 6, w->info->kind == HN_DEVICE_HOST ? NAN : w->info->gpu_index);
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
