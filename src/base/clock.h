// SPDX-License-Identifier: Apache-2.0
// Clocks.
#ifndef HN_BASE_CLOCK_H
#define HN_BASE_CLOCK_H
#include <stdint.h>

int64_t hn_clock_ns(void);      // monotonic
int64_t hn_clock_wall_ns(void); // since 1970, for time stamps only
int64_t hn_clock_thread_ns(void); // CPU time of this thread: not disturbed by a busy machine
void hn_sleep_ns(int64_t ns);   // returns early only on a signal
#endif
