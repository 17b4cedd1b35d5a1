// SPDX-License-Identifier: Apache-2.0
// Common part of the text readers (quantities, key table, devices), telling the formats apart, and
// text:FILE as a source: each sample is the device's next row, the last one for ever.
#include <ctype.h>
#include <stdio.h>
#include <time.h>
#include "probe/text_int.h"

const hn_text_key hn_text_keys[] = {
#define HN_KEY(format, key, what, target, scale) {HN_TEXT_##format, key, HN_TEXT_##what, #target, scale},
#include "probe/textkeys.def"
#undef HN_KEY
};
const size_t hn_text_key_count = HN_COUNT_OF(hn_text_keys);

// ---- quantities -------------------------------------------------------------------------------
static bool same_text(hn_slice text, const char *word) {
    return text.length == strlen(word) && strncasecmp(text.data, word, text.length) == 0;
}

static hn_slice unbracket(hn_slice text) {
    text = hn_slice_trim(text);
    if (text.length >= 2 && text.data[0] == '[' && text.data[text.length - 1] == ']')
        text = hn_slice_trim((hn_slice){text.data + 1, text.length - 2});
    return text;
}

bool hn_text_is_absent(hn_slice text) {
    static const char *const k_words[] = {
        "", "-", "--", "N/A", "NA", "None", "Not Supported", "Not Available", "Unknown Error", "Unknown",
        "ERR!", "Err", "Not Found", "Insufficient Permissions", "No Permission", "GPU is lost",
        "GPU requires reset", "Requested functionality has been deprecated",
        "Requested functionality is deprecated", "ERROR - FAILED TO CONVERT TO STRING",
        "<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>", "<<<NOT_PERMISSIONED>>>",
        "NaN",
    };
    text = unbracket(text);
    for (size_t i = 0; i < HN_COUNT_OF(k_words); i++)
        if (same_text(text, k_words[i])) return true;
    return false;
}

// DCGM's blank values of its three number types: the base plus 0 blank, 1 not found, 2 not supported,
// 3 no permission (up to 15 are kept free). In a double the 64-bit ones are all 2^63.
bool hn_text_is_sentinel(double value) {
    return (value >= 2147483632.0 && value <= 2147483647.0) || value >= 0x1p63 - 1024 ||
           (value >= 140737488355328.0 && value <= 140737488355343.0);
}

// Factor from a unit to a metric's unit; 0 = cannot be converted. A megabyte of NVIDIA's tools is
// 2^20 bytes; their link rates count in powers of ten.
static double unit_factor(hn_slice from, const char *to) {
    static const struct {
        const char *from, *to;
        double factor;
    } k_units[] = {
        {"W", "W", 1},      {"mW", "W", 1e-3},   {"kW", "W", 1e3},    {"mJ", "mJ", 1},
        {"J", "mJ", 1e3},   {"B", "B", 1},       {"KiB", "B", 0x1p10}, {"MiB", "B", 0x1p20},
        {"GiB", "B", 0x1p30}, {"KB", "B", 0x1p10}, {"MB", "B", 0x1p20}, {"GB", "B", 0x1p30},
        {"ns", "ns", 1},    {"us", "ns", 1e3},   {"ms", "ns", 1e6},   {"s", "ns", 1e9},
        {"B/s", "B/s", 1},  {"KB/s", "B/s", 1e3}, {"MB/s", "B/s", 1e6}, {"GB/s", "B/s", 1e9},
        {"MHz", "MHz", 1},  {"Hz", "MHz", 1e-6}, {"GHz", "MHz", 1e3}, {"C", "C", 1},
        {"%", "%", 1},      {"%", "ratio", 1e-2}, {"V", "mV", 1e3},   {"mV", "mV", 1},
        {"x", "", 1},       {"bank(s)", "", 1},
    };
    if (from.length == 0 || same_text(from, to)) return 1;
    for (size_t i = 0; i < HN_COUNT_OF(k_units); i++)
        if (strcmp(to, k_units[i].to) == 0 && same_text(from, k_units[i].from))
            return k_units[i].factor;
    return 0;
}

static bool word_value(hn_slice text, double *out) {
    static const struct {
        const char *word;
        double value;
    } k_words[] = {{"Enabled", 1}, {"Disabled", 0}, {"Yes", 1}, {"No", 0}, {"Active", 1},
                   {"Not Active", 0}, {"On", 1}, {"Off", 0}};
    for (size_t i = 0; i < HN_COUNT_OF(k_words); i++)
        if (same_text(text, k_words[i].word)) {
            *out = k_words[i].value;
            return true;
        }
    return false;
}

static bool hex_value(hn_slice text, double *out) {
    if (text.length < 3 || text.length > 18 || text.data[0] != '0' || (text.data[1] | 32) != 'x')
        return false;
    uint64_t value = 0;
    for (size_t i = 2; i < text.length; i++) {
        int c = tolower((unsigned char)text.data[i]);
        if (!isxdigit(c)) return false;
        value = value << 4 | (uint64_t)(isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    *out = (double)value;
    return true;
}

bool hn_text_quantity(hn_slice text, hn_slice unit_hint, const char *unit, double *out) {
    text = unbracket(text);
    if (*unit == '\0' && (word_value(text, out) || hex_value(text, out))) return true;
    // P0..P15, only where a plain number is wanted
    if (*unit == '\0' && text.length >= 2 && text.length <= 3 && text.data[0] == 'P')
        text.data++, text.length--;
    size_t length = 0;
    while (length < text.length && strchr("+-.0123456789eE", text.data[length]))
        length++;
    if (length == 0 || !isdigit((unsigned char)text.data[length - 1])) return false;
    double value;
    if (!hn_parse_f64((hn_slice){text.data, length}, &value) || !isfinite(value)) return false;
    if (length < text.length && length == 1 && text.data[0] == '0' && text.data[1] == 'x') return false;
    hn_slice own = hn_slice_trim((hn_slice){text.data + length, text.length - length});
    double factor = unit_factor(own.length ? own : unit_hint, unit);
    if (factor == 0 || hn_text_is_sentinel(value)) return false;
    *out = value * factor;
    return true;
}

int64_t hn_text_time(hn_slice text) {
    char buf[64];
    struct tm tm = {0};
    if (text.length >= sizeof buf) return 0;
    memcpy(buf, text.data, text.length);
    buf[text.length] = '\0';
    static const char *const k_months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char month[4] = "";
    int ms = 0;
    if (sscanf(buf, "%4d/%2d/%2d %2d:%2d:%2d.%3d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &ms) >= 6) {
        tm.tm_mon--;
    } else if (sscanf(buf, "%*3s %3s %2d %2d:%2d:%2d %4d", month, &tm.tm_mday, &tm.tm_hour,
                      &tm.tm_min, &tm.tm_sec, &tm.tm_year) == 6) {
        const char *at = strlen(month) == 3 ? strstr(k_months, month) : NULL;
        if (!at) return 0;
        tm.tm_mon = (int)(at - k_months) / 3;
    } else {
        return 0;
    }
    if (tm.tm_year < 1970 || tm.tm_year > 2200 || tm.tm_mon < 0 || tm.tm_mon > 11 || ms < 0) return 0;
    tm.tm_year -= 1900;
    return (int64_t)timegm(&tm) * 1000000000 + (int64_t)ms * 1000000;
}

// ---- devices, rows, values --------------------------------------------------------------------
int hn_text_add_device(hn_text *text, hn_device_kind kind, int parent) {
    if (text->devices.count >= HN_TEXT_DEVICES_MAX) return -1;
    hn_device_info info;
    hn_device_info_init(&info, kind);
    info.parent = parent;
    if (parent >= 0) info.gpu_index = text->devices.data[parent].gpu_index;
    if (!hn_vec_push(&text->devices, info)) return -1;
    return (int)text->devices.count - 1;
}

hn_text_row *hn_text_add_row(hn_text *text, int device) {
    if (text->rows.count >= HN_TEXT_ROWS_MAX) return NULL;
    hn_text_row row = {.device = device};
    return hn_vec_push(&text->rows, row) ? &text->rows.data[text->rows.count - 1] : NULL;
}

hn_text_row *hn_text_last_row(hn_text *text, int device) {
    for (size_t i = text->rows.count; i-- > 0;)
        if (text->rows.data[i].device == device) return &text->rows.data[i];
    return hn_text_add_row(text, device);
}

hn_text_process *hn_text_add_process(hn_text *text, int device) {
    hn_text_process item = {.device = device,
                            .process = {.used_bytes = -1, .sm_util = NAN, .gi_id = -1, .ci_id = -1}};
    if (text->processes.count >= HN_TEXT_ROWS_MAX || !hn_vec_push(&text->processes, item)) return NULL;
    return &text->processes.data[text->processes.count - 1];
}

void hn_text_skip(hn_text *text, int line) {
    if (text->skipped++ == 0) text->skipped_line = line;
}

// Facts given in units: the unit of their name.
static const char *info_unit(const char *name) {
    static const char *const k_units[][2] = {{"_bytes", "B"}, {"_mhz", "MHz"}, {"_w", "W"}, {"_c", "C"}};
    size_t length = strlen(name);
    for (size_t i = 0; i < HN_COUNT_OF(k_units); i++) {
        size_t tail = strlen(k_units[i][0]);
        if (length > tail && strcmp(name + length - tail, k_units[i][0]) == 0) return k_units[i][1];
    }
    return "";
}

static void put_info(const hn_text_key *key, hn_slice value, hn_slice unit_hint,
                     hn_device_info *info) {
    const hn_info_row *row = hn_info_by_name((hn_slice){key->target, strlen(key->target)});
    double number;
    if (!row->is_num) {
        if (!hn_text_is_absent(value)) hn_info_set(info, row, hn_slice_trim(value));
        return;
    }
    if (hn_text_quantity(value, unit_hint, info_unit(row->name), &number))
        *(double *)((char *)info + row->offset) = number * key->scale;
}

static void put_sample(const hn_text_key *key, hn_slice value, hn_slice unit_hint,
                       hn_sample *sample) {
    hn_metric metric = hn_metric_by_token((hn_slice){key->target, strlen(key->target)});
    double number, before = hn_sample_or(sample, metric, 0);
    if (!hn_text_quantity(value, unit_hint, hn_metric_rows[metric].unit, &number)) return;
    if (key->what == HN_TEXT_bit)
        number = (double)((uint64_t)before | (number == 1 ? (uint64_t)key->scale : 0));
    else
        number = number * key->scale + (key->what == HN_TEXT_add ? before : 0);
    // Cards without the sensor say 0 for the memory's temperature.
    if (metric == HN_M_mem_temp_c && number <= 0) return;
    hn_sample_put(sample, metric, number);
}

bool hn_text_put(hn_text *text, hn_text_format format, hn_slice key, hn_slice value,
                 hn_slice unit_hint, int device, hn_sample *sample) {
    bool known = false;
    for (size_t i = 0; i < hn_text_key_count; i++) {
        const hn_text_key *row = &hn_text_keys[i];
        if (row->format != format || !hn_slice_eq(key, row->key)) continue;
        known = true;
        if (row->what == HN_TEXT_info)
            put_info(row, value, unit_hint, &text->devices.data[device]);
        else
            put_sample(row, value, unit_hint, sample);
    }
    return known;
}

// ---- telling formats apart --------------------------------------------------------------------
typedef hone_status (*reader_fn)(hone_error *err, const char *name, hn_slice data, hn_text *text);

static bool contains(hn_slice text, const char *what) {
    return memmem(text.data, text.length, what, strlen(what)) != NULL;
}

// A Prometheus sample or comment: a name, then a label set, a blank or nothing.
static bool looks_like_prom(hn_slice line) {
    if (hn_slice_starts(line, "# HELP ") || hn_slice_starts(line, "# TYPE ")) return true;
    size_t at = 0;
    while (at < line.length && (isalnum((unsigned char)line.data[at]) || line.data[at] == '_' ||
                                line.data[at] == ':'))
        at++;
    if (at == 0 || at == line.length || isdigit((unsigned char)line.data[0])) return false;
    return line.data[at] == '{' ||
           (line.data[at] == ' ' && at + 1 < line.length && strchr("+-0123456789", line.data[at + 1]));
}

static reader_fn find_reader(hn_slice data, const char **out_format) {
    static const struct {
        const char *format;
        reader_fn fn;
    } k_readers[] = {
        {"nvidia-smi -q -x", hn_text_read_xml}, {"nvidia-smi -q", hn_text_read_q},
        {"nvidia-smi dmon", hn_text_read_dmon}, {"nvidia-smi CSV", hn_text_read_csv},
        {"Prometheus page", hn_text_read_prom},
    };
    int kind = -1;
    hn_slice rest = data, line;
    for (int lines = 0; kind < 0 && lines < 200 && hn_slice_line(&rest, &line); lines++) {
        line = hn_slice_trim(line);
        if (line.length == 0) continue;
        if (hn_slice_starts(line, "<?xml") || hn_slice_starts(line, "<!DOCTYPE nvidia_smi_log") ||
            hn_slice_starts(line, "<nvidia_smi_log"))
            kind = 0;
        else if (contains(line, "NVSMI LOG") || hn_slice_starts(line, "Attached GPUs"))
            kind = 1;
        else if (hn_slice_starts(line, "# gpu ") || hn_slice_starts(line, "#gpu ") ||
                 (line.data[0] == '#' && contains(line, " gpu ") && contains(line, "Time")))
            kind = 2;
        else if (looks_like_prom(line))
            kind = 4;
        else if (line.data[0] != '#' && contains(line, ", "))
            kind = 3;
    }
    if (kind < 0) return NULL;
    *out_format = k_readers[kind].format;
    return k_readers[kind].fn;
}

hn_status hn_text_parse(hone_error *err, const char *name, const char *data, size_t bytes,
                        hn_text *out_text) {
    hn_slice all = {data, bytes};
    if (bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) all.data += 3, all.length -= 3;
    if (memchr(all.data ? all.data : "", '\0', all.length))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: binary data, not a text", name);
    if (hn_slice_starts(all, "#hone-record"))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: a recording: its source is replay:%s", name, name);
    if (hn_slice_starts(all, "==PROF==") || hn_slice_starts(all, "\"ID\","))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: an export of Nsight Compute: kernels, not samples", name);
    hn_text text = {0};
    reader_fn read = find_reader(all, &text.format);
    if (!read)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "%s: neither nvidia-smi (-q, -q -x, --query-gpu with header, dmon, pmon) nor a "
                "Prometheus page",
                name);
    hone_status status = read(err, name, all, &text);
    if (status == HONE_OK && text.devices.count == 0)
        status = HN_SET(err, HONE_ERR_FORMAT, "%s: no card is described in this %s text", name,
                        text.format);
    if (status != HONE_OK) {
        hn_text_free(&text);
        return status;
    }
    for (size_t d = 0; d < text.devices.count; d++) {
        hn_device_info *info = &text.devices.data[d];
        if (!isfinite(info->gpu_index) && info->parent < 0) {
            int cards = 0; // the order of the text
            for (size_t k = 0; k < d; k++)
                cards += text.devices.data[k].parent < 0;
            info->gpu_index = cards;
        }
        if (info->parent >= 0) info->gpu_index = text.devices.data[info->parent].gpu_index;
        if (!info->driver[0]) memcpy(info->driver, text.driver, sizeof info->driver);
        if (!info->cuda[0]) memcpy(info->cuda, text.cuda, sizeof info->cuda);
        bool mig = strncmp(info->mig_mode, "Enabled", 7) == 0;
        if (mig) memset(info->absent, HN_ABSENT_MIG, sizeof info->absent);
    }
    for (size_t r = 0; r < text.rows.count; r++)
        for (int m = 0; m < HN_METRIC_COUNT; m++)
            if (hn_sample_has(&text.rows.data[r].sample, (hn_metric)m))
                text.devices.data[text.rows.data[r].device].absent[m] = HN_ABSENT_NOT;
    *out_text = text;
    return HONE_OK;
}

void hn_text_free(hn_text *text) {
    hn_vec_free(&text->devices);
    hn_vec_free(&text->rows);
    hn_vec_free(&text->processes);
    *text = (hn_text){0};
}

// ---- as a source ------------------------------------------------------------------------------
typedef struct text_probe {
    hn_probe base;
    hn_text text;  // owned
    size_t *next;  // per device: row to look at first; owned
    int64_t origin_ns;
} text_probe;

static void text_close(hn_probe *probe) {
    text_probe *self = (text_probe *)probe;
    hn_text_free(&self->text);
    hn_free(self->next);
    hn_free(self);
}

static hone_status text_open(hone_error *err, const char *arg, hn_probe **out_probe) {
    char *data;
    size_t bytes;
    HN_TRY(hn_file_read_text(err, arg, HN_TEXT_BYTES_MAX, &data, &bytes));
    text_probe *self = hn_calloc(1, sizeof *self);
    hone_status status =
        self ? hn_text_parse(err, arg, data, bytes, &self->text) : HN_SET(err, HONE_ERR_NOMEM, "out of memory (text)");
    hn_free(data);
    if (status == HONE_OK) {
        self->next = hn_calloc(self->text.devices.count, sizeof *self->next);
        if (!self->next) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (text)");
    }
    if (status != HONE_OK) {
        if (self) text_close(&self->base);
        return status;
    }
    self->base.provider = &hn_probe_text;
    self->base.devices = self->text.devices.data;
    self->base.device_count = (int)self->text.devices.count;
    self->origin_ns = hn_clock_ns();
    if (self->text.skipped)
        snprintf(self->base.note, sizeof self->base.note,
                 "%d lines or values were not understood, the first in line %d", self->text.skipped,
                 self->text.skipped_line);
    *out_probe = &self->base;
    return HONE_OK;
}

static hone_status text_sample(hone_error *err, hn_probe *probe, int device,
                               hn_sample *out_sample) {
    text_probe *self = (text_probe *)probe;
    const hn_text_row *rows = self->text.rows.data, *found = NULL;
    size_t *next = &self->next[device];
    for (size_t i = *next; i < self->text.rows.count && !found; i++)
        if (rows[i].device == device) {
            found = &rows[i];
            *next = i + 1;
        }
    // Past the end the last row stands.
    for (size_t i = self->text.rows.count; i-- > 0 && !found;)
        if (rows[i].device == device) found = &rows[i];
    if (!found)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: device %d is named but has no readings",
                self->base.source, device);
    *out_sample = found->sample;
    out_sample->t_ns = hn_clock_ns();
    if (out_sample->wall_ns == 0) out_sample->wall_ns = hn_clock_wall_ns();
    return HONE_OK;
}

static hone_status text_processes(hone_error *err, hn_probe *probe, int device,
                                  hn_process *out_items, int max_items, int *out_count) {
    (void)err;
    text_probe *self = (text_probe *)probe;
    int count = 0;
    for (size_t i = 0; i < self->text.processes.count && count < max_items; i++)
        if (self->text.processes.data[i].device == device)
            out_items[count++] = self->text.processes.data[i].process;
    *out_count = count;
    return HONE_OK;
}

static bool text_ended(const hn_probe *probe) {
    const text_probe *self = (const text_probe *)probe;
    for (int d = 0; d < self->base.device_count; d++)
        for (size_t i = self->next[d]; i < self->text.rows.count; i++)
            if (self->text.rows.data[i].device == d) return false;
    return true;
}

const hn_probe_provider hn_probe_text = {
    .name = "text", .takes_arg = true, .open = text_open, .close = text_close,
    .sample = text_sample, .processes = text_processes, .ended = text_ended};
