// SPDX-License-Identifier: Apache-2.0
// Shape queries, views, constants: the functions that ops.def names.
#ifndef HN_OPS_SHAPE_H
#define HN_OPS_SHAPE_H
#include "ops/common.h"

hone_status hn_infer_shape(hone_error *err, hn_infer *ctx);
hone_status hn_infer_size(hone_error *err, hn_infer *ctx);
hone_status hn_infer_identity(hone_error *err, hn_infer *ctx);
hone_status hn_infer_dropout(hone_error *err, hn_infer *ctx);
hone_status hn_infer_reshape(hone_error *err, hn_infer *ctx);
hone_status hn_infer_squeeze(hone_error *err, hn_infer *ctx);
hone_status hn_infer_unsqueeze(hone_error *err, hn_infer *ctx);
hone_status hn_infer_flatten(hone_error *err, hn_infer *ctx);
hone_status hn_infer_expand(hone_error *err, hn_infer *ctx);
hone_status hn_infer_tile(hone_error *err, hn_infer *ctx);
hone_status hn_infer_constant(hone_error *err, hn_infer *ctx);
hone_status hn_infer_constant_of_shape(hone_error *err, hn_infer *ctx);
hone_status hn_infer_range(hone_error *err, hn_infer *ctx);
hone_status hn_infer_eye_like(hone_error *err, hn_infer *ctx);
hone_status hn_ref_shape(hone_error *err, const hn_call *call);
hone_status hn_ref_size(hone_error *err, const hn_call *call);
hone_status hn_ref_copy(hone_error *err, const hn_call *call); // every view
hone_status hn_ref_dropout(hone_error *err, const hn_call *call);
hone_status hn_ref_expand(hone_error *err, const hn_call *call);
hone_status hn_ref_tile(hone_error *err, const hn_call *call);
hone_status hn_ref_constant(hone_error *err, const hn_call *call);
hone_status hn_ref_constant_of_shape(hone_error *err, const hn_call *call);
hone_status hn_ref_range(hone_error *err, const hn_call *call);
hone_status hn_ref_eye_like(hone_error *err, const hn_call *call);

// Dims as the elements of a shape input say: an element that nothing is known of becomes a fresh dim.
// The rank is known when the input's length is; -1 otherwise.
hn_status hn_infer_dims_input(hone_error *err, hn_infer *ctx, const hn_value *shape, int *out_rank,
                              hn_dim *out_dims);
#endif
