// SPDX-License-Identifier: Apache-2.0
// The diagnosis on loops that ran on an H200 and that were not used to set its thresholds: tests/data/h200-loops,
// made by bench/gpu/diagnose_loops.py, with the class that each has by construction. The confusion matrix
// must be the one in docs/diagnosis.md. Thresholds were set on tests/data/h200-mixed.hrec.gz, which is checked too.
#include "support/test.h"
#include <math.h>
#include "fleet/exec_report.h"
#include "fleet/recorded.h"

#define LOOPS_MAX 64
static const char *const k_bounds[] = {"compute", "bandwidth", "launch", "input", "transfer", "-"};
static const char *const k_extras[] = {"idle", "tensor", "memory"};
enum { BOUNDS = HN_COUNT_OF(k_bounds), EXTRAS = HN_COUNT_OF(k_extras) };

typedef struct tally {
    int loops, bounds[BOUNDS][BOUNDS], extras[EXTRAS][3]; // extras: right, missed, wrongly said
    int throttled, wrong;
} tally;

static const char *source_dir(void) {
    const char *dir = getenv("HONE_SOURCE_DIR");
    return dir ? dir : ".";
}

static int row_of(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    fail_msg("'%s' is no class", name);
    return -1;
}

// "compute tensor" of a recording's card; findings as hone report says them.
static void findings_of(const char *path, const char *phase, char out[256], bool extras[HN_DIAGNOSIS_COUNT]) {
    hone_error err = {0};
    hn_exec_result *r = calloc(1, sizeof *r);
    hn_exec_findings all;
    if (hn_recorded_read(&err, path, 0, INFINITY, phase, r) != HONE_OK) fail_msg("%s", err.text);
    hn_span *spans = hn_exec_spans(r, -1);
    assert_non_null(spans);
    assert_true(hn_exec_findings_make(r, spans, &all));
    snprintf(out, 256, "-");
    memset(extras, 0, HN_DIAGNOSIS_COUNT * sizeof *extras);
    for (int i = 0; i < all.count; i++) {
        const hn_diagnosis_row *row = &hn_diagnosis_rows[all.items[i].what];
        assert_true(all.items[i].evidence[0] && all.items[i].remedy[0]);
        if (row->bound) snprintf(out, 256, "%s", row->token);
        else extras[all.items[i].what] = true;
    }
    hn_free(all.items);
    hn_free(spans);
    hn_exec_result_free(r);
    free(r);
}

static bool names(const char *expected, const char *extra) { // in "compute,tensor,?throttled:..."
    const char *at = strchr(expected, ',');
    for (size_t length = strlen(extra); at; at = strchr(at + 1, ','))
        if (strncmp(at + 1, extra, length) == 0 && (at[1 + length] == ',' || at[1 + length] == '\0')) return true;
    return false;
}

static void judge(tally *t, const char *name, const char *expected) {
    char path[512], found[256], want[32];
    bool extras[HN_DIAGNOSIS_COUNT];
    snprintf(path, sizeof path, "%s/tests/data/h200-loops/%s.hrec.gz", source_dir(), name);
    snprintf(want, sizeof want, "%.*s", (int)strcspn(expected, ","), expected);
    findings_of(path, NULL, found, extras);
    t->loops++;
    t->bounds[row_of(k_bounds, BOUNDS, want)][row_of(k_bounds, BOUNDS, found)]++;
    bool right = strcmp(want, found) == 0;
    for (int e = 0; e < EXTRAS; e++) {
        bool wanted = names(expected, k_extras[e]), said = false;
        for (int what = 0; what < HN_DIAGNOSIS_COUNT; what++)
            said |= extras[what] && strcmp(hn_diagnosis_rows[what].token, k_extras[e]) == 0;
        if (wanted && said) t->extras[e][0]++;
        if (wanted && !said) t->extras[e][1]++;
        if (!wanted && said) t->extras[e][2]++;
        right &= wanted == said;
    }
    t->throttled += extras[HN_DIAG_throttled];
    t->wrong += !right;
    if (!right) print_message("not as expected: %s (%s)\n", name, expected);
}

static void matrix_text(const tally *t, hn_str *out) {
    hn_str_append(out, "| true class | compute | bandwidth | launch | input | transfer | none |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < BOUNDS; i++) {
        hn_str_printf(out, "| %s |", strcmp(k_bounds[i], "-") ? k_bounds[i] : "none (idle)");
        for (int k = 0; k < BOUNDS; k++) hn_str_printf(out, " %d |", t->bounds[i][k]);
        hn_str_append(out, "\n");
    }
    hn_str_append(out, "\n| said beside it | right | missed | wrongly said |\n|---|---|---|---|\n");
    for (int e = 0; e < EXTRAS; e++)
        hn_str_printf(out, "| %s | %d | %d | %d |\n", k_extras[e], t->extras[e][0], t->extras[e][1], t->extras[e][2]);
}

static void test_confusion_matrix(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512], *text, *page;
    size_t bytes, page_bytes;
    tally t = {0};
    snprintf(path, sizeof path, "%s/tests/data/h200-loops/loops.tsv", source_dir());
    assert_int_equal(hn_file_read(&err, path, 1 << 16, &text, &bytes), HONE_OK);
    hn_slice rest = {text, bytes}, line;
    while (hn_slice_line(&rest, &line)) {
        char name[64], expected[128];
        if (line.length == 0) continue;
        char *copy = hn_strndup(line.data, line.length);
        assert_int_equal(sscanf(copy, "%63[^\t]\t%127[^\n]", name, expected), 2);
        judge(&t, name, expected);
        hn_free(copy);
    }
    hn_str matrix = {0};
    matrix_text(&t, &matrix);
    print_message("%s%d loops, %d not in all as expected, %d at the power limit\n", hn_str_get(&matrix), t.loops, t.wrong, t.throttled);
    // Three and more loops of each class, and mixed ones.
    assert_true(t.loops >= 30);
    for (int i = 0; i < BOUNDS; i++) {
        int loops = 0;
        for (int k = 0; k < BOUNDS; k++) loops += t.bounds[i][k];
        assert_true(loops >= 3);
    }
    for (int e = 0; e < EXTRAS; e++) assert_true(t.extras[e][0] + t.extras[e][1] >= 3);
    snprintf(path, sizeof path, "%s/docs/diagnosis.md", source_dir());
    assert_int_equal(hn_file_read(&err, path, 1 << 20, &page, &page_bytes), HONE_OK);
    if (!strstr(page, hn_str_get(&matrix))) fail_msg("docs/diagnosis.md shows another matrix");
    hn_free(page);
    hn_free(text);
    hn_str_free(&matrix);
}

// The recording on which the thresholds were set: every phase by its name.
static void test_own_recording(void **state) {
    (void)state;
    static const struct { const char *phase, *found; } k_phases[] = {
        {"matmul", "compute"},       {"train", "bandwidth"},   {"validate", "bandwidth"}, {"launch-bound", "launch"},
        {"infer-batch-1", "launch"}, {"input-starved", "input"}, {"copy-bound", "transfer"}, {"bandwidth-bound", "bandwidth"},
        {"decode", "bandwidth"},     {"idle", "-"}};
    char path[512], found[256];
    bool extras[HN_DIAGNOSIS_COUNT];
    snprintf(path, sizeof path, "%s/tests/data/h200-mixed.hrec.gz", source_dir());
    for (size_t i = 0; i < HN_COUNT_OF(k_phases); i++) {
        findings_of(path, k_phases[i].phase, found, extras);
        assert_string_equal(found, k_phases[i].found);
        assert_true(extras[HN_DIAG_idle] == (strcmp(k_phases[i].phase, "idle") == 0));
        assert_false(extras[HN_DIAG_tensor] || extras[HN_DIAG_memory]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_confusion_matrix), cmocka_unit_test(test_own_recording)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
