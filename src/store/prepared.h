// SPDX-License-Identifier: Apache-2.0
// Prepared forms: what a backend makes once from immutable content and then only reads (weights
// packed for a kernel, generated code, a library's plans), shared by every plan of every session.
//
// One registry for the process, found by a key that says all the bytes depend on: kind, library
// version, ISA, thread count, the form's own description and each source (where in which file it
// lies, or a digest of its content). A form lives as long as somebody holds a reference. Of several
// threads that ask for the same key one makes it and the others wait. All functions are
// thread-safe.
//
// Forms of some size (setting store_min_bytes) are also kept in the store (store/store.h), and found
// there by later processes by the contents of their sources.
#ifndef HN_STORE_PREPARED_H
#define HN_STORE_PREPARED_H
#include "base/base.h"

typedef struct hn_prepared hn_prepared; // immutable, reference-counted

#define HN_PREPARED_SOURCES 4

typedef struct hn_prepared_source {
    const void *data; // NULL: absent
    size_t bytes;
    // Nobody else is expected to read it: where it lies in a mapped file its pages are given back
    // once the form is made.
    bool give_back;
} hn_prepared_source;

typedef struct hn_prepared_ask {
    const char *kind;    // "cpu weights"; no line breaks here and in the other texts
    const char *library; // name and version of what decides the form's meaning, "" if nobody
    const char *isa;     // that the form is for, "" if any
    int threads;         // that the form is for, 0 if any
    const char *form;    // describes it in full
    hn_prepared_source source[HN_PREPARED_SOURCES];
    size_t bytes; // of the form
    bool apart;               // not shared, not kept: for measuring what making costs
    // Writes all of the form's bytes; they are 64-byte aligned and zero at first.
    hone_status (*make)(hone_error *err, void *user, void *out);
    void *user;
    // Where forms are used elsewhere than in host memory (a card): brings the bytes there, once a
    // form. The host's copy is then let go. Both or neither; owner must outlive the form.
    hone_status (*adopt)(hone_error *err, void *owner, const void *data, size_t bytes,
                         void **out_home);
    void (*disown)(void *owner, void *home);
    void *owner;
} hn_prepared_ask;

hn_status hn_prepared_get(hone_error *err, const hn_prepared_ask *ask, hn_prepared **out_prepared);
void hn_prepared_release(hn_prepared *prepared);           // takes NULL
const void *hn_prepared_data(const hn_prepared *prepared); // NULL once adopted
size_t hn_prepared_bytes(const hn_prepared *prepared);
void *hn_prepared_home(const hn_prepared *prepared); // what adopt gave, else NULL

// The digest of a content, by as many threads as there are, or by this one alone: the same.
hn_status hn_prepared_digest(hone_error *err, const hn_digest_key *key, const void *data,
                             size_t bytes, bool alone,
                             hn_digest *out_digest);

typedef struct hn_prepared_stats {
    size_t forms, bytes;        // alive now
    uint64_t made, made_bytes;  // by `make`, since the start
    uint64_t mapped, mapped_bytes; // found in the store
    uint64_t shared;            // asks that were answered with a form that was there
    int64_t make_ns, map_ns, digest_ns; // time spent
} hn_prepared_stats;
void hn_prepared_get_stats(hn_prepared_stats *out_stats);

// A set of forms, to count what several plans share once. Zero is empty.
typedef struct hn_prepared_set {
    const hn_prepared **slot; // open addressing, a power of two
    size_t count, capacity;
} hn_prepared_set;
// Adds; true where it was not in yet (also when memory runs out: then it may be counted again).
bool hn_prepared_set_add(hn_prepared_set *set, const hn_prepared *prepared);
void hn_prepared_set_free(hn_prepared_set *set);
#endif
