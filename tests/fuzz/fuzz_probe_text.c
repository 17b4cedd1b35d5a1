// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: texts of nvidia-smi and exporters. Whatever reads must hold what the readers
// promise: devices in order, finite values, no blank number of DCGM.
#include <stdlib.h>
#include "probe/text_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hone_error err = {0};
    hn_text text;
    if (hn_text_parse(&err, "fuzz", (const char *)data, size, &text) != HONE_OK) {
        if (!err.text[0]) abort(); // an error without a sentence
        return 0;
    }
    if (text.devices.count == 0 || text.devices.count > HN_TEXT_DEVICES_MAX) abort();
    for (size_t d = 0; d < text.devices.count; d++)
        if (text.devices.data[d].parent >= (int)d) abort();
    hn_str json = {0};
    for (size_t r = 0; r < text.rows.count; r++) {
        const hn_text_row *row = &text.rows.data[r];
        if (row->device < 0 || row->device >= (int)text.devices.count) abort();
        for (int m = 0; m < HN_METRIC_COUNT; m++)
            if (hn_sample_has(&row->sample, (hn_metric)m) && !isfinite(row->sample.value[m])) abort();
        if (r < 4) hn_sample_json(&json, &row->sample);
    }
    for (size_t d = 0; d < text.devices.count && d < 4; d++)
        hn_device_info_json(&json, &text.devices.data[d], true);
    for (size_t p = 0; p < text.processes.count; p++)
        if (text.processes.data[p].device < 0 || text.processes.data[p].device >= (int)text.devices.count) abort();
    hn_str_free(&json);
    hn_text_free(&text);
    return 0;
}
