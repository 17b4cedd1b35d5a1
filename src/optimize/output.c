// SPDX-License-Identifier: Apache-2.0
// The end of a run: the result under a temporary name, confirmation of the whole chain, its name.
//
// Confirmed means: the written file is read back and judged on the gate's data, timed against the input
// model here, and timed again by a process of its own that knows nothing of this one. What is slower than the
// input there, at the threads and batch that were asked for, is not delivered: the strategy kept last goes, and
// what is left is confirmed again.
#include "optimize/optimize_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t file_bytes(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

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
    int lock; // of the folder, as long as this process lives; -1: none
} stage;

#define STALE_S 60 // a folder is locked only a moment after it was made

// Removes one that a process left which was killed: its lock is gone. On file systems without locks of folders
// all stay.
static void remove_stale(int parent, const char *name) {
    struct stat info;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    DIR *dir = NULL;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && time(NULL) - info.st_mtime > STALE_S &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) (void)unlinkat(fd, entry->d_name, 0);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
    closedir(dir);
}

// Beside the output, where killed runs left them.
static void remove_stale_folders(const char *out_path) {
    char target[PATH_MAX];
    if (hn_file_target(NULL, out_path, target) != HONE_OK) return;
    char *slash = strrchr(target, '/');
    if (slash) slash[1] = '\0';
    DIR *dir = opendir(slash ? target : ".");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (strncmp(entry->d_name, ".hone-", 6) == 0 && strlen(entry->d_name) == 12) remove_stale(dirfd(dir), entry->d_name);
    if (dir) closedir(dir);
}

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
    s->lock = open(s->folder.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock >= 0) (void)!flock(s->lock, LOCK_EX | LOCK_NB); // ends with the process, however that ends
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
    if (s->lock >= 0) close(s->lock);
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

// ---- fresh processes ----------------------------------------------------------------------------
extern char **environ;

static hn_status run_command(hone_error *err, char *const *argv, hn_str *out_text) {
    int ends[2], code = 0;
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0)
        HN_FAIL(err, HONE_ERR_IO, "a pipe cannot be made: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    int failed = posix_spawn(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char part[4096];
    for (ssize_t got; !failed && (got = read(ends[0], part, sizeof part)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        hn_str_append_n(out_text, part, (size_t)got);
    }
    close(ends[0]);
    if (failed) HN_FAIL(err, HONE_ERR_IO, "'%s' cannot be started: %s", argv[0], strerror(failed));
    while (waitpid(child, &code, 0) < 0 && errno == EINTR) {}
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0)
        HN_FAIL(err, HONE_ERR_INTERNAL, "the fresh process that measures again ended with status %d",
                WIFEXITED(code) ? WEXITSTATUS(code) : -1);
    return HONE_OK;
}

// hone bench INPUT --vs RESULT --json, by a process that knows nothing of this one.
static hn_status measure_fresh(hone_error *err, const hn_optimizer *o, const char *path,
                               double time, hn_pair *out_pair) {
    const hn_optimize_options *p = o->options;
    char seconds[32], threads[16], batch[32];
    snprintf(seconds, sizeof seconds, "%g", time);
    snprintf(threads, sizeof threads, "%d", hn_parallel_threads());
    snprintf(batch, sizeof batch, "%lld", (long long)p->batch);
    const char *argv[32 + 2 * 64];
    int n = 0;
    const char *const fixed[] = {p->hone_path, "bench", p->model_path, "--vs", path, "--json",
                                 "--seconds", seconds, "--threads", threads};
    for (size_t i = 0; i < HN_COUNT_OF(fixed); i++)
        argv[n++] = fixed[i];
    argv[n++] = "--energy-source", argv[n++] = "none"; // nobody asks that process for joules
    if (p->device) argv[n++] = "--device", argv[n++] = p->device;
    if (hn_gate_on_card(&o->gate)) argv[n++] = "--resident"; // as the gate times
    if (p->data_path) argv[n++] = "--data", argv[n++] = p->data_path;
    if (p->batch > 0) argv[n++] = "--batch", argv[n++] = batch;
    for (int i = 0; i < p->shape_count && i < 64; i++)
        argv[n++] = "--shape", argv[n++] = p->shapes[i];
    argv[n] = NULL;
    hn_str text = {0};
    hone_status status = run_command(err, (char *const *)(uintptr_t)argv, &text);
    json_t *root = status == HONE_OK ? json_loads(hn_str_get(&text), 0, NULL) : NULL;
    const json_t *ci = json_object_get(root, "speedup_ci");
    hn_pair pair = {.speedup = json_number_value(json_object_get(root, "speedup")),
                    .speedup_ci = {json_number_value(json_array_get(ci, 0)),
                                   json_number_value(json_array_get(ci, 1))},
                    .pairs = (int)json_integer_value(json_object_get(root, "pairs"))};
    if (status == HONE_OK && !(pair.speedup > 0))
        status = HN_SET(err, HONE_ERR_INTERNAL, "the fresh process printed no measurement");
    json_decref(root);
    hn_str_free(&text);
    if (status == HONE_OK) *out_pair = pair;
    return status;
}

// Both saw the same where the intervals meet, or the medians lie within a tenth of each other.
static bool agree(const hn_pair *a, const hn_pair *b) {
    if (a->speedup_ci[0] <= b->speedup_ci[1] && b->speedup_ci[0] <= a->speedup_ci[1]) return true;
    return fabs(log(a->speedup / b->speedup)) < 0.1;
}

static bool for_time(hn_objective objective) {
    return objective == HN_OBJECTIVE_LATENCY || objective == HN_OBJECTIVE_THROUGHPUT;
}

// The same here, where there is no command to start.
static hn_status measure_here(hone_error *err, hn_optimizer *o, const char *path, double time, hn_pair *out_pair) {
    hn_module *module = NULL;
    hn_session *session = NULL;
    double before = o->gate.measure.seconds;
    hone_status status = hn_onnx_load(err, path, NULL, &module);
    if (status == HONE_OK) status = hn_gate_session(err, &o->gate, module, &session);
    o->gate.measure.seconds = time;
    if (status == HONE_OK) status = hn_gate_pair(err, &o->gate, o->gate.baseline, session, out_pair);
    o->gate.measure.seconds = before;
    hn_session_free(session);
    hn_module_free(module);
    return status;
}

// What the result may be slower by and still count as not slower: what the model against itself showed, and
// never more than a twentieth; for other objectives the time that may be paid.
static double allowance(const hn_optimizer *o) {
    const double *aa = o->result->aa.speedup_ci;
    if (!for_time(o->options->objective)) return 1 - 1 / HN_MAX_SLOWDOWN;
    return fmin(0.05, fmax(1 - 1 / HN_GATE_MARGIN, fmax(1 - aa[0], aa[1] - 1)));
}

#define CONFIRMATIONS 3

// Stands where an interval lies above 1 within the noise. A wide one is measured again, for longer; if it stays
// wide the median of all must be a gain. Twice slower for sure ends it.
static hn_status confirm_speed(hone_error *err, hn_optimizer *o, const char *path, bool *out_stands) {
    hn_optimize_result *r = o->result;
    double least = 1 - allowance(o), medians[CONFIRMATIONS], time = o->options->seconds > 0 ? o->options->seconds : 2;
    int slower = 0;
    *out_stands = true;
    if (o->replay) return HONE_OK;
    bool fresh = o->options->hone_path != NULL;
    hn_optimizer_progress(o, fresh ? "confirming in a fresh process" : "confirming", 0.97);
    for (int i = 0; i < CONFIRMATIONS; i++, time *= 1.5) {
        hn_pair pair;
        HN_TRY(fresh ? measure_fresh(err, o, path, time, &pair) : measure_here(err, o, path, time, &pair));
        if (fresh) r->fresh = pair;
        else r->total = pair;
        r->fresh_agrees = agree(&r->total, &pair);
        if (pair.speedup_ci[0] >= least || o->options->force) return HONE_OK;
        medians[i] = pair.speedup;
        slower += pair.speedup_ci[1] < least;
        if (slower == 2) break;
    }
    *out_stands = slower < 2 && hn_median(medians, CONFIRMATIONS) >= HN_GATE_MARGIN;
    return HONE_OK;
}

static void withdraw(hn_optimizer *o, const char *why) {
    hn_optimize_result *r = o->result;
    const hn_pair *seen = o->options->hone_path ? &r->fresh : &r->total;
    hn_verdict *v = hn_optimizer_withdraw(o);
    char before[120];
    snprintf(before, sizeof before, "%.*s", (int)strcspn(v->reason, ";"), v->reason);
    if (*why) snprintf(v->reason, sizeof v->reason, "not confirmed: the written model does not pass again: %s", why);
    else snprintf(v->reason, sizeof v->reason,
             "not confirmed: with it the whole is %.3fx [%.3f, %.3f] the speed of the input model in the end; alone: %s",
             seen->speedup, seen->speedup_ci[0], seen->speedup_ci[1], before);
    r->fresh = (hn_pair){0};
}

#define WHY 200
static hn_status confirm(hone_error *err, hn_optimizer *o, const char *path, char why[WHY]);

// What replaying must give.
static hn_status compare_sum(hone_error *err, const hn_optimizer *o) {
    if (!o->replay || !*o->replay_sum || strcmp(o->replay_sum, o->result->result_sha256) == 0) return HONE_OK;
    HN_FAIL(err, HONE_ERR_INPUT, "'%s' recorded another file than its decisions give here: it was changed, or made by another build of hone",
            o->options->replay_path);
}

static hn_status sum_of_stage(hone_error *err, const hn_optimizer *o, const stage *s) {
    const char *path = access(s->data.data, F_OK) == 0 ? s->data.data : s->model.data;
    HN_TRY(hn_file_sha256(err, path, o->result->result_sha256));
    return compare_sum(err, o);
}

// Writes the best model and confirms it; *out_stands false: it is withdrawn by one step, to be tried again.
static hn_status write_best(hone_error *err, hn_optimizer *o, bool any, bool *out_stands) {
    stage s = {.lock = -1};
    char why[WHY] = "";
    *out_stands = true;
    hone_status status = stage_open(err, o->options->out_path, &s);
    if (status == HONE_OK) status = hn_onnx_save(err, any ? o->current : o->original, s.model.data);
    if (status == HONE_OK) status = sum_of_stage(err, o, &s);
    if (status == HONE_OK) status = confirm(err, o, s.model.data, why);
    if (status == HONE_OK && *why && o->replay) {
        hn_optimizer_note(o, "the file is the recorded one, but on these data it leaves the budget: %s", why);
        o->result->broken = true;
    } else if (status == HONE_OK && *why && any) {
        *out_stands = false;
    } else if (status == HONE_OK && any) {
        status = confirm_speed(err, o, s.model.data, out_stands);
    }
    if (status == HONE_OK && *out_stands) status = stage_commit(err, &s);
    stage_close(&s);
    if (status == HONE_OK && !*out_stands) withdraw(o, why);
    return status;
}

hn_status hn_optimizer_write(hone_error *err, hn_optimizer *o) {
    hn_optimize_result *r = o->result;
    char why[WHY] = "";
    remove_stale_folders(o->options->out_path);
    for (bool stands = false; !stands;) {
        bool any = o->kept_count > 0;
        r->copied = !any && copy_works(o);
        r->gathered = !any && !r->copied;
        if (r->copied) {
            memcpy(r->result_sha256, r->model_sha256, sizeof r->result_sha256);
            HN_TRY(compare_sum(err, o));
            HN_TRY(confirm(err, o, o->options->model_path, why));
            r->result = r->baseline; // the same file: what two measurements of it differ by is noise
            return copy_file(err, o->options->model_path, o->options->out_path);
        }
        HN_TRY(write_best(err, o, any, &stands));
    }
    return HONE_OK;
}

// What was written is read back, run over the gate's data and timed against the input model. `why`: the budget
// is broken.
static hn_status confirm(hone_error *err, hn_optimizer *o, const char *path, char why[WHY]) {
    hn_module *module = NULL;
    hn_session *session = NULL;
    hn_optimize_result *r = o->result;
    hn_optimizer_progress(o, "confirming", 0.95);
    hn_onnx_options load = {.keep_unknown = false};
    hone_status status = hn_onnx_load(err, path, &load, &module);
    if (status == HONE_OK) status = hn_gate_session(err, &o->gate, module, &session);
    if (status == HONE_OK)
        status = hn_gate_accuracy(err, &o->gate, session, HN_SPLIT_GATE, 0, &r->result.accuracy);
    if (status == HONE_OK && !o->options->force && (o->gate.dataset || !o->replay)) // made inputs judge no INT8
        (void)hn_gate_accepts(&o->gate.budget, &r->baseline.accuracy, &r->result.accuracy, NULL, why, WHY);
    if (status == HONE_OK)
        status = hn_gate_pair(err, &o->gate, o->gate.baseline, session, &r->total);
    hn_pair start;
    if (status == HONE_OK) status = hn_gate_start_pair(err, &o->gate, o->original, module, &start);
    if (status == HONE_OK) {
        hn_side_fill(&o->gate, &r->total.b, session, &r->result);
        status = hn_side_energy(err, &o->gate, session, &r->result);
        r->result.file_bytes = file_bytes(path);
        r->result.start_ms = start.b.p50_ms;
        r->baseline.start_ms = start.a.p50_ms;
    }
    hn_session_free(session);
    hn_module_free(module);
    return status;
}

