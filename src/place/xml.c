// SPDX-License-Identifier: Apache-2.0
// NCCL topology XML (NCCL_TOPO_DUMP_FILE) and hwloc XML (lstopo of any version), by expat. No DTD is
// followed and no entity expanded; depth and counts are bounded.
#include <expat.h>
#include <stdlib.h>
#include "place/tree.h"

#define DEPTH_MAX 256
#define LINKS_MAX 1024
// What the JSON reader and the text reader take: no model is made that they would refuse.
#define INDEX_MAX   9999
#define NVLINKS_MAX 36

typedef struct nvlink {
    int gpu;            // position
    const char *target; // bus id of the other end; NULL where a damaged element names none
    const char *class;  // its PCI class, NULL if not given
    int count;          // HN_PLACE_UNKNOWN: damaged
} nvlink;

typedef struct xml_reader {
    hone_error *err;
    hn_place_machine *machine;
    hn_place_tree tree;
    XML_Parser parser;
    hone_status status;
    bool nccl;
    int stack[DEPTH_MAX]; // tree node of each open element
    int depth;
    bool any_object; // hwloc: the document describes something
    // NCCL: the pci element whose <gpu> or <nic> is open
    const char *pci;
    int pcie_generation, pcie_width;
    int gpu; // position, -1 outside a card
    HN_VEC(nvlink) links;
    // hwloc: packages and nodes
    int os_node, os_package;
} xml_reader;

static void fail(xml_reader *r, hone_status status, const char *text) {
    if (r->status != HONE_OK) return;
    r->status = HN_SET(r->err, status, "line %lu: %s", (unsigned long)XML_GetCurrentLineNumber(r->parser),
                       text);
    XML_StopParser(r->parser, XML_FALSE);
}

// A value was lost: the rest is read on.
static void damage(xml_reader *r, const char *text) {
    hn_place_machine_damage(r->machine, "line %lu: %s", (unsigned long)XML_GetCurrentLineNumber(r->parser), text);
    r->machine->complete = false;
}

static const char *attr(const XML_Char **attrs, const char *name) {
    for (; attrs[0]; attrs += 2)
        if (strcmp(attrs[0], name) == 0) return attrs[1];
    return NULL;
}

static int attr_int(const XML_Char **attrs, const char *name) {
    const char *text = attr(attrs, name);
    int64_t value;
    if (!text || !hn_parse_i64((hn_slice){text, strlen(text)}, &value) || value < 0 || value > 1 << 24)
        return HN_PLACE_UNKNOWN;
    return (int)value;
}

// The number of a NUMA node; -1 is how NCCL and the kernel write that there is none.
static int attr_node(xml_reader *r, const XML_Char **attrs, const char *name) {
    const char *text = attr(attrs, name);
    int value = attr_int(attrs, name);
    if (!text || strcmp(text, "-1") == 0 || (value >= 0 && value < HN_PLACE_CPUS_MAX)) return value;
    damage(r, "the number of a NUMA node cannot be read: unknown");
    return HN_PLACE_UNKNOWN;
}

static const char *keep(xml_reader *r, const char *text) {
    if (!text) return NULL;
    const char *copy = hn_arena_strndup(&r->machine->arena, text, strnlen(text, 200));
    if (!copy) fail(r, HONE_ERR_NOMEM, "out of memory");
    return copy;
}

static int add(xml_reader *r, int parent, hn_place_tree_kind kind, const char *pci) {
    int made = hn_place_tree_add(&r->tree, parent, kind, pci);
    if (made < 0) fail(r, HONE_ERR_LIMIT, "too many elements");
    return made < 0 ? parent : made;
}

static int add_gpu(xml_reader *r, int parent, int index, const char *pci) {
    if (r->machine->gpus.count >= HN_PLACE_GPUS_MAX) {
        fail(r, HONE_ERR_LIMIT, "too many cards");
        return parent;
    }
    hn_place_gpu gpu = hn_place_gpu_unknown(index);
    gpu.pci = pci;
    if (!hn_vec_push(&r->machine->gpus, gpu)) fail(r, HONE_ERR_NOMEM, "out of memory");
    int node = add(r, parent, HN_TREE_GPU, pci);
    r->tree.nodes.data[node].device = (int)r->machine->gpus.count - 1;
    return node;
}

static int add_nic(xml_reader *r, int parent, const char *name, const char *pci) {
    if (r->machine->gpus.count + r->machine->nics.count >= HN_PLACE_DEVICES_MAX) {
        fail(r, HONE_ERR_LIMIT, "too many network adapters");
        return parent;
    }
    const char *label = hn_arena_printf(&r->machine->arena, "NIC%zu", r->machine->nics.count);
    hn_place_nic nic = hn_place_nic_unknown(label ? label : "NIC");
    nic.name = name;
    nic.pci = pci;
    if (!hn_vec_push(&r->machine->nics, nic)) fail(r, HONE_ERR_NOMEM, "out of memory");
    int node = add(r, parent, HN_TREE_NIC, pci);
    r->tree.nodes.data[node].device = (int)r->machine->nics.count - 1;
    return node;
}

// Hexadecimal words with commas, the lowest last: NCCL's affinity, and hwloc's cpuset with 0x. An
// empty set is read too: nodes of memory alone have it.
static bool parse_mask(const char *text, hn_place_cpuset *out) {
    hn_place_cpuset set = {{0}};
    size_t length = strlen(text);
    int bit = 0;
    while (length) {
        size_t start = length;
        while (start && text[start - 1] != ',') start--;
        size_t first = start;
        if (length - first > 2 && text[first] == '0' && (text[first + 1] | 32) == 'x') first += 2;
        int word_bit = bit;
        for (size_t i = length; i > first; i--) {
            char c = text[i - 1];
            int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
            if (digit < 0) return false;
            for (int k = 0; k < 4; k++)
                if (digit >> k & 1) {
                    if (word_bit + k >= HN_PLACE_CPUS_MAX) return false;
                    hn_place_cpuset_add(&set, word_bit + k);
                }
            word_bit += 4;
        }
        bit += 32;
        length = start ? start - 1 : 0;
    }
    *out = set;
    return true;
}

static void take_mask(xml_reader *r, const char *text, hn_place_numa *node) {
    if (!text) return;
    if (!*text || !parse_mask(text, &node->cpus)) damage(r, "the CPUs of a NUMA node cannot be read: unknown");
    node->cpus_known = !hn_place_cpuset_empty(&node->cpus);
}

// ---- NCCL -------------------------------------------------------------------------------------

static int nccl_cpu(xml_reader *r, const XML_Char **attrs) {
    int node = add(r, 0, HN_TREE_NUMA, NULL);
    hn_place_numa made = {.node = attr_node(r, attrs, "numaid"), .memory_bytes = HN_PLACE_UNKNOWN};
    r->tree.nodes.data[node].numa = made.node;
    take_mask(r, attr(attrs, "affinity"), &made);
    if (made.node >= 0 && r->machine->nodes.count < 1024 && !hn_vec_push(&r->machine->nodes, made))
        fail(r, HONE_ERR_NOMEM, "out of memory");
    return node;
}

static int nccl_gpu(xml_reader *r, int parent, const XML_Char **attrs) {
    int index = attr_int(attrs, "dev"), sm = attr_int(attrs, "sm");
    if (index < 0 || index > INDEX_MAX) {
        damage(r, "the number (dev) of a card cannot be read: it is counted");
        index = (int)r->machine->gpus.count;
    }
    int node = add_gpu(r, parent, index, r->pci);
    r->gpu = r->tree.nodes.data[node].device;
    if (r->gpu < 0) return node;
    r->machine->gpus.data[r->gpu].pcie_generation = r->pcie_generation;
    r->machine->gpus.data[r->gpu].pcie_width =
        r->pcie_width > 0 && r->pcie_width <= 32 ? r->pcie_width : HN_PLACE_UNKNOWN;
    if (sm > 0 && sm < 1000) {
        r->machine->gpus.data[r->gpu].compute_major = sm / 10;
        r->machine->gpus.data[r->gpu].compute_minor = sm % 10;
    }
    return node;
}

static void nccl_link(xml_reader *r, const XML_Char **attrs) {
    nvlink link = {r->gpu, keep(r, attr(attrs, "target")), keep(r, attr(attrs, "tclass")),
                   attr_int(attrs, "count")};
    if (r->gpu < 0) return;
    if (!link.target || link.count < 1 || link.count > NVLINKS_MAX) {
        char text[128];
        snprintf(text, sizeof text, "an nvlink of GPU%d has no target or no count from 1 to %d: that path is unknown",
                 r->machine->gpus.data[r->gpu].index, NVLINKS_MAX);
        damage(r, text);
        link.count = HN_PLACE_UNKNOWN;
    }
    if (r->links.count >= LINKS_MAX) fail(r, HONE_ERR_LIMIT, "too many nvlink elements");
    else if (!hn_vec_push(&r->links, link)) fail(r, HONE_ERR_NOMEM, "out of memory");
}

static int nccl_element(xml_reader *r, const char *name, const XML_Char **attrs, int parent) {
    if (strcmp(name, "system") == 0) return 0;
    if (strcmp(name, "cpu") == 0) return nccl_cpu(r, attrs);
    if (strcmp(name, "pci") == 0) {
        const char *class = attr(attrs, "class");
        r->pci = keep(r, attr(attrs, "busid"));
        r->pcie_generation = hn_place_pcie_generation(attr(attrs, "link_speed"));
        r->pcie_width = attr_int(attrs, "link_width");
        r->gpu = -1;
        // Only bridges are places of their own; a card's or adapter's own element is the device.
        if (class && strncmp(class, "0x0604", 6) == 0) return add(r, parent, HN_TREE_BRIDGE, r->pci);
        return parent;
    }
    if (strcmp(name, "gpu") == 0) return nccl_gpu(r, parent, attrs);
    if (strcmp(name, "nvlink") == 0) nccl_link(r, attrs);
    if (strcmp(name, "net") == 0) {
        int node = add_nic(r, parent, keep(r, attr(attrs, "name")), r->pci);
        int device = r->tree.nodes.data[node].device, mbit = attr_int(attrs, "speed");
        if (device >= 0 && r->tree.nodes.data[node].kind == HN_TREE_NIC && mbit > 0)
            r->machine->nics.data[device].gbit_per_s = mbit / 1000.0;
    }
    return parent;
}

static bool same_bus(const char *a, const char *b) {
    // "0000:3b:00.0" and "00000000:3B:00.0" are one place.
    const char *x = strchr(a, ':'), *y = strchr(b, ':');
    return x && y && strcasecmp(x, y) == 0 && strtoul(a, NULL, 16) == strtoul(b, NULL, 16);
}

static bool to_a_switch(const nvlink *link) {
    return link->class && strncmp(link->class, "0x0680", 6) == 0;
}

// Cells of a card whose count of links is lost: the tree's PCIe path would be a wrong answer.
static void forget_paths(hn_place_machine *m, int gpu, const char *target) {
    for (int b = 0; b < (int)m->gpus.count; b++) {
        if (b == gpu || (target && (!m->gpus.data[b].pci || !same_bus(m->gpus.data[b].pci, target)))) continue;
        m->matrix[gpu * m->device_count + b] = m->matrix[b * m->device_count + gpu] = (hn_place_link){HN_LINK_UNKNOWN, 0};
    }
}

// Direct links are cells at once; links to a switch (class 0x0680) join every pair of its cards with
// the smaller of the two counts.
static void nccl_apply_links(xml_reader *r) {
    hn_place_machine *m = r->machine;
    int to_switch[HN_PLACE_GPUS_MAX] = {0};
    bool lost[HN_PLACE_GPUS_MAX] = {false};
    for (size_t i = 0; i < r->links.count; i++) {
        const nvlink *link = &r->links.data[i];
        if (link->count == HN_PLACE_UNKNOWN) {
            lost[link->gpu] |= to_a_switch(link);
            forget_paths(m, link->gpu, to_a_switch(link) ? NULL : link->target);
        } else if (to_a_switch(link)) {
            to_switch[link->gpu] += link->count;
        }
    }
    for (int a = 0; a < (int)m->gpus.count; a++) {
        if (to_switch[a] <= NVLINKS_MAX) continue;
        hn_place_machine_damage(m, "GPU%d has %d links to switches, more than %d: its paths are unknown",
                                m->gpus.data[a].index, to_switch[a], NVLINKS_MAX);
        m->complete = false;
        lost[a] = true;
        forget_paths(m, a, NULL);
    }
    for (size_t i = 0; i < r->links.count; i++) {
        const nvlink *link = &r->links.data[i];
        if (link->count == HN_PLACE_UNKNOWN || to_a_switch(link)) continue;
        for (int b = 0; b < (int)m->gpus.count; b++) {
            if (b == link->gpu || !m->gpus.data[b].pci || !same_bus(m->gpus.data[b].pci, link->target))
                continue;
            m->matrix[link->gpu * m->device_count + b] =
                (hn_place_link){HN_LINK_NVLINK, (uint8_t)link->count};
        }
    }
    for (int a = 0; a < (int)m->gpus.count; a++)
        for (int b = 0; b < (int)m->gpus.count; b++) {
            int count = to_switch[a] < to_switch[b] ? to_switch[a] : to_switch[b];
            if (a != b && count > 0 && !lost[a] && !lost[b])
                m->matrix[a * m->device_count + b] = (hn_place_link){HN_LINK_NVLINK, (uint8_t)count};
        }
}

// ---- hwloc ------------------------------------------------------------------------------------

static bool is_type(const XML_Char **attrs, const char *type) {
    const char *value = attr(attrs, "type");
    return value && strcmp(value, type) == 0;
}

static hn_place_tree_node *node_at(xml_reader *r, int at) { return &r->tree.nodes.data[at]; }

static void hwloc_numa(xml_reader *r, const XML_Char **attrs, int parent) {
    int number = attr_node(r, attrs, "os_index");
    const char *bytes = attr(attrs, "local_memory");
    int64_t memory;
    hn_place_numa made = {.node = number, .memory_bytes = HN_PLACE_UNKNOWN};
    take_mask(r, attr(attrs, "cpuset"), &made);
    if (bytes && hn_parse_i64((hn_slice){bytes, strlen(bytes)}, &memory) && memory > 0)
        made.memory_bytes = memory;
    if (number >= 0 && r->machine->nodes.count < 1024 && !hn_vec_push(&r->machine->nodes, made))
        fail(r, HONE_ERR_NOMEM, "out of memory");
    // Since hwloc 2 the node hangs beside the CPUs of the object that it is local to; a second node
    // there (memory of a card) does not rename the place.
    if (parent > 0 && node_at(r, parent)->kind == HN_TREE_NUMA && node_at(r, parent)->numa < 0)
        node_at(r, parent)->numa = number;
}

static int hwloc_pci(xml_reader *r, const XML_Char **attrs, int parent) {
    const char *type = attr(attrs, "pci_type"), *bus = keep(r, attr(attrs, "pci_busid"));
    r->pci = bus;
    // "0302 [10de:20b0] [10de:1463] a1": class, vendor and device
    bool nvidia = type && strstr(type, "[10de:") != NULL;
    if (type && nvidia && (strncmp(type, "0302", 4) == 0 || strncmp(type, "0300", 4) == 0)) {
        return add_gpu(r, parent, (int)r->machine->gpus.count, bus);
    }
    return parent;
}

static int hwloc_element(xml_reader *r, const char *name, const XML_Char **attrs, int parent) {
    if (strcmp(name, "object") != 0) return parent;
    r->any_object = true;
    if (is_type(attrs, "Package") || is_type(attrs, "Socket") || is_type(attrs, "Group") ||
        is_type(attrs, "Die"))
        return add(r, parent, HN_TREE_NUMA, NULL);
    if (is_type(attrs, "NUMANode")) {
        // hwloc 1 nests what belongs to a node inside it.
        bool empty_place = node_at(r, parent)->kind == HN_TREE_NUMA && node_at(r, parent)->numa < 0;
        int place = empty_place ? parent : add(r, parent, HN_TREE_NUMA, NULL);
        hwloc_numa(r, attrs, place);
        return place;
    }
    if (is_type(attrs, "Bridge")) {
        const char *kind = attr(attrs, "bridge_type");
        bool host = kind && strncmp(kind, "0-", 2) == 0;
        return add(r, parent, host ? HN_TREE_HOST : HN_TREE_BRIDGE, keep(r, attr(attrs, "pci_busid")));
    }
    if (is_type(attrs, "PCIDev")) return hwloc_pci(r, attrs, parent);
    if (is_type(attrs, "OSDev")) {
        const char *kind = attr(attrs, "osdev_type");
        if (kind && (strcmp(kind, "3") == 0 || strncmp(kind, "OpenF", 5) == 0))
            add_nic(r, parent, keep(r, attr(attrs, "name")), r->pci);
    }
    return parent;
}

// ---- both -------------------------------------------------------------------------------------

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attrs) {
    xml_reader *r = user;
    if (r->depth + 1 >= DEPTH_MAX) {
        fail(r, HONE_ERR_LIMIT, "elements are nested too deeply");
        return;
    }
    int parent = r->stack[r->depth];
    int here = r->nccl ? nccl_element(r, name, attrs, parent) : hwloc_element(r, name, attrs, parent);
    r->stack[++r->depth] = here;
}

static void XMLCALL on_end(void *user, const XML_Char *name) {
    xml_reader *r = user;
    if (r->depth) r->depth--;
    if (strcmp(name, "gpu") == 0) r->gpu = -1;
}

static void XMLCALL on_entity(void *user, const XML_Char *name, int is_parameter, const XML_Char *value,
                              int length, const XML_Char *base, const XML_Char *system,
                              const XML_Char *public, const XML_Char *notation) {
    (void)name, (void)is_parameter, (void)value, (void)length, (void)base, (void)system, (void)public;
    (void)notation;
    fail(user, HONE_ERR_FORMAT, "entities are not allowed here");
}

static void fill_cpus(hn_place_machine *machine) {
    for (size_t g = 0; g < machine->gpus.count; g++) {
        hn_place_gpu *gpu = &machine->gpus.data[g];
        for (size_t n = 0; n < machine->nodes.count; n++) {
            const hn_place_numa *node = &machine->nodes.data[n];
            if (gpu->numa < 0 || node->node != gpu->numa || !node->cpus_known) continue;
            gpu->cpus = node->cpus;
            gpu->cpus_known = true;
        }
    }
}

static hn_status parse(xml_reader *r, hn_slice text) {
    if (hn_place_tree_add(&r->tree, -1, HN_TREE_MACHINE, NULL) < 0) HN_NOMEM(r->err, "topology XML");
    if (text.length > INT32_MAX)
        HN_FAIL(r->err, HONE_ERR_LIMIT, "the XML has %zu bytes", text.length);
    r->machine->complete = true; // until a value is lost
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_start, on_end);
    XML_SetEntityDeclHandler(r->parser, on_entity);
    enum XML_Status parsed = XML_Parse(r->parser, text.data, (int)text.length, 1);
    if (r->status != HONE_OK) return r->status;
    if (parsed != XML_STATUS_OK)
        HN_FAIL(r->err, HONE_ERR_FORMAT, "the XML is broken in line %lu: %s",
                (unsigned long)XML_GetCurrentLineNumber(r->parser),
                XML_ErrorString(XML_GetErrorCode(r->parser)));
    if (!r->nccl && !r->any_object) HN_FAIL(r->err, HONE_ERR_FORMAT, "the hwloc XML holds no machine");
    // As in a header of nvidia-smi that names a card twice: nobody can say which of them is meant.
    for (size_t g = 0; g < r->machine->gpus.count; g++)
        if (hn_place_gpu_find(r->machine, r->machine->gpus.data[g].index) != (int)g)
            HN_FAIL(r->err, HONE_ERR_FORMAT, "two cards of the XML are GPU%d", r->machine->gpus.data[g].index);
    if (r->machine->nodes.count == 1) {
        r->tree.one_node = true;
        r->tree.single_node = r->machine->nodes.data[0].node;
    }
    HN_TRY(hn_place_tree_apply(r->err, &r->tree, r->machine));
    if (r->nccl) nccl_apply_links(r);
    fill_cpus(r->machine);
    return HONE_OK;
}

static hn_status read_xml(hone_error *err, hn_slice text, hn_place_machine *machine, bool nccl) {
    xml_reader *r = hn_calloc(1, sizeof *r);
    if (!r) HN_NOMEM(err, "topology XML");
    r->err = err;
    r->machine = machine;
    r->nccl = nccl;
    r->gpu = -1;
    r->tree.pix_bridges = nccl ? 0 : 1;
    r->tree.has_hosts = !nccl;
    r->parser = XML_ParserCreate(NULL);
    hone_status status = r->parser ? parse(r, text) : HN_SET(err, HONE_ERR_NOMEM, "out of memory (XML)");
    if (r->parser) XML_ParserFree(r->parser);
    hn_vec_free(&r->links);
    hn_place_tree_free(&r->tree);
    hn_free(r);
    return status;
}

hn_status hn_place_read_nccl_xml(hone_error *err, hn_slice text, hn_place_machine *machine) {
    machine->source = "NCCL topology XML";
    HN_TRY(read_xml(err, text, machine, true));
    if (!machine->gpus.count) HN_FAIL(err, HONE_ERR_FORMAT, "the NCCL topology names no card");
    return HONE_OK;
}

hn_status hn_place_read_hwloc_xml(hone_error *err, hn_slice text, hn_place_machine *machine) {
    machine->source = "hwloc XML";
    return read_xml(err, text, machine, false);
}
