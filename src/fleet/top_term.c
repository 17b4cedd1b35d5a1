// SPDX-License-Identifier: Apache-2.0
// The terminal of hone top: shows grids, reads keys, mouse and size. See top.h.
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "fleet/top.h"
#include "config/config.h"
#include "libs/ncurses.h"

typedef struct screen {
    const hn_ncurses *n;
    const hn_top_terminal *terminal;
    void *window;
    int width, height;
    int attributes[HN_TOP_STYLES];
    hn_top_grid grid; // as shown: for clicks
} screen;

static void measure(screen *s) {
    struct winsize size;
    s->width = 80, s->height = 24;
    if (ioctl(fileno(s->terminal->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
        s->width = size.ws_col, s->height = size.ws_row;
}

static void make_attributes(screen *s) {
    static const struct { short pair, ink, ground; } k_pairs[] = {{1, 2, -1}, {2, 3, -1}, {3, 1, -1}, {4, 4, -1}, {5, 6, -1}};
    int *a = s->attributes;
    a[HN_TOP_DIM] = HN_NCURSES_DIM;
    a[HN_TOP_BOLD] = HN_NCURSES_BOLD;
    a[HN_TOP_WARN] = HN_NCURSES_BOLD;
    a[HN_TOP_BAD] = HN_NCURSES_BOLD | HN_NCURSES_REVERSE;
    a[HN_TOP_HEAD] = a[HN_TOP_CHOSEN] = a[HN_TOP_KEY] = HN_NCURSES_REVERSE;
    const hn_ncurses *n = s->n;
    if (!s->terminal->colour || !n->has_colors || !n->has_colors() || !n->start_color || !n->init_pair) return;
    n->start_color();
    if (n->use_default_colors) n->use_default_colors();
    for (size_t i = 0; i < HN_COUNT_OF(k_pairs); i++) n->init_pair(k_pairs[i].pair, k_pairs[i].ink, k_pairs[i].ground);
    a[HN_TOP_GOOD] = HN_NCURSES_PAIR(1);
    a[HN_TOP_WARN] = HN_NCURSES_PAIR(2) | HN_NCURSES_BOLD;
    a[HN_TOP_BAD] = HN_NCURSES_PAIR(3) | HN_NCURSES_BOLD;
    a[HN_TOP_BLUE] = HN_NCURSES_PAIR(5);
}

static bool show(screen *s, const hn_top_model *model) {
    hn_top_look look = {s->width, s->height, s->terminal->utf8};
    hn_top_grid grid;
    if (!hn_top_draw(model, &look, &grid)) return false;
    hn_top_grid_free(&s->grid);
    s->grid = grid;
    s->n->werase(s->window);
    for (int y = 0; y < grid.height; y++) {
        const hn_top_cell *row = grid.cells + y * grid.width;
        s->n->wmove(s->window, y, 0);
        // The last cell of the last line is left: writing it would scroll some terminals.
        int width = y + 1 == grid.height ? grid.width - 1 : grid.width;
        for (int x = 0; x < width; x++) {
            s->n->wattrset(s->window, s->attributes[row[x].style]);
            s->n->waddnstr(s->window, row[x].text, -1);
        }
    }
    s->n->wrefresh(s->window);
    return true;
}

static int key_of(int code) {
    static const struct { int code, key; } k_keys[] = {
        {HN_NCURSES_UP, HN_TOP_KEY_UP},       {HN_NCURSES_DOWN, HN_TOP_KEY_DOWN},   {HN_NCURSES_LEFT, HN_TOP_KEY_LEFT},
        {HN_NCURSES_RIGHT, HN_TOP_KEY_RIGHT}, {HN_NCURSES_PPAGE, HN_TOP_KEY_PAGE_UP}, {HN_NCURSES_NPAGE, HN_TOP_KEY_PAGE_DOWN},
        {HN_NCURSES_HOME, HN_TOP_KEY_HOME},   {HN_NCURSES_END, HN_TOP_KEY_END},     {HN_NCURSES_ENTER, HN_TOP_KEY_ENTER}};
    for (size_t i = 0; i < HN_COUNT_OF(k_keys); i++)
        if (k_keys[i].code == code) return k_keys[i].key;
    if (code > HN_NCURSES_F0 && code <= HN_NCURSES_F0 + 12) return HN_TOP_KEY_F + code - HN_NCURSES_F0;
    return code < 256 ? code : HN_TOP_KEY_NONE;
}

static hn_top_action mouse(screen *s, hn_top_model *model) {
    hn_ncurses_mouse at;
    if (!s->n->getmouse || s->n->getmouse(&at) != 0) return HN_TOP_STAY;
    if (at.buttons & HN_NCURSES_PRESSED(4)) return hn_top_press(model, HN_TOP_KEY_UP);
    if (at.buttons & HN_NCURSES_PRESSED(5)) return hn_top_press(model, HN_TOP_KEY_DOWN);
    if (!(at.buttons & HN_NCURSES_PRESSED(1)) || at.x < 0 || at.y < 0 || at.x >= s->grid.width || at.y >= s->grid.height)
        return HN_TOP_STAY;
    return hn_top_click(model, s->grid.cells[at.y * s->grid.width + at.x].hit);
}

static void send_signal(hn_top_model *model) {
    if (kill((pid_t)model->chosen_pid, SIGTERM) == 0)
        snprintf(model->message, sizeof model->message, "SIGTERM sent to %lld", (long long)model->chosen_pid);
    else
        snprintf(model->message, sizeof model->message, "SIGTERM to %lld: %s", (long long)model->chosen_pid, strerror(errno));
}

static bool loop(screen *s, hn_top_model *model, hn_sampler *sampler) {
    int64_t next_ns = 0;
    while (!*s->terminal->stop) {
        int64_t now_ns = hn_clock_ns();
        if (now_ns >= next_ns) {
            if (!model->paused) hn_top_model_update(model, sampler);
            next_ns = now_ns + (int64_t)(model->interval_s * 1e9);
        }
        if (!show(s, model)) return false;
        int64_t wait_ms = (next_ns - hn_clock_ns()) / 1000000 + 1;
        s->n->wtimeout(s->window, wait_ms < 1 ? 1 : wait_ms > 100 ? 100 : (int)wait_ms); // so that a stop is seen soon
        int code;
        do {
            code = s->n->wgetch(s->window);
        } while (code < 0 && hn_clock_ns() < next_ns && !*s->terminal->stop && errno != EIO);
        if (code < 0) {
            // A terminal that has gone answers at once and for ever.
            if (!isatty(fileno(s->terminal->in)) || errno == EIO) return true;
            continue;
        }
        hn_top_action action = HN_TOP_STAY;
        if (code == HN_NCURSES_RESIZE) {
            measure(s);
            s->n->wresize(s->window, s->height, s->width);
            s->n->wclear(s->window);
        } else if (code == HN_NCURSES_MOUSE) {
            action = mouse(s, model);
        } else {
            action = hn_top_press(model, key_of(code));
        }
        if (action == HN_TOP_QUIT) return true;
        if (action == HN_TOP_SIGNAL) send_signal(model);
    }
    return true;
}

hn_status hn_top_run(hone_error *err, hn_top_model *model, hn_sampler *sampler, const hn_top_terminal *terminal) {
    screen s = {.terminal = terminal};
    HN_TRY(hn_ncurses_get(err, &s.n));
    const char *type = hn_config_env("TERM");
    if (!type || !*type || strcmp(type, "dumb") == 0 || !s.n->newterm(NULL, terminal->out, terminal->in))
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the terminal '%s' cannot show a moving picture: hone top --once prints one", type ? type : "");
    const char *cup = s.n->tigetstr ? s.n->tigetstr("cup") : "";
    measure(&s);
    s.window = cup && cup != (char *)-1 ? s.n->newwin(0, 0, 0, 0) : NULL;
    if (!s.window) {
        s.n->endwin();
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the terminal '%s' cannot move its cursor: hone top --once prints one picture", type);
    }
    s.n->cbreak();
    s.n->noecho();
    s.n->keypad(s.window, true);
    if (s.n->curs_set) s.n->curs_set(0);
    if (s.n->set_escdelay) s.n->set_escdelay(25);
    if (s.n->mousemask) s.n->mousemask(HN_NCURSES_PRESSED(1) | HN_NCURSES_PRESSED(4) | HN_NCURSES_PRESSED(5), NULL);
    if (s.n->mouseinterval) s.n->mouseinterval(0);
    make_attributes(&s);
    bool good = loop(&s, model, sampler);
    s.n->endwin();
    hn_top_grid_free(&s.grid);
    if (!good) HN_NOMEM(err, "top");
    return HONE_OK;
}
