// SPDX-License-Identifier: Apache-2.0
// Comparing tensors: see compare.h.
#include "ir/compare.h"
#include <math.h>

void hn_dtype_tolerance(hn_dtype dtype, double *out_rtol, double *out_atol) {
    *out_rtol = *out_atol = 0;
    if (!hn_dtype_is_float(dtype)) return;
    *out_rtol = HN_RTOL_F32;
    *out_atol = HN_ATOL_F32;
    if (dtype == HN_F32 || dtype == HN_F64) return;
    // Two units in the last place of the narrower format.
    *out_rtol = dtype == HN_F16 ? 2e-3 : dtype == HN_BF16 ? 1.6e-2 : 1.3e-1;
    *out_atol = dtype == HN_F16 ? 1e-5 : 1e-4;
}

bool hn_diff_within(const hn_diff *diff, double rtol, double atol) {
    return diff->mismatched == 0 && diff->max_abs <= rtol * diff->max_ref + atol;
}

// Fast path of the common case; other types go through the slow getter.
static double element(const hn_tensor *tensor, int64_t index) {
    return tensor->dtype == HN_F32 ? (double)((const float *)tensor->data)[index]
                                   : hn_tensor_get_f64(tensor, index);
}

int64_t hn_tensor_argmax(const hn_tensor *tensor, int64_t first, int64_t count) {
    int64_t best = -1;
    double high = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = element(tensor, first + i);
        if (!isnan(value) && (best < 0 || value > high)) {
            best = i;
            high = value;
        }
    }
    return best;
}

static void count_argmax(const hn_tensor *ref, const hn_tensor *got, hn_diff *diff) {
    int rank = ref->shape.rank;
    int64_t width = rank ? ref->shape.dims[rank - 1] : 1;
    if (rank != 2 || width < 2) return;
    for (int64_t row = 0; row + width <= diff->count; row += width) {
        int64_t best = hn_tensor_argmax(ref, row, width);
        if (best < 0) continue; // all NaN: agreeing on nothing is no evidence
        diff->argmax_rows++;
        diff->argmax_agree += best == hn_tensor_argmax(got, row, width);
    }
}

static double cosine_of(const hn_diff *diff) {
    if (diff->norm_ref == 0 || diff->norm_got == 0) return diff->norm_ref == diff->norm_got;
    return diff->dot / sqrt(diff->norm_ref) / sqrt(diff->norm_got);
}

hn_status hn_tensor_diff(hone_error *err, const hn_tensor *ref, const hn_tensor *got,
                         hn_diff *out_diff) {
    if (ref->dtype != got->dtype)
        HN_FAIL(err, HONE_ERR_CHECK, "type %s where %s is due", hn_dtype_name(got->dtype),
                hn_dtype_name(ref->dtype));
    if (!hn_shape_equal(&ref->shape, &got->shape)) {
        hn_str text = {0};
        hn_shape_print(&text, &got->shape);
        hn_str_append(&text, " where ");
        hn_shape_print(&text, &ref->shape);
        hone_status status = HN_SET(err, HONE_ERR_CHECK, "shape %s is due", hn_str_get(&text));
        hn_str_free(&text);
        return status;
    }
    hn_diff diff = {.count = hn_tensor_count(ref), .worst = -1};
    for (int64_t i = 0; i < diff.count; i++) {
        double a = element(ref, i), b = element(got, i);
        diff.nan_ref += isnan(a) != 0;
        diff.nan_got += isnan(b) != 0;
        if (!isfinite(a) || !isfinite(b)) {
            bool same = (isnan(a) && isnan(b)) || a == b;
            diff.mismatched += !same;
            diff.lost += !same && !isfinite(b);
            if (!same) diff.worst = i;
            continue;
        }
        diff.finite++;
        double delta = fabs(a - b);
        if (delta > diff.max_abs) {
            diff.max_abs = delta;
            if (!diff.mismatched) diff.worst = i;
        }
        if (fabs(a) > diff.max_ref) diff.max_ref = fabs(a);
        diff.dot += a * b;
        diff.norm_ref += a * a;
        diff.norm_got += b * b;
    }
    diff.cosine = diff.worst_cosine = cosine_of(&diff);
    if (hn_dtype_is_float(ref->dtype)) count_argmax(ref, got, &diff);
    *out_diff = diff;
    return HONE_OK;
}

void hn_diff_merge(hn_diff *into, const hn_diff *from) {
    if (into->count == 0) {
        *into = *from;
        return;
    }
    if (from->max_abs > into->max_abs) into->max_abs = from->max_abs;
    if (from->max_ref > into->max_ref) into->max_ref = from->max_ref;
    into->dot += from->dot;
    into->norm_ref += from->norm_ref;
    into->norm_got += from->norm_got;
    into->cosine = cosine_of(into);
    if (from->worst_cosine < into->worst_cosine) into->worst_cosine = from->worst_cosine;
    into->count += from->count;
    into->nan_ref += from->nan_ref;
    into->nan_got += from->nan_got;
    into->finite += from->finite;
    into->lost += from->lost;
    into->mismatched += from->mismatched;
    into->argmax_rows += from->argmax_rows;
    into->argmax_agree += from->argmax_agree;
}
