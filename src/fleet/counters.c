// SPDX-License-Identifier: Apache-2.0
// What the exporter shows: see counters.h.
#include "fleet/counters.h"
#include <ctype.h>
#include <stdio.h>

#define FILE_BYTES_MAX (1 << 20)

// Fields of DCGM that are facts, shown as labels of every series.
static const struct {
    const char *field, *info;
} k_labels[] = {
    {"DCGM_FI_DRIVER_VERSION", "driver"},     {"DCGM_FI_CUDA_DRIVER_VERSION", "cuda"},
    {"DCGM_FI_DEV_SERIAL", "serial"},         {"DCGM_FI_DEV_VBIOS_VERSION", "vbios"},
    {"DCGM_FI_DEV_NAME", "name"},             {"DCGM_FI_DEV_UUID", "uuid"},
    {"DCGM_FI_DEV_PCI_BUSID", "pci_bus_id"},  {"DCGM_FI_DEV_MINOR_NUMBER", "minor"},
    {"DCGM_FI_DEV_COMPUTE_MODE", "compute_mode"}, {"DCGM_FI_DEV_MIG_MODE", "mig_mode"},
};

static void add(hn_counters *c, hn_metric metric, bool legacy, hn_metric_kind kind, hn_slice help) {
    for (int i = 0; i < c->count; i++)
        if (c->items[i].metric == metric && c->items[i].legacy == legacy) return; // named twice: shown once
    hn_counter *item = &c->items[c->count++];
    item->metric = metric;
    item->legacy = legacy;
    item->kind = kind;
    snprintf(item->help, sizeof item->help, "%.*s", (int)help.length, help.data);
}

static bool add_label(hn_counters *c, hn_slice field) {
    for (size_t i = 0; i < HN_COUNT_OF(k_labels); i++) {
        if (!hn_slice_eq(field, k_labels[i].field)) continue;
        for (int k = 0; k < c->label_count; k++)
            if (c->labels[k].name == k_labels[i].field) return true;
        if (c->label_count < HN_COUNTERS_LABELS_MAX)
            c->labels[c->label_count++] = (hn_counter_label){
                k_labels[i].field, hn_info_by_name((hn_slice){k_labels[i].info, strlen(k_labels[i].info)})};
        return true;
    }
    return false;
}

static void add_all(hn_counters *c, bool legacy) {
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        const hn_metric_row *row = &hn_metric_rows[m];
        if (!legacy || row->legacy[0])
            add(c, (hn_metric)m, legacy, row->kind, (hn_slice){row->help, strlen(row->help)});
    }
}

void hn_counters_default(hn_counters *out_counters) {
    static const char k_driver[] = "DCGM_FI_DRIVER_VERSION";
    *out_counters = (hn_counters){0};
    add_label(out_counters, (hn_slice){k_driver, sizeof k_driver - 1});
    add_all(out_counters, true);
    add_all(out_counters, false);
}

static bool is_dcgm_name(hn_slice name) {
    if (!hn_slice_starts(name, "DCGM_FI_") && !hn_slice_starts(name, "DCGM_EXP_")) return false;
    for (size_t i = 0; i < name.length; i++)
        if (!isupper((unsigned char)name.data[i]) && !isdigit((unsigned char)name.data[i]) && name.data[i] != '_')
            return false;
    return true;
}

// Up to the next comma, without blanks and quotes.
static bool take_column(hn_slice *rest, hn_slice *out) {
    const char *comma = memchr(rest->data, ',', rest->length);
    if (!comma) return false;
    *out = hn_slice_trim((hn_slice){rest->data, (size_t)(comma - rest->data)});
    rest->length -= (size_t)(comma + 1 - rest->data);
    rest->data = comma + 1;
    return true;
}

static hn_slice without_quotes(hn_slice text) {
    text = hn_slice_trim(text);
    if (text.length >= 2 && text.data[0] == '"' && text.data[text.length - 1] == '"')
        text = (hn_slice){text.data + 1, text.length - 2};
    return text;
}

static hone_status take_line(hone_error *err, const char *file, int number, hn_slice line, hn_counters *c) {
    hn_slice name, type, help = line;
    if (!take_column(&help, &name) || !take_column(&help, &type) || !hn_slice_trim(help).length)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: line %d: not 'NAME, gauge|counter|label, help'", file, number);
    help = without_quotes(help);
    bool is_label = hn_slice_eq(type, "label"), is_counter = hn_slice_eq(type, "counter");
    if (!is_label && !is_counter && !hn_slice_eq(type, "gauge"))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: line %d: the type of %.*s is '%.*s', not gauge, counter or label", file,
                number, (int)name.length, name.data, (int)type.length, type.data);
    hn_metric legacy = hn_metric_by_legacy(name), own = hn_metric_by_hone(name);
    if (is_label ? add_label(c, name) : legacy != HN_METRIC_COUNT || own != HN_METRIC_COUNT) {
        if (!is_label)
            add(c, legacy != HN_METRIC_COUNT ? legacy : own, legacy != HN_METRIC_COUNT,
                is_counter ? HN_KIND_counter : HN_KIND_gauge, help);
        return HONE_OK;
    }
    if (!is_dcgm_name(name))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: line %d: '%.*s' is no %s of DCGM or hone", file, number, (int)name.length,
                name.data, is_label ? "label" : "metric");
    if (c->unknown++ == 0) snprintf(c->unknown_name, sizeof c->unknown_name, "%.*s", (int)name.length, name.data);
    return HONE_OK;
}

hn_status hn_counters_parse(hone_error *err, const char *name, hn_slice text, hn_counters *out_counters) {
    hn_counters c = {0};
    hn_slice line;
    bool any_hone = false;
    for (int number = 1; hn_slice_line(&text, &line); number++) {
        line = hn_slice_trim(line);
        if (line.length == 0 || line.data[0] == '#') continue;
        if (memchr(line.data, '\0', line.length))
            HN_FAIL(err, HONE_ERR_FORMAT, "%s: line %d: not a text file", name, number);
        HN_TRY(take_line(err, name, number, line, &c));
    }
    for (int i = 0; i < c.count; i++) any_hone |= !c.items[i].legacy;
    if (!any_hone) add_all(&c, false);
    *out_counters = c;
    return HONE_OK;
}

hn_status hn_counters_read(hone_error *err, const char *path, hn_counters *out_counters) {
    char *data;
    size_t bytes;
    HN_TRY(hn_file_read_text(err, path, FILE_BYTES_MAX, &data, &bytes));
    hone_status status = hn_counters_parse(err, path, (hn_slice){data, bytes}, out_counters);
    hn_free(data);
    return status;
}
