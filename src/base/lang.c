// SPDX-License-Identifier: Apache-2.0
// Sentences in the chosen language: see lang.h.
#include "base/lang.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/base.h"

#define MAX_CAPTURES 16
#define MAX_DEPTH    10    // sentences within sentences
#define MAX_STEPS    20000 // of one row's match: what takes more is no sentence of ours
#define MAX_WORK     2000000 // rows looked at and steps of all matches for one text: hostile ones end in English

static const hn_lang_row k_rows[] = {
#define HN_ZH(en, zh)        {en, zh},
#define HN_ZH_SYSTEM(en, zh) {en, zh},
#include "base/zh/help.def"
#include "base/zh/report.def"
#include "base/zh/base.def"
#include "base/zh/graph.def"
#include "base/zh/onnx.def"
#include "base/zh/run.def"
#include "base/zh/place.def"
#undef HN_ZH
#undef HN_ZH_SYSTEM
};

static atomic_int g_lang = HN_LANG_EN;

void hn_lang_set(hn_lang lang) { atomic_store(&g_lang, lang); }
hn_lang hn_lang_get(void) { return (hn_lang)atomic_load(&g_lang); }

const hn_lang_row *hn_lang_rows(size_t *out_count) {
    *out_count = HN_COUNT_OF(k_rows);
    return k_rows;
}

bool hn_lang_named(const char *name, hn_lang *out_lang) {
    bool zh = strcmp(name, "zh") == 0;
    if (!zh && strcmp(name, "en") != 0) return false;
    *out_lang = zh ? HN_LANG_ZH : HN_LANG_EN;
    return true;
}

hn_lang hn_lang_of_locale(const char *locale) {
    if (strncmp(locale, "zh", 2) != 0 || !strchr("_.@-", locale[2])) return HN_LANG_EN;
    const char *codes = strchr(locale, '.');
    bool utf8 = !codes || strncasecmp(codes, ".utf-8", 6) == 0 || strncasecmp(codes, ".utf8", 5) == 0;
    return utf8 ? HN_LANG_ZH : HN_LANG_EN;
}

// ---- formats ------------------------------------------------------------------------------------
typedef struct conversion {
    int position; // of %N$, from 1; 0: the next one
    char kind;
    bool verbatim; // %#s, of a translation: names, whatever they read like
    bool empty; // %.0s: an English plural that Chinese drops; %.0d: prints nothing for 0
    const char *end;
} conversion;

// `at` stands on a % that is not doubled.
static conversion parse_conversion(const char *at) {
    conversion c = {0, 's', false, false, at + 1};
    const char *digits = c.end + strspn(c.end, "0123456789");
    if (*digits == '$') {
        for (const char *d = c.end; d < digits; d++)
            c.position = c.position * 10 + (*d - '0');
        c.end = digits + 1;
    }
    c.verbatim = *c.end == '#';
    c.end += strspn(c.end, "-+#0123456789.*hlLzjt");
    c.kind = *c.end;
    c.empty = c.end > at + 2 && c.end[-2] == '.' && c.end[-1] == '0';
    if (*c.end) c.end++;
    return c;
}

// Texts that are no formats have percent signs too ("2 %."): those are no conversions.
static bool is_literal(const char *at) {
    if (*at != '%' || at[1] == '%') return true;
    conversion c = parse_conversion(at);
    return !c.kind || !strchr("diuxXeEfFgGaAcsp", c.kind);
}
static int literal_length(const char *at) { return *at == '%' && at[1] == '%' ? 2 : 1; }

static size_t literal_bytes(const char *format) {
    size_t count = 0;
    for (const char *at = format; *at;) {
        if (!is_literal(at)) at = parse_conversion(at).end;
        else count++, at += literal_length(at);
    }
    return count;
}

// ---- matching -----------------------------------------------------------------------------------
typedef struct capture {
    const char *at;
    size_t length;
    bool name; // quoted, or a number: stays as it is
} capture;

typedef struct match {
    capture captures[MAX_CAPTURES];
    int count, steps;
} match;

// Bytes at `text` that a number's conversion may have printed.
static size_t number_length(char kind, const char *text, size_t length) {
    const char *set = strchr("diu", kind) ? " +-0123456789" : strchr("xX", kind) ? " 0123456789abcdefABCDEF" : " +-.0123456789einfaxp";
    size_t n = 0;
    while (n < length && text[n] && strchr(set, text[n])) n++;
    return n;
}

static bool match_format(match *m, const char *format, const char *text, size_t length, char before) {
    if (++m->steps > MAX_STEPS) return false;
    while (*format && is_literal(format)) {
        if (!length || *text != *format) return false;
        before = *format;
        format += literal_length(format);
        text++, length--;
    }
    if (!*format) return length == 0;
    if (m->count == MAX_CAPTURES) return false;
    conversion c = parse_conversion(format);
    bool number = strchr("diuxXfFgGeEaAp", c.kind) != NULL;
    size_t most = number ? number_length(c.kind, text, length) : c.kind == 'c' ? (length > 0) : length;
    int slot = m->count++;
    for (size_t k = 0; k <= most; k++) {
        size_t taken = number ? most - k : k; // numbers are long, words end where the format goes on
        if (taken == 0 && c.kind != 's' && !c.empty) continue;
        if (*c.end && is_literal(c.end) && (taken >= length || text[taken] != *c.end)) continue;
        m->captures[slot] = (capture){text, taken, number || c.kind == 'c' || before == '\''};
        if (match_format(m, c.end, text + taken, length - taken, 'x')) return true;
        m->count = slot + 1;
    }
    m->count = slot;
    return false;
}

// ---- writing ------------------------------------------------------------------------------------
typedef struct sink {
    char *at;
    size_t left; // with room for the zero byte
    bool full;
    int work;
} sink;

static void put(sink *out, const char *text, size_t length) {
    if (length >= out->left) {
        out->full = true;
        return;
    }
    memcpy(out->at, text, length);
    out->at += length;
    out->left -= length;
}

static bool translate(sink *out, const char *text, size_t length, int depth);

static void put_piece(sink *out, const capture *piece, bool verbatim, int depth) {
    if (verbatim || piece->name || !translate(out, piece->at, piece->length, depth + 1)) put(out, piece->at, piece->length);
}

static void render(sink *out, const char *format, const match *m, int depth) {
    int next = 0;
    while (*format && !out->full) {
        if (is_literal(format)) {
            put(out, format, 1);
            format += literal_length(format);
            continue;
        }
        conversion c = parse_conversion(format);
        int index = c.position ? c.position - 1 : next++;
        bool dropped = c.empty && c.kind == 's';
        if (index < m->count && !dropped) put_piece(out, &m->captures[index], c.verbatim, depth);
        format = c.end;
    }
}

// Sentences stand behind one another, figures in lists, a subject before its remark: what no row says as a
// whole is translated part by part.
static bool translate_parts(sink *out, const char *text, size_t length, int depth) {
    static const struct {
        const char *en, *zh;
    } k_marks[] = {{"; ", "；"}, {", ", "，"}, {": ", "："}};
    if (text[0] == ' ') return translate(out, text + 1, length - 1, depth + 1); // a piece put behind another
    for (size_t k = 0; k < HN_COUNT_OF(k_marks); k++) {
        for (size_t i = 0; i + 2 < length; i++) {
            if (memcmp(text + i, k_marks[k].en, 2) != 0) continue;
            sink before = *out;
            bool first = translate(out, text, i, depth + 1);
            if (!first) put(out, text, i);
            put(out, k_marks[k].zh, strlen(k_marks[k].zh));
            bool second = translate(out, text + i + 2, length - i - 2, depth + 1);
            if (!second) put(out, text + i + 2, length - i - 2);
            if (first || second) return true;
            before.work = out->work;
            before.full = out->full;
            *out = before;
            break; // the later ones have been tried within the second part
        }
    }
    return false;
}

// False, and nothing written, where no row fits. Of several the one with most text of its own.
static bool translate(sink *out, const char *text, size_t length, int depth) {
    if (depth > MAX_DEPTH || length == 0 || out->full) return false;
    out->work += (int)HN_COUNT_OF(k_rows);
    const hn_lang_row *best = NULL;
    size_t best_bytes = 0;
    match found = {.count = 0};
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++) {
        const hn_lang_row *row = &k_rows[i];
        if (strncmp(row->en, text, length) == 0 && row->en[length] == '\0') {
            put(out, row->zh, strlen(row->zh));
            return true;
        }
        if (row->en[0] != '%' && row->en[0] != text[0]) continue;
        size_t bytes = literal_bytes(row->en);
        if (bytes > length || bytes <= best_bytes) continue;
        match m = {.count = 0};
        bool fits = match_format(&m, row->en, text, length, ' ');
        out->work += m.steps;
        if (out->work > MAX_WORK) out->full = true;
        if (out->full) return false;
        if (!fits) continue;
        best = row, best_bytes = bytes, found = m;
    }
    if (!best) return translate_parts(out, text, length, depth);
    render(out, best->zh, &found, depth);
    return true;
}

const char *hn_lang_text(const char *text, char *out) {
    if (hn_lang_get() == HN_LANG_EN) return text;
    sink to = {out, HN_LANG_BYTES, false, 0};
    if (!translate(&to, text, strlen(text), 0) || to.full) return text;
    *to.at = '\0';
    return out;
}

const char *hn_lang_error(const hone_error *error, char *buf, size_t size) {
    if (hn_lang_get() == HN_LANG_EN || size == 0) return hone_error_format(error, buf, size);
    char piece[HN_LANG_BYTES];
    int at = snprintf(buf, size, "%s", hn_lang_text(error->text, piece));
    for (int i = error->frame_count - 1; i >= 0 && at > 0 && (size_t)at < size; i--)
        at += snprintf(buf + at, size - (size_t)at, "%s%s%s", i == error->frame_count - 1 ? "（" : "：",
                       hn_lang_text(error->frames[i], piece), i == 0 ? "）" : "");
    return buf;
}
