// SPDX-License-Identifier: Apache-2.0
// Weights on the card: one copy of each, shared by every kernel that reads it in the same form.
//
// A holder of an entry keeps the host data alive (its plan's module), so an address cannot come to
// mean other data while an entry of it exists.
#include "backends/cuda/cuda_int.h"

static cuda_const *find(cuda_device *d, const void *source, size_t bytes, uint64_t form) {
    for (cuda_const *c = d->constants; c; c = c->next)
        if (c->source == source && c->bytes == bytes && c->form == form) return c;
    return NULL;
}

static hn_status upload(hone_error *err, cuda_device *d, const void *source, uint64_t form, size_t bytes,
                        const void *data, cuda_const **out_constant) {
    cuda_const *c = hn_calloc(1, sizeof *c);
    if (!c) HN_NOMEM(err, "uploading weights");
    *c = (cuda_const){.source = source, .bytes = bytes, .form = form, .references = 1};
    hone_status status = cuda_memory_new(err, d, bytes, &c->memory);
    if (status == HONE_OK && bytes)
        status = cuda_check(err, d, d->api->cuMemcpyHtoDAsync_v2(c->memory, data, bytes, d->stream), "uploading weights");
    if (status == HONE_OK) // the source may go right after
        status = cuda_check(err, d, d->api->cuStreamSynchronize(d->stream), "uploading weights");
    if (status != HONE_OK) {
        cuda_memory_free(d, c->memory);
        hn_free(c);
        return status;
    }
    c->next = d->constants;
    d->constants = c;
    d->constant_bytes += bytes;
    *out_constant = c;
    return HONE_OK;
}

hn_status cuda_const_made(hone_error *err, cuda_device *d, const void *source, uint64_t form, size_t bytes,
                          cuda_fill_fn fill, void *user, cuda_const **out_constant) {
    pthread_mutex_lock(&d->lock);
    cuda_const *c = find(d, source, bytes, form);
    hone_status status = HONE_OK;
    if (c) {
        c->references++;
    } else {
        void *made = fill ? hn_malloc(bytes ? bytes : 1) : NULL;
        if (fill && !made) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (uploading weights)");
        if (status == HONE_OK && fill) fill(user, made);
        if (status == HONE_OK) status = upload(err, d, source, form, bytes, fill ? made : source, &c);
        hn_free(made);
    }
    pthread_mutex_unlock(&d->lock);
    if (status == HONE_OK) *out_constant = c;
    return status;
}

hn_status cuda_const_get(hone_error *err, cuda_device *d, const void *source, size_t bytes, cuda_const **out_constant) {
    return cuda_const_made(err, d, source, 0, bytes, NULL, NULL, out_constant);
}

void cuda_const_drop(cuda_device *d, cuda_const *constant) {
    if (!constant) return;
    pthread_mutex_lock(&d->lock);
    if (--constant->references == 0) {
        cuda_const **at = &d->constants;
        while (*at != constant)
            at = &(*at)->next;
        *at = constant->next;
        d->constant_bytes -= constant->bytes;
        cuda_memory_free(d, constant->memory);
        hn_free(constant);
    }
    pthread_mutex_unlock(&d->lock);
}
