// SPDX-License-Identifier: Apache-2.0
// String builder, slices and small parsers. A failed append sets `failed` and later appends do
// nothing, so that callers check once at the end.
#ifndef HN_BASE_STR_H
#define HN_BASE_STR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hn_str {
    char *data; // owned, terminated when length > 0; NULL when nothing was appended
    size_t length, capacity;
    bool failed; // out of memory at some append
} hn_str;

// A borrowed piece of text, not terminated.
typedef struct hn_slice {
    const char *data;
    size_t length;
} hn_slice;

void hn_str_append(hn_str *str, const char *text);
void hn_str_append_n(hn_str *str, const char *text, size_t length);
void hn_str_printf(hn_str *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hn_str_free(hn_str *str);
static inline const char *hn_str_get(const hn_str *str) { return str->data ? str->data : ""; }

bool hn_slice_eq(hn_slice slice, const char *text);
bool hn_slice_starts(hn_slice slice, const char *prefix);
hn_slice hn_slice_trim(hn_slice slice); // blanks, tabs, CR at both ends
// Takes the next line (without its line end) from *rest; false at the end.
bool hn_slice_line(hn_slice *rest, hn_slice *out_line);

// Whole-string number parsers: false on empty, junk or overflow.
bool hn_parse_i64(hn_slice text, int64_t *out);
bool hn_parse_f64(hn_slice text, double *out); // locale-independent decimal point

// FNV-1a, for tables; not for anything hostile that must not collide.
uint64_t hn_hash_bytes(const void *data, size_t bytes, uint64_t seed);
#define HN_HASH_SEED 1469598103934665603ull
#endif
