// SPDX-License-Identifier: Apache-2.0
// CUDA C to functions: machine code from the store, else by NVRTC for the architecture at hand, once a text
// and device.
#include <stdio.h>
#include "backends/cuda/cuda_int.h"

// The option that differs; a change of the others is a change of the texts' meaning, too: name it here.
static const char k_exact[] = "--fmad=false", k_fused[] = "--fmad=true";
#define MAX_ENTRIES 4 // functions of one text

struct cuda_module {
    uint64_t hash;
    bool exact;
    char *source;
    hn_cu_module handle;
    struct {
        char entry[32];
        cuda_function function;
    } functions[MAX_ENTRIES]; // found so far
    int function_count;
    cuda_module *next;
};

static uint64_t hash_text(const char *text) {
    uint64_t h = 14695981039346656037ull;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211ull;
    return h;
}

// The first line of a compiler's log that says "error".
static void first_error(const char *log, char *out, size_t bytes) {
    const char *at = strstr(log, "error");
    while (at && at > log && at[-1] != '\n')
        at--;
    if (!at) at = log;
    snprintf(out, bytes, "%.*s", (int)strcspn(at, "\n"), at);
}

static hn_status compile(hone_error *err, cuda_device *d, const char *source, bool exact, char **out_image,
                         size_t *out_bytes) {
    const hn_nvrtc *n = d->nvrtc;
    hn_nvrtc_program program;
    char arch[32], line[300] = "";
    bool ptx = d->code == CUDA_CODE_OWN_SM80;
    if (ptx) snprintf(arch, sizeof arch, "-arch=compute_80");
    else snprintf(arch, sizeof arch, "-arch=sm_%d", d->caps.cc);
    const char *options[] = {arch, "-std=c++17", "-default-device", exact ? k_exact : k_fused};
    if (n->nvrtcCreateProgram(&program, source, "hone.cu", 0, NULL, NULL) != 0)
        HN_FAIL(err, HONE_ERR_INTERNAL, "NVRTC takes no program");
    int result = n->nvrtcCompileProgram(program, (int)HN_COUNT_OF(options), options);
    size_t bytes = 0;
    char *image = NULL;
    if (result != 0 && n->nvrtcGetProgramLogSize(program, &bytes) == 0) {
        char *log = hn_calloc(1, bytes + 1);
        if (log && n->nvrtcGetProgramLog(program, log) == 0) first_error(log, line, sizeof line);
        hn_free(log);
    }
    if (result == 0 && (ptx ? n->nvrtcGetPTXSize(program, &bytes) : n->nvrtcGetCUBINSize(program, &bytes)) == 0 && bytes) {
        image = hn_malloc(bytes);
        if (image) ptx ? n->nvrtcGetPTX(program, image) : n->nvrtcGetCUBIN(program, image);
    }
    n->nvrtcDestroyProgram(&program);
    if (!image) HN_FAIL(err, HONE_ERR_INTERNAL, "a kernel does not compile for sm_%d: %s", d->caps.cc, line[0] ? line : "no reason given");
    *out_image = image;
    *out_bytes = bytes;
    return HONE_OK;
}

void cuda_function_read(cuda_device *d, cuda_function *function) {
    d->api->cuFuncGetAttribute(&function->registers, HN_CU_FUNC_REGISTERS, function->handle);
    d->api->cuFuncGetAttribute(&function->spill_bytes, HN_CU_FUNC_LOCAL_BYTES, function->handle);
    d->api->cuFuncGetAttribute(&function->shared_bytes, HN_CU_FUNC_SHARED_BYTES, function->handle);
}

static hn_status find(hone_error *err, cuda_device *d, cuda_module *m, const char *entry, cuda_function *out_function) {
    for (int i = 0; i < m->function_count; i++)
        if (!strcmp(m->functions[i].entry, entry)) {
            *out_function = m->functions[i].function;
            return HONE_OK;
        }
    hn_cu_function f;
    HN_TRY(cuda_current(err, d));
    CUDA_TRY(err, d, d->api->cuModuleGetFunction(&f, m->handle, entry), "finding a kernel");
    cuda_function found = {.handle = f};
    cuda_function_read(d, &found);
    HN_ASSERT(m->function_count < MAX_ENTRIES);
    snprintf(m->functions[m->function_count].entry, sizeof m->functions[0].entry, "%s", entry);
    m->functions[m->function_count++].function = found;
    *out_function = found;
    return HONE_OK;
}

static void module_free(cuda_device *d, cuda_module *m) {
    if (m->handle && !d->lost) d->api->cuModuleUnload(m->handle);
    hn_free(m->source);
    hn_free(m);
}

// From the store; false where it has none, or what the driver does not take.
static bool load_kept(cuda_device *d, const char *source, bool exact, hn_cu_module *out_handle) {
    if (d->code != CUDA_CODE_OWN) return false;
    hn_blob *blob = cuda_kept_code(d, source, exact ? k_exact : k_fused);
    bool good = blob && hn_blob_bytes(blob) >= 16 && memcmp(hn_blob_data(blob), "\177ELF", 4) == 0 &&
                cuda_current(NULL, d) == HONE_OK && d->api->cuModuleLoadData(out_handle, hn_blob_data(blob)) == HN_CU_OK;
    hn_blob_unref(blob);
    return good;
}

static hn_status compile_and_load(hone_error *err, cuda_device *d, cuda_module *m) {
    char *image;
    size_t bytes;
    int64_t begin = hn_clock_ns();
    hone_status status = compile(err, d, m->source, m->exact, &image, &bytes);
    d->compile_ns += hn_clock_ns() - begin;
    d->compiled++;
    if (status != HONE_OK) return status;
    status = cuda_current(err, d);
    if (status == HONE_OK) status = cuda_check(err, d, d->api->cuModuleLoadData(&m->handle, image), "loading a kernel");
    if (status == HONE_OK && d->code == CUDA_CODE_OWN) cuda_keep_code(d, m->source, m->exact ? k_exact : k_fused, image, bytes);
    else hn_free(image);
    return status;
}

static hn_status make(hone_error *err, cuda_device *d, const char *source, uint64_t hash, bool exact,
                      cuda_module **out_module) {
    cuda_module *m = hn_calloc(1, sizeof *m);
    if (!m) HN_NOMEM(err, "compiling a kernel");
    m->hash = hash;
    m->exact = exact;
    m->source = hn_strdup(source);
    hone_status status = HONE_OK;
    if (!m->source) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (compiling a kernel)");
    else if (!load_kept(d, source, exact, &m->handle)) status = compile_and_load(err, d, m);
    if (status != HONE_OK) {
        module_free(d, m);
        return status;
    }
    *out_module = m;
    return HONE_OK;
}

hn_status cuda_function_get(hone_error *err, cuda_device *d, const char *source, const char *entry, bool exact,
                            cuda_function *out_function) {
    if (cuda_is_generic(d)) return HONE_ERR_UNSUPPORTED; // no compiler, or none that is to be used
    uint64_t hash = hash_text(source);
    hone_status status = HONE_OK;
    pthread_mutex_lock(&d->lock);
    cuda_module *m = d->modules;
    while (m && (m->hash != hash || m->exact != exact || strcmp(m->source, source) != 0))
        m = m->next;
    if (!m) {
        status = make(err, d, source, hash, exact, &m);
        if (status == HONE_OK) {
            m->next = d->modules;
            d->modules = m;
        }
    }
    if (status == HONE_OK) status = find(err, d, m, entry, out_function);
    pthread_mutex_unlock(&d->lock);
    return status;
}

void cuda_modules_free(cuda_device *d) {
    for (cuda_module *m = d->modules, *next; m; m = next) {
        next = m->next;
        module_free(d, m);
    }
    d->modules = NULL;
    cuda_forms_free(d);
}
