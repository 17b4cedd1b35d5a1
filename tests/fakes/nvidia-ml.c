// SPDX-License-Identifier: Apache-2.0
// A scripted libnvidia-ml for tests: HONE_NVML_LIB=build/fakes/libnvidia-ml.so and, in
// HONE_FAKE_NVML, words joined by commas:
//   init=R           nvmlInit answers R            cards=N       number of cards (1)
//   ampere | hopper  kind of card (hopper)         old           a driver before 535
//   mig=K            card K split in 3 instances   na            optional readings not supported
//   gone=K           card K has no handle          lost=K@N      card K falls off at its Nth reading
//   hang=K@N         card K's Nth reading hangs    unknown@N     from the Nth reading on: error 999
//   perm             counters need rights          wrap          PCIe counters about to wrap
//   xid=K:X          one Xid event X of card K     power=W       power draw of each card (300 + 10 K)
//   ecc              card 0 has memory errors      reset@N       card 0 needs a reset from reading N on
//   badlink          PCIe x8 gen 3 of x16 gen 5    cap=W         power limit in force (700)
//   work=W           W more watts (in the energy counter) while this process has a CPU, each
//   idle             no processes on the cards
//   thread           a thread of the library's own, with the signals of whoever started it
//   log=FILE         set calls are written there   direct        NVLinks join pairs of cards, no switch
// A reading is one call of nvmlDeviceGetFieldValues with more than one field, or for power alone. Energy is power times
// the time since the process started, on top of 1 MJ.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CARDS 64
typedef struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_info;
typedef struct field {
    unsigned id, scope;
    long long time_us, latency_us;
    unsigned type;
    int result;
    union {
        double f64;
        unsigned u32;
        unsigned long long u64;
    } value;
} field;
typedef struct card {
    unsigned index, gi, ci, slot;
    int is_mig, readings, asked; // asked: for power alone, which the first time is discovery
    unsigned power_limit_mw;
} card;
typedef struct gpm_metric {
    unsigned id;
    int result;
    double value;
    const char *info[3];
} gpm_metric;
typedef struct gpm_get {
    unsigned version, count;
    long long *first, *second;
    gpm_metric metrics[];
} gpm_get;

enum { OK, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SMALL = 7, TIMED_OUT = 10, NO_FUNCTION = 13,
       LOST = 15, RESET = 16, UNKNOWN = 999 };
static card g_cards[CARDS], g_migs[CARDS][3];
static long long g_start_ns;
static int g_event_given;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

// For tests: ends all hangs.
static _Atomic int g_released;
void fake_release(void) { g_released = 1; }

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}
// The text behind a word of the script (at '=', '@' or its end), or NULL.
static const char *word(const char *name) {
    const char *at = getenv("HONE_FAKE_NVML");
    size_t length = strlen(name);
    while (at && *at) {
        if (strncmp(at, name, length) == 0 && strchr("=@,", at[length])) return at + length;
        at = strchr(at, ',');
        if (at) at++;
    }
    return NULL;
}
static int number(const char *name, int otherwise) {
    const char *text = word(name);
    return text && (*text == '=' || *text == '@') ? atoi(text + 1) : otherwise;
}
// "name=K@N" of card K: N, else -1.
static int card_number(const char *name, unsigned index) {
    const char *text = word(name), *at;
    if (!text || *text != '=' || (unsigned)atoi(text + 1) != index) return -1;
    at = strchr(text, '@');
    const char *comma = strchr(text, ',');
    return at && (!comma || at < comma) ? atoi(at + 1) : 0;
}
static int ampere(void) { return word("ampere") != NULL; }
static int mig_on(unsigned index) { return number("mig", -1) == (int)index; }
static int state(const card *c) {
    int lost = card_number("lost", c->index), reset = number("reset", -1), unknown = number("unknown", -1);
    if (lost >= 0 && c->readings > lost) return LOST;
    if (reset >= 0 && c->index == 0 && c->readings > reset) return RESET;
    if (unknown >= 0 && c->readings > unknown) return UNKNOWN;
    return OK;
}
#define CHECK(c)                                                                                   \
    do {                                                                                           \
        int state_ = state(c);                                                                     \
        if (state_) return state_;                                                                 \
    } while (0)
#define OPTIONAL(c)                                                                                \
    do {                                                                                           \
        CHECK(c);                                                                                  \
        if (word("na")) return NOT_SUPPORTED;                                                      \
    } while (0)

static double power_w(const card *c) {
    int fixed = number("power", -1);
    return fixed >= 0 ? fixed : 300 + 10.0 * c->index;
}
static unsigned long long energy_mj(const card *c) {
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    double work_mj = number("work", 0) * 1e3 * ((double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9);
    return 1000000000ull + (unsigned long long)(power_w(c) * (double)(now_ns() - g_start_ns) * 1e-6 + work_mj);
}
static void record(const char *call, const card *c, unsigned a, unsigned b) {
    const char *path = word("log");
    if (!path) return;
    char name[512];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(path + 1, ","), path + 1);
    FILE *f = fopen(name, "a");
    if (!f) return;
    fprintf(f, "%s %u %u %u\n", call, c->index, a, b);
    fclose(f);
}

static _Atomic int g_thread_runs;
static pthread_t g_thread;
static void *own_thread(void *arg) {
    while (g_thread_runs) usleep(1000);
    return arg;
}
int nvmlInit_v2(void) {
    if (word("thread") && !g_thread_runs++) pthread_create(&g_thread, NULL, own_thread, NULL);
    pthread_mutex_lock(&g_lock);
    if (!g_start_ns) g_start_ns = now_ns();
    for (unsigned i = 0; i < CARDS; i++) {
        if (!g_cards[i].power_limit_mw) g_cards[i].power_limit_mw = (unsigned)number("cap", 700) * 1000;
        g_cards[i].index = i;
        g_cards[i].readings = g_cards[i].asked = 0;
        for (unsigned k = 0; k < 3; k++)
            g_migs[i][k] = (card){.index = i, .gi = k == 2 ? 5 : 2, .ci = k == 1, .slot = k, .is_mig = 1};
    }
    pthread_mutex_unlock(&g_lock);
    return number("init", 0);
}
int nvmlShutdown(void) {
    if (g_thread_runs && !--g_thread_runs) pthread_join(g_thread, NULL);
    return OK;
}
const char *nvmlErrorString(int result) { return result ? "error" : "ok"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = (unsigned)number("cards", 1), OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, card **c) {
    if (number("gone", -1) == (int)index) return LOST;
    return index < CARDS ? (*c = &g_cards[index], OK) : NOT_FOUND;
}
int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
    snprintf(text, bytes, "%s", word("old") ? "525.105.17" : "590.48.01");
    return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = word("old") ? 12000 : 13010, OK; }
int nvmlDeviceGetName(card *c, char *text, unsigned bytes) {
    snprintf(text, bytes, "%s%s", ampere() ? "NVIDIA A800-SXM4-80GB" : "NVIDIA H200",
             !c->is_mig ? "" : c->slot == 2 ? " MIG 2g.35gb" : " MIG 1c.3g.71gb");
    return OK;
}
int nvmlDeviceGetUUID(card *c, char *text, unsigned bytes) {
    snprintf(text, bytes, "%s-00000000-0000-0000-0000-0000000%03u%02u", c->is_mig ? "MIG" : "GPU", c->index,
             c->is_mig ? c->slot + 1 : 0);
    return OK;
}
int nvmlDeviceGetSerial(card *c, char *text, unsigned bytes) {
    OPTIONAL(c);
    snprintf(text, bytes, "16500%08u", c->index);
    return OK;
}
int nvmlDeviceGetVbiosVersion(card *c, char *text, unsigned bytes) {
    OPTIONAL(c);
    snprintf(text, bytes, "96.00.A5.00.03");
    return OK;
}
int nvmlDeviceGetPciInfo_v3(card *c, pci_info *pci) {
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", 0x10 + c->index);
    return OK;
}
int nvmlDeviceGetMinorNumber(card *c, unsigned *minor) { return *minor = c->index, OK; }
int nvmlDeviceGetArchitecture(card *c, unsigned *value) { return (void)c, *value = ampere() ? 7 : 9, OK; }
int nvmlDeviceGetCudaComputeCapability(card *c, int *major, int *minor) {
    return (void)c, *major = ampere() ? 8 : 9, *minor = 0, OK;
}
int nvmlDeviceGetNumGpuCores(card *c, unsigned *cores) {
    return (void)c, *cores = ampere() ? 108 * 64 : 132 * 128, OK;
}
int nvmlDeviceGetAttributes_v2(card *c, unsigned *attributes) {
    if (!c->is_mig) return NOT_SUPPORTED;
    memset(attributes, 0, 40);
    attributes[0] = c->slot == 2 ? 32 : 16;
    return OK;
}
int nvmlDeviceGetMemoryBusWidth(card *c, unsigned *bits) { return (void)c, *bits = ampere() ? 5120 : 6144, OK; }
int nvmlDeviceGetComputeMode(card *c, unsigned *mode) { return (void)c, *mode = 0, OK; }
int nvmlDeviceGetPersistenceMode(card *c, unsigned *mode) { return (void)c, *mode = !word("badlink"), OK; }
int nvmlDeviceGetEccMode(card *c, unsigned *current, unsigned *pending) {
    OPTIONAL(c);
    return *current = *pending = 1, OK;
}
int nvmlDeviceGetVirtualizationMode(card *c, unsigned *mode) { return (void)c, *mode = 0, OK; }
int nvmlDeviceGetGpuFabricInfoV(card *c, unsigned *fabric) {
    OPTIONAL(c);
    if (ampere()) return NOT_SUPPORTED;
    if (fabric[0] != (36u | 2u << 24)) return 25;
    int stuck = word("badlink") != NULL;
    fabric[5] = stuck ? UNKNOWN : OK;
    fabric[6] = 0;
    ((unsigned char *)fabric)[28] = stuck ? 2 : 3;
    return OK;
}
// "grace": the cards' memory is nodes of its own, 8 and up; the first card is near node 0 alone.
int nvmlDeviceGetNumaNodeId(card *c, unsigned *node) {
    if (!word("grace")) return NOT_SUPPORTED;
    *node = 8 + c->index;
    return OK;
}
int nvmlDeviceGetMemoryAffinity(card *c, unsigned words, unsigned long *nodes, unsigned scope) {
    if (!word("grace") || !words || scope) return NOT_SUPPORTED;
    memset(nodes, 0, words * sizeof *nodes);
    nodes[0] = c->index ? 3 : 1;
    return OK;
}
int nvmlDeviceGetTemperatureThreshold(card *c, unsigned which, unsigned *celsius) {
    OPTIONAL(c);
    return *celsius = which ? 89 : 92, OK;
}
int nvmlDeviceGetMaxClockInfo(card *c, unsigned type, unsigned *mhz) {
    OPTIONAL(c);
    return *mhz = type == 2 ? 3201 : 1980, OK;
}
int nvmlDeviceGetMaxPcieLinkGeneration(card *c, unsigned *gen) { return (void)c, *gen = ampere() ? 4 : 5, OK; }
int nvmlDeviceGetGpuMaxPcieLinkGeneration(card *c, unsigned *gen) { return (void)c, *gen = ampere() ? 4 : 5, OK; }
int nvmlDeviceGetMaxPcieLinkWidth(card *c, unsigned *lanes) { return (void)c, *lanes = 16, OK; }
int nvmlDeviceGetNvLinkState(card *c, unsigned link, unsigned *active) {
    OPTIONAL(c);
    if (link >= (ampere() ? 8u : 18u)) return 2;
    return *active = !(word("badlink") && link == 3), OK;
}
// Links go to a switch, or (word direct) evenly to the cards that share a pair: 0-1, 2-3, ...
int nvmlDeviceGetNvLinkRemoteDeviceType(card *c, unsigned link, unsigned *type) {
    OPTIONAL(c);
    return (void)link, *type = word("direct") ? 0 : 2, OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(card *c, unsigned link, pci_info *pci) {
    OPTIONAL(c);
    (void)link;
    if (!word("direct")) return NOT_FOUND;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", 0x10 + (c->index ^ 1));
    return OK;
}
// Two cards share a switch, four a socket.
int nvmlDeviceGetTopologyCommonAncestor(card *a, card *b, unsigned *level) {
    OPTIONAL(a);
    *level = a->index / 2 == b->index / 2 ? 10 : a->index / 4 == b->index / 4 ? 40 : 50;
    return OK;
}
int nvmlDeviceGetPowerManagementLimitConstraints(card *c, unsigned *min, unsigned *max) {
    OPTIONAL(c);
    return *min = 200000, *max = 700000, OK;
}
int nvmlDeviceGetPowerManagementDefaultLimit(card *c, unsigned *mw) {
    OPTIONAL(c);
    return *mw = 700000, OK;
}
int nvmlDeviceGetMigMode(card *c, unsigned *current, unsigned *pending) {
    OPTIONAL(c);
    return *current = *pending = (unsigned)mig_on(c->index), OK;
}
int nvmlDeviceGetMaxMigDeviceCount(card *c, unsigned *count) { return *count = mig_on(c->index) ? 7 : 0, OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(card *c, unsigned index, card **mig) {
    // slot 1 is empty on purpose
    static const int k_slots[] = {0, -1, 1, 2};
    if (index >= 4 || k_slots[index] < 0) return NOT_FOUND;
    return *mig = &g_migs[c->index][k_slots[index]], OK;
}
int nvmlDeviceGetGpuInstanceId(card *c, unsigned *id) { return c->is_mig ? (*id = c->gi, OK) : NOT_SUPPORTED; }
int nvmlDeviceGetComputeInstanceId(card *c, unsigned *id) { return c->is_mig ? (*id = c->ci, OK) : NOT_SUPPORTED; }

// ---- readings ---------------------------------------------------------------------------------
static void put_u64(field *f, unsigned long long value) { f->type = 3, f->value.u64 = value, f->result = OK; }
static void put_u32(field *f, unsigned value) { f->type = 1, f->value.u64 = 0, f->value.u32 = value, f->result = OK; }
static void fill(card *c, field *f) {
    unsigned long long ms = (unsigned long long)(now_ns() - g_start_ns) / 1000000;
    int bad = word("ecc") && c->index == 0;
    f->time_us = now_ns() / 1000;
    f->result = NOT_SUPPORTED;
    f->value.u64 = 0x7ffffff0; // must not be looked at
    if (c->is_mig || (word("na") && f->id != 83)) return;
    switch (f->id) {
    case 83: put_u64(f, energy_mj(c)); break;
    case 185:
        if (word("old") || (ampere() && f->scope == 0)) break;
        if (f->scope == 0) put_u32(f, (unsigned)(power_w(c) * 1000));
        if (f->scope == 2 && !ampere()) put_u32(f, 97690);
        break;
    case 186: if (!word("old") && f->scope == 0) put_u32(f, (unsigned)(power_w(c) * 1000) + 1500); break;
    case 192: if (!word("old")) put_u32(f, c->power_limit_mw); break;
    case 82: put_u32(f, 70); break;
    case 74: put_u64(f, ms * 1000); break;
    case 75: case 76: case 77: case 78: case 79: put_u64(f, 0); break;
    case 269: case 270: case 271: if (!word("old")) put_u64(f, 0); break;
    case 94: put_u32(f, 3); break;
    case 138: case 139: if (f->scope == ~0u) put_u64(f, ms * (f->id == 138 ? 2000 : 1000)); break;
    case 197: case 198:
        if (word("old")) break;
        put_u64(f, word("wrap") ? (4294967000ull + ms * 1000000) & 0xffffffff : 5000 + ms * 1000000);
        break;
    case 3: put_u64(f, bad ? 12 : 0); break;
    case 4: put_u64(f, bad ? 2 : 0); break;
    case 5: put_u64(f, bad ? 40 : 0); break;
    case 6: put_u64(f, bad ? 3 : 0); break;
    case 142: put_u32(f, bad ? 4 : 0); break;
    case 143: put_u32(f, bad ? 1 : 0); break;
    case 144: put_u32(f, (unsigned)bad); break;
    case 145: put_u32(f, (unsigned)bad); break;
    }
}
int nvmlDeviceGetFieldValues(card *c, int count, field *fields) {
    if (count > 1 || (fields[0].id == 186 && fields[0].scope == 0 && c->asked++ > 0)) c->readings++;
    int hang = card_number("hang", c->index);
    while (hang >= 0 && c->readings > hang && !g_released)
        usleep(5000);
    CHECK(c);
    for (int i = 0; i < count; i++)
        fill(c, &fields[i]);
    return OK;
}
int nvmlDeviceGetPowerUsage(card *c, unsigned *mw) {
    CHECK(c);
    return c->is_mig ? NOT_SUPPORTED : (*mw = (unsigned)(power_w(c) * 1000), OK);
}
int nvmlDeviceGetTotalEnergyConsumption(card *c, unsigned long long *mj) {
    CHECK(c);
    return c->is_mig ? NOT_SUPPORTED : (*mj = energy_mj(c), OK);
}
int nvmlDeviceGetEnforcedPowerLimit(card *c, unsigned *mw) {
    OPTIONAL(c);
    return c->is_mig ? NOT_SUPPORTED : (*mw = c->power_limit_mw, OK);
}
int nvmlDeviceGetPowerManagementLimit(card *c, unsigned *mw) {
    OPTIONAL(c);
    return c->is_mig ? NOT_SUPPORTED : (*mw = c->power_limit_mw, OK);
}
int nvmlDeviceGetUtilizationRates(card *c, unsigned *util) {
    OPTIONAL(c);
    if (c->is_mig || mig_on(c->index)) return NOT_SUPPORTED;
    return util[0] = 91, util[1] = 40, OK;
}
#define ENGINE(name, percent)                                                                      \
    int name(card *c, unsigned *value, unsigned *period_us) {                                      \
        OPTIONAL(c);                                                                               \
        if (c->is_mig || mig_on(c->index)) return NOT_SUPPORTED;                                   \
        return *value = percent, *period_us = 167000, OK;                                          \
    }
ENGINE(nvmlDeviceGetEncoderUtilization, 0)
ENGINE(nvmlDeviceGetDecoderUtilization, 7)
ENGINE(nvmlDeviceGetJpgUtilization, 0)
ENGINE(nvmlDeviceGetOfaUtilization, 0)
static unsigned long long memory_of(const card *c) {
    return !c->is_mig ? 141ull << 30 : c->slot == 2 ? 35ull << 30 : 71ull << 30;
}
int nvmlDeviceGetMemoryInfo_v2(card *c, unsigned long long *memory) {
    CHECK(c);
    if (word("old")) return NO_FUNCTION;
    if ((unsigned)memory[0] != (40u | 2u << 24)) return 25;
    memory[1] = memory_of(c), memory[2] = 600ull << 20, memory[4] = 30ull << 30;
    memory[3] = memory[1] - memory[2] - memory[4];
    return OK;
}
int nvmlDeviceGetMemoryInfo(card *c, unsigned long long *memory) {
    CHECK(c);
    memory[0] = memory_of(c), memory[2] = 31ull << 30, memory[1] = memory[0] - memory[2];
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(card *c, unsigned long long *memory) {
    OPTIONAL(c);
    return memory[0] = 256ull << 30, memory[1] = 255ull << 30, memory[2] = 1ull << 30, OK;
}
int nvmlDeviceGetClockInfo(card *c, unsigned type, unsigned *mhz) {
    CHECK(c);
    return c->is_mig ? NOT_SUPPORTED : (*mhz = type == 2 ? 3201 : type == 3 ? 1545 : 1830, OK);
}
int nvmlDeviceGetTemperatureV(card *c, unsigned *temperature) {
    CHECK(c);
    if (word("old")) return NO_FUNCTION;
    if (temperature[0] != (12u | 1u << 24)) return 25;
    return c->is_mig ? NOT_SUPPORTED : (temperature[2] = 61 + c->index, OK);
}
int nvmlDeviceGetTemperature(card *c, unsigned sensor, unsigned *celsius) {
    CHECK(c);
    return c->is_mig || sensor ? NOT_SUPPORTED : (*celsius = 61 + c->index, OK);
}
int nvmlDeviceGetMarginTemperature(card *c, unsigned *margin) {
    OPTIONAL(c);
    return word("old") || c->is_mig ? NOT_SUPPORTED : (margin[1] = 28, OK);
}
int nvmlDeviceGetFanSpeed(card *c, unsigned *percent) { return (void)c, (void)percent, NOT_SUPPORTED; }
int nvmlDeviceGetPerformanceState(card *c, unsigned *value) {
    OPTIONAL(c);
    return c->is_mig ? NOT_SUPPORTED : (*value = 0, OK);
}
int nvmlDeviceGetCurrentClocksEventReasons(card *c, unsigned long long *reasons) {
    OPTIONAL(c);
    if (word("old")) return NO_FUNCTION;
    return c->is_mig ? NOT_SUPPORTED : (*reasons = 4, OK);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(card *c, unsigned long long *reasons) {
    OPTIONAL(c);
    return c->is_mig ? NOT_SUPPORTED : (*reasons = 4, OK);
}
int nvmlDeviceGetCurrPcieLinkGeneration(card *c, unsigned *gen) {
    OPTIONAL(c);
    return c->is_mig ? NOT_SUPPORTED : (*gen = word("badlink") ? 3 : ampere() ? 4 : 5, OK);
}
int nvmlDeviceGetCurrPcieLinkWidth(card *c, unsigned *lanes) {
    OPTIONAL(c);
    return c->is_mig ? NOT_SUPPORTED : (*lanes = word("badlink") ? 8 : 16, OK);
}
typedef struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
} process;
int nvmlDeviceGetComputeRunningProcesses_v3(card *c, unsigned *count, process *items) {
    CHECK(c);
    if (word("idle")) return *count = 0, OK;
    if (*count < 2) return *count = 2, SMALL;
    *count = 2;
    items[0] = (process){(unsigned)getpid(), 3ull << 30, ~0u, ~0u};
    items[1] = (process){4194303, ~0ull, c->is_mig ? c->gi : ~0u, c->is_mig ? c->ci : ~0u};
    return OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(card *c, unsigned *count, process *items) {
    CHECK(c);
    if (*count < 1) return *count = 1, SMALL;
    *count = 1;
    items[0] = (process){(unsigned)getpid(), 3ull << 30, ~0u, ~0u};
    return OK;
}
typedef struct process_util {
    unsigned pid;
    unsigned long long time_us;
    unsigned sm, memory, encoder, decoder;
} process_util;
int nvmlDeviceGetProcessUtilization(card *c, process_util *items, unsigned *count, unsigned long long since) {
    OPTIONAL(c);
    (void)since;
    if (*count < 2) return SMALL;
    *count = 2;
    items[0] = (process_util){(unsigned)getpid(), (unsigned long long)(now_ns() / 1000), 79, 5, 0, 0};
    items[1] = (process_util){4194303, 1, 4294967295u, 0, 0, 0}; // a value no percentage can have
    return OK;
}

// ---- GPM --------------------------------------------------------------------------------------
int nvmlGpmQueryDeviceSupport(card *c, unsigned *support) {
    CHECK(c);
    if (word("old")) return NO_FUNCTION;
    return support[1] = !ampere() && !word("na"), OK;
}
int nvmlGpmSampleAlloc(long long **sample) { return *sample = calloc(1, 64), OK; }
int nvmlGpmSampleFree(long long *sample) { return free(sample), OK; }
int nvmlGpmSampleGet(card *c, long long *sample) {
    CHECK(c);
    if (word("perm")) return NO_PERMISSION;
    if (mig_on(c->index)) return NOT_SUPPORTED;
    return sample[0] = now_ns(), sample[1] = c->index, OK;
}
int nvmlGpmMigSampleGet(card *c, unsigned gi, long long *sample) {
    CHECK(c);
    if (word("perm")) return NO_PERMISSION;
    return sample[0] = now_ns(), sample[1] = 100 + gi, OK;
}
int nvmlGpmMetricsGet(gpm_get *get) {
    if (get->version != 1) return 25;
    for (unsigned i = 0; i < get->count; i++) {
        gpm_metric *m = &get->metrics[i];
        m->result = OK;
        // too short a pair measured nothing, as on a real H200
        if (get->second[0] - get->first[0] < 45000000) {
            m->value = m->id == 10 ? 0.0 / 0.0 : 0;
            continue;
        }
        switch (m->id) {
        case 1: m->value = 99; break;
        case 2: m->value = get->second[1] >= 100 ? (double)(get->second[1] - 100) * 10 : 92 - (double)get->second[1]; break;
        case 3: m->value = 37.5; break;
        case 5: m->value = 61; break;
        case 7: m->value = 61; break;
        case 10: m->value = 35; break;
        case 12: m->value = 100.4; break; // rounding above 100 %
        case 20: m->value = 2; break;
        case 21: m->value = 4; break;
        case 60: m->value = 8; break;
        case 61: m->value = 16; break;
        case 164: m->value = 78; break;
        case 165: m->value = 22; break;
        case 11: m->value = 0.0 / 0.0; break;
        default: m->result = NOT_SUPPORTED; m->value = 140737488355330.0; break;
        }
    }
    return OK;
}

// ---- events -----------------------------------------------------------------------------------
typedef struct event {
    card *device;
    unsigned long long type, data;
    unsigned gi, ci;
} event;
int nvmlEventSetCreate(int **set) { return *set = calloc(1, sizeof(int)), OK; }
int nvmlEventSetFree(int *set) { return free(set), OK; }
int nvmlDeviceRegisterEvents(card *c, unsigned long long types, int *set) {
    (void)types, (void)set;
    OPTIONAL(c);
    return OK;
}
int nvmlEventSetWait_v2(int *set, event *e, unsigned timeout_ms) {
    (void)set;
    const char *xid = word("xid");
    if (xid && !g_event_given) {
        g_event_given = 1;
        *e = (event){&g_cards[atoi(xid + 1)], 8, (unsigned long long)atoi(strchr(xid, ':') + 1), ~0u, ~0u};
        return OK;
    }
    usleep(timeout_ms * 1000);
    return TIMED_OUT;
}

// ---- setting ----------------------------------------------------------------------------------
int nvmlDeviceSetGpuLockedClocks(card *c, unsigned min_mhz, unsigned max_mhz) {
    CHECK(c);
    if (word("perm")) return NO_PERMISSION;
    return record("SetGpuLockedClocks", c, min_mhz, max_mhz), OK;
}
int nvmlDeviceResetGpuLockedClocks(card *c) {
    CHECK(c);
    if (word("perm")) return NO_PERMISSION;
    return record("ResetGpuLockedClocks", c, 0, 0), OK;
}
int nvmlDeviceSetPowerManagementLimit(card *c, unsigned mw) {
    CHECK(c);
    if (word("perm")) return NO_PERMISSION;
    if (mw < 200000 || mw > 700000) return 2;
    c->power_limit_mw = mw;
    return record("SetPowerManagementLimit", c, mw, 0), OK;
}
