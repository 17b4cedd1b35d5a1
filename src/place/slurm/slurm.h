// SPDX-License-Identifier: Apache-2.0
// Slurm beside the machine model: gres.conf lines made from it, configuration compared with it
// before slurmd drains the node, and what the SPANK plug-in's helper does for a step (a binding
// plan, a record of energy and activity).
//
// Nothing here talks to Slurm's daemons or writes their files. Facts on Slurm 22.05 (what it does
// with a wrong gres.conf) were tried on Debian 12.
#ifndef HN_PLACE_SLURM_H
#define HN_PLACE_SLURM_H
#include <stdio.h>
#include "base/base.h"
#include "place/cpuset.h"
#include "place/machine.h"

// ---- configuration files (conf.c) ----
typedef struct hn_slurm_pair {
    const char *key, *value;
} hn_slurm_pair;

typedef struct hn_slurm_line { // "NodeName=n0 CPUs=4 ...": pairs in order
    const hn_slurm_pair *pairs;
    size_t count;
    int64_t number; // of its first physical line
} hn_slurm_line;

typedef struct hn_slurm_conf {
    hn_arena arena;
    const char *path;
    HN_VEC(hn_slurm_line) lines;
} hn_slurm_conf;

// Comments, continuation lines and `Include` of files beside it are followed as Slurm does.
hn_status hn_slurm_conf_read(hone_error *err, const char *path, hn_slurm_conf *out_conf);
hn_status hn_slurm_conf_parse(hone_error *err, const char *path, hn_slice text,
                              hn_slurm_conf *out_conf);
void hn_slurm_conf_free(hn_slurm_conf *conf);
// Value of a key in a line or of the last line that starts with it; NULL if absent. Keys are
// compared without case.
const char *hn_slurm_line_get(const hn_slurm_line *line, const char *key);
const char *hn_slurm_conf_get(const hn_slurm_conf *conf, const char *key);

// Expands "n[0-1,03],gpu" into names, at most HN_SLURM_NAMES_MAX. Calls take(user, name, index) for
// each; take returns false to stop.
#define HN_SLURM_NAMES_MAX 65536
hn_status hn_slurm_hostlist(hone_error *err, const char *text,
                            bool (*take)(void *user, const char *name, int index), void *user);
bool hn_slurm_hostlist_has(const char *text, const char *name);

// ---- gres.conf from the machine (gres.c) ----
typedef struct hn_slurm_gres_options {
    const char *type;     // Type= of all cards; NULL: from the cards' names
    const char *file;     // "/dev/nvidia%d" with the card's minor number; NULL: that
    const char *node;     // NodeName= of each line; NULL: none
    int threads_per_core; // 0: from this host if the model is live, else from the CPU lists
    bool live;            // the model is this host's: minor numbers and cores come from it
} hn_slurm_gres_options;
hn_status hn_slurm_gres(hone_error *err, const hn_place_machine *machine,
                        const hn_slurm_gres_options *options, hn_str *out_text);
// The short model name Slurm's users type: "NVIDIA A800-SXM4-80GB" -> "a800"; false if unknown.
bool hn_slurm_gpu_type(const char *name, char *out, size_t size);
// Cores= of a card in Slurm's own numbering (socket by socket); false with a sentence in `why`.
bool hn_slurm_cores(const hn_place_machine *machine, const hn_place_gpu *gpu, bool live,
                    int threads_per_core, hn_place_cpuset *out_cores, char *why, size_t why_bytes);

// ---- checking (check.c) ----
typedef enum hn_slurm_severity { HN_SLURM_NOTE, HN_SLURM_WARN, HN_SLURM_ERROR } hn_slurm_severity;
typedef struct hn_slurm_finding {
    const char *id, *text;
    hn_slurm_severity severity;
} hn_slurm_finding;

typedef struct hn_slurm_check_options {
    const char *slurm_conf, *gres_conf; // gres_conf NULL: beside slurm.conf
    const char *node;                   // NULL: this host's short name
    const hn_place_machine *machine;    // NULL: the files are compared with each other only
    bool live;                          // machine is this host's: memory, CPUs, device files too
} hn_slurm_check_options;

typedef struct hn_slurm_check {
    hn_arena arena;
    const char *node;
    HN_VEC(hn_slurm_finding) findings;
    bool good; // no ERROR
} hn_slurm_check;
hn_status hn_slurm_check_run(hone_error *err, const hn_slurm_check_options *options,
                             hn_slurm_check *out_check);
void hn_slurm_check_free(hn_slurm_check *check);
hn_status hn_slurm_check_json(hone_error *err, const hn_slurm_check *check, hn_str *out_text);
void hn_slurm_check_text(const hn_slurm_check *check, hn_str *out_text);

// ---- a step (step.c) ----
typedef struct hn_slurm_plan {
    bool bind;
    hn_place_cpuset cpus, mems; // mems may be empty: leave memory as it is
    char reason[256];
} hn_slurm_plan;
// CPUs near the cards of `gpus` ("0,1", UUIDs) that are also in `allowed`, and their memory nodes that
// are in `nodes` (NULL: any). Never fails: what cannot
// be planned is left as it is, with the reason.
void hn_slurm_plan_make(const hn_place_machine *machine, const char *gpus,
                        const hn_place_cpuset *allowed, const hn_place_cpuset *nodes,
                        hn_slurm_plan *out_plan);

typedef struct hn_slurm_record_options {
    const char *source; // of the probe
    const char *gpus;   // cards of the step; "" or NULL: all
    const char *log;    // file that gets the summary line, "-" for standard output
    const char *job, *step, *node, *note; // words of the line
    int64_t interval_ms;
    int stop_fd; // reading it gives end of file when the step is over
} hn_slurm_record_options;
// Samples until stop_fd ends, then appends one line "time=... job=... energy_j=..." to the log.
hn_status hn_slurm_record(hone_error *err, const hn_slurm_record_options *options);
#endif
