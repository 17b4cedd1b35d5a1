// SPDX-License-Identifier: Apache-2.0
// The copying process of the peer-to-peer test: see p2p.h. It may stall at any call.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "libs/cuda.h"
#include "place/p2p_int.h"

#define RUNS        8    // copies that are timed together
#define LEAST_MS    20.0 // of timed copies: less is dominated by the start
#define ROUNDS_MOST 64
#define ALREADY     704 // peer access is on already

typedef struct card {
    int device;
    hn_cu_context context;
    hn_cu_stream stream;
    hn_cu_event begin, end;
    hn_cu_ptr out, in; // what it sends, what it receives
} card;

typedef struct copier {
    const hn_cuda *api;
    int fd, count;
    int64_t bytes;
    card cards[HN_PLACE_GPUS_MAX];
    unsigned char *sent, *got; // pinned
    uint64_t broken[HN_PLACE_GPUS_MAX]; // bit b of card a: a to b is not to be tried again
} copier;

static void tell(const copier *c, const hn_p2p_record *record) {
    if (write(c->fd, record, sizeof *record) != (ssize_t)sizeof *record) _exit(1); // nobody listens
}

static void begin(const copier *c, hn_p2p_step step, int a, int b) {
    hn_p2p_record record = {.kind = P2P_STEP, .step = (int)step, .a = a, .b = b};
    tell(c, &record);
}

// A byte sequence without period that differs from pair to pair: stale data of another pair shows.
static void fill_pattern(unsigned char *out, int64_t bytes, int a, int b) {
    uint64_t x = 0x9e3779b97f4a7c15ull * (uint64_t)(a * 64 + b + 1);
    for (int64_t i = 0; i + 8 <= bytes; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(out + i, &x, 8);
    }
}

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        int result_ = c->api->name(__VA_ARGS__);                                                   \
        if (result_) return result_;                                                               \
    } while (0)

static int prepare(copier *c, card *k) {
    if (k->context) return 0;
    CALL(cuDevicePrimaryCtxRetain, &k->context, k->device);
    CALL(cuCtxSetCurrent, k->context);
    CALL(cuStreamCreate, &k->stream, HN_CU_STREAM_NON_BLOCKING);
    CALL(cuEventCreate, &k->begin, 0);
    CALL(cuEventCreate, &k->end, 0);
    CALL(cuMemAlloc_v2, &k->out, (size_t)c->bytes);
    CALL(cuMemAlloc_v2, &k->in, (size_t)c->bytes);
    if (c->sent) return 0;
    CALL(cuMemHostAlloc, (void **)&c->sent, (size_t)c->bytes, HN_CU_HOST_PORTABLE);
    CALL(cuMemHostAlloc, (void **)&c->got, (size_t)c->bytes, HN_CU_HOST_PORTABLE);
    return 0;
}

// Both ways: a link is of no use to a collective in one direction only.
static int allow(copier *c, card *a, card *b, int *out_access) {
    int there = 0, back = 0;
    CALL(cuDeviceCanAccessPeer, &there, a->device, b->device);
    CALL(cuDeviceCanAccessPeer, &back, b->device, a->device);
    *out_access = there && back;
    if (!*out_access) return 0;
    for (int i = 0; i < 2; i++) {
        CALL(cuCtxSetCurrent, i ? b->context : a->context);
        int result = c->api->cuCtxEnablePeerAccess(i ? a->context : b->context, 0);
        if (result && result != ALREADY) return result;
    }
    return 0;
}

static int copy(copier *c, card *a, card *b) {
    return c->api->cuMemcpyPeerAsync(b->in, b->context, a->out, a->context, (size_t)c->bytes, a->stream);
}

static int check_data(copier *c, int from, int to, hn_p2p_record *out) {
    card *a = &c->cards[from], *b = &c->cards[to];
    fill_pattern(c->sent, c->bytes, from, to);
    memset(c->got, 0, (size_t)c->bytes);
    CALL(cuCtxSetCurrent, b->context);
    CALL(cuMemsetD8Async, b->in, 0xa5, (size_t)c->bytes, b->stream);
    CALL(cuStreamSynchronize, b->stream);
    CALL(cuCtxSetCurrent, a->context);
    CALL(cuMemcpyHtoDAsync_v2, a->out, c->sent, (size_t)c->bytes, a->stream);
    int result = copy(c, a, b);
    if (result) return result;
    CALL(cuStreamSynchronize, a->stream);
    CALL(cuCtxSetCurrent, b->context);
    CALL(cuMemcpyDtoHAsync_v2, c->got, b->in, (size_t)c->bytes, b->stream);
    CALL(cuStreamSynchronize, b->stream);
    out->first_wrong = -1;
    if (memcmp(c->sent, c->got, (size_t)c->bytes) == 0) return 0;
    for (int64_t i = 0; i < c->bytes; i++) {
        if (c->sent[i] == c->got[i]) continue;
        if (out->first_wrong < 0) out->first_wrong = i;
        out->wrong++;
    }
    return 0;
}

// GB/s of a -> b; with `both`, while b -> a runs too.
static int measure(copier *c, card *a, card *b, bool both, double *out_gbs) {
    float ms = 0;
    int rounds = 0;
    CALL(cuCtxSetCurrent, a->context);
    CALL(cuEventRecord, a->begin, a->stream);
    while (ms < LEAST_MS && rounds < ROUNDS_MOST) {
        for (int i = 0; i < RUNS; i++) {
            CALL(cuCtxSetCurrent, a->context);
            int result = copy(c, a, b);
            if (result) return result;
            if (!both) continue;
            CALL(cuCtxSetCurrent, b->context);
            result = copy(c, b, a);
            if (result) return result;
        }
        rounds++;
        CALL(cuCtxSetCurrent, a->context);
        CALL(cuEventRecord, a->end, a->stream);
        CALL(cuEventSynchronize, a->end);
        CALL(cuEventElapsedTime, &ms, a->begin, a->end);
    }
    if (both) {
        CALL(cuCtxSetCurrent, b->context);
        CALL(cuStreamSynchronize, b->stream);
    }
    *out_gbs = ms > 0 ? (double)c->bytes * RUNS * rounds / (ms * 1e6) : -1;
    return 0;
}

static int test_pair(copier *c, int from, int to, hn_p2p_record *out) {
    card *a = &c->cards[from], *b = &c->cards[to];
    out->step = P2P_START;
    begin(c, P2P_START, from, to);
    int result = prepare(c, a);
    if (!result) result = prepare(c, b);
    if (result) return result;
    begin(c, out->step = P2P_ACCESS, from, to);
    result = allow(c, a, b, &out->access);
    if (result) return result;
    begin(c, out->step = P2P_DATA, from, to);
    result = check_data(c, from, to, out);
    if (result || out->wrong) return result;
    begin(c, out->step = P2P_TIME, from, to);
    result = measure(c, a, b, false, &out->gbs);
    if (result) return result;
    if (from < to || (c->broken[to] >> from & 1)) return 0;
    begin(c, out->step = P2P_BOTH, from, to);
    return measure(c, a, b, true, &out->both_gbs);
}

static void refuse(copier *c, const char *fmt, const char *text, int count) {
    hn_p2p_record record = {.kind = P2P_REFUSE};
    snprintf(record.name, sizeof record.name, fmt, text, count);
    tell(c, &record);
    _exit(0);
}

void hn_p2p_copy(int fd, const hn_p2p_report *report, int first) {
    hone_error err = {0};
    copier c = {.fd = fd, .bytes = report->bytes};
    for (size_t i = 0; i < report->pairs.count; i++)
        if (report->pairs.data[i].verdict > HN_P2P_SLOW)
            c.broken[report->pairs.data[i].from] |= UINT64_C(1) << report->pairs.data[i].to;
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1); // the numbers of nvidia-smi and of hone topo
    begin(&c, P2P_START, -1, -1);
    if (hn_cuda_get(&err, &c.api) != HONE_OK) refuse(&c, "%s", err.text, 0);
    if (!c.api->cuDeviceCanAccessPeer || !c.api->cuCtxEnablePeerAccess || !c.api->cuMemcpyPeerAsync)
        refuse(&c, "the CUDA driver lacks the calls for peer-to-peer%s", "", 0);
    int result = c.api->cuDeviceGetCount(&c.count);
    if (result) refuse(&c, "no card can be counted: %s", hn_cuda_result_text(result), 0);
    if (c.count < 2)
        refuse(&c, c.count ? "a peer-to-peer test needs two cards, and %sone is visible"
                           : "a peer-to-peer test needs two cards, and %snone is visible", "", 0);
    if (c.count > HN_PLACE_GPUS_MAX) c.count = HN_PLACE_GPUS_MAX;
    for (int i = 0; i < c.count; i++) {
        hn_p2p_record record = {.kind = P2P_CARD, .a = i};
        if (c.api->cuDeviceGet(&c.cards[i].device, i)) c.cards[i].device = i;
        if (c.api->cuDeviceGetName(record.name, 95, c.cards[i].device)) record.name[0] = '\0';
        if (!c.api->cuDeviceGetPCIBusId || c.api->cuDeviceGetPCIBusId(record.pci, 31, c.cards[i].device))
            record.pci[0] = '\0';
        if (first == 0) tell(&c, &record);
    }
    for (int pair = first; pair < c.count * (c.count - 1); pair++) {
        int a = pair / (c.count - 1), b = pair % (c.count - 1);
        b += b >= a;
        hn_p2p_record record = {.kind = P2P_RESULT, .a = a, .b = b, .gbs = -1, .both_gbs = -1, .first_wrong = -1};
        record.result = test_pair(&c, a, b, &record);
        if (record.result || record.wrong) c.broken[a] |= UINT64_C(1) << b;
        tell(&c, &record);
        // After such an error nothing runs in this process: the next pair gets a new one.
        if (record.result && hn_cuda_sticky(record.result)) _exit(0);
    }
    hn_p2p_record record = {.kind = P2P_DONE};
    tell(&c, &record);
    _exit(0); // without the driver's own clean-up, which may stall
}
