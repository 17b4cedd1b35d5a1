// SPDX-License-Identifier: Apache-2.0
// Random ops; their generator is base/rng.h.
#ifndef HN_OPS_RANDOM_H
#define HN_OPS_RANDOM_H
#include "base/rng.h"
#include "ops/common.h"

hone_status hn_infer_random(hone_error *err, hn_infer *ctx);      // attribute 'shape'
hone_status hn_infer_random_like(hone_error *err, hn_infer *ctx); // shape of input 0
hone_status hn_infer_multinomial(hone_error *err, hn_infer *ctx);
hone_status hn_ref_random(hone_error *err, const hn_call *call);
hone_status hn_ref_bernoulli(hone_error *err, const hn_call *call);
hone_status hn_ref_multinomial(hone_error *err, const hn_call *call);
#endif
