// SPDX-License-Identifier: Apache-2.0
// What the CPU can do at best: matrix products of 1024 x 1024 x 1024 through oneDNN, all threads of
// hn_parallel. A type the CPU has no fast form of, or a missing oneDNN, gives no row.
#ifndef HN_CPU_CEILINGS_H
#define HN_CPU_CEILINGS_H
#include "probe/doctor.h"

hone_status hn_cpu_ceilings(hone_error *err, const hn_ceilings_wanted *wanted, hn_ceiling *out_items, int max_items,
                            int *out_count);
#endif
