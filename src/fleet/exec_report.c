// SPDX-License-Identifier: Apache-2.0
// The report of a measured command: see exec_report.h.
#include "fleet/exec_report.h"
#include "base/lang.h"
#include <signal.h>

const hn_goal hn_goals[] = {
    {HN_M_sm_active, HN_SAY("SM active"), 0.85}, {HN_M_l2_hit, HN_SAY("L2 hit"), 0.75}, {HN_M_dram_active, HN_SAY("DRAM"), 0.9}};
const size_t hn_goal_count = HN_COUNT_OF(hn_goals);

// ---- totals -----------------------------------------------------------------------------------

static void totals_of(const hn_span *spans, int count, double seconds, double units, hn_exec_totals *out_totals) {
    hn_exec_totals t = {.joules = NAN, .watts = NAN, .complete = true, .units = units};
    bool cards = false;
    for (int i = 0; i < count; i++) cards |= spans[i].info.kind == HN_DEVICE_GPU;
    for (int i = 0; i < count; i++) {
        const hn_span *s = &spans[i];
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
    t.units_per_second = seconds > 0 ? t.units / seconds : NAN;
    t.joules_per_unit = t.units > 0 ? t.joules / t.units : NAN;
    *out_totals = t;
}

hn_span *hn_exec_spans(const hn_exec_result *result, int phase) {
    hn_span *spans = hn_calloc((size_t)result->track_count + 1, sizeof *spans);
    for (int i = 0; spans && i < result->track_count; i++) {
        const hn_track *t = result->tracks[i];
        if (phase < 0) spans[i] = t->span;
        else if (t->phases[phase]) spans[i] = *t->phases[phase];
        else hn_span_start(&spans[i], &t->span.info);
    }
    return spans;
}

void hn_exec_totals_make(const hn_exec_result *result, double units, hn_exec_totals *out_totals) {
    hn_span *spans = hn_exec_spans(result, -1);
    totals_of(spans, spans ? result->track_count : 0, result->seconds, isnan(units) ? result->units : units, out_totals);
    hn_free(spans);
}

static double mean_of_cards(const hn_span *spans, int count, hn_metric metric) {
    double sum = 0;
    int cards = 0;
    for (int i = 0; i < count; i++) {
        double value = spans[i].info.kind == HN_DEVICE_GPU ? hn_span_mean(&spans[i], metric) : NAN;
        if (!isnan(value)) sum += value, cards++;
    }
    return cards ? sum / cards : NAN;
}

static bool diagnose(const hn_span *spans, int count, hn_finding **out_items, int *out_found) {
    hn_finding *items = hn_calloc((size_t)HN_FINDINGS_MAX(count) + 1, sizeof *items);
    if (!items) return false;
    *out_found = hn_diagnose(spans, count, items, HN_FINDINGS_MAX(count));
    *out_items = items;
    return true;
}

bool hn_exec_phase_make(const hn_exec_result *r, int phase, hn_exec_phase *out_phase) {
    hn_span *spans = hn_exec_spans(r, phase);
    hn_finding *found;
    int found_count;
    if (!spans || !diagnose(spans, r->track_count, &found, &found_count)) {
        hn_free(spans);
        return false;
    }
    hn_exec_phase p = {.name = r->phases.names[phase], .seconds = r->phases.seconds[phase], .bound = -1};
    totals_of(spans, r->track_count, p.seconds, r->phases.units[phase], &p.totals);
    p.sm_active = mean_of_cards(spans, r->track_count, HN_M_sm_active);
    p.tensor_active = mean_of_cards(spans, r->track_count, HN_M_tensor_active);
    p.dram_active = mean_of_cards(spans, r->track_count, HN_M_dram_active);
    double idle_ns = 0, judged_ns = 0;
    for (int i = 0; i < r->track_count; i++)
        if (spans[i].info.kind == HN_DEVICE_GPU)
            idle_ns += (double)spans[i].idle_ns, judged_ns += (double)spans[i].judged_ns;
    p.idle_share = judged_ns > 0 ? idle_ns / judged_ns : NAN;
    for (int i = found_count - 1; i >= 0; i--)
        if (hn_diagnosis_rows[found[i].what].bound || found[i].what == HN_DIAG_idle) p.bound = (int)found[i].what;
    hn_free(found);
    hn_free(spans);
    *out_phase = p;
    return true;
}

// ---- text -------------------------------------------------------------------------------------

static void add_bytes(hn_str *out, double bytes) {
    if (bytes >= 0x1p30) hn_str_printf(out, "%.1f GiB", bytes / 0x1p30);
    else hn_str_printf(out, "%.1f MiB", bytes / 0x1p20);
}

typedef struct share_row {
    hn_metric metric;
    const char *words;
    double scale;
} share_row;
static const share_row k_shares[] = {
    {HN_M_sm_active, "SM active", 100}, {HN_M_tensor_active, "tensor", 100}, {HN_M_dram_active, "DRAM", 100},
    {HN_M_l2_hit, "L2 hit", 100},       {HN_M_gpu_util, "in use", 1},        {HN_M_cpu_util, "CPUs in use", 1},
};

static double goal_of(hn_metric metric) { // NAN: none
    for (size_t i = 0; i < hn_goal_count; i++)
        if (hn_goals[i].metric == metric) return hn_goals[i].ratio;
    return NAN;
}

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
        double goal = 100 * goal_of(k_shares[i].metric);
        if (mean >= goal) hn_str_printf(out, " (goal %.0f %% met)", goal);
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

// The phase that has more than half of the joules (of the time where there are none), -1 none.
static int main_phase(const hn_exec_result *r) {
    double joules[HN_PHASES_MAX], all = 0, seconds = 0;
    for (int i = 0; i < r->phases.count; i++) {
        joules[i] = 0;
        for (int d = 0; d < r->track_count; d++) {
            const hn_span *s = r->tracks[d]->phases[i];
            if (s && s->info.kind == HN_DEVICE_GPU && !isnan(s->energy.joules)) joules[i] += s->energy.joules;
        }
        all += joules[i];
        seconds += r->phases.seconds[i];
    }
    for (int i = 0; i < r->phases.count && r->phases.count > 1; i++)
        if (all > 0 ? joules[i] > all / 2 : r->phases.seconds[i] > seconds / 2) return i;
    return -1;
}

bool hn_exec_findings_make(const hn_exec_result *r, const hn_span *spans, hn_exec_findings *out_findings) {
    hn_exec_findings all = {.spans = spans};
    hn_finding *whole = NULL, *part = NULL;
    int whole_count = 0, part_count = 0, phase = main_phase(r), n = 0;
    hn_span *phase_spans = phase >= 0 ? hn_exec_spans(r, phase) : NULL;
    bool good = diagnose(spans, r->track_count, &whole, &whole_count) && (phase < 0 || phase_spans) &&
                (phase < 0 || diagnose(phase_spans, r->track_count, &part, &part_count));
    if (good && phase >= 0) {
        all.phase = r->phases.names[phase];
        all.items = hn_calloc((size_t)(whole_count + part_count) + 1, sizeof *all.items);
        good = all.items != NULL;
        // Card by card, the bound first; a phase that bound nothing leaves none to say.
        for (int d = 0; d < r->track_count && good; d++) {
            for (int i = 0; i < part_count; i++)
                if (part[i].span == d && hn_diagnosis_rows[part[i].what].bound) all.items[n++] = part[i];
            for (int i = 0; i < whole_count; i++)
                if (whole[i].span == d && !hn_diagnosis_rows[whole[i].what].bound) all.items[n++] = whole[i];
        }
        all.count = n;
        hn_free(whole);
    } else {
        all.items = whole;
        all.count = whole_count;
    }
    hn_free(part);
    hn_free(phase_spans);
    if (good) *out_findings = all;
    return good;
}

static bool same_finding(const hn_finding *a, const hn_finding *b) {
    return a->what == b->what && strcmp(a->reason, b->reason) == 0;
}

bool hn_exec_finding_title(const hn_exec_findings *all, int at, hn_str *out) {
    const hn_finding *f = &all->items[at];
    const char *gap = "";
    for (int k = 0; k < at; k++)
        if (same_finding(f, &all->items[k])) return false;
    for (int k = at; k < all->count; k++) {
        char label[64];
        if (!same_finding(f, &all->items[k])) continue;
        hn_str_printf(out, "%s%s", gap, hn_device_label(&all->spans[all->items[k].span].info, label, sizeof label));
        gap = ", ";
    }
    const char *words = hn_diagnosis_rows[f->what].words;
    hn_str_append(out, ": ");
    if (all->phase && hn_diagnosis_rows[f->what].bound) hn_str_printf(out, HN_SAY("%s in phase '%s'"), words, all->phase);
    else if (f->reason[0]) hn_str_printf(out, HN_SAY("%s (%s)"), words, f->reason);
    else hn_str_append(out, words);
    return true;
}

// Cards that share a finding share its lines; the evidence is the first one's.
static void findings_text(const hn_exec_result *r, const hn_span *spans, hn_str *out) {
    hn_exec_findings all;
    if (!hn_exec_findings_make(r, spans, &all)) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < all.count; i++) {
        hn_str title = {0};
        if (hn_exec_finding_title(&all, i, &title))
            hn_str_printf(out, "  %s: %s\n    %s\n", hn_str_get(&title), all.items[i].evidence, all.items[i].remedy);
        hn_str_free(&title);
    }
    hn_free(all.items);
}

static void share_cell(hn_str *out, double ratio) {
    if (isnan(ratio)) hn_str_append(out, "      -");
    else hn_str_printf(out, " %5.0f%%", 100 * ratio);
}

static void figure_cell(hn_str *out, double value, const char *format) {
    if (isnan(value)) hn_str_append(out, "          -");
    else hn_str_printf(out, format, value);
}

static void phases_text(const hn_exec_result *r, hn_str *out) {
    if (r->phases.count == 0) return;
    hn_str_printf(out, "  %-14s %9s %10s %10s %6s %6s %6s %6s %10s %10s  %s\n",
                  r->phases.found ? "phase (found)" : "phase", "seconds", "J", "mean W", "SM", "tensor", "DRAM", "idle",
                  "units", "units/J", "bound");
    for (int i = 0; i < r->phases.count; i++) {
        hn_exec_phase p;
        if (!hn_exec_phase_make(r, i, &p)) {
            out->failed = true;
            return;
        }
        hn_str_printf(out, "  %-14.14s %9.1f", p.name, p.seconds);
        figure_cell(out, p.totals.joules, " %10.1f");
        figure_cell(out, p.totals.watts, " %10.1f");
        share_cell(out, p.sm_active);
        share_cell(out, p.tensor_active);
        share_cell(out, p.dram_active);
        share_cell(out, p.idle_share);
        figure_cell(out, p.totals.units, " %10.6g");
        figure_cell(out, 1 / p.totals.joules_per_unit, " %10.4g");
        hn_str_printf(out, "  %s\n", p.bound < 0 ? "-" : hn_diagnosis_rows[p.bound].words);
    }
}

static void process_text(const hn_exec_request *request, const hn_exec_result *r, hn_str *out) {
    double cpu = r->user_seconds + r->system_seconds;
    if (r->exit_status < 0) { // a recording
        hn_str_printf(out, "hone: %s: %.3f s\n", request->argv[0], r->seconds);
        return;
    }
    hn_str_printf(out, "hone: %s ", request->argv[0]);
    if (r->signal) hn_str_printf(out, "was ended by signal %d (SIG%s)", r->signal, sigabbrev_np(r->signal));
    else hn_str_printf(out, "ended with status %d", r->exit_status);
    hn_str_printf(out, " after %.3f s; CPU time %.3f s (%.3f user, %.3f system), %.2f CPUs; ", r->seconds, cpu,
                  r->user_seconds, r->system_seconds, r->seconds > 0 ? cpu / r->seconds : 0);
    hn_str_append(out, "memory at most ");
    if (r->peak_tree_bytes >= 0) add_bytes(out, (double)r->peak_tree_bytes), hn_str_append(out, " in all, ");
    add_bytes(out, (double)r->peak_process_bytes);
    hn_str_append(out, " in one process\n");
}

void hn_exec_text(const hn_exec_request *request, const hn_exec_result *r, const hn_exec_totals *t,
                  hn_str *out) {
    hn_span *spans = hn_exec_spans(r, -1);
    if (!spans) {
        out->failed = true;
        return;
    }
    process_text(request, r, out);
    for (int i = 0; i < r->track_count; i++) {
        const hn_span *s = &spans[i];
        bool told = !isnan(s->energy.joules) || s->info.kind != HN_DEVICE_HOST || s->stuck;
        if (told) device_text(s, out);
    }
    if (t->devices > 1)
        hn_str_printf(out, "  %d cards together: %.1f J, mean %.1f W%s\n", t->devices, t->joules, t->watts,
                      t->complete ? "" : " (not all of every card)");
    findings_text(r, spans, out);
    phases_text(r, out);
    hn_free(spans);
    if (isnan(t->units)) {
        if (request && request->progress) hn_str_append(out, "  no line of the output matched --progress\n");
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

static json_t *marks_json(const hn_span *s) {
    json_t *out = json_object();
    for (size_t i = 0; i < hn_goal_count; i++) {
        double mean = hn_span_mean(s, hn_goals[i].metric);
        json_object_set_new(out, hn_metric_rows[hn_goals[i].metric].token,
                            isnan(mean) ? json_null() : json_pack("{s:f,s:f,s:b}", "mean", mean, "goal", hn_goals[i].ratio,
                                                                  "met", mean >= hn_goals[i].ratio));
    }
    return out;
}

static json_t *device_json(const hn_span *s, int64_t start_ns) {
    char label[64];
    json_t *out = json_object();
    json_object_set_new(out, "device", json_string(hn_device_label(&s->info, label, sizeof label)));
    json_object_set_new(out, "name", s->info.name[0] ? json_string(s->info.name) : json_null());
    json_object_set_new(out, "uuid", s->info.uuid[0] ? json_string(s->info.uuid) : json_null());
    json_object_set_new(out, "samples", json_integer(s->samples));
    json_object_set_new(out, "seconds", json_real(hn_span_seconds(s)));
    json_object_set_new(out, "first_seconds", json_real((double)(s->first_ns - start_ns) * 1e-9));
    json_object_set_new(out, "last_seconds", json_real((double)(s->last_ns - start_ns) * 1e-9));
    json_object_set_new(out, "marks", marks_json(s));
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

static json_t *findings_json(const hn_exec_result *r, const hn_span *spans) {
    json_t *out = json_array();
    hn_exec_findings all;
    if (!spans || !hn_exec_findings_make(r, spans, &all)) {
        json_decref(out);
        return NULL;
    }
    for (int i = 0; i < all.count; i++) {
        const hn_finding *f = &all.items[i];
        char label[64];
        json_t *item = json_object();
        json_object_set_new(item, "class", json_string(hn_diagnosis_rows[f->what].token));
        json_object_set_new(item, "words", json_string(hn_diagnosis_rows[f->what].words));
        json_object_set_new(item, "bound", json_boolean(hn_diagnosis_rows[f->what].bound));
        json_object_set_new(item, "reason", f->reason[0] ? json_string(f->reason) : json_null());
        json_object_set_new(item, "device", json_string(hn_device_label(&spans[f->span].info, label, sizeof label)));
        bool part = all.phase && hn_diagnosis_rows[f->what].bound;
        json_object_set_new(item, "phase", part ? json_string(all.phase) : json_null());
        json_object_set_new(item, "weight", json_real(f->weight));
        json_object_set_new(item, "evidence", json_string(f->evidence));
        json_object_set_new(item, "remedy", json_string(f->remedy));
        json_array_append_new(out, item);
    }
    hn_free(all.items);
    return out;
}

static json_t *phase_json(const hn_exec_result *r, int phase) {
    hn_exec_phase p;
    if (!hn_exec_phase_make(r, phase, &p)) return NULL;
    json_t *out = json_object(), *stretches = json_array();
    for (int i = 0; i < r->phases.stretch_count; i++) {
        const hn_phase_stretch *s = &r->phases.stretches[i];
        if (s->phase == phase) json_array_append_new(stretches, json_pack("[f,f]", s->from_s, s->to_s));
    }
    json_object_set_new(out, "name", json_string(p.name));
    json_object_set_new(out, "seconds", json_real(p.seconds));
    json_object_set_new(out, "stretches", stretches);
    json_object_set_new(out, "joules", number(p.totals.joules));
    json_object_set_new(out, "mean_power_w", number(p.totals.watts));
    json_object_set_new(out, "sm_active", number(p.sm_active));
    json_object_set_new(out, "tensor_active", number(p.tensor_active));
    json_object_set_new(out, "dram_active", number(p.dram_active));
    json_object_set_new(out, "idle_share", number(p.idle_share));
    json_object_set_new(out, "units", number(p.totals.units));
    json_object_set_new(out, "units_per_joule", number(1 / p.totals.joules_per_unit));
    json_object_set_new(out, "bound", p.bound < 0 ? json_null() : json_string(hn_diagnosis_rows[p.bound].token));
    return out;
}

static json_t *phases_json(const hn_exec_result *r) {
    json_t *items = json_array();
    for (int i = 0; i < r->phases.count; i++) json_array_append_new(items, phase_json(r, i));
    return items;
}

json_t *hn_exec_json(const hn_exec_request *request, const hn_exec_result *r, const hn_exec_totals *t,
                     const char *source) {
    json_t *out = json_object(), *command = json_array(), *devices = json_array(), *total = json_object();
    hn_span *spans = hn_exec_spans(r, -1);
    int count = spans ? r->track_count : 0;
    for (size_t i = 0; request->argv[i]; i++) {
        json_t *word = json_string(request->argv[i]);
        json_array_append_new(command, word ? word : json_string("(not UTF-8)"));
    }
    for (int i = 0; i < count; i++) json_array_append_new(devices, device_json(&spans[i], r->start_ns));
    json_object_set_new(total, "joules", number(t->joules));
    json_object_set_new(total, "mean_power_w", number(t->watts));
    json_object_set_new(total, "devices", json_integer(t->devices));
    json_object_set_new(total, "complete", json_boolean(t->devices && t->complete));
    json_object_set_new(out, "command", command);
    json_object_set_new(out, "start_wall_ns", json_integer(r->start_wall_ns));
    json_object_set_new(out, "exit_status", r->exit_status >= 0 ? json_integer(r->exit_status) : json_null());
    json_object_set_new(out, "signal", r->signal ? json_integer(r->signal) : json_null());
    json_object_set_new(out, "seconds", json_real(r->seconds));
    json_object_set_new(out, "user_seconds", number(r->user_seconds));
    json_object_set_new(out, "system_seconds", number(r->system_seconds));
    json_object_set_new(out, "own_cpu_seconds", number(r->own_cpu_seconds));
    json_object_set_new(out, "peak_process_bytes", bytes_json((double)r->peak_process_bytes));
    json_object_set_new(out, "peak_tree_bytes", bytes_json((double)r->peak_tree_bytes));
    json_object_set_new(out, "source", source ? json_string(source) : json_null());
    json_object_set_new(out, "telemetry_stuck", json_boolean(r->stuck));
    json_object_set_new(out, "devices", devices);
    json_object_set_new(out, "total", total);
    json_object_set_new(out, "findings", findings_json(r, spans));
    json_object_set_new(out, "phases", phases_json(r));
    json_object_set_new(out, "phases_found", json_boolean(r->phases.found));
    json_object_set_new(out, "units", number(t->units));
    json_object_set_new(out, "units_per_second", number(t->units_per_second));
    json_object_set_new(out, "joules_per_unit", number(t->joules_per_unit));
    json_object_set_new(out, "units_per_joule", number(1 / t->joules_per_unit));
    hn_free(spans);
    return out;
}
