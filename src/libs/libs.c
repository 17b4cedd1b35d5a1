// SPDX-License-Identifier: Apache-2.0
// The dlopen loader: see libs.h.
#include "libs/libs.h"
#include "config/config.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

static const char *last_error(void) {
    const char *text = dlerror();
    return text ? text : "no reason given";
}

// ---- where CUDA's libraries lie when the loader does not know them --------------------------------
// The newest of the files that match.
static void *open_matching(const char *folder, const char *file, char *out_path, size_t path_bytes) {
    char pattern[1024];
    glob_t found;
    if (snprintf(pattern, sizeof pattern, "%s/%s", folder, file) >= (int)sizeof pattern) return NULL;
    if (glob(pattern, 0, NULL, &found) != 0) return NULL;
    void *handle = NULL;
    for (size_t i = found.gl_pathc; i > 0 && !handle; i--)
        if (snprintf(out_path, path_bytes, "%s", found.gl_pathv[i - 1]) < (int)path_bytes)
            handle = dlopen(out_path, RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return handle;
}

// Wheels below a prefix: nvidia/<part>/lib (CUDA 11 and 12), nvidia/cu13/lib.
static void *open_wheel(const char *prefix, const char *file, char *out_path, size_t path_bytes) {
    static const char *const k_packages[] = {"site-packages", "dist-packages"};
    void *handle = NULL;
    for (size_t i = 0; i < sizeof k_packages / sizeof *k_packages && !handle; i++) {
        char folder[800];
        if (snprintf(folder, sizeof folder, "%s/lib/python3*/%s/nvidia/*/lib", prefix, k_packages[i]) < (int)sizeof folder)
            handle = open_matching(folder, file, out_path, path_bytes);
    }
    return handle;
}

// The interpreters on PATH: an environment that is used without having been activated.
static void *open_beside_python(const char *file, char *out_path, size_t path_bytes) {
    void *handle = NULL;
    for (const char *at = hn_config_env("PATH"); at && *at && !handle;) {
        int length = (int)strcspn(at, ":");
        char prefix[512];
        if (length > 4 && length < 500 && strncmp(at + length - 4, "/bin", 4) == 0) {
            snprintf(prefix, sizeof prefix, "%.*s", length - 4, at);
            handle = open_wheel(prefix, file, out_path, path_bytes);
        }
        at += length + (at[length] == ':');
    }
    return handle;
}

static void *open_cuda(const char *file, char *out_path, size_t path_bytes) {
    static const char *const k_folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda-1[123]*/lib64",
                                            "/usr/local/cuda/targets/*/lib", "/opt/conda/lib"};
    static const char *const k_prefixes[] = {"VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_PATH", "CUDA_HOME"};
    void *handle = NULL;
    char path[1024];
    for (size_t i = 0; i < sizeof k_prefixes / sizeof *k_prefixes && !handle; i++) {
        const char *prefix = hn_config_env(k_prefixes[i]);
        if (!prefix || !*prefix || strlen(prefix) > 400) continue;
        handle = open_wheel(prefix, file, out_path, path_bytes);
        snprintf(path, sizeof path, "%s/lib*", prefix);
        if (!handle) handle = open_matching(path, file, out_path, path_bytes);
    }
    for (size_t i = 0; i < sizeof k_folders / sizeof *k_folders && !handle; i++)
        handle = open_matching(k_folders[i], file, out_path, path_bytes);
    if (!handle) handle = open_beside_python(file, out_path, path_bytes);
    const char *home = hn_config_env("HOME");
    if (!handle && home && *home && strlen(home) < 400) {
        snprintf(path, sizeof path, "%s/.local", home);
        handle = open_wheel(path, file, out_path, path_bytes);
    }
    return handle;
}

hn_status hn_lib_open(hone_error *err, const hn_lib_spec *spec, void *table, hn_lib *out_lib) {
    hn_lib lib = {0};
    const char *override = spec->env_override ? hn_config_env(spec->env_override) : NULL;
    if (override && *override) {
        lib.handle = dlopen(override, RTLD_NOW | RTLD_LOCAL);
        lib.loaded_name = override;
        // A named library that does not load is an error, not a reason to take another.
        if (!lib.handle)
            HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: %s names '%s', which does not load: %s",
                    spec->title, spec->env_override, override, last_error());
    }
    for (const char *const *name = spec->names; !lib.handle && *name; name++) {
        lib.handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        lib.loaded_name = *name;
    }
    char path[1024];
    if (!lib.handle && spec->cuda_file) {
        lib.handle = open_cuda(spec->cuda_file, path, sizeof path);
        lib.loaded_name = spec->cuda_file;
    }
    if (!lib.handle)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s is not installed (tried %s%s)%s%s", spec->title,
                spec->names[0], spec->names[0] && spec->names[1] ? " and others" : "",
                spec->missing_hint ? ": " : "", spec->missing_hint ? spec->missing_hint : "");
    for (size_t i = 0; i < spec->symbol_count; i++) {
        if (spec->symbols[i].required && !dlsym(lib.handle, spec->symbols[i].name)) {
            hone_status status =
                HN_SET(err, HONE_ERR_UNSUPPORTED, "%s (%s) lacks the function %s: too old or new",
                       spec->title, lib.loaded_name, spec->symbols[i].name);
            dlclose(lib.handle);
            return status;
        }
    }
    for (size_t i = 0; i < spec->symbol_count; i++) {
        void *address = dlsym(lib.handle, spec->symbols[i].name);
        memcpy((char *)table + spec->symbols[i].offset, &address, sizeof address);
    }
    *out_lib = lib;
    return HONE_OK;
}

void hn_lib_close(hn_lib *lib) {
    if (lib->handle) dlclose(lib->handle);
    *lib = (hn_lib){0};
}
