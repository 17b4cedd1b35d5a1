// SPDX-License-Identifier: Apache-2.0
// hone nccl FILE...: what an NCCL log, RAS report or nccl-tests table says, and what to do about
// it.
#include <stdio.h>
#include "cli/cli.h"
#include "place/nccl.h"

hone_status hn_cmd_nccl(hone_error *err, int argc, char **argv, int *out_exit) {
    bool json = false, check = false;
    int count;
    const hn_option options[] = {
        {"json", NULL, HN_OPT_FLAG, &json, "print the report as JSON"},
        {"check", NULL, HN_OPT_FLAG, &check, "exit 1 if the job is not healthy"},
    };
    const char **paths = hn_calloc((size_t)argc + 1, sizeof *paths); // a file a rank, of thousands
    if (!paths) HN_NOMEM(err, "names of files");
    hone_status status = hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), paths, argc, &count);
    if (status == HONE_OK && count < 1)
        status = HN_SET(err, HONE_ERR_USAGE, "name at least one log file ('-' is standard input)");
    hn_nccl_report report;
    if (status == HONE_OK) status = hn_nccl_read_files(err, paths, (size_t)count, &report);
    hn_free(paths);
    if (status != HONE_OK) return status;
    hn_str text = {0};
    if (json)
        status = hn_nccl_report_json(err, &report, &text);
    else
        hn_nccl_report_text(&report, &text);
    if (status == HONE_OK) {
        hn_cli_put(hn_str_get(&text));
        *out_exit = check && !report.healthy ? 1 : 0;
    }
    hn_str_free(&text);
    hn_nccl_report_free(&report);
    return status;
}
