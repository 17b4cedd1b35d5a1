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

static void from_outside(const char *in, size_t bytes, const char *expected) {
    char *data = hn_malloc(bytes + 1);
    memcpy(data, in, bytes);
    data[bytes] = '\0';
    size_t length = bytes;
    assert_true(hn_utf8_from_outside(&data, &length));
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(data, expected, length + 1);
    hn_free(data);
}

static void text_of_other_systems(void **state) {
    (void)state;
#define OUTSIDE(in, expected) from_outside(in, sizeof(in) - 1, expected)
    OUTSIDE("plain", "plain");
    OUTSIDE("", "");
    OUTSIDE("\xef\xbb\xbfGPU", "GPU");
    OUTSIDE("\xff\xfe", "");
    OUTSIDE("\xff\xfe<\0?\0\r\0\n\0", "<?\r\n");
    OUTSIDE("\xfe\xff\0<\0?", "<?");
    OUTSIDE("\xff\xfe\xe4\0\xac\x20\x3d\xd8\x42\xde", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82");
    // Halves of pairs, in every order, and a byte too many.
    OUTSIDE("\xff\xfe\x3d\xd8" "a\0", "\xef\xbf\xbd" "a");
    OUTSIDE("\xff\xfe\x42\xde" "a\0", "\xef\xbf\xbd" "a");
    OUTSIDE("\xff\xfe\x3d\xd8\x3d\xd8\x42\xde", "\xef\xbf\xbd\xf0\x9f\x99\x82");
    OUTSIDE("\xff\xfe" "a\0\x3d\xd8", "a\xef\xbf\xbd");
    OUTSIDE("\xff\xfe" "a\0b", "a\xef\xbf\xbd");
    // Every code point that there is.
    for (unsigned c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
        unsigned char in[6] = {0xff, 0xfe};
        size_t n = 2;
        if (c >= 0xd800 && c < 0xe000) continue;
        unsigned units[2] = {c < 0x10000 ? c : 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff)};
        for (int i = 0; i < (c < 0x10000 ? 1 : 2); i++) in[n++] = units[i] & 0xff, in[n++] = (unsigned char)(units[i] >> 8);
        char *data = hn_malloc(n + 1);
        memcpy(data, in, n);
        data[n] = '\0';
        assert_true(hn_utf8_from_outside(&data, &n));
        if (n != (c < 0x80 ? 1u : c < 0x800 ? 2u : c < 0x10000 ? 3u : 4u) || !hn_utf8_valid(data, n)) fail_msg("%x", c);
        hn_free(data);
    }
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
        cmocka_unit_test(text_of_other_systems),
        cmocka_unit_test(nothing_is_cut_in_the_middle),
        cmocka_unit_test(errors_are_one_clean_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
