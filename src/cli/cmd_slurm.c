// SPDX-License-Identifier: Apache-2.0
// hone slurm gres | check | plan | record: Slurm's files from the machine and against it; the two
// verbs that the SPANK plug-in calls.
#include <stdio.h>
#include "cli/cli.h"
#include "place/bind.h"
#include "place/slurm/slurm.h"

typedef struct slurm_args {
    const char *topo, *type, *file, *node, *slurm_conf, *gres_conf, *gpus, *source, *log, *job,
        *step, *note;
    int64_t threads, interval, node_id;
    bool json;
} slurm_args;

static hone_status read_machine(hone_error *err, const slurm_args *args, hn_place_machine *out) {
    return args->topo ? hn_place_machine_read(err, args->topo, out)
                      : hn_place_machine_live(err, out);
}

static hone_status run_gres(hone_error *err, const slurm_args *args) {
    hn_place_machine machine = {0};
    hn_str text = {0};
    if (args->threads < 0 || args->threads > 16)
        HN_FAIL(err, HONE_ERR_USAGE, "--threads-per-core must be from 0 to 16");
    HN_TRY(read_machine(err, args, &machine));
    hn_slurm_gres_options options = {args->type, args->file, args->node, (int)args->threads,
                                     !args->topo};
    hone_status status = hn_slurm_gres(err, &machine, &options, &text);
    if (status == HONE_OK) hn_cli_put(hn_str_get(&text));
    hn_str_free(&text);
    hn_place_machine_free(&machine);
    return status;
}

static hone_status run_check(hone_error *err, const slurm_args *args, int *out_exit) {
    hn_place_machine machine = {0};
    HN_TRY(read_machine(err, args, &machine));
    // A login node without cards can still compare the files with each other.
    bool known = machine.gpus.count > 0;
    hn_slurm_check_options options = {args->slurm_conf ? args->slurm_conf : "/etc/slurm/slurm.conf",
                                      args->gres_conf, args->node, known ? &machine : NULL,
                                      !args->topo && known};
    hn_slurm_check check;
    hone_status status = hn_slurm_check_run(err, &options, &check);
    hn_place_machine_free(&machine);
    if (status != HONE_OK) return status;
    hn_str text = {0};
    if (args->json)
        status = hn_slurm_check_json(err, &check, &text);
    else
        hn_slurm_check_text(&check, &text);
    if (status == HONE_OK) {
        hn_cli_put(hn_str_get(&text));
        if (!args->json && !known)
            hn_cli_put("(no card is visible here: the files were compared with each other only)\n");
        *out_exit = check.good ? 0 : 1;
    }
    hn_str_free(&text);
    hn_slurm_check_free(&check);
    return status;
}

// Lines for the plug-in: "cpus 0-3", "mems 0", "reason ..."; no cpus line: leave the step as it is.
static hone_status run_plan(hone_error *err, const slurm_args *args) {
    hn_place_machine machine = {0};
    hn_place_cpuset allowed, nodes;
    HN_TRY(hn_place_allowed_cpus(err, &allowed));
    HN_TRY(hn_place_allowed_nodes(err, &nodes));
    HN_TRY(read_machine(err, args, &machine));
    hn_slurm_plan plan;
    hn_slurm_plan_make(&machine, args->gpus, &allowed, &nodes, &plan);
    hn_place_machine_free(&machine);
    hn_str text = {0};
    if (plan.bind) {
        hn_str_append(&text, "cpus ");
        hn_place_cpuset_append(&text, &plan.cpus);
        if (!hn_place_cpuset_empty(&plan.mems)) {
            hn_str_append(&text, "\nmems ");
            hn_place_cpuset_append(&text, &plan.mems);
        }
        hn_str_append(&text, "\n");
    }
    hn_cli_put(hn_str_get(&text));
    hn_cli_printf("reason %s\n", plan.reason);
    hn_str_free(&text);
    return HONE_OK;
}

typedef struct nth_name {
    int64_t wanted;
    char name[256];
} nth_name;

static bool take_nth(void *user, const char *name, int index) {
    nth_name *nth = user;
    if (index != nth->wanted) return true;
    snprintf(nth->name, sizeof nth->name, "%s", name);
    return false;
}

static hone_status run_record(hone_error *err, const slurm_args *args) {
    if (!args->log) HN_FAIL(err, HONE_ERR_USAGE, "hone slurm record needs --log FILE");
    nth_name nth = {args->node_id, ""};
    if (args->node) HN_TRY(hn_slurm_hostlist(err, args->node, take_nth, &nth));
    hn_slurm_record_options options = {args->source, args->gpus,     args->log,
                                       args->job,    args->step,     nth.name,
                                       args->note,   args->interval, 0};
    return hn_slurm_record(err, &options);
}

hone_status hn_cmd_slurm(hone_error *err, int argc, char **argv, int *out_exit) {
    slurm_args args = {.interval = 1000};
    const hn_option options[] = {
        {"topo", "FILE", HN_OPT_STR, &args.topo,
         "machine model: any file hone topo reads (default: this host)"},
        {"type", "NAME", HN_OPT_STR, &args.type,
         "gres: Type= of the cards (default: from their names)"},
        {"file", "PATTERN", HN_OPT_STR, &args.file,
         "gres: device files, %d is the number (default /dev/nvidia%d)"},
        {"threads-per-core", "N", HN_OPT_I64, &args.threads,
         "gres: threads of a core where the model is a file"},
        {"node", "NAME", HN_OPT_STR, &args.node,
         "node of the line or entry (check: default this host)"},
        {"node-id", "N", HN_OPT_I64, &args.node_id,
         "record: --node is a list, this is the place in it"},
        {"slurm-conf", "FILE", HN_OPT_STR, &args.slurm_conf,
         "check: default /etc/slurm/slurm.conf"},
        {"gres-conf", "FILE", HN_OPT_STR, &args.gres_conf, "check: default beside slurm.conf"},
        {"gpus", "LIST", HN_OPT_STR, &args.gpus, "plan, record: cards of the step"},
        {"source", "SOURCE", HN_OPT_STR, &args.source, "record: telemetry source"},
        {"log", "FILE", HN_OPT_STR, &args.log,
         "record: file that gets the summary line, - is standard output"},
        {"job", "ID", HN_OPT_STR, &args.job, "record: job of the line"},
        {"step", "ID", HN_OPT_STR, &args.step, "record: step of the line"},
        {"note", "TEXT", HN_OPT_STR, &args.note, "record: how the step was bound"},
        {"interval-ms", "N", HN_OPT_I64, &args.interval,
         "record: time between samples (default 1000)"},
        {"json", NULL, HN_OPT_FLAG, &args.json, "check: print the findings as JSON"},
    };
    const char *verb = NULL;
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &verb, 1, &count));
    if (!count) HN_FAIL(err, HONE_ERR_USAGE, "name one of gres, check, plan, record");
    if (strcmp(verb, "gres") == 0) return run_gres(err, &args);
    if (strcmp(verb, "check") == 0) return run_check(err, &args, out_exit);
    if (strcmp(verb, "plan") == 0) return run_plan(err, &args);
    if (strcmp(verb, "record") == 0) return run_record(err, &args);
    HN_FAIL(err, HONE_ERR_USAGE, "'%s' is none of gres, check, plan, record", verb);
}
