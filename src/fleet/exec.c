// SPDX-License-Identifier: Apache-2.0
// Running a command: see exec.h. One loop waits for signals, the command's end and its output.
#include "fleet/exec.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fleet/tree_memory.h"
#include "fleet/watch.h"

#define LINE_BYTES 4096 // of the command's output; what is longer is not matched beyond it

static const int k_forwarded[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                                  SIGUSR2, SIGCONT, SIGWINCH, SIGALRM};

typedef struct stream {
    int from, to; // from < 0: closed or not read
    char line[LINE_BYTES];
    size_t length;
} stream;

typedef struct progress {
    regex_t expression;
    bool asked, any;
    double units, last;
} progress;

// Phases come by lines of a pipe, and by lines of the output that match.
typedef struct phases {
    regex_t expression;
    bool asked;
    int from, to; // our pipe, -1; the writing end is kept so that HONE_PHASE_FILE can be opened
    char line[HN_PHASE_BYTES];
    size_t length;
} phases;

typedef struct run {
    const hn_exec_request *request;
    pid_t child;
    int signals; // signalfd
    sigset_t mask_before;
    stream streams[2]; // stdout, stderr
    int child_ends[2]; // what the child writes to, -1
    progress progress;
    phases phases;
    int child_phase_fd;
    hn_watch *watch;
    hn_exec_result *result;
    int64_t start_ns; // monotonic
    char **environment; // owned, with its strings behind it
    bool ended;
    int wait_status;
    struct rusage usage;
    int64_t peak_tree_bytes;
} run;

// ---- environment ------------------------------------------------------------------------------

static bool same_name(const char *pair, const char *name) {
    size_t length = strlen(name);
    return strncmp(pair, name, length) == 0 && pair[length] == '=';
}

// Made before fork, so that nothing is allocated in the child.
static hn_status make_environment(hone_error *err, run *r) {
    const hn_exec_request *q = r->request;
    char fd[16], file[64];
    snprintf(fd, sizeof fd, "%d", r->child_phase_fd);
    snprintf(file, sizeof file, "/proc/%d/fd/%d", (int)getpid(), r->phases.to);
    const hn_exec_env own[] = {{"HONE_PHASE_FD", fd}, {"HONE_PHASE_FILE", file}};
    const size_t own_count = HN_COUNT_OF(own), added = own_count + q->env_count;
    size_t count = 0, bytes = 0;
    while (environ[count]) count++;
    for (size_t i = 0; i < added; i++) {
        const hn_exec_env *pair = i < own_count ? &own[i] : &q->env[i - own_count];
        bytes += strlen(pair->name) + strlen(pair->value) + 2;
    }
    size_t pointers = (count + added + 1) * sizeof(char *);
    r->environment = hn_malloc(pointers + bytes);
    if (!r->environment) HN_NOMEM(err, "environment");
    char *text = (char *)r->environment + pointers;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool replaced = false;
        for (size_t k = 0; k < own_count; k++) replaced |= same_name(environ[i], own[k].name);
        for (size_t k = 0; k < q->env_count; k++) replaced |= same_name(environ[i], q->env[k].name);
        if (!replaced) r->environment[kept++] = environ[i];
    }
    for (size_t i = 0; i < added; i++) {
        const hn_exec_env *pair = i < own_count ? &own[i] : &q->env[i - own_count];
        r->environment[kept++] = text;
        text += sprintf(text, "%s=%s", pair->name, pair->value) + 1;
    }
    r->environment[kept] = NULL;
    return HONE_OK;
}

// ---- the command's output ---------------------------------------------------------------------

static void match_line(progress *p, const char *line) {
    regmatch_t groups[2];
    if (regexec(&p->expression, line, 2, groups, 0) != 0) return;
    if (p->expression.re_nsub == 0) {
        p->units++;
        p->any = true;
        return;
    }
    double now;
    if (groups[1].rm_so < 0 ||
        !hn_parse_f64((hn_slice){line + groups[1].rm_so, (size_t)(groups[1].rm_eo - groups[1].rm_so)}, &now))
        return;
    p->units += p->any && now >= p->last ? now - p->last : now;
    p->last = now;
    p->any = true;
}

static double units_so_far(const run *r) { return r->progress.any ? r->progress.units : NAN; }

static void begin_phase(run *r, const char *name, size_t length) {
    char clean[HN_PHASE_BYTES];
    if (length >= sizeof clean) length = sizeof clean - 1;
    for (size_t i = 0; i < length; i++) clean[i] = (unsigned char)name[i] < 0x20 ? ' ' : name[i];
    clean[length] = '\0';
    if (!length) return;
    hn_phase_list *list = &r->result->phases;
    int before = list->now;
    int phase = hn_phase_list_begin(list, clean, (double)(hn_clock_ns() - r->start_ns) * 1e-9, units_so_far(r));
    if (r->watch && phase != before) hn_watch_phase(r->watch, phase, list->names[phase]);
}

static void match_phase(run *r, const char *line) {
    regmatch_t groups[2];
    if (!r->phases.asked || regexec(&r->phases.expression, line, 2, groups, 0) != 0 || groups[1].rm_so < 0) return;
    begin_phase(r, line + groups[1].rm_so, (size_t)(groups[1].rm_eo - groups[1].rm_so));
}

static void read_phases(run *r) {
    char data[512];
    phases *p = &r->phases;
    for (ssize_t got; (got = read(p->from, data, sizeof data)) > 0;)
        for (ssize_t i = 0; i < got; i++) {
            if (data[i] == '\n') {
                begin_phase(r, p->line, p->length);
                p->length = 0;
            } else if (p->length < sizeof p->line) {
                p->line[p->length++] = data[i];
            }
        }
}

static void look_at(run *r, stream *s, const char *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n' || data[i] == '\r') {
            s->line[s->length] = '\0';
            if (s->length && r->progress.asked) match_line(&r->progress, s->line);
            if (s->length) match_phase(r, s->line);
            s->length = 0;
        } else if (data[i] && s->length < sizeof s->line - 1) {
            s->line[s->length++] = data[i];
        }
    }
}

static bool write_all(int fd, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t put = write(fd, data, bytes);
        if (put < 0 && errno == EAGAIN) { // somebody made our output non-blocking
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, -1);
        } else if (put < 0 && errno != EINTR) {
            return false;
        } else if (put > 0) {
            data += put;
            bytes -= (size_t)put;
        }
    }
    return true;
}

// Passes on what is there; false when there is nothing more for now.
static bool pass_on(run *r, stream *s) {
    char data[65536];
    if (s->from < 0) return false;
    ssize_t got = read(s->from, data, sizeof data);
    if (got < 0) return errno == EINTR;
    // Where our reader has gone, the command meets a closed pipe as it would without us.
    if (got == 0 || !write_all(s->to, data, (size_t)got)) {
        close(s->from);
        s->from = -1;
        return false;
    }
    look_at(r, s, data, (size_t)got);
    return true;
}

static hn_status compile(hone_error *err, const char *option, const char *text, regex_t *expression, bool *asked) {
    if (!text) return HONE_OK;
    int failed = regcomp(expression, text, REG_EXTENDED);
    if (failed) {
        char why[128];
        regerror(failed, expression, why, sizeof why);
        HN_FAIL(err, HONE_ERR_USAGE, "%s: '%s' is no regular expression: %s", option, text, why);
    }
    *asked = true;
    return HONE_OK;
}

static hn_status open_pipes(hone_error *err, run *r) {
    HN_TRY(compile(err, "--progress", r->request->progress, &r->progress.expression, &r->progress.asked));
    HN_TRY(compile(err, "--phases", r->request->phases, &r->phases.expression, &r->phases.asked));
    if (r->phases.asked && r->phases.expression.re_nsub == 0)
        HN_FAIL(err, HONE_ERR_USAGE, "--phases: '%s' has no group: (...) is the name of the phase", r->request->phases);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) HN_FAIL(err, HONE_ERR_IO, "a pipe cannot be made: %s", strerror(errno));
    r->phases.from = ends[0];
    r->phases.to = ends[1];
    fcntl(ends[1], F_SETFL, 0); // the command's writes may wait
    for (int i = 0; i < 2 && (r->progress.asked || r->phases.asked); i++) {
        if (pipe2(ends, O_CLOEXEC) != 0) HN_FAIL(err, HONE_ERR_IO, "a pipe cannot be made: %s", strerror(errno));
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        r->streams[i].from = ends[0];
        r->child_ends[i] = ends[1];
    }
    // One digit, so that the plain POSIX shell can redirect to it; none that somebody gave to the command.
    r->child_phase_fd = -1;
    for (int fd = 9; fd >= 3 && r->child_phase_fd < 0; fd--)
        if (fcntl(fd, F_GETFD) < 0) r->child_phase_fd = fd;
    if (r->child_phase_fd < 0) r->child_phase_fd = fcntl(r->phases.to, F_DUPFD_CLOEXEC, 10);
    return HONE_OK;
}

// ---- start ------------------------------------------------------------------------------------

typedef struct child_word {
    bool exec; // else in_child
    int error;
} child_word;

static void say(int fd, bool exec, int error) {
    child_word word = {exec, error};
    if (write(fd, &word, sizeof word) < 0) _exit(127);
}

static void child(run *r, int words) {
    for (int i = 0; i < 2; i++)
        if (r->child_ends[i] >= 0) dup2(r->child_ends[i], i + 1);
    if (r->child_phase_fd >= 0) dup2(r->phases.to, r->child_phase_fd);
    if (r->child_phase_fd >= 10) fcntl(r->child_phase_fd, F_SETFD, 0);
    int failed = r->request->in_child ? r->request->in_child(r->request->user) : 0;
    if (failed) say(words, false, failed);
    sigprocmask(SIG_SETMASK, &r->mask_before, NULL);
    execvpe(r->request->argv[0], r->request->argv, r->environment);
    say(words, true, errno);
    _exit(127);
}

static hn_status start(hone_error *err, run *r, hn_exec_result *result) {
    int words[2];
    child_word word;
    if (pipe2(words, O_CLOEXEC) != 0) HN_FAIL(err, HONE_ERR_IO, "a pipe cannot be made: %s", strerror(errno));
    r->child = fork();
    if (r->child == 0) child(r, words[1]);
    int error = errno;
    close(words[1]);
    for (int i = 0; i < 2; i++) {
        if (r->child_ends[i] >= 0) close(r->child_ends[i]);
        r->child_ends[i] = -1;
    }
    if (r->child < 0) {
        close(words[0]);
        HN_FAIL_VENDOR(err, HONE_ERR_IO, error, "'%s' cannot be started: %s", r->request->argv[0],
                       strerror(error));
    }
    // Ends when the command has been started: the pipe is closed by that.
    for (ssize_t got; (got = read(words[0], &word, sizeof word)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        if (got != (ssize_t)sizeof word) break;
        *(word.exec ? &result->start_errno : &result->child_errno) = word.error;
    }
    close(words[0]);
    return HONE_OK;
}

// ---- the loop ---------------------------------------------------------------------------------

// Besides SIGCHLD, since that could be taken by a thread that is not ours.
static void look_for_end(run *r) {
    if (!r->ended && wait4(r->child, &r->wait_status, WNOHANG, &r->usage) == r->child) r->ended = true;
}

static void take_signals(run *r) {
    struct signalfd_siginfo info;
    while (read(r->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD) {
            look_for_end(r);
        } else if (number != SIGPIPE && info.ssi_code != SI_KERNEL && !r->ended) {
            // From the kernel: the terminal's, and the command has had it.
            kill(r->child, number);
        }
    }
}

static void loop(run *r) {
    int child_fd = (int)syscall(SYS_pidfd_open, r->child, 0); // -1 on kernels without: once a second then
    int64_t next_ns = hn_clock_ns(), period_ns = 20000000;
    while (!r->ended) {
        int64_t left_ns = next_ns - hn_clock_ns();
        if (left_ns <= 0) {
            int64_t bytes = hn_tree_memory_bytes(r->child);
            if (bytes > r->peak_tree_bytes) r->peak_tree_bytes = bytes;
            next_ns = hn_clock_ns() + period_ns;
            if (period_ns < 1000000000) period_ns *= 2; // short jobs are seen too, long ones at little cost
            continue;
        }
        struct pollfd fds[5] = {{.fd = r->signals, .events = POLLIN},
                                {.fd = r->streams[0].from, .events = POLLIN},
                                {.fd = r->streams[1].from, .events = POLLIN},
                                {.fd = r->phases.from, .events = POLLIN},
                                {.fd = child_fd, .events = POLLIN}};
        if (poll(fds, 5, (int)(left_ns / 1000000) + 1) <= 0) {
            look_for_end(r);
            continue;
        }
        if (fds[3].revents) read_phases(r);
        for (int i = 0; i < 2; i++)
            if (fds[i + 1].revents) pass_on(r, &r->streams[i]);
        if (fds[0].revents) take_signals(r);
        if (fds[4].revents) look_for_end(r);
    }
    if (child_fd >= 0) close(child_fd);
    read_phases(r);
    for (int i = 0; i < 2; i++) {
        while (pass_on(r, &r->streams[i])) {}
        look_at(r, &r->streams[i], "\n", 1); // a last line without its end
    }
}

static double seconds_of(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec * 1e-6; }

static void fill(const run *r, hn_exec_result *result) {
    struct rusage own;
    result->signal = WIFSIGNALED(r->wait_status) ? WTERMSIG(r->wait_status) : 0;
    result->exit_status = result->signal ? 128 + result->signal : WEXITSTATUS(r->wait_status);
    if (result->start_errno) result->exit_status = result->start_errno == ENOENT ? 127 : 126;
    result->user_seconds = seconds_of(r->usage.ru_utime);
    result->system_seconds = seconds_of(r->usage.ru_stime);
    result->peak_process_bytes = (int64_t)r->usage.ru_maxrss * 1024;
    result->peak_tree_bytes = r->peak_tree_bytes;
    if (result->peak_tree_bytes >= 0 && result->peak_tree_bytes < result->peak_process_bytes)
        result->peak_tree_bytes = result->peak_process_bytes; // it fell between two looks
    result->units = r->progress.any ? r->progress.units : NAN;
    if (getrusage(RUSAGE_SELF, &own) == 0)
        result->own_cpu_seconds = seconds_of(own.ru_utime) + seconds_of(own.ru_stime);
}

static hn_status run_all(hone_error *err, run *r, hn_exec_result *result) {
    HN_TRY(open_pipes(err, r));
    HN_TRY(make_environment(err, r));
    sigset_t mask;
    sigemptyset(&mask);
    for (size_t i = 0; i < HN_COUNT_OF(k_forwarded); i++) sigaddset(&mask, k_forwarded[i]);
    sigaddset(&mask, SIGCHLD);
    sigaddset(&mask, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &mask, &r->mask_before);
    r->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signals < 0) HN_FAIL(err, HONE_ERR_IO, "signals cannot be read: %s", strerror(errno));
    result->start_wall_ns = hn_clock_wall_ns();
    if (r->request->probe) {
        hn_watch_options options = {r->request->probe, r->request->watch, r->request->hz, r->request->record};
        HN_TRY(hn_watch_start(err, &options, &r->watch));
        result->start_ns = hn_watch_start_ns(r->watch);
        result->start_wall_ns = hn_watch_start_wall_ns(r->watch);
    }
    r->start_ns = hn_clock_ns();
    hone_status status = start(err, r, result);
    if (status == HONE_OK) {
        loop(r);
        result->seconds = (double)(hn_clock_ns() - r->start_ns) * 1e-9;
        hn_phase_list_end(&result->phases, result->seconds, units_so_far(r));
    }
    if (r->watch)
        result->stuck = !hn_watch_stop(r->watch, &result->tracks, &result->track_count, &result->record_error);
    if (status == HONE_OK) fill(r, result);
    return status;
}

typedef struct opening {
    const char *source;
    hone_error error;
    hone_status status;
    hn_probe *probe;
} opening;

static void *open_thread(void *arg) {
    opening *o = arg;
    o->status = hn_probe_open(&o->error, o->source, &o->probe);
    return NULL;
}

hn_status hn_exec_open_probe(hone_error *err, const char *source, hn_probe **out_probe) {
    opening o = {.source = source};
    pthread_t thread;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int failed = pthread_create(&thread, NULL, open_thread, &o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) HN_FAIL_VENDOR(err, HONE_ERR_IO, failed, "a thread cannot be started: %s", strerror(failed));
    pthread_join(thread, NULL);
    if (o.status != HONE_OK && err) *err = o.error;
    if (o.status == HONE_OK) *out_probe = o.probe;
    return o.status;
}

hn_status hn_exec_run(hone_error *err, const hn_exec_request *request, hn_exec_result *out_result) {
    run *r = hn_calloc(1, sizeof *r);
    if (!r) HN_NOMEM(err, "exec");
    hn_exec_result *result = hn_calloc(1, sizeof *result);
    if (!result) {
        hn_free(r);
        HN_NOMEM(err, "exec");
    }
    result->peak_tree_bytes = -1;
    result->units = NAN;
    hn_phase_list_init(&result->phases);
    r->result = result;
    r->phases.from = r->phases.to = r->child_phase_fd = -1;
    r->request = request;
    r->signals = -1;
    r->peak_tree_bytes = -1;
    for (int i = 0; i < 2; i++) {
        r->streams[i].from = r->child_ends[i] = -1;
        r->streams[i].to = i + 1;
    }
    sigprocmask(SIG_SETMASK, NULL, &r->mask_before);
    hone_status status = run_all(err, r, result);
    if (r->signals >= 0) {
        r->ended = true;
        take_signals(r); // a pending SIGPIPE or late SIGTERM must not end us before the report
        close(r->signals);
    }
    for (int i = 0; i < 2; i++) {
        if (r->streams[i].from >= 0) close(r->streams[i].from);
        if (r->child_ends[i] >= 0) close(r->child_ends[i]);
    }
    if (r->phases.from >= 0) close(r->phases.from);
    if (r->phases.to >= 0) close(r->phases.to);
    if (r->child_phase_fd >= 10) close(r->child_phase_fd);
    if (r->progress.asked) regfree(&r->progress.expression);
    if (r->phases.asked) regfree(&r->phases.expression);
    pthread_sigmask(SIG_SETMASK, &r->mask_before, NULL);
    hn_free(r->environment);
    hn_free(r);
    if (status == HONE_OK) *out_result = *result;
    else hn_exec_result_free(result);
    hn_free(result);
    return status;
}

void hn_exec_result_free(hn_exec_result *result) {
    for (int i = 0; i < result->track_count; i++) hn_track_free(result->tracks[i]);
    hn_free(result->tracks);
    result->tracks = NULL;
    result->track_count = 0;
}
