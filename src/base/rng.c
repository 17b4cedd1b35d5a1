// SPDX-License-Identifier: Apache-2.0
// Random numbers: see rng.h.
#include "base/rng.h"
#include <math.h>

hn_rng hn_rng_seed(uint64_t seed) { return (hn_rng){seed}; }

uint64_t hn_rng_next(hn_rng *rng) {
    uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

double hn_rng_uniform(hn_rng *rng) { return (double)(hn_rng_next(rng) >> 11) * 0x1p-53; }

double hn_rng_normal(hn_rng *rng) {
    double radius = sqrt(-2 * log(1 - hn_rng_uniform(rng))); // 1 - u is never 0
    return radius * cos(6.283185307179586477 * hn_rng_uniform(rng));
}
