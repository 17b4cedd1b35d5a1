// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences.
#include "support/test.h"
#include "support/grad_case.h"

#define X   "f64[2,3] 0.3 -0.7 1.2 -1.4 2.1 0.05"
#define POS "f64[2,3] 0.3 0.7 1.2 1.4 2.1 0.05"

static const grad_case k_unary[] = {
    {"Abs", NULL, {X}, "0"},
    {"Neg", NULL, {X}, "0"},
    {"Exp", NULL, {X}, "0"},
    {"Log", NULL, {POS}, "0"},
    {"Sqrt", NULL, {POS}, "0"},
    {"Reciprocal", NULL, {POS}, "0"},
    {"Sin", NULL, {X}, "0"},
    {"Cos", NULL, {X}, "0"},
    {"Erf", NULL, {X}, "0"},
    {"Relu", NULL, {X}, "0"},
    {"LeakyRelu", "alpha=0.25", {X}, "0"},
    {"Elu", "alpha=1.5", {X}, "0"},
    {"Sigmoid", NULL, {X}, "0"},
    {"Tanh", NULL, {X}, "0"},
    {"Softplus", NULL, {X}, "0"},
    {"Softsign", NULL, {X}, "0"},
    {"HardSigmoid", "alpha=0.5 beta=0.25", {X}, "0"},
    {"HardSwish", NULL, {"f64[4] -3.5 -1 2 4"}, "0"},
    {"Gelu", NULL, {X}, "0"},
    {"Gelu", "approximate=tanh", {X}, "0"},
    {"Swish", "alpha=1.5", {X}, "0"},
    {"Clip", NULL, {X, "f64[] -1", "f64[] 1"}, "0"},
    {"Clip", NULL, {X, "-", "f64[] 1"}, "0"},
    {"Identity", NULL, {X}, "0"},
    {"Cast", "to=11", {X}, "0"},
};

static const grad_case k_binary[] = {
    {"Add", NULL, {X, "f64[3] 1 2 3"}, "01"},
    {"Sub", NULL, {"f64[1,3] 1 2 3", X}, "01"},
    {"Mul", NULL, {X, "f64[2,1] 2 -3"}, "01"},
    {"Mul", NULL, {X, "f64[] 2"}, "01"},
    {"Div", NULL, {X, "f64[3] 1 -2 3"}, "01"},
    {"Div", NULL, {"f64[] 2", POS}, "01"},
    {"Pow", NULL, {POS, "f64[3] 2 -1 0.5"}, "01"},
    {"Sum", NULL, {X, "f64[3] 1 2 3", "f64[2,1] 1 2"}, "012"},
    {"Mean", NULL, {X, "f64[3] 1 2 3", "f64[] 1"}, "012"},
    {"Max", NULL, {X, "f64[3] 1 -2 0.5", "f64[] 0.1"}, "012"},
    {"Min", NULL, {X, "f64[3] 1 -2 0.5"}, "01"},
    {"PRelu", NULL, {X, "f64[3] 0.5 0.25 2"}, "01"},
    {"Where", NULL, {"bool[3] 1 0 1", X, "f64[] 5"}, "12"},
};

static const grad_case k_moves[] = {
    {"Reshape", NULL, {X, "i64[2] 3 -1"}, "0"},
    {"Flatten", "axis=0", {X}, "0"},
    {"Squeeze", NULL, {"f64[1,2,1] 1 2", "i64[1] -1"}, "0"},
    {"Unsqueeze", NULL, {X, "i64[2] 0 3"}, "0"},
    {"Transpose", NULL, {X}, "0"},
    {"Transpose", "perm=1,2,0", {"f64[2,1,3] 1 2 3 4 5 6"}, "0"},
    {"Expand", NULL, {"f64[2,1] 1 2", "i64[3] 4 1 3"}, "0"},
    {"Concat", "axis=-1", {X, "f64[2,1] 1 2", X}, "012"},
    {"Split", "axis=1", {X, "i64[2] 1 2"}, "0", 2},
    {"Slice", NULL, {X, "i64[2] -2 0", "i64[2] 9 1", "i64[2] 1 0"}, "0"},
    {"Slice", NULL, {X, "i64[1] 0", "i64[1] 9", "i64[1] 1", "i64[1] 2"}, "", 1, "step other than 1"},
    {"Pad", NULL, {X, "i64[4] 1 0 -1 2", "f64[] 9"}, "0"},
    {"Pad", "mode=edge", {X, "i64[4] 1 0 1 2"}, "", 1, "mode other than constant"},
    {"Trilu", "upper=0", {X, "i64[] 1"}, "0"},
    {"Gather", NULL, {X, "i64[2,2] 0 1 -1 1"}, "0"},
    {"Gather", "axis=1", {"f64[2,3,2] iota", "i64[2] 2 2"}, "0"},
    {"Gather", "axis=-1", {X, "i64[] 1"}, "0"},
    {"GatherElements", "axis=1", {X, "i64[2,2] 0 0 2 -1"}, "0"},
    {"GatherND", NULL, {X, "i64[3,1] 1 1 0"}, "0"},
    {"Dropout", NULL, {X, "f64[] 0.5", "bool[] 0"}, "0"},
    {"Dropout", NULL, {X, "f64[] 0.5", "bool[] 1"}, "0", 2},
};

static const grad_case k_reductions[] = {
    {"ReduceSum", NULL, {X, "i64[1] 1"}, "0"},
    {"ReduceSum", "keepdims=0", {X, "i64[1] -2"}, "0"},
    {"ReduceSum", "keepdims=0", {X}, "0"},
    {"ReduceSum", "noop_with_empty_axes=1 keepdims=0", {X}, "0"},
    {"ReduceMean", NULL, {X}, "0"},
    {"ReduceMean", "keepdims=0", {"f64[2,2,2] iota", "i64[2] 0 -1"}, "0"},
    {"ReduceSumSquare", "keepdims=0", {X, "i64[1] 0"}, "0"},
    {"ReduceMax", NULL, {X, "i64[1] 1"}, "0"},
    {"ReduceMin", "keepdims=0", {X, "i64[1] 0"}, "0"},
    {"CumSum", NULL, {X, "i64[] 1"}, "0"},
    {"CumSum", "exclusive=1 reverse=1", {X, "i64[] 0"}, "0"},
};

static void test_unary(void **state) { (void)state; GRAD_CASES(k_unary); }
static void test_binary(void **state) { (void)state; GRAD_CASES(k_binary); }
static void test_moves(void **state) { (void)state; GRAD_CASES(k_moves); }
static void test_reductions(void **state) { (void)state; GRAD_CASES(k_reductions); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_reductions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
