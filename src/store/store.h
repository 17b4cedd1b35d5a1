// SPDX-License-Identifier: Apache-2.0
// The store: a folder that keeps what is dear to make again (packed weights, generated code, plans,
// tuning decisions) between processes.
//
// Blobs are flat files with a head of their own, mapped for use at a 64-byte boundary and named by
// the digest of their key; SQLite is the index, for their order of use and for small records. What
// always holds: a file has its name only when it is complete and synced; content is checked before
// its first use since the machine started; what fails a check is dropped; an index that is broken or
// of another version is made again from the blobs. Nothing here is ever an error for the caller: a
// store that cannot be read or written is one log line, and things are made as without it.
//
// Several processes may use a folder at once. All functions are thread-safe.
#ifndef HN_STORE_STORE_H
#define HN_STORE_STORE_H
#include "base/base.h"

typedef struct hn_store hn_store;
typedef struct hn_blob hn_blob; // a mapped file, read-only, reference-counted

#define HN_STORE_VERSION 1

typedef struct hn_store_key {
    const char *kind;    // "cpu weights"; no line breaks in any of these
    const char *library; // "" if none has a say
    const char *isa;     // "" if any
    int threads;         // 0 if any
    const char *text;    // the rest, in full; may have several lines
} hn_store_key;

// folder: NULL and "" stand for $XDG_CACHE_HOME/hone or ~/.cache/hone. NULL where it is "off", cannot
// be used, or memory is short.
hn_store *hn_store_open(const char *folder, int64_t limit_bytes);
void hn_store_close(hn_store *store); // takes NULL
// The process's own, from the settings; opened at the first call. NULL: works without, as a child does
// that was forked after that. Not to be closed.
hn_store *hn_store_default(void);

// ---- blobs --------------------------------------------------------------------------------------
hn_blob *hn_store_get(hn_store *store, const hn_store_key *key); // NULL: not there; unref'd by the caller
const void *hn_blob_data(const hn_blob *blob);                   // 64-byte aligned
size_t hn_blob_bytes(const hn_blob *blob);
hn_blob *hn_blob_ref(hn_blob *blob);
void hn_blob_unref(hn_blob *blob); // takes NULL
// Keeps a copy; true where it is there now. What was used longest ago goes when the bound is reached.
bool hn_store_put(hn_store *store, const hn_store_key *key, const void *data, size_t bytes);

// ---- small records ------------------------------------------------------------------------------
// Text by key, in the index itself. False: not there. out_text must be empty.
bool hn_store_record(hn_store *store, const hn_store_key *key, hn_str *out_text);
bool hn_store_set_record(hn_store *store, const hn_store_key *key, const char *text);

// ---- contents -----------------------------------------------------------------------------------
// What digests are made with that go into keys of blobs: a secret of the store.
const hn_digest_key *hn_store_digest_key(const hn_store *store);
// The digest of a piece of a file, remembered by the file's identity (as git knows unchanged files),
// so that it need not be read to be known. A sample of its pages is compared as well: there are file
// systems that change a file and not its stamps.
bool hn_store_content(hn_store *store, const void *data, size_t bytes, hn_digest *out_digest);
void hn_store_set_content(hn_store *store, const void *data, size_t bytes, hn_digest digest);

// ---- what is in it ------------------------------------------------------------------------------
typedef struct hn_store_info {
    char path[PATH_MAX];
    bool writable;
    int64_t blobs, blob_bytes, limit_bytes, records, contents, index_bytes;
} hn_store_info;
void hn_store_get_info(hn_store *store, hn_store_info *out_info);

typedef struct hn_store_item {
    const char *name, *kind, *library, *isa, *text; // valid during the call
    int threads;
    int64_t bytes, made_s, used_s; // seconds since 1970
} hn_store_item;
// Newest use first.
void hn_store_list(hn_store *store, void (*fn)(void *user, const hn_store_item *item), void *user);

typedef struct hn_store_check {
    int64_t good, dropped, found, stale; // found: files without a row; stale: rows without a file
} hn_store_check;
// Reads every blob and sets the index right.
bool hn_store_verify(hn_store *store, hn_store_check *out_check);
// Removes blobs, records and contents; false where it cannot. out: what went.
bool hn_store_clear(hn_store *store, int64_t *out_blobs, int64_t *out_bytes);
#endif
