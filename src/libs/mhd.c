// SPDX-License-Identifier: Apache-2.0
// Where libmicrohttpd is found.
#include "libs/mhd.h"
#include <pthread.h>
#include "base/check.h"

#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_mhd, need, name),
static const hn_lib_symbol k_symbols[] = {
#include "libs/mhd.def"
};
#undef HN_SYMBOL
static const char *const k_names[] = {"libmicrohttpd.so.12", "libmicrohttpd.so", NULL};
static const hn_lib_spec k_spec = {
    .title = "libmicrohttpd",
    .env_override = "HONE_MICROHTTPD",
    .names = k_names,
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "install the package libmicrohttpd12",
};

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static hn_mhd g_table;
static hn_lib g_lib;
static bool g_loaded;

hn_status hn_mhd_get(hone_error *err, const hn_mhd **out_api) {
    pthread_mutex_lock(&g_lock);
    hone_status status = g_loaded ? HONE_OK : hn_lib_open(err, &k_spec, &g_table, &g_lib);
    g_loaded = status == HONE_OK;
    pthread_mutex_unlock(&g_lock);
    if (status == HONE_OK) *out_api = &g_table;
    return status;
}
