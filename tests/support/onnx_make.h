// SPDX-License-Identifier: Apache-2.0
// Builds small ONNX files for tests, good and broken ones, field by field.
//
// A file is written in one go: om_model, then what belongs to the graph, then om_finish. Names in
// one argument are separated by blanks; "-" is an absent one.
#ifndef HN_TEST_ONNX_MAKE_H
#define HN_TEST_ONNX_MAKE_H
#include "onnx/onnx.h"
#include "onnx/wire.h"

void om_model(hn_wire_out *w, int64_t ir_version, int64_t opset); // opens model and graph
void om_opset(hn_wire_out *w, uint32_t field, const char *domain, int64_t version);
void om_node_begin(hn_wire_out *w, uint32_t field, const char *op, const char *inputs,
                   const char *outputs); // field 1 in a graph, 7 in a function
void om_node(hn_wire_out *w, const char *op, const char *inputs, const char *outputs);
void om_end(hn_wire_out *w); // closes what was begun last
void om_int(hn_wire_out *w, const char *name, int64_t value);
void om_float(hn_wire_out *w, const char *name, float value);
void om_string(hn_wire_out *w, const char *name, const char *value);
void om_ints(hn_wire_out *w, const char *name, const int64_t *values, int count);
void om_floats(hn_wire_out *w, const char *name, const float *values, int count);
void om_ref(hn_wire_out *w, const char *name, const char *of,
            int type);                                      // of a function's attribute
void om_graph_begin(hn_wire_out *w, const char *attribute); // closed by two om_end
// dims: "2 N ?"; "" is a scalar, NULL an unknown rank. field 11 input, 12 output, 13 value_info.
void om_value(hn_wire_out *w, uint32_t field, const char *name, hn_dtype dtype, const char *dims);
// An initializer (field 5) or a Constant's "value" attribute with raw data.
void om_tensor(hn_wire_out *w, uint32_t field, const char *name, hn_dtype dtype, const char *dims,
               const void *data, size_t bytes);
void om_weights(hn_wire_out *w, const char *name, const char *dims, int count); // 0, 1/8, 2/8...
void om_i64(hn_wire_out *w, const char *name, const int64_t *values, int count);
// Closes everything; the file's bytes, freed with hn_free.
uint8_t *om_finish(hn_wire_out *w, size_t *out_bytes);
// om_finish, then parsed; the buffer is kept by the module. folder may be NULL.
hone_status om_parse(hone_error *err, hn_wire_out *w, const char *folder,
                     const hn_onnx_options *options, hn_module **out_module);
hone_status om_parse_bytes(hone_error *err, const void *data, size_t bytes, const char *folder,
                           const hn_onnx_options *options, hn_module **out_module);
#endif
