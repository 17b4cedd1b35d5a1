// SPDX-License-Identifier: Apache-2.0
// Teams: see team.h. One word a helper says what is going on between it and its caller:
//
//   IDLE   the helper looks for work         OFFER   its part may be begun, by either side
//   SLEEP  it waits on the futex             BUSY    the helper runs its part
//   REST   the same, and wakes by itself     WAITED  the same, and the caller waits on the futex
//
// Caller: IDLE|SLEEP|REST -> OFFER (wakes a sleeper), OFFER -> IDLE (takes the part back),
//         BUSY -> WAITED.
// Helper: OFFER -> BUSY, BUSY|WAITED -> IDLE (wakes the caller), IDLE -> SLEEP|REST.
// The region's fields are written before the offers and read after one is accepted; a helper that
// comes late finds no offer and touches nothing.
//
// On CPUs that others use as well, a helper can cost more than it brings. One that has missed
// CRAWL_NS of its caller's work, or that has kept its caller waiting so long without running, is told
// to rest: it is not woken for a while, and the caller does its parts. Caller and helper that find
// themselves on one CPU do not spin against each other; the helper moves where its team's CPUs allow it.
#include "base/team.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/invalid.h"

enum { IDLE, SLEEP, REST, OFFER, BUSY, WAITED };

#define MAX_PARTS 1024
#define LINE 64 // bytes of a cache line
// How long a helper looks for the next region: longer than the gap between two steps of a plan or two
// runs in a row, shorter than an application's idle time.
#define HELPER_SPIN_NS 200000
// How long a caller looks for the end of the parts that helpers have begun. Beyond it the helper has
// probably lost its CPU, perhaps to this very loop.
#define CALLER_SPIN_NS 100000
// A sleeping helper is there after 5 to 60 us; one that loses more than this has no CPU.
#define CRAWL_NS 300000
// A region that is over before this may well be missed by a helper that is looking for it.
#define SHORT_NS 2000
// Rests double from the first to the last while the time between them is short: a competitor's time
// slice is about 3 ms, and each rest ends with the loss of one at worst. Competitors that come and go
// (threads of another pool that spin for a while) cost the first rests only.
#define REST_MIN_NS 1000000
#define REST_MAX_NS 32000000
#define GOOD_NS 8000000
#define LOOKS_PER_CLOCK 32 // a pause is 2 to 45 ns, reading the clock 20

typedef struct team team;
typedef struct helper {
    _Alignas(LINE) _Atomic uint32_t word;
    _Atomic int cpu;      // where it began its part, or went to sleep
    _Atomic pid_t thread; // 0 until it runs
    _Atomic bool tired;   // told to rest
    _Atomic bool resting; // and does
    int part;
    bool invalid; // the flag came up in the part; written while BUSY, read and reset by the caller
    team *team;
    // the caller's
    _Alignas(LINE) clockid_t clock; // CPU time of the helper
    int64_t missed_ns;              // the caller's work since the helper last accepted an offer
    int64_t stalled_ns;             // the caller's waiting for a helper that did not run
    bool missed;                    // the last offer
} helper;

struct team {
    _Alignas(LINE) _Atomic bool taken; // by a caller, who owns all below meanwhile
    team *next;                        // never changes once the team is listed
    cpu_set_t cpus;
    helper **helpers;
    int helper_count, helper_room;
    // the region
    hn_team_fn fn;
    void *data;
    int parts;
    int offered; // helpers that were offered a part, the first ones
    _Atomic int caller_cpu;
    _Alignas(LINE) _Atomic uint32_t arrived; // at the barrier
    _Alignas(LINE) _Atomic uint32_t phase;   // of the barrier
};

static _Atomic(team *) g_teams;
static pthread_once_t g_once = PTHREAD_ONCE_INIT;

static _Thread_local struct {
    team *last;   // used by this caller before
    team *inside; // of the region whose part this thread runs
    int part, parts, active;
    uint64_t regions, taken_over;
} t_self = {.parts = 1};

int hn_team_part(void) { return t_self.part; }
int hn_team_parts(void) { return t_self.parts; }
bool hn_team_active(void) { return t_self.active > 0; }
uint64_t hn_team_regions(void) { return t_self.regions; }
uint64_t hn_team_taken_over(void) { return t_self.taken_over; }

// ---- waiting ------------------------------------------------------------------------------------
static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// ns 0: for any time.
static void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, ns ? &time : NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

// Looks at the word until it is (or, with `until` false, is no longer) `value`, for at most ns.
static bool spin(_Atomic uint32_t *word, uint32_t value, bool until, int64_t ns) {
    int64_t end = 0;
    for (;;) {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == until) return true;
            relax();
        }
        int64_t now = hn_clock_ns();
        if (!end) end = now + ns;
        else if (now >= end) return false;
    }
}

// ---- parts --------------------------------------------------------------------------------------
static void run_part(team *t, hn_team_fn fn, void *data, int part, int parts) {
    team *inside = t_self.inside;
    int old_part = t_self.part, old_parts = t_self.parts;
    t_self.inside = t;
    t_self.part = part;
    t_self.parts = parts;
    t_self.active += parts > 1;
    fn(data);
    t_self.active -= parts > 1;
    t_self.inside = inside;
    t_self.part = old_part;
    t_self.parts = old_parts;
}

// On the caller's CPU a helper can only take turns with it. The scheduler likes to wake it there, and
// leaves it there while the bursts of work are short: so it moves, where it may be elsewhere.
static void move_apart(helper *h, int cpu) {
    cpu_set_t others = h->team->cpus;
    pid_t thread = atomic_load_explicit(&h->thread, memory_order_relaxed);
    if (!thread || cpu < 0 || cpu >= CPU_SETSIZE) return;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0) (void)sched_setaffinity(thread, sizeof others, &others);
}

typedef struct rests {
    int64_t next_ns, ended_ns;
} rests;

// Not woken by offers; the word may say anything but BUSY when it is over.
static void rest(helper *h, rests *r) {
    uint32_t seen = IDLE;
    if (!atomic_compare_exchange_strong_explicit(&h->word, &seen, REST, memory_order_acq_rel,
                                                 memory_order_acquire))
        return; // an offer came; it is accepted first
    bool fresh = hn_clock_ns() - r->ended_ns > GOOD_NS;
    r->next_ns = fresh ? REST_MIN_NS : hn_min_i64(2 * r->next_ns, REST_MAX_NS);
    atomic_store_explicit(&h->tired, false, memory_order_relaxed);
    atomic_store_explicit(&h->resting, true, memory_order_relaxed);
    futex_wait(&h->word, REST, r->next_ns);
    atomic_store_explicit(&h->resting, false, memory_order_relaxed);
    r->ended_ns = hn_clock_ns();
    seen = REST;
    atomic_compare_exchange_strong_explicit(&h->word, &seen, IDLE, memory_order_acq_rel,
                                            memory_order_acquire);
}

static void sleep_on(helper *h) {
    uint32_t seen = IDLE;
    atomic_store_explicit(&h->cpu, sched_getcpu(), memory_order_relaxed);
    if (!atomic_compare_exchange_strong_explicit(&h->word, &seen, SLEEP, memory_order_acq_rel,
                                                 memory_order_acquire))
        return; // an offer came
    while (atomic_load_explicit(&h->word, memory_order_acquire) == SLEEP)
        futex_wait(&h->word, SLEEP, 0);
}

static void *helper_main(void *arg) {
    helper *h = arg;
    rests r = {REST_MIN_NS, 0};
    pthread_setname_np(pthread_self(), "hone-helper");
    hn_invalid_clear(); // a new thread begins with its maker's
    atomic_store_explicit(&h->thread, (pid_t)syscall(SYS_gettid), memory_order_relaxed);
    for (;;) {
        if (atomic_load_explicit(&h->tired, memory_order_relaxed)) rest(h, &r);
        // The caller cannot offer anything while this thread holds its CPU.
        int cpu = atomic_load_explicit(&h->team->caller_cpu, memory_order_relaxed);
        if (cpu == sched_getcpu()) move_apart(h, cpu);
        bool apart = cpu != sched_getcpu();
        if (!spin(&h->word, OFFER, true, apart ? HELPER_SPIN_NS : 0)) {
            sleep_on(h);
            continue;
        }
        uint32_t seen = OFFER;
        if (!atomic_compare_exchange_strong_explicit(&h->word, &seen, BUSY, memory_order_acq_rel,
                                                     memory_order_acquire))
            continue;
        atomic_store_explicit(&h->cpu, sched_getcpu(), memory_order_relaxed);
        run_part(h->team, h->team->fn, h->team->data, h->part, h->team->parts);
        if (hn_invalid_test()) {
            h->invalid = true;
            hn_invalid_clear();
        }
        if (atomic_exchange_explicit(&h->word, IDLE, memory_order_acq_rel) == WAITED)
            futex_wake(&h->word, 1);
    }
    return NULL;
}

// ---- teams --------------------------------------------------------------------------------------
// Only the thread that called fork() lives on in the child: helpers are gone, teams of other callers
// may be in any state.
static void forget_teams(void) {
    atomic_store(&g_teams, NULL);
    t_self.last = NULL;
}

static void init_once(void) { pthread_atfork(NULL, NULL, forget_teams); }

// Starts helpers until there are `wanted`; fewer when the system gives no more threads.
static void add_helpers(team *t, int wanted) {
    if (wanted > t->helper_room) {
        helper **more = hn_realloc(t->helpers, (size_t)wanted * sizeof *more);
        if (!more) return;
        t->helpers = more;
        t->helper_room = wanted;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attr;
    bool fine = pthread_attr_init(&attr) == 0;
    if (fine) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    while (fine && t->helper_count < wanted) {
        helper *h = hn_malloc_aligned(sizeof *h);
        if (!h) break;
        *h = (helper){.part = t->helper_count + 1, .team = t};
        pthread_t thread;
        if (pthread_create(&thread, &attr, helper_main, h) != 0) {
            hn_free(h);
            break;
        }
        if (pthread_getcpuclockid(thread, &h->clock) != 0) h->clock = CLOCK_MONOTONIC; // always runs
        t->helpers[t->helper_count++] = h;
    }
    if (fine) pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool try_take(team *t) {
    return !atomic_load_explicit(&t->taken, memory_order_relaxed) &&
           !atomic_exchange_explicit(&t->taken, true, memory_order_acquire);
}

// A free team whose helpers may run where this thread may, else a new one; NULL when out of memory.
static team *find_team(void) {
    pthread_once(&g_once, init_once);
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) CPU_ZERO(&cpus);
    for (team *t = atomic_load_explicit(&g_teams, memory_order_acquire); t; t = t->next)
        if (CPU_EQUAL(&t->cpus, &cpus) && try_take(t)) return t;
    team *t = hn_malloc_aligned(sizeof *t);
    if (!t) return NULL;
    memset(t, 0, sizeof *t);
    t->cpus = cpus;
    atomic_init(&t->taken, true);
    t->next = atomic_load(&g_teams);
    while (!atomic_compare_exchange_weak(&g_teams, &t->next, t)) {}
    return t;
}

static team *take_team(int helpers) {
    team *t = t_self.last;
    if (!t || !try_take(t)) t = find_team();
    if (!t) return NULL;
    t_self.last = t;
    if (t->helper_count < helpers) add_helpers(t, helpers);
    return t;
}

// ---- regions ------------------------------------------------------------------------------------
static void offer(helper *h, int cpu) {
    if (atomic_exchange_explicit(&h->word, OFFER, memory_order_acq_rel) != SLEEP) return;
    if (atomic_load_explicit(&h->cpu, memory_order_relaxed) == cpu) move_apart(h, cpu);
    futex_wake(&h->word, 1);
}

static void offer_parts(team *t) {
    int cpu = atomic_load_explicit(&t->caller_cpu, memory_order_relaxed);
    while (t->offered + 1 < t->parts && t->offered < t->helper_count)
        offer(t->helpers[t->offered++], cpu);
}

static bool take_back(helper *h) {
    uint32_t seen = OFFER;
    return atomic_compare_exchange_strong_explicit(&h->word, &seen, IDLE, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static void lose(helper *h, int64_t *lost_ns, int64_t ns) {
    if ((*lost_ns += ns) < CRAWL_NS) return;
    *lost_ns = 0;
    atomic_store_explicit(&h->tired, true, memory_order_relaxed);
}

// A part that the helper does on the caller's own CPU is as good as missed. The time is asked for only
// while helpers miss offers; `start` is 0 otherwise.
static void account(helper *h, bool missed, int cpu, int64_t start) {
    if (!missed) missed = atomic_load_explicit(&h->cpu, memory_order_relaxed) == cpu;
    h->missed = missed;
    if (!missed) h->missed_ns = 0;
    else if (start && !atomic_load_explicit(&h->resting, memory_order_relaxed)) {
        int64_t ns = hn_clock_ns() - start;
        if (ns >= SHORT_NS) lose(h, &h->missed_ns, ns);
    }
}

static int64_t now_on(clockid_t clock) {
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void await(helper *h) {
    bool apart = atomic_load_explicit(&h->cpu, memory_order_relaxed) != sched_getcpu();
    if (spin(&h->word, BUSY, false, apart ? CALLER_SPIN_NS : 0)) return;
    uint32_t seen = BUSY;
    int64_t start = hn_clock_ns(), ran = now_on(h->clock);
    if (!atomic_compare_exchange_strong_explicit(&h->word, &seen, WAITED, memory_order_acq_rel,
                                                 memory_order_acquire))
        return;
    while (atomic_load_explicit(&h->word, memory_order_acquire) == WAITED)
        futex_wait(&h->word, WAITED, 0);
    // A part may just be long; what counts is time in which the helper did not run.
    int64_t waited = hn_clock_ns() - start, stood = waited - (now_on(h->clock) - ran);
    if (stood > waited / 4) lose(h, &h->stalled_ns, stood);
    else h->stalled_ns = 0;
}

static void run_region(team *t, hn_team_fn fn, void *data, int parts) {
    t->fn = fn;
    t->data = data;
    t->parts = parts;
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    int cpu = sched_getcpu();
    atomic_store_explicit(&t->caller_cpu, cpu, memory_order_relaxed);
    t->offered = 0;
    bool missing = false;
    for (int i = 0; i + 1 < parts && i < t->helper_count; i++)
        missing |= t->helpers[i]->missed;
    int64_t start = missing ? hn_clock_ns() : 0;
    offer_parts(t);
    run_part(t, fn, data, 0, parts);
    int helpers = t->offered; // a barrier may have added some
    // From the last one: helpers are woken from the first.
    for (int i = parts - 2; i >= 0; i--) {
        bool missed = i >= helpers || take_back(t->helpers[i]);
        if (i < helpers) account(t->helpers[i], missed, cpu, start);
        if (!missed) continue;
        t_self.taken_over++;
        run_part(t, fn, data, i + 1, parts);
    }
    for (int i = 0; i < helpers; i++) {
        await(t->helpers[i]);
        if (!t->helpers[i]->invalid) continue;
        t->helpers[i]->invalid = false;
        hn_invalid_set();
    }
}

void hn_team_run(hn_team_fn fn, void *data, int parts) {
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    if (parts <= 1 || t_self.active) {
        run_part(NULL, fn, data, 0, 1);
        return;
    }
    t_self.regions++;
    team *t = take_team(parts - 1);
    if (!t) {
        for (int i = 0; i < parts; i++)
            run_part(NULL, fn, data, i, parts);
        return;
    }
    run_region(t, fn, data, parts);
    atomic_store_explicit(&t->taken, false, memory_order_release);
}

int hn_team_limit(int parts) {
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    if (parts <= 1 || t_self.active) return parts;
    team *t = take_team(parts - 1);
    if (!t) return 1;
    int most = t->helper_count + 1;
    atomic_store_explicit(&t->taken, false, memory_order_release);
    return parts < most ? parts : most;
}

static void wake_all(team *t) {
    for (int i = 0; i < t->offered; i++)
        if (atomic_load_explicit(&t->helpers[i]->resting, memory_order_relaxed))
            futex_wake(&t->helpers[i]->word, 1);
}

void hn_team_barrier(void) {
    team *t = t_self.inside;
    if (!t || t_self.parts <= 1) return;
    uint32_t phase = atomic_load_explicit(&t->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)t->parts) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->phase, phase + 1, memory_order_release);
        return;
    }
    // Who rests is needed now. No futex for the wait: a region with a barrier in it is short, and a
    // yield gives way to who is missing.
    if (!t_self.part) wake_all(t);
    while (!spin(&t->phase, phase, false, CALLER_SPIN_NS)) {
        sched_yield();
        // Threads that the system refused before: nobody else can bring the others on from here.
        if (t_self.part || t->offered + 1 >= t->parts) continue;
        add_helpers(t, t->parts - 1);
        offer_parts(t);
    }
}
