// SPDX-License-Identifier: Apache-2.0
// A library that uses more of OpenMP than our executor has: it must be left to libgomp.
#include <stdbool.h>

extern void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
extern bool GOMP_loop_dynamic_start(long start, long end, long step, long chunk, long *from, long *to);
extern void GOMP_loop_end(void);

static void body(void *data) {
    long from, to;
    if (GOMP_loop_dynamic_start(0, 8, 1, 1, &from, &to)) __atomic_fetch_add((long *)data, 1, __ATOMIC_RELAXED);
    GOMP_loop_end();
}

// How many of two threads got a piece of a loop of 8.
long openmp_loops(void) {
    long got = 0;
    GOMP_parallel(body, &got, 2, 0);
    return got;
}
