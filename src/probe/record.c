// SPDX-License-Identifier: Apache-2.0
// Writing and reading recordings: see record.h.
#include "probe/record.h"
#include "probe/sys.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <zlib.h>

#define LINE_BYTES (64 * 1024)
// The energy counter is read every few seconds and written once per reading.
#define ENERGY_HOLD_NS INT64_C(15000000000)

typedef struct columns {
    int count;
    int16_t metric[HN_METRIC_COUNT + 64]; // HN_METRIC_COUNT = a column nobody knows here
} columns;

static const char *const k_event_names[] = {
    [HN_EVENT_XID] = "xid", [HN_EVENT_LOST] = "lost", [HN_EVENT_BACK] = "back",
    [HN_EVENT_PHASE] = "phase"};

// ---- writing ----------------------------------------------------------------------------------
struct hn_recorder {
    gzFile file;
    int64_t t0_ns, wall_ns;
    int device_count;
    uint64_t (*shown)[HN_METRIC_WORDS]; // per device: metrics that have a column
    int64_t *energy_ns; // per device: of the energy reading last written; owned
    hn_str line;
    char *path; // owned
};

// zlib hands the system's error through errno.
static hone_status cannot_write(hone_error *err, const hn_recorder *recorder, int code) {
    const char *why = code == Z_ERRNO && errno ? strerror(errno)
                      : code == Z_MEM_ERROR    ? "out of memory"
                                               : "the compression failed";
    HN_FAIL(err, HONE_ERR_IO, "cannot write '%s': %s; it can be read up to its last whole line",
            recorder->path, why);
}

static hone_status put_line(hone_error *err, hn_recorder *recorder) {
    hn_str *line = &recorder->line;
    if (line->failed) HN_NOMEM(err, "recording");
    errno = 0;
    if (gzwrite(recorder->file, line->data, (unsigned)line->length) != (int)line->length) {
        int code;
        gzerror(recorder->file, &code);
        return cannot_write(err, recorder, code);
    }
    line->length = 0;
    return HONE_OK;
}

hn_status hn_recorder_open(hone_error *err, const char *path, const char *source, int64_t t0_ns,
                           int64_t wall_ns, const hn_device_info *devices, int device_count,
                           hn_recorder **out_recorder) {
    size_t length = strlen(path);
    bool packed = length > 3 && strcmp(path + length - 3, ".gz") == 0;
    if (device_count > HN_RECORD_DEVICES_MAX)
        HN_FAIL(err, HONE_ERR_LIMIT, "a recording holds at most %d devices",
                HN_RECORD_DEVICES_MAX);
    hn_recorder *recorder = hn_calloc(1, sizeof *recorder);
    if (!recorder) HN_NOMEM(err, "recording");
    recorder->t0_ns = t0_ns;
    recorder->wall_ns = wall_ns;
    recorder->device_count = device_count;
    recorder->shown = hn_calloc((size_t)device_count, sizeof *recorder->shown);
    recorder->path = hn_strdup(path);
    recorder->energy_ns = hn_calloc((size_t)device_count, sizeof *recorder->energy_ns);
    errno = 0;
    if (recorder->shown && recorder->path && recorder->energy_ns) recorder->file = gzopen(path, packed ? "wb6e" : "wbTe");
    if (!recorder->file) {
        hone_status status =
            HN_SET(err, HONE_ERR_IO, "cannot create '%s': %s", path, strerror(errno ? errno : ENOMEM));
        (void)!hn_recorder_close(NULL, recorder);
        return status;
    }
    hn_str *line = &recorder->line;
    hn_str_printf(line, "#hone-record 1\n#start {\"wall_ns\":%" PRId64 ",\"source\":", wall_ns);
    hn_json_string(line, source, strlen(source));
    hn_str_append(line, "}\n");
    for (int d = 0; d < device_count; d++) {
        hn_str_printf(line, "#device %d ", d);
        hn_device_info_json(line, &devices[d], false);
        hn_str_append(line, "\n");
    }
    hone_status status = put_line(err, recorder);
    if (status != HONE_OK) {
        (void)!hn_recorder_close(NULL, recorder);
        return status;
    }
    *out_recorder = recorder;
    return HONE_OK;
}

hn_status hn_recorder_put(hone_error *err, hn_recorder *recorder, int device,
                          const hn_sample *sample) {
    HN_ASSERT(device >= 0 && device < recorder->device_count);
    uint64_t *shown = recorder->shown[device];
    hn_str *line = &recorder->line;
    char number[HN_METRIC_TEXT_BYTES];
    bool new_columns = false;
    for (int w = 0; w < HN_METRIC_WORDS; w++) {
        new_columns |= (sample->valid[w] & ~shown[w]) != 0;
        shown[w] |= sample->valid[w];
    }
    if (new_columns) {
        const char *comma = "";
        hn_str_printf(line, "#columns %d ", device);
        for (int m = 0; m < HN_METRIC_COUNT; m++) {
            if (!((shown[m / 64] >> (m % 64)) & 1)) continue;
            hn_str_printf(line, "%s%s", comma, hn_metric_rows[m].token);
            comma = ",";
        }
        hn_str_append(line, "\n");
    }
    hn_str_printf(line, "%d,%" PRId64, device, (sample->t_ns - recorder->t0_ns + 500) / 1000);
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (!((shown[m / 64] >> (m % 64)) & 1)) continue;
        hn_str_append(line, ",");
        bool held = m == HN_M_energy_mj && sample->energy_t_ns != 0 &&
                    sample->energy_t_ns == recorder->energy_ns[device];
        if (hn_sample_has(sample, (hn_metric)m) && !held)
            hn_str_append(line, hn_metric_text(sample->value[m], number));
    }
    hn_str_append(line, "\n");
    recorder->energy_ns[device] = sample->energy_t_ns;
    return put_line(err, recorder);
}

hn_status hn_recorder_event(hone_error *err, hn_recorder *recorder, const hn_event *event) {
    hn_str_printf(&recorder->line, "#event %" PRId64 " %s %d ",
                  (event->t_ns - recorder->t0_ns) / 1000, k_event_names[event->kind],
                  event->device);
    if (event->kind == HN_EVENT_PHASE)
        for (const char *c = event->text; *c; c++)
            hn_str_append_n(&recorder->line, (unsigned char)*c < 0x20 ? " " : c, 1);
    else
        hn_str_printf(&recorder->line, "%" PRId64, event->xid);
    hn_str_append(&recorder->line, "\n");
    return put_line(err, recorder);
}

hn_status hn_recorder_flush(hone_error *err, hn_recorder *recorder) {
    errno = 0;
    int code = gzflush(recorder->file, Z_SYNC_FLUSH);
    return code == Z_OK ? HONE_OK : cannot_write(err, recorder, code);
}

hn_status hn_recorder_close(hone_error *err, hn_recorder *recorder) {
    if (!recorder) return HONE_OK;
    hone_status status = HONE_OK;
    errno = 0;
    int code = recorder->file ? gzclose(recorder->file) : Z_OK;
    if (code != Z_OK) status = cannot_write(err, recorder, code);
    hn_str_free(&recorder->line);
    hn_free(recorder->shown);
    hn_free(recorder->energy_ns);
    hn_free(recorder->path);
    hn_free(recorder);
    return status;
}

// ---- reading ----------------------------------------------------------------------------------
struct hn_record {
    gzFile file;
    int64_t wall_ns, t_ns; // start; time of the last row
    int device_count, line_number;
    hn_device_info devices[HN_RECORD_DEVICES_MAX];
    columns columns[HN_RECORD_DEVICES_MAX];
    double energy_mj[HN_RECORD_DEVICES_MAX]; // last reading, held for ENERGY_HOLD_NS
    int64_t energy_ns[HN_RECORD_DEVICES_MAX];
    char source[256], path[256];
    char line[LINE_BYTES];
    bool pending; // line holds a row that is not consumed yet
};

#define BAD_LINE(err, record, what)                                                                \
    HN_FAIL(err, HONE_ERR_FORMAT, "%s: line %d: %s", (record)->path, (record)->line_number, what)

// false at the end. A last line without its end was cut off by a crash and does not count.
static hone_status read_line(hone_error *err, hn_record *record, bool *out_got) {
    *out_got = false;
    record->line_number++;
    if (!gzgets(record->file, record->line, LINE_BYTES)) return HONE_OK;
    size_t length = strlen(record->line);
    if (length == 0 || record->line[length - 1] != '\n') {
        if (length == LINE_BYTES - 1) BAD_LINE(err, record, "longer than 64 KiB");
        return HONE_OK;
    }
    while (length && (record->line[length - 1] == '\n' || record->line[length - 1] == '\r'))
        record->line[--length] = '\0';
    *out_got = true;
    return HONE_OK;
}

static hone_status parse_device(hone_error *err, hn_record *record, const char *text) {
    int64_t device;
    const char *json = hn_sys_number(text, &device);
    if (!json || device != record->device_count || device >= HN_RECORD_DEVICES_MAX)
        BAD_LINE(err, record, "device numbers must count up from 0 to at most 255");
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        BAD_LINE(err, record, "the facts of a device are no JSON object");
    }
    const char *kind = json_string_value(json_object_get(root, "kind"));
    hn_device_info *info = &record->devices[device];
    hn_device_info_init(info, kind && strcmp(kind, "mig") == 0    ? HN_DEVICE_MIG
                              : kind && strcmp(kind, "host") == 0 ? HN_DEVICE_HOST
                                                                  : HN_DEVICE_GPU);
    const json_t *parent = json_object_get(root, "parent");
    if (json_is_integer(parent) && json_integer_value(parent) >= 0 &&
        json_integer_value(parent) < device)
        info->parent = (int)json_integer_value(parent);
    for (size_t i = 0; i < hn_info_row_count; i++) {
        const json_t *value = json_object_get(root, hn_info_rows[i].name);
        if (hn_info_rows[i].is_num && json_is_number(value))
            *(double *)((char *)info + hn_info_rows[i].offset) = json_number_value(value);
        else if (!hn_info_rows[i].is_num && json_is_string(value))
            hn_info_set(info, &hn_info_rows[i],
                        (hn_slice){json_string_value(value), json_string_length(value)});
    }
    json_decref(root);
    record->device_count++;
    return HONE_OK;
}

static hone_status parse_columns(hone_error *err, hn_record *record, const char *text) {
    int64_t device;
    const char *at = hn_sys_number(text, &device);
    if (!at || device < 0 || device >= record->device_count)
        BAD_LINE(err, record, "columns of a device that was not declared");
    columns *cols = &record->columns[device];
    cols->count = 0;
    at += strspn(at, " ");
    while (*at) {
        size_t length = strcspn(at, ",");
        if (cols->count == (int)HN_COUNT_OF(cols->metric))
            BAD_LINE(err, record, "too many columns");
        hn_metric metric = hn_metric_by_token((hn_slice){at, length});
        if (metric != HN_METRIC_COUNT)
            record->devices[device].absent[metric] = HN_ABSENT_NOT;
        cols->metric[cols->count++] = (int16_t)metric;
        at += length + (at[length] == ',');
    }
    return HONE_OK;
}

static hone_status parse_sample(hone_error *err, hn_record *record, int *out_device,
                                hn_sample *out_sample) {
    int64_t device, t_us;
    const char *at = hn_sys_number(record->line, &device);
    if (!at || *at != ',' || device < 0 || device >= record->device_count ||
        !(at = hn_sys_number(at + 1, &t_us)) || t_us < 0 || t_us > HN_RECORD_NS_MAX / 1000)
        BAD_LINE(err, record, "not 'device,microseconds,values' of a declared device");
    const columns *cols = &record->columns[device];
    hn_sample s = {.t_ns = t_us * 1000};
    if (s.t_ns < record->t_ns) s.t_ns = record->t_ns; // threads write in turn; keep time in order
    record->t_ns = s.t_ns;
    s.wall_ns = record->wall_ns + s.t_ns;
    int i = 0;
    for (; *at == ',' && i < cols->count; i++) {
        at++;
        size_t length = strcspn(at, ",");
        double value;
        if (length) {
            if (!hn_parse_f64((hn_slice){at, length}, &value) || !isfinite(value))
                BAD_LINE(err, record, "a value is no number");
            if (cols->metric[i] != HN_METRIC_COUNT)
                hn_sample_put(&s, (hn_metric)cols->metric[i], value);
        }
        at += length;
    }
    if (*at || i != cols->count) BAD_LINE(err, record, "more or fewer values than columns");
    if (hn_sample_has(&s, HN_M_energy_mj)) {
        record->energy_mj[device] = s.value[HN_M_energy_mj];
        record->energy_ns[device] = s.t_ns + 1; // 0 = none yet
    } else if (record->energy_ns[device] && s.t_ns - record->energy_ns[device] < ENERGY_HOLD_NS) {
        hn_sample_put(&s, HN_M_energy_mj, record->energy_mj[device]);
        s.energy_t_ns = record->energy_ns[device] - 1;
    }
    *out_device = (int)device;
    *out_sample = s;
    return HONE_OK;
}

static hone_status parse_event(hone_error *err, hn_record *record, const char *text,
                               hn_event *out_event, bool *out_known) {
    int64_t t_us, device, xid = 0;
    const char *at = hn_sys_number(text, &t_us);
    *out_known = false;
    if (!at || *at != ' ' || t_us < 0 || t_us > HN_RECORD_NS_MAX / 1000)
        BAD_LINE(err, record, "an event without time");
    at++;
    size_t length = strcspn(at, " ");
    hn_event event = {.t_ns = t_us * 1000};
    for (int k = HN_EVENT_XID; k <= HN_EVENT_PHASE; k++)
        if (hn_slice_eq((hn_slice){at, length}, k_event_names[k])) event.kind = (hn_event_kind)k;
    if (!event.kind) return HONE_OK;
    at = hn_sys_number(at + length, &device);
    if (!at || device < -1 || device >= record->device_count)
        BAD_LINE(err, record, "an event of a device that was not declared");
    at += *at == ' ';
    if (event.kind == HN_EVENT_PHASE)
        snprintf(event.text, sizeof event.text, "%.*s", (int)sizeof event.text - 1, at);
    else if (!hn_sys_number(at, &xid))
        BAD_LINE(err, record, "an event without number");
    if (event.t_ns < record->t_ns) event.t_ns = record->t_ns;
    event.wall_ns = record->wall_ns + event.t_ns;
    event.device = (int)device;
    event.xid = xid;
    *out_event = event;
    *out_known = true;
    return HONE_OK;
}

// #start and #device, up to the first row or event.
static hone_status read_head(hone_error *err, hn_record *record) {
    bool got;
    HN_TRY(read_line(err, record, &got));
    if (!got || strcmp(record->line, "#hone-record 1") != 0)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: not a recording of hone record (version 1)",
                record->path);
    for (;;) {
        HN_TRY(read_line(err, record, &got));
        if (!got) break;
        if (strncmp(record->line, "#start ", 7) == 0) {
            json_t *root = json_loads(record->line + 7, 0, NULL);
            const char *source = json_string_value(json_object_get(root, "source"));
            record->wall_ns = json_integer_value(json_object_get(root, "wall_ns"));
            if (record->wall_ns < 0 || record->wall_ns > INT64_MAX / 2) record->wall_ns = 0;
            snprintf(record->source, sizeof record->source, "%s", source ? source : "");
            json_decref(root);
        } else if (strncmp(record->line, "#device ", 8) == 0) {
            HN_TRY(parse_device(err, record, record->line + 8));
        } else if (record->line[0] != '#' || strncmp(record->line, "#columns ", 9) == 0 ||
                   strncmp(record->line, "#event ", 7) == 0) {
            record->pending = true;
            break;
        }
    }
    if (record->device_count == 0)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: the recording names no device", record->path);
    return HONE_OK;
}

hn_status hn_record_open(hone_error *err, const char *path, hn_record **out_record) {
    hn_map map;
    HN_TRY(hn_map_open(err, path, &map)); // for its clear errors on folders and missing files
    hn_map_close(&map);
    hn_record *record = hn_calloc(1, sizeof *record);
    if (!record) HN_NOMEM(err, "recording");
    snprintf(record->path, sizeof record->path, "%s", path);
    record->file = gzopen(path, "rb");
    hone_status status = HONE_OK;
    if (!record->file)
        status = HN_SET(err, HONE_ERR_IO, "cannot read '%s'", path);
    else
        status = read_head(err, record);
    if (status != HONE_OK) {
        hn_record_close(record);
        return status;
    }
    *out_record = record;
    return HONE_OK;
}

void hn_record_close(hn_record *record) {
    if (!record) return;
    if (record->file) gzclose(record->file);
    hn_free(record);
}

int hn_record_device_count(const hn_record *record) { return record->device_count; }
const hn_device_info *hn_record_devices(const hn_record *record) { return record->devices; }
const char *hn_record_source(const hn_record *record) { return record->source; }

hn_status hn_record_next(hone_error *err, hn_record *record, hn_record_kind *out_kind,
                         int *out_device, hn_sample *out_sample, hn_event *out_event) {
    for (;;) {
        bool got = true, known;
        if (!record->pending) HN_TRY(read_line(err, record, &got));
        record->pending = false;
        if (!got) {
            *out_kind = HN_RECORD_END;
            return HONE_OK;
        }
        if (strncmp(record->line, "#columns ", 9) == 0) {
            HN_TRY(parse_columns(err, record, record->line + 9));
        } else if (strncmp(record->line, "#event ", 7) == 0) {
            HN_TRY(parse_event(err, record, record->line + 7, out_event, &known));
            if (!known) continue;
            *out_kind = HN_RECORD_EVENT;
            return HONE_OK;
        } else if (record->line[0] != '#' && record->line[0] != '\0') {
            HN_TRY(parse_sample(err, record, out_device, out_sample));
            *out_kind = HN_RECORD_SAMPLE;
            return HONE_OK;
        }
    }
}

hn_status hn_record_rewind(hone_error *err, hn_record *record) {
    if (gzrewind(record->file) != 0) HN_FAIL(err, HONE_ERR_IO, "cannot rewind '%s'", record->path);
    record->device_count = record->line_number = 0;
    memset(record->energy_ns, 0, sizeof record->energy_ns);
    record->pending = false;
    record->t_ns = 0;
    return read_head(err, record);
}
