// SPDX-License-Identifier: Apache-2.0
// What is wrong with the data before anything is judged by them: outputs that are no numbers, labels that
// do not fit, rows that are there twice. Where nothing is left to judge by the run ends; else the report
// says it in a sentence.
#include "optimize/optimize_int.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

__attribute__((format(printf, 2, 3))) static void note(hn_optimize_result *r, const char *format, ...) {
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

hn_status hn_optimizer_notes(hone_error *err, hn_optimizer *o) {
    hn_optimize_result *r = o->result;
    const hn_accuracy *a = &r->baseline.accuracy;
    int64_t copies = 0, rows = 0, samples = o->gate.dataset ? hn_dataset_count(o->gate.dataset) : 0;
    if (samples && a->outputs && !a->finite)
        HN_FAIL(err, HONE_ERR_INPUT, "'%s': on these data the model itself gives nothing but NaN and infinities, so that nothing can be judged by them",
                o->options->data_path);
    if (a->finite < a->outputs)
        note(r, "%lld of %lld outputs are NaN or infinite in the input model itself; they judge nothing",
             (long long)(a->outputs - a->finite), (long long)a->outputs);
    if (samples && !isnan(a->metric) && !hn_gate_labels_judge(a))
        note(r, "the input model meets the labels no better than a guess (top-1 %.4f [%.4f, %.4f]): outputs are judged instead",
             a->metric, a->metric_ci[0], a->metric_ci[1]);
    if (samples == 1)
        note(r, "there is one sample: what calibrates also judges");
    if (samples > 1) HN_TRY(count_copies(err, &o->gate, &copies, &rows));
    if (copies * 20 > rows)
        note(r, "%lld of the %lld rows that judge are copies of other rows: the intervals claim more than the data hold",
             (long long)copies, (long long)rows);
    return HONE_OK;
}
