// SPDX-License-Identifier: Apache-2.0
// A child process that does what may hang or crash (calls into a driver), and tells its results as
// records of one size through a pipe. The parent reads with a deadline and can end the child any
// time; where the child hangs in the kernel it stays, and the parent says so.
#ifndef HN_BASE_WATCHED_H
#define HN_BASE_WATCHED_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "base/error.h"

typedef struct hn_watched {
    pid_t pid;
    int fd;
} hn_watched;

// Runs in the child, writes records to fd (each no longer than PIPE_BUF, so that it is written whole or
// not at all). The child ends with it, without exit handlers: a driver's own may hang. SIGPIPE is
// ignored, and the child is killed when the parent's thread ends.
typedef void (*hn_watched_fn)(int fd, void *arg);
hn_status hn_watched_start(hone_error *err, hn_watched_fn fn, void *arg, hn_watched *out_child);

// One record: 1 read, 0 the child has ended, -1 nothing within timeout_s.
int hn_watched_read(const hn_watched *child, double timeout_s, void *out_record, size_t bytes);

// Kills and reaps; false if it hangs in the kernel and stays.
bool hn_watched_end(hn_watched *child);
#endif
