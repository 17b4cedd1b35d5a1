// SPDX-License-Identifier: Apache-2.0
// Loads ncurses: see ncurses.h.
#include "libs/ncurses.h"
#include "base/check.h"

#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_ncurses, need, name),
static const hn_lib_symbol k_symbols[] = {
#include "libs/ncurses.def"
};
#undef HN_SYMBOL

static const char *const k_names[] = {"libncursesw.so.6", NULL};
static const hn_lib_spec k_spec = {
    .title = "ncurses",
    .env_override = "HONE_NCURSES",
    .names = k_names,
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "install the package libncursesw6, or use --once",
};

hn_status hn_ncurses_get(hone_error *err, const hn_ncurses **out_api) {
    static hn_ncurses table; // for one thread: the one that has the terminal
    static hn_lib lib;
    if (!lib.handle) HN_TRY(hn_lib_open(err, &k_spec, &table, &lib));
    *out_api = &table;
    return HONE_OK;
}
