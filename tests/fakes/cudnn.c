// SPDX-License-Identifier: Apache-2.0
// A scripted cuDNN: proposes FAKE_DNN_ENGINES (2) engines for every graph of at most FAKE_DNN_OPS (9)
// operations. FAKE_DNN_PLANS=N: only the first N plans from an engine can be built (all);
// FAKE_DNN_JSON=0: no plan from JSON; FAKE_DNN_FAIL=N: the first N engines do not run. Nothing is computed;
// calls with a missing pointer are refused (as the library does). fake_dnn_count tells what happened.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, BAD = 2000, NOT_SUPPORTED = 3000 };
enum { ENGINE = 2, HEURISTIC = 4, PLAN = 5, GRAPH = 15 };
typedef struct desc {
    int type, engine, from_json;
    int64_t ops, pointers, ids, missing;
    char text[64];
} desc;
static int g_built, g_loaded, g_run, g_alive, g_found;

int fake_dnn_count(const char *what) {
    return !strcmp(what, "built") ? g_built : !strcmp(what, "loaded") ? g_loaded : !strcmp(what, "run") ? g_run
           : !strcmp(what, "alive") ? g_alive : !strcmp(what, "heuristics") ? g_found : -1;
}
static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

size_t cudnnGetVersion(void) { return (size_t)number("FAKE_DNN_VERSION", 91300); }
int cudnnCreate(void **handle) { return *handle = (void *)1, OK; }
int cudnnDestroy(void *handle) { return (void)handle, OK; }
int cudnnSetStream(void *handle, void *stream) { return (void)handle, (void)stream, OK; }
const char *cudnnGetErrorString(int result) { return result == OK ? "OK" : "a scripted error"; }
int cudnnBackendCreateDescriptor(int type, void **out) {
    desc *d = calloc(1, sizeof *d);
    d->type = type;
    g_alive++;
    return *out = d, OK;
}
int cudnnBackendDestroyDescriptor(void *d) { return free(d), g_alive--, OK; }

int cudnnBackendSetAttribute(void *to, int name, int type, int64_t count, const void *values) {
    desc *d = to;
    (void)type;
    if (!d || count < 0 || (count && !values)) return BAD;
    if (d->type == GRAPH && name == 801) d->ops = count;
    if (d->type == PLAN && name == 401) d->engine = (*(desc *const *)values)->engine;
    if (d->type == PLAN && name == 405) {
        char text[64] = "";
        if (!number("FAKE_DNN_JSON", 1) || count >= (int64_t)sizeof text) return NOT_SUPPORTED;
        memcpy(text, values, (size_t)count);
        if (sscanf(text, "{\"fake engine\": %d}", &d->engine) != 1) return NOT_SUPPORTED;
        d->from_json = 1;
    }
    if (name == 1001)
        for (int64_t i = 0; i < count; i++)
            d->missing += !((void *const *)values)[i];
    if (name == 1001) d->pointers = count;
    if (name == 1000) d->ids = count;
    return OK;
}

int cudnnBackendGetAttribute(void *from, int name, int type, int64_t room, int64_t *count, void *values) {
    desc *d = from;
    (void)type;
    if (name == 202) {
        int engines = number("FAKE_DNN_ENGINES", 2);
        *count = engines < room ? engines : room;
        for (int i = 0; i < *count; i++)
            ((desc **)values)[i]->engine = i;
        g_found++;
    } else if (name == 301 || name == 300) { // engine of a configuration
        *count = 1;
        (*(desc **)values)->engine = d->engine;
    } else if (name == 1303) { // no notes
        *count = 0;
    } else if (name == 402) {
        *count = 1;
        *(int64_t *)values = d->engine * 1024;
    } else if (name == 405) {
        int bytes = snprintf(d->text, sizeof d->text, "{\"fake engine\": %d}", d->engine);
        *count = bytes;
        if (room && room < bytes) return BAD;
        if (room) memcpy(values, d->text, (size_t)bytes);
    } else {
        return NOT_SUPPORTED;
    }
    return OK;
}

int cudnnBackendFinalize(void *which) {
    desc *d = which;
    if (d->type == GRAPH && d->ops > number("FAKE_DNN_OPS", 9)) return NOT_SUPPORTED;
    if (d->type == PLAN && !d->from_json && g_built >= number("FAKE_DNN_PLANS", 1 << 20)) return NOT_SUPPORTED;
    if (d->type == PLAN) {
        if (d->from_json) g_loaded++;
        else g_built++;
    }
    return OK;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    const desc *p = plan, *k = pack;
    (void)handle;
    if (p->type != PLAN || k->missing || !k->pointers || k->pointers != k->ids) return BAD;
    if (p->engine < number("FAKE_DNN_FAIL", 0)) return NOT_SUPPORTED;
    return g_run++, OK;
}
