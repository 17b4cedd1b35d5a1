// SPDX-License-Identifier: Apache-2.0
// Strategies one after the other: make the candidate, check its outputs, measure it in pairs against the
// best model so far, keep or refuse, and say why with the figure.
#include "optimize/optimize_int.h"
#include "tune/joules.h"
#include <math.h>

static const hn_strategy k_strategies[] = {
#define HN_STRATEGY(id, name, on, lossy, needs_data, optimises, doc)                               \
    {name, HN_ON_##on, lossy, needs_data, optimises, doc, hn_strategy_##id},
#include "optimize/strategies.def"
#undef HN_STRATEGY
};

#define MARGIN HN_GATE_MARGIN
// Whatever is optimised, memory and file may not grow beyond this.
#define MAX_GROWTH       1.25
#define MAX_GROWTH_BYTES (INT64_C(1) << 20)

const hn_strategy *hn_strategies(size_t *out_count) {
    *out_count = HN_COUNT_OF(k_strategies);
    return k_strategies;
}

const char *hn_objective_name(hn_objective objective) {
    static const char *const k_names[] = {"latency", "throughput", "memory", "size", "energy"};
    return objective < HN_OBJECTIVE_END ? k_names[objective] : "?";
}

void hn_optimizer_progress(const hn_optimizer *o, const char *what, double share) {
    hn_optimizer_note_memory(o);
    if (o->options->progress) o->options->progress(o->options->user, what, share);
}

bool hn_optimizer_late(const hn_optimizer *o) {
    return o->deadline_ns && hn_clock_ns() > o->deadline_ns;
}

// ---- sides --------------------------------------------------------------------------------------
static int64_t weight_bytes(const hn_module *module) {
    int64_t bytes = 0;
    for (size_t i = 0; i < module->main->values.count; i++)
        if (module->main->values.data[i]->constant)
            bytes += (int64_t)module->main->values.data[i]->constant->bytes;
    return bytes;
}

int64_t hn_session_bytes(const hn_session *session) {
    hn_session_stats stats;
    hn_session_get_stats(session, &stats);
    // On a card: what lies there, weights in the kernels' own forms, slab and workspace.
    if (stats.device_steps) return (int64_t)(stats.slab_bytes + stats.prepacked_bytes);
    return (int64_t)(stats.weight_bytes + stats.slab_bytes + stats.prepacked_bytes);
}

void hn_side_fill(const hn_gate *gate, const hn_latency *latency, const hn_session *session,
                  hn_side *out) {
    out->latency = *latency;
    out->throughput_per_s = (double)hn_gate_rows(gate) * 1e3 / latency->p50_ms;
    out->peak_memory_bytes = hn_session_bytes(session);
}

// ---- energy -------------------------------------------------------------------------------------
#define JOULE_CALLS 8
typedef struct steady {
    const hn_gate *gate;
    hn_session *session;
    hn_tensor in[HN_MAX_KERNEL_IO], out[HN_MAX_KERNEL_IO];
} steady;

static hone_status run_steady(hone_error *err, void *user) {
    steady *s = user;
    return hn_gate_calls(err, s->gate, s->session, s->in, s->out, JOULE_CALLS);
}

// By call, idle subtracted; NAN where nothing counts joules.
static hn_status joules_per_call(hone_error *err, const hn_gate *gate, hn_session *session, double *out_joules) {
    steady s = {.gate = gate};
    HN_TRY(hn_gate_inputs(err, gate, hn_gate_sample(gate, HN_SPLIT_GATE, 0), s.in));
    HN_TRY(hn_gate_timed(err, gate, session, &s.session));
    hone_status status = hn_gate_calls(err, gate, s.session, s.in, s.out, 1); // plans, if it is new
    if (status == HONE_OK) status = hn_measure_joules(err, hn_joules_source(s.session), run_steady, &s, out_joules);
    if (status == HONE_OK) *out_joules /= JOULE_CALLS;
    if (s.session != session) hn_session_free(s.session);
    return status;
}

hn_status hn_side_energy(hone_error *err, const hn_gate *gate, hn_session *session, hn_side *side) {
    double joules;
    HN_TRY(joules_per_call(err, gate, session, &joules));
    side->energy_j_per_sample = joules / (double)hn_gate_rows(gate);
    return HONE_OK;
}

// ---- the verdict --------------------------------------------------------------------------------
bool hn_strategy_listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; *at;) {
        size_t item = strcspn(at, ",");
        if (item == length && memcmp(at, name, length) == 0) return true;
        at += item + (at[item] == ',');
        at += strspn(at, " ");
    }
    return false;
}

// A name that no strategy has would silently try nothing.
hn_status hn_strategy_names(hone_error *err, const char *option, const char *list) {
    for (const char *at = list; at && *at;) {
        size_t item = strcspn(at, ",");
        bool known = false;
        for (size_t i = 0; i < HN_COUNT_OF(k_strategies) && !known; i++)
            known =
                strlen(k_strategies[i].name) == item && memcmp(at, k_strategies[i].name, item) == 0;
        if (!known) {
            hn_str names = {0};
            for (size_t i = 0; i < HN_COUNT_OF(k_strategies); i++)
                if (!hn_strategy_listed(hn_str_get(&names), k_strategies[i].name)) // one of each name
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

static void say_slower(hn_verdict *v) {
    if (v->speedup_ci[1] < 1)
        snprintf(v->reason, sizeof v->reason, "%.1f %% slower [%.1f, %.1f]",
                 100 * (1 / v->speedup - 1), 100 * (1 / v->speedup_ci[1] - 1),
                 100 * (1 / v->speedup_ci[0] - 1));
    else
        snprintf(v->reason, sizeof v->reason, "no effect that clears 2 %%: %.3fx [%.3f, %.3f]",
                 v->speedup, v->speedup_ci[0], v->speedup_ci[1]);
}

// Lossless strategies may also win by a faster start at equal latency.
static bool helps_time(const hn_strategy *strategy, hn_verdict *v, hn_objective objective) {
    char more[128];
    snprintf(more, sizeof more, "%.3fx [%.3f, %.3f]", v->speedup, v->speedup_ci[0],
             v->speedup_ci[1]);
    if (v->speedup_ci[0] >= MARGIN) {
        snprintf(v->reason, sizeof v->reason,
                 objective == HN_OBJECTIVE_THROUGHPUT ? "%s the rows a second" : "%s faster", more);
        return true;
    }
    bool not_slower = v->speedup_ci[0] >= 1 / MARGIN && v->speedup >= 0.995;
    if (objective == HN_OBJECTIVE_LATENCY && !strategy->lossy && not_slower &&
        v->start_ci[0] >= MARGIN) {
        snprintf(v->reason, sizeof v->reason, "starts %.2fx faster [%.2f, %.2f], latency %s",
                 v->start_speedup, v->start_ci[0], v->start_ci[1], more);
        return true;
    }
    say_slower(v);
    return false;
}

// Less memory, a smaller file, fewer joules: a ratio, at a time that stays near.
static bool helps_ratio(hn_verdict *v, double ratio, const char *what) {
    if (isnan(ratio)) {
        snprintf(v->reason, sizeof v->reason, "%s cannot be read here", what);
        return false;
    }
    if (ratio > 1 / MARGIN) {
        snprintf(v->reason, sizeof v->reason, "%s %.2fx of before: no gain that clears 2 %%", what, ratio);
        return false;
    }
    if (v->speedup_ci[0] < 1 / HN_MAX_SLOWDOWN) {
        snprintf(v->reason, sizeof v->reason, "%s %.2fx of before, but %.3fx [%.3f, %.3f] as fast: below 1/%.2f",
                 what, ratio, v->speedup, v->speedup_ci[0], v->speedup_ci[1], HN_MAX_SLOWDOWN);
        return false;
    }
    snprintf(v->reason, sizeof v->reason, "%s %.2fx of before, %.3fx [%.3f, %.3f] as fast", what, ratio,
             v->speedup, v->speedup_ci[0], v->speedup_ci[1]);
    return true;
}

static bool helps(const hn_optimizer *o, const hn_strategy *strategy, hn_verdict *v) {
    hn_objective objective = o->options->objective;
    switch (objective) {
    case HN_OBJECTIVE_MEMORY: return helps_ratio(v, v->memory_ratio, "memory");
    case HN_OBJECTIVE_SIZE: return helps_ratio(v, v->size_ratio, "file size");
    case HN_OBJECTIVE_ENERGY: return helps_ratio(v, v->energy_ratio, "energy");
    default: return helps_time(strategy, v, objective);
    }
}

// Faster at any price is no bargain: memory and size have a gate of their own.
static bool grows_too_much(hn_verdict *v, const char *what, int64_t before, int64_t after) {
    if (after - before <= MAX_GROWTH_BYTES || (double)after <= MAX_GROWTH * (double)before) return false;
    snprintf(v->reason, sizeof v->reason, "%s grows from %.2f to %.2f MiB, more than %.2fx", what,
             (double)before / 1048576, (double)after / 1048576, MAX_GROWTH);
    return true;
}

// How many rows would show what is asked for, if all goes on as it did: that no more answers than the budget
// turn from right to wrong or, where no labels say what is right, become others.
static int64_t rows_needed(const hn_optimizer *o, const hn_accuracy *a) {
    const hn_budget *budget = &o->gate.budget;
    bool labels = hn_gate_labels_judge(&o->result->baseline.accuracy);
    double rate = labels ? a->kept_right : a->agreement, ci[2], asked = labels ? 1 - budget->max_drop : budget->min_agreement;
    if (isnan(rate)) return 0;
    hn_wilson((int64_t)llround(rate * (double)a->rows), a->rows, ci);
    if (ci[0] >= asked) return 0;
    int64_t needed = hn_wilson_needed(rate, asked);
    return needed < 0 ? 0 : hn_max_i64(needed, a->rows + 1);
}

static hn_status measure(hone_error *err, hn_optimizer *o, hn_module *candidate, hn_session *session,
                         hn_verdict *v) {
    hn_pair pair, start;
    if (o->has_given) pair = o->given;
    else HN_TRY(hn_gate_pair(err, &o->gate, o->current_session, session, &pair));
    o->has_given = false;
    v->speedup = pair.speedup;
    memcpy(v->speedup_ci, pair.speedup_ci, sizeof v->speedup_ci);
    HN_TRY(hn_gate_start_pair(err, &o->gate, o->current, candidate, &start));
    v->start_speedup = start.speedup;
    memcpy(v->start_ci, start.speedup_ci, sizeof v->start_ci);
    v->memory_ratio = (double)hn_session_bytes(session) / (double)hn_session_bytes(o->current_session);
    v->size_ratio = (double)weight_bytes(candidate) / fmax(1, (double)weight_bytes(o->current));
    if (o->options->objective != HN_OBJECTIVE_ENERGY) return HONE_OK;
    double before, after;
    HN_TRY(joules_per_call(err, &o->gate, o->current_session, &before));
    HN_TRY(joules_per_call(err, &o->gate, session, &after));
    v->energy_ratio = before > 0 && after > 0 ? after / before : NAN;
    return HONE_OK;
}

static void say_unfit(const hn_optimizer *o, hn_verdict *v) {
    v->kept = false;
    snprintf(v->reason, sizeof v->reason, "the data cannot judge it: %s", o->unfit);
}

static hn_status judge(hone_error *err, hn_optimizer *o, const hn_strategy *strategy,
                       hn_module *candidate, hn_session *session, hn_verdict *v) {
    char why[200];
    HN_TRY(hn_gate_accuracy(err, &o->gate, session, HN_SPLIT_GATE, 0, &v->accuracy));
    if (!hn_gate_accepts(&o->gate.budget, &o->result->baseline.accuracy, &v->accuracy,
                         strategy->lossy ? NULL : &o->current_accuracy, why, sizeof why)) {
        snprintf(v->reason, sizeof v->reason, "accuracy: %s", why);
        o->has_given = false;
        return HONE_OK;
    }
    if (strategy->lossy) v->rows_needed = rows_needed(o, &v->accuracy);
    HN_TRY(measure(err, o, candidate, session, v));
    v->kept = !grows_too_much(v, "memory", hn_session_bytes(o->current_session), hn_session_bytes(session)) &&
              !grows_too_much(v, "the file", weight_bytes(o->current), weight_bytes(candidate)) &&
              helps(o, strategy, v);
    if (strategy->lossy && *o->unfit) {
        say_unfit(o, v);
        return HONE_OK;
    }
    if (v->kept && v->start_speedup < 0.5) {
        size_t length = strlen(v->reason);
        snprintf(v->reason + length, sizeof v->reason - length, "; starts %.1fx slower", 1 / v->start_speedup);
    }
    if (v->kept && v->rows_needed) {
        size_t length = strlen(v->reason);
        snprintf(v->reason + length, sizeof v->reason - length,
                 "; %lld rows do not prove the budget, %lld would", (long long)v->accuracy.rows,
                 (long long)v->rows_needed);
    }
    return HONE_OK;
}

static void adopt(hn_optimizer *o, hn_module *module, hn_session *session, hn_verdict *v, size_t layers) {
    hn_session_free(o->current_session);
    o->kept[o->kept_count++] = (hn_kept){o->current, o->current_accuracy, v, layers};
    o->current = module;
    o->current_session = session;
    o->current_accuracy = v->accuracy;
}

hn_verdict *hn_optimizer_withdraw(hn_optimizer *o) {
    hn_kept *last = &o->kept[--o->kept_count];
    hn_session_free(o->current_session); // it reads the module
    hn_module_free(o->current);
    o->current_session = NULL;
    o->current = last->before;
    o->current_accuracy = last->accuracy;
    o->result->layers.count = last->layers;
    o->result->withdrawn++;
    json_array_remove(o->decisions, json_array_size(o->decisions) - 1);
    last->verdict->kept = false;
    return last->verdict;
}

static void force(const hn_optimizer *o, const hn_strategy *strategy, hn_verdict *v) {
    if (v->kept || !o->options->force || !hn_strategy_listed(o->options->force, strategy->name)) return;
    char verdict[sizeof v->reason];
    memcpy(verdict, v->reason, sizeof verdict);
    snprintf(v->reason, sizeof v->reason, "forced, though %.250s", verdict);
    v->kept = true;
}

// The candidate is measured, or followed where a replay says so; *out_adopt: it is the best model now.
static hn_status decide(hone_error *err, hn_optimizer *o, const hn_strategy *strategy,
                        hn_module *candidate, hn_session *session, const char *why, hn_verdict *v,
                        bool *out_adopt) {
    if (o->replay && !o->recheck) {
        v->kept = *out_adopt = true;
        snprintf(v->reason, sizeof v->reason, "replayed");
        return HONE_OK;
    }
    HN_TRY(judge(err, o, strategy, candidate, session, v));
    force(o, strategy, v);
    if (*why) { // also of a refusal: what was tried
        size_t length = strlen(v->reason);
        snprintf(v->reason + length, sizeof v->reason - length, "; %s", why);
    }
    // A recheck keeps to the earlier chain, so that each verdict is about the same pair of models.
    *out_adopt = o->recheck ? v->was_kept : v->kept;
    v->verdict_changed = o->recheck && v->kept != v->was_kept;
    return HONE_OK;
}

static hn_status try_strategy(hone_error *err, hn_optimizer *o, const hn_strategy *strategy,
                              hn_verdict *v) {
    hn_module *candidate = NULL;
    hn_session *session = NULL;
    json_t *decision = NULL;
    char why[256] = "";
    hone_error inner = {0};
    size_t layers_before = o->result->layers.count;
    hone_status status = strategy->run(&inner, o, &candidate, &decision, why, sizeof why);
    if (status != HONE_OK) {
        hn_module_free(candidate);
        json_decref(decision);
        candidate = NULL;
        decision = NULL;
    }
    // What a strategy cannot do is a refusal with its reason, not the end of the run.
    bool follows = o->replay && !o->recheck;
    if (status == HONE_ERR_UNSUPPORTED && !follows) {
        snprintf(v->reason, sizeof v->reason, "not possible here: %.200s", inner.text);
        v->tried = true;
        o->result->layers.count = layers_before;
        return HONE_OK;
    }
    if (status != HONE_OK) {
        if (err) *err = inner;
        hn_error_frame(err, "strategy '%s'", strategy->name);
        return status;
    }
    v->tried = true;
    if (!candidate && follows)
        HN_FAIL(err, HONE_ERR_INPUT, "the decision of %s cannot be followed here: %s", strategy->name, why);
    if (!candidate) {
        snprintf(v->reason, sizeof v->reason, "%s", why);
        return HONE_OK; // the layers stay listed: they say why
    }
    bool keep = false;
    status = hn_gate_session(err, &o->gate, candidate, &session);
    if (status == HONE_OK) status = decide(err, o, strategy, candidate, session, why, v, &keep);
    if (status == HONE_OK) v->decision = hn_json_text(decision);
    if (status == HONE_OK && keep) {
        json_array_append_new(
            o->decisions, json_pack("{s:s,s:O}", "strategy", strategy->name, "decision", decision));
        adopt(o, candidate, session, v, layers_before);
    } else {
        hn_session_free(session);
        hn_module_free(candidate);
        o->result->layers.count = layers_before;
    }
    json_decref(decision);
    return status;
}

static bool is_listed(const hn_optimizer *o, const char *name) {
    if (o->replay) return hn_replay_of(o, name) != NULL;
    return !o->options->only || hn_strategy_listed(o->options->only, name);
}

// Why it is not even tried; false: it is.
static bool skipped(const hn_optimizer *o, const hn_strategy *strategy, hn_verdict *v) {
    hn_objective objective = o->options->objective;
    if (o->replay) return false;
    if (!hn_strategy_listed(strategy->optimises, hn_objective_name(objective)))
        snprintf(v->reason, sizeof v->reason, "not tried: it serves %s, the objective is %s",
                 strategy->optimises, hn_objective_name(objective));
    else if (strategy->needs_data && !o->gate.dataset)
        snprintf(v->reason, sizeof v->reason, "not tried: no calibration data (--data)");
    else if (hn_optimizer_late(o))
        snprintf(v->reason, sizeof v->reason, "not tried: the time limit of %g s is used up",
                 o->options->time_limit_s);
    return v->reason[0] != '\0';
}

static hn_status try_row(hone_error *err, hn_optimizer *o, const hn_strategy *strategy, double share) {
    hn_verdict *v = &o->result->verdicts[o->result->verdict_count];
    *v = (hn_verdict){.name = strategy->name,
                      .optimises = strategy->optimises,
                      .speedup = NAN,
                      .start_speedup = NAN,
                      .memory_ratio = NAN,
                      .size_ratio = NAN,
                      .energy_ratio = NAN};
    v->accuracy.agreement = v->accuracy.metric = NAN;
    v->was_kept = o->recheck && json_is_true(json_object_get(hn_replay_item(o, strategy->name), "kept"));
    o->result->verdict_count++;
    hn_optimizer_progress(o, strategy->name, share);
    if (skipped(o, strategy, v)) return HONE_OK;
    if (strategy->lossy && *o->unfit && !o->replay &&
        !(o->options->force && hn_strategy_listed(o->options->force, strategy->name))) {
        v->tried = true; // refused, before time goes into it
        say_unfit(o, v);
        return HONE_OK;
    }
    int64_t start = hn_clock_ns();
    HN_TRY(try_strategy(err, o, strategy, v));
    v->seconds = (double)(hn_clock_ns() - start) * 1e-9;
    o->result->changed += v->verdict_changed;
    return HONE_OK;
}

hn_status hn_optimizer_try_all(hone_error *err, hn_optimizer *o) {
    for (size_t i = 0; i < HN_COUNT_OF(k_strategies); i++)
        if (k_strategies[i].on != (hn_gate_on_card(&o->gate) ? HN_ON_HOST : HN_ON_CARD) && is_listed(o, k_strategies[i].name))
            HN_TRY(try_row(err, o, &k_strategies[i], (double)i / HN_COUNT_OF(k_strategies)));
    return o->options->extra ? try_row(err, o, o->options->extra, 1) : HONE_OK;
}
