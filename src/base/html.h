// SPDX-License-Identifier: Apache-2.0
// Pages that stand alone: one HTML file with its style inside, no script, nothing fetched. They follow the
// reader's light or dark setting, fit a phone and print.
//
// Everything is appended to an hn_str, whose `failed` says at the end whether memory was enough.
#ifndef HN_BASE_HTML_H
#define HN_BASE_HTML_H
#include "base/error.h"
#include "base/str.h"

// Text as content or attribute: markup escaped, control characters as blanks, what is no UTF-8 as U+FFFD.
void hn_html_escape(hn_str *out, const char *text);
// The same in the reader's language (base/lang.h), as every text below; only names and titles stay.
void hn_html_say(hn_str *out, const char *text);
void hn_html_begin(hn_str *out, const char *title); // up to <main>, with <h1>
void hn_html_end(hn_str *out);
// A section's heading, and a line of small text below it (NULL for none).
void hn_html_section(hn_str *out, const char *title, const char *note);

// Figures side by side: begin, tiles, end. `sub` is said in small below the value; NULL for none.
void hn_html_tiles_begin(hn_str *out);
void hn_html_tile(hn_str *out, const char *name, const char *value, const char *sub);
void hn_html_tiles_end(hn_str *out);

// Tables: begin with column names, rows of as many cells, end. A name that begins with '>' makes a
// right-aligned column of figures, one with '=' a column of names, never translated. Wide ones scroll.
void hn_html_table_begin(hn_str *out, const char *const *names, int columns);
void hn_html_row(hn_str *out, const char *const *names, const char *const *cells, int columns);
void hn_html_table_end(hn_str *out);

// A remark with a coloured edge: kind "good", "warn", "bad" or "info". Text may be NULL.
void hn_html_note(hn_str *out, const char *kind, const char *title, const char *text, const char *small);
#endif
