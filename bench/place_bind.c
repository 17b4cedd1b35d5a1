// SPDX-License-Identifier: Apache-2.0
// Two cache-bound jobs at once: each under `hone exec --place`, which gives it CPUs of its own, against the same
// two under `hone exec` alone, left to the kernel. Each job has as many threads as the machine has CPUs, all of
// which work on one table that fills a core's L2; a request is a walk of dependent loads through it.
//
// Build and run (quiet machine): see bench/place_bind.sh
// Output: a line a round: bound or free, requests per second of both jobs, median and 99th percentile of a
// request in microseconds (the worse of the two jobs).
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void *work(void *arg) {
    worker *w = arg;
    uint32_t at = w->seed % w->count;
    for (int64_t before = clock_ns(); before < w->end_ns;) {
        for (int i = 0; i < STEPS; i++) at = w->table[at];
        int64_t after = clock_ns();
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

// One job, started by hone: a line with its figures on stdout.
static int run_job(int threads, int kib, int64_t start_ns, double seconds) {
    uint32_t count = (uint32_t)kib * 1024 / sizeof(uint32_t);
    uint32_t *table = make_table(count);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    float *all = malloc((size_t)threads * SAMPLES_MAX * sizeof *all);
    report out = {0};
    if (clock_ns() > start_ns) fprintf(stderr, "a job was not ready in time: the round is void\n");
    while (clock_ns() < start_ns) usleep(500);
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
        out.requests += (double)workers[i].done / seconds;
    }
    if (!used) return 1;
    qsort(all, used, sizeof *all, by_size);
    out.p50_us = all[used / 2];
    out.p99_us = all[used * 99 / 100];
    printf("%.1f %.1f %.1f\n", out.requests, out.p50_us, out.p99_us);
    return 0;
}

static FILE *start_job(const char *hone, const char *self, bool bind, int cpus, const char *arguments) {
    char command[1024];
    if (!bind)
        snprintf(command, sizeof command, "exec '%s' exec --source none --quiet -- '%s' job %s", hone, self,
                 arguments);
    else
        snprintf(command, sizeof command, "exec '%s' exec --source none --quiet --place --cpus %d -- '%s' job %s",
                 hone, cpus, self, arguments);
    return popen(command, "r");
}

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[1], "job") == 0)
        return run_job(atoi(argv[2]), atoi(argv[3]), atoll(argv[4]), atof(argv[5]));
    int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *hone = argc > 1 ? argv[1] : "build/hone";
    int rounds = argc > 2 ? atoi(argv[2]) : 20, kib = argc > 3 ? atoi(argv[3]) : 1536;
    double seconds = argc > 4 ? atof(argv[4]) : 1.0;
    int threads = argc > 5 ? atoi(argv[5]) : cpus;
    for (int i = 0; i < 2 * rounds; i++) {
        bool bind = (i % 2 == 0) == (i / 2 % 2 == 0); // A B B A
        char arguments[128];
        snprintf(arguments, sizeof arguments, "%d %d %lld %g", threads, kib, (long long)(clock_ns() + 400000000),
                 seconds);
        FILE *jobs[JOBS];
        double rate = 0, p50 = 0, p99 = 0;
        for (int k = 0; k < JOBS; k++)
            if (!(jobs[k] = start_job(hone, argv[0], bind, cpus / JOBS, arguments))) return 1;
        for (int k = 0; k < JOBS; k++) {
            report r;
            if (fscanf(jobs[k], "%lf %lf %lf", &r.requests, &r.p50_us, &r.p99_us) != 3) return 1;
            if (pclose(jobs[k]) != 0) return 1;
            rate += r.requests;
            p50 = r.p50_us > p50 ? r.p50_us : p50;
            p99 = r.p99_us > p99 ? r.p99_us : p99;
        }
        printf("%s %.1f %.1f %.1f\n", bind ? "bound" : "free", rate, p50, p99);
        fflush(stdout);
    }
    return 0;
}
