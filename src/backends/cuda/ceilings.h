// SPDX-License-Identifier: Apache-2.0
// What a card can do at best: copies within the card and to the host, launches, matrix products of every
// type through cuBLASLt on random numbers (constant ones draw less power and clock higher). Each card
// in a process of its own with a deadline a figure: this process never touches the driver.
#ifndef HN_CUDA_CEILINGS_H
#define HN_CUDA_CEILINGS_H
#include "probe/doctor.h"

hone_status hn_cuda_ceilings(hone_error *err, const hn_ceilings_wanted *wanted, hn_ceiling *out_items, int max_items,
                             int *out_count);
#endif
