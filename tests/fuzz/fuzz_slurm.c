// SPDX-License-Identifier: Apache-2.0
// Any bytes as slurm.conf and as a host list: lines or a refusal, never more names than the limit.
#include <stdlib.h>
#include "place/slurm/slurm.h"

static bool count_name(void *user, const char *name, int index) {
    int *count = user;
    if (index != *count || strlen(name) > 1100) abort();
    return ++*count < 1000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hone_error err = {0};
    hn_slurm_conf conf;
    hn_slice text = {(const char *)data, size};
    // Include would read files of this machine.
    if (size && memmem(data, size, "nclude", 6) == NULL &&
        memmem(data, size, "NCLUDE", 6) == NULL &&
        hn_slurm_conf_parse(&err, "slurm.conf", text, &conf) == HONE_OK) {
        for (size_t i = 0; i < conf.lines.count; i++)
            if (!conf.lines.data[i].count ||
                !hn_slurm_line_get(&conf.lines.data[i], conf.lines.data[i].pairs[0].key))
                abort();
        (void)hn_slurm_conf_get(&conf, "NodeName");
        hn_slurm_conf_free(&conf);
    }
    char *list = hn_strndup((const char *)data, size < 4000 ? size : 4000);
    int count = 0;
    if (list && hn_slurm_hostlist(&err, list, count_name, &count) == HONE_OK && count > 1000)
        abort();
    hn_free(list);
    return 0;
}
