// SPDX-License-Identifier: Apache-2.0
// Joules from samples: see energy.h.
#include "probe/energy.h"

// Power is taken as known between two readings at most this far apart.
#define POWER_GAP_NS INT64_C(10000000000)

const char *hn_energy_method_text(hn_energy_method method) {
    return method == HN_ENERGY_COUNTER ? "energy counter"
           : method == HN_ENERGY_POWER ? "power readings integrated"
                                       : "no energy reading";
}

void hn_energy_start(hn_energy *energy, hn_device_kind kind) {
    bool is_host = kind == HN_DEVICE_HOST;
    *energy = (hn_energy){.joules = NAN,
                          .counter = is_host ? HN_M_rapl_package_mj : HN_M_energy_mj,
                          .power = is_host ? HN_M_hwmon_power_w : HN_M_power_instant_w};
}

static void add_counter(hn_energy *e, const hn_sample *s) {
    if (!hn_sample_has(s, e->counter)) return;
    double now = s->value[e->counter];
    if (e->have_counter && now < e->last_counter_mj) {
        e->resets++;
    } else if (e->have_counter) {
        e->counter_mj += now - e->last_counter_mj;
        e->counter_covered_ns += s->t_ns - e->counter_ns;
    }
    e->last_counter_mj = now;
    e->counter_ns = s->t_ns;
    e->have_counter = true;
}

static void add_power(hn_energy *e, const hn_sample *s) {
    hn_metric metric = e->power;
    if (metric == HN_M_power_instant_w && !hn_sample_has(s, metric)) metric = HN_M_power_w;
    if (!hn_sample_has(s, metric)) return;
    double now = s->value[metric];
    int64_t step_ns = s->t_ns - e->power_ns;
    if (e->have_power && step_ns <= POWER_GAP_NS) {
        e->power_j += (now + e->last_power_w) / 2 * (double)step_ns * 1e-9;
        e->power_covered_ns += step_ns;
    }
    e->last_power_w = now;
    e->power_ns = s->t_ns;
    e->have_power = true;
}

void hn_energy_add(hn_energy *e, const hn_sample *s) {
    if (e->any && s->t_ns <= e->last_ns) return; // the same row again
    if (!e->any) e->first_ns = s->t_ns;
    e->any = true;
    e->last_ns = s->t_ns;
    e->span_ns = s->t_ns - e->first_ns;
    add_counter(e, s);
    add_power(e, s);
    if (e->counter_covered_ns > 0 && e->counter_covered_ns >= e->power_covered_ns - e->span_ns / 20) {
        e->method = HN_ENERGY_COUNTER;
        e->joules = e->counter_mj * 1e-3;
        e->covered_ns = e->counter_covered_ns;
    } else if (e->power_covered_ns > 0) {
        e->method = HN_ENERGY_POWER;
        e->joules = e->power_j;
        e->covered_ns = e->power_covered_ns;
    }
}
