// SPDX-License-Identifier: Apache-2.0
// Where libcuda is found, and what its results mean.
#include "libs/cuda.h"
#include <pthread.h>
#include "base/check.h"

#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_cuda, need, name),
static const hn_lib_symbol k_symbols[] = {
#include "libs/cuda.def"
};
#undef HN_SYMBOL

static const char *const k_names[] = {
    "libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib/libcuda.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/run/nvidia/driver/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    NULL,
};
const hn_lib_spec hn_cuda_spec = {
    .title = "the CUDA driver (libcuda)",
    .env_override = "HONE_CUDA_LIB",
    .names = k_names,
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "it comes with the NVIDIA driver; in a container start with the GPUs passed in",
};

const char *hn_cuda_oldest_driver(int generation) {
    return generation == 11 ? "450.80" : generation == 12 ? "525.60" : generation == 13 ? "580.65" : NULL;
}

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static hn_cuda g_table;
static hn_lib g_lib;
static bool g_loaded;

static hn_status load(hone_error *err) {
    hn_cuda table;
    hn_lib lib;
    HN_TRY(hn_lib_open(err, &hn_cuda_spec, &table, &lib));
    int version = 0, result = table.cuInit(0);
    if (result == HN_CU_OK) result = table.cuDriverGetVersion(&version);
    if (result != HN_CU_OK) {
        hn_lib_close(&lib);
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the CUDA driver does not start: %s", hn_cuda_result_text(result));
    }
    if (version < HN_CUDA_OLDEST * 1000) {
        hn_lib_close(&lib);
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the NVIDIA driver knows CUDA %d.%d only; %d.0 (driver %s) is the oldest that will do",
                version / 1000, version % 1000 / 10, HN_CUDA_OLDEST, hn_cuda_oldest_driver(HN_CUDA_OLDEST));
    }
    g_table = table;
    g_lib = lib;
    g_loaded = true;
    return HONE_OK;
}

hn_status hn_cuda_get(hone_error *err, const hn_cuda **out_api) {
    pthread_mutex_lock(&g_lock);
    hone_status status = g_loaded ? HONE_OK : load(err);
    pthread_mutex_unlock(&g_lock);
    if (status == HONE_OK) *out_api = &g_table;
    return status;
}

hone_status hn_cuda_status(int result) {
    switch (result) {
    case HN_CU_OK: return HONE_OK;
    case HN_CU_OUT_OF_MEMORY: return HONE_ERR_NOMEM;
    case HN_CU_NO_DEVICE:
    case HN_CU_INVALID_DEVICE:
    case HN_CU_UNSUPPORTED_PTX:
    case HN_CU_NO_BINARY_FOR_GPU: return HONE_ERR_UNSUPPORTED;
    default: return HONE_ERR_DEVICE;
    }
}

// Errors after which the context answers every call with the same error.
bool hn_cuda_sticky(int result) {
    switch (result) {
    case HN_CU_ECC_UNCORRECTABLE:
    case HN_CU_ILLEGAL_ADDRESS:
    case HN_CU_LAUNCH_TIMEOUT:
    case HN_CU_ASSERT:
    case HN_CU_HARDWARE_STACK_ERROR:
    case HN_CU_ILLEGAL_INSTRUCTION:
    case HN_CU_MISALIGNED_ADDRESS:
    case HN_CU_INVALID_PC:
    case HN_CU_LAUNCH_FAILED: return true;
    default: return false;
    }
}

const char *hn_cuda_result_text(int result) {
    static const struct {
        int result;
        const char *text;
    } k_texts[] = {
        {HN_CU_OK, "no error"},
        {HN_CU_INVALID_VALUE, "invalid argument"},
        {HN_CU_OUT_OF_MEMORY, "the card's memory is full"},
        {HN_CU_NOT_INITIALIZED, "the driver is not initialised"},
        {HN_CU_NO_DEVICE, "no card is visible (is CUDA_VISIBLE_DEVICES empty, or the container without GPUs?)"},
        {HN_CU_INVALID_DEVICE, "there is no such card"},
        {HN_CU_INVALID_IMAGE, "the machine code is broken"},
        {HN_CU_UNSUPPORTED_PTX, "the machine code is for a newer driver"},
        {HN_CU_NO_BINARY_FOR_GPU, "the machine code is for another card"},
        {HN_CU_ECC_UNCORRECTABLE, "an uncorrectable memory error of the card"},
        {HN_CU_ILLEGAL_ADDRESS, "a kernel touched memory that is not its own"},
        {HN_CU_LAUNCH_OUT_OF_RESOURCES, "a kernel needs more registers or shared memory than the card has"},
        {HN_CU_LAUNCH_TIMEOUT, "a kernel ran too long for a card with a display"},
        {HN_CU_ASSERT, "a kernel's assertion failed"},
        {HN_CU_HARDWARE_STACK_ERROR, "a kernel's stack overflowed"},
        {HN_CU_ILLEGAL_INSTRUCTION, "a kernel met an instruction that the card does not know"},
        {HN_CU_MISALIGNED_ADDRESS, "a kernel touched memory at an odd address"},
        {HN_CU_INVALID_PC, "a kernel jumped out of its code"},
        {HN_CU_LAUNCH_FAILED, "a kernel failed"},
        {HN_CU_SYSTEM_NOT_READY, "the system is not ready: NVSwitch machines need the fabric manager running"},
        {HN_CU_SYSTEM_DRIVER_MISMATCH,
         "libcuda and the loaded kernel driver are of different versions: reboot, or unload and load its modules"},
        {HN_CU_UNKNOWN, "the driver answers 'unknown error'; in a container start it again with the GPUs passed in"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_texts); i++)
        if (k_texts[i].result == result) return k_texts[i].text;
    const char *text = NULL;
    if (g_loaded && g_table.cuGetErrorString && g_table.cuGetErrorString(result, &text) == HN_CU_OK && text) return text;
    return "an error of the driver";
}
