// SPDX-License-Identifier: Apache-2.0
// What a model is made of and what it costs: operator counts, parameters, FLOPs, bytes.
//
// Costs need concrete shapes: hn_inspect works on a copy whose inputs have the given shapes. Nodes
// whose shapes stay unknown then (shapes that depend on data) are counted as uncosted, not as free.
// Of an If the dearer branch is costed; a Loop's body is costed for one round.
#ifndef HN_ONNX_INSPECT_H
#define HN_ONNX_INSPECT_H
#include "onnx/onnx.h"

typedef struct hn_inspect_row {
    const char *op_type, *domain; // borrowed from the module
    bool known;                   // the op table has it in this version
    int64_t nodes, uncosted;
    double flops, read_bytes, write_bytes;
    // On a machine that does `balance` FLOPs in the time it moves a byte: time in bytes moved, and
    // the part of it in nodes that computing bounds.
    double time, compute_time;
} hn_inspect_row;

typedef struct hn_inspection {
    HN_VEC(hn_inspect_row) rows; // dearest first where costs are known, else by count
    hn_inspect_row total;
    int64_t parameters;  // elements of floating-point and quantised weights, shared ones once
    double weight_bytes; // of all constants
    int64_t graphs;      // sub-graphs included
    bool costed;         // shapes were given
    bool has_if, has_loop;
} hn_inspection;

// shapes: of the graph inputs in order, or NULL: no costs. The module must outlive the result.
hn_status hn_inspect(hone_error *err, const hn_module *module, const hn_shape *shapes,
                     double balance, hn_inspection *out_inspection);
void hn_inspection_free(hn_inspection *inspection);
#endif
