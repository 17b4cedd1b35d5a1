// SPDX-License-Identifier: Apache-2.0
// Settings and options: see config.h.
#include "config/config.h"
#include "base/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static hn_config g_config = {
#define HN_CONFIG(name, type, default_, min, max, doc) .name = default_,
#include "config/config.def"
#undef HN_CONFIG
};

typedef enum setting_type { TYPE_i64, TYPE_str, TYPE_flag } setting_type;
static const struct setting {
    const char *name;
    setting_type type;
    void *target;
    int64_t min, max;
    const char *doc;
} k_settings[] = {
#define HN_CONFIG(name, type, default_, min, max, doc)                                             \
    {#name, TYPE_##type, &g_config.name, min, max, doc},
#include "config/config.def"
#undef HN_CONFIG
};

const hn_config *hn_config_get(void) { return &g_config; }

const char *hn_config_env(const char *name) { return getenv(name); }

// "--plan-cache-bytes" and "plan_cache_bytes" are one name.
static bool same_name(const char *setting, const char *flag, size_t length) {
    if (strlen(setting) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (setting[i] != (flag[i] == '-' ? '_' : flag[i])) return false;
    return true;
}

static bool parse_scaled(const char *text, int64_t *out) {
    size_t length = strlen(text);
    int64_t scale = 1;
    if (length) {
        switch (text[length - 1]) {
        case 'k': scale = 1 << 10; break;
        case 'M': scale = 1 << 20; break;
        case 'G': scale = 1 << 30; break;
        }
    }
    if (scale != 1) length--;
    return hn_parse_i64((hn_slice){text, length}, out) && hn_mul_i64(*out, scale, out);
}

static hone_status store(hone_error *err, const struct setting *s, const char *text,
                         const char *where) {
    if (s->type == TYPE_str) {
        *(const char **)s->target = text;
        return HONE_OK;
    }
    int64_t value, max = s->type == TYPE_flag ? 1 : s->max;
    if (!parse_scaled(text, &value) || value < s->min || value > max)
        HN_FAIL(err, HONE_ERR_USAGE, "%s: '%s' is not a whole number from %lld to %lld", where,
                text, (long long)s->min, (long long)max);
    *(int64_t *)s->target = value;
    return HONE_OK;
}

hn_status hn_config_init(hone_error *err) {
    hone_status first = HONE_OK;
    for (size_t i = 0; i < HN_COUNT_OF(k_settings); i++) {
        char name[64] = "HONE_";
        size_t at = 5;
        for (const char *c = k_settings[i].name; *c && at + 1 < sizeof name; c++)
            name[at++] = (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
        name[at] = '\0';
        const char *text = getenv(name);
        if (!text || !*text) continue;
        hone_status status = store(first == HONE_OK ? err : NULL, &k_settings[i], text, name);
        if (first == HONE_OK) first = status;
    }
    return first;
}

hn_status hn_config_lang(hone_error *err, hn_lang *out_lang) {
    static const char *const k_locale[] = {"LC_ALL", "LC_MESSAGES", "LANG"};
    if (*g_config.lang) {
        if (!hn_lang_named(g_config.lang, out_lang))
            HN_FAIL(err, HONE_ERR_USAGE, "lang: '%s' is neither en nor zh", g_config.lang);
        return HONE_OK;
    }
    const char *locale = NULL;
    for (size_t i = 0; i < HN_COUNT_OF(k_locale) && (!locale || !*locale); i++)
        locale = getenv(k_locale[i]);
    *out_lang = hn_lang_of_locale(locale ? locale : "");
    return HONE_OK;
}

void hn_config_dump(hn_str *out) {
    for (size_t i = 0; i < HN_COUNT_OF(k_settings); i++) {
        if (k_settings[i].type == TYPE_str)
            hn_str_printf(out, "%s = %s\n", k_settings[i].name,
                          *(const char **)k_settings[i].target);
        else
            hn_str_printf(out, "%s = %lld\n", k_settings[i].name,
                          (long long)*(int64_t *)k_settings[i].target);
    }
}

static void help_line(hn_str *out, const char *name, const char *meta, const char *doc) {
    char left[64];
    bool letter = name[1] == '\0';
    snprintf(left, sizeof left, "%s%s%s%s", letter ? "-" : "--", name, meta ? " " : "",
             meta ? meta : "");
    for (char *c = left + (letter ? 1 : 2); *c && *c != ' '; c++)
        if (*c == '_') *c = '-';
    char text[HN_LANG_BYTES];
    hn_str_printf(out, "  %-24s %s\n", left, hn_lang_text(doc, text));
}

void hn_config_help(hn_str *out) {
    for (size_t i = 0; i < HN_COUNT_OF(k_settings); i++)
        help_line(out, k_settings[i].name, k_settings[i].type == TYPE_str ? "TEXT" : "N",
                  k_settings[i].doc);
}

void hn_options_help(hn_str *out, const hn_option *options, size_t option_count) {
    for (size_t i = 0; i < option_count; i++)
        help_line(out, options[i].name, options[i].meta, options[i].doc);
}

static hone_status store_option(hone_error *err, const hn_option *option, const char *text,
                                const char *shown) {
    switch (option->type) {
    case HN_OPT_FLAG: *(bool *)option->target = true; return HONE_OK;
    case HN_OPT_I64:
        if (!parse_scaled(text, option->target))
            HN_FAIL(err, HONE_ERR_USAGE, "%s: '%s' is not a whole number", shown, text);
        return HONE_OK;
    case HN_OPT_F64:
        // No option has a use for NaN or infinity, and NaN slips through range checks.
        if (!hn_parse_f64((hn_slice){text, strlen(text)}, option->target) ||
            !isfinite(*(double *)option->target))
            HN_FAIL(err, HONE_ERR_USAGE, "%s: '%s' is not a number", shown, text);
        return HONE_OK;
    case HN_OPT_STR: *(const char **)option->target = text; return HONE_OK;
    case HN_OPT_LIST: {
        hn_option_list *list = option->target;
        if (list->count == HN_OPTION_LIST_MAX)
            HN_FAIL(err, HONE_ERR_USAGE, "%s: given more than %d times", shown, HN_OPTION_LIST_MAX);
        list->items[list->count++] = text;
        return HONE_OK;
    }
    }
    HN_FAIL(err, HONE_ERR_INTERNAL, "option %s has no type", shown);
}

hn_status hn_options_parse(hone_error *err, int argc, char **argv, const hn_option *options,
                           size_t option_count, const char **positional, int max_positional,
                           int *out_positional_count) {
    int count = 0;
    bool only_positional = false;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_positional && strcmp(arg, "--") == 0) {
            only_positional = true;
            continue;
        }
        if (only_positional || arg[0] != '-' || arg[1] == '\0') {
            if (count == max_positional)
                HN_FAIL(err, HONE_ERR_USAGE, "'%s' is one argument too many", arg);
            positional[count++] = arg;
            continue;
        }
        const char *name = arg[1] == '-' ? arg + 2 : arg + 1;
        const char *equals = arg[1] == '-' ? strchr(name, '=') : NULL;
        size_t length = equals ? (size_t)(equals - name) : strlen(name);
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[i + 1] : NULL;
        const hn_option *option = NULL;
        const struct setting *setting = NULL;
        for (size_t k = 0; k < option_count && !option; k++)
            if (same_name(options[k].name, name, length) ||
                (strlen(options[k].name) == length && memcmp(options[k].name, name, length) == 0))
                option = &options[k];
        for (size_t k = 0; !option && k < HN_COUNT_OF(k_settings) && !setting; k++)
            if (same_name(k_settings[k].name, name, length)) setting = &k_settings[k];
        if (!option && !setting) HN_FAIL(err, HONE_ERR_USAGE, "unknown option '%s'", arg);
        bool flag = option && option->type == HN_OPT_FLAG;
        if (flag && equals) HN_FAIL(err, HONE_ERR_USAGE, "'%s' takes no value", arg);
        if (!flag && !value) HN_FAIL(err, HONE_ERR_USAGE, "'%s' needs a value", arg);
        HN_TRY(option ? store_option(err, option, value, arg) : store(err, setting, value, arg));
        if (!flag && !equals) i++;
    }
    *out_positional_count = count;
    return HONE_OK;
}
