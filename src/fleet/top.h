// SPDX-License-Identifier: Apache-2.0
// hone top in three parts: a model (what is known of devices and processes, what the user chose), a pure
// function from the model to a grid of cells, and a thin layer that shows the grid with ncurses (top_term.c) or
// as text (top_text.c). The first two know no terminal.
#ifndef HN_FLEET_TOP_H
#define HN_FLEET_TOP_H
#include <jansson.h>
#include <stdio.h>
#include "fleet/sampler.h"

#define HN_TOP_HISTORY   256 // points of a sparkline
#define HN_TOP_PROCESSES 512

// ---- the grid ---------------------------------------------------------------------------------
typedef enum hn_top_style {
    HN_TOP_PLAIN, HN_TOP_DIM, HN_TOP_BOLD, HN_TOP_GOOD, HN_TOP_WARN, HN_TOP_BAD, HN_TOP_BLUE, HN_TOP_HEAD, HN_TOP_CHOSEN,
    HN_TOP_KEY,
    HN_TOP_STYLES
} hn_top_style;

// What a click on a cell means: 0 nothing, else one of these plus a number.
enum { HN_TOP_HIT_SORT = 0x100, HN_TOP_HIT_ROW = 0x1000, HN_TOP_HIT_KEY = 0x4000, HN_TOP_HIT_CARD = 0x8000 };

typedef struct hn_top_cell {
    char text[5]; // one character, UTF-8
    uint8_t style;
    uint16_t hit;
} hn_top_cell;
typedef struct hn_top_grid {
    int width, height;
    hn_top_cell *cells; // owned, height rows of width
} hn_top_grid;
void hn_top_grid_free(hn_top_grid *grid);

// ---- the model --------------------------------------------------------------------------------
typedef struct hn_top_process {
    int device; // of the model
    hn_sampler_process at;
    char user[32];
    double joules; // of its card since the start, where it is alone on it; NAN
    bool shared;   // the card has other processes too
} hn_top_process;

typedef struct hn_top_device {
    hn_device_info info;
    hn_sampler_status status;
    bool have; // a sample
    hn_sample sample;
    hn_energy energy; // since top began
    float history[3][HN_TOP_HISTORY]; // power / limit, SM, memory; NAN unknown
    int history_count;                // newest last
    int processes; // -1: the source has none
} hn_top_device;

typedef enum hn_top_sort {
    HN_TOP_SORT_MEMORY, HN_TOP_SORT_SM, HN_TOP_SORT_PID, HN_TOP_SORT_USER, HN_TOP_SORT_CARD, HN_TOP_SORT_NAME,
    HN_TOP_SORTS
} hn_top_sort;
typedef enum hn_top_curve { HN_TOP_CURVE_POWER, HN_TOP_CURVE_SM, HN_TOP_CURVE_MEMORY, HN_TOP_CURVES } hn_top_curve;

typedef struct hn_top_model {
    char source[128], clock[32]; // clock: what time it is, as shown
    hn_top_device *devices; // owned
    int device_count;
    hn_top_process processes[HN_TOP_PROCESSES];
    int process_count;
    // the user's choices
    double interval_s;
    hn_top_sort sort;
    bool reverse, paused, help, compact, may_signal, confirm;
    hn_top_curve curve;
    int64_t chosen_pid; // 0: none
    int chosen_device;
    int first_card, first_process; // scrolled
    char message[160];
} hn_top_model;

hn_status hn_top_model_make(hone_error *err, hn_sampler *sampler, const char *source, hn_top_model *out_model);
void hn_top_model_update(hn_top_model *model, hn_sampler *sampler);
void hn_top_model_free(hn_top_model *model);
void hn_top_sort_processes(hn_top_model *model);

// ---- drawing ----------------------------------------------------------------------------------
typedef struct hn_top_look {
    int width, height; // height 0: as much as there is to show, without the line of keys
    bool utf8;
} hn_top_look;
// Pure: the same model and look give the same cells. False: out of memory.
bool hn_top_draw(const hn_top_model *model, const hn_top_look *look, hn_top_grid *out_grid);

// ---- keys -------------------------------------------------------------------------------------
typedef enum hn_top_key {
    HN_TOP_KEY_NONE = 0, // below 256: the character itself
    HN_TOP_KEY_UP = 256, HN_TOP_KEY_DOWN, HN_TOP_KEY_LEFT, HN_TOP_KEY_RIGHT, HN_TOP_KEY_PAGE_UP, HN_TOP_KEY_PAGE_DOWN,
    HN_TOP_KEY_HOME, HN_TOP_KEY_END, HN_TOP_KEY_ENTER,
    HN_TOP_KEY_F = 300, // + n
} hn_top_key;
typedef enum hn_top_action { HN_TOP_STAY, HN_TOP_QUIT, HN_TOP_SIGNAL } hn_top_action; // SIGNAL: SIGTERM to chosen_pid
hn_top_action hn_top_press(hn_top_model *model, int key);
hn_top_action hn_top_click(hn_top_model *model, int hit);

// ---- as text ----------------------------------------------------------------------------------
void hn_top_text(const hn_top_grid *grid, hn_str *out); // without colours, no blanks at line ends
json_t *hn_top_json(const hn_top_model *model);         // NULL: out of memory

// ---- on a terminal ----------------------------------------------------------------------------
typedef struct hn_top_terminal {
    FILE *in, *out;
    bool utf8, colour;
    const volatile int *stop; // another thread or a signal handler ends it by setting it
} hn_top_terminal;
// Until the user quits. HONE_ERR_UNSUPPORTED where there is no ncurses or the terminal cannot do it.
hn_status hn_top_run(hone_error *err, hn_top_model *model, hn_sampler *sampler, const hn_top_terminal *terminal);
#endif
