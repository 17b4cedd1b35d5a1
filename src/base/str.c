// SPDX-License-Identifier: Apache-2.0
// Strings: see str.h.
#include "base/str.h"
#include "base/alloc.h"
#include "base/check.h"
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(hn_str *str, size_t extra) {
    size_t need;
    if (str->failed || !hn_add_size(str->length, extra, &need) || !hn_add_size(need, 1, &need))
        return !(str->failed = true);
    if (need <= str->capacity) return true;
    size_t grown = str->capacity ? str->capacity : 64;
    while (grown < need)
        grown = grown > SIZE_MAX / 2 ? need : grown * 2;
    char *bigger = hn_realloc(str->data, grown);
    if (!bigger) return !(str->failed = true);
    str->data = bigger;
    str->capacity = grown;
    return true;
}

void hn_str_append_n(hn_str *str, const char *text, size_t length) {
    if (!reserve(str, length)) return;
    if (length) memcpy(str->data + str->length, text, length);
    str->length += length;
    str->data[str->length] = '\0';
}

void hn_str_append(hn_str *str, const char *text) { hn_str_append_n(str, text, strlen(text)); }

void hn_str_printf(hn_str *str, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0) str->failed = true;
    if (length >= 0 && reserve(str, (size_t)length)) {
        vsnprintf(str->data + str->length, (size_t)length + 1, fmt, again);
        str->length += (size_t)length;
    }
    va_end(again);
}

void hn_str_free(hn_str *str) {
    hn_free(str->data);
    *str = (hn_str){0};
}

bool hn_slice_eq(hn_slice slice, const char *text) {
    return slice.length == strlen(text) && memcmp(slice.data, text, slice.length) == 0;
}

bool hn_slice_starts(hn_slice slice, const char *prefix) {
    size_t length = strlen(prefix);
    return slice.length >= length && memcmp(slice.data, prefix, length) == 0;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

hn_slice hn_slice_trim(hn_slice slice) {
    while (slice.length && is_blank(slice.data[0]))
        slice.data++, slice.length--;
    while (slice.length && is_blank(slice.data[slice.length - 1]))
        slice.length--;
    return slice;
}

bool hn_slice_line(hn_slice *rest, hn_slice *out_line) {
    if (rest->length == 0) return false;
    const char *end = memchr(rest->data, '\n', rest->length);
    size_t length = end ? (size_t)(end - rest->data) : rest->length;
    *out_line = (hn_slice){rest->data, length};
    size_t skip = length + (end ? 1 : 0);
    rest->data += skip;
    rest->length -= skip;
    if (out_line->length && out_line->data[out_line->length - 1] == '\r') out_line->length--;
    return true;
}

bool hn_parse_i64(hn_slice text, int64_t *out) {
    size_t at = 0;
    bool negative = text.length && text.data[0] == '-';
    if (text.length && (text.data[0] == '-' || text.data[0] == '+')) at = 1;
    if (at == text.length) return false;
    int64_t value = 0;
    for (; at < text.length; at++) {
        if (!isdigit((unsigned char)text.data[at])) return false;
        int digit = text.data[at] - '0';
        if (!hn_mul_i64(value, 10, &value)) return false;
        if (!(negative ? hn_sub_i64(value, digit, &value) : hn_add_i64(value, digit, &value)))
            return false;
    }
    *out = value;
    return true;
}

bool hn_parse_f64(hn_slice text, double *out) {
    char buf[64];
    if (text.length == 0 || text.length >= sizeof buf || is_blank(text.data[0])) return false;
    memcpy(buf, text.data, text.length);
    buf[text.length] = '\0';
    static locale_t c_locale; // created once; a lost race leaks one small object
    if (!c_locale) c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *end = NULL;
    errno = 0;
    double value = c_locale ? strtod_l(buf, &end, c_locale) : strtod(buf, &end);
    if (end != buf + text.length) return false;
    *out = value;
    return true;
}

uint64_t hn_hash_bytes(const void *data, size_t bytes, uint64_t seed) {
    const unsigned char *at = data;
    uint64_t hash = seed;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 1099511628211ull;
    return hash;
}
