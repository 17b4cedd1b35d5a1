// SPDX-License-Identifier: Apache-2.0
// Spans: see span.h.
#include "fleet/span.h"

#define IDLE_ACTIVE     0.01 // share of time with a kernel, below it a card counts as idle
#define IDLE_LINK_SHARE 0.02 // of the host link
#define LINK_UNKNOWN    16e9 // stands in for a link of unknown speed when asking whether it is quiet

void hn_span_start(hn_span *span, const hn_device_info *info) {
    memset(span, 0, sizeof *span);
    span->info = *info;
    hn_energy_start(&span->energy, info->kind);
}

// Payload bytes a second and lane, by PCIe generation.
static double link_speed(double gen, double lanes) {
    static const double k_lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
    if (!(gen >= 1 && gen < (double)HN_COUNT_OF(k_lane)) || !(lanes >= 1)) return NAN;
    return k_lane[(int)gen] * lanes;
}

static double traffic(const hn_sample *s) {
    return hn_sample_or(s, HN_M_pcie_rx_bytes_s, 0) + hn_sample_or(s, HN_M_pcie_tx_bytes_s, 0);
}

// 1 idle, 0 busy, -1 not told.
static int idle_now(const hn_span *span, const hn_sample *s) {
    double active = hn_sample_or(s, HN_M_gr_active, hn_sample_or(s, HN_M_gpu_util, NAN) / 100);
    if (span->info.kind == HN_DEVICE_HOST || isnan(active)) return -1;
    if (active >= IDLE_ACTIVE) return 0;
    double link = link_speed(hn_sample_or(s, HN_M_pcie_gen, NAN), hn_sample_or(s, HN_M_pcie_width, NAN));
    return traffic(s) < IDLE_LINK_SHARE * (isnan(link) ? LINK_UNKNOWN : link);
}

static void add_idle(hn_span *span, int idle, int64_t step_ns) {
    if (idle < 0) return;
    span->judged_ns += step_ns;
    if (idle) {
        span->idle_ns += step_ns;
        if (span->was_busy) span->pending_idle_ns += step_ns;
        return;
    }
    span->inner_idle_ns += span->pending_idle_ns;
    span->stalls += span->pending_idle_ns > 0;
    span->pending_idle_ns = 0;
    span->was_busy = true;
}

static void add_reasons(hn_span *span, const hn_sample *s, int64_t step_ns) {
    if (!hn_sample_has(s, HN_M_reasons)) return;
    uint64_t bits = (uint64_t)s->value[HN_M_reasons];
    span->reason_known_ns += step_ns;
    for (int bit = 0; bit < HN_SPAN_REASONS; bit++)
        if (bits >> bit & 1) span->reason_ns[bit] += step_ns;
}

void hn_span_add(hn_span *span, const hn_sample *s) {
    if (span->samples > 0 && s->t_ns <= span->last_ns) return; // the same row again
    int64_t step_ns = span->samples > 0 ? s->t_ns - span->last_ns : 0;
    double step_s = (double)step_ns * 1e-9;
    if (span->samples++ == 0) span->first_ns = s->t_ns;
    span->last_ns = s->t_ns;
    hn_energy_add(&span->energy, s);
    int idle = idle_now(span, s);
    add_idle(span, idle, step_ns);
    add_reasons(span, s, step_ns);
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (!hn_sample_has(s, (hn_metric)m)) continue;
        hn_span_metric *at = &span->metrics[m];
        double now = s->value[m];
        if (!at->any) at->first = at->max = now;
        else if (now > at->last) at->rise += now - at->last;
        if (now > at->max) at->max = now;
        at->last = now;
        at->any = true;
        at->sum += now * step_s;
        at->weight_s += step_s;
        at->busy_sum += idle == 0 ? now * step_s : 0;
        at->busy_weight_s += idle == 0 ? step_s : 0;
    }
}

static void join_energy(hn_energy *into, const hn_energy *from) {
    if (from->method != HN_ENERGY_NONE) {
        bool known = into->method != HN_ENERGY_NONE;
        into->joules = known ? into->joules + from->joules : from->joules;
        if (!known || from->method == HN_ENERGY_POWER) into->method = from->method;
    }
    into->covered_ns += from->covered_ns;
    into->span_ns += from->span_ns;
    into->resets += from->resets;
}

void hn_span_join(hn_span *span, const hn_span *later) {
    if (later->samples == 0) return;
    join_energy(&span->energy, &later->energy);
    if (span->samples > 0) span->joined_ns += span->last_ns - span->first_ns;
    span->joined_ns += later->joined_ns;
    span->first_ns = later->first_ns;
    span->last_ns = later->last_ns;
    span->samples += later->samples;
    span->judged_ns += later->judged_ns;
    span->idle_ns += later->idle_ns;
    span->inner_idle_ns += later->inner_idle_ns;
    span->stalls += later->stalls;
    span->was_busy |= later->was_busy;
    span->lost |= later->lost;
    span->stuck |= later->stuck;
    span->reason_known_ns += later->reason_known_ns;
    for (int bit = 0; bit < HN_SPAN_REASONS; bit++) span->reason_ns[bit] += later->reason_ns[bit];
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        hn_span_metric *at = &span->metrics[m];
        const hn_span_metric *more = &later->metrics[m];
        if (!more->any) continue;
        at->sum += more->sum;
        at->weight_s += more->weight_s;
        at->busy_sum += more->busy_sum;
        at->busy_weight_s += more->busy_weight_s;
        if (!at->any || more->max > at->max) at->max = more->max;
        if (!at->any) at->first = more->first;
        at->last = more->last;
        at->rise += more->rise;
        at->any = true;
    }
}

double hn_span_mean(const hn_span *span, hn_metric metric) {
    const hn_span_metric *at = &span->metrics[metric];
    if (!at->any) return NAN;
    return at->weight_s > 0 ? at->sum / at->weight_s : at->last;
}

double hn_span_busy_mean(const hn_span *span, hn_metric metric) {
    const hn_span_metric *at = &span->metrics[metric];
    return at->busy_weight_s > 0 ? at->busy_sum / at->busy_weight_s : hn_span_mean(span, metric);
}

double hn_span_max(const hn_span *span, hn_metric metric) {
    return span->metrics[metric].any ? span->metrics[metric].max : NAN;
}

double hn_span_rise(const hn_span *span, hn_metric metric) {
    return span->metrics[metric].any && span->samples > 1 ? span->metrics[metric].rise : NAN;
}

double hn_span_seconds(const hn_span *span) {
    return (double)(span->joined_ns + span->last_ns - span->first_ns) * 1e-9;
}

double hn_span_idle_share(const hn_span *span) {
    return span->judged_ns > 0 ? (double)span->idle_ns / (double)span->judged_ns : NAN;
}

double hn_span_watts(const hn_span *span) {
    return span->energy.covered_ns > 0 ? span->energy.joules / ((double)span->energy.covered_ns * 1e-9) : NAN;
}

double hn_span_link_bytes_s(const hn_span *span) {
    // The link is slowed down in idle times: its best state counts.
    return link_speed(hn_span_max(span, HN_M_pcie_gen), hn_span_max(span, HN_M_pcie_width));
}

double hn_span_memory_share(const hn_span *span) {
    double total = hn_span_max(span, HN_M_fb_total_bytes), held = hn_span_mean(span, HN_M_fb_reserved_bytes);
    if (isnan(total)) total = span->info.memory_bytes;
    return hn_span_max(span, HN_M_fb_used_bytes) / (total - (isnan(held) ? 0 : held));
}
