// SPDX-License-Identifier: Apache-2.0
// Text from outside: what is written out, what stays, and that nothing is cut in the middle.
#include "base/text.h"
#include "support/test.h"

static void clean_is(hn_clean how, const char *text, const char *expected) {
    char out[128];
    size_t n = hn_text_clean(out, sizeof out, text, strlen(text), how);
    assert_string_equal(out, expected);
    assert_int_equal(n, strlen(expected));
    hn_str str = {0};
    hn_str_append_clean(&str, text, strlen(text), how);
    assert_string_equal(hn_str_get(&str), expected);
    hn_str_free(&str);
}

static void steering_is_written_out(void **state) {
    (void)state;
    clean_is(HN_CLEAN_LINE, "plain", "plain");
    clean_is(HN_CLEAN_LINE, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82 \\", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82 \\");
    clean_is(HN_CLEAN_LINE, "a\x1b[31mb\rc\nd\te", "a\\x1b[31mb\\x0dc\\nd\\te");
    clean_is(HN_CLEAN_LINES, "a\x1b[31mb\rc\nd\te", "a\\x1b[31mb\\x0dc\nd\te");
    clean_is(HN_CLEAN_UTF8, "a\x1b[31m\n\xff", "a\x1b[31m\n\\xff");
    clean_is(HN_CLEAN_LINE, "\x7f\xc2\x9b" "31m", "\\u007f\\u009b31m"); // delete; a control sequence in C1
    clean_is(HN_CLEAN_LINE, "\xe2\x80\xae" "evil\xe2\x81\xa9\xe2\x80\xa8", "\\u202eevil\\u2069\\u2028");
}

static void bytes_that_are_no_utf8(void **state) {
    (void)state;
    static const char *const k_bad[] = {"\x80", "\xff", "\xc0\xaf", "\xc3", "\xe0\x80\xaf", "\xed\xa0\x80",
                                        "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82"};
    for (size_t i = 0; i < HN_COUNT_OF(k_bad); i++) {
        char out[64];
        size_t n = strlen(k_bad[i]);
        assert_false(hn_utf8_valid(k_bad[i], n));
        hn_text_clean(out, sizeof out, k_bad[i], n, HN_CLEAN_UTF8);
        assert_true(hn_utf8_valid(out, strlen(out)));
        assert_int_equal(strlen(out), 4 * n); // every byte of it by itself
    }
    assert_true(hn_utf8_valid("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", 10));
    assert_true(hn_utf8_valid("", 0));
}

static void nothing_is_cut_in_the_middle(void **state) {
    (void)state;
    static const char k_text[] = "\xe2\x82\xac\x1b\xc3\xa4z";
    for (size_t size = 1; size < 16; size++) {
        char out[17];
        memset(out, 'x', sizeof out);
        size_t n = hn_text_clean(out, size, k_text, sizeof k_text - 1, HN_CLEAN_LINE);
        assert_true(n < size);
        assert_int_equal(out[n], 0);
        assert_int_equal(out[size], 'x');
        assert_true(hn_utf8_valid(out, n));
        assert_true(n == 0 || n == 3 || n == 7 || n == 9 || n == 10);
    }
}

static void errors_are_one_clean_line(void **state) {
    (void)state;
    hone_error err = {0};
    char text[256];
    hn_error_set(&err, HONE_ERR_FORMAT, 0, "f", 1, "node '%s' is broken", "a\x1b[2J\nb\xff");
    hn_error_frame(&err, "loading '%s'", "x\r.onnx");
    assert_string_equal(hone_error_format(&err, text, sizeof text),
                        "node 'a\\x1b[2J\\nb\\xff' is broken (loading 'x\\x0d.onnx')");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steering_is_written_out),
        cmocka_unit_test(bytes_that_are_no_utf8),
        cmocka_unit_test(nothing_is_cut_in_the_middle),
        cmocka_unit_test(errors_are_one_clean_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
