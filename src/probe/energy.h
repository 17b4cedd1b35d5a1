// SPDX-License-Identifier: Apache-2.0
// Joules from samples: the cumulative counter where there is one, else power integrated over time,
// named as such; time without readings is not covered, and no reading at all is unknown, not 0.
#ifndef HN_PROBE_ENERGY_H
#define HN_PROBE_ENERGY_H
#include "probe/probe.h"

typedef enum hn_energy_method {
    HN_ENERGY_NONE,      // nothing to count with: joules is NAN
    HN_ENERGY_COUNTER,   // the card's or package's cumulative counter
    HN_ENERGY_POWER,     // integral of the power readings (error of some per cent)
} hn_energy_method;
const char *hn_energy_method_text(hn_energy_method method);

typedef struct hn_energy {
    hn_energy_method method;
    double joules;        // NAN while method is NONE
    int64_t span_ns;      // first to last sample
    int64_t covered_ns;   // of it, with readings on both sides
    int resets;           // times the counter fell back (driver reloaded); not covered
    // state
    hn_metric counter, power;
    int64_t first_ns, last_ns, counter_ns, power_ns, counter_covered_ns, power_covered_ns, edge_ns;
    double last_counter_mj, last_power_w, counter_mj, power_j, edge_j; // edge: since the last counter reading
    double head_j;   // power before the first counter reading
    int64_t head_ns;
    bool any, have_counter, have_power;
} hn_energy;

// For a card (HN_DEVICE_GPU, MIG) or the host's CPU packages (HN_DEVICE_HOST).
void hn_energy_start(hn_energy *energy, hn_device_kind kind);
// Samples of one device in order. Where there is a counter it decides; reading it is dear, so that
// providers do it seldom: what lies before its first and after its last reading is integrated power.
// hn_probe_refresh at both ends of a span makes these edges vanish.
void hn_energy_add(hn_energy *energy, const hn_sample *sample);
#endif
