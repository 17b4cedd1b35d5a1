// SPDX-License-Identifier: Apache-2.0
// Phases and series of a job: stretches of one name are one phase, joules of phases are those of the whole, a
// series keeps its size, and phases that nobody told are found in a recording of which they are known.
#include "support/test.h"
#include "support/synth_record.h"
#include <math.h>
#include <unistd.h>
#include "fleet/recorded.h"
#include "fleet/segment.h"

static hn_sample row(double t_s, double watts, double energy_j, double active) {
    hn_sample s = {.t_ns = (int64_t)(t_s * 1e9)};
    hn_sample_put(&s, HN_M_power_w, watts);
    hn_sample_put(&s, HN_M_energy_mj, energy_j * 1e3);
    hn_sample_put(&s, HN_M_gr_active, active);
    hn_sample_put(&s, HN_M_sm_active, active);
    return s;
}

static hn_track *make_track(void) {
    hn_device_info info;
    hn_device_info_init(&info, HN_DEVICE_GPU);
    hn_track *t = hn_track_new(&info, 100000000);
    assert_non_null(t);
    return t;
}

// 100 W idle, 500 W train, 300 W validate, 500 W train again, each 4 s at 10 Hz.
static void test_phases(void **state) {
    (void)state;
    static const double k_watts[] = {100, 500, 300, 500};
    static const int k_phase[] = {-1, 0, 1, 0};
    hn_track *t = make_track();
    double joules = 5000;
    for (int i = 0; i <= 160; i++) {
        int part = i ? (i - 1) / 40 : 0;
        if (i && i % 40 == 0 && i < 160) hn_track_phase(t, k_phase[part + 1]);
        joules += i ? k_watts[part] * 0.1 : 0;
        hn_sample s = row(i * 0.1, k_watts[part], joules, k_watts[part] > 100);
        hn_track_add(t, &s);
    }
    hn_track_end(t);
    assert_true(t->phases[0] && t->phases[1] && !t->phases[2] && !t->failed);
    assert_true(fabs(hn_span_seconds(t->phases[0]) - 8) < 1e-6 && fabs(hn_span_seconds(t->phases[1]) - 4) < 1e-6);
    assert_true(fabs(t->phases[0]->energy.joules - 4000) < 1e-6 && fabs(t->phases[1]->energy.joules - 1200) < 1e-6);
    assert_int_equal(t->phases[0]->energy.method, HN_ENERGY_COUNTER);
    assert_true(fabs(hn_span_watts(t->phases[0]) - 500) < 1e-6 && fabs(hn_span_mean(t->phases[1], HN_M_power_w) - 300) < 1e-6);
    assert_true(fabs(t->span.energy.joules - (400 + 4000 + 1200)) < 1e-6);
    // A copy is whole, and independent.
    hn_track *copy = hn_track_copy(t);
    hn_track_free(t);
    assert_true(fabs(copy->phases[0]->energy.joules - 4000) < 1e-6);
    hn_track_free(copy);
}

static void test_phase_list(void **state) {
    (void)state;
    hn_phase_list *list = calloc(1, sizeof *list);
    hn_phase_list_init(list);
    hn_phase_list_end(list, 1, NAN); // none yet
    assert_int_equal(hn_phase_list_begin(list, "train", 1, NAN), 0);
    assert_int_equal(hn_phase_list_begin(list, "validate", 3, 100), 1);
    assert_int_equal(hn_phase_list_begin(list, "validate", 3.5, 110), 1); // the same goes on
    assert_int_equal(hn_phase_list_begin(list, "train", 4, 120), 0);
    hn_phase_list_end(list, 9, 200);
    assert_true(fabs(list->seconds[0] - 7) < 1e-9 && fabs(list->seconds[1] - 1) < 1e-9);
    assert_true(list->units[0] == 180 && list->units[1] == 20);
    assert_int_equal(list->stretch_count, 3);
    // More names than there is room for share the last; more stretches still count their time.
    for (int i = 0; i < 2000; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i % 100);
        hn_phase_list_begin(list, name, 10 + i, NAN);
    }
    hn_phase_list_end(list, 2010, NAN);
    assert_int_equal(list->count, HN_PHASES_MAX);
    assert_string_equal(list->names[HN_PHASES_MAX - 1], "others");
    assert_int_equal(list->stretch_count, HN_STRETCHES_MAX);
    double sum = 0;
    for (int i = 0; i < list->count; i++) sum += list->seconds[i];
    assert_true(fabs(sum - (8 + 2000)) < 1e-6);
    free(list);
}

// A day at 10 Hz is no more than an hour in memory, and its mean is right.
static void test_series(void **state) {
    (void)state;
    hn_series *s = calloc(1, sizeof *s);
    hn_series_start(s, 100000000);
    for (int i = 0; i < 100000; i++) {
        hn_sample sample = row(i * 0.1, i < 50000 ? 100 : 300, 0, 1);
        hn_sample_put(&sample, HN_M_reasons, i < 25000 ? HN_REASON_POWER_CAP : 0);
        hn_series_add(s, &sample);
    }
    assert_true(s->count <= HN_SERIES_POINTS && s->count > HN_SERIES_POINTS / 3);
    double sum = 0, weight = 0, held = 0;
    for (int i = 0; i < s->count; i++) {
        const hn_series_cell *c = &s->cells[HN_S_power_w][i];
        assert_true(c->low >= 100 && c->high <= 300 && c->low <= c->high);
        sum += c->sum, weight += c->weight_s, held += s->cells[HN_S_held_power][i].sum;
    }
    assert_true(fabs(sum / weight - 200) < 0.1 && fabs(weight - 9999.9) < 1 && fabs(held - 2500) < 1);
    assert_false(hn_series_has(s, HN_S_tensor_active));
    assert_true(isnan(hn_series_mean(s, HN_S_tensor_active, 0)));
    free(s);
}

static hn_exec_result *read_record(const char *path, double from_s, double to_s) {
    hone_error err = {0};
    hn_exec_result *r = calloc(1, sizeof *r);
    if (hn_recorded_read(&err, path, from_s, to_s, NULL, r) != HONE_OK) fail_msg("%s", err.text);
    return r;
}

// A recording whose phases are known, read as if nobody had told them: the cuts must lie where they were told.
static void test_found_phases(void **state) {
    (void)state;
    char path[] = "/tmp/hone-track-XXXXXX";
    close(mkstemp(path));
    hone_error err = {0};
    synth_record what = {.cards = 2, .host = 1, .seconds = 60, .hz = 10, .lost_card = -1};
    assert_int_equal(synth_record_write(&err, path, &what), HONE_OK);
    hn_exec_result *r = read_record(path, 0, INFINITY);
    assert_int_equal(r->phases.count, 3); // idle, train, copy: told
    double told[3];
    for (int i = 0; i < 3; i++) told[i] = r->phases.seconds[i];
    for (int d = 0; d < r->track_count; d++) // forgotten
        for (int i = 0; i < HN_PHASES_MAX; i++) hn_free(r->tracks[d]->phases[i]), r->tracks[d]->phases[i] = NULL;
    hn_phase_list_init(&r->phases);
    assert_true(hn_segments_find(r->tracks, r->track_count, r->start_ns, &r->phases));
    assert_true(r->phases.found);
    assert_int_equal(r->phases.count, 3);
    assert_string_equal(r->phases.names[0], "idle");
    assert_int_equal(r->phases.stretch_count, 9);
    double joules = 0;
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(r->phases.seconds[i] - told[i]) < 1);
        joules += r->tracks[0]->phases[i]->energy.joules;
    }
    assert_true(fabs(joules / r->tracks[0]->span.energy.joules - 1) < 0.02);
    assert_true(fabs(hn_span_mean(r->tracks[0]->phases[1], HN_M_tensor_active) - 0.61) < 0.03);
    hn_exec_result_free(r);
    free(r);
    // One thing all along is no phase.
    r = read_record(path, 6, 14);
    hn_phase_list_init(&r->phases);
    assert_true(hn_segments_find(r->tracks, r->track_count, r->start_ns, &r->phases));
    assert_int_equal(r->phases.count, 0);
    hn_exec_result_free(r);
    free(r);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_phases), cmocka_unit_test(test_phase_list), cmocka_unit_test(test_series),
                                       cmocka_unit_test(test_found_phases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
