// SPDX-License-Identifier: Apache-2.0
// The kubelet's pod resources: see podres.h.
#include "fleet/podres.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>
#include "fleet/grpc.h"

#define METHOD      "/v1.PodResourcesLister/List"
#define PERIOD_NS   INT64_C(5000000000)
#define VALID_NS    INT64_C(60000000000)
#define TIMEOUT_MS  3000
#define STOP_NS     INT64_C(300000000)
#define ANSWER_MAX  ((size_t)16 << 20) // what the kubelet's own client allows

struct hn_podres {
    char *socket_path; // owned
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, up, asked, told;
    hn_podres_item *items, *fresh; // owned; fresh is the thread's
    int count;
    int64_t answered_ns;
    hn_str answer; // owned by the thread
};

// ---- the message ------------------------------------------------------------------------------
// Protocol buffers: a field is a number, a kind and a value; text, bytes and messages have a length.
static bool take_number(hn_slice *rest, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && rest->length > 0; shift += 7) {
        unsigned char c = (unsigned char)*rest->data++;
        rest->length--;
        value |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

// The next field; `inside` is what it holds where that has a length, else empty. False: the end, or *bad.
static bool take_field(hn_slice *rest, uint64_t *out_field, hn_slice *out_inside, bool *bad) {
    uint64_t tag, length;
    *out_inside = (hn_slice){"", 0};
    if (rest->length == 0) return false;
    *bad = true;
    if (!take_number(rest, &tag)) return false;
    *out_field = tag >> 3;
    switch (tag & 7) {
    case 0:
        if (!take_number(rest, &length)) return false;
        *bad = false;
        return true;
    case 1: length = 8; break;
    case 5: length = 4; break;
    case 2:
        if (!take_number(rest, &length)) return false;
        break;
    default: return false;
    }
    if (length > rest->length) return false;
    if ((tag & 7) == 2) *out_inside = (hn_slice){rest->data, (size_t)length};
    rest->data += length;
    rest->length -= (size_t)length;
    *bad = false;
    return true;
}

static void copy(char *out, size_t bytes, hn_slice text) {
    if (text.length >= bytes) text.length = bytes - 1;
    memcpy(out, text.data, text.length);
    out[text.length] = '\0';
}

typedef struct sink {
    hn_podres_item *items, now;
    int max, count;
    bool bad;
} sink;

static void take_devices(sink *to, hn_slice text) { // ContainerDevices: 2 = device ids
    uint64_t field;
    hn_slice inside;
    while (take_field(&text, &field, &inside, &to->bad)) {
        if (field != 2 || !inside.length || to->count >= to->max) continue;
        copy(to->now.device, sizeof to->now.device, inside);
        to->items[to->count++] = to->now;
    }
}

static void take_container(sink *to, hn_slice text) { // ContainerResources: 1 = name, 2 = devices
    uint64_t field;
    hn_slice inside, again = text;
    to->now.container[0] = '\0';
    while (take_field(&again, &field, &inside, &to->bad))
        if (field == 1) copy(to->now.container, sizeof to->now.container, inside);
    while (!to->bad && take_field(&text, &field, &inside, &to->bad)) {
        if (field != 2) continue;
        take_devices(to, inside);
        if (to->bad) return;
    }
}

static void take_pod(sink *to, hn_slice text) { // PodResources: 1 = name, 2 = namespace, 3 = containers
    uint64_t field;
    hn_slice inside, again = text;
    to->now.pod[0] = to->now.namespace_[0] = '\0';
    while (take_field(&again, &field, &inside, &to->bad)) {
        if (field == 1) copy(to->now.pod, sizeof to->now.pod, inside);
        if (field == 2) copy(to->now.namespace_, sizeof to->now.namespace_, inside);
    }
    while (!to->bad && take_field(&text, &field, &inside, &to->bad)) {
        if (field != 3) continue;
        take_container(to, inside);
        if (to->bad) return;
    }
}

hn_status hn_podres_parse(hone_error *err, hn_slice message, hn_podres_item *out_items, int max_items, int *out_count) {
    sink to = {.items = out_items, .max = max_items};
    uint64_t field;
    hn_slice inside;
    while (!to.bad && take_field(&message, &field, &inside, &to.bad)) { // ListPodResourcesResponse: 1 = pods
        if (field == 1) take_pod(&to, inside);
        if (to.bad) break;
    }
    if (to.bad) HN_FAIL(err, HONE_ERR_FORMAT, "the answer is no list of pod resources");
    *out_count = to.count;
    return HONE_OK;
}

// ---- whose a device is ------------------------------------------------------------------------
// The length of the name without a replica's number: NVIDIA's plugin appends ::3, Google's /vgpu3.
static size_t without_replica(const char *id) {
    const char *end = strstr(id, "::"), *shared = strstr(id, "/vgpu");
    if (!end || (shared && shared < end)) end = shared ? shared : end;
    return end ? (size_t)(end - id) : strlen(id);
}

static bool same(const char *id, size_t length, const char *name) {
    return name[0] && strlen(name) == length && strncasecmp(id, name, length) == 0;
}

static bool names(const char *id, const hn_device_info *device, const hn_device_info *card) {
    char name[128];
    size_t length = without_replica(id);
    if (same(id, length, device->uuid)) return true;
    if (device->kind == HN_DEVICE_MIG) { // names of before 2021, and Google's
        if (isfinite(device->gi_id) && isfinite(device->ci_id)) {
            snprintf(name, sizeof name, "MIG-%.80s/%.0f/%.0f", card->uuid, device->gi_id, device->ci_id);
            if (same(id, length, name)) return true;
        }
        snprintf(name, sizeof name, "nvidia%.0f/gi%.0f", card->minor, device->gi_id);
        return isfinite(card->minor) && isfinite(device->gi_id) && same(id, length, name);
    }
    snprintf(name, sizeof name, "nvidia%.0f", device->minor);
    return isfinite(device->minor) && same(id, length, name);
}

bool hn_podres_match(const hn_podres_item *items, int count, const hn_device_info *device, const hn_device_info *card,
                     hn_podres_item *out_item) {
    const hn_podres_item *found = NULL;
    for (int i = 0; i < count; i++) {
        const hn_podres_item *at = &items[i];
        if (!names(at->device, device, card)) continue;
        if (found && (strcmp(found->namespace_, at->namespace_) != 0 || strcmp(found->pod, at->pod) != 0 ||
                      strcmp(found->container, at->container) != 0))
            return false;
        found = at;
    }
    if (found) *out_item = *found;
    return found != NULL;
}

bool hn_podres_find(hn_podres *podres, const hn_device_info *device, const hn_device_info *card, hn_podres_item *out_item) {
    if (!podres) return false;
    pthread_mutex_lock(&podres->lock);
    bool valid = podres->answered_ns && hn_clock_ns() - podres->answered_ns < VALID_NS;
    bool found = valid && hn_podres_match(podres->items, podres->count, device, card, out_item);
    pthread_mutex_unlock(&podres->lock);
    return found;
}

bool hn_podres_up(hn_podres *podres) {
    pthread_mutex_lock(&podres->lock);
    bool up = podres->up;
    pthread_mutex_unlock(&podres->lock);
    return up;
}

void hn_podres_wait(hn_podres *podres) {
    if (!podres) return;
    pthread_mutex_lock(&podres->lock);
    while (!podres->asked) pthread_cond_wait(&podres->wake, &podres->lock); // its question has a limit
    pthread_mutex_unlock(&podres->lock);
}

// ---- the thread -------------------------------------------------------------------------------
static void ask(hn_podres *p) {
    hone_error err = {0};
    int count = 0;
    hone_status status = hn_grpc_call(&err, p->socket_path, METHOD, TIMEOUT_MS, ANSWER_MAX, &p->answer);
    if (status == HONE_OK)
        status = hn_podres_parse(&err, (hn_slice){hn_str_get(&p->answer), p->answer.length}, p->fresh, HN_PODRES_MAX, &count);
    if (p->answer.failed) {
        hn_str_free(&p->answer);
        p->answer = (hn_str){0};
    }
    pthread_mutex_lock(&p->lock);
    p->up = status == HONE_OK;
    p->asked = true;
    pthread_cond_broadcast(&p->wake);
    if (p->up) {
        memcpy(p->items, p->fresh, (size_t)count * sizeof *p->items);
        p->count = count;
        p->answered_ns = hn_clock_ns();
    }
    pthread_mutex_unlock(&p->lock);
    if (p->told == !p->up) return; // once for each time that it changes
    p->told = !p->up;
    if (p->told) hn_log(HN_LOG_WARN, "the kubelet's pod resources cannot be read: %s; cards get no labels of pods from it", err.text);
    else hn_log(HN_LOG_WARN, "the kubelet's pod resources can be read again");
}

static void *ask_thread(void *arg) {
    hn_podres *p = arg;
    int64_t next_ns = hn_clock_ns();
    for (;;) {
        ask(p);
        next_ns = hn_max_i64(next_ns + PERIOD_NS, hn_clock_ns());
        struct timespec until = {.tv_sec = next_ns / 1000000000, .tv_nsec = next_ns % 1000000000};
        pthread_mutex_lock(&p->lock);
        while (!p->stop && pthread_cond_timedwait(&p->wake, &p->lock, &until) == 0) {}
        bool stop = p->stop;
        pthread_mutex_unlock(&p->lock);
        if (stop) return NULL;
    }
}

static void podres_free(hn_podres *p) {
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    hn_str_free(&p->answer);
    hn_free(p->socket_path);
    hn_free(p->items);
    hn_free(p->fresh);
    hn_free(p);
}

hn_status hn_podres_start(hone_error *err, const char *socket_path, hn_podres **out_podres) {
    hn_podres *p = hn_calloc(1, sizeof *p);
    if (!p) HN_NOMEM(err, "pod resources");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&p->lock, NULL);
    p->socket_path = hn_strdup(socket_path ? socket_path : HN_PODRES_FOLDER "/kubelet.sock");
    p->items = hn_calloc(HN_PODRES_MAX, sizeof *p->items);
    p->fresh = hn_calloc(HN_PODRES_MAX, sizeof *p->fresh);
    if (!p->socket_path || !p->items || !p->fresh) {
        podres_free(p);
        HN_NOMEM(err, "pod resources");
    }
    sigset_t every, before;
    sigfillset(&every); // signals are the main thread's
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int failed = pthread_create(&p->thread, NULL, ask_thread, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        podres_free(p);
        HN_FAIL_VENDOR(err, HONE_ERR_IO, failed, "the thread that asks the kubelet cannot be started");
    }
    *out_podres = p;
    return HONE_OK;
}

void hn_podres_stop(hn_podres *podres) {
    if (!podres) return;
    pthread_mutex_lock(&podres->lock);
    podres->stop = true;
    pthread_cond_broadcast(&podres->wake);
    pthread_mutex_unlock(&podres->lock);
    int64_t end_ns = hn_clock_wall_ns() + STOP_NS;
    struct timespec until = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    if (pthread_timedjoin_np(podres->thread, NULL, &until) == 0) podres_free(podres);
    else pthread_detach(podres->thread); // a kubelet hangs: the thread keeps what it uses
}
