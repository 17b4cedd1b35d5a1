// SPDX-License-Identifier: Apache-2.0
// nvidia-smi's tables: --query-gpu and --query-compute-apps CSV, dmon and pmon.
#include <stdio.h>
#include "probe/text_int.h"

#define COLUMNS_MAX 512

typedef struct table {
    hn_text *text;
    int line, columns;
    hn_slice names[COLUMNS_MAX], units[COLUMNS_MAX];
} table;

static int find_column(const table *t, const char *name) {
    for (int i = 0; i < t->columns; i++)
        if (hn_slice_eq(t->names[i], name)) return i;
    return -1;
}

static void copy_slice(char *out, size_t bytes, hn_slice text) {
    size_t length = text.length < bytes - 1 ? text.length : bytes - 1;
    memcpy(out, text.data, length);
    out[length] = '\0';
}

// ---- CSV --------------------------------------------------------------------------------------
// Cells are split at ", ": the tool quotes nothing. A comma at the end of a line is an empty cell.
static int split_csv(hn_slice line, hn_slice *cells, int max) {
    int count = 0;
    for (;;) {
        const char *comma = memmem(line.data, line.length, ", ", 2);
        if (!comma && line.length && line.data[line.length - 1] == ',')
            comma = line.data + line.length - 1;
        if (count == max) return max + 1;
        cells[count++] = hn_slice_trim((hn_slice){line.data, comma ? (size_t)(comma - line.data) : line.length});
        if (!comma) return count;
        size_t skip = (size_t)(comma + 1 - line.data);
        line.data += skip;
        line.length -= skip;
    }
}

static void read_header(table *t, hn_slice line) {
    hn_slice cells[COLUMNS_MAX];
    int count = split_csv(line, cells, COLUMNS_MAX);
    t->columns = count > COLUMNS_MAX ? COLUMNS_MAX : count;
    for (int i = 0; i < t->columns; i++) {
        t->names[i] = cells[i];
        t->units[i] = (hn_slice){"", 0};
        const char *open = memchr(cells[i].data, '[', cells[i].length);
        if (!open || cells[i].data[cells[i].length - 1] != ']') continue;
        t->names[i] = hn_slice_trim((hn_slice){cells[i].data, (size_t)(open - cells[i].data)});
        t->units[i] = (hn_slice){open + 1, cells[i].length - (size_t)(open + 2 - cells[i].data)};
    }
}

static bool known_header(const table *t) {
    for (int i = 0; i < t->columns; i++) {
        if (hn_slice_eq(t->names[i], "pid")) return true;
        for (size_t k = 0; k < hn_text_key_count; k++)
            if (hn_text_keys[k].format == HN_TEXT_csv && hn_slice_eq(t->names[i], hn_text_keys[k].key))
                return true;
    }
    return false;
}

// The device of a row: by uuid, index or bus id, whichever column is there; without any of them all
// rows are one card's.
static int csv_device(const table *t, const hn_slice *cells) {
    static const char *const k_keys[] = {"uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id"};
    for (size_t k = 0; k < HN_COUNT_OF(k_keys); k++) {
        int column = find_column(t, k_keys[k]);
        if (column < 0 || hn_text_is_absent(cells[column])) continue;
        for (size_t d = 0; d < t->text->devices.count; d++) {
            const hn_device_info *info = &t->text->devices.data[d];
            double index;
            bool same = k < 2    ? hn_slice_eq(cells[column], info->uuid)
                        : k == 2 ? hn_parse_f64(cells[column], &index) && index == info->gpu_index
                                 : hn_slice_eq(cells[column], info->pci_bus_id);
            if (same) return (int)d;
        }
        return hn_text_add_device(t->text, HN_DEVICE_GPU, -1);
    }
    return t->text->devices.count ? 0 : hn_text_add_device(t->text, HN_DEVICE_GPU, -1);
}

static void csv_process(const table *t, const hn_slice *cells, int device) {
    hn_text_process *item = hn_text_add_process(t->text, device);
    int pid = find_column(t, "pid"), name = find_column(t, "process_name"),
        used = find_column(t, "used_gpu_memory");
    if (!item || !hn_parse_i64(cells[pid], &item->process.pid)) {
        if (item) t->text->processes.count--;
        hn_text_skip(t->text, t->line);
        return;
    }
    item->process.type = HN_PROCESS_COMPUTE;
    if (name < 0) name = find_column(t, "name");
    if (name >= 0) copy_slice(item->process.name, sizeof item->process.name, cells[name]);
    if (used < 0) used = find_column(t, "used_memory");
    double bytes;
    if (used >= 0 && hn_text_quantity(cells[used], t->units[used], "B", &bytes) && bytes >= 0 && bytes < 0x1p62)
        item->process.used_bytes = (int64_t)bytes;
}

static bool csv_row(table *t, const hn_slice *cells) {
    int device = csv_device(t, cells);
    if (device < 0) return false;
    if (find_column(t, "pid") >= 0) {
        csv_process(t, cells, device);
        for (int i = 0; i < t->columns; i++) // names the card, where the columns do
            if (hn_slice_starts(t->names[i], "gpu_")) {
                hn_sample none = {0};
                hn_text_put(t->text, HN_TEXT_csv, t->names[i], cells[i], t->units[i], device, &none);
            }
        return true;
    }
    hn_text_row *row = hn_text_add_row(t->text, device);
    if (!row) return false;
    for (int i = 0; i < t->columns; i++) {
        if (hn_slice_eq(t->names[i], "timestamp")) row->sample.wall_ns = hn_text_time(cells[i]);
        if (hn_slice_eq(t->names[i], "compute_cap")) {
            const char *dot = memchr(cells[i].data, '.', cells[i].length);
            int64_t major, minor;
            if (dot && hn_parse_i64((hn_slice){cells[i].data, (size_t)(dot - cells[i].data)}, &major) &&
                hn_parse_i64((hn_slice){dot + 1, cells[i].length - (size_t)(dot + 1 - cells[i].data)}, &minor)) {
                t->text->devices.data[device].cc_major = (double)major;
                t->text->devices.data[device].cc_minor = (double)minor;
            }
        }
        hn_text_put(t->text, HN_TEXT_csv, t->names[i], cells[i], t->units[i], device, &row->sample);
    }
    return true;
}

hone_status hn_text_read_csv(hone_error *err, const char *name, hn_slice data, hn_text *text) {
    table t = {.text = text};
    hn_slice line, header = {0}, cells[COLUMNS_MAX];
    while (hn_slice_line(&data, &line)) {
        t.line++;
        line = hn_slice_trim(line);
        if (line.length == 0 || line.data[0] == '#') continue;
        if (t.columns == 0) {
            read_header(&t, line);
            header = line;
            if (!known_header(&t))
                HN_FAIL(err, HONE_ERR_FORMAT,
                        "%s: line %d: no header with names of nvidia-smi columns (written with "
                        "noheader?)",
                        name, t.line);
            continue;
        }
        if (line.length == header.length && memcmp(line.data, header.data, line.length) == 0)
            continue; // -l repeats it
        int count = split_csv(line, cells, COLUMNS_MAX);
        if (count != t.columns) {
            hn_text_skip(text, t.line); // cut short, or not a row: no cell of it can be trusted
            continue;
        }
        if (!csv_row(&t, cells))
            HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many cards or rows", name, t.line);
    }
    return HONE_OK;
}

// ---- dmon and pmon ----------------------------------------------------------------------------
static int split_blanks(hn_slice line, hn_slice *cells, int max) {
    int count = 0;
    size_t at = 0;
    while (at < line.length && count < max) {
        while (at < line.length && (line.data[at] == ' ' || line.data[at] == '\t'))
            at++;
        size_t begin = at;
        while (at < line.length && line.data[at] != ' ' && line.data[at] != '\t')
            at++;
        if (at > begin) cells[count++] = (hn_slice){line.data + begin, at - begin};
    }
    return count;
}

static int dmon_device(table *t, hn_slice cell) {
    int64_t index;
    if (!hn_parse_i64(cell, &index) || index < 0 || index > 4096) return -1;
    for (size_t d = 0; d < t->text->devices.count; d++)
        if (t->text->devices.data[d].gpu_index == (double)index) return (int)d;
    int device = hn_text_add_device(t->text, HN_DEVICE_GPU, -1);
    if (device >= 0) t->text->devices.data[device].gpu_index = (double)index;
    return device;
}

// pmon repeats its listing; the last one counts. A new one begins where a card's pid comes again.
static void pmon_row(table *t, const hn_slice *cells, int count, int device) {
    int pid_column = find_column(t, "pid"), type = find_column(t, "type"), sm = find_column(t, "sm"),
        command = find_column(t, "command"), fb = find_column(t, "fb");
    int64_t pid;
    if (!hn_parse_i64(cells[pid_column], &pid)) return; // "-": no process on this card
    for (size_t i = 0; i < t->text->processes.count; i++)
        if (t->text->processes.data[i].device == device && t->text->processes.data[i].process.pid == pid) {
            size_t kept = 0;
            for (size_t k = 0; k < t->text->processes.count; k++)
                if (t->text->processes.data[k].device != device)
                    t->text->processes.data[kept++] = t->text->processes.data[k];
            t->text->processes.count = kept;
            break;
        }
    hn_text_process *item = hn_text_add_process(t->text, device);
    if (!item) return;
    item->process.pid = pid;
    if (type >= 0 && memchr(cells[type].data, 'C', cells[type].length)) item->process.type |= HN_PROCESS_COMPUTE;
    if (type >= 0 && memchr(cells[type].data, 'G', cells[type].length)) item->process.type |= HN_PROCESS_GRAPHICS;
    double value;
    if (sm >= 0 && hn_text_quantity(cells[sm], (hn_slice){0}, "%", &value)) item->process.sm_util = value;
    if (fb >= 0 && hn_text_quantity(cells[fb], (hn_slice){"MB", 2}, "B", &value)) item->process.used_bytes = (int64_t)value;
    if (command >= 0 && command < count) {
        hn_slice text = {cells[command].data,
                         (size_t)(cells[count - 1].data + cells[count - 1].length - cells[command].data)};
        copy_slice(item->process.name, sizeof item->process.name, text);
    }
}

static void read_dmon_header(table *t, const hn_slice *cells, int count) {
    bool units = count && (hn_slice_eq(cells[0], "Idx") || hn_slice_eq(cells[0], "YYYYMMDD"));
    if (units && t->columns) {
        for (int i = 0; i < t->columns; i++)
            t->units[i] = i < count ? cells[i] : (hn_slice){"", 0};
        return;
    }
    bool names = false;
    for (int i = 0; i < count; i++)
        names |= hn_slice_eq(cells[i], "gpu");
    if (!names) return; // a comment
    t->columns = count;
    for (int i = 0; i < count; i++)
        t->names[i] = cells[i], t->units[i] = (hn_slice){"", 0};
}

hone_status hn_text_read_dmon(hone_error *err, const char *name, hn_slice data, hn_text *text) {
    table t = {.text = text};
    hn_slice line, cells[COLUMNS_MAX];
    while (hn_slice_line(&data, &line)) {
        t.line++;
        line = hn_slice_trim(line);
        if (line.length == 0) continue;
        if (line.data[0] == '#') {
            int count = split_blanks((hn_slice){line.data + 1, line.length - 1}, cells, COLUMNS_MAX);
            read_dmon_header(&t, cells, count);
            continue;
        }
        int count = split_blanks(line, cells, COLUMNS_MAX), gpu = find_column(&t, "gpu");
        bool pmon = find_column(&t, "pid") >= 0;
        // pmon's last column is a command, which may hold blanks or be missing
        if (gpu < 0 || (pmon ? count < t.columns - 1 : count != t.columns)) {
            hn_text_skip(text, t.line);
            continue;
        }
        int device = dmon_device(&t, cells[gpu]);
        if (device < 0) {
            hn_text_skip(text, t.line);
            continue;
        }
        if (pmon) {
            pmon_row(&t, cells, count, device);
            continue;
        }
        hn_text_row *row = hn_text_add_row(text, device);
        if (!row) HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many rows", name, t.line);
        for (int i = 0; i < t.columns; i++)
            hn_text_put(text, HN_TEXT_dmon, t.names[i], cells[i], t.units[i], device, &row->sample);
    }
    return HONE_OK;
}
