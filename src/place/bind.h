// SPDX-License-Identifier: Apache-2.0
// Binding of a child process to CPUs and memory, and what launchers have done before us.
//
// Order of use (`hone exec --place`): hn_place_launcher_detect, hn_place_binding_make, then in the child
// hn_place_binding_apply. A binding never widens what the process may already use, and a launcher's own
// binding is left in place: torchrun, mpirun and srun know more about their other ranks than we do.
#ifndef HN_PLACE_BIND_H
#define HN_PLACE_BIND_H
#include "place/place.h"

typedef enum hn_place_launcher_kind {
    HN_LAUNCHER_NONE,
    HN_LAUNCHER_TORCHRUN,
    HN_LAUNCHER_OPENMPI,
    HN_LAUNCHER_MPICH, // and its family (Intel MPI, MVAPICH): PMI_*, MPI_LOCALRANKID
    HN_LAUNCHER_SRUN,
} hn_place_launcher_kind;

typedef struct hn_place_launcher {
    hn_place_launcher_kind kind;
    const char *name;      // "srun", static
    int local_rank;        // -1: we wrap the launcher itself, or it does not say
    int local_size;        // ranks on this host, -1 unknown
    bool binds_cpus;       // it has narrowed this process's CPUs
    bool gives_cards;      // it has set CUDA_VISIBLE_DEVICES
} hn_place_launcher;

// From the environment (hn_config_env) and the CPU affinity of this process.
void hn_place_launcher_detect(hn_place_launcher *out_launcher);

// CPUs and memory nodes that this process may use.
hn_status hn_place_allowed_cpus(hone_error *err, hn_place_cpuset *out_cpus);
hn_status hn_place_allowed_nodes(hone_error *err, hn_place_cpuset *out_nodes);
// Positions of the cards that CUDA_VISIBLE_DEVICES leaves visible; 0 when it is unset (all), and
// HONE_ERR_USAGE when it names none of this machine's cards.
hn_status hn_place_visible_cards(hone_error *err, const hn_place_machine *machine, uint64_t *out_cards);

typedef struct hn_place_env {
    const char *name, *value; // in the binding's arena
} hn_place_env;

typedef struct hn_place_binding {
    hn_arena arena;
    bool bind_cpus, bind_memory;
    hn_place_cpuset cpus, nodes;
    HN_VEC(hn_place_env) env; // to set in the child
    hn_place_texts notes;     // what was left alone, and why
} hn_place_binding;

// The binding of the whole job (rank -1: we start it, or wrap its launcher) or of one rank of it.
hn_status hn_place_binding_make(hone_error *err, const hn_place_result *result,
                                const hn_place_launcher *launcher, hn_place_binding *out_binding);
void hn_place_binding_free(hn_place_binding *binding);
// In the child, between fork and exec: system calls only, nothing is allocated. Returns 0 or errno of the
// first call that failed; CPUs and memory are tried independently.
int hn_place_binding_apply(const hn_place_binding *binding);
#endif
