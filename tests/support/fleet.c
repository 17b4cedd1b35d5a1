// SPDX-License-Identifier: Apache-2.0
// See fleet.h.
#include "support/fleet.h"
#include <unistd.h>

char fleet_folder[] = "/tmp/hone-fleet-XXXXXX";
char fleet_log[8][300];
_Atomic int fleet_log_lines;

static void sink(void *user, hn_log_level level, const char *text) {
    (void)user, (void)level;
    snprintf(fleet_log[fleet_log_lines++ % 8], sizeof fleet_log[0], "%.299s", text);
}

void fleet_script(const char *words) {
    char path[1024];
    snprintf(path, sizeof path, "%s/fakes/libnvidia-ml.so", getenv("HONE_BUILD_DIR"));
    setenv("HONE_NVML_LIB", path, 1);
    setenv("HONE_FAKE_NVML", words, 1);
}

int fleet_run(const char *group, const struct CMUnitTest *tests, size_t count) {
    char command[600];
    if (!mkdtemp(fleet_folder)) return 1;
    hn_log_set_sink(sink, NULL, HN_LOG_WARN);
    int failed = _cmocka_run_group_tests(group, tests, count, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", fleet_folder);
    if (system(command) != 0) return 1;
    return failed;
}
