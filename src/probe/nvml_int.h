// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of the NVML provider: nvml.c (opening, events, processes), nvml_info.c (facts)
// and nvml_read.c (samples).
#ifndef HN_PROBE_NVML_INT_H
#define HN_PROBE_NVML_INT_H
#include <stdatomic.h>
#include "libs/nvml.h"
#include "probe/probe.h"

#define HN_NVML_CARDS_MAX     64
#define HN_NVML_DEVICES_MAX   256 // cards and MIG instances
#define HN_NVML_PROCESSES_MAX 256
#define HN_NVML_GETTERS_MAX   32

// A counter of the driver that wraps or restarts, made to rise for ever.
typedef struct hn_unwrap {
    bool have;
    unsigned long long last;
    double total;
} hn_unwrap;

typedef struct hn_nvml_card {
    hn_nvml_device handle, parent; // parent: of a MIG instance
    unsigned gi;
    bool is_mig, mig_on; // instance; card split into instances
    uint32_t getters;    // bits of the getters that answered at the last opening
    // fields read with every sample and once a second
    hn_nvml_field_value fast[HN_METRIC_COUNT], slow[HN_METRIC_COUNT];
    hn_metric fast_metric[HN_METRIC_COUNT], slow_metric[HN_METRIC_COUNT];
    int fast_count, slow_count;
    hn_sample slow_values; // last answers
    int64_t slow_ns;
    hn_unwrap pcie[2], nvlink[2]; // tx, rx
    // rates from counters where GPM has none: previous reading
    double rate_last[4];
    int64_t rate_ns;
    // GPM
    hn_nvml_gpm_sample gpm[2]; // owned; [0] is the older
    int64_t gpm_ns;            // of gpm[0]
    bool gpm_on, gpm_have;
    int gpm_count;
    hn_metric gpm_metric[HN_METRIC_COUNT];
    hn_nvml_gpm_get *get; // owned
    hn_sample gpm_values; // last answers, for readings too close together
    unsigned long long util_since_us; // processes: newest sample seen
    hn_nvml_process process_items[HN_NVML_PROCESSES_MAX];
    hn_nvml_process_util util_items[HN_NVML_PROCESSES_MAX];
    // events, written by the waiting thread
    _Atomic int last_xid;
    _Atomic uint64_t xid_events;
    _Atomic bool lost, lost_told;
} hn_nvml_card;

typedef struct hn_nvml_probe {
    hn_probe base;
    hn_nvml api;
    hn_lib lib;
    bool initialised;
    hn_device_info devices[HN_NVML_DEVICES_MAX];
    hn_nvml_card *cards; // owned, HN_NVML_DEVICES_MAX
    hn_nvml_event_set events;
    int events_cards;      // cards whose events are registered
    _Atomic bool watching; // somebody waited for events
} hn_nvml_probe;

// Calls through the table; a missing function is HN_NVML_FUNCTION_NOT_FOUND.
#define HN_NVML_CALL(self, name, ...)                                                              \
    ((self)->api.name ? (self)->api.name(__VA_ARGS__) : HN_NVML_FUNCTION_NOT_FOUND)

void hn_nvml_read_facts(hn_nvml_probe *self, int device);
// Finds out which metrics the device answers; fills info->absent.
void hn_nvml_discover(hn_nvml_probe *self, int device);
void hn_nvml_forget(hn_nvml_probe *self, int device); // frees what discover took
hn_absent hn_nvml_why_absent(const hn_nvml_card *card, int result);
hone_status hn_nvml_sample(hone_error *err, hn_probe *probe, int device, hn_sample *out_sample);
#endif
