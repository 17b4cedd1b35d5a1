// SPDX-License-Identifier: Apache-2.0
// Checks of the host around the cards: kernel log, PCI access control and IOMMU, permissions,
// containers, MPS, CPU settings. All by reading files below hn_sys_path's root.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "config/config.h"
#include "probe/doctor.h"

#define KERNEL_LOG_BYTES (4 << 20)
#define XIDS_SHOWN       16

#define SAY(doctor, level, id, where, why, mend, ...)                                              \
    do {                                                                                           \
        char what_[256];                                                                           \
        snprintf(what_, sizeof what_, __VA_ARGS__);                                                \
        hn_doctor_add(doctor, level, id, where, what_, why, mend);                                 \
    } while (0)

// ---- kernel log -------------------------------------------------------------------------------
static const struct xid {
    int number;
    const char *class, *meaning, *mend;
} k_xids[] = {
#define HN_XID(number, class, meaning, mend) {number, #class, meaning, mend},
#include "probe/xids.def"
#undef HN_XID
};

typedef struct xid_count {
    int number, count;
    char bus_id[24];
} xid_count;

// "... NVRM: Xid (PCI:0000:83:00): 79, pid=..."
static bool parse_xid(hn_slice line, int64_t *out_number, hn_slice *out_bus) {
    const char *at = memmem(line.data, line.length, "NVRM: Xid (", 11);
    if (!at) return false;
    size_t left = line.length - (size_t)(at + 11 - line.data);
    const char *close = memchr(at + 11, ')', left);
    if (!close) return false;
    *out_bus = (hn_slice){at + 11, (size_t)(close - at - 11)};
    if (hn_slice_starts(*out_bus, "PCI:")) out_bus->data += 4, out_bus->length -= 4;
    const char *text = close + 1;
    while (text < line.data + line.length && (*text == ':' || *text == ' '))
        text++;
    size_t length = 0;
    while (text + length < line.data + line.length && text[length] >= '0' && text[length] <= '9')
        length++;
    return hn_parse_i64((hn_slice){text, length}, out_number) && *out_number > 0 && *out_number < 10000;
}

static void count_xid(xid_count *counts, int *used, int64_t number, hn_slice bus) {
    for (int i = 0; i < *used; i++)
        if (counts[i].number == number && hn_slice_eq(bus, counts[i].bus_id)) {
            counts[i].count++;
            return;
        }
    if (*used == XIDS_SHOWN) return;
    counts[*used] = (xid_count){.number = (int)number, .count = 1};
    snprintf(counts[*used].bus_id, sizeof counts[0].bus_id, "%.*s", (int)(bus.length < 23 ? bus.length : 23), bus.data);
    ++*used;
}

// The kernel's ring needs rights in most places; log files stand in for it.
static void check_kernel_log(hn_doctor *doctor) {
    static const char *const k_logs[] = {"/dev/kmsg", "/var/log/kern.log", "/var/log/dmesg", "/var/log/messages"};
    xid_count counts[XIDS_SHOWN];
    int used = 0;
    char *text = hn_malloc(KERNEL_LOG_BYTES);
    if (!text) return;
    for (size_t i = 0; i < HN_COUNT_OF(k_logs) && used == 0; i++) {
        char path[HN_SYS_PATH_BYTES];
        if (!hn_sys_path(path, "%s", k_logs[i])) continue;
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        size_t at = 0; // kmsg gives one record a read, and blocks at its end
        for (ssize_t got; at + 8192 < KERNEL_LOG_BYTES && (got = read(fd, text + at, 8192)) > 0;)
            at += (size_t)got;
        close(fd);
        hn_slice rest = {text, at}, line, bus;
        int64_t number;
        while (hn_slice_line(&rest, &line))
            if (parse_xid(line, &number, &bus)) count_xid(counts, &used, number, bus);
    }
    hn_free(text);
    for (int i = 0; i < used; i++) {
        const struct xid *row = NULL;
        for (size_t k = 0; k < HN_COUNT_OF(k_xids); k++)
            if (k_xids[k].number == counts[i].number) row = &k_xids[k];
        char where[64];
        snprintf(where, sizeof where, "pci %s", counts[i].bus_id);
        bool fatal = row && strcmp(row->class, "fatal") == 0, app = row && strcmp(row->class, "app") == 0;
        SAY(doctor, fatal ? HN_LEVEL_FAULT : app ? HN_LEVEL_NOTE : HN_LEVEL_WARN, "xid", where,
            app     ? "a program's fault: the card itself is fine"
            : fatal ? "work on this card is lost until it is mended"
                    : "the card needs a look",
            row ? row->mend : "look the number up in NVIDIA's list of Xid errors", "Xid %d, %d time%s in the kernel log: %s",
            counts[i].number, counts[i].count, counts[i].count == 1 ? "" : "s", row ? row->meaning : "not in this table");
    }
}

// ---- PCI --------------------------------------------------------------------------------------
static unsigned le16(const unsigned char *p) { return p[0] | (unsigned)p[1] << 8; }

// Bridges whose access control sends peer-to-peer packets up to the root: extended capability 0x000d,
// control bits 2 and 3 (request and completion redirect). Needs the extended configuration space,
// which only root may read.
static int bridges_with_acs(int *out_readable) {
    char path[HN_SYS_PATH_BYTES], text[32];
    unsigned char config[4096];
    int found = 0;
    *out_readable = 0;
    if (!hn_sys_path(path, "/sys/bus/pci/devices")) return 0;
    DIR *dir = opendir(path);
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!hn_sys_path(path, "/sys/bus/pci/devices/%.64s/class", entry->d_name) ||
            strncmp(hn_sys_line(path, text, sizeof text), "0x0604", 6) != 0)
            continue;
        hn_sys_path(path, "/sys/bus/pci/devices/%.64s/config", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd >= 0 ? pread(fd, config, sizeof config, 0) : -1;
        if (fd >= 0) close(fd);
        if (got < 4096) continue;
        ++*out_readable;
        for (unsigned at = 0x100, steps = 0; at >= 0x100 && at <= 4096 - 8 && steps < 64; steps++) {
            if (le16(config + at) == 0x000d) {
                found += (le16(config + at + 6) & 0xc) != 0;
                break;
            }
            at = le16(config + at + 2) >> 4;
        }
    }
    closedir(dir);
    return found;
}

static bool iommu_translates(void) {
    char path[HN_SYS_PATH_BYTES], text[64];
    bool translates = false;
    if (!hn_sys_path(path, "/sys/kernel/iommu_groups")) return false;
    DIR *dir = opendir(path);
    if (!dir) return false;
    for (struct dirent *entry; !translates && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !hn_sys_path(path, "/sys/kernel/iommu_groups/%.32s/type", entry->d_name)) continue;
        translates = strncmp(hn_sys_line(path, text, sizeof text), "DMA", 3) == 0;
    }
    closedir(dir);
    return translates;
}

static void check_pci(hn_doctor *doctor, int cards) {
    int on_bus = hn_sys_nvidia_cards(), readable;
    if (on_bus > cards && on_bus > 0)
        SAY(doctor, cards ? HN_LEVEL_FAULT : HN_LEVEL_WARN, "bus_count", "host",
            "a card may have fallen off without any error in the log", "look at the kernel log; reset or reboot",
            "the PCI bus shows %d NVIDIA cards, the driver %d", on_bus, cards);
    if (cards < 2 && on_bus < 2) return; // what follows matters between cards
    int acs = bridges_with_acs(&readable);
    if (acs)
        SAY(doctor, HN_LEVEL_WARN, "acs", "host", "packets between cards go up to the root and back: slow, and a cause of hangs in NCCL",
            "switch ACS off in the firmware, or per bridge with setpci, unless virtual machines need it",
            "access control (ACS) redirects peer-to-peer traffic on %d of %d PCI bridges", acs, readable);
    if (iommu_translates())
        SAY(doctor, HN_LEVEL_WARN, "iommu", "host", "peer-to-peer copies between cards may hang or be slow",
            "boot with iommu=pt, unless virtual machines need translation", "the IOMMU translates DMA");
}

// ---- permissions, containers, MPS -------------------------------------------------------------
static void check_driver_files(hn_doctor *doctor) {
    char path[HN_SYS_PATH_BYTES], text[16384];
    if (hn_sys_path(path, "/proc/driver/nvidia/params") && hn_sys_read(path, text, sizeof text) > 0 &&
        strstr(text, "RmProfilingAdminOnly: 1") && geteuid() != 0)
        SAY(doctor, HN_LEVEL_NOTE, "profiling_admin_only", "host",
            "Nsight, CUPTI and DCGM's activity counters are refused to users; GPM's are not on most drivers",
            "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d",
            "profiling counters are for administrators only (RmProfilingAdminOnly 1)");
    if (!hn_sys_path(path, "/proc/driver/nvidia/version") || hn_sys_read(path, text, sizeof text) <= 0) return;
    const char *user = doctor->probe && hn_probe_device_count(doctor->probe) ? hn_probe_device(doctor->probe, 0)->driver : "";
    if (*user && !strstr(text, user))
        SAY(doctor, HN_LEVEL_FAULT, "driver_mismatch", "host", "programs fail to start on the cards",
            "reboot, or unload and load the driver's modules", "the loaded kernel driver is not version %.40s of its libraries", user);
    if (!doctor->probe) {
        hn_sys_path(path, "/dev/nvidiactl");
        if (access(path, F_OK) != 0)
            SAY(doctor, HN_LEVEL_WARN, "no_device_files", "host", "the host has cards, this container does not see them",
                "start the container with --gpus all (nvidia-container-toolkit) or a CDI device",
                "the NVIDIA driver is loaded but there are no device files");
    }
}

static void check_mps(hn_doctor *doctor) {
    const char *folder = hn_config_env("CUDA_MPS_PIPE_DIRECTORY");
    char path[HN_SYS_PATH_BYTES];
    if (!hn_sys_path(path, "%.300s/control", folder && *folder ? folder : "/tmp/nvidia-mps")) return;
    if (access(path, F_OK) == 0)
        SAY(doctor, HN_LEVEL_NOTE, "mps", "host", "one client's fault ends all clients of the card; a killed client can wedge the server",
            "share only among jobs of one owner that can be restarted; end clients by terminate_client",
            "an MPS control daemon has a pipe in %.150s", folder && *folder ? folder : "/tmp/nvidia-mps");
}

static void check_cpu(hn_doctor *doctor) {
    char path[HN_SYS_PATH_BYTES], text[64];
    const hn_cpu *cpu = &doctor->cpu;
    if (cpu->quota_cpus < cpu->usable)
        SAY(doctor, HN_LEVEL_WARN, "cpu_quota", "host", "more threads than that are stopped in turn by the kernel: latency jumps",
            "run with --threads no larger than the quota, or raise it", "a quota of %.1f CPUs under %d in the affinity mask",
            cpu->quota_cpus, cpu->usable);
    if (hn_sys_path(path, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") &&
        strcmp(hn_sys_line(path, text, sizeof text), "powersave") == 0) {
        // intel_pstate's powersave is not the slow one
        char driver[64];
        hn_sys_path(path, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
        if (strncmp(hn_sys_line(path, driver, sizeof driver), "intel_pstate", 12) != 0 && strncmp(driver, "amd-pstate-epp", 14) != 0)
            SAY(doctor, HN_LEVEL_WARN, "cpu_governor", "host", "the CPU stays at its lowest clock",
                "cpupower frequency-set -g performance", "the CPU frequency governor is powersave");
    }
}

void hn_doctor_check_system(hn_doctor *doctor) {
    int cards = 0;
    for (int d = 0; doctor->probe && d < hn_probe_device_count(doctor->probe); d++)
        cards += hn_probe_device(doctor->probe, d)->kind == HN_DEVICE_GPU;
    check_kernel_log(doctor);
    check_pci(doctor, cards);
    check_driver_files(doctor);
    check_mps(doctor);
    check_cpu(doctor);
}
