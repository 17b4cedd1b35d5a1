// SPDX-License-Identifier: Apache-2.0
// hone version
#include "cli/cli.h"
#include <stdio.h>

const char *hn_cli_version(void) { return HN_VERSION; }

hone_status hn_cmd_version(hone_error *err, int argc, char **argv, int *out_exit) {
    (void)out_exit;
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, NULL, 0, NULL, 0, &count));
    hn_cli_printf("hone %s (%s, %s)\n", HN_VERSION, HN_BUILD_TYPE, HN_COMPILER);
    return HONE_OK;
}
