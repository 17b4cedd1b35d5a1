// SPDX-License-Identifier: Apache-2.0
// Where NVRTC is found: the system's, a toolkit's, or a Python wheel's.
#include "libs/nvrtc.h"
#include <pthread.h>
#include "base/check.h"

#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_nvrtc, need, name),
static const hn_lib_symbol k_symbols[] = {
#include "libs/nvrtc.def"
};
#undef HN_SYMBOL

static const char *const k_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", NULL};
const hn_lib_spec hn_nvrtc_spec = {
    .title = "NVRTC (libnvrtc)",
    .env_override = "HONE_NVRTC_LIB",
    .names = k_names,
    .cuda_file = "libnvrtc.so.1[123]*",
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "it is in the CUDA toolkit and in the Python package nvidia-cuda-nvrtc",
};

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static hn_nvrtc g_table;
static hn_lib g_lib;
static bool g_loaded;

hn_status hn_nvrtc_get(hone_error *err, const hn_nvrtc **out_api) {
    hone_status status = HONE_OK;
    pthread_mutex_lock(&g_lock);
    if (!g_loaded) status = hn_lib_open(err, &hn_nvrtc_spec, &g_table, &g_lib);
    g_loaded = g_loaded || status == HONE_OK;
    pthread_mutex_unlock(&g_lock);
    if (status == HONE_OK) *out_api = &g_table;
    return status;
}
