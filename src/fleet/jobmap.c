// SPDX-License-Identifier: Apache-2.0
// Whose a process is: see jobmap.h.
#include "fleet/jobmap.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "probe/sys.h"

#define FILE_BYTES 16384 // of a cgroup file, and of one environment variable

static void copy(char *out, size_t bytes, const char *from, size_t length) {
    if (length >= bytes) length = bytes - 1;
    memcpy(out, from, length);
    out[length] = '\0';
}
#define COPY(field, from, length) copy((field), sizeof(field), (from), (length))

static size_t hex_run(const char *at, size_t left) {
    size_t length = 0;
    while (length < left && isxdigit((unsigned char)at[length])) length++;
    return length;
}

// podXXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX, the dashes as low lines where systemd names the slice.
static bool take_pod(const char *part, size_t length, hn_job_of_pid *job) {
    for (size_t i = 0; i + 39 <= length; i++) {
        const char *uid = part + i + 3;
        if (strncmp(part + i, "pod", 3) != 0) continue;
        bool good = true;
        for (int k = 0; k < 36 && good; k++)
            good = k == 8 || k == 13 || k == 18 || k == 23 ? uid[k] == '-' || uid[k] == '_'
                                                           : isxdigit((unsigned char)uid[k]) != 0;
        if (!good) continue;
        COPY(job->pod_uid, uid, 36);
        for (char *c = job->pod_uid; *c; c++)
            if (*c == '_') *c = '-';
        return true;
    }
    return false;
}

static void take_part(const char *part, size_t length, hn_job_of_pid *job) {
    size_t digits = 4;
    if (length > 4 && strncmp(part, "job_", 4) == 0) {
        while (digits < length && isdigit((unsigned char)part[digits])) digits++;
        if (digits == length) COPY(job->slurm_job, part + 4, length - 4);
    } else if (length > 5 && strncmp(part, "step_", 5) == 0) {
        COPY(job->slurm_step, part + 5, length - 5);
    } else if (take_pod(part, length, job)) {
        return;
    } else {
        // docker-<64 hex>.scope, cri-containerd-<64 hex>.scope, or the 64 digits alone.
        for (size_t i = 0; i + 64 <= length; i++)
            if ((i == 0 || part[i - 1] == '-') && hex_run(part + i, length - i) == 64) {
                COPY(job->container_id, part + i, 64);
                return;
            }
    }
}

void hn_job_of_cgroup(hn_slice text, hn_job_of_pid *job) {
    hn_slice line;
    while (hn_slice_line(&text, &line)) {
        const char *at = line.data, *end = line.data + line.length;
        while (at < end) {
            const char *slash = memchr(at, '/', (size_t)(end - at));
            size_t length = (size_t)((slash ? slash : end) - at);
            take_part(at, length, job);
            at += length + 1;
        }
    }
}

static bool read_file(const char *path, char *out, size_t bytes, size_t *out_length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    size_t length = 0;
    for (ssize_t got; length < bytes && (got = read(fd, out + length, bytes - length)) > 0;) length += (size_t)got;
    close(fd);
    *out_length = length;
    return length > 0;
}

static void take_variable(const char *text, size_t length, hn_job_of_pid *job) {
    hn_slice pair = {text, length};
    if (hn_slice_starts(pair, "SLURM_JOB_ID=") && !job->slurm_job[0]) COPY(job->slurm_job, text + 13, length - 13);
    else if (hn_slice_starts(pair, "SLURM_STEP_ID=") && !job->slurm_step[0])
        COPY(job->slurm_step, text + 14, length - 14);
    else if (hn_slice_starts(pair, "HOSTNAME=") && job->pod_uid[0]) COPY(job->pod, text + 9, length - 9);
    else if (hn_slice_starts(pair, "HONE_JOB="))
        (void)hn_parse_i64((hn_slice){text + 9, length - 9}, &job->hone_job);
}

static void read_environment(const char *path, hn_job_of_pid *job) {
    char text[FILE_BYTES];
    size_t held = 0;
    bool skip = false; // the rest of a variable that is too long
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    for (ssize_t got; (got = read(fd, text + held, sizeof text - held)) > 0;) {
        size_t length = held + (size_t)got, from = 0;
        for (size_t i = held; i < length; i++) {
            if (text[i] != '\0') continue;
            if (!skip) take_variable(text + from, i - from, job);
            skip = false;
            from = i + 1;
        }
        held = length - from;
        if (from == 0 && held == sizeof text) skip = true, held = 0;
        else memmove(text, text + from, held);
    }
    close(fd);
}

void hn_job_of_pid_read(int64_t pid, hn_job_of_pid *out_job) {
    char path[HN_SYS_PATH_BYTES], text[FILE_BYTES];
    size_t length;
    hn_job_of_pid job = {0};
    if (hn_sys_path(path, "/proc/%lld/cgroup", (long long)pid) && read_file(path, text, sizeof text, &length)) hn_job_of_cgroup((hn_slice){text, length}, &job);
    if (hn_sys_path(path, "/proc/%lld/environ", (long long)pid)) read_environment(path, &job);
    if (job.pod_uid[0] &&
        hn_sys_path(path, "/proc/%lld/root/var/run/secrets/kubernetes.io/serviceaccount/namespace", (long long)pid) &&
        read_file(path, text, sizeof text, &length)) {
        hn_slice name = hn_slice_trim((hn_slice){text, length});
        COPY(job.namespace_, name.data, name.length);
    }
    *out_job = job;
}
