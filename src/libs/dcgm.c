// SPDX-License-Identifier: Apache-2.0
// Where libdcgm is found, and what its results mean.
#include "libs/dcgm.h"
#include "base/check.h"

static const hn_lib_symbol k_symbols[] = {
#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_dcgm, need, name),
#include "libs/dcgm.def"
#undef HN_SYMBOL
};
static const char *const k_names[] = {
    "libdcgm.so.4", "libdcgm.so.3", "libdcgm.so",
    "/usr/lib/x86_64-linux-gnu/libdcgm.so.4", "/usr/lib64/libdcgm.so.4", NULL,
};
const hn_lib_spec hn_dcgm_spec = {
    .title = "DCGM (libdcgm)",
    .env_override = "HONE_DCGM_LIB",
    .names = k_names,
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "install datacenter-gpu-manager",
};

const char *hn_dcgm_result_text(int result) {
    static const struct {
        int result;
        const char *text;
    } k_texts[] = {
        {HN_DCGM_OK, "no error"},
        {HN_DCGM_NOT_SUPPORTED, "not supported"},
        {HN_DCGM_NVML_ERROR, "NVML answered with an error"},
        {HN_DCGM_NO_DATA, "no data yet"},
        {HN_DCGM_NO_PERMISSION, "no permission"},
        {HN_DCGM_GPU_IS_LOST, "the card fell off the bus"},
        {HN_DCGM_RESET_REQUIRED, "the card needs a reset"},
        {HN_DCGM_FUNCTION_NOT_FOUND, "the library lacks this function"},
        {HN_DCGM_CONNECTION_NOT_VALID, "the host engine went away"},
        {HN_DCGM_REQUIRES_ROOT, "the host engine must run as root for this"},
        {HN_DCGM_MODULE_NOT_LOADED, "the profiling module is not installed or not loaded"},
        {HN_DCGM_IN_USE, "another profiler (Nsight, CUPTI) holds the counters"},
        {HN_DCGM_PROFILING_NOT_SUPPORTED, "this card has no profiling counters in DCGM"},
        {HN_DCGM_PROFILING_LIBRARY_ERROR, "the profiling module failed"},
        {HN_DCGM_PROFILING_MULTI_PASS, "these counters cannot be read together"},
        {HN_DCGM_PAUSED, "profiling is paused (dcgmi profile --resume)"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_texts); i++)
        if (k_texts[i].result == result) return k_texts[i].text;
    return "an error of DCGM";
}
