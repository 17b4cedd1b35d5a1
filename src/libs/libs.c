// SPDX-License-Identifier: Apache-2.0
// The dlopen loader: see libs.h.
#include "libs/libs.h"
#include "config/config.h"
#include <dlfcn.h>
#include <string.h>

static const char *last_error(void) {
    const char *text = dlerror();
    return text ? text : "no reason given";
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
