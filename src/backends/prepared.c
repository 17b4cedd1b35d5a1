// SPDX-License-Identifier: Apache-2.0
// Prepared forms of backends: what of a key and of a form's home the backend itself says.
#include "backends/backend.h"

hn_status hn_backend_prepared(hone_error *err, hn_backend *backend, hn_prepared_ask *ask,
                              hn_prepared **out_prepared) {
    hn_backend_info info;
    backend->info(backend, &info);
    ask->library = info.library;
    ask->isa = info.isa;
    ask->adopt = backend->adopt;
    ask->disown = backend->disown;
    ask->owner = backend;
    return hn_prepared_get(err, ask, out_prepared);
}

hn_status hn_kernel_prepare(hone_error *err, hn_backend *backend, const hn_select *what,
                            hn_kernel *kernel, hn_prepared_ask *ask, hn_prepared **out_prepared) {
    if (kernel->prepared_count == HN_MAX_PREPARED)
        HN_FAIL(err, HONE_ERR_INTERNAL, "a kernel has more than %d prepared forms",
                HN_MAX_PREPARED);
    ask->apart = what->apart;
    HN_TRY(hn_backend_prepared(err, backend, ask, out_prepared));
    kernel->prepared[kernel->prepared_count++] = *out_prepared;
    return HONE_OK;
}

void hn_kernel_release(hn_kernel *kernel) {
    for (int i = 0; i < kernel->prepared_count; i++)
        hn_prepared_release(kernel->prepared[i]);
    kernel->prepared_count = 0;
}
