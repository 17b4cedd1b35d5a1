// SPDX-License-Identifier: Apache-2.0
// Progress and diagnostics. The library never prints: messages go to a sink that the command (or
// the embedding program) installs; without one they are dropped.
#ifndef HN_BASE_LOG_H
#define HN_BASE_LOG_H

typedef enum hn_log_level { HN_LOG_ERROR, HN_LOG_WARN, HN_LOG_INFO, HN_LOG_DEBUG } hn_log_level;
typedef void (*hn_log_sink)(void *user, hn_log_level level, const char *text);

// Set once before worker threads start.
void hn_log_set_sink(hn_log_sink sink, void *user, hn_log_level max_level);
void hn_log(hn_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#endif
