// SPDX-License-Identifier: Apache-2.0
// Slurm's files: reading them, gres.conf lines from a machine, what a check finds, a step's plan.
#include "support/test.h"
#include <unistd.h>
#include "place/slurm/slurm.h"

static const char k_topo[] = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n"
                             "GPU0\t X \tNV8\tNV8\tNV8\t0-15,32-47\t0\n"
                             "GPU1\tNV8\t X \tNV8\tNV8\t0-15,32-47\t0\n"
                             "GPU2\tNV8\tNV8\t X \tNV8\t16-31,48-63\t1\n"
                             "GPU3\tNV8\tNV8\tNV8\t X \t16-31,48-63\t1\n";

static void machine_of(const char *text, hn_place_machine *machine) {
    hone_error err = {0};
    *machine = (hn_place_machine){0};
    assert_int_equal(hn_place_machine_parse(&err, "topo", (hn_slice){text, strlen(text)}, machine),
                     HONE_OK);
}

static void conf_lines(void **state) {
    (void)state;
    static const char k_text[] = "# comment\nClusterName=t # more\n\n"
                                 "NodeName=n[0-1] CPUs = 4 \\\n  Gres=gpu:a:2,shard:8\n"
                                 "Description=\"two words\" X=\\#1\n";
    hone_error err = {0};
    hn_slurm_conf conf;
    assert_int_equal(hn_slurm_conf_parse(&err, "f", (hn_slice){k_text, sizeof k_text - 1}, &conf),
                     HONE_OK);
    assert_int_equal(conf.lines.count, 3);
    assert_string_equal(hn_slurm_conf_get(&conf, "clustername"), "t");
    assert_int_equal(conf.lines.data[1].number, 4);
    assert_string_equal(hn_slurm_line_get(&conf.lines.data[1], "cpus"), "4");
    assert_string_equal(hn_slurm_line_get(&conf.lines.data[1], "GRES"), "gpu:a:2,shard:8");
    assert_string_equal(hn_slurm_line_get(&conf.lines.data[2], "description"), "two words");
    assert_null(hn_slurm_conf_get(&conf, "absent"));
    hn_slurm_conf_free(&conf);
    assert_int_equal(hn_slurm_conf_parse(&err, "f", (hn_slice){"a\0b", 3}, &conf), HONE_ERR_FORMAT);
}

static bool join(void *user, const char *name, int index) {
    hn_str *text = user;
    hn_str_printf(text, "%s%s", index ? " " : "", name);
    return true;
}

static void hostlists(void **state) {
    (void)state;
    static const struct {
        const char *text, *names; // NULL: refused
    } k_cases[] = {{"a", "a"},
                   {"n[0-2],m", "n0 n1 n2 m"},
                   {"n[08-10]-x", "n08-x n09-x n10-x"},
                   {"r[1-2]n[1,3]", "r1n1 r1n3 r2n1 r2n3"},
                   {"n[0-", NULL},
                   {"n[]", NULL},
                   {"n[2-1]", NULL},
                   {"n[a-b]", NULL},
                   {"n]", NULL},
                   {"n[0-9999999]", NULL},
                   {"n[0-60000]m[0-60000]", NULL}};
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hone_error err = {0};
        hn_str text = {0};
        hone_status status = hn_slurm_hostlist(&err, k_cases[i].text, join, &text);
        if (k_cases[i].names) {
            assert_int_equal(status, HONE_OK);
            assert_string_equal(hn_str_get(&text), k_cases[i].names);
        } else {
            assert_int_not_equal(status, HONE_OK);
        }
        hn_str_free(&text);
    }
    assert_true(hn_slurm_hostlist_has("gpu[01-12],x", "gpu07"));
    assert_false(hn_slurm_hostlist_has("gpu[01-12],x", "gpu7"));
}

static void gpu_types(void **state) {
    (void)state;
    char type[32];
    assert_true(hn_slurm_gpu_type("NVIDIA A800-SXM4-80GB", type, sizeof type));
    assert_string_equal(type, "a800");
    assert_true(hn_slurm_gpu_type("NVIDIA GeForce RTX 4090", type, sizeof type));
    assert_string_equal(type, "4090");
    assert_true(hn_slurm_gpu_type("Tesla V100-SXM2-16GB", type, sizeof type));
    assert_string_equal(type, "v100");
    assert_false(hn_slurm_gpu_type(NULL, type, sizeof type));
}

// Cores of two cards from their CPU lists; "" where no number can be given for certain.
static void gres_cores(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        int threads;
        const char *cores_a, *cores_b;
    } k_cases[] = {
        {"0-15,32-47", "16-31,48-63", 0, "0-15", "16-31"},
        {"0-15,32-47", "16-31,48-63", 2, "0-15", "16-31"},
        {"0-15,32-47", "16-31,48-63", 3, "", ""}, // no machine of three threads a core looks so
        {"0-15", "16-31", 0, "0-15", "16-31"},
        {"0-15", "16-31", 2, "0-7", "8-15"}, // a guest: threads are neighbours
        {"0-14", "15-31", 2, "", ""},
        {"0,2,4,6", "1,3,5,7", 0, "", ""},     // sockets take turns
        {"0,8,16,24", "32,40,48,56", 0, "", ""}, // threads are off
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        char json[512], why[160];
        snprintf(json, sizeof json,
                 "{\"gpus\":[{\"cpus\":\"%s\"},{\"cpus\":\"%s\"}],\"nics\":[],\"matrix\":[[\"X\",\"SYS\"],"
                 "[\"SYS\",\"X\"]]}",
                 k_cases[i].a, k_cases[i].b);
        hn_place_machine machine;
        machine_of(json, &machine);
        for (int g = 0; g < 2; g++) {
            hn_str text = {0};
            hn_place_cpuset cores = {{0}};
            if (hn_slurm_cores(&machine, &machine.gpus.data[g], false, k_cases[i].threads, &cores, why, sizeof why))
                hn_place_cpuset_append(&text, &cores);
            assert_string_equal(hn_str_get(&text), g ? k_cases[i].cores_b : k_cases[i].cores_a);
            hn_str_free(&text);
        }
        hn_place_machine_free(&machine);
    }
}

static void gres_lines(void **state) {
    (void)state;
    hone_error err = {0};
    hn_place_machine machine;
    hn_str text = {0};
    machine_of(k_topo, &machine);
    hn_slurm_gres_options options = {.type = "a800"};
    assert_int_equal(hn_slurm_gres(&err, &machine, &options, &text), HONE_OK);
    assert_non_null(strstr(hn_str_get(&text), "Gres=gpu:a800:4\n"));
    assert_non_null(strstr(hn_str_get(&text),
                           "AutoDetect=off\n"
                           "Name=gpu Type=a800 File=/dev/nvidia0 Cores=0-15 Links=-1,8,8,8\n"
                           "Name=gpu Type=a800 File=/dev/nvidia1 Cores=0-15 Links=8,-1,8,8\n"
                           "Name=gpu Type=a800 File=/dev/nvidia2 Cores=16-31 Links=8,8,-1,8\n"
                           "Name=gpu Type=a800 File=/dev/nvidia3 Cores=16-31 Links=8,8,8,-1\n"));
    text.length = 0;
    options.node = "n[0-3]";
    options.file = "/x/%d.card";
    options.threads_per_core = 1;
    assert_int_equal(hn_slurm_gres(&err, &machine, &options, &text), HONE_OK);
    assert_non_null(strstr(hn_str_get(&text),
                           "NodeName=n[0-3] Name=gpu Type=a800 File=/x/2.card Cores=16-31,48-63 "));
    // What would end the value, or the line.
    static const char *const k_words[] = {"a b", "x\nName=gpu", "a#", "a=b", "\"a\""};
    for (size_t i = 0; i < HN_COUNT_OF(k_words); i++) {
        hn_slurm_gres_options odd = {.type = k_words[i]};
        assert_int_equal(hn_slurm_gres(&err, &machine, &odd, &text), HONE_ERR_USAGE);
        odd = (hn_slurm_gres_options){.node = k_words[i]};
        assert_int_equal(hn_slurm_gres(&err, &machine, &odd, &text), HONE_ERR_USAGE);
    }
    options.file = "/dev/card%s%d";
    assert_int_equal(hn_slurm_gres(&err, &machine, &options, &text), HONE_ERR_USAGE);
    hn_place_machine_free(&machine);
    hn_place_machine none = {0};
    options.file = NULL;
    assert_int_equal(hn_slurm_gres(&err, &none, &options, &text), HONE_ERR_UNSUPPORTED);
    hn_str_free(&text);
}

#define NODE                                                                                       \
    "ClusterName=t\nGresTypes=gpu\nAccountingStorageTRES=gres/gpu\n"                               \
    "NodeName=DEFAULT Sockets=2 CoresPerSocket=16\nNodeName=n[0-1] Gres=gpu:a800:4 "               \
    "RealMemory=1000\n"
#define LINES(type)                                                                                \
    "AutoDetect=off\nName=gpu Type=" type " File=/dev/nvidia[0-1] Cores=0-15\n"                    \
    "Name=gpu Type=" type " File=/dev/nvidia[2-3] Cores=16-31\n"

// What is wrong, what is found. Each row is a failure that was seen on a real cluster.
static void checks(void **state) {
    (void)state;
    static const struct {
        const char *slurm, *gres, *id; // id NULL: nothing is wrong
        bool good;
    } k_cases[] = {
        {NODE, LINES("a800"), NULL, true},
        {NODE, "Name=gpu Type=a800 File=/dev/nvidia[0-2] Cores=0-15\n", "count_lower", false},
        {NODE, LINES("a100"), "type_mismatch", false},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:4\n", LINES("a800"), "type_unused", true},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:3\n", LINES("a800"), "count_higher", true},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:4\n", "Name=gpu Type=a800 File=/dev/nvidia[0-2]\n", "count_lower", false},
        {NODE, "Name=gpu File=/dev/nvidia[0-3] Cores=0\n", "type_mismatch", false},
        {NODE, "Name=gpu Type=a800 Count=4\n", "file_missing", false},
        {NODE, "Name=gpu Type=a800 File=/dev/nvidia[0-4] Cores=0\n", "count_higher", true},
        {NODE, "Name=gpu Type=a800 File=/dev/nvidia[0-3]\n", "cores_missing", true},
        {NODE, "Name=gpu Type=a800 File=/dev/nvidia[0-3] Cores=0-40\n", "cores_beyond", false},
        {NODE, "Name=gpu Type=a800 File=/dev/nvidia[0-3] Cores=x\n", "cores_unreadable", false},
        {NODE,
         "Name=gpu Type=a800 File=/dev/nvidia0 Cores=16-31\nName=gpu Type=a800 "
         "File=/dev/nvidia[1-3] Cores=0\n",
         "cores_differ", true},
        {NODE, LINES("a800") "Name=gpu Type=a800 File=/dev/nvidia3\n", "file_twice", false},
        {NODE, "Name=gpu Type=a800 Count=3 File=/dev/nvidia[0-3] Cores=0\n", "count_not_files",
         false},
        {NODE, "Name=gpu Type=a800 File=/dev/nvidia[0- Cores=0\n", "file_unreadable", false},
        {NODE, "NodeName=other Name=gpu Type=a800 File=/dev/nvidia[0-3]\n", "count_lower", false},
        {NODE, "Name=gpu Type=a800 File=/dev/nvidia[0-3] Cores=0 Links=1,2\n", "links_broken",
         true},
        {"GresTypes=nic\nNodeName=n0 Gres=gpu:a800:4\n", LINES("a800"), "grestypes", false},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:a800:8\n",
         "Name=gpu Type=a800 File=/dev/nvidia[0-7] Cores=0\n", "machine_fewer", false},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:2\n", "Name=gpu File=/dev/nvidia[0-1] Cores=0\n",
         "machine_more", true},
        {"GresTypes=gpu\nNodeName=n0\n", LINES("a800"), "gres_unused", true},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:99999999999\n", LINES("a800"), "node_count", false},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:a800:-4\n", LINES("a800"), "node_count", false},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:1080ti:4\n", LINES("a800"), "type_mismatch", false},
        {"GresTypes=gpu\nNodeName=n0 Gres=gpu:a800:4\n", LINES("a800"), "tres", true},
    };
    hn_place_machine machine;
    machine_of(k_topo, &machine);
    char folder[] = "/tmp/hone-slurm-test.XXXXXX", slurm[64], gres[64];
    assert_non_null(mkdtemp(folder));
    snprintf(slurm, sizeof slurm, "%s/slurm.conf", folder);
    snprintf(gres, sizeof gres, "%s/gres.conf", folder);
    hone_error err = {0};
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        assert_int_equal(hn_file_write(&err, slurm, k_cases[i].slurm, strlen(k_cases[i].slurm)),
                         HONE_OK);
        assert_int_equal(hn_file_write(&err, gres, k_cases[i].gres, strlen(k_cases[i].gres)),
                         HONE_OK);
        hn_slurm_check_options options = {slurm, NULL, "n0", &machine, false};
        hn_slurm_check check;
        assert_int_equal(hn_slurm_check_run(&err, &options, &check), HONE_OK);
        bool found = !k_cases[i].id && !check.findings.count;
        for (size_t k = 0; k < check.findings.count; k++)
            found =
                found || (k_cases[i].id && strcmp(check.findings.data[k].id, k_cases[i].id) == 0);
        if (!found || check.good != k_cases[i].good) {
            hn_str text = {0};
            hn_slurm_check_text(&check, &text);
            fail_msg("case %zu (%s): %s", i, k_cases[i].id ? k_cases[i].id : "good",
                     hn_str_get(&text));
        }
        hn_slurm_check_free(&check);
    }
    // A required plug-in that is missing; a node nobody knows; an include that includes itself.
    static const char k_required[] = "required /nowhere/x.so\noptional /nowhere/y.so\n";
    char stack[64], loop[128];
    snprintf(stack, sizeof stack, "%s/plugstack.conf", folder);
    assert_int_equal(hn_file_write(&err, stack, k_required, sizeof k_required - 1), HONE_OK);
    hn_slurm_check_options options = {slurm, gres, "n0", NULL, false};
    hn_slurm_check check;
    assert_int_equal(hn_slurm_check_run(&err, &options, &check), HONE_OK);
    assert_false(check.good);
    hn_slurm_check_free(&check);
    options.node = "nobody";
    assert_int_equal(hn_slurm_check_run(&err, &options, &check), HONE_ERR_INPUT);
    snprintf(loop, sizeof loop, "Include %s\n", slurm);
    assert_int_equal(hn_file_write(&err, slurm, loop, strlen(loop)), HONE_OK);
    assert_int_equal(hn_slurm_check_run(&err, &options, &check), HONE_ERR_FORMAT);
    unlink(slurm), unlink(gres), unlink(stack), rmdir(folder);
    hn_place_machine_free(&machine);
}

static void plans(void **state) {
    (void)state;
    hn_place_machine machine;
    machine_of(k_topo, &machine);
    static const struct {
        const char *gpus, *allowed, *cpus, *mems; // cpus NULL: nothing is bound
    } k_cases[] = {{"0", "0-63", "0-15,32-47", "0"},
                   {"1,2", "0-63", "0-63", "0-1"},
                   {"0-1", "4-20", "4-15", "0"},
                   {"3", "0-3", NULL, NULL},
                   {"9", "0-63", NULL, NULL},
                   {"", "0-63", NULL, NULL},
                   {"GPU-unknown", "0-63", NULL, NULL},
                   {"NoDevFiles", "0-63", NULL, NULL},
                   {"0,99999999999999999999", "0-63", NULL, NULL}};
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hn_place_cpuset allowed;
        hn_slurm_plan plan;
        assert_true(hn_place_cpuset_parse(
            (hn_slice){k_cases[i].allowed, strlen(k_cases[i].allowed)}, &allowed));
        hn_slurm_plan_make(&machine, k_cases[i].gpus, &allowed, NULL, &plan);
        assert_int_equal(plan.bind, k_cases[i].cpus != NULL);
        assert_true(strlen(plan.reason) > 5);
        if (!plan.bind) continue;
        hn_str text = {0};
        hn_place_cpuset_append(&text, &plan.cpus);
        hn_str_append(&text, " ");
        hn_place_cpuset_append(&text, &plan.mems);
        char wanted[64];
        snprintf(wanted, sizeof wanted, "%s %s", k_cases[i].cpus, k_cases[i].mems);
        assert_string_equal(hn_str_get(&text), wanted);
        hn_str_free(&text);
    }
    hn_place_machine_free(&machine);
}

// Without telemetry the line still comes, with the reason; unknown is never 0.
static void record_without_cards(void **state) {
    (void)state;
    char path[] = "/tmp/hone-slurm-test.XXXXXX";
    int fd = mkstemp(path), ends[2];
    assert_true(fd >= 0 && pipe(ends) == 0);
    close(ends[1]);
    hone_error err = {0};
    hn_slurm_record_options options = {.source = "replay:/nowhere",
                                       .gpus = "0",
                                       .log = path,
                                       .job = "7",
                                       .step = "a b=c",
                                       .interval_ms = 10,
                                       .stop_fd = ends[0]};
    assert_int_equal(hn_slurm_record(&err, &options), HONE_OK);
    char text[1024] = "";
    assert_true(read(fd, text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, " job=7 step=a_b_c node=unknown gpus=0 "));
    assert_non_null(strstr(text, " energy_j=unknown energy_by=none "));
    assert_non_null(strstr(text, " problem="));
    close(ends[0]);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conf_lines),
        cmocka_unit_test(hostlists),
        cmocka_unit_test(gpu_types),
        cmocka_unit_test(gres_cores),
        cmocka_unit_test(gres_lines),
        cmocka_unit_test(checks),
        cmocka_unit_test(plans),
        cmocka_unit_test(record_without_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
