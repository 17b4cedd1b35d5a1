// SPDX-License-Identifier: Apache-2.0
// Sessions and plans: from a module to steps with fixed memory, and running them.
//
// A session holds a module and a bounded cache of plans, one for each combination of input shapes.
// Making a plan: copy with constant dims -> inference -> device passes -> partition -> select ->
// layouts -> offsets -> bind. The partition gives three parts: `static` nodes become steps in one
// slab; `barrier` nodes (control flow, shapes that depend on data) are run one by one; what depends
// on them is the `tail`, a session of its own that is planned when the barriers' shapes are known.
// A run of a plan without barriers allocates nothing, looks nothing up and infers nothing.
//
// One run at a time per session; sessions of one module may run in different threads.
#ifndef HN_PLAN_H
#define HN_PLAN_H
#include "backends/backend.h"
#include "passes/passes.h"

typedef struct hn_session hn_session;
typedef struct hn_plan hn_plan;

typedef struct hn_session_options {
    hn_backend *backend;        // borrowed, outlives the session
    int threads;                // 0: hn_parallel_threads()
    bool force_reference;       // every node by its C reference
    bool no_device_passes;
    bool deterministic;
    bool apart;                 // shares no prepared forms, keeps none: a start as in a new process
    bool profile;               // time every step
    bool tf32;                  // also set where the module says so (hone.tf32)
    int resident;               // device backends: the inputs of a plan's first that many runs stay on the
                                // device; later runs take them in turn, leave outputs there, wait for nothing
    int64_t plan_cache_bytes;   // 0: the setting
    uint64_t seed;              // of random ops
    const char *disable_passes; // comma-separated, or NULL
} hn_session_options;

// `module` is borrowed and must not change while the session lives.
hn_status hn_session_new(hone_error *err, const hn_module *module,
                         const hn_session_options *options, hn_session **out_session);
void hn_session_free(hn_session *session); // takes NULL
// A second session of the same module and settings, whose inputs stay on the device (`resident` above): for
// timing what the device does. The first must outlive it.
hn_status hn_session_new_resident(hone_error *err, const hn_session *session, int resident, hn_session **out_session);

// Graph inputs in order, then (optionally) overridable weights by their order; missing ones at the
// end keep their content. Fixed dims and types are checked (HONE_ERR_INPUT naming the input).
// outputs[i] become borrowed views that are valid until the next run or the session's end.
hn_status hn_session_run(hone_error *err, hn_session *session, const hn_tensor *inputs,
                         int input_count, hn_tensor *outputs, int output_count);
// Brings the outputs of the last run, where resident runs left them on the device, to the host; the views
// that run gave show them then.
hn_status hn_session_fetch(hone_error *err, hn_session *session);
// Plans for these shapes without running (first-shape latency, inspection). Inputs' data may be NULL
// where no shape depends on it.
hn_status hn_session_prepare(hone_error *err, hn_session *session, const hn_tensor *inputs,
                             int input_count);

// ---- what a session says of itself --------------------------------------------------------------
typedef struct hn_session_stats {
    size_t weight_bytes;     // constants of the module
    size_t slab_bytes;       // of all cached plans, tails and branches included
    size_t prepacked_bytes;  // kernels' own forms of the weights, each counted once
    size_t workspace_bytes;  // part of the slab
    int plans;               // cached now
    int64_t plan_ns;         // time spent on planning since the start
    int steps, reference_steps, reorder_steps, barriers; // of the plan used last
    int heavy_steps, heavy_reference_steps;  // Conv, MatMul, Gemm, recurrences
    int device_steps, host_steps, transfer_steps; // of the plan used last; 0 where all is host memory
    int recorded_segments;   // runs of device steps that are replayed as a whole
} hn_session_stats;
void hn_session_get_stats(const hn_session *session, hn_session_stats *out_stats);

typedef struct hn_step_info {
    const char *op_type, *name;  // of the node; "Reorder" for layout changes
    const char *variant;         // of the kernel
    const hn_node *node;         // in the plan's own module; NULL for reorders
    bool is_reference;
    bool on_device;              // not on the host
    const hn_layout *in_layout, *out_layout; // by input and output of the kernel
    double total_ns;             // since the start, when profiling
    int64_t runs;
    hn_cost cost;
} hn_step_info;
// Steps of the plan used last, in order, tails and branches after their parents. Returns how many
// there are; writes at most `max`.
int hn_session_steps(const hn_session *session, hn_step_info *out_steps, int max);
void hn_session_reset_profile(hn_session *session);

// Calls fn with every value of the plan's static part after a run by reference-like execution: used
// to observe activations (calibration) and to compare fast path and reference step by step. The
// tensors are plain and valid during the call only. Values are named by the device graph's values.
typedef hone_status (*hn_observe_fn)(void *user, const hn_node *node, int output,
                                     const hn_tensor *tensor);
hn_status hn_session_observe(hone_error *err, hn_session *session, const hn_tensor *inputs,
                             int input_count, hn_observe_fn fn, void *user);
#endif
