// SPDX-License-Identifier: Apache-2.0
// The machine model: building, deriving, asking. See machine.h.
#include "place/machine.h"
#include <stdarg.h>
#include <stdio.h>

typedef struct link_row {
    const char *code;
    int rank;
    double gbs;
} link_row;

static const link_row k_links[HN_LINK_KINDS] = {
#define HN_LINK(kind, code, rank, gbs, doc) [HN_LINK_##kind] = {code, rank, gbs},
#include "place/links.def"
#undef HN_LINK
};

#define RANK_UNKNOWN 7

// Measured busbw of a large all-reduce over what the links add up to in one direction: 240 of 300 on
// A100 (12 links), 371 of 450 on H100 and H200 (18), 160 of 200 on A800 and H800 (8).
#define BUSBW_SHARE_SMALL 0.80
#define BUSBW_SHARE_LARGE 0.824

void hn_place_machine_free(hn_place_machine *machine) {
    hn_vec_free(&machine->gpus);
    hn_vec_free(&machine->nics);
    hn_vec_free(&machine->switches);
    hn_vec_free(&machine->nodes);
    hn_vec_free(&machine->foreign);
    hn_vec_free(&machine->damage);
    hn_vec_free(&machine->advice);
    hn_arena_free(&machine->arena);
    *machine = (hn_place_machine){0};
}

hn_place_gpu hn_place_gpu_unknown(int index) {
    return (hn_place_gpu){
        .index = index,
        .numa = HN_PLACE_UNKNOWN,
        .memory_numa = HN_PLACE_UNKNOWN,
        .memory_bytes = HN_PLACE_UNKNOWN,
        .memory_used_bytes = HN_PLACE_UNKNOWN,
        .compute_major = HN_PLACE_UNKNOWN,
        .compute_minor = HN_PLACE_UNKNOWN,
        .mig = HN_PLACE_UNKNOWN,
        .mig_instances = HN_PLACE_UNKNOWN,
        .busy = HN_PLACE_UNKNOWN,
        .nvlinks_active = HN_PLACE_UNKNOWN,
        .nvlinks_total = HN_PLACE_UNKNOWN,
        .nvlink_version = HN_PLACE_UNKNOWN,
        .pcie_generation = HN_PLACE_UNKNOWN,
        .pcie_width = HN_PLACE_UNKNOWN,
        .switch_index = HN_PLACE_UNKNOWN,
    };
}

hn_place_nic hn_place_nic_unknown(const char *label) {
    return (hn_place_nic){.label = label,
                          .numa = HN_PLACE_UNKNOWN,
                          .gbit_per_s = HN_PLACE_UNKNOWN,
                          .switch_index = HN_PLACE_UNKNOWN};
}

hn_status hn_place_machine_alloc_matrix(hone_error *err, hn_place_machine *machine) {
    size_t count = machine->gpus.count + machine->nics.count;
    if (count > HN_PLACE_DEVICES_MAX)
        HN_FAIL(err, HONE_ERR_LIMIT, "the topology names %zu devices, the limit is %d", count,
                HN_PLACE_DEVICES_MAX);
    hn_place_link *matrix = hn_arena_array(&machine->arena, count * count + 1, sizeof *matrix);
    if (!matrix) HN_NOMEM(err, "link matrix");
    machine->matrix = matrix;
    machine->device_count = (int)count;
    if (machine->link_gbs <= 0) machine->link_gbs = k_links[HN_LINK_NVLINK].gbs;
    return HONE_OK;
}

static void add_sentence(hn_place_machine *machine, hn_place_texts *list, const char *fmt,
                         va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, fmt, args);
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->data[i], text) == 0) return;
    const char *copy = hn_arena_strdup(&machine->arena, text);
    if (copy && !hn_vec_push(list, copy)) return;
}

void hn_place_machine_damage(hn_place_machine *machine, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    add_sentence(machine, &machine->damage, fmt, args);
    va_end(args);
}

void hn_place_machine_advise(hn_place_machine *machine, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    add_sentence(machine, &machine->advice, fmt, args);
    va_end(args);
}

// ---- links ------------------------------------------------------------------------------------

bool hn_place_link_parse(hn_slice text, hn_place_link *out_link) {
    for (int kind = 1; kind < HN_LINK_FOREIGN; kind++) {
        if (kind == HN_LINK_NVLINK || !hn_slice_eq(text, k_links[kind].code)) continue;
        *out_link = (hn_place_link){.kind = (uint8_t)kind};
        return true;
    }
    if (text.length < 3 || text.length > 4 || text.data[0] != 'N' || text.data[1] != 'V') return false;
    int count = 0;
    for (size_t i = 2; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        count = count * 10 + (text.data[i] - '0');
    }
    // More than 36 links a card has never been built: NV80 is NV8 with a digit of the next cell.
    if (count < 1 || count > 36 || text.data[2] == '0') return false;
    *out_link = (hn_place_link){.kind = HN_LINK_NVLINK, .detail = (uint8_t)count};
    return true;
}

const char *hn_place_link_code(const hn_place_machine *machine, hn_place_link link, char *buf,
                               size_t size) {
    if (link.kind == HN_LINK_UNKNOWN) return NULL;
    if (link.kind == HN_LINK_FOREIGN)
        return link.detail < machine->foreign.count ? machine->foreign.data[link.detail] : NULL;
    if (link.kind != HN_LINK_NVLINK) return k_links[link.kind].code;
    snprintf(buf, size, "NV%d", link.detail);
    return buf;
}

int hn_place_link_rank(hn_place_link link) {
    if (link.kind == HN_LINK_UNKNOWN || link.kind >= HN_LINK_FOREIGN) return RANK_UNKNOWN;
    return k_links[link.kind].rank;
}

hn_place_link hn_place_link_between(const hn_place_machine *machine, int a, int b) {
    hn_place_link there = hn_place_cell(machine, a, b), back = hn_place_cell(machine, b, a);
    if (there.kind == HN_LINK_UNKNOWN) return back;
    if (back.kind == HN_LINK_UNKNOWN) return there;
    if (there.kind == back.kind && there.detail == back.detail) return there;
    return (hn_place_link){.kind = HN_LINK_UNKNOWN};
}

double hn_place_link_gbs(const hn_place_machine *machine, int a, int b) {
    if (machine->measured_gbs) {
        double there = machine->measured_gbs[a * machine->device_count + b];
        double back = machine->measured_gbs[b * machine->device_count + a];
        if (there > 0 && back > 0) return there < back ? there : back;
        if (there > 0 || back > 0) return there > back ? there : back;
    }
    hn_place_link link = hn_place_link_between(machine, a, b);
    if (link.kind == HN_LINK_NVLINK) return link.detail * machine->link_gbs;
    return link.kind == HN_LINK_UNKNOWN || link.kind == HN_LINK_FOREIGN ? 0 : k_links[link.kind].gbs;
}

// A switch shows every peer the count of all of a card's links. Direct links show less: boards with
// direct links have 4 cards at most with 6 links a pair at most (4 x NV4, 4 x NV6).
static bool count_of_switch(int links, int peers) {
    return peers > 1 && (links >= 8 || peers > 3);
}

int hn_place_gpu_nvlinks(const hn_place_machine *machine, int gpu) {
    int sum = 0, most = 0, least = 0, peers = 0, unknown = 0;
    for (int other = 0; other < (int)machine->gpus.count; other++) {
        if (other == gpu) continue;
        hn_place_link link = hn_place_link_between(machine, gpu, other);
        unknown += link.kind == HN_LINK_UNKNOWN || link.kind == HN_LINK_FOREIGN;
        if (link.kind != HN_LINK_NVLINK) continue;
        peers++;
        sum += link.detail;
        if (link.detail > most) most = link.detail;
        if (!least || link.detail < least) least = link.detail;
    }
    if (!peers && unknown) return HN_PLACE_UNKNOWN;
    bool all = peers + unknown == (int)machine->gpus.count - 1;
    return peers == 1 || (all && most == least && count_of_switch(most, peers)) ? most : sum;
}

bool hn_place_machine_nvswitch(const hn_place_machine *machine) {
    int count = 0;
    bool any = false;
    for (int a = 0; a < (int)machine->gpus.count; a++) {
        for (int b = a + 1; b < (int)machine->gpus.count; b++) {
            hn_place_link link = hn_place_link_between(machine, a, b);
            if (link.kind == HN_LINK_UNKNOWN) continue; // rows that a paste lost
            if (link.kind != HN_LINK_NVLINK || (any && link.detail != count)) return false;
            count = link.detail;
            any = true;
        }
    }
    return any && count_of_switch(count, (int)machine->gpus.count - 1);
}

double hn_place_nvlink_busbw_gbs(const hn_place_machine *machine, int links) {
    if (links <= 0) return 0;
    double gbs = machine->link_gbs > 0 ? machine->link_gbs : k_links[HN_LINK_NVLINK].gbs;
    return links * gbs * (links > 12 ? BUSBW_SHARE_LARGE : BUSBW_SHARE_SMALL);
}

// ---- devices ----------------------------------------------------------------------------------

int hn_place_gpu_find(const hn_place_machine *machine, int index) {
    for (size_t i = 0; i < machine->gpus.count; i++)
        if (machine->gpus.data[i].index == index) return (int)i;
    return -1;
}

const char *hn_place_device_label(const hn_place_machine *machine, int device, char *buf,
                                  size_t size) {
    if (device >= (int)machine->gpus.count)
        return machine->nics.data[device - (int)machine->gpus.count].label;
    snprintf(buf, size, "GPU%d", machine->gpus.data[device].index);
    return buf;
}

// True if b's label is a's with the next number.
static bool follows(const hn_place_machine *machine, int a, int b) {
    char first[16], second[16];
    const char *x = hn_place_device_label(machine, a, first, sizeof first);
    const char *y = hn_place_device_label(machine, b, second, sizeof second);
    size_t i = 0, j = 0;
    while (x[i] && (x[i] < '0' || x[i] > '9' || strpbrk(x + i, "_"))) i++;
    while (y[j] && (y[j] < '0' || y[j] > '9' || strpbrk(y + j, "_"))) j++;
    int64_t m, n;
    return i == j && strncmp(x, y, i) == 0 && hn_parse_i64((hn_slice){x + i, strlen(x + i)}, &m) &&
           hn_parse_i64((hn_slice){y + j, strlen(y + j)}, &n) && n == m + 1;
}

const char *hn_place_device_list(hn_place_machine *machine, const int *devices, int count) {
    hn_str text = {0};
    char label[16];
    for (int i = 0; i < count;) {
        int end = i;
        while (end + 1 < count && follows(machine, devices[end], devices[end + 1])) end++;
        if (end == i + 1) end = i; // two are written out
        hn_str_printf(&text, "%s%s", i == 0 ? "" : end + 1 == count ? " and " : ", ",
                      hn_place_device_label(machine, devices[i], label, sizeof label));
        if (end > i)
            hn_str_printf(&text, " to %s",
                          hn_place_device_label(machine, devices[end], label, sizeof label));
        i = end + 1;
    }
    const char *out = hn_arena_strdup(&machine->arena, hn_str_get(&text));
    hn_str_free(&text);
    return out ? out : "";
}

// ---- deriving ---------------------------------------------------------------------------------

// The CPU lists settle NUMA numbers where they are two or more equal, disjoint parts of all CPUs from
// 0 on: then the parts are the nodes, counted by their first CPU. A list that all cards share may be
// a cgroup's, and lists with holes may belong to any node: those settle nothing.
static void derive_numa(hn_place_machine *machine) {
    const hn_place_cpuset *parts[HN_PLACE_GPUS_MAX];
    int count = 0;
    for (size_t i = 0; i < machine->gpus.count; i++) {
        const hn_place_gpu *gpu = &machine->gpus.data[i];
        if (gpu->numa != HN_PLACE_UNKNOWN || !gpu->cpus_known) return;
        int at = 0;
        while (at < count && !hn_place_cpuset_equal(parts[at], &gpu->cpus)) at++;
        if (at == count) parts[count++] = &gpu->cpus;
    }
    if (count < 2) return;
    hn_place_cpuset all = {{0}};
    for (int i = 0; i < count; i++) {
        if (hn_place_cpuset_meet(&all, parts[i]) ||
            hn_place_cpuset_count(parts[i]) != hn_place_cpuset_count(parts[0]))
            return;
        hn_place_cpuset_or(&all, parts[i]);
    }
    if (!hn_place_cpuset_has(&all, hn_place_cpuset_count(&all) - 1)) return;
    for (size_t i = 0; i < machine->gpus.count; i++) {
        hn_place_gpu *gpu = &machine->gpus.data[i];
        int first = hn_place_cpuset_next(&gpu->cpus, -1), before = 0;
        for (int k = 0; k < count; k++) before += hn_place_cpuset_next(parts[k], -1) < first;
        gpu->numa = before;
        gpu->numa_origin = HN_ORIGIN_CPU_LIST;
    }
}

// A NIC shares the NUMA node of the cards it is near to (NODE or nearer), if those agree.
static void derive_nic_numa(hn_place_machine *machine) {
    for (size_t n = 0; n < machine->nics.count; n++) {
        hn_place_nic *nic = &machine->nics.data[n];
        if (nic->numa != HN_PLACE_UNKNOWN) continue;
        int node = HN_PLACE_UNKNOWN, best = 5; // NODE
        bool agreed = true;
        for (size_t g = 0; g < machine->gpus.count; g++) {
            hn_place_link link = hn_place_link_between(machine, (int)g,
                                                       hn_place_nic_device(machine, (int)n));
            int rank = hn_place_link_rank(link), numa = machine->gpus.data[g].numa;
            if (rank > best || numa == HN_PLACE_UNKNOWN) continue;
            if (rank == best && node != HN_PLACE_UNKNOWN && node != numa) agreed = false;
            if (rank < best) agreed = true;
            if (rank < best || node == HN_PLACE_UNKNOWN) node = numa;
            best = rank;
        }
        if (agreed) nic->numa = node;
    }
}

static int root_of(int *parent, int at) {
    while (parent[at] != at) at = parent[at] = parent[parent[at]];
    return at;
}

// Devices joined by PIX sit on one switch; between cards NVLink may hide it, so the relation is closed.
static hn_status derive_switches(hone_error *err, hn_place_machine *machine) {
    if (machine->switches.count) return HONE_OK;
    int gpus = (int)machine->gpus.count, parent[HN_PLACE_DEVICES_MAX], number[HN_PLACE_DEVICES_MAX];
    bool joined[HN_PLACE_DEVICES_MAX] = {false};
    for (int d = 0; d < machine->device_count; d++) parent[d] = d, number[d] = HN_PLACE_UNKNOWN;
    for (int a = 0; a < machine->device_count; a++)
        for (int b = a + 1; b < machine->device_count; b++) {
            if (hn_place_link_between(machine, a, b).kind != HN_LINK_PIX) continue;
            parent[root_of(parent, b)] = root_of(parent, a);
            joined[a] = joined[b] = true;
        }
    for (int d = 0; d < machine->device_count; d++) {
        int root = root_of(parent, d), numa;
        if (!joined[d]) continue;
        if (number[root] == HN_PLACE_UNKNOWN) {
            hn_place_switch made = {.numa = HN_PLACE_UNKNOWN};
            number[root] = (int)machine->switches.count;
            if (!hn_vec_push(&machine->switches, made)) HN_NOMEM(err, "switches");
        }
        if (d < gpus) {
            machine->gpus.data[d].switch_index = number[root];
            numa = machine->gpus.data[d].numa;
        } else {
            machine->nics.data[d - gpus].switch_index = number[root];
            numa = machine->nics.data[d - gpus].numa;
        }
        hn_place_switch *on = &machine->switches.data[number[root]];
        if (on->numa == HN_PLACE_UNKNOWN) on->numa = numa;
    }
    return HONE_OK;
}

hn_status hn_place_machine_derive(hone_error *err, hn_place_machine *machine) {
    derive_numa(machine);
    derive_nic_numa(machine);
    return derive_switches(err, machine);
}
