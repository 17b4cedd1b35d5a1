// SPDX-License-Identifier: Apache-2.0
// A scripted libdcgm for tests: HONE_DCGM_LIB=build/fakes/libdcgm.so and, in HONE_FAKE_DCGM, words
// joined by commas:
//   init=R connect=R embed=R   results of starting (negative numbers as DCGM's; connect fails by default)
//   cards=N (1)    mig         card 0 has two GPU instances
//   prof=R         watching profiling fields answers R; multi=N: more than N of them are a conflict (-38)
//   blank          values are the types' blank numbers      lost@N   card 0 falls off at its Nth reading
//   stale          values are a minute old                  gone@N   the engine goes away at the Nth reading
//   zero           engine activity reads 0                  log=FILE watch and unwatch calls
// Cards are A800-like: SM active 0.62, tensor 0.31, DRAM 0.44.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct value {
    unsigned version;
    unsigned short field, type;
    int status;
    int64_t time_us;
    union {
        int64_t i64;
        double f64;
        char text[256];
        char blob[4096];
    } v;
} value;
typedef struct hierarchy {
    unsigned version, count;
    struct {
        int kind;
        unsigned id;
        int parent_kind;
        unsigned parent_id;
        char uuid[128];
        unsigned index, gi, ci, profile, slices;
    } items[448];
} hierarchy;
enum { OK = 0, BAD_VERSION = -12, NO_DATA = -14, NOT_WATCHED = -16, LOST = -18, NO_CONNECTION = -21, MULTI_PASS = -38 };
static int g_readings, g_watching_profiling;
static uint8_t g_groups[16][2048]; // fields of each group
static int g_group_count, g_watched[2048];

static const char *word(const char *name) {
    const char *at = getenv("HONE_FAKE_DCGM");
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
    return text && *text && *text != ',' ? atoi(text + 1) : otherwise;
}
static void record(const char *call, unsigned long a) {
    const char *path = word("log");
    if (!path) return;
    char name[512];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(path + 1, ","), path + 1);
    FILE *f = fopen(name, "a");
    if (!f) return;
    fprintf(f, "%s %lx\n", call, a);
    fclose(f);
}

int dcgmInit(void) {
    g_readings = g_watching_profiling = g_group_count = 0;
    memset(g_groups, 0, sizeof g_groups);
    memset(g_watched, 0, sizeof g_watched);
    return number("init", OK);
}
int dcgmShutdown(void) { return OK; }
int dcgmConnect_v2(const char *address, unsigned *parameters, uintptr_t *handle) {
    (void)address;
    if (parameters[0] != (16u | 2u << 24)) return BAD_VERSION;
    return *handle = 7, number("connect", NO_CONNECTION);
}
int dcgmDisconnect(uintptr_t handle) { return record("Disconnect", handle), OK; }
int dcgmStartEmbedded(int mode, uintptr_t *handle) { return (void)mode, *handle = 8, number("embed", OK); }
int dcgmStopEmbedded(uintptr_t handle) { return record("StopEmbedded", handle), OK; }
int dcgmGetAllSupportedDevices(uintptr_t handle, unsigned *ids, int *count) {
    (void)handle;
    *count = number("cards", 1);
    for (int i = 0; i < *count; i++)
        ids[i] = (unsigned)i;
    return OK;
}
int dcgmGetGpuInstanceHierarchy(uintptr_t handle, hierarchy *tree) {
    (void)handle;
    if (tree->version != ((unsigned)sizeof *tree | 2u << 24)) return BAD_VERSION;
    tree->count = word("mig") ? 4 : 0;
    for (unsigned i = 0; i < tree->count; i++) {
        int compute = i >= 2; // a compute instance within each GPU instance
        tree->items[i].kind = compute ? 5 : 4;
        tree->items[i].id = i % 2;
        tree->items[i].parent_kind = compute ? 4 : 1;
        tree->items[i].parent_id = compute ? i % 2 : 0;
        tree->items[i].gi = i % 2 ? 5 : 3;
    }
    return OK;
}
int dcgmFieldGroupCreate(uintptr_t handle, int count, unsigned short *fields, const char *name, uintptr_t *group) {
    (void)handle, (void)name;
    *group = (uintptr_t)(g_group_count++ % 15 + 1);
    memset(g_groups[*group], 0, sizeof g_groups[0]);
    for (int i = 0; i < count; i++)
        g_groups[*group][fields[i]] = 1;
    return OK;
}
int dcgmFieldGroupDestroy(uintptr_t handle, uintptr_t group) { return (void)handle, (void)group, OK; }
static int set_watch(uintptr_t group, int by) {
    for (int f = 0; f < 2048; f++)
        if (g_groups[group][f]) g_watched[f] += by;
    return OK;
}
int dcgmWatchFields(uintptr_t handle, uintptr_t cards, uintptr_t group, long long period_us, double keep_s, int keep) {
    (void)handle, (void)period_us, (void)keep_s, (void)keep;
    int profiling = 0;
    for (int f = 1001; f <= 1100; f++)
        profiling += g_groups[group][f];
    if (profiling && number("prof", OK)) return number("prof", OK);
    if (profiling > number("multi", 100)) return MULTI_PASS;
    record(profiling ? "WatchProfiling" : "Watch", cards);
    return set_watch(group, 1);
}
int dcgmUnwatchFields(uintptr_t handle, uintptr_t cards, uintptr_t group) {
    (void)handle;
    int profiling = 0;
    for (int f = 1001; f <= 1100; f++)
        profiling += g_groups[group][f];
    record(profiling ? "UnwatchProfiling" : "Unwatch", cards);
    return set_watch(group, -1);
}
int dcgmUpdateAllFields(uintptr_t handle, int wait) { return (void)handle, (void)wait, OK; }

static void put_i64(value *v, int64_t n) { v->type = 'i', v->v.i64 = word("blank") ? 0x7ffffffffffffff2 : n; }
static void put_f64(value *v, double n) { v->type = 'd', v->v.f64 = word("blank") ? 140737488355329.0 : n; }
static void put_text(value *v, const char *text) {
    v->type = 's';
    snprintf(v->v.text, sizeof v->v.text, "%s", word("blank") ? "<<<NOT_SUPPORTED>>>" : text);
}
static void fill(value *v, int kind, int id) {
    char text[64];
    int instance = kind == 4;
    switch (v->field) {
    case 1: put_text(v, "535.129.03"); break;
    case 5: put_i64(v, 12020); break;
    case 50: put_text(v, "NVIDIA A800-SXM4-80GB"); break;
    case 54: snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-00000000000%d", id); put_text(v, text); break;
    case 57: snprintf(text, sizeof text, "00000000:%02X:00.0", 0x20 + id); put_text(v, text); break;
    case 63: put_i64(v, 8 << 16); break;
    case 66: put_i64(v, 1); break;
    case 67: put_i64(v, word("mig") != NULL); break;
    case 100: put_i64(v, 1410); break;
    case 140: put_i64(v, id ? 0 : 66); break;
    case 150: put_i64(v, 55 + id); break;
    case 155: put_f64(v, 321.5 + id); break;
    case 156: put_i64(v, 5000000000); break;
    case 162: put_f64(v, 400); break;
    case 203: if (instance || word("mig")) v->status = -6; else put_i64(v, 99); break;
    case 230: put_i64(v, 0x7ffffff0); break; // blank of the 32-bit type, as engines leak it
    case 252: put_i64(v, 1024); break;
    case 1001: put_f64(v, word("zero") ? 0 : 0.97); break;
    case 1002: put_f64(v, instance ? 0.2 + 0.1 * id : 0.62); break;
    case 1004: put_f64(v, 0.31); break;
    case 1005: put_f64(v, 0.44); break;
    case 1009: put_i64(v, 1000000); break;
    default: v->status = NO_DATA;
    }
}
int dcgmEntityGetLatestValues(uintptr_t handle, int kind, int id, unsigned short *fields, unsigned count, value *values) {
    (void)handle;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (count > 30) g_readings++;
    if (word("gone") && g_readings > number("gone", 0)) return NO_CONNECTION;
    for (unsigned i = 0; i < count; i++) {
        values[i] = (value){.version = values[i].version, .field = fields[i],
                            .time_us = t.tv_sec * 1000000ll + t.tv_nsec / 1000 - (word("stale") ? 60000000 : 0)};
        if (word("lost") && g_readings > number("lost", 0) && kind == 1 && id == 0)
            values[i].status = LOST;
        else if (g_watched[fields[i]] <= 0)
            values[i].status = NOT_WATCHED;
        else
            fill(&values[i], kind, id);
    }
    return OK;
}
