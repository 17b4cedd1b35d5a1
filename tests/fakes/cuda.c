// SPDX-License-Identifier: Apache-2.0
// A CUDA driver without cards, scripted by HONE_FAKE_CUDA, words parted by commas:
//   cards=N (2)   init=CODE      gbs=N (20; of every copy between cards)
//   noaccess=A-B  corrupt=A-B    hang=A-B   slow=A-B   error=A-B   crash=A-B   (card A sends to card B)
//   membw=N (1000 GB/s read plus written)   link=N (20 GB/s)   stall=D   lost=D   die=D
//                 (card D hangs in copies within it, fails (719) in launches, aborts in copies to the host)
//   free=MIB (81920)  cc=N (80)
// Memory is the host's; streams carry a clock that copies move on, so that figures are exact. Launches
// do nothing.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK, INVALID = 1, NO_DEVICE = 100, BAD_DEVICE = 101, ALREADY = 704, FAILED = 719, UNSUPPORTED = 801 };
#define CARDS 16
typedef struct context { int device, peers[CARDS]; } context;
typedef struct stream { double ms; int hung, lost, device; } stream;
#define LARGE ((size_t)128 << 20) // its bytes are not moved: nobody compares them
typedef struct event { double ms; } event;

static context g_contexts[CARDS];
static context *g_current;
static int g_lost;
static unsigned char g_sent[CARDS][CARDS]; // bytes that are there already need no second copy

static const char *word(const char *name) {
    const char *at = getenv("HONE_FAKE_CUDA");
    size_t length = strlen(name);
    while (at && *at) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
        at = strchr(at, ',');
        if (at) at++;
    }
    return NULL;
}
static int number(const char *name, int otherwise) { return word(name) ? atoi(word(name)) : otherwise; }
static int pair(const char *name, int a, int b) {
    int from, to;
    return word(name) && sscanf(word(name), "%d-%d", &from, &to) == 2 && from == a && to == b;
}
static int cards(void) {
    int count = number("cards", 2);
    return count > CARDS ? CARDS : count;
}

int cuInit(unsigned flags) { return (void)flags, number("init", OK); }
int cuDriverGetVersion(int *version) { return *version = 12080, OK; }
int cuDeviceGetCount(int *count) { return *count = cards(), OK; }
int cuDeviceGet(int *device, int index) {
    if (index < 0 || index >= cards()) return BAD_DEVICE;
    *device = index;
    return OK;
}
int cuDeviceGetName(char *text, int bytes, int device) {
    return (void)device, snprintf(text, (size_t)bytes, "Fake A800"), OK;
}
int cuDeviceGetPCIBusId(char *text, int bytes, int device) {
    return snprintf(text, (size_t)bytes, "0000:%02X:00.0", 0x10 + device), OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device; // compute capability: major 75, minor 76
    *value = attribute == 75 ? number("cc", 80) / 10 : attribute == 76 ? number("cc", 80) % 10 : 0;
    return OK;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = (size_t)80 << 30, OK; }
int cuDevicePrimaryCtxRetain(context **out, int device) {
    g_contexts[device].device = device;
    *out = &g_contexts[device];
    return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, OK; }
int cuCtxSetCurrent(context *c) { return g_lost ? g_lost : (g_current = c, OK); }
int cuMemGetInfo_v2(size_t *available, size_t *total) { return *total = (size_t)80 << 30, *available = (size_t)number("free", 81920) << 20, OK; }
int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
    *memory = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *memory ? OK : 2;
}
int cuMemFree_v2(uint64_t memory) { return free((void *)(uintptr_t)memory), OK; }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    *memory = malloc(bytes);
    return *memory ? OK : 2;
}
int cuMemFreeHost(void *memory) { return free(memory), OK; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *s) {
    s->ms += (double)bytes / (number("link", 20) * 1e6);
    memset(g_sent, 0, sizeof g_sent);
    return bytes >= LARGE ? OK : memcpy((void *)(uintptr_t)to, from, bytes), OK;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *s) {
    if (number("die", -1) == s->device) abort();
    s->ms += (double)bytes / (number("link", 20) * 1e6);
    return bytes >= LARGE ? OK : memcpy(to, (void *)(uintptr_t)from, bytes), OK;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, stream *s) {
    s->ms += 2 * (double)bytes / (number("membw", 1000) * 1e6);
    if (number("stall", -1) == s->device) s->hung = 1;
    return bytes >= LARGE ? OK : memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes), OK;
}
int cuMemsetD8Async(uint64_t memory, unsigned char value, size_t bytes, stream *s) {
    memset(g_sent, 0, sizeof g_sent);
    if (bytes < LARGE) memset((void *)(uintptr_t)memory, value, bytes);
    return (void)s, OK;
}
int cuStreamCreate(stream **out, unsigned flags) {
    (void)flags;
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->device = g_current ? g_current->device : -1;
    return *out ? OK : 2;
}
int cuStreamDestroy_v2(stream *s) { return free(s), OK; }
int cuStreamSynchronize(stream *s) {
    while (s->hung) pause();
    return g_lost;
}
int cuStreamWaitEvent(stream *s, event *e, unsigned flags) {
    (void)flags;
    if (e->ms > s->ms) s->ms = e->ms;
    return OK;
}
int cuEventCreate(event **out, unsigned flags) {
    (void)flags;
    *out = calloc(1, sizeof **out);
    return *out ? OK : 2;
}
int cuEventDestroy_v2(event *e) { return free(e), OK; }
int cuEventRecord(event *e, stream *s) { return e->ms = s->ms, OK; }
int cuEventSynchronize(event *e) { return (void)e, g_lost; }
int cuEventElapsedTime(float *ms, event *from, event *to) { return *ms = (float)(to->ms - from->ms), OK; }

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer && !pair("noaccess", device, peer);
    return OK;
}
int cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
    return (void)attribute, cuDeviceCanAccessPeer(value, device, peer);
}
int cuCtxEnablePeerAccess(context *peer, unsigned flags) {
    if (!g_current || flags) return INVALID;
    if (g_current->peers[peer->device]) return ALREADY;
    g_current->peers[peer->device] = 1;
    return OK;
}
int cuMemcpyPeerAsync(uint64_t to, context *there, uint64_t from, context *here, size_t bytes, stream *s) {
    int a = here->device, b = there->device;
    if (pair("crash", a, b)) abort();
    if (pair("error", a, b)) return g_lost = FAILED;
    s->ms += (double)bytes / (number("gbs", 20) * (pair("slow", a, b) ? 0.1 : 1.0) * 1e6);
    if (pair("hang", a, b)) return s->hung = 1, OK;
    if (!g_sent[a][b]) memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    g_sent[a][b] = 1;
    // What an IOMMU does to a page that it sends elsewhere: the old bytes stay.
    if (pair("corrupt", a, b) && bytes >= 8192) memset((char *)(uintptr_t)to + 4096, 0xa5, 4096);
    return OK;
}
int cuGetErrorName(int result, const char **text) { return (void)result, *text = "FAKE", OK; }
int cuGetErrorString(int result, const char **text) { return (void)result, *text = "a fake error", OK; }

int cuModuleLoadData(void **module, const void *image) { return (void)image, *module = (void *)1, OK; }
int cuModuleUnload(void *module) { return (void)module, OK; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return (void)module, (void)name, *function = (void *)1, OK;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    return (void)value, (void)attribute, (void)function, UNSUPPORTED;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    return (void)function, (void)attribute, (void)value, UNSUPPORTED;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, stream *s, void **parameters, void **extra) {
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    if (number("lost", -1) == s->device) return g_lost = FAILED;
    return (void)parameters, (void)extra, OK;
}
