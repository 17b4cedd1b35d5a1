// SPDX-License-Identifier: Apache-2.0
// Data for a model: .npz files, folders of them, ONNX test-data folders, random inputs.
//
// A sample is one set of inputs that the model can run. Arrays of an .npz have the samples on their
// first axis: if the model's input has the array's rank, a sample is `batch` consecutive rows
// (`batch` is the model's fixed first dim where it has one); if it has one axis less, a sample is one
// entry without that axis. An ONNX test-data folder is one sample with reference outputs.
#ifndef HN_ONNX_DATASET_H
#define HN_ONNX_DATASET_H
#include "onnx/onnx.h"

typedef struct hn_dataset hn_dataset;

// batch 0: the model's own first dim, or 1 where it is free. HONE_ERR_INPUT naming the array or
// file that does not fit the model's inputs.
hn_status hn_dataset_open(hone_error *err, const char *path, const hn_module *module,
                          int64_t batch, hn_dataset **out_dataset);
void hn_dataset_free(hn_dataset *dataset);
int64_t hn_dataset_count(const hn_dataset *dataset); // samples
int64_t hn_dataset_batch(const hn_dataset *dataset); // rows per sample
// Inputs of one sample in the order of the model's graph inputs: borrowed views.
hn_status hn_dataset_get(hone_error *err, const hn_dataset *dataset, int64_t sample,
                         hn_tensor *out_inputs);
// Labels of a sample (batch entries) if the data has them: an integer array `labels`.
bool hn_dataset_labels(const hn_dataset *dataset, int64_t sample, const int64_t **out_labels);
// Reference output `index` of a sample (test-data folders), NULL if there is none.
const hn_tensor *hn_dataset_reference(const hn_dataset *dataset, int64_t sample, int index);

// Rows whose floats are not all finite.
typedef struct hn_broken_rows {
    int64_t rows, of;   // how many of how many; a row is an entry of the arrays' first axis
    int64_t first;      // the first one, counted from 0 over all files
    char input[64];     // what it is in
    bool infinite;      // it holds an infinity, else NaN
    bool dropped;
} hn_broken_rows;
// Takes such rows out of an .npz data set, of all arrays and the labels, where they are at most half of it and
// as many samples are left as can be split in two. Models that are fed infinities on purpose keep theirs.
void hn_dataset_drop_broken(hn_dataset *dataset, hn_broken_rows *out_rows);

// ---- made inputs --------------------------------------------------------------------------------
// Shapes of the graph inputs with free dims bound by specs "name=1x3x224x224". A free first dim that
// no spec binds is 1; another free dim is HONE_ERR_USAGE that says what to give.
hn_status hn_inputs_shapes(hone_error *err, const hn_module *module, const char *const *specs,
                           int spec_count, hn_shape *out_shapes);
// Seeded inputs: floats standard normal, integers 0 or 1, bools mixed. Owned tensors.
hn_status hn_inputs_random(hone_error *err, const hn_module *module, const hn_shape *shapes,
                           uint64_t seed, hn_tensor *out_inputs);
#endif
