// SPDX-License-Identifier: Apache-2.0
// If, Loop, Scan: inference only; the executor runs the sub-graphs.
#ifndef HN_OPS_CONTROL_H
#define HN_OPS_CONTROL_H
#include "ops/common.h"

hone_status hn_infer_if(hone_error *err, hn_infer *ctx);
hone_status hn_infer_loop(hone_error *err, hn_infer *ctx);
hone_status hn_infer_scan(hone_error *err, hn_infer *ctx);
#endif
