// SPDX-License-Identifier: Apache-2.0
// The least cut between a source and a sink: which of two choices each of many nodes takes where choices
// cost something and neighbours that differ cost something. Shortest augmenting paths; graphs are small.
#include "optimize/cut.h"

void hn_cut_free(hn_cut *cut) {
    hn_vec_free(&cut->arcs);
    hn_vec_free(&cut->first);
    *cut = (hn_cut){0};
}

int hn_cut_node(hn_cut *cut) {
    if (!hn_vec_push(&cut->first, -1)) cut->failed = true;
    return (int)cut->first.count - 1;
}

static void half(hn_cut *cut, int from, int to, int64_t room) {
    hn_cut_arc arc = {to, cut->first.data[from], room};
    if (!hn_vec_push(&cut->arcs, arc)) cut->failed = true;
    else cut->first.data[from] = (int)cut->arcs.count - 1;
}

void hn_cut_add(hn_cut *cut, int from, int to, int64_t cost) {
    if (cut->failed || from == to || cost <= 0) return;
    half(cut, from, to, cost);
    half(cut, to, from, 0); // its other direction: arcs lie in pairs
}

// Breadth first from the source; by[n]: the arc that n was reached by, -1: not reached.
static void reach(const hn_cut *cut, int *by, int *queue) {
    int count = 1;
    for (size_t n = 0; n < cut->first.count; n++)
        by[n] = -1;
    by[HN_CUT_SOURCE] = INT32_MAX;
    queue[0] = HN_CUT_SOURCE;
    for (int at = 0; at < count; at++)
        for (int a = cut->first.data[queue[at]]; a >= 0; a = cut->arcs.data[a].next) {
            const hn_cut_arc *arc = &cut->arcs.data[a];
            if (arc->room <= 0 || by[arc->to] >= 0) continue;
            by[arc->to] = a;
            queue[count++] = arc->to;
        }
}

hn_status hn_cut_solve(hone_error *err, hn_cut *cut, bool *out_source_side, int64_t *out_cost) {
    size_t count = cut->first.count;
    int *by = cut->failed ? NULL : hn_calloc(2 * count + 1, sizeof *by);
    if (!by) HN_NOMEM(err, "choosing layers");
    int64_t cost = 0;
    for (reach(cut, by, by + count); by[HN_CUT_SINK] >= 0; reach(cut, by, by + count)) {
        int64_t room = INT64_MAX;
        for (int n = HN_CUT_SINK; n != HN_CUT_SOURCE; n = cut->arcs.data[by[n] ^ 1].to)
            room = hn_min_i64(room, cut->arcs.data[by[n]].room);
        for (int n = HN_CUT_SINK; n != HN_CUT_SOURCE; n = cut->arcs.data[by[n] ^ 1].to) {
            cut->arcs.data[by[n]].room -= room;
            cut->arcs.data[by[n] ^ 1].room += room;
        }
        cost += room;
    }
    for (size_t n = 0; n < count; n++)
        out_source_side[n] = by[n] >= 0;
    *out_cost = cost;
    hn_free(by);
    return HONE_OK;
}
