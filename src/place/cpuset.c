// SPDX-License-Identifier: Apache-2.0
// CPU sets: see cpuset.h.
#include "place/cpuset.h"
#include <string.h>
#include "base/check.h"

#define WORDS (HN_PLACE_CPUS_MAX / 64)

void hn_place_cpuset_add(hn_place_cpuset *set, int cpu) {
    if (cpu < 0 || cpu >= HN_PLACE_CPUS_MAX) return;
    set->bits[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}

bool hn_place_cpuset_has(const hn_place_cpuset *set, int cpu) {
    if (cpu < 0 || cpu >= HN_PLACE_CPUS_MAX) return false;
    return set->bits[cpu / 64] >> (cpu % 64) & 1;
}

int hn_place_cpuset_count(const hn_place_cpuset *set) {
    int count = 0;
    for (int i = 0; i < WORDS; i++) count += __builtin_popcountll(set->bits[i]);
    return count;
}

bool hn_place_cpuset_empty(const hn_place_cpuset *set) {
    for (int i = 0; i < WORDS; i++)
        if (set->bits[i]) return false;
    return true;
}

int hn_place_cpuset_next(const hn_place_cpuset *set, int after) {
    int cpu = after < 0 ? 0 : after + 1;
    if (cpu >= HN_PLACE_CPUS_MAX) return -1;
    uint64_t word = set->bits[cpu / 64] >> (cpu % 64) << (cpu % 64);
    for (int i = cpu / 64;; word = set->bits[i]) {
        if (word) return i * 64 + __builtin_ctzll(word);
        if (++i == WORDS) return -1;
    }
}

bool hn_place_cpuset_equal(const hn_place_cpuset *a, const hn_place_cpuset *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

bool hn_place_cpuset_meet(const hn_place_cpuset *a, const hn_place_cpuset *b) {
    for (int i = 0; i < WORDS; i++)
        if (a->bits[i] & b->bits[i]) return true;
    return false;
}

void hn_place_cpuset_and(hn_place_cpuset *set, const hn_place_cpuset *other) {
    for (int i = 0; i < WORDS; i++) set->bits[i] &= other->bits[i];
}

void hn_place_cpuset_or(hn_place_cpuset *set, const hn_place_cpuset *other) {
    for (int i = 0; i < WORDS; i++) set->bits[i] |= other->bits[i];
}

void hn_place_cpuset_remove(hn_place_cpuset *set, const hn_place_cpuset *other) {
    for (int i = 0; i < WORDS; i++) set->bits[i] &= ~other->bits[i];
}

// A number without sign or blanks; *at moves past it.
static bool take_number(hn_slice text, size_t *at, int *out) {
    size_t i = *at;
    int value = 0;
    while (i < text.length && text.data[i] >= '0' && text.data[i] <= '9') {
        value = value * 10 + (text.data[i++] - '0');
        if (value >= HN_PLACE_CPUS_MAX) return false;
    }
    if (i == *at) return false;
    *at = i;
    *out = value;
    return true;
}

bool hn_place_cpuset_parse(hn_slice text, hn_place_cpuset *out_set) {
    hn_place_cpuset set = {{0}};
    int previous = -1; // the lists are printed in ascending order; anything else is damage
    for (size_t at = 0;;) {
        int first, last;
        if (!take_number(text, &at, &first)) return false;
        last = first;
        if (at < text.length && text.data[at] == '-') {
            at++;
            if (!take_number(text, &at, &last)) return false;
        }
        if (last < first || first <= previous) return false;
        for (int cpu = first; cpu <= last; cpu++) hn_place_cpuset_add(&set, cpu);
        previous = last;
        if (at == text.length) break;
        if (text.data[at++] != ',') return false;
    }
    *out_set = set;
    return true;
}

void hn_place_cpuset_append(hn_str *out, const hn_place_cpuset *set) {
    const char *comma = "";
    for (int first = hn_place_cpuset_next(set, -1); first >= 0;) {
        int last = first;
        while (hn_place_cpuset_has(set, last + 1)) last++;
        if (last == first) hn_str_printf(out, "%s%d", comma, first);
        else hn_str_printf(out, "%s%d-%d", comma, first, last);
        comma = ",";
        first = hn_place_cpuset_next(set, last);
    }
}
