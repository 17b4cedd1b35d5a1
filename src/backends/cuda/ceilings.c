// SPDX-License-Identifier: Apache-2.0
// Ceilings of cards: see ceilings.h.
#include "backends/cuda/ceilings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/watched.h"
#include "libs/cublaslt.h"

#define COPY_BYTES  ((size_t)1 << 30) // beyond every L2
#define HOST_BYTES  ((size_t)256 << 20)
#define BLOCK_BYTES ((size_t)16 << 20) // of random numbers, repeated
#define LEAST_MS    30.0 // of work in a timed block
#define BLOCKS      3    // the best counts
#define ALGOS       4
#define WORKSPACE   ((size_t)64 << 20)
#define LAUNCHES    1000
#define START_TIMES 6 // a driver without persistence wakes its cards in up to a minute
#define R_8F_E4M3   28

typedef enum record_kind { R_STEP, R_ITEM, R_REFUSE, R_DONE } record_kind;
typedef struct record {
    record_kind kind;
    hn_ceiling item; // R_STEP: its name is what begins; R_REFUSE: the sentence
} record;

typedef struct child {
    const hn_cuda *api;
    const char *pci;
    int fd, device, cc;
    hn_cu_context context;
    hn_cu_stream stream;
    hn_cu_event begin, end;
    char step[64];
} child;

static void tell(const child *c, record_kind kind, hn_ceiling_kind what, const char *name, const char *unit, double value) {
    record r = {.kind = kind, .item = {.kind = what, .measured = value, .sheet = NAN}};
    snprintf(r.item.pci, sizeof r.item.pci, "%s", c->pci);
    snprintf(r.item.name, sizeof r.item.name, "%.255s", name);
    snprintf(r.item.unit, sizeof r.item.unit, "%s", unit);
    if (write(c->fd, &r, sizeof r) != (ssize_t)sizeof r) _exit(1); // nobody listens
}

static void step(child *c, const char *name) {
    snprintf(c->step, sizeof c->step, "%s", name);
    tell(c, R_STEP, HN_CEILING_PLAIN, name, "", 0);
}

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        int result_ = c->api->name(__VA_ARGS__);                                                   \
        if (result_) return result_;                                                               \
    } while (0)

// Milliseconds of one call of `work` at best. `work` answers like the driver.
typedef int (*work_fn)(child *c, void *arg);
static int best_ms(child *c, work_fn work, void *arg, double *out_ms) {
    double best = INFINITY;
    int result = work(c, arg), runs = 1; // the first loads code and wakes the clocks
    if (result) return result;
    CALL(cuStreamSynchronize, c->stream);
    for (int block = 0; block < BLOCKS;) {
        float ms = 0;
        CALL(cuEventRecord, c->begin, c->stream);
        for (int i = 0; i < runs; i++) {
            result = work(c, arg);
            if (result) return result;
        }
        CALL(cuEventRecord, c->end, c->stream);
        CALL(cuEventSynchronize, c->end);
        CALL(cuEventElapsedTime, &ms, c->begin, c->end);
        if (ms < LEAST_MS && runs < 4096) {
            runs *= ms > LEAST_MS / 8 ? 2 : 8;
            continue;
        }
        best = fmin(best, ms / runs);
        block++;
    }
    *out_ms = best;
    return 0;
}

// ---- copies and launches ------------------------------------------------------------------------
typedef struct copies {
    hn_cu_ptr a, b;
    void *host;
    size_t bytes;
} copies;
static int copy_within(child *c, void *arg) {
    const copies *k = arg;
    return c->api->cuMemcpyDtoDAsync_v2(k->b, k->a, k->bytes, c->stream);
}
static int copy_in(child *c, void *arg) {
    const copies *k = arg;
    return c->api->cuMemcpyHtoDAsync_v2(k->a, k->host, k->bytes, c->stream);
}
static int copy_out(child *c, void *arg) {
    const copies *k = arg;
    return c->api->cuMemcpyDtoHAsync_v2(k->host, k->a, k->bytes, c->stream);
}

static int measure_copies(child *c, size_t room) {
    copies k = {.bytes = hn_min_i64((int64_t)COPY_BYTES, (int64_t)(room / 2))};
    double ms;
    step(c, "device copy");
    CALL(cuMemAlloc_v2, &k.a, k.bytes);
    CALL(cuMemAlloc_v2, &k.b, k.bytes);
    CALL(cuMemsetD8Async, k.a, 0x5a, k.bytes, c->stream);
    int result = best_ms(c, copy_within, &k, &ms);
    if (result) return result;
    tell(c, R_ITEM, HN_CEILING_MEMORY, c->step, "GB/s", 2e-6 * (double)k.bytes / ms); // read and written
    CALL(cuMemFree_v2, k.b);
    if (k.bytes > HOST_BYTES) k.bytes = HOST_BYTES;
    step(c, "host to device");
    CALL(cuMemHostAlloc, &k.host, k.bytes, 0);
    memset(k.host, 0x5a, k.bytes);
    result = best_ms(c, copy_in, &k, &ms);
    if (result) return result;
    tell(c, R_ITEM, HN_CEILING_HOST_LINK, c->step, "GB/s", 1e-6 * (double)k.bytes / ms);
    step(c, "device to host");
    result = best_ms(c, copy_out, &k, &ms);
    if (result) return result;
    tell(c, R_ITEM, HN_CEILING_HOST_LINK, c->step, "GB/s", 1e-6 * (double)k.bytes / ms);
    CALL(cuMemFree_v2, k.a);
    return c->api->cuMemFreeHost(k.host);
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure_launches(child *c) {
    // Text for every card since Maxwell; the driver translates it.
    static const char k_empty[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty()\n{\n ret;\n}\n";
    hn_cu_module module;
    hn_cu_function empty;
    double rows[BLOCKS], waits[LAUNCHES / 5];
    step(c, "launch");
    CALL(cuModuleLoadData, &module, k_empty);
    CALL(cuModuleGetFunction, &empty, module, "empty");
    for (int block = -1; block < BLOCKS; block++) {
        int64_t begin = hn_clock_ns();
        for (int i = 0; i < LAUNCHES; i++) CALL(cuLaunchKernel, empty, 1, 1, 1, 32, 1, 1, 0, c->stream, NULL, NULL);
        CALL(cuStreamSynchronize, c->stream);
        if (block >= 0) rows[block] = (double)(hn_clock_ns() - begin) * 1e-3 / LAUNCHES;
    }
    qsort(rows, BLOCKS, sizeof *rows, compare_double);
    tell(c, R_ITEM, HN_CEILING_LAUNCH, c->step, "us", rows[0]);
    step(c, "launch and wait");
    for (size_t i = 0; i < HN_COUNT_OF(waits); i++) {
        int64_t begin = hn_clock_ns();
        CALL(cuLaunchKernel, empty, 1, 1, 1, 32, 1, 1, 0, c->stream, NULL, NULL);
        CALL(cuStreamSynchronize, c->stream);
        waits[i] = (double)(hn_clock_ns() - begin) * 1e-3;
    }
    qsort(waits, HN_COUNT_OF(waits), sizeof *waits, compare_double);
    tell(c, R_ITEM, HN_CEILING_LAUNCH, c->step, "us", waits[HN_COUNT_OF(waits) / 2]);
    return c->api->cuModuleUnload(module);
}

// ---- matrix products ----------------------------------------------------------------------------
typedef struct type {
    const char *name, *unit;
    hn_ceiling_kind kind;
    int least_cc; // tensor cores of this type
    int in, out, compute, scale;
    int bytes;          // of an operand's element
    uint64_t keep, set; // of eight random bytes: numbers of 0.5 to 1 with a sign
} type;
static const type k_types[] = {
    {"float32 product", "TFLOP/s", HN_CEILING_FP32, 50, HN_CUDA_R_32F, HN_CUDA_R_32F, HN_LT_COMPUTE_32F, HN_CUDA_R_32F, 4,
     0x807fffff807fffff, 0x3f0000003f000000},
    {"tf32 product", "TFLOP/s", HN_CEILING_TF32, 80, HN_CUDA_R_32F, HN_CUDA_R_32F, HN_LT_COMPUTE_32F_TF32, HN_CUDA_R_32F, 4,
     0x807fffff807fffff, 0x3f0000003f000000},
    {"float16 product", "TFLOP/s", HN_CEILING_HALF, 60, HN_CUDA_R_16F, HN_CUDA_R_16F, HN_LT_COMPUTE_32F, HN_CUDA_R_32F, 2,
     0x83ff83ff83ff83ff, 0x3800380038003800},
    {"bfloat16 product", "TFLOP/s", HN_CEILING_HALF, 80, HN_CUDA_R_16BF, HN_CUDA_R_16BF, HN_LT_COMPUTE_32F, HN_CUDA_R_32F, 2,
     0x807f807f807f807f, 0x3f003f003f003f00},
    {"float8 product", "TFLOP/s", HN_CEILING_FP8, 89, R_8F_E4M3, HN_CUDA_R_16BF, HN_LT_COMPUTE_32F, HN_CUDA_R_32F, 1,
     0x8787878787878787, 0x3030303030303030},
    {"int8 product", "TOP/s", HN_CEILING_INT8, 75, HN_CUDA_R_8I, HN_CUDA_R_32I, HN_LT_COMPUTE_32I, HN_CUDA_R_32I, 1,
     0xffffffffffffffff, 0},
};

typedef struct product {
    const hn_cublaslt *lt;
    hn_lt_handle handle;
    hn_lt_desc desc;
    hn_lt_layout a, b, d;
    const hn_lt_result *algo;
    hn_cu_ptr pa, pb, pd, workspace;
    bool ints;
} product;

#define REFUSED (-1) // by the library: this type or this proposal does not work here

static int multiply(child *c, void *arg) {
    product *p = arg;
    float one = 1, zero = 0;
    int32_t int_one = 1, int_zero = 0;
    const void *alpha = p->ints ? (const void *)&int_one : &one;
    const void *beta = p->ints ? (const void *)&int_zero : &zero;
    int result = p->lt->cublasLtMatmul(p->handle, p->desc, alpha, (const void *)(uintptr_t)p->pa, p->a,
                                       (const void *)(uintptr_t)p->pb, p->b, beta, (void *)(uintptr_t)p->pd, p->d,
                                       (void *)(uintptr_t)p->pd, p->d, &p->algo->algo, (void *)(uintptr_t)p->workspace, WORKSPACE,
                                       c->stream);
    return result ? REFUSED : 0;
}

static int fill(child *c, hn_cu_ptr to, size_t bytes, const type *t, uint64_t *block) {
    uint64_t x = 0x9e3779b97f4a7c15u + to;
    for (size_t i = 0; i < BLOCK_BYTES / 8; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        block[i] = (x & t->keep) | t->set;
    }
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES)
        CALL(cuMemcpyHtoDAsync_v2, to + at, block, bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES, c->stream);
    return c->api->cuStreamSynchronize(c->stream);
}

// The transposed first operand is the form that every type has.
static bool describe(product *p, const type *t, uint64_t n) {
    const hn_cublaslt *lt = p->lt;
    int turned = 1;
    p->ints = t->scale == HN_CUDA_R_32I;
    return lt->cublasLtMatmulDescCreate(&p->desc, t->compute, t->scale) == 0 &&
           lt->cublasLtMatmulDescSetAttribute(p->desc, HN_LT_DESC_TRANSA, &turned, sizeof turned) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&p->a, t->in, n, n, (int64_t)n) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&p->b, t->in, n, n, (int64_t)n) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&p->d, t->out, n, n, (int64_t)n) == 0;
}

static void forget(product *p) {
    if (p->a) p->lt->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) p->lt->cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) p->lt->cublasLtMatrixLayoutDestroy(p->d);
    if (p->desc) p->lt->cublasLtMatmulDescDestroy(p->desc);
    p->a = p->b = p->d = NULL;
    p->desc = NULL;
}

static int measure_type(child *c, product *p, hn_lt_preference preference, const type *t, uint64_t n, uint64_t *block) {
    hn_lt_result found[ALGOS];
    int count = 0;
    double best = INFINITY;
    step(c, t->name);
    if (!describe(p, t, n) ||
        p->lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->a, p->b, p->d, p->d, preference, ALGOS, found, &count) != 0)
        return 0; // no such product on this card or in this library: no row
    int result = fill(c, p->pa, n * n * (size_t)t->bytes, t, block);
    if (!result) result = fill(c, p->pb, n * n * (size_t)t->bytes, t, block);
    for (int i = 0; i < count && !result; i++) {
        double ms;
        p->algo = &found[i];
        result = best_ms(c, multiply, p, &ms);
        if (!result) best = fmin(best, ms);
        else if (result == REFUSED) result = 0;
    }
    if (isfinite(best)) tell(c, R_ITEM, t->kind, t->name, t->unit, 2e-9 * (double)n * (double)n * (double)n / best);
    return result;
}

static int measure_products(child *c, size_t room) {
    uint64_t n = room >= 3 * (size_t)8192 * 8192 * 4 + WORKSPACE ? 8192 : 4096;
    size_t bytes = n * n * 4;
    product p = {0};
    hn_lt_preference preference = NULL;
    hone_error err = {0};
    size_t workspace = WORKSPACE;
    step(c, "loading cuBLASLt");
    if (hn_cublaslt_get(&err, &p.lt) != HONE_OK) {
        tell(c, R_ITEM, HN_CEILING_MISSING, err.text, "", NAN);
        return 0;
    }
    if (p.lt->cublasLtCreate(&p.handle) || p.lt->cublasLtMatmulPreferenceCreate(&preference) ||
        p.lt->cublasLtMatmulPreferenceSetAttribute(preference, HN_LT_PREF_WORKSPACE, &workspace, sizeof workspace)) {
        tell(c, R_ITEM, HN_CEILING_FAILED, "cuBLASLt does not start on this card", "", NAN);
        return 0;
    }
    CALL(cuMemAlloc_v2, &p.pa, bytes);
    CALL(cuMemAlloc_v2, &p.pb, bytes);
    CALL(cuMemAlloc_v2, &p.pd, bytes);
    CALL(cuMemAlloc_v2, &p.workspace, WORKSPACE);
    uint64_t *block;
    CALL(cuMemHostAlloc, (void **)&block, BLOCK_BYTES, 0);
    for (size_t i = 0; i < HN_COUNT_OF(k_types); i++) {
        if (c->cc < k_types[i].least_cc) continue;
        int result = measure_type(c, &p, preference, &k_types[i], n, block);
        forget(&p);
        if (result) return result;
    }
    return 0;
}

// ---- the child --------------------------------------------------------------------------------
static int measure(child *c) {
    size_t room, total;
    int major = 0, minor = 0;
    step(c, "a context");
    CALL(cuDevicePrimaryCtxRetain, &c->context, c->device);
    CALL(cuCtxSetCurrent, c->context);
    CALL(cuDeviceGetAttribute, &major, HN_CU_ATTR_CC_MAJOR, c->device);
    CALL(cuDeviceGetAttribute, &minor, HN_CU_ATTR_CC_MINOR, c->device);
    c->cc = 10 * major + minor;
    CALL(cuStreamCreate, &c->stream, HN_CU_STREAM_NON_BLOCKING);
    CALL(cuEventCreate, &c->begin, 0);
    CALL(cuEventCreate, &c->end, 0);
    CALL(cuMemGetInfo_v2, &room, &total);
    room -= room / 8;
    if (room < 3 * (size_t)4096 * 4096 * 4 + WORKSPACE) {
        char text[128];
        snprintf(text, sizeof text, "not measured: %zu MiB of its memory are free, and it takes 300", room >> 20);
        tell(c, R_ITEM, HN_CEILING_FAILED, text, "", NAN);
        return 0;
    }
    int result = measure_copies(c, room);
    if (!result) result = measure_launches(c);
    return result ? result : measure_products(c, room);
}

static void run_child(int fd, void *arg) {
    child c = {.fd = fd, .pci = arg, .device = -1};
    hone_error err = {0};
    int count = 0;
    char text[256], pci[32];
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    if (hn_cuda_get(&err, &c.api) != HONE_OK) {
        tell(&c, R_REFUSE, HN_CEILING_PLAIN, err.text, "", 0);
        return;
    }
    size_t wanted = strlen(c.pci);
    if (c.api->cuDeviceGetCount(&count)) count = 0;
    for (int i = 0; i < count && c.device < 0 && c.api->cuDeviceGetPCIBusId; i++) {
        int device;
        if (c.api->cuDeviceGet(&device, i) || c.api->cuDeviceGetPCIBusId(pci, sizeof pci, device)) continue;
        size_t length = strlen(pci);
        if (length >= 12 && wanted >= 12 && strcasecmp(pci + length - 12, c.pci + wanted - 12) == 0) c.device = device;
    }
    if (c.device < 0) {
        tell(&c, R_ITEM, HN_CEILING_FAILED, "not measured: CUDA does not show this card to us (CUDA_VISIBLE_DEVICES, container)", "", NAN);
    } else {
        int result = measure(&c);
        if (result > 0) {
            snprintf(text, sizeof text, "measuring it failed at '%s': %s (%d)", c.step, hn_cuda_result_text(result), result);
            tell(&c, R_ITEM, HN_CEILING_FAILED, text, "", NAN);
        }
    }
    tell(&c, R_DONE, HN_CEILING_PLAIN, "", "", 0);
}

// ---- watching ---------------------------------------------------------------------------------
static void put(hn_ceiling *items, int max, int *count, const hn_ceiling *item) {
    if (*count < max) items[(*count)++] = *item;
}

static hone_status watch(hone_error *err, const hn_ceilings_wanted *wanted, const char *pci, hn_ceiling *items, int max,
                         int *count) {
    char id[32];
    hn_watched w;
    record r;
    hn_ceiling now = {.kind = HN_CEILING_FAILED, .measured = NAN, .sheet = NAN};
    char doing[64] = "starting the driver";
    snprintf(id, sizeof id, "%s", pci);
    snprintf(now.pci, sizeof now.pci, "%s", pci);
    HN_TRY(hn_watched_start(err, run_child, id, &w));
    hone_status status = HONE_OK;
    double timeout = wanted->timeout_s * START_TIMES;
    for (;;) {
        int got = hn_watched_read(&w, timeout, &r, sizeof r);
        if (got == 1) {
            r.item.name[sizeof r.item.name - 1] = r.item.unit[sizeof r.item.unit - 1] = '\0';
            if (r.kind == R_STEP) {
                // The context still wakes the card; cuBLASLt is hundreds of megabytes from a cold disk.
                timeout = wanted->timeout_s * (strcmp(r.item.name, "a context") ? 1 : START_TIMES);
                snprintf(doing, sizeof doing, "%.63s", r.item.name);
                continue;
            }
            if (r.kind == R_ITEM) put(items, max, count, &r.item);
            if (r.kind == R_ITEM) continue;
            if (r.kind == R_REFUSE) status = HN_SET(err, HONE_ERR_UNSUPPORTED, "%s", r.item.name);
            break;
        }
        if (got < 0) snprintf(now.name, sizeof now.name, "it did not answer in %.0f s while measuring '%s'", timeout, doing);
        else snprintf(now.name, sizeof now.name, "the process that measured '%s' ended by itself", doing);
        put(items, max, count, &now);
        break;
    }
    if (!hn_watched_end(&w)) {
        snprintf(now.name, sizeof now.name, "the process that measured '%s' hangs in the driver and cannot be ended: reset the card", doing);
        put(items, max, count, &now);
    }
    return status;
}

hone_status hn_cuda_ceilings(hone_error *err, const hn_ceilings_wanted *wanted, hn_ceiling *out_items, int max_items,
                             int *out_count) {
    *out_count = 0;
    for (int i = 0; i < wanted->count; i++)
        HN_TRY(watch(err, wanted, wanted->pci[i], out_items, max_items, out_count));
    return HONE_OK;
}
