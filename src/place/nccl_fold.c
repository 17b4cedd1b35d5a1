// SPDX-License-Identifier: Apache-2.0
// From physical to logical lines: colours, carriage returns and collectors' wrappings go, and lines
// that a terminal, a chat or an editor folded are put together again.
//
// A log does not say at which width it was folded, nor whether at a column or at blanks; both are
// read off the lines that carry no head of their own. A first pass counts how they end, a second
// joins them. Where both ways of folding fit, the state says so (fold_doubt) and the caller reads
// the text both ways.
#include "place/nccl_int.h"
#include <ctype.h>

#define LINE_MAX_BYTES 65536 // of one line that is looked at
#define WRAP_MIN       40
#define WRAP_MAX       300 // a longer line: nothing was folded

// Length of the escape sequence at text[0] == ESC.
static size_t escape_length(const char *text, size_t length) {
    if (length < 2) return 1;
    size_t i = 2;
    if (text[1] == '[') {
        while (i < length && !(text[i] >= 0x40 && text[i] <= 0x7e))
            i++;
        return i < length ? i + 1 : length;
    }
    if (text[1] == ']') {
        while (i < length && text[i] != '\a' && text[i] != 0x1b)
            i++;
        return i < length ? i + (text[i] == 0x1b && i + 1 < length ? 2 : 1) : length;
    }
    return 2;
}

// Appends the line without escapes; control characters become blanks.
static void clean(hn_slice line, hn_str *out) {
    if (line.length > LINE_MAX_BYTES) line.length = LINE_MAX_BYTES;
    size_t i = 0;
    while (i < line.length) {
        unsigned char c = (unsigned char)line.data[i];
        if (c == 0x1b) {
            i += escape_length(line.data + i, line.length - i);
            continue;
        }
        size_t run = i;
        while (run < line.length && (unsigned char)line.data[run] >= ' ' && line.data[run] != 0x7f)
            run++;
        if (run > i) {
            hn_str_append_n(out, line.data + i, run - i);
            i = run;
        } else {
            if (c != '\r' || i + 1 < line.length) hn_str_append_n(out, " ", 1);
            i++;
        }
    }
}

// Docker's json-file lines: {"log":"...\n","stream":"stdout","time":"..."}. Appends the text of
// "log".
static bool unwrap_json(hn_slice line, hn_str *out) {
    static const char k_open[] = "{\"log\":";
    if (!hn_slice_starts(line, k_open)) return false;
    size_t at = sizeof k_open - 1;
    while (at < line.length && line.data[at] == ' ')
        at++;
    if (at >= line.length || line.data[at++] != '"') return false;
    for (; at < line.length && line.data[at] != '"'; at++) {
        char c = line.data[at];
        if (c == '\\' && at + 1 < line.length) {
            c = line.data[++at];
            if (c == 'u' && at + 4 < line.length) {
                c = memcmp(line.data + at + 1, "001b", 4) == 0 ? 0x1b : ' ';
                at += 4;
            } else if (c == 'n' || c == 'r' || c == 't') {
                c = ' ';
            }
        }
        hn_str_append_n(out, &c, 1);
    }
    return true;
}

// ---- lines ------------------------------------------------------------------------------------
typedef struct reader {
    hn_slice rest;
    hn_str text, inner;
    int64_t number;
} reader;

// The next physical line, cleaned; borrowed until the next call.
static bool next_line(reader *r, hn_slice *out_text) {
    hn_slice line;
    if (!hn_slice_line(&r->rest, &line)) return false;
    r->number++;
    r->text.length = r->inner.length = 0;
    if (line.length <= LINE_MAX_BYTES && line.length && line.data[0] == '{' &&
        unwrap_json(line, &r->inner))
        line = (hn_slice){hn_str_get(&r->inner), r->inner.length};
    clean(line, &r->text);
    *out_text = (hn_slice){hn_str_get(&r->text), r->text.length};
    return true;
}

typedef enum kind {
    K_BLANK,
    K_HEAD,  // a whole head: host:pid:tid ... NCCL LEVEL
    K_TORN,  // several heads: what follows is the tail of the first
    K_BARE,  // NCCL LEVEL without a host: a head's second part, or an old format
    K_HALF,  // host:pid:tid [card], and the line ends before NCCL LEVEL
    K_START, // a line of its own kind: comment, table row, time stamp
    K_OTHER,
} kind;

static bool starts_with_time(hn_slice text) {
    size_t at = text.length && text.data[0] == '[';
    if (text.length < at + 10) return false;
    const char *t = text.data + at;
    return t[0] == '2' && t[1] == '0' && t[4] == '-' && t[7] == '-' && isdigit((unsigned char)t[9]);
}

// A word "host:pid:tid", at the line's end or before "[card]".
static bool has_half(hn_slice text) {
    hn_slice word;
    while (hn_nccl_token(&text, &word)) {
        size_t at = word.length, colons = 0;
        while (at && (isdigit((unsigned char)word.data[at - 1]) || word.data[at - 1] == ':')) {
            at--;
            if (word.data[at] != ':') continue;
            if (!isdigit((unsigned char)word.data[at + 1 < word.length ? at + 1 : at]) ||
                ++colons == 2)
                break;
        }
        if (colons != 2 || !at) continue;
        bool name = false, good = true;
        for (size_t i = 0; i < at; i++) {
            unsigned char c = (unsigned char)word.data[i];
            name = name || isalpha(c) || c == '.';
            good = good && (isalnum(c) || c == '-' || c == '_' || c == '.');
        }
        hn_slice rest = hn_slice_trim(text);
        if (good && name && (!rest.length || rest.data[0] == '[')) return true;
    }
    return false;
}

static kind kind_of(hn_nccl_state *state, hn_slice text) {
    text = hn_slice_trim(text);
    if (!text.length) return K_BLANK;
    bool host, more;
    if (hn_nccl_has_header(state, text, &host, &more))
        return more ? K_TORN : host ? K_HEAD : K_BARE;
    if (has_half(text)) return K_HALF;
    if (text.data[0] == '#' && (text.length == 1 || !isalpha((unsigned char)text.data[1])))
        return K_START;
    if (hn_nccl_bench_is_row(text) || hn_slice_starts(text, "NCCL version") ||
        starts_with_time(text))
        return K_START;
    return K_OTHER;
}

// ---- how a text was folded ----------------------------------------------------------------------
typedef struct plan {
    size_t width;   // 0: not folded
    size_t indent;  // blanks before every line
    size_t hang;    // blanks before every line that goes on
    bool at_blanks; // else at a column
    bool kept;      // the blank stays at the line's end (fold -s)
    bool prefixes;  // the break goes through what stands before the heads
} plan;

static size_t leading(hn_slice text) {
    size_t n = 0;
    while (n < text.length && text.data[n] == ' ')
        n++;
    return n;
}

static size_t first_word(hn_slice text) {
    size_t from = leading(text), n = from;
    while (n < text.length && text.data[n] != ' ')
        n++;
    return n - from;
}

typedef struct counts {
    uint32_t ends[WRAP_MAX + 2];   // lines that may go on, by length
    uint32_t needs[WRAP_MAX * 2];  // the same, by the length that they and the next word need
    uint32_t before[WRAP_MAX + 2]; // lines without a head before one with a head, by length
    uint32_t total, heads, blank_ends, hang_min, hangs;
    uint32_t words[8], distinct; // first words of lines that go on, digits alike
} counts;

static void count_word(counts *c, hn_slice line) {
    size_t at = leading(line), end = at + first_word(line);
    uint32_t hash = 5381;
    for (; at < end; at++)
        hash = hash * 33 + (isdigit((unsigned char)line.data[at]) ? '0' : (uint8_t)line.data[at]);
    for (uint32_t i = 0; i < c->distinct; i++)
        if (c->words[i] == hash) return;
    if (c->distinct < HN_COUNT_OF(c->words)) c->words[c->distinct++] = hash;
}

// Both lines begin with one launcher's prefix ("[rank6]:", "worker-0:"): neither goes on the other.
static bool same_prefix(hn_slice a, hn_slice b) {
    size_t from = leading(a), length = first_word(a), other = leading(b);
    if (length < 3 || length != first_word(b) || memcmp(a.data + from, b.data + other, length) != 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (strchr("[](){}:|", a.data[from + i])) return true;
    return false;
}

// `before` is the line that `line` may go on, of kind `then`; before_length that of the one
// earlier.
static void count_pair(counts *c, hn_slice line, size_t indent, kind now, kind then,
                       hn_slice before, size_t before_length) {
    size_t length = before.length;
    if (now == K_HEAD) c->heads++;
    if (then == K_BLANK || then == K_TORN || length > WRAP_MAX) return;
    if ((now == K_HEAD || now == K_HALF) && (then == K_OTHER || then == K_START) &&
        before_length != length)
        c->before[length]++;
    if (now != K_OTHER && !(now == K_BARE && then != K_HEAD && then != K_BARE)) return;
    if (same_prefix(before, line)) return;
    count_word(c, line);
    size_t lead = leading(line) - indent, need = length + 1 + lead + first_word(line);
    c->ends[length]++;
    c->needs[need < HN_COUNT_OF(c->needs) ? need : HN_COUNT_OF(c->needs) - 1]++;
    c->total++;
    if (lead) c->hangs++;
    if (lead < c->hang_min) c->hang_min = (uint32_t)lead;
}

static void decide(hn_nccl_state *state, const counts *c, size_t widest, plan *out) {
    uint32_t at_column = c->ends[widest], fits = 0;
    for (size_t i = widest + 1; i < HN_COUNT_OF(c->needs); i++)
        fits += c->needs[i];
    uint32_t soft = fits > at_column ? fits - at_column : 0;
    uint32_t before = c->before[widest];
    out->prefixes = before && before * 2 > c->heads;
    if (widest < WRAP_MIN || (!fits && !out->prefixes)) return;
    out->kept = c->blank_ends * 2 > fits;
    // Lines that go on for other reasons (a traceback, a warning of two lines) end anywhere.
    bool hard = at_column > soft && !out->kept;
    if (hard ? at_column < 3 && c->total - at_column > at_column : fits < c->total - fits) return;
    out->width = widest;
    out->at_blanks = !hard;
    if (c->total >= 3 && c->hangs == c->total) out->hang = c->hang_min;
    if (hard && c->hangs && !out->hang) return; // folding at blanks leaves none before a word
    if (out->kept || out->prefixes) return;
    // Records of one kind break at one place, whichever way.
    bool alike = c->distinct < HN_COUNT_OF(c->words);
    if (hard ? soft * 2 >= at_column || at_column <= 3 || alike
             : at_column >= 2 && soft <= at_column * 2) {
        state->fold_doubt = true;
        if (state->fold_as) out->at_blanks = state->fold_as == HN_NCCL_FOLD_BLANKS;
    }
}

static bool plan_make(hn_nccl_state *state, hn_slice text, plan *out) {
    reader r = {.rest = text};
    hn_slice line;
    size_t widest = 0, indent = WRAP_MAX, before = 0;
    counts *c = hn_calloc(1, sizeof *c);
    *out = (plan){0};
    if (!c) return false;
    c->hang_min = WRAP_MAX;
    bool long_line = false;
    while (!long_line && next_line(&r, &line)) {
        if (line.length > widest) widest = line.length;
        long_line = widest > WRAP_MAX;
        size_t lead = leading(line);
        if (lead < line.length && lead < indent) indent = lead;
    }
    kind then = K_BLANK;
    hn_str last = {0};
    r.rest = text;
    while (!long_line && next_line(&r, &line)) {
        kind now = kind_of(state, line);
        uint32_t total = c->total;
        hn_slice prior = {hn_str_get(&last), last.length};
        count_pair(c, line, indent, now, then, prior, before);
        c->blank_ends += c->total > total && prior.length && prior.data[prior.length - 1] == ' ';
        before = last.length;
        then = now;
        last.length = 0;
        hn_str_append_n(&last, line.data, line.length);
    }
    if (!long_line) decide(state, c, widest, out);
    out->indent = indent < WRAP_MAX ? indent : 0;
    bool failed = r.text.failed || r.inner.failed || last.failed;
    hn_str_free(&last);
    hn_str_free(&r.text);
    hn_str_free(&r.inner);
    hn_free(c);
    return !failed;
}

// Nothing but what launchers and collectors set before a record: a time, a rank, a stream's name.
static bool is_prefix(hn_slice text) {
    hn_slice word, last = {0}, rest = text;
    size_t colons = 0;
    while (hn_nccl_token(&rest, &word))
        last = word;
    if (!last.length) return false;
    char end = last.data[last.length - 1], start = last.data[0];
    for (size_t i = 0; i < last.length; i++)
        colons += last.data[i] == ':';
    if (end == ':' && last.length > 1) end = last.data[last.length - 2];
    return (colons >= 2 && isdigit((unsigned char)start)) || (colons == 2 && end == ']') ||
           (end == ']' && start == '[') || end == '>' || end == '|' ||
           (last.length == 1 && (end == 'F' || end == 'P') && starts_with_time(text));
}

// True if `line` goes on what `joined` holds; *out_blank says whether a blank belongs between.
static bool goes_on(hn_nccl_state *state, const plan *p, hn_str *joined, hn_slice last,
                    hn_slice line, bool single, bool *out_blank) {
    *out_blank = false;
    size_t length = last.length, word = leading(line) - p->indent + first_word(line);
    bool full = length == p->width, fits = length + 1 + word > p->width;
    if (!(p->at_blanks ? fits : full) || same_prefix(last, line)) return false;
    kind now = kind_of(state, line);
    bool host, more = false, blank = length && last.data[length - 1] == ' ';
    bool long_word = full && !memchr(last.data + p->indent, ' ', length - p->indent);
    *out_blank = p->at_blanks && !p->kept && !blank && !long_word;
    hn_slice whole = {hn_str_get(joined), joined->length};
    bool has = hn_nccl_has_header(state, whole, &host, &more) && host;
    if (more) return false;
    switch (now) {
    case K_OTHER:
        return true;
    case K_BARE: {
        if (has) return false;
        size_t keep = joined->length;
        if (*out_blank) hn_str_append_n(joined, " ", 1);
        size_t skip = leading(line) < p->indent ? leading(line) : p->indent;
        hn_str_append_n(joined, line.data + skip, line.length - skip);
        bool made =
            !joined->failed &&
            hn_nccl_has_header(state, (hn_slice){joined->data, joined->length}, &host, &more) &&
            host;
        joined->length = keep;
        joined->data[keep] = '\0';
        return made;
    }
    case K_HEAD:
    case K_TORN:
    case K_HALF:
        return single && !has && ((p->prefixes && full) || is_prefix(whole));
    default:
        return false;
    }
}

// ---- the door -----------------------------------------------------------------------------------
static void emit(hn_nccl_state *state, hn_str *joined, int64_t line) {
    hn_slice text = {hn_str_get(joined), joined->length};
    if (kind_of(state, text) == K_HALF && !state->halves++) state->half_line = line;
    hn_nccl_line(state, text, line);
    joined->length = 0;
}

hn_status hn_nccl_feed(hn_nccl_state *state, const hn_nccl_input *input) {
    hn_slice text = input->text, line;
    if (text.length >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0)
        text.data += 3, text.length -= 3;
    hn_nccl_begin(state, input->name);
    plan p;
    if (!plan_make(state, text, &p)) HN_NOMEM(state->err, "reading a log");
    if (p.width) state->folded = true;
    reader r = {.rest = text};
    hn_str joined = {0}, last = {0};
    int64_t first = 0;
    bool single = false;
    while (next_line(&r, &line)) {
        hn_slice before = {hn_str_get(&last), last.length}, part = line;
        size_t skip = leading(line) < p.indent ? leading(line) : p.indent;
        part.data += skip, part.length -= skip;
        bool gap = false, on = false;
        if (first && part.length && joined.length < LINE_MAX_BYTES) {
            on =
                p.width && joined.length && goes_on(state, &p, &joined, before, line, single, &gap);
            if (on) {
                size_t hang = leading(part) < p.hang ? leading(part) : p.hang;
                if (gap || p.hang) part.data += hang, part.length -= hang;
            } else {
                on = hn_nccl_bench_goes_on((hn_slice){hn_str_get(&joined), joined.length}, part,
                                           &gap);
            }
        }
        if (gap) hn_str_append_n(&joined, " ", 1);
        if (!on && first) {
            emit(state, &joined, first);
            first = 0;
        }
        single = !first;
        if (!first) first = r.number;
        hn_str_append_n(&joined, part.data, part.length);
        last.length = 0;
        if (p.width) hn_str_append_n(&last, line.data, line.length);
        if (joined.failed || last.failed || r.text.failed || r.inner.failed || state->failed) break;
    }
    if (first) emit(state, &joined, first);
    state->lines += r.number;
    hn_nccl_end(state);
    bool failed = joined.failed || last.failed || r.text.failed || r.inner.failed || state->failed;
    hn_str_free(&joined);
    hn_str_free(&last);
    hn_str_free(&r.text);
    hn_str_free(&r.inner);
    if (failed) HN_NOMEM(state->err, "reading a log");
    return HONE_OK;
}
