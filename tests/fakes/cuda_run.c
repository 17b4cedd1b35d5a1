// SPDX-License-Identifier: Apache-2.0
// A scripted libcuda for the CUDA backend (fakes/cuda.c is the one for copies between cards): four cards
// (sm_80, 86, 89, 90) whose memory is the host's; kernels are counted, not run. What it does wrong is said by environment variables, read at cuInit:
//   FAKE_CUDA_DEVICES=N         how many cards there are (4)
//   FAKE_CUDA_INIT=100          cuInit answers so
//   FAKE_CUDA_DRIVER=12080      version of the driver
//   FAKE_CUDA_SYNC=700@3        the third wait answers so, and every call after it
//   FAKE_CUDA_LAUNCH=719@2      the second launch answers so, and every call after it
//   FAKE_CUDA_REFUSE=1          so many loads of machine code are refused at first (209)
//   FAKE_CUDA_FAST_LANES=1      every other time that is asked for is half as long
//   FAKE_CUDA_TEXT=1            PTX is taken as well
//   FAKE_CUDA_MEMORY=1000000    bytes that can be had
//   FAKE_CUDA_PEER=0110...      row-major: may card i reach card j
// fake_cuda_count("launch") and others tell what happened: launch, alloc, free, copy, sync, module, graph, lanes.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int k_cc[] = {80, 86, 89, 90};
static const char *const k_names[] = {"Fake A100", "Fake A40", "Fake L40", "Fake H200"};
static int g_devices = 4, g_init, g_driver = 13000, g_sync_result, g_sync_at, g_lost;
static int g_launch_result, g_launch_at, g_refuse;
static size_t g_memory = (size_t)1 << 40, g_used;
static const char *g_peer;
static int g_syncs, g_launches, g_allocs, g_frees, g_copies, g_modules, g_graphs, g_replays, g_capturing, g_recorded;

static int g_lanes, g_outside; // streams of a recording at most; launches beside it
static void started(void *stream);
int fake_cuda_count(const char *what) {
    return !strcmp(what, "launch") ? g_launches : !strcmp(what, "alloc") ? g_allocs : !strcmp(what, "free") ? g_frees
           : !strcmp(what, "copy") ? g_copies : !strcmp(what, "sync") ? g_syncs : !strcmp(what, "module") ? g_modules
           : !strcmp(what, "graph") ? g_graphs : !strcmp(what, "replay") ? g_replays : !strcmp(what, "recorded") ? g_recorded : !strcmp(what, "lanes") ? g_lanes : !strcmp(what, "outside") ? g_outside : -1;
}
#define ALIVE() do { if (g_lost) return g_lost; } while (0)

int cuInit(unsigned flags) {
    (void)flags;
    const char *e;
    if ((e = getenv("FAKE_CUDA_DEVICES"))) g_devices = atoi(e);
    if ((e = getenv("FAKE_CUDA_INIT"))) g_init = atoi(e);
    if ((e = getenv("FAKE_CUDA_DRIVER"))) g_driver = atoi(e);
    if ((e = getenv("FAKE_CUDA_MEMORY"))) g_memory = strtoull(e, NULL, 10);
    if ((e = getenv("FAKE_CUDA_SYNC"))) sscanf(e, "%d@%d", &g_sync_result, &g_sync_at);
    if ((e = getenv("FAKE_CUDA_LAUNCH"))) sscanf(e, "%d@%d", &g_launch_result, &g_launch_at);
    if ((e = getenv("FAKE_CUDA_REFUSE"))) g_refuse = atoi(e);
    g_peer = getenv("FAKE_CUDA_PEER");
    return g_init;
}
int cuDriverGetVersion(int *version) { return *version = g_driver, 0; }
int cuDeviceGetCount(int *count) { return *count = g_devices, 0; }
int cuDeviceGet(int *device, int index) { return *device = index, index < g_devices ? 0 : 101; }
int cuDeviceGetName(char *text, int bytes, int device) { return snprintf(text, (size_t)bytes, "%s", k_names[device % 4]), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int cc = k_cc[device % 4];
    *value = attribute == 75 ? cc / 10 : attribute == 76 ? cc % 10 : attribute == 16 ? 108 : attribute == 39 ? 2048
             : attribute == 38 ? 40 << 20 : attribute == 97 ? 163 << 10 : attribute == 36 ? 1512000 : attribute == 37 ? 5120 : 0;
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = (size_t)80 << 30, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(intptr_t)(device + 1), 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, 0; }
int cuCtxSetCurrent(void *context) { return (void)context, g_lost; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return *free_bytes = g_memory - g_used, *total = g_memory, 0; }
int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
    ALIVE();
    if (g_used + bytes > g_memory) return 2;
    size_t *block = aligned_alloc(256, (bytes + 256 + 255) / 256 * 256);
    block[0] = bytes;
    g_used += bytes;
    g_allocs++;
    *memory = (uint64_t)(uintptr_t)block + 256;
    return 0;
}
int cuMemFree_v2(uint64_t memory) {
    size_t *block = (size_t *)(uintptr_t)(memory - 256);
    g_used -= block[0];
    free(block);
    g_frees++;
    return g_lost;
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) { return (void)flags, *memory = aligned_alloc(256, (bytes + 255) / 256 * 256), 0; }
int cuMemFreeHost(void *memory) { return free(memory), 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    ALIVE();
    if (!g_capturing) memcpy((void *)(uintptr_t)to, from, bytes);
    g_recorded += g_capturing;
    return started(stream), g_copies++, 0;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    ALIVE();
    if (!g_capturing) memcpy(to, (void *)(uintptr_t)from, bytes);
    g_recorded += g_capturing;
    return started(stream), g_copies++, 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    ALIVE();
    if (!g_capturing) memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return (void)stream, g_copies++, 0;
}
int cuMemsetD8Async(uint64_t memory, unsigned char value, size_t bytes, void *stream) {
    return (void)stream, memset((void *)(uintptr_t)memory, value, bytes), g_lost;
}
// Streams and events have clocks, so that a recording over several streams is held to the driver's rules: all
// that it took in is waited for by the one that it began on.
#define STREAMS 16
typedef struct clocks {
    int at[STREAMS];
    bool recorded;
} clocks;
static clocks g_clock[STREAMS];
static int g_streams, g_origin;
static bool g_in[STREAMS];
static void started(void *stream) {
    int s = (int)(intptr_t)stream;
    if (s < 1 || s >= STREAMS) return;
    g_clock[s].at[s]++;
    g_outside += g_capturing && !g_in[s];
}
int cuStreamCreate(void **stream, unsigned flags) { return (void)flags, *stream = (void *)(intptr_t)(++g_streams % STREAMS), 0; }
int cuStreamDestroy_v2(void *stream) { return (void)stream, 0; }
int cuStreamSynchronize(void *stream) {
    (void)stream;
    ALIVE();
    if (++g_syncs == g_sync_at) g_lost = g_sync_result;
    return g_lost;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    int s = (int)(intptr_t)stream;
    const clocks *e = event;
    (void)flags;
    for (int i = 0; i < STREAMS; i++)
        if (e->at[i] > g_clock[s].at[i]) g_clock[s].at[i] = e->at[i];
    g_in[s] = g_in[s] || (g_capturing && e->recorded);
    return g_lost;
}
int cuEventCreate(void **event, unsigned flags) { return (void)flags, *event = calloc(1, sizeof(clocks)), 0; }
int cuEventDestroy_v2(void *event) { return free(event), 0; }
int cuEventRecord(void *event, void *stream) {
    int s = (int)(intptr_t)stream;
    clocks *e = event;
    *e = g_clock[s];
    e->recorded = g_capturing && g_in[s];
    return g_lost;
}
int cuEventSynchronize(void *event) { return (void)event, g_lost; }
int cuEventElapsedTime(float *ms, void *begin, void *end) {
    static int calls;
    *ms = calls++ % 2 && getenv("FAKE_CUDA_FAST_LANES") ? 0.25f : 0.5f;
    return (void)begin, (void)end, 0;
}
// Machine code is kept, so that its kernels can be asked for by name; NVRTC's fake makes some without.
typedef struct module {
    size_t bytes;
    char data[];
} module;
static size_t elf_bytes(const unsigned char *image) {
    uint64_t sections, end = 0;
    uint16_t size, count;
    memcpy(&sections, image + 40, 8);
    memcpy(&size, image + 58, 2);
    memcpy(&count, image + 60, 2);
    if (image[4] != 2 || size != 64) return 0;
    for (int i = 0; i < count; i++) {
        uint32_t type;
        uint64_t at, bytes;
        memcpy(&type, image + sections + i * 64 + 4, 4);
        memcpy(&at, image + sections + i * 64 + 24, 8);
        memcpy(&bytes, image + sections + i * 64 + 32, 8);
        if (type != 8 && at + bytes > end) end = at + bytes;
    }
    return end;
}
int cuModuleLoadData(void **out, const void *image) {
    ALIVE();
    bool elf = memcmp(image, "\177ELF", 4) == 0, text = !elf && getenv("FAKE_CUDA_TEXT");
    if (!elf && !text) return 200; // machine code, not text
    if (g_refuse > 0) return g_refuse--, 209;
    size_t bytes = text ? strlen(image) : ((const char *)image)[4] == 2 ? elf_bytes(image) : 0;
    module *m = malloc(sizeof *m + bytes);
    m->bytes = bytes;
    memcpy(m->data, image, bytes);
    return *out = m, g_modules++, 0;
}
int cuModuleUnload(void *m) { return free(m), 0; }
int cuModuleGetFunction(void **function, void *from, const char *name) {
    const module *m = from;
    return *function = (void *)1, m->bytes && !memmem(m->data, m->bytes, name, strlen(name)) ? 500 : 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) { return (void)attribute, (void)function, *value = 32, 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return (void)function, (void)attribute, (void)value, 0; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
    (void)function, (void)shared, (void)parameters, (void)extra;
    ALIVE();
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz > 1024 || !bx || !by || !bz) return 1;
    g_recorded += g_capturing;
    started(stream);
    if (++g_launches == g_launch_at) g_lost = g_launch_result;
    return g_lost;
}
int cuGetErrorName(int result, const char **text) { return (void)result, *text = "FAKE", 0; }
int cuGetErrorString(int result, const char **text) { return (void)result, *text = "a scripted error", 0; }
int cuStreamBeginCapture_v2(void *stream, int mode) {
    memset(g_in, 0, sizeof g_in);
    g_origin = (int)(intptr_t)stream;
    g_in[g_origin] = true;
    return (void)mode, g_capturing = 1, g_lost;
}
int cuStreamEndCapture(void *stream, void **graph) {
    int lanes = 0;
    g_capturing = 0;
    if ((int)(intptr_t)stream != g_origin) return 906; // begun on another
    for (int s = 0; s < STREAMS; s++) {
        lanes += g_in[s];
        if (g_in[s] && g_clock[g_origin].at[s] < g_clock[s].at[s]) return 904; // not joined
    }
    if (lanes > g_lanes) g_lanes = lanes;
    return *graph = (void *)1, g_lost;
}
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    return (void)graph, (void)flags, *exec = (void *)1, g_graphs++, 0;
}
int cuGraphLaunch(void *exec, void *stream) { return (void)exec, (void)stream, g_replays++, g_lost; }
int cuGraphExecDestroy(void *exec) { return (void)exec, 0; }
int cuGraphDestroy(void *graph) { return (void)graph, 0; }
int cuDeviceGetPCIBusId(char *text, int bytes, int device) { return snprintf(text, (size_t)bytes, "0000:%02x:00.0", 0x10 + device), 0; }
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    size_t at = (size_t)(device * g_devices + peer);
    return *can = g_peer && at < strlen(g_peer) ? g_peer[at] == '1' : device != peer, 0;
}
int cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
    return (void)attribute, cuDeviceCanAccessPeer(value, device, peer);
}
int cuCtxEnablePeerAccess(void *peer, unsigned flags) { return (void)peer, (void)flags, 0; }
int cuMemcpyPeerAsync(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes, void *stream) {
    (void)to_context, (void)from_context, (void)stream;
    return memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes), g_copies++, g_lost;
}
