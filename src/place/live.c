// SPDX-License-Identifier: Apache-2.0
// The machine from sysfs: PCI tree, NUMA nodes, CPU lists, RDMA adapters. Cards are listed in PCI order,
// which is NVML's order; what only the driver knows (NVLink, memory, MIG) is added by live_nvml.c.
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdarg.h>
#include "place/live.h"
#include "place/tree.h"
#include "probe/sys.h"

typedef struct live_reader {
    hn_place_machine *machine;
    hn_place_tree tree;
} live_reader;

// First line of a small file, without its end; NULL when it cannot be read or is empty.
static const char *read_line(live_reader *r, const char *fmt, ...) HN_PRINTF(2, 3);
static const char *read_line(live_reader *r, const char *fmt, ...) {
    char path[HN_SYS_PATH_BYTES], full[HN_SYS_PATH_BYTES], line[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    if (!hn_sys_path(full, "%s", path) || !*hn_sys_line(full, line, sizeof line)) return NULL;
    return hn_arena_strdup(&r->machine->arena, line);
}

static int read_int(const char *text) {
    int64_t value;
    if (!text || !hn_parse_i64((hn_slice){text, strlen(text)}, &value) || value < 0 || value > INT_MAX)
        return HN_PLACE_UNKNOWN;
    return (int)value;
}

static bool read_cpus(const char *text, hn_place_cpuset *out) {
    return text && hn_place_cpuset_parse(hn_slice_trim((hn_slice){text, strlen(text)}), out);
}

typedef HN_VEC(const char *) name_list;

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// mlx5_2 before mlx5_10
static int by_number(const void *a, const void *b) {
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

// Names in a folder, sorted; an absent folder has none.
static void list_folder(live_reader *r, const char *path, int (*order)(const void *, const void *),
                        name_list *out) {
    char full[HN_SYS_PATH_BYTES];
    DIR *folder = hn_sys_path(full, "%s", path) ? opendir(full) : NULL;
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder)) && out->count < 65536;) {
        if (entry->d_name[0] == '.') continue;
        const char *name = hn_arena_strdup(&r->machine->arena, entry->d_name);
        if (!name || !hn_vec_push(out, name)) break;
    }
    closedir(folder);
    if (out->count > 1) qsort(out->data, out->count, sizeof *out->data, order);
}

static hn_status read_nodes(hone_error *err, live_reader *r) {
    name_list names = {0};
    list_folder(r, "/sys/devices/system/node", by_number, &names);
    hone_status status = HONE_OK;
    for (size_t i = 0; i < names.count && status == HONE_OK; i++) {
        if (strncmp(names.data[i], "node", 4) != 0) continue;
        hn_place_numa node = {.node = read_int(names.data[i] + 4), .memory_bytes = HN_PLACE_UNKNOWN};
        if (node.node < 0) continue;
        node.cpus_known =
            read_cpus(read_line(r, "/sys/devices/system/node/%s/cpulist", names.data[i]), &node.cpus);
        const char *memory = read_line(r, "/sys/devices/system/node/%s/meminfo", names.data[i]);
        const char *total = memory ? strstr(memory, "MemTotal:") : NULL;
        if (total) node.memory_bytes = strtoll(total + 9, NULL, 10) * 1024;
        if (!hn_vec_push(&r->machine->nodes, node))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (NUMA nodes)");
    }
    hn_vec_free(&names);
    if (status == HONE_OK && r->machine->nodes.count == 1) {
        r->tree.one_node = true;
        r->tree.single_node = r->machine->nodes.data[0].node;
    }
    return status;
}

static int find_child(const hn_place_tree *tree, int parent, hn_place_tree_kind kind, const char *pci,
                      int numa) {
    for (size_t i = 0; i < tree->nodes.count; i++) {
        const hn_place_tree_node *node = &tree->nodes.data[i];
        if (node->parent != parent || node->kind != kind || node->numa != numa) continue;
        if (!pci || (node->pci && strcmp(node->pci, pci) == 0)) return (int)i;
    }
    return -1;
}

static int enter(live_reader *r, int parent, hn_place_tree_kind kind, const char *pci, int numa) {
    int at = find_child(&r->tree, parent, kind, pci, numa);
    if (at >= 0) return at;
    const char *copy = pci ? hn_arena_strdup(&r->machine->arena, pci) : NULL;
    at = hn_place_tree_add(&r->tree, parent, kind, copy);
    if (at >= 0) r->tree.nodes.data[at].numa = numa;
    return at;
}

// Puts a device into the tree by the path of its sysfs folder:
// .../pci0000:3a/0000:3a:00.0/0000:3b:00.0; the folder's parents are the bridges.
static hn_status insert(hone_error *err, live_reader *r, const char *address, hn_place_tree_kind kind,
                        int device, int numa) {
    char link[HN_SYS_PATH_BYTES], full[PATH_MAX];
    if (!hn_sys_path(link, "/sys/bus/pci/devices/%s", address) || !realpath(link, full)) return HONE_OK; // gone since the folder was listed
    int at = numa >= 0 ? enter(r, 0, HN_TREE_NUMA, NULL, numa) : 0;
    char *bus = strstr(full, "/devices/pci"), *rest = NULL;
    if (!bus) return HONE_OK;
    bus += strlen("/devices");
    for (char *part = strtok_r(bus, "/", &rest); part && at >= 0; part = strtok_r(NULL, "/", &rest)) {
        bool last = !rest || !*rest;
        if (strncmp(part, "pci", 3) == 0) at = enter(r, at, HN_TREE_HOST, part, HN_PLACE_UNKNOWN);
        else if (!last) at = enter(r, at, HN_TREE_BRIDGE, part, HN_PLACE_UNKNOWN);
    }
    if (at >= 0) at = hn_place_tree_add(&r->tree, at, kind, NULL);
    if (at < 0) HN_NOMEM(err, "PCI tree");
    r->tree.nodes.data[at].device = device;
    return HONE_OK;
}

// "Model: 		 NVIDIA A800-SXM4-80GB" in the driver's folder
static const char *card_name(live_reader *r, const char *address) {
    const char *line = read_line(r, "/proc/driver/nvidia/gpus/%s/information", address);
    if (!line || strncmp(line, "Model:", 6) != 0) return NULL;
    hn_slice name = hn_slice_trim((hn_slice){line + 6, strlen(line + 6)});
    return name.length ? hn_arena_strndup(&r->machine->arena, name.data, name.length) : NULL;
}

static hn_status read_cards(hone_error *err, live_reader *r, const name_list *devices) {
    for (size_t i = 0; i < devices->count; i++) {
        const char *address = devices->data[i];
        const char *class = read_line(r, "/sys/bus/pci/devices/%s/class", address);
        const char *vendor = read_line(r, "/sys/bus/pci/devices/%s/vendor", address);
        if (!class || !vendor || strcmp(vendor, "0x10de") != 0 ||
            (strncmp(class, "0x0300", 6) != 0 && strncmp(class, "0x0302", 6) != 0))
            continue;
        if (r->machine->gpus.count >= HN_PLACE_GPUS_MAX) break;
        hn_place_gpu gpu = hn_place_gpu_unknown((int)r->machine->gpus.count);
        gpu.pci = address;
        gpu.name = card_name(r, address);
        gpu.numa = read_int(read_line(r, "/sys/bus/pci/devices/%s/numa_node", address));
        gpu.numa_origin = gpu.numa < 0 ? HN_ORIGIN_NONE : HN_ORIGIN_SOURCE;
        gpu.cpus_known =
            read_cpus(read_line(r, "/sys/bus/pci/devices/%s/local_cpulist", address), &gpu.cpus);
        gpu.pcie_generation =
            hn_place_pcie_generation(read_line(r, "/sys/bus/pci/devices/%s/max_link_speed", address));
        gpu.pcie_width = read_int(read_line(r, "/sys/bus/pci/devices/%s/max_link_width", address));
        if (!hn_vec_push(&r->machine->gpus, gpu)) HN_NOMEM(err, "cards");
        HN_TRY(insert(err, r, address, HN_TREE_GPU, (int)r->machine->gpus.count - 1, gpu.numa));
    }
    return HONE_OK;
}

// Adapters of one class folder; of network interfaces only those of PCI devices.
static hn_status read_adapters(hone_error *err, live_reader *r, const char *folder, bool rdma) {
    name_list names = {0};
    hone_status status = HONE_OK;
    list_folder(r, folder, by_number, &names);
    for (size_t i = 0; i < names.count && status == HONE_OK; i++) {
        char link[HN_SYS_PATH_BYTES], full[PATH_MAX];
        if (!hn_sys_path(link, "%s/%s/device", folder, names.data[i]) || !realpath(link, full)) continue;
        const char *address = strrchr(full, '/') + 1;
        if (strlen(address) != 12 || address[4] != ':' || address[10] != '.') continue;
        size_t devices = r->machine->gpus.count + r->machine->nics.count;
        if (devices >= HN_PLACE_DEVICES_MAX) break;
        hn_place_nic nic = hn_place_nic_unknown(
            hn_arena_printf(&r->machine->arena, "NIC%zu", r->machine->nics.count));
        nic.name = names.data[i];
        nic.pci = hn_arena_strdup(&r->machine->arena, address);
        nic.numa = read_int(read_line(r, "/sys/bus/pci/devices/%s/numa_node", address));
        const char *rate = rdma ? read_line(r, "%s/%s/ports/1/rate", folder, names.data[i])
                                : read_line(r, "%s/%s/speed", folder, names.data[i]);
        double speed = rate ? strtod(rate, NULL) : 0;
        if (speed > 0) nic.gbit_per_s = rdma ? speed : speed / 1000;
        if (!nic.label || !nic.pci || !hn_vec_push(&r->machine->nics, nic))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (adapters)");
        else
            status = insert(err, r, nic.pci, HN_TREE_NIC, (int)r->machine->nics.count - 1, nic.numa);
    }
    hn_vec_free(&names);
    return status;
}

// x86 processors tell a guest by a flag; elsewhere the firmware's maker does.
static bool is_guest(live_reader *r) {
    static const char *const k_makers[] = {"QEMU", "KVM", "VMware", "Xen", "Amazon EC2", "Google",
                                           "Microsoft Corporation"};
    char path[HN_SYS_PATH_BYTES], *text = hn_malloc(32768);
    bool guest = false;
    if (text && hn_sys_path(path, "/proc/cpuinfo") && hn_sys_read(path, text, 32768) > 0)
        guest = strstr(text, " hypervisor") != NULL;
    hn_free(text);
    const char *maker = read_line(r, "/sys/class/dmi/id/sys_vendor");
    for (size_t i = 0; i < HN_COUNT_OF(k_makers) && maker && !guest; i++)
        guest = strstr(maker, k_makers[i]) != NULL;
    return guest || read_line(r, "/sys/hypervisor/type");
}

static hn_status read_live(hone_error *err, live_reader *r) {
    name_list devices = {0};
    HN_TRY(read_nodes(err, r));
    if (hn_place_tree_add(&r->tree, -1, HN_TREE_MACHINE, NULL) < 0) HN_NOMEM(err, "PCI tree");
    list_folder(r, "/sys/bus/pci/devices", by_name, &devices);
    hone_status status = read_cards(err, r, &devices);
    hn_vec_free(&devices);
    HN_TRY(status);
    HN_TRY(read_adapters(err, r, "/sys/class/infiniband", true));
    if (!r->machine->nics.count) HN_TRY(read_adapters(err, r, "/sys/class/net", false));
    r->machine->virtual_machine = is_guest(r);
    HN_TRY(hn_place_tree_apply(err, &r->tree, r->machine));
    r->machine->complete = true;
    return HONE_OK;
}

hn_status hn_place_read_sysfs(hone_error *err, hn_place_machine *machine) {
    live_reader r = {.machine = machine};
    r.tree.pix_bridges = 1;
    r.tree.has_hosts = true;
    machine->source = "sysfs";
    hone_status status = read_live(err, &r);
    hn_place_tree_free(&r.tree);
    return status;
}

hn_status hn_place_machine_live(hone_error *err, hn_place_machine *out_machine) {
    hn_place_machine machine = {0};
    hone_status status = hn_place_read_sysfs(err, &machine);
    if (status == HONE_OK) status = hn_place_add_nvml(err, &machine);
    if (status == HONE_OK) status = hn_place_machine_derive(err, &machine);
    if (status != HONE_OK) {
        hn_place_machine_free(&machine);
        return status;
    }
    hn_place_machine_add_advice(&machine);
    *out_machine = machine;
    return HONE_OK;
}
