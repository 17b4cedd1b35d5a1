// SPDX-License-Identifier: Apache-2.0
// Where cuDNN 9 is found: the system's, a toolkit's, or a Python wheel's.
#include "libs/cudnn.h"
#include <pthread.h>
#include "libs/cublaslt.h"
#include "libs/nvrtc.h"
#include "base/check.h"

#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_cudnn, need, name),
static const hn_lib_symbol k_symbols[] = {
#include "libs/cudnn.def"
};
#undef HN_SYMBOL

static const char *const k_names[] = {"libcudnn.so.9", NULL};
const hn_lib_spec hn_cudnn_spec = {
    .title = "cuDNN 9 (libcudnn)",
    .env_override = "HONE_CUDNN_LIB",
    .names = k_names,
    .cuda_file = "libcudnn.so.9",
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "it is a package of its own, also the Python package nvidia-cudnn-cu12 or -cu13",
};

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static hn_cudnn g_table;
static hn_lib g_lib;
static bool g_loaded;

hn_status hn_cudnn_get(hone_error *err, const hn_cudnn **out_api) {
    hone_status status = HONE_OK;
    pthread_mutex_lock(&g_lock);
    if (!g_loaded) {
        // Its parts load NVRTC and cuBLASLt by name; what is in the process already is found.
        const hn_nvrtc *nvrtc;
        const hn_cublaslt *lt;
        (void)!hn_nvrtc_get(NULL, &nvrtc);
        (void)!hn_cublaslt_get(NULL, &lt);
        status = hn_lib_open(err, &hn_cudnn_spec, &g_table, &g_lib);
    }
    g_loaded = g_loaded || status == HONE_OK;
    pthread_mutex_unlock(&g_lock);
    if (status == HONE_OK) *out_api = &g_table;
    return status;
}
