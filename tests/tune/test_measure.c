// SPDX-License-Identifier: Apache-2.0
// Statistics against known values; a planted difference is found and an A/A run finds none.
#include "support/test.h"
#include "tune/measure.h"

static void statistics_match_known_values(void **state) {
    (void)state;
    double v[] = {5, 1, 4, 2, 3};
    assert_true(hn_median(v, 5) == 3);
    double w[] = {4, 1, 3, 2};
    assert_true(hn_median(w, 4) == 2.5);
    assert_true(hn_quantile(w, 4, 1.0) == 4);
    double ci[2];
    hn_wilson(76, 76, ci); // 1/(1 + 1.96^2/76)
    assert_true(ci[0] > 0.951 && ci[0] < 0.953 && ci[1] == 1);
    hn_wilson(0, 10, ci);
    assert_true(ci[0] == 0 && ci[1] > 0.27 && ci[1] < 0.28);
    assert_true(hn_wilson_needed(1.0, 0.99) > 370 && hn_wilson_needed(1.0, 0.99) < 430);
    assert_true(hn_wilson_needed(0.98, 0.99) == -1);
    double same[40];
    for (int i = 0; i < 40; i++)
        same[i] = 1 + (i % 5) * 0.01;
    double again[2];
    hn_bootstrap_median(same, 40, 7, ci);
    hn_bootstrap_median(same, 40, 7, again);
    assert_memory_equal(ci, again, sizeof ci);
    assert_true(ci[0] >= 1 && ci[1] <= 1.04 && ci[0] <= ci[1]);
}

typedef struct spin {
    int64_t rounds;
    volatile uint64_t sink;
} spin;
static hone_status run_spin(hone_error *err, void *user) {
    (void)err;
    spin *s = user;
    for (int64_t i = 0; i < s->rounds; i++)
        s->sink += (uint64_t)i * 2654435761u;
    return HONE_OK;
}
static hone_status run_failing(hone_error *err, void *user) {
    (void)user;
    HN_FAIL(err, HONE_ERR_DEVICE, "planted");
}

static void a_planted_difference_is_found(void **state) {
    (void)state;
    spin fast = {.rounds = 20000}, slow = {.rounds = 40000};
    hn_pair pair;
    hn_measure_options options = {.seconds = 0.3};
    assert_int_equal(hn_measure_pair(NULL, run_spin, &slow, run_spin, &fast, &options, &pair), 0);
    assert_true(pair.speedup > 1.5 && pair.speedup < 2.7);
    assert_true(pair.speedup_ci[0] <= pair.speedup && pair.speedup <= pair.speedup_ci[1]);
    assert_true(pair.a.p50_ms <= pair.a.p90_ms && pair.a.p90_ms <= pair.a.p99_ms);
    hone_error err = {0};
    assert_int_equal(hn_measure_pair(&err, run_spin, &fast, run_failing, NULL, &options, &pair),
                     HONE_ERR_DEVICE);
}

// More time where it could change the answer, none where it could not.
static void doubtful_intervals_ask_for_more(void **state) {
    (void)state;
    assert_true(hn_measure_undecided(1.5, (double[2]){0.9, 2.1}, 1.02));
    assert_true(hn_measure_undecided(2.07, (double[2]){1.05, 2.9}, 1.02));
    assert_false(hn_measure_undecided(1.5, (double[2]){1.4, 1.6}, 1.02));
    assert_false(hn_measure_undecided(1.03, (double[2]){0.9, 1.3}, 1.02)); // below 5 %: not worth it
    assert_false(hn_measure_undecided(0.8, (double[2]){0.6, 1.3}, 1.02));  // refused either way
    assert_false(hn_measure_undecided(1.5, (double[2]){0.9, 2.1}, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_match_known_values),
        cmocka_unit_test(doubtful_intervals_ask_for_more), cmocka_unit_test(a_planted_difference_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
