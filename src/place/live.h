// SPDX-License-Identifier: Apache-2.0
// Live sources of the machine model, and their roots for tests.
#ifndef HN_PLACE_LIVE_H
#define HN_PLACE_LIVE_H
#include "place/machine.h"

// Reads the PCI tree, NUMA nodes and adapters (below HONE_SYS_ROOT where tests set it). The result is
// neither derived nor advised.
hn_status hn_place_read_sysfs(hone_error *err, hn_place_machine *machine);
// Adds what the NVIDIA driver tells; no driver is no error.
hn_status hn_place_add_nvml(hone_error *err, hn_place_machine *machine);
#endif
