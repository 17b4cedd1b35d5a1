// SPDX-License-Identifier: Apache-2.0
// The registry of prepared forms: see prepared.h.
//
// Entries are found by the text of their key. An entry is listed from the moment that its maker
// starts; its bytes are written once, before it becomes READY, and read without a lock after that.
#include "store/prepared.h"
#include "config/config.h"
#include "store/keeper.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { BUCKETS = 1024 };
#define PAGES_BYTES ((size_t)1 << 20) // forms of this size and more have pages of their own
#define CHUNK_BYTES ((size_t)256 << 10)
typedef enum form_state { MAKING, READY, FAILED } form_state;

struct hn_prepared {
    hn_prepared *next; // in its bucket
    char *key;         // owned
    uint64_t hash;
    int references;
    form_state state;
    void *data;    // owned, or the blob's
    hn_blob *blob; // owned: from the store
    int keeping;   // puts that read the data
    size_t bytes;
    void *home, *owner;
    void (*disown)(void *owner, void *home);
};

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t g_changed = PTHREAD_COND_INITIALIZER;
static hn_prepared *g_bucket[BUCKETS];
static hn_prepared_stats g_stats;
static hn_digest_key g_key;
static pthread_once_t g_key_once = PTHREAD_ONCE_INIT;

static void before_fork(void) { pthread_mutex_lock(&g_lock); }
static void after_fork(void) { pthread_mutex_unlock(&g_lock); }

// What other threads were making will not be finished here.
static void after_fork_in_child(void) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (hn_prepared **at = &g_bucket[i]; *at;)
            if ((*at)->state == MAKING) *at = (*at)->next;
            else at = &(*at)->next;
    pthread_cond_init(&g_changed, NULL);
    pthread_mutex_unlock(&g_lock);
}

static void make_key(void) {
    unsigned char secret[32];
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    hn_digest_secret(secret);
    hn_digest_key_from(secret, &g_key);
}

// ---- keys ---------------------------------------------------------------------------------------
typedef struct digest_job {
    const hn_digest_key *key;
    const unsigned char *data;
    size_t bytes;
    hn_digest *out; // by chunk
} digest_job;

static void digest_chunks(void *arg, int64_t begin, int64_t end) {
    const digest_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        size_t at = (size_t)i * CHUNK_BYTES, left = job->bytes - at;
        job->out[i] =
            hn_digest_bytes(job->key, job->data + at, left < CHUNK_BYTES ? left : CHUNK_BYTES);
    }
}

hn_status hn_prepared_digest(hone_error *err, const hn_digest_key *key, const void *data,
                             size_t bytes, bool alone, hn_digest *out_digest) {
    size_t chunks = bytes / CHUNK_BYTES + 1;
    if (chunks == 1) {
        *out_digest = hn_digest_bytes(key, data, bytes);
        return HONE_OK;
    }
    digest_job job = {key, data, bytes, hn_calloc(chunks, sizeof *job.out)};
    if (!job.out) HN_NOMEM(err, "reading weights");
    int64_t whole = (int64_t)((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
    if (alone)
        digest_chunks(&job, 0, whole);
    else
        hn_parallel_for(whole, 4, digest_chunks, &job);
    *out_digest = hn_digest_bytes(key, job.out, chunks * sizeof *job.out);
    hn_free(job.out);
    return HONE_OK;
}

// What stands for a source's content inside this process. A piece of a mapped file is known by
// where it comes from, without reading it (128 MiB of it: 80 ms, of which 70 are page faults).
static hn_status identify(hone_error *err, const hn_prepared_source *source,
                          hn_digest *out_digest) {
    hn_map_id id;
    if (hn_map_find(source->data, source->bytes, &id)) {
        // Settled stamps: the same file mapped twice counts as one.
        uint64_t words[] = {id.device,
                            id.inode,
                            id.size_bytes,
                            (uint64_t)id.modified_ns,
                            (uint64_t)id.changed_ns,
                            id.settled ? 0 : id.serial,
                            id.offset_bytes,
                            source->bytes};
        *out_digest = hn_digest_bytes(&g_key, words, sizeof words);
        return HONE_OK;
    }
    int64_t start = hn_clock_ns();
    HN_TRY(hn_prepared_digest(err, &g_key, source->data, source->bytes, false, out_digest));
    pthread_mutex_lock(&g_lock);
    g_stats.digest_ns += hn_clock_ns() - start;
    pthread_mutex_unlock(&g_lock);
    return HONE_OK;
}

static hn_status key_of(hone_error *err, const hn_prepared_ask *ask, char **out_key) {
    hn_str text = {0};
    hn_str_printf(&text, "%s\n%s\n%s\n%d\n%s\n%zu", ask->kind, ask->library, ask->isa, ask->threads,
                  ask->form, ask->bytes);
    hone_status status = HONE_OK;
    static atomic_ullong apart;
    if (ask->apart) hn_str_printf(&text, "\napart %llu", atomic_fetch_add(&apart, 1ull));
    for (int i = 0; i < HN_PREPARED_SOURCES && status == HONE_OK && !ask->apart; i++) {
        hn_digest digest = {{0}};
        if (ask->source[i].data) status = identify(err, &ask->source[i], &digest);
        hn_str_printf(&text, "\n%zu %016llx%016llx", ask->source[i].bytes,
                      (unsigned long long)digest.word[0], (unsigned long long)digest.word[1]);
    }
    if (status == HONE_OK && text.failed)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (preparing weights)");
    if (status != HONE_OK)
        hn_str_free(&text);
    else
        *out_key = text.data;
    return status;
}

static void give_back(const hn_prepared_ask *ask) {
    hn_map_id id;
    for (int i = 0; i < HN_PREPARED_SOURCES; i++) {
        const hn_prepared_source *source = &ask->source[i];
        if (source->data && source->give_back && hn_map_find(source->data, source->bytes, &id))
            hn_map_forget(source->data, source->bytes);
    }
}

// ---- entries ------------------------------------------------------------------------------------
static void unlink_entry(hn_prepared *p) {
    for (hn_prepared **at = &g_bucket[p->hash % BUCKETS]; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    p->next = NULL;
}

static void drop_data(hn_prepared *p) {
    if (p->blob)
        hn_blob_unref(p->blob);
    else if (p->bytes >= PAGES_BYTES)
        hn_pages_free(p->data, p->bytes);
    else
        hn_free(p->data);
    p->blob = NULL;
    p->data = NULL;
}

static void destroy(hn_prepared *p) {
    if (p->disown && p->home) p->disown(p->owner, p->home);
    drop_data(p);
    hn_free(p->key);
    hn_free(p);
}

void hn_prepared_release(hn_prepared *p) {
    if (!p) return;
    pthread_mutex_lock(&g_lock);
    bool last = --p->references == 0;
    if (last && p->state == READY) {
        unlink_entry(p);
        g_stats.forms--;
        g_stats.bytes -= p->bytes;
    }
    pthread_mutex_unlock(&g_lock);
    if (last) destroy(p);
}

// Finds the entry of this key, waiting for its maker, or lists a new one (MAKING) that the caller
// has to fill. Takes `key` over. NULL: out of memory.
static hn_prepared *enter(char *key, size_t bytes, bool *out_new) {
    uint64_t hash = hn_hash_bytes(key, strlen(key), HN_HASH_SEED);
    hn_prepared *made = hn_calloc(1, sizeof *made), *found = NULL;
    pthread_mutex_lock(&g_lock);
    for (;;) {
        for (found = g_bucket[hash % BUCKETS]; found; found = found->next)
            if (found->hash == hash && !strcmp(found->key, key)) break;
        if (!found || found->state == READY) break;
        pthread_cond_wait(&g_changed, &g_lock); // it is looked up again: a failed one is gone
    }
    if (found) {
        found->references++;
        g_stats.shared++;
    } else if (made) {
        *made = (hn_prepared){.next = g_bucket[hash % BUCKETS],
                              .key = key,
                              .hash = hash,
                              .references = 1,
                              .state = MAKING,
                              .bytes = bytes};
        g_bucket[hash % BUCKETS] = made;
    }
    pthread_mutex_unlock(&g_lock);
    *out_new = !found;
    if (!found && made) return made;
    hn_free(made);
    hn_free(key);
    return found;
}

// ---- the store ----------------------------------------------------------------------------------
// Digests of the sources that the store's keys are made of.
typedef struct contents {
    hn_store *store; // NULL: this form is not kept
    hn_digest digest[HN_PREPARED_SOURCES];
    bool known[HN_PREPARED_SOURCES], all_known;
} contents;

// What is known without reading mapped files; heap memory is read.
static void look_up(const hn_prepared_ask *ask, contents *c) {
    *c = (contents){.all_known = true};
    if (ask->apart || (int64_t)ask->bytes < hn_config_get()->store_min_bytes) return;
    c->store = hn_store_default();
    for (int i = 0; c->store && i < HN_PREPARED_SOURCES; i++) {
        const hn_prepared_source *source = &ask->source[i];
        hn_map_id id;
        c->known[i] =
            !source->data || hn_store_content(c->store, source->data, source->bytes, &c->digest[i]);
        if (!c->known[i] && !hn_map_find(source->data, source->bytes, &id))
            c->known[i] = hn_prepared_digest(NULL, hn_store_digest_key(c->store), source->data,
                                             source->bytes, false, &c->digest[i]) == HONE_OK;
        c->all_known = c->all_known && c->known[i];
    }
}

// Reads what is not known yet: right after making, when its pages are here.
static bool complete(const hn_prepared_ask *ask, contents *c) {
    for (int i = 0; i < HN_PREPARED_SOURCES; i++) {
        const hn_prepared_source *source = &ask->source[i];
        if (c->known[i]) continue;
        if (hn_prepared_digest(NULL, hn_store_digest_key(c->store), source->data, source->bytes, false,
                               &c->digest[i]) != HONE_OK)
            return false;
        hn_store_set_content(c->store, source->data, source->bytes, c->digest[i]);
    }
    return true;
}

// The form's text in the store's key; false: out of memory.
static bool store_text(const hn_prepared_ask *ask, const contents *c, hn_str *out) {
    hn_str_append(out, ask->form);
    for (int i = 0; i < HN_PREPARED_SOURCES; i++)
        if (ask->source[i].data)
            hn_str_printf(out, "\n%d: %zu %016llx%016llx", i, ask->source[i].bytes,
                          (unsigned long long)c->digest[i].word[0],
                          (unsigned long long)c->digest[i].word[1]);
    return !out->failed;
}

static hn_store_key store_key(const hn_prepared_ask *ask, const hn_str *text) {
    return (hn_store_key){ask->kind, ask->library, ask->isa, ask->threads, hn_str_get(text)};
}

static bool take_kept(const hn_prepared_ask *ask, const contents *c, hn_prepared *p) {
    hn_str text = {0};
    if (c->store && c->all_known && store_text(ask, c, &text)) {
        hn_store_key key = store_key(ask, &text);
        p->blob = hn_store_get(c->store, &key);
        if (p->blob && hn_blob_bytes(p->blob) != ask->bytes) {
            hn_blob_unref(p->blob);
            p->blob = NULL;
        }
        if (p->blob) p->data = (void *)(uintptr_t)hn_blob_data(p->blob);
    }
    hn_str_free(&text);
    return p->blob != NULL;
}

static void kept(void *user) {
    hn_prepared *p = user;
    pthread_mutex_lock(&g_lock);
    if (--p->keeping == 0 && p->home) drop_data(p);
    pthread_mutex_unlock(&g_lock);
    hn_prepared_release(p);
}

// Has a copy put into the store. The form is the keeper's as well until that is done.
static void keep(const hn_prepared_ask *ask, contents *c, hn_prepared *p) {
    hn_str text = {0};
    if (!complete(ask, c) || !store_text(ask, c, &text)) {
        hn_str_free(&text);
        return;
    }
    hn_store_key key = store_key(ask, &text);
    pthread_mutex_lock(&g_lock);
    p->references++;
    p->keeping++;
    pthread_mutex_unlock(&g_lock);
    if (!hn_keeper_put(c->store, &key, p->data, p->bytes, kept, p)) {
        pthread_mutex_lock(&g_lock);
        p->references--; // the maker has one
        p->keeping--;
        pthread_mutex_unlock(&g_lock);
    }
    hn_str_free(&text);
}

// ---- making -------------------------------------------------------------------------------------
static hn_status make_data(hone_error *err, const hn_prepared_ask *ask, hn_prepared *p) {
    bool pages = ask->bytes >= PAGES_BYTES;
    p->data = pages ? hn_pages_new(ask->bytes) : hn_malloc_aligned(ask->bytes);
    if (!p->data) HN_NOMEM(err, "preparing weights");
    if (!pages) memset(p->data, 0, ask->bytes);
    return ask->make(err, ask->user, p->data);
}

static hn_status fill(hone_error *err, const hn_prepared_ask *ask, const contents *c, hn_prepared *p) {
    if (!take_kept(ask, c, p)) HN_TRY(make_data(err, ask, p));
    if (!ask->adopt) return HONE_OK;
    p->owner = ask->owner;
    HN_TRY(ask->adopt(err, ask->owner, p->data, ask->bytes, &p->home));
    p->disown = ask->disown;
    return HONE_OK;
}

hn_status hn_prepared_get(hone_error *err, const hn_prepared_ask *ask, hn_prepared **out_prepared) {
    pthread_once(&g_key_once, make_key);
    char *key = NULL;
    HN_TRY(key_of(err, ask, &key));
    bool is_new;
    hn_prepared *p = enter(key, ask->bytes, &is_new);
    if (!p) HN_NOMEM(err, "preparing weights");
    if (!is_new) {
        *out_prepared = p;
        return HONE_OK;
    }
    int64_t start = hn_clock_ns();
    contents c;
    look_up(ask, &c);
    hone_status status = fill(err, ask, &c, p);
    bool fresh = status == HONE_OK && !p->blob;
    int64_t spent = hn_clock_ns() - start;
    pthread_mutex_lock(&g_lock);
    p->state = status == HONE_OK ? READY : FAILED;
    if (status == HONE_OK) {
        g_stats.forms++;
        g_stats.bytes += p->bytes;
        if (fresh) {
            g_stats.made++;
            g_stats.made_bytes += p->bytes;
            g_stats.make_ns += spent;
        } else {
            g_stats.mapped++;
            g_stats.mapped_bytes += p->bytes;
            g_stats.map_ns += spent;
        }
    } else {
        unlink_entry(p);
    }
    pthread_cond_broadcast(&g_changed);
    pthread_mutex_unlock(&g_lock);
    if (status != HONE_OK) {
        destroy(p);
        return status;
    }
    if (fresh && c.store) keep(ask, &c, p);
    pthread_mutex_lock(&g_lock);
    if (p->home && !p->keeping) drop_data(p);
    pthread_mutex_unlock(&g_lock);
    give_back(ask);
    *out_prepared = p;
    return HONE_OK;
}

const void *hn_prepared_data(const hn_prepared *p) {
    return p->home ? NULL : p->data;
}
size_t hn_prepared_bytes(const hn_prepared *p) {
    return p->bytes;
}
void *hn_prepared_home(const hn_prepared *p) {
    return p->home;
}

void hn_prepared_get_stats(hn_prepared_stats *out_stats) {
    pthread_mutex_lock(&g_lock);
    *out_stats = g_stats;
    pthread_mutex_unlock(&g_lock);
}

// ---- sets ---------------------------------------------------------------------------------------
static bool set_insert(const hn_prepared **slot, size_t capacity, const hn_prepared *p) {
    size_t at = (size_t)((uintptr_t)p / 64 * 0x9e3779b97f4a7c15u) & (capacity - 1);
    while (slot[at] && slot[at] != p)
        at = (at + 1) & (capacity - 1);
    bool is_new = !slot[at];
    slot[at] = p;
    return is_new;
}

bool hn_prepared_set_add(hn_prepared_set *set, const hn_prepared *prepared) {
    if (2 * (set->count + 1) > set->capacity) {
        size_t grown = set->capacity ? 2 * set->capacity : 64;
        const hn_prepared **slot = hn_calloc(grown, sizeof *slot);
        if (!slot && set->count + 1 >= set->capacity) return true;
        for (size_t i = 0; slot && i < set->capacity; i++)
            if (set->slot[i]) set_insert(slot, grown, set->slot[i]);
        if (slot) {
            hn_free(set->slot);
            set->slot = slot;
            set->capacity = grown;
        }
    }
    bool is_new = set_insert(set->slot, set->capacity, prepared);
    set->count += is_new;
    return is_new;
}

void hn_prepared_set_free(hn_prepared_set *set) {
    hn_free((void *)set->slot);
    *set = (hn_prepared_set){0};
}
