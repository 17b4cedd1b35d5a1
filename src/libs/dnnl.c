// SPDX-License-Identifier: Apache-2.0
// Loads oneDNN: see dnnl.h. Its OpenMP regions and our loops are made to run on one set of threads:
// ours if its slots can be bound, else libgomp's.
#include "libs/dnnl.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include "base/check.h"
#include "base/log.h"
#include "base/parallel.h"
#include "libs/openmp.h"

#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_dnnl, need, name),
static const hn_lib_symbol k_symbols[] = {
#include "libs/dnnl.def"
};
#undef HN_SYMBOL

static const char *const k_names[] = {"libdnnl.so.2", NULL};
static const hn_lib_spec k_spec = {
    .title = "oneDNN",
    .env_override = "HONE_DNNL",
    .names = k_names,
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "install the package libdnnl2",
};

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static hn_dnnl g_table;
static hn_lib g_lib;
static bool g_loaded;

// A copy that the process had before us may be at work; it is left as it is.
static bool is_there_already(void) {
    void *handle = dlopen(k_names[0], RTLD_NOW | RTLD_NOLOAD);
    if (handle) dlclose(handle);
    return handle != NULL;
}

static hn_status load(hone_error *err) {
    bool ours = !strcmp(hn_parallel_executor(), "own");
    bool foreign = ours && is_there_already();
    hn_dnnl table;
    hn_lib lib;
    if (foreign) hn_parallel_choose("libgomp");
    HN_TRY(hn_lib_open(err, &k_spec, &table, &lib));
    if (ours && !foreign && !hn_openmp_bind(lib.handle)) {
        hn_log(HN_LOG_INFO, "oneDNN keeps its own OpenMP: the executor is libgomp");
        hn_parallel_choose("libgomp");
    }
    const dnnl_version_t *version = table.dnnl_version();
    if (version->major != 2) {
        int major = version->major, minor = version->minor;
        hn_lib_close(&lib);
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "oneDNN %d.%d is installed, but version 2 is needed",
                major, minor);
    }
    g_table = table;
    g_lib = lib;
    g_loaded = true;
    return HONE_OK;
}

hn_status hn_dnnl_get(hone_error *err, const hn_dnnl **out_api) {
    pthread_mutex_lock(&g_lock);
    hone_status status = g_loaded ? HONE_OK : load(err);
    pthread_mutex_unlock(&g_lock);
    if (status == HONE_OK) *out_api = &g_table;
    return status;
}

hone_status hn_dnnl_status(int status) {
    switch (status) {
    case dnnl_success: return HONE_OK;
    case dnnl_out_of_memory: return HONE_ERR_NOMEM;
    case dnnl_invalid_arguments:
    case dnnl_unimplemented: return HONE_ERR_UNSUPPORTED;
    default: return HONE_ERR_DEVICE;
    }
}

const char *hn_dnnl_status_text(int status) {
    switch (status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented";
    case dnnl_runtime_error: return "run-time error";
    default: return "unexpected status";
    }
}
