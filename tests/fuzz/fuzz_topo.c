// SPDX-License-Identifier: Apache-2.0
// Topology inputs of every kind. What is accepted must be drawn, tabled, written as JSON, read back as
// the same model, and placed. Seeds: tests/place/topo.
#include <stdlib.h>
#include "place/place.h"

static char *dump(const hn_place_machine *machine) {
    json_t *root = hn_place_machine_json(machine);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hone_error err = {0};
    hn_place_machine machine = {0}, again = {0};
    hn_place_result result = {.choice_count = 0};
    if (size > 1 << 16) return 0;
    if (hn_place_machine_parse(&err, "fuzz", (hn_slice){(const char *)data, size}, &machine) != HONE_OK) {
        if (!err.text[0]) abort();
        return 0;
    }
    hn_str text = {0};
    hn_place_machine_table(&machine, &text);
    if (size % 8 == 0) hn_place_machine_html(&machine, &text); // ten times as dear as all the rest
    hn_str_free(&text);
    char *first = dump(&machine);
    machine.advice.count = 0;
    if (hn_place_machine_parse(&err, "own JSON", (hn_slice){first, strlen(first)}, &again) != HONE_OK) abort();
    again.advice.count = 0;
    char *one = dump(&machine), *two = dump(&again);
    if (strcmp(one, two) != 0) abort();
    free(first), free(one), free(two);
    hn_place_request request = {.cards = 1 + (int)(size % 8), .choices = 3, .budget = 300,
                                .nics = machine.nics.count ? 1 : 0, .cpus = 4};
    if (hn_place_search(&err, &machine, &request, &result) == HONE_OK) {
        hn_place_result_text(&machine, &request, &result, true, &text);
        hn_str_free(&text);
        hn_place_result_free(&result);
    }
    hn_place_machine_free(&machine);
    hn_place_machine_free(&again);
    return 0;
}
