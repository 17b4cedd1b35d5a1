// SPDX-License-Identifier: Apache-2.0
// ncurses (wide characters) as a table of functions: see libs.h. No header of it is needed to build; the
// constants below are those of its version 6 interface.
#ifndef HN_LIBS_NCURSES_H
#define HN_LIBS_NCURSES_H
#include <stdio.h>
#include "libs/libs.h"

#define HN_NCURSES_REVERSE (1 << 18)
#define HN_NCURSES_DIM     (1 << 20)
#define HN_NCURSES_BOLD    (1 << 21)
#define HN_NCURSES_PAIR(n) ((n) << 8)

enum {
    HN_NCURSES_DOWN = 0402, HN_NCURSES_UP, HN_NCURSES_LEFT, HN_NCURSES_RIGHT, HN_NCURSES_HOME,
    HN_NCURSES_F0 = 0410,
    HN_NCURSES_NPAGE = 0522, HN_NCURSES_PPAGE, HN_NCURSES_ENTER = 0527, HN_NCURSES_END = 0550,
    HN_NCURSES_MOUSE = 0631, HN_NCURSES_RESIZE,
};

// Mouse buttons as bits: button n pressed.
#define HN_NCURSES_PRESSED(n) (2u << (5 * ((n) - 1)))
typedef struct hn_ncurses_mouse {
    short id;
    int x, y, z;
    unsigned buttons;
} hn_ncurses_mouse;

typedef struct hn_ncurses {
#define HN_SYMBOL(need, result, name, args) HN_LIB_FIELD(need, result, name, args)
#include "libs/ncurses.def"
#undef HN_SYMBOL
} hn_ncurses;

// Stays loaded for the life of the process.
hn_status hn_ncurses_get(hone_error *err, const hn_ncurses **out_api);
#endif
