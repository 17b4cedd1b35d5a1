// SPDX-License-Identifier: Apache-2.0
// From bytes to records: colours and carriage returns go, launcher prefixes are set aside, lines
// that hold several torn records are split, hard-wrapped lines are joined.
//
// A record's header is "host:pid:tid [device] file.cc:line (function) NCCL LEVEL". It is found from
// its level backwards, so that anything may stand before it. Line numbers are those of the input.
#include "place/nccl_int.h"
#include <ctype.h>
#include <time.h>

#define LINE_MAX_BYTES 65536 // of one line that is looked at
#define WRAP_MIN       40
#define WRAP_MAX       300

typedef struct header {
    size_t start, source, message; // offsets: first byte of the header, of the source, of the text
    size_t host_length, source_length;
    int64_t pid, tid;
    int device, level;
} header;

static bool blank(char c) {
    return c == ' ' || c == '\t';
}
static bool digit(char c) {
    return c >= '0' && c <= '9';
}
static bool host_char(char c) {
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

size_t hn_nccl_squeeze(hn_slice text, char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < text.length && used + 1 < size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c > ' ') out[used++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    if (size) out[used] = '\0';
    return used;
}

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

static size_t visible_length(hn_slice line) {
    size_t length = 0, i = 0;
    while (i < line.length) {
        if (line.data[i] == 0x1b)
            i += escape_length(line.data + i, line.length - i);
        else
            length += line.data[i] != '\r', i++;
    }
    return length;
}

// The width at which a terminal or an editor broke the lines, 0 if nothing looks so: many lines of
// exactly the largest length.
static size_t wrap_width(hn_slice text) {
    size_t counts[WRAP_MAX + 1] = {0}, lines = 0, widest = 0;
    hn_slice line;
    while (hn_slice_line(&text, &line)) {
        size_t length = visible_length(line);
        lines++;
        if (length > WRAP_MAX) return 0;
        counts[length]++;
        if (length > widest) widest = length;
    }
    if (widest < WRAP_MIN || counts[widest] < 3 || counts[widest] * 25 < lines) return 0;
    return widest;
}

// "digits" that end at text[end): sets *out_start; false if there is none or it is too long.
static bool number_before(const char *text, size_t end, size_t *out_start, int64_t *out) {
    size_t start = end;
    while (start > 0 && digit(text[start - 1]))
        start--;
    if (start == end || end - start > 18) return false;
    *out = 0;
    for (size_t i = start; i < end; i++)
        *out = *out * 10 + (text[i] - '0');
    *out_start = start;
    return true;
}

static size_t back_blanks(const char *text, size_t end) {
    while (end > 0 && blank(text[end - 1]))
        end--;
    return end;
}

// Walks backwards from the level: function, source, device, host:pid:tid. Each may be absent.
// `from_start` is where the search began: not 0 behind an earlier header of the same line.
static void read_backwards(hn_nccl_state *state, const char *text, size_t from, size_t from_start,
                           header *head) {
    size_t end = back_blanks(text, from), at;
    int64_t number;
    head->start = from;
    if (end > 1 && text[end - 1] == ')') {
        at = end - 1;
        while (at > 0 && !blank(text[at]) && text[at] != '(')
            at--;
        if (text[at] == '(') end = back_blanks(text, at);
    }
    // The source: file.cc:12, but not host:12:34.
    if (number_before(text, end, &at, &number) && at > 1 && text[at - 1] == ':' &&
        !digit(text[at - 2])) {
        size_t start = at - 1;
        while (start > 0 && !blank(text[start - 1]) && text[start - 1] != ']')
            start--;
        if (memchr(text + start, '.', at - start) || text[start] == '<') {
            head->source = start;
            head->source_length = end - start;
            head->start = start;
            end = back_blanks(text, start);
        }
    }
    if (end > 2 && text[end - 1] == ']') {
        size_t inner = back_blanks(text, end - 1);
        if (number_before(text, inner, &at, &number) && number < 1024) {
            at = back_blanks(text, at);
            if (at > 0 && text[at - 1] == '[') {
                head->device = (int)number;
                head->start = at - 1;
                end = back_blanks(text, at - 1);
            }
        }
    }
    size_t tid_at, pid_at, host_at;
    int64_t tid, pid;
    if (!number_before(text, end, &tid_at, &tid) || tid_at < 2 || text[tid_at - 1] != ':') return;
    if (!number_before(text, tid_at - 1, &pid_at, &pid) || pid_at < 2 || text[pid_at - 1] != ':')
        return;
    host_at = pid_at - 1;
    while (host_at > 0 && host_char(text[host_at - 1]))
        host_at--;
    size_t length = pid_at - 1 - host_at;
    if (!length) return;
    // A torn tail may be glued to the host: a host seen before that ends this name is the host.
    bool glued = state->torn.active || (from_start && host_at >= from_start);
    for (size_t i = 0; glued && i < state->hosts.count && i < HN_NCCL_HOSTS_MAX; i++) {
        size_t known = strlen(state->hosts.data[i]);
        if (known < length && memcmp(text + pid_at - 1 - known, state->hosts.data[i], known) == 0) {
            host_at = pid_at - 1 - known;
            length = known;
            break;
        }
    }
    head->pid = pid;
    head->tid = tid;
    head->start = host_at;
    head->host_length = length;
}

static bool find_header(hn_nccl_state *state, const char *text, size_t length, size_t from,
                        header *out) {
    static const struct {
        const char *word;
        int level;
    } k_levels[] = {{"INFO", HN_NCCL_INFO},    {"WARN", HN_NCCL_WARN},  {"ERROR", HN_NCCL_WARN},
                    {"TRACE", HN_NCCL_OTHER},  {"CALL", HN_NCCL_OTHER}, {"ABORT", HN_NCCL_OTHER},
                    {"PROFILE", HN_NCCL_OTHER}};
    for (size_t i = from; i + 8 <= length; i++) {
        const char *found = memmem(text + i, length - i, "NCCL", 4);
        if (!found) return false;
        i = (size_t)(found - text);
        size_t at = i + 4;
        while (at < length && blank(text[at]))
            at++;
        if (at == i + 4) continue;
        for (size_t k = 0; k < HN_COUNT_OF(k_levels); k++) {
            size_t word = strlen(k_levels[k].word);
            if (length - at < word || memcmp(text + at, k_levels[k].word, word) != 0) continue;
            if (at + word < length && (isalnum((unsigned char)text[at + word]) ||
                                       text[at + word] == '_' || text[at + word] == '='))
                continue;
            *out = (header){.pid = -1, .tid = -1, .device = -1, .level = k_levels[k].level};
            read_backwards(state, text, i, from, out);
            if (out->start < from) out->start = i, out->host_length = 0, out->source_length = 0;
            at += word;
            while (at < length && blank(text[at]))
                at++;
            out->message = at;
            return true;
        }
    }
    return false;
}

// "2026-03-12 14:17:56.123" or with T, anywhere in text.
static int64_t timestamp(hn_slice text) {
    for (size_t i = 0; i + 19 <= text.length; i++) {
        const char *t = text.data + i;
        if (t[4] != '-' || t[7] != '-' || t[13] != ':' || t[16] != ':') continue;
        if (t[10] != ' ' && t[10] != 'T') continue;
        static const int k_at[] = {0, 5, 8, 11, 14, 17}, k_size[] = {4, 2, 2, 2, 2, 2};
        int v[6] = {0};
        bool good = true;
        for (int k = 0; k < 6 && good; k++)
            for (int d = 0; d < k_size[k]; d++) {
                good = good && digit(t[k_at[k] + d]);
                v[k] = v[k] * 10 + (t[k_at[k] + d] - '0');
            }
        if (!good || v[0] < 1970 || v[1] < 1 || v[1] > 12) continue;
        struct tm tm = {.tm_year = v[0] - 1900,
                        .tm_mon = v[1] - 1,
                        .tm_mday = v[2],
                        .tm_hour = v[3],
                        .tm_min = v[4],
                        .tm_sec = v[5]};
        int64_t us = (int64_t)timegm(&tm) * 1000000, scale = 100000;
        size_t f = i + 19;
        if (f < text.length && (text.data[f] == '.' || text.data[f] == ','))
            for (f++; f < text.length && digit(text.data[f]); f++, scale /= 10)
                us += (text.data[f] - '0') * scale;
        return us;
    }
    return INT64_MIN;
}

// The one nearest to the header is NCCL's own; a collector's stand before it.
static int64_t last_timestamp(hn_slice text) {
    for (size_t from = text.length; from-- > 0;) {
        if (!digit(text.data[from]) || (from && digit(text.data[from - 1]))) continue;
        hn_slice rest = {text.data + from, text.length - from};
        if (rest.length < 19 || rest.data[4] != '-') continue;
        int64_t time = timestamp(rest);
        if (time != INT64_MIN) return time;
    }
    return INT64_MIN;
}

// The rank that a launcher's prefix tells: "[rank3]:", "[1,3]<stdout>:", "3: ", "[3] ".
static int prefix_rank(hn_slice before) {
    const char *t = before.data;
    size_t n = before.length;
    const char *word = n ? memmem(t, n, "[rank", 5) : NULL;
    size_t at;
    if (word) {
        at = (size_t)(word - t) + 5;
    } else {
        at = 0;
        while (at < n && blank(t[at]))
            at++;
        if (at < n && t[at] == '[') {
            const char *comma = memchr(t + at, ',', n - at), *tag = memmem(t, n, "]<std", 5);
            if (comma && tag && comma < tag)
                at = (size_t)(comma - t) + 1;
            else
                at++;
        }
    }
    size_t start = at;
    int64_t rank = 0;
    while (at < n && digit(t[at]) && at - start < 7)
        rank = rank * 10 + (t[at++] - '0');
    if (at == start || at >= n) return -1;
    if (word || t[at] == ']') return t[at] == ']' ? (int)rank : -1;
    return t[at] == ':' && (at + 1 == n || blank(t[at + 1])) ? (int)rank : -1;
}

// ---- records that go on -----------------------------------------------------------------------
static hn_slice rebase(hn_slice slice, const char *from, const char *to) {
    return slice.data ? (hn_slice){to + (slice.data - from), slice.length} : slice;
}

static void tail_begin(hn_nccl_state *state, struct hn_nccl_tail *tail,
                       const hn_nccl_record *record) {
    tail->line.length = tail->message.length = tail->whole.length = 0;
    hn_str_append_n(&tail->line, record->text.data, record->text.length);
    hn_str_append_n(&tail->whole, record->whole.data, record->whole.length);
    hn_str_append_n(&tail->message, record->message.data, record->message.length);
    if (tail->line.failed || tail->message.failed || tail->whole.failed) {
        state->failed = true;
        return;
    }
    tail->record = *record;
    const char *from = record->text.data, *to = tail->line.data;
    tail->record.text = (hn_slice){to, tail->line.length};
    tail->record.whole = (hn_slice){tail->whole.data, tail->whole.length};
    tail->record.host = rebase(record->host, from, to);
    tail->record.source = rebase(record->source, from, to);
    tail->record.before = (hn_slice){0};
    hn_slice text = record->message;
    tail->record.channel_read = text.length && memmem(text.data, text.length, "->", 2) &&
                                memmem(text.data, text.length, "via ", 4) && !record->torn;
    tail->sequence = state->sequence;
    tail->age = 0;
    tail->active = true;
}

static int tail_scan(hn_nccl_state *state, struct hn_nccl_tail *tail) {
    uint64_t now = state->sequence;
    state->sequence = tail->sequence;
    tail->record.message = (hn_slice){hn_str_get(&tail->message), tail->message.length};
    int found = hn_nccl_scan(state, &tail->record);
    state->sequence = now;
    return found;
}

// A torn record that found no tail is scanned as it is.
static void torn_flush(hn_nccl_state *state) {
    if (!state->torn.active) return;
    state->torn.active = false;
    tail_scan(state, &state->torn);
}

static void warning_explained(hn_nccl_state *state) {
    if (state->warning_count && --state->warning_count == 0) state->warning.text = NULL;
    state->warning_open = false;
}

// Text without a header: the torn record's tail, or the last record's next line. The channel lines
// of `last` were complete or are torn for good: nothing of theirs is read twice.
static void text_goes_on(hn_nccl_state *state, hn_slice text) {
    if (!text.length) return;
    if (state->torn.active) {
        hn_str_append_n(&state->torn.message, text.data, text.length);
        torn_flush(state);
        return;
    }
    struct hn_nccl_tail *last = &state->last;
    if (!last->active) return;
    if (last->age++ >= 3 || last->message.length > LINE_MAX_BYTES) {
        last->active = false;
        return;
    }
    hn_str_append_n(&last->message, text.data, text.length);
    bool open = state->warning_open;
    int found = tail_scan(state, last);
    if (found && open) warning_explained(state);
}

static hn_slice collapse(hn_nccl_state *state, hn_slice text) {
    state->collapsed.length = 0;
    hn_str_append(&state->collapsed, "");
    for (size_t i = 0; i < text.length;) {
        size_t run = i;
        while (run < text.length && !blank(text.data[run]))
            run++;
        hn_str_append_n(&state->collapsed, text.data + i, run - i);
        i = run;
        while (i < text.length && blank(text.data[i]))
            i++;
        if (i > run) hn_str_append_n(&state->collapsed, " ", 1);
    }
    if (state->collapsed.failed) state->failed = true;
    return (hn_slice){hn_str_get(&state->collapsed), state->collapsed.length};
}

static void feed_line(hn_nccl_state *state, hn_slice whole, int64_t line) {
    header head, next;
    hn_slice text = collapse(state, whole);
    hn_nccl_record record = {.level = HN_NCCL_PLAIN,
                             .pid = -1,
                             .tid = -1,
                             .device = -1,
                             .rank_hint = -1,
                             .text = text,
                             .whole = whole,
                             .line = line};
    if (!find_header(state, text.data, text.length, 0, &head)) {
        record.message = hn_slice_trim(text);
        record.time_us = timestamp(text);
        state->sequence++;
        if (!record.message.length) {
            state->last.active = false;
            return;
        }
        // Tables, comments and RAS are lines of their own, never the tail of a record.
        if (hn_nccl_bench_line(state, &record) || hn_nccl_ras_line(state, &record)) return;
        // What says enough by itself is no tail.
        bool open = state->warning_open;
        const hn_nccl_record *said = &state->last.record;
        if (open && state->last.active && said->level == HN_NCCL_WARN) {
            // The rest of a folded warning: it is that rank which speaks, at that time.
            record.host = said->host;
            record.pid = said->pid;
            record.device = said->device;
            record.time_us = said->time_us;
        }
        int found = hn_nccl_scan(state, &record);
        if (found && open) warning_explained(state);
        if (found == 0 && record.message.data[0] != '#') {
            state->warning_open = open;
            text_goes_on(state, text);
            // A framework's long line, folded: no header, but lines that belong together.
            record.host = (hn_slice){0}; // may borrow from the record that ends here
            if (!state->last.active) tail_begin(state, &state->last, &record);
        }
        return;
    }
    record.before = (hn_slice){text.data, head.start};
    record.time_us = last_timestamp(record.before);
    record.rank_hint = prefix_rank(record.before);
    if (state->torn.active) text_goes_on(state, record.before);
    for (;;) {
        hn_nccl_host(state, (hn_slice){text.data + head.start, head.host_length});
        bool more = find_header(state, text.data, text.length, head.message, &next);
        size_t end = more ? next.start : text.length;
        record.level = head.level;
        record.pid = head.pid;
        record.tid = head.tid;
        record.device = head.device;
        record.host = (hn_slice){text.data + head.start, head.host_length};
        record.source = (hn_slice){text.data + head.source, head.source_length};
        // A torn message keeps its last blank: the tail is glued to it.
        record.message = (hn_slice){text.data + head.message, end - head.message};
        if (!more) record.message = hn_slice_trim(record.message);
        record.torn = more;
        state->sequence++;
        state->records++;
        if (!more) {
            hn_nccl_scan(state, &record);
            tail_begin(state, &state->last, &record);
            return;
        }
        state->torn_lines++;
        torn_flush(state);
        tail_begin(state, &state->torn, &record);
        head = next;
        record.rank_hint = -1;
        record.time_us = INT64_MIN;
    }
}

// In a text broken at a width: a line without a header goes on the record before it, or completes a
// header that the break went through.
static bool goes_on(hn_nccl_state *state, hn_str *joined, hn_slice text) {
    header head;
    if (find_header(state, text.data, text.length, 0, &head)) return false;
    if (find_header(state, joined->data, joined->length, 0, &head)) return true;
    hn_slice before = hn_slice_trim((hn_slice){joined->data, joined->length});
    if (before.length && before.data[0] != '#' && !hn_nccl_bench_is_row(before) &&
        text.data[0] != '#' && !hn_nccl_bench_is_row(text) && !digit(before.data[0]))
        return true;
    size_t length = joined->length;
    hn_str_append_n(joined, text.data, text.length);
    bool whole = !joined->failed && find_header(state, joined->data, joined->length, 0, &head);
    joined->length = length;
    joined->data[length] = '\0';
    return whole;
}

hn_status hn_nccl_feed(hn_nccl_state *state, const hn_nccl_input *input) {
    hn_slice rest = input->text, line;
    if (rest.length >= 3 && memcmp(rest.data, "\xef\xbb\xbf", 3) == 0)
        rest.data += 3, rest.length -= 3;
    state->file = input->name;
    state->torn.active = state->last.active = state->in_ras = false;
    size_t width = wrap_width(rest);
    hn_str joined = {0}, peek = {0}, inner = {0};
    int64_t number = 0, first = 0;
    size_t last_length = 0;
    while (hn_slice_line(&rest, &line)) {
        number++;
        peek.length = inner.length = 0;
        if (line.length <= LINE_MAX_BYTES && line.length && line.data[0] == '{' &&
            unwrap_json(line, &inner))
            line = (hn_slice){hn_str_get(&inner), inner.length};
        clean(line, &peek);
        hn_slice text = {hn_str_get(&peek), peek.length};
        bool blank_between = false;
        bool continues = width && joined.length && last_length == width && text.length &&
                         joined.length < LINE_MAX_BYTES && goes_on(state, &joined, text);
        if (!continues && first && text.length)
            continues = hn_nccl_bench_goes_on((hn_slice){hn_str_get(&joined), joined.length}, text,
                                              &blank_between);
        if (blank_between) hn_str_append_n(&joined, " ", 1);
        if (!continues && first) {
            feed_line(state, (hn_slice){hn_str_get(&joined), joined.length}, first);
            joined.length = 0;
            first = 0;
        }
        if (!first) first = number;
        hn_str_append_n(&joined, text.data, text.length);
        last_length = text.length;
        if (joined.failed || peek.failed || state->failed) break;
    }
    if (first) feed_line(state, (hn_slice){hn_str_get(&joined), joined.length}, first);
    state->lines += number;
    torn_flush(state);
    if (state->last.line.length) {
        hn_nccl_mark end;
        hn_nccl_record last = state->last.record;
        last.message = (hn_slice){hn_str_get(&state->last.message), state->last.message.length};
        hn_nccl_mark_set(state, &last, -2, &end);
        state->end = hn_nccl_mark_keep(state, &end);
    }
    bool failed = joined.failed || peek.failed || inner.failed || state->failed;
    hn_str_free(&inner);
    hn_str_free(&joined);
    hn_str_free(&peek);
    if (failed) HN_NOMEM(state->err, "reading a log");
    return HONE_OK;
}
