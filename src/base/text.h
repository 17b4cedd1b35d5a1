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
