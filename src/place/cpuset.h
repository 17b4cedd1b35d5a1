// SPDX-License-Identifier: Apache-2.0
// A set of CPU numbers (or NUMA node numbers) of fixed capacity, in the list form that the kernel and
// nvidia-smi print: "0-31,64-95".
//
// Parsing is strict: a descending range, a sign, a number beyond the capacity or a dangling comma is
// no set at all, since such texts are what a clipped paste leaves behind.
#ifndef HN_PLACE_CPUSET_H
#define HN_PLACE_CPUSET_H
#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

#define HN_PLACE_CPUS_MAX 4096
typedef struct hn_place_cpuset {
    uint64_t bits[HN_PLACE_CPUS_MAX / 64];
} hn_place_cpuset;

void hn_place_cpuset_add(hn_place_cpuset *set, int cpu); // numbers out of range are ignored
bool hn_place_cpuset_has(const hn_place_cpuset *set, int cpu);
int hn_place_cpuset_count(const hn_place_cpuset *set);
bool hn_place_cpuset_empty(const hn_place_cpuset *set);
int hn_place_cpuset_next(const hn_place_cpuset *set, int after); // first member > after, or -1
bool hn_place_cpuset_equal(const hn_place_cpuset *a, const hn_place_cpuset *b);
bool hn_place_cpuset_meet(const hn_place_cpuset *a, const hn_place_cpuset *b); // share a member
void hn_place_cpuset_and(hn_place_cpuset *set, const hn_place_cpuset *other);
void hn_place_cpuset_or(hn_place_cpuset *set, const hn_place_cpuset *other);
void hn_place_cpuset_remove(hn_place_cpuset *set, const hn_place_cpuset *other);

// False when the text is not a whole, ascending, non-empty list.
bool hn_place_cpuset_parse(hn_slice text, hn_place_cpuset *out_set);
void hn_place_cpuset_append(hn_str *out, const hn_place_cpuset *set); // "0-31,64-95"
#endif
