// SPDX-License-Identifier: Apache-2.0
// Gather, Scatter, dynamic shapes, reductions, sorting, signals and random ops on hand-computed
// cases: indices out of range, ties, empty axes, NaN, wrap-around.
#include "support/test.h"
#include <math.h>
#include "support/op_case.h"

static const op_case k_gather[] = {
    {"rows, also from the end", "Gather", NULL, {"f32[3,2] iota", "i64[2] -1 0"}, {"f32[2,2] 4 5 0 1"}},
    {"a scalar index drops the axis", "Gather", "axis=1", {"f32[2,3] iota", "i32[] 1"}, {"f32[2] 1 4"}},
    {"4-bit numbers", "Gather", NULL, {"i4[3] -8 1 7", "i64[2] 2 0"}, {"i4[2] 7 -8"}},
    {"out of range", "Gather", NULL, {"f32[2] 1 2", "i64[1] 2"}, {NULL}, HONE_ERR_INPUT, "index 2"},
    {"too far from the end", "Gather", NULL, {"f32[2] 1 2", "i64[1] -3"}, {NULL}, HONE_ERR_INPUT, "index -3"},
    {"no indices", "Gather", NULL, {"f32[2,2] iota", "i64[0]"}, {"f32[0,2]"}},
    {"an index into nothing", "Gather", NULL, {"f32[0]", "i64[1] 0"}, {NULL}, HONE_ERR_INPUT, "dim of 0"},
    {"elements", "GatherElements", "axis=1", {"f32[2,2] 1 2 3 4", "i64[2,1] 1 -2"}, {"f32[2,1] 2 3"}},
    {"elements beyond another axis", "GatherElements", "axis=1", {"f32[1,2] 1 2", "i64[2,1] 0 0"}, {NULL}, HONE_ERR_INPUT, "axis 0"},
    {"whole rows", "GatherND", NULL, {"f32[2,2] iota", "i64[2,1] 1 0"}, {"f32[2,2] 2 3 0 1"}},
    {"by batch", "GatherND", "batch_dims=1", {"f32[2,2] iota", "i64[2,1] 1 0"}, {"f32[2] 1 2"}},
    {"more numbers than dims", "GatherND", NULL, {"f32[2] 0 1", "i64[1,2] 0 0"}, {NULL}, HONE_ERR_FORMAT, "do not fit"},
    {"the last write stays", "ScatterElements", NULL, {"f32[3] 0 0 0", "i64[2] 1 -2", "f32[2] 5 7"}, {"f32[3] 0 7 0"}},
    {"writes add up", "ScatterElements", "reduction=add", {"i8[2] 100 1", "i64[2] 0 0", "i8[2] 20 20"}, {"i8[2] -116 1"}},
    {"products", "ScatterElements", "axis=1 reduction=mul", {"f32[1,3] 1 2 3", "i64[1,2] 2 2", "f32[1,2] 2 4"}, {"f32[1,3] 1 2 24"}},
    {"NaN in a maximum", "ScatterElements", "reduction=max", {"f32[2] 1 2", "i64[2] 0 1", "f32[2] nan 1"}, {"f32[2] nan 2"}},
    {"a reduction that does not exist", "ScatterElements", "reduction=sub", {"f32[1] 1", "i64[1] 0", "f32[1] 1"}, {NULL}, HONE_ERR_FORMAT, "sub"},
    {"scatter out of range", "ScatterElements", NULL, {"f32[1] 1", "i64[1] 1", "f32[1] 1"}, {NULL}, HONE_ERR_INPUT, "index 1"},
    {"rows", "ScatterND", NULL, {"f32[3,2] fill 0", "i64[1,1] -1", "f32[1,2] 1 2"}, {"f32[3,2] 0 0 0 0 1 2"}},
    {"rows add up", "ScatterND", "reduction=add", {"f32[2] 1 1", "i64[3,1] 0 0 1", "f32[3] 1 2 3"}, {"f32[2] 4 4"}},
    {"minimum of bool is and", "ScatterND", "reduction=mul", {"bool[2] 1 1", "i64[1,1] 0", "bool[1] 0"}, {"bool[2] 0 1"}},
    {"updates of the wrong shape", "ScatterND", NULL, {"f32[2,2] iota", "i64[1,1] 0", "f32[1,3] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "equal"},
    {"a scalar as updates", "ScatterND", NULL, {"f32[2,2] iota", "i64[1,1] 0", "f32[] 1"}, {NULL}, HONE_ERR_FORMAT, "0 dims"},
    {"cache at positions", "TensorScatter", NULL, {"f32[2,3,1] fill 0", "f32[2,1,1] 1 2", "i64[2] 2 0"}, {"f32[2,3,1] 0 0 1 2 0 0"}},
    {"cache goes round", "TensorScatter", "mode=circular", {"f32[1,3,1] fill 0", "f32[1,2,1] 1 2", "i64[1] 2"}, {"f32[1,3,1] 2 0 1"}},
    {"cache overflows", "TensorScatter", NULL, {"f32[1,3,1] fill 0", "f32[1,2,1] 1 2", "i64[1] 2"}, {NULL}, HONE_ERR_INPUT, "position 2"},
    {"one hot, last axis", "OneHot", NULL, {"i64[3] 0 -1 9", "i64[] 2", "f32[2] 5 6"}, {"f32[3,2] 6 5 5 6 5 5"}},
    {"one hot, first axis, float depth", "OneHot", "axis=0", {"f32[2] 1 0", "f32[1] 2", "i32[2] 0 1"}, {"i32[2,2] 0 1 1 0"}},
    {"a negative depth", "OneHot", NULL, {"i64[1] 0", "i64[] -1", "f32[2] 0 1"}, {NULL}, HONE_ERR_FORMAT, "negative"},
    {"overlaps add up", "Col2Im", NULL, {"f32[1,2,2] 1 2 3 4", "i64[2] 1 3", "i64[2] 1 2"}, {"f32[1,1,1,3] 1 5 4"}},
    {"columns that do not fit", "Col2Im", NULL, {"f32[1,2,3] iota", "i64[2] 1 3", "i64[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "columns"},
    {"a dilation that overflows", "Col2Im", "dilations=1,9223372036854775807", {"f32[1,3,1] iota", "i64[2] 1 3", "i64[2] 1 3"}, {NULL}, HONE_ERR_FORMAT, "do not fit"},
};

static const op_case k_dynamic[] = {
    {"positions by dim", "NonZero", NULL, {"f32[2,2] 0 3 nan 0"}, {"i64[2,2] 0 1 1 0"}},
    {"nothing found", "NonZero", NULL, {"bool[3] 0 0 0"}, {"i64[1,0]"}},
    {"a scalar has no dims", "NonZero", NULL, {"i32[] 5"}, {"i64[0,1]"}},
    {"flat", "Compress", NULL, {"f32[2,2] 1 2 3 4", "bool[3] 0 1 1"}, {"f32[2] 2 3"}},
    {"columns", "Compress", "axis=-1", {"f32[2,3] iota", "bool[2] 0 1"}, {"f32[2,1] 1 4"}},
    {"more conditions than elements", "Compress", "axis=0", {"f32[1] 5", "bool[3] 1 1 1"}, {"f32[1] 5"}},
    {"sorted, first places, counts", "Unique", NULL, {"f32[5] 2 1 2 nan nan"}, {"f32[3] 1 2 nan", "i64[3] 1 0 3", "i64[5] 1 0 1 2 2", "i64[3] 1 2 2"}},
    {"in order of appearance", "Unique", "sorted=0", {"i32[4] 3 1 3 2"}, {"i32[3] 3 1 2", "i64[3] 0 1 3", "i64[4] 0 1 0 2", "i64[3] 2 1 1"}},
    {"columns", "Unique", "axis=1", {"i8[2,3] 1 0 1 2 1 2"}, {"i8[2,2] 0 1 1 2", "i64[2] 1 0", "i64[3] 1 0 1", "i64[2] 1 2"}},
    {"of nothing", "Unique", NULL, {"i64[0]"}, {"i64[0]", "i64[0]", "i64[0]", "i64[0]"}},
};

static const op_case k_reduce[] = {
    {"every axis by default", "ReduceSum", NULL, {"f32[2,2] 1 2 3 4"}, {"f32[1,1] 10"}},
    {"one axis away", "ReduceSum", "keepdims=0", {"f32[2,2] 1 2 3 4", "i64[1] -1"}, {"f32[2] 3 7"}},
    {"axes out of order", "ReduceMax", "keepdims=0", {"f32[2,2,2] iota", "i64[2] 2 0"}, {"f32[2] 5 7"}},
    {"no axes is no reduction", "ReduceSumSquare", "noop_with_empty_axes=1", {"f32[2] 3 -2", "i64[0]"}, {"f32[2] 9 4"}},
    {"an axis that is not there", "ReduceSum", NULL, {"f32[2] 1 2", "i64[1] 1"}, {NULL}, HONE_ERR_FORMAT, "axis 1"},
    {"an axis given twice", "ReduceSum", NULL, {"f32[1,2] 1 2", "i64[2] 1 -1"}, {NULL}, HONE_ERR_FORMAT, "twice"},
    {"sum of nothing", "ReduceSum", "keepdims=0", {"f32[0,2]", "i64[1] 0"}, {"f32[2] 0 0"}},
    {"product of nothing", "ReduceProd", NULL, {"i32[0]"}, {"i32[1] 1"}},
    {"maximum of nothing", "ReduceMax", NULL, {"f32[0]"}, {"f32[1] -inf"}},
    {"minimum of nothing, integers", "ReduceMin", NULL, {"i8[0]"}, {"i8[1] 127"}},
    {"mean of nothing", "ReduceMean", NULL, {"f32[0]"}, {"f32[1] nan"}},
    {"log of a sum of nothing", "ReduceLogSum", NULL, {"f32[0]"}, {"f32[1] -inf"}},
    {"log of exponentials of nothing", "ReduceLogSumExp", NULL, {"f32[0]"}, {"f32[1] -inf"}},
    {"large exponents", "ReduceLogSumExp", NULL, {"f32[2] 1000 1000"}, {"f32[1] 1000.6931"}},
    {"infinite exponents", "ReduceLogSumExp", "keepdims=0", {"f32[3,2] -inf -inf inf 1 nan 1", "i64[1] 1"}, {"f32[3] -inf inf nan"}},
    {"NaN in a maximum", "ReduceMax", NULL, {"f32[3] 1 nan 2"}, {"f32[1] nan"}},
    {"NaN in a minimum", "ReduceMin", NULL, {"f32[3] nan 1 2"}, {"f32[1] nan"}},
    {"any of bool", "ReduceMax", "keepdims=0", {"bool[2,2] 0 0 0 1", "i64[1] 1"}, {"bool[2] 0 1"}},
    {"all of bool", "ReduceMin", "keepdims=0", {"bool[2,2] 1 1 0 1", "i64[1] 1"}, {"bool[2] 1 0"}},
    {"integer sums wrap", "ReduceSum", NULL, {"i32[2] 2147483647 1"}, {"i32[1] -2147483648"}},
    {"integer means are cut off", "ReduceMean", NULL, {"i32[2] -3 0"}, {"i32[1] -1"}},
    {"float16 sums in double", "ReduceSum", NULL, {"f16[3] 2048 1 1"}, {"f16[1] 2050"}},
    {"L1", "ReduceL1", NULL, {"i32[3] -1 2 -3"}, {"i32[1] 6"}},
    {"L2", "ReduceL2", NULL, {"f32[2] 3 -4"}, {"f32[1] 5"}},
    {"L2 of integers", "ReduceL2", NULL, {"i32[2] 3 4"}, {"i32[1] 5"}},
    {"log of a sum", "ReduceLogSum", NULL, {"f32[2] 1 1"}, {"f32[1] 0.69314718"}},
    {"first of equals", "ArgMax", "keepdims=0", {"f32[4] 1 3 3 2"}, {"i64[] 1"}},
    {"last of equals", "ArgMax", "keepdims=0 select_last_index=1", {"f32[4] 1 3 3 2"}, {"i64[] 2"}},
    {"NaN is the extreme", "ArgMin", "axis=-1", {"f32[1,3] 1 nan 0"}, {"i64[1,1] 1"}},
    {"minimum on the first axis", "ArgMin", NULL, {"u64[2,2] 9 1 2 18446744073709549568"}, {"i64[1,2] 1 0"}},
    {"extreme of nothing", "ArgMax", "axis=1", {"f32[2,0]"}, {NULL}, HONE_ERR_INPUT, "empty"},
};

static const op_case k_sort[] = {
    {"ties keep the lower index", "TopK", NULL, {"f32[4] 1 3 3 2", "i64[1] 3"}, {"f32[3] 3 3 2", "i64[3] 1 2 3"}},
    {"smallest, first axis", "TopK", "axis=0 largest=0", {"i32[3,2] 5 1 3 2 4 0", "i64[1] 2"}, {"i32[2,2] 3 0 4 1", "i64[2,2] 1 2 2 0"}},
    {"k of 0", "TopK", NULL, {"f32[2] 1 2", "i64[1] 0"}, {"f32[0]", "i64[0]"}},
    {"k too large", "TopK", NULL, {"f32[2] 1 2", "i64[1] 3"}, {"f32[2] 1 2", "i64[2] 0 1"}, HONE_ERR_FORMAT, "k is 3"},
    {"only the indices", "TopK", NULL, {"f32[2] 1 2", "i64[1] 1"}, {"-", "i64[1] 1"}},
    {"running sum", "CumSum", NULL, {"f32[2,3] 1 2 3 4 5 6", "i64[] 1"}, {"f32[2,3] 1 3 6 4 9 15"}},
    {"exclusive, from the end", "CumSum", "exclusive=1 reverse=1", {"i32[3] 1 2 3", "i32[] -1"}, {"i32[3] 5 3 0"}},
    {"running product", "CumProd", NULL, {"i32[3] 2 3 4", "i64[] 0"}, {"i32[3] 2 6 24"}, HONE_OK, NULL, 26},
    {"exclusive product", "CumProd", "exclusive=1", {"f32[3] 2 3 4", "i64[] 0"}, {"f32[3] 1 2 6"}, HONE_OK, NULL, 26},
    {"axis beyond the rank", "CumSum", NULL, {"f32[1] 1", "i64[] 1"}, {NULL}, HONE_ERR_FORMAT, "axis 1"},
};

static const op_case k_signal[] = {
    {"Hann, periodic", "HannWindow", NULL, {"i64[] 4"}, {"f32[4] 0 0.5 1 0.5"}},
    {"Hann, symmetric", "HannWindow", "periodic=0", {"i64[] 3"}, {"f32[3] 0 1 0"}},
    {"Hamming in double", "HammingWindow", "output_datatype=11", {"i32[] 2"}, {"f64[2] 0.08695652173913 1"}},
    {"Blackman", "BlackmanWindow", NULL, {"i64[] 2"}, {"f32[2] 0 1"}},
    {"a window of one", "HannWindow", "periodic=0", {"i64[] 1"}, {"f32[1] 1"}},
    {"no window", "BlackmanWindow", NULL, {"i64[] 0"}, {"f32[0]"}},
    {"a negative window", "HannWindow", NULL, {"i64[] -1"}, {NULL}, HONE_ERR_FORMAT, "negative"},
    {"four points", "DFT", NULL, {"f32[1,4,1] 1 2 3 4"}, {"f32[1,4,2] 10 0 -2 2 -2 0 -2 -2"}},
    {"three points, one side", "DFT", "onesided=1", {"f32[1,3,1] 1 2 3"}, {"f32[1,2,2] 6 0 -1.5 0.8660254"}},
    {"and back", "DFT", "inverse=1 onesided=1", {"f32[1,2,2] 6 0 -1.5 0.8660254", "i64[] 3"}, {"f32[1,3,1] 1 2 3"}},
    {"inverse", "DFT", "inverse=1", {"f32[1,4,2] 10 0 -2 2 -2 0 -2 -2"}, {"f32[1,4,2] 1 0 2 0 3 0 4 0"}},
    {"filled up with zeros", "DFT", NULL, {"f64[1,1,1] 3", "i64[] 2"}, {"f64[1,2,2] 3 0 3 0"}},
    {"first axis", "DFT", NULL, {"f32[2,1,1] 1 2", "-", "i64[] 0"}, {"f32[2,1,2] 3 0 -1 0"}},
    {"the axis of the parts", "DFT", NULL, {"f32[1,2,1] 1 2", "-", "i64[] 2"}, {NULL}, HONE_ERR_FORMAT, "complex"},
    {"two frames", "STFT", NULL, {"f32[1,3,1] 1 2 3", "i64[] 1", "f32[2] 1 1"}, {"f32[1,2,2,2] 3 0 -1 0 5 0 -1 0"}},
    {"a step of 0", "STFT", NULL, {"f32[1,3,1] 1 2 3", "i64[] 0", "f32[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "step"},
    {"frames longer than the signal", "STFT", NULL, {"f32[1,1,1] 1", "i64[] 1", "f32[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "fit"},
    {"Mel edges that make no sense", "MelWeightMatrix", NULL, {"i64[] 2", "i64[] 4", "i64[] 0", "f32[] 0", "f32[] 8"}, {NULL}, HONE_ERR_INPUT, "sense"},
};

static void test_gather(void **state) { (void)state; OP_CASES(k_gather); }
static void test_dynamic(void **state) { (void)state; OP_CASES(k_dynamic); }
static void test_reduce(void **state) { (void)state; OP_CASES(k_reduce); }
static void test_sort(void **state) { (void)state; OP_CASES(k_sort); }
static void test_signal(void **state) { (void)state; OP_CASES(k_signal); }

// ---- random: moments, range, repeatability ---------------------------------------------------------
static hn_tensor draw(const char *op, const char *attrs, const char *in, uint64_t seed) {
    op_case c = {.name = op, .op = op, .attrs = attrs, .in = {in}, .out = {"wanted"}};
    hn_module *module = hn_module_new();
    hn_tensor tensors[OP_CASE_INPUTS], out = {0};
    const hn_tensor *pointer = tensors;
    int inputs;
    hn_node *node = op_case_node(module, &c, tensors, &inputs);
    hone_error err = {0};
    hone_status status = hn_ref_run(&err, node, &pointer, inputs, &out, 1, seed);
    if (status != HONE_OK) fail_msg("%s: %s", op, err.text);
    for (int i = 0; i < inputs; i++) hn_tensor_free(&tensors[i]);
    hn_module_free(module);
    return out;
}

static void moments(const hn_tensor *t, double *mean, double *deviation) {
    double sum = 0, squares = 0;
    int64_t n = hn_tensor_count(t);
    for (int64_t i = 0; i < n; i++) {
        double v = hn_tensor_get_f64(t, i);
        sum += v;
        squares += v * v;
    }
    *mean = sum / (double)n;
    *deviation = sqrt(squares / (double)n - *mean * *mean);
}

static void test_random(void **state) {
    (void)state;
    static const struct {
        const char *op, *attrs, *in;
        double mean, deviation;
    } k_rows[] = {
        {"RandomUniform", "low=-1 high=3 shape=100,100", NULL, 1, 1.1547},
        {"RandomNormal", "mean=2 scale=3 shape=10000", NULL, 2, 3},
        {"RandomUniformLike", "dtype=11", "f32[10000] fill 0", 0.5, 0.288675},
        {"RandomNormalLike", NULL, "f16[10000] fill 0", 0, 1},
        {"Bernoulli", NULL, "f32[10000] fill 0.25", 0.25, 0.433},
        {"Multinomial", "sample_size=10000", "f32[1,2] 0 1.0986123", 0.75, 0.433},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++) {
        double mean, deviation;
        hn_tensor a = draw(k_rows[i].op, k_rows[i].attrs, k_rows[i].in, 5);
        hn_tensor b = draw(k_rows[i].op, k_rows[i].attrs, k_rows[i].in, 5);
        hn_tensor c = draw(k_rows[i].op, k_rows[i].attrs, k_rows[i].in, 6);
        moments(&a, &mean, &deviation);
        // Four standard errors of 10,000 draws.
        if (fabs(mean - k_rows[i].mean) > 0.04 * k_rows[i].deviation)
            fail_msg("%s: mean %g", k_rows[i].op, mean);
        if (fabs(deviation - k_rows[i].deviation) > 0.04 * k_rows[i].deviation)
            fail_msg("%s: deviation %g", k_rows[i].op, deviation);
        assert_int_equal(a.bytes, b.bytes);
        assert_memory_equal(a.data, b.data, a.bytes);
        assert_memory_not_equal(a.data, c.data, a.bytes);
        hn_tensor_free(&a);
        hn_tensor_free(&b);
        hn_tensor_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_dynamic),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
