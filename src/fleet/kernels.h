// SPDX-License-Identifier: Apache-2.0
// What hone report says of kernels that Nsight Compute measured: launches of one kernel together, the dearest first.
//
// Shares of peak are means over the launches, each weighing as much as it took. What an export lacks is unknown.
#ifndef HN_FLEET_KERNELS_H
#define HN_FLEET_KERNELS_H
#include "probe/ncu.h"

// Whether a file's first bytes are those of an export of kernels.
bool hn_kernels_is_export(hn_slice head);
hn_status hn_kernels_text(hone_error *err, const hn_ncu_report *report, hn_str *out);
hn_status hn_kernels_json(hone_error *err, const hn_ncu_report *report, hn_str *out);
#endif
