// SPDX-License-Identifier: Apache-2.0
// Where cuBLASLt is found: the system's, a toolkit's, or a Python wheel's.
#include "libs/cublaslt.h"
#include <pthread.h>
#include "base/check.h"

#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_cublaslt, need, name),
static const hn_lib_symbol k_symbols[] = {
#include "libs/cublaslt.def"
};
#undef HN_SYMBOL

static const char *const k_names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", NULL};
const hn_lib_spec hn_cublaslt_spec = {
    .title = "cuBLASLt (libcublasLt)",
    .env_override = "HONE_CUBLASLT_LIB",
    .names = k_names,
    .cuda_file = "libcublasLt.so.1[123]",
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "it is in the CUDA toolkit and in the Python package nvidia-cublas",
};

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static hn_cublaslt g_table;
static hn_lib g_lib;
static bool g_loaded;

hn_status hn_cublaslt_get(hone_error *err, const hn_cublaslt **out_api) {
    hone_status status = HONE_OK;
    pthread_mutex_lock(&g_lock);
    if (!g_loaded) status = hn_lib_open(err, &hn_cublaslt_spec, &g_table, &g_lib);
    g_loaded = g_loaded || status == HONE_OK;
    pthread_mutex_unlock(&g_lock);
    if (status == HONE_OK) *out_api = &g_table;
    return status;
}
