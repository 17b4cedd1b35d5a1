// SPDX-License-Identifier: Apache-2.0
// Steps of a recorded segment side by side: which may, on which lane, behind which others.
//
// Two steps are in order where one writes memory that the other reads or writes; all else may overlap. Before
// memory is placed that is asked of slots, and blocks live on as long as a step may run beside their users
// (hn_lanes_lifetimes), so that reuse puts no more in order than it must. Afterwards it is asked of addresses:
// whatever was placed where, no two steps that share memory run at once.
#include "plan/plan_int.h"

#define MAX_STEPS  4096 // of a segment; bitsets of all pairs
#define WINDOW     24   // steps by which a block's life is prolonged at most
#define LEAST_GAIN 10   // per cent of the steps that must be off the longest chain

static const hn_slot *root_of(const hn_plan *plan, int slot) {
    while (plan->slots.data[slot].alias_of >= 0)
        slot = plan->slots.data[slot].alias_of;
    return &plan->slots.data[slot];
}

static bool overlap(const hn_slot *a, const hn_slot *b, bool by_address) {
    if (a == b) return true;
    if (!by_address || !a->address || !b->address) return false;
    const char *x = a->address, *y = b->address;
    return x < y + b->bytes && y < x + a->bytes;
}

// Number of memory operand i of a step: inputs, outputs, then its workspace. NULL: none, or never written.
static const hn_slot *operand(const hn_plan *plan, const hn_step *step, int i) {
    int slot = i < step->input_count + step->output_count ? step->slots[i] : step->workspace_slot;
    if (slot < 0) return NULL;
    const hn_slot *root = root_of(plan, slot);
    return root->kind == HN_SLOT_SLAB ? root : NULL;
}

static bool in_order(const hn_plan *plan, const hn_step *first, const hn_step *then, bool by_address) {
    int firsts = first->input_count + first->output_count + 1, thens = then->input_count + then->output_count + 1;
    for (int i = 0; i < firsts; i++) {
        const hn_slot *a = operand(plan, first, i);
        for (int j = 0; a && j < thens; j++) {
            if (i < first->input_count && j < then->input_count) continue; // both read
            const hn_slot *b = operand(plan, then, j);
            if (b && overlap(a, b, by_address)) return true;
        }
    }
    return false;
}

// ---- lifetimes ----------------------------------------------------------------------------------
#define WORDS(n)      (((size_t)(n) + 63) / 64)
#define HAS(set, i)   ((set)[(i) / 64] >> ((i) % 64) & 1)

hn_status hn_lanes_lifetimes(hone_error *err, hn_plan *plan, int first, int end) {
    int n = end - first;
    if (n < 3 || n > MAX_STEPS) return HONE_OK;
    uint64_t *before = hn_calloc((size_t)n * WORDS(n), sizeof *before); // by step: those it is behind
    int *beside = hn_calloc((size_t)n, sizeof *beside);                 // the last step that may run beside it
    if (!before || !beside) {
        hn_free(before);
        hn_free(beside);
        HN_NOMEM(err, "planning memory");
    }
    for (int i = 0; i < n; i++) {
        uint64_t *own = before + (size_t)i * WORDS(n);
        beside[i] = i;
        for (int j = i - 1; j >= 0; j--) {
            if (HAS(own, j)) continue; // behind one that is behind it: those were all seen
            if (!in_order(plan, &plan->steps.data[first + j], &plan->steps.data[first + i], false)) {
                if (i - j <= WINDOW) beside[j] = i;
                continue;
            }
            for (size_t w = 0; w < WORDS(n); w++)
                own[w] |= before[(size_t)j * WORDS(n) + w];
            own[j / 64] |= (uint64_t)1 << (j % 64);
        }
    }
    for (int i = 0; i < n; i++) {
        const hn_step *step = &plan->steps.data[first + i];
        for (int k = 0; k < step->input_count + step->output_count + 1; k++) {
            hn_slot *slot = (hn_slot *)(uintptr_t)operand(plan, step, k);
            if (slot && slot->last < first + beside[i]) slot->last = first + beside[i];
        }
    }
    hn_free(before);
    hn_free(beside);
    return HONE_OK;
}

// ---- lanes --------------------------------------------------------------------------------------
// A lane for step i: the one whose last step it waits for latest, else an empty one, else the one idle longest.
static int choose_lane(const int *tails, int lanes, const bool *waits) {
    int best = -1, idle = 0;
    for (int l = 0; l < lanes; l++) {
        if (tails[l] >= 0 && waits[tails[l]] && (best < 0 || tails[l] > tails[best])) best = l;
        if (tails[l] < tails[idle]) idle = l;
    }
    return best >= 0 ? best : idle;
}

hn_status hn_lanes_new(hone_error *err, const hn_plan *plan, int first, int end, int lanes, hn_lanes **out_lanes) {
    int n = end - first, tails[HN_MAX_LANES], longest = 0;
    *out_lanes = NULL;
    if (lanes > HN_MAX_LANES) lanes = HN_MAX_LANES;
    if (lanes < 2 || n < 3 || n > MAX_STEPS) return HONE_OK;
    hn_lanes *l = hn_calloc(1, sizeof *l + (size_t)n * sizeof *l->steps);
    int *known = hn_calloc((size_t)n * (size_t)lanes, sizeof *known), *depth = hn_calloc((size_t)n, sizeof *depth);
    bool *waits = hn_calloc((size_t)n, sizeof *waits);
    if (!l || !known || !depth || !waits) {
        hn_free(l);
        l = NULL;
    }
    for (int i = 0; i < lanes; i++)
        tails[i] = -1;
    for (int i = 0; l && i < n; i++) {
        for (int j = 0; j < i; j++) {
            waits[j] = in_order(plan, &plan->steps.data[first + j], &plan->steps.data[first + i], true);
            if (waits[j] && depth[j] + 1 > depth[i]) depth[i] = depth[j] + 1;
        }
        if (depth[i] + 1 > longest) longest = depth[i] + 1;
        int own = choose_lane(tails, lanes, waits), *mine = known + (size_t)i * (size_t)lanes;
        for (int k = 0; k < lanes; k++) // the last step of each lane that this one is behind, so far
            mine[k] = tails[own] >= 0 ? known[(size_t)tails[own] * (size_t)lanes + (size_t)k] : -1;
        if (tails[own] >= 0) mine[own] = tails[own];
        hn_lane_step *step = &l->steps[i];
        step->lane = own;
        for (int j = i - 1; j >= 0; j--) {
            int lane = l->steps[j].lane;
            if (!waits[j] || mine[lane] >= j) continue;
            step->after[step->after_count++] = first + j; // at most one a lane: later steps come first
            l->steps[j].marked = true;
            for (int k = 0; k < lanes; k++)
                if (known[(size_t)j * (size_t)lanes + (size_t)k] > mine[k]) mine[k] = known[(size_t)j * (size_t)lanes + (size_t)k];
            if (j > mine[lane]) mine[lane] = j;
        }
        tails[own] = i;
        if (own >= l->lanes) l->lanes = own + 1;
    }
    hn_free(known);
    hn_free(depth);
    hn_free(waits);
    if (!l) HN_NOMEM(err, "planning");
    if (l->lanes < 2 || (n - longest) * 100 < n * LEAST_GAIN) {
        hn_free(l);
        return HONE_OK;
    }
    *out_lanes = l;
    return HONE_OK;
}
