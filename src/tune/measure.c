// SPDX-License-Identifier: Apache-2.0
// Measuring: see measure.h.
#include "tune/measure.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>

#define BLOCK_NS 50000 // shorter calls are repeated inside one block

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double sorted_quantile(const double *values, int count, double q) {
    if (count <= 0) return NAN;
    double at = q * (count - 1);
    int low = (int)at;
    if (low >= count - 1) return values[count - 1];
    return values[low] + (at - low) * (values[low + 1] - values[low]);
}

double hn_quantile(double *values, int count, double q) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return sorted_quantile(values, count, q);
}

double hn_median(double *values, int count) { return hn_quantile(values, count, 0.5); }

void hn_bootstrap_median(const double *values, int count, uint64_t seed, double out_ci[2]) {
    enum { ROUNDS = 1000 };
    double medians[ROUNDS];
    out_ci[0] = out_ci[1] = NAN;
    double *draw = hn_malloc((size_t)(count > 0 ? count : 1) * sizeof *draw);
    if (count <= 0 || !draw) {
        hn_free(draw);
        return;
    }
    hn_rng rng = hn_rng_seed(seed);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < count; i++)
            draw[i] = values[hn_rng_next(&rng) % (uint64_t)count];
        medians[r] = hn_median(draw, count);
    }
    hn_free(draw);
    out_ci[0] = hn_quantile(medians, ROUNDS, 0.025);
    out_ci[1] = sorted_quantile(medians, ROUNDS, 0.975);
}

void hn_wilson(int64_t hits, int64_t trials, double out_ci[2]) {
    out_ci[0] = 0;
    out_ci[1] = 1;
    if (trials <= 0) return;
    const double z = 1.959964;
    double n = (double)trials, p = (double)hits / n;
    double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
    double half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    out_ci[0] = hits == 0 ? 0 : centre - half;
    out_ci[1] = hits == trials ? 1 : centre + half;
}

int64_t hn_wilson_needed(double rate, double target) {
    if (rate <= target) return -1;
    for (int64_t n = 8; n < INT64_C(1) << 40; n += n / 8) {
        double ci[2];
        hn_wilson((int64_t)floor(rate * (double)n), n, ci);
        if (ci[0] >= target) return n;
    }
    return -1;
}

// ---- timing -------------------------------------------------------------------------------------
typedef struct side {
    hn_measure_fn fn;
    void *user;
    int calls;         // per block
    double *ms;        // of one call, by block
    int64_t total_calls;
} side;

static hn_status run_block(hone_error *err, side *s, int index) {
    int64_t start = hn_clock_ns();
    for (int i = 0; i < s->calls; i++)
        HN_TRY(s->fn(err, s->user));
    s->ms[index] = (double)(hn_clock_ns() - start) / 1e6 / s->calls;
    s->total_calls += s->calls;
    return HONE_OK;
}

// Warm-up: at least 3 calls and 20 ms, which also tells how many calls make a block.
static hn_status warm_up(hone_error *err, side *s) {
    int64_t start = hn_clock_ns(), best = INT64_MAX;
    for (int i = 0; i < 3 || hn_clock_ns() - start < 20000000; i++) {
        int64_t before = hn_clock_ns();
        HN_TRY(s->fn(err, s->user));
        int64_t took = hn_clock_ns() - before;
        if (took < best) best = took;
        if (i > 100000) break;
    }
    s->calls = best >= BLOCK_NS ? 1 : (int)(BLOCK_NS / (best > 0 ? best : 1)) + 1;
    return HONE_OK;
}

static void summarise(side *s, int blocks, hn_latency *out) {
    hn_latency latency = {.calls = s->total_calls, .samples = blocks};
    for (int i = 0; i < blocks; i++)
        latency.mean_ms += s->ms[i] / blocks;
    double *sorted = s->ms; // order is not needed any more
    latency.p50_ms = hn_median(sorted, blocks);
    latency.p90_ms = sorted_quantile(sorted, blocks, 0.9);
    latency.p99_ms = sorted_quantile(sorted, blocks, 0.99);
    latency.min_ms = sorted[0];
    int shown = (int)HN_COUNT_OF(latency.sample_ms);
    for (int i = 0; i < shown; i++)
        latency.sample_ms[i] = sorted_quantile(sorted, blocks, i / (double)(shown - 1));
    *out = latency;
}

static hn_measure_options with_defaults(const hn_measure_options *options) {
    hn_measure_options full = options ? *options : (hn_measure_options){0};
    if (full.seconds <= 0) full.seconds = 2;
    if (full.min_pairs <= 0) full.min_pairs = 15;
    if (full.max_pairs <= 0) full.max_pairs = 2000;
    return full;
}

hn_status hn_measure_one(hone_error *err, hn_measure_fn fn, void *user,
                         const hn_measure_options *options, hn_latency *out_latency) {
    hn_measure_options o = with_defaults(options);
    side s = {.fn = fn, .user = user};
    s.ms = hn_malloc((size_t)o.max_pairs * sizeof *s.ms);
    if (!s.ms) HN_NOMEM(err, "measuring");
    hone_status status = warm_up(err, &s);
    int64_t end = hn_clock_ns() + (int64_t)(o.seconds * 1e9);
    int blocks = 0;
    while (status == HONE_OK && blocks < o.max_pairs &&
           (blocks < o.min_pairs || hn_clock_ns() < end))
        status = run_block(err, &s, blocks++);
    if (status == HONE_OK) summarise(&s, blocks, out_latency);
    hn_free(s.ms);
    return status;
}

#define EXTENSIONS 3

bool hn_measure_undecided(double speedup, const double ci[2], double threshold) {
    if (!(threshold > 0) || speedup < 1.05 || isnan(ci[0])) return false;
    if (ci[0] < threshold) return true;
    // On the right side, but so wide that a few more pairs could take it over.
    return ci[0] < 1.2 * threshold && ci[1] > 1.25 * ci[0];
}

static bool undecided(const double *ratios, double *scratch, int pairs, const hn_measure_options *o) {
    double ci[2];
    if (!(o->threshold > 0) || pairs < 1) return false;
    memcpy(scratch, ratios, (size_t)pairs * sizeof *ratios);
    hn_bootstrap_median(scratch, pairs, o->seed + 1, ci);
    return hn_measure_undecided(hn_median(scratch, pairs), ci, o->threshold);
}

hn_status hn_measure_pair(hone_error *err, hn_measure_fn a, void *user_a, hn_measure_fn b,
                          void *user_b, const hn_measure_options *options, hn_pair *out_pair) {
    hn_measure_options o = with_defaults(options);
    side sa = {.fn = a, .user = user_a}, sb = {.fn = b, .user = user_b};
    size_t room = (size_t)o.max_pairs * sizeof(double);
    sa.ms = hn_malloc(room);
    sb.ms = hn_malloc(room);
    double *ratios = hn_malloc(room), *scratch = hn_malloc(room);
    hone_status status = HONE_OK;
    if (!sa.ms || !sb.ms || !ratios || !scratch)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (measuring)");
    if (status == HONE_OK) status = warm_up(err, &sa);
    if (status == HONE_OK) status = warm_up(err, &sb);
    int64_t end = hn_clock_ns() + (int64_t)(o.seconds * 1e9);
    int pairs = 0, extensions = 0;
    while (status == HONE_OK && pairs < o.max_pairs) {
        if (pairs >= o.min_pairs && hn_clock_ns() >= end) {
            if (extensions == EXTENSIONS || !undecided(ratios, scratch, pairs, &o)) break;
            extensions++;
            end = hn_clock_ns() + (int64_t)(o.seconds * 1e9);
        }
        bool b_first = pairs & 1; // A B B A
        status = run_block(err, b_first ? &sb : &sa, pairs);
        if (status == HONE_OK) status = run_block(err, b_first ? &sa : &sb, pairs);
        if (status == HONE_OK) ratios[pairs] = sa.ms[pairs] / sb.ms[pairs];
        pairs++;
    }
    if (status == HONE_OK) {
        hn_pair pair = {.pairs = pairs};
        hn_bootstrap_median(ratios, pairs, o.seed + 1, pair.speedup_ci);
        pair.speedup = hn_median(ratios, pairs);
        summarise(&sa, pairs, &pair.a);
        summarise(&sb, pairs, &pair.b);
        *out_pair = pair;
    }
    hn_free(sa.ms);
    hn_free(sb.ms);
    hn_free(ratios);
    hn_free(scratch);
    return status;
}
