// SPDX-License-Identifier: Apache-2.0
// Choosing CPUs for a job: whole cores (both threads), then one last-level cache, then one NUMA node.
#include <stdio.h>
#include "place/job.h"
#include "probe/sys.h"

#define DOMAINS_MAX 512

typedef struct domain {
    hn_place_cpuset cpus; // free ones
    int count;
} domain;

static bool read_list(const char *fmt, int number, hn_place_cpuset *out) HN_PRINTF(1, 0);
static bool read_list(const char *fmt, int number, hn_place_cpuset *out) {
    char path[HN_SYS_PATH_BYTES], line[4096];
    if (!hn_sys_path(path, fmt, number)) return false;
    hn_sys_line(path, line, sizeof line);
    return hn_place_cpuset_parse((hn_slice){line, strlen(line)}, out);
}

// The set that a CPU shares something with, reduced to free CPUs; itself where the kernel does not say.
static hn_place_cpuset shared_with(const char *fmt, int cpu, const hn_place_cpuset *free_cpus) {
    hn_place_cpuset out = {{0}};
    if (!read_list(fmt, cpu, &out)) hn_place_cpuset_add(&out, cpu);
    hn_place_cpuset_and(&out, free_cpus);
    return out;
}

static hn_place_cpuset node_of(int cpu, const hn_place_cpuset *free_cpus) {
    for (int node = 0; node < 1024; node++) {
        hn_place_cpuset cpus;
        if (!read_list("/sys/devices/system/node/node%d/cpulist", node, &cpus)) {
            if (node) break; // numbers have holes only on machines with memory-only nodes, at the end
            continue;
        }
        if (!hn_place_cpuset_has(&cpus, cpu)) continue;
        hn_place_cpuset_and(&cpus, free_cpus);
        return cpus;
    }
    return *free_cpus;
}

typedef hn_place_cpuset (*domain_of)(int cpu, const hn_place_cpuset *free_cpus);
static hn_place_cpuset cache_of(int cpu, const hn_place_cpuset *free_cpus) {
    return shared_with("/sys/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list", cpu, free_cpus);
}
static hn_place_cpuset all_of(int cpu, const hn_place_cpuset *free_cpus) {
    (void)cpu;
    return *free_cpus;
}

static int list_domains(const hn_place_cpuset *free_cpus, domain_of of, domain *out) {
    hn_place_cpuset left = *free_cpus;
    int count = 0, cpu;
    while ((cpu = hn_place_cpuset_next(&left, -1)) >= 0 && count < DOMAINS_MAX) {
        hn_place_cpuset cpus = of(cpu, &left);
        hn_place_cpuset_add(&cpus, cpu);
        out[count++] = (domain){cpus, hn_place_cpuset_count(&cpus)};
        hn_place_cpuset_remove(&left, &cpus);
    }
    return count;
}

// Whole cores of a domain until there are enough CPUs.
static hn_place_cpuset take_cores(const hn_place_cpuset *from, int count) {
    hn_place_cpuset out = {{0}}, left = *from;
    int cpu;
    while (count > 0 && (cpu = hn_place_cpuset_next(&left, -1)) >= 0) {
        hn_place_cpuset core =
            shared_with("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu, &left);
        hn_place_cpuset_add(&core, cpu);
        for (int thread = hn_place_cpuset_next(&core, -1); thread >= 0 && count > 0;
             thread = hn_place_cpuset_next(&core, thread), count--)
            hn_place_cpuset_add(&out, thread);
        hn_place_cpuset_remove(&left, &core);
    }
    return out;
}

hn_status hn_place_choose_cpus(hone_error *err, const hn_place_cpuset *free_cpus, int count,
                               hn_place_cpuset *out_cpus) {
    static const domain_of k_levels[] = {cache_of, node_of, all_of};
    int have = hn_place_cpuset_count(free_cpus);
    if (have == 0 || have < count)
        HN_FAIL(err, HONE_ERR_CHECK, "the job needs %d CPU%s and %d of those it may use %s free",
                count ? count : 1, count == 1 ? "" : "s", have, have == 1 ? "is" : "are");
    domain *domains = hn_malloc(DOMAINS_MAX * sizeof *domains);
    if (!domains) HN_NOMEM(err, "CPU placement");
    const domain *best = NULL;
    for (size_t level = 0; level < HN_COUNT_OF(k_levels) && !best; level++) {
        int found = list_domains(free_cpus, k_levels[level], domains);
        for (int i = 0; i < found; i++) {
            // The smallest that is enough; without a number, the largest.
            bool better = count ? !best || domains[i].count < best->count
                                : !best || domains[i].count > best->count;
            if (domains[i].count >= count && better) best = &domains[i];
        }
    }
    if (best) *out_cpus = take_cores(&best->cpus, count ? count : best->count);
    hn_free(domains);
    if (!best) HN_FAIL(err, HONE_ERR_INTERNAL, "no domain holds %d of %d CPUs", count, have);
    return HONE_OK;
}
