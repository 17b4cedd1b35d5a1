// SPDX-License-Identifier: Apache-2.0
// A library that uses OpenMP as gcc compiles it, with the six functions that oneDNN calls. They are
// left undefined: the test loads libgomp first, then binds this library to our executor.
#include <stdatomic.h>
#include <string.h>

extern void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
extern void GOMP_barrier(void);
extern int omp_get_max_threads(void), omp_get_num_threads(void), omp_get_thread_num(void),
    omp_in_parallel(void);

// One slot is filled through data relocations, as for a function whose address is taken.
int (*openmp_num_threads)(void) = omp_get_num_threads;

typedef struct job {
    int threads, seen[64];
    _Atomic int arrived, early, inside;
} job;

static void nested(void *data) {
    job *j = data;
    if (omp_get_num_threads() != 1 || omp_get_thread_num() != 0 || !omp_in_parallel())
        atomic_fetch_add(&j->early, 1);
}

static void body(void *data) {
    job *j = data;
    int me = omp_get_thread_num();
    if (openmp_num_threads() == j->threads) j->seen[me]++;
    atomic_fetch_add(&j->inside, omp_in_parallel());
    for (int round = 1; round <= 3; round++) {
        atomic_fetch_add(&j->arrived, 1);
        GOMP_barrier();
        if (atomic_load(&j->arrived) < round * j->threads) atomic_fetch_add(&j->early, 1);
        GOMP_barrier();
    }
    if (j->threads > 1) GOMP_parallel(nested, j, 3, 0);
}

// 0: all parts were run once, with three barriers that held, and nested regions were serial.
int openmp_try(unsigned threads) {
    job j = {.threads = threads ? (int)threads : omp_get_max_threads()};
    if (j.threads > 64 || omp_in_parallel()) return -1;
    GOMP_parallel(body, &j, threads, 0);
    int wrong = atomic_load(&j.early);
    for (int i = 0; i < j.threads; i++)
        wrong += j.seen[i] != 1;
    return wrong + (atomic_load(&j.inside) != (j.threads > 1 ? j.threads : 0));
}
