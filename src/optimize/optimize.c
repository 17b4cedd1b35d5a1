// SPDX-License-Identifier: Apache-2.0
// The main job's loop: baseline, strategies, verdicts, confirmation, output.
#include "optimize/optimize_int.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sha2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const hn_strategy k_strategies[] = {
#define HN_STRATEGY(name, lossy, needs_data, optimises, doc)                                       \
    {#name, lossy, needs_data, optimises, doc, hn_strategy_##name},
#include "optimize/strategies.def"
#undef HN_STRATEGY
};

// A strategy must win by this much at the bad end of the interval.
#define MARGIN 1.02

void hn_optimizer_progress(const hn_optimizer *o, const char *what, double share) {
    if (o->options->progress) o->options->progress(o->options->user, what, share);
}

// ---- sides --------------------------------------------------------------------------------------
static int64_t file_bytes(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

static int64_t weight_bytes(const hn_module *module) {
    int64_t bytes = 0;
    for (size_t i = 0; i < module->main->values.count; i++)
        if (module->main->values.data[i]->constant)
            bytes += (int64_t)module->main->values.data[i]->constant->bytes;
    return bytes;
}

static int64_t session_bytes(const hn_session *session) {
    hn_session_stats stats;
    hn_session_get_stats(session, &stats);
    return (int64_t)(stats.weight_bytes + stats.slab_bytes + stats.prepacked_bytes);
}

static double rows_per_call(const hn_gate *gate) {
    hn_tensor inputs[HN_MAX_KERNEL_IO];
    if (!gate->input_count || hn_gate_inputs(NULL, gate, 0, inputs) != HONE_OK) return 1;
    return inputs[0].shape.rank && inputs[0].shape.dims[0] > 0 ? (double)inputs[0].shape.dims[0]
                                                               : 1;
}

static void fill_side(const hn_gate *gate, const hn_latency *latency, const hn_session *session,
                      hn_side *out) {
    out->latency = *latency;
    out->throughput_per_s = rows_per_call(gate) * 1e3 / latency->p50_ms;
    out->peak_memory_bytes = session_bytes(session);
}

// ---- one strategy -------------------------------------------------------------------------------
static bool listed(const char *list, const char *name) {
    if (!list) return true;
    size_t length = strlen(name);
    for (const char *at = list; *at;) {
        size_t item = strcspn(at, ",");
        if (item == length && memcmp(at, name, length) == 0) return true;
        at += item + (at[item] == ',');
    }
    return false;
}

// A name that no strategy has would silently try nothing.
static hn_status check_names(hone_error *err, const char *option, const char *list) {
    for (const char *at = list; at && *at;) {
        size_t item = strcspn(at, ",");
        bool known = false;
        for (size_t i = 0; i < HN_COUNT_OF(k_strategies) && !known; i++)
            known =
                strlen(k_strategies[i].name) == item && memcmp(at, k_strategies[i].name, item) == 0;
        if (!known) {
            hn_str names = {0};
            for (size_t i = 0; i < HN_COUNT_OF(k_strategies); i++)
                hn_str_printf(&names, "%s%s", i ? ", " : "", k_strategies[i].name);
            hone_status status = HN_SET(err, HONE_ERR_USAGE, "%s: '%.*s' is no strategy (%s)",
                                        option, (int)item, at, hn_str_get(&names));
            hn_str_free(&names);
            return status;
        }
        at += item + (at[item] == ',');
    }
    return HONE_OK;
}

// Lossless strategies may also win by a faster start at equal latency.
static bool helps(const hn_strategy *strategy, hn_verdict *v) {
    char more[128];
    snprintf(more, sizeof more, "%.3fx [%.3f, %.3f]", v->speedup, v->speedup_ci[0],
             v->speedup_ci[1]);
    if (v->speedup_ci[0] >= MARGIN) {
        snprintf(v->reason, sizeof v->reason, "%s faster", more);
        return true;
    }
    bool not_slower = v->speedup_ci[0] >= 1 / MARGIN;
    if (!strategy->lossy && not_slower && v->start_ci[0] >= MARGIN) {
        snprintf(v->reason, sizeof v->reason, "starts %.2fx faster [%.2f, %.2f], latency %s",
                 v->start_speedup, v->start_ci[0], v->start_ci[1], more);
        return true;
    }
    if (v->speedup_ci[1] < 1)
        snprintf(v->reason, sizeof v->reason, "%.1f %% slower [%.1f, %.1f]",
                 100 * (1 / v->speedup - 1), 100 * (1 / v->speedup_ci[1] - 1),
                 100 * (1 / v->speedup_ci[0] - 1));
    else
        snprintf(v->reason, sizeof v->reason, "no effect that clears 2 %%: %s", more);
    return false;
}

static hn_status judge(hone_error *err, hn_optimizer *o, const hn_strategy *strategy,
                       hn_module *candidate, hn_session *session, hn_verdict *v) {
    hn_pair pair, start;
    char why[200];
    HN_TRY(hn_gate_accuracy(err, &o->gate, session, HN_SPLIT_GATE, 0, &v->accuracy));
    if (!hn_gate_accepts(&o->gate.budget, &o->result->baseline.accuracy, &v->accuracy,
                         !strategy->lossy, why, sizeof why)) {
        snprintf(v->reason, sizeof v->reason, "accuracy: %s", why);
        return HONE_OK;
    }
    HN_TRY(hn_gate_pair(err, &o->gate, o->current_session, session, &pair));
    v->speedup = pair.speedup;
    memcpy(v->speedup_ci, pair.speedup_ci, sizeof v->speedup_ci);
    HN_TRY(hn_gate_start_pair(err, &o->gate, o->current, candidate, &start));
    v->start_speedup = start.speedup;
    memcpy(v->start_ci, start.speedup_ci, sizeof v->start_ci);
    v->memory_ratio = (double)session_bytes(session) / (double)session_bytes(o->current_session);
    v->size_ratio = (double)weight_bytes(candidate) / fmax(1, (double)weight_bytes(o->current));
    v->kept = helps(strategy, v);
    return HONE_OK;
}

static void adopt(hn_optimizer *o, hn_module *module, hn_session *session) {
    hn_session_free(o->current_session);
    hn_module_free(o->current);
    o->current = module;
    o->current_session = session;
}

static hn_status try_strategy(hone_error *err, hn_optimizer *o, const hn_strategy *strategy,
                              hn_verdict *v) {
    hn_module *candidate = NULL;
    hn_session *session = NULL;
    json_t *decision = NULL;
    char why[160] = "";
    hone_error inner = {0};
    hone_status status = strategy->run(&inner, o, &candidate, &decision, why, sizeof why);
    // What a strategy cannot do is a refusal with its reason, not the end of the run.
    if (status == HONE_ERR_UNSUPPORTED) {
        snprintf(v->reason, sizeof v->reason, "not possible here: %.200s", inner.text);
        v->tried = true;
        return HONE_OK;
    }
    if (status != HONE_OK) {
        if (err) *err = inner;
        hn_error_frame(err, "strategy '%s'", strategy->name);
        return status;
    }
    v->tried = true;
    if (!candidate) {
        snprintf(v->reason, sizeof v->reason, "%s", why);
        return HONE_OK;
    }
    status = hn_gate_session(err, &o->gate, candidate, &session);
    if (status == HONE_OK && o->replay) {
        v->kept = true;
        snprintf(v->reason, sizeof v->reason, "replayed");
    } else if (status == HONE_OK) {
        status = judge(err, o, strategy, candidate, session, v);
        if (status == HONE_OK && !v->kept && o->options->force &&
            listed(o->options->force, strategy->name)) {
            char verdict[sizeof v->reason];
            memcpy(verdict, v->reason, sizeof verdict);
            snprintf(v->reason, sizeof v->reason, "forced, though %.200s", verdict);
            v->kept = true;
        }
        if (status == HONE_OK && *why && v->kept) {
            size_t length = strlen(v->reason);
            snprintf(v->reason + length, sizeof v->reason - length, "; %s", why);
        }
    }
    if (status == HONE_OK && v->kept) {
        json_array_append_new(
            o->decisions, json_pack("{s:s,s:O}", "strategy", strategy->name, "decision", decision));
        adopt(o, candidate, session);
    } else {
        hn_session_free(session);
        hn_module_free(candidate);
        if (strategy->lossy) o->result->layers.count = 0;
    }
    json_decref(decision);
    return status;
}

static bool replayed(const hn_optimizer *o, const char *name) {
    size_t index;
    json_t *item;
    json_array_foreach(o->replay, index, item) {
        const char *given = json_string_value(json_object_get(item, "strategy"));
        if (given && strcmp(given, name) == 0) return true;
    }
    return false;
}

static hn_status try_all(hone_error *err, hn_optimizer *o) {
    for (size_t i = 0; i < HN_COUNT_OF(k_strategies); i++) {
        const hn_strategy *strategy = &k_strategies[i];
        hn_verdict *v = &o->result->verdicts[o->result->verdict_count];
        if (o->replay ? !replayed(o, strategy->name) : !listed(o->options->only, strategy->name))
            continue;
        *v = (hn_verdict){.name = strategy->name,
                          .optimises = strategy->optimises,
                          .speedup = NAN,
                          .start_speedup = NAN,
                          .memory_ratio = NAN,
                          .size_ratio = NAN};
        v->accuracy.agreement = v->accuracy.metric = NAN;
        o->result->verdict_count++;
        hn_optimizer_progress(o, strategy->name, (double)i / HN_COUNT_OF(k_strategies));
        if (strategy->needs_data && !o->gate.dataset && !o->replay) {
            snprintf(v->reason, sizeof v->reason, "not tried: no calibration data (--data)");
            continue;
        }
        HN_TRY(try_strategy(err, o, strategy, v));
    }
    return HONE_OK;
}

// ---- output -------------------------------------------------------------------------------------
static hn_status copy_file(hone_error *err, const char *from, const char *to) {
    hn_map map;
    HN_TRY(hn_map_open(err, from, &map));
    hone_status status = hn_file_write(err, to, map.data, map.size_bytes);
    hn_map_close(&map);
    return status;
}

// Where the result waits until it is confirmed: a folder of its own beside the output. Until then
// what stands at the output's name, which may be the input, is not touched.
typedef struct stage {
    char target[PATH_MAX];
    hn_str folder, model, data;
} stage;

static hn_status stage_open(hone_error *err, const char *out_path, stage *s) {
    HN_TRY(hn_file_target(err, out_path, s->target));
    const char *slash = strrchr(s->target, '/'), *base = slash ? slash + 1 : s->target;
    hn_str_append_n(&s->folder, s->target, (size_t)(base - s->target));
    hn_str_append(&s->folder, ".hone-XXXXXX");
    if (s->folder.failed) HN_NOMEM(err, "writing the result");
    if (!mkdtemp(s->folder.data)) {
        int code = errno;
        s->folder.length = 0; // nothing to remove
        HN_FAIL(err, HONE_ERR_IO, "cannot create '%s': %s", out_path, strerror(code));
    }
    hn_temporary_add(s->folder.data);
    hn_str_printf(&s->model, "%s/%s", s->folder.data, base);
    hn_str_printf(&s->data, "%s.data", hn_str_get(&s->model));
    if (s->model.failed || s->data.failed) HN_NOMEM(err, "writing the result");
    hn_temporary_add(s->model.data);
    hn_temporary_add(s->data.data);
    return HONE_OK;
}

// The weights first: a model is never seen without them.
static hn_status stage_commit(hone_error *err, const stage *s) {
    char data[PATH_MAX + 8];
    snprintf(data, sizeof data, "%s.data", s->target);
    bool has_data = access(s->data.data, F_OK) == 0;
    if ((has_data && rename(s->data.data, data) != 0) || rename(s->model.data, s->target) != 0)
        HN_FAIL(err, HONE_ERR_IO, "cannot write '%s': %s", s->target, strerror(errno));
    return HONE_OK;
}

static void stage_close(stage *s) {
    hn_str *const names[] = {&s->model, &s->data, &s->folder};
    for (size_t i = 0; i < HN_COUNT_OF(names); i++) {
        if (names[i]->length && !names[i]->failed) {
            (void)!(names[i] == &s->folder ? rmdir(names[i]->data) : unlink(names[i]->data));
            hn_temporary_forget(names[i]->data);
        }
        hn_str_free(names[i]);
    }
}

static bool folder_of(const char *path, struct stat *out_info) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return stat(folder, out_info) == 0;
}

// A byte copy finds its external weights only in the folder that it came from.
static bool copy_works(const hn_optimizer *o) {
    struct stat from, to;
    if (!o->original->external) return true;
    return folder_of(o->options->model_path, &from) && folder_of(o->options->out_path, &to) &&
           from.st_dev == to.st_dev && from.st_ino == to.st_ino;
}

static hn_status confirm(hone_error *err, hn_optimizer *o, const char *path);

static hn_status write_output(hone_error *err, hn_optimizer *o) {
    hn_optimize_result *r = o->result;
    bool any = false;
    for (int i = 0; i < r->verdict_count; i++)
        any = any || r->verdicts[i].kept;
    r->copied = !any && copy_works(o);
    r->gathered = !any && !r->copied;
    if (r->copied) {
        HN_TRY(confirm(err, o, o->options->model_path));
        return copy_file(err, o->options->model_path, o->options->out_path);
    }
    stage s = {.folder = {0}};
    hone_status status = stage_open(err, o->options->out_path, &s);
    if (status == HONE_OK) status = hn_onnx_save(err, any ? o->current : o->original, s.model.data);
    if (status == HONE_OK) status = confirm(err, o, s.model.data);
    if (status == HONE_OK) status = stage_commit(err, &s);
    stage_close(&s);
    return status;
}

// What was written is read back, run over the gate's data and timed against the input model.
static hn_status confirm(hone_error *err, hn_optimizer *o, const char *path) {
    hn_module *module = NULL;
    hn_session *session = NULL;
    hn_optimize_result *r = o->result;
    hn_optimizer_progress(o, "confirming", 0.95);
    char why[200];
    hn_onnx_options load = {.keep_unknown = false};
    hone_status status = hn_onnx_load(err, path, &load, &module);
    if (status == HONE_OK) status = hn_gate_session(err, &o->gate, module, &session);
    if (status == HONE_OK)
        status = hn_gate_accuracy(err, &o->gate, session, HN_SPLIT_GATE, 0, &r->result.accuracy);
    if (status == HONE_OK && !o->options->force &&
        (o->gate.dataset || !o->replay) && // made inputs judge no INT8
        !hn_gate_accepts(&o->gate.budget, &r->baseline.accuracy, &r->result.accuracy, false, why,
                         sizeof why))
        status = HN_SET(err, HONE_ERR_INTERNAL, "the written model does not pass again: %s", why);
    if (status == HONE_OK)
        status = hn_gate_pair(err, &o->gate, o->gate.baseline, session, &r->total);
    hn_pair start;
    if (status == HONE_OK) status = hn_gate_start_pair(err, &o->gate, o->original, module, &start);
    if (status == HONE_OK) {
        fill_side(&o->gate, &r->total.b, session, &r->result);
        r->result.file_bytes = file_bytes(path);
        r->result.start_ms = start.b.p50_ms;
        r->baseline.start_ms = start.a.p50_ms;
    }
    hn_session_free(session);
    hn_module_free(module);
    return status;
}

static hn_status describe_model(hone_error *err, hn_optimizer *o) {
    hn_map map;
    HN_TRY(hn_map_open(err, o->options->model_path, &map));
    SHA2_CTX sha;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256Init(&sha);
    SHA256Update(&sha, map.data, map.size_bytes);
    SHA256Final(digest, &sha);
    hn_map_close(&map);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(o->result->model_sha256 + 2 * i, 3, "%02x", digest[i]);
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

static hn_status load_replay(hone_error *err, hn_optimizer *o) {
    if (!o->options->replay_path) return HONE_OK;
    json_error_t why;
    json_t *root = json_load_file(o->options->replay_path, 0, &why);
    if (!root)
        HN_FAIL(err, HONE_ERR_INPUT, "cannot read the decisions in '%s': %s (line %d)",
                o->options->replay_path, why.text, why.line);
    json_t *decisions = json_object_get(root, "decisions");
    const char *sha = json_string_value(json_object_get(json_object_get(root, "model"), "sha256"));
    hone_status status = HONE_OK;
    if (!json_is_array(decisions))
        status = HN_SET(err, HONE_ERR_INPUT, "'%s' holds no decisions", o->options->replay_path);
    else if (!sha || strcmp(sha, o->result->model_sha256) != 0)
        status =
            HN_SET(err, HONE_ERR_INPUT, "'%s' was made for another model (its SHA-256 differs)",
                   o->options->replay_path);
    else
        o->replay = json_incref(decisions);
    json_decref(root);
    return status;
}

static hn_status run(hone_error *err, hn_optimizer *o) {
    hn_optimize_result *r = o->result;
    const hn_optimize_options *options = o->options;
    HN_TRY(hn_backend_open(err, options->device ? options->device : "cpu", 0, &o->backend));
    HN_TRY_CTX(err, hn_onnx_load(err, options->model_path, NULL, &o->original), "loading '%s'",
               options->model_path);
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
    fill_side(&o->gate, &r->aa.a, o->gate.baseline, &r->baseline);
    r->baseline.file_bytes = file_bytes(options->model_path);
    o->current = hn_module_clone(o->original, NULL);
    if (!o->current) HN_NOMEM(err, "optimising");
    HN_TRY(hn_gate_session(err, &o->gate, o->current, &o->current_session));
    HN_TRY(try_all(err, o));
    HN_TRY(write_output(err, o));
    r->decisions = json_dumps(o->decisions, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (!r->decisions) HN_NOMEM(err, "recording decisions");
    return HONE_OK;
}

hn_status hn_optimize_run(hone_error *err, const hn_optimize_options *options,
                          hn_optimize_result *out_result) {
    HN_TRY(check_names(err, "--only", options->only));
    HN_TRY(check_names(err, "--force", options->force));
    hn_optimize_result result = {0};
    hn_optimizer o = {.options = options, .result = &result, .decisions = json_array()};
    hone_status status = run(err, &o);
    hn_session_free(o.current_session);
    hn_gate_close(&o.gate);
    hn_module_free(o.current);
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
    hn_free(result->decisions);
    *result = (hn_optimize_result){0};
}
