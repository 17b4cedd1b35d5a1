// SPDX-License-Identifier: Apache-2.0
// Tells a collector that has silently stopped: the driver says the card is more than half busy, the
// activity counters stand at exactly 0, and that for a minute.
#ifndef HN_PROBE_COLLECTOR_H
#define HN_PROBE_COLLECTOR_H
#include "probe/probe.h"

#define HN_COLLECTOR_FAULT_NS INT64_C(60000000000)
// zero_since_ns: state, 0 at first. True once a minute while the fault lasts.
static inline bool hn_collector_fault(int64_t *zero_since_ns, const hn_sample *sample) {
    bool suspicious = hn_sample_or(sample, HN_M_gpu_util, 0) > 50 &&
                      hn_sample_or(sample, HN_M_gr_active, 1) == 0;
    if (!suspicious) {
        *zero_since_ns = 0;
        return false;
    }
    if (*zero_since_ns != 0 && sample->t_ns - *zero_since_ns > HN_COLLECTOR_FAULT_NS) {
        *zero_since_ns = sample->t_ns;
        return true;
    }
    if (*zero_since_ns == 0) *zero_since_ns = sample->t_ns;
    return false;
}
#endif
