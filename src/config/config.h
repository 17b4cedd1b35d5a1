// SPDX-License-Identifier: Apache-2.0
// Settings and command-line options. This module is the only one that reads the environment.
#ifndef HN_CONFIG_H
#define HN_CONFIG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"
#include "base/lang.h"
#include "base/str.h"

typedef const char *hn_config_str;
typedef int64_t hn_config_i64;
typedef int64_t hn_config_flag;

typedef struct hn_config {
#define HN_CONFIG(name, type, default_, min, max, doc) hn_config_##type name;
#include "config/config.def"
#undef HN_CONFIG
} hn_config;

// The process's settings: defaults, then environment, then what hn_options_parse stored. A broken
// environment value is reported by hn_config_init and leaves the default.
const hn_config *hn_config_get(void);
hn_status hn_config_init(hone_error *err); // reads the environment; call once at start
void hn_config_dump(hn_str *out);          // name = value, one a line
void hn_config_help(hn_str *out);
// The language by the setting, else by the locale of the environment.
hn_status hn_config_lang(hone_error *err, hn_lang *out_lang);
// The value of an environment variable that is not a setting (HOME, XDG_CACHE_HOME, a library's
// override path, SLURM_*), or NULL.
const char *hn_config_env(const char *name);

// ---- options of one command -------------------------------------------------------------------
typedef enum hn_option_type {
    HN_OPT_FLAG, // bool *
    HN_OPT_I64,  // int64_t *
    HN_OPT_F64,  // double *
    HN_OPT_STR,  // const char ** (borrowed from argv)
    HN_OPT_LIST, // hn_option_list *: the option may be repeated
} hn_option_type;

#define HN_OPTION_LIST_MAX 64
typedef struct hn_option_list {
    const char *items[HN_OPTION_LIST_MAX];
    int count;
} hn_option_list;

typedef struct hn_option {
    const char *name; // "--vs" without dashes; "o" and other single letters are given as -o
    const char *meta; // "FILE" in help texts; NULL for flags
    hn_option_type type;
    void *target;
    const char *doc;
} hn_option;

// Parses argv against the command's rows and the global settings. Accepts --name value, --name=value
// and -x value; "--" ends the options. What is left (in order) goes to positional, at most
// max_positional of them. Unknown options, missing or bad values are HONE_ERR_USAGE.
hn_status hn_options_parse(hone_error *err, int argc, char **argv, const hn_option *options,
                           size_t option_count, const char **positional, int max_positional,
                           int *out_positional_count);
void hn_options_help(hn_str *out, const hn_option *options, size_t option_count);
#endif
