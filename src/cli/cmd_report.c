// SPDX-License-Identifier: Apache-2.0
// hone report: what hone exec says at its end, of a recording; or the kernels of an export of Nsight Compute.
#include "cli/cli.h"
#include <math.h>
#include <stdio.h>
#include "fleet/exec_report.h"
#include "fleet/kernels.h"
#include "fleet/recorded.h"
#include "fleet/segment.h"

typedef struct setup {
    const char *path, *json, *html, *phase, *title;
    double from_s, to_s, units;
} setup;

static hone_status write_text(hone_error *err, const char *path, const hn_str *text) {
    if (text->failed) HN_NOMEM(err, "report");
    if (strcmp(path, "-") != 0) return hn_file_write(err, path, text->data, text->length);
    hn_cli_put(hn_str_get(text));
    return HONE_OK;
}

static hone_status report(hone_error *err, const setup *s, const hn_exec_result *result, const char *source) {
    char name[512];
    snprintf(name, sizeof name, "%s", s->path);
    char *argv[] = {name, NULL};
    hn_exec_request request = {.argv = argv};
    hn_exec_totals totals;
    hn_str text = {0};
    hone_status status = HONE_OK;
    hn_exec_totals_make(result, s->units, &totals);
    if (s->json) {
        json_t *root = hn_exec_json(&request, result, &totals, source);
        char *dump = json_dumps(root, JSON_INDENT(2));
        hn_str_append(&text, dump ? dump : "");
        text.failed |= !dump;
        hn_str_append(&text, "\n");
        hn_free(dump);
        json_decref(root);
        status = write_text(err, s->json, &text);
    }
    text.length = 0;
    if (status == HONE_OK && s->html) {
        hn_exec_html(&request, result, &totals, source, s->title ? s->title : "", &text);
        status = write_text(err, s->html, &text);
    }
    text.length = 0;
    bool taken = (s->json && strcmp(s->json, "-") == 0) || (s->html && strcmp(s->html, "-") == 0);
    if (status == HONE_OK && !taken) {
        hn_exec_text(&request, result, &totals, &text);
        status = write_text(err, "-", &text);
    }
    hn_str_free(&text);
    return status;
}

#define EXPORT_BYTES_MAX (256 << 20)
#define HEAD_BYTES       65536

static bool is_export(const char *path) {
    char head[HEAD_BYTES];
    FILE *f = fopen(path, "re");
    size_t got = f ? fread(head, 1, sizeof head, f) : 0;
    if (f) fclose(f);
    // What PowerShell redirected is UTF-16: the letters stand where they stand, with zeros between.
    if (got >= 2 && (memcmp(head, "\xff\xfe", 2) == 0 || memcmp(head, "\xfe\xff", 2) == 0)) {
        size_t kept = 0;
        for (size_t i = 2; i < got; i++)
            if (head[i]) head[kept++] = head[i];
        got = kept;
    }
    return hn_kernels_is_export((hn_slice){head, got});
}

static hone_status report_kernels(hone_error *err, const setup *s) {
    if (s->html || s->phase || s->title || s->from_s != 0 || isfinite(s->to_s) || !isnan(s->units))
        HN_FAIL(err, HONE_ERR_USAGE, "'%s' is an export of kernels, without time: only --json goes with it", s->path);
    char *data;
    size_t bytes;
    hn_ncu_report kernels;
    hn_str text = {0};
    HN_TRY(hn_file_read_text(err, s->path, EXPORT_BYTES_MAX, &data, &bytes));
    hone_status status = hn_ncu_parse(err, s->path, data, bytes, &kernels);
    if (status == HONE_OK) {
        status = (s->json ? hn_kernels_json : hn_kernels_text)(err, &kernels, &text);
        if (status == HONE_OK) status = write_text(err, s->json ? s->json : "-", &text);
        hn_ncu_free(&kernels);
    }
    hn_str_free(&text);
    hn_free(data);
    return status;
}

hone_status hn_cmd_report(hone_error *err, int argc, char **argv, int *out_exit) {
    setup s = {.to_s = INFINITY, .units = NAN};
    (void)out_exit;
    const hn_option options[] = {
        {"json", "FILE", HN_OPT_STR, &s.json, "write it as JSON; - for standard output"},
        {"html", "FILE", HN_OPT_STR, &s.html, "write it as a page with plots; - for standard output"},
        {"title", "TEXT", HN_OPT_STR, &s.title, "heading of the page"},
        {"phase", "NAME", HN_OPT_STR, &s.phase, "of this phase alone"},
        {"from", "S", HN_OPT_F64, &s.from_s, "from this second on"},
        {"to", "S", HN_OPT_F64, &s.to_s, "up to this second"},
        {"units", "N", HN_OPT_F64, &s.units, "units of work that were done"},
    };
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &s.path, 1, &count));
    if (!s.path) HN_FAIL(err, HONE_ERR_USAGE, "report needs a recording (hone record, hone exec --record)");
    if (!(s.from_s >= 0 && s.to_s > s.from_s)) HN_FAIL(err, HONE_ERR_USAGE, "--from and --to must be seconds, in this order");
    if (!isnan(s.units) && !(s.units > 0)) HN_FAIL(err, HONE_ERR_USAGE, "--units must be above 0");
    if (strcmp(s.path, "-") != 0 && is_export(s.path)) return report_kernels(err, &s);
    hn_exec_result *result = hn_calloc(1, sizeof *result);
    if (!result) HN_NOMEM(err, "report");
    hone_status status = hn_recorded_read(err, s.path, s.from_s, s.to_s, s.phase, result);
    if (status == HONE_OK && result->phases.count == 0 &&
        !hn_segments_find(result->tracks, result->track_count, result->start_ns, &result->phases))
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (phases)");
    if (status == HONE_OK) status = report(err, &s, result, HN_SAY("a recording"));
    hn_exec_result_free(result);
    hn_free(result);
    return status;
}
