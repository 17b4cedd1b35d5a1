// SPDX-License-Identifier: Apache-2.0
// Comparing tensors: one definition of "equal enough" for checks, tests and the gate.
#ifndef HN_IR_COMPARE_H
#define HN_IR_COMPARE_H
#include "ir/tensor.h"

// Float32 tolerances: |a - b| <= rtol * max|ref| + atol.
#define HN_RTOL_F32 1e-4
#define HN_ATOL_F32 1e-6

typedef struct hn_diff {
    int64_t count;
    double max_abs;      // over elements where both are finite
    double max_ref;      // largest finite |ref|
    double cosine;       // of the finite elements together; 1 where both are all zero
    double worst_cosine; // the lowest of the tensors merged
    double dot, norm_ref, norm_got; // what cosine is made of
    int64_t nan_ref, nan_got;
    int64_t finite;      // finite on both sides
    int64_t lost;        // NaN or infinite here, and not the same in ref
    int64_t mismatched;  // NaN or infinity on one side only, or infinities of opposite sign
    int64_t worst;       // index of max_abs
    // Rows of rank-2 tensors (sample x class) that hold a number in ref, and how many agree on the largest
    // element.
    int64_t argmax_rows, argmax_agree;
} hn_diff;

// HONE_ERR_CHECK naming what differs where types or shapes do.
hn_status hn_tensor_diff(hone_error *err, const hn_tensor *ref, const hn_tensor *got,
                         hn_diff *out_diff);
// The tolerance for a dtype: floats narrower than float32 get theirs; integers and bool are exact.
void hn_dtype_tolerance(hn_dtype dtype, double *out_rtol, double *out_atol);
bool hn_diff_within(const hn_diff *diff, double rtol, double atol);
// Adds b's elements to a's totals (several outputs, several samples).
void hn_diff_merge(hn_diff *into, const hn_diff *from);
// Index (from 0) of the largest of `count` elements from `first`; the first of equals; NaN never.
int64_t hn_tensor_argmax(const hn_tensor *tensor, int64_t first, int64_t count);
#endif
