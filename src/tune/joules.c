// SPDX-License-Identifier: Apache-2.0
// Joules of one call: see joules.h.
#include "tune/joules.h"
#include <math.h>
#include "config/config.h"
#include "probe/energy.h"

#define SPAN_NS    INT64_C(1000000000)
#define DEVICES_MAX 64

typedef struct meter {
    hn_probe *probe;
    int devices[DEVICES_MAX], count;
    hn_energy energy[DEVICES_MAX];
} meter;

static void open_meter(meter *m, const char *source) {
    hone_error ignored = {0};
    *m = (meter){0};
    if (strcmp(source, "none") == 0) return;
    if (hn_probe_open(&ignored, source, &m->probe) != HONE_OK) return;
    bool cards = false;
    for (int d = 0; d < hn_probe_device_count(m->probe); d++) cards |= hn_probe_device(m->probe, d)->kind == HN_DEVICE_GPU;
    for (int d = 0; d < hn_probe_device_count(m->probe) && m->count < DEVICES_MAX; d++)
        if (hn_probe_device(m->probe, d)->kind == (cards ? HN_DEVICE_GPU : HN_DEVICE_HOST)) m->devices[m->count++] = d;
}

static void read_meter(meter *m, bool first) {
    for (int i = 0; i < m->count; i++) {
        hn_sample sample;
        if (first) hn_energy_start(&m->energy[i], hn_probe_device(m->probe, m->devices[i])->kind);
        hn_probe_refresh(m->probe, m->devices[i]);
        if (hn_probe_sample(NULL, m->probe, m->devices[i], &sample) == HONE_OK) hn_energy_add(&m->energy[i], &sample);
    }
}

// Whether anything at all was read that joules could come from.
static bool counts(const meter *m) {
    bool any = false;
    for (int i = 0; i < m->count; i++) any |= m->energy[i].have_counter || m->energy[i].have_power;
    return any;
}

static double joules_of(const meter *m) { // NAN where one device has none: a part is no sum
    double sum = m->count ? 0 : NAN;
    for (int i = 0; i < m->count; i++) sum += m->energy[i].joules;
    return sum;
}

const char *hn_joules_source(const hn_session *session) {
    hn_session_stats stats;
    hn_session_get_stats(session, &stats);
    return stats.device_steps && strcmp(hn_config_get()->energy_source, "host") == 0 ? "nvml" : "";
}

hn_status hn_measure_joules(hone_error *err, const char *source, hn_measure_fn fn, void *user, double *out_joules) {
    meter m;
    double watts[2] = {NAN, NAN}, seconds[2];
    int64_t calls = 0;
    hone_status status = HONE_OK;
    open_meter(&m, source[0] ? source : hn_config_get()->energy_source);
    for (int busy = 0; busy < 2 && status == HONE_OK && m.count; busy++) {
        read_meter(&m, true);
        if (!counts(&m)) break; // do not work for a second in vain
        int64_t start_ns = hn_clock_ns();
        if (!busy) hn_sleep_ns(SPAN_NS);
        for (; busy && status == HONE_OK && hn_clock_ns() - start_ns < SPAN_NS; calls++) status = fn(err, user);
        read_meter(&m, false);
        seconds[busy] = (double)(hn_clock_ns() - start_ns) * 1e-9;
        watts[busy] = joules_of(&m) / seconds[busy];
    }
    hn_probe_close(m.probe);
    if (status != HONE_OK) return status;
    double more = watts[1] - watts[0]; // not above rest: lost in what else goes on here
    *out_joules = calls && more > 0 ? more * seconds[1] / (double)calls : NAN;
    return HONE_OK;
}
