// SPDX-License-Identifier: Apache-2.0
// What the recognitions of normalisations share: pieces of patterns, axes, numbers.
#ifndef HN_NORM_MATCH_H
#define HN_NORM_MATCH_H
#include "passes/match.h"

#define VARIANCE_POW    "ReduceMean:var(Pow(Sub:d(x, ReduceMean:mean(x, ...)), 2), ...)"
#define VARIANCE_MUL    "ReduceMean:var(Mul(Sub:d(x, ReduceMean:mean(x, ...)), d), ...)"

// First of the trailing axes that a reduction covers (keeping dims); -1 where it is not of that kind.
int hn_norm_trailing_axes(const hn_match *m, const hn_node *reduce);
// A '!' variable of one float32 element that is not negative.
bool hn_norm_scalar(const hn_match *m, const char *name, float *out);
#endif
