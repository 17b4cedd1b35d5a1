// SPDX-License-Identifier: Apache-2.0
// GNU libmicrohttpd as a table of functions: see libs.h. Loaded once and kept for the life of the process.
#ifndef HN_LIBS_MHD_H
#define HN_LIBS_MHD_H
#include <microhttpd.h>
#include "libs/libs.h"

typedef struct hn_mhd {
#define HN_SYMBOL(need, result, name, args) HN_LIB_FIELD(need, result, name, args)
#include "libs/mhd.def"
#undef HN_SYMBOL
} hn_mhd;

hn_status hn_mhd_get(hone_error *err, const hn_mhd **out_api);
#endif
