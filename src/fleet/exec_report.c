// SPDX-License-Identifier: Apache-2.0
// The report of a measured command: see exec_report.h.
#include "fleet/exec_report.h"
#include <signal.h>

// ---- totals -----------------------------------------------------------------------------------

void hn_exec_totals_make(const hn_exec_result *result, double units, hn_exec_totals *out_totals) {
    hn_exec_totals t = {.joules = NAN, .watts = NAN, .complete = true};
    bool cards = false;
    for (int i = 0; i < result->span_count; i++) cards |= result->spans[i].info.kind == HN_DEVICE_GPU;
    for (int i = 0; i < result->span_count; i++) {
        const hn_span *s = &result->spans[i];
        // The energy of a MIG instance is part of its card's.
        if (s->info.kind != (cards ? HN_DEVICE_GPU : HN_DEVICE_HOST)) continue;
        if (isnan(s->energy.joules)) {
            t.complete = false;
            continue;
        }
        t.complete &= !s->stuck && !s->lost;
        t.joules = (t.devices ? t.joules : 0) + s->energy.joules;
        t.watts = (t.devices ? t.watts : 0) + hn_span_watts(s);
        t.devices++;
    }
    t.units = isnan(units) ? result->units : units;
    t.units_per_second = result->seconds > 0 ? t.units / result->seconds : NAN;
    t.joules_per_unit = t.units > 0 ? t.joules / t.units : NAN;
    *out_totals = t;
}

// ---- text -------------------------------------------------------------------------------------

static void add_bytes(hn_str *out, double bytes) {
    if (bytes >= 0x1p30) hn_str_printf(out, "%.1f GiB", bytes / 0x1p30);
    else hn_str_printf(out, "%.1f MiB", bytes / 0x1p20);
}

typedef struct share_row {
    hn_metric metric;
    const char *words;
    double scale, goal; // goal: of well-used hardware, 0 = none
} share_row;
static const share_row k_shares[] = {
    {HN_M_sm_active, "SM active", 100, 85}, {HN_M_tensor_active, "tensor", 100, 0},
    {HN_M_dram_active, "DRAM", 100, 90},    {HN_M_l2_hit, "L2 hit", 100, 75},
    {HN_M_gpu_util, "in use", 1, 0},        {HN_M_cpu_util, "CPUs in use", 1, 0},
};

static void device_text(const hn_span *s, hn_str *out) {
    char label[64];
    hn_str_printf(out, "  %s:", hn_device_label(&s->info, label, sizeof label));
    const char *gap = " ";
    if (!isnan(s->energy.joules)) {
        hn_str_printf(out, " %.1f J (%s), mean %.1f W", s->energy.joules, hn_energy_method_text(s->energy.method),
                      hn_span_watts(s));
        gap = "; ";
    }
    for (size_t i = 0; i < HN_COUNT_OF(k_shares); i++) {
        double mean = hn_span_mean(s, k_shares[i].metric) * k_shares[i].scale;
        // The driver's figure says little where the hardware's is known.
        bool weaker = k_shares[i].metric == HN_M_gpu_util && !isnan(hn_span_mean(s, HN_M_sm_active));
        if (isnan(mean) || weaker) continue;
        hn_str_printf(out, "%s%s %.0f %%", gap, k_shares[i].words, mean);
        if (k_shares[i].goal > 0 && mean >= k_shares[i].goal)
            hn_str_printf(out, " (goal %.0f %% met)", k_shares[i].goal);
        gap = ", ";
    }
    if (!isnan(hn_span_idle_share(s))) {
        hn_str_printf(out, "%sidle %.0f %% of the time", gap, 100 * hn_span_idle_share(s));
        gap = "; ";
    }
    double used = hn_span_max(s, HN_M_fb_used_bytes), total = hn_span_max(s, HN_M_fb_total_bytes);
    if (!isnan(used)) {
        hn_str_printf(out, "%smemory at most ", gap);
        add_bytes(out, used);
        if (!isnan(total)) hn_str_append(out, " of "), add_bytes(out, total);
        gap = "; ";
    }
    if (s->stuck) {
        hn_str_printf(out, "%sthe driver stopped answering after %.1f s", gap, hn_span_seconds(s));
        gap = "; ";
    }
    if (s->lost) hn_str_printf(out, "%sfell off the bus", gap);
    else if (s->samples < 2) hn_str_printf(out, "%stoo short to be measured", gap);
    hn_str_append(out, "\n");
}

// ---- findings ---------------------------------------------------------------------------------

#define SPANS_MAX 256
typedef struct findings {
    int count;
    hn_finding items[HN_FINDINGS_MAX(SPANS_MAX)];
} findings;

static findings *find_all(const hn_exec_result *r) { // NULL: out of memory
    findings *all = hn_malloc(sizeof *all);
    int spans = r->span_count < SPANS_MAX ? r->span_count : SPANS_MAX;
    if (all) all->count = hn_diagnose(r->spans, spans, all->items, HN_FINDINGS_MAX(SPANS_MAX));
    return all;
}

static bool same_finding(const hn_finding *a, const hn_finding *b) {
    return a->what == b->what && strcmp(a->reason, b->reason) == 0;
}

// Cards that share a finding share its lines; the evidence is the first one's.
static void findings_text(const hn_exec_result *r, hn_str *out) {
    findings *all = find_all(r);
    if (!all) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < all->count; i++) {
        const hn_finding *f = &all->items[i];
        const char *gap = "";
        bool said = false;
        for (int k = 0; k < i; k++) said |= same_finding(f, &all->items[k]);
        if (said) continue;
        hn_str_append(out, "  ");
        for (int k = i; k < all->count; k++) {
            char label[64];
            if (!same_finding(f, &all->items[k])) continue;
            const hn_device_info *info = &r->spans[all->items[k].span].info;
            hn_str_printf(out, "%s%s", gap, hn_device_label(info, label, sizeof label));
            gap = ", ";
        }
        hn_str_printf(out, ": %s%s%s%s: %s\n    %s\n", hn_diagnosis_rows[f->what].words, f->reason[0] ? " (" : "",
                      f->reason, f->reason[0] ? ")" : "", f->evidence, f->remedy);
    }
    hn_free(all);
}

void hn_exec_text(const hn_exec_request *request, const hn_exec_result *r, const hn_exec_totals *t,
                  hn_str *out) {
    double cpu = r->user_seconds + r->system_seconds;
    hn_str_printf(out, "hone: %s ", request->argv[0]);
    if (r->signal) hn_str_printf(out, "was ended by signal %d (SIG%s)", r->signal, sigabbrev_np(r->signal));
    else hn_str_printf(out, "ended with status %d", r->exit_status);
    hn_str_printf(out, " after %.3f s; CPU time %.3f s (%.3f user, %.3f system), %.2f CPUs; ", r->seconds, cpu,
                  r->user_seconds, r->system_seconds, r->seconds > 0 ? cpu / r->seconds : 0);
    hn_str_append(out, "memory at most ");
    if (r->peak_tree_bytes >= 0) add_bytes(out, (double)r->peak_tree_bytes), hn_str_append(out, " in all, ");
    add_bytes(out, (double)r->peak_process_bytes);
    hn_str_append(out, " in one process\n");
    for (int i = 0; i < r->span_count; i++) {
        const hn_span *s = &r->spans[i];
        bool told = !isnan(s->energy.joules) || s->info.kind != HN_DEVICE_HOST || s->stuck;
        if (told) device_text(s, out);
    }
    if (t->devices > 1)
        hn_str_printf(out, "  %d cards together: %.1f J, mean %.1f W%s\n", t->devices, t->joules, t->watts,
                      t->complete ? "" : " (not all of every card)");
    findings_text(r, out);
    if (isnan(t->units)) {
        if (request->progress) hn_str_append(out, "  no line of the output matched --progress\n");
        return;
    }
    hn_str_printf(out, "  %.6g units, %.6g a second", t->units, t->units_per_second);
    if (!isnan(t->joules_per_unit))
        hn_str_printf(out, ", %.6g J a unit, %.6g units a joule", t->joules_per_unit, 1 / t->joules_per_unit);
    hn_str_append(out, "\n");
}

// ---- JSON -------------------------------------------------------------------------------------

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
static json_t *bytes_json(double value) {
    return isfinite(value) && value >= 0 ? json_integer((json_int_t)value) : json_null();
}

static json_t *metrics_json(const hn_span *s, double (*take)(const hn_span *, hn_metric),
                            hn_metric_kind kind) {
    json_t *out = json_object();
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        double value = hn_metric_rows[m].kind == kind && m != HN_M_reasons ? take(s, (hn_metric)m) : NAN;
        if (isfinite(value)) json_object_set_new(out, hn_metric_rows[m].token, json_real(value));
    }
    return out;
}

static json_t *device_json(const hn_span *s) {
    char label[64];
    json_t *out = json_object();
    json_object_set_new(out, "device", json_string(hn_device_label(&s->info, label, sizeof label)));
    json_object_set_new(out, "name", s->info.name[0] ? json_string(s->info.name) : json_null());
    json_object_set_new(out, "uuid", s->info.uuid[0] ? json_string(s->info.uuid) : json_null());
    json_object_set_new(out, "samples", json_integer(s->samples));
    json_object_set_new(out, "seconds", json_real(hn_span_seconds(s)));
    json_object_set_new(out, "lost", json_boolean(s->lost));
    json_object_set_new(out, "stuck", json_boolean(s->stuck));
    json_object_set_new(out, "joules", number(s->energy.joules));
    json_object_set_new(out, "energy_method",
                        s->energy.method == HN_ENERGY_NONE ? json_null()
                                                           : json_string(hn_energy_method_text(s->energy.method)));
    json_object_set_new(out, "energy_covered_seconds", json_real((double)s->energy.covered_ns * 1e-9));
    json_object_set_new(out, "mean_power_w", number(hn_span_watts(s)));
    json_object_set_new(out, "sm_active", number(hn_span_mean(s, HN_M_sm_active)));
    json_object_set_new(out, "tensor_active", number(hn_span_mean(s, HN_M_tensor_active)));
    json_object_set_new(out, "dram_active", number(hn_span_mean(s, HN_M_dram_active)));
    json_object_set_new(out, "idle_share", number(hn_span_idle_share(s)));
    json_object_set_new(out, "peak_memory_bytes", bytes_json(hn_span_max(s, HN_M_fb_used_bytes)));
    json_object_set_new(out, "mean", metrics_json(s, hn_span_mean, HN_KIND_gauge));
    json_object_set_new(out, "mean_busy", metrics_json(s, hn_span_busy_mean, HN_KIND_gauge));
    json_object_set_new(out, "max", metrics_json(s, hn_span_max, HN_KIND_gauge));
    json_object_set_new(out, "rise", metrics_json(s, hn_span_rise, HN_KIND_counter));
    return out;
}

static json_t *findings_json(const hn_exec_result *r) {
    json_t *out = json_array();
    findings *all = find_all(r);
    for (int i = 0; all && i < all->count; i++) {
        const hn_finding *f = &all->items[i];
        char label[64];
        json_t *item = json_object();
        json_object_set_new(item, "class", json_string(hn_diagnosis_rows[f->what].token));
        json_object_set_new(item, "words", json_string(hn_diagnosis_rows[f->what].words));
        json_object_set_new(item, "bound", json_boolean(hn_diagnosis_rows[f->what].bound));
        json_object_set_new(item, "reason", f->reason[0] ? json_string(f->reason) : json_null());
        json_object_set_new(item, "device",
                            json_string(hn_device_label(&r->spans[f->span].info, label, sizeof label)));
        json_object_set_new(item, "weight", json_real(f->weight));
        json_object_set_new(item, "evidence", json_string(f->evidence));
        json_object_set_new(item, "remedy", json_string(f->remedy));
        json_array_append_new(out, item);
    }
    if (!all) json_decref(out);
    hn_free(all);
    return all ? out : NULL;
}

json_t *hn_exec_json(const hn_exec_request *request, const hn_exec_result *r, const hn_exec_totals *t,
                     const char *source) {
    json_t *out = json_object(), *command = json_array(), *devices = json_array(), *total = json_object();
    for (size_t i = 0; request->argv[i]; i++) {
        json_t *word = json_string(request->argv[i]);
        json_array_append_new(command, word ? word : json_string("(not UTF-8)"));
    }
    for (int i = 0; i < r->span_count; i++) json_array_append_new(devices, device_json(&r->spans[i]));
    json_object_set_new(total, "joules", number(t->joules));
    json_object_set_new(total, "mean_power_w", number(t->watts));
    json_object_set_new(total, "devices", json_integer(t->devices));
    json_object_set_new(total, "complete", json_boolean(t->devices && t->complete));
    json_object_set_new(out, "command", command);
    json_object_set_new(out, "exit_status", json_integer(r->exit_status));
    json_object_set_new(out, "signal", r->signal ? json_integer(r->signal) : json_null());
    json_object_set_new(out, "seconds", json_real(r->seconds));
    json_object_set_new(out, "user_seconds", json_real(r->user_seconds));
    json_object_set_new(out, "system_seconds", json_real(r->system_seconds));
    json_object_set_new(out, "own_cpu_seconds", json_real(r->own_cpu_seconds));
    json_object_set_new(out, "peak_process_bytes", json_integer(r->peak_process_bytes));
    json_object_set_new(out, "peak_tree_bytes", bytes_json((double)r->peak_tree_bytes));
    json_object_set_new(out, "source", source ? json_string(source) : json_null());
    json_object_set_new(out, "telemetry_stuck", json_boolean(r->stuck));
    json_object_set_new(out, "devices", devices);
    json_object_set_new(out, "total", total);
    json_object_set_new(out, "findings", findings_json(r));
    json_object_set_new(out, "units", number(t->units));
    json_object_set_new(out, "units_per_second", number(t->units_per_second));
    json_object_set_new(out, "joules_per_unit", number(t->joules_per_unit));
    json_object_set_new(out, "units_per_joule", number(1 / t->joules_per_unit));
    return out;
}
