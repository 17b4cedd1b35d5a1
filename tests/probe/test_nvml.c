// SPDX-License-Identifier: Apache-2.0
// The NVML provider against the scripted library tests/fakes/nvidia-ml.c.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "support/test.h"
#include "libs/nvml.h"
#include "probe/energy.h"

static char g_lib[512];

static hone_status try_open(const char *script, hn_probe **out_probe, hone_error *err) {
    setenv("HONE_NVML_LIB", g_lib, 1);
    setenv("HONE_FAKE_NVML", script, 1);
    return hn_probe_open(err, "nvml", out_probe);
}
static hn_probe *open_fake(const char *script) {
    hone_error err = {0};
    hn_probe *probe;
    if (try_open(script, &probe, &err) != HONE_OK) fail_msg("%s: %s", script, err.text);
    return probe;
}
// Two readings with a pause, so that differences exist.
static hn_sample two_samples(hn_probe *probe, int device) {
    hone_error err = {0};
    hn_sample s;
    for (int i = 0; i < 3; i++) {
        if (hn_probe_sample(&err, probe, device, &s) != HONE_OK) fail_msg("%s", err.text);
        if (i < 2) hn_sleep_ns(15000000);
        hn_probe_refresh(probe, device);
    }
    return s;
}
#define HAS(s, m)         assert_true(hn_sample_has(&(s), HN_M_##m))
#define LACKS(s, m)       assert_false(hn_sample_has(&(s), HN_M_##m))
#define IS(s, m, expect)                                                                           \
    do {                                                                                           \
        if (!hn_sample_has(&(s), HN_M_##m)) fail_msg("%s is absent", #m);                          \
        if (fabs((s).value[HN_M_##m] - (expect)) > 1e-9 * fabs((double)(expect)))                  \
            fail_msg("%s: %.10g", #m, (s).value[HN_M_##m]);                                        \
    } while (0)

static void starting_failures_say_what_to_do(void **state) {
    (void)state;
    static const struct {
        const char *script, *says;
        hone_status status;
    } k_cases[] = {
        {"init=9", "kernel driver is not loaded", HONE_ERR_UNSUPPORTED},
        {"init=18", "different versions", HONE_ERR_UNSUPPORTED},
        {"init=999", "daemon-reload", HONE_ERR_UNSUPPORTED}, // complaint: Unknown Error in containers
        {"init=4", "no permission", HONE_ERR_UNSUPPORTED},
        {"cards=0", "sees no card", HONE_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hone_error err = {0};
        hn_probe *probe;
        assert_int_equal(try_open(k_cases[i].script, &probe, &err), k_cases[i].status);
        if (!strstr(err.text, k_cases[i].says)) fail_msg("%s", err.text);
    }
    hone_error err = {0};
    hn_probe *probe;
    setenv("HONE_NVML_LIB", "/nonexistent/libnvidia-ml.so", 1);
    assert_int_equal(hn_probe_open(&err, "nvml", &probe), HONE_ERR_UNSUPPORTED);
    // without a driver "auto" is the host
    assert_int_equal(hn_probe_open(&err, "auto", &probe), HONE_OK);
    assert_string_equal(hn_probe_source(probe), "host");
    hn_probe_close(probe);
}

static void hopper_gives_its_full_set(void **state) {
    (void)state;
    hn_probe *probe = open_fake("cards=2");
    assert_int_equal(hn_probe_device_count(probe), 2);
    const hn_device_info *info = hn_probe_device(probe, 1);
    assert_string_equal(info->name, "NVIDIA H200");
    assert_string_equal(info->uuid, "GPU-00000000-0000-0000-0000-000000000100");
    assert_string_equal(info->pci_bus_id, "00000000:11:00.0");
    assert_string_equal(info->cuda, "13.1");
    assert_string_equal(info->architecture, "Hopper");
    assert_string_equal(info->fabric_state, "Completed");
    assert_string_equal(info->mig_mode, "Disabled");
    assert_true(info->sm_count == 132 && info->nvlink_active == 18 && info->pcie_gen_max == 5 &&
                info->power_limit_min_w == 200 && info->temp_slowdown_c == 89 && info->ecc == 1);
    assert_true(isnan(info->numa_node) && isnan(info->gi_id));
    hn_sample s = two_samples(probe, 1);
    IS(s, power_w, 310);
    IS(s, power_instant_w, 311.5);
    IS(s, memory_power_w, 97.69);
    IS(s, power_limit_w, 700);
    IS(s, sm_active, 0.91);
    IS(s, tensor_active, 0.61);
    IS(s, dram_active, 0.35);
    IS(s, l2_hit, 0.78);
    IS(s, l2_miss, 0.22);
    IS(s, fp32_active, 1);              // 100.4 % is rounding
    LACKS(s, fp64_active);              // not a number
    LACKS(s, int_active);               // not supported, with a sentinel beside it
    IS(s, pcie_tx_bytes_s, 2 * 0x1p20); // GPM's: the byte counters wrap too fast
    IS(s, nvlink_tx_bytes_s, 16 * 0x1p20);
    IS(s, gpu_util, 91);
    IS(s, fb_used_bytes, 30 * 0x1p30);
    IS(s, fb_reserved_bytes, 600 * 0x1p20);
    IS(s, reasons, 4);
    IS(s, gpu_temp_c, 62);
    IS(s, mem_temp_c, 70);
    IS(s, processes, 2);
    HAS(s, throttle_power_ns);
    HAS(s, nvlink_tx_bytes);
    LACKS(s, fan_percent);
    LACKS(s, retired_dbe);
    LACKS(s, xid); // nobody watches events
    assert_int_equal(info->absent[HN_M_fan_percent], HN_ABSENT_UNSUPPORTED);
    assert_int_equal(info->absent[HN_M_sm_active], HN_ABSENT_NOT);
    assert_true(s.cost_ns > 0);
    uint64_t allocations = hn_alloc_calls();
    for (int i = 0; i < 50; i++)
        assert_int_equal(hn_probe_sample(NULL, probe, i & 1, &s), HONE_OK);
    assert_int_equal(hn_alloc_calls(), allocations);
    IS(s, sm_active, 0.91); // readings closer than a GPM window repeat the last pair's answer
    hn_probe_close(probe);
}

static void put_file(const char *root, const char *name, const char *text) {
    char command[2048];
    snprintf(command, sizeof command, "mkdir -p '%s/%s' && echo '%s' > '%s/%s/numa_node'", root, name, text, root, name);
    assert_int_equal(system(command), 0);
}
// Complaint: on Grace a card's memory is a node without CPUs; binding there fails.
static void a_cards_own_memory_node_is_not_the_hosts(void **state) {
    (void)state;
    hn_probe *probe = open_fake("grace,cards=2");
    assert_true(hn_probe_device(probe, 0)->numa_node == 0);
    assert_true(isnan(hn_probe_device(probe, 1)->numa_node)); // near two nodes
    hn_probe_close(probe);
}

// Complaint: numa_node -1 sent as an id.
static void the_numa_node_comes_from_the_bus_and_minus_one_is_none(void **state) {
    (void)state;
    char root[600];
    snprintf(root, sizeof root, "%s.root", g_lib);
    put_file(root, "sys/bus/pci/devices/0000:10:00.0", "1");
    put_file(root, "sys/bus/pci/devices/0000:1a:00.0", "0");
    put_file(root, "sys/bus/pci/devices/0000:11:00.0", "-1");
    setenv("HONE_SYS_ROOT", root, 1);
    hn_probe *probe = open_fake("cards=11");
    unsetenv("HONE_SYS_ROOT");
    assert_true(hn_probe_device(probe, 0)->numa_node == 1);
    assert_true(isnan(hn_probe_device(probe, 1)->numa_node));
    assert_true(hn_probe_device(probe, 10)->numa_node == 0); // 00000000:1A:00.0
    assert_true(isnan(hn_probe_device(probe, 2)->numa_node));
    hn_probe_close(probe);
}

// Ampere has no GPM: activity is absent, never 0 and never GPU_UTIL; link rates come from counters.
static void ampere_lacks_activity_and_says_so(void **state) {
    (void)state;
    hn_probe *probe = open_fake("ampere");
    hn_sample s = two_samples(probe, 0);
    LACKS(s, sm_active);
    LACKS(s, dram_active);
    LACKS(s, tensor_active);
    LACKS(s, l2_hit);
    IS(s, power_w, 300); // by the call: the averaged field is not there on GA100
    IS(s, power_instant_w, 301.5);
    HAS(s, energy_mj);
    assert_in_range((int)(s.value[HN_M_pcie_tx_bytes_s] / 1e6), 800, 1200); // from the byte counters
    HAS(s, nvlink_rx_bytes_s);
    assert_in_range((int)(s.value[HN_M_nvlink_tx_bytes_s] / 1e6), 1500, 2600); // 2000 KiB a ms
    const hn_device_info *info = hn_probe_device(probe, 0);
    assert_true(info->sm_count == 108 && info->nvlink_count == 8);
    assert_int_equal(info->absent[HN_M_sm_active], HN_ABSENT_UNSUPPORTED);
    assert_non_null(strstr(hn_probe_note(probe), "dcgm"));
    hn_probe_close(probe);
}

static void an_old_driver_falls_back(void **state) {
    (void)state;
    hn_probe *probe = open_fake("old");
    hn_sample s = two_samples(probe, 0);
    IS(s, power_w, 300);
    LACKS(s, power_instant_w);
    IS(s, fb_used_bytes, 31 * 0x1p30);
    LACKS(s, fb_reserved_bytes);
    IS(s, gpu_temp_c, 61);
    IS(s, reasons, 4);
    IS(s, power_limit_requested_w, 700);
    LACKS(s, sm_active);
    assert_int_equal(hn_probe_device(probe, 0)->absent[HN_M_sm_active], HN_ABSENT_LIBRARY);
    assert_string_equal(hn_probe_device(probe, 0)->driver, "525.105.17");
    hn_probe_close(probe);
}

static void refused_readings_are_absent(void **state) {
    (void)state;
    hn_probe *probe = open_fake("na");
    hn_sample s = two_samples(probe, 0);
    LACKS(s, gpu_util);
    LACKS(s, mem_temp_c);
    LACKS(s, ecc_dbe_volatile);
    LACKS(s, power_limit_w);
    HAS(s, energy_mj);
    IS(s, power_w, 300);
    const hn_device_info *info = hn_probe_device(probe, 0);
    assert_true(isnan(info->ecc) && isnan(info->temp_slowdown_c) && info->serial[0] == '\0');
    hn_probe_close(probe);
    probe = open_fake("perm"); // RmProfilingAdminOnly
    s = two_samples(probe, 0);
    LACKS(s, sm_active);
    assert_int_equal(hn_probe_device(probe, 0)->absent[HN_M_sm_active], HN_ABSENT_PERMISSION);
    assert_non_null(strstr(hn_probe_note(probe), "administrator"));
    hn_probe_close(probe);
}

// Complaints: utilisation 0 under MIG; only the MIG card shows; instances read 0.
static void mig_lists_cards_and_instances(void **state) {
    (void)state;
    hn_probe *probe = open_fake("cards=8,mig=1");
    assert_int_equal(hn_probe_device_count(probe), 11);
    char label[64];
    static const char *const k_labels[] = {"gpu 0", "gpu 1", "gpu 1 mig 2/0", "gpu 1 mig 2/1",
                                           "gpu 1 mig 5/0", "gpu 2"};
    for (int d = 0; d < 6; d++)
        assert_string_equal(hn_device_label(hn_probe_device(probe, d), label, sizeof label), k_labels[d]);
    const hn_device_info *mig = hn_probe_device(probe, 4), *whole = hn_probe_device(probe, 1);
    assert_int_equal(mig->parent, 1);
    assert_string_equal(mig->mig_profile, "2g.35gb");
    assert_string_equal(mig->uuid, "MIG-00000000-0000-0000-0000-000000000103");
    assert_string_equal(mig->pci_bus_id, whole->pci_bus_id);
    assert_true(mig->sm_count == 32 && mig->memory_bytes == 35 * 0x1p30);
    hn_sample s = two_samples(probe, 4);
    IS(s, sm_active, 0.5);
    IS(s, fb_total_bytes, 35 * 0x1p30);
    LACKS(s, gpu_util);
    LACKS(s, power_w);
    s = two_samples(probe, 2);
    IS(s, sm_active, 0.2);
    s = two_samples(probe, 1);
    LACKS(s, gpu_util);
    LACKS(s, sm_active);
    IS(s, power_w, 310);
    assert_int_equal(whole->absent[HN_M_gpu_util], HN_ABSENT_MIG);
    assert_int_equal(whole->absent[HN_M_sm_active], HN_ABSENT_MIG);
    s = two_samples(probe, 5);
    IS(s, gpu_util, 91);
    assert_string_equal(hn_probe_note(probe), "");
    hn_probe_close(probe);
}

static void a_lost_card_leaves_the_others_alone(void **state) {
    (void)state;
    hn_probe *probe = open_fake("cards=3,lost=1@3,gone=2");
    hone_error err = {0};
    hn_sample s;
    hn_event event;
    assert_true(hn_probe_device(probe, 2)->lost);
    assert_int_equal(hn_probe_sample(&err, probe, 2, &s), HONE_ERR_DEVICE_LOST);
    assert_int_equal(hn_probe_wait_event(&err, probe, 1, &event), HONE_OK);
    assert_true(event.kind == HN_EVENT_LOST && event.device == 2);
    int good = 0;
    while (hn_probe_sample(&err, probe, 1, &s) == HONE_OK)
        good++;
    assert_true(good >= 1); // its fields are asked 20 times a second, by a fast loop
    assert_int_equal(err.status, HONE_ERR_DEVICE_LOST);
    assert_int_equal(err.vendor_code, HN_NVML_GPU_IS_LOST);
    assert_non_null(strstr(err.text, "gpu 1 (00000000:11:00.0): the card fell off the bus"));
    assert_true(hn_probe_device(probe, 1)->lost);
    assert_int_equal(hn_probe_wait_event(&err, probe, 1, &event), HONE_OK);
    assert_true(event.kind == HN_EVENT_LOST && event.device == 1);
    assert_int_equal(hn_probe_wait_event(&err, probe, 1, &event), HONE_ERR_TIMEOUT); // told once
    assert_int_equal(hn_probe_sample(&err, probe, 0, &s), HONE_OK);
    assert_non_null(strstr(hn_probe_note(probe), "1 of 3 cards cannot be reached"));
    // after a reset by the administrator
    setenv("HONE_FAKE_NVML", "cards=3", 1);
    assert_int_equal(hn_probe_reopen(&err, probe), HONE_OK);
    for (int d = 0; d < 3; d++)
        assert_int_equal(hn_probe_sample(&err, probe, d, &s), HONE_OK);
    // the driver goes away altogether, and comes back with a card less
    setenv("HONE_FAKE_NVML", "init=9", 1);
    assert_int_equal(hn_probe_reopen(&err, probe), HONE_ERR_UNSUPPORTED);
    assert_int_equal(hn_probe_device_count(probe), 3);
    assert_int_equal(hn_probe_sample(&err, probe, 0, &s), HONE_ERR_DEVICE_LOST);
    setenv("HONE_FAKE_NVML", "cards=2", 1);
    assert_int_equal(hn_probe_reopen(&err, probe), HONE_OK);
    assert_int_equal(hn_probe_device_count(probe), 3);
    assert_int_equal(hn_probe_sample(&err, probe, 1, &s), HONE_OK);
    assert_int_equal(hn_probe_sample(&err, probe, 2, &s), HONE_ERR_DEVICE_LOST);
    hn_probe_close(probe);
    probe = open_fake("reset@2");
    while (hn_probe_sample(&err, probe, 0, &s) == HONE_OK) {}
    assert_int_equal(err.vendor_code, HN_NVML_RESET_REQUIRED);
    assert_non_null(strstr(err.text, "needs a reset"));
    hn_probe_close(probe);
    probe = open_fake("unknown@2"); // the container's devices were taken away while running
    while (hn_probe_sample(&err, probe, 0, &s) == HONE_OK) {}
    assert_int_equal(err.status, HONE_ERR_DEVICE);
    hn_probe_close(probe);
}

typedef struct hung {
    hn_probe *probe;
    _Atomic int done;
    _Atomic bool stop;
} hung;
static void *sample_card_0(void *arg) {
    hung *h = arg;
    hn_sample s;
    while (!atomic_load(&h->stop))
        if (hn_probe_sample(NULL, h->probe, 0, &s) != HONE_OK) break;
    h->done = 1;
    return NULL;
}
// Complaint: one stuck driver call and the whole poller hangs.
static void a_hanging_card_does_not_block_another(void **state) {
    (void)state;
    static hung h;
    h.probe = open_fake("cards=2,hang=0@2");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, sample_card_0, &h), 0);
    hn_sleep_ns(50000000);
    hn_sample s;
    int64_t start_ns = hn_clock_ns();
    for (int i = 0; i < 20; i++)
        assert_int_equal(hn_probe_sample(NULL, h.probe, 1, &s), HONE_OK);
    assert_true(hn_clock_ns() - start_ns < 2000000000);
    assert_int_equal(h.done, 0);
    void *lib = dlopen(g_lib, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    void (*release)(void);
    *(void **)&release = dlsym(lib, "fake_release");
    atomic_store(&h.stop, true);
    release();
    pthread_join(thread, NULL);
    dlclose(lib);
    hn_probe_close(h.probe);
}

static void pcie_counters_survive_their_wrap(void **state) {
    (void)state;
    hn_probe *probe = open_fake("wrap");
    hn_sample s;
    double last = -1;
    for (int i = 0; i < 30; i++) {
        assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
        HAS(s, pcie_tx_bytes);
        assert_true(s.value[HN_M_pcie_tx_bytes] >= last);
        last = s.value[HN_M_pcie_tx_bytes];
        hn_sleep_ns(2000000);
    }
    assert_in_range((uint64_t)last, 50000000, 500000000); // about 60 ms at 1 MB a ms, not 4 GB
    hn_probe_close(probe);
}

static void xid_events_reach_samples_once_watched(void **state) {
    (void)state;
    hn_probe *probe = open_fake("cards=2,xid=1:31");
    hn_event event;
    hn_sample s;
    assert_int_equal(hn_probe_wait_event(NULL, probe, 5, &event), HONE_OK);
    assert_true(event.kind == HN_EVENT_XID && event.device == 1 && event.xid == 31);
    assert_int_equal(hn_probe_wait_event(NULL, probe, 5, &event), HONE_ERR_TIMEOUT);
    assert_int_equal(hn_probe_sample(NULL, probe, 1, &s), HONE_OK);
    IS(s, xid, 31);
    IS(s, xid_events, 1);
    assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
    IS(s, xid_events, 0);
    hn_probe_close(probe);
}

static void processes_carry_what_is_known(void **state) {
    (void)state;
    hn_probe *probe = open_fake("");
    hn_process items[8];
    int count = 0;
    hone_error err = {0};
    assert_int_equal(hn_probe_processes(&err, probe, 0, items, 8, &count), HONE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(items[0].pid, getpid());
    assert_int_equal(items[0].type, HN_PROCESS_COMPUTE | HN_PROCESS_GRAPHICS);
    assert_int_equal(items[0].used_bytes, INT64_C(3) << 30);
    assert_true(items[0].sm_util == 79 && items[0].gi_id == -1);
    assert_true(strlen(items[0].name) > 0);
    assert_int_equal(items[1].used_bytes, -1); // not told, not 0 and not 2^64
    assert_true(isnan(items[1].sm_util) && items[1].name[0] == '\0');
    assert_int_equal(hn_probe_processes(&err, probe, 0, items, 1, &count), HONE_OK);
    assert_int_equal(count, 1);
    hn_probe_close(probe);
}

static void joules_agree_with_the_cards_counter(void **state) {
    (void)state;
    hn_probe *probe = open_fake("power=400");
    hn_energy e;
    hn_energy_start(&e, HN_DEVICE_GPU);
    hn_sample s;
    int64_t until_ns = hn_clock_ns() + 300000000;
    for (bool last = false; !last; hn_sleep_ns(10000000)) {
        last = hn_clock_ns() >= until_ns;
        if (last) hn_probe_refresh(probe, 0);
        assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
        assert_true(hn_sample_has(&s, HN_M_energy_mj) && s.energy_t_ns > 0 && s.energy_t_ns <= s.t_ns);
        hn_energy_add(&e, &s);
    }
    assert_int_equal(e.method, HN_ENERGY_COUNTER);
    assert_float_equal(e.joules, 400 * (double)e.span_ns * 1e-9, 400 * 0.03);
    hn_probe_close(probe);
}

int main(void) {
    const char *build = getenv("HONE_BUILD_DIR");
    snprintf(g_lib, sizeof g_lib, "%s/fakes/libnvidia-ml.so", build ? build : "build");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starting_failures_say_what_to_do),
        cmocka_unit_test(hopper_gives_its_full_set),
        cmocka_unit_test(the_numa_node_comes_from_the_bus_and_minus_one_is_none),
        cmocka_unit_test(a_cards_own_memory_node_is_not_the_hosts),
        cmocka_unit_test(ampere_lacks_activity_and_says_so),
        cmocka_unit_test(an_old_driver_falls_back),
        cmocka_unit_test(refused_readings_are_absent),
        cmocka_unit_test(mig_lists_cards_and_instances),
        cmocka_unit_test(a_lost_card_leaves_the_others_alone),
        cmocka_unit_test(a_hanging_card_does_not_block_another),
        cmocka_unit_test(pcie_counters_survive_their_wrap),
        cmocka_unit_test(xid_events_reach_samples_once_watched),
        cmocka_unit_test(processes_carry_what_is_known),
        cmocka_unit_test(joules_agree_with_the_cards_counter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
