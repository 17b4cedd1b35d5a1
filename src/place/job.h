// SPDX-License-Identifier: Apache-2.0
// A job's place on this machine from request to release: cards and CPUs are chosen under one lock, beside
// what other jobs of hone hold, and are held until the job ends.
//
// A claim is a file that its owner keeps locked; the command inherits the lock, so that a claim lasts
// until both are gone, however they end. Ranks that a launcher started claim nothing: the one who started
// the launcher has.
#ifndef HN_PLACE_JOB_H
#define HN_PLACE_JOB_H
#include "place/bind.h"

typedef struct hn_place_job {
    hn_place_machine machine;
    hn_place_launcher launcher;
    hn_place_request request;
    hn_place_result result;   // choice_count 0 for a job without cards
    hn_place_binding binding;
    int claim_fd;             // -1: none
    char claim_path[320];
    hn_place_cpuset others_cpus; // held by other jobs when this one was placed
    int others_cards;
} hn_place_job;

// request.cards 0: CPUs alone (request.cpus of them; 0: what is free of one cache or NUMA node).
// request.allowed, only and busy are filled here. HONE_ERR_CHECK where the machine is too full.
hn_status hn_place_job_open(hone_error *err, const hn_place_request *request, hn_place_job *out_job);
void hn_place_job_close(hn_place_job *job); // also releases; takes an all-zero job with claim_fd -1
// Table or JSON of what was chosen.
void hn_place_job_text(const hn_place_job *job, hn_str *out);
json_t *hn_place_job_json(const hn_place_job *job);

// `count` CPUs of `free`, whole cores and as few caches and NUMA nodes as will do; the domain that is
// filled best. 0: all of the best domain. HONE_ERR_CHECK where there are fewer.
hn_status hn_place_choose_cpus(hone_error *err, const hn_place_cpuset *free_cpus, int count,
                               hn_place_cpuset *out_cpus);

// ---- claims (for tests and `hone place`) ----
// What running jobs hold. Cards are told by PCI address, else by index.
hn_status hn_place_claims_held(hone_error *err, const hn_place_machine *machine, hn_place_cpuset *out_cpus,
                               uint64_t *out_cards);
#endif
