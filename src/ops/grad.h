// SPDX-License-Identifier: Apache-2.0
// Gradients of the element-wise, moving and reducing families: the functions that ops.def names.
#ifndef HN_OPS_GRAD_H
#define HN_OPS_GRAD_H
#include "ops/ops.h"

#define HN_GRADS(X)                                                                                \
    X(abs) X(add) X(cast) X(clip) X(concat) X(cos) X(cum_sum) X(div) X(dropout) X(elu) X(erf)       \
    X(exp) X(expand) X(extreme) X(gather) X(gather_elements) X(gather_nd) X(gelu) X(hard_sigmoid)   \
    X(hard_swish) X(leaky_relu) X(log) X(mean) X(mul) X(neg) X(pad) X(pow) X(prelu) X(reciprocal)   \
    X(reduce_extreme) X(reduce_mean) X(reduce_sum) X(reduce_sum_square) X(relu) X(sigmoid) X(sin)   \
    X(slice) X(softplus) X(softsign) X(split) X(sqrt) X(sub) X(sum) X(swish) X(tanh) X(transpose)   \
    X(trilu) X(view) X(where)
#define HN_DECLARE_GRAD(name) hone_status hn_grad_##name(hone_error *err, hn_grad *ctx);
HN_GRADS(HN_DECLARE_GRAD)
#endif
