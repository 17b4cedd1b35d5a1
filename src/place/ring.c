// SPDX-License-Identifier: Apache-2.0
// Rings: the cycle through all cards of a set whose slowest path is fastest.
//
// For each level of bandwidth from the fastest on: what a ring needs is checked first (two neighbours
// each, whole after any one card is taken out), then a ring is looked for, by walking for small work and
// by dynamic programming for certainty. Levels are few, and most sets pass or fail at the first check.
#include "place/place_int.h"

#define WALK_STEPS 60

static uint64_t reach(const uint64_t *near, uint64_t from, uint64_t within) {
    uint64_t seen = from, fresh = from;
    while (fresh) {
        int at = __builtin_ctzll(fresh);
        fresh &= fresh - 1;
        uint64_t more = near[at] & within & ~seen;
        seen |= more;
        fresh |= more;
    }
    return seen;
}

static bool may_have_ring(const uint64_t *near, uint64_t cards) {
    for (uint64_t rest = cards; rest; rest &= rest - 1)
        if (__builtin_popcountll(near[__builtin_ctzll(rest)] & cards) < 2) return false;
    if (reach(near, cards & -cards, cards) != cards) return false;
    for (uint64_t rest = cards; rest; rest &= rest - 1) {
        uint64_t without = cards & ~(rest & -rest);
        if (reach(near, without & -without, without) != without) return false;
    }
    return true;
}

// Depth-first walk, the neighbour with fewest ways on first; 1 found, 0 none, -1 gave up.
static int walk(const uint64_t *near, uint64_t left, int at, int start, int *steps) {
    if (!left) return near[at] >> start & 1;
    if (--*steps < 0) return -1;
    // A card with fewer than two ways left cannot be passed through.
    uint64_t open = left | UINT64_C(1) << at | UINT64_C(1) << start;
    for (uint64_t rest = left; rest; rest &= rest - 1) {
        uint64_t ways = near[__builtin_ctzll(rest)] & open;
        if (!(ways & (ways - 1)) && left & (left - 1)) return 0;
    }
    uint64_t next = near[at] & left;
    while (next) {
        int best = -1, fewest = 65;
        for (uint64_t rest = next; rest; rest &= rest - 1) {
            int card = __builtin_ctzll(rest), ways = __builtin_popcountll(near[card] & left);
            if (ways < fewest) fewest = ways, best = card;
        }
        int found = walk(near, left & ~(UINT64_C(1) << best), best, start, steps);
        if (found) return found;
        next &= ~(UINT64_C(1) << best);
    }
    return 0;
}

// Certain answer for up to PLACE_RING_EXACT cards: ends[visited] is the set of last cards of paths from
// card 0 that visit just those.
static bool ring_exists(const place_problem *p, const uint64_t *near, uint64_t cards) {
    int card[64], count = 0;
    uint32_t local[PLACE_RING_EXACT];
    for (uint64_t rest = cards; rest; rest &= rest - 1) card[count++] = __builtin_ctzll(rest);
    if (count > PLACE_RING_EXACT) return false;
    for (int a = 0; a < count; a++) {
        local[a] = 0;
        for (int b = 0; b < count; b++) local[a] |= (uint32_t)(near[card[a]] >> card[b] & 1) << b;
    }
    p->ends[1] = 1;
    for (uint32_t visited = 3; visited < 1u << count; visited += 2) {
        uint32_t ends = 0;
        for (uint32_t rest = visited & ~1u; rest; rest &= rest - 1) {
            uint32_t bit = rest & -rest;
            if (p->ends[visited & ~bit] & local[__builtin_ctz(rest)]) ends |= bit;
        }
        p->ends[visited] = (uint16_t)ends;
    }
    return (p->ends[(1u << count) - 1] & local[0]) != 0;
}

static bool has_ring(const place_problem *p, int level, uint64_t cards, int64_t *io_budget) {
    const uint64_t *near = p->at_least[level];
    if (!may_have_ring(near, cards)) return false;
    int start = __builtin_ctzll(cards), steps = WALK_STEPS;
    int found = walk(near, cards & (cards - 1), start, start, &steps);
    if (found >= 0) return found;
    *io_budget -= INT64_C(1) << __builtin_popcountll(cards) >> 6; // as dear as so many sets
    return ring_exists(p, near, cards);
}

int place_ring_level(const place_problem *problem, uint64_t cards, int floor,
                     int64_t *io_budget) {
    for (int level = 0; level < problem->level_count && problem->levels[level] >= floor; level++)
        if (has_ring(problem, level, cards, io_budget)) return level;
    return problem->level_count;
}

// ---- order ------------------------------------------------------------------------------------

typedef struct tour {
    int worst;
    int64_t sum;
} tour;

static bool tour_better(tour a, tour b) {
    return a.worst != b.worst ? a.worst > b.worst : a.sum > b.sum;
}

#define ORDER_EXACT 10 // 2^10 x 10 states of 16 bytes

// best[visited][last]: the best way from `last` through what is not visited and back to card 0.
static bool exact_order(const place_problem *p, const int *card, int count, int *out) {
    size_t states = (size_t)count << count;
    tour *best = hn_malloc(states * sizeof *best);
    if (!best) return false;
    uint32_t all = (1u << count) - 1;
    for (uint32_t visited = all;; visited -= 2) { // card 0 is always in it
        for (int last = 0; last < count; last++) {
            tour *here = &best[visited * (size_t)count + (size_t)last];
            *here = (tour){-1, 0};
            if (!(visited >> last & 1)) continue;
            if (visited == all) {
                int gbs = p->gbs[card[last]][card[0]];
                *here = (tour){gbs, gbs};
                continue;
            }
            for (int next = 0; next < count; next++) {
                if (visited >> next & 1) continue;
                tour on = best[(visited | 1u << next) * (size_t)count + (size_t)next];
                int gbs = p->gbs[card[last]][card[next]];
                tour way = {gbs < on.worst ? gbs : on.worst, gbs + on.sum};
                if (tour_better(way, *here)) *here = way;
            }
        }
        if (visited == 1) break;
    }
    uint32_t visited = 1;
    int last = 0, worst = INT32_MAX;
    int64_t sum = 0;
    tour want = best[(size_t)count];
    out[0] = card[0];
    // Forward, always the lowest card that still leads to the best.
    for (int i = 1; i < count; i++) {
        for (int next = 0; next < count; next++) {
            if (visited >> next & 1) continue;
            int gbs = p->gbs[card[last]][card[next]];
            tour on = best[(visited | 1u << next) * (size_t)count + (size_t)next];
            int slowest = worst < gbs ? worst : gbs;
            if (on.worst < slowest) slowest = on.worst;
            if (slowest < want.worst || sum + gbs + on.sum < want.sum) continue;
            worst = worst < gbs ? worst : gbs;
            sum += gbs;
            visited |= 1u << next;
            last = next;
            out[i] = card[next];
            break;
        }
    }
    hn_free(best);
    return visited == all;
}

static tour tour_of(const place_problem *p, const int *order, int count) {
    tour out = {INT32_MAX, 0};
    for (int i = 0; i < count; i++) {
        int gbs = p->gbs[order[i]][order[(i + 1) % count]];
        if (gbs < out.worst) out.worst = gbs;
        out.sum += gbs;
    }
    return out;
}

// Nearest neighbour, then turning stretches around while that helps.
static void rough_order(const place_problem *p, int *order, int count) {
    for (int i = 1; i < count; i++) {
        int best = i;
        for (int k = i + 1; k < count; k++)
            if (p->gbs[order[i - 1]][order[k]] > p->gbs[order[i - 1]][order[best]]) best = k;
        int moved = order[best];
        for (int k = best; k > i; k--) order[k] = order[k - 1];
        order[i] = moved;
    }
    for (bool better = true; better;) {
        better = false;
        tour now = tour_of(p, order, count);
        for (int i = 1; i < count && !better; i++)
            for (int k = i + 1; k < count && !better; k++) {
                for (int a = i, b = k; a < b; a++, b--) {
                    int swap = order[a];
                    order[a] = order[b], order[b] = swap;
                }
                better = tour_better(tour_of(p, order, count), now);
                for (int a = i, b = k; !better && a < b; a++, b--) {
                    int swap = order[a];
                    order[a] = order[b], order[b] = swap;
                }
            }
    }
}

void place_ring_order(const place_problem *problem, uint64_t cards, int *out) {
    int card[HN_PLACE_GPUS_MAX], count = 0;
    for (uint64_t rest = cards; rest; rest &= rest - 1) card[count++] = __builtin_ctzll(rest);
    if (count > 3 && count <= ORDER_EXACT && exact_order(problem, card, count, out)) return;
    memcpy(out, card, (size_t)count * sizeof *out);
    if (count > 3) rough_order(problem, out, count);
}
