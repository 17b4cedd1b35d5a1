// SPDX-License-Identifier: Apache-2.0
// The process-wide executor: the only place that knows OpenMP.
//
// libgomp is loaded by dlopen at the first use, after its spin count has been set, so that oneDNN
// (loaded later) shares one team of threads with our kernels and idle threads do not spin for
// milliseconds. Without libgomp everything runs on the calling thread.
#ifndef HN_BASE_PARALLEL_H
#define HN_BASE_PARALLEL_H
#include <stdint.h>

// Work item: [begin, end) of the range, run by thread `thread` of `threads`.
typedef void (*hn_range_fn)(void *arg, int64_t begin, int64_t end);

// Threads used by hn_parallel from now on (1..hn_parallel_max). Also the count oneDNN sees.
// Not to be called while work runs.
void hn_parallel_set_threads(int threads);
int hn_parallel_threads(void);
int hn_parallel_max(void); // CPUs in this process's affinity mask

// Splits [0, total) into at most `threads` contiguous parts of at least `grain` items and runs fn on
// each. The split depends on total, grain and the thread count only. Runs inline where one part
// results. Nested calls run inline.
void hn_parallel_for(int64_t total, int64_t grain, hn_range_fn fn, void *arg);

// Loads libgomp with its spin count; called before dlopen of any library that links libgomp.
void hn_parallel_init(void);
#endif
