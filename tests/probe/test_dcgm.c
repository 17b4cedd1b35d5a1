// SPDX-License-Identifier: Apache-2.0
// The DCGM provider against the scripted library tests/fakes/dcgm.c.
#include <unistd.h>
#include "support/test.h"
#include "libs/dcgm.h"
#include "probe/collector.h"

static char g_lib[512], g_nvml[512], g_log[512];

static hone_status try_open(const char *source, const char *script, hn_probe **out_probe, hone_error *err) {
    setenv("HONE_DCGM_LIB", g_lib, 1);
    setenv("HONE_FAKE_DCGM", script, 1);
    return hn_probe_open(err, source, out_probe);
}
static hn_probe *open_fake(const char *script) {
    hone_error err = {0};
    hn_probe *probe;
    if (try_open("dcgm", script, &probe, &err) != HONE_OK) fail_msg("%s: %s", script, err.text);
    return probe;
}
#define LACKS(s, m) assert_false(hn_sample_has(&(s), HN_M_##m))
#define IS(s, m, expect)                                                                           \
    do {                                                                                           \
        if (!hn_sample_has(&(s), HN_M_##m)) fail_msg("%s is absent", #m);                          \
        assert_float_equal((s).value[HN_M_##m], expect, 1e-9 * (expect) + 1e-12);                  \
    } while (0)

static void starting_failures_name_their_cause(void **state) {
    (void)state;
    static const struct {
        const char *script, *says;
    } k_cases[] = {{"init=-7", "does not start"}, {"embed=-8", "none could be started"}, {"cards=0", "sees no card"}};
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hone_error err = {0};
        hn_probe *probe;
        assert_int_equal(try_open("dcgm", k_cases[i].script, &probe, &err), HONE_ERR_UNSUPPORTED);
        if (!strstr(err.text, k_cases[i].says)) fail_msg("%s", err.text);
    }
}

static void an_ampere_card_gives_activity(void **state) {
    (void)state;
    hn_probe *probe = open_fake("cards=2,connect=0");
    assert_int_equal(hn_probe_device_count(probe), 2);
    const hn_device_info *info = hn_probe_device(probe, 1);
    assert_string_equal(info->name, "NVIDIA A800-SXM4-80GB");
    assert_string_equal(info->uuid, "GPU-00000000-0000-0000-0000-000000000001");
    assert_string_equal(info->cuda, "12.2");
    assert_true(info->cc_major == 8 && info->cc_minor == 0 && info->power_limit_max_w == 400);
    hn_sample s;
    uint64_t allocations = hn_alloc_calls();
    assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
    assert_int_equal(hn_alloc_calls(), allocations);
    IS(s, sm_active, 0.62);
    IS(s, tensor_active, 0.31);
    IS(s, dram_active, 0.44);
    IS(s, power_w, 321.5);
    IS(s, energy_mj, 5e9);
    IS(s, fb_used_bytes, 0x1p30);
    IS(s, mem_temp_c, 66);
    LACKS(s, xid);  // a blank number
    LACKS(s, l2_hit); // no such DCGM field
    assert_int_equal(hn_probe_sample(NULL, probe, 1, &s), HONE_OK);
    LACKS(s, mem_temp_c); // 0 = no such sensor
    assert_int_equal(info->absent[HN_M_sm_active], HN_ABSENT_NOT);
    assert_int_equal(info->absent[HN_M_l2_hit], HN_ABSENT_UNSUPPORTED);
    hn_probe_close(probe);
}

static void blanks_never_become_values(void **state) {
    (void)state;
    hn_probe *probe = open_fake("blank");
    hn_sample s;
    assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        if (hn_sample_has(&s, (hn_metric)m)) fail_msg("%s = %g", hn_metric_rows[m].token, s.value[m]);
    assert_string_equal(hn_probe_device(probe, 0)->name, "");
    hn_probe_close(probe);
}

static void counters_that_exclude_each_other_are_fewer(void **state) {
    (void)state;
    hn_probe *probe = open_fake("multi=5");
    hn_sample s;
    assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
    IS(s, sm_active, 0.62);
    LACKS(s, pcie_tx_bytes_s); // given up for the others
    hn_probe_close(probe);
    static const struct {
        const char *script, *says;
        hn_absent absent;
    } k_cases[] = {{"prof=-33", "profiling module", HN_ABSENT_LIBRARY}, {"prof=-29", "root", HN_ABSENT_PERMISSION},
                   {"prof=-36", "no profiling counters", HN_ABSENT_UNSUPPORTED}, {"prof=-34", "another profiler", HN_ABSENT_ERROR}};
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        probe = open_fake(k_cases[i].script);
        assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
        LACKS(s, sm_active);
        IS(s, gpu_util, 99); // the rest goes on
        assert_int_equal(hn_probe_device(probe, 0)->absent[HN_M_sm_active], k_cases[i].absent);
        if (!strstr(hn_probe_note(probe), k_cases[i].says)) fail_msg("%s", hn_probe_note(probe));
        hn_probe_close(probe);
    }
}

static void instances_have_activity_of_their_own(void **state) {
    (void)state;
    hn_probe *probe = open_fake("cards=2,mig");
    assert_int_equal(hn_probe_device_count(probe), 4); // compute instances are no devices here
    assert_int_equal(hn_probe_device(probe, 2)->parent, 0);
    assert_true(hn_probe_device(probe, 1)->gi_id == 3 && hn_probe_device(probe, 2)->gi_id == 5);
    hn_sample s;
    assert_int_equal(hn_probe_sample(NULL, probe, 2, &s), HONE_OK);
    IS(s, sm_active, 0.3);
    LACKS(s, gpu_util);
    hn_probe_close(probe);
}

// Complaints: old values served for ever after the engine restarted; a lost card.
static void stale_gone_and_lost(void **state) {
    (void)state;
    hone_error err = {0};
    hn_sample s;
    hn_probe *probe = open_fake("");
    setenv("HONE_FAKE_DCGM", "stale", 1);
    assert_int_equal(hn_probe_sample(&err, probe, 0, &s), HONE_ERR_DEVICE);
    assert_non_null(strstr(err.text, "older than 10 s"));
    setenv("HONE_FAKE_DCGM", "gone@1", 1);
    while (hn_probe_sample(&err, probe, 0, &s) == HONE_OK) {}
    assert_int_equal(err.vendor_code, HN_DCGM_CONNECTION_NOT_VALID);
    setenv("HONE_FAKE_DCGM", "", 1);
    assert_int_equal(hn_probe_reopen(&err, probe), HONE_OK);
    assert_int_equal(hn_probe_sample(&err, probe, 0, &s), HONE_OK);
    IS(s, sm_active, 0.62);
    hn_probe_close(probe);
    probe = open_fake("cards=2,lost@5");
    while (hn_probe_sample(&err, probe, 0, &s) == HONE_OK) {}
    assert_int_equal(err.status, HONE_ERR_DEVICE_LOST);
    assert_true(hn_probe_device(probe, 0)->lost);
    assert_int_equal(hn_probe_sample(&err, probe, 1, &s), HONE_OK);
    hn_probe_close(probe);
}

// Complaint: a profiling session left behind froze a card. Every watch is taken back.
static void closing_takes_all_watches_back(void **state) {
    (void)state;
    char script[600];
    unlink(g_log);
    snprintf(script, sizeof script, "log=%s", g_log);
    hn_probe_close(open_fake(script));
    char *text;
    size_t bytes;
    assert_int_equal(hn_file_read(NULL, g_log, 1 << 16, &text, &bytes), HONE_OK);
    int taken = 0, back = 0;
    hn_slice rest = {text, bytes}, line;
    while (hn_slice_line(&rest, &line)) {
        taken += hn_slice_starts(line, "WatchProfiling");
        back += hn_slice_starts(line, "UnwatchProfiling");
    }
    assert_int_equal(taken, 2); // cards and instances
    assert_int_equal(back, 2);
    assert_non_null(strstr(text, "StopEmbedded"));
    hn_free(text);
    unlink(g_log);
}

static void auto_prefers_the_source_that_reads_activity(void **state) {
    (void)state;
    hone_error err = {0};
    hn_probe *probe;
    setenv("HONE_NVML_LIB", g_nvml, 1);
    setenv("HONE_FAKE_NVML", "ampere", 1);
    assert_int_equal(try_open("auto", "", &probe, &err), HONE_OK);
    assert_string_equal(hn_probe_source(probe), "dcgm");
    hn_probe_close(probe);
    assert_int_equal(try_open("auto", "init=-7", &probe, &err), HONE_OK);
    assert_string_equal(hn_probe_source(probe), "nvml");
    hn_probe_close(probe);
    setenv("HONE_FAKE_NVML", "", 1);
    assert_int_equal(try_open("auto", "", &probe, &err), HONE_OK);
    assert_string_equal(hn_probe_source(probe), "nvml");
    hn_probe_close(probe);
}

// Complaint: engine activity silently 0 after weeks at 99 % utilisation.
static void a_silent_collector_is_told(void **state) {
    (void)state;
    int64_t zero_since_ns = 0;
    int faults = 0, first_s = 0;
    for (int t = 1; t <= 200; t++) {
        hn_sample s = {.t_ns = t * INT64_C(1000000000)};
        hn_sample_put(&s, HN_M_gpu_util, 99);
        hn_sample_put(&s, HN_M_gr_active, t == 20 ? 0.1 : 0); // one reading breaks the minute
        if (hn_collector_fault(&zero_since_ns, &s) && ++faults == 1) first_s = t;
    }
    assert_int_equal(first_s, 82);
    assert_int_equal(faults, 2);
    for (int t = 201; t <= 400; t++) { // idle, or no such counter: no fault
        hn_sample s = {.t_ns = t * INT64_C(1000000000)};
        hn_sample_put(&s, HN_M_gpu_util, t < 300 ? 0 : 99);
        if (t < 300) hn_sample_put(&s, HN_M_gr_active, 0);
        assert_false(hn_collector_fault(&zero_since_ns, &s));
    }
}

int main(void) {
    const char *build = getenv("HONE_BUILD_DIR");
    snprintf(g_lib, sizeof g_lib, "%s/fakes/libdcgm.so", build ? build : "build");
    snprintf(g_nvml, sizeof g_nvml, "%s/fakes/libnvidia-ml.so", build ? build : "build");
    snprintf(g_log, sizeof g_log, "%s/test-probe-dcgm.log", build ? build : "/tmp");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starting_failures_name_their_cause),
        cmocka_unit_test(an_ampere_card_gives_activity),
        cmocka_unit_test(blanks_never_become_values),
        cmocka_unit_test(counters_that_exclude_each_other_are_fewer),
        cmocka_unit_test(instances_have_activity_of_their_own),
        cmocka_unit_test(stale_gone_and_lost),
        cmocka_unit_test(closing_takes_all_watches_back),
        cmocka_unit_test(a_silent_collector_is_told),
        cmocka_unit_test(auto_prefers_the_source_that_reads_activity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
