// SPDX-License-Identifier: Apache-2.0
// Prometheus pages (text 0.0.4 and OpenMetrics) of dcgm-exporter old and new, of nvidia_smi
// exporters, and hone's own. One page is one row per device.
//
// Devices are told by UUID (MIG instances by GPU_I_ID within it), not by index. A value that is not
// a number makes its line absent, not the page; blank numbers of DCGM are absent.
#include <ctype.h>
#include <stdio.h>
#include "probe/text_int.h"

typedef struct label {
    hn_slice name, value; // value as written, escapes and all
} label;
#define LABELS_MAX 64
typedef struct line_parts {
    hn_slice name, value;
    label labels[LABELS_MAX];
    int label_count;
} line_parts;

typedef struct page {
    hn_text *text;
    int line;
    bool pcie_counter[2]; // tx, rx: this page's TYPE line says counter
} page;

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == ':' || c == '.';
}

static void skip_blanks(hn_slice *text) {
    while (text->length && (text->data[0] == ' ' || text->data[0] == '\t'))
        text->data++, text->length--;
}

static void advance(hn_slice *text, size_t bytes) {
    text->data += bytes;
    text->length -= bytes;
}

static bool parse_labels(hn_slice *rest, line_parts *out) {
    advance(rest, 1); // {
    for (;;) {
        skip_blanks(rest);
        if (rest->length == 0) return false;
        if (rest->data[0] == '}') {
            advance(rest, 1);
            return true;
        }
        size_t length = 0;
        while (length < rest->length && is_name_char(rest->data[length]))
            length++;
        hn_slice name = {rest->data, length};
        advance(rest, length);
        skip_blanks(rest);
        if (length == 0 || rest->length < 2 || rest->data[0] != '=') return false;
        advance(rest, 1);
        skip_blanks(rest);
        if (rest->length == 0 || rest->data[0] != '"') return false;
        advance(rest, 1);
        size_t end = 0;
        while (end < rest->length && rest->data[end] != '"')
            end += rest->data[end] == '\\' ? 2 : 1;
        if (end >= rest->length) return false;
        if (out->label_count < LABELS_MAX)
            out->labels[out->label_count++] = (label){name, {rest->data, end}};
        advance(rest, end + 1);
        skip_blanks(rest);
        if (rest->length && rest->data[0] == ',') advance(rest, 1);
    }
}

// name [labels] value [timestamp | # exemplar]
static bool parse_line(hn_slice line, line_parts *out) {
    *out = (line_parts){0};
    size_t length = 0;
    while (length < line.length && is_name_char(line.data[length]))
        length++;
    out->name = (hn_slice){line.data, length};
    if (length == 0 || isdigit((unsigned char)line.data[0]) || line.data[0] == '.') return false;
    advance(&line, length);
    skip_blanks(&line);
    if (line.length && line.data[0] == '{' && !parse_labels(&line, out)) return false;
    line = hn_slice_trim(line);
    if (line.length == 0) return false;
    // "ERROR - FAILED TO CONVERT TO STRING" has blanks: only what follows a number is a time stamp.
    size_t word = 0;
    while (word < line.length && line.data[word] != ' ' && line.data[word] != '\t')
        word++;
    double number;
    out->value = hn_parse_f64((hn_slice){line.data, word}, &number) ? (hn_slice){line.data, word} : line;
    return true;
}

static hn_slice find_label(const line_parts *parts, const char *name) {
    for (int i = 0; i < parts->label_count; i++)
        if (hn_slice_eq(parts->labels[i].name, name)) return parts->labels[i].value;
    return (hn_slice){"", 0};
}

static hn_slice first_label(const line_parts *parts, const char *const *names) {
    for (; *names; names++) {
        hn_slice value = find_label(parts, *names);
        if (value.length) return value;
    }
    return (hn_slice){"", 0};
}

static hn_slice without_prefix(hn_slice uuid) {
    if (hn_slice_starts(uuid, "GPU-")) advance(&uuid, 4);
    return uuid;
}

static int find_card(page *p, hn_slice uuid, double index) {
    uuid = without_prefix(uuid);
    for (size_t d = 0; d < p->text->devices.count; d++) {
        const hn_device_info *info = &p->text->devices.data[d];
        if (info->kind != HN_DEVICE_GPU) continue;
        hn_slice have = without_prefix((hn_slice){info->uuid, strlen(info->uuid)});
        if (uuid.length && have.length ? have.length == uuid.length && memcmp(have.data, uuid.data, uuid.length) == 0
                                       : isfinite(index) && info->gpu_index == index)
            return (int)d;
    }
    return -1;
}

static int find_instance(page *p, int card, double gi) {
    for (size_t d = 0; d < p->text->devices.count; d++) {
        const hn_device_info *info = &p->text->devices.data[d];
        if (info->kind == HN_DEVICE_MIG && info->parent == card && info->gi_id == gi) return (int)d;
    }
    return -1;
}

static void set_fact(char *field, hn_slice value) {
    if (*field || !value.length || hn_text_is_absent(value)) return;
    size_t length = value.length < HN_INFO_BYTES - 1 ? value.length : HN_INFO_BYTES - 1;
    memcpy(field, value.data, length);
    field[length] = '\0';
}

// -1: no device label; -2: out of room.
static int device_of(page *p, const line_parts *parts) {
    static const char *const k_uuid[] = {"UUID", "uuid", "gpu_uuid", NULL};
    static const char *const k_name[] = {"modelName", "model_name", "name", NULL};
    static const char *const k_host[] = {"Hostname", "hostname", NULL};
    hn_slice uuid = first_label(parts, k_uuid), gpu = find_label(parts, "gpu"), instance = find_label(parts, "GPU_I_ID");
    double index = NAN, gi;
    if (!hn_parse_f64(gpu, &index)) index = NAN;
    if (!uuid.length && !isfinite(index)) return -1;
    int card = find_card(p, uuid, index);
    if (card < 0) card = hn_text_add_device(p->text, HN_DEVICE_GPU, -1);
    if (card < 0) return -2;
    hn_device_info *info = &p->text->devices.data[card];
    if (isfinite(index)) info->gpu_index = index;
    set_fact(info->uuid, uuid);
    set_fact(info->name, first_label(parts, k_name));
    set_fact(info->hostname, first_label(parts, k_host));
    set_fact(info->pci_bus_id, find_label(parts, "pci_bus_id"));
    set_fact(info->driver, find_label(parts, "DCGM_FI_DRIVER_VERSION"));
    set_fact(info->driver, find_label(parts, "driver_version"));
    set_fact(info->cuda, find_label(parts, "cuda_version"));
    set_fact(info->serial, find_label(parts, "serial"));
    set_fact(info->vbios, find_label(parts, "vbios_version"));
    hn_slice device = find_label(parts, "device");
    double minor;
    if (hn_slice_starts(device, "nvidia") && hn_parse_f64((hn_slice){device.data + 6, device.length - 6}, &minor))
        info->minor = minor;
    if (!hn_parse_f64(instance, &gi)) return card;
    set_fact(info->mig_mode, (hn_slice){"Enabled", 7});
    int mig = find_instance(p, card, gi);
    if (mig < 0) mig = hn_text_add_device(p->text, HN_DEVICE_MIG, card);
    if (mig < 0) return -2;
    p->text->devices.data[mig].gi_id = gi;
    set_fact(p->text->devices.data[mig].mig_profile, find_label(parts, "GPU_I_PROFILE"));
    return mig;
}

static void take_process(page *p, const line_parts *parts, int device) {
    int64_t pid;
    if (!hn_parse_i64(find_label(parts, "pid"), &pid)) return;
    hn_text_process *item = NULL;
    for (size_t i = 0; i < p->text->processes.count; i++)
        if (p->text->processes.data[i].process.pid == pid && p->text->processes.data[i].device == device)
            item = &p->text->processes.data[i];
    if (!item) item = hn_text_add_process(p->text, device);
    if (!item) return;
    item->process.pid = pid;
    item->process.type = HN_PROCESS_COMPUTE;
    hn_slice name = find_label(parts, "process_name");
    if (name.length) {
        size_t length = name.length < sizeof item->process.name - 1 ? name.length : sizeof item->process.name - 1;
        memcpy(item->process.name, name.data, length);
        item->process.name[length] = '\0';
    }
    double bytes;
    if (hn_slice_eq(parts->name, "nvidia_smi_compute_app_used_memory_bytes") &&
        hn_parse_f64(parts->value, &bytes) && bytes >= 0 && bytes < 0x1p62)
        item->process.used_bytes = (int64_t)bytes;
}

// Metrics by dcgm-exporter's and hone's names, else by the key table.
static bool take_metric(page *p, const line_parts *parts, int device, hn_sample *sample) {
    hn_metric metric = hn_metric_by_legacy(parts->name);
    double scale = metric == HN_METRIC_COUNT ? 0 : hn_metric_rows[metric].legacy_scale;
    if (metric == HN_METRIC_COUNT) {
        metric = hn_metric_by_hone(parts->name);
        if (metric == HN_METRIC_COUNT)
            return hn_text_put(p->text, HN_TEXT_prom, parts->name, parts->value, (hn_slice){0}, device, sample);
        scale = hn_metric_rows[metric].hone_scale;
    }
    double value;
    if (!hn_parse_f64(parts->value, &value) || !isfinite(value) || hn_text_is_sentinel(value)) return true;
    // Old exporters call the PCIe rates counters, and then they are byte counts.
    for (int i = 0; i < 2; i++)
        if (metric == (i ? HN_M_pcie_rx_bytes_s : HN_M_pcie_tx_bytes_s) && p->pcie_counter[i])
            metric = i ? HN_M_pcie_rx_bytes : HN_M_pcie_tx_bytes;
    if (metric == HN_M_mem_temp_c && value <= 0) return true; // 0 = no such sensor
    hn_sample_put(sample, metric, value / scale);
    return true;
}

static void take_comment(page *p, hn_slice line) {
    static const char *const k_pcie[] = {"# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter",
                                         "# TYPE DCGM_FI_PROF_PCIE_RX_BYTES counter"};
    for (int i = 0; i < 2; i++)
        if (hn_slice_eq(line, k_pcie[i])) p->pcie_counter[i] = true;
}

hone_status hn_text_read_prom(hone_error *err, const char *name, hn_slice data, hn_text *text) {
    page p = {.text = text};
    hn_slice line;
    line_parts parts;
    while (hn_slice_line(&data, &line)) {
        p.line++;
        line = hn_slice_trim(line);
        if (line.length == 0) continue;
        if (line.data[0] == '#') {
            take_comment(&p, line);
            continue;
        }
        if (!parse_line(line, &parts)) {
            hn_text_skip(text, p.line);
            continue;
        }
        int device = device_of(&p, &parts);
        if (device == -2) HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many cards", name, p.line);
        if (device < 0) continue; // about the exporter itself
        take_process(&p, &parts, device);
        hn_text_row *row = hn_text_last_row(text, device);
        if (!row) HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many rows", name, p.line);
        double number;
        if (!hn_parse_f64(parts.value, &number)) hn_text_skip(text, p.line);
        take_metric(&p, &parts, device, &row->sample);
    }
    return HONE_OK;
}
