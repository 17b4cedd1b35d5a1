// SPDX-License-Identifier: Apache-2.0
// Window functions and Fourier transforms: the functions that ops.def names.
#ifndef HN_OPS_SIGNAL_H
#define HN_OPS_SIGNAL_H
#include "ops/common.h"

hone_status hn_infer_window(hone_error *err, hn_infer *ctx);
hone_status hn_infer_mel_weights(hone_error *err, hn_infer *ctx);
hone_status hn_infer_dft(hone_error *err, hn_infer *ctx);
hone_status hn_infer_stft(hone_error *err, hn_infer *ctx);
hone_status hn_ref_window(hone_error *err, const hn_call *call);
hone_status hn_ref_mel_weights(hone_error *err, const hn_call *call);
hone_status hn_ref_dft(hone_error *err, const hn_call *call);
hone_status hn_ref_stft(hone_error *err, const hn_call *call);
#endif
