// SPDX-License-Identifier: Apache-2.0
// The gate: data halves, accuracy against the input model, paired timing, the verdict on accuracy.
#include "optimize/optimize_int.h"
#include <math.h>

hn_status hn_gate_session(hone_error *err, const hn_gate *gate, const hn_module *module,
                          hn_session **out_session) {
    hn_session_options options = {.backend = gate->backend, .apart = true};
    return hn_session_new(err, module, &options, out_session);
}

int64_t hn_gate_rows(const hn_gate *gate) {
    if (gate->dataset) return hn_max_i64(1, hn_dataset_batch(gate->dataset));
    const hn_shape *shape = &gate->made[0].shape;
    return gate->input_count && shape->rank && shape->dims[0] > 0 ? shape->dims[0] : 1;
}

static hn_status open_data(hone_error *err, const hn_optimize_options *options, hn_gate *gate) {
    const hn_module *module = gate->original;
    if (options->data_path) {
        HN_TRY(hn_dataset_open(err, options->data_path, module, options->batch, &gate->dataset));
        hn_dataset_drop_broken(gate->dataset, &gate->broken);
        size_t count = (size_t)hn_dataset_count(gate->dataset) * (size_t)gate->output_count;
        gate->references = hn_calloc(count + 1, sizeof *gate->references);
        if (!gate->references) HN_NOMEM(err, "preparing the gate");
        return HONE_OK;
    }
    hn_shape shapes[HN_MAX_KERNEL_IO];
    HN_TRY(hn_inputs_shapes(err, module, options->shapes, options->shape_count, shapes));
    for (int i = 0; i < gate->input_count && options->batch > 0 && !options->shape_count; i++) {
        const hn_type *type = &module->main->inputs.data[i]->type;
        if (type->rank > 0 && !hn_dim_is_const(type->dims[0])) shapes[i].dims[0] = options->batch;
    }
    gate->references = hn_calloc((size_t)gate->output_count + 1, sizeof *gate->references);
    if (!gate->references) HN_NOMEM(err, "preparing the gate");
    return hn_inputs_random(err, module, shapes, options->seed + 1, gate->made);
}

hn_status hn_gate_open(hone_error *err, const hn_optimize_options *options, hn_module *original,
                       hn_backend *backend, hn_gate *out_gate) {
    hn_gate gate = {.backend = backend,
                    .original = original,
                    .input_count = (int)original->main->inputs.count,
                    .output_count = (int)original->main->outputs.count,
                    .budget = options->budget,
                    .measure = {.seconds = options->seconds, .seed = options->seed}};
    if (gate.input_count > HN_MAX_KERNEL_IO || gate.output_count > HN_MAX_KERNEL_IO)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the model has more than %d inputs or outputs",
                HN_MAX_KERNEL_IO);
    if (gate.budget.max_drop <= 0) gate.budget.max_drop = 0.01;
    if (gate.budget.min_agreement <= 0) gate.budget.min_agreement = 0.99;
    if (gate.budget.min_cosine <= 0) gate.budget.min_cosine = 0.999;
    hone_status status = open_data(err, options, &gate);
    if (status == HONE_OK) status = hn_gate_session(err, &gate, original, &gate.baseline);
    if (status != HONE_OK) {
        hn_gate_close(&gate);
        return status;
    }
    *out_gate = gate;
    return HONE_OK;
}

void hn_gate_close(hn_gate *gate) {
    hn_session_free(gate->baseline);
    int64_t samples = gate->dataset ? hn_dataset_count(gate->dataset) : 1;
    for (int64_t i = 0; gate->references && i < samples * gate->output_count; i++)
        hn_tensor_free(&gate->references[i]);
    hn_free(gate->references);
    for (int i = 0; i < gate->input_count; i++)
        hn_tensor_free(&gate->made[i]);
    hn_dataset_free(gate->dataset);
    *gate = (hn_gate){0};
}

// Even samples calibrate, odd ones judge: neighbours in a file are often alike, halves often not.
int64_t hn_gate_samples(const hn_gate *gate, hn_split split) {
    int64_t all = gate->dataset ? hn_dataset_count(gate->dataset) : 1;
    if (all == 1) return 1;
    return split == HN_SPLIT_CALIBRATE ? (all + 1) / 2 : all / 2;
}

int64_t hn_gate_sample(const hn_gate *gate, hn_split split, int64_t index) {
    int64_t all = gate->dataset ? hn_dataset_count(gate->dataset) : 1;
    return all == 1 ? 0 : 2 * index + (split == HN_SPLIT_GATE);
}

hn_status hn_gate_inputs(hone_error *err, const hn_gate *gate, int64_t sample, hn_tensor *out) {
    if (gate->dataset) return hn_dataset_get(err, gate->dataset, sample, out);
    memcpy(out, gate->made, sizeof *out * (size_t)gate->input_count);
    return HONE_OK;
}

// Outputs of the original for a sample, run once and kept.
static hn_status references(hone_error *err, hn_gate *gate, int64_t sample, const hn_tensor *inputs,
                            hn_tensor **out) {
    hn_tensor *kept = gate->references + sample * gate->output_count;
    *out = kept;
    if (kept[0].dtype != HN_NONE) return HONE_OK;
    hn_tensor got[HN_MAX_KERNEL_IO];
    HN_TRY(hn_session_run(err, gate->baseline, inputs, gate->input_count, got, gate->output_count));
    for (int i = 0; i < gate->output_count; i++) {
        HN_TRY(hn_tensor_new(err, got[i].dtype, &got[i].shape, &kept[i]));
        if (got[i].bytes) memcpy(kept[i].data, got[i].data, got[i].bytes);
    }
    return HONE_OK;
}

#define MAX_CLASSES 65536 // whose labels are counted

typedef struct tally {
    hn_diff diff[HN_MAX_KERNEL_IO]; // by output: an easy one does not make up for a bad one
    int64_t hits, rows, spoilt, classes; // spoilt: right in the input model, wrong here
    int labelled;                        // the output that classifies
    int64_t *by_label;                   // owned
} tally;

// The first float output is the one that labels speak of.
static hn_status count_labels(hone_error *err, const hn_gate *gate, int64_t sample, const hn_tensor *ref,
                              const hn_tensor *out, tally *t) {
    const int64_t *labels;
    int i = 0;
    if (!gate->dataset || !hn_dataset_labels(gate->dataset, sample, &labels)) return HONE_OK;
    while (i < gate->output_count && !hn_dtype_is_float(ref[i].dtype))
        i++;
    if (i == gate->output_count) return HONE_OK;
    int64_t batch = hn_dataset_batch(gate->dataset), classes = hn_tensor_count(&out[i]) / batch;
    if (!t->by_label && !(t->by_label = hn_calloc(MAX_CLASSES, sizeof *t->by_label))) HN_NOMEM(err, "preparing the gate");
    for (int64_t row = 0; row < batch && classes > 1; row++) {
        bool hit = hn_tensor_argmax(&out[i], row * classes, classes) == labels[row];
        t->hits += hit;
        t->spoilt += !hit && hn_tensor_argmax(&ref[i], row * classes, classes) == labels[row];
        t->classes = classes;
        t->labelled = i;
        if (labels[row] >= 0 && labels[row] < MAX_CLASSES) t->by_label[labels[row]]++;
        t->rows++;
    }
    return HONE_OK;
}

static double agreement_of(const hn_diff *d) {
    return d->argmax_rows ? (double)d->argmax_agree / (double)d->argmax_rows : NAN;
}

// What decides is the output that is worst off.
static void worst_outputs(const hn_gate *gate, const tally *t, hn_accuracy *a) {
    int cosine = -1, agreement = -1, other = -1;
    for (int i = 0; i < gate->output_count; i++) {
        const hn_diff *d = &t->diff[i];
        if (!d->count) continue;
        a->outputs += d->count;
        a->finite += d->finite;
        a->max_abs = fmax(a->max_abs, d->max_abs);
        a->worst_cosine = fmin(a->worst_cosine, d->worst_cosine);
        if (!hn_diff_within(d, HN_RTOL_F32, HN_ATOL_F32)) a->exact_cosine = fmin(a->exact_cosine, d->cosine);
        if (cosine < 0 || d->cosine < t->diff[cosine].cosine) cosine = i;
        if (d->argmax_rows && (agreement < 0 || agreement_of(d) < agreement_of(&t->diff[agreement]))) agreement = i;
        if (!t->rows || i == t->labelled) continue;
        if (other < 0 || d->cosine < t->diff[other].cosine) other = i;
        a->other_agreement = fmin(a->other_agreement, agreement_of(d)); // fmin passes over NaN
    }
    bool many = gate->output_count > 1;
    if (cosine >= 0) a->cosine = t->diff[cosine].cosine;
    if (other >= 0) a->other_cosine = t->diff[other].cosine;
    if (many && cosine >= 0) snprintf(a->cosine_of, sizeof a->cosine_of, "%.40s", gate->original->main->outputs.data[cosine]->name);
    if (many && other >= 0) snprintf(a->other_of, sizeof a->other_of, "%.40s", gate->original->main->outputs.data[other]->name);
    if (agreement < 0) return;
    const hn_diff *d = &t->diff[agreement];
    if (many) snprintf(a->agreement_of, sizeof a->agreement_of, "%.40s", gate->original->main->outputs.data[agreement]->name);
    a->agreement = agreement_of(d);
    a->rows = d->argmax_rows;
    hn_wilson(d->argmax_agree, d->argmax_rows, a->agreement_ci);
}

static void met_labels(const tally *t, hn_accuracy *a) {
    if (!t->rows) return;
    int64_t commonest = 0;
    for (int64_t i = 0; i < MAX_CLASSES; i++)
        commonest = hn_max_i64(commonest, t->by_label[i]);
    a->rows = t->rows;
    a->metric = (double)t->hits / (double)t->rows;
    hn_wilson(t->hits, t->rows, a->metric_ci);
    a->kept_right = 1 - (double)t->spoilt / (double)t->rows;
    a->chance = fmax(1 / (double)t->classes, (double)commonest / (double)t->rows);
}

static hn_status tally_sample(hone_error *err, hn_gate *gate, hn_session *session, int64_t sample, tally *t,
                              int64_t *io_lost) {
    hn_tensor inputs[HN_MAX_KERNEL_IO], got[HN_MAX_KERNEL_IO], *ref;
    HN_TRY(hn_gate_inputs(err, gate, sample, inputs));
    HN_TRY(references(err, gate, sample, inputs, &ref));
    HN_TRY(hn_session_run(err, session, inputs, gate->input_count, got, gate->output_count));
    for (int i = 0; i < gate->output_count; i++) {
        hn_diff diff;
        HN_TRY(hn_tensor_diff(err, &ref[i], &got[i], &diff));
        *io_lost += diff.lost;
        if (hn_dtype_is_float(ref[i].dtype)) hn_diff_merge(&t->diff[i], &diff);
    }
    return count_labels(err, gate, sample, ref, got, t);
}

hn_status hn_gate_accuracy(hone_error *err, hn_gate *gate, hn_session *session, hn_split split,
                           int64_t limit, hn_accuracy *out_accuracy) {
    tally t = {.labelled = -1};
    int64_t samples = hn_gate_samples(gate, split), lost = 0;
    if (limit > 0 && samples > limit) samples = limit;
    hone_status status = HONE_OK;
    for (int64_t s = 0; s < samples && status == HONE_OK; s++)
        status = tally_sample(err, gate, session, hn_gate_sample(gate, split, s), &t, &lost);
    hn_accuracy a = {.samples = samples, .cosine = 1, .exact_cosine = 1, .worst_cosine = 1, .agreement = NAN,
                     .metric = NAN, .kept_right = NAN, .other_cosine = NAN, .other_agreement = NAN, .nan = lost};
    worst_outputs(gate, &t, &a);
    met_labels(&t, &a);
    hn_free(t.by_label);
    if (status == HONE_OK) *out_accuracy = a;
    return status;
}

// Labels that the input model meets no better than a guess (another order of classes, inputs that are scaled
// otherwise, too few rows, one class) would let anything pass: what falls from nothing falls by nothing.
bool hn_gate_labels_judge(const hn_accuracy *baseline) {
    return !isnan(baseline->metric) && baseline->metric_ci[0] > baseline->chance;
}

// By the outputs alone: all of them, or those that labels say nothing about. Of several the worst is named.
static void outputs_fit(const hn_budget *budget, const hn_accuracy *a, bool others, char *why, size_t why_size) {
    double cosine = others ? a->other_cosine : a->cosine, agreement = others ? a->other_agreement : a->agreement;
    const char *of = others ? a->other_of : a->cosine_of;
    if (cosine < budget->min_cosine && *of)
        snprintf(why, why_size, "output '%s': cosine %.5f, the budget is %.4f", of, cosine, budget->min_cosine);
    else if (cosine < budget->min_cosine)
        snprintf(why, why_size, "cosine %.5f, the budget is %.4f", cosine, budget->min_cosine);
    else if (agreement < budget->min_agreement && others)
        snprintf(why, why_size, "an output that labels say nothing about: top-1 agreement %.4f, the budget is %.3f",
                 agreement, budget->min_agreement);
    else if (agreement < budget->min_agreement && *a->agreement_of)
        snprintf(why, why_size, "output '%s': top-1 agreement %.4f [%.4f, %.4f], the budget is %.3f", a->agreement_of,
                 agreement, a->agreement_ci[0], a->agreement_ci[1], budget->min_agreement);
    else if (agreement < budget->min_agreement)
        snprintf(why, why_size, "top-1 agreement %.4f [%.4f, %.4f], the budget is %.3f", agreement, a->agreement_ci[0],
                 a->agreement_ci[1], budget->min_agreement);
}

bool hn_gate_accepts(const hn_budget *budget, const hn_accuracy *baseline,
                     const hn_accuracy *candidate, const hn_accuracy *exact_from, char *why, size_t why_size) {
    why[0] = '\0';
    if (candidate->nan) {
        snprintf(why, why_size, "%lld NaN or infinities where the model had none", (long long)candidate->nan);
    } else if (exact_from) {
        // Rewrites may round differently, nothing more; what was lost before is not theirs.
        if (candidate->exact_cosine < exact_from->exact_cosine - 1e-5)
            snprintf(why, why_size, "outputs differ (cosine %.7f) though the rewrite is exact",
                     candidate->exact_cosine);
    } else if (hn_gate_labels_judge(baseline)) {
        double drop = baseline->metric - candidate->metric;
        if (drop > budget->max_drop)
            snprintf(why, why_size, "top-1 falls by %.2f points, the budget is %.2f", 100 * drop,
                     100 * budget->max_drop);
        else outputs_fit(budget, candidate, true, why, why_size);
    } else {
        outputs_fit(budget, candidate, false, why, why_size);
    }
    return why[0] == '\0';
}

// ---- timing -------------------------------------------------------------------------------------
// On a card the question is what the card does: inputs lie there, and runs are started without waiting for
// each one, enough of them that the wait does not count.
#define MAX_CALLS 20
#define BLOCK_NS  4000000

bool hn_gate_on_card(const hn_gate *gate) { return gate->backend->on_device != NULL; }

hn_status hn_gate_timed(hone_error *err, const hn_gate *gate, hn_session *session, hn_session **out_timed) {
    hn_tensor in[HN_MAX_KERNEL_IO], out[HN_MAX_KERNEL_IO];
    *out_timed = session;
    if (!hn_gate_on_card(gate)) return HONE_OK;
    // The session itself must have a plan: its memory is asked for.
    HN_TRY(hn_gate_inputs(err, gate, hn_gate_sample(gate, HN_SPLIT_GATE, 0), in));
    HN_TRY(hn_session_run(err, session, in, gate->input_count, out, gate->output_count));
    return hn_session_new_resident(err, session, 1, out_timed);
}

hn_status hn_gate_calls(hone_error *err, const hn_gate *gate, hn_session *session, const hn_tensor *in, hn_tensor *out, int calls) {
    for (int i = 0; i < calls; i++)
        HN_TRY(hn_session_run(err, session, in, gate->input_count, out, gate->output_count));
    return gate->backend->sync ? gate->backend->sync(err, gate->backend) : HONE_OK;
}

typedef struct timed {
    int calls;               // of one measurement
    hn_gate *gate;
    hn_session *session;
    const hn_module *module; // cold starts
    hn_tensor inputs[HN_MAX_KERNEL_IO], outputs[HN_MAX_KERNEL_IO];
} timed;

static hone_status run_timed(hone_error *err, void *user) {
    timed *t = user;
    return hn_gate_calls(err, t->gate, t->session, t->inputs, t->outputs, t->calls);
}

static hone_status start_timed(hone_error *err, void *user) {
    timed *t = user;
    HN_TRY(hn_gate_session(err, t->gate, t->module, &t->session));
    hone_status status = run_timed(err, t);
    hn_session_free(t->session);
    t->session = NULL;
    return status;
}

static hn_status timed_pair(hone_error *err, hn_gate *gate, timed *a, timed *b, hn_measure_fn fn,
                            const hn_measure_options *options, hn_pair *out_pair) {
    int64_t sample = hn_gate_sample(gate, HN_SPLIT_GATE, 0);
    a->gate = b->gate = gate;
    HN_TRY(hn_gate_inputs(err, gate, sample, a->inputs));
    HN_TRY(hn_gate_inputs(err, gate, sample, b->inputs));
    return hn_measure_pair(err, fn, a, fn, b, options, out_pair);
}

// How many runs one measurement takes, by the slower side, warm.
static hn_status choose_calls(hone_error *err, hn_gate *gate, timed *a, timed *b) {
    timed *both[] = {a, b};
    int64_t slowest = 1;
    for (int i = 0; i < 2; i++) {
        timed *t = both[i];
        HN_TRY(hn_gate_inputs(err, gate, hn_gate_sample(gate, HN_SPLIT_GATE, 0), t->inputs));
        HN_TRY(hn_gate_calls(err, gate, t->session, t->inputs, t->outputs, 4)); // plans, tries, records
        int64_t begin = hn_clock_ns();
        HN_TRY(hn_gate_calls(err, gate, t->session, t->inputs, t->outputs, 4));
        slowest = hn_max_i64(slowest, (hn_clock_ns() - begin) / 4);
    }
    a->calls = b->calls = (int)hn_max_i64(1, hn_min_i64(MAX_CALLS, BLOCK_NS / slowest));
    return HONE_OK;
}

static void per_call(hn_latency *l, int calls) {
    double *const numbers[] = {&l->p50_ms, &l->p90_ms, &l->p99_ms, &l->mean_ms, &l->min_ms};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        *numbers[i] /= calls;
    for (size_t i = 0; i < HN_COUNT_OF(l->sample_ms); i++)
        l->sample_ms[i] /= calls;
    l->calls *= calls;
}

hn_status hn_gate_pair(hone_error *err, hn_gate *gate, hn_session *a, hn_session *b,
                       hn_pair *out_pair) {
    timed ta = {.calls = 1, .gate = gate}, tb = {.calls = 1, .gate = gate};
    hn_measure_options options = gate->measure;
    options.threshold = HN_GATE_MARGIN;
    hone_status status = hn_gate_timed(err, gate, a, &ta.session);
    if (status == HONE_OK) status = hn_gate_timed(err, gate, b, &tb.session);
    if (status == HONE_OK && hn_gate_on_card(gate)) status = choose_calls(err, gate, &ta, &tb);
    if (status == HONE_OK) status = timed_pair(err, gate, &ta, &tb, run_timed, &options, out_pair);
    if (status == HONE_OK) per_call(&out_pair->a, ta.calls);
    if (status == HONE_OK) per_call(&out_pair->b, tb.calls);
    if (ta.session != a) hn_session_free(ta.session);
    if (tb.session != b) hn_session_free(tb.session);
    return status;
}

hn_status hn_gate_start_pair(hone_error *err, hn_gate *gate, const hn_module *a,
                             const hn_module *b, hn_pair *out_pair) {
    timed ta = {.calls = 1, .module = a}, tb = {.calls = 1, .module = b};
    // A start on a card brings all weights there.
    hn_measure_options options = {.seconds = 0.5, .min_pairs = hn_gate_on_card(gate) ? 3 : 7, .max_pairs = 50,
                                  .seed = gate->measure.seed};
    return timed_pair(err, gate, &ta, &tb, start_timed, &options, out_pair);
}
