// SPDX-License-Identifier: Apache-2.0
// report.json: the design's stable keys. Unknown numbers are null, never 0.
#include "optimize/optimize_int.h"
#include "probe/cpu.h"
#include <math.h>

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *interval(const double ci[2]) { return json_pack("[o,o]", number(ci[0]), number(ci[1])); }

static json_t *accuracy_json(const hn_accuracy *a) {
    json_t *json = json_pack("{s:f,s:f,s:f,s:o,s:o,s:I,s:I,s:I}", "max_abs", a->max_abs, "cosine",
                             a->cosine, "worst_cosine", a->worst_cosine, "top1_agreement",
                             number(a->agreement), "metric", number(a->metric), "nan",
                             (json_int_t)a->nan, "samples", (json_int_t)a->samples, "rows",
                             (json_int_t)a->rows);
    if (!isnan(a->agreement)) json_object_set_new(json, "top1_agreement_ci", interval(a->agreement_ci));
    if (!isnan(a->metric)) json_object_set_new(json, "metric_ci", interval(a->metric_ci));
    json_object_set_new(json, "kept_right", number(a->kept_right));
    json_object_set_new(json, "not_finite", json_integer(a->outputs - a->finite));
    return json;
}

static json_t *latency_json(const hn_latency *l) {
    json_t *samples = json_array();
    for (size_t i = 0; i < HN_COUNT_OF(l->sample_ms); i++)
        json_array_append_new(samples, json_real(l->sample_ms[i]));
    return json_pack("{s:f,s:f,s:f,s:o}", "p50", l->p50_ms, "p90", l->p90_ms, "p99", l->p99_ms,
                     "quantiles", samples);
}

static json_t *side_json(const hn_side *side) {
    return json_pack("{s:o,s:f,s:f,s:I,s:I,s:o,s:o}", "latency_ms", latency_json(&side->latency),
                     "throughput_per_s", side->throughput_per_s, "start_ms", side->start_ms,
                     "peak_memory_bytes", (json_int_t)side->peak_memory_bytes, "file_bytes",
                     (json_int_t)side->file_bytes, "energy_j_per_sample", number(side->energy_j_per_sample), "accuracy",
                     accuracy_json(&side->accuracy));
}

static json_t *verdict_json(const hn_verdict *v, bool recheck) {
    bool measured = !isnan(v->speedup);
    json_t *json = json_pack("{s:s,s:s,s:b,s:b,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name", v->name,
                     "optimises", v->optimises, "tried", v->tried, "kept", v->kept, "reason",
                     v->reason, "speedup", number(v->speedup), "speedup_ci",
                     measured ? interval(v->speedup_ci) : json_null(), "start_speedup",
                     number(v->start_speedup), "memory_ratio", number(v->memory_ratio),
                     "size_ratio", number(v->size_ratio), "energy_ratio", number(v->energy_ratio),
                     "accuracy_delta",
                     v->accuracy.samples ? accuracy_json(&v->accuracy) : json_null(), "rows_needed",
                     v->rows_needed ? json_integer(v->rows_needed) : json_null(), "decision",
                     v->decision ? json_loads(v->decision, 0, NULL) : json_null());
    json_object_set_new(json, "seconds", v->tried ? json_real(v->seconds) : json_null());
    json_object_set_new(json, "was_kept", recheck ? json_boolean(v->was_kept) : json_null());
    return json;
}

static json_t *pair_json(const hn_pair *pair) {
    return json_pack("{s:f,s:o,s:i,s:f,s:f}", "speedup", pair->speedup, "speedup_ci",
                     interval(pair->speedup_ci), "pairs", pair->pairs, "a_ms", pair->a.p50_ms,
                     "b_ms", pair->b.p50_ms);
}

static json_t *device_json(const hn_optimize_options *options) {
    hn_backend *backend;
    hn_backend_info info = {0};
    if (hn_backend_open(NULL, options->device ? options->device : "cpu", 0, &backend) != HONE_OK)
        return json_null();
    backend->info(backend, &info);
    json_t *json = json_pack("{s:s,s:s,s:s,s:n,s:s,s:i}", "name", info.name, "description",
                             info.device, "isa", hn_isa_name(hn_cpu_isa()), "driver", "libs",
                             info.library, "threads", hn_parallel_threads());
    backend->close(backend);
    return json;
}

hn_status hn_optimize_report(hone_error *err, const hn_optimize_options *options,
                             const hn_optimize_result *r, const char *command, hn_str *out_json) {
    bool recheck = options->recheck_path != NULL; // then there is no result
    json_t *strategies = json_array(), *layers = json_array();
    for (int i = 0; i < r->verdict_count; i++)
        json_array_append_new(strategies, verdict_json(&r->verdicts[i], recheck));
    for (size_t i = 0; i < r->layers.count; i++) {
        const hn_layer *layer = &r->layers.data[i];
        json_array_append_new(layers, json_pack("{s:s,s:s,s:s,s:o}", "name", layer->name, "op",
                                                layer->op, "precision", layer->precision, "error",
                                                number(layer->error)));
        json_t *row = json_array_get(layers, json_array_size(layers) - 1);
        json_object_set_new(row, "together", layer->together ? json_integer(layer->together) : json_null());
        json_object_set_new(row, "answers_changed", layer->together ? number(layer->turned) : json_null());
        json_object_set_new(row, "own_error", number(layer->own_error));
        json_object_set_new(row, "strategy", json_string(layer->strategy));
        json_object_set_new(row, "why", *layer->why ? json_string(layer->why) : json_null());
    }
    json_t *root = json_pack(
        "{s:{s:s,s:i,s:i,s:I},s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:I,s:b,s:o}", "model", "sha256",
        r->model_sha256, "opset", r->model_opset, "nodes", r->model_nodes, "params",
        (json_int_t)r->model_params, "device", device_json(options), "baseline",
        side_json(&r->baseline), "result", recheck ? json_null() : side_json(&r->result), "strategies", strategies,
        "layers", layers, "aa", pair_json(&r->aa), "total", recheck ? json_null() : pair_json(&r->total), "command",
        command, "seed", (json_int_t)options->seed, "copied", r->copied, "decisions",
        r->decisions ? json_loads(r->decisions, 0, NULL) : json_array());
    json_t *notes = json_array();
    for (int i = 0; i < r->note_count; i++)
        json_array_append_new(notes, json_string(r->notes[i]));
    json_object_set_new(root, "notes", notes);
    json_object_set_new(root, "objective", json_string(hn_objective_name(options->objective)));
    json_object_set_new(root, "result_sha256", *r->result_sha256 ? json_string(r->result_sha256) : json_null());
    if (r->copied && !recheck) { // a ratio of a file to itself is noise
        json_t *total = json_object_get(root, "total");
        json_object_set_new(total, "speedup", json_null());
        json_object_set_new(total, "speedup_ci", json_null());
        json_object_set_new(total, "reason", json_string("the output is the input's own bytes"));
    }
    json_object_set_new(root, "fresh", r->fresh.pairs ? pair_json(&r->fresh) : json_null());
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    if (!text) HN_NOMEM(err, "writing the report");
    hn_str_append(out_json, text);
    hn_str_append(out_json, "\n");
    hn_free(text);
    if (out_json->failed) HN_NOMEM(err, "writing the report");
    return HONE_OK;
}
