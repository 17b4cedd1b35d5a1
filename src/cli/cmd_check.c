// SPDX-License-Identifier: Apache-2.0
// hone check: ONNX test-data folders (a model with test_data_set_N beside it), found recursively.
#include "cli/load.h"
#include "ir/compare.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_HOST_OPS 256
#define MAX_STEPS    4096

typedef struct check_args {
    bool reference, verbose, json;
    const char *device;
    int passed, failed, skipped;
    json_t *models; // with --json
    // Of a card: nodes' steps there and on the host, the latter by operator.
    // `between`: nodes between plans, on the host, since shapes follow from their values.
    int64_t card_steps, host_steps, between;
    struct {
        char op[48];
        int64_t steps;
    } host[MAX_HOST_OPS];
    int host_count;
} check_args;

static hn_status compare_sample(hone_error *err, hn_cli_model *m, int64_t sample) {
    for (int i = 0; i < m->output_count; i++) {
        const hn_tensor *expected = hn_dataset_reference(m->dataset, sample, i);
        if (!expected) continue;
        const char *name = m->module->main->outputs.data[i]->name;
        hn_diff diff;
        double rtol, atol;
        hn_dtype_tolerance(expected->dtype, &rtol, &atol);
        HN_TRY_CTX(err, hn_tensor_diff(err, expected, &m->outputs[i], &diff), "output '%s'", name);
        if (!hn_diff_within(&diff, rtol, atol))
            HN_FAIL(err, HONE_ERR_CHECK,
                    "output '%s' differs by %.3g at element %lld (largest value %.3g, %lld of %lld "
                    "not comparable)",
                    name, diff.max_abs, (long long)diff.worst, diff.max_ref,
                    (long long)diff.mismatched, (long long)diff.count);
    }
    return HONE_OK;
}

// Does a node with a random result run anywhere in the graph?
static bool is_random(const hn_graph *graph) {
    for (const hn_node *node = graph->first; node; node = node->next) {
        if (hn_op_has(node->op, HN_T_RANDOM)) return true;
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH && is_random(node->attrs[i].graph))
                return true;
    }
    return false;
}

static bool on_card(const check_args *a) { return a->device && strcmp(a->device, "cpu") != 0; }

// Where the plan that ran last has its steps.
static hn_status count_steps(hone_error *err, check_args *a, const hn_session *session) {
    hn_step_info *steps = hn_calloc(MAX_STEPS, sizeof *steps);
    if (!steps) HN_NOMEM(err, "counting steps");
    int count = hn_session_steps(session, steps, MAX_STEPS);
    hn_session_stats stats;
    hn_session_get_stats(session, &stats);
    a->between += stats.barriers;
    for (int i = 0; i < count && i < MAX_STEPS; i++) {
        if (!steps[i].node) continue;
        if (steps[i].on_device) {
            a->card_steps++;
            continue;
        }
        int at = 0;
        while (at < a->host_count && strcmp(a->host[at].op, steps[i].op_type) != 0)
            at++;
        if (at == MAX_HOST_OPS) continue;
        if (at == a->host_count)
            snprintf(a->host[a->host_count++].op, sizeof a->host[0].op, "%s", steps[i].op_type);
        a->host[at].steps++;
        a->host_steps++;
    }
    hn_free(steps);
    return HONE_OK;
}

static hn_status check_model(hone_error *err, check_args *a, const char *folder,
                             const char *model_path) {
    hn_cli_model m = {.device = a->device, .data = folder, .reference = a->reference};
    HN_TRY(hn_cli_model_open(err, &m, model_path, false));
    hone_status status = HONE_OK;
    for (int64_t s = 0; s < hn_dataset_count(m.dataset) && status == HONE_OK; s++) {
        status = hn_cli_model_sample(err, &m, s);
        if (status == HONE_OK) status = hn_cli_model_run(err, &m);
        if (status == HONE_OK) status = compare_sample(err, &m, s);
    }
    if ((status == HONE_OK || status == HONE_ERR_CHECK) && on_card(a)) {
        hone_status counted = count_steps(err, a, m.session);
        if (counted != HONE_OK) status = counted;
    }
    // ONNX fixes no generator, so other numbers prove nothing.
    if (status == HONE_ERR_CHECK && is_random(m.module->main))
        status = HN_SET(err, HONE_ERR_UNSUPPORTED, "random values differ from the stored ones");
    hn_cli_model_close(&m);
    return status;
}

static void check_folder(check_args *a, const char *folder, const char *model_path) {
    hone_error err = {0};
    char text[1024];
    hone_status status = check_model(&err, a, folder, model_path);
    const char *what = "passed";
    if (status == HONE_OK) {
        a->passed++;
    } else if (status == HONE_ERR_UNSUPPORTED) {
        a->skipped++;
        what = "skipped";
    } else {
        a->failed++;
        what = "FAILED";
    }
    const char *why = status == HONE_OK ? NULL : hone_error_format(&err, text, sizeof text);
    if (a->json) {
        json_array_append_new(
            a->models, json_pack("{s:o,s:s,s:o}", "folder", hn_cli_json_text(folder), "verdict",
                                 status == HONE_ERR_UNSUPPORTED ? "skipped"
                                 : status == HONE_OK            ? "passed"
                                                                : "failed",
                                 "reason", why ? hn_cli_json_text(why) : json_null()));
        return;
    }
    if (!a->verbose && (status == HONE_OK || status == HONE_ERR_UNSUPPORTED)) return;
    hn_cli_printf("%s %s%s%s\n", what, folder, why ? ": " : "", why ? why : "");
}

static int by_name(const void *a, const void *b) {
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static hn_status walk(hone_error *err, check_args *a, const char *folder, int depth) {
    char path[4096];
    struct stat info;
    DIR *dir = opendir(folder);
    if (!dir)
        HN_FAIL(err, HONE_ERR_INPUT, "cannot read the folder '%s': %s", folder, strerror(errno));
    hn_arena arena = {0};
    HN_VEC(char *) folders = {0};
    bool has_data = false;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) continue;
        if (strncmp(entry->d_name, "test_data_set_", 14) == 0) has_data = true;
        char *copy = hn_arena_strdup(&arena, path);
        if (!copy || !hn_vec_push(&folders, copy)) break;
    }
    closedir(dir);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    hone_status status = HONE_OK;
    if (has_data && stat(path, &info) == 0) {
        check_folder(a, folder, path);
    } else if (depth < 8) {
        if (folders.count) qsort(folders.data, folders.count, sizeof *folders.data, by_name);
        for (size_t i = 0; i < folders.count && status == HONE_OK; i++)
            status = walk(err, a, folders.data[i], depth + 1);
    }
    hn_vec_free(&folders);
    hn_arena_free(&arena);
    return status;
}

static int most_first(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return x[1] != y[1] ? (x[1] < y[1]) - (x[1] > y[1]) : (x[0] > y[0]) - (x[0] < y[0]);
}

static json_t *steps_json(const check_args *a) {
    if (!on_card(a)) return json_null();
    json_t *host = json_object();
    for (int i = 0; i < a->host_count; i++)
        json_object_set_new(host, a->host[i].op, json_integer(a->host[i].steps));
    return json_pack("{s:I,s:I,s:I,s:o}", "card", (json_int_t)a->card_steps, "host", (json_int_t)a->host_steps,
                     "between", (json_int_t)a->between, "host_by_op", host);
}

static void print_steps(const check_args *a) {
    int64_t order[MAX_HOST_OPS][2];
    for (int i = 0; i < a->host_count; i++) {
        order[i][0] = i;
        order[i][1] = a->host[i].steps;
    }
    qsort(order, (size_t)a->host_count, sizeof *order, most_first);
    hn_cli_printf("steps: %lld on the card, %lld between plans, %lld on the host", (long long)a->card_steps,
                  (long long)a->between, (long long)a->host_steps);
    for (int i = 0; i < a->host_count; i++)
        hn_cli_printf("%s %s %lld", i ? "," : ":", a->host[order[i][0]].op, (long long)order[i][1]);
    hn_cli_printf("\n");
}

hone_status hn_cmd_check(hone_error *err, int argc, char **argv, int *out_exit) {
    (void)out_exit;
    check_args a = {0};
    const hn_option options[] = {
        {"device", "NAME", HN_OPT_STR, &a.device, "cpu (default here)"},
        {"reference", NULL, HN_OPT_FLAG, &a.reference, "run the plain C references only"},
        {"json", NULL, HN_OPT_FLAG, &a.json, "print JSON with every folder's verdict"},
        {"verbose", NULL, HN_OPT_FLAG, &a.verbose, "list what passed and what was skipped too"},
    };
    const char *folders[256];
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), folders, 256, &count));
    if (!count) HN_FAIL(err, HONE_ERR_USAGE, "check needs at least one DIR");
    a.models = a.json ? json_array() : NULL;
    hone_status status = HONE_OK;
    for (int i = 0; i < count && status == HONE_OK; i++)
        status = walk(err, &a, folders[i], 0);
    bool none = a.passed + a.failed + a.skipped == 0;
    if (status == HONE_OK && none)
        status =
            HN_SET(err, HONE_ERR_INPUT, "no model.onnx with test_data_set_N folders was found");
    if (a.json && status == HONE_OK)
        status = hn_cli_json(err, json_pack("{s:i,s:i,s:i,s:O,s:o}", "passed", a.passed, "failed",
                                            a.failed, "skipped", a.skipped, "models", a.models, "steps", steps_json(&a)));
    json_decref(a.models);
    HN_TRY(status);
    if (!a.json && on_card(&a)) print_steps(&a);
    if (!a.json) hn_cli_printf("%d passed, %d failed, %d skipped\n", a.passed, a.failed, a.skipped);
    return a.failed ? HONE_ERR_CHECK : HONE_OK;
}
