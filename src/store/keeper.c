// SPDX-License-Identifier: Apache-2.0
// Putting forms into the store behind the caller's back: writing and syncing 128 MiB takes longer than
// making them, so a thread of its own does it, which ends when nothing is left to do. A process that
// ends before that has kept nothing; the store is made for that. It begins when nothing has come for a
// while, or somebody waits: planning goes on right after a form is made, and needs the CPUs. After
// fork() the child has nothing to put: the thread is gone, and the store with it (store.c).
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include "store/keeper.h"

typedef struct job {
    struct job *next;
    hn_store *store;
    char *kind, *library, *isa, *text; // owned
    int threads;
    const void *data;
    size_t bytes;
    void (*done)(void *user);
    void *user;
} job;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t g_idle = PTHREAD_COND_INITIALIZER, g_pressed = PTHREAD_COND_INITIALIZER;
static job *g_first, *g_last;
static bool g_running, g_hurry;
static int64_t g_last_put_ns;
#define QUIET_NS 500000000

static void finish(job *j) {
    if (j->done) j->done(j->user);
    hn_free(j->kind);
    hn_free(j->library);
    hn_free(j->isa);
    hn_free(j->text);
    hn_free(j);
}

// Under the lock.
static void wait_for_quiet(void) {
    for (int64_t left; !g_hurry && (left = g_last_put_ns + QUIET_NS - hn_clock_ns()) > 0;) {
        int64_t until = hn_clock_wall_ns() + left;
        struct timespec time = {until / 1000000000, until % 1000000000};
        pthread_cond_timedwait(&g_pressed, &g_lock, &time);
    }
}

static void *work(void *arg) {
    (void)arg;
    pthread_mutex_lock(&g_lock);
    for (job *j; g_first;) {
        wait_for_quiet();
        j = g_first;
        g_first = j->next;
        if (!g_first) g_last = NULL;
        pthread_mutex_unlock(&g_lock);
        hn_store_key key = {j->kind, j->library, j->isa, j->threads, j->text};
        (void)hn_store_put(j->store, &key, j->data, j->bytes);
        finish(j);
        pthread_mutex_lock(&g_lock);
    }
    g_running = false;
    pthread_cond_broadcast(&g_idle);
    pthread_mutex_unlock(&g_lock);
    return NULL;
}

static void forget_jobs(void) {
    pthread_mutex_init(&g_lock, NULL); // whoever held it does not live here
    pthread_cond_init(&g_idle, NULL);
    pthread_cond_init(&g_pressed, NULL);
    g_first = g_last = NULL; // what they refer to stays, like the parent's
    g_running = g_hurry = false;
}

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static void init_once(void) { pthread_atfork(NULL, NULL, forget_jobs); }

// A thread that takes no signal: those are the program's.
static bool start(void) {
    pthread_once(&g_once, init_once);
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_detach(thread);
    return started;
}

bool hn_keeper_put(hn_store *store, const hn_store_key *key, const void *data, size_t bytes,
                   void (*done)(void *user), void *user) {
    job *j = hn_calloc(1, sizeof *j);
    if (!j) return false;
    *j = (job){.store = store, .threads = key->threads, .data = data, .bytes = bytes, .user = user};
    j->kind = hn_strdup(key->kind);
    j->library = hn_strdup(key->library);
    j->isa = hn_strdup(key->isa);
    j->text = hn_strdup(key->text);
    if (!j->kind || !j->library || !j->isa || !j->text) {
        finish(j);
        return false;
    }
    j->done = done;
    pthread_mutex_lock(&g_lock);
    bool good = g_running || start();
    if (good) {
        g_running = true;
        if (g_last) g_last->next = j;
        else g_first = j;
        g_last = j;
        g_last_put_ns = hn_clock_ns();
    }
    pthread_mutex_unlock(&g_lock);
    if (!good) {
        j->done = NULL;
        finish(j);
    }
    return good;
}

void hn_keeper_wait(void) {
    pthread_mutex_lock(&g_lock);
    g_hurry = true;
    pthread_cond_broadcast(&g_pressed);
    while (g_running)
        pthread_cond_wait(&g_idle, &g_lock);
    g_hurry = false;
    pthread_mutex_unlock(&g_lock);
}
