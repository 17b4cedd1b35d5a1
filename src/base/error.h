// SPDX-License-Identifier: Apache-2.0
// Filling and passing on the error record.
//
// The function that decides an error fills the record with HN_FAIL; functions that merely pass it
// on use HN_TRY, or HN_TRY_CTX where a frame helps the reader ("importing node 'x'"). Nothing here
// allocates. `err` may be NULL everywhere.
#ifndef HN_BASE_ERROR_H
#define HN_BASE_ERROR_H
#include "hone/status.h"

// Result type of a function whose status must not be dropped; function pointers use hone_status.
#define hn_status HONE_WARN_UNUSED hone_status

#if defined(__GNUC__)
#define HN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HN_PRINTF(fmt, args)
#endif

// Starts a new record; returns `status` so that it can be returned.
hone_status hn_error_set(hone_error *err, hone_status status, int vendor_code, const char *file,
                         int line, const char *fmt, ...) HN_PRINTF(6, 7);
// Appends a context frame; frames beyond the limit are dropped (the innermost are kept).
void hn_error_frame(hone_error *err, const char *fmt, ...) HN_PRINTF(2, 3);
// Copies src over dst if dst holds no error yet: the first worker's error wins.
void hn_error_merge(hone_error *dst, const hone_error *src);

#define HN_FAIL(err, status, ...)                                                                  \
    return hn_error_set((err), (status), 0, __FILE__, __LINE__, __VA_ARGS__)
#define HN_FAIL_VENDOR(err, status, vendor, ...)                                                   \
    return hn_error_set((err), (status), (vendor), __FILE__, __LINE__, __VA_ARGS__)
// Sets the record without returning: for use before `goto`.
#define HN_SET(err, status, ...) hn_error_set((err), (status), 0, __FILE__, __LINE__, __VA_ARGS__)
#define HN_TRY(expr)                                                                               \
    do {                                                                                           \
        hone_status hn_try_status_ = (expr);                                                       \
        if (hn_try_status_ != HONE_OK) return hn_try_status_;                                      \
    } while (0)
#define HN_TRY_CTX(err, expr, ...)                                                                 \
    do {                                                                                           \
        hone_status hn_try_status_ = (expr);                                                       \
        if (hn_try_status_ != HONE_OK) {                                                           \
            hn_error_frame((err), __VA_ARGS__);                                                    \
            return hn_try_status_;                                                                 \
        }                                                                                          \
    } while (0)
// For functions with clean-up: `status = expr; if it failed goto label`.
#define HN_TRY_GOTO(status, expr, label)                                                           \
    do {                                                                                           \
        (status) = (expr);                                                                         \
        if ((status) != HONE_OK) goto label;                                                       \
    } while (0)
#define HN_NOMEM(err, what) HN_FAIL((err), HONE_ERR_NOMEM, "out of memory (%s)", (what))

// Our own bugs only, never bad input. On in debug and test builds (HN_ASSERTS), elsewhere unchecked.
#if defined(HN_ASSERTS)
void hn_assert_fail(const char *expr, const char *file, int line);
#define HN_ASSERT(cond) ((cond) ? (void)0 : hn_assert_fail(#cond, __FILE__, __LINE__))
#else
#define HN_ASSERT(cond) ((void)sizeof(cond))
#endif
#endif
