// SPDX-License-Identifier: Apache-2.0
// ONNX files: reading, writing, test data, npz.
//
// Reading maps the file; weights are views of the mapping (or of mapped external files), so peak
// memory stays near the weights' size. Depth, sizes and counts are bounded; every broken, truncated
// or hostile file gives one sentence and HONE_ERR_FORMAT or HONE_ERR_LIMIT.
#ifndef HN_ONNX_H
#define HN_ONNX_H
#include "ops/ops.h"

// The canonical opset every imported node is raised to where that is exact.
#define HN_ONNX_CANONICAL_OPSET 24
#define HN_ONNX_MIN_OPSET       7
#define HN_ONNX_MAX_OPSET       27

typedef struct hn_onnx_options {
    bool keep_unknown; // let unknown ops through (inspect, optimize: they are exported unchanged)
    bool no_raise;     // keep the file's op versions (tests)
} hn_onnx_options;

// Reads, checks, raises, inlines functions, infers. options may be NULL.
hn_status hn_onnx_load(hone_error *err, const char *path, const hn_onnx_options *options,
                       hn_module **out_module);
// The same from memory that `source` keeps alive (its reference is not taken over). `folder` is
// where external data is looked for, NULL: external data is refused.
hn_status hn_onnx_parse(hone_error *err, hn_buffer *source, const char *folder,
                        const hn_onnx_options *options, hn_module **out_module);

// Writes a standard file atomically: lowers nothing below the ops' versions; output opset = the
// higher of the file's and what the nodes need. Internal ops or posts: HONE_ERR_INTERNAL naming the
// node. Weights beyond 2 GiB in all go to `path`.data as external data.
hn_status hn_onnx_save(hone_error *err, const hn_module *module, const char *path);
typedef struct hn_onnx_save_options {
    size_t inline_limit_bytes; // weights beyond this go to `path`.data; 0: just below 2 GiB
} hn_onnx_save_options;
hn_status hn_onnx_save_with(hone_error *err, const hn_module *module, const char *path,
                            const hn_onnx_save_options *options);

// One TensorProto file (test_data_set_N/input_M.pb). Name is optional output (arena may be NULL).
hn_status hn_onnx_read_tensor(hone_error *err, const char *path, hn_arena *arena,
                              const char **out_name, hn_tensor *out_tensor);
hn_status hn_onnx_write_tensor(hone_error *err, const char *path, const char *name,
                               const hn_tensor *tensor);

// ---- npy and npz -------------------------------------------------------------------------------
typedef struct hn_npz_item {
    char *name;       // without ".npy"
    hn_tensor tensor; // row-major, native byte order; Fortran order is transposed while reading
} hn_npz_item;
typedef struct hn_npz {
    HN_VEC(hn_npz_item) items;
} hn_npz;
hn_status hn_npz_read(hone_error *err, const char *path, hn_npz *out_npz);
const hn_tensor *hn_npz_get(const hn_npz *npz, const char *name); // NULL: absent
void hn_npz_free(hn_npz *npz);
hn_status hn_npy_read(hone_error *err, const char *path, hn_tensor *out_tensor);
hn_status hn_npy_write(hone_error *err, const char *path, const hn_tensor *tensor);
hn_status hn_npz_write(hone_error *err, const char *path, const hn_npz *npz); // deflated
#endif
