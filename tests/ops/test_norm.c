// SPDX-License-Identifier: Apache-2.0
// Normalisations, Softmax, losses, optimiser steps on small hand-computed cases.
#include "support/test.h"
#include "support/op_case.h"

static const op_case k_norm[] = {
    {"batch statistics are given", "BatchNormalization", "epsilon=0", {"f32[1,2,2] 1 2 3 4", "f32[2] 2 1", "f32[2] 0 1", "f32[2] 1 3", "f32[2] 4 1"},
     {"f32[1,2,2] 0 1 1 2"}},
    {"training takes them from the batch", "BatchNormalization", "epsilon=0 training_mode=1 momentum=0.75",
     {"f32[2,1,2] 1 3 1 3", "f32[1] 1", "f32[1] 0", "f32[1] 0", "f32[1] 5"}, {"f32[2,1,2] -1 1 -1 1", "f32[1] 0.5", "f32[1] 4"}},
    {"one dim is one channel", "BatchNormalization", "epsilon=0", {"f32[2] 1 2", "f32[1] 1", "f32[1] 0", "f32[1] 1", "f32[1] 1"}, {"f32[2] 0 1"}},
    {"parameters of another length", "BatchNormalization", NULL, {"f32[1,2] 1 2", "f32[3] 1 1 1", "f32[2] 0 0", "f32[2] 0 0", "f32[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "3 and 2 differ"},
    {"last axis", "LayerNormalization", "epsilon=0", {"f32[2,2] 1 3 4 4.5", "f32[2] 1 2", "f32[2] 0 10"},
     {"f32[2,2] -1 12 -1 12", "f32[2,1] 2 4.25", "f32[2,1] 1 4"}},
    {"all axes, statistics in float32", "LayerNormalization", "epsilon=0 axis=0", {"f16[2,1] 1 3", "f16[1] 1"}, {"f16[2,1] -1 1", "f32[1,1] 2", "f32[1,1] 1"}},
    {"large values keep their digits", "LayerNormalization", "epsilon=0", {"f32[1,2] 16777214 16777216", "f32[] 1"}, {"f32[1,2] -1 1"}},
    {"root mean square", "RMSNormalization", "epsilon=0", {"f32[1,2] 3 4", "f32[2] 1 2"}, {"f32[1,2] 0.84852814 2.2627417"}},
    {"axis out of range", "RMSNormalization", "axis=2", {"f32[1,2] 3 4", "f32[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "axis 2"},
    {"groups of channels", "GroupNormalization", "num_groups=1 epsilon=0", {"f32[1,2,1] 1 3", "f32[2] 1 2", "f32[2] 0 10"}, {"f32[1,2,1] -1 12"}},
    {"groups do not divide", "GroupNormalization", "num_groups=2", {"f32[1,3,1] 1 2 3", "f32[3] 1 1 1", "f32[3] 0 0 0"}, {NULL}, HONE_ERR_FORMAT, "2 groups"},
    {"each plane by itself", "InstanceNormalization", "epsilon=0", {"f32[1,2,2] 1 3 5 5.5", "f32[2] 1 1", "f32[2] 0 1"}, {"f32[1,2,2] -1 1 0 2"}},
    {"even window reaches further up", "LRN", "size=2 alpha=2 beta=1 bias=1", {"f32[1,3,1] 1 2 3"}, {"f32[1,3,1] 0.16666667 0.14285714 0.3"}},
    {"a huge window", "LRN", "size=9223372036854775807 alpha=0 beta=1 bias=1", {"f32[1,2,1] 1 2"}, {"f32[1,2,1] 1 2"}},
    {"zero vector", "LpNormalization", "axis=0", {"f32[2,2] 3 0 4 0"}, {"f32[2,2] 0.6 0 0.8 0"}},
    {"L1", "LpNormalization", "p=1", {"f32[1,2] -1 3"}, {"f32[1,2] -0.25 0.75"}},
    {"default axes are 0, 2, 3", "MeanVarianceNormalization", NULL, {"f32[2,1,1,1] 1 3"}, {"f32[2,1,1,1] -1 1"}},
    {"softmax of infinities", "Softmax", NULL, {"f32[2,2] 1000 1000 -inf 0"}, {"f32[2,2] 0.5 0.5 0 1"}},
    {"NaN spoils its line", "Softmax", NULL, {"f32[2,2] nan 1 0 0"}, {"f32[2,2] nan nan 0.5 0.5"}},
    {"first axis", "Softmax", "axis=0", {"f32[2,2] 0 0 0 0"}, {"f32[2,2] 0.5 0.5 0.5 0.5"}},
    {"old form flattens", "Softmax", "axis=1", {"f32[1,2,2] 0 0 0 0"}, {"f32[1,2,2] 0.25 0.25 0.25 0.25"}, HONE_OK, NULL, 11},
    {"empty line", "Softmax", NULL, {"f32[2,0]"}, {"f32[2,0]"}},
    {"log of a sure thing", "LogSoftmax", NULL, {"f32[1,2] 0 200"}, {"f32[1,2] -200 0"}},
    {"first of equals", "Hardmax", NULL, {"f32[1,3] 1 2 2"}, {"f32[1,3] 0 1 0"}},
    {"axis of a scalar's rank", "Softmax", "axis=3", {"f32[1,2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "axis 3"},
};

// Two classes with equal scores: each log-probability is -0.6931472.
static const op_case k_loss[] = {
    {"mean by weights", "SoftmaxCrossEntropyLoss", NULL, {"f32[2,2] 0 0 0 0", "i64[2] 0 1", "f32[2] 1 3"}, {"f32[] 0.6931472", "f32[2,2] fill -0.6931472"}},
    {"ignored labels may be out of range", "SoftmaxCrossEntropyLoss", "ignore_index=-1", {"f32[2,2] 0 0 0 0", "i32[2] -1 1"}, {"f32[] 0.6931472"}},
    {"none keeps zeros", "SoftmaxCrossEntropyLoss", "ignore_index=5 reduction=none", {"f32[2,2] 0 0 0 0", "i64[2] 5 1"}, {"f32[2] 0 0.6931472"}},
    {"sum over positions", "SoftmaxCrossEntropyLoss", "reduction=sum", {"f32[1,2,2] 0 0 0 0", "i64[1,2] 0 1"}, {"f32[] 1.3862944"}},
    {"label out of range", "SoftmaxCrossEntropyLoss", NULL, {"f32[1,2] 0 0", "i64[1] 2"}, {NULL}, HONE_ERR_INPUT, "label 2"},
    {"everything ignored", "NegativeLogLikelihoodLoss", "ignore_index=0", {"f32[1,2] 0 0", "i64[1] 0"}, {"f32[] nan"}},
    {"picks by class", "NegativeLogLikelihoodLoss", "reduction=none", {"f32[1,2,2] 1 2 3 4", "i64[1,2] 1 0", "f32[2] 1 10"}, {"f32[1,2] -30 -2"}},
    {"labels of another shape", "NegativeLogLikelihoodLoss", NULL, {"f32[1,2,2] 1 2 3 4", "i64[1] 1"}, {NULL}, HONE_ERR_FORMAT, "rank 1"},
    {"unknown reduction", "NegativeLogLikelihoodLoss", "reduction=max", {"f32[1,2] 1 2", "i64[1] 1"}, {NULL}, HONE_ERR_FORMAT, "max"},
};

static const op_case k_steps[] = {
    {"first step of Momentum has beta 1", "ai.onnx.preview.training.Momentum", "alpha=0.5 beta=0.1 mode=standard norm_coefficient=0",
     {"f32[] 0.1", "i64[] 0", "f32[1] 1", "f32[1] 2", "f32[1] 4"}, {"f32[1] 0.6", "f32[1] 4"}},
    {"Nesterov looks ahead", "ai.onnx.preview.training.Momentum", "alpha=0.5 beta=1 mode=nesterov norm_coefficient=0",
     {"f32[] 0.1", "i64[] 1", "f32[1] 1", "f32[1] 2", "f32[1] 4"}, {"f32[1] 0.6", "f32[1] 4"}},
    {"Adagrad of two variables", "ai.onnx.preview.training.Adagrad", "decay_factor=1 epsilon=0 norm_coefficient=0",
     {"f32[] 1", "i64[] 1", "f32[1] 1", "f32[1] 2", "f32[1] 3", "f32[1] 4", "f32[1] 16", "f32[1] 9"}, {"f32[1] 0.7", "f32[1] 1.6", "f32[1] 25", "f32[1] 25"}},
    {"Adam at step 0 takes the rate as it is", "ai.onnx.preview.training.Adam", "alpha=0.5 beta=0.5 epsilon=0",
     {"f32[] 0.1", "i64[] 0", "f32[1] 1", "f32[1] 2", "f32[1] 0", "f32[1] 0"}, {"f32[1] 0.92928932", "f32[1] 1", "f32[1] 2"}},
    {"a tensor is missing", "ai.onnx.preview.training.Adam", NULL, {"f32[] 0.1", "i64[] 0", "f32[1] 1", "f32[1] 2", "f32[1] 0", "f32[1] 0", "f32[1] 0"},
     {"f32[1] 1", "f32[1] 1", "f32[1] 1"}, HONE_ERR_FORMAT, "groups of 4"},
};

static void test_norm(void **state) { (void)state; OP_CASES(k_norm); }
static void test_loss(void **state) { (void)state; OP_CASES(k_loss); }
static void test_steps(void **state) { (void)state; OP_CASES(k_steps); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
