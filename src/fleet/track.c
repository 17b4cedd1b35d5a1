// SPDX-License-Identifier: Apache-2.0
// Tracks and phases: see track.h.
#include "fleet/track.h"
#include <stdio.h>

void hn_phase_list_init(hn_phase_list *list) {
    memset(list, 0, sizeof *list);
    list->now = -1;
    list->units_before = NAN;
}

static int find(hn_phase_list *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (strncmp(list->names[i], name, HN_PHASE_BYTES - 1) == 0) return i;
    if (list->count == HN_PHASES_MAX) return HN_PHASES_MAX - 1;
    int at = list->count++;
    snprintf(list->names[at], HN_PHASE_BYTES, "%s", at == HN_PHASES_MAX - 1 ? "others" : name);
    list->units[at] = NAN;
    return at;
}

void hn_phase_list_end(hn_phase_list *list, double now_s, double units) {
    if (list->now < 0) return;
    int phase = list->now;
    list->seconds[phase] += now_s - list->since_s;
    if (!isnan(units)) {
        double gained = units - (isnan(list->units_before) ? 0 : list->units_before);
        list->units[phase] = (isnan(list->units[phase]) ? 0 : list->units[phase]) + gained;
    }
    if (list->stretch_count < HN_STRETCHES_MAX)
        list->stretches[list->stretch_count++] = (hn_phase_stretch){phase, list->since_s, now_s};
    list->now = -1;
}

int hn_phase_list_begin(hn_phase_list *list, const char *name, double now_s, double units) {
    int phase = find(list, name);
    if (phase == list->now) return phase;
    hn_phase_list_end(list, now_s, units);
    list->now = phase;
    list->since_s = now_s;
    list->units_before = units;
    return phase;
}

hn_track *hn_track_new(const hn_device_info *info, int64_t period_ns) {
    hn_track *t = hn_calloc(1, sizeof *t);
    if (!t) return NULL;
    hn_span_start(&t->span, info);
    hn_series_start(&t->series, period_ns);
    t->phase = t->next_phase = -1;
    return t;
}

hn_track *hn_track_copy(const hn_track *track) {
    hn_track *t = hn_malloc(sizeof *t);
    if (!t) return NULL;
    *t = *track;
    for (int i = 0; i < HN_PHASES_MAX; i++) {
        if (!track->phases[i]) continue;
        t->phases[i] = hn_malloc(sizeof *t->phases[i]);
        if (t->phases[i]) *t->phases[i] = *track->phases[i];
        else t->failed = true;
    }
    return t;
}

void hn_track_free(hn_track *track) {
    for (int i = 0; track && i < HN_PHASES_MAX; i++) hn_free(track->phases[i]);
    hn_free(track);
}

static void end_stretch(hn_track *t) {
    if (t->phase < 0) return;
    hn_span **into = &t->phases[t->phase];
    if (!*into) {
        *into = hn_malloc(sizeof **into);
        if (*into) hn_span_start(*into, &t->span.info);
        else t->failed = true;
    }
    if (*into) hn_span_join(*into, &t->stretch);
}

void hn_track_phase(hn_track *track, int phase) { track->next_phase = phase; }

void hn_track_add(hn_track *t, const hn_sample *sample) {
    hn_span_add(&t->span, sample);
    hn_series_add(&t->series, sample);
    if (t->phase >= 0) hn_span_add(&t->stretch, sample);
    if (t->next_phase == t->phase) return;
    // It stands for the time before it, so it ends the old stretch; the new one counts from here.
    end_stretch(t);
    t->phase = t->next_phase;
    hn_span_start(&t->stretch, &t->span.info);
    if (t->phase >= 0) hn_span_add(&t->stretch, sample);
}

void hn_track_end(hn_track *t) {
    end_stretch(t);
    t->phase = t->next_phase = -1;
}
