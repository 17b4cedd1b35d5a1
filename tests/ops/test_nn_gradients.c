// SPDX-License-Identifier: Apache-2.0
// Gradients of the neural-network families against central differences.
#include "support/test.h"
#include "support/grad_case.h"

// Values without ties, so that maxima keep their place under a small step.
#define X5   "f64[1,1,5] 0.3 -0.7 1.2 -1.4 2.1"
#define X33  "f64[1,2,3,3] 0.3 -0.7 1.2 -1.4 2.1 0.05 0.9 -0.2 0.6 1.1 0.4 -0.9 0.8 -1.3 0.2 1.7 -0.5 0.7"
#define W22  "f64[2,2,2,2] 0.1 -0.2 0.3 0.4 -0.5 0.6 0.7 -0.8 0.9 1.0 -1.1 1.2 1.3 -1.4 0.5 0.6"
#define W2G  "f64[4,1,2,2] 0.1 -0.2 0.3 0.4 -0.5 0.6 0.7 -0.8 0.9 1.0 -1.1 1.2 1.3 -1.4 0.5 0.6"
#define A23  "f64[2,3] 0.3 -0.7 1.2 -1.4 2.1 0.05"
#define B32  "f64[3,2] 0.5 1.5 -0.5 0.25 0.75 -1"

static const grad_case k_conv[] = {
    {"Conv", NULL, {X33, W22, "f64[2] 0.5 -0.5"}, "012"},
    {"Conv", "strides=2,1 pads=1,0,0,2", {X33, W22}, "01"}, // rows behind the last stride get nothing
    {"Conv", "dilations=2,1 pads=0,1,0,0", {X33, W22}, "01"},
    {"Conv", "group=2 auto_pad=SAME_LOWER", {X33, W2G, "f64[4] 0 0 0 0"}, "012"},
    {"Conv", "auto_pad=SAME_UPPER strides=2,2", {X33, W22}, "01"},
    {"Conv", "strides=3 pads=2,0", {X5, "f64[2,1,2] 0.1 0.2 0.3 0.4"}, "01"},
};

static const grad_case k_pool[] = {
    {"MaxPool", "kernel_shape=2,2 pads=1,0,0,1", {X33}, "0"}, // windows overlap
    {"MaxPool", "kernel_shape=2 strides=2 ceil_mode=1", {X5}, "0"},
    {"MaxPool", "kernel_shape=2 dilations=2", {X5}, "0"},
    {"AveragePool", "kernel_shape=2,2 pads=1,0,0,1", {X33}, "0"},
    {"AveragePool", "kernel_shape=3 strides=2 pads=1,1 ceil_mode=1 count_include_pad=1", {X5}, "0"},
    {"GlobalAveragePool", NULL, {X33}, "0"},
};

static const grad_case k_products[] = {
    {"MatMul", NULL, {A23, B32}, "01"},
    {"MatMul", NULL, {"f64[3] 1 2 3", B32}, "01"},
    {"MatMul", NULL, {A23, "f64[3] 1 -2 3"}, "01"},
    {"MatMul", NULL, {"f64[2] 1 2", "f64[2] 3 4"}, "01"},
    {"MatMul", NULL, {"f64[2,1,1,2] 1 2 3 4", "f64[3,2,1] 1 2 3 4 5 6"}, "01"}, // both broadcast
    {"Gemm", NULL, {A23, B32}, "01"},
    {"Gemm", "alpha=0.5 beta=2 transA=1", {"f64[3,2] 1 2 3 4 5 6", B32, "f64[2] 1 2"}, "012"},
    {"Gemm", "alpha=0.5 transB=1", {A23, "f64[2,3] 1 2 3 4 5 6", "f64[2,1] 1 2"}, "012"},
    {"Gemm", "transA=1 transB=1", {"f64[3,2] 1 2 3 4 5 6", "f64[2,3] 1 2 3 4 5 6", "f64[] 1"}, "012"},
};

static const grad_case k_norm[] = {
    {"BatchNormalization", "training_mode=1", {X33, "f64[2] 1.5 -0.5", "f64[2] 0 1", "f64[2] 0 0", "f64[2] 1 1"}, "012"},
    {"BatchNormalization", "training_mode=1", {"f64[4,2] 1 2 3 5 -1 4 0.5 7", "f64[2] 1.5 -0.5", "f64[2] 0 1", "f64[2] 0 0", "f64[2] 1 1"}, "012"},
    // outside training the statistics are constants
    {"BatchNormalization", NULL, {X33, "f64[2] 1.5 -0.5", "f64[2] 0 1", "f64[2] 0.5 0.1", "f64[2] 2 3"}, "012"},
    {"Softmax", NULL, {A23}, "0"},
    {"Softmax", "axis=0", {A23}, "0"},
    {"LogSoftmax", "axis=1", {X33}, "0"},
};

static const grad_case k_loss[] = {
    {"SoftmaxCrossEntropyLoss", NULL, {A23, "i64[2] 2 0"}, "0"},
    {"SoftmaxCrossEntropyLoss", "reduction=sum", {A23, "i64[2] 2 0", "f64[3] 1 2 3"}, "0"},
    {"SoftmaxCrossEntropyLoss", "reduction=none ignore_index=-1", {A23, "i64[2] -1 0", "f64[3] 1 2 3"}, "0"},
    {"SoftmaxCrossEntropyLoss", "ignore_index=7", {A23, "i64[2] 7 1", "f64[3] 1 2 3"}, "0"},
    {"SoftmaxCrossEntropyLoss", NULL, {X33, "i64[1,3,3] 0 1 0 1 1 0 0 1 0"}, "0"},
    {"SoftmaxCrossEntropyLoss", NULL, {A23, "i64[2] 2 0"}, "0", 2}, // through the log-probabilities too
};

static void test_conv(void **state) { (void)state; GRAD_CASES(k_conv); }
static void test_pool(void **state) { (void)state; GRAD_CASES(k_pool); }
static void test_products(void **state) { (void)state; GRAD_CASES(k_products); }
static void test_norm(void **state) { (void)state; GRAD_CASES(k_norm); }
static void test_loss(void **state) { (void)state; GRAD_CASES(k_loss); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv), cmocka_unit_test(test_pool), cmocka_unit_test(test_products),
        cmocka_unit_test(test_norm), cmocka_unit_test(test_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
