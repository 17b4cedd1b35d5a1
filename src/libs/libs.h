// SPDX-License-Identifier: Apache-2.0
// Loading foreign libraries: one table of rows a library, one loader for all.
//
// A library is described in libs/<lib>.def by rows HN_SYMBOL(need, result, name, arguments), with
// need = required or optional. libs/<lib>.h makes from them a struct of function pointers; the
// spec names the files to try. A missing library is HONE_ERR_UNSUPPORTED with a sentence a user
// understands; a missing required symbol names it; missing optional symbols are NULL pointers.
#ifndef HN_LIBS_H
#define HN_LIBS_H
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

typedef struct hn_lib_symbol {
    const char *name;
    size_t offset; // of the function pointer in the table
    bool required;
} hn_lib_symbol;

typedef struct hn_lib_spec {
    const char *title;        // "oneDNN"
    const char *env_override; // environment variable with a path that is tried first, or NULL
    const char *const *names; // file names in order, NULL-terminated
    const char *cuda_file;    // pattern of a file of CUDA's: toolkits and Python wheels are searched
                              // after the names; NULL: no
    const hn_lib_symbol *symbols;
    size_t symbol_count;
    const char *missing_hint; // what to install, or NULL
} hn_lib_spec;

typedef struct hn_lib {
    void *handle;
    const char *loaded_name; // the name that worked: borrowed from the spec or the environment
} hn_lib;

// Fills the function pointers of `table`. The table is untouched on failure.
hn_status hn_lib_open(hone_error *err, const hn_lib_spec *spec, void *table, hn_lib *out_lib);
void hn_lib_close(hn_lib *lib);

// Helpers for the rows: include the .def twice with these.
#define HN_LIB_FIELD(need, result, name, args) result(*name) args;
#define HN_LIB_ROW(table_type, need, name)                                                         \
    { #name, offsetof(table_type, name), HN_LIB_##need }
#define HN_LIB_required true
#define HN_LIB_optional false
#endif
