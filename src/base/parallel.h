// SPDX-License-Identifier: Apache-2.0
// Loops over several cores, and the choice of what runs them.
//
// The executor "own" (base/team.h) is the default; oneDNN's regions run on it too (libs/openmp.h), so
// that there is one set of threads. "libgomp" is GNU OpenMP, loaded by dlopen at the first use after
// its spin count has been set: for comparison, and where a process holds oneDNN already.
#ifndef HN_BASE_PARALLEL_H
#define HN_BASE_PARALLEL_H
#include <stdbool.h>
#include <stdint.h>

// Work item: [begin, end) of the range.
typedef void (*hn_range_fn)(void *arg, int64_t begin, int64_t end);

// Threads used from now on (1..hn_parallel_max) by all threads that have not said otherwise; also
// the count oneDNN sees. Not to be called while work runs.
void hn_parallel_set_threads(int threads);
// The same for the calling thread alone; 0: as the process. Returns what was said before.
int hn_parallel_use(int threads);
int hn_parallel_threads(void);
int hn_parallel_max(void); // CPUs in this process's affinity mask

// "own", "libgomp", or "" for the default; false for another name. libgomp that is not installed
// leaves everything to the calling thread. Not to be called while work runs.
bool hn_parallel_choose(const char *executor);
const char *hn_parallel_executor(void);

// Splits [0, total) into at most `threads` contiguous parts of at least `grain` items and runs fn on
// each. The split depends on total, grain and the thread count only. Runs inline where one part
// results. Nested calls run inline.
void hn_parallel_for(int64_t total, int64_t grain, hn_range_fn fn, void *arg);

// Whether an operation without a meaningful result (a NaN made, compared, or lost in a minimum: the
// invalid flag of IEEE 754) happened since the clearing, in this thread or in one that ran a part of a
// region for it. So cheap that kernels of other libraries that drop NaN can be watched.
void hn_parallel_invalid_clear(void);
bool hn_parallel_invalid(void);
#endif
