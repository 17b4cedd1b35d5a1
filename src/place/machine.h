// SPDX-License-Identifier: Apache-2.0
// The machine model: what hone knows of one host's cards, network adapters, CPUs and the paths
// between them, wherever it was learnt (live sources, nvidia-smi text, NCCL or hwloc XML, JSON).
//
// Invariants: what is unknown stays unknown: numbers are HN_PLACE_UNKNOWN, sets have known = false,
// cells have kind HN_LINK_UNKNOWN. The matrix is square over all devices, cards first, then NICs, and
// holds the cells as the source gave them; hn_place_link_between is what scoring asks, and it joins
// the two directions. Everything is owned by the machine's arena.
#ifndef HN_PLACE_MACHINE_H
#define HN_PLACE_MACHINE_H
#include <jansson.h>
#include "base/base.h"
#include "place/cpuset.h"

#define HN_PLACE_UNKNOWN     (-1)
#define HN_PLACE_GPUS_MAX    64
#define HN_PLACE_DEVICES_MAX 256 // cards and NICs together

typedef enum hn_place_link_kind {
    HN_LINK_UNKNOWN,
#define HN_LINK(kind, code, rank, gbs, doc) HN_LINK_##kind,
#include "place/links.def"
#undef HN_LINK
    HN_LINK_FOREIGN, // a code outside the table; `detail` counts from 0 in machine.foreign
    HN_LINK_KINDS
} hn_place_link_kind;

// One cell. Two bytes, so that a matrix of 256 devices is 128 KiB.
typedef struct hn_place_link {
    uint8_t kind;   // hn_place_link_kind
    uint8_t detail; // NVLINK: number of bonded links; FOREIGN: index
} hn_place_link;

typedef enum hn_place_origin { // where a NUMA number comes from
    HN_ORIGIN_NONE,
    HN_ORIGIN_SOURCE,   // stated by the source
    HN_ORIGIN_CPU_LIST, // the CPU lists cut the machine's CPUs into equal parts: counted from 0
} hn_place_origin;

typedef struct hn_place_gpu {
    int index;            // the number in the source's name of it: GPU3 -> 3
    const char *name;     // model, NULL if unknown
    const char *uuid;     // NULL if unknown
    const char *pci;      // "0000:3b:00.0", NULL if unknown
    int numa;             // NUMA node of its PCIe root, or HN_PLACE_UNKNOWN
    hn_place_origin numa_origin;
    int memory_numa;      // NUMA node that its own memory is (Grace), or HN_PLACE_UNKNOWN
    bool cpus_known;
    hn_place_cpuset cpus; // local CPUs as the source sees them (a cgroup may hide some)
    int64_t memory_bytes, memory_used_bytes; // or HN_PLACE_UNKNOWN
    int compute_major, compute_minor;        // or HN_PLACE_UNKNOWN
    int mig;              // 1 on, 0 off, HN_PLACE_UNKNOWN
    int mig_instances;    // or HN_PLACE_UNKNOWN
    int busy;             // 1 in use, 0 free, HN_PLACE_UNKNOWN
    int nvlinks_active, nvlinks_total, nvlink_version; // from live sources, or HN_PLACE_UNKNOWN
    int pcie_generation, pcie_width;                   // or HN_PLACE_UNKNOWN
    int switch_index;     // in machine.switches, or HN_PLACE_UNKNOWN
} hn_place_gpu;

typedef struct hn_place_nic {
    const char *label;    // as in the matrix: "NIC0", "mlx5_0"
    const char *name;     // the adapter: "mlx5_0", NULL if the source does not tell
    const char *pci;      // NULL if unknown
    int numa;             // or HN_PLACE_UNKNOWN
    double gbit_per_s;    // port speed, or HN_PLACE_UNKNOWN
    int switch_index;
} hn_place_nic;

typedef struct hn_place_switch { // a PCIe switch (or the group that PIX cells make)
    const char *pci;             // NULL where it was derived from the matrix
    int numa;                    // or HN_PLACE_UNKNOWN
} hn_place_switch;

typedef struct hn_place_numa {
    int node;
    bool cpus_known;
    hn_place_cpuset cpus;
    int64_t memory_bytes; // or HN_PLACE_UNKNOWN
} hn_place_numa;

typedef HN_VEC(const char *) hn_place_texts;

typedef struct hn_place_machine {
    hn_arena arena;
    const char *source; // "nvidia-smi topo -m text", "NCCL topology XML", "live (...)", ...
    HN_VEC(hn_place_gpu) gpus;
    HN_VEC(hn_place_nic) nics;
    HN_VEC(hn_place_switch) switches;
    HN_VEC(hn_place_numa) nodes;
    hn_place_link *matrix;  // device_count squared, row-major; cards first, then NICs
    double *measured_gbs;   // same shape, or NULL; < 0 where nothing was measured
    int device_count;
    hn_place_texts foreign; // codes outside the table
    double link_gbs;        // GB/s and direction of one NVLink of these cards (25 unless known better)
    bool complete;          // the source was whole: no row, cell or value was lost
    bool virtual_machine;   // the source says it is a guest
    hn_place_texts damage;  // sentences: what is broken in the source
    hn_place_texts advice;  // sentences: what a reader should do
} hn_place_machine;

// An all-zero machine is valid and empty.
void hn_place_machine_free(hn_place_machine *machine);

// Reads whatever `path` holds ("-" is standard input): JSON of this model, NCCL topology XML, hwloc
// XML, or nvidia-smi text. HONE_ERR_FORMAT where the text holds no matrix. Advice is filled in.
hn_status hn_place_machine_read(hone_error *err, const char *path, hn_place_machine *out_machine);
hn_status hn_place_machine_parse(hone_error *err, const char *what, hn_slice text,
                                 hn_place_machine *out_machine);
// Takes the machine that this process runs on. No card is a normal answer (gpus.count 0).
hn_status hn_place_machine_live(hone_error *err, hn_place_machine *out_machine);

// The readers behind hn_place_machine_parse; none of them gives advice.
hn_status hn_place_read_text(hone_error *err, hn_slice text, hn_place_machine *machine);
hn_status hn_place_read_json(hone_error *err, hn_slice text, hn_place_machine *machine);
hn_status hn_place_read_nccl_xml(hone_error *err, hn_slice text, hn_place_machine *machine);
hn_status hn_place_read_hwloc_xml(hone_error *err, hn_slice text, hn_place_machine *machine);

// ---- building (for readers) ----
hn_place_gpu hn_place_gpu_unknown(int index); // all fields unknown
hn_place_nic hn_place_nic_unknown(const char *label);
// After gpus and nics are filled: allocates the matrix, all cells unknown but the diagonal.
hn_status hn_place_machine_alloc_matrix(hone_error *err, hn_place_machine *machine);
// Appends a sentence (a copy in the arena). Out of memory drops it: advice is not worth a failure,
// and damage also clears `complete`.
void hn_place_machine_damage(hn_place_machine *machine, const char *fmt, ...) HN_PRINTF(2, 3);
void hn_place_machine_advise(hn_place_machine *machine, const char *fmt, ...) HN_PRINTF(2, 3);
// Derives what the source leaves open but its facts settle: NUMA from CPU lists that partition the
// CPUs, NUMA of NICs from near cards, switches from PIX groups. Called by hn_place_machine_parse.
hn_status hn_place_machine_derive(hone_error *err, hn_place_machine *machine);
// Fills machine.advice.
void hn_place_machine_add_advice(hn_place_machine *machine);

// ---- asking ----
static inline hn_place_link hn_place_cell(const hn_place_machine *machine, int row, int column) {
    return machine->matrix[row * machine->device_count + column];
}
static inline int hn_place_nic_device(const hn_place_machine *machine, int nic) {
    return (int)machine->gpus.count + nic;
}
// The path between two devices: the cell, or its mirror where only that one is known; UNKNOWN where
// both are known and disagree.
hn_place_link hn_place_link_between(const hn_place_machine *machine, int a, int b);
// GB/s and direction of the path: measured if there is a measurement, else of its class; 0 unknown.
double hn_place_link_gbs(const hn_place_machine *machine, int a, int b);
int hn_place_link_rank(hn_place_link link); // nearness by links.def; unknown and foreign are the last
// The code as the source wrote it ("NV8", "SOC", "HT"); NULL for unknown. buf holds at least 8 bytes.
const char *hn_place_link_code(const hn_place_machine *machine, hn_place_link link, char *buf,
                               size_t size);
// Parses a code of the table ("NV12"); false for anything else.
bool hn_place_link_parse(hn_slice text, hn_place_link *out_link);
int hn_place_gpu_find(const hn_place_machine *machine, int index); // position or -1
// Label of a device: "GPU3", "NIC0".
const char *hn_place_device_label(const hn_place_machine *machine, int device, char *buf, size_t size);

// "GPU0 to GPU3, GPU5 and NIC0": ascending devices, runs drawn together; in the machine's arena.
const char *hn_place_device_list(hn_place_machine *machine, const int *devices, int count);

// ---- links of a card as a whole ----
// Number of NVLinks a card has by its cells: the largest count if all its NVLink peers show the same
// (a switch, or one bridge), else the sum (a mesh of direct links). 0 none, HN_PLACE_UNKNOWN.
int hn_place_gpu_nvlinks(const hn_place_machine *machine, int gpu);
// True if every pair of cards shows one and the same NVLink count (cards behind NVSwitch).
bool hn_place_machine_nvswitch(const hn_place_machine *machine);
// Bus bandwidth that a large all-reduce reaches over `links` NVLinks a card (nccl-tests' busbw):
// 8 -> 160, 12 -> 240, 18 -> 371 GB/s without NVLS.
double hn_place_nvlink_busbw_gbs(const hn_place_machine *machine, int links);

// ---- writing ----
// The model as JSON: keys gpus, nics, switches, nodes, matrix, complete, damage, advice, ... Reading
// it back gives the same model. NULL when out of memory.
json_t *hn_place_machine_json(const hn_place_machine *machine);
void hn_place_json_append(const json_t *root, hn_str *out); // indented; sets out->failed on NULL
void hn_place_machine_table(const hn_place_machine *machine, hn_str *out);
// A self-contained picture. html: wrapped into a page with the tables below it.
void hn_place_machine_svg(const hn_place_machine *machine, hn_str *out);
void hn_place_machine_html(const hn_place_machine *machine, hn_str *out);
#endif
