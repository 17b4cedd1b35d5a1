// SPDX-License-Identifier: Apache-2.0
// Cutting a set into tensor-parallel groups: the cut whose slowest path within a group is fastest.
//
// The lowest card that is free always opens the next group, so every cut is met once. Cuts that are no
// better than the best so far are left early.
#include "place/place_int.h"

#define CUT_STEPS 200000

typedef struct cutting {
    const place_problem *p;
    int size, worst, best, steps;
    int now[HN_PLACE_GPUS_MAX], kept[HN_PLACE_GPUS_MAX], count;
} cutting;

static void cut_on(cutting *c, uint64_t left, uint64_t group, uint64_t may_join, int worst) {
    if (worst <= c->best || --c->steps < 0) return;
    int in = __builtin_popcountll(group);
    if (in == c->size || !group) {
        if (!left) {
            c->best = worst;
            memcpy(c->kept, c->now, sizeof c->kept);
            return;
        }
        uint64_t first = left & -left;
        c->now[c->count++] = __builtin_ctzll(first);
        left &= ~first;
        if (c->size == 1) cut_on(c, left, first, 0, worst);
        else cut_on(c, left, first, left, worst);
        c->count--;
        return;
    }
    // Faster partners first, so that a good cut is found early.
    while (may_join) {
        int best = -1, best_gbs = -1;
        for (uint64_t rest = may_join; rest; rest &= rest - 1) {
            int card = __builtin_ctzll(rest), slowest = INT32_MAX;
            for (uint64_t g = group; g; g &= g - 1) {
                int gbs = c->p->gbs[card][__builtin_ctzll(g)];
                if (gbs < slowest) slowest = gbs;
            }
            if (slowest > best_gbs) best_gbs = slowest, best = card;
        }
        uint64_t bit = UINT64_C(1) << best;
        may_join &= ~bit;
        c->now[c->count++] = best;
        cut_on(c, left & ~bit, group | bit, may_join, worst < best_gbs ? worst : best_gbs);
        c->count--;
    }
}

int place_group_worst(const place_problem *problem, uint64_t cards, int size, int *out_groups) {
    cutting c = {.p = problem, .size = size, .best = -1, .steps = CUT_STEPS};
    cut_on(&c, cards, 0, 0, INT32_MAX);
    if (out_groups) memcpy(out_groups, c.kept, (size_t)__builtin_popcountll(cards) * sizeof *out_groups);
    return c.best;
}
