// SPDX-License-Identifier: Apache-2.0
// Zero padding in front of Conv and AveragePool moves into their own pads, where values stay equal.
#include "passes/match.h"

#define MAX_SPATIAL (HN_MAX_RANK - 2)

// The Pad's amounts for the spatial dims, begins then ends; false where it pads anything else, pads
// by another value or in another way.
static bool spatial_zeros(hn_match *m, int64_t *out_pads, int *out_spatial) {
    hn_node *pad = hn_match_node(m, "p");
    hn_value *x = hn_match_value(m, "x"), *value = hn_match_value(m, "value");
    int64_t pads[2 * HN_MAX_RANK];
    int rank = x->type.rank, count;
    if (rank < 3 || hn_match_value(m, "axes")) return false;
    if (!hn_slice_eq(hn_node_string(pad, "mode", "constant"), "constant")) return false;
    const hn_tensor *zero = hn_pass_constant(m->ctx, value);
    if (value && (!zero || hn_tensor_count(zero) != 1 || hn_tensor_get_f64(zero, 0) != 0))
        return false;
    if (!hn_value_ints(m->ctx->module, hn_match_value(m, "pads"), pads, 2 * HN_MAX_RANK, &count) ||
        count != 2 * rank)
        return false;
    for (int i = 0; i < 2 * rank; i++)
        if (pads[i] < 0 || (i % rank < 2 && pads[i])) return false;
    *out_spatial = rank - 2;
    for (int i = 0; i < rank - 2; i++) {
        out_pads[i] = pads[2 + i];
        out_pads[rank - 2 + i] = pads[rank + 2 + i];
    }
    return true;
}

static bool own_pads(const hn_node *node, int spatial, int64_t *out_pads) {
    hn_slice automatic = hn_node_string(node, "auto_pad", "NOTSET");
    bool valid = hn_slice_eq(automatic, "VALID");
    if (!valid && !hn_slice_eq(automatic, "NOTSET")) return false;
    int64_t count;
    const int64_t *pads = hn_node_ints(node, "pads", &count);
    if (!valid && pads && count != 2 * spatial) return false;
    for (int i = 0; i < 2 * spatial; i++)
        out_pads[i] = valid || !pads ? 0 : pads[i];
    return true;
}

static hn_status move(hone_error *err, hn_match *m, const int64_t *pads, int spatial,
                      bool *out_done) {
    hn_node *pad = hn_match_node(m, "p");
    hn_node_remove_attr(m->root, "auto_pad");
    if (!hn_node_set_ints(m->root, "pads", pads, 2 * spatial)) HN_NOMEM(err, "moving padding");
    hn_node_set_input(m->root, 0, hn_match_value(m, "x"));
    hn_pass_sweep(m->ctx, pad);
    m->ctx->changes++;
    *out_done = true;
    return HONE_OK;
}

static hone_status into_conv(hone_error *err, hn_match *m, bool *out_done) {
    int64_t added[2 * MAX_SPATIAL], pads[2 * MAX_SPATIAL];
    int spatial;
    if (!spatial_zeros(m, added, &spatial) || !own_pads(m->root, spatial, pads)) return HONE_OK;
    for (int i = 0; i < 2 * spatial; i++)
        if (!hn_add_i64(pads[i], added[i], &pads[i])) return HONE_OK;
    return move(err, m, pads, spatial, out_done);
}

// The zeros count as elements: so they must in the pool. A pool that does not count its own pads
// may have none then. Windows that lie in the padding alone are left to the Pad.
static hone_status into_pool(hone_error *err, hn_match *m, bool *out_done) {
    int64_t added[2 * MAX_SPATIAL], pads[2 * MAX_SPATIAL], count;
    int spatial;
    if (!spatial_zeros(m, added, &spatial) || !own_pads(m->root, spatial, pads)) return HONE_OK;
    const int64_t *kernel = hn_node_ints(m->root, "kernel_shape", &count);
    if (!kernel || count != spatial || hn_node_int(m->root, "ceil_mode", 0)) return HONE_OK;
    bool counted = hn_node_int(m->root, "count_include_pad", 0) != 0;
    for (int i = 0; i < 2 * spatial; i++) {
        if (!counted && pads[i]) return HONE_OK;
        pads[i] += added[i];
        if (pads[i] >= kernel[i % spatial]) return HONE_OK;
    }
    if (!hn_node_set_int(m->root, "count_include_pad", 1)) HN_NOMEM(err, "moving padding");
    return move(err, m, pads, spatial, out_done);
}

static const hn_rule k_rules[] = {
    {"pad-conv", "Conv(Pad:p(x, pads, value?, axes?), w, ...)", into_conv},
    {"pad-pool", "AveragePool(Pad:p(x, pads, value?, axes?))", into_pool},
};

hone_status hn_pass_pad(hone_error *err, hn_pass_ctx *ctx) {
    return hn_rules_run(err, ctx, k_rules, HN_COUNT_OF(k_rules));
}
