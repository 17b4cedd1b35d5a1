// SPDX-License-Identifier: Apache-2.0
// Random ops and their generator.
#ifndef HN_OPS_RANDOM_H
#define HN_OPS_RANDOM_H
#include "ops/common.h"

// A counter-free 64-bit generator (SplitMix64 steps): equal seeds give equal streams everywhere.
typedef struct hn_rng {
    uint64_t state;
} hn_rng;
hn_rng hn_rng_seed(uint64_t seed);
uint64_t hn_rng_next(hn_rng *rng);
double hn_rng_uniform(hn_rng *rng); // [0, 1), 53 bits
double hn_rng_normal(hn_rng *rng);  // mean 0, deviation 1

hone_status hn_infer_random(hone_error *err, hn_infer *ctx);      // attribute 'shape'
hone_status hn_infer_random_like(hone_error *err, hn_infer *ctx); // shape of input 0
hone_status hn_infer_multinomial(hone_error *err, hn_infer *ctx);
hone_status hn_ref_random(hone_error *err, const hn_call *call);
hone_status hn_ref_bernoulli(hone_error *err, const hn_call *call);
hone_status hn_ref_multinomial(hone_error *err, const hn_call *call);
#endif
