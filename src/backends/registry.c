// SPDX-License-Identifier: Apache-2.0
// Which backends there are. One row a backend.
#include "backends/backend.h"
#include "backends/cpu/cpu.h"
#include "backends/cuda/cuda.h"
#include "backends/null/null.h"

typedef hone_status (*open_fn)(hone_error *err, int index, hn_backend **out_backend);
static const struct {
    const char *name;
    open_fn open;
} k_backends[] = {
    {"cpu", hn_cpu_backend_open},
    {"cuda", hn_cuda_backend_open},
    {"null", hn_null_backend_open},
};

// "cuda:1" is device 1 of "cuda".
static bool split_name(const char *name, size_t *out_length, int *out_index) {
    const char *colon = strchr(name, ':');
    *out_length = colon ? (size_t)(colon - name) : strlen(name);
    if (!colon) return true;
    int64_t index;
    if (!hn_parse_i64((hn_slice){colon + 1, strlen(colon + 1)}, &index) || index < 0 || index > INT32_MAX) return false;
    *out_index = (int)index;
    return true;
}

hn_status hn_backend_open(hone_error *err, const char *name, int index, hn_backend **out_backend) {
    size_t length;
    bool good = split_name(name, &length, &index);
    for (size_t i = 0; i < HN_COUNT_OF(k_backends) && good; i++)
        if (strlen(k_backends[i].name) == length && !strncmp(k_backends[i].name, name, length))
            return k_backends[i].open(err, index, out_backend);
    HN_FAIL(err, HONE_ERR_UNSUPPORTED, "there is no device '%s' (there are: cpu, cuda, cuda:N, null)", name);
}
