// SPDX-License-Identifier: Apache-2.0
// Two cache-bound jobs at once: each bound to CPUs of its own by hone's placement, against the same two
// left to the kernel. Each job has as many threads as the machine has CPUs, all of which work on one table
// that fills a core's L2; a request is a walk of dependent loads through it.
//
// Build and run (quiet machine): see bench/place_bind.sh
// Output: a line a round: bound or free, requests per second of both jobs, median and 99th percentile of a
// request in microseconds (the worse of the two jobs).
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "place/job.h"

#define JOBS        2
#define SAMPLES_MAX 400000
#define STEPS       4000

typedef struct report {
    double requests, p50_us, p99_us;
} report;

typedef struct worker {
    pthread_t thread;
    const uint32_t *table;
    uint32_t count, seed;
    int64_t end_ns;
    float *samples;
    long done;
    uint32_t sink;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    uint32_t at = w->seed % w->count;
    for (int64_t before = hn_clock_ns(); before < w->end_ns;) {
        for (int i = 0; i < STEPS; i++) at = w->table[at];
        int64_t after = hn_clock_ns();
        if (w->done < SAMPLES_MAX) w->samples[w->done] = (float)(after - before) / 1e3f;
        w->done++;
        before = after;
    }
    w->sink = at;
    return NULL;
}

static int by_size(const void *a, const void *b) {
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

// One cycle through all cells in random order: every load depends on the one before it.
static uint32_t *make_table(uint32_t count) {
    uint32_t *table = malloc(count * sizeof *table), *order = malloc(count * sizeof *order), state = 12345;
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t i = count - 1; i > 0; i--) {
        state = state * 1664525u + 1013904223u;
        uint32_t k = (uint32_t)((uint64_t)state * (i + 1) >> 32), swap = order[i];
        order[i] = order[k], order[k] = swap;
    }
    for (uint32_t i = 0; i < count; i++) table[order[i]] = order[(i + 1) % count];
    free(order);
    return table;
}

static void run_job(bool bind, int threads, int kib, int64_t start_ns, double seconds, report *out) {
    hn_place_job job = {.claim_fd = -1};
    hone_error err = {0};
    hn_place_request request = {.cpus = (int)sysconf(_SC_NPROCESSORS_ONLN) / JOBS};
    if (bind && (hn_place_job_open(&err, &request, &job) != HONE_OK || hn_place_binding_apply(&job.binding))) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    uint32_t count = (uint32_t)kib * 1024 / sizeof(uint32_t);
    uint32_t *table = make_table(count);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    float *all = malloc((size_t)threads * SAMPLES_MAX * sizeof *all);
    while (hn_clock_ns() < start_ns) hn_sleep_ns(1000000);
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker){.table = table, .count = count, .seed = 7919u * (unsigned)i,
                              .end_ns = start_ns + (int64_t)(seconds * 1e9),
                              .samples = malloc(SAMPLES_MAX * sizeof(float))};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    size_t used = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        long kept = workers[i].done < SAMPLES_MAX ? workers[i].done : SAMPLES_MAX;
        memcpy(all + used, workers[i].samples, (size_t)kept * sizeof *all);
        used += (size_t)kept;
        out->requests += (double)workers[i].done / seconds;
    }
    qsort(all, used, sizeof *all, by_size);
    out->p50_us = all[used / 2];
    out->p99_us = all[used * 99 / 100];
    hn_place_job_close(&job);
    _exit(0);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20, kib = argc > 2 ? atoi(argv[2]) : 1536;
    double seconds = argc > 3 ? atof(argv[3]) : 1.0;
    int threads = argc > 4 ? atoi(argv[4]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    report *reports = mmap(NULL, JOBS * sizeof *reports, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2 * rounds; i++) {
        bool bind = (i % 2 == 0) == (i / 2 % 2 == 0); // A B B A
        memset(reports, 0, JOBS * sizeof *reports);
        int64_t start = hn_clock_ns() + 150000000;
        pid_t pids[JOBS];
        for (int k = 0; k < JOBS; k++)
            if ((pids[k] = fork()) == 0) run_job(bind, threads, kib, start, seconds, &reports[k]);
        for (int k = 0; k < JOBS; k++) waitpid(pids[k], NULL, 0);
        double rate = 0, p50 = 0, p99 = 0;
        for (int k = 0; k < JOBS; k++) {
            rate += reports[k].requests;
            p50 = reports[k].p50_us > p50 ? reports[k].p50_us : p50;
            p99 = reports[k].p99_us > p99 ? reports[k].p99_us : p99;
        }
        printf("%s %.1f %.1f %.1f\n", bind ? "bound" : "free", rate, p50, p99);
        fflush(stdout);
    }
    return 0;
}
