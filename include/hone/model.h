// SPDX-License-Identifier: Apache-2.0
// Models and sessions: load an ONNX file, run it.
//
// A model is immutable after loading and may be shared by sessions in several threads. A session
// belongs to one thread at a time. Handles are freed with their _free function, which takes NULL.
//
// Threads: the caller's and helpers that the library starts at need; they block all signals, sleep
// when idle, and are made again after fork(). oneDNN's OpenMP regions run on them too, if the library
// is the first to load oneDNN; no other OpenMP user of the process is affected. HONE_EXECUTOR=libgomp
// in the environment keeps everything on libgomp instead.
#ifndef HONE_MODEL_H
#define HONE_MODEL_H
#include <stddef.h>
#include <stdint.h>
#include "hone/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HONE_MAX_RANK 8

// A dense row-major tensor. dtype is the ONNX code (TensorProto.DataType: 1 float32, 7 int64, ...).
// `data` is borrowed; the call that takes or fills the struct says for how long.
typedef struct hone_tensor {
    int dtype;
    int rank;
    int64_t dims[HONE_MAX_RANK];
    void *data;
    size_t bytes;
} hone_tensor;

// An input or output as the model declares it. dims are -1 where free; rank is -1 where unknown.
typedef struct hone_value_info {
    const char *name; // lives as long as the model
    int dtype;
    int rank;
    int64_t dims[HONE_MAX_RANK];
} hone_value_info;

typedef struct hone_model hone_model;
typedef struct hone_session hone_session;

// Maps and checks the file. HONE_ERR_FORMAT or HONE_ERR_LIMIT: it is broken or hostile;
// HONE_ERR_UNSUPPORTED: an operator (named in the record) is not known here.
HONE_WARN_UNUSED HONE_API hone_status hone_model_load(const char *path, hone_model **out_model,
                                                      hone_error *error);
HONE_API void hone_model_free(hone_model *model);
HONE_API int hone_model_input_count(const hone_model *model);
HONE_API int hone_model_output_count(const hone_model *model);
// HONE_ERR_USAGE when index is out of range.
HONE_WARN_UNUSED HONE_API hone_status hone_model_input(const hone_model *model, int index,
                                                       hone_value_info *out_info);
HONE_WARN_UNUSED HONE_API hone_status hone_model_output(const hone_model *model, int index,
                                                        hone_value_info *out_info);

typedef struct hone_session_options {
    const char *device; // "cpu"; NULL: the best present
    int threads;        // 0: one per CPU of the affinity mask
    int64_t plan_cache_bytes; // bound on plans kept for other shapes; 0: the default
} hone_session_options;

// options may be NULL. The model must outlive the session.
HONE_WARN_UNUSED HONE_API hone_status hone_session_new(const hone_model *model,
                                                       const hone_session_options *options,
                                                       hone_session **out_session,
                                                       hone_error *error);
HONE_API void hone_session_free(hone_session *session);

// Inputs in the model's order (data borrowed for the call). The first run with new shapes plans;
// later ones with the same shapes allocate nothing. outputs[i].data points into the session's
// memory and stays valid until its next run. HONE_ERR_INPUT: an input does not fit (it is named).
HONE_WARN_UNUSED HONE_API hone_status hone_session_run(hone_session *session,
                                                       const hone_tensor *inputs, int input_count,
                                                       hone_tensor *outputs, int output_count,
                                                       hone_error *error);

#ifdef __cplusplus
}
#endif
#endif
