// SPDX-License-Identifier: Apache-2.0
// The executor: see parallel.h.
#include "base/parallel.h"
#include "base/check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__)
#define HN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HN_TSAN 1
#endif
#endif
#ifdef HN_TSAN
// libgomp synchronises with futexes that ThreadSanitizer cannot see.
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define TSAN_ACQUIRE(p) __tsan_acquire(p)
#define TSAN_RELEASE(p) __tsan_release(p)
#else
#define TSAN_ACQUIRE(p) ((void)(p))
#define TSAN_RELEASE(p) ((void)(p))
#endif

// GNU OpenMP's entry point for a parallel region; stable ABI since GCC 4.9.
static void (*g_gomp_parallel)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
static int (*g_omp_thread_num)(void);
static int (*g_omp_num_threads)(void);
static void (*g_omp_set_num_threads)(int);
static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static int g_threads;
static int g_max = 1;
static _Thread_local int t_inside; // a region of ours runs on this thread

static void *symbol(void *library, const char *name) { return dlsym(library, name); }

static void init_once(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) g_max = CPU_COUNT(&set);
    g_threads = g_max;
    // 10,000 turns of 17 ns (a pause on Sapphire Rapids) bridge the gap between two steps of a plan,
    // not an idle application; libgomp's default is about 8 ms. Best on quiet CPUs, bad on shared
    // ones, where 100 is right: docs/notes/float32-vs-onnxruntime.md.
    setenv("GOMP_SPINCOUNT", "10000", 0);
    void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) return;
    *(void **)&g_omp_thread_num = symbol(library, "omp_get_thread_num");
    *(void **)&g_omp_num_threads = symbol(library, "omp_get_num_threads");
    *(void **)&g_omp_set_num_threads = symbol(library, "omp_set_num_threads");
    *(void **)&g_gomp_parallel = symbol(library, "GOMP_parallel");
    if (!g_omp_thread_num || !g_omp_num_threads || !g_omp_set_num_threads) g_gomp_parallel = NULL;
}

void hn_parallel_init(void) { pthread_once(&g_once, init_once); }

int hn_parallel_max(void) {
    hn_parallel_init();
    return g_max;
}

int hn_parallel_threads(void) {
    hn_parallel_init();
    return g_threads;
}

void hn_parallel_set_threads(int threads) {
    hn_parallel_init();
    g_threads = threads < 1 ? 1 : threads > g_max ? g_max : threads;
    // omp's default team size is per calling thread; oneDNN reads it there.
    if (g_omp_set_num_threads) g_omp_set_num_threads(g_threads);
}

typedef struct region {
    hn_range_fn fn;
    void *arg;
    int64_t total, parts;
} region;

static void run_part(void *data) {
    region *r = data;
    TSAN_ACQUIRE(r);
    // libgomp may grant fewer threads than were asked for: stride over the parts.
    int64_t team = g_omp_num_threads();
    t_inside++;
    for (int64_t part = g_omp_thread_num(); part < r->parts; part += team) {
        int64_t base = r->total / r->parts, rest = r->total % r->parts;
        int64_t begin = part * base + hn_min_i64(part, rest);
        r->fn(r->arg, begin, begin + base + (part < rest ? 1 : 0));
    }
    t_inside--;
    TSAN_RELEASE((char *)r + 1);
}

void hn_parallel_for(int64_t total, int64_t grain, hn_range_fn fn, void *arg) {
    if (total <= 0) return;
    if (grain < 1) grain = 1;
    int64_t parts = hn_min_i64(hn_parallel_threads(), hn_max_i64(1, total / grain));
    if (parts <= 1 || t_inside || !g_gomp_parallel) {
        fn(arg, 0, total);
        return;
    }
    region r = {fn, arg, total, parts};
    TSAN_RELEASE(&r);
    g_gomp_parallel(run_part, &r, (unsigned)parts, 0);
    TSAN_ACQUIRE((char *)&r + 1);
}
