// SPDX-License-Identifier: Apache-2.0
// The main job: try strategies one after the other, keep what a paired measurement says helps and
// the accuracy budget allows, write a standard ONNX file and a report.
#ifndef HN_OPTIMIZE_H
#define HN_OPTIMIZE_H
#include "onnx/dataset.h"
#include "plan/plan.h"
#include "tune/measure.h"

// Differences of outputs to those of the input model on the gate's data.
typedef struct hn_accuracy {
    int64_t samples, rows;       // rows: labelled ones, or those of `agreement_of`
    double max_abs, cosine;      // cosine: of all samples together, of the output that is worst off
    double exact_cosine;         // the same where outputs that are equal within float32's rounding count as equal
    double worst_cosine;         // of the worst output of the worst sample
    double agreement;            // top-1 agreement with the input model, of the output that is worst off; NaN
                                 // where outputs have no classes
    double agreement_ci[2];
    char cosine_of[48], agreement_of[48]; // the names of these outputs; empty where there is one output
    // The same of the outputs that the labels say nothing about; NaN where there are none.
    double other_cosine, other_agreement;
    char other_of[48];           // the output of other_cosine
    double metric;               // top-1 against labels; NaN without labels
    double metric_ci[2];
    double kept_right;           // share of labelled rows that the input model has right and this one not
                                 // wrong; NaN without labels
    double chance;               // top-1 without looking: of a guess, or of the commonest label where that is more
    int64_t nan;                 // NaN or infinities in outputs where the input model has none
    int64_t outputs, finite;     // float elements, and those that are finite on both sides
} hn_accuracy;

typedef struct hn_budget {
    double max_drop;       // of the metric, 0.01
    double min_agreement;  // 0.99, where there are no labels
    double min_cosine;     // 0.999, where there are no labels
} hn_budget;

// What is known of one model as it runs here.
typedef struct hn_side {
    hn_latency latency;
    double throughput_per_s;
    double start_ms;          // load, plan and first run
    int64_t peak_memory_bytes, file_bytes;
    double energy_j_per_sample; // NaN: nothing here counts joules
    hn_accuracy accuracy;
} hn_side;

typedef struct hn_verdict {
    const char *name, *optimises;
    bool tried, kept;
    char reason[320];
    char *decision;                // JSON: how to make the candidate again, also of a refused one; owned
    bool was_kept, verdict_changed; // --recheck: what the earlier report says
    int64_t rows_needed;           // rows that would prove the budget; 0: there were enough
    double seconds;                // that making, judging and measuring it took
    double energy_ratio;           // NaN: not measured
    double speedup, speedup_ci[2]; // against the best model before it; NaN if not measured
    double start_speedup, start_ci[2];
    double memory_ratio, size_ratio;
    hn_accuracy accuracy;
} hn_verdict;

typedef struct hn_layer {
    char name[96], op[32], precision[16];
    const char *strategy; // whose choice it was: "int8"
    double error;     // 1 - cosine of the outputs with `together` layers, this one among them, in that
    int together;     // precision; NaN, 0: not measured
    double turned;    // share of the rows whose answer (largest class) changes with these; NaN: not measured
    double own_error; // squared difference at its own output over the squared output; NaN: not measured
    char why[200];    // of a layer that stays float
} hn_layer;

// What a strategy is kept for. A row of strategies.def says which it can serve.
typedef enum hn_objective {
    HN_OBJECTIVE_LATENCY,
    HN_OBJECTIVE_THROUGHPUT,
    HN_OBJECTIVE_MEMORY,
    HN_OBJECTIVE_SIZE,
    HN_OBJECTIVE_ENERGY,
    HN_OBJECTIVE_END
} hn_objective;
const char *hn_objective_name(hn_objective objective);

// A step of the result as it runs here.
typedef struct hn_heavy_step {
    char name[96], op[32], kernel[48];
    double ns, flops, bytes; // of one run
} hn_heavy_step;
#define HN_HEAVY_STEPS 10

typedef struct hn_memory_point {
    double seconds, bytes; // since the start; of the process
} hn_memory_point;

#define HN_MAX_STRATEGIES 16
#define HN_MAX_NOTES      8
typedef struct hn_optimize_result {
    hn_side baseline, result;
    hn_verdict verdicts[HN_MAX_STRATEGIES];
    int verdict_count;
    hn_pair aa;               // the input model against itself
    hn_pair total;            // input model against result
    hn_pair fresh;            // the same in a process of its own; pairs 0: not done
    bool fresh_agrees;
    int withdrawn;            // strategies that were kept and then not confirmed
    int changed;              // --recheck: verdicts that changed
    HN_VEC(hn_layer) layers;
    HN_VEC(hn_memory_point) memory;
    hn_heavy_step steps[HN_HEAVY_STEPS]; // by falling time; asked for with details
    int step_count;
    double steps_ns;               // of all steps together
    double peak_flops, peak_bytes; // a second, measured; NaN: unknown
    char model_sha256[65];
    int model_opset, model_nodes;
    int64_t model_params;
    char result_sha256[65];   // of the file that was written, of its weights where they lie beside it; empty: none
    bool broken;              // --replay: the file is the recorded one and leaves the budget on these data
    char *decisions;          // JSON text, owned
    bool copied;              // nothing was kept: the output is a byte copy
    char notes[HN_MAX_NOTES][320]; // what the reader has to know of data and model, one sentence each
    int note_count;
    bool gathered;            // nothing was kept: the output is the input with its external weights
} hn_optimize_result;

typedef struct hn_strategy hn_strategy; // optimize_int.h
typedef struct hn_optimize_options {
    const char *model_path, *out_path;
    const char *data_path;    // NULL: lossy strategies are not tried
    const char *replay_path;  // report.json or decisions of an earlier run
    const char *device;       // NULL: cpu
    int64_t batch;            // 0: the model's own, or 1
    const char *const *shapes; // "name=1x3x8x8" for free dims without data; borrowed
    int shape_count;
    hn_budget budget;         // zeros: defaults
    double seconds;           // per measurement, 0: 2
    uint64_t seed;
    const char *only;         // comma-separated strategies, NULL: all
    hn_objective objective;
    double time_limit_s;      // 0: none; the best so far is written
    const char *recheck_path; // report.json whose strategies are measured again; nothing is written
    bool details;             // steps, ceilings: for the page
    const char *hone_path;    // the command, for measuring in fresh processes; NULL: not done
    const char *force;        // kept whatever the measurement says (the verdict is still printed)
    const hn_strategy *extra; // one more, tried last whatever `only` says; NULL: none. For tests
    // Called with a share in 0..1; may be NULL.
    void (*progress)(void *user, const char *what, double share);
    void *user;
} hn_optimize_options;

hn_status hn_optimize_run(hone_error *err, const hn_optimize_options *options,
                          hn_optimize_result *out_result);
void hn_optimize_result_free(hn_optimize_result *result);
// The text of report.json, as in the design's contract, appended to out_json. `command` is the command
// line for the record.
hn_status hn_optimize_report(hone_error *err, const hn_optimize_options *options,
                             const hn_optimize_result *result, const char *command,
                             hn_str *out_json);
// The same as a page that stands alone, written to path.
hn_status hn_optimize_report_html(hone_error *err, const hn_optimize_options *options,
                                  const hn_optimize_result *result, const char *command,
                                  const char *path);
#endif
