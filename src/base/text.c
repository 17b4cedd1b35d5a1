// SPDX-License-Identifier: Apache-2.0
// Text from outside: see text.h.
#include "base/text.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"

size_t hn_utf8_length(const char *at, size_t left) {
    const unsigned char *t = (const unsigned char *)at;
    size_t need = t[0] < 0x80                   ? 1
                  : t[0] >= 0xc2 && t[0] < 0xe0 ? 2
                  : (t[0] & 0xf0) == 0xe0       ? 3
                  : t[0] >= 0xf0 && t[0] < 0xf5 ? 4
                                                : 0;
    if (need == 0 || need > left) return 0;
    for (size_t i = 1; i < need; i++)
        if ((t[i] & 0xc0) != 0x80) return 0;
    // Longer than needed, a half of a surrogate pair, beyond the last code point.
    if (need == 3 && ((t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xed && t[1] > 0x9f))) return 0;
    if (need == 4 && ((t[0] == 0xf0 && t[1] < 0x90) || (t[0] == 0xf4 && t[1] > 0x8f))) return 0;
    return need;
}

bool hn_utf8_valid(const char *text, size_t length) {
    for (size_t i = 0, n; i < length; i += n)
        if ((n = hn_utf8_length(text + i, length - i)) == 0) return false;
    return true;
}

static size_t put_code_point(char *out, uint32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = bytes; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> bytes & 0xf0) | c);
    return bytes;
}

bool hn_utf8_from_outside(char **data, size_t *bytes) {
    const unsigned char *in = (const unsigned char *)*data;
    size_t length = *bytes, used = 0;
    if (length >= 3 && memcmp(in, "\xef\xbb\xbf", 3) == 0) {
        memmove(*data, in + 3, length - 3 + 1);
        *bytes -= 3;
        return true;
    }
    if (length < 2 || !((in[0] == 0xff && in[1] == 0xfe) || (in[0] == 0xfe && in[1] == 0xff))) return true;
    bool big = in[0] == 0xfe;
    if (length > SIZE_MAX / 4) return false;
    char *out = hn_malloc(length / 2 * 3 + 4); // a unit is at most three bytes, a pair of them four
    if (!out) return false;
    uint32_t high = 0;
    for (size_t i = 2; i + 1 < length; i += 2) {
        uint32_t unit = big ? (uint32_t)in[i] << 8 | in[i + 1] : (uint32_t)in[i + 1] << 8 | in[i];
        bool low = unit >= 0xdc00 && unit < 0xe000;
        if (high && !low) used += put_code_point(out + used, 0xfffd);
        if (unit >= 0xd800 && unit < 0xdc00) {
            high = unit;
            continue;
        }
        uint32_t c = !low ? unit : high ? 0x10000 + ((high & 0x3ff) << 10 | (unit & 0x3ff)) : 0xfffd;
        used += put_code_point(out + used, c);
        high = 0;
    }
    if (high || (length & 1)) used += put_code_point(out + used, 0xfffd); // cut off
    out[used] = '\0';
    hn_free(*data);
    *data = out;
    *bytes = used;
    return true;
}

// Code points that move the cursor, change the direction or end a line for some reader.
static bool is_steering(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

static uint32_t code_point(const unsigned char *t, size_t bytes) {
    static const unsigned char k_first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = t[0] & k_first[bytes];
    for (size_t i = 1; i < bytes; i++)
        c = c << 6 | (t[i] & 0x3f);
    return c;
}

// One sequence or byte as it may be shown; *out_used bytes of the text are taken. Returns its
// length.
static size_t show(const char *at, size_t left, hn_clean how, char out[12], size_t *out_used) {
    size_t bytes = hn_utf8_length(at, left);
    *out_used = bytes ? bytes : 1;
    if (!bytes) return (size_t)snprintf(out, 12, "\\x%02x", (unsigned char)*at);
    uint32_t c = code_point((const unsigned char *)at, bytes);
    bool stays = how == HN_CLEAN_UTF8 || !is_steering(c) ||
                 (how == HN_CLEAN_LINES && (c == '\n' || c == '\t'));
    if (stays) {
        memcpy(out, at, bytes);
        return bytes;
    }
    if (c == '\n' || c == '\t') return (size_t)snprintf(out, 12, "\\%c", c == '\n' ? 'n' : 't');
    return (size_t)snprintf(out, 12, c < 0x20 ? "\\x%02x" : "\\u%04x", (unsigned)c);
}

size_t hn_text_clean(char *out, size_t size, const char *text, size_t length, hn_clean how) {
    size_t at = 0;
    for (size_t i = 0, used; i < length; i += used) {
        char piece[12];
        size_t n = show(text + i, length - i, how, piece, &used);
        if (at + n >= size) break;
        memcpy(out + at, piece, n);
        at += n;
    }
    out[at] = '\0';
    return at;
}

void hn_str_append_clean(hn_str *str, const char *text, size_t length, hn_clean how) {
    for (size_t i = 0, used; i < length; i += used) {
        char piece[12];
        size_t n = show(text + i, length - i, how, piece, &used);
        hn_str_append_n(str, piece, n);
    }
}
