// SPDX-License-Identifier: Apache-2.0
// Which backends there are. One row a backend.
#include "backends/backend.h"
#include "backends/cpu/cpu.h"
#include "backends/null/null.h"

typedef hone_status (*open_fn)(hone_error *err, int index, hn_backend **out_backend);
static const struct {
    const char *name;
    open_fn open;
} k_backends[] = {
    {"cpu", hn_cpu_backend_open},
    {"null", hn_null_backend_open},
};

hn_status hn_backend_open(hone_error *err, const char *name, int index, hn_backend **out_backend) {
    for (size_t i = 0; i < HN_COUNT_OF(k_backends); i++)
        if (!strcmp(k_backends[i].name, name)) return k_backends[i].open(err, index, out_backend);
    HN_FAIL(err, HONE_ERR_UNSUPPORTED, "there is no device '%s' (there are: cpu, null)", name);
}
