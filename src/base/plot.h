// SPDX-License-Identifier: Apache-2.0
// Plots in HTML pages (html.h): lines over time or another axis, and bars. Inline SVG for the drawing, text
// as HTML over it, so that letters keep their size on every screen; without script.
//
// Figures that are not finite are gaps, never 0.
#ifndef HN_BASE_PLOT_H
#define HN_BASE_PLOT_H
#include <stddef.h>
#include "base/str.h"

#define HN_PLOT_COLOURS 8 // of series and bars: 0 to 7

typedef struct hn_plot_point {
    double x, y;
    double low, high; // band around the line (least and most within the point); NAN: none
} hn_plot_point;

typedef struct hn_plot_series {
    const char *name; // for the key; "" is not named
    const hn_plot_point *points; // by rising x
    size_t count;
    int colour;
    bool filled; // the area below the line too
} hn_plot_series;

typedef struct hn_plot_stretch { // shaded part of the x axis
    double from, to;
    const char *name;
    int shade; // 0 to 5; -1 = none, the name alone
} hn_plot_stretch;

typedef struct hn_plot_rule { // horizontal line: a goal, a limit
    double y;
    const char *name;
} hn_plot_rule;

typedef enum hn_plot_axis { HN_PLOT_NUMBER, HN_PLOT_TIME } hn_plot_axis; // TIME: seconds, shown as 1:30

typedef struct hn_plot {
    const char *title, *unit; // of y
    hn_plot_axis x_axis;
    double x_min, x_max, y_min, y_max; // NAN: what the points need (y_max rounded up)
    double max_gap;                    // points further apart are not joined; 0 = always joined
    const hn_plot_series *series;
    size_t series_count;
    const hn_plot_stretch *stretches;
    size_t stretch_count;
    const hn_plot_rule *rules;
    size_t rule_count;
} hn_plot;

// Plots beside each other where there is room: begin, plots, end.
void hn_plot_grid_begin(hn_str *out);
void hn_plot_html(hn_str *out, const hn_plot *plot); // a plot without any point says so
void hn_plot_grid_end(hn_str *out);

typedef struct hn_bar {
    const char *name;
    double value;
    double low, high; // interval, NAN: none
    const char *text; // what stands behind the bar; NULL: the value
    int colour;
} hn_bar;
typedef struct hn_bars {
    const char *title, *unit;
    double max;  // length of the longest bar, NAN: the largest value
    double mark; // a line across all bars (1.0 for speed-ups, a goal), NAN: none
    const hn_bar *bars;
    size_t count;
} hn_bars;
void hn_bars_html(hn_str *out, const hn_bars *bars);

// A step that divides `range` into at most `most` parts with round numbers (1, 2, 2.5, 5 x 10^n).
double hn_plot_step(double range, int most);
// Short text of a value for axes and tables: 3 to 4 digits, k, M and G above 10,000; "-" if not finite.
#define HN_PLOT_TEXT_BYTES 32
const char *hn_plot_text(double value, char out[HN_PLOT_TEXT_BYTES]);
#endif
