// SPDX-License-Identifier: Apache-2.0
// Inside src/onnx: where bytes come from, limits, and what import, raise and export share.
#ifndef HN_ONNX_INT_H
#define HN_ONNX_INT_H
#include "onnx/onnx.h"
#include "onnx/proto.h"

// Bounds on what a file may ask for. Real models stay far below each of them.
#define HN_ONNX_MAX_GRAPH_DEPTH 32 // sub-graphs inside sub-graphs
#define HN_ONNX_MAX_CALL_DEPTH  32 // functions calling functions
#define HN_ONNX_MAX_NODES       1048576
#define HN_ONNX_MAX_PORTS       65536 // inputs or outputs of one node
#define HN_ONNX_MAX_ATTRIBUTES  1024
#define HN_ONNX_MAX_EXTERNAL    4096               // files of external data
#define HN_ONNX_SPARSE_BYTES    ((size_t)64 << 20) // a sparse tensor made dense

typedef struct hn_onnx_external {
    const char *location; // owned by the scratch arena
    hn_buffer *file;      // owned reference
} hn_onnx_external;

// Where the bytes of a file and of its external data live.
typedef struct hn_onnx_source {
    hn_buffer *buffer;  // what the wires point into; tensors take references. Borrowed
    bool mapped;        // buffer is a mapping of ours: its pages may be given back
    const char *folder; // NULL: external data is refused
    HN_VEC(hn_onnx_external) external;
    uint64_t external_bytes; // sizes of those files
    hn_arena scratch;        // lists of the messages being read
} hn_onnx_source;
void hn_onnx_source_free(hn_onnx_source *source);

// Maps a file into a buffer that unmaps it at its end.
hn_status hn_onnx_map(hone_error *err, const char *path, hn_buffer **out_buffer);
// TensorProto and SparseTensorProto to a dense tensor. The name points into the wire.
hn_status hn_onnx_tensor(hone_error *err, hn_onnx_source *source, hn_wire wire, hn_slice *out_name,
                         hn_tensor *out_tensor);
hn_status hn_onnx_sparse(hone_error *err, hn_onnx_source *source, hn_wire wire, hn_slice *out_name,
                         hn_tensor *out_tensor);
// The fields of a TensorProto into an open message; the data is borrowed from the tensor.
// external_at >= 0: the data stands in `location` at that offset.
void hn_onnx_put_tensor(hn_wire_out *out, const char *name, const hn_tensor *tensor,
                        const char *location, int64_t external_at);

// ---- hints (hints.c)
// Metadata of an optimised file into the nodes that it speaks of.
void hn_onnx_read_hints(hn_module *module);

// ---- raising (raise.c) --------------------------------------------------------------------------
// Raises all nodes in order, inferring types on the way; what stays below its op's version and is
// in the table is HONE_ERR_UNSUPPORTED, or becomes an unknown op when keep_unknown.
hn_status hn_onnx_raise(hone_error *err, hn_module *module, const hn_onnx_options *options);
// The first opset version above `version` in which the op means something else (INT_MAX: none).
int hn_onnx_valid_until(const char *domain, const char *op_type, int version);
// The lowest version in which a node of the standard domain means what it means.
int hn_onnx_valid_from(const hn_node *node);
// The lowest opset version in which the node is valid as it stands: meaning, attributes, number and
// types of its inputs (schema.c).
int hn_onnx_needs(const hn_node *node);

#endif
