// SPDX-License-Identifier: Apache-2.0
// NVML provider: samples. Which calls, fields and GPM metrics a device answers is found out once
// (discover); a sample then makes only those calls, and each value that is refused is left out.
#include <stdio.h>
#include "probe/nvml_int.h"

// Intervals of the tiers. Measured on an H200 with driver 580 (bench/probe/nvml_calls.c, CPU time a
// call, with pauses between as a sampler makes them): energy 4 to 7 ms, thermal throttle time 1.2,
// temperature margin 1.3, GPM's graphics and DRAM activity 1 to 1.9 each (its other metrics 0.006),
// PCIe byte counters 0.4 each, power 0.3, a GPM sample 0.05 to 0.25, all else about 0.1 or below.
static const int64_t k_tier_ns[HN_NVML_TIERS] = {
    [HN_TIER_EVERY] = 0,          [HN_TIER_POWER] = 95000000,   [HN_TIER_UTIL] = 150000000,
    [HN_TIER_SECOND] = 990000000, [HN_TIER_RARE] = 10000000000, [HN_TIER_ENERGY] = 5000000000,
};
// GPM's hardware counters are fetched about every 50 ms: a closer pair answers 0 for everything and
// not-a-number for DRAM. Such a pair is not used; older answers stand for a while. The dear metrics
// are averages over a whole second instead, so that nothing between two readings is missed.
static const int64_t k_gpm_window_ns[HN_NVML_GPM_SETS] = {HN_NVML_GPM_WINDOW_NS, 990000000};
#define GPM_HOLD_NS INT64_C(2500000000)

hn_absent hn_nvml_why_absent(const hn_nvml_card *card, int result) {
    switch (result) {
    case HN_NVML_OK: return HN_ABSENT_NOT;
    case HN_NVML_NO_PERMISSION: return HN_ABSENT_PERMISSION;
    case HN_NVML_FUNCTION_NOT_FOUND:
    case HN_NVML_LIBRARY_NOT_FOUND: return HN_ABSENT_LIBRARY;
    case HN_NVML_NOT_SUPPORTED:
    case HN_NVML_INVALID_ARGUMENT:
    case HN_NVML_NOT_FOUND:
    case HN_NVML_DEPRECATED:
    case HN_NVML_ARGUMENT_VERSION:
        return card->mig_on ? HN_ABSENT_MIG : HN_ABSENT_UNSUPPORTED;
    default: return HN_ABSENT_ERROR;
    }
}

// ---- calls ------------------------------------------------------------------------------------
typedef int (*getter_fn)(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s);

static int get_utilization(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    hn_nvml_utilization value;
    int result = HN_NVML_CALL(self, nvmlDeviceGetUtilizationRates, card->handle, &value);
    if (result != HN_NVML_OK) return result;
    if (value.gpu <= 100) hn_sample_put(s, HN_M_gpu_util, value.gpu);
    if (value.memory <= 100) hn_sample_put(s, HN_M_mem_util, value.memory);
    return result;
}

static int get_memory(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    hn_nvml_memory_v2 now = {.version = HN_NVML_VERSION(hn_nvml_memory_v2, 2)};
    int result = HN_NVML_CALL(self, nvmlDeviceGetMemoryInfo_v2, card->handle, &now);
    if (result == HN_NVML_OK) {
        hn_sample_put(s, HN_M_fb_reserved_bytes, (double)now.reserved);
    } else { // drivers before 510: what is reserved is counted as used
        hn_nvml_memory old;
        result = HN_NVML_CALL(self, nvmlDeviceGetMemoryInfo, card->handle, &old);
        if (result != HN_NVML_OK) return result;
        now.total = old.total, now.used = old.used, now.free = old.free;
    }
    hn_sample_put(s, HN_M_fb_total_bytes, (double)now.total);
    hn_sample_put(s, HN_M_fb_used_bytes, (double)now.used);
    hn_sample_put(s, HN_M_fb_free_bytes, (double)now.free);
    return result;
}

static int get_bar1(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    hn_nvml_bar1 value;
    int result = HN_NVML_CALL(self, nvmlDeviceGetBAR1MemoryInfo, card->handle, &value);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_bar1_used_bytes, (double)value.used);
    return result;
}

static int get_sm_clock(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned mhz;
    int result = HN_NVML_CALL(self, nvmlDeviceGetClockInfo, card->handle, HN_NVML_CLOCK_SM, &mhz);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_sm_clock_mhz, mhz);
    return result;
}
static int get_mem_clock(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned mhz;
    int result = HN_NVML_CALL(self, nvmlDeviceGetClockInfo, card->handle, HN_NVML_CLOCK_MEM, &mhz);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_mem_clock_mhz, mhz);
    return result;
}
static int get_video_clock(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned mhz;
    int result = HN_NVML_CALL(self, nvmlDeviceGetClockInfo, card->handle, HN_NVML_CLOCK_VIDEO, &mhz);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_video_clock_mhz, mhz);
    return result;
}

static int get_temperature(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    hn_nvml_temperature now = {.version = HN_NVML_VERSION(hn_nvml_temperature, 1)};
    int result = HN_NVML_CALL(self, nvmlDeviceGetTemperatureV, card->handle, &now);
    if (result != HN_NVML_OK) {
        unsigned celsius = 0;
        result = HN_NVML_CALL(self, nvmlDeviceGetTemperature, card->handle, 0, &celsius);
        now.celsius = (int)celsius;
    }
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_gpu_temp_c, now.celsius);
    return result;
}

static int get_margin(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    hn_nvml_margin now = {.version = HN_NVML_VERSION(hn_nvml_margin, 1)};
    int result = HN_NVML_CALL(self, nvmlDeviceGetMarginTemperature, card->handle, &now);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_temp_margin_c, now.celsius);
    return result;
}

static int get_reasons(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned long long bits;
    int result = HN_NVML_CALL(self, nvmlDeviceGetCurrentClocksEventReasons, card->handle, &bits);
    if (result == HN_NVML_FUNCTION_NOT_FOUND) // before driver 535
        result = HN_NVML_CALL(self, nvmlDeviceGetCurrentClocksThrottleReasons, card->handle, &bits);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_reasons, (double)bits);
    return result;
}

static int get_pstate(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned state;
    int result = HN_NVML_CALL(self, nvmlDeviceGetPerformanceState, card->handle, &state);
    if (result == HN_NVML_OK && state <= 15) hn_sample_put(s, HN_M_pstate, state); // 32 = unknown
    return result;
}

static int get_enforced_limit(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned mw;
    int result = HN_NVML_CALL(self, nvmlDeviceGetEnforcedPowerLimit, card->handle, &mw);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_power_limit_w, mw * 1e-3);
    return result;
}
static int get_requested_limit(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned mw;
    if (hn_sample_has(s, HN_M_power_limit_requested_w)) return HN_NVML_OK;
    int result = HN_NVML_CALL(self, nvmlDeviceGetPowerManagementLimit, card->handle, &mw);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_power_limit_requested_w, mw * 1e-3);
    return result;
}
// Fallbacks of fields that drivers before 535, and some cards, do not have.
static int get_power(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned mw;
    if (hn_sample_has(s, HN_M_power_w)) return HN_NVML_OK;
    int result = HN_NVML_CALL(self, nvmlDeviceGetPowerUsage, card->handle, &mw);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_power_w, mw * 1e-3);
    return result;
}
static int get_energy(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned long long mj;
    if (hn_sample_has(s, HN_M_energy_mj)) return HN_NVML_OK;
    int result = HN_NVML_CALL(self, nvmlDeviceGetTotalEnergyConsumption, card->handle, &mj);
    if (result == HN_NVML_OK) hn_sample_put(s, HN_M_energy_mj, (double)mj);
    return result;
}

#define ENGINE_GETTER(fn, call, metric)                                                            \
    static int fn(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {                         \
        unsigned percent, period_us;                                                               \
        int result = HN_NVML_CALL(self, call, card->handle, &percent, &period_us);                 \
        if (result == HN_NVML_OK && percent <= 100) hn_sample_put(s, metric, percent);             \
        return result;                                                                             \
    }
ENGINE_GETTER(get_encoder, nvmlDeviceGetEncoderUtilization, HN_M_enc_util)
ENGINE_GETTER(get_decoder, nvmlDeviceGetDecoderUtilization, HN_M_dec_util)
ENGINE_GETTER(get_jpeg, nvmlDeviceGetJpgUtilization, HN_M_jpg_util)
ENGINE_GETTER(get_ofa, nvmlDeviceGetOfaUtilization, HN_M_ofa_util)

#define NUMBER_GETTER(fn, call, metric)                                                            \
    static int fn(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {                         \
        unsigned value;                                                                            \
        int result = HN_NVML_CALL(self, call, card->handle, &value);                               \
        if (result == HN_NVML_OK) hn_sample_put(s, metric, value);                                 \
        return result;                                                                             \
    }
NUMBER_GETTER(get_fan, nvmlDeviceGetFanSpeed, HN_M_fan_percent)
NUMBER_GETTER(get_pcie_gen, nvmlDeviceGetCurrPcieLinkGeneration, HN_M_pcie_gen)
NUMBER_GETTER(get_pcie_width, nvmlDeviceGetCurrPcieLinkWidth, HN_M_pcie_width)

static int get_process_count(hn_nvml_probe *self, hn_nvml_card *card, hn_sample *s) {
    unsigned count = HN_NVML_PROCESSES_MAX;
    int result = HN_NVML_CALL(self, nvmlDeviceGetComputeRunningProcesses_v3, card->handle, &count,
                              card->process_items);
    if (result == HN_NVML_OK || result == HN_NVML_INSUFFICIENT_SIZE)
        hn_sample_put(s, HN_M_processes, count);
    return result == HN_NVML_INSUFFICIENT_SIZE ? HN_NVML_OK : result;
}

static const struct getter {
    getter_fn fn;
    hn_nvml_tier_id tier;
    hn_metric metrics[4]; // filled; the unused are HN_METRIC_COUNT
} k_getters[] = {
#define NONE HN_METRIC_COUNT
    {get_memory, HN_TIER_UTIL, {HN_M_fb_total_bytes, HN_M_fb_used_bytes, HN_M_fb_free_bytes, HN_M_fb_reserved_bytes}},
    {get_sm_clock, HN_TIER_EVERY, {HN_M_sm_clock_mhz, NONE, NONE, NONE}},
    {get_mem_clock, HN_TIER_SECOND, {HN_M_mem_clock_mhz, NONE, NONE, NONE}},
    {get_temperature, HN_TIER_SECOND, {HN_M_gpu_temp_c, NONE, NONE, NONE}},
    {get_reasons, HN_TIER_EVERY, {HN_M_reasons, NONE, NONE, NONE}},
    {get_power, HN_TIER_POWER, {HN_M_power_w, NONE, NONE, NONE}},
    {get_utilization, HN_TIER_UTIL, {HN_M_gpu_util, HN_M_mem_util, NONE, NONE}},
    {get_video_clock, HN_TIER_SECOND, {HN_M_video_clock_mhz, NONE, NONE, NONE}},
    {get_pstate, HN_TIER_SECOND, {HN_M_pstate, NONE, NONE, NONE}},
    {get_fan, HN_TIER_SECOND, {HN_M_fan_percent, NONE, NONE, NONE}},
    {get_pcie_gen, HN_TIER_SECOND, {HN_M_pcie_gen, NONE, NONE, NONE}},
    {get_pcie_width, HN_TIER_SECOND, {HN_M_pcie_width, NONE, NONE, NONE}},
    {get_encoder, HN_TIER_SECOND, {HN_M_enc_util, NONE, NONE, NONE}},
    {get_decoder, HN_TIER_SECOND, {HN_M_dec_util, NONE, NONE, NONE}},
    {get_jpeg, HN_TIER_SECOND, {HN_M_jpg_util, NONE, NONE, NONE}},
    {get_ofa, HN_TIER_SECOND, {HN_M_ofa_util, NONE, NONE, NONE}},
    {get_process_count, HN_TIER_SECOND, {HN_M_processes, NONE, NONE, NONE}},
    {get_enforced_limit, HN_TIER_RARE, {HN_M_power_limit_w, NONE, NONE, NONE}},
    {get_requested_limit, HN_TIER_RARE, {HN_M_power_limit_requested_w, NONE, NONE, NONE}},
    {get_bar1, HN_TIER_RARE, {HN_M_bar1_used_bytes, NONE, NONE, NONE}},
    {get_margin, HN_TIER_RARE, {HN_M_temp_margin_c, NONE, NONE, NONE}},
    {get_energy, HN_TIER_ENERGY, {HN_M_energy_mj, NONE, NONE, NONE}},
#undef NONE
};
_Static_assert(sizeof k_getters / sizeof k_getters[0] <= HN_NVML_GETTERS_MAX, "bits of a tier's getters");

// ---- fields -----------------------------------------------------------------------------------
static double field_number(const hn_nvml_field_value *field) {
    switch (field->type) {
    case HN_NVML_F64: return field->value.f64;
    case HN_NVML_U32: return field->value.u32;
    case HN_NVML_UL: return (double)field->value.ul;
    case HN_NVML_U64: return (double)field->value.u64;
    case HN_NVML_I64: return (double)field->value.i64;
    case HN_NVML_I32: return field->value.i32;
    case HN_NVML_U16: return field->value.u16;
    default: return NAN;
    }
}

// PCIe byte counters are 32 bits wide on some cards, whatever type they come in.
static double unwrap(hn_unwrap *at, double raw) {
    unsigned long long now = raw < 0 ? 0 : (unsigned long long)raw;
    if (at->have && now >= at->last)
        at->total += (double)(now - at->last);
    else if (at->have && at->last <= UINT32_MAX && at->last > UINT32_MAX / 4 * 3)
        at->total += (double)(UINT32_MAX - at->last) + 1 + (double)now;
    else if (at->have) // restarted
        at->total += (double)now;
    at->have = true;
    at->last = now;
    return at->total;
}

static void take_field(hn_nvml_card *card, hn_metric metric, const hn_nvml_field_value *field,
                       hn_sample *s) {
    double value = field_number(field);
    if (!isfinite(value)) return;
    double scale = hn_metric_rows[metric].nvml_scale;
    value = scale < 1 ? value / round(1 / scale) : value * scale; // 80704 mW are 80.704 W, not 80.70400000000001
    if (metric == HN_M_pcie_tx_bytes || metric == HN_M_pcie_rx_bytes)
        value = unwrap(&card->pcie[metric == HN_M_pcie_rx_bytes], value);
    // A memory temperature of 0 is what cards without that sensor say.
    if (metric == HN_M_mem_temp_c && value <= 0) return;
    hn_sample_put(s, metric, value);
}

static int read_fields(hn_nvml_probe *self, hn_nvml_card *card, hn_nvml_tier *tier) {
    if (tier->field_count == 0) return HN_NVML_OK;
    int result = HN_NVML_CALL(self, nvmlDeviceGetFieldValues, card->handle, tier->field_count, tier->fields);
    if (result != HN_NVML_OK) return result;
    for (int i = 0; i < tier->field_count; i++) {
        if (tier->fields[i].result == HN_NVML_GPU_IS_LOST) return HN_NVML_GPU_IS_LOST;
        if (tier->fields[i].result == HN_NVML_OK)
            take_field(card, tier->metrics[i], &tier->fields[i], &tier->values);
    }
    return HN_NVML_OK;
}

static void discover_fields(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        int code = hn_metric_rows[m].nvml_field;
        if (code == 0) continue;
        unsigned scope = (unsigned)code >> 16 & HN_NVML_ALL;
        hn_nvml_field_value field = {.field = (unsigned)code & 0xffff,
                                     .scope = scope == HN_NVML_ALL ? ~0u : scope};
        int result = HN_NVML_CALL(self, nvmlDeviceGetFieldValues, card->handle, 1, &field);
        if (result == HN_NVML_OK) result = field.result;
        hn_sample probe = {0};
        if (result == HN_NVML_OK) {
            take_field(card, (hn_metric)m, &field, &probe);
            if (!hn_sample_has(&probe, (hn_metric)m)) result = HN_NVML_NOT_SUPPORTED;
        }
        info->absent[m] = (uint8_t)hn_nvml_why_absent(card, result);
        if (result != HN_NVML_OK) continue;
        hn_nvml_tier *tier = &card->tiers[m == HN_M_energy_mj            ? HN_TIER_ENERGY
                                          : code & HN_NVML_RARE(0)   ? HN_TIER_RARE
                                          : code & HN_NVML_SECOND(0) ? HN_TIER_SECOND
                                                                     : HN_TIER_POWER];
        tier->metrics[tier->field_count] = (hn_metric)m;
        tier->fields[tier->field_count++] = field;
    }
}

// ---- GPM --------------------------------------------------------------------------------------
static int gpm_take(hn_nvml_probe *self, hn_nvml_card *card, hn_nvml_gpm_sample sample) {
    return card->is_mig ? HN_NVML_CALL(self, nvmlGpmMigSampleGet, card->parent, card->gi, sample)
                        : HN_NVML_CALL(self, nvmlGpmSampleGet, card->handle, sample);
}

static int gpm_ask(hn_nvml_probe *self, hn_nvml_card *card, const hn_nvml_gpm *set) {
    card->get->version = 1;
    card->get->count = (unsigned)set->count;
    card->get->first = set->pair[0];
    card->get->second = set->pair[1];
    for (int i = 0; i < set->count; i++)
        card->get->metrics[i] = (hn_nvml_gpm_metric){.id = (unsigned)hn_metric_rows[set->metrics[i]].gpm};
    return HN_NVML_CALL(self, nvmlGpmMetricsGet, card->get);
}

// The first sample of each pair.
static int start_gpm(hn_nvml_probe *self, hn_nvml_card *card) {
    hn_nvml_gpm_support support = {.version = 1};
    int result = HN_NVML_CALL(self, nvmlGpmQueryDeviceSupport,
                              card->is_mig ? card->parent : card->handle, &support);
    if (result != HN_NVML_OK) return result;
    if (!support.supported) return HN_NVML_NOT_SUPPORTED;
    card->get = hn_calloc(1, sizeof *card->get);
    if (!card->get) return HN_NVML_INSUFFICIENT_SIZE;
    for (int k = 0; k < HN_NVML_GPM_SETS; k++) {
        hn_nvml_gpm *set = &card->gpm[k];
        for (int i = 0; i < 2 && result == HN_NVML_OK; i++)
            result = HN_NVML_CALL(self, nvmlGpmSampleAlloc, &set->pair[i]);
        if (result == HN_NVML_OK) result = gpm_take(self, card, set->pair[0]);
        set->older_ns = hn_clock_ns();
    }
    return result;
}

// Asked for: what the table has, but NVLink rates only where there are links (else the answer is 0, not none).
// PCIe rates are asked for beside the byte counters: on an H200 those are 32 bits wide and wrap up to
// thirteen times between two readings of a second.
static void choose_gpm(hn_nvml_card *card, const hn_device_info *info) {
    for (int k = 0; k < HN_NVML_GPM_SETS; k++)
        card->gpm[k].count = 0;
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (!hn_metric_rows[m].gpm) continue;
        bool pcie = m == HN_M_pcie_tx_bytes_s || m == HN_M_pcie_rx_bytes_s, nvlink = m == HN_M_nvlink_tx_bytes_s || m == HN_M_nvlink_rx_bytes_s;
        if (nvlink && !card->is_mig && !(info->nvlink_active > 0)) continue;
        bool dear = m == HN_M_gr_active || m == HN_M_dram_active || pcie;
        hn_nvml_gpm *set = &card->gpm[dear ? HN_NVML_GPM_DEAR : HN_NVML_GPM_CHEAP];
        set->metrics[set->count++] = (hn_metric)m;
    }
}

// Whether the pair measured anything, and what: an empty one has no DRAM cycles to divide by.
static bool take_gpm(const hn_nvml_card *card, hn_nvml_gpm *set) {
    hn_sample now = {0};
    for (int i = 0; i < set->count; i++) {
        const hn_nvml_gpm_metric *metric = &card->get->metrics[i];
        const hn_metric_row *row = &hn_metric_rows[set->metrics[i]];
        if (set->metrics[i] == HN_M_dram_active && metric->result == HN_NVML_OK &&
            !isfinite(metric->value))
            return false;
        double value = metric->value * row->gpm_scale;
        if (metric->result != HN_NVML_OK || value < 0) continue;
        if (strcmp(row->unit, "ratio") == 0 && value > 1) value = value > 1.05 ? NAN : 1;
        hn_sample_put(&now, set->metrics[i], value);
    }
    // Hits and misses that are both 0 are counters that do not run (driver 580 on an H200).
    if (hn_sample_or(&now, HN_M_l2_hit, 0) == 0 && hn_sample_or(&now, HN_M_l2_miss, 0) == 0) {
        hn_sample_drop(&now, HN_M_l2_hit);
        hn_sample_drop(&now, HN_M_l2_miss);
    }
    set->values = now;
    return true;
}

// A new sample closes the window; the answers to it are in card->get.
static int close_window(hn_nvml_probe *self, hn_nvml_card *card, hn_nvml_gpm *set) {
    if (set->count == 0) return HN_NVML_OK;
    int result = gpm_take(self, card, set->pair[1]);
    int64_t now_ns = hn_clock_ns();
    if (result == HN_NVML_OK) result = gpm_ask(self, card, set);
    if (result != HN_NVML_OK || !take_gpm(card, set)) return result;
    hn_nvml_gpm_sample older = set->pair[0];
    set->pair[0] = set->pair[1];
    set->pair[1] = older;
    set->older_ns = set->values_ns = now_ns;
    return result;
}

void hn_nvml_discover_gpm(hn_nvml_probe *self, int device) {
    hn_nvml_card *card = &self->cards[device];
    hn_device_info *info = &self->devices[device];
    int total = 0;
    choose_gpm(card, info);
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        if (hn_metric_rows[m].gpm && info->absent[m] != HN_ABSENT_NOT)
            info->absent[m] = (uint8_t)(card->gpm_result == HN_NVML_OK
                                            ? HN_ABSENT_UNSUPPORTED
                                            : hn_nvml_why_absent(card, card->gpm_result));
    for (int k = 0; k < HN_NVML_GPM_SETS && card->gpm_result == HN_NVML_OK; k++) {
        hn_nvml_gpm *set = &card->gpm[k];
        int kept = 0, result = close_window(self, card, set);
        for (int i = 0; i < set->count; i++) {
            hn_metric metric = set->metrics[i];
            int one = result == HN_NVML_OK ? card->get->metrics[i].result : result;
            info->absent[metric] = (uint8_t)hn_nvml_why_absent(card, one);
            if (one == HN_NVML_OK) set->metrics[kept++] = metric;
        }
        set->count = kept;
        total += kept;
    }
    card->gpm_on = total > 0;
}

static int read_gpm(hn_nvml_probe *self, hn_nvml_card *card, bool refresh, hn_sample *s) {
    for (int k = 0; k < HN_NVML_GPM_SETS; k++) {
        hn_nvml_gpm *set = &card->gpm[k];
        int64_t now_ns = hn_clock_ns();
        if (set->count && now_ns - set->older_ns >= k_gpm_window_ns[refresh ? HN_NVML_GPM_CHEAP : k]) {
            int result = close_window(self, card, set);
            if (result != HN_NVML_OK) return result;
        }
        if (set->values_ns == 0 || now_ns - set->values_ns > GPM_HOLD_NS) continue;
        for (int i = 0; i < set->count; i++)
            if (hn_sample_has(&set->values, set->metrics[i]))
                hn_sample_put(s, set->metrics[i], set->values.value[set->metrics[i]]);
    }
    return HN_NVML_OK;
}

// The wraps of a 32-bit counter that its two readings cannot show: as many as make it fit the rate that GPM
// measured over about the same time.
static double hidden_bytes(hn_nvml_card *card, int i, hn_metric rate, double counted, int64_t step_ns) {
    const hn_sample *gpm = &card->gpm[HN_NVML_GPM_DEAR].values;
    if (!card->gpm_on || !hn_sample_has(gpm, rate) || card->pcie[i].last > UINT32_MAX) return 0;
    double expected = gpm->value[rate] * (double)step_ns * 1e-9;
    double wraps = round((expected - counted) / 0x1p32);
    return wraps > 0 ? wraps * 0x1p32 : 0;
}

// Link rates from differences of the byte counters of two readings of the tier.
static void derive_rates(hn_nvml_card *card, hn_device_info *info, hn_nvml_tier *tier, const hn_sample *before,
                         int64_t step_ns) {
    static const hn_metric k_counter[] = {HN_M_pcie_tx_bytes, HN_M_pcie_rx_bytes,
                                          HN_M_nvlink_tx_bytes, HN_M_nvlink_rx_bytes};
    static const hn_metric k_rate[] = {HN_M_pcie_tx_bytes_s, HN_M_pcie_rx_bytes_s,
                                       HN_M_nvlink_tx_bytes_s, HN_M_nvlink_rx_bytes_s};
    for (int i = 0; i < 4; i++) {
        double now = hn_sample_or(&tier->values, k_counter[i], NAN), last = hn_sample_or(before, k_counter[i], NAN);
        if (!(now >= last) || step_ns <= 0) continue;
        if (i < 2) {
            double hidden = hidden_bytes(card, i, k_rate[i], now - last, step_ns);
            card->pcie[i].total += hidden;
            now += hidden;
            hn_sample_put(&tier->values, k_counter[i], now);
        }
        hn_sample_put(&tier->values, k_rate[i], (now - last) * 1e9 / (double)step_ns);
        info->absent[k_rate[i]] = HN_ABSENT_NOT;
    }
}

// ---- discovery and sampling -------------------------------------------------------------------
void hn_nvml_forget(hn_nvml_probe *self, int device) {
    hn_nvml_card *card = &self->cards[device];
    for (int k = 0; k < HN_NVML_GPM_SETS; k++) {
        for (int i = 0; i < 2; i++)
            if (card->gpm[k].pair[i]) (void)HN_NVML_CALL(self, nvmlGpmSampleFree, card->gpm[k].pair[i]);
        card->gpm[k] = (hn_nvml_gpm){0};
    }
    hn_free(card->get);
    card->get = NULL;
    card->gpm_on = false;
}

void hn_nvml_discover(hn_nvml_probe *self, int device) {
    hn_nvml_card *card = &self->cards[device];
    hn_device_info *info = &self->devices[device];
    discover_fields(self, card, info);
    for (size_t i = 0; i < HN_COUNT_OF(k_getters); i++) {
        hn_sample probe = {0};
        bool needed = false;
        for (int k = 0; k < 4; k++)
            needed |= k_getters[i].metrics[k] != HN_METRIC_COUNT &&
                      info->absent[k_getters[i].metrics[k]] != HN_ABSENT_NOT;
        if (!needed) continue; // a field answers it
        int result = k_getters[i].fn(self, card, &probe);
        hn_absent why = hn_nvml_why_absent(card, result);
        for (int k = 0; k < 4; k++) {
            hn_metric metric = k_getters[i].metrics[k];
            if (metric != HN_METRIC_COUNT && info->absent[metric] != HN_ABSENT_NOT)
                info->absent[metric] = (uint8_t)(hn_sample_has(&probe, metric) ? HN_ABSENT_NOT
                                                 : result == HN_NVML_OK        ? HN_ABSENT_UNSUPPORTED
                                                                               : why);
        }
        // Refused for good (not supported, no such function): not asked again.
        if (result == HN_NVML_OK || why == HN_ABSENT_ERROR)
            card->tiers[k_getters[i].tier].getters |= UINT32_C(1) << i;
    }
    card->gpm_result = start_gpm(self, card);
}

static int read_tier(hn_nvml_probe *self, int device, hn_nvml_tier_id id, hn_sample *s, bool refresh,
                     int *asked, int *failed) {
    hn_nvml_card *card = &self->cards[device];
    hn_nvml_tier *tier = &card->tiers[id];
    int64_t now_ns = hn_clock_ns();
    if (tier->read_ns == 0 || refresh || now_ns - tier->read_ns >= k_tier_ns[id]) {
        hn_sample before = tier->values;
        tier->values = (hn_sample){.t_ns = now_ns};
        int result = read_fields(self, card, tier);
        if (tier->field_count) ++*asked, *failed += result != HN_NVML_OK;
        for (size_t i = 0; i < HN_COUNT_OF(k_getters); i++) {
            if (result == HN_NVML_GPU_IS_LOST || result == HN_NVML_RESET_REQUIRED) return result;
            if (!((tier->getters >> i) & 1)) continue;
            result = k_getters[i].fn(self, card, &tier->values);
            ++*asked;
            *failed += result != HN_NVML_OK;
        }
        if (result == HN_NVML_GPU_IS_LOST || result == HN_NVML_RESET_REQUIRED) return result;
        if (id == HN_TIER_SECOND && tier->read_ns)
            derive_rates(card, &self->devices[device], tier, &before, now_ns - tier->read_ns);
        tier->read_ns = now_ns;
    }
    for (int w = 0; w < HN_METRIC_WORDS; w++)
        for (uint64_t left = tier->values.valid[w]; left; left &= left - 1) {
            hn_metric metric = (hn_metric)(w * 64 + __builtin_ctzll(left));
            hn_sample_put(s, metric, tier->values.value[metric]);
        }
    if (id == HN_TIER_ENERGY) s->energy_t_ns = tier->values.energy_t_ns;
    return HN_NVML_OK;
}

static hone_status lost(hone_error *err, hn_nvml_probe *self, int device, int result) {
    hn_nvml_card *card = &self->cards[device];
    self->devices[device].lost = true;
    atomic_store(&card->lost, true);
    char label[64];
    HN_FAIL_VENDOR(err, HONE_ERR_DEVICE_LOST, result, "%s (%s): %s",
                   hn_device_label(&self->devices[device], label, sizeof label),
                   self->devices[device].pci_bus_id[0] ? self->devices[device].pci_bus_id
                                                       : "bus id unknown",
                   hn_nvml_result_text(result));
}

hone_status hn_nvml_sample(hone_error *err, hn_probe *probe, int device, hn_sample *out_sample) {
    hn_nvml_probe *self = (hn_nvml_probe *)probe;
    hn_nvml_card *card = &self->cards[device];
    if (atomic_load(&card->lost) || !card->handle)
        return lost(err, self, device, HN_NVML_GPU_IS_LOST);
    hn_sample s = {0};
    int64_t start_ns = hn_clock_ns();
    bool refresh = atomic_exchange(&card->refresh, false);
    int asked = 0, failed = 0, result = HN_NVML_OK;
    for (int t = 0; t < HN_NVML_TIERS && result == HN_NVML_OK; t++)
        result = read_tier(self, device, (hn_nvml_tier_id)t, &s, refresh, &asked, &failed);
    if (result == HN_NVML_OK && card->gpm_on) {
        int gpm = read_gpm(self, card, refresh, &s);
        if (gpm == HN_NVML_GPU_IS_LOST) result = gpm;
    }
    if (result != HN_NVML_OK) return lost(err, self, device, result);
    if (asked > 0 && failed == asked)
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE, HN_NVML_UNKNOWN, "gpu %.0f answers no call any more: %s",
                       self->devices[device].gpu_index, hn_nvml_result_text(HN_NVML_UNKNOWN));
    s.t_ns = hn_clock_ns();
    s.wall_ns = hn_clock_wall_ns();
    s.cost_ns = s.t_ns - start_ns;
    if (atomic_load(&self->watching)) {
        hn_sample_put(&s, HN_M_xid, atomic_load(&card->last_xid));
        hn_sample_put(&s, HN_M_xid_events, (double)atomic_load(&card->xid_events));
    }
    *out_sample = s;
    return HONE_OK;
}
