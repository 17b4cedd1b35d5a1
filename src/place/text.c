// SPDX-License-Identifier: Apache-2.0
// nvidia-smi topo -m as text: from header and rows to the model.
//
// Cells are taken as printed. A row that lost cells keeps those whose column is certain; the rest is
// unknown. Values (CPU and NUMA affinity) are bound to their columns by count, by tabs or by exact
// position, in that order; a value that fits two columns is unknown. Every loss is one sentence.
#include "place/text_int.h"
#include <ctype.h>

typedef enum value_state { VALUE_NO_COLUMN, VALUE_EMPTY, VALUE_LOST, VALUE_GIVEN } value_state;
typedef struct value {
    value_state state;
    hn_slice text;
} value;
typedef struct row_values {
    value of[TITLE_OTHER + 1];
} row_values;

// ---- around the matrix ------------------------------------------------------------------------

static hn_slice skip_blanks(hn_slice text) {
    while (text.length && (*text.data == ' ' || *text.data == '\t')) text.data++, text.length--;
    return text;
}

static bool contains(hn_slice line, const char *what) {
    return line.length >= strlen(what) && memmem(line.data, line.length, what, strlen(what)) != NULL;
}

// "HT   = Connection traversing ...": codes of other makers.
static hn_status read_code_legend(hone_error *err, text_reader *reader, hn_slice line) {
    size_t at = 0;
    text_token code, equals;
    hn_place_link link;
    if (!hn_place_text_token(line, &at, &code) || !hn_place_text_token(line, &at, &equals))
        return HONE_OK;
    if (!hn_slice_eq(equals.text, "=") || code.text.length < 2 || code.text.length > 8) return HONE_OK;
    for (size_t i = 0; i < code.text.length; i++)
        if (!isupper((unsigned char)code.text.data[i]) && !isdigit((unsigned char)code.text.data[i]))
            return HONE_OK;
    if (hn_place_link_parse(code.text, &link) || reader->legend.count >= 64) return HONE_OK;
    const char *copy =
        hn_arena_strndup(&reader->machine->arena, code.text.data, code.text.length);
    if (!copy || !hn_vec_push(&reader->legend, copy)) HN_NOMEM(err, "topology text");
    return HONE_OK;
}

// "  NIC3: mlx5_3"
static void read_nic_name(hn_place_machine *machine, hn_slice line) {
    line = skip_blanks(line);
    for (size_t i = 0; i < machine->nics.count; i++) {
        hn_place_nic *nic = &machine->nics.data[i];
        size_t length = strlen(nic->label);
        if (!hn_slice_starts(line, nic->label) || strncmp(nic->label, "NIC", 3) != 0) continue;
        hn_slice rest = skip_blanks((hn_slice){line.data + length, line.length - length});
        if (!rest.length || (*rest.data != ':' && *rest.data != '=')) continue;
        rest = hn_slice_trim((hn_slice){rest.data + 1, rest.length - 1});
        size_t end = 0;
        while (end < rest.length && rest.data[end] != ' ' && rest.data[end] != '\t') end++;
        if (end && end < 64 && !nic->name)
            nic->name = hn_arena_strndup(&machine->arena, rest.data, end);
    }
}

// "GPU 0: NVIDIA H200 (UUID: GPU-...)", and the MIG sentence that may follow it.
static void read_gpu_lines(text_reader *reader) {
    hn_place_machine *machine = reader->machine;
    int last = -1;
    for (size_t i = 0; i < reader->lines.count; i++) {
        hn_slice line = skip_blanks(reader->lines.data[i]);
        if (last >= 0 && contains(line, "not supported for Devices in MIG mode"))
            machine->gpus.data[last].mig = 1;
        if (contains(line, "ypervisor vendor") || contains(line, "irtualization type:"))
            machine->virtual_machine = true;
        if (!hn_slice_starts(line, "GPU ")) continue;
        size_t at = 4;
        int index = 0;
        while (at < line.length && at < 8 && isdigit((unsigned char)line.data[at]))
            index = index * 10 + (line.data[at++] - '0');
        if (at == 4 || at == line.length || line.data[at] != ':') continue;
        last = hn_place_gpu_find(machine, index);
        hn_slice name = hn_slice_trim((hn_slice){line.data + at + 1, line.length - at - 1});
        const char *uuid = memmem(name.data, name.length, " (UUID", 6);
        if (last < 0 || !uuid) continue;
        machine->gpus.data[last].name =
            hn_arena_strndup(&machine->arena, name.data, (size_t)(uuid - name.data));
    }
}

static bool is_rule(hn_slice line) {
    for (size_t i = 0; i < line.length; i++)
        if (!strchr("-=+: \t", line.data[i])) return false;
    return true;
}

// A table of `nvidia-smi topo -p2p` has the same head and other cells.
static bool is_p2p_row(hn_slice line) {
    static const char *const k_codes[] = {"OK", "NS", "CNS", "GNS", "TNS", "DR"};
    size_t at = 0;
    text_token token;
    while (hn_place_text_token(line, &at, &token))
        for (size_t i = 0; i < HN_COUNT_OF(k_codes); i++)
            if (hn_slice_eq(token.text, k_codes[i])) return true;
    return false;
}

// ---- finding the matrix -----------------------------------------------------------------------

static bool find_header(hone_error *err, text_reader *reader, size_t *out_next, bool *out_p2p,
                        hone_status *out_status) {
    *out_status = HONE_OK;
    for (size_t i = 0; i < reader->lines.count; i++) {
        text_header header;
        if (!hn_place_text_header(reader, reader->lines.data[i], &header)) continue;
        size_t next = i + 1;
        *out_status = hn_place_text_join_header(err, reader, reader->lines.data[i], &next, &header);
        if (*out_status != HONE_OK) return false;
        size_t row = next;
        while (row < reader->lines.count && is_rule(reader->lines.data[row])) row++;
        if (row == reader->lines.count || !hn_place_text_is_row(reader, reader->lines.data[row]))
            continue;
        if (is_p2p_row(reader->lines.data[row])) {
            *out_p2p = true;
            continue;
        }
        reader->header = header;
        *out_next = row;
        return true;
    }
    return false;
}

static bool is_legend(hn_slice line) {
    line = skip_blanks(line);
    return line.length >= 6 && strncasecmp(line.data, "legend", 6) == 0;
}

static hn_status read_rows(hone_error *err, text_reader *reader, size_t from) {
    hn_place_machine *machine = reader->machine;
    size_t strays = 0;
    for (size_t i = from; i < reader->lines.count && strays < 64;) {
        hn_slice line = reader->lines.data[i];
        text_header other;
        size_t next = i + 1;
        text_row *row = NULL;
        if (is_legend(line)) break;
        if (reader->rows.count && hn_place_text_header(reader, line, &other)) break;
        HN_TRY(hn_place_text_row(err, reader, i, reader->header.device_count, &next, &row));
        if (row && reader->rows.count < 2 * HN_PLACE_DEVICES_MAX) {
            if (!hn_vec_push(&reader->rows, row)) HN_NOMEM(err, "topology text");
            strays = 0;
        } else {
            size_t at = 0, cells = 0;
            text_token token;
            hn_place_link link;
            while (hn_place_text_token(line, &at, &token))
                cells += hn_place_link_parse(token.text, &link);
            if (cells >= 2)
                hn_place_machine_damage(machine, "line %zu holds cells but no device name: left out",
                                        i + 1);
            strays++;
        }
        i = next;
    }
    return HONE_OK;
}

// Matrices below the one that was read (one a host in a log of many): none of them is mixed into it.
static void name_others(text_reader *reader, size_t from) {
    size_t others = 0, first = 0;
    for (size_t i = from; i + 1 < reader->lines.count; i++) {
        text_header header;
        if (!hn_place_text_header(reader, reader->lines.data[i], &header)) continue;
        size_t row = i + 1;
        while (row < reader->lines.count && is_rule(reader->lines.data[row])) row++;
        if (row == reader->lines.count || !hn_place_text_is_row(reader, reader->lines.data[row]) ||
            is_p2p_row(reader->lines.data[row]))
            continue;
        if (!others++) first = i + 1;
    }
    if (others)
        hn_place_machine_damage(reader->machine,
                                "the text holds %zu more matri%s (from line %zu on): only the first was read",
                                others, others == 1 ? "x" : "ces", first);
}

// A paste that begins below the header: the columns are those of the rows if the matrix is square and
// its diagonal says so.
static hn_status header_from_rows(hone_error *err, text_reader *reader) {
    text_header *header = &reader->header;
    HN_TRY(read_rows(err, reader, 0));
    for (size_t i = 0; i < reader->rows.count; i++) {
        const text_row *row = reader->rows.data[i];
        if (row->cell_count != (int)reader->rows.count || row->cells[i].kind != HN_LINK_SELF ||
            reader->rows.count > HN_PLACE_DEVICES_MAX)
            HN_FAIL(err, HONE_ERR_FORMAT,
                    "the text holds rows of a topology matrix but not its header, and row %s does not "
                    "tell which column is which",
                    row->label);
        header->devices[i] = row->label;
        header->device_columns[i] = 0;
    }
    header->device_count = (int)reader->rows.count;
    hn_place_machine_damage(reader->machine,
                            "the header line is missing: columns were named after the rows, whose "
                            "diagonal fits; the affinity columns have no names and were left out");
    reader->machine->complete = false;
    return HONE_OK;
}

// ---- devices ----------------------------------------------------------------------------------

static int find_device(const hn_place_machine *machine, const char *name) {
    char label[16];
    int count = (int)(machine->gpus.count + machine->nics.count);
    for (int d = 0; d < count; d++)
        if (strcmp(hn_place_device_label(machine, d, label, sizeof label), name) == 0) return d;
    return -1;
}

static hn_status add_device(hone_error *err, hn_place_machine *machine, const char *name, bool cards) {
    int64_t index;
    bool card = strncmp(name, "GPU", 3) == 0 &&
                hn_parse_i64((hn_slice){name + 3, strlen(name) - 3}, &index);
    if (card != cards || find_device(machine, name) >= 0) return HONE_OK;
    if (machine->gpus.count + machine->nics.count >= HN_PLACE_DEVICES_MAX ||
        (card && machine->gpus.count >= HN_PLACE_GPUS_MAX))
        HN_FAIL(err, HONE_ERR_LIMIT, "the matrix has more than %d cards or %d devices",
                HN_PLACE_GPUS_MAX, HN_PLACE_DEVICES_MAX);
    if (card) {
        hn_place_gpu gpu = hn_place_gpu_unknown((int)index);
        if (!hn_vec_push(&machine->gpus, gpu)) HN_NOMEM(err, "topology text");
    } else {
        hn_place_nic nic = hn_place_nic_unknown(name);
        if (strncmp(name, "NIC", 3) != 0) nic.name = name;
        if (!hn_vec_push(&machine->nics, nic)) HN_NOMEM(err, "topology text");
    }
    return HONE_OK;
}

// Cards first, then NICs; those of the header in its order, then rows that have no column.
static hn_status make_devices(hone_error *err, text_reader *reader) {
    hn_place_machine *machine = reader->machine;
    const text_header *header = &reader->header;
    for (int cards = 1; cards >= 0; cards--) {
        for (int i = 0; i < header->device_count; i++)
            HN_TRY(add_device(err, machine, header->devices[i], cards));
        for (size_t i = 0; i < reader->rows.count; i++)
            HN_TRY(add_device(err, machine, reader->rows.data[i]->label, cards));
    }
    if (machine->gpus.count == 0)
        HN_FAIL(err, HONE_ERR_FORMAT, "the matrix names no card");
    return hn_place_machine_alloc_matrix(err, machine);
}

// ---- cells ------------------------------------------------------------------------------------

// Writes a cell; a second, different value for it (a row pasted twice) makes it unknown.
static void set_cell(hn_place_machine *machine, int row, int column, hn_place_link link, bool again) {
    hn_place_link *cell = &machine->matrix[row * machine->device_count + column];
    if (again && (cell->kind != link.kind || cell->detail != link.detail)) {
        char label[16];
        hn_place_machine_damage(machine, "row %s appears twice with different cells: those are unknown",
                                hn_place_device_label(machine, row, label, sizeof label));
        machine->complete = false;
        link = (hn_place_link){.kind = HN_LINK_UNKNOWN};
    }
    *cell = link;
}

// A code at a cut end that may have lost digits: NV1 of NV12.
static bool may_be_longer(hn_place_link link) {
    return link.kind == HN_LINK_NVLINK && link.detail <= 3;
}

// Which cells of a row are certain: [from, to) of the header's columns, the row's first of them being
// `first`. A whole row is all of it. In a row that lost cells the X on the diagonal tells on which
// side the loss is.
static void certain_range(const text_row *row, int self, int columns, int *out_first, int *out_from,
                          int *out_to) {
    int lost = columns - row->cell_count, x = -1;
    *out_first = *out_from = 0;
    *out_to = row->cell_count;
    bool short_code = row->ends_text && row->last_is_cell && row->cell_count &&
                      may_be_longer(row->cells[row->cell_count - 1]);
    if (lost == 0) {
        *out_to -= short_code;
        return;
    }
    for (int i = 0; i < row->cell_count; i++)
        if (row->cells[i].kind == HN_LINK_SELF) x = i;
    // The text ends in this row, in its cells: what is there is its beginning.
    if (row->ends_text && row->last_is_cell && (x == self || (x < 0 && row->cell_count <= self))) {
        *out_to -= short_code;
        return;
    }
    if (x >= 0 && x == self - lost) { // all loss is before the diagonal
        *out_first = x;
        *out_from = self;
        *out_to = columns;
    } else if (x >= 0 && x == self) { // all loss is behind it: where, is open
        *out_to = self + 1;
    } else {
        *out_to = 0;
    }
}

static void fill_row(text_reader *reader, const text_row *row, bool seen, const int *column_device) {
    hn_place_machine *machine = reader->machine;
    int columns = reader->header.device_count, device = find_device(machine, row->label);
    int self = -1, first, from, to;
    for (int i = 0; i < columns; i++)
        if (column_device[i] == device) self = i;
    if (row->cell_count > columns || row->wrapped_badly) {
        hn_place_machine_damage(machine, "row %s (line %d) has %d cells for %d columns: left out",
                                row->label, row->line, row->cell_count, columns);
        machine->complete = false;
        return;
    }
    certain_range(row, self, columns, &first, &from, &to);
    if (seen)
        hn_place_machine_damage(machine, "row %s is there twice (again at line %d)", row->label, row->line);
    int x = -1, own = from <= self && self < to ? first + self - from : -1;
    for (int i = from; i < to; i++)
        if (row->cells[first + i - from].kind == HN_LINK_SELF && i != self) x = i;
    if (x >= 0 && (own < 0 || row->cells[own].kind != HN_LINK_SELF)) {
        hn_place_machine_damage(machine,
                                "row %s (line %d) has its X in the column of %s: shifted or mislabelled, left out",
                                row->label, row->line, reader->header.devices[x]);
        machine->complete = false;
        return;
    }
    for (int i = from; i < to; i++) {
        hn_place_link link = row->cells[first + i - from];
        if (i == self && link.kind != HN_LINK_SELF && link.kind != HN_LINK_UNKNOWN) {
            char code[8];
            const char *text = hn_place_link_code(machine, link, code, sizeof code);
            hn_place_machine_damage(machine, "row %s (line %d) has %s in its own column where X belongs: unknown",
                                    row->label, row->line, text ? text : "no code");
            machine->complete = false;
            link = (hn_place_link){.kind = HN_LINK_UNKNOWN};
        } else if (i != self && link.kind == HN_LINK_SELF) {
            hn_place_machine_damage(machine, "row %s (line %d) has an X in the column of %s too: unknown",
                                    row->label, row->line, reader->header.devices[i]);
            machine->complete = false;
            link = (hn_place_link){.kind = HN_LINK_UNKNOWN};
        }
        set_cell(machine, device, column_device[i], link, seen);
    }
    if (row->odd_codes) {
        hn_place_machine_damage(machine, "row %s (line %d) has '%.16s'%s, which is no link code: unknown",
                                row->label, row->line, row->odd_code ? row->odd_code : "?",
                                row->odd_codes > 1 ? " and others" : "");
        machine->complete = false;
    }
    if (row->cell_count < columns) {
        hn_place_machine_damage(machine, "row %s (line %d) has %d of %d cells%s: %s", row->label,
                                row->line, row->cell_count, columns,
                                row->ends_text ? ", the text was cut off in it" : "",
                                to > from ? "the others are unknown" : "none of them is certain");
        machine->complete = false;
    }
    if (row->cell_count == columns && to < columns) {
        hn_place_machine_damage(machine, "the text is cut off in row %s: its last cell may have lost digits and is "
                                         "unknown",
                                row->label);
        machine->complete = false;
    }
    if (row->junk)
        hn_place_machine_damage(machine, "row %s (line %d) ends with '%.40s', which is no value",
                                row->label, row->line, row->junk);
}

static void check_symmetry(hn_place_machine *machine) {
    char a_label[16], b_label[16], code[2][8];
    for (int a = 0; a < machine->device_count; a++) {
        for (int b = a + 1; b < machine->device_count; b++) {
            hn_place_link there = hn_place_cell(machine, a, b), back = hn_place_cell(machine, b, a);
            if (there.kind == HN_LINK_UNKNOWN || back.kind == HN_LINK_UNKNOWN) continue;
            if (there.kind == back.kind && there.detail == back.detail) continue;
            hn_place_machine_damage(
                machine, "%s to %s is %s but %s back: one of the two was edited or misprinted",
                hn_place_device_label(machine, a, a_label, sizeof a_label),
                hn_place_device_label(machine, b, b_label, sizeof b_label),
                hn_place_link_code(machine, there, code[0], sizeof code[0]),
                hn_place_link_code(machine, back, code[1], sizeof code[1]));
        }
    }
}

static void report_glue(text_reader *reader) {
    int glued = 0, rows = 0;
    const text_row *example = NULL;
    for (size_t i = 0; i < reader->rows.count; i++) {
        const text_row *row = reader->rows.data[i];
        glued += row->glued;
        rows += row->glued > 0;
        if (row->glued && !example) example = row;
    }
    if (reader->header.glued)
        hn_place_machine_damage(reader->machine,
                                "%d word%s of the header %s names glued together: cut by their pattern",
                                reader->header.glued, reader->header.glued == 1 ? "" : "s",
                                reader->header.glued == 1 ? "is" : "are");
    if (example)
        hn_place_machine_damage(reader->machine,
                                "%d words in %d rows are cells glued together (such as '%.24s' in row %s): cut "
                                "where the link codes allow one cut alone",
                                glued, rows, example->glue_text ? example->glue_text : "?",
                                example->label);
}

static hn_status fill_matrix(hone_error *err, text_reader *reader) {
    hn_place_machine *machine = reader->machine;
    const text_header *header = &reader->header;
    int column_device[HN_PLACE_DEVICES_MAX], list[HN_PLACE_DEVICES_MAX], count = 0;
    bool has_row[HN_PLACE_DEVICES_MAX] = {false}, has_column[HN_PLACE_DEVICES_MAX] = {false};
    for (int i = 0; i < header->device_count; i++) {
        column_device[i] = find_device(machine, header->devices[i]);
        if (has_column[column_device[i]])
            HN_FAIL(err, HONE_ERR_FORMAT, "the header names %s twice", header->devices[i]);
        has_column[column_device[i]] = true;
    }
    report_glue(reader);
    for (size_t i = 0; i < reader->rows.count; i++) {
        int device = find_device(machine, reader->rows.data[i]->label);
        fill_row(reader, reader->rows.data[i], has_row[device], column_device);
        has_row[device] = true;
    }
    for (int d = 0; d < machine->device_count; d++)
        if (!has_row[d]) list[count++] = d;
    if (count) {
        hn_place_machine_damage(machine, "%d of %d rows are missing (%s): their cells are unknown",
                                count, machine->device_count, hn_place_device_list(machine, list, count));
        machine->complete = false;
    }
    count = 0;
    for (int d = 0; d < machine->device_count; d++)
        if (!has_column[d]) list[count++] = d;
    if (count) {
        hn_place_machine_damage(
            machine, "the matrix is not square: %s %s rows but no columns, so %s unknown",
            hn_place_device_list(machine, list, count), count == 1 ? "has" : "have",
            count == 1 ? "its own column is" : "the paths among them are");
        machine->complete = false;
    }
    if (header->cut_off) {
        hn_place_machine_damage(machine, "the header is cut off in its last word");
        machine->complete = false;
    }
    check_symmetry(machine);
    return HONE_OK;
}

// ---- values -----------------------------------------------------------------------------------

static bool card_row(const text_row *row) { return strncmp(row->label, "GPU", 3) == 0; }

static void give(row_values *values, text_title title, hn_slice text) {
    values->of[title] = (value){text.length ? VALUE_GIVEN : VALUE_EMPTY, text};
}

// By tabs: nvidia-smi puts one more (empty) field before the GPU NUMA ID.
static bool bind_by_tabs(const text_header *header, const text_row *row, row_values *values) {
    hn_slice fields[TEXT_TAIL_MAX];
    int count = 0, filled = 0, want = header->title_count;
    if (!row->tabs) return false;
    for (int i = 0; i < row->field_count; i++) {
        if (memchr(row->fields[i].data, ' ', row->fields[i].length)) return false;
        filled += row->fields[i].length > 0;
        fields[count++] = row->fields[i];
    }
    if (filled != row->tail_count) return false;
    while (count > want && fields[count - 1].length == 0) count--;
    if (count == want + 1 && header->titles[want - 1] == TITLE_GPU_NUMA && want >= 2 &&
        fields[count - 2].length == 0) {
        fields[count - 2] = fields[count - 1];
        count--;
    }
    if (count != want) return false;
    for (int i = 0; i < want; i++) give(values, header->titles[i], fields[i]);
    return true;
}

// By how many characters the row's cells stand right of the header's; false where they do not all agree.
static bool row_shift(const text_header *header, const text_row *row, int *out_shift) {
    int compared = 0;
    if (row->cell_count != header->device_count) return false;
    for (int c = 0; c < row->cell_count; c++) {
        if (row->cells[c].kind == HN_LINK_SELF || row->cell_columns[c] < 0) continue;
        int moved = row->cell_columns[c] - header->device_columns[c];
        if (compared++ && moved != *out_shift) return false;
        *out_shift = moved;
    }
    return compared > 1;
}

// The columns in which the values of this row start: those of a row that has all values and the same
// layout, else the header's, moved by as much as the row's cells are.
static bool value_columns(const text_reader *reader, const text_row *row, int *columns) {
    const text_header *header = &reader->header;
    for (size_t i = 0; i < reader->rows.count; i++) {
        const text_row *other = reader->rows.data[i];
        if (other->tail_count != header->title_count || other->tabs || !card_row(other) ||
            other->cell_count != row->cell_count)
            continue;
        bool same = true;
        for (int c = 0; c < row->cell_count; c++)
            if (row->cells[c].kind != HN_LINK_SELF && other->cells[c].kind != HN_LINK_SELF &&
                row->cell_columns[c] != other->cell_columns[c])
                same = false;
        for (int t = 0; t < header->title_count; t++) columns[t] = other->tail[t].column;
        if (same) return true;
    }
    int shift = 0;
    if (!row_shift(header, row, &shift)) return false;
    for (int t = 0; t < header->title_count; t++) columns[t] = header->title_columns[t] + shift;
    return true;
}

// A lone number under "CPU Affinity" that stands a tab stop away from it belongs to a column whose title
// was clipped.
static bool misplaced_number(const text_header *header, const text_row *row) {
    hn_slice text = row->tail_count ? row->tail[0].text : (hn_slice){"", 0};
    int shift = 0;
    if (row->tabs || header->titles[0] != TITLE_CPUS || !text.length || row->tail[0].column < 0 ||
        memchr(text.data, '-', text.length) || memchr(text.data, ',', text.length) ||
        !row_shift(header, row, &shift))
        return false;
    return row->tail[0].column - header->title_columns[0] - shift >= 6;
}

// By exact position. A lone number under "CPU Affinity" with nothing under "NUMA Affinity" fits both.
static bool bind_by_columns(const text_reader *reader, const text_row *row, row_values *values) {
    const text_header *header = &reader->header;
    int columns[TEXT_TITLES_MAX];
    hn_slice found[TEXT_TITLES_MAX] = {{"", 0}};
    if (row->tabs || !value_columns(reader, row, columns)) return false;
    for (int i = 0; i < row->tail_count; i++) {
        int t = 0;
        while (t < header->title_count && columns[t] != row->tail[i].column) t++;
        if (t == header->title_count) return false;
        found[t] = row->tail[i].text;
    }
    for (int t = 0; t < header->title_count; t++) {
        if (header->titles[t] == TITLE_GPU_NUMA && !found[t].length) return false;
        if (header->titles[t] == TITLE_CPUS && t + 1 < header->title_count && found[t].length &&
            !found[t + 1].length && !memchr(found[t].data, '-', found[t].length))
            return false;
    }
    for (int t = 0; t < header->title_count; t++) give(values, header->titles[t], found[t]);
    return true;
}

static bool bind_values(const text_reader *reader, const text_row *row, row_values *values) {
    const text_header *header = &reader->header;
    for (int t = 0; t < header->title_count; t++) values->of[header->titles[t]].state = VALUE_LOST;
    if (row->junk || row->cell_count > header->device_count || row->wrapped_badly) return false;
    if (bind_by_tabs(header, row, values)) return true;
    if (row->tail_count == header->title_count && misplaced_number(header, row)) return false;
    if (row->tail_count == header->title_count) {
        for (int t = 0; t < header->title_count; t++)
            give(values, header->titles[t], row->tail[t].text);
        return true;
    }
    if (row->tail_count > header->title_count) return false;
    if (row->tail_count == 0 && header->title_count &&
        header->titles[header->title_count - 1] != TITLE_GPU_NUMA) {
        for (int t = 0; t < header->title_count; t++) give(values, header->titles[t], (hn_slice){"", 0});
        return true;
    }
    return bind_by_columns(reader, row, values);
}

// ---- values that lost a part ------------------------------------------------------------------

static bool equal_ranges(const hn_place_cpuset *set) {
    int length = 0;
    for (int first = hn_place_cpuset_next(set, -1); first >= 0;) {
        int last = first;
        while (hn_place_cpuset_has(set, last + 1)) last++;
        if (length && last - first + 1 != length) return false;
        length = last - first + 1;
        first = hn_place_cpuset_next(set, last);
    }
    return true;
}

// "0-31,64-950" where the NUMA column is empty: the only cut into an ascending list and a node number
// that leaves ranges of one length. False if there is none or more than one.
static bool cut_affinity(hn_slice text, size_t *out_cut) {
    hn_place_cpuset whole, list;
    size_t cuts = 0;
    if (hn_place_cpuset_parse(text, &whole) && equal_ranges(&whole) &&
        memchr(text.data, ',', text.length))
        return false; // it is a fine list as it is
    for (size_t digits = 1; digits <= 2 && digits < text.length; digits++) {
        hn_slice node = {text.data + text.length - digits, digits};
        int64_t number;
        if (!hn_parse_i64(node, &number) || number < 0 || number > 31 ||
            (digits == 2 && node.data[0] == '0'))
            continue;
        if (!hn_place_cpuset_parse((hn_slice){text.data, text.length - digits}, &list)) continue;
        if (!memchr(text.data, ',', text.length - digits) || !equal_ranges(&list)) continue;
        *out_cut = text.length - digits;
        cuts++;
    }
    return cuts == 1;
}

static void unglue_affinity(text_reader *reader, const text_row *row, row_values *values) {
    const text_header *header = &reader->header;
    size_t at;
    if (header->title_count < 2 || header->titles[0] != TITLE_CPUS ||
        header->titles[1] != TITLE_NUMA || row->tail_count != header->title_count - 1 || row->junk ||
        !cut_affinity(row->tail[0].text, &at))
        return;
    hn_slice text = row->tail[0].text;
    give(values, TITLE_CPUS, (hn_slice){text.data, at});
    give(values, TITLE_NUMA, (hn_slice){text.data + at, text.length - at});
    if (header->title_count == 3) give(values, header->titles[2], row->tail[1].text);
    hn_place_machine_damage(reader->machine,
                            "the affinity columns of row %s are glued together ('%.*s'): cut into CPUs "
                            "%.*s and NUMA node %.*s, the only cut that leaves a list of equal ranges",
                            row->label, (int)text.length, text.data, (int)at, text.data,
                            (int)(text.length - at), text.data + at);
}

static bool same_text(hn_slice a, hn_slice b) {
    return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

// The value of a row that was printed last, and its title; NULL if it has none.
static value *last_value(const text_reader *reader, row_values *values, text_title *out_title) {
    value *last = NULL;
    for (int t = 0; t < reader->header.title_count; t++) {
        value *v = &values->of[reader->header.titles[t]];
        if (v->state != VALUE_GIVEN) continue;
        last = v;
        *out_title = reader->header.titles[t];
    }
    return last;
}

// True if the value may have lost digits, as far as the other rows tell: none has the same, or one goes on
// where it ends.
static bool looks_cut(const text_reader *reader, const row_values *all, size_t at, text_title title,
                      hn_slice text, bool none_is_enough) {
    bool longer = false;
    for (size_t i = 0; i < reader->rows.count; i++) {
        const value *other = &all[i].of[title];
        if (i == at || other->state != VALUE_GIVEN) continue;
        if (same_text(other->text, text)) return false;
        longer |= other->text.length > text.length &&
                  memcmp(other->text.data, text.data, text.length) == 0;
    }
    return longer || none_is_enough;
}

static void say_cut(hn_place_machine *machine, const text_row *row) {
    hn_slice text = row->tail[row->tail_count - 1].text;
    hn_place_machine_damage(machine,
                            "the text is cut off in row %s: its last value '%.*s' may have lost digits and is "
                            "taken as unknown",
                            row->label, (int)text.length, text.data);
}

// Where the text was cut off or clipped at its right edge, values that end there are doubtful: in its last
// row (all the more if other rows have more values, or rows are missing), and with a clipped edge in every
// row that is as long as the longest line.
static void doubt_last_values(text_reader *reader, row_values *all, bool rows_missing) {
    size_t count = reader->rows.count;
    int widest = reader->header.length, most = 0;
    bool edge = reader->header.cut_off;
    hn_place_cpuset list;
    for (size_t i = 0; i < count; i++) {
        if (reader->rows.data[i]->length > widest) widest = reader->rows.data[i]->length;
        if (reader->rows.data[i]->tail_count > most) most = reader->rows.data[i]->tail_count;
    }
    // A list that is broken at the edge shows that the edge was clipped.
    for (size_t i = 0; i < count; i++) {
        const text_row *row = reader->rows.data[i];
        if (row->length != widest || !row->tail_count) continue;
        hn_slice text = row->tail[row->tail_count - 1].text;
        edge |= !hn_slice_eq(text, "N/A") && !hn_place_cpuset_parse(text, &list);
    }
    for (size_t i = 0; i < count; i++) {
        const text_row *row = reader->rows.data[i];
        bool last = row->ends_text, clipped = edge && row->length == widest;
        text_title title = TITLE_OTHER;
        if (!card_row(row) || row->last_is_cell || !row->tail_count || (!last && !clipped)) continue;
        value *v = last_value(reader, &all[i], &title);
        if (!v && last && rows_missing) say_cut(reader->machine, row); // too few values to bind any
        if (!v || hn_slice_eq(v->text, "N/A")) continue;
        bool sure = last && (rows_missing || row->tail_count < most);
        if (!clipped && !looks_cut(reader, all, i, title, v->text, sure)) continue;
        say_cut(reader->machine, row);
        *v = (value){VALUE_LOST, {"", 0}};
    }
}

// A list that is the end of another card's list on the same node lost its first characters.
static bool clipped_twin(const text_reader *reader, const row_values *all, size_t at) {
    hn_slice text = all[at].of[TITLE_CPUS].text;
    for (size_t i = 0; i < reader->rows.count; i++) {
        const value *other = &all[i].of[TITLE_CPUS];
        if (other->state != VALUE_GIVEN || other->text.length <= text.length) continue;
        size_t more = other->text.length - text.length;
        if (memcmp(other->text.data + more, text.data, text.length) != 0) continue;
        // "64-95" is no clipped "0-31,64-95", but "2-63" is a clipped "32-63".
        if (isdigit((unsigned char)other->text.data[more - 1])) return true;
    }
    return false;
}

// Cards that share one remark, so that it is one sentence.
typedef enum remark {
    REMARK_EMPTY,   // no CPU list, but a node
    REMARK_NO_LIST, // the CPU list is broken
    REMARK_CLIPPED, // the CPU list is the end of another one
    REMARK_NODES,   // several nodes
    REMARK_NO_NODE, // the node is broken
    REMARK_LOST,    // a value could not be bound to a column
    REMARKS
} remark;
typedef struct remarks {
    int cards[REMARKS][HN_PLACE_GPUS_MAX], count[REMARKS];
    hn_slice example[REMARKS];
} remarks;

static void note(remarks *notes, remark which, int card, hn_slice example) {
    if (notes->count[which] == HN_PLACE_GPUS_MAX) return;
    if (!notes->count[which]) notes->example[which] = example;
    notes->cards[which][notes->count[which]++] = card;
}

static void say_remarks(hn_place_machine *machine, const remarks *notes) {
    static const struct {
        bool damage;
        const char *before, *after;
    } k_texts[REMARKS] = {
        [REMARK_EMPTY] = {false, "the CPU affinity of",
                          "is empty: none of the CPUs that nvidia-smi was allowed to use is local to "
                          "it (a job's cpuset); its local CPUs are unknown"},
        [REMARK_NO_LIST] = {true, "the CPU affinity of", "is damaged, it is no CPU list: unknown"},
        [REMARK_CLIPPED] = {true, "the CPU affinity of",
                            "is damaged, it is the end of another card's list: unknown"},
        [REMARK_NODES] = {false, "the NUMA affinity of",
                          "names several nodes, as it does when nvidia-smi ran inside a cpuset: the "
                          "node is unknown; /sys/bus/pci/devices/<address>/numa_node has it"},
        [REMARK_NO_NODE] = {true, "the NUMA affinity of", "is damaged, it is no node number: unknown"},
        [REMARK_LOST] = {true, "affinity values of",
                         "cannot be told apart or are cut off: unknown"},
    };
    for (int i = 0; i < REMARKS; i++) {
        if (!notes->count[i]) continue;
        const char *cards = hn_place_device_list(machine, notes->cards[i], notes->count[i]);
        hn_slice example = notes->example[i];
        if (k_texts[i].damage) {
            hn_place_machine_damage(machine, "%s %s%s%.*s%s %s", k_texts[i].before, cards,
                                    example.length ? " ('" : "", (int)example.length, example.data,
                                    example.length ? "')" : "", k_texts[i].after);
            machine->complete = false;
        } else {
            hn_place_machine_advise(machine, "%s %s%s%.*s%s %s", k_texts[i].before, cards,
                                    example.length ? " ('" : "", (int)example.length, example.data,
                                    example.length ? "')" : "", k_texts[i].after);
        }
    }
}

static void take_cpus(text_reader *reader, const row_values *all, size_t at, int card,
                      remarks *notes) {
    const value *v = &all[at].of[TITLE_CPUS];
    hn_place_gpu *gpu = &reader->machine->gpus.data[card];
    if (v->state == VALUE_EMPTY && all[at].of[TITLE_NUMA].state == VALUE_GIVEN)
        note(notes, REMARK_EMPTY, card, (hn_slice){"", 0});
    if (v->state != VALUE_GIVEN || hn_slice_eq(v->text, "N/A")) return;
    if (clipped_twin(reader, all, at)) note(notes, REMARK_CLIPPED, card, v->text);
    else if (hn_place_cpuset_parse(v->text, &gpu->cpus)) gpu->cpus_known = true;
    else note(notes, REMARK_NO_LIST, card, v->text);
}

// Nodes: a number is the node. A list names no single one, unless the cards' own memory makes nodes
// (Grace): then the one below all of those is the processor's.
static void take_numa(text_reader *reader, const row_values *values, int lowest_memory_node, int card,
                      remarks *notes) {
    const value *v = &values->of[TITLE_NUMA];
    hn_place_gpu *gpu = &reader->machine->gpus.data[card];
    hn_place_cpuset nodes;
    if (v->state != VALUE_GIVEN || hn_slice_eq(v->text, "N/A")) return;
    if (!hn_place_cpuset_parse(v->text, &nodes)) {
        note(notes, REMARK_NO_NODE, card, v->text);
        return;
    }
    int first = hn_place_cpuset_next(&nodes, -1), second = hn_place_cpuset_next(&nodes, first);
    if (second < 0 || (first < lowest_memory_node && second >= lowest_memory_node &&
                       lowest_memory_node < HN_PLACE_CPUS_MAX)) {
        gpu->numa = first;
        gpu->numa_origin = HN_ORIGIN_SOURCE;
        return;
    }
    note(notes, REMARK_NODES, card, v->text);
}

static hn_status take_values(hone_error *err, text_reader *reader) {
    hn_place_machine *machine = reader->machine;
    size_t count = reader->rows.count;
    row_values *all = hn_arena_array(&machine->arena, count, sizeof *all);
    remarks *notes = hn_arena_zalloc(&machine->arena, sizeof *notes);
    int lowest = HN_PLACE_CPUS_MAX;
    if (!all || !notes) HN_NOMEM(err, "topology text");
    if (!reader->header.title_count) {
        for (size_t i = 0; i < count; i++)
            if (reader->rows.data[i]->tail_count)
                hn_place_machine_damage(machine, "the rows have values (such as '%.*s' in row %s) that no column "
                                                 "of the header names: left out",
                                        (int)reader->rows.data[i]->tail[0].text.length,
                                        reader->rows.data[i]->tail[0].text.data, reader->rows.data[i]->label);
        return HONE_OK;
    }
    for (size_t i = 0; i < count; i++) {
        const text_row *row = reader->rows.data[i];
        if (card_row(row) && !bind_values(reader, row, &all[i])) unglue_affinity(reader, row, &all[i]);
    }
    doubt_last_values(reader, all, count < (size_t)machine->device_count);
    bool some[TITLE_OTHER + 1] = {false};
    for (size_t i = 0; i < count; i++)
        for (int t = 0; t <= TITLE_OTHER; t++) some[t] |= all[i].of[t].state == VALUE_GIVEN;
    for (size_t i = 0; i < count; i++) {
        const value *v = &all[i].of[TITLE_GPU_NUMA];
        int g = find_device(machine, reader->rows.data[i]->label);
        int64_t node;
        if (!card_row(reader->rows.data[i]) || v->state != VALUE_GIVEN ||
            !hn_parse_i64(v->text, &node) || node < 0 || node >= HN_PLACE_CPUS_MAX)
            continue;
        machine->gpus.data[g].memory_numa = (int)node;
        if (node < lowest) lowest = (int)node;
    }
    for (size_t i = 0; i < count; i++) {
        if (!card_row(reader->rows.data[i])) continue;
        int g = find_device(machine, reader->rows.data[i]->label);
        take_cpus(reader, all, i, g, notes);
        take_numa(reader, &all[i], lowest, g, notes);
        bool lacks = false;
        for (int t = 0; t < reader->header.title_count; t++)
            lacks |= all[i].of[reader->header.titles[t]].state == VALUE_LOST;
        // Empty while other cards have a value: lost, but for a CPU list beside a node (a job's cpuset).
        lacks |= some[TITLE_NUMA] && all[i].of[TITLE_NUMA].state == VALUE_EMPTY;
        lacks |= some[TITLE_CPUS] && all[i].of[TITLE_CPUS].state == VALUE_EMPTY &&
                 all[i].of[TITLE_NUMA].state != VALUE_GIVEN;
        if (lacks) note(notes, REMARK_LOST, g, (hn_slice){"", 0});
    }
    say_remarks(machine, notes);
    return HONE_OK;
}

// ---- all of it --------------------------------------------------------------------------------

static hn_status read_all(hone_error *err, hn_slice text, text_reader *reader) {
    hn_place_machine *machine = reader->machine;
    hone_status status;
    size_t next = 0;
    HN_TRY(hn_place_text_clean(err, text, reader));
    for (size_t i = 0; i < reader->lines.count; i++)
        HN_TRY(read_code_legend(err, reader, reader->lines.data[i]));
    machine->source = "nvidia-smi topo -m text";
    machine->complete = true;
    bool p2p = false, found = find_header(err, reader, &next, &p2p, &status);
    HN_TRY(status);
    if (!found && p2p)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "the text holds a peer-to-peer table (nvidia-smi topo -p2p), no topology matrix "
                "(nvidia-smi topo -m)");
    if (found) {
        HN_TRY(read_rows(err, reader, next));
        name_others(reader, next);
    }
    else HN_TRY(header_from_rows(err, reader));
    if (!reader->rows.count) {
        HN_FAIL(err, HONE_ERR_FORMAT,
                "the text holds no topology matrix: no line with GPU0 ... over lines of link codes");
    }
    HN_TRY(make_devices(err, reader));
    HN_TRY(fill_matrix(err, reader));
    HN_TRY(take_values(err, reader));
    for (size_t i = 0; i < reader->lines.count; i++) read_nic_name(machine, reader->lines.data[i]);
    read_gpu_lines(reader);
    return HONE_OK;
}

hn_status hn_place_read_text(hone_error *err, hn_slice text, hn_place_machine *machine) {
    text_reader reader = {.machine = machine};
    hone_status status = read_all(err, text, &reader);
    hn_vec_free(&reader.lines);
    hn_vec_free(&reader.legend);
    hn_vec_free(&reader.rows);
    return status;
}
