// SPDX-License-Identifier: Apache-2.0
// The least cut of a directed graph: see cut.c. Zero is a graph without nodes; the first two nodes are the
// source and the sink. Memory that runs out is found by hn_cut_solve.
#ifndef HN_OPTIMIZE_CUT_H
#define HN_OPTIMIZE_CUT_H
#include "base/base.h"

enum { HN_CUT_SOURCE = 0, HN_CUT_SINK = 1 };
#define HN_CUT_NEVER (INT64_MAX / 4) // a cost that no cut pays

typedef struct hn_cut_arc {
    int to, next;
    int64_t room;
} hn_cut_arc;
typedef struct hn_cut {
    HN_VEC(hn_cut_arc) arcs;
    HN_VEC(int) first; // arc of each node
    bool failed;
} hn_cut;

int hn_cut_node(hn_cut *cut); // its number
// What it costs that `from` is on the source's side and `to` on the sink's.
void hn_cut_add(hn_cut *cut, int from, int to, int64_t cost);
// By node: whether it is on the source's side. The graph is used up.
hn_status hn_cut_solve(hone_error *err, hn_cut *cut, bool *out_source_side, int64_t *out_cost);
void hn_cut_free(hn_cut *cut);
#endif
