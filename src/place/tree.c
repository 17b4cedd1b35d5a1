// SPDX-License-Identifier: Apache-2.0
// Paths from ancestors: see tree.h.
#include "place/tree.h"
#include <stdlib.h>

#define TREE_NODES_MAX 65536

int hn_place_tree_add(hn_place_tree *tree, int parent, hn_place_tree_kind kind, const char *pci) {
    if (tree->nodes.count >= TREE_NODES_MAX) return -1;
    hn_place_tree_node node = {.kind = kind, .parent = parent, .numa = HN_PLACE_UNKNOWN, .pci = pci,
                               .device = -1};
    node.depth = parent < 0 ? 0 : tree->nodes.data[parent].depth + 1;
    if (!hn_vec_push(&tree->nodes, node)) return -1;
    return (int)tree->nodes.count - 1;
}

void hn_place_tree_free(hn_place_tree *tree) { hn_vec_free(&tree->nodes); }

int hn_place_pcie_generation(const char *speed) {
    static const double k_speeds[] = {2.5, 5, 8, 16, 32, 64};
    double value = speed ? strtod(speed, NULL) : 0;
    for (size_t i = 0; i < HN_COUNT_OF(k_speeds); i++)
        if (value > k_speeds[i] - 0.2 && value < k_speeds[i] + 0.2) return (int)i + 1;
    return HN_PLACE_UNKNOWN;
}

static int above(const hn_place_tree *tree, int at, hn_place_tree_kind kind) {
    while (at >= 0 && tree->nodes.data[at].kind != kind) at = tree->nodes.data[at].parent;
    return at;
}

static int common(const hn_place_tree *tree, int a, int b) {
    while (a != b) {
        int *deeper = tree->nodes.data[a].depth >= tree->nodes.data[b].depth ? &a : &b;
        *deeper = tree->nodes.data[*deeper].parent;
    }
    return a;
}

// The NUMA node of the nearest ancestor that has one.
static int numa_of(const hn_place_tree *tree, int at) {
    while (at >= 0 && (tree->nodes.data[at].kind != HN_TREE_NUMA || tree->nodes.data[at].numa < 0))
        at = tree->nodes.data[at].parent;
    if (at >= 0) return tree->nodes.data[at].numa;
    return tree->one_node ? tree->single_node : HN_PLACE_UNKNOWN;
}

// A path that meets above the host bridges: inside a node, or between nodes. Processors without node
// numbers are told apart by being two.
static hn_place_link_kind upper_path(const hn_place_tree *tree, int a, int b) {
    hn_place_link_kind inside = tree->has_hosts ? HN_LINK_NODE : HN_LINK_PHB;
    int x = numa_of(tree, a), y = numa_of(tree, b);
    if (x >= 0 && y >= 0) return x == y ? inside : HN_LINK_SYS;
    int p = above(tree, a, HN_TREE_NUMA), q = above(tree, b, HN_TREE_NUMA);
    if (p < 0 || q < 0) return HN_LINK_UNKNOWN;
    return p == q ? inside : HN_LINK_SYS;
}

// Unknown for a device that the source lists but does not place in the tree (-1).
static hn_place_link path(const hn_place_tree *tree, int a, int b) {
    if (a < 0 || b < 0) return (hn_place_link){.kind = HN_LINK_UNKNOWN};
    int top = common(tree, a, b);
    const hn_place_tree_node *nodes = tree->nodes.data;
    int longest = nodes[a].depth > nodes[b].depth ? nodes[a].depth : nodes[b].depth;
    hn_place_link_kind kind;
    switch (nodes[top].kind) {
    case HN_TREE_BRIDGE:
        kind = longest - nodes[top].depth - 1 <= tree->pix_bridges ? HN_LINK_PIX : HN_LINK_PXB;
        break;
    case HN_TREE_HOST: kind = HN_LINK_PHB; break;
    case HN_TREE_NUMA:
    case HN_TREE_MACHINE: kind = upper_path(tree, a, b); break;
    default: kind = HN_LINK_PIX; // functions of one device
    }
    return (hn_place_link){.kind = (uint8_t)kind};
}

// The switch of a device: the bridge right above it, where at least one other device shares it.
static hn_status make_switches(hone_error *err, const hn_place_tree *tree, const int *where,
                               hn_place_machine *machine) {
    int gpus = (int)machine->gpus.count, switch_top[HN_PLACE_DEVICES_MAX];
    for (int a = 0; a < machine->device_count; a++) {
        int *mine = a < gpus ? &machine->gpus.data[a].switch_index
                             : &machine->nics.data[a - gpus].switch_index;
        for (int b = 0; b < machine->device_count && *mine < 0; b++) {
            if (a == b || path(tree, where[a], where[b]).kind != HN_LINK_PIX) continue;
            int top = common(tree, where[a], where[b]);
            for (size_t s = 0; s < machine->switches.count; s++)
                if (switch_top[s] == top) *mine = (int)s;
            if (*mine >= 0) break;
            hn_place_switch made = {tree->nodes.data[top].pci, numa_of(tree, top)};
            if (!hn_vec_push(&machine->switches, made)) HN_NOMEM(err, "switches");
            *mine = (int)machine->switches.count - 1;
            switch_top[*mine] = top;
        }
    }
    return HONE_OK;
}

hn_status hn_place_tree_apply(hone_error *err, hn_place_tree *tree, hn_place_machine *machine) {
    int where[HN_PLACE_DEVICES_MAX];
    HN_TRY(hn_place_machine_alloc_matrix(err, machine));
    int gpus = (int)machine->gpus.count, count = machine->device_count;
    for (int d = 0; d < count; d++) where[d] = -1;
    for (size_t i = 0; i < tree->nodes.count; i++) {
        const hn_place_tree_node *node = &tree->nodes.data[i];
        if (node->kind == HN_TREE_GPU) where[node->device] = (int)i;
        if (node->kind == HN_TREE_NIC) where[gpus + node->device] = (int)i;
    }
    for (int a = 0; a < count; a++) {
        int numa = where[a] < 0 ? HN_PLACE_UNKNOWN : numa_of(tree, where[a]);
        if (a < gpus && machine->gpus.data[a].numa == HN_PLACE_UNKNOWN && numa >= 0) {
            machine->gpus.data[a].numa = numa;
            machine->gpus.data[a].numa_origin = HN_ORIGIN_SOURCE;
        }
        if (a >= gpus && machine->nics.data[a - gpus].numa == HN_PLACE_UNKNOWN)
            machine->nics.data[a - gpus].numa = numa;
        for (int b = 0; b < count; b++) {
            hn_place_link *cell = &machine->matrix[a * count + b];
            if (a == b) cell->kind = HN_LINK_SELF;
            else *cell = path(tree, where[a], where[b]);
        }
    }
    return make_switches(err, tree, where, machine);
}
