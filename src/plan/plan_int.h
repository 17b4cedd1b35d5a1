// SPDX-License-Identifier: Apache-2.0
// Inside of src/plan.
#ifndef HN_PLAN_INT_H
#define HN_PLAN_INT_H
#include "plan/plan.h"

// ---- extract.c ----------------------------------------------------------------------------------
// A new module whose main graph holds copies of the given nodes (in order). Values they use but do
// not define become inputs (in order of first use, listed in out_inputs as values of the source) or,
// if they are constants, shared constants. `outputs` are values of the source. Symbolic dims become
// fresh symbols. sources_of may be NULL; else it maps each new value id to the source value.
typedef struct hn_extract {
    const hn_module *source;
    hn_node *const *nodes;
    int node_count;
    hn_value *const *inputs;  // that shall be inputs in this order, whether used or not
    int input_count;
    hn_value *const *outputs;
    int output_count;
    // out
    hn_module *module;
    HN_VEC(hn_value *) captured; // further source values that became inputs behind `inputs`
} hn_extract;
hn_status hn_extract_run(hone_error *err, hn_extract *extract);

// ---- memory.c -----------------------------------------------------------------------------------
// Interval packing: each block lives from step `first` to step `last` (inclusive).
typedef struct hn_block {
    size_t bytes;       // rounded up to 64 by the planner
    int first, last;
    size_t out_offset;
} hn_block;
// Returns the slab's size; 0 blocks give 0. False on overflow or out of memory.
bool hn_memory_plan(hn_block *blocks, int count, size_t *out_bytes);

// ---- lanes.c ------------------------------------------------------------------------------------
#define HN_MAX_LANES 8
typedef struct hn_lane_step {
    int lane;
    bool marked;                // a step of another lane waits for it
    int after[HN_MAX_LANES];    // steps of other lanes that it waits for
    int after_count;
} hn_lane_step;
typedef struct hn_lanes {
    int lanes;
    hn_lane_step steps[];       // by step of the segment
} hn_lanes;

// ---- plan.c -------------------------------------------------------------------------------------
typedef enum hn_slot_kind { HN_SLOT_SLAB, HN_SLOT_CONST, HN_SLOT_INPUT } hn_slot_kind;

// Memory of one value in one layout.
typedef struct hn_slot {
    hn_slot_kind kind;
    bool on_device;     // lies in the device's slab; never for backends with host memory
    int alias_of;       // slot that owns the memory, -1: itself
    size_t bytes;
    int first, last;    // steps
    int input_index;    // HN_SLOT_INPUT
    void *address;      // fixed after bind (not for inputs)
} hn_slot;

typedef struct hn_step {
    hn_kernel *kernel;  // owned
    hn_node *node;      // NULL: reorder
    hn_args args;
    void **pointers;    // inputs then outputs; owned by the plan's arena
    int *slots;         // slot of each pointer, -1: NULL
    int input_count, output_count;
    int workspace_slot;
    bool is_transfer;   // copies a graph input to the device or a graph output from it
    double total_ns;
    int64_t runs;
} hn_step;

// Steps that follow each other on one side. The device's are recorded once and replayed.
typedef struct hn_segment {
    int first, end;
    bool on_device;
    void *record;       // NULL: not recorded
    hn_lanes *lanes;    // owned; NULL: one step behind the other
    void *wide;         // recorded so; measured against `record`, the slower one goes
    int rounds;
    double best_ns[2];  // of record, of wide
} hn_segment;

typedef struct hn_patch {
    void **where;
    int input_index;
} hn_patch;

// Where a value that leaves the static part is found.
typedef enum hn_source_kind {
    HN_FROM_SLOT,
    HN_FROM_BARRIER,
    HN_FROM_TAIL,
} hn_source_kind;
typedef struct hn_source {
    hn_source_kind kind;
    int index;        // slot; barrier output number; tail output number
    hn_dtype dtype;
    hn_shape shape;   // of slots
} hn_source;

// A node that is run with tensors in hand: control flow or data-dependent shape.
typedef struct hn_barrier {
    hn_node *node;
    hn_source *inputs;       // by node input
    hn_tensor *in;           // filled before the barrier runs; absent inputs have dtype HN_NONE
    int first_output;        // into plan->barrier_outputs
    // If: then, else. Loop and Scan: body. Formal inputs come first, then captured values.
    hn_session *branches[2];
    hn_module *branch_modules[2]; // owned
    int formal_count[2], capture_count[2];
    hn_source *captures[2];
    hn_tensor *branch_in[2];      // formals, then captures (filled before the barrier runs)
} hn_barrier;

struct hn_plan {
    hn_shape *key_shapes;   // by session input
    hn_dtype *key_dtypes;
    int key_count;
    hn_arena arena;
    hn_module *module;      // owned: the device graph
    hn_value **inputs;      // device-graph value of each session input, NULL if it vanished
    HN_VEC(hn_slot) slots;
    HN_VEC(hn_step) steps;
    HN_VEC(hn_patch) patches;
    void *slab, *host_slab; // host_slab: values in host layouts of a backend with device memory
    size_t slab_bytes, host_slab_bytes, workspace_bytes;
    HN_VEC(hn_segment) segments; // empty: every step is the host's
    uint64_t runs;
    int reorder_steps;
    hn_barrier *barriers;
    int barrier_count;
    hn_tensor *barrier_outputs; // owned tensors
    int barrier_output_count;
    hn_session *tail;
    hn_module *tail_module;
    hn_source *tail_inputs;
    hn_tensor *tail_in, *tail_out; // scratch
    int tail_input_count, tail_output_count;
    hn_source *outputs;     // by graph output
    int output_count;
    uint64_t last_used;
    hn_plan *next;
};

struct hn_session {
    const hn_module *module;
    hn_module *prepared;    // owned: the module after the portable passes; NULL: module is the caller's
    hn_session_options options;
    hn_plan *plans;         // most recently used first
    int64_t plan_ns;
    uint64_t runs;
    int depth;              // nesting of tails and branches
};

// Like hn_session_new for a part of a graph that has been through the portable passes already.
hn_status hn_session_new_part(hone_error *err, const hn_module *module,
                              const hn_session *parent, hn_session **out_session);

hn_status hn_plan_new(hone_error *err, hn_session *session, const hn_tensor *inputs,
                      int input_count, hn_plan **out_plan);
void hn_plan_free(hn_session *session, hn_plan *plan);
// Bytes of the prepared forms that its steps use and that are not in `seen` yet; adds them to it.
size_t hn_plan_prepared_bytes(const hn_plan *plan, hn_prepared_set *seen);
hn_status hn_plan_fetch(hone_error *err, hn_session *session, hn_plan *plan); // outputs of resident runs
hn_status hn_plan_run(hone_error *err, hn_session *session, hn_plan *plan, const hn_tensor *inputs,
                      hn_tensor *outputs);

// Lives of blocks of the segment's steps, so that reuse of memory does not keep steps apart. Before placing.
hn_status hn_lanes_lifetimes(hone_error *err, hn_plan *plan, int first, int end);
// NULL where no more than one lane pays.
hn_status hn_lanes_new(hone_error *err, const hn_plan *plan, int first, int end, int lanes, hn_lanes **out_lanes);

// ---- control.c ----------------------------------------------------------------------------------
typedef hone_status (*hn_locate_fn)(hone_error *err, void *user, const hn_value *value,
                                    hn_source *out_source);
// Makes the sessions of a control-flow node's sub-graphs.
hn_status hn_barrier_prepare(hone_error *err, hn_session *session, hn_plan *plan,
                             hn_barrier *barrier, hn_locate_fn locate, void *user);
// Runs with barrier->in and the captures filled; writes plan->barrier_outputs[first_output...].
hn_status hn_barrier_run(hone_error *err, hn_session *session, hn_plan *plan, hn_barrier *barrier);
void hn_barrier_free(hn_barrier *barrier);
#endif
