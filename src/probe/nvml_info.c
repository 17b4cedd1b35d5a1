// SPDX-License-Identifier: Apache-2.0
// NVML provider: the facts of a card or MIG instance. Each call may be refused; what is refused
// stays unknown.
#include <stdio.h>
#include "probe/nvml_int.h"
#include "probe/sys.h"
#include <ctype.h>

#define TEXT(name, field)                                                                          \
    do {                                                                                           \
        char text_[HN_INFO_BYTES] = "";                                                            \
        if (HN_NVML_CALL(self, name, card->handle, text_, sizeof text_) == HN_NVML_OK) {           \
            text_[sizeof text_ - 1] = '\0';                                                        \
            memcpy(info->field, text_, sizeof text_);                                              \
        }                                                                                          \
    } while (0)
#define NUMBER(name, field)                                                                        \
    do {                                                                                           \
        unsigned value_ = 0;                                                                       \
        if (HN_NVML_CALL(self, name, card->handle, &value_) == HN_NVML_OK) info->field = value_;   \
    } while (0)
#define NUMBER_OF(name, which, field, scale)                                                       \
    do {                                                                                           \
        unsigned value_ = 0;                                                                       \
        if (HN_NVML_CALL(self, name, card->handle, which, &value_) == HN_NVML_OK)                  \
            info->field = value_ * (scale);                                                        \
    } while (0)

static void read_modes(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    static const char *const k_compute[] = {"Default", "Exclusive_Thread", "Prohibited",
                                            "Exclusive_Process"};
    static const char *const k_virtual[] = {"None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA"};
    static const char *const k_fabric[] = {"", "Not Started", "In Progress", "Completed"};
    unsigned mode, pending;
    if (HN_NVML_CALL(self, nvmlDeviceGetComputeMode, card->handle, &mode) == HN_NVML_OK && mode < 4)
        snprintf(info->compute_mode, sizeof info->compute_mode, "%s", k_compute[mode]);
    if (HN_NVML_CALL(self, nvmlDeviceGetVirtualizationMode, card->handle, &mode) == HN_NVML_OK &&
        mode < 5)
        snprintf(info->virtualization, sizeof info->virtualization, "%s", k_virtual[mode]);
    if (HN_NVML_CALL(self, nvmlDeviceGetMigMode, card->handle, &mode, &pending) == HN_NVML_OK) {
        card->mig_on = mode == 1;
        snprintf(info->mig_mode, sizeof info->mig_mode, "%s%s", mode ? "Enabled" : "Disabled",
                 pending == mode ? "" : pending ? " (pending Enabled)" : " (pending Disabled)");
    }
    if (HN_NVML_CALL(self, nvmlDeviceGetEccMode, card->handle, &mode, &pending) == HN_NVML_OK) {
        info->ecc = mode;
        info->ecc_pending = pending;
    }
    hn_nvml_fabric fabric = {.version = HN_NVML_VERSION(hn_nvml_fabric, 2)};
    if (HN_NVML_CALL(self, nvmlDeviceGetGpuFabricInfoV, card->handle, &fabric) == HN_NVML_OK &&
        fabric.state >= 1 && fabric.state <= 3) {
        snprintf(info->fabric_state, sizeof info->fabric_state, "%s", k_fabric[fabric.state]);
        snprintf(info->fabric_status, sizeof info->fabric_status, "%s",
                 fabric.status == HN_NVML_OK ? "Success" : hn_nvml_result_text(fabric.status));
    }
}

// The host's node from the PCI bus; firmware that does not know says -1, which is no node. The kernel
// writes the domain with four digits and letters small: 00000000:8A:00.0 is 0000:8a:00.0.
static void read_numa_node(hn_device_info *info) {
    char path[HN_SYS_PATH_BYTES], bus[32];
    size_t length = strlen(info->pci_bus_id);
    if (length < 12 || length >= sizeof bus) return;
    snprintf(bus, sizeof bus, "%s", info->pci_bus_id + length - 12);
    for (char *c = bus; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    int64_t node;
    if (hn_sys_path(path, "/sys/bus/pci/devices/%s/numa_node", bus) && hn_sys_i64(path, &node) && node >= 0)
        info->numa_node = (double)node;
}

// Without sysfs (a container that hides it): the host's memory nodes nearest to the card, where it is
// just one. nvmlDeviceGetNumaNodeId is no help: it is the node that the card's own memory is (Grace),
// which has no CPUs and which a process must not be bound to.
static void read_memory_affinity(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    unsigned long nodes[16] = {0};
    int node = -1;
    if (HN_NVML_CALL(self, nvmlDeviceGetMemoryAffinity, card->handle, (unsigned)HN_COUNT_OF(nodes), nodes,
                     HN_NVML_AFFINITY_NODE) != HN_NVML_OK)
        return;
    for (int i = 0; i < (int)HN_COUNT_OF(nodes) * 64; i++)
        if (nodes[i / 64] >> (i % 64) & 1) {
            if (node >= 0) return;
            node = i;
        }
    if (node >= 0) info->numa_node = node;
}

static void read_links(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    int links = 0, active = 0;
    for (unsigned link = 0; link < 36; link++) {
        unsigned on = 0;
        if (HN_NVML_CALL(self, nvmlDeviceGetNvLinkState, card->handle, link, &on) != HN_NVML_OK)
            break;
        links++;
        active += on == 1;
    }
    if (links) info->nvlink_count = links, info->nvlink_active = active;
    NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_gen_max);
    NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, pcie_gen_device_max);
    NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max);
    read_numa_node(info);
    if (isnan(info->numa_node)) read_memory_affinity(self, card, info);
}

static void read_limits(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    unsigned low, high;
    if (HN_NVML_CALL(self, nvmlDeviceGetPowerManagementLimitConstraints, card->handle, &low,
                     &high) == HN_NVML_OK) {
        info->power_limit_min_w = low * 1e-3;
        info->power_limit_max_w = high * 1e-3;
    }
    if (HN_NVML_CALL(self, nvmlDeviceGetPowerManagementDefaultLimit, card->handle, &low) ==
        HN_NVML_OK)
        info->power_limit_default_w = low * 1e-3;
    NUMBER_OF(nvmlDeviceGetMaxClockInfo, HN_NVML_CLOCK_SM, max_sm_clock_mhz, 1);
    NUMBER_OF(nvmlDeviceGetMaxClockInfo, HN_NVML_CLOCK_MEM, max_mem_clock_mhz, 1);
    NUMBER_OF(nvmlDeviceGetTemperatureThreshold, HN_NVML_THRESHOLD_SLOWDOWN, temp_slowdown_c, 1);
    NUMBER_OF(nvmlDeviceGetTemperatureThreshold, HN_NVML_THRESHOLD_SHUTDOWN, temp_shutdown_c, 1);
}

static void read_common(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    TEXT(nvmlDeviceGetName, name);
    TEXT(nvmlDeviceGetUUID, uuid);
    if (self->api.nvmlSystemGetDriverVersion &&
        self->api.nvmlSystemGetDriverVersion(info->driver, sizeof info->driver) != HN_NVML_OK)
        info->driver[0] = '\0';
    int cuda;
    if (self->api.nvmlSystemGetCudaDriverVersion_v2 &&
        self->api.nvmlSystemGetCudaDriverVersion_v2(&cuda) == HN_NVML_OK)
        snprintf(info->cuda, sizeof info->cuda, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    hn_nvml_memory memory;
    if (HN_NVML_CALL(self, nvmlDeviceGetMemoryInfo, card->handle, &memory) == HN_NVML_OK)
        info->memory_bytes = (double)memory.total;
}

static void read_mig_instance(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    NUMBER(nvmlDeviceGetGpuInstanceId, gi_id);
    NUMBER(nvmlDeviceGetComputeInstanceId, ci_id);
    if (isfinite(info->gi_id)) card->gi = (unsigned)info->gi_id;
    hn_nvml_attributes attributes;
    if (HN_NVML_CALL(self, nvmlDeviceGetAttributes_v2, card->handle, &attributes) == HN_NVML_OK) {
        info->sm_count = attributes.sm_count;
        if (!isfinite(info->memory_bytes))
            info->memory_bytes = (double)attributes.memory_mib * 0x1p20;
    }
    const char *profile = strstr(info->name, " MIG ");
    if (profile) snprintf(info->mig_profile, sizeof info->mig_profile, "%s", profile + 5);
}

// Streaming multiprocessors follow from the cores and what each generation puts in one.
static double sm_count(int major, int minor, unsigned cores) {
    unsigned per_sm = major == 6 && minor == 0 ? 64 : major == 6 ? 128
                      : major == 7                               ? 64
                      : major == 8 && minor == 0                 ? 64
                      : major >= 8                               ? 128
                                                                 : 0;
    return per_sm ? cores / per_sm : NAN;
}

static void read_architecture(hn_nvml_probe *self, hn_nvml_card *card, hn_device_info *info) {
    static const char *const k_names[] = {[2] = "Kepler", [3] = "Maxwell", [4] = "Pascal",
                                          [5] = "Volta", [6] = "Turing", [7] = "Ampere",
                                          [8] = "Ada", [9] = "Hopper", [10] = "Blackwell"};
    unsigned value;
    if (HN_NVML_CALL(self, nvmlDeviceGetArchitecture, card->handle, &value) == HN_NVML_OK &&
        value < HN_COUNT_OF(k_names) && k_names[value])
        snprintf(info->architecture, sizeof info->architecture, "%s", k_names[value]);
    int major, minor;
    if (HN_NVML_CALL(self, nvmlDeviceGetCudaComputeCapability, card->handle, &major, &minor) !=
        HN_NVML_OK)
        return;
    info->cc_major = major;
    info->cc_minor = minor;
    if (HN_NVML_CALL(self, nvmlDeviceGetNumGpuCores, card->handle, &value) == HN_NVML_OK)
        info->sm_count = sm_count(major, minor, value);
}

void hn_nvml_read_facts(hn_nvml_probe *self, int device) {
    hn_nvml_card *card = &self->cards[device];
    hn_device_info *info = &self->devices[device];
    read_common(self, card, info);
    if (card->is_mig) {
        read_mig_instance(self, card, info);
        return;
    }
    read_architecture(self, card, info);
    TEXT(nvmlDeviceGetSerial, serial);
    TEXT(nvmlDeviceGetVbiosVersion, vbios);
    hn_nvml_pci pci = {0};
    if (HN_NVML_CALL(self, nvmlDeviceGetPciInfo_v3, card->handle, &pci) == HN_NVML_OK)
        snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "%.31s", pci.bus_id);
    NUMBER(nvmlDeviceGetMinorNumber, minor);
    NUMBER(nvmlDeviceGetMemoryBusWidth, bus_width_bits);
    NUMBER(nvmlDeviceGetPersistenceMode, persistence);
    read_modes(self, card, info);
    read_links(self, card, info);
    read_limits(self, card, info);
}
