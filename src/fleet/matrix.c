// SPDX-License-Identifier: Apache-2.0
// The efficiency matrix: see matrix.h.
#include "fleet/matrix.h"
#include <stdio.h>

typedef struct figure_row {
    const char *token, *head, *format, *help;
    int width, better;
    bool in_table;
} figure_row;
static const figure_row k_figures[HN_MATRIX_FIGURES] = {
#define HN_MATRIX(token, head, width, format, in_table, better, help) {#token, head, format, help, width, better, in_table},
#include "fleet/matrix.def"
#undef HN_MATRIX
};

void hn_matrix_free(hn_matrix *matrix) { hn_vec_free(&matrix->rows); }

double hn_matrix_value(const hn_matrix *m, const hn_matrix_row *r, hn_matrix_figure figure) {
    const hn_use *u = &r->use;
    switch (figure) {
    case HN_MX_seconds: return r->running ? NAN : r->seconds;
    case HN_MX_units: return r->units;
    case HN_MX_units_per_second: return r->seconds > 0 ? r->units / r->seconds : NAN;
    case HN_MX_units_per_joule: return u->joules > 0 ? r->units / u->joules : NAN;
    case HN_MX_joules_per_unit: return r->units > 0 ? u->joules / r->units : NAN;
    case HN_MX_joules: return u->joules;
    case HN_MX_watt_hours: return u->joules / 3600;
    case HN_MX_watts: return u->avg_power_w;
    case HN_MX_sm_active: return 100 * u->sm_active;
    case HN_MX_tensor_active: return 100 * u->tensor_active;
    case HN_MX_dram_active: return 100 * u->dram_active;
    case HN_MX_idle_share: return 100 * u->idle_share;
    case HN_MX_peak_memory_gib: return u->peak_memory_bytes / 0x1p30;
    case HN_MX_cost: return u->joules / 3.6e6 * m->price_per_kwh;
    case HN_MX_co2_g: return u->joules / 3.6e6 * m->co2_g_per_kwh;
    default: return NAN;
    }
}

// ---- filling ----------------------------------------------------------------------------------

typedef struct reading {
    hn_matrix *matrix;
    hn_matrix_row job; // of the phases
    bool failed;
} reading;

static bool take_job(void *user, const hn_job *job) {
    reading *r = user;
    hn_matrix_row row = {.job = job->id, .start_ns = job->start_ns, .exit_status = job->exit_status, .running = job->end_ns == 0,
                         .complete = job->complete, .units = job->units, .use = job->use,
                         .seconds = job->end_ns ? (double)(job->end_ns - job->start_ns) * 1e-9 : NAN};
    snprintf(row.name, sizeof row.name, "%s", job->name);
    snprintf(row.command, sizeof row.command, "%s", job->command);
    snprintf(row.unit, sizeof row.unit, "%s", job->unit);
    r->failed = !hn_vec_push(&r->matrix->rows, row);
    return !r->failed;
}

static bool take_phase(void *user, const hn_phase *phase) {
    reading *r = user;
    hn_matrix_row row = r->job;
    row.units = phase->units;
    row.use = phase->use;
    row.start_ns = phase->start_ns;
    row.seconds = (double)(phase->end_ns - phase->start_ns) * 1e-9;
    row.running = false;
    snprintf(row.phase, sizeof row.phase, "%s", phase->phase);
    r->failed = !hn_vec_push(&r->matrix->rows, row);
    return !r->failed;
}

hn_status hn_matrix_read(hone_error *err, hn_history *history, const hn_job_filter *filter, bool phases, hn_matrix *matrix) {
    hn_matrix jobs = {0};
    reading r = {.matrix = &jobs};
    hone_status status = hn_history_jobs(err, history, filter, take_job, &r);
    for (size_t i = 0; i < jobs.rows.count && status == HONE_OK && !r.failed; i++) {
        r = (reading){.matrix = matrix, .job = jobs.rows.data[i]};
        r.failed = !hn_vec_push(&matrix->rows, jobs.rows.data[i]);
        if (phases && !r.failed) status = hn_history_phases(err, history, jobs.rows.data[i].job, take_phase, &r);
    }
    hn_matrix_free(&jobs);
    if (status == HONE_OK && r.failed) HN_NOMEM(err, "matrix");
    return status;
}

hn_status hn_matrix_find(hone_error *err, hn_history *history, const char *which, hn_matrix *matrix) {
    hn_job_filter filter = {.newest = 1};
    int64_t id;
    if (hn_parse_i64((hn_slice){which, strlen(which)}, &id)) filter.id = id;
    else filter.like = which;
    HN_TRY(hn_matrix_read(err, history, &filter, true, matrix));
    if (matrix->rows.count == 0)
        HN_FAIL(err, HONE_ERR_USAGE, "%s: no job '%s' in the history", hn_history_file(history), which);
    return HONE_OK;
}

bool hn_matrix_add_result(hn_matrix *matrix, const char *name, const hn_exec_result *result, double units, const char *unit) {
    for (int phase = -1; phase < result->phases.count; phase++) {
        hn_span *spans = hn_exec_spans(result, phase);
        if (!spans) return false;
        hn_matrix_row row = {.start_ns = result->start_wall_ns, .exit_status = result->exit_status, .complete = true,
                             .units = phase < 0 ? isnan(units) ? result->units : units : result->phases.units[phase],
                             .seconds = phase < 0 ? result->seconds : result->phases.seconds[phase]};
        hn_use_of_spans(spans, result->track_count, &row.use);
        hn_free(spans);
        snprintf(row.name, sizeof row.name, "%s", name);
        snprintf(row.command, sizeof row.command, "%s", name);
        snprintf(row.unit, sizeof row.unit, "%s", unit ? unit : "");
        if (phase >= 0) snprintf(row.phase, sizeof row.phase, "%s", result->phases.names[phase]);
        if (!hn_vec_push(&matrix->rows, row)) return false;
    }
    return true;
}

// ---- the table --------------------------------------------------------------------------------

static void figure_text(const hn_matrix *m, const hn_matrix_row *r, int f, char out[48]) {
    double value = hn_matrix_value(m, r, (hn_matrix_figure)f);
    if (!isfinite(value)) snprintf(out, 48, "-");
    else snprintf(out, 48, k_figures[f].format, value);
}

static bool in_table(const hn_matrix *m, int f) {
    if (f == HN_MX_cost) return !isnan(m->price_per_kwh);
    if (f == HN_MX_co2_g) return !isnan(m->co2_g_per_kwh);
    return k_figures[f].in_table;
}

static void label(const hn_matrix_row *r, char out[96]) {
    if (r->phase[0]) snprintf(out, 96, "  %s", r->phase);
    else if (r->job) snprintf(out, 96, "%lld %.63s%s", (long long)r->job, r->name[0] ? r->name : r->command, r->running ? " (runs)" : "");
    else snprintf(out, 96, "%s", r->name);
}

void hn_matrix_text(const hn_matrix *m, hn_str *out) {
    int wide = 12;
    char text[96], cell[48];
    for (size_t i = 0; i < m->rows.count; i++) {
        label(&m->rows.data[i], text);
        int length = (int)strlen(text);
        wide = length > wide ? length : wide;
    }
    if (wide > 36) wide = 36;
    hn_str_printf(out, "%-*s", wide, "job, phase");
    for (int f = 0; f < HN_MATRIX_FIGURES; f++)
        if (in_table(m, f)) hn_str_printf(out, " %*s", k_figures[f].width, k_figures[f].head);
    hn_str_append(out, "  unit\n");
    for (size_t i = 0; i < m->rows.count; i++) {
        const hn_matrix_row *r = &m->rows.data[i];
        label(r, text);
        hn_str_printf(out, "%-*.*s", wide, wide, text);
        for (int f = 0; f < HN_MATRIX_FIGURES; f++) {
            if (!in_table(m, f)) continue;
            figure_text(m, r, f, cell);
            hn_str_printf(out, " %*s", k_figures[f].width, cell);
        }
        hn_str_printf(out, "  %s%s\n", isnan(r->units) ? "-" : r->unit[0] ? r->unit : "unit",
                      r->use.method == HN_ENERGY_POWER ? " (power integrated)" : !r->complete && !r->running && !isnan(r->use.joules) ? " (not the whole run)" : "");
    }
}

static void csv_cell(hn_str *out, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        hn_str_append(out, text);
        return;
    }
    hn_str_append(out, "\"");
    for (; *text; text++) hn_str_append_n(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    hn_str_append(out, "\"");
}

void hn_matrix_csv(const hn_matrix *m, hn_str *out) {
    char number[HN_METRIC_TEXT_BYTES];
    hn_str_append(out, "job,name,command,phase,start_unix_s,exit_status,unit,energy_method");
    for (int f = 0; f < HN_MATRIX_FIGURES; f++) hn_str_printf(out, ",%s", k_figures[f].token);
    hn_str_append(out, "\n");
    for (size_t i = 0; i < m->rows.count; i++) {
        const hn_matrix_row *r = &m->rows.data[i];
        hn_str_printf(out, "%lld,", (long long)r->job);
        csv_cell(out, r->name);
        hn_str_append(out, ",");
        csv_cell(out, r->command);
        hn_str_append(out, ",");
        csv_cell(out, r->phase);
        hn_str_printf(out, ",%lld,", (long long)(r->start_ns / 1000000000));
        if (r->exit_status >= 0) hn_str_printf(out, "%lld", (long long)r->exit_status);
        hn_str_append(out, ",");
        csv_cell(out, r->unit);
        hn_str_printf(out, ",%s", r->use.method == HN_ENERGY_NONE ? "" : r->use.method == HN_ENERGY_COUNTER ? "counter" : "power");
        for (int f = 0; f < HN_MATRIX_FIGURES; f++) {
            double value = hn_matrix_value(m, r, (hn_matrix_figure)f);
            hn_str_printf(out, ",%s", isfinite(value) ? hn_metric_text(value, number) : "");
        }
        hn_str_append(out, "\n");
    }
}

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
static json_t *text_or_null(const char *text) {
    json_t *made = text[0] ? json_string(text) : json_null();
    return made ? made : json_string("(not UTF-8)");
}

static json_t *row_json(const hn_matrix *m, const hn_matrix_row *r) {
    json_t *out = json_object();
    json_object_set_new(out, "job", r->job ? json_integer(r->job) : json_null());
    json_object_set_new(out, "name", text_or_null(r->name));
    json_object_set_new(out, "command", text_or_null(r->command));
    json_object_set_new(out, "phase", text_or_null(r->phase));
    json_object_set_new(out, "start_ns", json_integer(r->start_ns));
    json_object_set_new(out, "exit_status", r->exit_status >= 0 ? json_integer(r->exit_status) : json_null());
    json_object_set_new(out, "unit", text_or_null(r->unit));
    json_object_set_new(out, "complete", json_boolean(r->complete));
    json_object_set_new(out, "energy_method", r->use.method == HN_ENERGY_NONE ? json_null()
                                              : json_string(r->use.method == HN_ENERGY_COUNTER ? "counter" : "power"));
    for (int f = 0; f < HN_MATRIX_FIGURES; f++) {
        double value = hn_matrix_value(m, r, (hn_matrix_figure)f);
        bool share = strstr(k_figures[f].format, "%%") != NULL;
        json_object_set_new(out, k_figures[f].token, number(share ? value / 100 : value));
    }
    return out;
}

json_t *hn_matrix_json(const hn_matrix *m) {
    json_t *out = json_object(), *rows = json_array();
    for (size_t i = 0; i < m->rows.count; i++) json_array_append_new(rows, row_json(m, &m->rows.data[i]));
    json_object_set_new(out, "price_per_kwh", number(m->price_per_kwh));
    json_object_set_new(out, "co2_g_per_kwh", number(m->co2_g_per_kwh));
    json_object_set_new(out, "rows", rows);
    return out;
}

// ---- comparing --------------------------------------------------------------------------------

static const hn_matrix_row *phase_of(const hn_matrix *m, const char *phase) {
    for (size_t i = 0; i < m->rows.count; i++)
        if (strcmp(m->rows.data[i].phase, phase) == 0) return &m->rows.data[i];
    return NULL;
}

static void compare_rows(const hn_matrix *a, const hn_matrix *b, const hn_matrix_row *x, const hn_matrix_row *y, hn_str *out) {
    for (int f = 0; f < HN_MATRIX_FIGURES; f++) {
        char left[48], right[48];
        double v = hn_matrix_value(a, x, (hn_matrix_figure)f), w = hn_matrix_value(b, y, (hn_matrix_figure)f);
        if (!isfinite(v) && !isfinite(w)) continue;
        figure_text(a, x, f, left);
        figure_text(b, y, f, right);
        hn_str_printf(out, "  %-16s %14s %14s", k_figures[f].head, left, right);
        double change = w / v - 1;
        if (isfinite(change)) {
            int better = k_figures[f].better;
            hn_str_printf(out, " %+8.1f%%", 100 * change);
            if (better && fabs(change) >= 0.005) hn_str_append(out, (change > 0) == (better > 0) ? "  better" : "  worse");
        }
        hn_str_append(out, "\n");
    }
}

void hn_matrix_compare_text(const hn_matrix *a, const hn_matrix *b, hn_str *out) {
    char left[96], right[96];
    label(&a->rows.data[0], left);
    label(&b->rows.data[0], right);
    hn_str_printf(out, "A: %s\nB: %s\n", left, right);
    if (strcmp(a->rows.data[0].unit, b->rows.data[0].unit) != 0)
        hn_str_append(out, "The two count different units: what is said for a unit cannot be compared.\n");
    for (size_t i = 0; i < a->rows.count; i++) {
        const hn_matrix_row *x = &a->rows.data[i], *y = phase_of(b, x->phase);
        if (!y) continue;
        hn_str_printf(out, "%-18s %14s %14s %9s\n", x->phase[0] ? x->phase : "whole", "A", "B", "change");
        compare_rows(a, b, x, y, out);
    }
}

json_t *hn_matrix_compare_json(const hn_matrix *a, const hn_matrix *b) {
    json_t *out = json_object(), *parts = json_array();
    for (size_t i = 0; i < a->rows.count; i++) {
        const hn_matrix_row *x = &a->rows.data[i], *y = phase_of(b, x->phase);
        if (!y) continue;
        json_t *part = json_object(), *ratios = json_object();
        for (int f = 0; f < HN_MATRIX_FIGURES; f++)
            json_object_set_new(ratios, k_figures[f].token,
                                number(hn_matrix_value(b, y, (hn_matrix_figure)f) / hn_matrix_value(a, x, (hn_matrix_figure)f)));
        json_object_set_new(part, "phase", text_or_null(x->phase));
        json_object_set_new(part, "a", row_json(a, x));
        json_object_set_new(part, "b", row_json(b, y));
        json_object_set_new(part, "b_by_a", ratios);
        json_array_append_new(parts, part);
    }
    json_object_set_new(out, "same_unit", json_boolean(strcmp(a->rows.data[0].unit, b->rows.data[0].unit) == 0));
    json_object_set_new(out, "parts", parts);
    return out;
}
