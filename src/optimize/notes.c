// SPDX-License-Identifier: Apache-2.0
// What is wrong with the data before anything is judged by them: outputs that are no numbers, labels that
// do not fit, rows that are there twice. Where nothing is left to judge by the run ends; else the report
// says it in a sentence.
#include "optimize/optimize_int.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

void hn_optimizer_note(hn_optimizer *o, const char *format, ...) {
    hn_optimize_result *r = o->result;
    if (r->note_count == HN_MAX_NOTES) return;
    va_list args;
    va_start(args, format);
    vsnprintf(r->notes[r->note_count], sizeof r->notes[0], format, args);
    va_end(args);
    r->note_count++;
}

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// A number for each row of a sample; an input whose first dim is not the batch counts into all of them.
static hn_status hash_rows(hone_error *err, const hn_gate *gate, int64_t sample, int64_t batch, uint64_t *out) {
    hn_tensor in[HN_MAX_KERNEL_IO];
    HN_TRY(hn_gate_inputs(err, gate, sample, in));
    for (int64_t row = 0; row < batch; row++)
        out[row] = 0;
    for (int i = 0; i < gate->input_count; i++) {
        bool by_row = in[i].shape.rank > 0 && in[i].shape.dims[0] == batch;
        size_t bytes = by_row ? in[i].bytes / (size_t)batch : in[i].bytes;
        for (int64_t row = 0; row < batch; row++)
            out[row] = hn_hash_bytes((const char *)in[i].data + (by_row ? (size_t)row * bytes : 0), bytes, out[row]);
    }
    return HONE_OK;
}

// Rows that judge and are copies of other rows of the data. Calibrating rows are marked by their lowest bit.
static hn_status count_copies(hone_error *err, const hn_gate *gate, int64_t *out_copies, int64_t *out_rows) {
    int64_t batch = hn_gate_rows(gate), samples = hn_dataset_count(gate->dataset), judging = 0;
    uint64_t *rows = hn_calloc((size_t)samples * (size_t)batch + 1, sizeof *rows);
    if (!rows) HN_NOMEM(err, "looking at the data");
    hone_status status = HONE_OK;
    int64_t count = 0;
    for (int split = 0; split < 2 && status == HONE_OK; split++) {
        for (int64_t s = 0; s < hn_gate_samples(gate, split) && status == HONE_OK; s++) {
            status = hash_rows(err, gate, hn_gate_sample(gate, split, s), batch, rows + count);
            for (int64_t row = 0; row < batch; row++)
                rows[count + row] = (rows[count + row] & ~(uint64_t)1) | (split == HN_SPLIT_GATE);
            judging += split == HN_SPLIT_GATE ? batch : 0;
            count += batch;
        }
    }
    qsort(rows, (size_t)count, sizeof *rows, by_number);
    // One of equal rows counts as seen for the first time: a calibrating one where there is any.
    int64_t copies = 0;
    for (int64_t i = 1; i < count; i++)
        copies += (rows[i] & 1) && (rows[i] & ~(uint64_t)1) == (rows[i - 1] & ~(uint64_t)1);
    hn_free(rows);
    *out_copies = copies;
    *out_rows = judging;
    return status;
}

// ---- outputs that a constant would pass for -----------------------------------------------------
typedef struct spread {
    int64_t rows;
    double square;          // of all numbers
    double *mean;           // by element of a row; owned
    int64_t width, agree;   // agree: rows whose largest class is that of the mean
    bool classes, comparable;
} spread;

// Adds the rows of a reference, or counts those whose answer is the mean's. A sample whose first dim is not the
// batch is one row.
static void add_rows(const hn_tensor *t, int64_t batch, bool again, spread *s) {
    int64_t rows = t->shape.rank > 0 && t->shape.dims[0] == batch ? batch : 1, width = hn_tensor_count(t) / rows;
    if (width != s->width) s->comparable = false;
    for (int64_t row = 0; row < rows && s->comparable; row++) {
        int64_t best = 0;
        for (int64_t i = 0; i < width && again; i++)
            if (s->mean[i] > s->mean[best]) best = i;
        if (again) {
            s->agree += hn_tensor_argmax(t, row * width, width) == best;
            continue;
        }
        for (int64_t i = 0; i < width; i++) {
            double x = hn_tensor_get_f64(t, row * width + i);
            s->comparable = s->comparable && isfinite(x);
            s->square += x * x;
            s->mean[i] += x;
        }
        s->rows++;
    }
}

// Would a model that always gives the mean of its outputs come near being accepted for this one?
#define SAME_ANSWERS  0.99
#define NEAR_CONSTANT 0.98
static hn_status constant_passes(hone_error *err, const hn_gate *gate, int output, bool *out_passes) {
    int64_t samples = hn_gate_samples(gate, HN_SPLIT_GATE), batch = hn_gate_rows(gate);
    const hn_tensor *first = &gate->references[hn_gate_sample(gate, HN_SPLIT_GATE, 0) * gate->output_count + output];
    spread s = {.comparable = true};
    s.width = hn_tensor_count(first) / (first->shape.rank > 0 && first->shape.dims[0] == batch ? batch : 1);
    s.classes = first->shape.rank == 2 && first->shape.dims[1] > 1;
    s.mean = hn_calloc((size_t)s.width + 1, sizeof *s.mean);
    if (!s.mean) HN_NOMEM(err, "looking at the data");
    for (int again = 0; again <= s.classes; again++)
        for (int64_t k = 0; k < samples; k++)
            add_rows(&gate->references[hn_gate_sample(gate, HN_SPLIT_GATE, k) * gate->output_count + output], batch, again, &s);
    double mean = 0;
    for (int64_t i = 0; i < s.width; i++)
        mean += s.mean[i] * s.mean[i];
    hn_free(s.mean);
    // Of the mean and all rows; both all zero is the same.
    double cosine = s.square > 0 ? sqrt(mean / (double)s.rows / s.square) : 1;
    bool answers = s.classes && (double)s.agree >= SAME_ANSWERS * (double)s.rows;
    // Where every row has the same answer the cosine alone would judge, and needs something to see. Not of the
    // budget: a wide one is the user's own.
    double near = s.classes ? NEAR_CONSTANT : 1 - 1e-5;
    *out_passes = s.comparable && s.rows > 1 && (answers || !s.classes) && cosine >= near;
    return HONE_OK;
}

static hn_status all_constant(hone_error *err, const hn_gate *gate, bool *out_all) {
    *out_all = false;
    for (int i = 0; i < gate->output_count; i++) {
        const hn_tensor *t = &gate->references[hn_gate_sample(gate, HN_SPLIT_GATE, 0) * gate->output_count + i];
        if (!hn_dtype_is_float(t->dtype) || !hn_tensor_count(t)) continue;
        HN_TRY(constant_passes(err, gate, i, out_all));
        if (!*out_all) return HONE_OK;
    }
    return HONE_OK;
}

// ---- what the data can show ---------------------------------------------------------------------
// Fewer rows than this could all stay as they are while the budget is exceeded twentyfold (at 95 %).
static int64_t least_rows(const hn_optimizer *o) {
    const hn_accuracy *a = &o->result->baseline.accuracy;
    if (isnan(a->agreement) && isnan(a->metric)) return 2; // every element of a row judges
    double share = fmin(0.9, 20 * (1 - o->gate.budget.min_agreement));
    return hn_max_i64(2, (int64_t)ceil(log(0.05) / log(1 - share)));
}

#define UNFIT(o, ...) snprintf((o)->unfit, sizeof (o)->unfit, __VA_ARGS__)

// o->unfit, by the first of the reasons that there are.
static hn_status look_at_data(hone_error *err, hn_optimizer *o, int64_t samples) {
    const hn_accuracy *a = &o->result->baseline.accuracy;
    int64_t copies = 0, rows = 0, least = least_rows(o);
    bool constant = false;
    if (samples > 1) HN_TRY(count_copies(err, &o->gate, &copies, &rows));
    if (isnan(a->metric)) HN_TRY(all_constant(err, &o->gate, &constant));
    if (copies * 20 > rows)
        hn_optimizer_note(o, "%lld of the %lld rows that judge are copies of other rows: the intervals claim more than the data hold",
                          (long long)copies, (long long)rows);
    if (!isnan(a->metric) && !hn_gate_labels_judge(a))
        UNFIT(o, "the input model meets the labels no better than a guess (top-1 %.4f [%.4f, %.4f], a guess %.4f): inputs "
              "scaled as in training and labels in its order, of several classes, would prove it",
              a->metric, a->metric_ci[0], a->metric_ci[1], a->chance);
    else if (samples == 1)
        UNFIT(o, "there is one sample: what calibrates also judges");
    else if (rows - copies < least)
        UNFIT(o, "%lld rows are left to judge without copies: with fewer than %lld a loss of twenty times the budget could go unseen, "
              "%lld would prove the budget", (long long)(rows - copies), (long long)least,
              (long long)hn_max_i64(least, hn_wilson_needed(1, o->gate.budget.min_agreement)));
    else if (constant)
        UNFIT(o, "the outputs hardly change from row to row: a model that always gives the same would hardly be told from it; inputs scaled "
              "as in training would show more");
    return HONE_OK;
}

static void note_broken(hn_optimizer *o) {
    const hn_broken_rows *b = &o->gate.broken;
    if (!b->rows) return;
    if (b->dropped)
        hn_optimizer_note(o, "row %lld of input '%s' (counted from 0) holds %s, one of %lld such rows of %lld: they are left out",
                          (long long)b->first, b->input, b->infinite ? "an infinity" : "NaN", (long long)b->rows, (long long)b->of);
    else
        hn_optimizer_note(o, "row %lld of input '%s' (counted from 0) holds %s, one of %lld such rows of %lld: too many to leave them out",
                          (long long)b->first, b->input, b->infinite ? "an infinity" : "NaN", (long long)b->rows, (long long)b->of);
}

hn_status hn_optimizer_notes(hone_error *err, hn_optimizer *o) {
    hn_optimize_result *r = o->result;
    const hn_accuracy *a = &r->baseline.accuracy;
    int64_t samples = o->gate.dataset ? hn_dataset_count(o->gate.dataset) : 0;
    if (samples && a->outputs && !a->finite)
        HN_FAIL(err, HONE_ERR_INPUT, "'%s': on these data the model itself gives nothing but NaN and infinities, so that nothing can be judged by them",
                o->options->data_path);
    note_broken(o);
    if (a->finite < a->outputs)
        hn_optimizer_note(o, "%lld of %lld outputs are NaN or infinite in the input model itself; they judge nothing",
                          (long long)(a->outputs - a->finite), (long long)a->outputs);
    if (samples) HN_TRY(look_at_data(err, o, samples));
    if (*o->unfit) hn_optimizer_note(o, "%s; nothing that may lose accuracy is kept on these data", o->unfit);
    return HONE_OK;
}

// Twice as long and long enough to be felt where processes start often.
void hn_optimizer_note_start(hn_optimizer *o) {
    double before = o->result->baseline.start_ms, after = o->result->result.start_ms;
    if (o->result->copied || after < 2 * before || after - before < 1) return;
    hn_optimizer_note(o, "the start (load, plan, first run) takes %.1fx as long: %.1f ms before, %.1f ms now", after / before,
                      before, after);
}
