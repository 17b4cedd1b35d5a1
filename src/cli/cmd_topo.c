// SPDX-License-Identifier: Apache-2.0
// hone topo: the machine model of this host or of a file, as table, JSON or picture.
#include "cli/cli.h"
#include <jansson.h>
#include <stdio.h>
#include "place/machine.h"

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

hone_status hn_cmd_topo(hone_error *err, int argc, char **argv, int *out_exit) {
    bool json = false, svg = false;
    const char *picture = NULL, *path = NULL;
    const hn_option options[] = {
        {"json", NULL, HN_OPT_FLAG, &json, "print the model as JSON"},
        {"svg", NULL, HN_OPT_FLAG, &svg, "print the picture as SVG"},
        {"picture", "FILE", HN_OPT_STR, &picture, "write the picture: FILE.svg, or FILE.html with tables"},
    };
    int count;
    (void)out_exit;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &path, 1, &count));
    bool html = picture && ends_with(picture, ".html");
    if (picture && !html && !ends_with(picture, ".svg"))
        HN_FAIL(err, HONE_ERR_USAGE, "--picture: '%s' ends in neither .svg nor .html", picture);
    if (json + svg + (picture != NULL) > 1)
        HN_FAIL(err, HONE_ERR_USAGE, "--json, --svg and --picture exclude each other");
    hn_place_machine machine = {0};
    if (count) HN_TRY(hn_place_machine_read(err, path, &machine));
    else HN_TRY(hn_place_machine_live(err, &machine));
    hone_status status = HONE_OK;
    hn_str text = {0};
    if (picture) {
        if (html) hn_place_machine_html(&machine, &text);
        else hn_place_machine_svg(&machine, &text);
        status = text.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (picture)")
                             : hn_file_write(err, picture, hn_str_get(&text), text.length);
    } else if (json) {
        json_t *root = hn_place_machine_json(&machine);
        hn_place_json_append(root, &text);
        json_decref(root);
    } else if (svg) {
        hn_place_machine_svg(&machine, &text);
    } else {
        hn_place_machine_table(&machine, &text);
    }
    if (status == HONE_OK && text.failed) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (output)");
    if (status == HONE_OK && !picture) hn_cli_put(hn_str_get(&text));
    hn_str_free(&text);
    hn_place_machine_free(&machine);
    return status;
}
