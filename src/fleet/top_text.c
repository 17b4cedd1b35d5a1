// SPDX-License-Identifier: Apache-2.0
// hone top for scripts: the grid as text, the model as JSON. See top.h.
#include "fleet/top.h"

void hn_top_text(const hn_top_grid *grid, hn_str *out) {
    for (int y = 0; y < grid->height; y++) {
        const hn_top_cell *row = grid->cells + y * grid->width;
        int end = grid->width;
        while (end > 0 && strcmp(row[end - 1].text, " ") == 0) end--;
        for (int x = 0; x < end; x++) hn_str_append(out, row[x].text);
        hn_str_append(out, "\n");
    }
}

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
static json_t *text(const char *value) {
    json_t *made = value[0] ? json_string(value) : json_null();
    return made ? made : json_string("(not UTF-8)");
}

static json_t *processes_json(const hn_top_model *m, int device) {
    if (m->devices[device].processes < 0) return json_null();
    json_t *out = json_array();
    for (int i = 0; i < m->process_count; i++) {
        const hn_top_process *p = &m->processes[i];
        const hn_process *at = &p->at.process;
        if (p->device != device) continue;
        json_t *item = json_object();
        json_object_set_new(item, "pid", json_integer(at->pid));
        json_object_set_new(item, "user", text(p->user));
        json_object_set_new(item, "name", text(at->name));
        json_object_set_new(item, "used_bytes", at->used_bytes < 0 ? json_null() : json_integer(at->used_bytes));
        json_object_set_new(item, "sm_util", number(at->sm_util));
        json_object_set_new(item, "joules", number(p->joules));
        json_object_set_new(item, "slurm_job", text(p->at.job.slurm_job));
        json_object_set_new(item, "pod", text(p->at.job.pod));
        json_object_set_new(item, "hone_job", p->at.job.hone_job ? json_integer(p->at.job.hone_job) : json_null());
        json_array_append_new(out, item);
    }
    return out;
}

json_t *hn_top_json(const hn_top_model *m) {
    static const char *const k_states[] = {"starting", "ok", "stale", "lost", "ended"};
    json_t *out = json_object(), *devices = json_array();
    for (int i = 0; i < m->device_count; i++) {
        const hn_top_device *d = &m->devices[i];
        char label[64], words[128];
        json_t *item = json_object(), *values = json_object();
        for (int k = 0; k < HN_METRIC_COUNT && d->have; k++)
            if (hn_sample_has(&d->sample, (hn_metric)k))
                json_object_set_new(values, hn_metric_rows[k].token, json_real(d->sample.value[k]));
        double reasons = d->have ? hn_sample_or(&d->sample, HN_M_reasons, NAN) : NAN;
        json_object_set_new(item, "device", json_string(hn_device_label(&d->info, label, sizeof label)));
        json_object_set_new(item, "name", text(d->info.name));
        json_object_set_new(item, "uuid", text(d->info.uuid));
        json_object_set_new(item, "state", json_string(k_states[d->status.state]));
        json_object_set_new(item, "why", text(d->status.why));
        json_object_set_new(item, "age_seconds", d->status.age_ns < 0 ? json_null() : json_real((double)d->status.age_ns * 1e-9));
        json_object_set_new(item, "joules", number(d->energy.joules));
        json_object_set_new(item, "held_by", isnan(reasons) ? json_null()
                                                            : json_string(hn_reasons_text((uint64_t)reasons, words, sizeof words)));
        json_object_set_new(item, "values", values);
        json_object_set_new(item, "processes", processes_json(m, i));
        json_array_append_new(devices, item);
    }
    json_object_set_new(out, "source", text(m->source));
    json_object_set_new(out, "devices", devices);
    return out;
}
