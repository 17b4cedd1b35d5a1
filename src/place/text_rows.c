// SPDX-License-Identifier: Apache-2.0
// Header and rows of an nvidia-smi matrix: tokens, device names, glued cells, wrapped lines.
//
// Nothing is decided by column position here: a row is its label, then link codes as long as they
// come, then values. Glue is cut only where the alphabet of codes allows one cut alone.
#include "place/text_int.h"
#include <ctype.h>

#define PIECES_MAX    16
#define AMBIGUOUS_MAX 4

// ---- device names -----------------------------------------------------------------------------

static size_t digits_at(hn_slice text, size_t at) {
    size_t count = 0;
    while (at + count < text.length && isdigit((unsigned char)text.data[at + count])) count++;
    return count;
}

static size_t numbered(hn_slice text, const char *prefix) {
    size_t length = strlen(prefix), digits;
    if (!hn_slice_starts(text, prefix)) return 0;
    digits = digits_at(text, length);
    if (digits > 1 && text.data[length] == '0') return 0; // GPU00 would be a second GPU0
    return digits >= 1 && digits <= 3 ? length + digits : 0;
}

// mlx5_3, mlx5_bond_0, mlx5_ib2
static size_t mellanox(hn_slice text) {
    size_t family = numbered(text, "mlx");
    if (!family || family >= text.length || text.data[family] != '_') return 0;
    hn_slice rest = {text.data + family + 1, text.length - family - 1};
    size_t digits = digits_at(rest, 0), named = numbered(rest, "bond_");
    if (!named) named = numbered(rest, "bond");
    if (!named) named = numbered(rest, "ib");
    if (!named) named = digits;
    return named ? family + 1 + named : 0;
}

size_t hn_place_text_device(hn_slice text, bool loose) {
    size_t length = numbered(text, "GPU");
    if (!length) length = numbered(text, "NIC");
    if (!length) length = mellanox(text);
    if (length || !loose || hn_slice_starts(text, "mlx")) return length;
    bool digit = false;
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        digit |= isdigit(c) != 0;
        if (!islower(c) && !isdigit(c) && c != '_' && c != '-' && c != '.') return 0;
    }
    if (!digit || text.length < 3 || !islower((unsigned char)text.data[0])) return 0;
    return isalnum((unsigned char)text.data[text.length - 1]) ? text.length : 0; // "mlx5_" lost its number
}

static bool whole_device(hn_slice text) {
    return text.length && hn_place_text_device(text, true) == text.length;
}

// ---- header -----------------------------------------------------------------------------------

// Titles without their blanks, longest first.
static const struct {
    const char *text;
    text_title title;
} k_titles[] = {
    {"CPUAFFINITY", TITLE_CPUS},  {"NUMAAFFINITY", TITLE_NUMA}, {"NODEAFFINITY", TITLE_NUMA},
    {"GPUNUMAID", TITLE_GPU_NUMA}, {"NUMANODE", TITLE_NUMA},     {"NUMAID", TITLE_NUMA},
    {"NUMA", TITLE_NUMA},
};
static const char *const k_title_words[] = {"CPU", "Affinity", "NUMA", "Node", "GPU", "ID"};

static bool title_word(hn_slice token) {
    for (size_t i = 0; i < HN_COUNT_OF(k_title_words); i++)
        if (token.length == strlen(k_title_words[i]) &&
            strncasecmp(token.data, k_title_words[i], token.length) == 0)
            return true;
    return false;
}

// Reads the titles in line[at..]; false when there are other words. A beginning of a title at the very
// end is allowed: cut_off.
static bool read_titles(hn_slice line, size_t at, text_header *header) {
    char packed[96];
    int columns[96], length = 0;
    for (size_t i = at; i < line.length; i++) {
        unsigned char c = (unsigned char)line.data[i];
        if (c == ' ' || c == '\t') continue;
        if (length == (int)sizeof packed || !isalpha(c)) return false;
        columns[length] = (int)i;
        packed[length++] = (char)toupper(c);
    }
    for (int pos = 0; pos < length;) {
        size_t left = (size_t)(length - pos), row = 0, begun = HN_COUNT_OF(k_titles);
        for (size_t i = 0; i < HN_COUNT_OF(k_titles); i++)
            if (left < strlen(k_titles[i].text) && memcmp(packed + pos, k_titles[i].text, left) == 0)
                begun = i;
        while (row < HN_COUNT_OF(k_titles) &&
               (strlen(k_titles[row].text) > left ||
                memcmp(packed + pos, k_titles[row].text, strlen(k_titles[row].text)) != 0))
            row++;
        bool whole = row < HN_COUNT_OF(k_titles) && strlen(k_titles[row].text) == left;
        if (!whole && begun < HN_COUNT_OF(k_titles)) {
            header->cut_off = true; // "NUMA Affi"
            row = begun;
        }
        if (row == HN_COUNT_OF(k_titles) || header->title_count == TEXT_TITLES_MAX) return false;
        text_title title = k_titles[row].title;
        for (int i = 0; i < header->title_count && title == TITLE_NUMA; i++)
            if (header->titles[i] == TITLE_NUMA) title = TITLE_GPU_NUMA; // "GPU NUMA ID" without its GPU
        header->titles[header->title_count] = title;
        header->title_columns[header->title_count++] = columns[pos];
        pos += header->cut_off ? (int)left : (int)strlen(k_titles[row].text);
    }
    return true;
}

static bool add_device(text_reader *reader, text_header *header, hn_slice name, int column) {
    if (header->device_count == HN_PLACE_DEVICES_MAX) return false;
    const char *copy = hn_arena_strndup(&reader->machine->arena, name.data, name.length);
    if (!copy) return false;
    header->devices[header->device_count] = copy;
    header->device_columns[header->device_count++] = column;
    return true;
}

// What a log or a tool that runs commands on many hosts puts before a line: "node1:", "[0]".
static bool line_prefix(hn_slice token) {
    char last = token.data[token.length - 1];
    return strchr(":])#>", last) != NULL;
}

// The first letters of a device name at the break of a wrapped header.
static bool device_start(hn_slice token) {
    static const char *const k_starts[] = {"GPU", "NIC", "mlx"};
    for (size_t i = 0; i < HN_COUNT_OF(k_starts); i++)
        if (token.length <= 3 && strncmp(token.data, k_starts[i], token.length) == 0) return true;
    return islower((unsigned char)token.data[0]) && hn_place_text_device(token, true) == 0;
}

bool hn_place_text_header(text_reader *reader, hn_slice line, text_header *out_header) {
    text_header header = {.device_count = 0};
    size_t at = 0;
    text_token token;
    bool started = false;
    for (size_t before = 0; hn_place_text_token(line, &at, &token); before = at) {
        size_t name = hn_place_text_device(token.text, false);
        if (!started && line_prefix(token.text)) continue;
        if (!started && numbered(token.text, "GPU") == 0) return false;
        started = true;
        size_t after = at;
        text_token next;
        if (device_start(token.text) && !hn_place_text_token(line, &after, &next)) {
            header.cut_off = true;
            break;
        }
        if (!name && whole_device(token.text)) name = token.text.length;
        if (!name) {
            if (!read_titles(line, before, &header)) return false;
            break;
        }
        hn_slice rest = token.text;
        int column = token.column, parts = 0;
        for (; rest.length && name; name = hn_place_text_device(rest, false), parts++) {
            if (!add_device(reader, &header, (hn_slice){rest.data, name}, column)) return false;
            rest = (hn_slice){rest.data + name, rest.length - name};
            column += (int)name;
        }
        header.glued += parts > 1;
        if (rest.length) { // "NIC9CPU Affinity"
            header.glued++;
            if (!read_titles(line, (size_t)(rest.data - line.data), &header)) return false;
            break;
        }
    }
    if (!header.device_count) return false;
    header.length = (int)line.length;
    while (header.length && strchr(" \t\r", line.data[header.length - 1])) header.length--;
    *out_header = header;
    return true;
}

// ---- cells ------------------------------------------------------------------------------------

static bool parse_code(text_reader *reader, hn_slice text, hn_place_link *out) {
    if (hn_place_link_parse(text, out)) return true;
    hn_place_machine *machine = reader->machine;
    for (size_t i = 0; i < reader->legend.count; i++) {
        if (!hn_slice_eq(text, reader->legend.data[i])) continue;
        size_t at = 0;
        while (at < machine->foreign.count && machine->foreign.data[at] != reader->legend.data[i]) at++;
        if (at == machine->foreign.count &&
            (at >= 64 || !hn_vec_push(&machine->foreign, reader->legend.data[i])))
            return false;
        *out = (hn_place_link){.kind = HN_LINK_FOREIGN, .detail = (uint8_t)at};
        return true;
    }
    return false;
}

static bool is_value(hn_slice text) {
    hn_place_cpuset set;
    return hn_slice_eq(text, "N/A") || hn_place_cpuset_parse(text, &set);
}

typedef struct cut {
    hn_place_link cells[64];
    int count;
    size_t rest; // where the value after the cells starts; the length if there is none
} cut;

// All ways to cut `text` into link codes, at most with a value at the end; counts up to two ways and
// keeps the first. `want` limits the ways to those with so many cells, 0 any.
static int cut_codes(text_reader *reader, hn_slice text, size_t at, cut *now, int want, cut *out) {
    int ways = 0;
    if (at == text.length ||
        (now->count && is_value((hn_slice){text.data + at, text.length - at}))) {
        if (want && now->count != want) return 0;
        if (now->count) {
            *out = *now;
            out->rest = at;
        }
        return now->count ? 1 : 0;
    }
    if (now->count == (int)HN_COUNT_OF(now->cells)) return 0;
    for (size_t length = 1; length <= 8 && at + length <= text.length && ways < 2; length++) {
        if (!parse_code(reader, (hn_slice){text.data + at, length}, &now->cells[now->count])) continue;
        now->count++;
        cut deeper = {.count = 0};
        int found = cut_codes(reader, text, at + length, now, want, &deeper);
        if (found && !ways) *out = deeper;
        ways += found;
        now->count--;
    }
    return ways;
}

// The one way to cut a token, or false.
static bool cut_token(text_reader *reader, hn_slice text, int want, cut *out) {
    cut now = {.count = 0};
    if (text.length > 256) return false;
    return cut_codes(reader, text, 0, &now, want, out) == 1;
}

static bool is_cell(text_reader *reader, hn_slice text) {
    hn_place_link link;
    cut ways;
    return parse_code(reader, text, &link) || cut_token(reader, text, 0, &ways);
}

// Upper-case words that no legend explains may still be codes ("XGMI") between cells that are known.
static bool could_be_code(hn_slice text) {
    static const char *const k_not[] = {"CPU", "NUMA", "GPU", "NIC", "ID", "NA"};
    static const char *const k_known[] = {"SYS", "SOC", "NODE", "PHB", "PXB", "PIX", "NV"};
    if (text.length < 2 || text.length > 6 || !isupper((unsigned char)text.data[0]) ||
        hn_place_text_device(text, false))
        return false;
    for (size_t i = 0; i < text.length; i++)
        if (!isupper((unsigned char)text.data[i]) && !isdigit((unsigned char)text.data[i])) return false;
    for (size_t i = 0; i < HN_COUNT_OF(k_not); i++)
        if (hn_slice_eq(text, k_not[i])) return false;
    for (size_t i = 0; i < HN_COUNT_OF(k_known); i++) {
        // The beginning of a code that was cut, or a code with the beginning of the next one.
        size_t length = strlen(k_known[i]);
        if (strncmp(k_known[i], text.data, text.length < length ? text.length : length) == 0) return false;
    }
    return true;
}

static bool add_cell(text_row *row, hn_place_link link, int column) {
    if (row->cell_count == HN_PLACE_DEVICES_MAX) return false;
    row->cell_columns[row->cell_count] = column;
    row->cells[row->cell_count++] = link;
    return true;
}

// Cells of one token; false when the token is none.
static bool take_cells(text_reader *reader, text_token token, int expected, text_row *row) {
    hn_place_link link;
    if (parse_code(reader, token.text, &link)) return add_cell(row, link, token.column);
    // Where the number of cells is known, the last cut must fit it: NV120-23 is NV12 and 0-23 only if
    // one cell was missing.
    cut ways;
    int want = expected > row->cell_count && !cut_token(reader, token.text, 0, &ways)
                   ? expected - row->cell_count
                   : 0;
    if (!cut_token(reader, token.text, want, &ways)) return false;
    row->glued++;
    if (!row->glue_text)
        row->glue_text =
            hn_arena_strndup(&reader->machine->arena, token.text.data, token.text.length);
    for (int i = 0; i < ways.count; i++)
        if (!add_cell(row, ways.cells[i], i ? -1 : token.column)) return false;
    if (ways.rest < token.text.length && row->tail_count < TEXT_TAIL_MAX)
        row->tail[row->tail_count++] =
            (text_token){{token.text.data + ways.rest, token.text.length - ways.rest}, -1};
    return true;
}

static void add_tail(text_reader *reader, text_token token, text_row *row) {
    // "0-31, 64-95" is one list.
    if (row->tail_count && row->tail[row->tail_count - 1].text.length) {
        text_token *last = &row->tail[row->tail_count - 1];
        if (last->text.data[last->text.length - 1] == ',' && last->text.data < token.text.data) {
            char *joined = hn_arena_printf(&reader->machine->arena, "%.*s%.*s", (int)last->text.length,
                                           last->text.data, (int)token.text.length, token.text.data);
            if (joined) last->text = (hn_slice){joined, strlen(joined)};
            return;
        }
    }
    bool value = is_value(token.text) || digits_at(token.text, 0) || token.text.data[0] == '-' ||
                 token.text.data[0] == '\x01';
    if ((!value || row->tail_count == TEXT_TAIL_MAX) && !row->junk)
        row->junk = hn_arena_strndup(&reader->machine->arena, token.text.data, token.text.length);
    if (value && !row->junk) row->tail[row->tail_count++] = token;
}

// The region after the cells cut at tabs: nvidia-smi's own output says by empty fields what is empty.
static void cut_fields(hn_slice line, size_t at, text_row *row) {
    while (at < line.length && line.data[at] != '\t') at++;
    while (at < line.length && row->field_count < TEXT_TAIL_MAX) {
        size_t start = ++at;
        while (at < line.length && line.data[at] != '\t') at++;
        row->fields[row->field_count++] = hn_slice_trim((hn_slice){line.data + start, at - start});
    }
}

// Where the label of a row is: the token before the first cell. *out_label_length is shorter than the
// token where the first cell is glued to it.
static bool find_label(text_reader *reader, hn_slice line, text_token *out_label,
                       size_t *out_label_length, size_t *out_at) {
    size_t at = 0;
    text_token token, next;
    for (int i = 0; i < 4 && hn_place_text_token(line, &at, &token); i++) {
        size_t name = hn_place_text_device(token.text, false), after = at;
        if (!name && whole_device(token.text)) name = token.text.length;
        if (!name) continue;
        cut ways;
        bool glued = name < token.text.length &&
                     cut_token(reader, (hn_slice){token.text.data + name, token.text.length - name}, 0,
                               &ways);
        bool plain = name == token.text.length && hn_place_text_token(line, &after, &next) &&
                     (is_cell(reader, next.text) || could_be_code(next.text));
        if (!glued && !plain) continue;
        *out_label = token;
        *out_label_length = name;
        *out_at = at;
        return true;
    }
    return false;
}

bool hn_place_text_is_row(text_reader *reader, hn_slice line) {
    text_token label;
    size_t length, at;
    return find_label(reader, line, &label, &length, &at);
}

static size_t trimmed_length(hn_slice line) {
    while (line.length && strchr(" \t\r", line.data[line.length - 1])) line.length--;
    return line.length;
}

static bool parse_row(text_reader *reader, hn_slice line, int expected, text_row *out) {
    text_token label, token;
    size_t length, at, cells_end;
    *out = (text_row){.label = NULL};
    line.length = trimmed_length(line);
    out->length = (int)line.length;
    if (!find_label(reader, line, &label, &length, &at)) return false;
    out->label = hn_arena_strndup(&reader->machine->arena, label.text.data, length);
    if (!out->label) return false;
    if (length < label.text.length)
        take_cells(reader,
                   (text_token){{label.text.data + length, label.text.length - length},
                                label.column + (int)length},
                   expected, out);
    cells_end = at;
    int known = out->cell_count;
    while (hn_place_text_token(line, &at, &token)) {
        if (!out->tail_count && !out->junk) {
            if (take_cells(reader, token, expected, out)) {
                known++;
                cells_end = at;
                out->last_is_cell = out->tail_count == 0;
                continue;
            }
            // A code that nobody explains: only between cells, never as the row's last word.
            text_token next;
            size_t after = at;
            if (could_be_code(token.text) && hn_place_text_token(line, &after, &next) &&
                add_cell(out, (hn_place_link){.kind = HN_LINK_UNKNOWN}, token.column)) {
                if (!out->odd_codes++)
                    out->odd_code = hn_arena_strndup(&reader->machine->arena, token.text.data,
                                                     token.text.length);
                cells_end = at;
                continue;
            }
        }
        out->last_is_cell = false;
        add_tail(reader, token, out);
    }
    if (!known) return false;
    out->tabs = memchr(line.data, '\t', line.length) != NULL;
    cut_fields(line, cells_end, out);
    return true;
}

// ---- wrapped lines ----------------------------------------------------------------------------

static hn_slice last_word(hn_slice line) {
    size_t end = line.length, start = end;
    while (start && line.data[start - 1] != ' ' && line.data[start - 1] != '\t') start--;
    return (hn_slice){line.data + start, end - start};
}

static hn_slice first_word(hn_slice line) {
    size_t end = 0;
    while (end < line.length && line.data[end] != ' ' && line.data[end] != '\t') end++;
    return (hn_slice){line.data, end};
}

// A line of cells, values and pieces of them, and no device name: what a wrapped row goes on with.
static bool looks_like_piece(hn_slice line) {
    size_t at = 0, count = 0;
    text_token token;
    while (hn_place_text_token(line, &at, &token)) {
        for (size_t i = 0; i < token.text.length; i++) {
            unsigned char c = (unsigned char)token.text.data[i];
            if (!isupper(c) && !isdigit(c) && !strchr(",-/", c)) return false;
        }
        if (hn_place_text_device(token.text, false)) return false;
        count++;
    }
    return count > 0;
}

typedef enum joint { JOINT_NONE, JOINT_BLANK, JOINT_OPEN } joint;

// How two pieces meet. Words that touch the break are joined if one of them is nothing by itself;
// two numbers may be one ("64-9" + "5") or two.
static joint row_joint(text_reader *reader, hn_slice before, hn_slice after) {
    hn_slice a = last_word(before), b = first_word(after);
    if (!a.length || !b.length) return JOINT_NONE; // a blank is there already
    bool a_cell = is_cell(reader, a), b_cell = is_cell(reader, b);
    bool a_fine = a_cell || is_value(a), b_fine = b_cell || is_value(b);
    if (!a_fine || !b_fine) return JOINT_NONE;
    bool digits = isdigit((unsigned char)a.data[a.length - 1]) && isdigit((unsigned char)b.data[0]);
    return digits ? JOINT_OPEN : JOINT_BLANK;
}

typedef struct pieces {
    hn_slice text[PIECES_MAX];
    joint joints[PIECES_MAX]; // between text[i] and text[i + 1]
    int count;
} pieces;

// One text from the pieces; bit k of `choice` puts a blank at the k-th open joint. NULL: no memory.
static char *join_pieces(text_reader *reader, const pieces *from, unsigned choice, bool mark,
                         size_t *out_length) {
    size_t length = 1;
    for (int i = 0; i < from->count; i++) length += from->text[i].length + 1;
    char *out = hn_arena_alloc(&reader->machine->arena, length);
    size_t used = 0;
    int open = 0;
    if (!out) return NULL;
    for (int i = 0; i < from->count; i++) {
        memcpy(out + used, from->text[i].data, from->text[i].length);
        used += from->text[i].length;
        if (i + 1 == from->count) break;
        if (from->joints[i] == JOINT_BLANK) out[used++] = ' ';
        if (from->joints[i] != JOINT_OPEN) continue;
        if (mark) out[used++] = '\x01'; // never part of a value: the reading stays open
        else if (choice >> open++ & 1) out[used++] = ' ';
    }
    *out_length = used;
    return out;
}

static int open_joints(const pieces *from) {
    int count = 0;
    for (int i = 0; i + 1 < from->count; i++) count += from->joints[i] == JOINT_OPEN;
    return count;
}

// The row has all cells that the header asks for and all values (for a card) or none (for a NIC).
static bool row_fits(const text_reader *reader, const text_row *row, int expected) {
    bool card = row->label && strncmp(row->label, "GPU", 3) == 0;
    if (row->junk || (expected && row->cell_count != expected)) return false;
    if (row->tail_count != (card ? reader->header.title_count : 0)) return false;
    for (int i = 0; i < row->tail_count; i++)
        if (!is_value(row->tail[i].text)) return false;
    return true;
}

static bool same_reading(const text_row *a, const text_row *b) {
    if (a->cell_count != b->cell_count || a->tail_count != b->tail_count) return false;
    for (int i = 0; i < a->cell_count; i++)
        if (a->cells[i].kind != b->cells[i].kind || a->cells[i].detail != b->cells[i].detail) return false;
    for (int i = 0; i < a->tail_count; i++)
        if (a->tail[i].text.length != b->tail[i].text.length ||
            memcmp(a->tail[i].text.data, b->tail[i].text.data, a->tail[i].text.length) != 0)
            return false;
    return true;
}

// Reads the pieces as one row, trying both readings at each open joint; true if just one fits, or if
// there is nothing to choose.
static bool read_pieces(text_reader *reader, const pieces *from, int expected, text_row *out) {
    int open = open_joints(from), fits = 0;
    size_t length;
    text_row *trial = hn_arena_alloc(&reader->machine->arena, sizeof *trial);
    if (!trial) return false;
    for (unsigned choice = 0; open <= AMBIGUOUS_MAX && choice < 1u << open; choice++) {
        char *joined = join_pieces(reader, from, choice, false, &length);
        if (!joined || !parse_row(reader, (hn_slice){joined, length}, expected, trial)) continue;
        if (!open) {
            *out = *trial;
            return true;
        }
        if (!row_fits(reader, trial, expected)) continue;
        if (fits && same_reading(out, trial)) continue;
        if (fits++ == 0) *out = *trial;
    }
    if (fits == 1) return true;
    char *joined = join_pieces(reader, from, 0, true, &length);
    if (joined && parse_row(reader, (hn_slice){joined, length}, expected, out)) out->wrapped_badly = true;
    return false;
}

hn_status hn_place_text_row(hone_error *err, text_reader *reader, size_t line, int expected,
                            size_t *io_next, text_row **out_row) {
    hn_arena *arena = &reader->machine->arena;
    *out_row = NULL;
    if (!hn_place_text_is_row(reader, reader->lines.data[line])) return HONE_OK;
    text_row *row = hn_arena_alloc(arena, sizeof *row), *trial = hn_arena_alloc(arena, sizeof *trial);
    pieces *from = hn_arena_zalloc(arena, sizeof *from);
    if (!row || !trial || !from) HN_NOMEM(err, "topology text");
    from->text[from->count++] = reader->lines.data[line];
    if (!parse_row(reader, reader->lines.data[line], expected, row)) return HONE_OK;
    size_t next = line + 1;
    bool settled = true; // the row as far as it was taken has one reading
    while (next < reader->lines.count && from->count < PIECES_MAX) {
        hn_slice piece = reader->lines.data[next];
        if (row_fits(reader, row, expected) && settled && from->count > 1) break;
        if (hn_place_text_is_row(reader, piece) || !looks_like_piece(piece)) break;
        from->joints[from->count - 1] = row_joint(reader, from->text[from->count - 1], piece);
        from->text[from->count++] = piece;
        next++;
        *trial = (text_row){.label = NULL};
        settled = read_pieces(reader, from, expected, trial);
        if (trial->label) *row = *trial;
    }
    row->line = (int)line + 1;
    row->ends_text = true;
    for (size_t i = next; i < reader->lines.count && row->ends_text; i++)
        row->ends_text = trimmed_length(reader->lines.data[i]) == 0;
    *io_next = next;
    *out_row = row;
    return HONE_OK;
}

static bool header_word(hn_slice token) {
    if (title_word(token) || whole_device(token)) return true;
    size_t name = hn_place_text_device(token, false);
    return name && name < token.length &&
           header_word((hn_slice){token.data + name, token.length - name});
}

hn_status hn_place_text_join_header(hone_error *err, text_reader *reader, hn_slice first,
                                    size_t *io_next, text_header *out_header) {
    hn_slice whole = first;
    hn_slice last = first;
    while (*io_next < reader->lines.count) {
        hn_slice piece = reader->lines.data[*io_next];
        if (hn_slice_trim(piece).length == 0 || hn_place_text_is_row(reader, piece)) break;
        hn_slice a = last_word(last), b = first_word(piece);
        bool blank = a.length && b.length && header_word(a) && header_word(b);
        char *joined = hn_arena_printf(&reader->machine->arena, "%.*s%s%.*s", (int)whole.length,
                                       whole.data, blank ? " " : "", (int)piece.length, piece.data);
        if (!joined) HN_NOMEM(err, "topology text");
        text_header header;
        hn_slice longer = {joined, strlen(joined)};
        if (!hn_place_text_header(reader, longer, &header)) break;
        *out_header = header;
        whole = longer;
        last = piece;
        (*io_next)++;
    }
    return HONE_OK;
}
