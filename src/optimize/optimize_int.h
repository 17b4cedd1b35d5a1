// SPDX-License-Identifier: Apache-2.0
// Inside of src/optimize.
#ifndef HN_OPTIMIZE_INT_H
#define HN_OPTIMIZE_INT_H
#include <jansson.h>
#include "ir/compare.h"
#include "optimize/optimize.h"

// A strategy must win by this much at the bad end of the interval.
#define HN_GATE_MARGIN 1.02
// Where memory, size or energy is what counts, this much time may be paid for it.
#define HN_MAX_SLOWDOWN 1.10

// ---- gate.c -------------------------------------------------------------------------------------
// The data, cut in two: strategies calibrate and choose on one half, the gate decides on the other.
typedef enum hn_split { HN_SPLIT_CALIBRATE, HN_SPLIT_GATE } hn_split;

typedef struct hn_gate {
    hn_backend *backend;
    const hn_module *original;   // outputs of this one are the reference
    hn_session *baseline;
    hn_dataset *dataset;         // NULL: made inputs
    hn_broken_rows broken;       // of the data, taken out or not
    hn_tensor made[HN_MAX_KERNEL_IO];
    int input_count, output_count;
    hn_tensor *references;       // owned: sample * output_count + output, dtype HN_NONE if not yet run
    hn_budget budget;
    hn_measure_options measure;
} hn_gate;

hn_status hn_gate_open(hone_error *err, const hn_optimize_options *options, hn_module *original,
                       hn_backend *backend, hn_gate *out_gate);
void hn_gate_close(hn_gate *gate);
int64_t hn_gate_samples(const hn_gate *gate, hn_split split);
int64_t hn_gate_sample(const hn_gate *gate, hn_split split, int64_t index); // number in the data set
hn_status hn_gate_inputs(hone_error *err, const hn_gate *gate, int64_t sample, hn_tensor *out);
// Runs `session` over up to `limit` samples of a split (0: all) against the original.
hn_status hn_gate_accuracy(hone_error *err, hn_gate *gate, hn_session *session, hn_split split,
                           int64_t limit, hn_accuracy *out_accuracy);
hn_status hn_gate_pair(hone_error *err, hn_gate *gate, hn_session *a, hn_session *b,
                       hn_pair *out_pair);
// Load from memory, plan, first run: pairs of cold starts.
hn_status hn_gate_start_pair(hone_error *err, hn_gate *gate, const hn_module *a, const hn_module *b,
                             hn_pair *out_pair);
int64_t hn_gate_rows(const hn_gate *gate); // of one call
hn_status hn_gate_session(hone_error *err, const hn_gate *gate, const hn_module *module,
                          hn_session **out_session);
// Does the accuracy fit the budget? If not, says why. `exact_from`: the accuracy of the model that an
// exact rewrite was made from; NULL where the rewrite may lose some. Pure.
// Whether labels say anything: the input model meets them better than a guess would.
bool hn_gate_labels_judge(const hn_accuracy *baseline);
bool hn_gate_accepts(const hn_budget *budget, const hn_accuracy *baseline,
                     const hn_accuracy *candidate, const hn_accuracy *exact_from, char *why, size_t why_size);

// The session as the gate times it: on a card with inputs and outputs there, *io_calls runs started before one
// wait. *out_timed is `session` itself on a host, else the caller's to free before it.
hn_status hn_gate_timed(hone_error *err, const hn_gate *gate, hn_session *session, hn_session **out_timed);
hn_status hn_gate_calls(hone_error *err, const hn_gate *gate, hn_session *session, const hn_tensor *in, hn_tensor *out, int calls);
bool hn_gate_on_card(const hn_gate *gate);

// ---- notes.c ------------------------------------------------------------------------------------
typedef struct hn_optimizer hn_optimizer;
// After the baseline: fails where the data can judge nothing, else adds the notes of the result; o->unfit says
// why the data cannot judge what loses accuracy.
hn_status hn_optimizer_notes(hone_error *err, hn_optimizer *o);
// After the result is confirmed: what became worse though nothing was refused for it.
void hn_optimizer_note_start(hn_optimizer *o);
__attribute__((format(printf, 2, 3))) void hn_optimizer_note(hn_optimizer *o, const char *format, ...);

// ---- calibrate.c --------------------------------------------------------------------------------
#define HN_HISTOGRAM_BINS 2048
// Streaming statistics of one float32 value: memory does not depend on the number of samples.
typedef struct hn_range {
    bool seen;
    float low, high;          // finite values only
    int64_t count, not_finite;
    uint32_t *bins;           // second pass, over [low, high]; owned
} hn_range;
typedef struct hn_calibration {
    hn_range *ranges;         // by value id of the module
    uint32_t count;
} hn_calibration;
typedef enum hn_clip_method {
    HN_CLIP_MINMAX,
    HN_CLIP_PERCENTILE,
    HN_CLIP_MSE,
    HN_CLIP_ENTROPY,
    HN_CLIP_END
} hn_clip_method;
const char *hn_clip_name(hn_clip_method method);
hn_clip_method hn_clip_by_name(const char *name); // HN_CLIP_END where there is none of that name
hn_status hn_calibrate(hone_error *err, hn_gate *gate, hn_module *module, int64_t max_samples,
                       bool histogram, void (*progress)(void *, const char *, double), void *user,
                       hn_calibration *out_calibration); // without histogram: extents only, one pass
void hn_calibration_free(hn_calibration *calibration);
// The range to quantise: always holds 0.
void hn_range_clip(const hn_range *range, hn_clip_method method, float *out_low, float *out_high);
// Asymmetric 8-bit parameters; a range without extent gives scale 1.
void hn_range_params(float low, float high, float *out_scale, uint8_t *out_zero);

// ---- quantize.c ---------------------------------------------------------------------------------
typedef struct hn_qparam {
    bool set;
    float scale;
    uint8_t zero;
    bool around_zero; // signed integers, zero is 0
} hn_qparam;
typedef struct hn_quantize_plan {
    bool *node_in;       // by node id: this node computes in int8
    hn_qparam *params;   // by value id: the value is quantised
    uint32_t node_count, value_count;
    int weight_max;      // 127, or 63 where the ISA's u8*s8 sums saturate
    bool symmetric;      // signed data around zero, as cards want it: zero points are 0
    bool between;        // sums and activations between quantised values read integers, too
} hn_quantize_plan;
bool hn_quantize_capable(const hn_node *node); // Conv, Gemm, MatMul with constant float32 weights
int hn_int8_weight_max(void); // 127, or 63 where this machine's u8*s8 sums saturate
// int8 constants of a capable node's weight, one scale an output channel.
typedef struct hn_int8_weight {
    hn_value *q, *scale;
    int axis; // of the channels in q
} hn_int8_weight;
// by_columns: q is [K, N] whatever the node's own order.
hn_status hn_quantize_weight(hone_error *err, hn_node *node, int weight_max, bool by_columns,
                             hn_int8_weight *out);
// Which values must be quantised for these nodes, and their parameters.
hn_status hn_quantize_plan_make(hone_error *err, hn_module *module, const hn_calibration *calibration,
                                hn_clip_method method, const bool *node_in, int weight_max,
                                bool between, bool symmetric, hn_quantize_plan *out_plan);
void hn_quantize_plan_free(hn_quantize_plan *plan);
// Rewrites the module into QDQ form.
hn_status hn_quantize_apply(hone_error *err, hn_module *module, const hn_quantize_plan *plan);
// The node's twin in int8 behind it, as hn_layer_search.twin asks; `plan` is of the base.
hn_status hn_quantize_twin(hone_error *err, const hn_quantize_plan *plan, hn_node *node, hn_value **out);
json_t *hn_quantize_to_json(const hn_module *module, const hn_quantize_plan *plan);
hn_status hn_quantize_from_json(hone_error *err, const json_t *json, const hn_module *module,
                                hn_quantize_plan *out_plan);

// ---- strategies ---------------------------------------------------------------------------------
// A step of the chain: what the best model was before a strategy was kept, to go back to.
typedef struct hn_kept {
    hn_module *before;
    hn_accuracy accuracy;
    hn_verdict *verdict;
    size_t layers; // rows of the report before it
} hn_kept;

typedef struct hn_optimizer {
    const hn_optimize_options *options;
    hn_optimize_result *result;
    hn_gate gate;
    hn_backend *backend;
    hn_module *original, *current; // owned; current is the best so far
    hn_session *current_session;   // owned
    hn_accuracy current_accuracy;  // against the original
    json_t *replay;                // decisions to follow, NULL: none
    bool recheck;                  // the decisions are followed, but measured and judged again
    char replay_sum[65];           // SHA-256 of the file that replaying must give; empty: not known
    json_t *decisions;             // array being built
    char unfit[256];               // why these data keep no strategy that loses accuracy; empty: they can judge
    int64_t deadline_ns;           // 0: none
    int64_t start_ns;
    hn_pair given;                 // a strategy's own measurement, where the gate's would not fit
    bool has_given;
    hn_kept kept[HN_MAX_STRATEGIES]; // the chain; modules owned
    int kept_count;
} hn_optimizer;

typedef enum hn_strategy_on { HN_ON_ANY, HN_ON_HOST, HN_ON_CARD } hn_strategy_on;
struct hn_strategy {
    const char *name;
    hn_strategy_on on;
    bool lossy, needs_data;
    const char *optimises, *doc;
    // Makes a candidate from o->current. *out_module NULL: nothing to do, with the reason written to
    // `why`. *out_decision (owned by the caller) says how to make it again.
    hone_status (*run)(hone_error *err, hn_optimizer *o, hn_module **out_module,
                       json_t **out_decision, char *why, size_t why_size);
};
#define HN_STRATEGY(id, name, on, lossy, needs_data, optimises, doc)                                \
    hone_status hn_strategy_##id(hone_error *err, hn_optimizer *o, hn_module **out_module,       \
                                   json_t **out_decision, char *why, size_t why_size);
#include "optimize/strategies.def"
#undef HN_STRATEGY
void hn_optimizer_progress(const hn_optimizer *o, const char *what, double share);
// Takes the strategy kept last back out of the chain, decisions and layers; its verdict.
hn_verdict *hn_optimizer_withdraw(hn_optimizer *o);
bool hn_optimizer_late(const hn_optimizer *o); // the time limit is used up
const json_t *hn_replay_item(const hn_optimizer *o, const char *name); // of the list to follow, or NULL
const json_t *hn_replay_of(const hn_optimizer *o, const char *name); // its decision
char *hn_json_text(const json_t *json); // sorted and compact, owned; NULL for NULL
// A copy of the best model so far with the portable rewrites and all values named.
hn_status hn_rewritten(hone_error *err, const hn_optimizer *o, hn_module **out_module);

// ---- judge.c ------------------------------------------------------------------------------------
const hn_strategy *hn_strategies(size_t *out_count);
hn_status hn_optimizer_try_all(hone_error *err, hn_optimizer *o);
// Names of a comma-separated list must be strategies.
hn_status hn_strategy_names(hone_error *err, const char *option, const char *list);
bool hn_strategy_listed(const char *list, const char *name);
int64_t hn_session_bytes(const hn_session *session); // weights, slab, prepacked
void hn_side_fill(const hn_gate *gate, const hn_latency *latency, const hn_session *session,
                  hn_side *out);
hn_status hn_side_energy(hone_error *err, const hn_gate *gate, hn_session *session, hn_side *side);

// ---- steps.c ------------------------------------------------------------------------------------
void hn_optimizer_note_memory(const hn_optimizer *o);        // a point of result->memory
hn_status hn_optimizer_steps(hone_error *err, hn_optimizer *o); // the heaviest steps, ceilings

// Whole numbers of a decision that lie between; else HONE_ERR_FORMAT naming the strategy.
hn_status hn_decision_number(hone_error *err, const json_t *decision, const char *strategy, const char *key,
                             int64_t low, int64_t high, int64_t *out_number); // strategies.c
hn_status hn_file_sha256(hone_error *err, const char *path, char out_text[65]); // optimize.c

// ---- output.c -----------------------------------------------------------------------------------
// Writes the result under a temporary name, confirms it, gives it its name.
hn_status hn_optimizer_write(hone_error *err, hn_optimizer *o);

// ---- speed.c ------------------------------------------------------------------------------------
// One of two copies of a base model whose steps are timed in turns: see speed.c on how layers are known.
typedef struct hn_timed_copy {
    const hn_module *base;
    hn_module *module;   // owned
    hn_session *session; // owned, like the rest
    hn_step_info *steps;
    uint32_t *owner;  // by step: the layer it belongs to, UINT32_MAX: none
    int count;
    double *ns, *run; // by the id of the base's node: the least time of a layer; that of one run. 0: not seen
    double *step_ns;  // by step: the least time
} hn_timed_copy;
hn_status hn_timed_open(hone_error *err, const hn_optimizer *o, const hn_module *base, hn_module *module,
                        hn_timed_copy *out); // takes the module over, also on failure
hn_status hn_timed_runs(hone_error *err, const hn_optimizer *o, const char *what, hn_timed_copy *a,
                        hn_timed_copy *b);
void hn_timed_close(hn_timed_copy *t);

// ---- layers.c -----------------------------------------------------------------------------------
typedef struct hn_layer_try {
    hn_module *module;
    hn_accuracy accuracy;
} hn_layer_try;
typedef struct hn_layer_search hn_layer_search;
struct hn_layer_search {
    hn_optimizer *o;
    const char *precision;  // "int8"
    hn_module *base;        // owned: o->current, rewritten
    bool *node_in, *capable; // by node id
    // By node id, see hn_layer; NaN and 0: not measured.
    double *error, *own, *turned;
    int *together;
    char (*why)[200];       // by node id: why the layer stays float
    int nodes;              // how many were in at first
    bool by_class;          // the cosine of all layers low is inside the budget, their answers are not
    int runs;               // of the model over samples with some layers low, for choosing among layers
    hn_accuracy last;       // of the last set that was tried, with so many layers low
    int last_low;
    void *self;             // the strategy's
    // A copy of the base with these layers in the lower precision.
    hone_status (*make)(hone_error *err, hn_layer_search *s, const bool *node_in,
                        hn_module **out_module);
    // Puts the layer once more, in the lower precision and on the same float input, behind `node`, which is
    // the layer in a copy of the base. *out stays NULL where that cannot be. NULL: the strategy cannot.
    hone_status (*twin)(hone_error *err, hn_layer_search *s, hn_node *node, hn_value **out);
};
hn_status hn_layers_open(hone_error *err, hn_optimizer *o, const char *precision,
                         bool (*capable)(const hn_node *), hn_layer_search *out);
void hn_layers_close(hn_layer_search *s);
// Makes a candidate and runs it over up to `limit` samples (0: all) of the calibration half.
hn_status hn_layers_try(hone_error *err, hn_layer_search *s, const bool *node_in, int64_t limit,
                        hn_layer_try *out);
void hn_layers_try_free(hn_layer_try *t);
bool hn_layers_fit(const hn_layer_search *s, const hn_accuracy *a);
// Orders the layers by how they disturb the outputs, then finds the fewest that must go back to float;
// s->node_in and s->why say which. best->module stays NULL where no set fits.
hn_status hn_layers_shrink(hone_error *err, hn_layer_search *s, hn_layer_try *best);

// ---- rank.c -------------------------------------------------------------------------------------
// Samples that hold so many rows, or so many elements of outputs where these come first (0: rows alone);
// never fewer than four.
int64_t hn_samples_for(const hn_optimizer *o, int64_t rows, int64_t elements);
hn_status hn_layers_own_errors(hone_error *err, hn_layer_search *s); // s->own, where the strategy has twins
typedef struct hn_ranked {
    double score; // what the order is by: the layer's share of the disturbance
    double error, own, turned;
    int together;
    uint32_t node;
} hn_ranked;
// The layers that are in, the most disturbing first; `order` has room for all.
hn_status hn_layers_rank(hone_error *err, hn_layer_search *s, hn_ranked *order, int *out_count);

// ---- speed.c ------------------------------------------------------------------------------------
// Takes those out that are not faster in the lower precision, with the reason; s->nodes is what is left.
hn_status hn_layers_leave_slow(hone_error *err, hn_layer_search *s);

// ---- layers.c again -----------------------------------------------------------------------------
void hn_layers_say(const hn_layer_search *s, char *text, size_t size);      // what chose the layers, appended
void hn_layers_say_none(const hn_layer_search *s, char *text, size_t size); // no set of them fits
hn_status hn_layers_record(hone_error *err, const hn_layer_search *s); // rows of the report
int hn_layers_count(const hn_layer_search *s);                         // those that are in
json_t *hn_layers_to_json(const hn_layer_search *s);
hn_status hn_layers_from_json(hone_error *err, hn_layer_search *s, const json_t *json);
// Layers whose result goes into exp, log or softmax at a magnitude where one part in `steps` moves it too far
// stay float32, with the reason in s->why; so do those whose input is not finite.
void hn_layers_leave_steep(hn_layer_search *s, const hn_calibration *calibration, double steps); // bf16.c
// Gives every unnamed value of the main graph a name of its own.
hn_status hn_name_values(hone_error *err, hn_module *module);
#endif
