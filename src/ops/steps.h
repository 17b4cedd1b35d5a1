// SPDX-License-Identifier: Apache-2.0
// The steps of hn.Elementwise: a small program on numbers that device graphs run element by element.
//
// As text (attribute `steps`): "Mul:0:1;Sigmoid:2;Add:3:0". A step names an operator of the ONNX domain
// that has a scalar form for floats and its one or two operands: 0.. are the node's inputs, then come
// the results of the steps before. The last step is the result. Attribute `params` has the two
// parameters of the scalar form (scalar.def: a and b) for each step, or is absent where all are 0.
//
// 8-bit integers come in through "DequantizeLinear:k" of an input k that nothing else reads and leave
// through a last step "QuantizeLinear:k" with the type in attribute `to`; a is the scale, b the zero
// point.
#ifndef HN_OPS_STEPS_H
#define HN_OPS_STEPS_H
#include "ops/ops.h"

#define HN_STEPS_MAX        24
#define HN_STEPS_MAX_INPUTS 12

typedef struct hn_step {
    hn_op op;
    int operand[2]; // the second -1: none
    float a, b;
} hn_step;

typedef struct hn_steps {
    int input_count, count;
    bool small[HN_STEPS_MAX_INPUTS]; // the input is 8-bit
    hn_dtype to;                     // type of the result: float32, int8 or uint8
    hn_step step[HN_STEPS_MAX];
} hn_steps;

// Reads a node's program and checks it whole: known operators, operands that exist already.
hn_status hn_steps_read(hone_error *err, const hn_node *node, hn_steps *out_steps);
// Writes it to a node; false when out of memory.
bool hn_steps_write(hn_node *node, const hn_steps *steps);
#endif
