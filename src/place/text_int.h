// SPDX-License-Identifier: Apache-2.0
// Parts of the nvidia-smi text reader, shared by text.c (assembling the model), text_lines.c
// (cleaning) and text_rows.c (header and rows).
#ifndef HN_PLACE_TEXT_INT_H
#define HN_PLACE_TEXT_INT_H
#include "place/machine.h"

#define TEXT_TAIL_MAX   8  // values after the cells of a row; more is junk
#define TEXT_TITLES_MAX 6

// A token and where it starts, counted in characters of its cleaned line.
typedef struct text_token {
    hn_slice text;
    int column;
} text_token;

typedef enum text_title { TITLE_CPUS, TITLE_NUMA, TITLE_GPU_NUMA, TITLE_OTHER } text_title;

typedef struct text_header {
    const char *devices[HN_PLACE_DEVICES_MAX]; // in the arena
    int device_columns[HN_PLACE_DEVICES_MAX];
    int device_count;
    text_title titles[TEXT_TITLES_MAX];
    int title_columns[TEXT_TITLES_MAX];
    int title_count;
    int glued;     // tokens that had to be cut into several names
    bool cut_off;  // the last word is only the beginning of one
    int length;    // of the header's text without trailing blanks
} text_header;

typedef struct text_row {
    const char *label; // in the arena
    hn_place_link cells[HN_PLACE_DEVICES_MAX];
    int cell_count;
    int cell_columns[HN_PLACE_DEVICES_MAX]; // start, -1 for all but the first of a glued token
    text_token tail[TEXT_TAIL_MAX];         // values after the cells
    int tail_count;
    hn_slice fields[TEXT_TAIL_MAX]; // the same region cut at tabs, where the row has tabs
    int field_count;
    bool tabs;
    int glued;             // tokens that had to be cut into several cells
    const char *glue_text; // the first of them
    const char *junk;      // the first token that is no cell and no value, NULL if none
    const char *odd_code;  // the first word in the place of a code that nobody explains
    int odd_codes;
    bool wrapped_badly;    // pieces of a wrapped row could be joined in two ways
    bool last_is_cell;     // the row's text ends with a cell
    bool ends_text;        // nothing but blank lines follows: the text may have been cut off here
    int length;            // of the row's text without trailing blanks
    int line;              // number in the source
} text_row;

typedef struct text_reader {
    hn_place_machine *machine;
    HN_VEC(hn_slice) lines; // cleaned, in the arena
    hn_place_texts legend;  // codes that the text's own legend explains and links.def lacks
    text_header header;
    HN_VEC(text_row *) rows; // in the arena
} text_reader;

// text_lines.c: copies the text without byte order mark, escapes, CR and typographic blanks.
hn_status hn_place_text_clean(hone_error *err, hn_slice text, text_reader *reader);
bool hn_place_text_token(hn_slice line, size_t *at, text_token *out_token);

// text_rows.c
// Length of the device name that `text` begins with, 0 if none. `loose` also takes adapter names of
// unknown families (a lower-case word with a digit), which only whole tokens may be.
size_t hn_place_text_device(hn_slice text, bool loose);
bool hn_place_text_header(text_reader *reader, hn_slice line, text_header *out_header);
// Finds and reads the row that starts in `line`, NULL if none does; *io_next is the line after it and
// moves over the pieces of a wrapped row. `expected` is the number of cells by the header, 0 unknown.
hn_status hn_place_text_row(hone_error *err, text_reader *reader, size_t line, int expected,
                            size_t *io_next, text_row **out_row);
// True if a row could start here (device name, then a link code).
bool hn_place_text_is_row(text_reader *reader, hn_slice line);
// Joins the pieces of a wrapped header; *io_next moves over them.
hn_status hn_place_text_join_header(hone_error *err, text_reader *reader, hn_slice first,
                                    size_t *io_next, text_header *out_header);
#endif
