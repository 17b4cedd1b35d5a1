// SPDX-License-Identifier: Apache-2.0
// Checks over one card's facts and readings, whatever source they came from; data sheets.
#include <stdio.h>
#include "probe/doctor.h"

static const hn_sheet k_sheets[] = {
#define HN_SHEET(name, cc, sms, memory, bandwidth, links, link_rate, fp32, tf32, half, fp8, int8, watts) \
    {name, cc, sms, memory, bandwidth, links, link_rate, fp32, tf32, half, fp8, int8, watts},
#include "probe/sheets.def"
#undef HN_SHEET
};

double hn_device_bandwidth_gb_s(const hn_device_info *info) {
    // Two transfers a clock, on HBM and on the clock that NVML gives for GDDR.
    return info->bus_width_bits / 8 * info->max_mem_clock_mhz * 2 / 1e3;
}

const hn_sheet *hn_sheet_find(const hn_device_info *info) {
    const hn_sheet *best = NULL;
    double best_cost = 1e9, bandwidth = hn_device_bandwidth_gb_s(info);
    for (size_t i = 0; i < HN_COUNT_OF(k_sheets); i++) {
        const hn_sheet *sheet = &k_sheets[i];
        if (info->cc_major * 10 + info->cc_minor != sheet->cc) continue;
        if (isfinite(info->sm_count) && info->sm_count != sheet->sms) continue;
        double cost = 0;
        if (isfinite(bandwidth)) {
            double off = fabs(bandwidth / sheet->bandwidth_gb_s - 1);
            if (off > 0.08) continue;
            cost += off;
        }
        if (isfinite(info->memory_bytes)) {
            double off = fabs(info->memory_bytes / 1e9 / sheet->memory_gb - 1);
            if (off > 0.15) continue;
            cost += off;
        }
        if (!isfinite(info->sm_count) && !isfinite(bandwidth)) continue; // too little to go by
        // Links tell an A800 from an A100. A card whose links are not seen may be a guest's.
        if (info->nvlink_count > 0 && sheet->nvlinks != (int)info->nvlink_count) cost += 1;
        if (cost < best_cost) best_cost = cost, best = sheet;
    }
    return best_cost < 1 ? best : NULL;
}

typedef struct check {
    hn_doctor *doctor;
    const hn_device_info *info;
    const hn_sample *s;
    char where[64];
} check;

static double get(const check *c, hn_metric metric) { return hn_sample_or(c->s, metric, NAN); }

#define SAY(c, level, id, why, mend, ...)                                                          \
    do {                                                                                           \
        char what_[256];                                                                           \
        snprintf(what_, sizeof what_, __VA_ARGS__);                                                \
        hn_doctor_add((c)->doctor, level, id, (c)->where, what_, why, mend);                       \
    } while (0)

static void check_memory_errors(const check *c) {
    double dbe = get(c, HN_M_ecc_dbe_volatile), rows = get(c, HN_M_remapped_uncorrectable);
    if (dbe > 0)
        SAY(c, HN_LEVEL_FAULT, "ecc_uncorrected", "results since then may be wrong, and the card may be failing",
            "end its jobs, reset the card (nvidia-smi -r), run dcgmi diag -r 3; replace it if errors come back",
            "%.0f uncorrected memory errors since the driver was loaded", dbe);
    if (get(c, HN_M_remap_failure) == 1)
        SAY(c, HN_LEVEL_FAULT, "remap_failure", "spare rows of a memory bank are used up: the next error hits data",
            "replace the card", "a memory row could not be replaced");
    if (get(c, HN_M_remap_pending) == 1 || get(c, HN_M_retired_pending) == 1)
        SAY(c, HN_LEVEL_WARN, "repair_pending", "the faulty memory stays in use until then",
            "reset the card when its jobs are done", "a memory repair waits for a reset");
    if (rows > 0)
        SAY(c, HN_LEVEL_NOTE, "remapped_rows", "one is normal in a card's life; a growing number announces a failure",
            "watch DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "%.0f memory rows were replaced after uncorrectable errors", rows);
    double pages = get(c, HN_M_retired_dbe) + get(c, HN_M_retired_sbe);
    if (pages >= 60)
        SAY(c, HN_LEVEL_WARN, "retired_pages", "64 is the limit after which the maker replaces a card",
            "have the card replaced", "%.0f memory pages are retired", pages);
    if (c->info->ecc == 0 && c->info->cc_major >= 7 && isfinite(c->info->ecc))
        SAY(c, HN_LEVEL_NOTE, "ecc_off", "flipped bits go unseen", "nvidia-smi -e 1, then reset the card", "ECC is off");
    if (isfinite(c->info->ecc) && isfinite(c->info->ecc_pending) && c->info->ecc != c->info->ecc_pending)
        SAY(c, HN_LEVEL_NOTE, "ecc_pending", "the memory's usable size changes with it", "reset the card",
            "ECC will be %s after the next reset", c->info->ecc_pending == 1 ? "on" : "off");
}

static void check_links(const check *c) {
    double width = get(c, HN_M_pcie_width), gen = get(c, HN_M_pcie_gen), pstate = get(c, HN_M_pstate);
    bool busy = pstate == 0 && get(c, HN_M_gpu_util) > 0;
    if (width < c->info->pcie_width_max)
        SAY(c, HN_LEVEL_WARN, "pcie_width", "copies between host and card run at a fraction of their speed",
            "reseat card and riser; look for a slot shared with another device",
            "PCIe runs on %.0f of %.0f lanes", width, c->info->pcie_width_max);
    // The generation falls when a card idles: only under work it tells anything.
    if (busy && gen < c->info->pcie_gen_max)
        SAY(c, HN_LEVEL_WARN, "pcie_generation", "copies between host and card run at a fraction of their speed",
            "reseat the card; check the slot's setting in the firmware",
            "PCIe runs at generation %.0f of %.0f under work", gen, c->info->pcie_gen_max);
    if (c->info->pcie_gen_max < c->info->pcie_gen_device_max)
        SAY(c, HN_LEVEL_NOTE, "pcie_slot", "the slot, not the card, bounds copies from the host",
            "none, or a host with a newer PCIe", "the slot offers PCIe generation %.0f, the card could do %.0f",
            c->info->pcie_gen_max, c->info->pcie_gen_device_max);
    if (get(c, HN_M_pcie_replays) > 1000)
        SAY(c, HN_LEVEL_WARN, "pcie_replays", "each costs time, and a rising number announces a lost card",
            "reseat card and riser", "%.0f PCIe packets had to be sent again", get(c, HN_M_pcie_replays));
    if (c->info->nvlink_active < c->info->nvlink_count)
        SAY(c, HN_LEVEL_FAULT, "nvlink_down", "collectives run at the pace of the slowest pair, or fall to PCIe",
            "nvidia-smi nvlink -s and -e name the link; reseat bridge or baseboard",
            "%.0f of %.0f NVLink links are down", c->info->nvlink_count - c->info->nvlink_active, c->info->nvlink_count);
    if (c->info->fabric_state[0] && strcmp(c->info->fabric_state, "Completed") != 0)
        SAY(c, HN_LEVEL_FAULT, "fabric_state", "NCCL's NVLS and multi-card CUDA fail or hang until it is registered",
            "systemctl status nvidia-fabricmanager: its version must equal the driver's; NCCL_NVLS_ENABLE=0 works around",
            "the NVLink fabric is not registered (%s)", c->info->fabric_state);
    else if (c->info->fabric_status[0] && strcmp(c->info->fabric_status, "Success") != 0)
        SAY(c, HN_LEVEL_FAULT, "fabric_status", "NCCL's NVLS and multi-card CUDA fail until it is mended",
            "systemctl restart nvidia-fabricmanager, then reset the cards", "NVLink fabric registration ended with: %.120s",
            c->info->fabric_status);
}

static void check_power_and_heat(const check *c) {
    char reasons[160];
    double limit = get(c, HN_M_power_limit_w), usual = c->info->power_limit_default_w, bits = get(c, HN_M_reasons);
    if (limit < usual * 0.995)
        SAY(c, HN_LEVEL_WARN, "power_limit", "under full load the clocks fall", "nvidia-smi -pl to restore, if it is not meant",
            "the power limit is %.0f W, the card's default %.0f W", limit, usual);
    double requested = get(c, HN_M_power_limit_requested_w);
    if (requested > limit * 1.005)
        SAY(c, HN_LEVEL_NOTE, "power_limit_enforced", "something above the card (chassis, module) limits it further",
            "look at the module's or rack's power setting", "%.0f W were asked for, %.0f W are in force", requested, limit);
    if (bits >= 0 && ((uint64_t)bits & HN_REASON_FAULTS))
        SAY(c, HN_LEVEL_FAULT, "throttled", "the card runs below its clocks now",
            (uint64_t)bits & HN_REASON_POWER_BRAKE ? "the rack or power supply pulls the brake: check supplies and their limits"
                                                   : "check airflow, fans, coolant and inlet temperature",
            "slowed down by: %s", hn_reasons_text((uint64_t)bits & HN_REASON_FAULTS, reasons, sizeof reasons));
    double margin = get(c, HN_M_temp_margin_c), temp = get(c, HN_M_gpu_temp_c);
    if (!isfinite(margin)) margin = c->info->temp_slowdown_c - temp;
    if (margin < 5)
        SAY(c, HN_LEVEL_WARN, "hot", "at the limit the card slows itself down", "check airflow, fans, coolant and inlet temperature",
            "%.0f degrees left to the temperature limit", margin);
    static const struct {
        hn_metric metric;
        const char *what;
    } k_times[] = {{HN_M_throttle_hw_thermal_ns, "hardware temperature limit"}, {HN_M_throttle_brake_ns, "power brake"}};
    for (size_t i = 0; i < HN_COUNT_OF(k_times); i++)
        if (get(c, k_times[i].metric) > 60e9)
            SAY(c, HN_LEVEL_WARN, "throttle_history", "jobs since the driver was loaded lost time to it",
                "check cooling and power supply", "%.0f s lost to the %s since the driver was loaded",
                get(c, k_times[i].metric) * 1e-9, k_times[i].what);
}

static void check_modes(const check *c) {
    if (c->info->persistence == 0)
        SAY(c, HN_LEVEL_NOTE, "persistence_off", "the first program after each pause waits seconds for the driver, and clocks and limits are forgotten",
            "systemctl enable --now nvidia-persistenced", "persistence mode is off");
    if (strncmp(c->info->mig_mode, "Enabled", 7) == 0)
        SAY(c, HN_LEVEL_NOTE, "mig", "utilisation of the whole card is not defined then: absent is right, 0 would be wrong",
            "read activity per instance", "the card is split by MIG");
    if (strcmp(c->info->compute_mode, "Prohibited") == 0)
        SAY(c, HN_LEVEL_FAULT, "compute_prohibited", "no program can use the card", "nvidia-smi -c 0", "compute mode is Prohibited");
    if (c->info->recovery_action[0] && strcmp(c->info->recovery_action, "None") != 0)
        SAY(c, HN_LEVEL_FAULT, "recovery_action", "the driver has seen a fault that needs it", "do it when the card's jobs are done",
            "the driver asks for: %.64s", c->info->recovery_action);
    if (c->info->absent[HN_M_sm_active] == HN_ABSENT_PERMISSION)
        SAY(c, HN_LEVEL_WARN, "counter_permission", "SM, tensor and DRAM activity cannot be read: bounds are guessed from time shares",
            "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, or run as root", "activity counters need administrator rights");
    if (c->info->cc_major >= 7 && c->info->cc_major < 9 && (c->info->absent[HN_M_sm_active] == HN_ABSENT_UNSUPPORTED ||
                                                            c->info->absent[HN_M_sm_active] == HN_ABSENT_LIBRARY))
        SAY(c, HN_LEVEL_NOTE, "activity_needs_dcgm", "before Hopper, NVML has no SM, tensor and DRAM activity",
            "install datacenter-gpu-manager and start nvidia-dcgm", "no activity counters without DCGM");
}

// Readings that mislead.
static void check_use(const check *c) {
    double util = get(c, HN_M_gpu_util), dense = get(c, HN_M_sm_active);
    if (!isfinite(dense)) dense = get(c, HN_M_gr_active);
    if (util >= 80 && dense < 0.3)
        SAY(c, HN_LEVEL_NOTE, "low_density", "GPU_UTIL counts the time in which anything ran, not how full the card was",
            "judge by SM and tensor activity; larger batches or CUDA graphs fill the card",
            "%.0f %% utilisation, but only %.0f %% of the card was active", util, dense * 100);
    double used = get(c, HN_M_fb_used_bytes) / get(c, HN_M_fb_total_bytes);
    if (!isfinite(used)) used = get(c, HN_M_fb_used_bytes) / (get(c, HN_M_fb_used_bytes) + get(c, HN_M_fb_free_bytes));
    double power = get(c, HN_M_power_w), clock = get(c, HN_M_sm_clock_mhz);
    if (util == 0 && used > 0.1 && (clock >= 0.9 * c->info->max_sm_clock_mhz || power > 0.15 * c->info->power_limit_max_w))
        SAY(c, HN_LEVEL_NOTE, "parked_hot", "a loaded but idle program keeps clocks and power up",
            "end it, or give the card a second job", "idle at %.0f W with %.0f %% of its memory held", power, used * 100);
    if (used > 0.95)
        SAY(c, HN_LEVEL_NOTE, "memory_full", "the next allocation may fail", "smaller batches or fewer programs",
            "%.0f %% of the card's memory is in use", used * 100);
}

void hn_doctor_check_device(hn_doctor *doctor, const hn_device_info *info, const hn_sample *sample) {
    if (info->kind == HN_DEVICE_HOST) return;
    check c = {.doctor = doctor, .info = info, .s = sample};
    hn_device_label(info, c.where, sizeof c.where);
    if (info->lost) {
        SAY(&c, HN_LEVEL_FAULT, "lost", "programs on it have failed, and others wait for them",
            "check power, cooling and seating; reset it or reboot the host", "the card cannot be reached (fell off the bus)");
        return;
    }
    check_memory_errors(&c);
    if (info->kind == HN_DEVICE_MIG) return; // the rest is the card's
    check_links(&c);
    check_power_and_heat(&c);
    check_modes(&c);
    check_use(&c);
}
