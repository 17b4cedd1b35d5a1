// SPDX-License-Identifier: Apache-2.0
// nvidia-smi -q (indented text) and -q -x (XML by expat): both are trees of names over values, and
// both end in one function that takes a path under a card and its value.
#include <ctype.h>
#include <expat.h>
#include <stdio.h>
#include "probe/text_int.h"

#define DEPTH_MAX 24
#define PATH_BYTES 512

typedef struct tree {
    hn_text *text;
    int gpu, mig; // current devices, -1 = none
    int process;  // current process in text->processes, -1 = none
    int64_t gi, ci; // of the next process
    int line;
    bool failed;  // out of memory or limits
} tree;

static void start_gpu(tree *t, hn_slice bus_id) {
    t->gpu = hn_text_add_device(t->text, HN_DEVICE_GPU, -1);
    t->mig = t->process = -1;
    t->gi = t->ci = -1;
    if (t->gpu < 0 || !hn_text_add_row(t->text, t->gpu)) {
        t->failed = true;
        return;
    }
    hn_device_info *info = &t->text->devices.data[t->gpu];
    snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "%.*s", (int)(bus_id.length < 64 ? bus_id.length : 64),
             bus_id.data);
}

static void start_mig(tree *t) {
    t->mig = hn_text_add_device(t->text, HN_DEVICE_MIG, t->gpu);
    if (t->mig < 0 || !hn_text_add_row(t->text, t->mig)) t->failed = true;
}

static int64_t number_or(hn_slice value, int64_t otherwise) {
    int64_t number;
    return hn_parse_i64(hn_slice_trim(value), &number) ? number : otherwise;
}

// Values of one process, in the order the tool prints them: instance ids come before the pid.
static void take_process(tree *t, hn_slice key, hn_slice value) {
    hn_text_process *now = t->process >= 0 ? &t->text->processes.data[t->process] : NULL;
    if (hn_slice_eq(key, "gpu_instance_id")) {
        t->gi = number_or(value, -1);
    } else if (hn_slice_eq(key, "compute_instance_id")) {
        t->ci = number_or(value, -1);
    } else if (hn_slice_eq(key, "process_id") || hn_slice_eq(key, "pid")) {
        now = hn_text_add_process(t->text, t->gpu);
        t->process = now ? (int)t->text->processes.count - 1 : -1;
        if (!now) return;
        now->process.pid = number_or(value, -1);
        now->process.gi_id = t->gi;
        now->process.ci_id = t->ci;
        t->gi = t->ci = -1;
    } else if (!now) {
        return;
    } else if (hn_slice_eq(key, "type")) {
        for (size_t i = 0; i < value.length; i++)
            now->process.type |= value.data[i] == 'C'   ? HN_PROCESS_COMPUTE
                                 : value.data[i] == 'G' ? HN_PROCESS_GRAPHICS
                                                        : 0;
    } else if (hn_slice_eq(key, "name") || hn_slice_eq(key, "process_name")) {
        snprintf(now->process.name, sizeof now->process.name, "%.*s",
                 (int)(value.length < 200 ? value.length : 200), value.data);
    } else if (hn_slice_eq(key, "used_gpu_memory") || hn_slice_eq(key, "used_memory")) {
        double bytes;
        if (hn_text_quantity(value, (hn_slice){0}, "B", &bytes) && bytes >= 0 && bytes < 0x1p62)
            now->process.used_bytes = (int64_t)bytes;
    }
}

static bool strip(hn_slice *path, const char *prefix) {
    if (!hn_slice_starts(*path, prefix)) return false;
    size_t length = strlen(prefix);
    path->data += length;
    path->length -= length;
    return true;
}

// A value under the current card.
static void take(tree *t, hn_slice path, hn_slice value) {
    if (t->failed) return;
    if (t->gpu < 0) {
        char *to = hn_slice_eq(path, "driver_version") ? t->text->driver
                   : hn_slice_eq(path, "cuda_version") ? t->text->cuda
                                                       : NULL;
        if (to && !hn_text_is_absent(value))
            snprintf(to, HN_INFO_BYTES, "%.*s", (int)(value.length < 64 ? value.length : 64), value.data);
        return;
    }
    if (strip(&path, "processes/process_info/") || strip(&path, "processes/")) {
        const char *slash = memrchr(path.data, '/', path.length); // type, name... lie below the pid
        if (slash) {
            path.length -= (size_t)(slash + 1 - path.data);
            path.data = slash + 1;
        }
        take_process(t, path, value);
        return;
    }
    if (strip(&path, "mig_devices/mig_device/") || strip(&path, "mig_device/")) {
        if (t->mig < 0) return;
        hn_text_row *row = hn_text_last_row(t->text, t->mig);
        if (row) hn_text_put(t->text, HN_TEXT_mig, path, value, (hn_slice){0}, t->mig, &row->sample);
        return;
    }
    hn_text_row *row = hn_text_last_row(t->text, t->gpu);
    if (row) hn_text_put(t->text, HN_TEXT_tree, path, value, (hn_slice){0}, t->gpu, &row->sample);
}

// The processes of each card, if any card lists them, and the time of all rows.
static void finish(tree *t, int64_t wall_ns) {
    for (size_t i = 0; i < t->text->rows.count; i++)
        t->text->rows.data[i].sample.wall_ns = wall_ns;
}

// ---- -q ---------------------------------------------------------------------------------------
typedef struct level {
    size_t indent, path_length; // path up to and with this name
} level;

static size_t append_name(char *path, size_t at, hn_slice name) {
    if (at && at + 1 < PATH_BYTES) path[at++] = '/';
    for (size_t i = 0; i < name.length && at + 1 < PATH_BYTES; i++)
        path[at++] = (char)(name.data[i] == ' ' ? '_' : tolower((unsigned char)name.data[i]));
    return at;
}

hone_status hn_text_read_q(hone_error *err, const char *name, hn_slice data, hn_text *text) {
    tree t = {.text = text, .gpu = -1, .mig = -1, .process = -1, .gi = -1, .ci = -1};
    level stack[DEPTH_MAX];
    int depth = 0;
    char path[PATH_BYTES];
    int64_t wall_ns = 0;
    hn_slice line;
    while (hn_slice_line(&data, &line) && !t.failed) {
        t.line++;
        size_t indent = 0;
        while (indent < line.length && line.data[indent] == ' ')
            indent++;
        hn_slice body = hn_slice_trim(line);
        if (body.length == 0 || body.data[0] == '=') continue;
        if (indent == 0 && hn_slice_starts(body, "GPU ")) {
            start_gpu(&t, hn_slice_trim((hn_slice){body.data + 4, body.length - 4}));
            depth = 0;
            continue;
        }
        const char *colon = memmem(body.data, body.length, " : ", 3);
        hn_slice key = body, value = {"", 0};
        bool empty = !colon && body.data[body.length - 1] == ':'; // "Retired pages :"
        if (colon) {
            key.length = (size_t)(colon - body.data);
            value = hn_slice_trim((hn_slice){colon + 3, body.length - key.length - 3});
        } else if (empty) {
            key.length--;
        }
        key = hn_slice_trim(key);
        while (depth > 0 && stack[depth - 1].indent >= indent)
            depth--;
        if (depth == DEPTH_MAX) {
            hn_text_skip(text, t.line);
            continue;
        }
        size_t length = append_name(path, depth ? stack[depth - 1].path_length : 0, key);
        stack[depth++] = (level){indent, length};
        hn_slice full = {path, length};
        if (!colon && !empty) {
            if (hn_slice_eq(full, "mig_device") && t.gpu >= 0) start_mig(&t);
            continue;
        }
        if (t.gpu < 0 && hn_slice_eq(full, "timestamp")) wall_ns = hn_text_time(value);
        take(&t, full, value);
    }
    if (t.failed) HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many cards or rows", name, t.line);
    finish(&t, wall_ns);
    return HONE_OK;
}

// ---- XML --------------------------------------------------------------------------------------
typedef struct xml_state {
    tree t;
    XML_Parser parser;
    char path[PATH_BYTES]; // under the card
    size_t path_length, lengths[DEPTH_MAX];
    int depth, skipping;   // depth below nvidia_smi_log; levels inside something too deep
    char value[256];
    size_t value_length;
    bool has_child, entity;
    int64_t wall_ns;
} xml_state;

static void XMLCALL on_start(void *user, const XML_Char *tag, const XML_Char **attributes) {
    xml_state *x = user;
    x->value_length = 0;
    x->has_child = false;
    if (strcmp(tag, "nvidia_smi_log") == 0 && x->depth == 0 && !x->skipping) return;
    if (strcmp(tag, "gpu") == 0 && x->depth == 0 && !x->skipping) {
        const char *id = "";
        for (const XML_Char **a = attributes; a[0]; a += 2)
            if (strcmp(a[0], "id") == 0) id = a[1];
        start_gpu(&x->t, (hn_slice){id, strlen(id)});
    }
    if (x->skipping || x->depth == DEPTH_MAX) {
        x->skipping++;
        return;
    }
    x->lengths[x->depth++] = x->path_length;
    if (x->depth == 1 && strcmp(tag, "gpu") == 0) return; // paths are under the card
    x->path_length = append_name(x->path, x->path_length, (hn_slice){tag, strlen(tag)});
    if (hn_slice_eq((hn_slice){x->path, x->path_length}, "mig_devices/mig_device") && x->t.gpu >= 0)
        start_mig(&x->t);
}

static void XMLCALL on_end(void *user, const XML_Char *tag) {
    xml_state *x = user;
    if (strcmp(tag, "nvidia_smi_log") == 0 && x->depth == 0 && !x->skipping) return;
    if (x->skipping) {
        x->skipping--;
        return;
    }
    if (x->depth == 0) return;
    if (!x->has_child && x->path_length) {
        hn_slice path = {x->path, x->path_length},
                 value = hn_slice_trim((hn_slice){x->value, x->value_length});
        if (x->t.gpu < 0 && hn_slice_eq(path, "timestamp")) x->wall_ns = hn_text_time(value);
        take(&x->t, path, value);
    }
    x->path_length = x->lengths[--x->depth];
    if (x->depth == 0 && strcmp(tag, "gpu") == 0) x->t.gpu = -1;
    x->has_child = true;
    if (x->t.failed) XML_StopParser(x->parser, XML_FALSE);
}

static void XMLCALL on_text(void *user, const XML_Char *text, int length) {
    xml_state *x = user;
    size_t take_bytes = (size_t)length;
    if (take_bytes > sizeof x->value - x->value_length) take_bytes = sizeof x->value - x->value_length;
    memcpy(x->value + x->value_length, text, take_bytes);
    x->value_length += take_bytes;
}

// The tool declares no entities; a text that does is not the tool's.
static void XMLCALL on_entity(void *user, const XML_Char *entity, int is_parameter,
                              const XML_Char *value, int length, const XML_Char *base,
                              const XML_Char *system, const XML_Char *public_id,
                              const XML_Char *notation) {
    (void)entity, (void)is_parameter, (void)value, (void)length, (void)base, (void)system,
        (void)public_id, (void)notation;
    xml_state *x = user;
    x->entity = true;
    XML_StopParser(x->parser, XML_FALSE);
}

static void *xml_malloc(size_t bytes) { return hn_malloc(bytes); }
static void *xml_realloc(void *block, size_t bytes) { return hn_realloc(block, bytes); }
static void xml_free(void *block) { hn_free(block); }

hone_status hn_text_read_xml(hone_error *err, const char *name, hn_slice data, hn_text *text) {
    static const XML_Memory_Handling_Suite k_memory = {xml_malloc, xml_realloc, xml_free};
    xml_state x = {.t = {.text = text, .gpu = -1, .mig = -1, .process = -1, .gi = -1, .ci = -1}};
    x.parser = XML_ParserCreate_MM(NULL, &k_memory, NULL);
    if (!x.parser) HN_NOMEM(err, "XML");
    XML_SetUserData(x.parser, &x);
    XML_SetElementHandler(x.parser, on_start, on_end);
    XML_SetCharacterDataHandler(x.parser, on_text);
    XML_SetEntityDeclHandler(x.parser, on_entity);
    enum XML_Status result = XML_Parse(x.parser, data.data, (int)data.length, 1);
    hone_status status = HONE_OK;
    unsigned long line = XML_GetCurrentLineNumber(x.parser);
    if (x.t.failed)
        status = HN_SET(err, HONE_ERR_LIMIT, "%s: line %lu: too many cards", name, line);
    else if (x.entity)
        status = HN_SET(err, HONE_ERR_FORMAT, "%s: line %lu: entity declarations are refused", name, line);
    else if (result != XML_STATUS_OK)
        status = HN_SET(err, HONE_ERR_FORMAT, "%s: line %lu: broken XML: %s", name, line,
                        XML_ErrorString(XML_GetErrorCode(x.parser)));
    XML_ParserFree(x.parser);
    if (status == HONE_OK) finish(&x.t, x.wall_ns);
    return status;
}
