// SPDX-License-Identifier: Apache-2.0
// Live sources of the machine model, and their roots for tests.
#ifndef HN_PLACE_LIVE_H
#define HN_PLACE_LIVE_H
#include "place/machine.h"

// Reads the PCI tree, NUMA nodes and adapters below `root` ("" is the machine itself). The result is
// neither derived nor advised.
hn_status hn_place_read_sysfs(hone_error *err, const char *root, hn_place_machine *machine);
#endif
