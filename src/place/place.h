// SPDX-License-Identifier: Apache-2.0
// Placement: the best set of cards of one machine for a job, the order of its ranks, and what to set
// for it.
//
// Sets are compared key by key, in the order of hn_place_score's fields; the first key that differs
// decides, so that every choice has one reason. Paths that are unknown count as no bandwidth at all.
#ifndef HN_PLACE_PLACE_H
#define HN_PLACE_PLACE_H
#include "place/machine.h"

#define HN_PLACE_CHOICES_MAX 8

typedef struct hn_place_request {
    int cards;            // how many, >= 1
    int nics;             // adapters that the job needs for traffic to other hosts; 0: one host only
    int cpus;             // CPUs that the job needs in all; 0: whatever is local
    int64_t memory_bytes; // free memory needed on each card; 0: no demand
    int tp, pp, dp;       // shape; all 0: none. tp * pp * dp == cards, unset ones count as 1
    bool share_busy;      // cards in use may be taken (the less the better)
    bool mig;             // the job takes one MIG instance
    uint64_t only;        // positions in machine.gpus that may be taken; 0: all
    uint64_t busy;        // positions that are in use beside those the machine tells
    bool allowed_known;   // CPUs that this process may use
    hn_place_cpuset allowed;
    int choices;          // how many to return (the best and runners-up), at most HN_PLACE_CHOICES_MAX
    int64_t budget;       // sets to look at before settling for the best so far; 0: the default
} hn_place_request;

// In order of weight. Bandwidths are hundredths of GB/s and direction, so that they compare exactly.
typedef struct hn_place_score {
    int busy;          // cards in use, fewer is better
    int cpu_shortage;  // CPUs that are asked for and not local, fewer is better
    int worst_link;    // slowest path within a tensor-parallel group (without shape: within the set)
    int ring;          // slowest path of the best ring through all cards
    int nic_distance;  // over the adapters that are asked for: rank of the path to the nearest card
    int nodes;         // NUMA nodes, fewer is better
    int nic_spread;    // where adapters are asked for: over the cards, rank of the path to the nearest
    int64_t pair_sum;  // all paths within the set
    int64_t left_sum;  // all paths among the free cards that stay: what the next job finds
    int nic_waste;     // as nic_spread where no adapter is needed: farther is better, near ones stay free
} hn_place_score;

typedef struct hn_place_choice {
    uint64_t cards; // positions in machine.gpus
    hn_place_score score;
} hn_place_choice;

typedef struct hn_place_hint {
    const char *name, *value, *reason;
} hn_place_hint;

typedef struct hn_place_rank {
    int gpu;              // position in machine.gpus
    int tp, pp, dp;       // coordinates in the shape
    int numa;             // or HN_PLACE_UNKNOWN
    int nic;              // nearest usable adapter, position in machine.nics, or -1
    bool cpus_known;      // false: leave the CPUs alone; the reason is in notes
    hn_place_cpuset cpus; // its own share of the local CPUs
} hn_place_rank;

typedef struct hn_place_result {
    hn_arena arena;
    hn_place_choice choices[HN_PLACE_CHOICES_MAX];
    int choice_count;
    bool exact;        // every set was looked at or ruled out
    int64_t looked_at; // sets that were scored
    // of the first choice:
    int count;
    hn_place_rank ranks[HN_PLACE_GPUS_MAX]; // in rank order; without shape this is the ring
    int ring[HN_PLACE_GPUS_MAX];            // positions in machine.gpus
    int tree_parent[HN_PLACE_GPUS_MAX];     // of ranks[i], as a rank; -1 for the root
    const char *visible;                    // CUDA_VISIBLE_DEVICES, in rank order
    bool cpus_known;
    hn_place_cpuset cpus; // of all ranks
    hn_place_cpuset numa; // nodes for memory; empty: unknown
    HN_VEC(hn_place_hint) hints; // environment, with reasons
    hn_place_texts notes;        // what could not be honoured, and why
} hn_place_result;

// HONE_ERR_USAGE: the request contradicts itself. HONE_ERR_CHECK: this machine cannot serve it now (the
// text says what is short).
hn_status hn_place_search(hone_error *err, const hn_place_machine *machine,
                          const hn_place_request *request, hn_place_result *out_result);
void hn_place_result_free(hn_place_result *result);

// < 0: a is better. Ties are broken by the lower card numbers.
int hn_place_choice_compare(const hn_place_request *request, const hn_place_choice *a,
                            const hn_place_choice *b);
// The key that made a better than b, as a sentence in buf.
const char *hn_place_choice_reason(const hn_place_request *request, const hn_place_choice *a,
                                   const hn_place_choice *b, char *buf, size_t size);

void hn_place_result_text(const hn_place_machine *machine, const hn_place_request *request,
                          const hn_place_result *result, bool explain, hn_str *out);
json_t *hn_place_result_json(const hn_place_machine *machine, const hn_place_request *request,
                             const hn_place_result *result);
#endif
