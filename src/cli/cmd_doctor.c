// SPDX-License-Identifier: Apache-2.0
// hone doctor: what this machine is, its measured ceilings, what is wrong with it.
#include "cli/cli.h"
#include "backends/cpu/ceilings.h"
#include "probe/doctor.h"
#include <stdio.h>

hone_status hn_cmd_doctor(hone_error *err, int argc, char **argv, int *out_exit) {
    const char *source = "";
    bool json = false, quick = false, config = false, slurm = false;
    const hn_option options[] = {
        {"source", "SOURCE", HN_OPT_STR, &source, "where the cards' readings come from: auto, nvml, dcgm, replay:FILE, text:FILE"},
        {"json", NULL, HN_OPT_FLAG, &json, "as JSON"},
        {"no_measure", NULL, HN_OPT_FLAG, &quick, "measure nothing (bandwidth, ceilings)"},
        {"slurm", NULL, HN_OPT_FLAG, &slurm, "compare slurm.conf and gres.conf with this machine; options of hone slurm check may follow"},
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
    hn_str text = {0};
    if (config) {
        hn_config_dump(&text);
        printf("%s", hn_str_get(&text));
        hn_str_free(&text);
        return HONE_OK;
    }
    hn_doctor doctor;
    hn_doctor_options run = {.source = source, .measure = !quick, .ceilings = hn_cpu_ceilings};
    HN_TRY(hn_doctor_run(err, &run, &doctor));
    json ? hn_doctor_json(&text, &doctor) : hn_doctor_text(&text, &doctor);
    bool fault = hn_doctor_has_fault(&doctor), failed = text.failed;
    if (!failed) printf("%s", hn_str_get(&text));
    hn_str_free(&text);
    hn_doctor_free(&doctor);
    if (failed) HN_NOMEM(err, "doctor");
    if (fault) *out_exit = 1;
    return HONE_OK;
}
