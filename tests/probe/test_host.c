// SPDX-License-Identifier: Apache-2.0
// The host provider and CPU identity, over a machine made of files (HONE_SYS_ROOT) and over this one.
#include <sys/stat.h>
#include <unistd.h>
#include "support/test.h"
#include "config/config.h"
#include "probe/cpu.h"
#include "probe/energy.h"

static char g_root[256];

static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", g_root, name);
    for (char *c = path + strlen(g_root) + 1; *c; c++)
        if (*c == '/') *c = '\0', mkdir(path, 0777), *c = '/';
    // In place: the provider keeps its files open, as it does with /proc.
    FILE *f = fopen(path, "r+");
    if (!f) f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fflush(f);
    assert_int_equal(ftruncate(fileno(f), ftell(f)), 0);
    fclose(f);
}

static void make_machine(void) {
    put("/proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\n"
                      "cpu1 50 0 50 400 0 0 0 0 0 0\nintr 1\n");
    put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n"
                         "SwapTotal: 100 kB\nSwapFree: 90 kB\n");
    put("/proc/loadavg", "1.25 0.5 0.2 1/100 3\n");
    put("/proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
    put("/proc/pressure/io", "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n"
                             "full avg10=0.00 avg60=0.00 avg300=0.00 total=4\n");
    put("/proc/diskstats", " 8 0 sda 1 0 100 0 1 0 50 0 0 0 0\n 8 1 sda1 1 0 100 0 1 0 50 0 0 0 0\n"
                           " 259 0 nvme0n1 1 0 10 0 1 0 20 0 0 0 0\n 259 1 nvme0n1p1 1 0 10 0 1 0 20 0 0 0 0\n"
                           " 7 0 loop0 1 0 9999 0 0 0 0 0 0 0 0\n");
    put("/proc/net/dev", "Inter-| Receive\n face |bytes\n    lo: 5 0 0 0 0 0 0 0 5 0\n"
                         "  eth0:1000 0 0 0 0 0 0 0 77 0 0 0 0 0 0 0\n");
    put("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "9000000\n");
    put("/sys/class/powercap/intel-rapl:0/max_energy_range_uj", "10000000\n");
    put("/sys/class/powercap/intel-rapl:1/name", "psys\n");
    put("/sys/class/powercap/intel-rapl:1/energy_uj", "1\n");
    put("/sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n");
    put("/sys/class/powercap/intel-rapl-mmio:0/energy_uj", "1\n");
    put("/sys/class/hwmon/hwmon0/name", "coretemp\n");
    put("/sys/class/hwmon/hwmon0/temp1_input", "61000\n");
    put("/sys/class/hwmon/hwmon0/temp2_input", "64000\n");
    put("/sys/class/hwmon/hwmon1/name", "power_meter\n");
    put("/sys/class/hwmon/hwmon1/power1_average", "412000000\n");
    put("/sys/class/hwmon/hwmon2/name", "nvme\n");
    put("/sys/class/hwmon/hwmon2/temp1_input", "90000\n");
    put("/proc/self/cgroup", "0::/pod/a\n");
    put("/sys/fs/cgroup/cgroup.procs", "");
    put("/sys/fs/cgroup/pod/cgroup.procs", "");
    put("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/pod/a/cgroup.procs", "");
    put("/sys/fs/cgroup/pod/a/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/pod/a/memory.max", "512000\n");
    put("/sys/fs/cgroup/pod/a/memory.current", "4096\n");
    put("/sys/fs/cgroup/pod/a/cpu.stat", "usage_usec 5\nnr_throttled 1\nthrottled_usec 9\n");
    put("/sys/devices/system/cpu/online", "0-3\n");
    for (int i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        put(name, i % 2 ? "1,3\n" : "0,2\n");
        snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        put(name, "0\n");
    }
    put("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/level", "3\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/type", "Unified\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/size", "32M\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-1\n");
    put("/sys/devices/system/node/node0/cpulist", "0-1\n");
    put("/sys/devices/system/node/node1/cpulist", "2-3\n");
    put("/sys/devices/system/node/node2/cpulist", "\n"); // a Grace GPU's memory
}

static void the_host_reads_its_files(void **state) {
    (void)state;
    hone_error err = {0};
    hn_probe *probe;
    hn_sample s;
    make_machine();
    setenv("HONE_SYS_ROOT", g_root, 1);
    if (hn_probe_open(&err, "host", &probe) != HONE_OK) fail_msg("%s", err.text);
    unsetenv("HONE_SYS_ROOT");
    assert_int_equal(hn_probe_sample(&err, probe, 0, &s), HONE_OK);
    assert_false(hn_sample_has(&s, HN_M_cpu_util)); // needs two readings
    assert_true(s.value[HN_M_rapl_package_mj] == 0);
    put("/proc/stat", "cpu  200 0 200 1400 100 0 0 0 0 0\ncpu0 50 0 50 900 0 0 0 0 0 0\n"
                      "cpu1 150 0 150 500 100 0 0 0 0 0\n");
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "2500000\n"); // wrapped at 10 J
    uint64_t allocations = hn_alloc_calls();
    assert_int_equal(hn_probe_sample(&err, probe, 0, &s), HONE_OK);
    assert_int_equal(hn_alloc_calls(), allocations);
    static const struct {
        hn_metric metric;
        double value;
    } k_expect[] = {
        {HN_M_cpu_util, 100.0 * 200 / 900}, {HN_M_cpu_iowait, 100.0 * 100 / 900},
        {HN_M_cpu_busiest, 50},             {HN_M_load1, 1.25},
        {HN_M_host_mem_total_bytes, 1024000}, {HN_M_host_mem_available_bytes, 614400},
        {HN_M_host_swap_used_bytes, 10240}, {HN_M_psi_cpu_some_ns, 7000},
        {HN_M_psi_io_some_ns, 5000},        {HN_M_psi_io_full_ns, 4000},
        {HN_M_disk_read_bytes, 110 * 512},  {HN_M_disk_write_bytes, 70 * 512},
        {HN_M_net_rx_bytes, 1000},          {HN_M_net_tx_bytes, 77},
        {HN_M_rapl_package_mj, 3500},       {HN_M_cpu_temp_c, 64},
        {HN_M_hwmon_power_w, 412},          {HN_M_cgroup_mem_bytes, 4096},
        {HN_M_cgroup_throttled_ns, 9000},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_expect); i++) {
        const char *token = hn_metric_rows[k_expect[i].metric].token;
        if (!hn_sample_has(&s, k_expect[i].metric)) fail_msg("%s is absent", token);
        if (fabs(s.value[k_expect[i].metric] - k_expect[i].value) > 1e-9)
            fail_msg("%s: %g", token, s.value[k_expect[i].metric]);
    }
    assert_false(hn_sample_has(&s, HN_M_psi_mem_some_ns)); // no such file: absent, not 0
    assert_false(hn_sample_has(&s, HN_M_rapl_dram_mj));
    hn_probe_close(probe);
}

static void this_machine_gives_samples(void **state) {
    (void)state;
    hone_error err = {0};
    hn_probe *probe;
    hn_sample a, b;
    assert_int_equal(hn_probe_open(&err, "host", &probe), HONE_OK);
    assert_int_equal(hn_probe_sample(&err, probe, 0, &a), HONE_OK);
    int64_t until_ns = hn_clock_ns() + 60000000;
    while (hn_clock_ns() < until_ns) {}
    assert_int_equal(hn_probe_sample(&err, probe, 0, &b), HONE_OK);
    assert_true(b.t_ns > a.t_ns && b.cost_ns > 0);
    assert_true(hn_sample_has(&b, HN_M_cpu_util));
    assert_in_range((int)b.value[HN_M_cpu_util], 1, 100);
    assert_true(b.value[HN_M_host_mem_total_bytes] >= b.value[HN_M_host_mem_available_bytes]);
    hn_probe_close(probe);
}

static void cpu_identity_follows_files_and_cap(void **state) {
    (void)state;
    setenv("HONE_SYS_ROOT", g_root, 1);
    make_machine();
    const hn_cpu *cpu = hn_cpu_get(); // read once: under the made machine
    unsetenv("HONE_SYS_ROOT");
    assert_int_equal(cpu->logical, 4);
    assert_int_equal(cpu->cores, 2);
    assert_int_equal(cpu->sockets, 1);
    assert_int_equal(cpu->numa_nodes, 2);
    assert_int_equal(cpu->l1d_bytes, 48 << 10);
    assert_int_equal(cpu->l3_bytes, 32 << 20);
    assert_int_equal(cpu->l3_instances, 2);
    assert_true(cpu->quota_cpus == 1.5); // from the group above
    assert_int_equal(cpu->memory_bytes, 1024000);
    assert_int_equal(cpu->memory_limit_bytes, 512000);
    assert_int_equal(hn_cpu_parallelism(), cpu->usable < 2 ? cpu->usable : 2);
    hone_error err = {0};
    setenv("HONE_ISA", "ref", 1);
    assert_int_equal(hn_config_init(&err), HONE_OK);
    assert_int_equal(hn_cpu_isa(), HN_ISA_REF);
    assert_int_equal(hn_cpu_isa_check(&err), HONE_OK);
    setenv("HONE_ISA", "avx9", 1);
    assert_int_equal(hn_config_init(&err), HONE_OK);
    assert_int_equal(hn_cpu_isa_check(&err), HONE_ERR_USAGE);
    assert_int_equal(hn_cpu_isa(), cpu->isa);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        assert_true(cpu->isa >= HN_ISA_AVX2);
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl"))
        assert_true(cpu->isa >= HN_ISA_VNNI);
#endif
}

static void lists_and_numbers(void **state) {
    (void)state;
    uint64_t set[2];
    assert_int_equal(hn_sys_list("0-3,8,64-70", set, 128), 12);
    assert_true(set[0] == 0x10f && set[1] == 0x7f);
    assert_int_equal(hn_sys_list("", set, 128), 0);
    assert_int_equal(hn_sys_list("5-", set, 128), 0);
    assert_int_equal(hn_sys_list("120-99999999999", set, 128), 8);
    assert_int_equal(hn_sys_list("3,3,x", set, 128), 1);
}

static void bandwidth_is_measured(void **state) {
    (void)state;
    hone_error err = {0};
    hn_memory_bandwidth b;
    assert_int_equal(hn_cpu_measure_bandwidth(&err, &b), HONE_OK);
    assert_true(b.read_bytes_s > 1e8 && b.copy_bytes_s > 1e8 && b.triad_bytes_s > 1e8);
    assert_true(b.threads >= 1 && b.buffer_bytes > 0);
}

int main(void) {
    const char *build = getenv("HONE_BUILD_DIR");
    snprintf(g_root, sizeof g_root, "%s/test-probe-host", build ? build : "/tmp");
    mkdir(g_root, 0777);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_identity_follows_files_and_cap), // first: identity is read once
        cmocka_unit_test(the_host_reads_its_files),
        cmocka_unit_test(this_machine_gives_samples),
        cmocka_unit_test(lists_and_numbers),
        cmocka_unit_test(bandwidth_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
