// SPDX-License-Identifier: Apache-2.0
// What tests of telemetry share: a scripted driver, a folder of their own, what was logged.
#ifndef HN_TEST_FLEET_H
#define HN_TEST_FLEET_H
#include "support/test.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != HONE_OK) fail_msg("%s", err.text);                                                               \
    } while (0)

extern char fleet_folder[];        // made by fleet_run, empty at its begin
extern char fleet_log[8][300];     // the last warnings, in a ring
extern _Atomic int fleet_log_lines;

// The scripted libnvidia-ml with these words from now on.
void fleet_script(const char *words);
// All tests in a fresh folder that is removed after them; what main returns.
int fleet_run(const char *group, const struct CMUnitTest *tests, size_t count);
#endif
