// SPDX-License-Identifier: Apache-2.0
// The host as a device: CPU, memory, control group, pressure, RAPL energy, board sensors, disks and
// network. Files are opened once and read again in place; a sample allocates nothing.
//
// Counters start at the file's own value except RAPL, whose registers wrap within minutes: they are
// unwrapped here and start at 0. Ratios (CPU use) are over the time since the previous sample of
// this probe, so the first sample lacks them.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "probe/cpu.h"
#include "probe/probe.h"
#include "probe/sys.h"

#define SENSORS_MAX 64
#define TEXT_BYTES  (256 * 1024) // /proc/stat of a 512-CPU host is about 100 KB
#define CPUS_MAX    2048

typedef enum file_id {
    FILE_STAT,
    FILE_MEMINFO,
    FILE_LOADAVG,
    FILE_PSI_CPU,
    FILE_PSI_MEM,
    FILE_PSI_IO,
    FILE_DISKS,
    FILE_NET,
    FILE_CGROUP_MEM,
    FILE_CGROUP_CPU,
    FILE_COUNT
} file_id;

typedef struct sensor {
    int fd;
    hn_metric metric;
    double scale;
    int64_t last, range; // RAPL: last raw value and where it wraps
    double total;        // RAPL: unwrapped
} sensor;

typedef struct cpu_time {
    int64_t busy, idle, iowait;
} cpu_time;

typedef struct host {
    hn_probe base;
    hn_device_info info;
    int fds[FILE_COUNT];
    sensor sensors[SENSORS_MAX];
    int sensor_count;
    cpu_time all, *cpus; // previous reading; cpus owned, CPUS_MAX items
    bool have_previous;
    char *text; // owned, TEXT_BYTES
} host;

static void add_sensor(host *self, const char *path, hn_metric metric, double scale,
                       int64_t range) {
    if (self->sensor_count == SENSORS_MAX) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if ((errno == EACCES || errno == EPERM) && self->info.absent[metric])
            self->info.absent[metric] = HN_ABSENT_PERMISSION;
        return;
    }
    self->sensors[self->sensor_count++] =
        (sensor){.fd = fd, .metric = metric, .scale = scale, .last = -1, .range = range};
    self->info.absent[metric] = HN_ABSENT_NOT;
}

// Zones intel-rapl:N (packages; AMD uses the same name) and intel-rapl:N:M below them. The psys and
// core zones overlap the package and are left out, as is the mmio copy of the same registers.
static void find_rapl(host *self) {
    char path[HN_SYS_PATH_BYTES], name[64];
    if (!hn_sys_path(path, "/sys/class/powercap")) return;
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "intel-rapl:", 11) != 0) continue;
        int64_t range = 0;
        if (!hn_sys_path(path, "/sys/class/powercap/%.64s/name", entry->d_name)) continue;
        hn_sys_line(path, name, sizeof name);
        bool package = strncmp(name, "package", 7) == 0, dram = strcmp(name, "dram") == 0;
        if (!package && !dram) continue;
        if (hn_sys_path(path, "/sys/class/powercap/%.64s/max_energy_range_uj", entry->d_name))
            hn_sys_i64(path, &range);
        if (hn_sys_path(path, "/sys/class/powercap/%.64s/energy_uj", entry->d_name))
            add_sensor(self, path, package ? HN_M_rapl_package_mj : HN_M_rapl_dram_mj, 1e-3, range);
    }
    closedir(dir);
}

static bool is_cpu_sensor(const char *name) {
    static const char *const k_names[] = {"coretemp", "k10temp", "zenpower", "cpu_thermal"};
    for (size_t i = 0; i < HN_COUNT_OF(k_names); i++)
        if (strcmp(name, k_names[i]) == 0) return true;
    return false;
}

// Board power comes from the ACPI power meter where there is one; other sensors measure single rails.
static void find_hwmon(host *self) {
    char path[HN_SYS_PATH_BYTES], name[64];
    if (!hn_sys_path(path, "/sys/class/hwmon")) return;
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "hwmon", 5) != 0) continue;
        if (!hn_sys_path(path, "/sys/class/hwmon/%.64s/name", entry->d_name)) continue;
        hn_sys_line(path, name, sizeof name);
        bool meter = strcmp(name, "power_meter") == 0, cpu = is_cpu_sensor(name);
        static const char *const k_power[] = {"average", "input"};
        for (int i = 1; i <= 16 && (meter || cpu); i++) {
            int before = self->sensor_count;
            for (size_t k = 0; meter && k < 2 && self->sensor_count == before; k++)
                if (hn_sys_path(path, "/sys/class/hwmon/%.64s/power%d_%s", entry->d_name, i,
                                k_power[k]))
                    add_sensor(self, path, HN_M_hwmon_power_w, 1e-6, 0);
            if (cpu && hn_sys_path(path, "/sys/class/hwmon/%.64s/temp%d_input", entry->d_name, i))
                add_sensor(self, path, HN_M_cpu_temp_c, 1e-3, 0);
        }
    }
    closedir(dir);
}

static int open_file(const char *folder, const char *name) {
    char path[HN_SYS_PATH_BYTES];
    return hn_sys_path(path, "%s%s", folder, name) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static void find_cgroup(host *self) {
    static const struct {
        const char *controller;
        file_id id;
        const char *name;
    } k_files[] = {{"", FILE_CGROUP_MEM, "/memory.current"},
                   {"memory", FILE_CGROUP_MEM, "/memory.usage_in_bytes"},
                   {"", FILE_CGROUP_CPU, "/cpu.stat"},
                   {"cpu", FILE_CGROUP_CPU, "/cpu.stat"}};
    char group[HN_SYS_PATH_BYTES];
    for (size_t i = 0; i < HN_COUNT_OF(k_files); i++)
        if (self->fds[k_files[i].id] < 0 && hn_cgroup_path(k_files[i].controller, group))
            self->fds[k_files[i].id] = open_file(group, k_files[i].name);
}

static void host_close(hn_probe *probe) {
    host *self = (host *)probe;
    for (int i = 0; i < FILE_COUNT; i++)
        if (self->fds[i] >= 0) close(self->fds[i]);
    for (int i = 0; i < self->sensor_count; i++)
        close(self->sensors[i].fd);
    hn_free(self->cpus);
    hn_free(self->text);
    hn_free(self);
}

static hone_status host_open(hone_error *err, const char *arg, hn_probe **out_probe) {
    (void)arg;
    static const char *const k_files[FILE_COUNT] = {
        [FILE_STAT] = "/proc/stat",         [FILE_MEMINFO] = "/proc/meminfo",
        [FILE_LOADAVG] = "/proc/loadavg",   [FILE_PSI_CPU] = "/proc/pressure/cpu",
        [FILE_PSI_MEM] = "/proc/pressure/memory", [FILE_PSI_IO] = "/proc/pressure/io",
        [FILE_DISKS] = "/proc/diskstats",   [FILE_NET] = "/proc/net/dev",
    };
    host *self = hn_calloc(1, sizeof *self);
    if (!self) HN_NOMEM(err, "host probe");
    for (int i = 0; i < FILE_COUNT; i++)
        self->fds[i] = k_files[i] ? open_file(k_files[i], "") : -1;
    self->base = (hn_probe){.provider = &hn_probe_host, .device_count = 1, .devices = &self->info};
    self->cpus = hn_calloc(CPUS_MAX, sizeof *self->cpus);
    self->text = hn_malloc(TEXT_BYTES);
    if (!self->cpus || !self->text) {
        host_close(&self->base);
        HN_NOMEM(err, "host probe");
    }
    const hn_cpu *cpu = hn_cpu_get();
    hn_device_info_init(&self->info, HN_DEVICE_HOST);
    snprintf(self->info.name, sizeof self->info.name, "%s", cpu->model);
    self->info.cpus = cpu->usable;
    find_rapl(self);
    find_hwmon(self);
    find_cgroup(self);
    *out_probe = &self->base;
    return HONE_OK;
}

// ---- reading ----------------------------------------------------------------------------------
static const char *read_file(host *self, file_id id) {
    if (self->fds[id] < 0 || hn_sys_reread(self->fds[id], self->text, TEXT_BYTES) < 0) return NULL;
    return self->text;
}

static const char *next_line(const char *at) {
    at = strchr(at, '\n');
    return at ? at + 1 : NULL;
}

// user nice system idle iowait irq softirq steal; steal counts as busy: another guest had the CPU.
static bool parse_cpu_time(const char *at, cpu_time *out) {
    int64_t v[8] = {0};
    for (int i = 0; i < 8; i++)
        if (!(at = hn_sys_number(at, &v[i]))) {
            if (i < 4) return false;
            break;
        }
    *out = (cpu_time){v[0] + v[1] + v[2] + v[5] + v[6] + v[7], v[3], v[4]};
    return true;
}

static double share(const cpu_time *now, const cpu_time *before, bool iowait) {
    int64_t busy = now->busy - before->busy, idle = now->idle - before->idle,
            wait = now->iowait - before->iowait;
    int64_t all = busy + idle + (wait > 0 ? wait : 0); // iowait may step back
    if (all <= 0 || busy < 0) return NAN;
    return 100.0 * (double)(iowait ? (wait > 0 ? wait : 0) : busy) / (double)all;
}

static void read_stat(host *self, hn_sample *s) {
    const char *at = read_file(self, FILE_STAT);
    double busiest = NAN;
    for (; at && strncmp(at, "cpu", 3) == 0; at = next_line(at)) {
        cpu_time now;
        if (at[3] == ' ') {
            if (!parse_cpu_time(at + 4, &now)) return;
            if (self->have_previous) {
                hn_sample_put(s, HN_M_cpu_util, share(&now, &self->all, false));
                hn_sample_put(s, HN_M_cpu_iowait, share(&now, &self->all, true));
            }
            self->all = now;
            continue;
        }
        int64_t cpu;
        const char *rest = hn_sys_number(at + 3, &cpu);
        if (!rest || cpu < 0 || cpu >= CPUS_MAX || !parse_cpu_time(rest, &now)) continue;
        if (self->have_previous) busiest = fmax(busiest, share(&now, &self->cpus[cpu], false));
        self->cpus[cpu] = now;
    }
    hn_sample_put(s, HN_M_cpu_busiest, busiest);
    self->have_previous = true;
}

// The number after `key` at the start of a line, or false.
static bool find_number(const char *text, const char *key, int64_t *out) {
    size_t length = strlen(key);
    for (const char *at = text; at; at = next_line(at))
        if (strncmp(at, key, length) == 0) return hn_sys_number(at + length, out) != NULL;
    return false;
}

static void read_memory(host *self, hn_sample *s) {
    int64_t a, b;
    const char *text = read_file(self, FILE_MEMINFO);
    if (!text) return;
    if (find_number(text, "MemTotal:", &a))
        hn_sample_put(s, HN_M_host_mem_total_bytes, (double)a * 1024);
    if (find_number(text, "MemAvailable:", &a))
        hn_sample_put(s, HN_M_host_mem_available_bytes, (double)a * 1024);
    if (find_number(text, "SwapTotal:", &a) && find_number(text, "SwapFree:", &b))
        hn_sample_put(s, HN_M_host_swap_used_bytes, (double)(a - b) * 1024);
}

static void read_pressure(host *self, hn_sample *s, file_id id, hn_metric some, hn_metric full) {
    const char *text = read_file(self, id);
    int64_t us;
    for (const char *at = text; at; at = next_line(at)) {
        bool is_some = strncmp(at, "some ", 5) == 0, is_full = strncmp(at, "full ", 5) == 0;
        const char *line_end = strchr(at, '\n'), *total = strstr(at, "total=");
        if ((!is_some && !is_full) || !total || (line_end && total > line_end)) continue;
        hn_metric metric = is_some ? some : full;
        if (metric != HN_METRIC_COUNT && hn_sys_number(total + 6, &us))
            hn_sample_put(s, metric, (double)us * 1e3);
    }
}

static void read_cgroup(host *self, hn_sample *s) {
    int64_t value;
    const char *text = read_file(self, FILE_CGROUP_MEM);
    if (text && hn_sys_number(text, &value)) hn_sample_put(s, HN_M_cgroup_mem_bytes, (double)value);
    text = read_file(self, FILE_CGROUP_CPU);
    if (!text) return;
    if (find_number(text, "throttled_usec ", &value)) // v2
        hn_sample_put(s, HN_M_cgroup_throttled_ns, (double)value * 1e3);
    else if (find_number(text, "throttled_time ", &value)) // v1
        hn_sample_put(s, HN_M_cgroup_throttled_ns, (double)value);
}

// Whole disks only: a partition's name is its disk's with a number, and would count twice. Loop, RAM
// and device-mapper devices sit on others.
static bool is_disk(const char *name, size_t length) {
    if (length >= 4 && memcmp(name, "nvme", 4) == 0) return !memchr(name + 4, 'p', length - 4);
    if (length >= 6 && memcmp(name, "mmcblk", 6) == 0) return !memchr(name + 6, 'p', length - 6);
    static const char *const k_prefixes[] = {"sd", "vd", "xvd", "hd"};
    for (size_t i = 0; i < HN_COUNT_OF(k_prefixes); i++)
        if (strncmp(name, k_prefixes[i], strlen(k_prefixes[i])) == 0)
            return name[length - 1] < '0' || name[length - 1] > '9';
    return false;
}

static void read_disks(host *self, hn_sample *s) {
    double read = 0, written = 0;
    int found = 0;
    for (const char *at = read_file(self, FILE_DISKS); at && *at; at = next_line(at)) {
        int64_t v[7];
        const char *name = hn_sys_number(at, &v[0]);
        if (!name || !(name = hn_sys_number(name, &v[1]))) continue;
        name += strspn(name, " ");
        size_t length = strcspn(name, " \n");
        const char *rest = name + length;
        if (length == 0 || !is_disk(name, length)) continue;
        int i = 0;
        for (; i < 7 && rest; i++)
            rest = hn_sys_number(rest, &v[i]);
        if (!rest) continue;
        read += (double)v[2] * 512; // the unit of the file, whatever the disk's sector
        written += (double)v[6] * 512;
        found++;
    }
    if (!found) return;
    hn_sample_put(s, HN_M_disk_read_bytes, read);
    hn_sample_put(s, HN_M_disk_write_bytes, written);
}

static void read_net(host *self, hn_sample *s) {
    double rx = 0, tx = 0;
    int found = 0;
    for (const char *at = read_file(self, FILE_NET); at && *at; at = next_line(at)) {
        const char *name = at + strspn(at, " "), *end = strchr(at, '\n'), *colon = strchr(at, ':');
        if (!colon || (end && colon > end) || strncmp(name, "lo:", 3) == 0) continue;
        int64_t v[9];
        const char *rest = colon + 1;
        for (int i = 0; i < 9 && rest; i++)
            rest = hn_sys_number(rest, &v[i]);
        if (!rest) continue;
        rx += (double)v[0];
        tx += (double)v[8];
        found++;
    }
    if (!found) return;
    hn_sample_put(s, HN_M_net_rx_bytes, rx);
    hn_sample_put(s, HN_M_net_tx_bytes, tx);
}

static void read_sensors(host *self, hn_sample *s) {
    char buf[32];
    for (int i = 0; i < self->sensor_count; i++) {
        sensor *at = &self->sensors[i];
        int64_t raw;
        if (hn_sys_reread(at->fd, buf, sizeof buf) < 0 || !hn_sys_number(buf, &raw)) continue;
        double value = (double)raw * at->scale;
        if (hn_metric_rows[at->metric].kind == HN_KIND_counter) {
            if (at->last >= 0) {
                int64_t step = raw - at->last;
                if (step < 0) step += at->range; // wrapped; without a known range: lost
                if (step > 0) at->total += (double)step * at->scale;
            }
            at->last = raw;
            value = at->total;
        }
        if (hn_sample_has(s, at->metric))
            value = at->metric == HN_M_cpu_temp_c ? fmax(value, s->value[at->metric])
                                                  : value + s->value[at->metric];
        hn_sample_put(s, at->metric, value);
    }
}

static hone_status host_sample(hone_error *err, hn_probe *probe, int device,
                               hn_sample *out_sample) {
    (void)err;
    (void)device;
    host *self = (host *)probe;
    hn_sample s = {0};
    int64_t start_ns = hn_clock_ns();
    read_stat(self, &s);
    read_memory(self, &s);
    const char *text = read_file(self, FILE_LOADAVG);
    double load;
    if (text && hn_parse_f64((hn_slice){text, strcspn(text, " \n")}, &load))
        hn_sample_put(&s, HN_M_load1, load);
    read_pressure(self, &s, FILE_PSI_CPU, HN_M_psi_cpu_some_ns, HN_METRIC_COUNT);
    read_pressure(self, &s, FILE_PSI_MEM, HN_M_psi_mem_some_ns, HN_M_psi_mem_full_ns);
    read_pressure(self, &s, FILE_PSI_IO, HN_M_psi_io_some_ns, HN_M_psi_io_full_ns);
    read_cgroup(self, &s);
    read_disks(self, &s);
    read_net(self, &s);
    read_sensors(self, &s);
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        if (hn_sample_has(&s, (hn_metric)m)) self->info.absent[m] = HN_ABSENT_NOT;
    s.t_ns = hn_clock_ns();
    s.wall_ns = hn_clock_wall_ns();
    s.cost_ns = s.t_ns - start_ns;
    *out_sample = s;
    return HONE_OK;
}

const hn_probe_provider hn_probe_host = {
    .name = "host", .open = host_open, .close = host_close, .sample = host_sample};
