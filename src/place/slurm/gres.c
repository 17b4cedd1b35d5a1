// SPDX-License-Identifier: Apache-2.0
// gres.conf lines from the machine model: Type, File, Cores and Links of each card.
//
// Always with File= (Slurm drops GPUs without one) and with AutoDetect=off (Debian's Slurm has no
// nvml plug-in). Cores= counts cores socket by socket, not CPU threads as the kernel numbers them.
#include "place/slurm/slurm.h"
#include <ctype.h>
#include <strings.h>

#define CPU_TOPOLOGY "/sys/devices/system/cpu/cpu%d/topology/%s"

bool hn_slurm_gpu_type(const char *name, char *out, size_t size) {
    static const char *const k_brands[] = {"NVIDIA", "Tesla", "GeForce", "Quadro", "RTX"};
    if (!name || !size) return false;
    for (bool again = true; again;) {
        again = false;
        while (*name == ' ')
            name++;
        for (size_t i = 0; i < HN_COUNT_OF(k_brands); i++) {
            size_t n = strlen(k_brands[i]);
            if (strncasecmp(name, k_brands[i], n) == 0 && name[n] == ' ') {
                name += n;
                again = true;
            }
        }
    }
    size_t used = 0;
    while (isalnum((unsigned char)name[used]) && used + 1 < size) {
        out[used] = (char)tolower((unsigned char)name[used]);
        used++;
    }
    out[used] = '\0';
    return used > 0;
}

// ---- cores ------------------------------------------------------------------------------------
typedef struct cpu_place {
    int cpu, package, core;
} cpu_place;

static bool read_number(const char *path, int *out) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool good = fscanf(file, "%d", out) == 1;
    fclose(file);
    return good;
}

static int compare_places(const void *a, const void *b) {
    const cpu_place *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->cpu - y->cpu;
}

// This host's CPUs in Slurm's order; 0 where the kernel tells nothing.
static int live_places(cpu_place *places, int max) {
    int count = 0;
    for (int cpu = 0; cpu < HN_PLACE_CPUS_MAX && count < max; cpu++) {
        char path[128];
        cpu_place place = {cpu, 0, 0};
        snprintf(path, sizeof path, CPU_TOPOLOGY, cpu, "core_id");
        if (!read_number(path, &place.core)) continue;
        snprintf(path, sizeof path, CPU_TOPOLOGY, cpu, "physical_package_id");
        if (!read_number(path, &place.package)) continue;
        places[count++] = place;
    }
    qsort(places, (size_t)count, sizeof *places, compare_places);
    return count;
}

// Two ranges of one length ("0-31,64-95"): the second is the first one's hyper-threads.
static int guess_threads(const hn_place_cpuset *cpus) {
    int runs = 0, length[3] = {0}, last = -2;
    for (int cpu = hn_place_cpuset_next(cpus, -1); cpu >= 0;
         cpu = hn_place_cpuset_next(cpus, cpu)) {
        if (cpu != last + 1) runs++;
        if (runs <= 2) length[runs]++;
        last = cpu;
    }
    return runs == 2 && length[1] == length[2] && length[1] > 1 ? 2 : 1;
}

static bool cores_of_host(const hn_place_cpuset *cpus, hn_place_cpuset *out) {
    cpu_place *places = hn_calloc(HN_PLACE_CPUS_MAX, sizeof *places);
    if (!places) return false;
    int count = live_places(places, HN_PLACE_CPUS_MAX), core = -1;
    for (int i = 0; i < count; i++) {
        if (i == 0 || places[i].package != places[i - 1].package ||
            places[i].core != places[i - 1].core)
            core++;
        if (hn_place_cpuset_has(cpus, places[i].cpu)) hn_place_cpuset_add(out, core);
    }
    hn_free(places);
    return count > 0 && !hn_place_cpuset_empty(out);
}

// CPUs numbered one thread of every core first ("0-31,64-95" of 128): threads of a core lie top / threads apart.
static bool cores_by_layer(const hn_place_cpuset *cpus, int top, int threads, hn_place_cpuset *out) {
    hn_place_cpuset cores = {{0}};
    if (top % threads) return false;
    for (int cpu = hn_place_cpuset_next(cpus, -1); cpu >= 0; cpu = hn_place_cpuset_next(cpus, cpu)) {
        int core = cpu % (top / threads);
        for (int k = 0; k < threads; k++)
            if (!hn_place_cpuset_has(cpus, core + k * (top / threads))) return false;
        hn_place_cpuset_add(&cores, core);
    }
    *out = cores;
    return true;
}

// CPUs numbered core by core, as in guests: threads of a core are neighbours.
static bool cores_side_by_side(const hn_place_cpuset *cpus, int threads, hn_place_cpuset *out) {
    hn_place_cpuset cores = {{0}};
    for (int cpu = hn_place_cpuset_next(cpus, -1); cpu >= 0; cpu = hn_place_cpuset_next(cpus, cpu)) {
        for (int k = 0; k < threads; k++)
            if (!hn_place_cpuset_has(cpus, cpu / threads * threads + k)) return false;
        hn_place_cpuset_add(&cores, cpu / threads);
    }
    *out = cores;
    return true;
}

bool hn_slurm_cores(const hn_place_machine *machine, const hn_place_gpu *gpu, bool live,
                    int threads_per_core, hn_place_cpuset *out_cores, char *why, size_t why_bytes) {
    hn_place_cpuset cores = {{0}};
    if (!gpu->cpus_known || hn_place_cpuset_empty(&gpu->cpus)) {
        snprintf(why, why_bytes, "its CPU list is unknown here (a cgroup may hide it)");
        return false;
    }
    for (size_t i = 0; i < machine->gpus.count; i++)
        if (machine->gpus.data[i].cpus_known != gpu->cpus_known ||
            hn_place_cpuset_empty(&machine->gpus.data[i].cpus)) {
            snprintf(why, why_bytes,
                     "other cards show no CPU list, so a cgroup clips this one as well");
            return false;
        }
    if (live && cores_of_host(&gpu->cpus, &cores)) {
        *out_cores = cores;
        return true;
    }
    // Without the host: all CPUs that any card names are the machine's; the lower part are the
    // cores' first threads. Groups of CPUs (sockets) follow one another in Slurm's numbering.
    hn_place_cpuset all = {{0}};
    for (size_t i = 0; i < machine->gpus.count; i++)
        if (machine->gpus.data[i].cpus_known) hn_place_cpuset_or(&all, &machine->gpus.data[i].cpus);
    for (size_t i = 0; i < machine->nodes.count; i++)
        if (machine->nodes.data[i].cpus_known)
            hn_place_cpuset_or(&all, &machine->nodes.data[i].cpus);
    int threads = threads_per_core > 0 ? threads_per_core : guess_threads(&gpu->cpus);
    int top = 0;
    for (int cpu = hn_place_cpuset_next(&all, -1); cpu >= 0; cpu = hn_place_cpuset_next(&all, cpu))
        top = cpu + 1;
    int first = hn_place_cpuset_next(&gpu->cpus, -1), second = hn_place_cpuset_next(&gpu->cpus, first);
    if (second > first + 1) {
        snprintf(why, why_bytes,
                 "its CPU numbers have gaps (sockets take turns in them, or threads are off); run this on the "
                 "machine itself");
        return false;
    }
    if (!cores_by_layer(&gpu->cpus, top, threads, &cores) && !cores_side_by_side(&gpu->cpus, threads, &cores)) {
        snprintf(why, why_bytes, "its CPU list does not hold whole cores of %d threads", threads);
        return false;
    }
    *out_cores = cores;
    return true;
}

// ---- lines ------------------------------------------------------------------------------------
// The minor number of /dev/nvidiaN, which need not be the card's index.
static int minor_of(const hn_place_gpu *gpu, bool live) {
    if (!live || !gpu->pci) return gpu->index;
    char path[160], line[160];
    snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", gpu->pci);
    FILE *file = fopen(path, "re");
    int minor = gpu->index;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Device Minor: %d", &minor) == 1) break;
    if (file) fclose(file);
    return minor;
}

// "/dev/nvidia%d": exactly one %d and no other '%'.
static bool good_pattern(const char *pattern) {
    const char *percent = strchr(pattern, '%');
    return percent && percent[1] == 'd' && !strchr(percent + 1, '%');
}

// A word of gres.conf: nothing that ends the value or the line.
static bool good_word(const char *word) {
    if (!word) return true;
    for (const char *at = word; *at; at++)
        if (isspace((unsigned char)*at) || iscntrl((unsigned char)*at) || strchr("=#\"'\\", *at)) return false;
    return *word != '\0';
}

static void append_links(const hn_place_machine *machine, size_t gpu, hn_str *out) {
    bool any = false;
    for (size_t i = 0; i < machine->gpus.count && machine->matrix; i++)
        any = any || hn_place_link_between(machine, (int)gpu, (int)i).kind == HN_LINK_NVLINK;
    if (!any) return;
    hn_str_append(out, " Links=");
    for (size_t i = 0; i < machine->gpus.count; i++) {
        hn_place_link link = hn_place_link_between(machine, (int)gpu, (int)i);
        hn_str_printf(out, "%s%d", i ? "," : "",
                      i == gpu                      ? -1
                      : link.kind == HN_LINK_NVLINK ? link.detail
                                                    : 0);
    }
}

hn_status hn_slurm_gres(hone_error *err, const hn_place_machine *machine,
                        const hn_slurm_gres_options *options, hn_str *out_text) {
    const char *pattern = options->file ? options->file : "/dev/nvidia%d";
    if (!good_pattern(pattern))
        HN_FAIL(err, HONE_ERR_USAGE, "'%s' must hold one %%d for the card's number", pattern);
    if ((options->type && *options->type && !good_word(options->type)) || !good_word(options->node) || !good_word(pattern))
        HN_FAIL(err, HONE_ERR_USAGE, "'%s' cannot stand in gres.conf: it is empty or has a blank, quote, '=' or '#'",
                !good_word(options->node) ? options->node
                : !good_word(pattern)     ? pattern
                                          : options->type);
    if (!machine->gpus.count)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the machine model (%s) has no card to write lines for",
                machine->source ? machine->source : "unknown source");
    const char *percent = strchr(pattern, '%');
    hn_str body = {0};
    size_t written = 0;
    char common[64] = "";
    bool one_type = true;
    for (size_t i = 0; i < machine->gpus.count; i++) {
        const hn_place_gpu *gpu = &machine->gpus.data[i];
        if (gpu->mig == 1 && gpu->mig_instances != 0) {
            hn_str_printf(
                &body,
                "# GPU%d is split by MIG: its instances need /dev/nvidia-caps files, which "
                "slurm's AutoDetect=nvml or `nvidia-smi -L` with MultipleFiles= gives\n",
                gpu->index);
            continue;
        }
        char type[64] = "", why[160];
        if (options->type)
            snprintf(type, sizeof type, "%s", options->type);
        else if (!hn_slurm_gpu_type(gpu->name, type, sizeof type))
            type[0] = '\0';
        if (!written) memcpy(common, type, sizeof common);
        one_type = one_type && strcmp(common, type) == 0;
        hn_place_cpuset cores;
        bool has_cores = hn_slurm_cores(machine, gpu, options->live, options->threads_per_core,
                                        &cores, why, sizeof why);
        if (!has_cores) hn_str_printf(&body, "# GPU%d has no Cores=: %s\n", gpu->index, why);
        if (options->node) hn_str_printf(&body, "NodeName=%s ", options->node);
        hn_str_append(&body, "Name=gpu");
        if (type[0]) hn_str_printf(&body, " Type=%s", type);
        hn_str_printf(&body, " File=%.*s%d%s", (int)(percent - pattern), pattern,
                      minor_of(gpu, options->live), percent + 2);
        if (has_cores) {
            hn_str_append(&body, " Cores=");
            hn_place_cpuset_append(&body, &cores);
        }
        append_links(machine, i, &body);
        hn_str_append(&body, "\n");
        written++;
    }
    hn_str_printf(out_text, "# %zu card%s from %s\n", written, written == 1 ? "" : "s",
                  machine->source ? machine->source : "the machine model");
    if (written && one_type)
        hn_str_printf(out_text, "# slurm.conf: GresTypes=gpu, and at the node: Gres=gpu%s%s:%zu\n",
                      common[0] ? ":" : "", common, written);
    if (!machine->complete)
        hn_str_append(out_text, "# the source was damaged: compare with the machine before use\n");
    hn_str_append(out_text, "AutoDetect=off\n");
    hn_str_append(out_text, hn_str_get(&body));
    bool failed = body.failed || out_text->failed;
    hn_str_free(&body);
    if (failed) HN_NOMEM(err, "gres.conf lines");
    return HONE_OK;
}
