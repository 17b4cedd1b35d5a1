// SPDX-License-Identifier: Apache-2.0
// Metric rows, recordings, replay and joules.
// TEST-SERIAL: replay at pace is measured.
#include <sys/stat.h>
#include <unistd.h>
#include "support/test.h"
#include "support/synth_record.h"
#include "probe/energy.h"

static char g_path[256];
static const char *file(const char *name) {
    static char path[4][512];
    static int turn;
    char *out = path[turn++ % 4];
    snprintf(out, 512, "%s/%s", g_path, name);
    return out;
}

static void rows_are_unique_and_complete(void **state) {
    (void)state;
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        const hn_metric_row *row = &hn_metric_rows[m];
        hn_slice token = {row->token, strlen(row->token)}, hone = {row->hone, strlen(row->hone)},
                 legacy = {row->legacy, strlen(row->legacy)};
        assert_int_equal(hn_metric_by_token(token), m);
        assert_int_equal(hn_metric_by_hone(hone), m);
        if (*row->legacy) assert_int_equal(hn_metric_by_legacy(legacy), m);
        if (row->dcgm) assert_int_equal(hn_metric_by_dcgm(row->dcgm), m);
        assert_true(row->help[0] && row->legacy_scale > 0 && row->hone_scale > 0);
        assert_int_equal(row->nvml_field != 0, row->nvml_scale != 0);
        assert_int_equal(row->gpm != 0, row->gpm_scale != 0);
        // OpenMetrics: counters end in _total, gauges do not.
        size_t length = strlen(row->hone);
        bool total = length > 6 && strcmp(row->hone + length - 6, "_total") == 0;
        assert_int_equal(total, row->kind == HN_KIND_counter);
    }
    char text[HN_METRIC_TEXT_BYTES];
    assert_string_equal(hn_metric_text(0.29 * 100, text), "28.999999999999996");
    assert_string_equal(hn_metric_text(5551899580.0, text), "5551899580");
    assert_string_equal(hn_metric_text(-0.0, text), "0");
    assert_string_equal(hn_metric_text(35.686, text), "35.686");
    char reasons[128];
    assert_string_equal(hn_reasons_text(0x88, reasons, sizeof reasons),
                        "power brake from outside the card");
    assert_string_equal(hn_reasons_text(0x24, reasons, sizeof reasons),
                        "driver temperature limit, power limit");
    assert_string_equal(hn_reasons_text(0, reasons, sizeof reasons), "");
}

static void a_sample_without_value_has_no_bit(void **state) {
    (void)state;
    hn_sample s = {0};
    hn_sample_put(&s, HN_M_power_w, NAN);
    hn_sample_put(&s, HN_M_gpu_temp_c, INFINITY);
    assert_false(hn_sample_has(&s, HN_M_power_w) || hn_sample_has(&s, HN_M_gpu_temp_c));
    hn_sample_put(&s, HN_M_net_tx_bytes, 3);
    assert_true(hn_sample_has(&s, HN_M_net_tx_bytes));
    hn_str json = {0};
    hn_sample_json(&json, &s);
    assert_string_equal(hn_str_get(&json), "{\"net_tx_bytes\":3}");
    hn_str_free(&json);
    hn_json_string(&json, "a\"\x01\xff\xc3\xa4\xed\xa0\x80", 9);
    assert_string_equal(hn_str_get(&json), "\"a\\\"\\u0001\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    hn_str_free(&json);
}

static void recordings_read_back_what_was_written(void **state) {
    (void)state;
    const char *const names[] = {"a.hrec", "a.hrec.gz"};
    for (int i = 0; i < 2; i++) {
        hone_error err = {0};
        synth_record what = {.cards = 8, .host = 1, .seconds = 21, .hz = 10, .lost_card = 3};
        const char *path = file(names[i]);
        assert_int_equal(synth_record_write(&err, path, &what), HONE_OK);
        hn_record *record;
        assert_int_equal(hn_record_open(&err, path, &record), HONE_OK);
        assert_int_equal(hn_record_device_count(record), 9);
        assert_string_equal(hn_record_devices(record)[7].name, "NVIDIA H200");
        assert_true(hn_record_devices(record)[7].cc_major == 9);
        assert_true(isnan(hn_record_devices(record)[7].temp_slowdown_c));
        assert_int_equal(hn_record_devices(record)[8].kind, HN_DEVICE_HOST);
        int rows[9] = {0}, phases = 0, lost = 0;
        for (;;) {
            hn_record_kind kind;
            int device;
            hn_sample s;
            hn_event event;
            assert_int_equal(hn_record_next(&err, record, &kind, &device, &s, &event), HONE_OK);
            if (kind == HN_RECORD_END) break;
            if (kind == HN_RECORD_EVENT) {
                phases += event.kind == HN_EVENT_PHASE;
                lost += event.kind == HN_EVENT_LOST && event.device == 3;
                continue;
            }
            double t_s = (double)s.t_ns * 1e-9;
            if (device < 8) assert_true(s.value[HN_M_power_w] == synth_power_w(device, t_s));
            assert_int_equal(hn_sample_has(&s, HN_M_sm_active), device < 8);
            assert_int_equal(hn_sample_has(&s, HN_M_cpu_util), device == 8);
            assert_int_equal(s.wall_ns, INT64_C(1790000000000000000) + s.t_ns);
            rows[device]++;
        }
        assert_int_equal(rows[0], 210);
        assert_int_equal(rows[3], 105);
        assert_int_equal(phases, 4);
        assert_int_equal(lost, 1);
        hn_record_close(record);
    }
    struct stat plain, packed;
    assert_int_equal(stat(file("a.hrec"), &plain) | stat(file("a.hrec.gz"), &packed), 0);
    assert_true(packed.st_size * 8 < plain.st_size);
}

static void write_text(const char *name, const char *text) {
    assert_int_equal(hn_file_write(NULL, file(name), text, strlen(text)), HONE_OK);
}

#define HEAD "#hone-record 1\n#start {\"wall_ns\":1000,\"source\":\"x\"}\n#device 0 {\"kind\":\"gpu\",\"gpu_index\":0}\n"
static void broken_recordings_get_one_sentence(void **state) {
    (void)state;
    static const struct {
        const char *text, *says; // NULL: reads to the end
        int rows;
    } k_cases[] = {
        {"", "not a recording", 0},
        {"#hone-record 2\n", "not a recording", 0},
        {"#hone-record 1\n#start {}\n", "names no device", 0},
        {"#hone-record 1\n#device 1 {}\n", "count up from 0", 0},
        {"#hone-record 1\n#device 0 [}\n", "no JSON object", 0},
        {HEAD "#columns 0 power_w,gpu_temp_c\n0,1000,600,\n0,2000,,40\n", NULL, 2},
        {HEAD "#columns 0 power_w,new_metric\n0,1000,600,7\n", NULL, 1},
        {HEAD "#columns 0 power_w\n0,1000,600\n0,2000,6", NULL, 1}, // cut by a crash
        {HEAD "#columns 0 power_w\n0,1000,600,7\n", "more or fewer values", 0},
        {HEAD "#columns 0 power_w\n0,1000,ERR!\n", "line 5: a value is no number", 0},
        {HEAD "#columns 0 power_w\n0,1000,nan\n", "no number", 0},
        {HEAD "#columns 0 power_w\n1,1000,6\n", "declared device", 0},
        {HEAD "#columns 0 power_w\n0,-5,6\n", "declared device", 0},
        {HEAD "#columns 3 power_w\n", "not declared", 0},
        {HEAD "#event 5 xid 7 79\n", "not declared", 0},
        {HEAD "#event x xid 0 79\n", "without time", 0},
        {HEAD "#event 5 quake 0 79\n#comment\n\n", NULL, 0},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        write_text("bad.hrec", k_cases[i].text);
        hone_error err = {0};
        hn_record *record;
        hone_status status = hn_record_open(&err, file("bad.hrec"), &record);
        int rows = 0;
        if (status == HONE_OK) {
            hn_record_kind kind = HN_RECORD_EVENT;
            int device;
            hn_sample s;
            hn_event event;
            while (status == HONE_OK && kind != HN_RECORD_END) {
                status = hn_record_next(&err, record, &kind, &device, &s, &event);
                rows += status == HONE_OK && kind == HN_RECORD_SAMPLE;
            }
            hn_record_close(record);
        }
        if (k_cases[i].says) {
            assert_int_equal(status, HONE_ERR_FORMAT);
            if (!strstr(err.text, k_cases[i].says)) fail_msg("case %zu: %s", i, err.text);
        } else {
            assert_int_equal(status, HONE_OK);
        }
        assert_int_equal(rows, k_cases[i].rows);
    }
}

static hn_probe *open_replay(const char *name, const char *options) {
    char source[600];
    hn_probe *probe;
    hone_error err = {0};
    snprintf(source, sizeof source, "replay:%s%s", file(name), options);
    if (hn_probe_open(&err, source, &probe) != HONE_OK) fail_msg("%s", err.text);
    return probe;
}

static void stepping_gives_every_row_and_ends(void **state) {
    (void)state;
    synth_record what = {.cards = 4, .seconds = 40, .hz = 10, .lost_card = 2};
    assert_int_equal(synth_record_write(NULL, file("s.hrec"), &what), HONE_OK);
    hn_probe *probe = open_replay("s.hrec", "?speed=0");
    hone_error err = {0};
    hn_sample s;
    uint64_t allocations = hn_alloc_calls();
    for (int i = 0; i < 400; i++)
        for (int d = 0; d < 4; d++) {
            hone_status status = hn_probe_sample(&err, probe, d, &s);
            if (d == 2 && i >= 200) {
                assert_int_equal(status, HONE_ERR_DEVICE_LOST);
                assert_true(hn_probe_device(probe, 2)->lost);
                continue;
            }
            assert_int_equal(status, HONE_OK);
            assert_int_equal(s.t_ns, (int64_t)i * 100000000);
        }
    assert_int_equal(hn_alloc_calls(), allocations); // a sample allocates nothing
    assert_int_equal(hn_probe_sample(&err, probe, 0, &s), HONE_ERR_TIMEOUT);
    assert_true(hn_probe_ended(probe));
    hn_event event;
    int phases = 0, lost = 0;
    while (hn_probe_wait_event(NULL, probe, 0, &event) == HONE_OK)
        phases += event.kind == HN_EVENT_PHASE, lost += event.kind == HN_EVENT_LOST;
    assert_int_equal(phases, 6);
    assert_int_equal(lost, 1);
    hn_probe_close(probe);
}

static void replay_keeps_pace_and_loops_without_a_seam(void **state) {
    (void)state;
    synth_record what = {.cards = 2, .seconds = 2, .hz = 20, .lost_card = -1};
    assert_int_equal(synth_record_write(NULL, file("p.hrec"), &what), HONE_OK);
    hn_probe *probe = open_replay("p.hrec", "?speed=20&loop=1");
    hone_error err = {0};
    hn_sample s;
    double last_mj = 0;
    int64_t last_ns = -1, until_ns = hn_clock_ns() + 400000000; // 8 s of the recording: 4 loops
    while (hn_clock_ns() < until_ns) {
        assert_int_equal(hn_probe_sample(&err, probe, 1, &s), HONE_OK);
        assert_true(s.t_ns >= last_ns && s.value[HN_M_energy_mj] >= last_mj);
        assert_true(s.t_ns <= hn_probe_clock_ns(probe));
        last_ns = s.t_ns;
        last_mj = s.value[HN_M_energy_mj];
        hn_sleep_ns(1000000);
    }
    assert_true(last_ns > 4000000000);
    assert_false(hn_probe_ended(probe));
    hn_probe_close(probe);
    probe = open_replay("p.hrec", "?speed=50");
    while (!hn_probe_ended(probe)) {
        hone_status status = hn_probe_sample(&err, probe, 0, &s);
        assert_true(status == HONE_OK || status == HONE_ERR_TIMEOUT);
        hn_sleep_ns(1000000);
    }
    assert_in_range(s.t_ns, 1, 1950000000); // a busy machine may miss the last rows
    hn_probe_close(probe);
}

// Found by the fuzz corpus: a looped recording with a device that has no rows never answered.
static void a_device_without_rows_does_not_hang_a_loop(void **state) {
    (void)state;
    write_text("n.hrec", HEAD "#device 1 {\"kind\":\"gpu\"}\n#columns 0 power_w\n0,1000,600\n0,2000,601\n");
    for (int speed = 0; speed < 2; speed++) {
        hn_probe *probe = open_replay("n.hrec", speed ? "?speed=1000&loop=1" : "?speed=0&loop=1");
        hn_sample s;
        assert_int_equal(hn_probe_sample(NULL, probe, 1, &s), HONE_ERR_TIMEOUT);
        assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
        hn_probe_close(probe);
    }
    // and at pace it does not pull the others' rows out of the future
    write_text("n.hrec", HEAD "#device 1 {\"kind\":\"gpu\"}\n#columns 0 power_w\n0,1000,600\n0,60000000,601\n");
    hn_probe *probe = open_replay("n.hrec", "");
    hn_sample s;
    assert_int_equal(hn_probe_sample(NULL, probe, 1, &s), HONE_ERR_TIMEOUT);
    assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
    assert_true(s.value[HN_M_power_w] == 600);
    assert_false(hn_probe_ended(probe));
    hn_probe_close(probe);
}

static void sources_nobody_knows_are_usage_errors(void **state) {
    (void)state;
    static const char *const k_bad[] = {"nvidia", "host:x", "replay", "replay:", "host+moon",
                                        "host+host+host+host+host"};
    hn_probe *probe;
    for (size_t i = 0; i < HN_COUNT_OF(k_bad); i++) {
        hone_error err = {0};
        assert_int_equal(hn_probe_open(&err, k_bad[i], &probe), HONE_ERR_USAGE);
        assert_true(strlen(err.text) > 10);
    }
    assert_int_equal(hn_probe_open(NULL, "replay:/nonexistent", &probe), HONE_ERR_INPUT);
    write_text("p2.hrec", HEAD);
    char source[600];
    snprintf(source, sizeof source, "replay:%s?pace=3", file("p2.hrec"));
    assert_int_equal(hn_probe_open(NULL, source, &probe), HONE_ERR_USAGE);
}

static void joined_sources_number_their_devices_in_order(void **state) {
    (void)state;
    synth_record what = {.cards = 3, .seconds = 1, .hz = 10, .lost_card = -1};
    assert_int_equal(synth_record_write(NULL, file("j+1.hrec"), &what), HONE_OK);
    char source[600];
    hone_error err = {0};
    hn_probe *probe;
    snprintf(source, sizeof source, "host+replay:%s?speed=0", file("j+1.hrec"));
    if (hn_probe_open(&err, source, &probe) != HONE_OK) fail_msg("%s", err.text);
    assert_int_equal(hn_probe_device_count(probe), 4);
    assert_int_equal(hn_probe_device(probe, 0)->kind, HN_DEVICE_HOST);
    hn_sample s;
    assert_int_equal(hn_probe_sample(&err, probe, 3, &s), HONE_OK);
    assert_true(s.value[HN_M_power_w] == synth_power_w(2, 0));
    assert_int_equal(hn_probe_device(probe, 3)->absent[HN_M_power_w], HN_ABSENT_NOT);
    assert_int_equal(hn_probe_device(probe, 3)->absent[HN_M_fan_percent], HN_ABSENT_UNSUPPORTED);
    assert_int_equal(hn_probe_sample(&err, probe, 4, &s), HONE_ERR_USAGE);
    hn_probe_close(probe);
}

// Complaint: 0 kWh reported where there is no counter.
static void joules_come_from_the_counter_or_say_otherwise(void **state) {
    (void)state;
    hn_energy e;
    hn_energy_start(&e, HN_DEVICE_GPU);
    hn_sample s = {0};
    hn_energy_add(&e, &s);
    s.t_ns = 1000000000;
    hn_energy_add(&e, &s);
    assert_int_equal(e.method, HN_ENERGY_NONE);
    assert_true(isnan(e.joules));
    // counter and power disagree: the counter wins
    hn_energy_start(&e, HN_DEVICE_GPU);
    for (int i = 0; i <= 10; i++) {
        s.t_ns = i * INT64_C(1000000000);
        hn_sample_put(&s, HN_M_energy_mj, 5e9 + i * 300e3);
        hn_sample_put(&s, HN_M_power_w, 330);
        hn_energy_add(&e, &s);
        hn_energy_add(&e, &s); // the same row twice counts once
    }
    assert_int_equal(e.method, HN_ENERGY_COUNTER);
    assert_float_equal(e.joules, 3000, 1e-9);
    assert_int_equal(e.covered_ns, e.span_ns);
    // the driver was loaded anew: what was lost is not covered, and not negative
    s.t_ns = INT64_C(11000000000);
    hn_sample_put(&s, HN_M_energy_mj, 1000);
    hn_sample_drop(&s, HN_M_power_w);
    hn_energy_add(&e, &s);
    assert_int_equal(e.resets, 1);
    assert_float_equal(e.joules, 3000, 1e-9);
    assert_int_equal(e.span_ns - e.covered_ns, 1000000000);
    // no counter: power, with the gap left out
    hn_energy_start(&e, HN_DEVICE_GPU);
    hn_sample p = {0};
    for (int i = 0; i < 5; i++) {
        p.t_ns = i * INT64_C(500000000) + (i == 4 ? INT64_C(60000000000) : 0);
        hn_sample_put(&p, HN_M_power_instant_w, 100 + i * 10);
        hn_energy_add(&e, &p);
    }
    assert_int_equal(e.method, HN_ENERGY_POWER);
    assert_float_equal(e.joules, 0.5 * (105 + 115 + 125), 1e-9);
    assert_int_equal(e.covered_ns, 1500000000);
}

// The counter is read every 5 s only; before, between and after, power tells the rest.
static void a_seldom_read_counter_has_edges_of_power(void **state) {
    (void)state;
    hn_energy e;
    hn_energy_start(&e, HN_DEVICE_GPU);
    double true_j = 0;
    for (int i = 0; i <= 137; i++) { // 13.7 s at 10 Hz, 400 W; the power sensor reads 3 % too much
        hn_sample s = {.t_ns = INT64_C(7000000000) + i * INT64_C(100000000)};
        hn_sample_put(&s, HN_M_power_w, 412);
        int64_t read_ns = s.t_ns / 5000000000 * 5000000000; // the counter's last reading
        hn_sample_put(&s, HN_M_energy_mj, 1e9 + (double)read_ns * 1e-9 * 400e3);
        s.energy_t_ns = read_ns;
        hn_energy_add(&e, &s);
        true_j = 40.0 * i;
    }
    assert_int_equal(e.method, HN_ENERGY_COUNTER);
    assert_true(fabs(e.joules - true_j) < 0.012 * true_j); // power alone would be 3 % off
    assert_true(e.covered_ns >= e.span_ns * 9 / 10);
    // recordings write the counter once a reading and hold it
    hn_recorder *recorder;
    hn_record *record;
    hn_device_info info;
    hn_device_info_init(&info, HN_DEVICE_GPU);
    assert_int_equal(hn_recorder_open(NULL, file("e.hrec"), "x", 0, 0, &info, 1, &recorder), HONE_OK);
    for (int i = 0; i < 30; i++) {
        hn_sample s = {.t_ns = (i + 5) * INT64_C(1000000000)};
        hn_sample_put(&s, HN_M_power_w, i);
        hn_sample_put(&s, HN_M_energy_mj, i / 5 * 5);
        s.energy_t_ns = (i / 5 + 1) * INT64_C(5000000000);
        assert_int_equal(hn_recorder_put(NULL, recorder, 0, &s), HONE_OK);
    }
    assert_int_equal(hn_recorder_close(NULL, recorder), HONE_OK);
    assert_int_equal(hn_record_open(NULL, file("e.hrec"), &record), HONE_OK);
    for (int i = 0; i < 30; i++) {
        hn_record_kind kind;
        int device;
        hn_sample s;
        hn_event event;
        assert_int_equal(hn_record_next(NULL, record, &kind, &device, &s, &event), HONE_OK);
        assert_true(s.value[HN_M_energy_mj] == i / 5 * 5 && s.energy_t_ns == (i / 5 + 1) * INT64_C(5000000000));
    }
    hn_record_close(record);
}

int main(void) {
    const char *build = getenv("HONE_BUILD_DIR");
    snprintf(g_path, sizeof g_path, "%s/test-probe-record", build ? build : "/tmp");
    mkdir(g_path, 0777);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_unique_and_complete),
        cmocka_unit_test(a_sample_without_value_has_no_bit),
        cmocka_unit_test(recordings_read_back_what_was_written),
        cmocka_unit_test(broken_recordings_get_one_sentence),
        cmocka_unit_test(stepping_gives_every_row_and_ends),
        cmocka_unit_test(replay_keeps_pace_and_loops_without_a_seam),
        cmocka_unit_test(a_device_without_rows_does_not_hang_a_loop),
        cmocka_unit_test(sources_nobody_knows_are_usage_errors),
        cmocka_unit_test(joined_sources_number_their_devices_in_order),
        cmocka_unit_test(a_seldom_read_counter_has_edges_of_power),
        cmocka_unit_test(joules_come_from_the_counter_or_say_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
