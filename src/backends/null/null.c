// SPDX-License-Identifier: Apache-2.0
// The null backend: see null.h.
#include "backends/null/null.h"

static hone_status null_select(hone_error *err, hn_backend *backend, const hn_select *what,
                               hn_kernel **out_kernel) {
    (void)backend;
    return hn_kernel_reference(err, what, out_kernel);
}

static hone_status null_layout_bytes(hone_error *err, hn_backend *backend, const hn_type *type,
                                     hn_layout layout, size_t *out_bytes) {
    (void)backend;
    hn_shape shape;
    if (layout != HN_LAYOUT_PLAIN)
        HN_FAIL(err, HONE_ERR_INTERNAL, "the null backend has no layout %u", layout);
    if (!hn_type_shape(type, &shape) || !hn_shape_bytes(&shape, type->dtype, out_bytes))
        HN_FAIL(err, HONE_ERR_LIMIT, "a value's size is unknown or too large");
    return HONE_OK;
}

static hone_status null_reorder(hone_error *err, hn_backend *backend, const hn_type *type,
                                hn_layout from, hn_layout to, hn_kernel **out_kernel) {
    (void)backend;
    (void)type;
    (void)out_kernel;
    HN_FAIL(err, HONE_ERR_INTERNAL, "the null backend has no layouts %u and %u", from, to);
}

static hone_status null_alloc(hone_error *err, hn_backend *backend, size_t bytes,
                              void **out_memory) {
    (void)backend;
    void *memory = hn_malloc_aligned(bytes);
    if (!memory) HN_FAIL(err, HONE_ERR_NOMEM, "out of memory (%zu bytes of activations)", bytes);
    *out_memory = memory;
    return HONE_OK;
}
static void null_free(hn_backend *backend, void *memory) {
    (void)backend;
    hn_free(memory);
}
static void null_close(hn_backend *backend) { (void)backend; }
static hone_status null_sync(hone_error *err, hn_backend *backend) {
    (void)err;
    (void)backend;
    return HONE_OK;
}
static void null_info(hn_backend *backend, hn_backend_info *out_info) {
    (void)backend;
    *out_info = (hn_backend_info){"null", "references only", "", ""};
}

static const char *const k_passes[] = {NULL};
static hn_backend g_backend = {
    .struct_size = sizeof(hn_backend),
    .api_version = 1,
    .name = "null",
    .open = hn_null_backend_open,
    .close = null_close,
    .info = null_info,
    .alloc = null_alloc,
    .free = null_free,
    .select = null_select,
    .layout_bytes = null_layout_bytes,
    .reorder = null_reorder,
    .device_passes = k_passes,
    .sync = null_sync,
};

hone_status hn_null_backend_open(hone_error *err, int index, hn_backend **out_backend) {
    if (index != 0) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "there is one null device, with index 0");
    *out_backend = &g_backend;
    return HONE_OK;
}
