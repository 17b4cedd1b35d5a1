// SPDX-License-Identifier: Apache-2.0
// Teams: see team.h. One word a helper says what is going on between it and its caller:
//
//   IDLE   the helper looks for work         OFFER   its part may be begun, by either side
//   SLEEP  the helper waits on the futex     BUSY    the helper runs its part
//                                            WAITED  the same, and the caller waits on the futex
//
// Caller: IDLE|SLEEP -> OFFER (wakes a sleeper), OFFER -> IDLE (takes the part back), BUSY -> WAITED.
// Helper: OFFER -> BUSY, BUSY|WAITED -> IDLE (wakes the caller), IDLE -> SLEEP.
// The region's fields are written before the offers and read after one is accepted; a helper that
// comes late finds no offer and touches nothing.
#include "base/team.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/invalid.h"

enum { IDLE, SLEEP, OFFER, BUSY, WAITED };

#define MAX_PARTS 1024
#define LINE 64 // bytes of a cache line
// How long a helper looks for the next region: longer than the gap between two steps of a plan or two
// runs in a row, shorter than an application's idle time.
#define HELPER_SPIN_NS 200000
// How long a caller looks for the end of the parts that helpers have begun. Beyond it the helper has
// probably lost its CPU, perhaps to this very loop.
#define CALLER_SPIN_NS 100000
#define LOOKS_PER_CLOCK 32 // a pause is 2 to 45 ns, reading the clock 20

typedef struct team team;
typedef struct helper {
    _Alignas(LINE) _Atomic uint32_t word;
    int part;
    bool invalid; // the flag came up in the part; written while BUSY, read and reset by the caller
    team *team;
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

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
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

static void *helper_main(void *arg) {
    helper *h = arg;
    pthread_setname_np(pthread_self(), "hone-helper");
    hn_invalid_clear(); // a new thread begins with its maker's
    for (;;) {
        uint32_t seen = IDLE;
        if (!spin(&h->word, OFFER, true, HELPER_SPIN_NS)) {
            if (atomic_compare_exchange_strong_explicit(&h->word, &seen, SLEEP, memory_order_acq_rel,
                                                        memory_order_acquire))
                while (atomic_load_explicit(&h->word, memory_order_acquire) == SLEEP)
                    futex_wait(&h->word, SLEEP);
            continue;
        }
        seen = OFFER;
        if (!atomic_compare_exchange_strong_explicit(&h->word, &seen, BUSY, memory_order_acq_rel,
                                                     memory_order_acquire))
            continue;
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
static void offer(helper *h) {
    if (atomic_exchange_explicit(&h->word, OFFER, memory_order_acq_rel) == SLEEP)
        futex_wake(&h->word, 1);
}

static bool take_back(helper *h) {
    uint32_t seen = OFFER;
    return atomic_compare_exchange_strong_explicit(&h->word, &seen, IDLE, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static void await(helper *h) {
    if (spin(&h->word, BUSY, false, CALLER_SPIN_NS)) return;
    uint32_t seen = BUSY;
    if (!atomic_compare_exchange_strong_explicit(&h->word, &seen, WAITED, memory_order_acq_rel,
                                                 memory_order_acquire))
        return;
    while (atomic_load_explicit(&h->word, memory_order_acquire) == WAITED)
        futex_wait(&h->word, WAITED);
}

static void run_region(team *t, hn_team_fn fn, void *data, int parts) {
    t->fn = fn;
    t->data = data;
    t->parts = parts;
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    int helpers = parts - 1 < t->helper_count ? parts - 1 : t->helper_count;
    for (int i = 0; i < helpers; i++)
        offer(t->helpers[i]);
    run_part(t, fn, data, 0, parts);
    // From the last one: helpers are woken from the first.
    for (int i = parts - 2; i >= 0; i--) {
        if (i < helpers && !take_back(t->helpers[i])) continue;
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

void hn_team_barrier(void) {
    team *t = t_self.inside;
    if (!t || t_self.parts <= 1) return;
    uint32_t phase = atomic_load_explicit(&t->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)t->parts) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->phase, phase + 1, memory_order_release);
        return;
    }
    // No futex: a region with a barrier in it is short, and a yield gives way to who is missing.
    while (!spin(&t->phase, phase, false, CALLER_SPIN_NS))
        sched_yield();
}
