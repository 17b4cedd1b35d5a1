// SPDX-License-Identifier: Apache-2.0
// What counts as evidence when outputs are compared: numbers that are lost, numbers that are gained, rows
// that hold none.
#include <math.h>
#include "ir/compare.h"
#include "support/test.h"

static hone_error err;

static hn_diff diff_of(const float *ref, const float *got, int rows, int columns) {
    hn_tensor a, b;
    hn_diff diff;
    hn_shape shape = {2, {rows, columns}};
    assert_int_equal(hn_tensor_new(&err, HN_F32, &shape, &a), HONE_OK);
    assert_int_equal(hn_tensor_new(&err, HN_F32, &shape, &b), HONE_OK);
    memcpy(a.data, ref, a.bytes);
    memcpy(b.data, got, b.bytes);
    assert_int_equal(hn_tensor_diff(&err, &a, &b, &diff), HONE_OK);
    hn_tensor_free(&a);
    hn_tensor_free(&b);
    return diff;
}

static void numbers_that_are_lost_are_counted(void **state) {
    (void)state;
    const float ref[] = {1, 2, 3, -INFINITY, NAN, 6}, got[] = {1, INFINITY, NAN, -INFINITY, NAN, 6};
    hn_diff d = diff_of(ref, got, 2, 3);
    assert_int_equal(d.lost, 2); // the infinity and the NaN that ref has not; what both have is no loss
    assert_int_equal(d.finite, 2);
    assert_int_equal(d.mismatched, 2);
    assert_true(d.cosine > 0.999999); // which says nothing of it
    // The other way round nothing is lost, but it does not match.
    d = diff_of(got, ref, 2, 3);
    assert_int_equal(d.lost, 0);
    assert_int_equal(d.mismatched, 2);
    // An infinity of the other sign is a loss.
    const float low[] = {-INFINITY, 1}, high[] = {INFINITY, 1};
    assert_int_equal(diff_of(low, high, 1, 2).lost, 1);
}

static void rows_without_a_number_agree_on_nothing(void **state) {
    (void)state;
    const float ref[] = {NAN, NAN, 1, 2, 3, 1}, got[] = {NAN, NAN, 1, 2, 1, 3};
    hn_diff d = diff_of(ref, got, 3, 2);
    assert_int_equal(d.argmax_rows, 2);
    assert_int_equal(d.argmax_agree, 1);
    hn_diff all = d;
    hn_diff_merge(&all, &d);
    assert_int_equal(all.finite, 2 * d.finite);
    assert_int_equal(all.argmax_rows, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_that_are_lost_are_counted),
        cmocka_unit_test(rows_without_a_number_agree_on_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
