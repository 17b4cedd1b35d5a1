// SPDX-License-Identifier: Apache-2.0
// The language that people are spoken to in: English as written in the source, or simplified Chinese
// from the tables in base/zh/.
//
// Records, verdicts and JSON hold English always; a sentence is translated where it is shown. A row is
// found by the English format: the sentence is matched against it, what the conversions printed is taken
// out and put into the Chinese format, where %2$s and the like may change the order and
// %.0s drops a piece and %#s keeps one as it is. N counts conversions. Nothing is allocated;
// any thread may call. What has no row is shown in English.
#ifndef HN_BASE_LANG_H
#define HN_BASE_LANG_H
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

typedef enum hn_lang { HN_LANG_EN, HN_LANG_ZH } hn_lang;

bool hn_lang_named(const char *name, hn_lang *out_lang); // "en", "zh"
// Of a locale's name (zh_CN.UTF-8): Chinese only where UTF-8 may be written.
hn_lang hn_lang_of_locale(const char *locale);
void hn_lang_set(hn_lang lang); // English until told
hn_lang hn_lang_get(void);

// Bytes that hold the translation of any sentence of hone_error's size, and of a report's paragraph.
#define HN_LANG_BYTES 4096
// `text` in the chosen language: `text` itself, or `out` (of HN_LANG_BYTES) filled. A piece that was printed
// by %s is translated if it is a sentence of ours too, unless it stands in quotes: those are names.
const char *hn_lang_text(const char *text, char *out);
// The record as hone_error_format says it, in the chosen language.
const char *hn_lang_error(const hone_error *error, char *buf, size_t size);

// Marks a text for scripts/messages that reaches hn_lang_text by a way which the script does not see.
#define HN_SAY(text) text

typedef struct hn_lang_row {
    const char *en, *zh;
} hn_lang_row;
const hn_lang_row *hn_lang_rows(size_t *out_count); // for the tests
#endif
