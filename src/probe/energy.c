// SPDX-License-Identifier: Apache-2.0
// Joules from samples: see energy.h.
#include "probe/energy.h"
#include "base/lang.h"

// Power is taken as known between two readings at most this far apart.
#define POWER_GAP_NS INT64_C(10000000000)

const char *hn_energy_method_text(hn_energy_method method) {
    return method == HN_ENERGY_COUNTER ? HN_SAY("energy counter")
           : method == HN_ENERGY_POWER ? HN_SAY("power readings integrated")
                                       : HN_SAY("no energy reading");
}

void hn_energy_start(hn_energy *energy, hn_device_kind kind) {
    bool is_host = kind == HN_DEVICE_HOST;
    *energy = (hn_energy){.joules = NAN,
                          .counter = is_host ? HN_M_rapl_package_mj : HN_M_energy_mj,
                          .power = is_host ? HN_M_hwmon_power_w : HN_M_power_instant_w};
}

// Power first: an edge is known when the counter comes.
static void add_power(hn_energy *e, const hn_sample *s) {
    hn_metric metric = e->power;
    if (metric == HN_M_power_instant_w && !hn_sample_has(s, metric)) metric = HN_M_power_w;
    if (!hn_sample_has(s, metric)) return;
    double now = s->value[metric];
    int64_t step_ns = s->t_ns - e->power_ns;
    if (e->have_power && step_ns <= POWER_GAP_NS) {
        double joules = (now + e->last_power_w) / 2 * (double)step_ns * 1e-9;
        e->power_j += joules;
        e->power_covered_ns += step_ns;
        e->edge_j += joules;
        e->edge_ns += step_ns;
    }
    e->last_power_w = now;
    e->power_ns = s->t_ns;
    e->have_power = true;
}

static void add_counter(hn_energy *e, const hn_sample *s) {
    if (!hn_sample_has(s, e->counter)) return;
    int64_t read_ns = s->energy_t_ns ? s->energy_t_ns : s->t_ns;
    if (e->have_counter && read_ns <= e->counter_ns) return; // held from an earlier reading
    double now = s->value[e->counter];
    if (!e->have_counter) {
        // A reading from before the span began counts from there only by its difference to later ones.
        e->head_j = e->edge_j;
        e->head_ns = e->edge_ns;
    } else if (now < e->last_counter_mj) {
        e->resets++;
    } else {
        e->counter_mj += now - e->last_counter_mj;
        e->counter_covered_ns += read_ns - (e->counter_ns > e->first_ns ? e->counter_ns : e->first_ns);
    }
    e->edge_j = 0;
    e->edge_ns = 0;
    // What was read before the span is moved to its beginning by the power of then.
    e->last_counter_mj = now;
    if (!e->have_counter && read_ns < e->first_ns && e->have_power)
        e->last_counter_mj += e->last_power_w * (double)(e->first_ns - read_ns) * 1e-6;
    e->counter_ns = read_ns;
    e->have_counter = true;
}

void hn_energy_add(hn_energy *e, const hn_sample *s) {
    if (e->any && s->t_ns <= e->last_ns) return; // the same row again
    if (!e->any) e->first_ns = s->t_ns;
    e->any = true;
    e->last_ns = s->t_ns;
    e->span_ns = s->t_ns - e->first_ns;
    add_power(e, s);
    add_counter(e, s);
    if (e->counter_covered_ns > 0) {
        e->method = HN_ENERGY_COUNTER;
        e->joules = e->counter_mj * 1e-3 + e->head_j + e->edge_j;
        e->covered_ns = e->counter_covered_ns + e->head_ns + e->edge_ns;
        if (e->covered_ns > e->span_ns) e->covered_ns = e->span_ns;
    } else if (e->power_covered_ns > 0) {
        e->method = HN_ENERGY_POWER;
        e->joules = e->power_j;
        e->covered_ns = e->power_covered_ns;
    }
}
