// SPDX-License-Identifier: Apache-2.0
// OpenMP regions of a loaded library on our executor, and libraries that are left alone.
#include <dlfcn.h>
#include "base/parallel.h"
#include "base/team.h"
#include "libs/openmp.h"
#include "support/test.h"

static void *open_fake(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/fakes/lib%s.so", getenv("HONE_BUILD_DIR"), name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    return library;
}

static int setup(void **state) {
    (void)state;
    if (dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL)) return 0;
    print_message("libgomp is not installed\n");
    exit(77);
}

static void regions_of_a_library_run_on_our_executor(void **state) {
    (void)state;
#ifndef __x86_64__
    skip();
#endif
    void *library = open_fake("openmp");
    assert_true(hn_openmp_bind(library));
    int (*run)(unsigned) = (int (*)(unsigned))dlsym(library, "openmp_try");
    uint64_t before = hn_team_regions();
    for (int round = 0; round < 200; round++)
        for (unsigned threads = 1; threads <= 5; threads++)
            assert_int_equal(run(threads), 0);
    assert_int_equal(hn_team_regions() - before, 200 * 4); // one thread is no region
    // 0 threads: as many as this thread is to use.
    int old = hn_parallel_use(1);
    before = hn_team_regions();
    assert_int_equal(run(0), 0);
    assert_int_equal(hn_team_regions(), before);
    hn_parallel_use(old);
    assert_int_equal(run(0), 0);
}

static void others_are_left_alone(void **state) {
    (void)state;
    void *loops = open_fake("openmp_loops"), *none = dlopen("libm.so.6", RTLD_NOW);
    assert_false(hn_openmp_bind(loops));
    assert_false(hn_openmp_bind(none));
#ifndef __SANITIZE_THREAD__ // libgomp's own threads
    uint64_t before = hn_team_regions();
    assert_int_equal(((long (*)(void))dlsym(loops, "openmp_loops"))(), 2);
    assert_int_equal(hn_team_regions(), before);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_of_a_library_run_on_our_executor),
        cmocka_unit_test(others_are_left_alone),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
