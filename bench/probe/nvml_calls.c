// SPDX-License-Identifier: Apache-2.0
// What each NVML call costs on this machine: CPU time, mean of 10. Decides which readings
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
// Readings close together are answered from a cache of the driver: each is made after a pause.
#define TIME(name, expr)                                                                           \
    do {                                                                                           \
        int result_ = 0;                                                                           \
        double cpu_ = 0;                                                                           \
        for (int k_ = 0; k_ < 10; k_++) {                                                          \
            hn_sleep_ns(g_pause_ns);                                                               \
            double before_ = cpu_ms();                                                             \
            result_ = (expr);                                                                      \
            cpu_ += cpu_ms() - before_;                                                            \
        }                                                                                          \
        printf("%-22s result %3d cpu %7.3f ms\n", name, result_, cpu_ / 10);                       \
    } while (0)
static int64_t g_pause_ns = 20000000;

static void time_gpm(hn_nvml_device d) {
    static const unsigned k_ids[] = {2, 5, 10, 3, 1, 20, 21, 164, 165, 60, 61, 4, 7, 9, 11, 12, 13};
    static const int k_counts[] = {1, 3, 6, 11, 17}, k_ms[] = {5, 10, 20, 50, 100};
    hn_nvml_gpm_sample a, b;
    static hn_nvml_gpm_get get;
    if (!n.nvmlGpmSampleAlloc || n.nvmlGpmSampleAlloc(&a) != 0 || n.nvmlGpmSampleAlloc(&b) != 0) return;
    TIME("gpm sample", n.nvmlGpmSampleGet(d, a));
    for (size_t w = 0; w < HN_COUNT_OF(k_ms); w++) {
        n.nvmlGpmSampleGet(d, a);
        hn_sleep_ns(k_ms[w] * INT64_C(1000000));
        n.nvmlGpmSampleGet(d, b);
        get = (hn_nvml_gpm_get){.version = 1, .count = HN_COUNT_OF(k_ids), .first = a, .second = b};
        for (unsigned i = 0; i < get.count; i++)
            get.metrics[i].id = k_ids[i];
        n.nvmlGpmMetricsGet(&get);
        printf("gpm over %d ms:", k_ms[w]);
        for (unsigned i = 0; i < get.count; i++)
            printf(" %u:%.4g", get.metrics[i].id, get.metrics[i].value);
        printf("\n");
    }
    for (size_t c = 0; c < HN_COUNT_OF(k_counts); c++) {
        char name[32];
        get.count = (unsigned)k_counts[c];
        snprintf(name, sizeof name, "gpm metrics (%d)", k_counts[c]);
        TIME(name, n.nvmlGpmMetricsGet(&get));
    }
}

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
    time_gpm(d);
    g_pause_ns = 100000000;
    TIME("energy, every 100 ms", n.nvmlDeviceGetTotalEnergyConsumption(d, &q));
    TIME("fields, every 100 ms", n.nvmlDeviceGetFieldValues(d, 2, all));
    return 0;
}
