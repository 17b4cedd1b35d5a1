// SPDX-License-Identifier: Apache-2.0
// Binding and claims on this very machine: a child gets the CPUs it was given, jobs do not meet, a dead
// owner holds nothing, launchers are left their own.
#include "support/test.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "place/job.h"

static char g_folder[] = "/tmp/hone-claims-XXXXXX";

static int allowed_count(void) {
    hn_place_cpuset cpus;
    assert_int_equal(hn_place_allowed_cpus(NULL, &cpus), HONE_OK);
    return hn_place_cpuset_count(&cpus);
}

static void no_launcher(void) {
    static const char *const k_names[] = {
        "TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
        "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_STEP_ID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_CPU_BIND_TYPE",
        "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CUDA_DEVICE_ORDER"};
    for (size_t i = 0; i < HN_COUNT_OF(k_names); i++) unsetenv(k_names[i]);
}

// Runs a child under a binding; its status is 0 if what it sees is right.
static int child_sees(const hn_place_binding *binding, const hn_place_cpuset *want) {
    pid_t pid = fork();
    if (pid == 0) {
        if (hn_place_binding_apply(binding) != 0) _exit(2);
        hn_place_cpuset cpus;
        if (hn_place_allowed_cpus(NULL, &cpus) != HONE_OK) _exit(3);
        _exit(hn_place_cpuset_equal(&cpus, want) ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static void test_jobs_do_not_meet(void **state) {
    (void)state;
    no_launcher();
    hone_error err = {0};
    hn_place_request one = {.cpus = 1};
    int cpus = allowed_count(), jobs = cpus < 8 ? cpus : 8;
    hn_place_job *job = hn_calloc((size_t)jobs, sizeof *job);
    hn_place_cpuset taken = {{0}};
    for (int i = 0; i < jobs; i++) {
        if (hn_place_job_open(&err, &one, &job[i]) != HONE_OK) fail_msg("job %d: %s", i, err.text);
        assert_true(job[i].binding.bind_cpus);
        assert_int_equal(hn_place_cpuset_count(&job[i].binding.cpus), 1);
        assert_false(hn_place_cpuset_meet(&taken, &job[i].binding.cpus));
        hn_place_cpuset_or(&taken, &job[i].binding.cpus);
        assert_int_equal(child_sees(&job[i].binding, &job[i].binding.cpus), 0);
    }
    if (jobs == cpus) {
        hn_place_job more;
        assert_int_equal(hn_place_job_open(&err, &one, &more), HONE_ERR_CHECK);
        assert_non_null(strstr(err.text, "needs 1 CPU and 0"));
    }
    hn_place_cpuset first = job[0].binding.cpus;
    hn_place_job_close(&job[0]);
    assert_int_equal(hn_place_job_open(&err, &one, &job[0]), HONE_OK); // what was released is there again
    if (jobs == cpus) assert_true(hn_place_cpuset_equal(&first, &job[0].binding.cpus));
    for (int i = 0; i < jobs; i++) hn_place_job_close(&job[i]);
    hn_free(job);
}

// The owner is killed without a chance to clean up: its CPUs are free at once.
static void test_dead_owner(void **state) {
    (void)state;
    no_launcher();
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    hone_error err = {0};
    hn_place_request all = {.cpus = allowed_count()};
    pid_t pid = fork();
    if (pid == 0) {
        hn_place_job job;
        char word = hn_place_job_open(&err, &all, &job) == HONE_OK ? 'y' : 'n';
        if (write(ready[1], &word, 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    char word;
    assert_int_equal(read(ready[0], &word, 1), 1);
    assert_int_equal(word, 'y');
    hn_place_machine none = {0};
    hn_place_cpuset held;
    uint64_t cards;
    assert_int_equal(hn_place_claims_held(&err, &none, &held, &cards), HONE_OK);
    assert_int_equal(hn_place_cpuset_count(&held), all.cpus);
    hn_place_job job;
    assert_int_equal(hn_place_job_open(&err, &all, &job), HONE_ERR_CHECK);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(hn_place_job_open(&err, &all, &job), HONE_OK);
    hn_place_job_close(&job);
    close(ready[0]), close(ready[1]);
}

static void test_launchers(void **state) {
    (void)state;
    static const struct {
        const char *env[4][2];
        hn_place_launcher_kind kind;
        int rank;
        bool cards, cpus;
    } k_rows[] = {
        {{{"TORCHELASTIC_RUN_ID", "x"}, {"LOCAL_RANK", "3"}}, HN_LAUNCHER_TORCHRUN, 3, false, false},
        {{{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"CUDA_VISIBLE_DEVICES", "0"}}, HN_LAUNCHER_OPENMPI, 1, true, false},
        {{{"MPI_LOCALRANKID", "0"}}, HN_LAUNCHER_MPICH, 0, false, false},
        {{{"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_CPU_BIND_TYPE", "mask_cpu:"}},
         HN_LAUNCHER_SRUN, 2, false, true},
        {{{"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_CPU_BIND_TYPE", "none"}},
         HN_LAUNCHER_SRUN, -1, false, false},
        {{{NULL, NULL}}, HN_LAUNCHER_NONE, -1, false, false},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++) {
        no_launcher();
        for (int k = 0; k < 4 && k_rows[i].env[k][0]; k++) setenv(k_rows[i].env[k][0], k_rows[i].env[k][1], 1);
        hn_place_launcher found;
        hn_place_launcher_detect(&found);
        if (found.kind != k_rows[i].kind || found.local_rank != k_rows[i].rank ||
            found.gives_cards != k_rows[i].cards)
            fail_msg("row %zu: kind %d, rank %d, cards %d", i, found.kind, found.local_rank, found.gives_cards);
        // A narrowed affinity counts as binding too, so only the claim that srun binds can be tested here.
        if (k_rows[i].cpus) assert_true(found.binds_cpus);
    }
    no_launcher();
}

// Under srun with its own binding and cards nothing is changed, and both are said.
static void test_launcher_wins(void **state) {
    (void)state;
    no_launcher();
    hone_error err = {0};
    hn_place_machine m = {0};
    const char *text = " GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X NV8 0-1 0\nGPU1 NV8 X 0-1 0\n";
    assert_int_equal(hn_place_machine_parse(&err, "t", (hn_slice){text, strlen(text)}, &m), HONE_OK);
    hn_place_request q = {.cards = 2, .choices = 1};
    hn_place_result r = {.choice_count = 0};
    hn_place_binding b;
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    setenv("OMP_NUM_THREADS", "7", 1);
    hn_place_launcher srun = {HN_LAUNCHER_SRUN, "srun", 1, 2, true, true};
    assert_int_equal(hn_place_binding_make(&err, &r, &srun, &b), HONE_OK);
    assert_false(b.bind_cpus);
    int notes = 0;
    for (size_t i = 0; i < b.notes.count; i++)
        notes += strstr(b.notes.data[i], "srun has bound") || strstr(b.notes.data[i], "CUDA_VISIBLE_DEVICES=1,0") ||
                 strstr(b.notes.data[i], "OMP_NUM_THREADS=7");
    assert_int_equal(notes, 3);
    for (size_t i = 0; i < b.env.count; i++) {
        assert_string_not_equal(b.env.data[i].name, "CUDA_VISIBLE_DEVICES");
        assert_string_not_equal(b.env.data[i].name, "OMP_NUM_THREADS");
    }
    hn_place_binding_free(&b);
    srun.local_rank = 2; // more ranks than cards
    assert_int_equal(hn_place_binding_make(&err, &r, &srun, &b), HONE_ERR_USAGE);
    no_launcher();
    hn_place_launcher none = {.name = "none", .local_rank = 1};
    assert_int_equal(hn_place_binding_make(&err, &r, &none, &b), HONE_OK);
    if (allowed_count() >= 2) {
        assert_true(b.bind_cpus);
        assert_int_equal(hn_place_cpuset_count(&b.cpus), 1); // its own share of the two
    }
    hn_place_binding_free(&b);
    hn_place_result_free(&r);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    uint64_t visible;
    assert_int_equal(hn_place_visible_cards(&err, &m, &visible), HONE_OK);
    assert_int_equal(visible, 2);
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    assert_int_equal(hn_place_visible_cards(&err, &m, &visible), HONE_ERR_USAGE);
    no_launcher();
    hn_place_machine_free(&m);
}

// Cards that another job holds are in use for the next one, on the scripted driver.
static void test_cards_are_claimed(void **state) {
    (void)state;
    no_launcher();
    char lib[600];
    snprintf(lib, sizeof lib, "%s/fakes/libnvidia-ml.so", getenv("HONE_BUILD_DIR"));
    setenv("HONE_NVML_LIB", lib, 1);
    setenv("HONE_FAKE_NVML", "cards=4,ampere,idle", 1);
    hone_error err = {0};
    hn_place_request q = {.cards = 2, .choices = 1};
    hn_place_job a, b, c;
    if (hn_place_job_open(&err, &q, &a) != HONE_OK) fail_msg("%s", err.text);
    assert_int_equal(hn_place_job_open(&err, &q, &b), HONE_OK);
    assert_int_equal(a.result.choices[0].cards & b.result.choices[0].cards, 0);
    assert_int_equal(b.others_cards, 2);
    assert_int_equal(hn_place_job_open(&err, &q, &c), HONE_ERR_CHECK);
    assert_non_null(strstr(err.text, "4 in use"));
    json_t *json = hn_place_job_json(&a);
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "env"), "CUDA_VISIBLE_DEVICES")),
                        a.result.visible);
    json_decref(json);
    hn_str text = {0};
    hn_place_job_text(&a, &text);
    assert_non_null(strstr(hn_str_get(&text), "cards 0,1"));
    hn_str_free(&text);
    hn_place_job_close(&a);
    hn_place_job_close(&b);
    unsetenv("HONE_NVML_LIB");
}

int main(void) {
    if (!mkdtemp(g_folder)) return 1;
    setenv("HONE_CLAIMS", g_folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_do_not_meet), cmocka_unit_test(test_dead_owner),
        cmocka_unit_test(test_launchers),        cmocka_unit_test(test_launcher_wins),
        cmocka_unit_test(test_cards_are_claimed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s'", g_folder);
    return system(command) != 0 || failed;
}
