// SPDX-License-Identifier: Apache-2.0
// Table-driven cases of single ops: a row is text, run through the reference and compared.
//
// Tensors: "f32[1,1,2,2] 1 2 3 4"; elements may be nan, inf, -inf; "iota" counts from 0, "fill V"
// repeats V. "-" is an absent input or an output that is not wanted. Attributes: "pads=1,1,1,1
// mode=linear"; their types come from the op's schema.
//
// Every row also checks inference: with each input dim a symbol of its own it must reach the same
// output dims under the binding of the symbols (dims that stay unknown are let through), and with
// unknown input types it must not fail.
#ifndef HN_TEST_OP_CASE_H
#define HN_TEST_OP_CASE_H
#include "ops/ops.h"

#define OP_CASE_INPUTS 9
#define OP_CASE_OUTPUTS 4

typedef struct op_case {
    const char *name;
    const char *op;      // "Conv"; "hn.ConvGradData" for other domains
    const char *attrs;   // NULL: none
    const char *in[OP_CASE_INPUTS];
    const char *out[OP_CASE_OUTPUTS];
    hone_status fails;   // expected failure, HONE_OK: none; `text` must be part of the sentence
    const char *text;
    int version;         // opset version of the node; 0: the row's
    bool sizes_known;    // what it gives holds for constant dims only
} op_case;

// Parses a tensor text; aborts the test where it is malformed.
hn_tensor op_tensor(const char *text);
// A node for the case in a new module; inputs become graph inputs with the tensors' types.
hn_node *op_case_node(hn_module *module, const op_case *c, hn_tensor *tensors, int *out_inputs);
// Runs the rows and fails the test with the names of those that do not hold.
void op_cases_run(const op_case *cases, size_t count);
#define OP_CASES(table) op_cases_run(table, HN_COUNT_OF(table))
#endif
