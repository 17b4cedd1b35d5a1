// SPDX-License-Identifier: Apache-2.0
// The random numbers of made inputs, of random ops and of bootstraps.
#ifndef HN_BASE_RNG_H
#define HN_BASE_RNG_H
#include <stdint.h>

// A counter-free 64-bit generator (SplitMix64 steps): equal seeds give equal streams everywhere.
typedef struct hn_rng {
    uint64_t state;
} hn_rng;
hn_rng hn_rng_seed(uint64_t seed);
uint64_t hn_rng_next(hn_rng *rng);
double hn_rng_uniform(hn_rng *rng); // [0, 1), 53 bits
double hn_rng_normal(hn_rng *rng);  // mean 0, deviation 1
#endif
