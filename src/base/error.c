// SPDX-License-Identifier: Apache-2.0
// The error record: see error.h. Sentences name things from files, so they are cleaned as they are
// recorded: whoever prints a record prints one harmless line.
#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

const char *hone_status_name(hone_status status) {
    switch (status) {
    case HONE_OK: return "ok";
    case HONE_ERR_USAGE: return "usage";
    case HONE_ERR_CHECK: return "check";
    case HONE_ERR_INPUT: return "input";
    case HONE_ERR_TIMEOUT: return "timeout";
    case HONE_ERR_FORMAT: return "format";
    case HONE_ERR_LIMIT: return "limit";
    case HONE_ERR_UNSUPPORTED: return "unsupported";
    case HONE_ERR_DEVICE: return "device";
    case HONE_ERR_DEVICE_LOST: return "device-lost";
    case HONE_ERR_IO: return "io";
    case HONE_ERR_NOMEM: return "out-of-memory";
    case HONE_ERR_INTERNAL: return "internal";
    }
    return "unknown";
}

int hone_status_exit_code(hone_status status) {
    switch (status) {
    case HONE_OK: return 0;
    case HONE_ERR_CHECK: return 1;
    case HONE_ERR_USAGE: return 2;
    case HONE_ERR_INPUT:
    case HONE_ERR_FORMAT:
    case HONE_ERR_LIMIT: return 3;
    case HONE_ERR_UNSUPPORTED: return 4;
    default: return 5;
    }
}

hone_status hn_error_set(hone_error *err, hone_status status, int vendor_code, const char *file,
                         int line, const char *fmt, ...) {
    if (!err) return status;
    // Arguments may point into the old record, so the text is made before it is overwritten.
    char text[HONE_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err->status = status;
    err->vendor_code = vendor_code;
    err->file = file;
    err->line = line;
    err->frame_count = 0;
    hn_text_clean(err->text, sizeof err->text, text, strlen(text), HN_CLEAN_LINE);
    return status;
}

void hn_error_frame(hone_error *err, const char *fmt, ...) {
    if (!err || err->frame_count >= HONE_ERROR_FRAMES) return;
    char text[HONE_ERROR_FRAME_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    hn_text_clean(err->frames[err->frame_count++], HONE_ERROR_FRAME_BYTES, text, strlen(text),
                  HN_CLEAN_LINE);
}

void hn_error_merge(hone_error *dst, const hone_error *src) {
    if (dst && src && dst->status == HONE_OK && src->status != HONE_OK) *dst = *src;
}

const char *hone_error_format(const hone_error *error, char *buf, unsigned long size) {
    if (!buf || size == 0) return "";
    int at = snprintf(buf, size, "%s", error ? error->text : "no error record");
    if (!error) return buf;
    for (int i = error->frame_count - 1; i >= 0 && at > 0 && (unsigned long)at < size; i--) {
        at += snprintf(buf + at, size - (unsigned long)at, "%s%s%s",
                       i == error->frame_count - 1 ? " (" : ": ", error->frames[i],
                       i == 0 ? ")" : "");
    }
    return buf;
}

#if defined(HN_ASSERTS)
void hn_assert_fail(const char *expr, const char *file, int line) {
    fprintf(stderr, "hone: internal assertion failed: %s (%s:%d)\n", expr, file, line);
    __builtin_trap();
}
#endif
