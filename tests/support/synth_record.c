// SPDX-License-Identifier: Apache-2.0
#include "support/synth_record.h"
#include <stdio.h>

static int phase_at(double t_s) {
    double at = fmod(t_s, 20);
    return at < 5 ? 0 : at < 15 ? 1 : 2;
}

double synth_power_w(int card, double t_s) {
    static const double k_watts[] = {80, 600, 250};
    return k_watts[phase_at(t_s < card * 0.1 ? 0 : t_s - card * 0.1)] + card;
}

static void card_sample(int card, double t_s, double energy_mj, hn_sample *s) {
    static const double k_sm[] = {0, 0.92, 0.3}, k_tensor[] = {0, 0.61, 0}, k_dram[] = {0, 0.35, 0.81},
                        k_clock[] = {345, 1830, 1980};
    int phase = phase_at(t_s < card * 0.1 ? 0 : t_s - card * 0.1);
    double gib = 0x1p30;
    hn_sample_put(s, HN_M_power_w, synth_power_w(card, t_s));
    hn_sample_put(s, HN_M_power_instant_w, synth_power_w(card, t_s) + 1.5);
    hn_sample_put(s, HN_M_energy_mj, energy_mj);
    hn_sample_put(s, HN_M_power_limit_w, 700);
    hn_sample_put(s, HN_M_gr_active, phase ? 0.99 : 0);
    hn_sample_put(s, HN_M_sm_active, k_sm[phase]);
    hn_sample_put(s, HN_M_sm_occupancy, k_sm[phase] * 0.4);
    hn_sample_put(s, HN_M_tensor_active, k_tensor[phase]);
    hn_sample_put(s, HN_M_dram_active, k_dram[phase]);
    hn_sample_put(s, HN_M_l2_hit, phase ? 0.78 : 0);
    hn_sample_put(s, HN_M_gpu_util, phase ? 100 : 0);
    hn_sample_put(s, HN_M_mem_util, k_dram[phase] * 60);
    hn_sample_put(s, HN_M_fb_total_bytes, 141 * gib);
    hn_sample_put(s, HN_M_fb_used_bytes, phase ? 96 * gib : 1 * gib);
    hn_sample_put(s, HN_M_fb_free_bytes, phase ? 45 * gib : 140 * gib);
    hn_sample_put(s, HN_M_fb_reserved_bytes, 0.6 * gib);
    hn_sample_put(s, HN_M_sm_clock_mhz, k_clock[phase]);
    hn_sample_put(s, HN_M_mem_clock_mhz, 3201);
    hn_sample_put(s, HN_M_gpu_temp_c, phase ? 61 + card : 32 + card);
    hn_sample_put(s, HN_M_mem_temp_c, phase ? 70 : 40);
    hn_sample_put(s, HN_M_reasons, phase == 1 ? HN_REASON_POWER_CAP : phase ? 0 : HN_REASON_IDLE);
    hn_sample_put(s, HN_M_throttle_power_ns, floor(t_s / 20) * 1e9);
    hn_sample_put(s, HN_M_pcie_tx_bytes_s, phase == 2 ? 2.5e9 : 1e6);
    hn_sample_put(s, HN_M_pcie_rx_bytes_s, phase == 2 ? 48e9 : 2e6);
    hn_sample_put(s, HN_M_pcie_gen, 5);
    hn_sample_put(s, HN_M_pcie_width, 16);
    hn_sample_put(s, HN_M_pcie_replays, 0);
    hn_sample_put(s, HN_M_nvlink_tx_bytes_s, phase == 1 ? 1.2e11 : 0);
    hn_sample_put(s, HN_M_nvlink_rx_bytes_s, phase == 1 ? 1.2e11 : 0);
    hn_sample_put(s, HN_M_ecc_sbe_volatile, 0);
    hn_sample_put(s, HN_M_ecc_dbe_volatile, 0);
    hn_sample_put(s, HN_M_remapped_uncorrectable, 0);
    hn_sample_put(s, HN_M_remap_failure, 0);
    hn_sample_put(s, HN_M_processes, phase ? 1 : 0);
}

static void host_sample(double t_s, hn_sample *s) {
    hn_sample_put(s, HN_M_cpu_util, phase_at(t_s) == 1 ? 35 : 8);
    hn_sample_put(s, HN_M_cpu_busiest, 97);
    hn_sample_put(s, HN_M_host_mem_total_bytes, 0x1p41);
    hn_sample_put(s, HN_M_host_mem_available_bytes, 0x1p40);
    hn_sample_put(s, HN_M_rapl_package_mj, t_s * 210e3);
    hn_sample_put(s, HN_M_psi_io_some_ns, t_s * 1e6);
}

static void fill_info(hn_device_info *info, int card) {
    hn_device_info_init(info, HN_DEVICE_GPU);
    snprintf(info->name, sizeof info->name, "NVIDIA H200");
    snprintf(info->uuid, sizeof info->uuid, "GPU-00000000-0000-0000-0000-0000000000%02d", card);
    snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "00000000:%02X:00.0", 0x10 + card);
    snprintf(info->driver, sizeof info->driver, "590.48.01");
    info->gpu_index = info->minor = card;
    info->cc_major = 9;
    info->cc_minor = 0;
    info->sm_count = 132;
    info->memory_bytes = 141 * 0x1p30;
    info->power_limit_max_w = 700;
    info->power_limit_min_w = 200;
    info->max_sm_clock_mhz = 1980;
}

hone_status synth_record_write(hone_error *err, const char *path, const synth_record *what) {
    static hn_device_info infos[HN_RECORD_DEVICES_MAX];
    int devices = what->cards + what->host;
    for (int d = 0; d < what->cards; d++)
        fill_info(&infos[d], d);
    if (what->host) hn_device_info_init(&infos[what->cards], HN_DEVICE_HOST);
    hn_recorder *recorder;
    HN_TRY(hn_recorder_open(err, path, "synthetic", 0, INT64_C(1790000000000000000), infos, devices,
                            &recorder));
    static double energy_mj[HN_RECORD_DEVICES_MAX];
    memset(energy_mj, 0, sizeof energy_mj);
    static const char *const k_phases[] = {"idle", "train", "copy"};
    int64_t rows = (int64_t)(what->seconds * what->hz);
    int phase = -1;
    hone_status status = HONE_OK;
    for (int64_t row = 0; row < rows && status == HONE_OK; row++) {
        double t_s = (double)row / what->hz;
        hn_event event = {.kind = HN_EVENT_PHASE, .device = -1, .t_ns = llround(t_s * 1e9)};
        if (phase_at(t_s) != phase) {
            phase = phase_at(t_s);
            snprintf(event.text, sizeof event.text, "%s", k_phases[phase]);
            status = hn_recorder_event(err, recorder, &event);
        }
        for (int d = 0; d < devices && status == HONE_OK; d++) {
            hn_sample s = {.t_ns = event.t_ns};
            if (d == what->cards) {
                host_sample(t_s, &s);
            } else if (what->cards > what->lost_card && d == what->lost_card && row >= rows / 2) {
                event.kind = HN_EVENT_LOST;
                event.device = d;
                if (row == rows / 2) status = hn_recorder_event(err, recorder, &event);
                continue;
            } else {
                card_sample(d, t_s, 1e9 + energy_mj[d], &s);
                energy_mj[d] += synth_power_w(d, t_s) * 1e3 / what->hz;
            }
            if (status == HONE_OK) status = hn_recorder_put(err, recorder, d, &s);
        }
    }
    hone_status closed = hn_recorder_close(status == HONE_OK ? err : NULL, recorder);
    return status != HONE_OK ? status : closed;
}
