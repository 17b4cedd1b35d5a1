// SPDX-License-Identifier: Apache-2.0
// From lines to records: launcher prefixes are set aside, lines that hold several torn records are
// split. Lines come cleaned and unfolded from nccl_fold.c.
//
// A record's header is "host:pid:tid [device] file.cc:line (function) NCCL LEVEL". It is found from
// its level backwards, so that anything may stand before it. Line numbers are those of the input.
#include "place/nccl_int.h"
#include <ctype.h>
#include <time.h>

#define LINE_MAX_BYTES 65536 // of one line that is looked at

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

void hn_nccl_line(hn_nccl_state *state, hn_slice whole, int64_t line) {
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

bool hn_nccl_has_header(hn_nccl_state *state, hn_slice text, bool *out_host, bool *out_more) {
    header head, next;
    // Hosts glued to a torn tail are the scanner's matter.
    bool torn = state->torn.active;
    state->torn.active = false;
    bool found = find_header(state, text.data, text.length, 0, &head);
    *out_more = found && find_header(state, text.data, text.length, head.message, &next);
    state->torn.active = torn;
    *out_host = found && head.host_length > 0;
    return found;
}

void hn_nccl_begin(hn_nccl_state *state, const char *name) {
    state->file = name;
    state->torn.active = state->last.active = state->in_ras = false;
}

void hn_nccl_end(hn_nccl_state *state) {
    torn_flush(state);
    if (!state->last.line.length) return;
    hn_nccl_mark end;
    hn_nccl_record last = state->last.record;
    last.message = (hn_slice){hn_str_get(&state->last.message), state->last.message.length};
    hn_nccl_mark_set(state, &last, -2, &end);
    state->end = hn_nccl_mark_keep(state, &end);
}
