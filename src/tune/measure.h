// SPDX-License-Identifier: Apache-2.0
// Measuring: latency of one thing, and the paired comparison of two.
//
// Two things are compared by interleaved blocks in the order A B B A, so that drift of the machine
// hits both alike; each pair gives one ratio, the median of the ratios is the result and a seeded
// bootstrap gives its 95 % interval. Below 50 us several calls make one block.
#ifndef HN_TUNE_MEASURE_H
#define HN_TUNE_MEASURE_H
#include "base/base.h"

typedef hone_status (*hn_measure_fn)(hone_error *err, void *user); // one call

typedef struct hn_measure_options {
    double seconds;     // budget for both sides together; 0: 2 s
    int min_pairs;      // 0: 15
    int max_pairs;      // 0: 2000
    uint64_t seed;      // of the bootstrap
    // A speed-up that counts from here on. Where the interval does not tell on which side it lies, or
    // only just, the measurement goes on, to four times the budget. 0: never.
    double threshold;
} hn_measure_options;
// Is a speed-up with this interval on neither side of the threshold for sure? An effect below 5 % is
// never worth more time.
bool hn_measure_undecided(double speedup, const double ci[2], double threshold);

typedef struct hn_latency {
    double p50_ms, p90_ms, p99_ms, mean_ms, min_ms; // of one call
    int64_t calls;
    int samples;
    double sample_ms[64]; // evenly spaced quantiles (for histograms)
} hn_latency;

typedef struct hn_pair {
    hn_latency a, b;
    double speedup;       // median of time(A) / time(B)
    double speedup_ci[2]; // 95 %
    int pairs;
} hn_pair;

hn_status hn_measure_one(hone_error *err, hn_measure_fn fn, void *user,
                         const hn_measure_options *options, hn_latency *out_latency);
hn_status hn_measure_pair(hone_error *err, hn_measure_fn a, void *user_a, hn_measure_fn b,
                          void *user_b, const hn_measure_options *options, hn_pair *out_pair);

// Statistics on their own. `values` is sorted in place by the first two.
double hn_median(double *values, int count);
double hn_quantile(double *values, int count, double q); // linear between order statistics
// 95 % bootstrap interval of the median; reproducible for one seed.
void hn_bootstrap_median(const double *values, int count, uint64_t seed, double out_ci[2]);
// Wilson 95 % interval of a proportion; (0,1) for no trials.
void hn_wilson(int64_t hits, int64_t trials, double out_ci[2]);
// Number of trials so that the Wilson lower bound reaches `target` if `rate` is the true rate (or
// -1 where rate <= target).
int64_t hn_wilson_needed(double rate, double target);
#endif
