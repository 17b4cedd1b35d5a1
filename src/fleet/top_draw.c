// SPDX-License-Identifier: Apache-2.0
// From the model of hone top to cells: see top.h. A card is a list of fields of fixed width that flow into as
// many lines as the terminal's width makes them; where that is too high, each card gets one line.
#include <stdarg.h>
#include "fleet/top.h"

#define WIDTH_MAX  1000
#define HEIGHT_MAX 1000
#define ROWS_MAX   4096 // of a picture without height

typedef struct pen {
    hn_top_grid *grid;
    bool utf8;
    int x, y, left, right; // right: first column that is not written
    uint16_t hit;
} pen;

// ---- cells ------------------------------------------------------------------------------------

void hn_top_grid_free(hn_top_grid *grid) {
    hn_free(grid->cells);
    *grid = (hn_top_grid){0};
}

static bool make_grid(int width, int height, hn_top_grid *out) {
    hn_top_grid g = {.width = width, .height = height};
    g.cells = hn_calloc((size_t)width * (size_t)height + 1, sizeof *g.cells);
    for (int i = 0; g.cells && i < width * height; i++) g.cells[i].text[0] = ' ';
    *out = g;
    return g.cells != NULL;
}

static void put_cell(pen *p, const char *text, size_t bytes, hn_top_style style) {
    if (p->x >= p->left && p->x < p->right && p->x < p->grid->width && p->y >= 0 && p->y < p->grid->height) {
        hn_top_cell *cell = &p->grid->cells[p->y * p->grid->width + p->x];
        memcpy(cell->text, text, bytes);
        cell->text[bytes] = '\0';
        cell->style = (uint8_t)style;
        cell->hit = p->hit;
    }
    p->x++;
}

// Letters of one column are shown, others are '?': a cell is one column on every terminal.
static void put(pen *p, hn_top_style style, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t bytes = *at < 0x80 ? 1 : *at >= 0xc2 && *at < 0xe0 ? 2 : *at >= 0xe0 && *at < 0xf0 ? 3 : *at >= 0xf0 && *at < 0xf5 ? 4 : 1;
        bool whole = true;
        for (size_t i = 1; i < bytes; i++) whole &= (at[i] & 0xc0) == 0x80;
        bool latin = bytes == 2 && whole && *at < 0xcc && !(*at == 0xc2 && at[1] < 0xa0); // up to U+02FF, no controls
        bool own = bytes == 3 && whole && *at == 0xe2; // our bars and dots
        if (bytes == 1 && *at >= 0x20 && *at < 0x7f) put_cell(p, (const char *)at, 1, style);
        else if (p->utf8 && (latin || own)) put_cell(p, (const char *)at, bytes, style);
        else put_cell(p, "?", 1, style);
        for (at++; whole && bytes > 1; bytes--) at++;
    }
}

static void putf(pen *p, hn_top_style style, const char *format, ...) HN_PRINTF(3, 4);
static void putf(pen *p, hn_top_style style, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(p, style, text);
}

static void to_column(pen *p, int x, hn_top_style style) {
    while (p->x < x) put_cell(p, " ", 1, style);
}

static hn_top_style heat(double share, double warn, double bad) {
    return share >= bad ? HN_TOP_BAD : share >= warn ? HN_TOP_WARN : HN_TOP_GOOD;
}

// Eighths of a cell where there are such letters.
static void bar(pen *p, double share, int length, hn_top_style style) {
    static const char *const k_parts[] = {"\xe2\x96\x8f", "\xe2\x96\x8e", "\xe2\x96\x8d", "\xe2\x96\x8c", "\xe2\x96\x8b", "\xe2\x96\x8a", "\xe2\x96\x89", "\xe2\x96\x88"};
    double filled = isnan(share) ? 0 : fmin(fmax(share, 0), 1) * length;
    for (int i = 0; i < length; i++) {
        int eighths = (int)fmin(8, floor((filled - i) * 8 + 0.5));
        if (isnan(share)) put_cell(p, "-", 1, HN_TOP_DIM);
        else if (!p->utf8) put_cell(p, filled - i >= 0.5 ? "|" : ".", 1, filled - i >= 0.5 ? style : HN_TOP_DIM);
        else if (eighths > 0) put_cell(p, k_parts[eighths - 1], 3, style);
        else put_cell(p, "\xc2\xb7", 2, HN_TOP_DIM);
    }
}

static void spark(pen *p, const hn_top_device *d, hn_top_curve curve, int length) {
    static const char *const k_high[] = {"\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84", "\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88"};
    static const char k_ascii[] = "_.-:=+*#";
    for (int i = d->history_count - length; i < d->history_count; i++) {
        double value = i >= 0 ? (double)d->history[curve][i] : NAN;
        int level = isnan(value) ? -1 : (int)fmin(7, fmax(0, floor(value * 8)));
        if (level < 0) put_cell(p, " ", 1, HN_TOP_PLAIN);
        else if (p->utf8) put_cell(p, k_high[level], 3, HN_TOP_BLUE);
        else put_cell(p, k_ascii + level, 1, HN_TOP_BLUE);
    }
}

// ---- fields of a card -------------------------------------------------------------------------

typedef struct view {
    const hn_top_model *m;
    pen *p;
    int bar_length;
    bool compact;
} view;

static double get(const hn_top_device *d, hn_metric metric) { return d->have ? hn_sample_or(&d->sample, metric, NAN) : NAN; }

static void share_field(view *v, const char *name, double share, hn_top_style style) {
    putf(v->p, HN_TOP_DIM, "%-4s ", name);
    bar(v->p, share, v->bar_length, style);
    if (isnan(share)) put(v->p, HN_TOP_DIM, "  n/a");
    else putf(v->p, HN_TOP_PLAIN, " %3.0f%%", 100 * share);
}

static void name_field(view *v, const hn_top_device *d) {
    char label[64], name[64];
    const char *shown = d->info.name;
    if (strncmp(shown, "NVIDIA ", 7) == 0) shown += 7;
    hn_device_label(&d->info, label, sizeof label);
    snprintf(name, sizeof name, "%.14s %.24s", strncmp(label, "gpu ", 4) == 0 ? label + 4 : label, d->info.kind == HN_DEVICE_MIG ? d->info.mig_profile : shown);
    put(v->p, HN_TOP_BOLD, name);
}
static void sm_field(view *v, const hn_top_device *d) {
    double sm = get(d, HN_M_sm_active);
    if (!isnan(sm)) share_field(v, "SM", sm, HN_TOP_GOOD);
    else share_field(v, "GPU", get(d, HN_M_gpu_util) / 100, HN_TOP_GOOD);
}
static void tensor_field(view *v, const hn_top_device *d) { share_field(v, "TC", get(d, HN_M_tensor_active), HN_TOP_BLUE); }
static void dram_field(view *v, const hn_top_device *d) { share_field(v, "DRAM", get(d, HN_M_dram_active), HN_TOP_BLUE); }
static void memory_field(view *v, const hn_top_device *d) {
    double used = get(d, HN_M_fb_used_bytes), total = get(d, HN_M_fb_total_bytes);
    if (isnan(total)) total = d->info.memory_bytes;
    put(v->p, HN_TOP_DIM, "MEM  ");
    bar(v->p, used / total, v->bar_length, heat(used / total, 0.8, 0.95));
    if (isnan(used)) put(v->p, HN_TOP_DIM, " n/a");
    else putf(v->p, HN_TOP_PLAIN, " %5.1f", used / 0x1p30);
    if (!isnan(total)) putf(v->p, HN_TOP_PLAIN, "/%.0fG", total / 0x1p30);
}
static void power_field(view *v, const hn_top_device *d) {
    double watts = get(d, HN_M_power_w), limit = get(d, HN_M_power_limit_w);
    static const char *const k_names[] = {"PWR", "SM", "MEM"}; // what the curve shows
    if (!v->compact) putf(v->p, HN_TOP_DIM, "%-4s ", k_names[v->m->curve]);
    spark(v->p, d, v->m->curve, v->bar_length);
    if (isnan(watts)) put(v->p, HN_TOP_DIM, "   n/a");
    else putf(v->p, heat(watts / limit, 0.97, 1.05) == HN_TOP_GOOD ? HN_TOP_PLAIN : HN_TOP_WARN, " %4.0f", watts);
    if (!isnan(limit)) putf(v->p, HN_TOP_PLAIN, "/%.0fW", limit);
    else if (!isnan(watts)) put(v->p, HN_TOP_PLAIN, "W");
}
static void clock_field(view *v, const hn_top_device *d) {
    double sm = get(d, HN_M_sm_clock_mhz), mem = get(d, HN_M_mem_clock_mhz);
    if (isnan(sm)) put(v->p, HN_TOP_DIM, "clock n/a");
    else putf(v->p, HN_TOP_PLAIN, "%4.0f MHz", sm);
    if (!isnan(mem) && !v->compact) putf(v->p, HN_TOP_DIM, " mem %.0f", mem);
}
static void temp_field(view *v, const hn_top_device *d) {
    double chip = get(d, HN_M_gpu_temp_c), mem = get(d, HN_M_mem_temp_c), slow = d->info.temp_slowdown_c;
    const char *unit = v->p->utf8 ? "\xc2\xb0" "C" : "C";
    if (isnan(chip)) {
        put(v->p, HN_TOP_DIM, "temp n/a");
        return;
    }
    if (!(slow > 0)) slow = 90;
    putf(v->p, heat(chip, slow - 10, slow - 2) == HN_TOP_GOOD ? HN_TOP_PLAIN : heat(chip, slow - 10, slow - 2), "%3.0f%s", chip, unit);
    if (!isnan(mem) && !v->compact) putf(v->p, HN_TOP_DIM, " mem %.0f%s", mem, unit);
}
static void link_field(view *v, const hn_top_device *d) {
    double rx = get(d, HN_M_pcie_rx_bytes_s), tx = get(d, HN_M_pcie_tx_bytes_s);
    if (isnan(rx) || isnan(tx)) put(v->p, HN_TOP_DIM, "PCIe n/a");
    else putf(v->p, HN_TOP_DIM, "PCIe in %.1f out %.1f GB/s", rx * 1e-9, tx * 1e-9);
}
static void energy_field(view *v, const hn_top_device *d) {
    double j = d->energy.joules;
    if (isnan(j)) put(v->p, HN_TOP_DIM, "J n/a");
    else if (j >= 3.6e6) putf(v->p, HN_TOP_DIM, "%.2f kWh", j / 3.6e6);
    else if (j >= 1e4) putf(v->p, HN_TOP_DIM, "%.1f kJ", j / 1e3);
    else putf(v->p, HN_TOP_DIM, "%.0f J", j);
}
static void reason_field(view *v, const hn_top_device *d) {
    char words[128];
    double bits = get(d, HN_M_reasons);
    if (isnan(bits)) return;
    hn_reasons_text((uint64_t)bits, words, sizeof words);
    hn_top_style style = (uint64_t)bits & HN_REASON_FAULTS ? HN_TOP_BAD : (uint64_t)bits & HN_REASON_POWER_CAP ? HN_TOP_WARN : HN_TOP_DIM;
    put(v->p, style, words);
}

typedef struct field {
    void (*draw)(view *v, const hn_top_device *d);
    int width;      // without the bar
    bool has_bar;
    int compact;    // width on one line, 0 = not there
    hn_metric metric, other; // shown where some card has one of them; HN_METRIC_COUNT: always
} field;
static const field k_fields[] = {
    {name_field, 22, false, 12, HN_METRIC_COUNT, HN_METRIC_COUNT},
    {sm_field, 10, true, 10, HN_METRIC_COUNT, HN_METRIC_COUNT},
    {tensor_field, 10, true, 10, HN_M_tensor_active, HN_METRIC_COUNT},
    {dram_field, 10, true, 10, HN_M_dram_active, HN_METRIC_COUNT},
    {memory_field, 16, true, 16, HN_METRIC_COUNT, HN_METRIC_COUNT},
    {power_field, 16, true, 11, HN_METRIC_COUNT, HN_METRIC_COUNT},
    {clock_field, 17, false, 9, HN_METRIC_COUNT, HN_METRIC_COUNT},
    {temp_field, 15, false, 6, HN_METRIC_COUNT, HN_METRIC_COUNT},
    {link_field, 27, false, 0, HN_M_pcie_rx_bytes_s, HN_METRIC_COUNT},
    {energy_field, 9, false, 0, HN_METRIC_COUNT, HN_METRIC_COUNT},
    {reason_field, 20, false, 12, HN_M_reasons, HN_METRIC_COUNT},
};

static bool shown(const hn_top_model *m, const field *f) {
    if (f->metric == HN_METRIC_COUNT) return true;
    for (int i = 0; i < m->device_count; i++)
        if (!isnan(get(&m->devices[i], f->metric))) return true;
    return false;
}

static void state_line(view *v, const hn_top_device *d) {
    const hn_sampler_status *s = &d->status;
    pen *p = v->p;
    if (s->state == HN_SAMPLER_LOST) put(p, HN_TOP_BAD, "fell off the bus");
    else if (s->state == HN_SAMPLER_STARTING) put(p, HN_TOP_DIM, "no reading yet");
    else if (s->state == HN_SAMPLER_ENDED) put(p, HN_TOP_DIM, "the recording is over");
    else if (s->age_ns >= 0) putf(p, HN_TOP_BAD, "no answer for %.0f s", (double)s->age_ns * 1e-9);
    else put(p, HN_TOP_BAD, "no answer");
    if (s->why[0] && s->state != HN_SAMPLER_ENDED) putf(p, HN_TOP_DIM, ": %s", s->why);
}

// Draws a card from line y on and returns how many lines it took. y < 0: only counts them.
static int draw_card(view *v, const hn_top_device *d, int y) {
    pen *p = v->p;
    int width = p->right, x = 0, line = 0, indent = v->compact ? 0 : 2;
    bool well = d->status.state == HN_SAMPLER_OK || (d->status.state == HN_SAMPLER_ENDED && d->have);
    for (size_t i = 0; i < HN_COUNT_OF(k_fields); i++) {
        const field *f = &k_fields[i];
        int base = v->compact ? f->compact : f->width, need = base ? base + (f->has_bar ? v->bar_length : 0) : 0;
        if (need == 0 || !shown(v->m, f) || (!well && i > 0)) continue;
        if (x > 0 && x + need > width) {
            if (v->compact) break;
            line++;
            x = indent;
        }
        if (y >= 0) {
            p->y = y + line;
            p->x = x;
            int right = p->right;
            if (x + need < width && i + 1 < HN_COUNT_OF(k_fields)) p->right = x + need; // the last one may be longer
            f->draw(v, d);
            p->right = right;
        }
        x += need + (v->compact ? 1 : 2);
    }
    if (!well && y >= 0) {
        p->y = y;
        p->x = x < width ? x : 2;
        state_line(v, d);
    }
    return line + 1;
}

static void draw_host(view *v, const hn_top_device *d, int y) {
    pen *p = v->p;
    double total = get(d, HN_M_host_mem_total_bytes), free_bytes = get(d, HN_M_host_mem_available_bytes);
    p->y = y, p->x = 0;
    put(p, HN_TOP_BOLD, "host ");
    share_field(v, "CPU", get(d, HN_M_cpu_util) / 100, HN_TOP_GOOD);
    if (!isnan(get(d, HN_M_cpu_busiest))) putf(p, HN_TOP_DIM, "  busiest %3.0f%%", get(d, HN_M_cpu_busiest));
    if (!isnan(total)) putf(p, HN_TOP_DIM, "  memory %.1f/%.0fG", (total - free_bytes) / 0x1p30, total / 0x1p30);
    if (!isnan(get(d, HN_M_load1))) putf(p, HN_TOP_DIM, "  load %.1f", get(d, HN_M_load1));
    if (!isnan(d->energy.joules)) putf(p, HN_TOP_DIM, "  CPUs %.0f J", d->energy.joules);
}

// ---- the head ---------------------------------------------------------------------------------

static void draw_head(const hn_top_model *m, pen *p) {
    double watts = 0, limit = 0;
    int cards = 0, read = 0;
    for (int i = 0; i < m->device_count; i++) {
        const hn_top_device *d = &m->devices[i];
        cards += d->info.kind == HN_DEVICE_GPU;
        if (d->info.kind != HN_DEVICE_GPU || d->status.state != HN_SAMPLER_OK || isnan(get(d, HN_M_power_w))) continue;
        watts += get(d, HN_M_power_w);
        limit += get(d, HN_M_power_limit_w);
        read++;
    }
    p->y = p->x = 0;
    char right[64];
    snprintf(right, sizeof right, "%s%s", m->paused ? "paused " : "", m->clock);
    int column = p->grid->width - (int)strlen(right) - 1;
    putf(p, HN_TOP_HEAD, " hone top  %d %s", cards, cards == 1 ? "card" : "cards");
    if (p->x > column) column = p->grid->width;
    // What does not fit whole is left out.
    char pieces[3][160] = {"", "", ""};
    if (read && limit > 0) snprintf(pieces[0], sizeof pieces[0], "  %.0f W of %.0f", watts, limit);
    else if (read) snprintf(pieces[0], sizeof pieces[0], "  %.0f W", watts);
    snprintf(pieces[1], sizeof pieces[1], "  %s", m->source);
    if (m->device_count && m->devices[0].info.driver[0])
        snprintf(pieces[2], sizeof pieces[2], "  driver %s", m->devices[0].info.driver);
    for (int i = 0; i < 3; i++)
        if (p->x + (int)strlen(pieces[i]) < column) put(p, HN_TOP_HEAD, pieces[i]);
    to_column(p, column, HN_TOP_HEAD);
    if (column < p->grid->width) putf(p, HN_TOP_HEAD, "%s ", right);
    to_column(p, p->grid->width, HN_TOP_HEAD);
}

// ---- processes --------------------------------------------------------------------------------

typedef struct column {
    const char *name;
    int width;     // 0: the rest
    int from;      // least width of the terminal at which it is shown
    int sort;      // hn_top_sort, -1 none
    bool right;
} column;
static const column k_columns[] = {
    {"GPU", 4, 0, HN_TOP_SORT_CARD, false}, {"PID", 8, 0, HN_TOP_SORT_PID, true},   {"USER", 10, 64, HN_TOP_SORT_USER, false},
    {"TYPE", 5, 90, -1, false},             {"SM%", 5, 50, HN_TOP_SORT_SM, true},   {"MEM", 9, 0, HN_TOP_SORT_MEMORY, true},
    {"ENERGY", 9, 76, -1, true},            {"JOB", 14, 100, -1, false},            {"COMMAND", 0, 0, HN_TOP_SORT_NAME, false},
};

static void cell_text(const hn_top_model *m, const hn_top_process *q, size_t c, char out[160]) {
    const hn_process *at = &q->at.process;
    const hn_top_device *d = &m->devices[q->device];
    const hn_job_of_pid *job = &q->at.job;
    char label[64];
    out[0] = '\0';
    switch (c) {
    case 0: hn_device_label(&d->info, label, sizeof label); snprintf(out, 160, "%s", strncmp(label, "gpu ", 4) == 0 ? label + 4 : label); break;
    case 1: snprintf(out, 160, "%lld", (long long)at->pid); break;
    case 2: snprintf(out, 160, "%s", q->user[0] ? q->user : "-"); break;
    case 3: snprintf(out, 160, "%s%s", at->type & HN_PROCESS_COMPUTE ? "C" : "", at->type & HN_PROCESS_GRAPHICS ? "G" : ""); break;
    case 4: snprintf(out, 160, isnan(at->sm_util) ? "-" : "%.0f", at->sm_util); break;
    case 5: snprintf(out, 160, at->used_bytes < 0 ? "-" : "%.0fM", (double)at->used_bytes / 0x1p20); break;
    case 6: snprintf(out, 160, q->shared ? "shared" : isnan(q->joules) ? "-" : q->joules >= 1e4 ? "%.1f kJ" : "%.0f J", q->joules >= 1e4 ? q->joules / 1e3 : q->joules); break;
    case 7:
        if (job->slurm_job[0]) snprintf(out, 160, "slurm %s", job->slurm_job);
        else if (job->pod[0]) snprintf(out, 160, "%s", job->pod);
        else if (job->hone_job) snprintf(out, 160, "hone %lld", (long long)job->hone_job);
        else snprintf(out, 160, "-");
        break;
    default: snprintf(out, 160, "%s", at->name[0] ? at->name : "-");
    }
}

static void draw_columns(const hn_top_model *m, pen *p, const hn_top_process *q, hn_top_style style) {
    int width = p->grid->width;
    p->x = 0;
    for (size_t c = 0; c < HN_COUNT_OF(k_columns); c++) {
        const column *col = &k_columns[c];
        char text[160];
        if (width < col->from) continue;
        int room = col->width ? col->width : width - p->x, end = p->x + room, right = p->right;
        if (q) cell_text(m, q, c, text);
        else snprintf(text, sizeof text, "%s%s", col->name, col->sort != (int)m->sort ? "" : !p->utf8 ? m->reverse ? "^" : "v"
                      : m->reverse ? "\xe2\x96\xb2" : "\xe2\x96\xbc");
        p->hit = q ? p->hit : col->sort >= 0 ? (uint16_t)(HN_TOP_HIT_SORT + col->sort) : 0;
        if (col->right) {
            int columns = 0; // not bytes
            for (const char *at = text; *at; at++) columns += (*at & 0xc0) != 0x80;
            to_column(p, end - 1 - (columns < room ? columns : room - 1), style);
        }
        p->right = end < right ? end : right;
        put(p, style, text);
        p->right = right;
        p->x = p->x < end ? p->x : end;
        to_column(p, end, style);
    }
}

static void draw_processes(const hn_top_model *m, pen *p, int y, int lines) {
    bool told = false;
    for (int i = 0; i < m->device_count; i++) told |= m->devices[i].processes >= 0;
    if (lines <= 0) return;
    p->y = y;
    draw_columns(m, p, NULL, HN_TOP_HEAD);
    p->hit = 0;
    if (m->process_count == 0) {
        p->y = y + 1, p->x = 1;
        if (lines > 1) put(p, HN_TOP_DIM, told ? "no process on these cards" : "processes are not listed by this source");
        return;
    }
    int chosen = -1, first = 0;
    for (int i = 0; i < m->process_count; i++)
        if (m->chosen_pid && m->processes[i].at.process.pid == m->chosen_pid && m->processes[i].device == m->chosen_device) chosen = i;
    if (chosen >= lines - 1) first = chosen - lines + 2;
    for (int i = first; i < m->process_count && i - first < lines - 1; i++) {
        p->y = y + 1 + i - first;
        p->hit = (uint16_t)(HN_TOP_HIT_ROW + i);
        draw_columns(m, p, &m->processes[i], i == chosen ? HN_TOP_CHOSEN : HN_TOP_PLAIN);
    }
    p->hit = 0;
}

// ---- help and keys ----------------------------------------------------------------------------

static const char *const k_help[] = {
    "F1 h ?    this help                  F10 q     quit",
    "F2 c      one line a card            F4 g      curve: power, SM, memory",
    "F5 space  pause                      + -       faster, slower",
    "F6 s      sort by the next column    i         reverse the order",
    "M P N     by memory, SM, pid         arrows    choose a process, scroll cards",
    "F9 k      end the chosen process (only with --kill)",
    "",
    "SM     SM cycles with a resident warp     TC    tensor pipes     DRAM  memory interface",
    "PWR    curve of power by its limit        J     joules since hone top began",
    "The words at a card's end say what holds its clocks down.",
};

static void draw_help(pen *p, int y, int lines) {
    for (int i = 0; i < (int)HN_COUNT_OF(k_help) && i < lines; i++) {
        p->y = y + i, p->x = 1;
        put(p, HN_TOP_PLAIN, k_help[i]);
    }
}

static void draw_keys(const hn_top_model *m, pen *p) {
    static const struct { int n; const char *name; } k_keys[] = {
        {1, "Help"}, {2, "Compact"}, {4, "Curve"}, {5, "Pause"}, {6, "Sort"}, {9, "Kill"}, {10, "Quit"}};
    p->y = p->grid->height - 1;
    p->x = 0;
    if (m->message[0]) {
        putf(p, HN_TOP_WARN, " %s", m->message);
        return;
    }
    for (size_t i = 0; i < HN_COUNT_OF(k_keys); i++) {
        if (p->grid->width < 56 && (k_keys[i].n == 2 || k_keys[i].n == 4 || k_keys[i].n == 9)) continue;
        p->hit = (uint16_t)(HN_TOP_HIT_KEY + k_keys[i].n);
        putf(p, HN_TOP_BOLD, "F%d", k_keys[i].n);
        putf(p, HN_TOP_KEY, "%-6s", k_keys[i].name);
        p->hit = 0;
        put(p, HN_TOP_PLAIN, " ");
    }
}

// ---- all of it --------------------------------------------------------------------------------

// On one line a card has bars where there is room left for some.
static int compact_bar(const hn_top_model *m, int width) {
    int used = 0, bars = 0;
    for (size_t i = 0; i < HN_COUNT_OF(k_fields); i++) {
        if (!k_fields[i].compact || !shown(m, &k_fields[i])) continue;
        used += k_fields[i].compact + 1;
        bars += k_fields[i].has_bar;
    }
    int each = bars ? (width - used) / bars : 0;
    return each < 3 ? 0 : each > 16 ? 16 : each;
}

static int bar_length(int width) { return width >= 150 ? 18 : width >= 120 ? 14 : width >= 96 ? 12 : width >= 60 ? 10 : 8; }

bool hn_top_draw(const hn_top_model *m, const hn_top_look *look, hn_top_grid *out_grid) {
    int width = look->width < 0 ? 0 : look->width > WIDTH_MAX ? WIDTH_MAX : look->width;
    int height = look->height < 0 ? 0 : look->height > HEIGHT_MAX ? HEIGHT_MAX : look->height;
    bool whole = look->height == 0;
    hn_top_grid grid;
    if (!make_grid(width, whole ? ROWS_MAX : height, &grid)) return false;
    pen p = {.grid = &grid, .utf8 = look->utf8, .right = width};
    view v = {.m = m, .p = &p, .bar_length = bar_length(width), .compact = m->compact};
    int cards = 0, host = -1, each = 1;
    for (int i = 0; i < m->device_count; i++) {
        if (m->devices[i].info.kind == HN_DEVICE_HOST) host = i;
        else cards++, each = (int)fmax(each, draw_card(&v, &m->devices[i], -1));
    }
    int keep = m->process_count + 1 < 6 ? m->process_count + 1 : 6, room = height - 2 - (host >= 0) - keep; // lines for cards
    if (!whole && !v.compact && cards * each > room) v.compact = true;
    if (v.compact) v.bar_length = compact_bar(m, width);
    draw_head(m, &p);
    int y = 1, first = cards > 0 && m->first_card < cards ? m->first_card : 0, skipped = 0, n = 0;
    if (v.compact && room >= cards) first = 0;
    for (int i = 0; i < m->device_count; i++) {
        if (m->devices[i].info.kind == HN_DEVICE_HOST || n++ < first) continue;
        if (!whole && v.compact && y > (room > 1 ? room : 1)) {
            skipped++;
            continue;
        }
        y += draw_card(&v, &m->devices[i], y);
    }
    if (skipped) {
        p.y = y++, p.x = 1;
        putf(&p, HN_TOP_DIM, "%d more (right, left)", skipped);
    }
    v.compact = false;
    v.bar_length = bar_length(width);
    if (host >= 0) draw_host(&v, &m->devices[host], y++);
    int lines = whole ? m->process_count + 2 : height - 1 - y;
    if (m->help) draw_help(&p, y, lines);
    else draw_processes(m, &p, y, lines);
    if (!whole) draw_keys(m, &p);
    if (whole) grid.height = y + (m->process_count ? m->process_count + 1 : 2);
    *out_grid = grid;
    return true;
}
