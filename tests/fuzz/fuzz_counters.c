// SPDX-License-Identifier: Apache-2.0
// What the exporter reads from others: counters files, control groups, Accept headers, and labels from anywhere.
#include "base/base.h"
#include "fleet/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static hn_counters counters;
    hone_error err = {0};
    hn_job_of_pid job = {0};
    hn_str label = {0};
    if (size == 0) return 0;
    hn_slice text = {(const char *)data + 1, size - 1};
    char *copy = hn_strndup(text.data, text.length);
    if (!copy) return 0;
    switch (data[0] & 3) {
    case 0:
        if (hn_counters_parse(&err, "c", text, &counters) != HONE_OK && err.text[0] == '\0') __builtin_trap();
        break;
    case 1: hn_job_of_cgroup(text, &job); break;
    case 2: (void)hn_page_negotiate(copy); break;
    default:
        hn_page_label(&label, copy);
        for (size_t i = 0; i < label.length; i++) // nothing that ends a label or a line
            if (label.data[i] == '\n' || (label.data[i] == '"' && (i == 0 || label.data[i - 1] != '\\'))) __builtin_trap();
        for (size_t i = 0; i < label.length;) {
            size_t bytes = hn_utf8_length(label.data + i, label.length - i);
            if (bytes == 0) __builtin_trap();
            i += bytes;
        }
    }
    hn_str_free(&label);
    hn_free(copy);
    return 0;
}
