// SPDX-License-Identifier: Apache-2.0
// hone record: writes what replay:FILE reads.
#include "cli/cli.h"
#include "probe/recording.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

// One digit: the plain POSIX shell can redirect to no other.
#define PHASE_FD      9
#define PHASE_FD_TEXT "9"

static volatile sig_atomic_t g_stop;
static void on_signal(int number) {
    (void)number;
    g_stop = 1;
}

typedef struct job {
    pid_t child; // 0 = none
    int wait_status;
    bool ended;
} job;

static bool keep_going(void *user, double seconds, int64_t rows) {
    job *j = user;
    (void)rows;
    hn_cli_progress("recording (seconds)", seconds, 0);
    if (j->child && !j->ended && waitpid(j->child, &j->wait_status, WNOHANG) == j->child)
        j->ended = true;
    return !g_stop && !j->ended;
}

// The child finds in HONE_PHASE_FD a descriptor on which each line it writes starts a phase.
static hone_status start_child(hone_error *err, char **argv, job *j, int *out_phase_fd) {
    int ends[2];
    if (pipe(ends) != 0) HN_FAIL(err, HONE_ERR_IO, "cannot make a pipe for the command's phases");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    j->child = fork();
    if (j->child == 0) {
        if (ends[1] != PHASE_FD) {
            dup2(ends[1], PHASE_FD);
            close(ends[1]);
        }
        setenv("HONE_PHASE_FD", PHASE_FD_TEXT, 1);
        execvp(argv[0], argv);
        fprintf(stderr, "hone: cannot run '%s'\n", argv[0]);
        _exit(127);
    }
    close(ends[1]);
    if (j->child < 0) {
        close(ends[0]);
        HN_FAIL(err, HONE_ERR_IO, "cannot start '%s'", argv[0]);
    }
    *out_phase_fd = ends[0];
    return HONE_OK;
}

hone_status hn_cmd_record(hone_error *err, int argc, char **argv, int *out_exit) {
    const char *source = "", *output = NULL, *phases = NULL;
    double hz = 10, seconds = 0;
    const hn_option options[] = {
        {"o", "FILE", HN_OPT_STR, &output, "where to write; a name in .gz is compressed"},
        {"source", "SOURCE", HN_OPT_STR, &source,
         "auto, nvml, dcgm, host, nvml+host, replay:FILE, text:FILE"},
        {"hz", "N", HN_OPT_F64, &hz, "samples a second and device, 0.01 to 100 (10)"},
        {"seconds", "S", HN_OPT_F64, &seconds, "stop after this time; 0 = at the command's end, or Ctrl-C"},
        {"phases", "FILE", HN_OPT_STR, &phases, "a FIFO: each line written to it starts a phase"},
    };
    int own = argc; // options end at "--"
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            own = i;
            break;
        }
    int count;
    HN_TRY(hn_cli_parse(err, own, argv, options, HN_COUNT_OF(options), NULL, 0, &count));
    if (!output) HN_FAIL(err, HONE_ERR_USAGE, "record needs -o FILE");
    if (!(hz >= 0.01 && hz <= 100)) HN_FAIL(err, HONE_ERR_USAGE, "--hz must be from 0.01 to 100");
    if (!(seconds >= 0 && seconds <= 1e8)) HN_FAIL(err, HONE_ERR_USAGE, "--seconds must not be negative");
    if (own < argc && own + 1 == argc) HN_FAIL(err, HONE_ERR_USAGE, "no command after --");

    hn_probe *probe;
    HN_TRY(hn_probe_open(err, source, &probe));
    if (hn_probe_note(probe)[0]) hn_log(HN_LOG_WARN, "%s", hn_probe_note(probe));
    job j = {0};
    int phase_fd = -1;
    hone_status status = HONE_OK;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (own < argc)
        status = start_child(err, argv + own + 1, &j, &phase_fd);
    else if (phases && (phase_fd = open(phases, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
        status = HN_SET(err, HONE_ERR_IO, "cannot read phases from '%s'", phases);
    hn_recording_summary summary = {0};
    if (status == HONE_OK) {
        hn_recording_options run = {.path = output, .hz = hz, .seconds = seconds,
                                    .phase_fd = phase_fd, .keep_going = keep_going, .user = &j};
        status = hn_recording_run(err, probe, &run, &summary);
    }
    if (j.child && !j.ended) {
        // A full disk must not cost the command's work: it runs to its end, unrecorded.
        if (g_stop) kill(j.child, SIGTERM);
        else if (status != HONE_OK) hn_log(HN_LOG_WARN, "the recording has stopped, the command goes on: %s", err->text);
        waitpid(j.child, &j.wait_status, 0);
    }
    if (phase_fd >= 0) close(phase_fd);
    int devices = hn_probe_device_count(probe);
    hn_probe_close(probe);
    if (status != HONE_OK) return status;
    hn_cli_progress_end();
    hn_cli_printf("%s: %lld rows of %d devices over %.1f s, %lld readings late, %.2f %% of one CPU\n", output,
           (long long)summary.rows, devices, summary.seconds, (long long)summary.late,
           summary.seconds > 0 ? 100 * summary.cpu_seconds / summary.seconds : 0);
    if (j.child)
        *out_exit = WIFEXITED(j.wait_status) ? WEXITSTATUS(j.wait_status) : 128 + WTERMSIG(j.wait_status);
    return HONE_OK;
}
