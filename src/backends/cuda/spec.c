// SPDX-License-Identifier: Apache-2.0
// Kernels asked for by what they are told (cuda_spec): as a text of a node's own numbers where NVRTC is at
// hand, else as the generic form that the build made (kernels/forms.def), whose numbers are a parameter.
//
// The forms lie in the library compressed (scripts/cuda_embed.c says how); a form is unpacked and loaded with
// the first kernel of it. Code of the card's own architecture comes first, then that of an older one of the
// same major version, then PTX, which the driver compiles. What has no form is HONE_ERR_UNSUPPORTED.
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>
#include "backends/cuda/cuda_int.h"
#include "config/config.h"

static const cuda_form k_forms[] = {
#define HN_CUDA_FORM(name, parts, exact, choices, fields) {name, parts, exact, choices, fields},
#include "kernels/forms.def"
};
#define FORMS HN_COUNT_OF(k_forms)

const cuda_form *cuda_forms(size_t *out_count) {
    *out_count = FORMS;
    return k_forms;
}

// ---- what the library carries -------------------------------------------------------------------
typedef struct packed {
    char form[24];
    uint32_t arch, offset, packed_bytes, bytes;
} packed;

size_t cuda_embedded_count(void) {
    size_t bytes = cuda_embedded_bytes();
    uint32_t count;
    if (bytes < 8 || memcmp(cuda_embedded, "HNF1", 4) != 0) return 0;
    memcpy(&count, cuda_embedded + 4, 4);
    return count <= (bytes - 8) / sizeof(packed) ? count : 0;
}

// How well code of an architecture suits a card: 0 not at all.
static int suits(int arch, int cc, bool ptx_only) {
    if (arch == 0) return 1;
    if (ptx_only || arch / 10 != cc / 10 || arch > cc) return 0;
    return arch;
}

hn_status cuda_embedded_code(hone_error *err, const char *form, int cc, bool ptx_only, char **out_code, size_t *out_bytes) {
    packed best = {0}, row;
    int found = 0;
    for (size_t i = 0; i < cuda_embedded_count(); i++) {
        memcpy(&row, cuda_embedded + 8 + i * sizeof row, sizeof row);
        int suit = strncmp(row.form, form, sizeof row.form) ? 0 : suits((int)row.arch, cc, ptx_only);
        if (suit <= found) continue;
        found = suit;
        best = row;
    }
    if (!found) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "this build carries no machine code of kernel form '%s' for sm_%d", form, cc);
    HN_ASSERT((size_t)best.offset + best.packed_bytes <= cuda_embedded_bytes());
    uLongf bytes = best.bytes;
    char *code = hn_malloc((size_t)best.bytes + 1);
    if (!code) HN_NOMEM(err, "unpacking kernels");
    code[best.bytes] = 0;
    if (uncompress((Bytef *)code, &bytes, cuda_embedded + best.offset, best.packed_bytes) != Z_OK || bytes != best.bytes) {
        hn_free(code);
        HN_FAIL(err, HONE_ERR_INTERNAL, "machine code of kernel form '%s' is damaged", form);
    }
    *out_code = code;
    *out_bytes = best.bytes;
    return HONE_OK;
}

static hn_status form_function(hone_error *err, cuda_device *d, size_t form, const char *name, cuda_function *out_function) {
    hone_status status = HONE_OK;
    pthread_mutex_lock(&d->lock);
    if (!d->forms) d->forms = hn_calloc(FORMS, sizeof *d->forms);
    if (!d->forms) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (loading kernels)");
    if (status == HONE_OK && !d->forms[form]) {
        char *code;
        size_t bytes;
        status = cuda_embedded_code(err, k_forms[form].name, d->caps.cc, d->code == CUDA_CODE_PTX, &code, &bytes);
        if (status == HONE_OK) {
            status = cuda_current(err, d);
            if (status == HONE_OK) status = cuda_check(err, d, d->api->cuModuleLoadData(&d->forms[form], code), "loading kernels");
            hn_free(code);
        }
    }
    if (status == HONE_OK) status = cuda_current(err, d);
    if (status == HONE_OK) {
        int result = d->api->cuModuleGetFunction(&out_function->handle, d->forms[form], name);
        if (result == HN_CU_NOT_FOUND) status = HN_SET(err, HONE_ERR_UNSUPPORTED, "kernel form '%s' has no '%s'", k_forms[form].name, name);
        else status = cuda_check(err, d, result, "finding a kernel");
    }
    if (status == HONE_OK) cuda_function_read(d, out_function);
    pthread_mutex_unlock(&d->lock);
    return status;
}

hn_status cuda_forms_try(hone_error *err, cuda_device *d) {
    cuda_function function;
    return form_function(err, d, 0, "hn_g_float_0_1_steps", &function);
}

void cuda_forms_free(cuda_device *d) {
    for (size_t i = 0; d->forms && i < FORMS; i++)
        if (d->forms[i] && !d->lost) d->api->cuModuleUnload(d->forms[i]);
    hn_free(d->forms);
    d->forms = NULL;
}

// ---- what a kernel is told ----------------------------------------------------------------------
void cuda_spec_begin(cuda_spec *s, cuda_device *d, const char *form) {
    memset(s, 0, sizeof *s);
    s->d = d;
    while (s->form < FORMS && strcmp(k_forms[s->form].name, form))
        s->form++;
    HN_ASSERT(s->form < FORMS);
    if (!cuda_is_generic(d)) hn_str_append(&s->text, cuda_text("prelude"));
}

// Where `name` stands in a list of names: its number and, of fields, its place in the struct. The width is 0
// where it is none.
static int field_of(const char *fields, const char *name, size_t *out_at, int *out_count, char *out_kind) {
    size_t at = 0, length = strlen(name);
    for (const char *f = fields; *f; f += *f == ' ') {
        char kind = *f == '+' || *f == '.' ? *f++ : 'i';
        size_t n = strcspn(f, " ["), width = kind == '+' ? 8 : 4;
        int count = f[n] == '[' ? (int)strtol(f + n + 1, NULL, 10) : 1;
        at = (at + width - 1) / width * width;
        if (n == length && !strncmp(f, name, n)) {
            *out_at = at;
            *out_count = count;
            *out_kind = kind;
            return (int)width;
        }
        at += width * (size_t)count;
        f += strcspn(f, " ");
    }
    return 0;
}

static bool is_choice(const char *choices, const char *name, int *out_number) {
    size_t length = strlen(name);
    int number = 0;
    for (const char *c = choices; *c; c += *c == ' ') {
        while (true) {
            size_t n = strcspn(c, "+:");
            if (n == length && !strncmp(c, name, n)) {
                *out_number = number;
                return true;
            }
            number++;
            c += n + 1;
            if (c[-1] == ':') break;
        }
        c += strcspn(c, " ");
    }
    return false;
}

static void put(cuda_spec *s, const char *name, int count, const int64_t *values, double real) {
    const cuda_form *form = &k_forms[s->form];
    size_t at;
    int number, most;
    char kind;
    if (is_choice(form->choices, name, &number)) {
        HN_ASSERT(number < CUDA_MAX_CHOICES && count == 1);
        snprintf(s->choice[number], sizeof s->choice[number], "%lld", (long long)values[0]);
        return;
    }
    int width = field_of(form->fields, name, &at, &most, &kind);
    if (!width || count > most || at + (size_t)(width * count) > sizeof s->params) {
        s->unknown = name;
        return;
    }
    for (int i = 0; i < count; i++) {
        float single = (float)real;
        int32_t narrow = values ? (int32_t)values[i] : 0;
        if (kind == 'i' && narrow != values[i]) s->too_large = true;
        memcpy(s->params + at + (size_t)(i * width), kind == '.' ? (void *)&single : kind == '+' ? (const void *)&values[i] : &narrow, (size_t)width);
    }
}

void cuda_spec_type(cuda_spec *s, const char *name, const char *type) {
    int number;
    if (!cuda_is_generic(s->d)) {
        hn_str_printf(&s->text, "typedef %s %s;\n", type, name);
    } else if (is_choice(k_forms[s->form].choices, name, &number)) {
        HN_ASSERT(number < CUDA_MAX_CHOICES);
        snprintf(s->choice[number], sizeof s->choice[number], "%s", type);
    } else {
        s->unknown = name;
    }
}

void cuda_spec_int(cuda_spec *s, const char *name, int64_t value) {
    if (cuda_is_generic(s->d)) put(s, name, 1, &value, 0);
    else hn_str_printf(&s->text, "#define %s %lld%s\n", name, (long long)value, value == (int32_t)value ? "" : "ll");
}

void cuda_spec_ints(cuda_spec *s, const char *name, int count, const int64_t *values) {
    if (cuda_is_generic(s->d)) put(s, name, count, values, 0);
}

void cuda_spec_real(cuda_spec *s, const char *name, double value) {
    if (cuda_is_generic(s->d)) {
        put(s, name, 1, NULL, value);
        return;
    }
    hn_str_printf(&s->text, "#define %s ", name);
    cuda_print_number(&s->text, value);
    hn_str_append(&s->text, "\n");
}

void cuda_spec_reach(cuda_spec *s, int64_t elements) { s->too_large = s->too_large || elements >= INT32_MAX - (1 << 22); }

// ---- the kernel ---------------------------------------------------------------------------------
static hn_status specialised(hone_error *err, cuda_spec *s, const char *entry, cuda_launch *launch) {
    const cuda_form *form = &k_forms[s->form];
    for (const char *part = form->parts; *part && !s->printed; part += *part == ' ') {
        char name[32];
        size_t n = strcspn(part, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, part);
        hn_str_append(&s->text, cuda_text(name));
        part += n;
    }
    s->printed = true;
    if (s->text.failed) HN_NOMEM(err, "writing a kernel");
    return cuda_function_get(err, s->d, hn_str_get(&s->text), entry, form->exact, &launch->function);
}

hn_status cuda_spec_kernel(hone_error *err, cuda_spec *s, const char *entry, cuda_launch *launch) {
    if (!cuda_is_generic(s->d)) return specialised(err, s, entry, launch);
    if (s->unknown) HN_FAIL(err, HONE_ERR_INTERNAL, "kernel form '%s' is not told '%s'", k_forms[s->form].name, s->unknown);
    if (s->too_large) return HONE_ERR_UNSUPPORTED;
    char name[160];
    int at = snprintf(name, sizeof name, "hn_g_");
    for (int i = 0; i < CUDA_MAX_CHOICES && s->choice[i][0]; i++)
        at += snprintf(name + at, sizeof name - (size_t)at, "%s_", s->choice[i]);
    snprintf(name + at, sizeof name - (size_t)at, "%s", entry + strlen("hn_k_"));
    launch->params = s->params;
    launch->param_bytes = sizeof s->params;
    return form_function(err, s->d, s->form, name, &launch->function);
}

void cuda_spec_end(cuda_spec *s) { hn_str_free(&s->text); }
