// SPDX-License-Identifier: Apache-2.0
// Plots: see plot.h. The drawing is 1000 x 100 units, stretched to whatever room there is; strokes keep
// their width (vector-effect).
#include "base/plot.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/html.h"
#include "base/lang.h"

#define WIDE 1000.0
#define HIGH 100.0

double hn_plot_step(double range, int most) {
    if (!(range > 0) || !isfinite(range) || most < 1) return 1;
    double rough = range / most, unit = pow(10, floor(log10(rough)));
    static const double k_steps[] = {1, 2, 2.5, 5, 10};
    for (size_t i = 0; i < sizeof k_steps / sizeof *k_steps; i++)
        if (k_steps[i] * unit >= rough * (1 - 1e-9)) return k_steps[i] * unit;
    return 10 * unit;
}

const char *hn_plot_text(double value, char out[HN_PLOT_TEXT_BYTES]) {
    static const char *const k_suffix[] = {"", "k", "M", "G", "T"};
    int at = 0;
    if (!isfinite(value)) return snprintf(out, HN_PLOT_TEXT_BYTES, "-"), out;
    double size = fabs(value);
    if (size >= 1e4)
        for (; size >= 1e3 && at < 4; at++) size /= 1e3, value /= 1e3;
    int digits = size >= 100 || value == floor(value) ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.001 ? 4 : -1;
    if (digits < 0) return snprintf(out, HN_PLOT_TEXT_BYTES, "%.3g", value), out;
    snprintf(out, HN_PLOT_TEXT_BYTES, "%.*f", digits, value);
    if (strchr(out, '.')) { // no zeros behind the point
        size_t end = strlen(out);
        while (out[end - 1] == '0') out[--end] = '\0';
        if (out[end - 1] == '.') out[end - 1] = '\0';
    }
    size_t end = strlen(out);
    snprintf(out + end, HN_PLOT_TEXT_BYTES - end, "%s", k_suffix[at]);
    return out;
}

static const char *x_text(hn_plot_axis axis, double x, char out[HN_PLOT_TEXT_BYTES]) {
    if (axis == HN_PLOT_NUMBER) return hn_plot_text(x, out);
    long long tenths = llround(x * 10), s = tenths / 10;
    if (s >= 3600) snprintf(out, HN_PLOT_TEXT_BYTES, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else if (s >= 60) snprintf(out, HN_PLOT_TEXT_BYTES, "%lld:%02lld", s / 60, s % 60);
    else if (tenths % 10) snprintf(out, HN_PLOT_TEXT_BYTES, "%lld.%lld s", s, tenths % 10);
    else snprintf(out, HN_PLOT_TEXT_BYTES, "%lld s", s);
    return out;
}

// Round steps of a clock above a minute.
static double time_step(double range) {
    static const double k_steps[] = {60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};
    if (range <= 300) return hn_plot_step(range, 8);
    for (size_t i = 0; i < sizeof k_steps / sizeof *k_steps; i++)
        if (range / k_steps[i] <= 8) return k_steps[i];
    return 86400 * hn_plot_step(range / 86400, 6);
}

typedef struct frame {
    double x0, x1, y0, y1, step;
} frame;

static double fx(const frame *f, double x) { return fmin(fmax((x - f->x0) / (f->x1 - f->x0), 0), 1); }
static double fy(const frame *f, double y) { return 1 - fmin(fmax((y - f->y0) / (f->y1 - f->y0), 0), 1); }

static bool make_frame(const hn_plot *p, frame *f) {
    double x0 = INFINITY, x1 = -INFINITY, y0 = 0, y1 = -INFINITY;
    for (size_t s = 0; s < p->series_count; s++)
        for (size_t i = 0; i < p->series[s].count; i++) {
            const hn_plot_point *at = &p->series[s].points[i];
            if (!isfinite(at->y) || !isfinite(at->x)) continue;
            x0 = fmin(x0, at->x), x1 = fmax(x1, at->x);
            y0 = fmin(y0, isfinite(at->low) ? fmin(at->low, at->y) : at->y);
            y1 = fmax(y1, isfinite(at->high) ? fmax(at->high, at->y) : at->y);
        }
    if (!(x1 >= x0)) return false;
    for (size_t i = 0; i < p->rule_count; i++) y1 = fmax(y1, p->rules[i].y);
    f->x0 = isfinite(p->x_min) ? p->x_min : x0;
    f->x1 = isfinite(p->x_max) ? p->x_max : x1;
    if (!(f->x1 > f->x0)) f->x1 = f->x0 + 1;
    f->y0 = isfinite(p->y_min) ? p->y_min : y0;
    f->y1 = isfinite(p->y_max) ? p->y_max : y1;
    if (!(f->y1 > f->y0)) f->y1 = f->y0 + 1;
    f->step = hn_plot_step(f->y1 - f->y0, 4);
    if (!isfinite(p->y_max)) f->y1 = ceil(f->y1 / f->step - 1e-9) * f->step;
    if (!isfinite(p->y_min)) f->y0 = floor(f->y0 / f->step + 1e-9) * f->step;
    return true;
}

static bool joined(const hn_plot *p, const hn_plot_point *a, const hn_plot_point *b) {
    return p->max_gap <= 0 || b->x - a->x <= p->max_gap;
}

// One run of points without a gap, as a band, an area and a line.
static void draw_run(hn_str *out, const frame *f, const hn_plot_series *s, size_t from, size_t to) {
    bool band = true;
    for (size_t i = from; i < to; i++) band &= isfinite(s->points[i].low) && isfinite(s->points[i].high);
    if (band || s->filled) {
        hn_str_printf(out, "<path class=\"band\" fill=\"var(--c%d)\" d=\"", s->colour % HN_PLOT_COLOURS);
        for (size_t i = from; i < to; i++)
            hn_str_printf(out, "%c%.1f %.2f", i == from ? 'M' : 'L', WIDE * fx(f, s->points[i].x),
                          HIGH * fy(f, band ? s->points[i].high : s->points[i].y));
        for (size_t i = to; i-- > from;)
            hn_str_printf(out, "L%.1f %.2f", WIDE * fx(f, s->points[i].x),
                          HIGH * fy(f, band && !s->filled ? s->points[i].low : f->y0));
        hn_str_append(out, "Z\"/>");
    }
    hn_str_printf(out, "<path class=\"ln\" stroke=\"var(--c%d)\" d=\"", s->colour % HN_PLOT_COLOURS);
    for (size_t i = from; i < to; i++)
        hn_str_printf(out, "%c%.1f %.2f", i == from ? 'M' : 'L', WIDE * fx(f, s->points[i].x),
                      HIGH * fy(f, s->points[i].y));
    if (to - from == 1) hn_str_append(out, "h1"); // a lone point is seen too
    hn_str_append(out, "\"/>\n");
}

static void draw_series(hn_str *out, const hn_plot *p, const frame *f, const hn_plot_series *s) {
    size_t from = 0;
    while (from < s->count) {
        if (!isfinite(s->points[from].y)) {
            from++;
            continue;
        }
        size_t to = from + 1;
        while (to < s->count && isfinite(s->points[to].y) && joined(p, &s->points[to - 1], &s->points[to])) to++;
        draw_run(out, f, s, from, to);
        from = to;
    }
}

static void draw_stretches(hn_str *out, const hn_plot *p, const frame *f) {
    for (size_t i = 0; i < p->stretch_count; i++) {
        const hn_plot_stretch *s = &p->stretches[i];
        double x = WIDE * fx(f, s->from), w = WIDE * fx(f, s->to) - x;
        if (!(w > 0) || s->shade < 0) continue;
        hn_str_printf(out, "<rect x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"100\" fill=\"var(--p%d)\"><title>", x, w,
                      s->shade % 6);
        hn_html_escape(out, s->name);
        hn_str_append(out, "</title></rect>");
    }
}

static void put_key(hn_str *out, const hn_plot *p) {
    hn_str_append(out, "<div class=\"key\">");
    for (size_t i = 0; i < p->series_count; i++) {
        if (!p->series[i].name[0]) continue;
        hn_str_printf(out, "<span><i style=\"background:var(--c%d)\"></i>", p->series[i].colour % HN_PLOT_COLOURS);
        hn_html_say(out, p->series[i].name);
        hn_str_append(out, "</span>");
    }
    hn_str_append(out, "</div>");
}

static void put_labels(hn_str *out, const hn_plot *p, const frame *f) {
    char text[HN_PLOT_TEXT_BYTES];
    for (double y = f->y0; y <= f->y1 + f->step * 1e-6; y += f->step)
        hn_str_printf(out, "<span class=\"y\" style=\"top:%.1f%%\">%s</span>", 100 * fy(f, y), hn_plot_text(y, text));
    double step = p->x_axis == HN_PLOT_TIME ? time_step(f->x1 - f->x0) : hn_plot_step(f->x1 - f->x0, 6);
    int n = 0;
    for (double x = ceil(f->x0 / step - 1e-9) * step; x <= f->x1 + step * 1e-6; x += step, n++) {
        double at = 100 * fx(f, x);
        hn_str_printf(out, "<span class=\"x%s%s\" style=\"left:%.1f%%\">%s</span>", n % 2 ? " odd" : "",
                      at < 3 ? " first" : at > 95 ? " last" : "", at, x_text(p->x_axis, x, text));
    }
    for (size_t i = 0; i < p->rule_count; i++) {
        if (!(p->rules[i].y >= f->y0 && p->rules[i].y <= f->y1)) continue;
        hn_str_printf(out, "<span class=\"at\" style=\"top:%.1f%%\">", 100 * fy(f, p->rules[i].y));
        hn_html_say(out, p->rules[i].name);
        hn_str_append(out, "</span>");
    }
    for (size_t i = 0; i < p->stretch_count; i++) {
        const hn_plot_stretch *s = &p->stretches[i];
        double left = 100 * fx(f, s->from), width = 100 * fx(f, s->to) - left;
        if (width < 4) continue; // the rectangle's title tells it
        hn_str_printf(out, "<span class=\"ph\" style=\"left:%.1f%%;width:%.1f%%\">", left, width);
        hn_html_escape(out, s->name);
        hn_str_append(out, "</span>");
    }
}

void hn_plot_grid_begin(hn_str *out) { hn_str_append(out, "<div class=\"figs\">\n"); }
void hn_plot_grid_end(hn_str *out) { hn_str_append(out, "</div>\n"); }

static void put_title(hn_str *out, const char *title, const char *unit) {
    hn_str_append(out, "<div class=\"fig\"><div class=\"head\"><h3>");
    hn_html_say(out, title);
    if (unit && unit[0]) {
        hn_str_append(out, " <span class=\"dim\">");
        hn_html_say(out, unit);
        hn_str_append(out, "</span>");
    }
    hn_str_append(out, "</h3>");
}

void hn_plot_html(hn_str *out, const hn_plot *p) {
    frame f;
    put_title(out, p->title, p->unit);
    if (!make_frame(p, &f)) {
        hn_str_append(out, "</div><p class=\"dim\">");
        hn_html_say(out, HN_SAY("not measured"));
        hn_str_append(out, "</p></div>\n");
        return;
    }
    put_key(out, p);
    hn_str_append(out, "</div><div class=\"area\"><svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" role=\"img\" "
                       "aria-label=\"");
    hn_html_say(out, p->title);
    hn_str_append(out, "\">\n");
    draw_stretches(out, p, &f);
    for (double y = f.y0; y <= f.y1 + f.step * 1e-6; y += f.step)
        hn_str_printf(out, "<line class=\"%s\" x1=\"0\" x2=\"1000\" y1=\"%.2f\" y2=\"%.2f\"/>", y == f.y0 ? "axis" : "grid",
                      HIGH * fy(&f, y), HIGH * fy(&f, y));
    for (size_t i = 0; i < p->series_count; i++) draw_series(out, p, &f, &p->series[i]);
    for (size_t i = 0; i < p->rule_count; i++)
        if (p->rules[i].y >= f.y0 && p->rules[i].y <= f.y1)
            hn_str_printf(out, "<line class=\"goal\" x1=\"0\" x2=\"1000\" y1=\"%.2f\" y2=\"%.2f\"/>",
                          HIGH * fy(&f, p->rules[i].y), HIGH * fy(&f, p->rules[i].y));
    hn_str_append(out, "</svg>");
    put_labels(out, p, &f);
    hn_str_append(out, "</div></div>\n");
}

void hn_bars_html(hn_str *out, const hn_bars *b) {
    double max = b->max;
    char text[HN_PLOT_TEXT_BYTES];
    if (!isfinite(max)) {
        max = isfinite(b->mark) ? b->mark : 0;
        for (size_t i = 0; i < b->count; i++) {
            if (isfinite(b->bars[i].value)) max = fmax(max, b->bars[i].value);
            if (isfinite(b->bars[i].high)) max = fmax(max, b->bars[i].high);
        }
    }
    if (!(max > 0)) max = 1;
    put_title(out, b->title, b->unit);
    hn_str_append(out, "</div><div class=\"bars\">\n");
    for (size_t i = 0; i < b->count; i++) {
        const hn_bar *bar = &b->bars[i];
        hn_str_append(out, "<span>");
        hn_html_escape(out, bar->name);
        hn_str_append(out, "</span><div class=\"bar\">");
        if (isfinite(bar->value))
            hn_str_printf(out, "<i style=\"width:%.1f%%;background:var(--c%d)\"></i>",
                          100 * fmin(fmax(bar->value / max, 0), 1), bar->colour % HN_PLOT_COLOURS);
        if (isfinite(bar->low) && isfinite(bar->high)) {
            double low = 100 * fmin(fmax(bar->low / max, 0), 1), high = 100 * fmin(fmax(bar->high / max, 0), 1);
            hn_str_printf(out, "<s style=\"left:%.1f%%;width:%.1f%%\"></s>", low, high - low);
        }
        if (isfinite(b->mark) && b->mark >= 0 && b->mark <= max)
            hn_str_printf(out, "<u style=\"left:%.1f%%\"></u>", 100 * b->mark / max);
        hn_str_append(out, "</div><span>");
        hn_html_say(out, bar->text ? bar->text : hn_plot_text(bar->value, text));
        hn_str_append(out, "</span>\n");
    }
    hn_str_append(out, "</div></div>\n");
}
