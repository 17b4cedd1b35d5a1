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

// What is read together at one rate: fields in one call, and getters by bit.
typedef enum hn_nvml_tier_id {
    HN_TIER_EVERY,  // with each sample: calls of microseconds
    HN_TIER_POWER,  // the power sensor changes ten times a second
    HN_TIER_UTIL,   // the driver's own window is 1/6 s
    HN_TIER_SECOND, // byte counters, throttle times, link state
    HN_TIER_RARE,   // fault counters, limits: milliseconds of CPU time in all
    HN_TIER_ENERGY, // 4 to 7 ms of CPU time a call on an H200
    HN_NVML_TIERS
} hn_nvml_tier_id;
typedef struct hn_nvml_tier {
    int64_t read_ns; // 0 = never
    hn_nvml_field_value fields[HN_METRIC_COUNT];
    hn_metric metrics[HN_METRIC_COUNT];
    int field_count;
    uint32_t getters;
    hn_sample values; // last answers
} hn_nvml_tier;

// GPM metrics that are read over one window: a pair of samples and the last answers.
enum { HN_NVML_GPM_CHEAP, HN_NVML_GPM_DEAR, HN_NVML_GPM_SETS };
typedef struct hn_nvml_gpm {
    hn_nvml_gpm_sample pair[2]; // owned; [0] is the older
    int64_t older_ns;           // of pair[0]
    int64_t values_ns;          // of values, 0 = none yet
    int count;
    hn_metric metrics[HN_METRIC_COUNT];
    hn_sample values;
} hn_nvml_gpm;

typedef struct hn_nvml_card {
    hn_nvml_device handle, parent; // parent: of a MIG instance
    unsigned gi;
    bool is_mig, mig_on; // instance; card split into instances
    hn_nvml_tier tiers[HN_NVML_TIERS];
    hn_unwrap pcie[2]; // tx, rx
    hn_nvml_gpm gpm[HN_NVML_GPM_SETS];
    bool gpm_on;
    int gpm_result;       // of starting it
    hn_nvml_gpm_get *get; // owned
    unsigned long long util_since_us; // processes: newest sample seen
    hn_nvml_process process_items[HN_NVML_PROCESSES_MAX];
    hn_nvml_process_util util_items[HN_NVML_PROCESSES_MAX];
    // events, written by the waiting thread
    _Atomic int last_xid;
    _Atomic uint64_t xid_events;
    _Atomic bool lost, lost_told, refresh; // refresh: all tiers are due
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
// Finds out which metrics the device answers; fills info->absent. In two steps with at least
// HN_NVML_GPM_WINDOW_NS between them, so that all devices wait for their activity counters at once.
#define HN_NVML_GPM_WINDOW_NS INT64_C(90000000)
void hn_nvml_discover(hn_nvml_probe *self, int device);
void hn_nvml_discover_gpm(hn_nvml_probe *self, int device);
void hn_nvml_forget(hn_nvml_probe *self, int device); // frees what discover took
hn_absent hn_nvml_why_absent(const hn_nvml_card *card, int result);
hone_status hn_nvml_sample(hone_error *err, hn_probe *probe, int device, hn_sample *out_sample);
#endif
