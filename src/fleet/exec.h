// SPDX-License-Identifier: Apache-2.0
// Running a command and measuring it: what `hone exec` does.
//
// The command stays in our process group, so that a terminal's Ctrl-C and Ctrl-Z reach it as ever; signals
// that somebody sends to us alone are passed on. Its standard streams are ours and are not touched, unless
// its progress is to be read: then output goes through a pipe of ours, unchanged.
// Cards are read by threads of their own: a driver call that hangs delays neither signals nor output.
#ifndef HN_FLEET_EXEC_H
#define HN_FLEET_EXEC_H
#include "fleet/track.h"

typedef struct hn_exec_env {
    const char *name, *value;
} hn_exec_env;

typedef struct hn_exec_request {
    char *const *argv; // ends with NULL; argv[0] is looked for in PATH
    const hn_exec_env *env; // set in the command's environment
    size_t env_count;
    // In the child before the command starts, NULL for none; system calls only. 0 or errno.
    int (*in_child)(void *user);
    void *user;
    hn_probe *probe;   // NULL: no telemetry
    const bool *watch; // by device of the probe; NULL: all
    double hz;         // samples a second and device
    // POSIX extended expression that is looked for in each line (ended by LF or CR) of the command's output:
    // its first group is the number of units done so far (a fall starts anew); without a group each
    // matching line is one unit. NULL: output is not read.
    const char *progress;
    // The same for phases: group 1 is the name of the phase that begins.
    const char *phases;
    const char *record; // recording to write, NULL: none; a name in .gz is compressed
} hn_exec_request;

typedef struct hn_exec_result {
    int exit_status; // -1 unknown (a recording); the command's own, 128 + signal, or 126 and 127 if it could not be started
    int signal;      // that ended it, 0 = none
    int start_errno; // 0: it was started
    int child_errno; // of in_child
    double seconds, user_seconds, system_seconds;
    double own_cpu_seconds;      // what measuring cost
    int64_t peak_process_bytes;  // largest resident set of one process
    int64_t peak_tree_bytes;     // all processes together, seen about once a second; -1 unknown
    double units;                // by progress, NAN = not asked or none seen
    hn_track **tracks;           // owned, one a watched device
    int track_count;
    hn_phase_list phases;        // told by the command; count 0: none
    int64_t start_wall_ns;
    int64_t start_ns;            // the same moment on the probe's clock
    hone_error record_error;     // status HONE_OK: the recording is whole
    bool stuck; // the driver stopped answering (which spans say): the probe must not be closed
} hn_exec_result;

// Opens a probe so that threads which a driver's library starts leave our signals alone: a SIGCHLD or SIGTERM
// that such a thread takes would be lost to us.
hn_status hn_exec_open_probe(hone_error *err, const char *source, hn_probe **out_probe);

// The command tells its phases (train, validate, infer, idle, or other words) by lines on the descriptor in
// HONE_PHASE_FD or into the file in HONE_PHASE_FILE (for processes that do not inherit descriptors).
//
// Fails for what is ours (HONE_ERR_USAGE for a bad expression, HONE_ERR_IO for pipes, fork); a command that
// cannot be started is a result.
hn_status hn_exec_run(hone_error *err, const hn_exec_request *request, hn_exec_result *out_result);
void hn_exec_result_free(hn_exec_result *result);
#endif
