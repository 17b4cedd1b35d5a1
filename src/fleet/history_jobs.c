// SPDX-License-Identifier: Apache-2.0
// The history's jobs, phases and their figures: see history.h.
#include "fleet/history_int.h"

void hn_use_init(hn_use *use) {
    use->method = HN_ENERGY_NONE;
#define HN_USE(name, unit, help) use->name = NAN;
#include "fleet/history_use.def"
#undef HN_USE
}

static double mean_of(const hn_span *spans, int count, hn_device_kind kind, hn_metric metric) {
    double sum = 0;
    int known = 0;
    for (int i = 0; i < count; i++) {
        double one = spans[i].info.kind == kind ? hn_span_mean(&spans[i], metric) : NAN;
        if (isnan(one)) continue;
        sum += one;
        known++;
    }
    return known ? sum / known : NAN;
}

void hn_use_of_spans(const hn_span *spans, int count, hn_use *out_use) {
    hn_use use;
    hn_use_init(&use);
    hn_device_kind kind = HN_DEVICE_HOST;
    for (int i = 0; i < count; i++)
        if (spans[i].info.kind == HN_DEVICE_GPU) kind = HN_DEVICE_GPU;
    double idle = 0;
    int judged = 0;
    for (int i = 0; i < count; i++) {
        const hn_span *s = &spans[i];
        if (s->info.kind != kind) continue; // a MIG instance's energy is part of its card's
        if (!isnan(s->energy.joules)) {
            use.joules = isnan(use.joules) ? s->energy.joules : use.joules + s->energy.joules;
            double watts = hn_span_watts(s), covered_s = (double)s->energy.covered_ns * 1e-9;
            use.avg_power_w = isnan(use.avg_power_w) ? watts : use.avg_power_w + watts;
            if (isnan(use.covered_s) || covered_s < use.covered_s) use.covered_s = covered_s;
            if (s->energy.method > use.method) use.method = s->energy.method; // the weaker one speaks for all
        }
        double memory = hn_span_max(s, HN_M_fb_used_bytes), share = hn_span_idle_share(s);
        if (!isnan(memory) && !(memory <= use.peak_memory_bytes)) use.peak_memory_bytes = memory;
        if (!isnan(share)) idle += share, judged++;
    }
    use.idle_share = judged ? idle / judged : NAN;
    use.sm_active = mean_of(spans, count, kind, HN_M_sm_active);
    use.sm_occupancy = mean_of(spans, count, kind, HN_M_sm_occupancy);
    use.tensor_active = mean_of(spans, count, kind, HN_M_tensor_active);
    use.dram_active = mean_of(spans, count, kind, HN_M_dram_active);
    use.l2_hit = mean_of(spans, count, kind, HN_M_l2_hit);
    use.gpu_util = mean_of(spans, count, kind, HN_M_gpu_util) / 100;
    use.cpu_util = mean_of(spans, count, HN_DEVICE_HOST, HN_M_cpu_util) / 100;
    *out_use = use;
}

static const char *const k_methods[] = {[HN_ENERGY_NONE] = "", [HN_ENERGY_COUNTER] = "counter",
                                        [HN_ENERGY_POWER] = "power"};

int hn_history_bind_use(sqlite3_stmt *statement, int index, const hn_use *use) {
    hn_history_bind_text(statement, index++, k_methods[use->method]);
#define HN_USE(name, unit, help) hn_history_bind_f64(statement, index++, use->name);
#include "fleet/history_use.def"
#undef HN_USE
    return index;
}

int hn_history_read_use(sqlite3_stmt *statement, int column, hn_use *out_use) {
    const char *method = hn_history_text(statement, column++);
    out_use->method = strcmp(method, "counter") == 0 ? HN_ENERGY_COUNTER
                      : strcmp(method, "power") == 0 ? HN_ENERGY_POWER
                                                     : HN_ENERGY_NONE;
#define HN_USE(name, unit, help) out_use->name = hn_history_f64(statement, column++);
#include "fleet/history_use.def"
#undef HN_USE
    return column;
}

// ---- writing ----------------------------------------------------------------------------------
#define JOB_COLUMNS                                                                                                    \
    "command,name,host,source,cluster_job,pid,start_ns,end_ns,exit_status,unit,units,devices,complete,report"
#define JOB_COLUMN_COUNT 14

static hone_status put_job(hone_error *err, hn_history *h, void *user) {
    hn_job *job = user;
    hn_str sql = {0};
    sqlite3_stmt *put = NULL;
    hn_str_append(&sql, "INSERT OR REPLACE INTO jobs(id," JOB_COLUMNS ",");
    hn_history_use_columns(&sql, "");
    hn_str_append(&sql, ") VALUES(");
    hn_history_marks(&sql, 1 + JOB_COLUMN_COUNT + 1 + hn_history_use_count);
    hn_str_append(&sql, ")");
    hone_status status = sql.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (history)")
                                    : hn_history_prepare(err, h, hn_str_get(&sql), &put);
    hn_str_free(&sql);
    if (status != HONE_OK) return status;
    if (job->id) sqlite3_bind_int64(put, 1, job->id);
    hn_history_bind_text(put, 2, job->command);
    hn_history_bind_text(put, 3, job->name);
    hn_history_bind_text(put, 4, job->host);
    hn_history_bind_text(put, 5, job->source);
    hn_history_bind_text(put, 6, job->cluster_job);
    sqlite3_bind_int64(put, 7, job->pid);
    sqlite3_bind_int64(put, 8, job->start_ns);
    if (job->end_ns) sqlite3_bind_int64(put, 9, job->end_ns);
    if (job->exit_status >= 0) sqlite3_bind_int64(put, 10, job->exit_status);
    hn_history_bind_text(put, 11, job->unit);
    hn_history_bind_f64(put, 12, job->units);
    sqlite3_bind_int64(put, 13, job->devices);
    sqlite3_bind_int64(put, 14, job->complete);
    hn_history_bind_text(put, 15, job->report);
    hn_history_bind_use(put, 16, &job->use);
    status = hn_history_step_done(err, h, put);
    sqlite3_finalize(put);
    if (status != HONE_OK) return status;
    if (!job->id) {
        job->id = sqlite3_last_insert_rowid(h->db);
        status = hn_history_cut_jobs(err, h);
        if (status != HONE_OK) job->id = 0;
    }
    return status;
}

hn_status hn_history_job_put(hone_error *err, hn_history *history, hn_job *job) {
    int64_t id = job->id;
    hone_status status = hn_history_transact(err, history, put_job, job);
    if (status != HONE_OK) job->id = id;
    return status;
}

static hone_status put_phase(hone_error *err, hn_history *h, void *user) {
    const hn_phase *phase = user;
    sqlite3_stmt *put;
    HN_TRY(hn_history_statement(err, h, HN_SQL_PUT_PHASE, &put));
    sqlite3_bind_int64(put, 1, phase->job);
    sqlite3_bind_int64(put, 2, phase->seq);
    sqlite3_bind_text(put, 3, phase->phase ? phase->phase : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(put, 4, phase->start_ns);
    sqlite3_bind_int64(put, 5, phase->end_ns);
    hn_history_bind_text(put, 6, phase->unit);
    hn_history_bind_f64(put, 7, phase->units);
    hn_history_bind_use(put, 8, &phase->use);
    return hn_history_step_done(err, h, put);
}

hn_status hn_history_phase_put(hone_error *err, hn_history *history, const hn_phase *phase) {
    hn_phase copy = *phase;
    return hn_history_transact(err, history, put_phase, &copy);
}

static hone_status put_part(hone_error *err, hn_history *h, void *user) {
    const hn_job_device *part = user;
    sqlite3_stmt *put;
    HN_TRY(hn_history_statement(err, h, HN_SQL_PUT_JOB_DEVICE, &put));
    sqlite3_bind_int64(put, 1, part->job);
    sqlite3_bind_int64(put, 2, part->device);
    hn_history_bind_use(put, 3, &part->use);
    return hn_history_step_done(err, h, put);
}

hn_status hn_history_job_device_put(hone_error *err, hn_history *history, const hn_job_device *part) {
    hn_job_device copy = *part;
    return hn_history_transact(err, history, put_part, &copy);
}

// ---- reading ----------------------------------------------------------------------------------
static hone_status select_rows(hone_error *err, hn_history *h, const char *columns, const char *rest,
                               sqlite3_stmt **out_list) {
    hn_str sql = {0};
    hn_str_printf(&sql, "SELECT %s,", columns);
    hn_history_use_columns(&sql, "");
    hn_str_printf(&sql, " FROM %s", rest);
    hone_status status = sql.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (history)")
                                    : hn_history_prepare(err, h, hn_str_get(&sql), out_list);
    hn_str_free(&sql);
    return status;
}

static hone_status ended(hone_error *err, hn_history *h, sqlite3_stmt *list, int result) {
    hone_status status = result == SQLITE_DONE || result == SQLITE_ROW ? HONE_OK : hn_history_failed(err, h, result);
    sqlite3_finalize(list);
    return status;
}

static void read_job(sqlite3_stmt *list, hn_job *job) {
    *job = (hn_job){.id = sqlite3_column_int64(list, 0), .command = hn_history_text(list, 1),
                    .name = hn_history_text(list, 2), .host = hn_history_text(list, 3),
                    .source = hn_history_text(list, 4), .cluster_job = hn_history_text(list, 5),
                    .pid = sqlite3_column_int64(list, 6), .start_ns = sqlite3_column_int64(list, 7),
                    .end_ns = sqlite3_column_int64(list, 8), .exit_status = -1,
                    .unit = hn_history_text(list, 10), .units = hn_history_f64(list, 11),
                    .devices = sqlite3_column_int64(list, 12), .complete = sqlite3_column_int64(list, 13) != 0,
                    .report = hn_history_text(list, 14)};
    if (sqlite3_column_type(list, 9) != SQLITE_NULL) job->exit_status = sqlite3_column_int64(list, 9);
    hn_history_read_use(list, 15, &job->use);
}

hn_status hn_history_jobs(hone_error *err, hn_history *history, const hn_job_filter *filter,
                          hn_history_each_job each, void *user) {
    // The newest so many, then in order of their start.
    static const char k_where[] =
        "jobs WHERE id IN (SELECT id FROM jobs WHERE (?1 = 0 OR id = ?1) AND start_ns >= ?2 AND start_ns < ?3"
        " AND (?4 IS NULL OR instr(command, ?4) OR instr(name, ?4)) ORDER BY start_ns DESC, id DESC LIMIT ?5)"
        " ORDER BY start_ns, id";
    static const char k_lean[] = "id,command,name,host,source,cluster_job,pid,start_ns,end_ns,exit_status,unit,units,"
                                 "devices,complete,NULL";
    sqlite3_stmt *list = NULL;
    HN_TRY(select_rows(err, history, filter->with_report ? "id," JOB_COLUMNS : k_lean, k_where, &list));
    sqlite3_bind_int64(list, 1, filter->id);
    sqlite3_bind_int64(list, 2, filter->from_ns);
    sqlite3_bind_int64(list, 3, filter->to_ns ? filter->to_ns : INT64_MAX);
    hn_history_bind_text(list, 4, filter->like);
    sqlite3_bind_int64(list, 5, filter->newest > 0 ? filter->newest : -1);
    int result;
    while ((result = sqlite3_step(list)) == SQLITE_ROW) {
        hn_job job;
        read_job(list, &job);
        if (!each(user, &job)) break;
    }
    return ended(err, history, list, result);
}

hn_status hn_history_phases(hone_error *err, hn_history *history, int64_t job, hn_history_each_phase each,
                            void *user) {
    sqlite3_stmt *list = NULL;
    HN_TRY(select_rows(err, history, "job,seq,phase,start_ns,end_ns,unit,units", "phases WHERE job = ?1 ORDER BY seq",
                       &list));
    sqlite3_bind_int64(list, 1, job);
    int result;
    while ((result = sqlite3_step(list)) == SQLITE_ROW) {
        hn_phase phase = {.job = sqlite3_column_int64(list, 0), .seq = sqlite3_column_int64(list, 1),
                          .phase = hn_history_text(list, 2), .start_ns = sqlite3_column_int64(list, 3),
                          .end_ns = sqlite3_column_int64(list, 4), .unit = hn_history_text(list, 5),
                          .units = hn_history_f64(list, 6)};
        hn_history_read_use(list, 7, &phase.use);
        if (!each(user, &phase)) break;
    }
    return ended(err, history, list, result);
}

hn_status hn_history_job_devices(hone_error *err, hn_history *history, int64_t job,
                                 hn_history_each_job_device each, void *user) {
    sqlite3_stmt *list = NULL;
    HN_TRY(select_rows(err, history, "job,device", "job_devices WHERE job = ?1 ORDER BY device", &list));
    sqlite3_bind_int64(list, 1, job);
    int result;
    while ((result = sqlite3_step(list)) == SQLITE_ROW) {
        hn_job_device part = {.job = sqlite3_column_int64(list, 0), .device = sqlite3_column_int64(list, 1)};
        hn_history_read_use(list, 2, &part.use);
        if (!each(user, &part)) break;
    }
    return ended(err, history, list, result);
}
