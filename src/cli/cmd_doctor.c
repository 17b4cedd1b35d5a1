// SPDX-License-Identifier: Apache-2.0
// hone doctor: what this machine is, its measured ceilings, what is wrong with it.
#include "cli/cli.h"
#include "backends/cpu/ceilings.h"
#include "backends/cuda/ceilings.h"
#include "place/p2p.h"
#include "probe/doctor.h"
#include <float.h>
#include <stdio.h>

// Not given: values that nobody asks for.
#define NO_MIB     INT64_MIN
#define NO_TIMEOUT (-DBL_MAX)

typedef struct p2p_request {
    const char *topo;
    int64_t mib;
    double timeout_s;
    bool json;
} p2p_request;

static hone_status test_p2p(hone_error *err, const p2p_request *request, int *out_exit) {
    if (request->mib < 1 || request->mib > 4096) HN_FAIL(err, HONE_ERR_USAGE, "--mib must be from 1 to 4096");
    hn_place_machine machine = {0};
    hone_error ignored = {0};
    if (request->topo) HN_TRY(hn_place_machine_read(err, request->topo, &machine));
    // The links are for comparing: without them the copies still tell.
    bool known = request->topo || hn_place_machine_live(&ignored, &machine) == HONE_OK;
    hn_p2p_options options = {.bytes = request->mib << 20, .timeout_s = request->timeout_s,
                              .topology_given = request->topo != NULL};
    hn_p2p_report report;
    hn_str text = {0};
    hone_status status = hn_p2p_run(err, &options, known ? &machine : NULL, &report);
    if (status == HONE_OK) {
        if (request->json) status = hn_p2p_json(err, &report, &text);
        else hn_p2p_text(&report, &text);
        if (status == HONE_OK && text.failed) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (report)");
        if (status == HONE_OK) hn_cli_put(hn_str_get(&text));
        if (report.fault) *out_exit = 1;
        hn_p2p_report_free(&report);
    }
    hn_str_free(&text);
    if (known) hn_place_machine_free(&machine);
    return status;
}

hone_status hn_cmd_doctor(hone_error *err, int argc, char **argv, int *out_exit) {
    const char *source = "";
    bool json = false, quick = false, busy = false, config = false, slurm = false, p2p = false;
    p2p_request peer = {.mib = NO_MIB, .timeout_s = NO_TIMEOUT};
    const hn_option options[] = {
        {"source", "SOURCE", HN_OPT_STR, &source, "where the cards' readings come from: auto, nvml, dcgm, replay:FILE, text:FILE"},
        {"json", NULL, HN_OPT_FLAG, &json, "as JSON"},
        {"no_measure", NULL, HN_OPT_FLAG, &quick, "measure nothing (bandwidth, ceilings of CPU and cards)"},
        {"busy", NULL, HN_OPT_FLAG, &busy, "measure cards that somebody uses, too"},
        {"slurm", NULL, HN_OPT_FLAG, &slurm, "compare slurm.conf and gres.conf with this machine; options of hone slurm check may follow"},
        {"p2p", NULL, HN_OPT_FLAG, &p2p, "copy between every two cards, compare every byte, time it; nothing else"},
        {"mib", "N", HN_OPT_I64, &peer.mib, "with --p2p: size of a copy (64)"},
        {"timeout", "S", HN_OPT_F64, &peer.timeout_s, "seconds that a step on a card may take before it counts as stalled (20)"},
        {"topo", "FILE", HN_OPT_STR, &peer.topo, "with --p2p: compare with the links of this file, not those found live"},
        {"config", NULL, HN_OPT_FLAG, &config, "show the settings in force and stop"},
    };
    int count;
    static char check[] = "check";
    if (argc > 0 && strcmp(argv[0], "--slurm") == 0) {
        argv[0] = check;
        return hn_cmd_slurm(err, argc, argv, out_exit);
    }
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), NULL, 0, &count));
    if (slurm) HN_FAIL(err, HONE_ERR_USAGE, "--slurm goes first: hone doctor --slurm [options of hone slurm check]");
    if (peer.timeout_s == NO_TIMEOUT) peer.timeout_s = 20;
    if (!(peer.timeout_s >= 0.1 && peer.timeout_s <= 3600))
        HN_FAIL(err, HONE_ERR_USAGE, "--timeout must be from 0.1 to 3600 seconds");
    if (p2p) {
        peer.json = json;
        if (peer.mib == NO_MIB) peer.mib = 64;
        return test_p2p(err, &peer, out_exit);
    }
    const char *alone = peer.mib != NO_MIB ? "mib" : peer.topo ? "topo" : NULL;
    if (alone) HN_FAIL(err, HONE_ERR_USAGE, "--%s belongs to --p2p: hone doctor --p2p --%s ...", alone, alone);
    hn_str text = {0};
    if (config) {
        hn_config_dump(&text);
        hn_cli_put(hn_str_get(&text));
        hn_str_free(&text);
        return HONE_OK;
    }
    hn_doctor doctor;
    hn_doctor_options run = {.source = source, .measure = !quick, .ceilings = hn_cpu_ceilings, .card_ceilings = hn_cuda_ceilings,
                             .busy = busy, .timeout_s = peer.timeout_s};
    HN_TRY(hn_doctor_run(err, &run, &doctor));
    json ? hn_doctor_json(&text, &doctor) : hn_doctor_text(&text, &doctor);
    bool fault = hn_doctor_has_fault(&doctor), failed = text.failed;
    if (!failed) hn_cli_put(hn_str_get(&text));
    hn_str_free(&text);
    hn_doctor_free(&doctor);
    if (failed) HN_NOMEM(err, "doctor");
    if (fault) *out_exit = 1;
    return HONE_OK;
}
