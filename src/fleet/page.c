// SPDX-License-Identifier: Apache-2.0
// The exporter's page: see page.h.
#include "fleet/page.h"
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
#include "config/config.h"

typedef enum family {
#define HN_FAMILY(token, name, kind, help) FAMILY_##token,
#include "fleet/page.def"
#undef HN_FAMILY
    FAMILY_COUNT
} family;
static const struct {
    const char *name;
    hn_metric_kind kind;
    const char *help;
} k_families[FAMILY_COUNT] = {
#define HN_FAMILY(token, name, kind, help) {name, HN_KIND_##kind, help},
#include "fleet/page.def"
#undef HN_FAMILY
};

typedef struct view {
    hn_device_info info;
    hn_sample sample;
    hn_sampler_status status;
    bool values;   // they count
    bool repeats; // a further compute instance of the GPU instance before it: dcgm-exporter knows only the latter
    hn_str labels, own; // owned, without braces: of dcgm-exporter's names, and of ours
    bool given;           // by the kubelet, to `holder` alone
    hn_podres_item holder;
    char pod_uid[40];     // of all that runs on it, "" where that differs
} view;

// A driver error by number; what does not fit any more is in hone_gpu_xid_events_total all the same.
#define XIDS_MAX 128
typedef struct xid_seen {
    int device;
    int64_t xid, count, wall_ns;
} xid_seen;

struct hn_page {
    hn_page_options options;
    char hostname[HN_INFO_BYTES];
    int device_count;
    view *views; // owned
    hn_sampler_process *processes; // owned
    hn_str lines[2]; // owned: of processes, memory and SM
    xid_seen xids[XIDS_MAX];
    int xid_count;
    uint64_t event_seq;
    int64_t started_wall_ns, took_ns;
    uint64_t pages;
};

// ---- values and labels ------------------------------------------------------------------------
void hn_page_number(hn_str *out, double value) {
    char text[32], *at = text + sizeof text;
    double size = fabs(value);
    // Fixed point with nine decimals where a double holds them, else whole numbers; no trailing zeros.
    if (!(size < 9e15) || (size != floor(size) && size >= 9e6)) {
        snprintf(text, sizeof text, "%.17g", value);
        hn_str_append(out, text);
        return;
    }
    uint64_t whole = (uint64_t)size, part = (uint64_t)llround((size - (double)whole) * 1e9);
    if (part >= 1000000000) part = 0, whole++;
    if (part) {
        int digits = 9;
        for (; part % 10 == 0; part /= 10) digits--;
        for (; digits > 0; digits--, part /= 10) *--at = (char)('0' + part % 10);
        *--at = '.';
    }
    do *--at = (char)('0' + whole % 10);
    while ((whole /= 10) != 0);
    if (value < 0 && !(at[0] == '0' && at + 1 == text + sizeof text)) *--at = '-';
    hn_str_append_n(out, at, (size_t)(text + sizeof text - at));
}

void hn_page_label(hn_str *out, const char *text) {
    size_t length = strlen(text);
    for (size_t i = 0; i < length;) {
        size_t bytes = hn_utf8_length(text + i, length - i);
        char c = text[i];
        if (bytes == 0) hn_str_append(out, "\xef\xbf\xbd"), i++;
        else if (c == '\n') hn_str_append(out, "\\n"), i++;
        else if (c == '"' || c == '\\') hn_str_append_n(out, "\\", 1), hn_str_append_n(out, &c, 1), i++;
        else hn_str_append_n(out, text + i, bytes), i += bytes;
    }
}

static void add_label(hn_str *out, const char *name, const char *value) {
    if (!*value) return;
    hn_str_append(out, out->length ? "," : "");
    hn_str_append(out, name);
    hn_str_append(out, "=\"");
    hn_page_label(out, value);
    hn_str_append_n(out, "\"", 1);
}

static void add_label_number(hn_str *out, const char *name, const char *prefix, double value) {
    char text[48];
    if (!isfinite(value)) return;
    snprintf(text, sizeof text, "%s%.0f", prefix, value);
    add_label(out, name, text);
}

static void add_fact(hn_str *out, const char *name, const hn_device_info *info, const hn_info_row *row) {
    const void *field = (const char *)info + row->offset;
    char number[HN_METRIC_TEXT_BYTES];
    if (!row->is_num) add_label(out, name, field);
    else if (isfinite(*(const double *)field)) add_label(out, name, hn_metric_text(*(const double *)field, number));
}

// What all processes on the card share, "" where they do not.
static const char *shared(const hn_sampler_process *list, int count, size_t offset) {
    const char *first = count > 0 ? (const char *)&list[0].job + offset : "";
    for (int i = 1; i < count; i++)
        if (strcmp(first, (const char *)&list[i].job + offset) != 0) return "";
    return first;
}

static void make_labels(hn_page *page, int device);
static void make_all_labels(hn_page *page) {
    for (int d = 0; d < page->device_count; d++) {
        view *v = &page->views[d];
        const hn_device_info *before = d ? &page->views[d - 1].info : NULL;
        v->repeats = v->info.kind == HN_DEVICE_MIG && before->kind == HN_DEVICE_MIG &&
                     before->parent == v->info.parent && before->gi_id == v->info.gi_id;
        make_labels(page, d);
        v->own.length = 0;
        hn_str_append_n(&v->own, hn_str_get(&v->labels), v->labels.length);
        if (v->info.kind == HN_DEVICE_MIG) add_label_number(&v->own, "GPU_CI_ID", "", v->info.ci_id);
    }
}

static void make_labels(hn_page *page, int device) {
    view *v = &page->views[device];
    const hn_device_info *info = &v->info;
    hn_str *out = &v->labels;
    const char *host = page->options.hostname ? page->options.hostname
                       : info->hostname[0]    ? info->hostname
                                              : page->hostname;
    char mapped[128];
    out->length = 0;
    if (info->kind == HN_DEVICE_HOST) {
        add_label(out, "Hostname", host);
        return;
    }
    const hn_device_info *card = info->parent >= 0 ? &page->views[info->parent].info : info;
    int holder = info->parent >= 0 ? info->parent : device;
    add_label_number(out, "gpu", "", info->gpu_index);
    add_label(out, "UUID", card->uuid);
    add_label(out, "pci_bus_id", card->pci_bus_id);
    add_label_number(out, "device", "nvidia", card->minor);
    add_label(out, "modelName", card->name);
    if (info->kind == HN_DEVICE_MIG) {
        add_label(out, "GPU_I_PROFILE", info->mig_profile);
        add_label_number(out, "GPU_I_ID", "", info->gi_id);
    }
    add_label(out, "Hostname", host);
    for (int i = 0; i < page->options.counters->label_count; i++)
        add_fact(out, page->options.counters->labels[i].name, card, page->options.counters->labels[i].row);
    int count = hn_sampler_processes(page->options.sampler, holder, page->processes, HN_SAMPLER_PROCESSES_MAX);
    if (info->kind == HN_DEVICE_MIG) { // those of this instance
        int kept = 0;
        for (int i = 0; i < count; i++)
            if ((double)page->processes[i].process.gi_id == info->gi_id) page->processes[kept++] = page->processes[i];
        count = kept;
    }
    snprintf(v->pod_uid, sizeof v->pod_uid, "%s", shared(page->processes, count, offsetof(hn_job_of_pid, pod_uid)));
    v->given = hn_podres_find(page->options.pods, info, card, &v->holder);
    if (v->given) add_label(out, "container", v->holder.container);
    if (v->given || v->pod_uid[0]) {
        add_label(out, "namespace", v->given ? v->holder.namespace_ : page->processes[0].job.namespace_);
        add_label(out, "pod", v->given ? v->holder.pod : page->processes[0].job.pod);
        add_label(out, "pod_uid", v->pod_uid);
    }
    hn_sampler_mapped_job(page->options.sampler, holder, mapped, sizeof mapped);
    add_label(out, "hpc_job", mapped[0] ? mapped : shared(page->processes, count, offsetof(hn_job_of_pid, slurm_job)));
}

// ---- families ---------------------------------------------------------------------------------
// The unit that OpenMetrics wants told is a part of the name: its end, before _total.
static const char *unit_of(const char *name, size_t length) {
    static const char *const k_units[] = {"bytes_per_second", "seconds", "bytes",   "joules", "watts",
                                          "volts",            "hertz",   "celsius", "ratio"};
    for (size_t i = 0; i < HN_COUNT_OF(k_units); i++) {
        size_t unit = strlen(k_units[i]);
        if (length > unit + 1 && name[length - unit - 1] == '_' && strncmp(name + length - unit, k_units[i], unit) == 0)
            return k_units[i];
    }
    return NULL;
}

static void add_head(hn_str *out, hn_page_format format, const char *name, hn_metric_kind kind, const char *help) {
    size_t length = strlen(name);
    const char *type = kind == HN_KIND_counter ? "counter" : "gauge", *unit = NULL;
    if (format == HN_PAGE_OPENMETRICS) {
        bool total = length > 6 && strcmp(name + length - 6, "_total") == 0;
        if (total && kind == HN_KIND_counter) length -= 6;
        else if (kind == HN_KIND_counter) type = "unknown";
        if (strncmp(name, "DCGM_", 5) != 0) unit = unit_of(name, length);
    }
    hn_str_append(out, "# HELP ");
    hn_str_append_n(out, name, length);
    hn_str_append_n(out, " ", 1);
    hn_page_label(out, help); // the same escapes, and no quotes in our own texts
    hn_str_append(out, "\n# TYPE ");
    hn_str_append_n(out, name, length);
    hn_str_printf(out, " %s\n", type);
    if (unit) hn_str_printf(out, "# UNIT %.*s %s\n", (int)length, name, unit);
}

static void add_line(hn_str *out, const char *name, const hn_str *labels, const char *more, double value) {
    bool any = labels->length || *more;
    hn_str_append(out, name);
    if (any) hn_str_append_n(out, "{", 1);
    hn_str_append_n(out, hn_str_get(labels), labels->length);
    if (labels->length && *more) hn_str_append_n(out, ",", 1);
    hn_str_append(out, more);
    hn_str_append(out, any ? "} " : " ");
    hn_page_number(out, value);
    hn_str_append_n(out, "\n", 1);
}

static void add_metric(hn_page *page, hn_page_format format, const hn_counter *item, hn_str *out) {
    const hn_metric_row *row = &hn_metric_rows[item->metric];
    const char *name = item->legacy ? row->legacy : row->hone;
    double scale = item->legacy ? row->legacy_scale : row->hone_scale;
    bool any = false;
    for (int d = 0; d < page->device_count; d++) {
        const view *v = &page->views[d];
        if (!v->values || !hn_sample_has(&v->sample, item->metric)) continue;
        if (item->legacy && (v->info.kind == HN_DEVICE_HOST || v->repeats)) continue;
        if (!any) add_head(out, format, name, item->kind, item->help);
        any = true;
        // 0x1p-20 and the like are exact; 1e-3 is not: 80704 mW are 80.704 W.
        double value = v->sample.value[item->metric];
        add_line(out, name, item->legacy ? &v->labels : &v->own, "", scale < 1 && scale > 0 ? value / round(1 / scale) : value * scale);
    }
}

typedef struct lines {
    hn_page *page;
    hn_page_format format;
    hn_str *out;
    family family;
    bool any;
} lines;

static lines begin(hn_page *page, hn_page_format format, hn_str *out, family which) {
    return (lines){page, format, out, which, false};
}

static void put(lines *l, const hn_str *labels, const char *more, double value) {
    if (!isfinite(value)) return;
    const char *name = k_families[l->family].name;
    if (!l->any) add_head(l->out, l->format, name, k_families[l->family].kind, k_families[l->family].help);
    l->any = true;
    add_line(l->out, name, labels, more, value);
}

static double numbers_of(const view *v, family which) {
    bool host = v->info.kind == HN_DEVICE_HOST;
    if (which == FAMILY_host_up ? !host : which == FAMILY_up && host) return NAN;
    switch (which) {
    case FAMILY_up:
    case FAMILY_host_up: return v->values;
    case FAMILY_age: return host || v->status.age_ns < 0 ? NAN : (double)v->status.age_ns * 1e-9;
    case FAMILY_samples: return host ? NAN : (double)v->status.samples;
    case FAMILY_failures: return host ? NAN : (double)v->status.failures;
    case FAMILY_late: return host ? NAN : (double)v->status.late;
    case FAMILY_faults: return host ? NAN : (double)v->status.collector_faults;
    default: return NAN;
    }
}

static void add_numbers(hn_page *page, hn_page_format format, hn_str *out) {
    static const family k_numbers[] = {FAMILY_up,   FAMILY_host_up, FAMILY_age,   FAMILY_samples,
                                       FAMILY_failures, FAMILY_late, FAMILY_faults};
    for (size_t i = 0; i < HN_COUNT_OF(k_numbers); i++) {
        lines l = begin(page, format, out, k_numbers[i]);
        for (int d = 0; d < page->device_count; d++)
            put(&l, &page->views[d].own, "", numbers_of(&page->views[d], k_numbers[i]));
    }
}

static void add_energy(hn_page *page, hn_page_format format, hn_str *out) {
    static const char *const k_methods[] = {[HN_ENERGY_COUNTER] = "method=\"counter\"",
                                            [HN_ENERGY_POWER] = "method=\"power\""};
    lines l = begin(page, format, out, FAMILY_measured);
    for (int d = 0; d < page->device_count; d++) {
        hn_energy energy;
        hn_sampler_energy(page->options.sampler, d, &energy);
        if (page->views[d].info.kind == HN_DEVICE_HOST || energy.method == HN_ENERGY_NONE) continue;
        put(&l, &page->views[d].own, k_methods[energy.method], energy.joules);
    }
}

static void add_reasons(hn_page *page, hn_page_format format, hn_str *out) {
    static const struct {
        unsigned bit;
        const char *label;
    } k_reasons[] = {
        {HN_REASON_IDLE, "reason=\"idle\""},
        {HN_REASON_APP_CLOCKS, "reason=\"clock_setting\""},
        {HN_REASON_POWER_CAP, "reason=\"power_limit\""},
        {HN_REASON_HW_SLOWDOWN, "reason=\"hardware_slowdown\""},
        {HN_REASON_SYNC_BOOST, "reason=\"sync_boost\""},
        {HN_REASON_SW_THERMAL, "reason=\"driver_thermal\""},
        {HN_REASON_HW_THERMAL, "reason=\"hardware_thermal\""},
        {HN_REASON_POWER_BRAKE, "reason=\"power_brake\""},
    };
    lines l = begin(page, format, out, FAMILY_reason);
    for (int d = 0; d < page->device_count; d++) {
        const view *v = &page->views[d];
        if (!v->values || !hn_sample_has(&v->sample, HN_M_reasons)) continue;
        uint64_t bits = (uint64_t)v->sample.value[HN_M_reasons];
        for (size_t i = 0; i < HN_COUNT_OF(k_reasons); i++)
            put(&l, &v->own, k_reasons[i].label, (bits & k_reasons[i].bit) != 0);
    }
}

static void take_events(hn_page *page) {
    hn_event event;
    while (hn_sampler_events(page->options.sampler, &page->event_seq, &event, 1) == 1) {
        if (event.kind != HN_EVENT_XID || event.device < 0 || event.device >= page->device_count) continue;
        int i = 0;
        while (i < page->xid_count && (page->xids[i].device != event.device || page->xids[i].xid != event.xid)) i++;
        if (i == XIDS_MAX) continue;
        if (i == page->xid_count) page->xids[page->xid_count++] = (xid_seen){.device = event.device, .xid = event.xid};
        page->xids[i].count++;
        page->xids[i].wall_ns = event.wall_ns;
    }
}

static void add_xids(hn_page *page, hn_page_format format, hn_str *out) {
    static const family k_which[] = {FAMILY_xids, FAMILY_xid_time};
    take_events(page);
    for (size_t k = 0; k < HN_COUNT_OF(k_which); k++) {
        lines l = begin(page, format, out, k_which[k]);
        for (int i = 0; i < page->xid_count; i++) {
            const xid_seen *x = &page->xids[i];
            char label[40];
            snprintf(label, sizeof label, "xid=\"%lld\"", (long long)x->xid);
            put(&l, &page->views[x->device].own, label, k ? (double)x->wall_ns * 1e-9 : (double)x->count);
        }
    }
}

static void add_facts(hn_page *page, hn_page_format format, hn_str *out) {
    lines l = begin(page, format, out, FAMILY_info);
    hn_str *more = &page->lines[0];
    for (int d = 0; d < page->device_count; d++) {
        const view *v = &page->views[d];
        if (v->info.kind == HN_DEVICE_HOST) continue;
        more->length = 0;
        for (size_t i = 0; i < hn_info_row_count; i++) {
            static const char *const k_told[] = {"driver", "cuda", "vbios", "architecture", "serial", "mig_mode",
                                                 "compute_mode", "cc_major", "cc_minor", "sm_count", "power_limit_max_w",
                                                 "max_sm_clock_mhz", "numa_node"};
            for (size_t k = 0; k < HN_COUNT_OF(k_told); k++)
                if (strcmp(hn_info_rows[i].name, k_told[k]) == 0)
                    add_fact(more, hn_info_rows[i].name, &v->info, &hn_info_rows[i]);
        }
        put(&l, &v->own, hn_str_get(more), 1);
    }
}

static void process_labels(const hn_page *page, const view *v, const hn_sampler_process *p, hn_str *out) {
    const hn_device_info *info = &v->info;
    out->length = 0;
    add_label_number(out, "gpu", "", info->gpu_index);
    add_label(out, "UUID", info->uuid);
    if (p->process.gi_id >= 0) add_label_number(out, "GPU_I_ID", "", (double)p->process.gi_id);
    add_label(out, "Hostname", page->options.hostname ? page->options.hostname
                               : info->hostname[0]    ? info->hostname
                                                      : page->hostname);
    add_label_number(out, "pid", "", (double)p->process.pid);
    add_label(out, "process_name", p->process.name);
    // The kubelet knows the names; what a process says of itself may be its own idea of a host name.
    bool holds = v->given && p->job.pod_uid[0] && strcmp(p->job.pod_uid, v->pod_uid) == 0;
    add_label(out, "container", holds ? v->holder.container : "");
    add_label(out, "namespace", holds ? v->holder.namespace_ : p->job.namespace_);
    add_label(out, "pod", holds ? v->holder.pod : p->job.pod);
    add_label(out, "pod_uid", p->job.pod_uid);
    add_label(out, "container_id", p->job.container_id);
    add_label(out, "hpc_job", p->job.slurm_job);
    if (p->job.hone_job) add_label_number(out, "hone_job", "", (double)p->job.hone_job);
}

static void add_processes(hn_page *page, hn_page_format format, hn_str *out) {
    static const family k_which[] = {FAMILY_process, FAMILY_process_memory, FAMILY_process_sm};
    for (size_t k = 0; k < HN_COUNT_OF(k_which); k++) {
        lines l = begin(page, format, out, k_which[k]);
        for (int d = 0; d < page->device_count; d++) {
            const view *v = &page->views[d];
            if (v->info.kind != HN_DEVICE_GPU || !v->values) continue;
            int count = hn_sampler_processes(page->options.sampler, d, page->processes, HN_SAMPLER_PROCESSES_MAX);
            for (int i = 0; i < count; i++) {
                const hn_process *p = &page->processes[i].process;
                double bytes = p->used_bytes >= 0 ? (double)p->used_bytes : NAN;
                double value = k_which[k] == FAMILY_process ? 1 : k_which[k] == FAMILY_process_memory ? bytes : p->sm_util / 100;
                if (!isfinite(value)) continue;
                process_labels(page, v, &page->processes[i], &page->lines[0]);
                put(&l, &page->lines[0], "", value);
            }
        }
    }
}

static double resident_bytes(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return NAN;
    bool good = fscanf(f, "%*d %ld", &pages) == 1;
    fclose(f);
    return good ? (double)pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

static void add_own(hn_page *page, hn_page_format format, hn_str *out) {
    struct rusage used;
    hn_str *label = &page->lines[1], none = {0};
    double cpu = NAN;
    label->length = 0;
    add_label(label, "version", page->options.version ? page->options.version : "");
    if (getrusage(RUSAGE_SELF, &used) == 0)
        cpu = (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
              1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    const struct {
        family which;
        const hn_str *labels;
        double value;
    } k_own[] = {
        {FAMILY_pages, &none, (double)page->pages},
        {FAMILY_page_seconds, &none, page->pages ? (double)page->took_ns * 1e-9 : NAN},
        {FAMILY_build, label, 1},
        {FAMILY_cpu, &none, cpu},
        {FAMILY_rss, &none, resident_bytes()},
        {FAMILY_start, &none, (double)page->started_wall_ns * 1e-9},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_own); i++) {
        lines l = begin(page, format, out, k_own[i].which);
        put(&l, k_own[i].labels, "", k_own[i].value);
    }
    if (page->options.pods) {
        lines l = begin(page, format, out, FAMILY_kubelet_up);
        put(&l, &none, "", hn_podres_up(page->options.pods));
    }
    if (!page->options.rollup) return;
    hn_rollup_status history;
    hn_rollup_read_status(page->options.rollup, &history);
    const struct {
        family which;
        double value;
    } k_history[] = {
        {FAMILY_history_up, !history.broken},
        {FAMILY_history_bytes, history.bytes >= 0 ? (double)history.bytes : NAN},
        {FAMILY_history_rows, (double)history.rows},
        {FAMILY_history_dropped, (double)history.dropped},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_history); i++) {
        lines l = begin(page, format, out, k_history[i].which);
        put(&l, &none, "", k_history[i].value);
    }
}

// ---- page -------------------------------------------------------------------------------------
static void look(hn_page *page) {
    int64_t window_ns = (int64_t)(page->options.window_s * 1e9);
    for (int d = 0; d < page->device_count; d++) {
        view *v = &page->views[d];
        hn_sampler_info(page->options.sampler, d, &v->info);
        bool any = hn_sampler_mean(page->options.sampler, d, window_ns, &v->sample, &v->status);
        v->values = any && (v->status.state == HN_SAMPLER_OK ||
                            (v->status.state == HN_SAMPLER_ENDED && page->options.over_too));
    }
}

hn_status hn_page_render(hone_error *err, hn_page *page, hn_page_format format, hn_str *out) {
    int64_t start_ns = hn_clock_ns();
    bool failed = false;
    look(page);
    make_all_labels(page);
    const hn_counters *counters = page->options.counters;
    for (int i = 0; i < counters->count; i++) add_metric(page, format, &counters->items[i], out);
    add_numbers(page, format, out);
    add_energy(page, format, out);
    add_xids(page, format, out);
    add_reasons(page, format, out);
    add_facts(page, format, out);
    add_processes(page, format, out);
    add_own(page, format, out);
    if (format == HN_PAGE_OPENMETRICS) hn_str_append(out, "# EOF\n");
    for (int d = 0; d < page->device_count; d++) failed |= page->views[d].labels.failed || page->views[d].own.failed;
    if (failed || out->failed || page->lines[0].failed || page->lines[1].failed) HN_NOMEM(err, "page");
    page->pages++;
    page->took_ns = hn_clock_ns() - start_ns;
    return HONE_OK;
}

bool hn_page_health(hn_page *page, hn_str *out) {
    bool well = true;
    for (int d = 0; d < page->device_count; d++) {
        hn_sampler_status status;
        hn_device_info info;
        char label[64];
        hn_sampler_latest(page->options.sampler, d, NULL, &status);
        if (status.state == HN_SAMPLER_OK) continue;
        well = false;
        hn_sampler_info(page->options.sampler, d, &info);
        hn_str_printf(out, "%s: %s\n", hn_device_label(&info, label, sizeof label), status.why);
    }
    if (page->options.rollup) {
        hn_rollup_status history;
        hn_rollup_read_status(page->options.rollup, &history);
        if (history.broken) hn_str_printf(out, "%s\n", history.why);
        well &= !history.broken;
    }
    return well;
}

hn_status hn_page_open(hone_error *err, const hn_page_options *options, hn_page **out_page) {
    hn_page *page = hn_calloc(1, sizeof *page);
    if (!page) HN_NOMEM(err, "page");
    page->options = *options;
    page->device_count = hn_sampler_devices(options->sampler);
    page->started_wall_ns = hn_clock_wall_ns();
    // A pod's host name says nothing: there the node's name is put into the environment.
    const char *node = hn_config_env("NODE_NAME");
    if (node && *node) snprintf(page->hostname, sizeof page->hostname, "%s", node);
    else if (gethostname(page->hostname, sizeof page->hostname - 1) != 0) page->hostname[0] = '\0';
    page->views = hn_calloc((size_t)page->device_count, sizeof *page->views);
    page->processes = hn_calloc(HN_SAMPLER_PROCESSES_MAX, sizeof *page->processes);
    if (!page->views || !page->processes) {
        hn_page_close(page);
        HN_NOMEM(err, "page");
    }
    *out_page = page;
    return HONE_OK;
}

void hn_page_close(hn_page *page) {
    if (!page) return;
    for (int d = 0; page->views && d < page->device_count; d++) {
        hn_str_free(&page->views[d].labels);
        hn_str_free(&page->views[d].own);
    }
    for (size_t i = 0; i < HN_COUNT_OF(page->lines); i++) hn_str_free(&page->lines[i]);
    hn_free(page->views);
    hn_free(page->processes);
    hn_free(page);
}

// ---- negotiation ------------------------------------------------------------------------------
static double quality(hn_slice parameters) {
    while (parameters.length) {
        const char *end = memchr(parameters.data, ';', parameters.length);
        hn_slice one = {parameters.data, end ? (size_t)(end - parameters.data) : parameters.length};
        size_t skip = one.length + (end ? 1 : 0);
        parameters.data += skip;
        parameters.length -= skip;
        one = hn_slice_trim(one);
        double q;
        if (hn_slice_starts(one, "q=") && hn_parse_f64((hn_slice){one.data + 2, one.length - 2}, &q)) return q;
    }
    return 1;
}

hn_page_format hn_page_negotiate(const char *accept) {
    double open = 0, text = 0;
    hn_slice rest = {accept ? accept : "", accept ? strlen(accept) : 0};
    while (rest.length) {
        const char *comma = memchr(rest.data, ',', rest.length);
        hn_slice item = {rest.data, comma ? (size_t)(comma - rest.data) : rest.length};
        size_t skip = item.length + (comma ? 1 : 0);
        rest.data += skip;
        rest.length -= skip;
        item = hn_slice_trim(item);
        const char *semicolon = memchr(item.data, ';', item.length);
        hn_slice type = hn_slice_trim((hn_slice){item.data, semicolon ? (size_t)(semicolon - item.data) : item.length});
        double q = semicolon ? quality((hn_slice){semicolon + 1, item.length - (size_t)(semicolon + 1 - item.data)}) : 1;
        if (hn_slice_eq(type, "application/openmetrics-text")) open = q > open ? q : open;
        else if (hn_slice_eq(type, "text/plain") || hn_slice_eq(type, "text/*") || hn_slice_eq(type, "*/*"))
            text = q > text ? q : text;
    }
    return open > text || (open > 0 && open == text) ? HN_PAGE_OPENMETRICS : HN_PAGE_TEXT;
}
