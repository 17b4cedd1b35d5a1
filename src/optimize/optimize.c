// SPDX-License-Identifier: Apache-2.0
// The main job: load, baseline, strategies (judge.c), result (output.c), and the record of it all.
#include "optimize/optimize_int.h"
#include <sha2.h>
#include <sys/stat.h>

hn_status hn_file_sha256(hone_error *err, const char *path, char out_text[65]) {
    hn_map map;
    HN_TRY(hn_map_open(err, path, &map));
    SHA2_CTX sha;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256Init(&sha);
    SHA256Update(&sha, map.data, map.size_bytes);
    SHA256Final(digest, &sha);
    hn_map_close(&map);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(out_text + 2 * i, 3, "%02x", digest[i]);
    return HONE_OK;
}

static hn_status describe_model(hone_error *err, hn_optimizer *o) {
    HN_TRY(hn_file_sha256(err, o->options->model_path, o->result->model_sha256));
    for (const hn_node *node = o->original->main->first; node; node = node->next)
        o->result->model_nodes++;
    for (size_t i = 0; i < o->original->main->values.count; i++)
        if (o->original->main->values.data[i]->constant)
            o->result->model_params += hn_tensor_count(o->original->main->values.data[i]->constant);
    for (size_t i = 0; i < o->original->opsets.count; i++)
        if (!*o->original->opsets.data[i].domain)
            o->result->model_opset = o->original->opsets.data[i].version;
    return HONE_OK;
}

// Of a report: every strategy that made a candidate, kept or refused.
static json_t *strategies_of(const json_t *root) {
    const json_t *rows = json_object_get(root, "strategies");
    json_t *list = json_is_array(rows) ? json_array() : NULL, *row;
    size_t index;
    json_array_foreach(rows, index, row) {
        json_t *decision = json_object_get(row, "decision"), *name = json_object_get(row, "name");
        if (json_is_object(decision) && json_is_string(name))
            json_array_append_new(list, json_pack("{s:O,s:O,s:b}", "strategy", name, "decision", decision,
                                                  "kept", json_is_true(json_object_get(row, "kept"))));
    }
    return list;
}

// A strategy that this build lacks, or that is for another device, would be passed over without a word; of two
// decisions of one strategy the second would be.
static hn_status known_strategies(hone_error *err, const hn_optimizer *o, const char *path, const json_t *decisions) {
    size_t index, count;
    json_t *row;
    const hn_strategy *table = hn_strategies(&count);
    hn_strategy_on elsewhere = o->backend->on_device ? HN_ON_HOST : HN_ON_CARD;
    json_array_foreach(decisions, index, row) {
        const char *name = json_string_value(json_object_get(row, "strategy"));
        bool known = false, here = false, lossy = false;
        for (size_t i = 0; name && i < count; i++) {
            if (strcmp(table[i].name, name) != 0) continue;
            known = true;
            here = here || table[i].on != elsewhere;
            lossy = lossy || table[i].lossy;
        }
        if (!known)
            HN_FAIL(err, HONE_ERR_INPUT, "'%s' decided on the strategy '%.40s', which is not known here", path,
                    name ? name : "?");
        if (!json_is_object(json_object_get(row, "decision")))
            HN_FAIL(err, HONE_ERR_FORMAT, "the decisions of %s are incomplete", name);
        for (size_t i = 0; i < index; i++) {
            const char *other = json_string_value(json_object_get(json_array_get(decisions, i), "strategy"));
            if (other && strcmp(other, name) == 0)
                HN_FAIL(err, HONE_ERR_INPUT, "'%s' decided on the strategy '%s' twice", path, name);
        }
        if (!here && !o->recheck)
            HN_FAIL(err, HONE_ERR_UNSUPPORTED, "'%s' decided on the strategy '%s', which is of another device: see --device",
                    path, name);
        if (o->recheck && lossy && !o->options->data_path)
            HN_FAIL(err, HONE_ERR_USAGE, "--recheck needs --data: without it nothing can judge '%s'", name);
    }
    return HONE_OK;
}

// The sum of the file that the report was written with; reports before it had one say nothing.
static hn_status load_sum(hone_error *err, hn_optimizer *o, const char *path, const json_t *root) {
    const json_t *sum = json_object_get(root, "result_sha256");
    const char *text = json_string_value(sum);
    if (!sum || json_is_null(sum)) return HONE_OK;
    if (!text || strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64)
        HN_FAIL(err, HONE_ERR_FORMAT, "'%s': what stands as result_sha256 is no SHA-256", path);
    memcpy(o->replay_sum, text, 65);
    return HONE_OK;
}

#define REPORT_BYTES_MAX (256u << 20)

static hn_status load_replay(hone_error *err, hn_optimizer *o) {
    const char *path = o->options->recheck_path ? o->options->recheck_path : o->options->replay_path;
    if (!path) return HONE_OK;
    o->recheck = o->options->recheck_path != NULL;
    json_error_t why;
    char *text;
    size_t bytes;
    HN_TRY(hn_file_read(err, path, REPORT_BYTES_MAX, &text, &bytes));
    json_t *root = json_loadb(text, bytes, 0, &why);
    hn_free(text);
    if (!root)
        HN_FAIL(err, HONE_ERR_FORMAT, "'%s' is no report: what stands at line %d, column %d is not JSON",
                path, why.line, why.column);
    json_t *decisions = o->recheck ? strategies_of(root) : json_incref(json_object_get(root, "decisions"));
    const char *sha = json_string_value(json_object_get(json_object_get(root, "model"), "sha256"));
    hone_status status = HONE_OK;
    if (!json_is_array(decisions))
        status = HN_SET(err, HONE_ERR_INPUT, "'%s' holds no decisions", path);
    else if (!sha || strcmp(sha, o->result->model_sha256) != 0)
        status =
            HN_SET(err, HONE_ERR_INPUT, "'%s' was made for another model (its SHA-256 differs)",
                   path);
    else if (o->recheck && !json_array_size(decisions))
        status = HN_SET(err, HONE_ERR_INPUT, "'%s' has no strategy that made a candidate: nothing can be measured again",
                        path);
    else if ((status = known_strategies(err, o, path, decisions)) == HONE_OK &&
             (status = load_sum(err, o, path, root)) == HONE_OK)
        o->replay = json_incref(decisions);
    json_decref(decisions);
    json_decref(root);
    return status;
}

static bool one_file(const struct stat *a, const char *path) {
    struct stat b;
    return path && stat(path, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

// The result may take the model's own place, but nothing else that is read.
static hn_status spare_inputs(hone_error *err, const hn_optimize_options *options) {
    const char *out = options->out_path, *data = options->data_path;
    struct stat info, folder;
    if (!out || stat(out, &info) != 0 || one_file(&info, options->model_path)) return HONE_OK;
    if (one_file(&info, options->replay_path))
        HN_FAIL(err, HONE_ERR_USAGE, "-o '%s' is the report that is followed: it would be replaced by the model", out);
    if (hn_map_holds(out))
        HN_FAIL(err, HONE_ERR_USAGE, "-o '%s' is a file of the model's weights: it would be replaced by the new model",
                out);
    bool is_data = one_file(&info, data);
    char at[PATH_MAX], root[PATH_MAX];
    const char *dot = strrchr(out, '.');
    if (data && dot && (!strcmp(dot, ".npz") || !strcmp(dot, ".npy") || !strcmp(dot, ".pb")) &&
        stat(data, &folder) == 0 && S_ISDIR(folder.st_mode) && realpath(out, at) && realpath(data, root)) {
        size_t length = strlen(root);
        is_data = strncmp(at, root, length) == 0 && at[length] == '/';
    }
    if (is_data) HN_FAIL(err, HONE_ERR_USAGE, "-o '%s' is data that is read: it would be replaced by the model", out);
    return HONE_OK;
}

static hn_status run(hone_error *err, hn_optimizer *o) {
    hn_optimize_result *r = o->result;
    const hn_optimize_options *options = o->options;
    HN_TRY(hn_backend_open(err, options->device ? options->device : "cpu", 0, &o->backend));
    HN_TRY_CTX(err, hn_onnx_load(err, options->model_path, NULL, &o->original), "loading '%s'",
               options->model_path);
    HN_TRY(spare_inputs(err, options));
    HN_TRY(describe_model(err, o));
    HN_TRY(load_replay(err, o));
    HN_TRY(hn_gate_open(err, options, o->original, o->backend, &o->gate));
    hn_optimizer_progress(o, "baseline", 0);
    // The input model against itself: what the machine's noise looks like today.
    hn_session *twin;
    HN_TRY(hn_gate_session(err, &o->gate, o->original, &twin));
    hone_status status = hn_gate_pair(err, &o->gate, o->gate.baseline, twin, &r->aa);
    hn_session_free(twin);
    HN_TRY(status);
    HN_TRY(
        hn_gate_accuracy(err, &o->gate, o->gate.baseline, HN_SPLIT_GATE, 0, &r->baseline.accuracy));
    HN_TRY(hn_optimizer_notes(err, o));
    hn_side_fill(&o->gate, &r->aa.a, o->gate.baseline, &r->baseline);
    HN_TRY(hn_side_energy(err, &o->gate, o->gate.baseline, &r->baseline));
    struct stat info;
    if (stat(options->model_path, &info) == 0) r->baseline.file_bytes = (int64_t)info.st_size;
    o->current = hn_module_clone(o->original, NULL);
    if (!o->current) HN_NOMEM(err, "optimising");
    HN_TRY(hn_gate_session(err, &o->gate, o->current, &o->current_session));
    o->current_accuracy = r->baseline.accuracy;
    HN_TRY(hn_optimizer_try_all(err, o));
    if (!o->recheck) {
        if (o->replay && !*o->replay_sum)
            hn_optimizer_note(o, "the report does not say which file it made (result_sha256): the result was compared with none");
        HN_TRY(hn_optimizer_write(err, o));
        hn_optimizer_note_start(o);
    }
    if (options->details) HN_TRY(hn_optimizer_steps(err, o));
    r->decisions = json_dumps(o->decisions, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (!r->decisions) HN_NOMEM(err, "recording decisions");
    return HONE_OK;
}

// What is not tried cannot be kept by force.
static hn_status forced_are_tried(hone_error *err, const hn_optimize_options *options) {
    size_t count;
    const hn_strategy *table = hn_strategies(&count);
    for (size_t i = 0; i < count && options->force && options->only; i++)
        if (hn_strategy_listed(options->force, table[i].name) && !hn_strategy_listed(options->only, table[i].name))
            HN_FAIL(err, HONE_ERR_USAGE, "--force names '%s', which --only leaves out", table[i].name);
    return HONE_OK;
}

hn_status hn_optimize_run(hone_error *err, const hn_optimize_options *options,
                          hn_optimize_result *out_result) {
    HN_TRY(hn_strategy_names(err, "--only", options->only));
    HN_TRY(hn_strategy_names(err, "--force", options->force));
    HN_TRY(forced_are_tried(err, options));
    hn_optimize_result result = {0};
    hn_optimizer o = {.options = options, .result = &result, .decisions = json_array()};
    o.start_ns = hn_clock_ns();
    if (options->time_limit_s > 0)
        o.deadline_ns = hn_clock_ns() + (int64_t)(options->time_limit_s * 1e9);
    hone_status status = run(err, &o);
    hn_session_free(o.current_session);
    hn_gate_close(&o.gate);
    hn_module_free(o.current);
    for (int i = 0; i < o.kept_count; i++)
        hn_module_free(o.kept[i].before);
    hn_module_free(o.original);
    if (o.backend) o.backend->close(o.backend);
    json_decref(o.decisions);
    json_decref(o.replay);
    if (status != HONE_OK) {
        hn_optimize_result_free(&result);
        return status;
    }
    *out_result = result;
    return HONE_OK;
}

void hn_optimize_result_free(hn_optimize_result *result) {
    hn_vec_free(&result->layers);
    hn_vec_free(&result->memory);
    for (int i = 0; i < result->verdict_count; i++)
        hn_free(result->verdicts[i].decision);
    hn_free(result->decisions);
    *result = (hn_optimize_result){0};
}
