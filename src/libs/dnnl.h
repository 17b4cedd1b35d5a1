// SPDX-License-Identifier: Apache-2.0
// oneDNN as a table of functions: see libs.h. Loaded once and kept for the life of the process
// (its JIT code and thread-local state do not survive an unload).
#ifndef HN_LIBS_DNNL_H
#define HN_LIBS_DNNL_H
#include <dnnl.h>
#include "libs/libs.h"

typedef struct hn_dnnl {
#define HN_SYMBOL(need, result, name, args) HN_LIB_FIELD(need, result, name, args)
#include "libs/dnnl.def"
#undef HN_SYMBOL
} hn_dnnl;

// HONE_ERR_UNSUPPORTED with a sentence when it is not installed or has another major version.
hn_status hn_dnnl_get(hone_error *err, const hn_dnnl **out_api);
// HONE_ERR_NOMEM, _UNSUPPORTED or _DEVICE for a dnnl_status_t other than success.
hone_status hn_dnnl_status(int status);
const char *hn_dnnl_status_text(int status);
#endif
