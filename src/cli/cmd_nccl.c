// SPDX-License-Identifier: Apache-2.0
// hone nccl FILE...: what an NCCL log, RAS report or nccl-tests table says, and what to do about
// it.
#include <stdio.h>
#include "cli/cli.h"
#include "place/nccl.h"

hone_status hn_cmd_nccl(hone_error *err, int argc, char **argv, int *out_exit) {
    bool json = false, check = false;
    const char *paths[256];
    int count;
    const hn_option options[] = {
        {"json", NULL, HN_OPT_FLAG, &json, "print the report as JSON"},
        {"check", NULL, HN_OPT_FLAG, &check, "exit 1 if the job is not healthy"},
    };
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), paths,
                        (int)HN_COUNT_OF(paths), &count));
    if (count < 1)
        HN_FAIL(err, HONE_ERR_USAGE, "name at least one log file ('-' is standard input)");
    hn_nccl_report report;
    HN_TRY(hn_nccl_read_files(err, paths, (size_t)count, &report));
    hn_str text = {0};
    hone_status status = HONE_OK;
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
