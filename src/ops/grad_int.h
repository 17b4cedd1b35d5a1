// SPDX-License-Identifier: Apache-2.0
// Building blocks of gradient functions. Each returns NULL when an operand is NULL or memory is
// short, so that a chain is checked once, at its end, by hn_grad_set.
#ifndef HN_OPS_GRAD_INT_H
#define HN_OPS_GRAD_INT_H
#include "ops/common.h"
#include "ops/grad.h"

// Sums a gradient over the axes along which `like` was broadcast (nn_grad.c).
hn_status hn_grad_sum_to(hone_error *err, hn_grad *ctx, hn_value *grad, const hn_value *like,
                         hn_value **out_value);
hn_value *hn_grad_un(hn_grad *ctx, hn_op op, hn_value *a);
hn_value *hn_grad_bin(hn_grad *ctx, hn_op op, hn_value *a, hn_value *b);
hn_value *hn_grad_pick(hn_grad *ctx, hn_value *condition, hn_value *yes, hn_value *no); // Where
hn_value *hn_grad_num(hn_grad *ctx, double number, hn_dtype dtype);       // scalar constant
hn_value *hn_grad_ints(hn_grad *ctx, const int64_t *values, int count);   // 1-D int64
hn_value *hn_grad_zeros(hn_grad *ctx, const hn_value *like);              // of like's shape
// An op with one integer attribute.
hn_value *hn_grad_with(hn_grad *ctx, hn_op op, const char *attr, int64_t value, hn_value *const *in,
                       int count);
// grad_in[index] = value, summed over the axes along which the input was broadcast.
hn_status hn_grad_set(hone_error *err, hn_grad *ctx, int index, hn_value *value);
static inline hn_value *hn_grad_dy(const hn_grad *ctx) { return ctx->grad_out[0]; }
#endif
