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

typedef struct turn {
    const cpu_value *value;
    hn_layout layout;
} turn;
static void turn_data(void *user, void *out) {
    const turn *t = user;
    const hn_shape *shape = &t->value->shape;
    int order[HN_MAX_RANK];
    int64_t in[HN_MAX_RANK], to[HN_MAX_RANK], dims[HN_MAX_RANK], is[HN_MAX_RANK], os[HN_MAX_RANK];
    cpu_physical(shape->rank, cuda_to_host(t->layout), order);
    cpu_strides(shape, HN_LAYOUT_PLAIN, in);
    cpu_strides(shape, cuda_to_host(t->layout), to);
    for (int i = 0; i < shape->rank; i++) {
        dims[i] = shape->dims[order[i]];
        is[i] = in[order[i]];
        os[i] = to[order[i]];
    }
    cpu_move move;
    cpu_move_init(&move, shape->rank, dims, is, os, hn_dtype_bytes(t->value->dtype));
    cpu_move_run(&move, t->value->data, out);
}

hn_status cuda_const_turned(hone_error *err, cuda_device *d, const cpu_value *value, hn_layout layout, cuda_const **out_constant) {
    turn t = {value, layout};
    size_t bytes = value->value->constant->bytes;
    if (layout == CUDA_PLAIN || cpu_same_bytes(&value->shape)) return cuda_const_get(err, d, value->data, bytes, out_constant);
    return cuda_const_made(err, d, value->data, layout, bytes, turn_data, &t, out_constant);
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
