// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences in double: a row is text, as in op_case.h.
//
// The loss is the sum of all float outputs weighted by fixed odd numbers; the node's gradient
// function builds a graph, references run it, and every element of every input named in `check` is
// compared with (loss(x + h) - loss(x - h)) / 2h.
#ifndef HN_TEST_GRAD_CASE_H
#define HN_TEST_GRAD_CASE_H
#include "support/op_case.h"

typedef struct grad_case {
    const char *op;
    const char *attrs;             // NULL: none
    const char *in[OP_CASE_INPUTS]; // f64 where differentiated; others are constants
    const char *check;             // which inputs have a gradient: "01"
    int outputs;                   // 0: one
    const char *fails;             // expected sentence of the gradient function, NULL: none
} grad_case;

void grad_cases_run(const grad_case *cases, size_t count);
#define GRAD_CASES(table) grad_cases_run(table, HN_COUNT_OF(table))
#endif
