// SPDX-License-Identifier: Apache-2.0
// Loops over several cores: see parallel.h.
#include "base/parallel.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "base/invalid.h"
#include "base/team.h"

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

typedef struct executor {
    const char *name;
    void (*run)(hn_team_fn fn, void *data, int parts); // NULL: there is none
    int (*part)(void);
    int (*parts)(void); // may be fewer than were asked for
    void (*set_threads)(int threads);
    int (*limit)(void); // NULL: none
} executor;

// ---- libgomp ------------------------------------------------------------------------------------
// GNU OpenMP's entry point for a parallel region; stable ABI since GCC 4.9.
static void (*g_gomp_parallel)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);

static void gomp_run(hn_team_fn fn, void *data, int parts) {
    TSAN_RELEASE(data);
    g_gomp_parallel(fn, data, (unsigned)parts, 0);
    TSAN_ACQUIRE((char *)data + 1);
}

// oneDNN's kernels cut their work for the threads that they ask for: a team of fewer (OMP_DYNAMIC, on a
// busy machine) leaves some undone.
static void (*g_gomp_set_threads)(int threads);
static void (*g_gomp_set_dynamic)(int dynamic);

static void gomp_set_threads(int threads) {
    g_gomp_set_dynamic(0);
    g_gomp_set_threads(threads);
}

static executor g_gomp = {.name = "libgomp"};

static void load_gomp(void) {
    // 10,000 turns of 17 ns (a pause on Sapphire Rapids) bridge the gap between two steps of a plan,
    // not an idle application; libgomp's default is about 8 ms.
    setenv("GOMP_SPINCOUNT", "10000", 0);
    setenv("OMP_DYNAMIC", "false", 1); // for all threads, where nobody has loaded it yet
    void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) return;
    *(void **)&g_gomp.part = dlsym(library, "omp_get_thread_num");
    *(void **)&g_gomp.parts = dlsym(library, "omp_get_num_threads");
    *(void **)&g_gomp_set_threads = dlsym(library, "omp_set_num_threads");
    *(void **)&g_gomp_set_dynamic = dlsym(library, "omp_set_dynamic");
    *(void **)&g_gomp.limit = dlsym(library, "omp_get_thread_limit");
    *(void **)&g_gomp_parallel = dlsym(library, "GOMP_parallel");
    if (!g_gomp.part || !g_gomp.parts || !g_gomp_set_threads || !g_gomp_set_dynamic || !g_gomp_parallel)
        return;
    g_gomp.set_threads = gomp_set_threads;
    g_gomp.run = gomp_run;
}

// ---- the choice ---------------------------------------------------------------------------------
static const executor k_own = {"own", hn_team_run, hn_team_part, hn_team_parts, NULL, NULL};
static const executor *_Atomic g_executor = &k_own;
static pthread_once_t g_gomp_once = PTHREAD_ONCE_INIT;

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static _Atomic int g_threads = 1;
static int g_max = 1;
static _Thread_local int t_threads; // what this thread has asked for, 0: nothing
static _Thread_local int t_inside;  // a region of ours runs on this thread

static void init_once(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) g_max = CPU_COUNT(&set);
    g_threads = g_max;
}

const char *hn_parallel_executor(void) { return g_executor->name; }

int hn_parallel_max(void) {
    pthread_once(&g_once, init_once);
    return g_max;
}

int hn_parallel_threads(void) {
    pthread_once(&g_once, init_once);
    return t_threads ? t_threads : g_threads;
}

// omp's team size is per calling thread; oneDNN reads it there.
static void tell_executor(void) {
    const executor *e = g_executor;
    if (e->set_threads) e->set_threads(hn_parallel_threads());
}

static int bounded(int threads) {
    const executor *e = g_executor;
    int max = hn_parallel_max();
    if (e->limit) max = (int)hn_min_i64(max, e->limit()); // OMP_THREAD_LIMIT
    return threads < 1 ? 1 : threads > max ? max : threads;
}

void hn_parallel_set_threads(int threads) {
    g_threads = bounded(threads);
    tell_executor();
}

int hn_parallel_use(int threads) {
    int before = t_threads;
    t_threads = threads ? bounded(threads) : 0;
    if (t_threads != before) tell_executor();
    return before;
}

bool hn_parallel_choose(const char *name) {
    if (!*name || !strcmp(name, k_own.name)) {
        g_executor = &k_own;
        return true;
    }
    if (strcmp(name, g_gomp.name) != 0) return false;
    pthread_once(&g_gomp_once, load_gomp);
    g_executor = &g_gomp;
    hn_parallel_max();
    hn_parallel_set_threads(g_threads);
    return true;
}

// ---- loops --------------------------------------------------------------------------------------
typedef struct region {
    hn_range_fn fn;
    void *arg;
    int64_t total, parts;
    const executor *executor;
} region;

static void run_part(void *data) {
    region *r = data;
    TSAN_ACQUIRE(r);
    // libgomp may grant fewer threads than were asked for: stride over the parts.
    int64_t team = r->executor->parts();
    t_inside++;
    for (int64_t part = r->executor->part(); part < r->parts; part += team) {
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
    const executor *e = g_executor;
    if (parts <= 1 || t_inside || !e->run) {
        fn(arg, 0, total);
        return;
    }
    region r = {fn, arg, total, parts, e};
    e->run(run_part, &r, (int)parts);
}

// ---- the invalid flag ---------------------------------------------------------------------------
static void take_flag(void *found, int64_t begin, int64_t end) {
    (void)begin;
    (void)end;
    if (!hn_invalid_test()) return;
    atomic_store_explicit((_Atomic bool *)found, true, memory_order_relaxed);
    hn_invalid_clear();
}

// Our team hands the flag to the caller; in libgomp's one has to look at each thread.
bool hn_parallel_invalid(void) {
    if (g_executor == &k_own) return hn_invalid_test();
    _Atomic bool found = false;
    hn_parallel_for(hn_parallel_threads(), 1, take_flag, &found);
    return found;
}

void hn_parallel_invalid_clear(void) {
    if (g_executor == &k_own) hn_invalid_clear();
    else hn_parallel_invalid();
}
