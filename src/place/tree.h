// SPDX-License-Identifier: Apache-2.0
// A machine as a tree of NUMA nodes, host bridges, PCIe bridges and devices: what XML files and sysfs
// describe. The paths between devices follow from their nearest common ancestor.
#ifndef HN_PLACE_TREE_H
#define HN_PLACE_TREE_H
#include "place/machine.h"

typedef enum hn_place_tree_kind {
    HN_TREE_MACHINE, // index 0, the root
    HN_TREE_NUMA,    // a NUMA node (or a processor whose node the source does not name)
    HN_TREE_HOST,    // a PCIe host bridge
    HN_TREE_BRIDGE,  // a PCIe bridge: a port of a switch, or a switch as a whole
    HN_TREE_GPU,
    HN_TREE_NIC,
} hn_place_tree_kind;

typedef struct hn_place_tree_node {
    hn_place_tree_kind kind;
    int parent; // index, -1 for the root
    int numa;   // of a NUMA node, or HN_PLACE_UNKNOWN
    const char *pci;
    int device; // GPU: position in machine.gpus; NIC: position in machine.nics
    int depth;
} hn_place_tree_node;

typedef struct hn_place_tree {
    HN_VEC(hn_place_tree_node) nodes;
    int pix_bridges;  // bridges between a device and a common ancestor that still are one switch
    bool has_hosts;   // the source tells host bridges apart (else a path inside a node is PHB)
    bool one_node;    // the machine has one NUMA node alone, single_node: everything is on it
    int single_node;
} hn_place_tree;

// Adds a node and returns its index, -1 when out of memory.
int hn_place_tree_add(hn_place_tree *tree, int parent, hn_place_tree_kind kind, const char *pci);
// After machine.gpus and machine.nics are filled: makes the matrix, the switches and the devices' NUMA
// numbers (where the devices have none).
hn_status hn_place_tree_apply(hone_error *err, hn_place_tree *tree, hn_place_machine *machine);
void hn_place_tree_free(hn_place_tree *tree);
// "16 GT/s" or "16.0 GT/s PCIe" to a PCIe generation, HN_PLACE_UNKNOWN for anything else.
int hn_place_pcie_generation(const char *speed);
#endif
