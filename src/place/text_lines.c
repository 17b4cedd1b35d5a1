// SPDX-License-Identifier: Apache-2.0
// Cleaning of pasted text: what terminals, editors, web pages and PowerShell add is taken away, column
// positions are kept. Escapes vanish; comment and quote marks at a line's start, table rules, and
// typographic blanks become blanks.
#include "place/text_int.h"

#define TEXT_BYTES_MAX (8u << 20)

typedef struct cursor {
    const unsigned char *data;
    size_t at, length;
    int unit; // bytes a character: 1 (UTF-8), 2 (UTF-16)
    bool big_endian;
} cursor;

// Next character as a code point; malformed bytes become U+FFFD.
static uint32_t next_char(cursor *in) {
    if (in->unit == 2) {
        if (in->at + 1 >= in->length) {
            in->at = in->length;
            return 0xFFFD;
        }
        unsigned a = in->data[in->at], b = in->data[in->at + 1];
        in->at += 2;
        return in->big_endian ? a << 8 | b : b << 8 | a;
    }
    unsigned first = in->data[in->at++];
    if (first < 0x80) return first;
    int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
    uint32_t value = first & (0x3Fu >> more);
    if (!more) return 0xFFFD;
    while (more-- > 0) {
        if (in->at >= in->length || (in->data[in->at] & 0xC0) != 0x80) return 0xFFFD;
        value = value << 6 | (in->data[in->at++] & 0x3F);
    }
    return value;
}

// Skips the parameters of a CSI sequence and its final byte.
static void skip_csi(cursor *in) {
    while (in->at < in->length) {
        uint32_t c = next_char(in);
        if ((c >= 0x40 && c <= 0x7E) || c == '\n') return;
    }
}

// Skips what follows an ESC: CSI sequences to their final byte, OSC to BEL or ST, else one character.
static void skip_escape(cursor *in) {
    if (in->at >= in->length) return;
    uint32_t kind = next_char(in);
    if (kind == '[') {
        skip_csi(in);
    } else if (kind == ']') {
        while (in->at < in->length) {
            uint32_t c = next_char(in);
            if (c == 7 || c == '\n') return;
            if (c == 0x1B) {
                if (in->at < in->length) next_char(in);
                return;
            }
        }
    } else if (kind == '(' || kind == ')') {
        if (in->at < in->length) next_char(in);
    }
}

// An escape whose ESC was lost on the way ("[4m", "^[[0m"): length of it at the cursor, 0 if none.
static size_t bare_escape(const cursor *in) {
    if (in->unit != 1) return 0;
    const unsigned char *at = in->data + in->at, *end = in->data + in->length, *start = at;
    if (end - at > 2 && at[0] == '^' && at[1] == '[') at += 2;
    if (at == end || *at++ != '[') return 0;
    while (at < end && ((*at >= '0' && *at <= '9') || *at == ';')) at++;
    return at < end && *at == 'm' ? (size_t)(at + 1 - start) : 0;
}

static bool is_blank_char(uint32_t c) {
    return c == 0xA0 || (c >= 0x2000 && c <= 0x200A) || c == 0x202F || c == 0x205F || c == 0x3000 ||
           c == 0 || c == 0x0B || c == 0x0C || c == '|' || (c >= 0x2500 && c <= 0x257F);
}

static bool is_nothing(uint32_t c) { return (c >= 0x200B && c <= 0x200F) || c == 0x2060 || c == 0xFEFF; }

static bool is_dash(uint32_t c) { return (c >= 0x2010 && c <= 0x2015) || c == 0x2212; }

// Blanks out a comment or quote mark before the first word: "#", "//", ">", "*", "- ", ";", "%".
static void blank_marks(char *line, size_t length) {
    size_t at = 0;
    while (at < length) {
        while (at < length && (line[at] == ' ' || line[at] == '\t')) at++;
        if (at == length) break;
        // One slash may be the second half of a wrapped "N/A".
        bool slashes = line[at] == '/' && at + 1 < length && line[at + 1] == '/';
        if (!slashes && !strchr("#>*;%\"'`", line[at])) break;
        line[at++] = ' ';
        if (slashes) line[at++] = ' ';
    }
}

hn_status hn_place_text_clean(hone_error *err, hn_slice text, text_reader *reader) {
    if (text.length > TEXT_BYTES_MAX)
        HN_FAIL(err, HONE_ERR_LIMIT, "the text has %zu bytes, the limit is %u", text.length,
                TEXT_BYTES_MAX);
    cursor in = {(const unsigned char *)text.data, 0, text.length, 1, false};
    if (in.length >= 2 && in.data[0] == 0xFF && in.data[1] == 0xFE) in.unit = 2;
    if (in.length >= 2 && in.data[0] == 0xFE && in.data[1] == 0xFF) {
        in.unit = 2;
        in.big_endian = true;
    }
    char *out = hn_arena_alloc(&reader->machine->arena, text.length + 2);
    if (!out) HN_NOMEM(err, "topology text");
    size_t used = 0;
    while (in.at < in.length) {
        size_t bare = bare_escape(&in);
        in.at += bare;
        if (bare) continue;
        uint32_t c = next_char(&in);
        if (c == 0x1B) {
            skip_escape(&in);
        } else if (c == 0x9B) {
            skip_csi(&in);
        } else if (c == '\r') {
            // CR LF is one line end, CR LF LF from a double conversion too; a lone CR redraws a line.
            if (in.at < in.length && in.data[in.at + (in.unit == 2 && in.big_endian)] != '\n')
                out[used++] = '\n';
        } else if (c == '\b') {
            if (used && out[used - 1] != '\n') used--;
        } else if (is_nothing(c)) {
            continue;
        } else if (is_blank_char(c)) {
            out[used++] = ' ';
        } else if (is_dash(c)) {
            out[used++] = '-';
        } else if (c < 0x80) {
            if (c >= 0x20 || c == '\t' || c == '\n') out[used++] = (char)c;
        } else {
            out[used++] = '?'; // one column for one character
        }
    }
    hn_slice rest = {out, used}, line;
    while (hn_slice_line(&rest, &line)) {
        blank_marks(out + (line.data - out), line.length);
        if (!hn_vec_push(&reader->lines, line)) HN_NOMEM(err, "topology text");
    }
    return HONE_OK;
}

bool hn_place_text_token(hn_slice line, size_t *at, text_token *out_token) {
    size_t i = *at;
    while (i < line.length && (line.data[i] == ' ' || line.data[i] == '\t')) i++;
    size_t start = i;
    while (i < line.length && line.data[i] != ' ' && line.data[i] != '\t') i++;
    *at = i;
    if (i == start) return false;
    *out_token = (text_token){{line.data + start, i - start}, (int)start};
    return true;
}
