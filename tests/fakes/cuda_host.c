// SPDX-License-Identifier: Apache-2.0
// A libcuda and an NVRTC that run kernels on the host: what is to be compiled is given to g++ with a
// header in front that says what a thread, a block and a warp are; a launch then runs block by block.
// Threads of a block are contexts of their own where a kernel waits for others, else a loop. It is no
// card: it finds wrong results, barriers that not all threads reach and most writes outside, with no card
// in the machine (HONE_CUDA_LIB and HONE_NVRTC_LIB both name it). Texts with machine instructions other
// than the conversions of prelude.cu do not compile here. x86-64 only.
//   HOST_CUDA_CACHE=DIR     keeps what was compiled
//   HOST_CUDA_BACKWARDS=1   blocks and threads run from the last to the first: an order that counts shows
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

// ---- what kernels are compiled with -------------------------------------------------------------
// The head of this struct is shared with the text below.
typedef struct place {
    unsigned thread[4], block[4], block_dim[4], grid_dim[4];
    void (*wait_block)(void);
    void (*wait_warp)(void);
    uint64_t (*slot)(int lane, int set, uint64_t value); // of the warp: written with set, else read
    int (*alive)(int lane);
} place;
static place g_place;

static const char k_head[] =
    "typedef unsigned long long uint64_t;\n#define memcpy __builtin_memcpy\n"
    "struct hn_dim { unsigned x, y, z, w; };\n"
    "struct hn_place { hn_dim thread, block, block_dim, grid_dim; void (*wait_block)(); void (*wait_warp)();\n"
    "  uint64_t (*slot)(int, int, uint64_t); int (*alive)(int); };\n"
    "extern \"C\" { hn_place *hn_place_now; }\n"
    "#define threadIdx (hn_place_now->thread)\n#define blockIdx (hn_place_now->block)\n"
    "#define blockDim (hn_place_now->block_dim)\n#define gridDim (hn_place_now->grid_dim)\n"
    "#define __device__\n#define __global__\n#define __forceinline__ inline\n#define __noinline__ __attribute__((noinline))\n"
    "#define __launch_bounds__(...)\n#define __shared__ static\n#define __restrict__\n"
    "#define HN1(n) static inline float n(float x) { return __builtin_##n##f(x); } static inline double n(double x) { return __builtin_##n(x); }\n"
    "#define HN2(n) static inline float n(float x, float y) { return __builtin_##n##f(x, y); } static inline double n(double x, double y) { return __builtin_##n(x, y); }\n"
    "HN1(fabs) HN1(exp) HN1(expm1) HN1(log) HN1(log1p) HN1(sqrt) HN1(sin) HN1(cos) HN1(tan) HN1(asin) HN1(acos) HN1(atan) HN1(sinh) HN1(cosh)\n"
    "HN1(tanh) HN1(asinh) HN1(acosh) HN1(atanh) HN1(erf) HN1(ceil) HN1(floor) HN1(rint) HN1(round) HN1(trunc) HN2(pow) HN2(fmod) HN2(fmin) HN2(fmax)\n"
    "static inline bool isnan(double x) { return x != x; }\nstatic inline bool isinf(double x) { return __builtin_isinf(x); }\n"
    "static inline int abs(int x) { return x < 0 ? -x : x; }\n"
    "template <class A> static inline A min(A a, A b) { return a < b ? a : b; }\n"
    "template <class A> static inline A max(A a, A b) { return a > b ? a : b; }\n"
    "template <class A, class B> static inline A hn_bits(B b) { A a; static_assert(sizeof a == sizeof b, \"\"); memcpy(&a, &b, sizeof a); return a; }\n"
    "#define __int_as_float hn_bits<float, int>\n#define __uint_as_float hn_bits<float, unsigned>\n"
    "#define __float_as_uint hn_bits<unsigned, float>\n#define __float_as_int hn_bits<int, float>\n"
    "#define __double_as_longlong hn_bits<long long, double>\n#define __longlong_as_double hn_bits<double, long long>\n"
    "static inline float hn_widen(unsigned short b) { float f; unsigned w = b; asm(\"vmovd %1, %0; vcvtph2ps %0, %0\" : \"=x\"(f) : \"r\"(w)); return f; }\n"
    "static inline unsigned short hn_narrow(float f) { unsigned w; float t; asm(\"vcvtps2ph $0, %2, %1; vmovd %1, %0\" : \"=r\"(w), \"=&x\"(t) : \"x\"(f)); return (unsigned short)w; }\n"
    "static inline unsigned short hn_brief(float f) { unsigned u = hn_bits<unsigned>(f); return f != f ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16); }\n"
    "static inline void __syncthreads() { hn_place_now->wait_block(); }\n"
    "static inline void __syncwarp(unsigned = 0xffffffffu) { hn_place_now->wait_warp(); }\n"
    "static inline void __threadfence() {}\n"
    "static inline int hn_lane() { return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32); }\n"
    "template <class A> static inline A hn_exchange(A v, int from) { uint64_t b = 0; memcpy(&b, &v, sizeof v);\n"
    "  hn_place_now->slot(hn_lane(), 1, b); hn_place_now->wait_warp(); b = hn_place_now->slot(from < 0 || from > 31 ? hn_lane() : from, 0, 0);\n"
    "  hn_place_now->wait_warp(); memcpy(&v, &b, sizeof v); return v; }\n"
    "template <class A> static inline A __shfl_xor_sync(unsigned, A v, int m, int = 32) { return hn_exchange(v, hn_lane() ^ m); }\n"
    "template <class A> static inline A __shfl_sync(unsigned, A v, int from, int width = 32) { return hn_exchange(v, hn_lane() / width * width + from % width); }\n"
    "template <class A> static inline A __shfl_up_sync(unsigned, A v, int by, int = 32) { return hn_exchange(v, hn_lane() - by); }\n"
    "template <class A> static inline A __shfl_down_sync(unsigned, A v, int by, int = 32) { return hn_exchange(v, hn_lane() + by); }\n"
    "static inline unsigned __ballot_sync(unsigned, int p) { unsigned r = 0; hn_place_now->slot(hn_lane(), 1, p != 0); hn_place_now->wait_warp();\n"
    "  for (int i = 0; i < 32; i++) if (hn_place_now->alive(i) && hn_place_now->slot(i, 0, 0)) r |= 1u << i; hn_place_now->wait_warp(); return r; }\n"
    "static inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }\n"
    "static inline int __all_sync(unsigned m, int p) { return __ballot_sync(m, !p) == 0; }\n"
    "static inline int __popc(unsigned x) { return __builtin_popcount(x); }\n"
    "static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }\n"
    "static inline int __ffs(int x) { return __builtin_ffs(x); }\n"
    "template <class A> static inline A __ldg(const A *p) { return *p; }\n"
    "template <class A, class B> static inline A atomicAdd(A *p, B v) { A old = *p; *p = (A)(old + v); return old; }\n"
    "template <class A, class B> static inline A atomicMax(A *p, B v) { A old = *p; if ((A)v > old) *p = (A)v; return old; }\n"
    "template <class A, class B> static inline A atomicMin(A *p, B v) { A old = *p; if ((A)v < old) *p = (A)v; return old; }\n"
    "template <class A, class B> static inline A atomicExch(A *p, B v) { A old = *p; *p = (A)v; return old; }\n"
    "template <class A, class B> static inline A atomicOr(A *p, B v) { A old = *p; *p = (A)(old | v); return old; }\n"
    "template <class A> static inline A atomicCAS(A *p, A c, A v) { A old = *p; if (old == c) *p = v; return old; }\n";

static const struct { const char *from, *to; } k_swaps[] = {
    {"asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x.bits));", "y = hn_widen(x.bits);"},
    {"asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"(x));", "y.bits = hn_narrow(x);"},
    {"asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"(x));", "y.bits = hn_brief(x);"},
};

// ---- NVRTC --------------------------------------------------------------------------------------
typedef struct program {
    char *source, *log;
    unsigned char *image;
    size_t bytes;
} program;

int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
const char *nvrtcGetErrorString(int result) { return result ? "an error of the host's compiler" : "none"; }
int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers, const char *const *texts, const char *const *names) {
    (void)name, (void)headers, (void)texts, (void)names;
    *out = calloc(1, sizeof **out);
    (*out)->source = strdup(source);
    return 0;
}
int nvrtcDestroyProgram(program **p) {
    free((*p)->source), free((*p)->log), free((*p)->image), free(*p);
    return *p = NULL, 0;
}
static char *read_whole(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    struct stat st;
    fstat(fileno(f), &st);
    char *data = malloc((size_t)st.st_size + 1);
    *bytes = fread(data, 1, (size_t)st.st_size, f);
    data[*bytes] = 0;
    fclose(f);
    return data;
}
// How many arguments each kernel takes, as text: `int NAME_arguments = N;`.
static char *count_arguments(const char *source, char *to) {
    char done[16][64];
    int done_count = 0;
    for (const char *at = source; (at = strstr(at, "extern \"C\" __global__")) && done_count < 16;) {
        const char *open = strstr(at, "hn_k_");
        if (!open) break;
        char name[64];
        int n = 0, known = 0, arguments = 1;
        while (open[n] != '(' && n < 63)
            name[n] = open[n], n++;
        name[n] = 0;
        at = open + n;
        for (const char *c = at; *c && *c != ')'; c++)
            arguments += *c == ',';
        for (int i = 0; i < done_count; i++)
            known = known || !strcmp(done[i], name);
        if (known) continue;
        strcpy(done[done_count++], name);
        to += sprintf(to, "\nextern \"C\" int %s_arguments; int %s_arguments = %d;\n", name, name, arguments);
    }
    return to;
}

static char *prepared(const char *source) {
    char *text = malloc(sizeof k_head + strlen(source) + 4096), *to = text;
    const char *whole = source;
    to += sprintf(to, "%s#line 1 \"kernel\"\n", k_head);
    while (*source) {
        size_t i = 0;
        while (i < sizeof k_swaps / sizeof *k_swaps && strncmp(source, k_swaps[i].from, strlen(k_swaps[i].from)) != 0)
            i++;
        if (i < sizeof k_swaps / sizeof *k_swaps) {
            to += sprintf(to, "%s", k_swaps[i].to);
            source += strlen(k_swaps[i].from);
        } else {
            *to++ = *source++;
        }
    }
    to = count_arguments(whole, to);
    sprintf(to, "extern \"C\" int hn_waits; int hn_waits = %d;\n", strstr(whole, "__sync") || strstr(whole, "_sync("));
    return text;
}
int nvrtcCompileProgram(program *p, int count, const char *const *options) {
    char *text = prepared(p->source), path[300], command[1200];
    const char *contract = "off", *cache = getenv("HOST_CUDA_CACHE");
    for (int i = 0; i < count; i++)
        if (!strcmp(options[i], "--fmad=true")) contract = "fast";
    uint64_t h = 14695981039346656037ull + *contract;
    for (const char *c = text; *c; c++)
        h = (h ^ (unsigned char)*c) * 1099511628211ull;
    snprintf(path, sizeof path, "%s/%016llx%s", cache ? cache : "/tmp", (unsigned long long)h, cache ? "" : ".hone-host-cuda");
    char *found = cache ? read_whole(path, &p->bytes) : NULL;
    if (!found) {
        char at[320], out[330];
        snprintf(at, sizeof at, "%s.%d", path, (int)getpid());
        snprintf(out, sizeof out, "%s.so", at);
        snprintf(command, sizeof command,
                 "g++ -x c++ -std=c++17 -O1 -mfma -mf16c -ffp-contract=%s -fPIC -shared -w -fno-exceptions -o %s - >%s.log 2>&1", contract, out, at);
        FILE *pipe = popen(command, "w");
        fputs(text, pipe);
        int status = pclose(pipe);
        snprintf(command, sizeof command, "%s.log", at);
        size_t bytes;
        free(p->log);
        p->log = read_whole(command, &bytes);
        unlink(command);
        if (status == 0) {
            found = read_whole(out, &p->bytes);
            if (cache) rename(out, path);
        }
        unlink(out);
    }
    free(text);
    p->image = (unsigned char *)found;
    return found ? 0 : 6;
}
int nvrtcGetProgramLogSize(program *p, size_t *bytes) { return *bytes = (p->log ? strlen(p->log) : 0) + 1, 0; }
int nvrtcGetProgramLog(program *p, char *text) { return strcpy(text, p->log ? p->log : ""), 0; }
int nvrtcGetCUBINSize(program *p, size_t *bytes) { return *bytes = p->bytes, 0; }
int nvrtcGetCUBIN(program *p, char *image) { return memcpy(image, p->image, p->bytes), 0; }

// ---- running a block ----------------------------------------------------------------------------
enum { MAX_THREADS = 1024, STACK = 128 << 10 };
typedef enum { READY, AT_BLOCK, AT_WARP, DONE } state;
typedef struct function {
    uint64_t (*call)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    char name[64];
    int arguments, waits; // waits: threads wait for others
} function;
static struct thread {
    ucontext_t context;
    state state;
    uint64_t slot;
} g_threads[MAX_THREADS];
static ucontext_t g_scheduler;
static int g_now, g_count, g_lost, g_backwards, g_reported;
static char *g_stacks;
static const function *g_function;
static uint64_t g_args[24];

static void wait_at(state s) {
    g_threads[g_now].state = s;
    swapcontext(&g_threads[g_now].context, &g_scheduler);
}
static void wait_block(void) { wait_at(AT_BLOCK); }
static void wait_warp(void) { wait_at(AT_WARP); }
static uint64_t slot(int lane, int set, uint64_t value) {
    struct thread *t = &g_threads[g_now / 32 * 32 + lane];
    if (set) t->slot = value;
    return t->slot;
}
static int alive(int lane) { return g_now / 32 * 32 + lane < g_count && g_threads[g_now / 32 * 32 + lane].state != DONE; }
static void body(void) {
    const uint64_t *a = g_args;
    g_function->call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17],
                     a[18], a[19], a[20], a[21], a[22], a[23]);
    g_threads[g_now].state = DONE;
    swapcontext(&g_threads[g_now].context, &g_scheduler);
}
static void stand_at(int i) {
    g_now = i;
    const unsigned *d = g_place.block_dim;
    g_place.thread[0] = (unsigned)i % d[0];
    g_place.thread[1] = (unsigned)i / d[0] % d[1];
    g_place.thread[2] = (unsigned)i / d[0] / d[1];
}
// Where all that live wait at the same place they go on. 0: nobody does.
static int release(void) {
    int moved = 0, at_block = 0, living = 0;
    for (int i = 0; i < g_count; i++) {
        living += g_threads[i].state != DONE;
        at_block += g_threads[i].state == AT_BLOCK;
    }
    for (int w = 0; w < g_count; w += 32) {
        int end = w + 32 < g_count ? w + 32 : g_count, all = 1, any = 0;
        for (int i = w; i < end; i++) {
            all = all && (g_threads[i].state == AT_WARP || g_threads[i].state == DONE);
            any = any || g_threads[i].state == AT_WARP;
        }
        for (int i = w; i < end && all && any; i++)
            if (g_threads[i].state == AT_WARP) g_threads[i].state = READY, moved++;
    }
    if (living && at_block == living)
        for (int i = 0; i < g_count; i++)
            if (g_threads[i].state == AT_BLOCK) g_threads[i].state = READY, moved++;
    return living ? moved : -1;
}
static int run_block(void) {
    for (int n = 0; !g_function->waits && n < g_count; n++) {
        const uint64_t *a = g_args;
        stand_at(g_backwards ? g_count - 1 - n : n);
        g_function->call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17],
                         a[18], a[19], a[20], a[21], a[22], a[23]);
    }
    if (!g_function->waits) return 0;
    if (!g_stacks) g_stacks = mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < g_count; i++) {
        getcontext(&g_threads[i].context);
        g_threads[i].context.uc_stack.ss_sp = g_stacks + (size_t)i * STACK;
        g_threads[i].context.uc_stack.ss_size = STACK;
        g_threads[i].context.uc_link = &g_scheduler;
        makecontext(&g_threads[i].context, body, 0);
        g_threads[i].state = READY;
    }
    for (;;) {
        for (int n = 0; n < g_count; n++) {
            int i = g_backwards ? g_count - 1 - n : n;
            if (g_threads[i].state != READY) continue;
            stand_at(i);
            swapcontext(&g_scheduler, &g_threads[i].context);
        }
        int moved = release();
        if (moved < 0) return 0;
        if (moved == 0) return 719;
    }
}

int cuLaunchKernel(const function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **parameters, void **extra) {
    (void)shared, (void)stream, (void)extra;
    if (g_lost) return g_lost;
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || gx > 0x7fffffff || !bx || !by || !bz || bx * by * bz > MAX_THREADS) return 1;
    for (int i = 0; i < 24; i++)
        g_args[i] = 0;
    for (int i = 0; i < f->arguments; i++)
        g_args[i] = *(uint64_t *)parameters[i];
    g_function = f;
    g_count = (int)(bx * by * bz);
    memcpy(g_place.block_dim, (unsigned[4]){bx, by, bz, 0}, 16);
    memcpy(g_place.grid_dim, (unsigned[4]){gx, gy, gz, 0}, 16);
    uint64_t blocks = (uint64_t)gx * gy * gz;
    for (uint64_t n = 0; n < blocks && !g_lost; n++) {
        uint64_t b = g_backwards ? blocks - 1 - n : n;
        memcpy(g_place.block, (unsigned[4]){(unsigned)(b % gx), (unsigned)(b / gx % gy), (unsigned)(b / gx / gy), 0}, 16);
        g_lost = run_block();
        if (g_lost && !g_reported++) fprintf(stderr, "host cuda: threads of %s wait for each other\n", f->name);
    }
    return g_lost;
}

// ---- modules ------------------------------------------------------------------------------------
int cuModuleLoadData(void **module, const void *image) {
    const Elf64_Ehdr *head = image;
    size_t bytes = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    static int count;
    char path[64];
    snprintf(path, sizeof path, "/tmp/hone-host-%d-%d.so", (int)getpid(), count++); // dlopen knows files by name: each needs its own
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(image, 1, bytes, file) != bytes) return 2;
    fclose(file);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (!*module) return fprintf(stderr, "host cuda: %s\n", dlerror()), 200;
    place **now = (place **)dlsym(*module, "hn_place_now");
    g_place.wait_block = wait_block;
    g_place.wait_warp = wait_warp;
    g_place.slot = slot;
    g_place.alive = alive;
    *now = &g_place;
    return 0;
}
int cuModuleUnload(void *module) { return dlclose(module); }
int cuModuleGetFunction(function **out, void *module, const char *name) {
    void *symbol = dlsym(module, name);
    if (!symbol) return 500;
    *out = calloc(1, sizeof **out);
    memcpy(&(*out)->call, &symbol, sizeof symbol);
    snprintf((*out)->name, sizeof (*out)->name, "%s", name);
    char count[96];
    snprintf(count, sizeof count, "%s_arguments", name);
    int *arguments = dlsym(module, count);
    if (!arguments || *arguments > 24) return 500;
    (*out)->arguments = *arguments;
    (*out)->waits = *(int *)dlsym(module, "hn_waits");
    return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *f) { return (void)attribute, (void)f, *value = 0, 0; }
int cuFuncSetAttribute(void *f, int attribute, int value) { return (void)f, (void)attribute, (void)value, 0; }

// ---- the rest of the driver ---------------------------------------------------------------------
int cuInit(unsigned flags) { return (void)flags, g_backwards = getenv("HOST_CUDA_BACKWARDS") != NULL, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int index) { return *device = index, index ? 101 : 0; }
int cuDeviceGetName(char *text, int bytes, int device) { return (void)device, snprintf(text, (size_t)bytes, "Host"), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 8 : attribute == 76 ? 0 : attribute == 16 ? 4 : attribute == 39 ? 2048
             : attribute == 38 ? 40 << 20 : attribute == 97 ? 163 << 10 : attribute == 36 ? 1512000 : attribute == 37 ? 5120 : 0;
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = (size_t)4 << 30, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(intptr_t)(device + 1), 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, 0; }
int cuCtxSetCurrent(void *context) { return (void)context, g_lost; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return *free_bytes = *total = (size_t)4 << 30, 0; }
int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
    void *block = aligned_alloc(256, (bytes + 256 + 255) / 256 * 256);
    if (!block) return 2;
    memset(block, 0xcd, bytes + 256);
    return *memory = (uint64_t)(uintptr_t)block, g_lost;
}
int cuMemFree_v2(uint64_t memory) { return free((void *)(uintptr_t)memory), g_lost; }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) { return (void)flags, *memory = aligned_alloc(256, (bytes + 256 + 255) / 256 * 256), 0; }
int cuMemFreeHost(void *memory) { return free(memory), 0; }
static int copy(uint64_t to, uint64_t from, size_t bytes) { return memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes), g_lost; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) { return (void)stream, copy(to, (uint64_t)(uintptr_t)from, bytes); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) { return (void)stream, copy((uint64_t)(uintptr_t)to, from, bytes); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) { return (void)stream, copy(to, from, bytes); }
int cuMemsetD8Async(uint64_t memory, unsigned char value, size_t bytes, void *stream) {
    return (void)stream, memset((void *)(uintptr_t)memory, value, bytes), g_lost;
}
int cuStreamCreate(void **stream, unsigned flags) { return (void)flags, *stream = (void *)1, 0; }
int cuStreamDestroy_v2(void *stream) { return (void)stream, 0; }
int cuStreamSynchronize(void *stream) { return (void)stream, g_lost; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return (void)stream, (void)event, (void)flags, 0; }
int cuEventCreate(void **event, unsigned flags) { return (void)flags, *event = (void *)1, 0; }
int cuEventDestroy_v2(void *event) { return (void)event, 0; }
int cuEventRecord(void *event, void *stream) { return (void)event, (void)stream, g_lost; }
int cuEventSynchronize(void *event) { return (void)event, g_lost; }
int cuEventElapsedTime(float *ms, void *begin, void *end) { return (void)begin, (void)end, *ms = 0.5f, 0; }
