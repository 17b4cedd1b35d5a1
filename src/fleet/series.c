// SPDX-License-Identifier: Apache-2.0
// Series: see series.h.
#include "fleet/series.h"

typedef struct column_row {
    int metric; // -1: reason bits
    uint64_t bits;
    const char *words;
} column_row;
static const column_row k_columns[HN_SERIES_COLUMNS] = {
#define HN_SERIES_METRIC(token) {HN_M_##token, 0, ""},
#define HN_SERIES_REASON(token, bits, words) {-1, bits, words},
#include "fleet/series.def"
#undef HN_SERIES_METRIC
#undef HN_SERIES_REASON
};

void hn_series_start(hn_series *series, int64_t width_ns) {
    memset(series, 0, sizeof *series);
    series->width_ns = width_ns > 0 ? width_ns : 1;
}

static void join_cells(hn_series_cell *into, const hn_series_cell *a, const hn_series_cell *b) {
    hn_series_cell c = a->weight_s > 0 ? *a : *b;
    if (a->weight_s > 0 && b->weight_s > 0) {
        c.sum += b->sum;
        c.weight_s += b->weight_s;
        c.low = fminf(a->low, b->low);
        c.high = fmaxf(a->high, b->high);
    }
    *into = c;
}

static void halve(hn_series *s) {
    for (int c = 0; c < HN_SERIES_COLUMNS; c++) {
        hn_series_cell *cells = s->cells[c];
        for (int i = 0; i < HN_SERIES_POINTS / 2; i++) join_cells(&cells[i], &cells[2 * i], &cells[2 * i + 1]);
        memset(cells + HN_SERIES_POINTS / 2, 0, HN_SERIES_POINTS / 2 * sizeof *cells);
    }
    s->count = (s->count + 1) / 2;
    s->width_ns *= 2;
}

void hn_series_add(hn_series *s, const hn_sample *sample) {
    if (!s->any) {
        s->any = true;
        s->start_ns = s->last_ns = sample->t_ns;
        return; // a gauge stands for the time before it: there is none yet
    }
    if (sample->t_ns <= s->last_ns) return;
    float weight = (float)((double)(sample->t_ns - s->last_ns) * 1e-9);
    // The middle of the time it stands for; a longer silence is not filled with its end.
    int64_t step_ns = sample->t_ns - s->last_ns, at_ns = sample->t_ns - (step_ns < 2 * s->width_ns ? step_ns / 2 : 0);
    while ((at_ns - s->start_ns) / s->width_ns >= HN_SERIES_POINTS) halve(s);
    int point = (int)((at_ns - s->start_ns) / s->width_ns);
    s->last_ns = sample->t_ns;
    if (point >= s->count) s->count = point + 1;
    for (int c = 0; c < HN_SERIES_COLUMNS; c++) {
        const column_row *row = &k_columns[c];
        hn_metric metric = row->metric >= 0 ? (hn_metric)row->metric : HN_M_reasons;
        if (!hn_sample_has(sample, metric)) continue;
        double value = sample->value[metric];
        if (row->metric < 0) value = ((uint64_t)value & row->bits) != 0;
        hn_series_cell *cell = &s->cells[c][point];
        if (cell->weight_s <= 0 || value < cell->low) cell->low = (float)value;
        if (cell->weight_s <= 0 || value > cell->high) cell->high = (float)value;
        cell->sum += (float)value * weight;
        cell->weight_s += weight;
    }
}

bool hn_series_has(const hn_series *s, hn_series_column column) {
    for (int i = 0; i < s->count; i++)
        if (s->cells[column][i].weight_s > 0) return true;
    return false;
}

double hn_series_mean(const hn_series *s, hn_series_column column, int point) {
    const hn_series_cell *cell = &s->cells[column][point];
    return cell->weight_s > 0 ? (double)cell->sum / (double)cell->weight_s : NAN;
}

const char *hn_series_reason_words(hn_series_column column) { return k_columns[column].words; }
