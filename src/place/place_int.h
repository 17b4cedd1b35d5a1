// SPDX-License-Identifier: Apache-2.0
// What the files of placement share: the machine boiled down to small integers.
#ifndef HN_PLACE_PLACE_INT_H
#define HN_PLACE_PLACE_INT_H
#include "place/place.h"

#define PLACE_NIC_WORDS  (HN_PLACE_DEVICES_MAX / 64)
#define PLACE_RANKS      7 // of known paths: links.def
#define PLACE_RING_EXACT 16 // cards up to which a ring is found for certain

typedef struct place_problem {
    const hn_place_machine *machine;
    const hn_place_request *request;
    int count;                                        // cards of the machine
    int gbs[HN_PLACE_GPUS_MAX][HN_PLACE_GPUS_MAX];    // hundredths of GB/s
    int64_t degree[HN_PLACE_GPUS_MAX];                // sum of gbs to usable cards
    int64_t usable_sum;                               // sum of gbs over pairs of usable cards
    int levels[64], level_count;                      // distinct values of gbs, descending
    uint64_t at_least[64][HN_PLACE_GPUS_MAX];         // neighbours at levels[l] and above
    uint64_t usable, busy;
    int nic_rank[HN_PLACE_GPUS_MAX];                  // of the nearest usable adapter
    uint64_t nic_at[HN_PLACE_GPUS_MAX][PLACE_NIC_WORDS]; // adapters at that rank
    uint64_t nic_near[PLACE_RANKS][HN_PLACE_GPUS_MAX][PLACE_NIC_WORDS]; // at that rank or nearer
    int nic_words;                                       // of these are in use
    int node[HN_PLACE_GPUS_MAX];                      // NUMA, 0..63 renumbered; 63 unknown
    int cpu_group[HN_PLACE_GPUS_MAX];                 // cards with equal CPU lists share a number
    hn_place_cpuset group_cpus[HN_PLACE_GPUS_MAX];    // within the allowed CPUs
    int group_size[HN_PLACE_GPUS_MAX];
    bool groups_meet;                                 // lists overlap without being equal
    uint16_t *ends; // scratch of the ring search: 2^PLACE_RING_EXACT
} place_problem;

// ring.c: the level index of the best ring's slowest path through `cards` (at least 3), level_count if
// there is none at levels of `floor` and above. Work beyond the ordinary is taken from the budget.
int place_ring_level(const place_problem *problem, uint64_t cards, int floor, int64_t *io_budget);
// The best ring itself (slowest path, then sum, then lowest numbers first); out holds popcount cards.
void place_ring_order(const place_problem *problem, uint64_t cards, int *out);

// shape.c: the largest slowest path within groups of `size` cards into which `cards` can be cut;
// out_groups (may be NULL) gets the cards group by group.
int place_group_worst(const place_problem *problem, uint64_t cards, int size, int *out_groups);

// detail.c: ranks, CPUs, hints of the first choice.
hn_status place_detail(hone_error *err, const place_problem *problem, hn_place_result *result);
bool place_nic_usable(const hn_place_machine *machine, int nic);
#endif
