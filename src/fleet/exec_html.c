// SPDX-License-Identifier: Apache-2.0
// The report of a measured command as a page: see exec_report.h. Plots come from the tracks' series; up to
// CARDS_DRAWN cards get a line each, more are drawn as their mean.
#include <stdio.h>
#include <time.h>
#include "base/html.h"
#include "base/lang.h"
#include "base/plot.h"
#include "fleet/exec_report.h"

#define CARDS_DRAWN  8
#define POINTS_DRAWN 360
#define LINES_MAX    (CARDS_DRAWN * 3)

typedef struct page {
    hn_str *out;
    const hn_exec_result *r;
    const hn_span *spans;
    const hn_track *cards[CARDS_DRAWN], *host;
    int card_count; // drawn
    char labels[CARDS_DRAWN][64];
    double x_min, x_max;
    hn_plot_stretch stretches[HN_STRETCHES_MAX];
    hn_plot_point (*points)[POINTS_DRAWN]; // owned, LINES_MAX
    hn_plot_series lines[LINES_MAX];
    int line_count;
} page;

// ---- text pieces ------------------------------------------------------------------------------

static const char *figure(char out[64], double value, const char *unit) {
    char number[HN_PLOT_TEXT_BYTES];
    snprintf(out, 64, "%s%s%s", hn_plot_text(value, number), unit[0] && isfinite(value) ? " " : "", isfinite(value) ? unit : "");
    return out;
}
static const char *share(char out[64], double ratio) { return figure(out, isfinite(ratio) ? round(1000 * ratio) / 10 : NAN, "%"); }
static const char *bytes(char out[64], double value) {
    if (!(value >= 0)) return snprintf(out, 64, "-"), out;
    if (value >= 0x1p30) snprintf(out, 64, "%.1f GiB", value / 0x1p30);
    else snprintf(out, 64, "%.1f MiB", value / 0x1p20);
    return out;
}
static const char *duration(char out[64], double s) {
    if (!(s >= 0)) snprintf(out, 64, "-");
    else if (s < 100) snprintf(out, 64, "%.1f s", s);
    else if (s < 3600) snprintf(out, 64, "%d min %02d s", (int)s / 60, (int)s % 60);
    else snprintf(out, 64, "%d h %02d min", (int)(s / 3600), (int)s / 60 % 60);
    return out;
}

// ---- plots ------------------------------------------------------------------------------------

static void begin_lines(page *p) { p->line_count = 0; }

// A column of a track as a line, thinned to what a screen shows.
static void add_line(page *p, const hn_track *t, hn_series_column column, const char *name, double scale, int colour, bool band,
                     bool filled) {
    const hn_series *s = &t->series;
    if (p->line_count == LINES_MAX || !hn_series_has(s, column)) return;
    hn_plot_point *points = p->points[p->line_count];
    int stride = (s->count + POINTS_DRAWN - 1) / POINTS_DRAWN, n = 0;
    for (int i = 0; i < s->count; i += stride) {
        double sum = 0, weight = 0, low = INFINITY, high = -INFINITY;
        for (int k = i; k < i + stride && k < s->count; k++) {
            const hn_series_cell *cell = &s->cells[column][k];
            if (!(cell->weight_s > 0)) continue;
            sum += cell->sum, weight += cell->weight_s;
            low = fmin(low, cell->low), high = fmax(high, cell->high);
        }
        int64_t at_ns = s->start_ns - p->r->start_ns + (int64_t)((i + stride / 2.0) * (double)s->width_ns);
        points[n++] = (hn_plot_point){(double)at_ns * 1e-9, weight > 0 ? sum / weight * scale : NAN,
                                      band ? low * scale : NAN, band ? high * scale : NAN};
    }
    p->lines[p->line_count++] = (hn_plot_series){name, points, (size_t)n, colour, filled};
}

static void add_cards(page *p, hn_series_column column, double scale) {
    for (int i = 0; i < p->card_count; i++)
        add_line(p, p->cards[i], column, p->card_count > 1 ? p->labels[i] : "", scale, i, p->card_count == 1, false);
}

static void put_plot(page *p, const char *title, const char *unit, double y_max, double rule, const char *rule_name) {
    if (p->line_count == 0) return;
    double gap = 0;
    for (int i = 0; i < p->line_count; i++)
        if (p->lines[i].count > 1)
            gap = fmax(gap, 4 * (p->lines[i].points[p->lines[i].count - 1].x - p->lines[i].points[0].x) / (double)p->lines[i].count);
    hn_plot_rule rules[] = {{rule, rule_name}};
    hn_plot plot = {.title = title, .unit = unit, .x_axis = HN_PLOT_TIME, .x_min = p->x_min, .x_max = p->x_max, .y_min = 0,
                    .y_max = y_max, .max_gap = gap, .series = p->lines, .series_count = (size_t)p->line_count,
                    .stretches = p->stretches, .stretch_count = (size_t)p->r->phases.stretch_count,
                    .rules = rules, .rule_count = isfinite(rule)};
    hn_plot_html(p->out, &plot);
}

static void power_plots(page *p) {
    double limit = hn_span_max(&p->cards[0]->span, HN_M_power_limit_w), clock = p->cards[0]->span.info.max_sm_clock_mhz;
    double total = hn_span_max(&p->cards[0]->span, HN_M_fb_total_bytes), slow = p->cards[0]->span.info.temp_slowdown_c;
    begin_lines(p);
    add_cards(p, HN_S_power_w, 1);
    put_plot(p, "Power", "W", NAN, limit, "limit");
    begin_lines(p);
    add_cards(p, HN_S_sm_clock_mhz, 1);
    put_plot(p, "SM clock", "MHz", NAN, clock, "highest");
    begin_lines(p);
    add_cards(p, HN_S_fb_used_bytes, 0x1p-30);
    put_plot(p, "Memory in use", "GiB", NAN, total * 0x1p-30, "card");
    begin_lines(p);
    if (p->card_count == 1) {
        add_line(p, p->cards[0], HN_S_gpu_temp_c, "chip", 1, 1, false, false);
        add_line(p, p->cards[0], HN_S_mem_temp_c, "memory", 1, 3, false, false);
    } else {
        add_cards(p, HN_S_gpu_temp_c, 1);
    }
    put_plot(p, "Temperature", "°C", NAN, slow, "slows down");
}

static void activity_plots(page *p) {
    begin_lines(p);
    if (p->card_count == 1) {
        add_line(p, p->cards[0], HN_S_sm_active, "SM", 100, 0, false, false);
        add_line(p, p->cards[0], HN_S_tensor_active, "tensor", 100, 3, false, false);
        add_line(p, p->cards[0], HN_S_dram_active, "DRAM", 100, 2, false, false);
        if (p->line_count == 0) add_line(p, p->cards[0], HN_S_gpu_util, "in use (driver's figure)", 1, 7, false, false);
        put_plot(p, "Activity", "%", 100, hn_span_mean(&p->cards[0]->span, HN_M_sm_active) >= 0 ? 85 : NAN, "goal SM");
        return;
    }
    add_cards(p, HN_S_sm_active, 100);
    put_plot(p, "SM active", "%", 100, 85, "goal");
    begin_lines(p);
    add_cards(p, HN_S_tensor_active, 100);
    put_plot(p, "Tensor pipes", "%", 100, NAN, "");
    begin_lines(p);
    add_cards(p, HN_S_dram_active, 100);
    put_plot(p, "DRAM", "%", 100, 90, "goal");
    begin_lines(p);
    bool activity = hn_series_has(&p->cards[0]->series, HN_S_sm_active);
    if (!activity) add_cards(p, HN_S_gpu_util, 1);
    put_plot(p, "In use (driver's figure)", "%", 100, NAN, "");
}

static void link_plots(page *p) {
    begin_lines(p);
    for (int i = 0; i < p->card_count && p->card_count <= 2; i++) {
        char *label = p->labels[i];
        add_line(p, p->cards[i], HN_S_pcie_rx_bytes_s, p->card_count > 1 ? label : "to the card", 1e-9, 2 * i, false, false);
        add_line(p, p->cards[i], HN_S_pcie_tx_bytes_s, p->card_count > 1 ? "" : "from the card", 1e-9, 2 * i + 1, false, false);
    }
    if (p->card_count > 2) add_cards(p, HN_S_pcie_rx_bytes_s, 1e-9);
    put_plot(p, p->card_count > 2 ? "Host link, to the card" : "Host link", "GB/s", NAN, NAN, "");
    begin_lines(p);
    if (hn_span_max(&p->cards[0]->span, HN_M_nvlink_tx_bytes_s) > 0) add_cards(p, HN_S_nvlink_tx_bytes_s, 1e-9);
    put_plot(p, "NVLink, sent", "GB/s", NAN, NAN, "");
}

// Reasons that held some card back for some time; the first such card's where several are drawn.
static void throttle_plot(page *p) {
    static const hn_series_column k_held[] = {HN_S_held_power, HN_S_held_thermal, HN_S_held_brake, HN_S_held_other};
    static const int k_colours[] = {0, 1, 3, 4};
    const hn_track *shown = NULL;
    for (int i = 0; i < p->card_count && !shown; i++)
        for (size_t c = 0; c < HN_COUNT_OF(k_held) && !shown; c++)
            for (int k = 0; k < p->cards[i]->series.count && !shown; k++)
                if (hn_series_mean(&p->cards[i]->series, k_held[c], k) > 0) shown = p->cards[i];
    if (!shown) return;
    begin_lines(p);
    for (size_t c = 0; c < HN_COUNT_OF(k_held); c++) {
        bool any = false;
        for (int k = 0; k < shown->series.count; k++) any |= hn_series_mean(&shown->series, k_held[c], k) > 0;
        if (any) add_line(p, shown, k_held[c], hn_series_reason_words(k_held[c]), 100, k_colours[c], false, true);
    }
    char label[64], title[96];
    snprintf(title, sizeof title, p->card_count > 1 ? "Clocks held down, %s" : "Clocks held down",
             hn_device_label(&shown->span.info, label, sizeof label));
    put_plot(p, title, "% of time", 100, NAN, "");
}

static void host_plot(page *p) {
    if (!p->host) return;
    begin_lines(p);
    add_line(p, p->host, HN_S_cpu_util, "all CPUs", 1, 0, false, false);
    add_line(p, p->host, HN_S_cpu_busiest, "busiest CPU", 1, 1, false, false);
    put_plot(p, "Host CPUs", "%", 100, NAN, "");
}

// ---- parts of the page ------------------------------------------------------------------------

static double mean_of(const page *p, hn_metric metric) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < p->r->track_count; i++) {
        double value = p->spans[i].info.kind == HN_DEVICE_GPU ? hn_span_mean(&p->spans[i], metric) : NAN;
        if (!isnan(value)) sum += value, n++;
    }
    return n ? sum / n : NAN;
}

static void tiles(page *p, const hn_exec_totals *t) {
    char a[64], b[64], c[160];
    hn_str *out = p->out;
    hn_html_tiles_begin(out);
    hn_html_tile(out, "duration", duration(a, p->r->seconds), NULL);
    if (isfinite(t->joules)) {
        char whole[HN_LANG_BYTES];
        snprintf(c, sizeof c, "%s, %s", figure(b, t->joules / 3600, "Wh"),
                 hn_lang_text(t->complete ? HN_SAY("whole run") : HN_SAY("not all of every card"), whole));
        hn_html_tile(out, "energy", figure(a, t->joules, "J"), c);
        hn_html_tile(out, "mean power", figure(a, t->watts, "W"), t->devices > 1 ? "all cards together" : NULL);
    }
    for (size_t i = 0; i < hn_goal_count; i++) {
        double mean = mean_of(p, hn_goals[i].metric);
        if (isnan(mean)) continue;
        snprintf(c, sizeof c, "goal %.0f %%%s", 100 * hn_goals[i].ratio, mean >= hn_goals[i].ratio ? ": met \xe2\x9c\x93" : "");
        hn_html_tile(out, hn_goals[i].words, share(a, mean), c);
    }
    if (!isnan(mean_of(p, HN_M_tensor_active))) hn_html_tile(out, "tensor pipes", share(a, mean_of(p, HN_M_tensor_active)), NULL);
    double peak = NAN, total = NAN;
    for (int i = 0; i < p->r->track_count; i++) {
        double used = hn_span_max(&p->spans[i], HN_M_fb_used_bytes);
        if (used >= 0 && !(used <= peak)) peak = used, total = hn_span_max(&p->spans[i], HN_M_fb_total_bytes);
    }
    if (!isnan(peak)) {
        snprintf(c, sizeof c, "of %s", bytes(b, total));
        hn_html_tile(out, "card memory at most", bytes(a, peak), c);
    }
    if (isfinite(t->units)) {
        snprintf(c, sizeof c, "%s a second", figure(b, t->units_per_second, ""));
        hn_html_tile(out, "units of work", figure(a, t->units, ""), c);
        if (isfinite(t->joules_per_unit)) {
            snprintf(c, sizeof c, "%s J a unit", figure(b, t->joules_per_unit, ""));
            hn_html_tile(out, "units a joule", figure(a, 1 / t->joules_per_unit, ""), c);
        }
    }
    hn_html_tiles_end(out);
}

static void findings(page *p) {
    hn_exec_findings all;
    if (!hn_exec_findings_make(p->r, p->spans, &all)) {
        p->out->failed = true;
        return;
    }
    bool cards = p->card_count > 0;
    if (cards) hn_html_section(p->out, "What bound it", NULL);
    for (int i = 0; i < all.count; i++) {
        hn_str title = {0}, text = {0};
        const hn_finding *f = &all.items[i];
        const char *kind = f->what == HN_DIAG_throttled || f->what == HN_DIAG_memory ? "bad" : f->what == HN_DIAG_compute ? "good"
                           : hn_diagnosis_rows[f->what].bound ? "warn" : "info";
        if (hn_exec_finding_title(&all, i, &title)) {
            hn_str_printf(&text, "What to do: %s", f->remedy);
            hn_html_note(p->out, kind, hn_str_get(&title), f->evidence, hn_str_get(&text));
        }
        p->out->failed |= title.failed || text.failed;
        hn_str_free(&title);
        hn_str_free(&text);
    }
    if (cards && all.count == 0)
        hn_html_note(p->out, "info", "No single limit", "None of the bounds weighs enough, or the readings that would tell are missing.", NULL);
    hn_free(all.items);
}

static void energy_table(page *p) {
    static const char *const k_names[] = {"=device", ">J", ">Wh", ">mean W", ">peak W", "counted by", ">covered", ">SM", ">idle"};
    enum { N = HN_COUNT_OF(k_names) };
    char cells[N][96], a[64], b[64];
    bool begun = false;
    for (int i = 0; i < p->r->track_count; i++) {
        const hn_span *s = &p->spans[i];
        const char *row[N];
        if (s->info.kind == HN_DEVICE_HOST && isnan(s->energy.joules)) continue;
        if (!begun) {
            hn_html_section(p->out, "Energy", NULL);
            hn_html_table_begin(p->out, k_names, N);
            begun = true;
        }
        snprintf(cells[0], sizeof cells[0], "%s%s%.60s", hn_device_label(&s->info, a, sizeof a), s->info.name[0] ? ", " : "", s->info.name);
        snprintf(cells[1], 96, isfinite(s->energy.joules) ? "%.1f" : "-", s->energy.joules);
        snprintf(cells[2], 96, isfinite(s->energy.joules) ? "%.3f" : "-", s->energy.joules / 3600);
        snprintf(cells[3], 96, "%s", figure(a, hn_span_watts(s), ""));
        snprintf(cells[4], 96, "%s", figure(a, hn_span_max(s, HN_M_power_w), ""));
        snprintf(cells[5], 96, "%s", hn_energy_method_text(s->energy.method));
        snprintf(cells[6], 96, "%s", duration(b, (double)s->energy.covered_ns * 1e-9));
        snprintf(cells[7], 96, "%s", share(a, hn_span_mean(s, HN_M_sm_active)));
        snprintf(cells[8], 96, "%s", share(a, hn_span_idle_share(s)));
        for (int c = 0; c < N; c++) row[c] = cells[c];
        hn_html_row(p->out, k_names, row, N);
    }
    if (begun) hn_html_table_end(p->out);
}

static void phase_table(page *p) {
    static const char *const k_names[] = {"=phase", ">time", ">J", ">mean W", ">SM", ">tensor", ">DRAM", ">idle", ">units", ">units/J", "bound"};
    enum { N = HN_COUNT_OF(k_names) };
    char cells[N][64];
    if (p->r->phases.count == 0) return;
    hn_html_section(p->out, "Phases", p->r->phases.found
                    ? "Found by activity: the command told no phases (HONE_PHASE_FILE, hone phase NAME, --phases REGEX)."
                    : NULL);
    hn_html_table_begin(p->out, k_names, N);
    for (int i = 0; i < p->r->phases.count; i++) {
        hn_exec_phase f;
        const char *row[N];
        if (!hn_exec_phase_make(p->r, i, &f)) {
            p->out->failed = true;
            return;
        }
        snprintf(cells[0], 64, "%s", f.name);
        duration(cells[1], f.seconds);
        snprintf(cells[2], 64, isfinite(f.totals.joules) ? "%.1f" : "-", f.totals.joules);
        figure(cells[3], f.totals.watts, "");
        share(cells[4], f.sm_active);
        share(cells[5], f.tensor_active);
        share(cells[6], f.dram_active);
        share(cells[7], f.idle_share);
        figure(cells[8], f.totals.units, "");
        figure(cells[9], 1 / f.totals.joules_per_unit, "");
        snprintf(cells[10], 64, "%s", f.bound < 0 ? "-" : hn_diagnosis_rows[f.bound].words);
        for (int c = 0; c < N; c++) row[c] = cells[c];
        hn_html_row(p->out, k_names, row, N);
    }
    hn_html_table_end(p->out);
}

static void process_table(page *p) {
    static const char *const k_names[] = {"process", ">figure"};
    const hn_exec_result *r = p->r;
    char a[64];
    if (r->exit_status < 0) return;
    hn_html_section(p->out, "The command", NULL);
    hn_html_table_begin(p->out, k_names, 2);
    snprintf(a, sizeof a, r->signal ? "signal %d" : "%d", r->signal ? r->signal : r->exit_status);
    const char *row[2] = {"exit status", a};
    hn_html_row(p->out, k_names, row, 2);
    row[0] = "CPU time, user and system", snprintf(a, sizeof a, "%.2f s, %.2f s", r->user_seconds, r->system_seconds);
    hn_html_row(p->out, k_names, row, 2);
    row[0] = "CPUs in use, mean", figure(a, r->seconds > 0 ? (r->user_seconds + r->system_seconds) / r->seconds : NAN, "");
    hn_html_row(p->out, k_names, row, 2);
    row[0] = "host memory at most, all its processes", bytes(a, (double)r->peak_tree_bytes);
    hn_html_row(p->out, k_names, row, 2);
    row[0] = "CPU time of measuring", snprintf(a, sizeof a, "%.2f s (%.2f %% of the time)", r->own_cpu_seconds,
                                               r->seconds > 0 ? 100 * r->own_cpu_seconds / r->seconds : 0);
    hn_html_row(p->out, k_names, row, 2);
    hn_html_table_end(p->out);
}

// ---- the page ---------------------------------------------------------------------------------

static void collect(page *p) {
    p->x_min = INFINITY, p->x_max = -INFINITY;
    for (int i = 0; i < p->r->track_count; i++) {
        const hn_track *t = p->r->tracks[i];
        double start_s = (double)(t->series.start_ns - p->r->start_ns) * 1e-9;
        if (t->span.info.kind == HN_DEVICE_HOST) p->host = t;
        if (t->span.info.kind == HN_DEVICE_GPU && p->card_count < CARDS_DRAWN) {
            hn_device_label(&t->span.info, p->labels[p->card_count], sizeof p->labels[0]);
            p->cards[p->card_count++] = t;
        }
        if (!t->series.any) continue;
        p->x_min = fmin(p->x_min, start_s);
        p->x_max = fmax(p->x_max, start_s + t->series.count * (double)t->series.width_ns * 1e-9);
    }
    for (int i = 0; i < p->r->phases.stretch_count; i++) {
        const hn_phase_stretch *s = &p->r->phases.stretches[i];
        p->stretches[i] = (hn_plot_stretch){s->from_s, s->to_s, p->r->phases.names[s->phase], s->phase % 6};
    }
}

static void heading(page *p, const hn_exec_request *request, const char *source, const char *title) {
    hn_str line = {0};
    char when[64];
    time_t start = (time_t)(p->r->start_wall_ns / 1000000000);
    struct tm tm;
    for (size_t i = 0; request->argv[i]; i++) hn_str_printf(&line, "%s%s", i ? " " : "", request->argv[i]);
    hn_html_begin(p->out, title[0] ? title : hn_str_get(&line));
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %Z", gmtime_r(&start, &tm));
    hn_str_append(p->out, "<p class=\"dim\">");
    hn_html_escape(p->out, when);
    for (int i = 0; i < p->card_count; i++) {
        bool again = i > 0 && strcmp(p->cards[i]->span.info.name, p->cards[i - 1]->span.info.name) == 0;
        if (again || !p->cards[i]->span.info.name[0]) continue;
        hn_str_append(p->out, " \xc2\xb7 ");
        hn_html_escape(p->out, p->cards[i]->span.info.name);
    }
    hn_str_append(p->out, " \xc2\xb7 ");
    hn_html_say(p->out, HN_SAY("readings:"));
    hn_str_append(p->out, " ");
    hn_html_say(p->out, source ? source : HN_SAY("none"));
    hn_str_append(p->out, "</p>\n");
    if (title[0]) {
        hn_str_append(p->out, "<p><code>");
        hn_html_escape(p->out, hn_str_get(&line));
        hn_str_append(p->out, "</code></p>\n");
    }
    p->out->failed |= line.failed;
    hn_str_free(&line);
}

void hn_exec_html(const hn_exec_request *request, const hn_exec_result *result, const hn_exec_totals *totals,
                  const char *source, const char *title, hn_str *out) {
    page *p = hn_calloc(1, sizeof *p);
    hn_span *spans = hn_exec_spans(result, -1);
    hn_plot_point(*points)[POINTS_DRAWN] = hn_calloc(LINES_MAX, sizeof *points);
    if (!p || !spans || !points) {
        out->failed = true;
    } else {
        *p = (page){.out = out, .r = result, .spans = spans, .points = points};
        collect(p);
        heading(p, request, source, title);
        tiles(p, totals);
        findings(p);
        if (p->card_count || p->host) {
            char note[160];
            snprintf(note, sizeof note, "Lines are means, the pale band runs from the least to the highest reading.%s",
                     p->card_count == CARDS_DRAWN ? " The first 8 cards are drawn." : "");
            hn_html_section(out, "Over time", note);
            hn_plot_grid_begin(out);
            if (p->card_count) {
                power_plots(p);
                activity_plots(p);
                throttle_plot(p);
                link_plots(p);
            }
            host_plot(p);
            hn_plot_grid_end(out);
        }
        phase_table(p);
        energy_table(p);
        process_table(p);
        hn_str_append(out, "<footer>");
        hn_html_say(out, HN_SAY("Made by hone. Joules by the card's own counter where it has one; the power sensor shows a mean of "
                                "about a second. What could not be read is left out, never shown as 0."));
        hn_str_append(out, "</footer>\n");
        hn_html_end(out);
    }
    hn_free(points);
    hn_free(spans);
    hn_free(p);
}
