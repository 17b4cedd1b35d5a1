// SPDX-License-Identifier: Apache-2.0
// hone top without a terminal: the picture as a pure function of model and size, keys and clicks.
#include "support/test.h"
#include <math.h>
#include "fleet/top.h"

static void card(hn_top_device *d, int index, double sm) {
    hn_device_info_init(&d->info, HN_DEVICE_GPU);
    snprintf(d->info.name, sizeof d->info.name, "NVIDIA H200");
    d->info.gpu_index = index;
    d->have = true;
    d->status = (hn_sampler_status){.state = HN_SAMPLER_OK, .age_ns = 100000000};
    hn_sample_put(&d->sample, HN_M_sm_active, sm);
    hn_sample_put(&d->sample, HN_M_tensor_active, 0.61);
    hn_sample_put(&d->sample, HN_M_dram_active, 0.35);
    hn_sample_put(&d->sample, HN_M_fb_used_bytes, 96 * 0x1p30);
    hn_sample_put(&d->sample, HN_M_fb_total_bytes, 141 * 0x1p30);
    hn_sample_put(&d->sample, HN_M_power_w, 612);
    hn_sample_put(&d->sample, HN_M_power_limit_w, 700);
    hn_sample_put(&d->sample, HN_M_sm_clock_mhz, 1830);
    hn_sample_put(&d->sample, HN_M_gpu_temp_c, 61);
    hn_sample_put(&d->sample, HN_M_reasons, HN_REASON_POWER_CAP);
    hn_energy_start(&d->energy, HN_DEVICE_GPU);
    d->energy.joules = 12345;
    for (int i = 0; i < 40; i++) {
        d->history[0][i] = (float)i / 40;
        d->history[1][i] = i < 20 ? NAN : 0.5f;
        d->history[2][i] = 0.1f;
    }
    d->history_count = 40;
    d->processes = 0;
}

static void process(hn_top_model *m, int device, int pid, double mib, double sm, const char *name) {
    hn_top_process *p = &m->processes[m->process_count++];
    *p = (hn_top_process){.device = device, .joules = NAN};
    p->at.process = (hn_process){.pid = pid, .type = HN_PROCESS_COMPUTE, .used_bytes = mib < 0 ? -1 : (int64_t)(mib * 0x1p20), .sm_util = sm};
    snprintf(p->at.process.name, sizeof p->at.process.name, "%s", name);
    snprintf(p->user, sizeof p->user, "user%d", pid);
    m->devices[device].processes++;
}

static hn_top_model *make(int cards) {
    hn_top_model *m = calloc(1, sizeof *m);
    m->devices = hn_calloc((size_t)cards + 1, sizeof *m->devices);
    m->device_count = cards;
    m->interval_s = 1;
    snprintf(m->source, sizeof m->source, "nvml");
    snprintf(m->clock, sizeof m->clock, "12:34:56");
    for (int i = 0; i < cards; i++) card(&m->devices[i], i, 0.5 + 0.1 * i);
    return m;
}
static void drop(hn_top_model *m) {
    hn_top_model_free(m);
    free(m);
}

static char *picture(const hn_top_model *m, int width, int height, bool utf8) { // to be freed by hn_free
    hn_top_grid grid;
    hn_str text = {0};
    assert_true(hn_top_draw(m, &(hn_top_look){width, height, utf8}, &grid));
    assert_true(grid.width == width && (height == 0 || grid.height == height));
    for (int i = 0; i < grid.width * grid.height; i++) { // one character a cell
        const unsigned char *c = (const unsigned char *)grid.cells[i].text;
        size_t length = strlen(grid.cells[i].text);
        assert_true(length == (*c < 0x80 ? 1u : *c < 0xe0 ? 2u : 3u) && *c >= 0x20 && *c != 0x7f);
        assert_true(utf8 || *c < 0x80);
    }
    hn_top_text(&grid, &text);
    hn_top_grid_free(&grid);
    return text.data ? text.data : hn_strdup("");
}

static void has(const hn_top_model *m, int width, int height, bool utf8, const char *part, bool wanted) {
    char *text = picture(m, width, height, utf8);
    if ((strstr(text, part) != NULL) != wanted) fail_msg("%s'%s' in %d x %d:\n%s", wanted ? "no " : "", part, width, height, text);
    hn_free(text);
}

static void test_content(void **state) {
    (void)state;
    hn_top_model *m = make(2);
    process(m, 0, 4711, 3072, 79, "python3");
    for (int width = 40; width <= 200; width += 20) {
        has(m, width, 0, true, "0 H200", true);
        has(m, width, 0, true, "612/700W", true);
        has(m, width, 0, true, "96.0/141G", true);
        has(m, width, 0, true, "1830 MHz", true);
        has(m, width, 0, true, "power limit", true);
        has(m, width, 0, true, "12.3 kJ", true);
        has(m, width, 0, true, "4711", true);
        has(m, width, 0, true, "python3", true);
        has(m, width, 0, true, "nan", false);
    }
    has(m, 100, 0, true, "2 cards  1224 W of 1400", true);
    has(m, 100, 0, true, "SM   \xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xc2\xb7", true); // half of 12
    has(m, 100, 0, false, "SM   ||||||......  50%", true);
    // What a card lacks is n/a, what no card has is not there.
    hn_sample_drop(&m->devices[0].sample, HN_M_sm_active);
    hn_sample_drop(&m->devices[0].sample, HN_M_tensor_active);
    hn_sample_drop(&m->devices[0].sample, HN_M_power_w);
    has(m, 100, 0, false, "GPU  ------------  n/a", true);
    has(m, 100, 0, false, "TC   ------------  n/a", true);
    hn_sample_drop(&m->devices[1].sample, HN_M_tensor_active);
    has(m, 100, 0, false, "TC ", false);
    drop(m);
}

static void test_states(void **state) {
    (void)state;
    hn_top_model *m = make(3);
    m->devices[1].status.state = HN_SAMPLER_LOST;
    m->devices[2].status = (hn_sampler_status){.state = HN_SAMPLER_STALE, .age_ns = 12000000000, .why = "the driver does not come back"};
    for (int width = 40; width <= 160; width += 40) {
        has(m, width, 0, true, "1 H200", true);
        has(m, width, 0, true, "fell off the bus", width >= 40);
        has(m, width, 0, true, "no answer for 12 s", width >= 50);
    }
    has(m, 120, 0, true, "no answer for 12 s: the driver does not come back", true);
    has(m, 120, 0, true, "no process on these cards", true);
    // Old figures of cards that do not answer are not summed.
    has(m, 120, 0, true, "612 W of 700", true);
    drop(m);
}

// Every size, also absurd ones: cells stay whole, nothing is written outside (the sanitizer watches).
static void test_sizes(void **state) {
    (void)state;
    hn_top_model *m = make(9);
    hn_device_info_init(&m->devices[8].info, HN_DEVICE_HOST);
    for (int i = 0; i < 60; i++) process(m, i % 8, 100 + i, i, i, i % 7 ? "python" : "\xe4\xb8\xad\xe6\x96\x87 \x1b[31m\xff\xc3\xa9\xcc\x81");
    for (int width = 0; width <= 130; width += 1 + width / 20)
        for (int height = 1; height <= 50; height += 1 + height / 10)
            for (int help = 0; help < 2; help++) {
                m->help = help;
                m->chosen_pid = 100 + (width * 7 + height) % 60;
                m->chosen_device = (int)(m->chosen_pid - 100) % 8;
                m->first_card = height % 9;
                hn_free(picture(m, width, height, height % 2));
            }
    m->help = false;
    m->first_card = 0;
    m->chosen_pid = 0;
    // Eight cards of 24 lines: one line a card, and what does not fit is said.
    has(m, 80, 24, true, "7 H200", true);
    has(m, 80, 12, true, " more (right, left)", true);
    has(m, 100, 40, true, "\x1b", false);
    has(m, 100, 60, false, "?? ?[31m?", true); // what has no single column is a question mark
    drop(m);
}

static void test_keys(void **state) {
    (void)state;
    hn_top_model *m = make(2);
    process(m, 0, 30, 100, 5, "b");
    process(m, 1, 10, 300, NAN, "a");
    process(m, 1, 20, -1, 90, "c");
    hn_top_sort_processes(m);
    assert_int_equal(m->processes[0].at.process.pid, 10); // memory
    assert_int_equal(m->processes[2].at.process.pid, 20); // unknown last
    assert_int_equal(hn_top_press(m, HN_TOP_KEY_F + 6), HN_TOP_STAY);
    assert_true(m->sort == HN_TOP_SORT_SM && m->processes[0].at.process.pid == 20 && m->processes[2].at.process.pid == 10);
    hn_top_press(m, 'N');
    assert_int_equal(m->processes[0].at.process.pid, 10);
    hn_top_press(m, 'i');
    assert_int_equal(m->processes[0].at.process.pid, 30);
    // The choice follows the process, not the row.
    hn_top_press(m, HN_TOP_KEY_DOWN);
    assert_int_equal(m->chosen_pid, 30);
    hn_top_press(m, 'M');
    hn_top_press(m, HN_TOP_KEY_DOWN);
    assert_int_equal(m->chosen_pid, 20);
    hn_top_press(m, HN_TOP_KEY_DOWN);
    assert_int_equal(m->chosen_pid, 20); // the last
    // No signal unless asked for twice.
    assert_int_equal(hn_top_press(m, HN_TOP_KEY_F + 9), HN_TOP_STAY);
    assert_non_null(strstr(m->message, "--kill"));
    assert_int_equal(hn_top_press(m, 'y'), HN_TOP_STAY);
    m->may_signal = true;
    hn_top_press(m, 'k');
    assert_int_equal(hn_top_press(m, 'n'), HN_TOP_STAY);
    assert_int_equal(hn_top_press(m, 'y'), HN_TOP_STAY);
    hn_top_press(m, 'k');
    assert_int_equal(hn_top_press(m, 'y'), HN_TOP_SIGNAL);
    hn_top_press(m, 'k');
    assert_int_equal(hn_top_press(m, 'q'), HN_TOP_STAY); // an answer, not a command
    // speed, pause, curves, help, quit
    hn_top_press(m, '+');
    assert_true(m->interval_s == 0.5);
    for (int i = 0; i < 20; i++) hn_top_press(m, '+');
    assert_true(m->interval_s == 0.1);
    for (int i = 0; i < 20; i++) hn_top_press(m, '-');
    assert_true(m->interval_s == 10);
    hn_top_press(m, ' ');
    assert_true(m->paused);
    hn_top_press(m, 'g');
    has(m, 120, 30, false, "MEM             ", false);
    assert_true(m->curve == HN_TOP_CURVE_SM);
    hn_top_press(m, 'h');
    has(m, 100, 30, false, "this help", true);
    assert_int_equal(hn_top_press(m, 27), HN_TOP_STAY);
    assert_false(m->help);
    for (int right = 0; right < 5; right++) hn_top_press(m, HN_TOP_KEY_RIGHT);
    assert_int_equal(m->first_card, 1);
    assert_int_equal(hn_top_press(m, 'q'), HN_TOP_QUIT);
    assert_int_equal(hn_top_press(m, 27), HN_TOP_QUIT);
    assert_int_equal(hn_top_press(m, HN_TOP_KEY_F + 10), HN_TOP_QUIT);
    drop(m);
}

// Clicks land on what is drawn there.
static void test_clicks(void **state) {
    (void)state;
    hn_top_model *m = make(1);
    process(m, 0, 30, 100, 5, "b");
    process(m, 0, 10, 300, 6, "a");
    hn_top_sort_processes(m);
    hn_top_grid grid;
    assert_true(hn_top_draw(m, &(hn_top_look){100, 24, false}, &grid));
    int rows = 0, sorts = 0, keys = 0;
    for (int i = 0; i < grid.width * grid.height; i++) {
        int hit = grid.cells[i].hit;
        if (hit >= HN_TOP_HIT_KEY) keys |= 1 << (hit - HN_TOP_HIT_KEY);
        else if (hit >= HN_TOP_HIT_ROW) rows |= 1 << (hit - HN_TOP_HIT_ROW);
        else if (hit) sorts |= 1 << (hit - HN_TOP_HIT_SORT);
    }
    assert_true(rows == 3 && sorts == (1 << HN_TOP_SORTS) - 1 && (keys & 1 << 10) && (keys & 1 << 1));
    hn_top_click(m, HN_TOP_HIT_ROW + 1);
    assert_int_equal(m->chosen_pid, 30);
    hn_top_click(m, HN_TOP_HIT_SORT + HN_TOP_SORT_PID);
    assert_int_equal(m->processes[0].at.process.pid, 10);
    assert_int_equal(hn_top_click(m, HN_TOP_HIT_KEY + 10), HN_TOP_QUIT);
    assert_int_equal(hn_top_click(m, 0), HN_TOP_STAY);
    hn_top_grid_free(&grid);
    drop(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_content), cmocka_unit_test(test_states), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_keys), cmocka_unit_test(test_clicks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
