// SPDX-License-Identifier: Apache-2.0
// Whose a process is: its Slurm job, pod and container, from its control group and environment.
//
// Fixed memory, no allocation. What cannot be read (another user's process, another PID namespace) is unknown.
#ifndef HN_FLEET_JOBMAP_H
#define HN_FLEET_JOBMAP_H
#include "base/base.h"

typedef struct hn_job_of_pid {
    char slurm_job[32], slurm_step[16]; // "" unknown
    char pod_uid[40], container_id[72];
    char pod[128], namespace_[64]; // names, from the process's own environment and service account
    int64_t hone_job;              // of hone exec, 0 = none
} hn_job_of_pid;

// Reads /proc/PID.
void hn_job_of_pid_read(int64_t pid, hn_job_of_pid *out_job);
// The text of a cgroup file (all its lines), as a part of the above: for tests.
void hn_job_of_cgroup(hn_slice text, hn_job_of_pid *job);
#endif
