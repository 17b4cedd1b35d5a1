// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: see cuda_int.h.
#ifndef HN_CUDA_BACKEND_H
#define HN_CUDA_BACKEND_H
#include "backends/backend.h"

// HONE_ERR_UNSUPPORTED in one sentence where there is no driver, no card of that index or no compiler.
hone_status hn_cuda_backend_open(hone_error *err, int index, hn_backend **out_backend);
#endif
