// SPDX-License-Identifier: Apache-2.0
// Strategies that leave the graph alone and choose how it is run: `threads` and `batch`. The choice goes
// into the file's metadata (onnx/hints.c), where sessions and servers look for it.
#include "optimize/optimize_int.h"
#include <math.h>

static hn_status hinted(hone_error *err, const hn_optimizer *o, const char *key, const char *value,
                        hn_module **out_module) {
    hn_module *module = hn_module_clone(o->current, NULL);
    if (!module || !hn_module_set_meta(module, key, value)) {
        hn_module_free(module);
        HN_NOMEM(err, "recording a choice");
    }
    *out_module = module;
    return HONE_OK;
}

#define MAX_THREADS 65536

// ---- threads ------------------------------------------------------------------------------------
static hn_status with_threads(hone_error *err, const hn_optimizer *o, int threads, int of, hn_module **out_module) {
    char text[48];
    snprintf(text, sizeof text, "%d of %d", threads, of);
    return hinted(err, o, HN_HINT_THREADS, text, out_module);
}

static hn_status time_threads(hone_error *err, hn_optimizer *o, int threads, hn_pair *out_pair) {
    hn_module *module = NULL;
    hn_session *session = NULL;
    HN_TRY(with_threads(err, o, threads, hn_parallel_threads(), &module));
    hone_status status = hn_gate_session(err, &o->gate, module, &session);
    if (status == HONE_OK) status = hn_gate_pair(err, &o->gate, o->current_session, session, out_pair);
    hn_session_free(session);
    hn_module_free(module);
    return status;
}

hone_status hn_strategy_threads(hone_error *err, hn_optimizer *o, hn_module **out_module,
                                json_t **out_decision, char *why, size_t why_size) {
    int most = hn_parallel_threads(), best = most;
    double speedup = 1;
    size_t length = 0;
    const json_t *given = hn_replay_of(o, "threads");
    if (given) {
        // A file is the same on a machine of another size; where it does not fit the hint is not followed.
        int64_t threads, of = most;
        if (json_object_get(given, "of")) HN_TRY(hn_decision_number(err, given, "threads", "of", 1, MAX_THREADS, &of));
        HN_TRY(hn_decision_number(err, given, "threads", "threads", 1, of, &threads));
        best = (int)threads;
        most = (int)of;
    } else if (most == 1) {
        snprintf(why, why_size, "one thread is all there is");
        return HONE_OK;
    }
    for (int k = 1; !given && k < most; k *= 2) {
        hn_pair pair;
        HN_TRY(time_threads(err, o, k, &pair));
        int n = snprintf(why + length, why_size - length, "%s%d: %.2fx [%.2f, %.2f]",
                         length ? ", " : "threads against all: ", k, pair.speedup, pair.speedup_ci[0],
                         pair.speedup_ci[1]);
        if (n > 0 && (size_t)n < why_size - length) length += (size_t)n;
        if (pair.speedup_ci[0] <= 1 || pair.speedup <= speedup) continue;
        best = k;
        speedup = pair.speedup;
    }
    if (best == most && !given) return HONE_OK; // `why` says what was seen
    HN_TRY(with_threads(err, o, best, most, out_module));
    *out_decision = json_pack("{s:i,s:i}", "threads", best, "of", most);
    snprintf(why, why_size, "%d of %d threads", best, most);
    return HONE_OK;
}

// ---- batch --------------------------------------------------------------------------------------
#define MAX_BATCH 64

typedef struct batch_inputs {
    hn_dataset *dataset;
    hn_tensor tensors[HN_MAX_KERNEL_IO];
    int made; // how many tensors are owned
} batch_inputs;

static void inputs_free(batch_inputs *in) {
    for (int i = 0; i < in->made; i++)
        hn_tensor_free(&in->tensors[i]);
    hn_dataset_free(in->dataset);
    *in = (batch_inputs){0};
}

// Inputs of `batch` rows: those of the data, or made ones of the gate's shapes.
static hn_status inputs_of(hone_error *err, const hn_optimizer *o, int64_t batch, batch_inputs *out) {
    *out = (batch_inputs){0};
    const hn_gate *gate = &o->gate;
    if (o->options->data_path) {
        HN_TRY(hn_dataset_open(err, o->options->data_path, o->original, batch, &out->dataset));
        if (hn_dataset_count(out->dataset) < 1)
            HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the data has fewer than %lld rows", (long long)batch);
        return hn_dataset_get(err, out->dataset, 0, out->tensors);
    }
    hn_shape shapes[HN_MAX_KERNEL_IO];
    for (int i = 0; i < gate->input_count; i++) {
        shapes[i] = gate->made[i].shape;
        const hn_type *type = &o->original->main->inputs.data[i]->type;
        if (type->rank > 0 && !hn_dim_is_const(type->dims[0])) shapes[i].dims[0] = batch;
    }
    HN_TRY(hn_inputs_random(err, o->original, shapes, o->options->seed + 2, out->tensors));
    out->made = gate->input_count;
    return HONE_OK;
}

// Every input's first dim is free and is the batch.
static bool batchable(const hn_module *module, char *why, size_t why_size) {
    for (size_t i = 0; i < module->main->inputs.count; i++) {
        const hn_value *in = module->main->inputs.data[i];
        if (in->type.rank > 0 && !hn_dim_is_const(in->type.dims[0])) continue;
        snprintf(why, why_size, "input '%.60s' has a fixed first dim", in->name);
        return false;
    }
    return module->main->inputs.count > 0;
}

// Row `row` of the batch alone gives the same numbers as within the batch.
static hn_status rows_stand_alone(hone_error *err, hn_optimizer *o, const batch_inputs *all,
                                  int64_t batch, bool *out_same) {
    const hn_gate *gate = &o->gate;
    hn_tensor one[HN_MAX_KERNEL_IO], wide[HN_MAX_KERNEL_IO], got[HN_MAX_KERNEL_IO];
    hn_tensor kept[HN_MAX_KERNEL_IO] = {{0}};
    hone_status status = hn_session_run(err, o->current_session, all->tensors, gate->input_count, wide,
                                        gate->output_count);
    for (int i = 0; i < gate->output_count && status == HONE_OK; i++) {
        status = hn_tensor_new(err, wide[i].dtype, &wide[i].shape, &kept[i]);
        if (status == HONE_OK && wide[i].bytes) memcpy(kept[i].data, wide[i].data, wide[i].bytes);
    }
    *out_same = true;
    for (int64_t row = 0; row < batch && row < 4 && *out_same && status == HONE_OK; row++) {
        for (int i = 0; i < gate->input_count; i++) {
            one[i] = all->tensors[i];
            one[i].shape.dims[0] = 1;
            one[i].bytes /= (size_t)batch;
            one[i].data = (char *)one[i].data + (size_t)row * one[i].bytes;
        }
        status = hn_session_run(err, o->current_session, one, gate->input_count, got, gate->output_count);
        for (int i = 0; i < gate->output_count && status == HONE_OK && *out_same; i++) {
            hn_diff diff;
            hn_tensor part = kept[i];
            *out_same = part.shape.rank > 0 && part.shape.dims[0] == batch;
            if (!*out_same) break;
            part.shape.dims[0] = 1;
            part.bytes /= (size_t)batch;
            part.data = (char *)part.data + (size_t)row * part.bytes;
            status = hn_tensor_diff(err, &got[i], &part, &diff);
            *out_same = status == HONE_OK && diff.cosine > 0.99999 && diff.nan_got == diff.nan_ref;
        }
    }
    for (int i = 0; i < gate->output_count; i++)
        hn_tensor_free(&kept[i]);
    return status;
}

typedef struct timed_batch {
    const hn_optimizer *o;
    batch_inputs in;
    hn_tensor out[HN_MAX_KERNEL_IO];
} timed_batch;

static hone_status run_batch(hone_error *err, void *user) {
    timed_batch *t = user;
    return hn_session_run(err, t->o->current_session, t->in.tensors, t->o->gate.input_count, t->out,
                          t->o->gate.output_count);
}

// Rows a second at `batch` over those at the gate's batch; the two alternate.
static hn_status time_batch(hone_error *err, hn_optimizer *o, int64_t batch, bool *out_same,
                            hn_pair *out_pair) {
    timed_batch a = {.o = o}, b = {.o = o};
    int64_t now = hn_gate_rows(&o->gate);
    hone_status status = inputs_of(err, o, now, &a.in);
    if (status == HONE_OK) status = inputs_of(err, o, batch, &b.in);
    if (status == HONE_OK) status = rows_stand_alone(err, o, &b.in, batch, out_same);
    if (status == HONE_OK && *out_same)
        status = hn_measure_pair(err, run_batch, &a, run_batch, &b, &o->gate.measure, out_pair);
    double rows = (double)batch / (double)now;
    out_pair->speedup *= rows;
    out_pair->speedup_ci[0] *= rows;
    out_pair->speedup_ci[1] *= rows;
    inputs_free(&a.in);
    inputs_free(&b.in);
    return status;
}

hone_status hn_strategy_batch(hone_error *err, hn_optimizer *o, hn_module **out_module,
                              json_t **out_decision, char *why, size_t why_size) {
    const json_t *given = hn_replay_of(o, "batch");
    int64_t best = 0, now = hn_gate_rows(&o->gate);
    hn_pair best_pair = {.speedup = 1};
    char text[32];
    if (given) HN_TRY(hn_decision_number(err, given, "batch", "batch", 1, MAX_BATCH, &best));
    else if (!batchable(o->original, why, why_size)) return HONE_OK;
    for (int64_t b = 1; !given && b <= MAX_BATCH && !hn_optimizer_late(o); b *= 2) {
        hn_pair pair = {0};
        bool same = true;
        hone_error inner = {0};
        if (b == now) continue;
        hone_status status = time_batch(&inner, o, b, &same, &pair);
        if (status == HONE_ERR_NOMEM) HN_NOMEM(err, "trying batches");
        if (status != HONE_OK) { // too few rows, or a batch baked into the model: no larger ones
            snprintf(why, why_size, "%lld rows cannot be run: %.120s", (long long)b, inner.text);
            break;
        }
        if (!same) {
            snprintf(why, why_size, "the rows of a batch influence each other");
            return HONE_OK;
        }
        if (pair.speedup_ci[0] <= 1 || pair.speedup <= best_pair.speedup) continue;
        best = b;
        best_pair = pair;
    }
    if (!best) {
        if (!*why) snprintf(why, why_size, "no batch of 1 to %d gives more rows a second than %lld",
                            MAX_BATCH, (long long)now);
        return HONE_OK;
    }
    snprintf(text, sizeof text, "%lld", (long long)best);
    HN_TRY(hinted(err, o, HN_HINT_BATCH, text, out_module));
    *out_decision = json_pack("{s:I}", "batch", (json_int_t)best);
    o->given = best_pair;
    o->has_given = !given;
    snprintf(why, why_size, "%lld rows a call", (long long)best);
    return HONE_OK;
}
