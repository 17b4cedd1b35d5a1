// SPDX-License-Identifier: Apache-2.0
// The compatibility matrix: which CUDA libraries lie where a program may get them from (the loader's
// paths, /usr/local/cuda, Python wheels, conda), which copy wins, and whether they fit each other and
// the driver. Files are looked at by name only; nothing is loaded.
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "config/config.h"
#include "probe/doctor.h"

#define FOLDERS_MAX 256
#define LIBS_MAX    512

typedef struct folder {
    char path[480];
    bool searched; // by the loader, without help of the program
} folder;
typedef struct search {
    hn_doctor *doctor;
    folder *folders; // owned, FOLDERS_MAX
    int folder_count;
} search;

static const struct family {
    const char *name, *file; // file: start of the library's name
    const char *lost;        // without it
} k_families[] = {
    {"NVIDIA driver", "libcuda.so.", "nothing runs on a card"},
    {"CUDA runtime", "libcudart.so.", "programs that bring none of their own do not start (hone needs none)"},
    {"cuBLAS", "libcublas.so.", "programs that bring none of their own do not start (hone needs none)"},
    {"cuBLASLt", "libcublasLt.so.", "hone's matrix products on cards, and their ceilings here"},
    {"cuDNN", "libcudnn.so.", "hone's convolutions on cards"},
    {"NVRTC", "libnvrtc.so.", "hone's own kernels: --device cuda does not work"},
    {"NCCL", "libnccl.so.", "programs on several cards that bring none of their own do not start"},
    {"NVML", "libnvidia-ml.so.", "all telemetry of cards, but for DCGM's"},
    {"DCGM", "libdcgm.so.", "SM, tensor and DRAM activity of cards before Hopper"},
    {"TensorRT", "libnvinfer.so.", "programs built on it do not start (hone needs none)"},
};

static void add_folder(search *s, bool searched, const char *fmt, ...) HN_PRINTF(3, 4);
static void add_folder(search *s, bool searched, const char *fmt, ...) {
    char name[400], path[HN_SYS_PATH_BYTES];
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    struct stat st;
    if (length <= 0 || length >= (int)sizeof name || s->folder_count == FOLDERS_MAX ||
        !hn_sys_path(path, "%s", name) || strlen(path) >= sizeof s->folders[0].path || stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return;
    char real[PATH_MAX];
    if (!realpath(path, real) || strlen(real) >= sizeof s->folders[0].path) return;
    for (int i = 0; i < s->folder_count; i++)
        if (strcmp(s->folders[i].path, real) == 0) return;
    folder *f = &s->folders[s->folder_count++];
    memcpy(f->path, real, strlen(real) + 1);
    f->searched = searched;
}

// Wheels: <site-packages>/nvidia/<part>/lib.
static void add_wheels(search *s, const char *site) {
    char path[HN_SYS_PATH_BYTES];
    if (!hn_sys_path(path, "%.380s/nvidia", site)) return;
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') add_folder(s, false, "%.300s/nvidia/%.64s/lib", site, entry->d_name);
    closedir(dir);
}

// Every python3.N below a prefix's lib folder.
static void add_pythons(search *s, const char *prefix, const char *packages) {
    char path[HN_SYS_PATH_BYTES];
    if (!hn_sys_path(path, "%.300s/lib", prefix)) return;
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "python3", 7) != 0) continue;
        char site[HN_SYS_PATH_BYTES];
        snprintf(site, sizeof site, "%.300s/lib/%.32s/%s", prefix, entry->d_name, packages);
        add_wheels(s, site);
    }
    closedir(dir);
}

// What the loader was told to search: folders in /etc/ld.so.conf and the files that it includes, in their order.
static void add_loader_file(search *s, const char *path) {
    char text[8192];
    hn_slice rest = {text, 0}, line;
    ssize_t got = hn_sys_read(path, text, sizeof text);
    if (got <= 0) return;
    rest.length = (size_t)got;
    while (hn_slice_line(&rest, &line)) {
        line = hn_slice_trim(line);
        if (line.length && line.data[0] == '/') add_folder(s, true, "%.*s", (int)line.length, line.data);
    }
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

static void add_loader_folders(search *s) {
    char path[HN_SYS_PATH_BYTES], names[64][128];
    size_t count = 0;
    DIR *dir = hn_sys_path(path, "/etc/ld.so.conf.d") ? opendir(path) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && length < sizeof names[0] && strcmp(entry->d_name + length - 5, ".conf") == 0 && count < HN_COUNT_OF(names))
            memcpy(names[count++], entry->d_name, length + 1);
    }
    if (dir) closedir(dir);
    qsort(names, count, sizeof names[0], by_text);
    for (size_t i = 0; i < count; i++)
        if (hn_sys_path(path, "/etc/ld.so.conf.d/%s", names[i])) add_loader_file(s, path);
    if (hn_sys_path(path, "/etc/ld.so.conf")) add_loader_file(s, path);
}

static void add_folders(search *s) {
    static const char *const k_default[] = {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
                                            "/usr/local/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"};
    const char *paths = hn_config_env("LD_LIBRARY_PATH");
    for (const char *at = paths; at && *at;) {
        size_t length = strcspn(at, ":");
        if (length) add_folder(s, true, "%.*s", (int)length, at);
        at += length + (at[length] == ':');
    }
    add_loader_folders(s);
    for (size_t i = 0; i < HN_COUNT_OF(k_default); i++)
        add_folder(s, true, "%s", k_default[i]);
    char path[HN_SYS_PATH_BYTES];
    DIR *dir = hn_sys_path(path, "/usr/local") ? opendir(path) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (strncmp(entry->d_name, "cuda", 4) == 0) {
            add_folder(s, false, "/usr/local/%.64s/lib64", entry->d_name);
            add_folder(s, false, "/usr/local/%.64s/targets/x86_64-linux/lib", entry->d_name);
            add_folder(s, false, "/usr/local/%.64s/compat", entry->d_name);
        }
    if (dir) closedir(dir);
    const char *conda = hn_config_env("CONDA_PREFIX"), *venv = hn_config_env("VIRTUAL_ENV"), *home = hn_config_env("HOME");
    if (conda && *conda) {
        add_folder(s, false, "%.300s/lib", conda);
        add_pythons(s, conda, "site-packages");
    }
    if (venv && *venv) add_pythons(s, venv, "site-packages");
    add_folder(s, false, "/opt/conda/lib");
    add_pythons(s, "/opt/conda", "site-packages");
    add_pythons(s, "/usr/local", "dist-packages");
    add_pythons(s, "/usr/local", "site-packages");
    add_wheels(s, "/usr/lib/python3/dist-packages");
    char local[320];
    if (home && *home && snprintf(local, sizeof local, "%.300s/.local", home) < (int)sizeof local)
        add_pythons(s, local, "site-packages");
}

// "libcudnn.so.9.1.0" -> 9.1.0; a link that ends at "libcudnn.so.9" tells its major only.
static void add_lib(search *s, const struct family *family, const folder *from, const char *file) {
    char real[PATH_MAX], path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", from->path, file) >= (int)sizeof path || !realpath(path, real)) return;
    const char *base = strrchr(real, '/') ? strrchr(real, '/') + 1 : real;
    hn_found_lib lib = {.family = family->name, .major = atoi(file + strlen(family->file))};
    if (lib.major >= 100) lib.major = 1; // a driver's version; its soname ends with 1
    const char *digits = strncmp(base, family->file, strlen(family->file)) == 0 ? base + strlen(family->file)
                                                                                 : file + strlen(family->file);
    size_t length = strspn(digits, "0123456789.");
    snprintf(lib.version, sizeof lib.version, "%.*s", (int)(length < 31 ? length : 31), digits);
    if (!lib.version[0] || strlen(real) >= sizeof lib.path || s->doctor->libs.count >= LIBS_MAX) return;
    memcpy(lib.path, real, strlen(real) + 1);
    for (size_t i = 0; i < s->doctor->libs.count; i++)
        if (strcmp(s->doctor->libs.data[i].path, lib.path) == 0) return; // another link to it
    lib.used = from->searched;
    for (size_t i = 0; i < s->doctor->libs.count; i++)
        if (s->doctor->libs.data[i].used && s->doctor->libs.data[i].family == lib.family && s->doctor->libs.data[i].major == lib.major)
            lib.used = false; // an earlier folder wins
    (void)!hn_vec_push(&s->doctor->libs, lib);
}

static void scan(search *s) {
    for (int f = 0; f < s->folder_count; f++) {
        DIR *dir = opendir(s->folders[f].path);
        if (!dir) continue;
        for (struct dirent *entry; (entry = readdir(dir));)
            for (size_t k = 0; k < HN_COUNT_OF(k_families); k++)
                if (strncmp(entry->d_name, k_families[k].file, strlen(k_families[k].file)) == 0 &&
                    entry->d_name[strlen(k_families[k].file)] >= '0' && entry->d_name[strlen(k_families[k].file)] <= '9')
                    add_lib(s, &k_families[k], &s->folders[f], entry->d_name);
        closedir(dir);
    }
}

#define SAY(doctor, level, id, why, mend, ...)                                                     \
    do {                                                                                           \
        char what_[256];                                                                           \
        snprintf(what_, sizeof what_, __VA_ARGS__);                                                \
        hn_doctor_add(doctor, level, id, "libraries", what_, why, mend);                           \
    } while (0)

// The end of a path that still tells where it is.
static const char *tail(const char *path) {
    size_t length = strlen(path);
    return length > 78 ? path + length - 78 : path;
}

// Two versions under one name: which one a program gets depends on who loads first.
static void check_shadows(hn_doctor *doctor) {
    for (size_t i = 0; i < doctor->libs.count; i++)
        for (size_t k = i + 1; k < doctor->libs.count; k++) {
            const hn_found_lib *a = &doctor->libs.data[i], *b = &doctor->libs.data[k];
            if (a->family != b->family || a->major != b->major || strcmp(a->version, b->version) == 0) continue;
            if (!a->used && b->used) {
                const hn_found_lib *swap = a;
                a = b, b = swap;
            }
            bool of_driver = strcmp(a->family, "NVIDIA driver") == 0 || strcmp(a->family, "NVML") == 0;
            if (of_driver && (strstr(a->path, "/compat/") || strstr(b->path, "/compat/"))) continue; // see check_compat
            SAY(doctor, HN_LEVEL_WARN, of_driver ? "driver_libraries" : "shadowed",
                of_driver ? "only the one of the kernel's driver works; the other fails to start"
                          : "a program that mixes them fails with missing symbols, or silently runs the older one",
                of_driver ? "remove the driver's libraries from the container's image: the toolkit mounts the host's"
                          : "keep one: unset LD_LIBRARY_PATH for Python programs, or remove the wheel or the package",
                "%s %s (%.80s) %s %s (%.80s)", a->family, a->version, tail(a->path), a->used ? "hides" : "stands beside", b->version, tail(b->path));
            break; // one sentence a library
        }
}

// "525.105.17" as 525105: branches have up to three digits.
static int64_t driver_number(const char *text) {
    int64_t major = 0, minor = 0;
    const char *dot = hn_sys_number(text, &major);
    if (dot && *dot == '.') hn_sys_number(dot + 1, &minor);
    return major * 1000 + (minor > 999 ? 999 : minor);
}

static void check_driver_fit(hn_doctor *doctor) {
    // Oldest driver that runs each CUDA generation (within one, newer libraries run on older drivers).
    static const struct {
        int cuda;
        const char *driver;
    } k_oldest[] = {{11, "450.80"}, {12, "525.60"}, {13, "580.65"}};
    const char *driver = doctor->probe && hn_probe_device_count(doctor->probe) ? hn_probe_device(doctor->probe, 0)->driver : "";
    for (size_t i = 0; i < doctor->libs.count && *driver; i++) {
        const hn_found_lib *lib = &doctor->libs.data[i];
        if (strcmp(lib->family, "CUDA runtime") != 0) continue;
        for (size_t k = 0; k < HN_COUNT_OF(k_oldest); k++)
            if (lib->major == k_oldest[k].cuda && driver_number(driver) < driver_number(k_oldest[k].driver))
                SAY(doctor, lib->used ? HN_LEVEL_FAULT : HN_LEVEL_WARN, "driver_too_old", "programs built for it do not start on the cards",
                    "update the driver, or use libraries of an older CUDA",
                    "CUDA %s (%.80s) needs driver %s or newer, here is %.40s", lib->version, tail(lib->path), k_oldest[k].driver, driver);
    }
}

// The forward-compatible driver library of CUDA's images helps only where the host's driver is older than it.
static void check_compat(hn_doctor *doctor) {
    const char *driver = doctor->probe && hn_probe_device_count(doctor->probe) ? hn_probe_device(doctor->probe, 0)->driver : "";
    for (size_t i = 0; i < doctor->libs.count && *driver; i++) {
        const hn_found_lib *lib = &doctor->libs.data[i];
        if (!lib->used || strcmp(lib->family, "NVIDIA driver") != 0 || !strstr(lib->path, "/compat/") ||
            driver_number(lib->version) >= driver_number(driver))
            continue;
        SAY(doctor, HN_LEVEL_FAULT, "cuda_compat", "programs end with 'system has unsupported display driver / cuda driver combination' (803)",
            "take the compat folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d",
            "the loader takes libcuda %s (%.80s), older than the driver %.40s", lib->version, tail(lib->path), driver);
    }
}

static const hn_found_lib *used_lib(const hn_doctor *doctor, const char *family) {
    for (size_t i = 0; i < doctor->libs.count; i++)
        if (doctor->libs.data[i].used && strcmp(doctor->libs.data[i].family, family) == 0) return &doctor->libs.data[i];
    return NULL;
}

static void check_pairs(hn_doctor *doctor) {
    const hn_found_lib *blas = used_lib(doctor, "cuBLAS"), *lt = used_lib(doctor, "cuBLASLt");
    if (blas && lt && strcmp(blas->version, lt->version) != 0)
        SAY(doctor, HN_LEVEL_FAULT, "cublas_pair", "cuBLAS calls its own cuBLASLt: a different one fails at the first product",
            "install both from one package", "cuBLAS %s with cuBLASLt %s", blas->version, lt->version);
    // cuDNN 8.x ends at CUDA 12, 9 begins at 11.8; TensorRT and NCCL carry their CUDA in their package.
    const hn_found_lib *dnn = used_lib(doctor, "cuDNN"), *cudart = used_lib(doctor, "CUDA runtime");
    if (dnn && cudart && dnn->major == 8 && cudart->major >= 13)
        SAY(doctor, HN_LEVEL_FAULT, "cudnn_cuda", "cuDNN 8 was never built for CUDA 13", "install cuDNN 9",
            "cuDNN %s beside CUDA %s", dnn->version, cudart->version);
    if (dnn && cudart && dnn->major == 9 && cudart->major < 11)
        SAY(doctor, HN_LEVEL_FAULT, "cudnn_cuda", "cuDNN 9 needs CUDA 11.8 or newer", "install a newer CUDA",
            "cuDNN %s beside CUDA %s", dnn->version, cudart->version);
}

void hn_doctor_check_libs(hn_doctor *doctor) {
    search s = {.doctor = doctor};
    s.folders = hn_calloc(FOLDERS_MAX, sizeof *s.folders);
    if (!s.folders) return;
    add_folders(&s);
    scan(&s);
    hn_free(s.folders);
    for (size_t k = 0; k < HN_COUNT_OF(k_families); k++) {
        bool found = false;
        for (size_t i = 0; i < doctor->libs.count; i++) found |= doctor->libs.data[i].family == k_families[k].name;
        // A library that is open was there under a name of its own (HONE_NVML_LIB).
        if (strcmp(k_families[k].name, "NVML") == 0) found |= doctor->probe && hn_probe_device_count(doctor->probe) > 0;
        if (!found) (void)!hn_vec_push(&doctor->missing, ((hn_missing_lib){k_families[k].name, k_families[k].lost}));
    }
    check_shadows(doctor);
    check_compat(doctor);
    check_driver_fit(doctor);
    check_pairs(doctor);
}
