// SPDX-License-Identifier: Apache-2.0
// The gate's verdict on accuracy, quantisation parameters and range clipping.
#include <math.h>
#include "optimize/optimize_int.h"
#include "support/test.h"

static const hn_budget k_budget = {0.01, 0.99, 0.999};

static hn_accuracy good(void) {
    return (hn_accuracy){.samples = 100, .rows = 100, .cosine = 1, .exact_cosine = 1,
                         .worst_cosine = 1, .agreement = 1, .metric = NAN, .other_cosine = NAN, .other_agreement = NAN};
}

static bool accepts(const hn_accuracy *a, double baseline_metric, bool lossless, char *why) {
    hn_accuracy base = good();
    base.metric = baseline_metric;
    base.metric_ci[0] = baseline_metric - 0.05;
    base.chance = 0.1;
    return hn_gate_accepts(&k_budget, &base, a, lossless ? &base : NULL, why, 160);
}

static void the_budget_decides(void **state) {
    (void)state;
    char why[160];
    hn_accuracy a = good();
    assert_true(accepts(&a, NAN, false, why));
    a.agreement = 0.985;
    assert_false(accepts(&a, NAN, false, why));
    assert_non_null(strstr(why, "0.9850"));
    // Labels speak louder than agreement.
    a.metric = 0.90;
    assert_true(accepts(&a, 0.905, false, why));
    assert_false(accepts(&a, 0.915, false, why));
    assert_non_null(strstr(why, "1.50 points"));
    // Of what they say nothing about, they excuse nothing.
    a.other_cosine = 0.99;
    snprintf(a.other_of, sizeof a.other_of, "boxes");
    assert_false(accepts(&a, 0.905, false, why));
    assert_non_null(strstr(why, "output 'boxes'"));
    a.other_cosine = 1;
    a.other_agreement = 0.9;
    assert_false(accepts(&a, 0.905, false, why));
    // Field report 44: labels that the input model meets no better than a guess would let anything pass.
    a = good();
    a.metric = 0.12;
    a.agreement = 0.6;
    assert_false(accepts(&a, 0.12, false, why));
    assert_non_null(strstr(why, "top-1 agreement 0.6000"));
    a.agreement = 1;
    assert_true(accepts(&a, 0.12, false, why));
    a = good();
    a.agreement = NAN;
    a.cosine = 0.9985;
    assert_false(accepts(&a, NAN, false, why));
    a.cosine = 0.9995;
    assert_true(accepts(&a, NAN, false, why));
    // Exact rewrites have no budget; NaN passes nowhere.
    a.exact_cosine = a.cosine;
    assert_false(accepts(&a, NAN, true, why));
    // What an earlier step has lost does not refuse an exact one after it.
    hn_accuracy original = good(), int8 = good();
    int8.exact_cosine = a.exact_cosine + 1e-6;
    assert_true(hn_gate_accepts(&k_budget, &original, &a, &int8, why, sizeof why));
    int8.exact_cosine = a.exact_cosine + 1e-4;
    assert_false(hn_gate_accepts(&k_budget, &original, &a, &int8, why, sizeof why));
    a = good();
    a.nan = 1;
    assert_false(accepts(&a, NAN, false, why));
    assert_false(accepts(&a, NAN, true, why));
}

static void parameters_hold_zero_exactly(void **state) {
    (void)state;
    const float ranges[][2] = {{0, 6},     {-1, 1},       {-3.7f, 0}, {0, 0},       {-1e-38f, 1e-38f},
                               {-1, 1e6f}, {-3e38f, 3e38f}, {0, 1e-30f}, {-0.1f, 25.3f}};
    for (size_t i = 0; i < HN_COUNT_OF(ranges); i++) {
        float scale;
        uint8_t zero;
        hn_range_params(ranges[i][0], ranges[i][1], &scale, &zero);
        assert_true(scale > 0 && isfinite(scale));
        // Real 0 is a code, and the ends lie within half a step of the range.
        assert_true((0 - (int)zero) * scale + (int)zero * scale == 0);
        if (ranges[i][1] - ranges[i][0] > 1e-25f && isfinite(ranges[i][1] - ranges[i][0])) {
            double low = (0.0 - zero) * scale, high = (255.0 - zero) * scale;
            assert_true(low <= ranges[i][0] + scale && high >= ranges[i][1] - scale);
        }
    }
}

static void clipping_forgets_outliers(void **state) {
    (void)state;
    hn_range range = {.seen = true, .low = -1, .high = 100};
    range.bins = hn_calloc(HN_HISTOGRAM_BINS, sizeof *range.bins);
    assert_non_null(range.bins);
    for (int i = 0; i < 41; i++) // about -1 .. 1
        range.bins[i] = 1000;
    range.bins[HN_HISTOGRAM_BINS - 1] = 1; // one element in 41,001
    float low, high;
    hn_range_clip(&range, HN_CLIP_MINMAX, &low, &high);
    assert_true(low == -1 && high == 100);
    hn_range_clip(&range, HN_CLIP_PERCENTILE, &low, &high);
    assert_true(low <= -0.9f && low >= -1 && high > 0.9f && high < 2);
    float mse_low, mse_high;
    hn_range_clip(&range, HN_CLIP_MSE, &mse_low, &mse_high);
    assert_true(mse_high <= 100 && mse_high >= 20 - 1e-3 && mse_low <= 0);
    hn_free(range.bins);
    // All positive or all negative: zero is inside all the same.
    hn_range positive = {.seen = true, .low = 2, .high = 5};
    hn_range_clip(&positive, HN_CLIP_MINMAX, &low, &high);
    assert_true(low == 0 && high == 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_budget_decides),
        cmocka_unit_test(parameters_hold_zero_exactly),
        cmocka_unit_test(clipping_forgets_outliers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
