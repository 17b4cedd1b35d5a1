// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever parses must verify, print, parse again and print the same.
#include <stdlib.h>
#include "ir/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Numbers of many digits make large constants, which only cost time here.
static bool large_number(const char *text) {
    int digits = 0;
    for (; *text; text++) {
        digits = *text >= '0' && *text <= '9' ? digits + 1 : 0;
        if (digits > 5) return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = hn_strndup((const char *)data, size);
    hone_error err = {0};
    hn_module *module, *again;
    if (!large_number(text) && hn_module_parse(&err, text, &module) == HONE_OK) {
        hn_str first = {0}, second = {0};
        if (hn_module_verify(&err, module) != HONE_OK) abort();
        hn_module_print(&first, module);
        if (!large_number(hn_str_get(&first))) {
            if (hn_module_parse(&err, hn_str_get(&first), &again) != HONE_OK) abort();
            hn_module_print(&second, again);
            if (strcmp(hn_str_get(&first), hn_str_get(&second)) != 0) abort();
            hn_module_free(again);
        }
        hn_str_free(&first);
        hn_str_free(&second);
        hn_module_free(module);
    }
    hn_free(text);
    return 0;
}
