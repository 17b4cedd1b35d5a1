// SPDX-License-Identifier: Apache-2.0
// Text from outside (names in files, host names, paths, arguments) on its way to a terminal or a file
// that must be UTF-8.
//
// What could steer a terminal or deceive a reader is written out: control characters and bytes that
// are not UTF-8 as \x1b, \n and \t; direction marks and line separators of Unicode as \u202e.
#ifndef HN_BASE_TEXT_H
#define HN_BASE_TEXT_H
#include "base/str.h"

// Bytes of the UTF-8 sequence at `at`, of which `left` > 0 bytes may be read; 0 if there is none.
size_t hn_utf8_length(const char *at, size_t left);
bool hn_utf8_valid(const char *text, size_t length);
// Text of another system as UTF-8: what begins with a byte order mark of UTF-16 (PowerShell's `>` writes that) is turned,
// halves of pairs becoming U+FFFD; one of UTF-8 is dropped. Other text is left as it is: *data is replaced where that is
// needed (with hn_free; both have a NUL behind them). False: out of memory, nothing has changed.
bool hn_utf8_from_outside(char **data, size_t *bytes);

typedef enum hn_clean {
    HN_CLEAN_LINE,  // for one line: line ends and tabs are written out too
    HN_CLEAN_LINES, // for text of ours with pieces from outside: \n and \t stay
    HN_CLEAN_UTF8,  // only bytes that are not UTF-8 are written out
} hn_clean;
// Writes at most size - 1 bytes (size > 0) and a zero byte; no sequence is cut. out and text may not
// overlap. Returns the bytes written.
size_t hn_text_clean(char *out, size_t size, const char *text, size_t length, hn_clean how);
void hn_str_append_clean(hn_str *str, const char *text, size_t length, hn_clean how);
#endif
