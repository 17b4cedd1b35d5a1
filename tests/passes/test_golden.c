// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// Golden tests of passes. tests/passes/*.ir hold cases:
//
//   == name: pass,pass [freeze] [pin=value] [near=family] [size=1: free dims are 1, not 2]
//      [wmax=64: the device's int8_weight_max]
//   graph "" { ... }          before
//   --
//   graph "" { ... }          after, or the word `same`: the passes must leave it alone
//
// Each case is also run by the references before and after on random inputs. Every rewrite must fire in
// some case. A family is the rewrites that share a name but for a number at its end (gelu-1, gelu-2);
// near=family marks a case in which none of them may fire, and every family of the two files about
// recognition needs two such. With
// HONE_UPDATE_GOLDEN=1 the file's second parts are written anew (read the difference!).
#include "support/test.h"
#include "support/module_run.h"
#include "passes/passes.h"
#include "passes/match.h"
#include <dirent.h>

#define MAX_NAMES 16
#define MAX_IO    16
#define MAX_RULES 160

typedef struct golden {
    char title[160]; // "name: passes options"
    char *before, *after;
} golden;

static hone_error err;
static int failures;

typedef struct rule {
    const char *name;
    char family[48];
    int fired, fired_now;
    bool recognition; // looked for in recognise.ir or attention.ir
} rule;
static rule rules[MAX_RULES];
static int rule_count;
static bool in_recognition;
static struct { char family[48]; int count; } nears[MAX_RULES];
static int near_count;

static void note_rule(void *user, const char *name, bool fired) {
    (void)user;
    rule *r = NULL;
    for (int i = 0; i < rule_count && !r; i++)
        if (strcmp(rules[i].name, name) == 0) r = &rules[i];
    if (!r) {
        assert_true(rule_count < MAX_RULES);
        r = &rules[rule_count++];
        r->name = name;
        snprintf(r->family, sizeof r->family, "%s", name);
        char *dash = strrchr(r->family, '-');
        if (dash && dash[1] && dash[1 + strspn(dash + 1, "0123456789")] == 0) *dash = 0;
    }
    r->recognition |= in_recognition;
    r->fired += fired;
    r->fired_now += fired;
}

// After a case: a family that it marks as near must not have fired.
static void check_near(const golden *g) {
    for (const char *at = g->title; (at = strstr(at, " near=")); at++) {
        char family[48];
        bool known = false;
        snprintf(family, sizeof family, "%.*s", (int)strcspn(at + 6, " "), at + 6);
        for (int i = 0; i < rule_count; i++) {
            if (strcmp(rules[i].family, family) != 0) continue;
            known = true;
            if (!rules[i].fired_now) continue;
            fprintf(stderr, "%s: %s fires on a near-miss\n", g->title, rules[i].name);
            failures++;
        }
        if (!known) {
            fprintf(stderr, "%s: no rewrite that was looked for is of family %s\n", g->title, family);
            failures++;
        }
        int k = 0;
        while (k < near_count && strcmp(nears[k].family, family) != 0)
            k++;
        near_count += k == near_count;
        snprintf(nears[k].family, sizeof nears[k].family, "%s", family);
        nears[k].count++;
    }
}

static int near_misses(const char *family) {
    for (int k = 0; k < near_count; k++)
        if (strcmp(nears[k].family, family) == 0) return nears[k].count;
    return 0;
}

static char *print(const hn_module *m) {
    hn_str out = {0};
    hn_module_print(&out, m);
    char *text = hn_strdup(strstr(hn_str_get(&out), "graph \""));
    hn_str_free(&out);
    return text;
}

static hn_module *load(const golden *g, const char *body) {
    hn_str text = {0};
    hn_module *m = NULL;
    hn_str_printf(&text, "hone-ir 1\n%s", body);
    if (hn_module_parse(&err, hn_str_get(&text), &m) != HONE_OK) {
        fprintf(stderr, "%s: %s (%s)\n", g->title, err.text, err.frames[0]);
        failures++;
        hn_str_free(&text);
        return NULL;
    }
    hn_str_free(&text);
    if (hn_ops_resolve(&err, m) != HONE_OK || hn_infer_module(&err, m) != HONE_OK ||
        hn_ops_verify(&err, m, false) != HONE_OK) {
        fprintf(stderr, "%s: %s\n", g->title, err.text);
        failures++;
    }
    return m;
}

// The words after the colon: passes, then options.
static bool run_passes(const golden *g, hn_module *m) {
    char copy[160], *names[MAX_NAMES + 1] = {0}, *rest = NULL;
    hn_value *pinned[1];
    hn_pass_options options = {.verify = true, .pinned = pinned, .rule = note_rule};
    snprintf(copy, sizeof copy, "%s", strchr(g->title, ':') + 1);
    char *passes = strtok_r(copy, " ", &rest);
    for (char *word; (word = strtok_r(NULL, " ", &rest));) {
        if (strcmp(word, "freeze") == 0) options.freeze_overridable = true;
        if (strncmp(word, "wmax=", 5) == 0) options.int8_weight_max = atoi(word + 5);
        if (strncmp(word, "pin=", 4) == 0)
            pinned[options.pinned_count++] = hn_graph_find(m->main, word + 4);
    }
    int count = 0;
    for (char *name = strtok_r(passes, ",", &rest); name && count < MAX_NAMES;
         name = strtok_r(NULL, ",", &rest))
        names[count++] = name;
    if (hn_passes_run_list(&err, m, (const char *const *)names, &options) == HONE_OK) return true;
    fprintf(stderr, "%s: %s (%s)\n", g->title, err.text, err.frames[0]);
    failures++;
    return false;
}

static void compare_numbers(const golden *g, const hn_module *before, const hn_module *after) {
    hn_tensor in[MAX_IO] = {{0}}, a[MAX_IO] = {{0}}, b[MAX_IO] = {{0}};
    const hn_graph *main = before->main;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        if (test_module_inputs(&err, before, seed, strstr(g->title, " size=1") ? 1 : 2, in) != HONE_OK ||
            test_module_run(&err, before, in, a) != HONE_OK ||
            test_module_run(&err, after, in, b) != HONE_OK) {
            fprintf(stderr, "%s: cannot run: %s (%s)\n", g->title, err.text, err.frames[0]);
            failures++;
        } else {
            for (size_t i = 0; i < main->outputs.count; i++) {
                // A fused step rounds less often: 16-bit outputs may move by a few of their roundings.
                double wide = strstr(g->title, " half") ? 1000 : hn_dtype_bits(a[i].dtype) < 32 ? 128 : 1; // half: computed in 16 bits
                double far = test_tensors_distance(&a[i], &b[i], 2e-5 * wide, 1e-6 * wide);
                if (far <= 1) continue;
                fprintf(stderr, "%s: output %zu differs, %g times the tolerance\n", g->title, i,
                        far);
                failures++;
            }
        }
        test_tensors_free(in, MAX_IO);
        test_tensors_free(a, MAX_IO);
        test_tensors_free(b, MAX_IO);
    }
}

// Runs a case; the text it gives now, or NULL.
static char *check(const golden *g) {
    hn_module *m = load(g, g->before);
    hn_module *original = m ? hn_module_clone(m, NULL) : NULL;
    char *got = NULL;
    for (int i = 0; i < rule_count; i++)
        rules[i].fired_now = 0;
    if (original && run_passes(g, m)) {
        check_near(g);
        char *unchanged = print(original), *wanted = NULL;
        got = print(m);
        if (strcmp(got, unchanged) == 0) {
            hn_free(got);
            got = hn_strdup("same\n");
        }
        if (hn_slice_eq(hn_slice_trim((hn_slice){g->after, strlen(g->after)}), "same")) {
            wanted = hn_strdup("same\n");
        } else {
            hn_module *expected = load(g, g->after);
            if (expected) wanted = print(expected);
            hn_module_free(expected);
        }
        if (wanted && strcmp(got, wanted) != 0 && !getenv("HONE_UPDATE_GOLDEN")) {
            fprintf(stderr, "== %s gives\n%s", g->title, got);
            failures++;
        }
        compare_numbers(g, original, m);
        hn_free(wanted);
        hn_free(unchanged);
    }
    hn_module_free(original);
    hn_module_free(m);
    return got;
}

static char *part(const char *begin, const char *end) {
    return hn_strndup(begin, (size_t)(end - begin));
}

static int run_file(const char *path) {
    char *text;
    size_t bytes;
    if (hn_file_read(&err, path, 1 << 24, &text, &bytes) != HONE_OK) fail_msg("%s", err.text);
    int count = 0;
    hn_str updated = {0};
    const char *at = strncmp(text, "== ", 3) == 0 ? text : strstr(text, "\n== ");
    at = at ? at : text + bytes;
    hn_str_append_n(&updated, text, (size_t)(at - text));
    while (*at) {
        golden g = {0};
        at += *at == '\n' ? 4 : 3;
        const char *line = strchr(at, '\n');
        snprintf(g.title, sizeof g.title, "%.*s", (int)(line - at), at);
        const char *end = strstr(line, "\n== ");
        if (!end) end = text + bytes;
        const char *bar = strstr(line, "\n--\n");
        if (!bar || bar > end) fail_msg("%s: case %s has no '--'", path, g.title);
        g.before = part(line + 1, bar + 1);
        g.after = part(bar + 4, end);
        char *now = check(&g);
        hn_str_printf(&updated, "%s== %s\n%s--\n%s", updated.length ? "\n" : "", g.title, g.before,
                      now ? now : g.after);
        while (updated.length && updated.data[updated.length - 1] == '\n')
            updated.data[--updated.length] = 0;
        hn_str_append(&updated, "\n"); // an empty line between cases
        count++;
        hn_free(now);
        hn_free(g.before);
        hn_free(g.after);
        at = end;
    }
    if (getenv("HONE_UPDATE_GOLDEN"))
        (void)!hn_file_write(&err, path, updated.data, updated.length);
    hn_str_free(&updated);
    hn_free(text);
    return count;
}

static void test_all(void **state) {
    (void)state;
    char folder[512], path[1024];
    int files = 0, cases = 0;
    snprintf(folder, sizeof folder, "%s/tests/passes", getenv("HONE_SOURCE_DIR"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        const char *only = getenv("HONE_GOLDEN_ONLY");
        if (length < 4 || strcmp(entry->d_name + length - 3, ".ir") != 0) continue;
        if (only && strcmp(only, entry->d_name) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        in_recognition = strcmp(entry->d_name, "recognise.ir") == 0 || strcmp(entry->d_name, "attention.ir") == 0;
        cases += run_file(path);
        files++;
    }
    closedir(dir);
    printf("%d cases in %d files, %d rewrites\n", cases, files, rule_count);
    for (int i = 0; i < rule_count && !getenv("HONE_GOLDEN_ONLY"); i++) {
        int near = near_misses(rules[i].family);
        if (!rules[i].fired) fprintf(stderr, "no case makes %s fire\n", rules[i].name);
        if (rules[i].recognition && near < 2)
            fprintf(stderr, "%s: %d near-misses of its family, 2 are due\n", rules[i].name, near);
        failures += !rules[i].fired || (rules[i].recognition && near < 2);
    }
    assert_true(files > 0 && cases > 0);
    assert_int_equal(failures, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
