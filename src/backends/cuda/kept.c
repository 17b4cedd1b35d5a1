// SPDX-License-Identifier: Apache-2.0
// What the store keeps of a card's work between processes: machine code of kernels, and what was
// measured (a product's algorithm, a convolution's plan).
//
// Machine code depends on text, options, architecture and compiler; choices on card, driver and
// library: all are in the keys, so what another machine or version left behind is never found. What is
// found is checked by its user as well, who makes it again where it does not fit.
#include <stdio.h>
#include "backends/cuda/cuda_int.h"
#include "store/keeper.h"

// library must hold 128 bytes.
static hn_store_key choice_key(const cuda_device *d, const char *kind, const char *name, size_t version,
                               const char *text, char *library) {
    snprintf(library, 128, "%s %zu, driver CUDA %d", name, version, d->driver);
    return (hn_store_key){.kind = kind, .library = library, .isa = d->device, .text = text};
}

static void put(hn_store *store, const hn_store_key *key, void *data, size_t bytes) {
    if (!hn_keeper_put(store, key, data, bytes, hn_free, data)) hn_free(data);
}

// ---- machine code -------------------------------------------------------------------------------
static bool code_key(const cuda_device *d, hn_store *store, const char *source, const char *options, char library[32],
                     char text[256], hn_store_key *out_key) {
    if (!store) return false;
    hn_digest digest = hn_digest_bytes(hn_store_digest_key(store), source, strlen(source));
    size_t at = (size_t)snprintf(text, 256, "%s\n%zu ", options, strlen(source));
    for (size_t i = 0; i < sizeof digest && at < 250; i++)
        at += (size_t)snprintf(text + at, 256 - at, "%02x", ((const unsigned char *)&digest)[i]);
    snprintf(library, 32, "NVRTC %d.%d", d->nvrtc_version / 1000, d->nvrtc_version % 1000);
    *out_key = (hn_store_key){.kind = "cuda code", .library = library, .isa = d->isa, .text = text};
    return true;
}

hn_blob *cuda_kept_code(const cuda_device *d, const char *source, const char *options) {
    hn_store *store = hn_store_default();
    char library[32], text[256];
    hn_store_key key;
    return code_key(d, store, source, options, library, text, &key) ? hn_store_get(store, &key) : NULL;
}

void cuda_keep_code(const cuda_device *d, const char *source, const char *options, void *image, size_t bytes) {
    hn_store *store = hn_store_default();
    char library[32], text[256];
    hn_store_key key;
    if (code_key(d, store, source, options, library, text, &key)) put(store, &key, image, bytes);
    else hn_free(image);
}

// ---- choices ------------------------------------------------------------------------------------
bool cuda_kept_record(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text,
                      hn_str *out_value) {
    hn_store *store = hn_store_default();
    char library[128];
    hn_store_key key = choice_key(d, kind, name, version, text, library);
    return store && hn_store_record(store, &key, out_value);
}

void cuda_keep_record(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text,
                      const char *value) {
    hn_store *store = hn_store_default();
    char library[128];
    hn_store_key key = choice_key(d, kind, name, version, text, library);
    if (store) (void)hn_store_set_record(store, &key, value);
}

hn_blob *cuda_kept_blob(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text) {
    hn_store *store = hn_store_default();
    char library[128];
    hn_store_key key = choice_key(d, kind, name, version, text, library);
    return store ? hn_store_get(store, &key) : NULL;
}

void cuda_keep_blob(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text, void *data,
                    size_t bytes) {
    hn_store *store = hn_store_default();
    char library[128];
    hn_store_key key = choice_key(d, kind, name, version, text, library);
    if (store) put(store, &key, data, bytes);
    else hn_free(data);
}
