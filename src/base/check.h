// SPDX-License-Identifier: Apache-2.0
// Overflow-checked size arithmetic. Every product of sizes that come from a file goes through here.
#ifndef HN_BASE_CHECK_H
#define HN_BASE_CHECK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Each returns false on overflow and then leaves *out alone.
static inline bool hn_add_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool hn_sub_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t r;
    if (__builtin_sub_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool hn_mul_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool hn_add_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool hn_mul_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
// a rounded up to a multiple of align (a power of two).
static inline bool hn_round_up_size(size_t a, size_t align, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}
static inline int64_t hn_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t hn_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t hn_ceil_div_i64(int64_t a, int64_t b) { return (a + b - 1) / b; }
#define HN_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#endif
