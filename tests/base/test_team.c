// SPDX-License-Identifier: Apache-2.0
// Teams: every part once whatever the helpers do, regions in many threads, fork, signals, CPU masks.
// TEST-TIMEOUT 120
#include "base/team.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/invalid.h"
#include "base/parallel.h"
#include "support/test.h"

#define MOST 40

// The system's refusal of threads: so many more calls are answered EAGAIN, negative: all.
static _Atomic int g_refusals;
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    int left = atomic_load(&g_refusals);
    if (left > 0) atomic_fetch_sub(&g_refusals, 1);
    return left ? EAGAIN : real(thread, attr, fn, arg);
}

typedef struct job {
    int parts;
    _Atomic int seen[MOST], wrong;
} job;

static void note(job *j, bool fine) {
    if (!fine) atomic_fetch_add(&j->wrong, 1);
}

static void count_part(void *data) {
    job *j = data;
    note(j, hn_team_parts() == j->parts && hn_team_active() == (j->parts > 1));
    atomic_fetch_add(&j->seen[hn_team_part()], 1);
}

static bool each_once(const job *j) {
    for (int i = 0; i < MOST; i++)
        if (j->seen[i] != (i < j->parts)) return false;
    return !j->wrong;
}

static void each_part_runs_once(void **state) {
    (void)state;
    for (int round = 0; round < 100; round++)
        for (int parts = 1; parts <= MOST; parts += 1 + parts / 4) {
            job j = {.parts = parts};
            hn_team_run(count_part, &j, parts);
            assert_true(each_once(&j));
            assert_int_equal(hn_team_part(), 0);
            assert_int_equal(hn_team_parts(), 1);
            assert_false(hn_team_active());
        }
}

static void nested_part(void *data) {
    job *j = data;
    note(j, hn_team_parts() == 1 && hn_team_part() == 0 && hn_team_active());
    hn_team_barrier(); // of one
    atomic_fetch_add(&j->seen[0], 1);
}

static void part_with_nested_region(void *data) {
    job *j = data;
    int me = hn_team_part();
    job inner = {0};
    hn_team_run(nested_part, &inner, 7);
    note(j, inner.seen[0] == 1 && !inner.wrong && hn_team_part() == me);
    count_part(data);
}

static void nested_regions_are_serial(void **state) {
    (void)state;
    for (int round = 0; round < 500; round++) {
        job j = {.parts = 3};
        hn_team_run(part_with_nested_region, &j, 3);
        assert_true(each_once(&j));
    }
}

static void part_with_barriers(void *data) {
    job *j = data;
    for (int round = 1; round <= 4; round++) {
        atomic_fetch_add(&j->seen[MOST - 1], 1);
        hn_team_barrier();
        note(j, atomic_load(&j->seen[MOST - 1]) == round * j->parts);
        hn_team_barrier();
    }
    count_part(data);
}

static void barriers_hold(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++)
        for (int parts = 2; parts <= 9; parts += 1 + round % 3) {
            if (round % 50 == 0) usleep(1000); // helpers sleep by then and must be woken
            job j = {.parts = parts};
            hn_team_run(part_with_barriers, &j, parts);
            j.seen[MOST - 1] = 0;
            assert_true(each_once(&j));
        }
}

// ---- several callers ----------------------------------------------------------------------------
static void *call_often(void *arg) {
    intptr_t bad = 0;
    for (int round = 0; round < 200; round++) {
        job j = {.parts = 1 + (round + (int)(intptr_t)arg) % 5};
        hn_team_run(round % 8 ? count_part : part_with_barriers, &j, j.parts);
        if (round % 8 == 0) j.seen[MOST - 1] = 0;
        bad += !each_once(&j);
        if (round % 16 == 0) usleep(300);
    }
    return (void *)bad;
}

static void callers_in_many_threads(void **state) {
    (void)state;
    pthread_t threads[6];
    for (intptr_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, (void *)i), 0);
    for (int i = 0; i < 6; i++) {
        void *bad;
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
}

// ---- helpers that come late, or never -------------------------------------------------------------
static int child_status(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// A fork behind the C library's back: the team is there, its helpers are not and never will be.
static void caller_takes_over_what_helpers_do_not_begin(void **state) {
    (void)state;
    job warm = {.parts = 5};
    hn_team_run(count_part, &warm, 5);
    fflush(NULL);
    pid_t child = (pid_t)syscall(SYS_fork);
    assert_true(child >= 0);
    if (!child) {
        alarm(20);
        for (int round = 0; round < 1000; round++) {
            job j = {.parts = 5};
            uint64_t before = hn_team_taken_over();
            hn_team_run(count_part, &j, 5);
            if (!each_once(&j)) _exit(1);
            if (hn_team_taken_over() - before != 4) _exit(2);
        }
        _exit(0);
    }
    assert_int_equal(child_status(child), 0);
}

static void child_of_fork_has_a_team_again(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); // it allows no new threads after fork
#endif
    job warm = {.parts = 3};
    hn_team_run(count_part, &warm, 3);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        alarm(20);
        for (int round = 0; round < 100; round++) {
            job j = {.parts = 3};
            hn_team_run(part_with_barriers, &j, 3); // needs two helpers that run
            j.seen[MOST - 1] = 0;
            if (!each_once(&j)) _exit(1);
        }
        _exit(0);
    }
    assert_int_equal(child_status(child), 0);
}

static void slow_helper(void *data) {
    hn_team_barrier(); // all parts have begun
    if (hn_team_part()) usleep(20000);
    count_part(data);
}

static void caller_waits_for_parts_that_have_begun(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        job j = {.parts = 3};
        uint64_t before = hn_team_taken_over();
        hn_team_run(slow_helper, &j, 3);
        assert_true(each_once(&j));
        assert_int_equal(hn_team_taken_over(), before);
    }
}

static void runs_without_memory(void **state) {
    (void)state;
    pthread_t other;
    // Hold the teams of the other tests: a caller in another thread needs one of its own.
    job warm = {.parts = 2};
    hn_team_run(count_part, &warm, 2);
    uint64_t calls = hn_alloc_calls();
    for (int round = 0; round < 100; round++)
        hn_team_run(count_part, &(job){.parts = 2}, 2);
    assert_int_equal(hn_alloc_calls(), calls);
    for (int nth = 1; nth <= 3; nth++) { // the list of helpers, then a helper
        hn_alloc_fail_nth((uint64_t)nth);
        job j = {.parts = MOST - 3 + nth};
        hn_team_run(count_part, &j, j.parts);
        assert_true(each_once(&j));
        hn_alloc_fail_nth(0);
    }
    void *bad;
    assert_int_equal(pthread_create(&other, NULL, call_often, NULL), 0);
    assert_int_equal(pthread_join(other, &bad), 0);
    assert_null(bad);
}

// ---- manners ------------------------------------------------------------------------------------
static _Atomic int g_signals;
static void on_signal(int number) {
    (void)number;
    atomic_fetch_add(&g_signals, 1);
}

static void helpers_take_no_signals(void **state) {
    (void)state;
    job warm = {.parts = 4};
    hn_team_run(part_with_barriers, &warm, 4);
    struct sigaction act = {.sa_handler = on_signal}, before;
    sigaction(SIGUSR1, &act, &before);
    sigset_t set, old, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    kill(getpid(), SIGUSR1);
    usleep(5000);
    sigpending(&pending);
    assert_int_equal(atomic_load(&g_signals), 0);
    assert_true(sigismember(&pending, SIGUSR1));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    assert_int_equal(atomic_load(&g_signals), 1);
    sigaction(SIGUSR1, &before, NULL);
}

static void note_mask(void *data) {
    job *j = data;
    cpu_set_t cpus;
    hn_team_barrier(); // so that helpers run their parts themselves
    note(j, sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1);
    count_part(data);
}

static bool stay_on_one_cpu(void) {
    cpu_set_t cpus, one;
    sched_getaffinity(0, sizeof cpus, &cpus);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &cpus))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

static void *call_on_one_cpu(void *arg) {
    if (!stay_on_one_cpu()) return (void *)1;
    for (int round = 0; round < 20; round++)
        hn_team_run(note_mask, arg, 2);
    return NULL;
}

static void helpers_stay_on_the_callers_cpus(void **state) {
    (void)state;
    if (hn_parallel_max() < 2) skip();
    job warm = {.parts = 2}, j = {.parts = 2};
    hn_team_run(count_part, &warm, 2); // a free team with the wider mask is there
    pthread_t other;
    void *failed;
    assert_int_equal(pthread_create(&other, NULL, call_on_one_cpu, &j), 0);
    assert_int_equal(pthread_join(other, &failed), 0);
    assert_null(failed);
    assert_int_equal(j.wrong, 0);
    assert_int_equal(j.seen[0], 20);
    assert_int_equal(j.seen[1], 20);
}

// ---- the invalid flag ---------------------------------------------------------------------------
static void divide_zero_by_zero(void *data) {
    job *j = data;
    volatile float zero = 0, quotient = 1;
    hn_team_barrier(); // so that helpers run their parts themselves
    note(j, !hn_invalid_test());
    if (hn_team_part() == j->parts - 1) quotient = zero / zero;
    note(j, (quotient == 1) == (hn_team_part() != j->parts - 1));
    hn_team_barrier();
}

static void invalid_flag_comes_back(void **state) {
    (void)state;
    job j = {.parts = 3}, quiet = {.parts = 3};
    for (int round = 0; round < 20; round++) {
        hn_parallel_invalid_clear();
        assert_false(hn_parallel_invalid());
        hn_team_run(divide_zero_by_zero, &j, 3);
        assert_true(hn_parallel_invalid());
        hn_parallel_invalid_clear();
        hn_team_run(count_part, &quiet, 3); // nothing is left over in the helpers
        assert_false(hn_parallel_invalid());
    }
    assert_int_equal(j.wrong, 0);
}

static void short_work(void *data) {
    int64_t end = hn_clock_ns() + 20000;
    while (hn_clock_ns() < end) {}
    count_part(data);
}

// A helper on its caller's CPU brings nothing: it is told to rest, and the caller does its parts. A
// barrier needs it all the same.
static void *tire_a_helper(void *arg) {
    (void)arg;
    if (!stay_on_one_cpu()) return "no affinity";
    uint64_t regions = hn_team_regions(), taken = hn_team_taken_over();
    for (int64_t end = hn_clock_ns() + 300000000; hn_clock_ns() < end;) {
        job j = {.parts = 2};
        hn_team_run(short_work, &j, 2);
        if (!each_once(&j)) return "a part was lost";
    }
    if ((hn_team_taken_over() - taken) * 10 < (hn_team_regions() - regions) * 7) return "it did not rest";
    int64_t start = hn_clock_ns();
    for (int round = 0; round < 20; round++) {
        job j = {.parts = 2};
        hn_team_run(part_with_barriers, &j, 2);
        j.seen[MOST - 1] = 0;
        if (!each_once(&j)) return "a barrier did not hold";
    }
    return hn_clock_ns() - start < 5000000000 ? NULL : "barriers waited for a rest to end";
}

static void helpers_without_a_cpu_rest(void **state) {
    (void)state;
    pthread_t other;
    void *wrong;
    assert_int_equal(pthread_create(&other, NULL, tire_a_helper, NULL), 0);
    assert_int_equal(pthread_join(other, &wrong), 0);
    if (wrong) fail_msg("%s", (const char *)wrong);
}

// ---- loops over a team --------------------------------------------------------------------------
static void *use_two(void *arg) {
    (void)arg;
    int before = hn_parallel_use(2), here = hn_parallel_threads();
    return (void *)(intptr_t)(before == 0 && here == (hn_parallel_max() < 2 ? 1 : 2));
}

static void thread_counts_are_a_threads_own(void **state) {
    (void)state;
    int process = hn_parallel_threads();
    assert_int_equal(hn_parallel_use(1), 0);
    pthread_t other;
    void *fine;
    assert_int_equal(pthread_create(&other, NULL, use_two, NULL), 0);
    assert_int_equal(pthread_join(other, &fine), 0);
    assert_non_null(fine);
    assert_int_equal(hn_parallel_threads(), 1);
    assert_int_equal(hn_parallel_use(1 << 20), 1);
    assert_int_equal(hn_parallel_threads(), hn_parallel_max());
    hn_parallel_use(0);
    assert_int_equal(hn_parallel_threads(), process);
}

static void executors_are_chosen_by_name(void **state) {
    (void)state;
    assert_string_equal(hn_parallel_executor(), "own");
    assert_false(hn_parallel_choose("openmp"));
    assert_string_equal(hn_parallel_executor(), "own");
    assert_true(hn_parallel_choose("own"));
    assert_true(hn_parallel_choose(""));
    assert_string_equal(hn_parallel_executor(), "own");
}

// What a limit takes away must be known before oneDNN cuts its work, not when a region begins.
static void a_limit_of_libgomp_is_known(void **state) {
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        setenv("OMP_THREAD_LIMIT", "1", 1);
        bool chosen = hn_parallel_choose("libgomp");
        if (!dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD)) _exit(0); // none here
        int first = hn_parallel_threads();
        hn_parallel_use(1 << 20);
        _exit(chosen && first == 1 && hn_parallel_threads() == 1 ? 0 : 1);
    }
    assert_int_equal(child_status(child), 0);
}

// In a child: its teams are new, with no helper yet.
static void refused_threads_are_made_up_for(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); // it allows no new threads after fork
#endif
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        g_refusals = -1;
        bool fine = hn_team_limit(4) == 1;
        job serial = {.parts = 5};
        hn_team_run(count_part, &serial, 5);
        fine &= each_once(&serial);
        g_refusals = 20;
        job late = {.parts = 4}; // waits at its first barrier until there are threads
        hn_team_run(part_with_barriers, &late, 4);
        late.seen[MOST - 1] = 0;
        fine &= each_once(&late) && !g_refusals && hn_team_limit(4) == 4 && hn_team_limit(1) == 1;
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(child_status(child), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_runs_once),
        cmocka_unit_test(nested_regions_are_serial),
        cmocka_unit_test(barriers_hold),
        cmocka_unit_test(callers_in_many_threads),
        cmocka_unit_test(caller_takes_over_what_helpers_do_not_begin),
        cmocka_unit_test(child_of_fork_has_a_team_again),
        cmocka_unit_test(caller_waits_for_parts_that_have_begun),
        cmocka_unit_test(refused_threads_are_made_up_for),
        cmocka_unit_test(runs_without_memory),
        cmocka_unit_test(helpers_take_no_signals),
        cmocka_unit_test(helpers_stay_on_the_callers_cpus),
        cmocka_unit_test(invalid_flag_comes_back),
        cmocka_unit_test(helpers_without_a_cpu_rest),
        cmocka_unit_test(thread_counts_are_a_threads_own),
        cmocka_unit_test(executors_are_chosen_by_name),
        cmocka_unit_test(a_limit_of_libgomp_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
