// SPDX-License-Identifier: Apache-2.0
// What each NVML call costs on this machine: wall and CPU time, mean of 20. Decides which readings
// of the provider are made with every sample and which once a second.
//   cc -O2 -D_GNU_SOURCE -Isrc -Iinclude bench/probe/nvml_calls.c src/base/*.c src/config/*.c
//      src/libs/libs.c src/libs/nvml.c -ldl -lm -lpthread
#include <stdio.h>
#include <time.h>
#include "base/base.h"
#include "libs/nvml.h"

static hn_nvml n;
static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
#define TIME(name, expr)                                                                           \
    do {                                                                                           \
        int result_ = 0;                                                                           \
        double cpu_ = cpu_ms();                                                                    \
        int64_t ns_ = hn_clock_ns();                                                               \
        for (int k_ = 0; k_ < 20; k_++)                                                            \
            result_ = (expr);                                                                      \
        printf("%-22s result %3d wall %7.3f ms cpu %7.3f ms\n", name, result_,                     \
               (double)(hn_clock_ns() - ns_) / 20e6, (cpu_ms() - cpu_) / 20);                      \
    } while (0)

int main(void) {
    hone_error err = {0};
    hn_lib lib;
    hn_nvml_device d;
    if (hn_lib_open(&err, &hn_nvml_spec, &n, &lib) != HONE_OK || n.nvmlInit_v2() != 0 ||
        n.nvmlDeviceGetHandleByIndex_v2(0, &d) != 0)
        return puts(err.text), 1;
    static const unsigned k_fields[] = {185, 186, 83, 82, 74, 75, 269, 192, 3, 143, 94, 197, 198, 138};
    hn_nvml_field_value all[HN_COUNT_OF(k_fields)] = {{0}};
    for (size_t i = 0; i < HN_COUNT_OF(k_fields); i++) {
        char name[32];
        hn_nvml_field_value one = {.field = k_fields[i]};
        all[i].field = k_fields[i];
        snprintf(name, sizeof name, "field %u", k_fields[i]);
        TIME(name, n.nvmlDeviceGetFieldValues(d, 1, &one));
    }
    TIME("fields 185 186 83 82", n.nvmlDeviceGetFieldValues(d, 4, all));
    TIME("all fields", n.nvmlDeviceGetFieldValues(d, (int)HN_COUNT_OF(k_fields), all));
    unsigned u, w;
    unsigned long long q;
    hn_nvml_utilization util;
    hn_nvml_memory_v2 memory = {.version = HN_NVML_VERSION(hn_nvml_memory_v2, 2)};
    hn_nvml_memory memory_1;
    hn_nvml_temperature temperature = {.version = HN_NVML_VERSION(hn_nvml_temperature, 1)};
    hn_nvml_margin margin = {.version = HN_NVML_VERSION(hn_nvml_margin, 1)};
    hn_nvml_bar1 bar1;
    hn_nvml_process processes[64];
    TIME("utilization", n.nvmlDeviceGetUtilizationRates(d, &util));
    TIME("memory v2", n.nvmlDeviceGetMemoryInfo_v2(d, &memory));
    TIME("memory v1", n.nvmlDeviceGetMemoryInfo(d, &memory_1));
    TIME("bar1", n.nvmlDeviceGetBAR1MemoryInfo(d, &bar1));
    TIME("sm clock", n.nvmlDeviceGetClockInfo(d, HN_NVML_CLOCK_SM, &u));
    TIME("memory clock", n.nvmlDeviceGetClockInfo(d, HN_NVML_CLOCK_MEM, &u));
    TIME("temperature", n.nvmlDeviceGetTemperatureV(d, &temperature));
    TIME("margin", n.nvmlDeviceGetMarginTemperature(d, &margin));
    TIME("reasons", n.nvmlDeviceGetCurrentClocksEventReasons(d, &q));
    TIME("power", n.nvmlDeviceGetPowerUsage(d, &u));
    TIME("energy", n.nvmlDeviceGetTotalEnergyConsumption(d, &q));
    TIME("enforced limit", n.nvmlDeviceGetEnforcedPowerLimit(d, &u));
    TIME("encoder", n.nvmlDeviceGetEncoderUtilization(d, &u, &w));
    TIME("pstate", n.nvmlDeviceGetPerformanceState(d, &u));
    TIME("pcie generation", n.nvmlDeviceGetCurrPcieLinkGeneration(d, &u));
    TIME("processes", (u = 64, n.nvmlDeviceGetComputeRunningProcesses_v3(d, &u, processes)));
    hn_nvml_gpm_sample a, b;
    static hn_nvml_gpm_get get;
    if (!n.nvmlGpmSampleAlloc || n.nvmlGpmSampleAlloc(&a) != 0 || n.nvmlGpmSampleAlloc(&b) != 0) return 0;
    TIME("gpm sample", n.nvmlGpmSampleGet(d, a));
    hn_sleep_ns(20000000);
    n.nvmlGpmSampleGet(d, b);
    get.version = 1;
    get.first = a;
    get.second = b;
    static const unsigned k_gpm[] = {1, 2, 3, 5, 10, 20, 21, 60, 61, 164, 165};
    get.count = HN_COUNT_OF(k_gpm);
    for (unsigned i = 0; i < get.count; i++)
        get.metrics[i].id = k_gpm[i];
    TIME("gpm metrics (11)", n.nvmlGpmMetricsGet(&get));
    for (unsigned i = 0; i < get.count; i++)
        printf("gpm %u: result %d value %g\n", get.metrics[i].id, get.metrics[i].result, get.metrics[i].value);
    return 0;
}
