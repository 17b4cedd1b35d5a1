// SPDX-License-Identifier: Apache-2.0
// The one place where results are printed. Names come from files: what could steer the terminal is
// written out (base/text.h), and a line ends only where our own format says so.
#include "cli/cli.h"
#include <stdarg.h>
#include <stdio.h>
#include "base/text.h"

void hn_cli_put(const char *text) {
    hn_str clean = {0};
    hn_str_append_clean(&clean, text, strlen(text), HN_CLEAN_LINES);
    fputs(hn_str_get(&clean), stdout);
    hn_str_free(&clean);
}

static void append_formatted(hn_str *out, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = length < 0 ? NULL : hn_malloc((size_t)length + 1);
    if (!text) {
        out->failed = true;
        return;
    }
    vsnprintf(text, (size_t)length + 1, fmt, args);
    hn_str_append_n(out, text, (size_t)length);
    hn_free(text);
}

static size_t count_of(const char *text, char c) {
    size_t n = 0;
    for (; (text = strchr(text, c)); text++)
        n++;
    return n;
}

// Formats with our line ends replaced by a byte that no argument brings, and puts them back when
// the rest has been cleaned.
static void print_marked(const char *fmt, const char *formatted, va_list args) {
    char mark = 1;
    while (mark < 32 && (mark == '\n' || strchr(formatted, mark)))
        mark++;
    hn_str own = {0}, text = {0}, clean = {0};
    hn_str_append(&own, fmt);
    for (size_t i = 0; i < own.length; i++)
        if (own.data[i] == '\n') own.data[i] = mark;
    append_formatted(&text, hn_str_get(&own), args);
    const char *at = hn_str_get(&text);
    for (;;) {
        size_t n = mark < 32 ? strcspn(at, (char[]){mark, '\0'}) : strlen(at);
        hn_str_append_clean(&clean, at, n, HN_CLEAN_LINE);
        if (!at[n]) break;
        hn_str_append(&clean, "\n");
        at += n + 1;
    }
    fputs(hn_str_get(&clean), stdout);
    hn_str_free(&own);
    hn_str_free(&text);
    hn_str_free(&clean);
}

void hn_cli_printf(const char *fmt, ...) {
    va_list args, again;
    hn_str text = {0};
    va_start(args, fmt);
    va_copy(again, args);
    append_formatted(&text, fmt, args);
    va_end(args);
    if (count_of(hn_str_get(&text), '\n') == count_of(fmt, '\n'))
        hn_cli_put(hn_str_get(&text));
    else
        print_marked(fmt, hn_str_get(&text), again);
    va_end(again);
    hn_str_free(&text);
}

json_t *hn_cli_json_text(const char *text) {
    hn_str clean = {0};
    hn_str_append_clean(&clean, text, strlen(text), HN_CLEAN_UTF8);
    json_t *string = clean.failed ? NULL : json_string(hn_str_get(&clean));
    hn_str_free(&clean);
    return string;
}

static hn_status put_json(hone_error *err, json_t *root, size_t form) {
    // ASCII only, and put writes DEL out: no control character of any kind gets to a terminal.
    char *text = root ? json_dumps(root, form | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    if (!text) HN_NOMEM(err, "writing JSON");
    hn_cli_put(text);
    hn_cli_put("\n");
    hn_free(text);
    return HONE_OK;
}
hn_status hn_cli_json(hone_error *err, json_t *root) { return put_json(err, root, JSON_INDENT(2)); }

hn_status hn_cli_json_line(hone_error *err, json_t *root) {
    HN_TRY(put_json(err, root, JSON_COMPACT));
    fflush(stdout);
    return HONE_OK;
}
