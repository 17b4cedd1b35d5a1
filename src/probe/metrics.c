// SPDX-License-Identifier: Apache-2.0
// Readers of metrics.def and info.def that every provider shares: rows, look-ups, texts, JSON.
#include <ctype.h>
#include <stdio.h>
#include "probe/probe.h"

const hn_metric_row hn_metric_rows[HN_METRIC_COUNT] = {
#define HN_METRIC(token, unit, kind, scope, field, fscale, gpm, gscale, dcgm, legacy, lscale, hone, \
                  hscale, period, help)                                                            \
    {#token, unit, HN_KIND_##kind, HN_SCOPE_##scope, field, fscale, gpm, gscale, dcgm, legacy,     \
     lscale, hone, hscale, period, help},
#include "probe/metrics.def"
#undef HN_METRIC
};

const hn_info_row hn_info_rows[] = {
#define IS_NUM_str false
#define IS_NUM_num true
#define HN_INFO(name, type, help) {#name, help, IS_NUM_##type, offsetof(hn_device_info, name)},
#include "probe/info.def"
#undef HN_INFO
};
const size_t hn_info_row_count = HN_COUNT_OF(hn_info_rows);

hn_metric hn_metric_by_token(hn_slice token) {
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        if (hn_slice_eq(token, hn_metric_rows[m].token)) return (hn_metric)m;
    return HN_METRIC_COUNT;
}

hn_metric hn_metric_by_legacy(hn_slice name) {
    for (int m = 0; name.length && m < HN_METRIC_COUNT; m++)
        if (hn_slice_eq(name, hn_metric_rows[m].legacy)) return (hn_metric)m;
    return HN_METRIC_COUNT;
}

hn_metric hn_metric_by_hone(hn_slice name) {
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        if (hn_slice_eq(name, hn_metric_rows[m].hone)) return (hn_metric)m;
    return HN_METRIC_COUNT;
}

hn_metric hn_metric_by_dcgm(int field) {
    for (int m = 0; field && m < HN_METRIC_COUNT; m++)
        if (hn_metric_rows[m].dcgm == field) return (hn_metric)m;
    return HN_METRIC_COUNT;
}

const char *hn_metric_text(double value, char out[HN_METRIC_TEXT_BYTES]) {
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(out, HN_METRIC_TEXT_BYTES, "%.0f", value == 0 ? 0.0 : value);
        return out;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, HN_METRIC_TEXT_BYTES, "%.*g", digits, value);
        double again;
        if (hn_parse_f64((hn_slice){out, strlen(out)}, &again) && again == value) break;
    }
    return out;
}

const char *hn_reasons_text(uint64_t reasons, char *out, size_t bytes) {
    static const struct {
        unsigned bit;
        const char *text;
    } k_texts[] = {
        {HN_REASON_POWER_BRAKE, "power brake from outside the card"},
        {HN_REASON_HW_THERMAL, "hardware temperature limit"},
        {HN_REASON_HW_SLOWDOWN, "hardware slowdown"},
        {HN_REASON_SW_THERMAL, "driver temperature limit"},
        {HN_REASON_POWER_CAP, "power limit"},
        {HN_REASON_SYNC_BOOST, "sync boost with slower cards"},
        {HN_REASON_APP_CLOCKS, "clock setting"},
        {HN_REASON_DISPLAY, "display clock"},
        {HN_REASON_IDLE, "idle"},
    };
    if (bytes) out[0] = '\0';
    // The brake and the hardware temperature limit also raise the general slowdown bit.
    if (reasons & (HN_REASON_POWER_BRAKE | HN_REASON_HW_THERMAL))
        reasons &= ~(uint64_t)HN_REASON_HW_SLOWDOWN;
    size_t at = 0;
    for (size_t i = 0; i < HN_COUNT_OF(k_texts) && at < bytes; i++)
        if (reasons & k_texts[i].bit)
            at += (size_t)snprintf(out + at, bytes - at, "%s%s", at ? ", " : "", k_texts[i].text);
    return out;
}

const char *hn_absent_text(hn_absent why) {
    static const char *const k_texts[] = {"", "not supported", "no permission", "library missing",
                                          "not defined under MIG", "driver error"};
    return (size_t)why < HN_COUNT_OF(k_texts) ? k_texts[why] : "";
}

void hn_device_info_init(hn_device_info *info, hn_device_kind kind) {
    *info = (hn_device_info){.kind = kind, .parent = -1};
    for (size_t i = 0; i < hn_info_row_count; i++)
        if (hn_info_rows[i].is_num)
            *(double *)((char *)info + hn_info_rows[i].offset) = NAN;
    memset(info->absent, HN_ABSENT_UNSUPPORTED, sizeof info->absent);
}

const char *hn_device_label(const hn_device_info *info, char *out, size_t bytes) {
    if (info->kind == HN_DEVICE_HOST)
        snprintf(out, bytes, "host");
    else if (info->kind == HN_DEVICE_MIG && isfinite(info->ci_id))
        snprintf(out, bytes, "gpu %.0f mig %.0f/%.0f", info->gpu_index, info->gi_id, info->ci_id);
    else if (info->kind == HN_DEVICE_MIG)
        snprintf(out, bytes, "gpu %.0f mig %.0f", info->gpu_index, info->gi_id);
    else
        snprintf(out, bytes, "gpu %.0f", info->gpu_index);
    return out;
}

const hn_info_row *hn_info_by_name(hn_slice name) {
    for (size_t i = 0; i < hn_info_row_count; i++)
        if (hn_slice_eq(name, hn_info_rows[i].name)) return &hn_info_rows[i];
    return NULL;
}

void hn_info_set(hn_device_info *info, const hn_info_row *row, hn_slice text) {
    void *field = (char *)info + row->offset;
    double value;
    if (row->is_num) {
        if (hn_parse_f64(text, &value) && isfinite(value)) *(double *)field = value;
        return;
    }
    size_t length = text.length < HN_INFO_BYTES - 1 ? text.length : HN_INFO_BYTES - 1;
    memcpy(field, text.data, length);
    ((char *)field)[length] = '\0';
}

void hn_json_string(hn_str *out, const char *text, size_t length) {
    hn_str_append(out, "\"");
    for (size_t i = 0; i < length;) {
        unsigned char c = (unsigned char)text[i];
        size_t bytes = hn_utf8_length(text + i, length - i);
        if (bytes == 0)
            hn_str_append(out, "\xef\xbf\xbd"), i++;
        else if (c == '"' || c == '\\')
            hn_str_printf(out, "\\%c", c), i++;
        else if (c < 0x20 || c == 0x7f)
            hn_str_printf(out, "\\u%04x", c), i++;
        else
            hn_str_append_n(out, text + i, bytes), i += bytes;
    }
    hn_str_append(out, "\"");
}

void hn_device_info_json(hn_str *out, const hn_device_info *info, bool with_absent) {
    static const char *const k_kinds[] = {"gpu", "mig", "host"};
    char number[HN_METRIC_TEXT_BYTES];
    hn_str_printf(out, "{\"kind\":\"%s\"", k_kinds[info->kind]);
    if (info->parent >= 0) hn_str_printf(out, ",\"parent\":%d", info->parent);
    if (info->lost) hn_str_append(out, ",\"lost\":true");
    for (size_t i = 0; i < hn_info_row_count; i++) {
        const hn_info_row *row = &hn_info_rows[i];
        const void *field = (const char *)info + row->offset;
        if (row->is_num ? !isfinite(*(const double *)field) : *(const char *)field == '\0') continue;
        hn_str_printf(out, ",\"%s\":", row->name);
        if (row->is_num)
            hn_str_append(out, hn_metric_text(*(const double *)field, number));
        else
            hn_json_string(out, field, strlen(field));
    }
    if (with_absent) {
        hn_metric_scope scope =
            info->kind == HN_DEVICE_HOST ? HN_SCOPE_host : HN_SCOPE_gpu;
        const char *comma = "";
        hn_str_append(out, ",\"absent\":{");
        for (int m = 0; m < HN_METRIC_COUNT; m++) {
            if (!info->absent[m] || hn_metric_rows[m].scope != scope) continue;
            hn_str_printf(out, "%s\"%s\":\"%s\"", comma, hn_metric_rows[m].token,
                          hn_absent_text((hn_absent)info->absent[m]));
            comma = ",";
        }
        hn_str_append(out, "}");
    }
    hn_str_append(out, "}");
}

void hn_sample_json(hn_str *out, const hn_sample *sample) {
    char number[HN_METRIC_TEXT_BYTES];
    const char *comma = "";
    hn_str_append(out, "{");
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (!hn_sample_has(sample, (hn_metric)m)) continue;
        hn_str_printf(out, "%s\"%s\":%s", comma, hn_metric_rows[m].token,
                      hn_metric_text(sample->value[m], number));
        comma = ",";
    }
    hn_str_append(out, "}");
}
