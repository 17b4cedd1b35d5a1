// SPDX-License-Identifier: Apache-2.0
// Ops that move elements without computing: the functions that ops.def names. The ones that are told
// where by an index tensor are in index.h.
#ifndef HN_OPS_MOVE_H
#define HN_OPS_MOVE_H
#include "ops/common.h"

#define HN_MOVE_OPS(X)                                                                             \
    X(transpose)                                                                                   \
    X(concat)                                                                                      \
    X(split)                                                                                       \
    X(slice)                                                                                       \
    X(pad)                                                                                         \
    X(depth_to_space)                                                                              \
    X(space_to_depth)                                                                              \
    X(trilu)                                                                                       \
    X(reverse_sequence)                                                                            \
    X(center_crop_pad)
#define HN_DECLARE(name)                                                                           \
    hone_status hn_infer_##name(hone_error *err, hn_infer *ctx);                                   \
    hone_status hn_ref_##name(hone_error *err, const hn_call *call);
HN_MOVE_OPS(HN_DECLARE)

#define HN_INDEX_OPS(X)                                                                            \
    X(gather)                                                                                      \
    X(gather_elements)                                                                             \
    X(gather_nd)                                                                                   \
    X(scatter_elements)                                                                            \
    X(scatter_nd)                                                                                  \
    X(tensor_scatter)                                                                              \
    X(one_hot)                                                                                     \
    X(non_zero)                                                                                    \
    X(compress)                                                                                    \
    X(unique)                                                                                      \
    X(col2im)
HN_INDEX_OPS(HN_DECLARE)

// Copies a block of `rank` dims between two strided places; steps are in elements, may be negative.
void hn_copy_strided(char *to, const int64_t *to_steps, const char *from, const int64_t *from_steps,
                     const int64_t *dims, int rank, size_t item);
// Two dims that must be equal: the better known one, or an error naming the axis.
hn_status hn_infer_merge_dim(hone_error *err, const hn_infer *ctx, hn_dim a, hn_dim b, int axis,
                             hn_dim *out_dim);
// Output 0 of unknown dims, rank -1: unknown too.
void hn_infer_unknown(hn_infer *ctx, int index, hn_dtype dtype, int rank);
#endif
