// SPDX-License-Identifier: Apache-2.0
// One door for all topology inputs: looks at the first characters and calls the reader.
#include "place/machine.h"

#define INPUT_BYTES_MAX (64u << 20)

// The text without byte order mark and leading blanks, for telling the formats apart.
static hn_slice start_of(hn_slice text) {
    if (text.length >= 3 && memcmp(text.data, "\xEF\xBB\xBF", 3) == 0) text.data += 3, text.length -= 3;
    while (text.length && strchr(" \t\r\n", *text.data)) text.data++, text.length--;
    return text;
}

static bool holds(hn_slice text, const char *what) {
    if (text.length > 65536) text.length = 65536;
    return memmem(text.data, text.length, what, strlen(what)) != NULL;
}

static hn_status read_any(hone_error *err, hn_slice text, hn_place_machine *machine) {
    hn_slice start = start_of(text);
    if (hn_slice_starts(start, "{")) return hn_place_read_json(err, start, machine);
    if (hn_slice_starts(start, "<")) {
        if (holds(start, "<system")) return hn_place_read_nccl_xml(err, start, machine);
        if (holds(start, "<topology")) return hn_place_read_hwloc_xml(err, start, machine);
    }
    return hn_place_read_text(err, text, machine);
}

hn_status hn_place_machine_parse(hone_error *err, const char *what, hn_slice text,
                                 hn_place_machine *out_machine) {
    hn_place_machine machine = {0};
    hone_status status = read_any(err, text, &machine);
    if (status == HONE_OK) status = hn_place_machine_derive(err, &machine);
    if (status != HONE_OK) {
        hn_error_frame(err, "reading the topology from %s", what);
        hn_place_machine_free(&machine);
        return status;
    }
    hn_place_machine_add_advice(&machine);
    *out_machine = machine;
    return HONE_OK;
}

hn_status hn_place_machine_read(hone_error *err, const char *path, hn_place_machine *out_machine) {
    char *data;
    size_t bytes;
    HN_TRY(hn_file_read_text(err, path, INPUT_BYTES_MAX, &data, &bytes));
    hone_status status = hn_place_machine_parse(err, strcmp(path, "-") == 0 ? "standard input" : path,
                                                (hn_slice){data, bytes}, out_machine);
    hn_free(data);
    return status;
}
