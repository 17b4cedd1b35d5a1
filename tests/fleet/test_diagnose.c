// SPDX-License-Identifier: Apache-2.0
// Diagnosis over recordings: loops of each class, mixed ones, and recordings that lack readings. Each is
// written as a recording (10 Hz, with noise), read back as replay reads it, and diagnosed.
#include "support/test.h"
#include <unistd.h>
#include "fleet/diagnose.h"
#include "probe/record.h"

#define NONE (-1.0) // a reading that the recording lacks

// What a card does while it works, and how work and pauses alternate.
typedef struct loop {
    const char *name, *expected; // "bound" or "-", then extras by token, blank between
    double gr, sm, tensor, fp32, dram, rx_gb_s, tx_gb_s;
    double work_s, pause_s; // pause: nothing runs
    double used_gib, watts;
    int reasons;
    double throttle_share; // of throttle
    hn_metric throttle;    // 0 = none (power_w is no throttle counter)
    double cpu_util, cpu_busiest;
    int cards;  // 0 = 1
    int silent; // cards behind the first that do nothing
} loop;

static const loop k_loops[] = {
    // compute
    {"bf16 matmul 8192", "compute", .gr = 1, .sm = .97, .tensor = .74, .fp32 = .03, .dram = .22, .work_s = 9},
    {"transformer prefill", "compute", .gr = .99, .sm = .93, .tensor = .58, .fp32 = .08, .dram = .41, .work_s = 9},
    {"n-body in fp32", "compute tensor", .gr = 1, .sm = .99, .tensor = 0, .fp32 = .81, .dram = .05, .work_s = 9},
    {"resnet50 training in bf16", "compute", .gr = .97, .sm = .91, .tensor = .46, .fp32 = .14, .dram = .49,
     .rx_gb_s = .6, .work_s = 9, .cpu_util = 45},
    // bandwidth
    {"stream copy", "bandwidth", .gr = 1, .sm = .96, .tensor = 0, .fp32 = .02, .dram = .91, .work_s = 9},
    {"decode at batch 1", "bandwidth", .gr = .93, .sm = .84, .tensor = .07, .fp32 = .06, .dram = .68, .work_s = 9},
    {"layer norm and gelu", "bandwidth", .gr = .98, .sm = .94, .tensor = 0, .fp32 = .13, .dram = .82, .work_s = 9},
    // launch
    {"eager scalar operations", "launch", .gr = .45, .sm = .02, .tensor = 0, .fp32 = 0, .dram = .01, .work_s = 9,
     .cpu_util = 6, .cpu_busiest = 100},
    {"small lstm", "launch", .gr = .88, .sm = .19, .tensor = .02, .fp32 = .04, .dram = .06, .work_s = 9},
    {"optimiser for each tensor", "launch", .gr = .71, .sm = .24, .tensor = 0, .fp32 = .03, .dram = .17, .work_s = 9},
    // input
    {"two loader workers", "input", .gr = .38, .sm = .34, .tensor = .19, .fp32 = .05, .dram = .18, .rx_gb_s = .7,
     .work_s = 9, .cpu_util = 98, .cpu_busiest = 100},
    {"pauses of half a second", "input", .gr = .95, .sm = .89, .tensor = .47, .fp32 = .1, .dram = .4, .rx_gb_s = .3,
     .work_s = .3, .pause_s = .5, .cpu_util = 30, .cpu_busiest = 99},
    {"slow storage", "input", .gr = .9, .sm = .8, .tensor = .4, .fp32 = .1, .dram = .3, .work_s = .6, .pause_s = 2.2,
     .cpu_util = 5},
    // transfer
    {"pinned copies", "transfer", .gr = .12, .sm = .1, .tensor = 0, .fp32 = .01, .dram = .08, .rx_gb_s = 52,
     .work_s = 9},
    {"pageable copies", "transfer", .gr = .2, .sm = .17, .tensor = .05, .fp32 = .01, .dram = .06, .rx_gb_s = 9,
     .work_s = 9},
    {"results to the host", "transfer", .gr = .3, .sm = .25, .tensor = .1, .fp32 = .02, .dram = .2, .rx_gb_s = 1,
     .tx_gb_s = 47, .work_s = 9},
    // throttled
    {"heat, by the driver", "compute throttled:software thermal", .gr = 1, .sm = .95, .tensor = .6, .fp32 = .02,
     .dram = .3, .work_s = 9, .throttle = HN_M_throttle_sw_thermal_ns, .throttle_share = .3},
    {"heat, by the hardware", "compute throttled:hardware thermal", .gr = 1, .sm = .95, .tensor = .55, .fp32 = .02,
     .dram = .3, .work_s = 9, .reasons = HN_REASON_HW_THERMAL | HN_REASON_HW_SLOWDOWN},
    {"rack's brake", "bandwidth throttled:power brake", .gr = 1, .sm = .95, .tensor = .1, .fp32 = .02, .dram = .8,
     .work_s = 9, .throttle = HN_M_throttle_brake_ns, .throttle_share = .08},
    {"at the power limit", "compute throttled:power limit", .gr = 1, .sm = .98, .tensor = .7, .fp32 = .02,
     .dram = .3, .work_s = 9, .reasons = HN_REASON_POWER_CAP},
    // idle
    {"one of two cards", "compute idle", .gr = 1, .sm = .95, .tensor = .6, .fp32 = .02, .dram = .3, .work_s = 9,
     .silent = 1},
    {"one of four cards", "bandwidth idle", .gr = 1, .sm = .9, .tensor = 0, .fp32 = .02, .dram = .85, .work_s = 9,
     .silent = 3},
    {"a job that needs no card", "- idle", .gr = 0, .sm = 0, .tensor = 0, .fp32 = 0, .dram = 0, .work_s = 9},
    // tensor
    {"fp32 training", "compute tensor", .gr = .99, .sm = .95, .tensor = 0, .fp32 = .62, .dram = .35, .work_s = 9},
    {"convolution without tensor cores", "compute tensor", .gr = .98, .sm = .9, .tensor = .04, .fp32 = .47,
     .dram = .3, .work_s = 9},
    {"half of it in fp32", "bandwidth tensor", .gr = .98, .sm = .9, .tensor = .05, .fp32 = .3, .dram = .66,
     .work_s = 9},
    // memory
    {"batch at the limit", "compute memory", .gr = 1, .sm = .95, .tensor = .6, .fp32 = .02, .dram = .3, .work_s = 9,
     .used_gib = 138},
    {"cache of keys and values", "bandwidth memory", .gr = .95, .sm = .85, .tensor = .08, .fp32 = .02, .dram = .75,
     .work_s = 9, .used_gib = 136},
    {"memory without work", "- idle memory", .gr = 0, .sm = 0, .tensor = 0, .fp32 = 0, .dram = 0, .work_s = 9,
     .used_gib = 139},
    // mixed, and what must not be claimed
    {"nothing in particular", "-", .gr = .72, .sm = .5, .tensor = .14, .fp32 = .08, .dram = .25, .work_s = 9},
    {"short of power now and then", "compute", .gr = 1, .sm = .95, .tensor = .6, .fp32 = .02, .dram = .3, .work_s = 9,
     .throttle = HN_M_throttle_power_ns, .throttle_share = .1},
    {"starved, hot and full", "input throttled:software thermal memory", .gr = .4, .sm = .36, .tensor = .2, .fp32 = .05,
     .dram = .2, .work_s = 9, .throttle = HN_M_throttle_sw_thermal_ns, .throttle_share = .2, .used_gib = 139,
     .cpu_util = 97},
    {"ampere without counters, busy", "-", .gr = 1, .sm = NONE, .tensor = NONE, .fp32 = NONE, .dram = NONE, .work_s = 9},
    {"ampere without counters, waiting", "input", .gr = .97, .sm = NONE, .tensor = NONE, .fp32 = NONE, .dram = NONE,
     .work_s = .5, .pause_s = .8},
};

static uint32_t g_noise;
static double noise(double size) { // uniform
    g_noise = g_noise * 1664525u + 1013904223u;
    return size * ((double)(g_noise >> 8) / (double)(1 << 24) * 2 - 1);
}
static void put(hn_sample *s, hn_metric metric, double value, double scale) {
    if (value == NONE) return;
    double noisy = value * (1 + noise(0.05)) * scale;
    hn_sample_put(s, metric, scale == 1 && noisy > 1 ? 1 : noisy);
}

static void card_row(const loop *l, double t_s, bool works, hn_sample *s) {
    *s = (hn_sample){.t_ns = (int64_t)(t_s * 1e9)};
    double cycle = l->work_s + l->pause_s, k = works && fmod(t_s, cycle) < l->work_s ? 1 : 0;
    bool counters = l->sm != NONE;
    if (counters) put(s, HN_M_gr_active, l->gr * k, 1);
    put(s, HN_M_gpu_util, l->gr * k, 100);
    put(s, HN_M_sm_active, counters ? l->sm * k : NONE, 1);
    put(s, HN_M_tensor_active, counters ? l->tensor * k : NONE, 1);
    put(s, HN_M_fp32_active, counters ? l->fp32 * k : NONE, 1);
    put(s, HN_M_dram_active, counters ? l->dram * k : NONE, 1);
    put(s, HN_M_pcie_rx_bytes_s, l->rx_gb_s * k + 1e-3, 1e9);
    put(s, HN_M_pcie_tx_bytes_s, l->tx_gb_s * k + 1e-3, 1e9);
    hn_sample_put(s, HN_M_pcie_gen, k > 0 ? 5 : 1); // the link rests too
    hn_sample_put(s, HN_M_pcie_width, 16);
    hn_sample_put(s, HN_M_fb_total_bytes, 141 * 0x1p30);
    hn_sample_put(s, HN_M_fb_reserved_bytes, 0.6 * 0x1p30);
    hn_sample_put(s, HN_M_fb_used_bytes, (l->used_gib > 0 ? l->used_gib : 40) * 0x1p30);
    hn_sample_put(s, HN_M_power_w, k > 0 ? 500 : 90);
    hn_sample_put(s, HN_M_reasons, k > 0 ? l->reasons : HN_REASON_IDLE);
    if (l->throttle) hn_sample_put(s, l->throttle, 7e9 + t_s * 1e9 * l->throttle_share);
}

static void write_loop(const loop *l, const char *path) {
    hone_error err = {0};
    hn_recorder *recorder;
    hn_device_info infos[5];
    int cards = 1 + l->silent;
    for (int d = 0; d < cards; d++) {
        hn_device_info_init(&infos[d], HN_DEVICE_GPU);
        infos[d].gpu_index = d;
    }
    hn_device_info_init(&infos[cards], HN_DEVICE_HOST);
    assert_int_equal(hn_recorder_open(&err, path, "nvml+host", 0, 1790000000000000000, infos, cards + 1, &recorder), HONE_OK);
    for (int i = 0; i <= 240; i++) {
        hn_sample sample;
        // A start-up and an end without work belong to every job.
        bool inside = i >= 20 && i <= 225;
        for (int d = 0; d < cards; d++) {
            card_row(l, i * 0.1, inside && d == 0, &sample);
            assert_int_equal(hn_recorder_put(&err, recorder, d, &sample), HONE_OK);
        }
        sample = (hn_sample){.t_ns = (int64_t)(i * 1e8)};
        hn_sample_put(&sample, HN_M_cpu_util, l->cpu_util > 0 ? l->cpu_util : 10);
        hn_sample_put(&sample, HN_M_cpu_busiest, l->cpu_busiest > 0 ? l->cpu_busiest : 60);
        assert_int_equal(hn_recorder_put(&err, recorder, cards, &sample), HONE_OK);
    }
    assert_int_equal(hn_recorder_close(&err, recorder), HONE_OK);
}

static int read_spans(const char *path, hn_span *spans) {
    hone_error err = {0};
    hn_record *record;
    assert_int_equal(hn_record_open(&err, path, &record), HONE_OK);
    int count = hn_record_device_count(record);
    for (int d = 0; d < count; d++) hn_span_start(&spans[d], &hn_record_devices(record)[d]);
    for (;;) {
        hn_record_kind kind;
        int device;
        hn_sample sample;
        hn_event event;
        assert_int_equal(hn_record_next(&err, record, &kind, &device, &sample, &event), HONE_OK);
        if (kind == HN_RECORD_END) break;
        if (kind == HN_RECORD_SAMPLE) hn_span_add(&spans[device], &sample);
    }
    hn_record_close(record);
    return count;
}

// "input throttled:software thermal memory"; findings of all cards, each class once.
static void found_text(const hn_finding *found, int count, hn_str *out) {
    bool any_bound = false;
    for (int i = 0; i < count; i++)
        if (hn_diagnosis_rows[found[i].what].bound) {
            hn_str_append(out, hn_diagnosis_rows[found[i].what].token);
            any_bound = true;
        }
    if (!any_bound) hn_str_append(out, "-");
    for (int what = 0; what < HN_DIAGNOSIS_COUNT; what++)
        for (int i = 0; i < count; i++) {
            if ((int)found[i].what != what || hn_diagnosis_rows[what].bound) continue;
            hn_str_printf(out, " %s%s%s", hn_diagnosis_rows[what].token, found[i].reason[0] ? ":" : "",
                          found[i].reason);
            break;
        }
}

static void test_loops(void **state) {
    (void)state;
    char path[] = "/tmp/hone-diagnose-XXXXXX";
    close(mkstemp(path));
    hn_span *spans = calloc(5, sizeof *spans);
    int wrong = 0, per_class[HN_DIAGNOSIS_COUNT] = {0};
    for (size_t i = 0; i < HN_COUNT_OF(k_loops); i++) {
        hn_finding found[HN_FINDINGS_MAX(5)];
        hn_str text = {0};
        g_noise = (uint32_t)i + 1;
        write_loop(&k_loops[i], path);
        int count = hn_diagnose(spans, read_spans(path, spans), found, HN_FINDINGS_MAX(5));
        found_text(found, count, &text);
        if (strcmp(hn_str_get(&text), k_loops[i].expected) != 0) {
            wrong++;
            print_error("%s: found '%s', expected '%s'\n", k_loops[i].name, hn_str_get(&text), k_loops[i].expected);
            for (int k = 0; k < count; k++)
                print_error("    %s %.2f %s\n", hn_diagnosis_rows[found[k].what].token, found[k].weight, found[k].evidence);
        }
        for (int k = 0; k < count; k++) {
            per_class[found[k].what]++;
            assert_true(found[k].evidence[0] && found[k].remedy[0]);
            assert_null(strstr(found[k].evidence, "nan"));
            if (found[k].what == HN_DIAG_idle) assert_true(k_loops[i].gr == 0 || found[k].span > 0);
        }
        hn_str_free(&text);
    }
    for (int what = 0; what < HN_DIAGNOSIS_COUNT; what++) assert_true(per_class[what] >= 3);
    free(spans);
    unlink(path);
    assert_int_equal(wrong, 0);
}

// Only `max` are written, and a card without two samples is not judged.
static void test_limits(void **state) {
    (void)state;
    hn_span *span = calloc(1, sizeof *span);
    hn_device_info info;
    hn_finding found[HN_DIAGNOSIS_COUNT];
    hn_sample sample;
    hn_device_info_init(&info, HN_DEVICE_GPU);
    hn_span_start(span, &info);
    assert_int_equal(hn_diagnose(span, 1, found, HN_DIAGNOSIS_COUNT), 0);
    assert_true(isnan(hn_span_mean(span, HN_M_power_w)) && isnan(hn_span_idle_share(span)));
    for (int i = 0; i < 5; i++) {
        card_row(&k_loops[0], i * 0.1, true, &sample);
        hn_sample_put(&sample, HN_M_fb_used_bytes, 140 * 0x1p30);
        hn_span_add(span, &sample);
        hn_span_add(span, &sample); // the same row again is no new time
        if (i == 0) assert_int_equal(hn_diagnose(span, 1, found, HN_DIAGNOSIS_COUNT), 0);
    }
    assert_int_equal(span->samples, 5);
    assert_int_equal(hn_diagnose(span, 1, found, HN_DIAGNOSIS_COUNT), 2);
    assert_int_equal(hn_diagnose(span, 1, found, 1), 1);
    assert_int_equal(found[0].what, HN_DIAG_compute);
    free(span);
}

// Means are by time, counters survive a reset, idle is told from a card that copies.
static void test_span(void **state) {
    (void)state;
    hn_span *span = calloc(1, sizeof *span);
    hn_device_info info;
    hn_device_info_init(&info, HN_DEVICE_GPU);
    hn_span_start(span, &info);
    static const struct { double t_s, power, energy_mj, active, rx; } k_rows[] = {
        {0, 100, 9000, 0, 0}, {1, 100, 109000, 0, 0}, {2, 300, 400000, 1, 0}, {6, 500, 1000, 0, 30e9}, {7, 50, 51000, 0, 0}};
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++) {
        hn_sample s = {.t_ns = (int64_t)(k_rows[i].t_s * 1e9)};
        hn_sample_put(&s, HN_M_power_w, k_rows[i].power);
        hn_sample_put(&s, HN_M_pcie_replays, k_rows[i].energy_mj);
        hn_sample_put(&s, HN_M_gr_active, k_rows[i].active);
        hn_sample_put(&s, HN_M_pcie_rx_bytes_s, k_rows[i].rx);
        hn_span_add(span, &s);
    }
    assert_true(fabs(hn_span_mean(span, HN_M_power_w) - (100 + 300 + 4 * 500 + 50) / 7.) < 1e-9);
    assert_true(fabs(hn_span_busy_mean(span, HN_M_power_w) - (300 + 4 * 500) / 5.) < 1e-9);
    assert_true(hn_span_max(span, HN_M_power_w) == 500);
    assert_true(fabs(hn_span_rise(span, HN_M_pcie_replays) - (391000 + 50000)) < 1e-6);
    assert_true(fabs(hn_span_idle_share(span) - 2 / 7.) < 1e-9);
    assert_true(isnan(hn_span_mean(span, HN_M_sm_active)) && isnan(hn_span_link_bytes_s(span)));
    free(span);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_span)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
