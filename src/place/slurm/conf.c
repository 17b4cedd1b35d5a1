// SPDX-License-Identifier: Apache-2.0
// Slurm's configuration files: lines of Key=Value pairs, '#' comments, '\' at a line's end
// continues it, Include reads another file in its place. Host lists with brackets.
#include "place/slurm/slurm.h"
#include <ctype.h>
#include <strings.h>

#define FILE_MAX_BYTES (16 << 20)
#define INCLUDE_MAX    8 // levels; a file that includes itself is an error, not a hang

static hn_status parse_into(hone_error *err, hn_slurm_conf *conf, const char *path, hn_slice text,
                            int level);

static hn_status add_line(hone_error *err, hn_slurm_conf *conf, const char *text, int64_t number) {
    HN_VEC(hn_slurm_pair) pairs = {0};
    const char *at = text;
    bool good = true;
    while (*at && good) {
        while (isspace((unsigned char)*at))
            at++;
        if (!*at) break;
        size_t key = strcspn(at, "= \t"), value;
        const char *rest = at + key;
        while (*rest == ' ' || *rest == '\t')
            rest++;
        if (*rest == '=') {
            rest++;
            while (*rest == ' ' || *rest == '\t')
                rest++;
        } else {
            rest = at + key; // a bare word: key without a value
        }
        const char *start = rest;
        if (*rest == '"') {
            start = ++rest;
            value = strcspn(rest, "\"");
            rest += value + (rest[value] == '"');
        } else {
            value = rest == at + key ? 0 : strcspn(rest, " \t");
            rest += value;
        }
        hn_slurm_pair pair = {hn_arena_strndup(&conf->arena, at, key),
                              hn_arena_strndup(&conf->arena, start, value)};
        good = pair.key && pair.value && hn_vec_push(&pairs, pair);
        at = rest;
    }
    hn_slurm_pair *kept = good ? hn_arena_array(&conf->arena, pairs.count + 1, sizeof *kept) : NULL;
    if (kept && pairs.count) memcpy(kept, pairs.data, pairs.count * sizeof *kept);
    hn_slurm_line line = {kept, pairs.count, number};
    bool stored = kept && (pairs.count == 0 || hn_vec_push(&conf->lines, line));
    hn_vec_free(&pairs);
    if (!stored) HN_NOMEM(err, "a configuration line");
    return HONE_OK;
}

static hn_status include(hone_error *err, hn_slurm_conf *conf, const char *from, const char *name,
                         int level) {
    while (isspace((unsigned char)*name))
        name++;
    if (level >= INCLUDE_MAX)
        HN_FAIL(err, HONE_ERR_FORMAT, "'%s' includes files more than %d levels deep", from,
                INCLUDE_MAX);
    const char *slash = strrchr(from, '/');
    char *path = name[0] == '/' || !slash
                     ? hn_arena_strdup(&conf->arena, name)
                     : hn_arena_printf(&conf->arena, "%.*s/%s", (int)(slash - from), from, name);
    if (!path) HN_NOMEM(err, "a path");
    char *data;
    size_t bytes;
    HN_TRY_CTX(err, hn_file_read(err, path, FILE_MAX_BYTES, &data, &bytes), "included by '%s'",
               from);
    hone_status status = parse_into(err, conf, path, (hn_slice){data, bytes}, level + 1);
    hn_free(data);
    return status;
}

// Cuts a comment; "\#" is a plain '#'.
static size_t before_comment(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (text[i] == '#' && (i == 0 || text[i - 1] != '\\')) return i;
    return length;
}

static hn_status take_line(hone_error *err, hn_slurm_conf *conf, const char *path, hn_str *whole,
                           int64_t number, int level) {
    const char *text = hn_str_get(whole);
    while (isspace((unsigned char)*text))
        text++;
    hone_status status = HONE_OK;
    if (strncasecmp(text, "include", 7) == 0 && isspace((unsigned char)text[7])) {
        char name[1024];
        snprintf(name, sizeof name, "%s", text + 8);
        name[strcspn(name, " \t\r\n")] = '\0';
        status = include(err, conf, path, name, level);
    } else if (*text) {
        status = add_line(err, conf, text, number);
    }
    whole->length = 0;
    if (whole->data) whole->data[0] = '\0';
    return status;
}

static hn_status parse_into(hone_error *err, hn_slurm_conf *conf, const char *path, hn_slice text,
                            int level) {
    hn_str whole = {0};
    hn_slice line;
    int64_t number = 0, first = 0;
    hone_status status = HONE_OK;
    while (status == HONE_OK && hn_slice_line(&text, &line)) {
        number++;
        if (memchr(line.data, '\0', line.length)) {
            status = HN_SET(err, HONE_ERR_FORMAT, "'%s' line %lld holds a NUL byte", path,
                            (long long)number);
            break;
        }
        line.length = before_comment(line.data, line.length);
        while (line.length && isspace((unsigned char)line.data[line.length - 1]))
            line.length--;
        bool more = line.length && line.data[line.length - 1] == '\\';
        if (more) line.length--;
        if (!first) first = number;
        hn_str_append_n(&whole, line.data, line.length);
        if (more) {
            hn_str_append_n(&whole, " ", 1);
            continue;
        }
        status = take_line(err, conf, path, &whole, first, level);
        first = 0;
    }
    if (status == HONE_OK && whole.length)
        status = take_line(err, conf, path, &whole, first, level);
    if (whole.failed && status == HONE_OK)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading '%s')", path);
    hn_str_free(&whole);
    return status;
}

hn_status hn_slurm_conf_parse(hone_error *err, const char *path, hn_slice text,
                              hn_slurm_conf *out_conf) {
    hn_slurm_conf conf = {0};
    conf.path = hn_arena_strdup(&conf.arena, path);
    hone_status status = conf.path
                             ? parse_into(err, &conf, path, text, 0)
                             : HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading '%s')", path);
    if (status != HONE_OK) {
        hn_slurm_conf_free(&conf);
        return status;
    }
    *out_conf = conf;
    return HONE_OK;
}

hn_status hn_slurm_conf_read(hone_error *err, const char *path, hn_slurm_conf *out_conf) {
    char *data;
    size_t bytes;
    HN_TRY(hn_file_read(err, path, FILE_MAX_BYTES, &data, &bytes));
    hone_status status = hn_slurm_conf_parse(err, path, (hn_slice){data, bytes}, out_conf);
    hn_free(data);
    return status;
}

void hn_slurm_conf_free(hn_slurm_conf *conf) {
    hn_vec_free(&conf->lines);
    hn_arena_free(&conf->arena);
}

const char *hn_slurm_line_get(const hn_slurm_line *line, const char *key) {
    for (size_t i = 0; i < line->count; i++)
        if (strcasecmp(line->pairs[i].key, key) == 0) return line->pairs[i].value;
    return NULL;
}

const char *hn_slurm_conf_get(const hn_slurm_conf *conf, const char *key) {
    for (size_t i = conf->lines.count; i-- > 0;)
        if (strcasecmp(conf->lines.data[i].pairs[0].key, key) == 0)
            return conf->lines.data[i].pairs[0].value;
    return NULL;
}

// ---- host lists -------------------------------------------------------------------------------
typedef struct expander {
    bool (*take)(void *user, const char *name, int index);
    void *user;
    int index;
    bool stopped, limit;
} expander;

// Expands the first bracket of text[at..], name so far in `name`.
static bool expand(expander *ex, char *name, size_t used, const char *text, size_t length) {
    if (ex->stopped || ex->limit) return true;
    if (used + length >= 1000) return false;
    const char *open = memchr(text, '[', length);
    if (!open) {
        if (memchr(text, ']', length)) return false;
        memcpy(name + used, text, length);
        name[used + length] = '\0';
        if (ex->index >= HN_SLURM_NAMES_MAX)
            ex->limit = true;
        else if (!ex->take(ex->user, name, ex->index++))
            ex->stopped = true;
        return true;
    }
    size_t before = (size_t)(open - text);
    const char *close = memchr(open, ']', length - before);
    if (!close) return false;
    memcpy(name + used, text, before);
    used += before;
    const char *at = open + 1, *rest = close + 1;
    size_t rest_length = length - (size_t)(rest - text);
    if (at == close) return false;
    while (at < close) {
        const char *end = memchr(at, ',', (size_t)(close - at));
        if (!end) end = close;
        const char *dash = memchr(at, '-', (size_t)(end - at));
        hn_slice low = {at, (size_t)((dash ? dash : end) - at)};
        hn_slice high = dash ? (hn_slice){dash + 1, (size_t)(end - dash) - 1} : low;
        int64_t from, to;
        if (!hn_parse_i64(low, &from) || !hn_parse_i64(high, &to) || from < 0 || to < from ||
            to - from >= HN_SLURM_NAMES_MAX || low.length > 18)
            return false;
        for (int64_t n = from; n <= to && !ex->stopped && !ex->limit; n++) {
            int digits = snprintf(name + used, 24, "%0*lld", (int)low.length, (long long)n);
            if (!expand(ex, name, used + (size_t)digits, rest, rest_length)) return false;
        }
        at = end + 1;
    }
    return true;
}

hn_status hn_slurm_hostlist(hone_error *err, const char *text,
                            bool (*take)(void *user, const char *name, int index), void *user) {
    expander ex = {take, user, 0, false, false};
    char name[1100];
    const char *at = text;
    while (*at && !ex.stopped) {
        size_t length = 0;
        int depth = 0;
        while (at[length] && (at[length] != ',' || depth)) {
            depth += at[length] == '[' ? 1 : at[length] == ']' ? -1 : 0;
            length++;
        }
        if (length && !expand(&ex, name, 0, at, length))
            HN_FAIL(err, HONE_ERR_FORMAT, "'%.100s' is no list of names", text);
        if (ex.limit)
            HN_FAIL(err, HONE_ERR_LIMIT, "'%.100s' has more than %d names", text,
                    HN_SLURM_NAMES_MAX);
        at += length;
        if (*at == ',') at++;
    }
    return HONE_OK;
}

static bool is_other_name(void *user, const char *name, int index) {
    (void)index;
    const char **wanted = user;
    if (strcmp(name, *wanted) != 0) return true;
    *wanted = NULL;
    return false;
}

bool hn_slurm_hostlist_has(const char *text, const char *name) {
    const char *wanted = name;
    hone_error err;
    return hn_slurm_hostlist(&err, text, is_other_name, &wanted) == HONE_OK && !wanted;
}
