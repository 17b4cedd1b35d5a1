// SPDX-License-Identifier: Apache-2.0
// hone phase: inside hone exec or hone record, says that a phase begins.
#include "cli/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

hone_status hn_cmd_phase(hone_error *err, int argc, char **argv, int *out_exit) {
    const char *name = NULL;
    int count;
    (void)out_exit;
    HN_TRY(hn_cli_parse(err, argc, argv, NULL, 0, &name, 1, &count));
    if (!name || !*name) HN_FAIL(err, HONE_ERR_USAGE, "phase needs a name: train, validate, infer, idle, or another word");
    if (strpbrk(name, "\r\n") || strlen(name) > 63)
        HN_FAIL(err, HONE_ERR_USAGE, "a phase's name is one line of at most 63 bytes");
    const char *file = hn_config_env("HONE_PHASE_FILE"), *fd_text = hn_config_env("HONE_PHASE_FD");
    int64_t number;
    int fd = file ? open(file, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0 && fd_text && hn_parse_i64((hn_slice){fd_text, strlen(fd_text)}, &number) && number >= 0 && number < 1 << 20)
        fd = (int)number;
    if (fd < 0) HN_FAIL(err, HONE_ERR_CHECK, "nobody asks for phases: this is not below hone exec or hone record");
    char line[80];
    size_t length = (size_t)snprintf(line, sizeof line, "%s\n", name);
    signal(SIGPIPE, SIG_IGN);
    if (write(fd, line, length) != (ssize_t)length)
        HN_FAIL(err, HONE_ERR_IO, "the phase cannot be told: %s", strerror(errno));
    return HONE_OK;
}
