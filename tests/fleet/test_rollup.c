// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 60
// From recorded cards through the sampler into the history: means, sums, joules, minutes, a full disk.
#include "support/fleet.h"
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include "fleet/rollup.h"
#include "support/synth_record.h"

typedef struct sums {
    int rows, ticks;
    int64_t first_s, last_s, n;
    double joules, power;
    uint64_t reasons;
} sums;
static bool add(void *user, const hn_history_row *row) {
    sums *s = user;
    if (s->rows++ == 0) s->first_s = row->t_s;
    s->ticks += row->t_s != s->last_s;
    s->last_s = row->t_s;
    s->n += row->n;
    if (!isnan(row->joules)) s->joules += row->joules;
    s->power += hn_sample_or(&row->sample, HN_M_power_instant_w, 0) * (double)row->n;
    s->reasons |= (uint64_t)hn_sample_or(&row->sample, HN_M_reasons, 0);
    return true;
}

// A recording played at speed into seconds and minutes: nothing is lost or counted twice.
static void test_seconds_and_minutes(void **state) {
    (void)state;
    hone_error err = {0};
    hn_probe *probe;
    hn_sampler *sampler;
    hn_history *history;
    hn_rollup *rollup;
    char path[256], source[400], file[256];
    snprintf(path, sizeof path, "%s/a.hrec", fleet_folder);
    snprintf(file, sizeof file, "%s/a.db", fleet_folder);
    OK(synth_record_write(&err, path, &(synth_record){.cards = 2, .host = 1, .seconds = 100, .hz = 10, .lost_card = -1}));
    snprintf(source, sizeof source, "replay:%s?speed=20", path);
    OK(hn_probe_open(&err, source, &probe));
    OK(hn_sampler_start(&err, probe, &(hn_sampler_options){.hz = 100, .host_hz = 100, .ring = 4096}, &sampler));
    OK(hn_history_open(&err, &(hn_history_options){.path = file, .keep_second_s = 1000000}, &history));
    OK(hn_rollup_start(&err, sampler, history, &rollup));
    for (int i = 0; i < 3000; i++) {
        hn_sampler_status status;
        hn_sampler_latest(sampler, 0, NULL, &status);
        if (status.state == HN_SAMPLER_ENDED) break;
        hn_sleep_ns(10000000);
    }
    static hn_sample samples[2048];
    uint64_t seq = 0;
    int had = hn_sampler_read(sampler, 0, &seq, samples, 2048);
    hn_energy energy;
    hn_sampler_energy(sampler, 0, &energy);
    double power = 0;
    for (int i = 0; i < had; i++) power += samples[i].value[HN_M_power_instant_w];
    hn_rollup_stop(rollup);
    hn_device_info info;
    hn_sampler_info(sampler, 0, &info);
    assert_true(hn_sampler_stop(sampler));
    hn_probe_close(probe);
    int64_t id;
    OK(hn_history_device(&err, history, &info, NULL, &id));
    sums all = {0}, minutes = {0};
    OK(hn_history_rows(&err, history, HN_HISTORY_SECONDS, id, 0, INT64_MAX, add, &all));
    assert_in_range(all.ticks, 90, 103); // the recording's seconds, not the clock's
    assert_int_equal(all.rows, all.ticks);
    assert_int_equal(all.n, had); // each sample once
    assert_true(fabs(all.power - power) <= 1e-6 * power);
    assert_true(fabs(all.joules - energy.joules) <= 1e-6 * energy.joules);
    // Minutes of them: the same sums.
    for (int64_t t = all.first_s - all.first_s % 60; t <= all.last_s; t += 60)
        OK(hn_history_fold_minute(&err, history, t));
    OK(hn_history_rows(&err, history, HN_HISTORY_MINUTES, id, 0, INT64_MAX, add, &minutes));
    assert_in_range(minutes.rows, 2, 3);
    assert_int_equal(minutes.n, all.n);
    assert_true(fabs(minutes.power - all.power) <= 1e-6 * all.power);
    assert_true(fabs(minutes.joules - all.joules) <= 1e-6 * all.joules);
    assert_int_equal(minutes.reasons, all.reasons);
    hn_history_close(history);
}

static void test_full_disk(void **state) {
    (void)state;
    hone_error err = {0};
    hn_probe *probe;
    hn_sampler *sampler;
    hn_history *history;
    hn_rollup *rollup;
    hn_rollup_status status = {0};
    char path[256], source[400], file[256];
    snprintf(path, sizeof path, "%s/b.hrec", fleet_folder);
    snprintf(file, sizeof file, "%s/b.db", fleet_folder);
    OK(synth_record_write(&err, path, &(synth_record){.cards = 8, .host = 0, .seconds = 20, .hz = 10, .lost_card = -1}));
    snprintf(source, sizeof source, "replay:%s?loop=1", path);
    OK(hn_probe_open(&err, source, &probe));
    OK(hn_sampler_start(&err, probe, &(hn_sampler_options){.hz = 10}, &sampler));
    OK(hn_history_open(&err, &(hn_history_options){.path = file}, &history));
    OK(hn_rollup_start(&err, sampler, history, &rollup));
    for (int i = 0; i < 500 && status.rows == 0; i++) {
        hn_sleep_ns(10000000);
        hn_rollup_read_status(rollup, &status);
    }
    assert_true(status.rows > 0 && !status.broken && status.bytes > 0);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    small = before;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    fleet_log_lines = 0;
    hn_sleep_ns(3500000000);
    hn_rollup_read_status(rollup, &status);
    assert_true(status.broken && status.dropped >= 8);
    assert_int_equal(fleet_log_lines, 1); // one line, though every second fails
    assert_non_null(strstr(fleet_log[0], file));
    hn_sampler_status card;
    hn_sampler_latest(sampler, 5, NULL, &card);
    assert_int_equal(card.state, HN_SAMPLER_OK); // the readings go on
    setrlimit(RLIMIT_FSIZE, &before);
    for (int i = 0; i < 500 && status.broken; i++) {
        hn_sleep_ns(10000000);
        hn_rollup_read_status(rollup, &status);
    }
    assert_false(status.broken);
    assert_int_equal(fleet_log_lines, 2);
    hn_rollup_stop(rollup);
    assert_true(hn_sampler_stop(sampler));
    hn_probe_close(probe);
    hn_history_close(history);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seconds_and_minutes), cmocka_unit_test(test_full_disk)};
    return fleet_run("fleet_rollup", tests, HN_COUNT_OF(tests));
}
