// SPDX-License-Identifier: Apache-2.0
// CPU and memory binding: see bind.h.
#include "place/bind.h"
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "config/config.h"

#define MPOL_PREFERRED_MANY_MODE 5 // Linux 5.15
#define MPOL_BIND_MODE           2

// ---- what we may use --------------------------------------------------------------------------

hn_status hn_place_allowed_cpus(hone_error *err, hn_place_cpuset *out_cpus) {
    hn_place_cpuset cpus = {{0}};
    // The set's words are what the kernel fills; a machine beyond its capacity gives EINVAL.
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof cpus.bits, cpus.bits);
    if (bytes < 0)
        HN_FAIL_VENDOR(err, HONE_ERR_IO, errno, "the CPU affinity of this process cannot be read: %s",
                       strerror(errno));
    *out_cpus = cpus;
    return HONE_OK;
}

hn_status hn_place_allowed_nodes(hone_error *err, hn_place_cpuset *out_nodes) {
    FILE *file = fopen("/proc/self/status", "re");
    char line[4096];
    bool found = false;
    if (!file) HN_FAIL(err, HONE_ERR_IO, "/proc/self/status cannot be read: %s", strerror(errno));
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, "Mems_allowed_list:", 18) != 0) continue;
        hn_slice list = hn_slice_trim((hn_slice){line + 18, strcspn(line + 18, "\n")});
        found = hn_place_cpuset_parse(list, out_nodes);
    }
    fclose(file);
    if (!found) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the kernel does not tell which memory nodes are allowed");
    return HONE_OK;
}

static bool same_uuid(const char *uuid, hn_slice token) {
    // CUDA takes any unambiguous beginning of a UUID.
    return uuid && token.length > 4 && strncmp(uuid, token.data, token.length) == 0;
}

hn_status hn_place_visible_cards(hone_error *err, const hn_place_machine *machine, uint64_t *out_cards) {
    const char *text = hn_config_env("CUDA_VISIBLE_DEVICES");
    uint64_t cards = 0;
    *out_cards = 0;
    if (!text) return HONE_OK;
    while (*text) {
        hn_slice token = hn_slice_trim((hn_slice){text, strcspn(text, ",")});
        int64_t index;
        int before = __builtin_popcountll(cards);
        for (size_t g = 0; g < machine->gpus.count; g++)
            if ((hn_parse_i64(token, &index) && machine->gpus.data[g].index == index) ||
                same_uuid(machine->gpus.data[g].uuid, token))
                cards |= UINT64_C(1) << g;
        if (__builtin_popcountll(cards) == before) break; // CUDA stops at the first bad entry too
        text += strcspn(text, ",");
        text += *text == ',';
    }
    if (!cards)
        HN_FAIL(err, HONE_ERR_USAGE, "CUDA_VISIBLE_DEVICES is set and names none of the %zu cards here",
                machine->gpus.count);
    *out_cards = cards;
    return HONE_OK;
}

// ---- launchers --------------------------------------------------------------------------------

static int env_int(const char *name) {
    const char *text = hn_config_env(name);
    int64_t value;
    if (!text || !hn_parse_i64((hn_slice){text, strlen(text)}, &value) || value < 0 || value > 1 << 20)
        return -1;
    return (int)value;
}

typedef struct launcher_row {
    hn_place_launcher_kind kind;
    const char *name, *sign, *rank, *size;
} launcher_row;
// Innermost first: torchrun may run under srun, and its LOCAL_RANK is then the one that counts.
static const launcher_row k_launchers[] = {
    {HN_LAUNCHER_TORCHRUN, "torchrun", "TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {HN_LAUNCHER_OPENMPI, "mpirun (Open MPI)", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {HN_LAUNCHER_MPICH, "mpiexec (MPICH family)", "MPI_LOCALRANKID", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {HN_LAUNCHER_MPICH, "mpirun (MVAPICH)", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {HN_LAUNCHER_SRUN, "srun", "SLURM_STEP_ID", "SLURM_LOCALID", NULL},
};

static bool set_and_not(const char *name, const char *value) {
    const char *text = hn_config_env(name);
    return text && *text && !strstr(text, value);
}

void hn_place_launcher_detect(hn_place_launcher *out_launcher) {
    hn_place_launcher launcher = {.name = "none", .local_rank = -1, .local_size = -1};
    for (size_t i = 0; i < HN_COUNT_OF(k_launchers) && launcher.kind == HN_LAUNCHER_NONE; i++) {
        const launcher_row *row = &k_launchers[i];
        if (!hn_config_env(row->sign)) continue;
        launcher.kind = row->kind;
        launcher.name = row->name;
        launcher.local_rank = env_int(row->rank);
        launcher.local_size = row->size ? env_int(row->size) : env_int("SLURM_NTASKS_PER_NODE");
    }
    // An allocation's single task is the place to start from, not a rank of many.
    if (launcher.kind == HN_LAUNCHER_SRUN && env_int("SLURM_NTASKS") == 1) launcher.local_rank = -1;
    if (launcher.kind == HN_LAUNCHER_SRUN)
        launcher.binds_cpus = set_and_not("SLURM_CPU_BIND_TYPE", "none");
    hn_place_cpuset cpus = {{0}};
    bool narrowed = hn_place_allowed_cpus(NULL, &cpus) == HONE_OK &&
                    hn_place_cpuset_count(&cpus) < (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (launcher.kind != HN_LAUNCHER_NONE && launcher.local_rank >= 0 && narrowed) launcher.binds_cpus = true;
    launcher.gives_cards =
        launcher.kind != HN_LAUNCHER_NONE && hn_config_env("CUDA_VISIBLE_DEVICES") != NULL;
    *out_launcher = launcher;
}

// ---- making -----------------------------------------------------------------------------------

static void note(hn_place_binding *b, const char *fmt, ...) HN_PRINTF(2, 3);
static void note(hn_place_binding *b, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *copy = hn_arena_strdup(&b->arena, text);
    if (copy && !hn_vec_push(&b->notes, copy)) return;
}

static bool add_env(hn_place_binding *b, const char *name, const char *value) {
    hn_place_env pair = {hn_arena_strdup(&b->arena, name), hn_arena_strdup(&b->arena, value)};
    return pair.name && pair.value && hn_vec_push(&b->env, pair);
}

// A user's own setting wins; the cards are a special case, since the set was searched within them.
static bool give_env(hn_place_binding *b, const hn_place_result *r, const hn_place_launcher *l) {
    for (size_t i = 0; i < r->hints.count; i++) {
        const hn_place_hint *hint = &r->hints.data[i];
        bool cards = strcmp(hint->name, "CUDA_VISIBLE_DEVICES") == 0;
        const char *have = hn_config_env(hint->name);
        // The share that this counts is not the one that the launcher gave.
        if (l->binds_cpus && !have && strcmp(hint->name, "OMP_NUM_THREADS") == 0) continue;
        if (cards && l->gives_cards) {
            note(b, "%s has set CUDA_VISIBLE_DEVICES=%s: left as it is", l->name, have);
        } else if (have && !cards && strcmp(have, hint->value) != 0) {
            note(b, "%s=%s is set already: left as it is (hone would set %s)", hint->name, have, hint->value);
        } else if (!add_env(b, hint->name, hint->value)) {
            return false;
        }
    }
    return true;
}

static void bind_memory(hn_place_binding *b, const hn_place_cpuset *nodes) {
    hn_place_cpuset allowed;
    b->nodes = *nodes;
    if (hn_place_cpuset_empty(nodes)) {
        note(b, "the NUMA nodes of the cards are unknown: memory is not bound");
        return;
    }
    if (hn_place_allowed_nodes(NULL, &allowed) == HONE_OK) {
        hn_place_cpuset_and(&b->nodes, &allowed);
        if (hn_place_cpuset_empty(&b->nodes)) {
            note(b, "none of the cards' NUMA nodes is allowed to this process: memory is not bound");
            return;
        }
        if (hn_place_cpuset_count(&allowed) == 1) return; // nothing to choose
    }
    b->bind_memory = true;
}

hn_status hn_place_binding_make(hone_error *err, const hn_place_result *result,
                                const hn_place_launcher *launcher, hn_place_binding *out_binding) {
    hn_place_binding b = {.bind_cpus = false};
    int rank = launcher->local_rank;
    if (rank >= result->count)
        HN_FAIL(err, HONE_ERR_USAGE, "this is local rank %d (from %s) and the placement has %d card%s", rank,
                launcher->name, result->count, result->count == 1 ? "" : "s");
    hn_place_cpuset nodes = result->numa, allowed;
    b.cpus = result->cpus;
    bool known = result->cpus_known;
    if (rank >= 0) {
        nodes = (hn_place_cpuset){{0}};
        if (result->ranks[rank].numa >= 0) hn_place_cpuset_add(&nodes, result->ranks[rank].numa);
        b.cpus = result->ranks[rank].cpus;
        known = result->ranks[rank].cpus_known;
    }
    if (launcher->binds_cpus) {
        note(&b, "%s has bound the CPUs of this process: they are left as they are", launcher->name);
    } else if (!known) {
        note(&b, "the CPUs local to the cards are unknown or not allowed here: CPUs are left as they are");
    } else {
        HN_TRY(hn_place_allowed_cpus(err, &allowed));
        hn_place_cpuset_and(&b.cpus, &allowed);
        b.bind_cpus = !hn_place_cpuset_empty(&b.cpus);
        if (!b.bind_cpus) note(&b, "none of the CPUs local to the cards is allowed here: CPUs are left alone");
    }
    bind_memory(&b, &nodes);
    if (!give_env(&b, result, launcher)) {
        hn_place_binding_free(&b);
        HN_NOMEM(err, "binding");
    }
    *out_binding = b;
    return HONE_OK;
}

void hn_place_binding_free(hn_place_binding *binding) {
    hn_vec_free(&binding->env);
    hn_vec_free(&binding->notes);
    hn_arena_free(&binding->arena);
    *binding = (hn_place_binding){.bind_cpus = false};
}

// ---- applying ---------------------------------------------------------------------------------

int hn_place_binding_apply(const hn_place_binding *binding) {
    int failed = 0;
    if (binding->bind_cpus &&
        syscall(SYS_sched_setaffinity, 0, sizeof binding->cpus.bits, binding->cpus.bits) != 0)
        failed = errno;
    if (binding->bind_memory) {
        // One node: bind, so that a full node shows as pressure there and not as slow memory elsewhere
        // unseen. Several: prefer them, for a hard bind would fill the first before using the second.
        bool one = hn_place_cpuset_count(&binding->nodes) == 1;
        unsigned long maximum = 1024; // bits the kernel looks at (MAX_NUMNODES is 1024 at most)
        long rc = syscall(SYS_set_mempolicy, one ? MPOL_BIND_MODE : MPOL_PREFERRED_MANY_MODE,
                          binding->nodes.bits, maximum);
        if (rc != 0 && errno == EINVAL && !one) // before Linux 5.15
            rc = syscall(SYS_set_mempolicy, MPOL_BIND_MODE, binding->nodes.bits, maximum);
        if (rc != 0 && !failed) failed = errno;
    }
    return failed;
}
