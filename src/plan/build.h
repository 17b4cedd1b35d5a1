// SPDX-License-Identifier: Apache-2.0
// The planner's working state, shared by partition (plan.c) and selection (select.c).
#ifndef HN_PLAN_BUILD_H
#define HN_PLAN_BUILD_H
#include "plan/plan_int.h"

#define HN_MAX_VARIANTS 4 // layouts of one value inside one plan

// What the planner knows of one value, by value id.
typedef struct value_state {
    bool late;            // known only after a barrier
    int remaining;        // uses by static nodes still to come, plus one if needed after the steps
    int barrier_output;   // number, -1
    int variant_count;    // memory in this and that layout; the first is the one it was made in
    struct {
        hn_layout layout;
        int slot;
    } variants[HN_MAX_VARIANTS];
} value_state;

typedef struct builder {
    hn_session *session;
    hn_plan *plan;
    hn_backend *backend;
    HN_VEC(value_state) values;
    HN_VEC(int) pending;  // by root slot: uses still to come of every value that lies in it
} builder;

value_state *hn_builder_value(builder *b, const hn_value *value); // NULL: out of memory
// Slot of a value in a layout; adds a reorder step where there is none yet.
hn_status hn_builder_slot(hone_error *err, builder *b, const hn_value *value, hn_layout layout,
                          int *out_slot);
// Turns one static node into a step (or an alias).
hn_status hn_builder_node(hone_error *err, builder *b, hn_node *node);
// Copies a value that lies in the caller's memory into the plan's own.
hn_status hn_builder_own(hone_error *err, builder *b, const hn_value *value, int *out_slot);
// Offsets, slab, pointers, bind.
hn_status hn_builder_finish(hone_error *err, builder *b);
#endif
