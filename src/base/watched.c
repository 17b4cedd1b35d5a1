// SPDX-License-Identifier: Apache-2.0
// Watched child processes: see watched.h.
#include "base/watched.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"

#define END_WAIT_MS 3000

hn_status hn_watched_start(hone_error *err, hn_watched_fn fn, void *arg, hn_watched *out_child) {
    int ends[2];
    if (pipe(ends) != 0) HN_FAIL(err, HONE_ERR_IO, "no pipe: %s", strerror(errno));
    fflush(NULL); // nothing that is buffered here is written twice
    pid_t pid = fork();
    if (pid < 0) {
        close(ends[0]), close(ends[1]);
        HN_FAIL(err, HONE_ERR_IO, "no process for the test: %s", strerror(errno));
    }
    if (pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        fn(ends[1], arg);
        _exit(0);
    }
    close(ends[1]);
    *out_child = (hn_watched){pid, ends[0]};
    return HONE_OK;
}

int hn_watched_read(const hn_watched *child, double timeout_s, void *out_record, size_t bytes) {
    size_t have = 0;
    int64_t until = hn_clock_ns() + (int64_t)(timeout_s * 1e9);
    while (have < bytes) {
        int64_t left = (until - hn_clock_ns()) / 1000000;
        struct pollfd poll_on = {child->fd, POLLIN, 0};
        int ready = poll(&poll_on, 1, left > 0 ? (int)left + 1 : 0);
        if (ready == 0) return -1;
        if (ready < 0 && errno == EINTR) continue;
        ssize_t n = ready < 0 ? -1 : read(child->fd, (char *)out_record + have, bytes - have);
        if (n <= 0) return 0;
        have += (size_t)n;
    }
    return 1;
}

bool hn_watched_end(hn_watched *child) {
    kill(child->pid, SIGKILL);
    close(child->fd);
    for (int waited = 0; waited < END_WAIT_MS; waited += 20) {
        if (waitpid(child->pid, NULL, WNOHANG) != 0) return true;
        hn_sleep_ns(20000000);
    }
    return false;
}
