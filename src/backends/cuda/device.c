// SPDX-License-Identifier: Apache-2.0
// Cards: the driver, a card's primary context, its stream, its memory, what it can do, and how its
// faults are told.
#include <stdio.h>
#include "backends/cuda/cuda.h"
#include "backends/cuda/cuda_int.h"
#include "config/config.h"

#define MAX_DEVICES 64
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_device *g_devices[MAX_DEVICES];

// ---- errors -------------------------------------------------------------------------------------
hn_status cuda_check(hone_error *err, cuda_device *d, int result, const char *what) {
    if (result == HN_CU_OK) return HONE_OK;
    if (hn_cuda_sticky(result)) {
        if (!d->lost)
            snprintf(d->lost_text, sizeof d->lost_text, "%s; started last: %s%s%s", hn_cuda_result_text(result),
                     d->last_kernel ? d->last_kernel : "nothing", d->last_node[0] ? " of " : "", d->last_node);
        d->lost = true;
        HN_FAIL(err, HONE_ERR_DEVICE, "cuda:%d is lost: %s (%s)", d->index, d->lost_text, what);
    }
    HN_FAIL(err, hn_cuda_status(result), "cuda:%d: %s: %s (%d)", d->index, what, hn_cuda_result_text(result), result);
}

hn_status cuda_current(hone_error *err, cuda_device *d) {
    if (d->lost) HN_FAIL(err, HONE_ERR_DEVICE, "cuda:%d is lost: %s", d->index, d->lost_text);
    return cuda_check(err, d, d->api->cuCtxSetCurrent(d->context), "binding the context");
}

// ---- memory -------------------------------------------------------------------------------------
hn_status cuda_memory_new(hone_error *err, cuda_device *d, size_t bytes, hn_cu_ptr *out_memory) {
    HN_TRY(cuda_current(err, d));
    int result = d->api->cuMemAlloc_v2(out_memory, bytes ? bytes : 1);
    if (result == HN_CU_OUT_OF_MEMORY) {
        size_t free_bytes = 0, total = 0;
        d->api->cuMemGetInfo_v2(&free_bytes, &total);
        HN_FAIL(err, HONE_ERR_NOMEM, "cuda:%d: %zu bytes do not fit: %zu of its %zu are free", d->index, bytes, free_bytes, total);
    }
    return cuda_check(err, d, result, "taking memory");
}
void cuda_memory_free(cuda_device *d, hn_cu_ptr memory) {
    if (memory && !d->lost && d->api->cuCtxSetCurrent(d->context) == HN_CU_OK) d->api->cuMemFree_v2(memory);
}

// ---- opening ------------------------------------------------------------------------------------
static int attribute(cuda_device *d, int which) {
    int value = 0;
    return d->api->cuDeviceGetAttribute(&value, which, d->ordinal) == HN_CU_OK ? value : 0;
}

static void read_caps(cuda_device *d) {
    cuda_caps *c = &d->caps;
    c->cc = attribute(d, HN_CU_ATTR_CC_MAJOR) * 10 + attribute(d, HN_CU_ATTR_CC_MINOR);
    c->sm_count = attribute(d, HN_CU_ATTR_SM_COUNT);
    c->threads_per_sm = attribute(d, HN_CU_ATTR_THREADS_PER_SM);
    c->shared_optin_bytes = attribute(d, HN_CU_ATTR_SHARED_PER_BLOCK_OPTIN);
    c->l2_bytes = (size_t)attribute(d, HN_CU_ATTR_L2_BYTES);
    // Two transfers a clock; the driver tells neither clock nor width on some virtual machines.
    c->memory_gb_s = 2.0 * attribute(d, HN_CU_ATTR_MEMORY_CLOCK_KHZ) * 1e3 * attribute(d, HN_CU_ATTR_MEMORY_BUS_BITS) / 8 / 1e9;
    d->api->cuDeviceTotalMem_v2(&c->memory_bytes, d->ordinal);
    c->bf16 = c->cc >= 80;
    c->fp8 = c->cc >= 89;
    c->wgmma = c->cc >= 90 && c->cc < 100;
}

// The setting, else NVRTC, else what the build carries. Where there is neither, it is NVRTC that is asked for.
static hn_status choose_code(hone_error *err, cuda_device *d) {
    static const struct {
        const char *name;
        cuda_code code;
    } k_codes[] = {{"nvrtc", CUDA_CODE_OWN}, {"nvrtc-sm80", CUDA_CODE_OWN_SM80}, {"embedded", CUDA_CODE_FORMS}, {"embedded-ptx", CUDA_CODE_PTX}};
    const char *wish = hn_config_get()->cuda_code;
    size_t i = 0;
    while (wish && *wish && i < HN_COUNT_OF(k_codes) && strcmp(k_codes[i].name, wish))
        i++;
    if (i == HN_COUNT_OF(k_codes))
        HN_FAIL(err, HONE_ERR_USAGE, "cuda_code is '%s'; it may be nvrtc, nvrtc-sm80, embedded or embedded-ptx", wish);
    d->code = k_codes[i].code;
    if (cuda_is_generic(d)) return HONE_OK;
    hone_status status = hn_nvrtc_get(err, &d->nvrtc);
    if (status == HONE_OK && d->code == CUDA_CODE_OWN_SM80 && (!d->nvrtc->nvrtcGetPTX || !d->nvrtc->nvrtcGetPTXSize))
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "this NVRTC gives no PTX");
    if (status != HONE_ERR_UNSUPPORTED || (wish && *wish) || !cuda_embedded_count()) return status;
    hn_log(HN_LOG_INFO, "no NVRTC: cuda:%d runs the kernels that this build carries", d->index);
    *err = (hone_error){0};
    d->code = CUDA_CODE_FORMS;
    return HONE_OK;
}

static hn_status start(hone_error *err, cuda_device *d) {
    char name[96] = "";
    int count = 0, major = 0, minor = 0, version = 0;
    CUDA_TRY(err, d, d->api->cuDeviceGetCount(&count), "counting cards");
    if (d->index >= count)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "there is no cuda:%d: the driver shows %d card%s", d->index, count, count == 1 ? "" : "s");
    CUDA_TRY(err, d, d->api->cuDeviceGet(&d->ordinal, d->index), "opening the card");
    CUDA_TRY(err, d, d->api->cuDeviceGetName(name, sizeof name, d->ordinal), "asking its name");
    read_caps(d);
    if (d->caps.cc < 80)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "cuda:%d (%s) has compute capability %d.%d; 8.0 is the lowest that the kernels are for",
                d->index, name, d->caps.cc / 10, d->caps.cc % 10);
    HN_TRY(choose_code(err, d));
    if (!cuda_is_generic(d)) d->nvrtc->nvrtcVersion(&major, &minor);
    d->api->cuDriverGetVersion(&version);
    d->driver = version;
    d->nvrtc_version = major * 1000 + minor;
    CUDA_TRY(err, d, d->api->cuDevicePrimaryCtxRetain(&d->context, d->ordinal), "taking the card's context");
    HN_TRY(cuda_current(err, d));
    CUDA_TRY(err, d, d->api->cuStreamCreate(&d->stream, HN_CU_STREAM_NON_BLOCKING), "making a stream");
    void *fault;
    CUDA_TRY(err, d, d->api->cuMemHostAlloc(&fault, 64, HN_CU_HOST_PORTABLE | HN_CU_HOST_DEVICE_MAP), "taking pinned memory");
    d->fault = fault;
    memset(fault, 0, 64);
    d->fault_device = cuda_address(fault); // one address space on every 64-bit system
    snprintf(d->device, sizeof d->device, "%s (sm_%d, %d SMs)", name, d->caps.cc, d->caps.sm_count);
    snprintf(d->isa, sizeof d->isa, "sm_%d", d->caps.cc);
    int at = snprintf(d->library, sizeof d->library, "driver CUDA %d.%d, ", version / 1000, version % 1000 / 10);
    if (cuda_is_generic(d)) snprintf(d->library + at, sizeof d->library - (size_t)at, "embedded kernels%s", d->code == CUDA_CODE_PTX ? " (PTX)" : "");
    else snprintf(d->library + at, sizeof d->library - (size_t)at, "NVRTC %d.%d%s", major, minor, d->code == CUDA_CODE_OWN_SM80 ? " (PTX of sm_80)" : "");
    return cuda_is_generic(d) ? cuda_forms_try(err, d) : HONE_OK;
}

hn_status cuda_device_open(hone_error *err, int index, cuda_device **out_device) {
    if (index < 0 || index >= MAX_DEVICES) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "there is no cuda:%d", index);
    pthread_mutex_lock(&g_lock);
    cuda_device *d = g_devices[index];
    hone_status status = HONE_OK;
    if (!d) {
        d = hn_calloc(1, sizeof *d);
        if (!d) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (opening a card)");
        if (d) {
            d->index = index;
            d->tries = 3;
            pthread_mutex_init(&d->lock, NULL);
            status = hn_cuda_get(err, &d->api);
        }
        if (status == HONE_OK) status = start(err, d);
        if (status == HONE_OK) status = cpu_state_get(err, &d->cpu_state);
        if (status == HONE_OK) g_devices[index] = d;
    }
    if (status == HONE_OK) {
        d->references++;
        *out_device = d;
    } else if (d) {
        cuda_device_close(d);
    }
    pthread_mutex_unlock(&g_lock);
    return status;
}

// A card stays open to the end of the process (its context costs a quarter of a second); only one that
// did not open whole is torn down here.
void cuda_device_close(cuda_device *d) {
    if (g_devices[d->index] == d) {
        d->references--;
        return;
    }
    if (d->fault) d->api->cuMemFreeHost(d->fault);
    if (d->stream) d->api->cuStreamDestroy_v2(d->stream);
    if (d->context) d->api->cuDevicePrimaryCtxRelease_v2(d->ordinal);
    pthread_mutex_destroy(&d->lock);
    hn_free(d);
}

// ---- libraries ----------------------------------------------------------------------------------
hn_status cuda_lt(hone_error *err, cuda_device *d) {
    if (d->lt_handle) return HONE_OK;
    HN_TRY(hn_cublaslt_get(err, &d->lt));
    HN_TRY(cuda_current(err, d));
    int result = d->lt->cublasLtCreate(&d->lt_handle);
    if (result != HN_LT_OK) {
        d->lt_handle = NULL;
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "cuBLASLt does not start (%d)", result);
    }
    return HONE_OK;
}

hn_status cuda_dnn(hone_error *err, cuda_device *d) {
    if (d->dnn_handle) return HONE_OK;
    HN_TRY(hn_cudnn_get(err, &d->dnn));
    HN_TRY(cuda_current(err, d));
    int result = d->dnn->cudnnCreate(&d->dnn_handle);
    if (result != HN_DNN_OK) {
        d->dnn_handle = NULL;
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "cuDNN does not start: %s", d->dnn->cudnnGetErrorString(result));
    }
    if (d->dnn->cudnnSetStream(d->dnn_handle, d->stream) != HN_DNN_OK)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "cuDNN does not take a stream");
    return HONE_OK;
}
