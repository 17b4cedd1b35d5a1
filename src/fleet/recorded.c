// SPDX-License-Identifier: Apache-2.0
// Recordings as results: see recorded.h.
#include "fleet/recorded.h"
#include "probe/record.h"
#include "probe/text.h"

typedef struct part {
    double from_s, to_s;
    int64_t first_ns, last_ns;
    bool any;
} part;

static hn_status make_tracks(hone_error *err, const hn_device_info *devices, int count, int64_t period_ns, hn_exec_result *r) {
    r->tracks = hn_calloc((size_t)count + 1, sizeof *r->tracks);
    if (!r->tracks) HN_NOMEM(err, "tracks");
    for (; r->track_count < count; r->track_count++) {
        r->tracks[r->track_count] = hn_track_new(&devices[r->track_count], period_ns);
        if (!r->tracks[r->track_count]) HN_NOMEM(err, "tracks");
    }
    return HONE_OK;
}

static void take_event(part *p, hn_exec_result *r, const hn_event *event) {
    double at_s = (double)event->t_ns * 1e-9;
    if (event->kind == HN_EVENT_LOST && event->device >= 0) r->tracks[event->device]->span.lost = true;
    if (event->kind == HN_EVENT_BACK && event->device >= 0) r->tracks[event->device]->span.lost = false;
    if (event->kind != HN_EVENT_PHASE || at_s >= p->to_s) return;
    int phase = hn_phase_list_begin(&r->phases, event->text, fmax(at_s, p->from_s), NAN);
    for (int d = 0; d < r->track_count; d++) hn_track_phase(r->tracks[d], phase);
}

static void take_sample(part *p, hn_exec_result *r, int device, const hn_sample *sample) {
    double at_s = (double)sample->t_ns * 1e-9;
    if (at_s < p->from_s || at_s > p->to_s) return;
    if (!p->any) p->first_ns = sample->t_ns;
    p->any = true;
    p->last_ns = sample->t_ns;
    hn_track_add(r->tracks[device], sample);
}

static hn_status read_all(hone_error *err, hn_record *record, part *p, hn_exec_result *r) {
    HN_TRY(make_tracks(err, hn_record_devices(record), hn_record_device_count(record), 100000000, r));
    for (;;) {
        hn_record_kind kind;
        int device;
        hn_sample sample;
        hn_event event;
        HN_TRY(hn_record_next(err, record, &kind, &device, &sample, &event));
        if (kind == HN_RECORD_END) return HONE_OK;
        if (kind == HN_RECORD_EVENT) take_event(p, r, &event);
        else {
            if (r->start_wall_ns == 0) r->start_wall_ns = sample.wall_ns - sample.t_ns;
            take_sample(p, r, device, &sample);
        }
    }
}

// The spans of one phase take the place of the whole ones.
static hn_status keep_phase(hone_error *err, const char *path, const char *name, hn_exec_result *r) {
    int phase = -1;
    for (int i = 0; i < r->phases.count; i++)
        if (strcmp(r->phases.names[i], name) == 0) phase = i;
    if (phase < 0) HN_FAIL(err, HONE_ERR_USAGE, "%s: no phase '%s' in it", path, name);
    for (int d = 0; d < r->track_count; d++) {
        hn_track *t = r->tracks[d];
        if (t->phases[phase]) {
            t->span = *t->phases[phase];
        } else {
            hn_device_info info = t->span.info;
            hn_span_start(&t->span, &info);
        }
    }
    r->seconds = r->phases.seconds[phase];
    return HONE_OK;
}

static hn_exec_result *new_result(void) {
    hn_exec_result *r = hn_calloc(1, sizeof *r);
    if (!r) return NULL;
    hn_phase_list_init(&r->phases);
    r->units = r->user_seconds = r->system_seconds = r->own_cpu_seconds = NAN;
    r->exit_status = r->peak_tree_bytes = r->peak_process_bytes = -1;
    return r;
}

static void end_result(const part *p, hn_exec_result *r) {
    r->seconds = (double)(p->last_ns - p->first_ns) * 1e-9;
    hn_phase_list_end(&r->phases, (double)p->last_ns * 1e-9, NAN);
    for (int d = 0; d < r->track_count; d++) hn_track_end(r->tracks[d]);
}

static void give_result(hone_status status, hn_exec_result *r, hn_exec_result *out_result) {
    if (status == HONE_OK) *out_result = *r;
    else hn_exec_result_free(r);
    hn_free(r);
}

hn_status hn_recorded_read(hone_error *err, const char *path, double from_s, double to_s, const char *only,
                           hn_exec_result *out_result) {
    hn_record *record;
    HN_TRY(hn_record_open(err, path, &record));
    hn_exec_result *r = new_result();
    part p = {.from_s = from_s, .to_s = to_s};
    if (!r) {
        hn_record_close(record);
        HN_NOMEM(err, "recording");
    }
    hone_status status = read_all(err, record, &p, r);
    if (status == HONE_OK && !p.any)
        status = HN_SET(err, HONE_ERR_USAGE, "%s: no reading lies between %g and %g s", path, from_s, to_s);
    hn_record_close(record);
    if (status == HONE_OK) {
        end_result(&p, r);
        if (only) status = keep_phase(err, path, only, r);
    }
    give_result(status, r, out_result);
    return status;
}

// ---- texts ------------------------------------------------------------------------------------
static hone_status read_rows(hone_error *err, const char *path, const hn_text *text, part *p, hn_exec_result *r) {
    int64_t last_ns[HN_TEXT_DEVICES_MAX] = {0};
    int64_t begin_ns = 0, steps = 0, covered_ns = 0;
    for (size_t i = 0; i < text->rows.count; i++) { // the earliest time, and how far apart rows are
        int64_t *last = &last_ns[text->rows.data[i].device], at_ns = text->rows.data[i].sample.wall_ns;
        if (!at_ns) continue;
        if (!begin_ns || at_ns < begin_ns) begin_ns = at_ns;
        if (*last && at_ns > *last) steps++, covered_ns += at_ns - *last;
        *last = at_ns;
    }
    if (!steps)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED,
                "%s: joules need rows with different times: nvidia-smi --query-gpu=timestamp,index,uuid,power.draw --format=csv -l 1, a recording or a live source", path);
    HN_TRY(make_tracks(err, text->devices.data, (int)text->devices.count, covered_ns / steps, r));
    memset(last_ns, 0, sizeof last_ns);
    r->start_wall_ns = begin_ns;
    for (size_t i = 0; i < text->rows.count; i++) {
        hn_sample sample = text->rows.data[i].sample;
        int device = text->rows.data[i].device;
        if (sample.wall_ns <= last_ns[device]) continue; // no time, or a step back
        last_ns[device] = sample.wall_ns;
        sample.t_ns = sample.wall_ns - begin_ns;
        take_sample(p, r, device, &sample);
    }
    return HONE_OK;
}

hn_status hn_recorded_read_text(hone_error *err, const char *path, hn_exec_result *out_result) {
    char *data;
    size_t bytes;
    hn_text text;
    part p = {.to_s = INFINITY};
    HN_TRY(hn_file_read_text(err, path, HN_TEXT_BYTES_MAX, &data, &bytes));
    hone_status status = hn_text_parse(err, path, data, bytes, &text);
    hn_free(data);
    if (status != HONE_OK) return status;
    hn_exec_result *r = new_result();
    status = r ? read_rows(err, path, &text, &p, r) : HN_SET(err, HONE_ERR_NOMEM, "out of memory (recording)");
    hn_text_free(&text);
    if (!r) return status;
    if (status == HONE_OK) end_result(&p, r);
    give_result(status, r, out_result);
    return status;
}
