// SPDX-License-Identifier: Apache-2.0
// Phases by activity: see segment.h. Neighbours are merged from the bottom up: first what is shorter than a phase
// can be, then what looks alike.
#include "fleet/segment.h"
#include <stdio.h>

#define FEATURES     5
#define ALIKE        0.12 // distance of mean features (0 to 1 each) below which two parts are one phase
#define SHORTEST_S   2.0  // shorter parts belong to their neighbours: steps and pauses of one loop
#define SHORTEST     0.02 // of the run
#define IDLE_ACTIVE  0.02
#define LINK_FULL    50e9 // bytes a second that count as 1
#define LABELS_MAX   12

typedef struct segment {
    int from, to; // points
    double mean[FEATURES], active;
} segment;

typedef struct points {
    int count;
    double seconds; // of one point
    double (*features)[FEATURES]; // owned
    double *active;               // owned: share of time with a kernel
} points;

static double known(double value) { return isnan(value) ? 0 : value; }

static void add_point(const hn_track *t, int i, double *features, double *active) {
    const hn_series *s = &t->series;
    double limit = hn_span_max(&t->span, HN_M_power_limit_w);
    if (!(limit > 0)) limit = fmax(hn_span_max(&t->span, HN_M_power_w), 1);
    double util = known(hn_series_mean(s, HN_S_gpu_util, i)) / 100, gr = hn_series_mean(s, HN_S_gr_active, i);
    double sm = hn_series_mean(s, HN_S_sm_active, i);
    features[0] += known(hn_series_mean(s, HN_S_power_w, i)) / limit;
    features[1] += isnan(sm) ? util : sm;
    features[2] += known(hn_series_mean(s, HN_S_tensor_active, i));
    features[3] += known(hn_series_mean(s, HN_S_dram_active, i));
    features[4] += (known(hn_series_mean(s, HN_S_pcie_rx_bytes_s, i)) + known(hn_series_mean(s, HN_S_pcie_tx_bytes_s, i))) / LINK_FULL;
    *active += fmax(isnan(gr) ? util : gr, isnan(sm) ? 0 : sm);
}

static bool make_points(hn_track *const *tracks, int count, points *p) {
    int cards = 0;
    *p = (points){0};
    for (int d = 0; d < count; d++) {
        if (tracks[d]->span.info.kind != HN_DEVICE_GPU) continue;
        const hn_series *s = &tracks[d]->series;
        // Series of one job have one width but where a card was lost; the shortest decides.
        if (!cards || s->count < p->count) p->count = s->count, p->seconds = (double)s->width_ns * 1e-9;
        cards++;
    }
    p->features = hn_calloc((size_t)p->count + 1, sizeof *p->features);
    p->active = hn_calloc((size_t)p->count + 1, sizeof *p->active);
    if (!p->features || !p->active) return false;
    for (int i = 0; i < p->count; i++) {
        for (int d = 0; d < count; d++)
            if (tracks[d]->span.info.kind == HN_DEVICE_GPU) add_point(tracks[d], i, p->features[i], &p->active[i]);
        for (int f = 0; f < FEATURES; f++) p->features[i][f] /= cards;
        p->active[i] /= cards;
    }
    return true;
}

static double distance(const segment *a, const segment *b) {
    double sum = 0;
    for (int f = 0; f < FEATURES; f++) sum += (a->mean[f] - b->mean[f]) * (a->mean[f] - b->mean[f]);
    return sqrt(sum);
}

static void merge(segment *into, const segment *other) {
    double a = into->to - into->from, b = other->to - other->from;
    for (int f = 0; f < FEATURES; f++) into->mean[f] = (a * into->mean[f] + b * other->mean[f]) / (a + b);
    into->active = (a * into->active + b * other->active) / (a + b);
}

// Merges the best pair of neighbours that `may` allows; false where there is none.
static bool merge_best(segment *all, int *count, int shortest) {
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i + 1 < *count; i++) {
        double a = all[i].to - all[i].from, b = all[i + 1].to - all[i + 1].from, d = distance(&all[i], &all[i + 1]);
        if (shortest > 0 ? a >= shortest && b >= shortest : d >= ALIKE) continue;
        double cost = shortest > 0 ? a * b / (a + b) * d * d : d;
        if (cost < least) least = cost, best = i;
    }
    if (best < 0) return false;
    merge(&all[best], &all[best + 1]);
    all[best].to = all[best + 1].to;
    memmove(all + best + 1, all + best + 2, (size_t)(*count - best - 2) * sizeof *all);
    (*count)--;
    return true;
}

// The phase of a segment among those that were seen; -1: idle.
static int label_of(const segment *at, segment *labels, int *label_count) {
    if (at->active < IDLE_ACTIVE && at->mean[4] < 0.02) return -1;
    int best = -1;
    for (int i = 0; i < *label_count; i++)
        if (best < 0 || distance(at, &labels[i]) < distance(at, &labels[best])) best = i;
    if (best >= 0 && (distance(at, &labels[best]) < ALIKE || *label_count == LABELS_MAX)) {
        int length = at->to - at->from;
        merge(&labels[best], at);
        labels[best].to += length;
        return best;
    }
    labels[*label_count] = *at;
    return (*label_count)++;
}

static const struct { hn_series_column column; hn_metric metric; } k_kept[] = {
#define HN_SERIES_METRIC(token) {HN_S_##token, HN_M_##token},
#define HN_SERIES_REASON(...)
#include "fleet/series.def"
#undef HN_SERIES_METRIC
#undef HN_SERIES_REASON
};
static const struct { hn_series_column column; int bit; } k_reasons[] = {
    {HN_S_held_power, 2}, {HN_S_held_thermal, 5}, {HN_S_held_brake, 7}, {HN_S_held_other, 4}};

// What the points of a segment say, as a span.
static void fill_span(const hn_track *t, const segment *at, hn_span *span) {
    const hn_series *s = &t->series;
    int to = at->to < s->count ? at->to : s->count;
    int64_t step_ns = s->width_ns;
    span->first_ns = s->start_ns + at->from * step_ns;
    span->last_ns = s->start_ns + to * step_ns;
    for (int i = at->from; i < to; i++) {
        double gr = hn_series_mean(s, HN_S_gr_active, i), util = hn_series_mean(s, HN_S_gpu_util, i) / 100;
        double active = isnan(gr) ? util : gr, power = hn_series_mean(s, HN_S_power_w, i);
        double traffic = known(hn_series_mean(s, HN_S_pcie_rx_bytes_s, i)) + known(hn_series_mean(s, HN_S_pcie_tx_bytes_s, i));
        bool idle = active < 0.01 && traffic < 1e9;
        span->samples++;
        if (!isnan(active)) span->judged_ns += step_ns, span->idle_ns += idle ? step_ns : 0;
        if (!isnan(power)) {
            span->energy.joules = (span->energy.method ? span->energy.joules : 0) + power * (double)step_ns * 1e-9;
            span->energy.method = HN_ENERGY_POWER;
            span->energy.covered_ns += step_ns;
        }
        for (size_t k = 0; k < HN_COUNT_OF(k_kept); k++) {
            const hn_series_cell *cell = &s->cells[k_kept[k].column][i];
            hn_span_metric *m = &span->metrics[k_kept[k].metric];
            if (!(cell->weight_s > 0)) continue;
            m->max = m->any ? fmax(m->max, cell->high) : cell->high;
            m->any = true;
            m->sum += cell->sum, m->weight_s += cell->weight_s;
            if (!idle) m->busy_sum += cell->sum, m->busy_weight_s += cell->weight_s;
            m->last = cell->sum / cell->weight_s;
        }
        for (size_t k = 0; k < HN_COUNT_OF(k_reasons); k++) {
            double share = hn_series_mean(s, k_reasons[k].column, i);
            if (!isnan(share)) span->reason_ns[k_reasons[k].bit] += (int64_t)(share * (double)step_ns);
            if (k == 0 && !isnan(share)) span->reason_known_ns += step_ns;
        }
    }
    // What does not change is the whole job's.
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        if (!span->metrics[m].any && (m == HN_M_fb_total_bytes || m == HN_M_pcie_gen || m == HN_M_pcie_width || m == HN_M_fb_reserved_bytes))
            span->metrics[m] = t->span.metrics[m];
}

static bool add_spans(hn_track *const *tracks, int count, const segment *at, int phase) {
    hn_span *part = hn_malloc(sizeof *part);
    bool good = part != NULL;
    for (int d = 0; d < count && good; d++) {
        hn_span **into = &tracks[d]->phases[phase];
        hn_span_start(part, &tracks[d]->span.info);
        fill_span(tracks[d], at, part);
        if (!*into && (*into = hn_malloc(sizeof **into))) hn_span_start(*into, &tracks[d]->span.info);
        good = *into != NULL;
        if (good) hn_span_join(*into, part);
    }
    hn_free(part);
    return good;
}

bool hn_segments_find(hn_track *const *tracks, int count, int64_t start_ns, hn_phase_list *phases) {
    points p;
    bool good = make_points(tracks, count, &p);
    segment *all = good ? hn_calloc((size_t)p.count + 1, sizeof *all) : NULL, labels[LABELS_MAX];
    good = all != NULL;
    int segments = good ? p.count : 0, label_count = 0;
    for (int i = 0; i < segments; i++) {
        all[i] = (segment){.from = i, .to = i + 1, .active = p.active[i]};
        memcpy(all[i].mean, p.features[i], sizeof all[i].mean);
    }
    double shortest_s = fmax(SHORTEST_S, SHORTEST * p.count * p.seconds);
    while (segments > 1 && merge_best(all, &segments, (int)ceil(shortest_s / fmax(p.seconds, 1e-9)))) {}
    while (segments > 1 && merge_best(all, &segments, 0)) {}
    double shift_s = 0;
    for (int d = count - 1; d >= 0; d--)
        if (tracks[d]->span.info.kind == HN_DEVICE_GPU) shift_s = (double)(tracks[d]->series.start_ns - start_ns) * 1e-9;
    for (int i = 0; i < segments && segments > 1 && good; i++) {
        char name[32] = "idle";
        int label = label_of(&all[i], labels, &label_count);
        if (label >= 0) snprintf(name, sizeof name, "load %d", label + 1);
        int phase = hn_phase_list_begin(phases, name, shift_s + all[i].from * p.seconds, NAN);
        good = add_spans(tracks, count, &all[i], phase);
    }
    if (segments > 1 && good) hn_phase_list_end(phases, shift_s + p.count * p.seconds, NAN);
    phases->found = phases->count > 0;
    hn_free(all);
    hn_free(p.features);
    hn_free(p.active);
    return good;
}
