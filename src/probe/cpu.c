// SPDX-License-Identifier: Apache-2.0
// CPU identity: see cpu.h. The instruction sets come from CPUID and the kernel's state-saving mask,
// not from /proc/cpuinfo, so that a level is claimed only where its registers are really kept.
#include "probe/cpu.h"
#include "config/config.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static hn_cpu g_cpu;
static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static const char *const k_isa_names[] = {"ref", "avx2", "avx512", "vnni", "amx"};

const char *hn_isa_name(hn_isa isa) { return k_isa_names[isa]; }

bool hn_isa_by_name(hn_slice name, hn_isa *out) {
    for (size_t i = 0; i < HN_COUNT_OF(k_isa_names); i++)
        if (hn_slice_eq(name, k_isa_names[i])) {
            *out = (hn_isa)i;
            return true;
        }
    return false;
}

#if defined(__x86_64__)
static uint64_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

// AMX tile data is off in a process until asked for (Linux 5.16).
static bool ask_for_amx(void) {
    enum { ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_XTILEDATA_ = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_XTILEDATA_) == 0;
}

static void read_cpuid(hn_cpu *cpu) {
    unsigned a, b, c, d, max = __get_cpuid_max(0, NULL);
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        memcpy(cpu->vendor, &b, 4);
        memcpy(cpu->vendor + 4, &d, 4);
        memcpy(cpu->vendor + 8, &c, 4);
    }
    if (__get_cpuid(0x80000000, &a, &b, &c, &d) && a >= 0x80000004) {
        char brand[49] = "";
        for (unsigned i = 0; i < 3; i++) {
            __get_cpuid(0x80000002 + i, &a, &b, &c, &d);
            unsigned words[4] = {a, b, c, d};
            memcpy(brand + i * 16, words, 16);
        }
        hn_slice name = hn_slice_trim((hn_slice){brand, strlen(brand)});
        snprintf(cpu->model, sizeof cpu->model, "%.*s", (int)name.length, name.data);
    }
    unsigned a1, b1, c1, d1, a7 = 0, b7 = 0, c7 = 0, d7 = 0, a71 = 0;
    if (!__get_cpuid(1, &a1, &b1, &c1, &d1)) return;
    cpu->stepping = a1 & 15;
    cpu->model_number = (int)((a1 >> 4 & 15) | (a1 >> 12 & 0xf0));
    cpu->family = (int)((a1 >> 8 & 15) + ((a1 >> 8 & 15) == 15 ? a1 >> 20 & 255 : 0));
    if (max >= 7) {
        __cpuid_count(7, 0, a7, b7, c7, d7);
        if (a7 >= 1) __cpuid_count(7, 1, a71, b, c, d);
    }
    uint64_t state = c1 & bit_OSXSAVE ? saved_state() : 0;
    bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6,
         tiles = (state & 0x60000) == 0x60000;
    bool avx2 = ymm && (c1 & bit_AVX) && (c1 & bit_FMA) && (c1 & bit_F16C) && (b7 & bit_AVX2);
    bool avx512 = avx2 && zmm && (b7 & bit_AVX512F) && (b7 & bit_AVX512BW) &&
                  (b7 & bit_AVX512VL) && (b7 & bit_AVX512DQ);
    bool vnni = avx512 && (c7 & bit_AVX512VNNI);
    cpu->avx_vnni = avx2 && (a71 & 1u << 4);
    cpu->avx512_vbmi = avx512 && (c7 & 1u << 1);
    cpu->avx512_bf16 = avx512 && (a71 & 1u << 5);
    cpu->avx512_fp16 = avx512 && (d7 & 1u << 23);
    bool amx = vnni && tiles && (d7 & 1u << 24) && (d7 & 1u << 25) && ask_for_amx();
    cpu->amx_bf16 = amx && (d7 & 1u << 22);
    cpu->amx_int8 = amx;
    cpu->isa = amx      ? HN_ISA_AMX
               : vnni   ? HN_ISA_VNNI
               : avx512 ? HN_ISA_AVX512
               : avx2   ? HN_ISA_AVX2
                        : HN_ISA_REF;
}
#else
static void read_cpuid(hn_cpu *cpu) { (void)cpu; }
#endif

static int64_t parse_cache_size(const char *text) {
    int64_t value;
    const char *unit = hn_sys_number(text, &value);
    if (!unit || value < 0) return 0;
    return *unit == 'K' ? value << 10 : *unit == 'M' ? value << 20 : value;
}

static void read_caches(hn_cpu *cpu) {
    char path[HN_SYS_PATH_BYTES], text[256];
    for (int i = 0; i < 8; i++) {
        int64_t level;
        if (!hn_sys_path(path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i) ||
            !hn_sys_i64(path, &level))
            continue;
        hn_sys_path(path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (strcmp(hn_sys_line(path, text, sizeof text), "Instruction") == 0) continue;
        hn_sys_path(path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        int64_t bytes = parse_cache_size(hn_sys_line(path, text, sizeof text));
        if (level == 1) cpu->l1d_bytes = bytes;
        if (level == 2) cpu->l2_bytes = bytes;
        if (level == 3) {
            cpu->l3_bytes = bytes;
            uint64_t shared[64];
            hn_sys_path(path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_list", i);
            int sharers = hn_sys_list(hn_sys_line(path, text, sizeof text), shared, 64 * 64);
            if (sharers > 0) cpu->l3_instances = (cpu->logical + sharers - 1) / sharers;
        }
    }
}

// Distinct (package, core) pairs, counted by the smallest CPU of each core's sibling list.
static void read_topology(hn_cpu *cpu) {
    char path[HN_SYS_PATH_BYTES], text[256];
    uint64_t online[64], siblings[64], packages[64] = {0};
    hn_sys_path(path, "/sys/devices/system/cpu/online");
    int count = hn_sys_list(hn_sys_line(path, text, sizeof text), online, 64 * 64);
    cpu->logical = count > 0 ? count : (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; count > 0 && i < 64 * 64; i++) {
        if (!((online[i / 64] >> (i % 64)) & 1)) continue;
        int64_t package;
        hn_sys_path(path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        if (hn_sys_list(hn_sys_line(path, text, sizeof text), siblings, 64 * 64) < 1) continue;
        int first = 0;
        while (!((siblings[first / 64] >> (first % 64)) & 1))
            first++;
        cpu->cores += first == i;
        hn_sys_path(path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        if (hn_sys_i64(path, &package) && package >= 0 && package < 64 &&
            !(packages[package] & 1)) {
            packages[package] = 1;
            cpu->sockets++;
        }
    }
    // Nodes that hold only memory (a GPU's, on Grace) do not count.
    for (int i = 0; i < 256; i++) {
        hn_sys_path(path, "/sys/devices/system/node/node%d/cpulist", i);
        if (hn_sys_list(hn_sys_line(path, text, sizeof text), siblings, 64 * 64) > 0)
            cpu->numa_nodes++;
    }
    if (cpu->numa_nodes == 0) cpu->numa_nodes = 1;
}

bool hn_cgroup_path(const char *controller, char out[HN_SYS_PATH_BYTES]) {
    char path[HN_SYS_PATH_BYTES], text[4096];
    if (!hn_sys_path(path, "/proc/self/cgroup") || hn_sys_read(path, text, sizeof text) < 0)
        return false;
    hn_slice rest = {text, strlen(text)}, line;
    while (hn_slice_line(&rest, &line)) {
        // id:controllers:path; id 0 with no controllers is the unified tree
        const char *first = memchr(line.data, ':', line.length);
        if (!first) continue;
        size_t left = line.length - (size_t)(first + 1 - line.data);
        const char *second = memchr(first + 1, ':', left);
        if (!second) continue;
        hn_slice names = {first + 1, (size_t)(second - first - 1)};
        hn_slice group = {second + 1, left - names.length - 1};
        bool match = names.length == 0 && *controller == '\0';
        for (size_t at = 0; *controller && at < names.length;) {
            const char *comma = memchr(names.data + at, ',', names.length - at);
            size_t end = comma ? (size_t)(comma - names.data) : names.length;
            match |= hn_slice_eq((hn_slice){names.data + at, end - at}, controller);
            at = end + 1;
        }
        if (!match) continue;
        // In a container the path may be the host's view and not exist here: then the root of the
        // mounted tree is this process's group. Hybrid hosts mount the unified tree one deeper.
        const char *const tops[] = {controller, *controller ? NULL : "unified"};
        for (int i = 0; i < 4; i++) {
            const char *top = tops[i % 2];
            if (!top || group.length > 256) continue;
            snprintf(out, HN_SYS_PATH_BYTES, "/sys/fs/cgroup%s%.64s%.*s", *top ? "/" : "", top,
                     i < 2 ? (int)group.length : 0, group.data);
            if (hn_sys_path(path, "%.400s/cgroup.procs", out) && access(path, F_OK) == 0)
                return true;
        }
    }
    return false;
}

static void read_limits(hn_cpu *cpu) {
    char group[HN_SYS_PATH_BYTES], path[HN_SYS_PATH_BYTES], text[128];
    int64_t quota, period, limit;
    cpu->quota_cpus = NAN;
    if (hn_cgroup_path("", group)) {
        // A limit may sit on any group above this one; the tightest holds.
        for (;;) {
            if (hn_sys_path(path, "%s/cpu.max", group)) {
                const char *rest = hn_sys_number(hn_sys_line(path, text, sizeof text), &quota);
                if (rest && hn_sys_number(rest, &period) && period > 0 && quota > 0)
                    cpu->quota_cpus = fmin(cpu->quota_cpus, (double)quota / (double)period);
            }
            if (hn_sys_path(path, "%s/memory.max", group) && hn_sys_i64(path, &limit) && limit > 0 &&
                (cpu->memory_limit_bytes == 0 || limit < cpu->memory_limit_bytes))
                cpu->memory_limit_bytes = limit;
            char *slash = strrchr(group, '/');
            if (!slash || strcmp(group, "/sys/fs/cgroup") == 0 || slash == group) break;
            *slash = '\0';
            if (strncmp(group, "/sys/fs/cgroup", 14) != 0) break;
        }
    }
    if (isnan(cpu->quota_cpus) && hn_cgroup_path("cpu", group)) {
        bool ok = hn_sys_path(path, "%s/cpu.cfs_quota_us", group) && hn_sys_i64(path, &quota) &&
                  hn_sys_path(path, "%s/cpu.cfs_period_us", group) && hn_sys_i64(path, &period);
        if (ok && quota > 0 && period > 0) cpu->quota_cpus = (double)quota / (double)period;
    }
    if (cpu->memory_limit_bytes == 0 && hn_cgroup_path("memory", group) &&
        hn_sys_path(path, "%s/memory.limit_in_bytes", group) && hn_sys_i64(path, &limit) &&
        limit > 0 && limit < INT64_MAX / 2) // "none" is a huge number in v1
        cpu->memory_limit_bytes = limit;
    if (hn_sys_path(path, "/proc/meminfo") && hn_sys_read(path, text, sizeof text) > 0 &&
        strncmp(text, "MemTotal:", 9) == 0 && hn_sys_number(text + 9, &limit))
        cpu->memory_bytes = limit * 1024;
    if (cpu->memory_limit_bytes >= cpu->memory_bytes) cpu->memory_limit_bytes = 0;
}

static void read_all(void) {
    hn_cpu cpu = {0};
    read_cpuid(&cpu);
    read_topology(&cpu);
    read_caches(&cpu);
    read_limits(&cpu);
    cpu.usable = hn_parallel_max();
    g_cpu = cpu;
}

const hn_cpu *hn_cpu_get(void) {
    pthread_once(&g_once, read_all);
    return &g_cpu;
}

hn_status hn_cpu_isa_check(hone_error *err) {
    const char *cap = hn_config_get()->isa;
    hn_isa isa;
    if (*cap && !hn_isa_by_name((hn_slice){cap, strlen(cap)}, &isa))
        HN_FAIL(err, HONE_ERR_USAGE,
                "isa: '%s' is no instruction set level: ref, avx2, avx512, vnni or amx", cap);
    return HONE_OK;
}

hn_isa hn_cpu_isa(void) {
    const char *cap = hn_config_get()->isa;
    hn_isa have = hn_cpu_get()->isa, wanted = have;
    if (*cap) hn_isa_by_name((hn_slice){cap, strlen(cap)}, &wanted);
    return wanted < have ? wanted : have;
}

int hn_cpu_parallelism(void) {
    const hn_cpu *cpu = hn_cpu_get();
    int count = cpu->usable;
    if (isfinite(cpu->quota_cpus) && cpu->quota_cpus < count) count = (int)ceil(cpu->quota_cpus);
    return count > 0 ? count : 1;
}
