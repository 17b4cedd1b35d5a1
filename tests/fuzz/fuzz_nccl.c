// SPDX-License-Identifier: Apache-2.0
// Any bytes as NCCL logs: one input, then the same cut in two files. Both must give a report or a
// refusal, and the report must be writable as valid JSON and as text.
#include <jansson.h>
#include <stdlib.h>
#include "place/nccl.h"

static void check(const hn_nccl_input *inputs, size_t count) {
    hone_error err = {0};
    hn_nccl_report report;
    if (hn_nccl_read(&err, inputs, count, &report) != HONE_OK) return;
    hn_str json = {0}, text = {0};
    if (hn_nccl_report_json(&err, &report, &json) != HONE_OK) abort();
    json_t *root = json_loads(hn_str_get(&json), 0, NULL);
    if (!root) abort();
    json_decref(root);
    hn_nccl_report_text(&report, &text);
    for (size_t i = 0; i < report.cause_count; i++)
        if (!report.causes[i].why || report.causes[i].evidence.line > report.lines) abort();
    hn_str_free(&json);
    hn_str_free(&text);
    hn_nccl_report_free(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    hn_nccl_input inputs[2] = {{"a", {text, size}}, {"b", {text + size / 2, size - size / 2}}};
    check(inputs, 1);
    inputs[0].text.length = size / 2;
    check(inputs, 2);
    return 0;
}
