// SPDX-License-Identifier: Apache-2.0
// hone top: cards, what they do, what they cost and for whom, live or once.
#include "cli/cli.h"
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "fleet/top.h"

static volatile int g_stop;
static void on_signal(int number) {
    (void)number;
    g_stop = 1;
}

typedef struct setup {
    const char *source;
    bool once, json, kill, ascii, no_colour;
    int64_t width;
    double interval_s, hz;
} setup;

static hone_status print_once(hone_error *err, const setup *s, hn_top_model *model, bool utf8) {
    hn_str text = {0};
    if (s->json) {
        json_t *root = hn_top_json(model);
        char *dump = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
        hn_str_append(&text, dump ? dump : "");
        text.failed |= !dump;
        hn_str_append(&text, "\n");
        hn_free(dump);
        json_decref(root);
    } else {
        hn_top_look look = {.width = (int)s->width, .utf8 = utf8};
        hn_top_grid grid;
        if (!hn_top_draw(model, &look, &grid)) HN_NOMEM(err, "top");
        hn_top_text(&grid, &text);
        hn_top_grid_free(&grid);
    }
    bool failed = text.failed;
    if (!failed) hn_cli_put(hn_str_get(&text));
    hn_str_free(&text);
    if (failed) HN_NOMEM(err, "top");
    return HONE_OK;
}

static hone_status show(hone_error *err, const setup *s, hn_sampler *sampler, const char *source) {
    hn_top_model *model = hn_calloc(1, sizeof *model); // large: not on the stack
    if (!model) HN_NOMEM(err, "top");
    hone_status status = hn_top_model_make(err, sampler, source, model);
    if (status != HONE_OK) {
        hn_free(model);
        return status;
    }
    model->interval_s = s->interval_s;
    model->may_signal = s->kill;
    setlocale(LC_CTYPE, "");
    bool utf8 = !s->ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (s->once) {
        // Rates and activity need two readings.
        hn_sampler_wait(sampler, 3000);
        hn_sleep_ns((int64_t)(2.2e9 / s->hz));
        hn_top_model_update(model, sampler);
        status = print_once(err, s, model, utf8);
    } else {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGHUP, &action, NULL);
        hn_sampler_wait(sampler, 300);
        const char *no_colour = hn_config_env("NO_COLOR");
        hn_top_terminal terminal = {stdin, stdout, utf8, !s->no_colour && !(no_colour && *no_colour), &g_stop};
        status = hn_top_run(err, model, sampler, &terminal);
    }
    hn_top_model_free(model);
    hn_free(model);
    return status;
}

hone_status hn_cmd_top(hone_error *err, int argc, char **argv, int *out_exit) {
    setup s = {.source = "", .interval_s = 1, .hz = 5};
    (void)out_exit;
    const hn_option options[] = {
        {"source", "SOURCE", HN_OPT_STR, &s.source, "auto, nvml, dcgm, host, nvml+host, replay:FILE, text:FILE (cards and host)"},
        {"once", NULL, HN_OPT_FLAG, &s.once, "print one picture and end (also where standard output is no terminal)"},
        {"json", NULL, HN_OPT_FLAG, &s.json, "with --once: as JSON"},
        {"width", "N", HN_OPT_I64, &s.width, "with --once: columns, 20 to 1000 (100, or the terminal's)"},
        {"interval", "S", HN_OPT_F64, &s.interval_s, "seconds between pictures, 0.1 to 60 (1)"},
        {"hz", "N", HN_OPT_F64, &s.hz, "readings a second and card, 0.1 to 100 (5)"},
        {"ascii", NULL, HN_OPT_FLAG, &s.ascii, "no letters but ASCII (also where the locale is not UTF-8)"},
        {"no-color", NULL, HN_OPT_FLAG, &s.no_colour, "no colours (also where NO_COLOR is set)"},
        {"kill", NULL, HN_OPT_FLAG, &s.kill, "F9 may send SIGTERM to the chosen process, after asking"},
    };
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), NULL, 0, &count));
    if (!(s.interval_s >= 0.1 && s.interval_s <= 60)) HN_FAIL(err, HONE_ERR_USAGE, "--interval must be from 0.1 to 60");
    if (!(s.hz >= 0.1 && s.hz <= 100)) HN_FAIL(err, HONE_ERR_USAGE, "--hz must be from 0.1 to 100");
    if (s.width && (s.width < 20 || s.width > 1000)) HN_FAIL(err, HONE_ERR_USAGE, "--width must be from 20 to 1000");
    if (s.json) s.once = true;
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) s.once = true;
    if (!s.width) s.width = 100;
    if (!s.once) hn_log_set_sink(NULL, NULL, HN_LOG_ERROR); // lines would tear the picture, which says the same
    hn_probe *probe;
    hone_status status = HONE_OK;
    if (!s.source[0]) {
        hone_error ignored = {0};
        status = hn_probe_open(&ignored, "nvml+host", &probe);
        if (status != HONE_OK) status = hn_probe_open(err, "auto", &probe);
    } else {
        status = hn_probe_open(err, s.source, &probe);
    }
    if (status != HONE_OK) return status;
    hn_sampler *sampler;
    hn_sampler_options run = {.hz = s.hz, .host_hz = s.hz < 5 ? s.hz : 5};
    char source[256];
    snprintf(source, sizeof source, "%s", hn_probe_source(probe));
    status = hn_sampler_start(err, probe, &run, &sampler);
    if (status != HONE_OK) {
        hn_probe_close(probe);
        return status;
    }
    status = show(err, &s, sampler, source);
    if (hn_sampler_stop(sampler)) hn_probe_close(probe);
    return status;
}
