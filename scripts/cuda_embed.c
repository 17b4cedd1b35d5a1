// SPDX-License-Identifier: Apache-2.0
// Part of the build: the generic forms of kernels/forms.def as machine code of every architecture, and as
// PTX, by the NVRTC that libs/nvrtc.c finds, compressed in one file that the library carries.
//   cuda_embed ON|AUTO OUT SOURCES CACHE ARCHITECTURES     (SOURCES: the folder src; "80,86,89,90,ptx")
// AUTO without NVRTC writes an empty file. What a text made before is taken from CACHE, by everything that it
// depends on; what was not used for a month goes.
//
// The file: "HNF1", u32 count; a count times {char form[24]; u32 architecture (0: PTX), offset, packed bytes,
// bytes}; then the zlib streams. Little-endian, read by backends/cuda/spec.c.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include "base/str.h"
#include "config/config.h"
#include "libs/nvrtc.h"

typedef struct form {
    const char *name, *parts;
    bool exact;
    const char *choices, *fields;
} form;
static const form k_forms[] = {
#define HN_CUDA_FORM(name, parts, exact, choices, fields) {name, parts, exact, choices, fields},
#include "kernels/forms.def"
};

static const char *g_sources;
static const char *file_text(const char *name) {
    static char *text;
    char path[1024];
    snprintf(path, sizeof path, "%s/kernels/cuda/%s.cu", g_sources, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cuda_embed: %s: %s\n", path, strerror(errno));
        exit(3);
    }
    free(text);
    text = calloc(1, 1 << 20);
    if (!text || fread(text, 1, (1 << 20) - 1, f) == 0) exit(3);
    fclose(f);
    return text;
}

// ---- the text of a form -------------------------------------------------------------------------
static void print_cases(hn_str *s) {
    static const struct {
        char class;
        const char *token, *text;
    } k_rows[] = {
#define HN_UNARY(class, token, ...) {#class[0], #token, #__VA_ARGS__},
#define HN_BINARY(class, token, ...) {#class[0], #token, #__VA_ARGS__},
#include "ops/scalar.def"
    };
    static const struct {
        const char *token, *text;
    } k_steps[] = {
#define HN_STEP(token, ...) {#token, #__VA_ARGS__},
#include "kernels/steps.def"
    };
    size_t rows = sizeof k_rows / sizeof *k_rows, steps = sizeof k_steps / sizeof *k_steps;
    for (const char *class = "FIU"; *class; class++) {
        hn_str_printf(s, "#define STEP_CASES_%c", *class);
        for (size_t i = 0; i < rows; i++)
            if (k_rows[i].class == *class) hn_str_printf(s, " case %zu: return (T)(%s);", i, k_rows[i].text);
        for (size_t i = 0; i < steps; i++)
            hn_str_printf(s, " case %zu: return (T)(%s);", rows + i, strstr(k_steps[i].text, "rint") || strstr(k_steps[i].text, "sqrt") ? *class == 'F' ? k_steps[i].text : "x" : k_steps[i].text);
        hn_str_append(s, "\n");
    }
    for (size_t i = 0; i < rows; i++)
        hn_str_printf(s, "#define STEP_%c_%s %zu\n", k_rows[i].class, k_rows[i].token, i);
    for (size_t i = 0; i < steps; i++)
        hn_str_printf(s, "#define STEP_%s %zu\n", k_steps[i].token, rows + i);
}

// The next word of *at into `out`, up to one of `ends`.
static bool word(const char **at, const char *ends, char *out, size_t size) {
    size_t n = strcspn(*at, ends);
    if (!**at) return false;
    snprintf(out, size, "%.*s", (int)n, *at);
    *at += n;
    if (**at) (*at)++;
    return true;
}

static void print_fields(const char *fields, hn_str *s, hn_str *undo) {
    char field[64];
    hn_str macros = {0};
    hn_str_append(s, "struct params {\n");
    while (word(&fields, " ", field, sizeof field)) {
        const char *name = field, *type = "i32";
        if (*name == '+') type = "i64", name++;
        else if (*name == '.') type = "f32", name++;
        hn_str_printf(s, "    %s %s;\n", type, name);
        if (strchr(name, '[')) continue;
        hn_str_printf(&macros, "#define %s (P.%s)\n", name, name);
        hn_str_printf(undo, "#undef %s\n", name);
    }
    hn_str_printf(s, "};\n%s", hn_str_get(&macros));
    hn_str_free(&macros);
}

// One choice of every group: number `which` of their product; its name goes into `name`.
static void print_choice(const char *choices, int which, hn_str *s, hn_str *undo, char *name, size_t size) {
    char group[512];
    *name = 0;
    while (word(&choices, " ", group, sizeof group)) {
        const char *names = group, *values = strchr(group, ':') + 1;
        char name_list[128], value_list[128], one[64], value[64];
        int count = 1;
        for (const char *c = values; *c; c++)
            count += *c == ',';
        word(&names, ":", name_list, sizeof name_list);
        for (int i = 0; i <= which % count; i++)
            word(&values, ",", value_list, sizeof value_list);
        which /= count;
        const char *n = name_list, *v = value_list;
        while (word(&n, "+", one, sizeof one) && word(&v, "+", value, sizeof value)) {
            bool number = *value >= '0' && *value <= '9';
            hn_str_printf(s, number ? "#define %s %s\n" : "typedef %2$s %1$s;\n", one, value);
            if (number) hn_str_printf(undo, "#undef %s\n", one);
            snprintf(name + strlen(name), size - strlen(name), "%s_", value);
        }
    }
}
static int product_of(const char *choices) {
    int product = 1, here = 1;
    for (const char *c = choices;; c++) {
        if (*c == ',') here++;
        if (*c == ' ' || !*c) product *= here, here = 1;
        if (!*c) return product;
    }
}

// The text with kernels of names of their own, and macros of it undone behind.
static void print_part(const char *text, const char *name, hn_str *s, hn_str *undo) {
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n");
        const char *define = at;
        while (*define == ' ')
            define++;
        if (!strncmp(define, "#define ", 8)) hn_str_printf(undo, "#undef %.*s\n", (int)strcspn(define + 8, " (\n"), define + 8);
        const char *end = at + length;
        for (const char *k; at < end && (k = strstr(at, "hn_k_")) && k < end; at = k + 5) {
            hn_str_append_n(s, at, (size_t)(k - at));
            hn_str_printf(s, "hn_g_%s", name);
        }
        hn_str_append_n(s, at, (size_t)(end - at));
        hn_str_append(s, "\n");
        at = *end ? end + 1 : end;
    }
}

static void print_form(const form *f, hn_str *s) {
    hn_str_append(s, "#define HN_GENERIC 1\n#define HN_PARAMS , const __grid_constant__ params P\n#define HN_TAKES , const params &P\n"
                     "#define HN_GIVES , P\n#define INDEX int\n");
    hn_str_append(s, file_text("prelude"));
    if (strstr(f->parts, "steps")) print_cases(s);
    for (int v = 0; v < product_of(f->choices); v++) {
        hn_str undo = {0};
        char name[128], part[64];
        const char *parts = f->parts;
        hn_str_printf(s, "namespace v%d {\n", v);
        print_fields(f->fields, s, &undo);
        print_choice(f->choices, v, s, &undo, name, sizeof name);
        while (word(&parts, " ", part, sizeof part))
            print_part(file_text(part), name, s, &undo);
        hn_str_printf(s, "}\n%s", hn_str_get(&undo));
        hn_str_free(&undo);
    }
}

// ---- machine code -------------------------------------------------------------------------------
typedef struct packed {
    char form[24];
    uint32_t arch, offset, packed_bytes, bytes;
} packed;

static char *compile(const hn_nvrtc *n, const form *f, const char *text, int arch, size_t *out_bytes) {
    hn_nvrtc_program program;
    char option[32];
    snprintf(option, sizeof option, arch ? "-arch=sm_%d" : "-arch=compute_80", arch);
    const char *options[] = {option, "-std=c++17", "-default-device", f->exact ? "--fmad=false" : "--fmad=true"};
    size_t bytes = 0;
    if (n->nvrtcCreateProgram(&program, text, f->name, 0, NULL, NULL) != 0) return NULL;
    if (n->nvrtcCompileProgram(program, 4, options) != 0) {
        n->nvrtcGetProgramLogSize(program, &bytes);
        char *log = calloc(1, bytes + 1);
        if (log) n->nvrtcGetProgramLog(program, log);
        fprintf(stderr, "cuda_embed: form %s for sm_%d does not compile:\n%s\n", f->name, arch, log ? log : "");
        exit(5);
    }
    char *image = NULL;
    if (arch ? n->nvrtcGetCUBINSize(program, &bytes) == 0 : n->nvrtcGetPTXSize(program, &bytes) == 0) image = malloc(bytes);
    if (image && (arch ? n->nvrtcGetCUBIN(program, image) : n->nvrtcGetPTX(program, image)) != 0) image = NULL;
    n->nvrtcDestroyProgram(&program);
    *out_bytes = bytes;
    return image;
}

static char *read_all(const char *path, size_t *out_bytes) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *data = NULL;
    if (f && fstat(fileno(f), &st) == 0 && st.st_size > 0 && (data = malloc((size_t)st.st_size)))
        if (fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size) free(data), data = NULL;
    if (f) fclose(f);
    if (data) *out_bytes = (size_t)st.st_size;
    return data;
}
static bool write_all(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(data, 1, bytes, f) == bytes;
    return f && fclose(f) == 0 && good;
}

// Eight bytes of the size before compression, then the stream; from the cache where it is there.
static char *packed_form(const hn_nvrtc *n, const form *f, const char *text, int arch, const char *cache, int version, size_t *out_bytes) {
    char path[1200], temporary[1300];
    uint64_t hash = hn_hash_bytes(text, strlen(text), (uint64_t)(arch * 2 + f->exact) * 1000003 + (uint64_t)version);
    snprintf(path, sizeof path, "%s/form-%s-%d-%016llx", cache, f->name, arch, (unsigned long long)hash);
    char *data = read_all(path, out_bytes);
    if (data && *out_bytes > 8) {
        utimensat(AT_FDCWD, path, NULL, 0);
        return data;
    }
    size_t bytes;
    char *image = compile(n, f, text, arch, &bytes);
    uLongf room = image ? compressBound(bytes) : 0;
    data = image ? calloc(1, 8 + room) : NULL;
    if (!data || compress2((Bytef *)data + 8, &room, (Bytef *)image, bytes, 9) != Z_OK) {
        fprintf(stderr, "cuda_embed: form %s for sm_%d gives no code\n", f->name, arch);
        exit(5);
    }
    uint64_t whole = bytes;
    memcpy(data, &whole, 8);
    free(image);
    *out_bytes = 8 + room;
    snprintf(temporary, sizeof temporary, "%s.new", path);
    if (!write_all(temporary, data, *out_bytes) || rename(temporary, path) != 0) fprintf(stderr, "cuda_embed: %s is not kept\n", path);
    return data;
}

// The folder, without what was not used for a month.
static void make_cache(const char *folder) {
    char path[2048];
    snprintf(path, sizeof path, "%s", folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    mkdir(path, 0777);
    DIR *dir = opendir(folder);
    struct stat st;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mtime < time(NULL) - 30 * 86400) unlink(path);
    }
    if (dir) closedir(dir);
}

int main(int argc, char **argv) {
    const hn_nvrtc *n;
    hone_error err = {0};
    int major = 0, minor = 0;
    bool there = hn_nvrtc_get(&err, &n) == HONE_OK && n->nvrtcGetPTX && n->nvrtcGetPTXSize && n->nvrtcVersion(&major, &minor) == 0;
    if (argc != 6) return fprintf(stderr, "cuda_embed ON|AUTO OUT SOURCES CACHE ARCHITECTURES\n"), 2;
    if (!there && !strcmp(argv[1], "AUTO")) {
        printf("no NVRTC: the library carries no machine code for cards\n");
        return write_all(argv[2], "", 0) ? 0 : 5;
    }
    if (!there) return fprintf(stderr, "cuda_embed: %s\n", *err.text ? err.text : "this NVRTC gives no PTX"), 4;
    g_sources = argv[3];
    make_cache(argv[4]);
    size_t forms = sizeof k_forms / sizeof *k_forms, count = 0, used = 0, raw = 0;
    packed *table = calloc(forms * 16, sizeof *table);
    char *data = NULL;
    for (size_t i = 0; i < forms; i++) {
        hn_str text = {0};
        print_form(&k_forms[i], &text);
        if (text.failed || strlen(k_forms[i].name) >= sizeof table->form) return 5;
        const char *list = argv[5];
        char arch[16];
        while (word(&list, ",", arch, sizeof arch)) {
            size_t bytes;
            int number = atoi(arch); // "ptx": 0
            char *one = packed_form(n, &k_forms[i], hn_str_get(&text), number, argv[4], major * 1000 + minor, &bytes);
            packed *row = &table[count++];
            snprintf(row->form, sizeof row->form, "%s", k_forms[i].name);
            row->arch = (uint32_t)number;
            uint64_t whole;
            memcpy(&whole, one, 8);
            row->bytes = (uint32_t)whole;
            row->packed_bytes = (uint32_t)(bytes - 8);
            row->offset = (uint32_t)used;
            data = realloc(data, used + bytes);
            if (!data) return 5;
            memcpy(data + used, one + 8, bytes - 8);
            used += bytes - 8;
            raw += whole;
            free(one);
        }
        hn_str_free(&text);
    }
    size_t head = 8 + count * sizeof *table;
    char *out = calloc(1, head + used);
    if (!out) return 5;
    uint32_t count32 = (uint32_t)count;
    memcpy(out, "HNF1", 4);
    memcpy(out + 4, &count32, 4);
    for (size_t i = 0; i < count; i++)
        table[i].offset += (uint32_t)head;
    memcpy(out + 8, table, count * sizeof *table);
    memcpy(out + head, data, used);
    if (!write_all(argv[2], out, head + used)) return fprintf(stderr, "cuda_embed: %s: %s\n", argv[2], strerror(errno)), 5;
    printf("%zu forms by NVRTC %d.%d: %zu bytes of code in %zu\n", forms, major, minor, raw, head + used);
    return 0;
}
