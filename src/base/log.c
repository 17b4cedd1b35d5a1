// SPDX-License-Identifier: Apache-2.0
// Log sink: see log.h.
#include "base/log.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"

static hn_log_sink g_sink;
static void *g_user;
static hn_log_level g_max;

void hn_log_set_sink(hn_log_sink sink, void *user, hn_log_level max_level) {
    g_user = user;
    g_max = max_level;
    g_sink = sink;
}

void hn_log(hn_log_level level, const char *fmt, ...) {
    if (!g_sink || level > g_max) return;
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    char clean[sizeof text];
    hn_text_clean(clean, sizeof clean, text, strlen(text), HN_CLEAN_LINE);
    g_sink(g_user, level, clean);
}
