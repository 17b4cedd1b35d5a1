// SPDX-License-Identifier: Apache-2.0
// hone place: the best cards of this machine (or of a topology file) for a job.
#include "cli/cli.h"
#include <stdio.h>
#include "place/bind.h"

static hone_status find_cards(hone_error *err, const hn_place_machine *machine, const char *list,
                              const char *what, uint64_t *out_cards) {
    hn_place_cpuset indices;
    uint64_t cards = 0;
    *out_cards = 0;
    if (!list) return HONE_OK;
    if (!hn_place_cpuset_parse((hn_slice){list, strlen(list)}, &indices))
        HN_FAIL(err, HONE_ERR_USAGE, "%s: '%s' is no ascending list of card numbers", what, list);
    for (int index = hn_place_cpuset_next(&indices, -1); index >= 0;
         index = hn_place_cpuset_next(&indices, index)) {
        int position = hn_place_gpu_find(machine, index);
        if (position < 0) HN_FAIL(err, HONE_ERR_USAGE, "%s: there is no card %d", what, index);
        cards |= UINT64_C(1) << position;
    }
    *out_cards = cards;
    return HONE_OK;
}

#define UNSET INT64_MIN

hone_status hn_cmd_place(hone_error *err, int argc, char **argv, int *out_exit) {
    int64_t cards = UNSET, nics = 0, cpus = 0, tp = 0, pp = 0, dp = 0, top = 4;
    double memory_gib = 0;
    bool json = false, explain = false, share = false, mig = false, any_cpu = false;
    const char *busy = NULL, *only = NULL, *path = NULL;
    const hn_option options[] = {
        {"gpus", "N", HN_OPT_I64, &cards, "cards that the job needs (1, or those of its shape)"},
        {"nics", "N", HN_OPT_I64, &nics, "network adapters that it needs; 0: it stays on this host"},
        {"cpus", "N", HN_OPT_I64, &cpus, "CPUs that it needs in all; 0: those local to its cards"},
        {"memory-gib", "N", HN_OPT_F64, &memory_gib, "free memory needed on each card"},
        {"tp", "N", HN_OPT_I64, &tp, "tensor-parallel size"},
        {"pp", "N", HN_OPT_I64, &pp, "pipeline stages"},
        {"dp", "N", HN_OPT_I64, &dp, "data-parallel replicas"},
        {"busy", "LIST", HN_OPT_STR, &busy, "cards in use, such as 0-3,6, beside those found"},
        {"only", "LIST", HN_OPT_STR, &only, "cards that may be taken"},
        {"share", NULL, HN_OPT_FLAG, &share, "cards in use may be taken when there are no others"},
        {"mig", NULL, HN_OPT_FLAG, &mig, "the job takes one MIG instance"},
        {"any-cpu", NULL, HN_OPT_FLAG, &any_cpu,
         "do not limit CPUs to this process's own affinity (always so for a file of another machine)"},
        {"top", "N", HN_OPT_I64, &top, "sets to print: the best and its runners-up (4)"},
        {"explain", NULL, HN_OPT_FLAG, &explain, "say why each set is behind and why each variable is set"},
        {"json", NULL, HN_OPT_FLAG, &json, "print JSON"},
    };
    int count;
    (void)out_exit;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &path, 1, &count));
    const struct range {
        const char *name;
        int64_t value, low, high;
    } ranges[] = {{"gpus", cards == UNSET ? 1 : cards, 1, HN_PLACE_GPUS_MAX},
                  {"nics", nics, 0, 256},
                  {"cpus", cpus, 0, 4096},
                  {"tp", tp, 0, 64},
                  {"pp", pp, 0, 64},
                  {"dp", dp, 0, 64},
                  {"top", top, 1, INT32_MAX}};
    for (size_t i = 0; i < HN_COUNT_OF(ranges); i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            HN_FAIL(err, HONE_ERR_USAGE, "--%s must be from %lld to %lld", ranges[i].name,
                    (long long)ranges[i].low, (long long)ranges[i].high);
    if (memory_gib < 0 || memory_gib > 1e6)
        HN_FAIL(err, HONE_ERR_USAGE, "--memory-gib must be from 0 to 1000000");
    if (cards == UNSET) // the shape says it where --gpus does not
        cards = (tp ? tp : 1) * (pp ? pp : 1) * (dp ? dp : 1);
    if (cards > HN_PLACE_GPUS_MAX)
        HN_FAIL(err, HONE_ERR_USAGE, "the shape has %lld cards, one machine at most %d",
                (long long)cards, HN_PLACE_GPUS_MAX);
    hn_place_machine machine = {0};
    if (count) HN_TRY(hn_place_machine_read(err, path, &machine));
    else HN_TRY(hn_place_machine_live(err, &machine));
    hn_place_request request = {
        .cards = (int)cards, .nics = (int)nics, .cpus = (int)cpus, .tp = (int)tp, .pp = (int)pp,
        .dp = (int)dp, .memory_bytes = (int64_t)(memory_gib * (1 << 30)), .share_busy = share, .mig = mig,
        .choices = top > HN_PLACE_CHOICES_MAX ? HN_PLACE_CHOICES_MAX : (int)top};
    hn_place_result result = {.choice_count = 0};
    hn_str text = {0};
    hone_status status = HONE_OK;
    if (!count && !any_cpu) {
        HN_TRY_GOTO(status, hn_place_allowed_cpus(err, &request.allowed), done);
        request.allowed_known = true;
    }
    if (!count && !only) HN_TRY_GOTO(status, hn_place_visible_cards(err, &machine, &request.only), done);
    HN_TRY_GOTO(status, find_cards(err, &machine, busy, "--busy", &request.busy), done);
    if (only) HN_TRY_GOTO(status, find_cards(err, &machine, only, "--only", &request.only), done);
    HN_TRY_GOTO(status, hn_place_search(err, &machine, &request, &result), done);
    if (json) {
        json_t *root = hn_place_result_json(&machine, &request, &result);
        hn_place_json_append(root, &text);
        json_decref(root);
    } else {
        hn_place_result_text(&machine, &request, &result, explain, &text);
    }
    if (text.failed) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (output)");
    else hn_cli_put(hn_str_get(&text));
done:
    hn_str_free(&text);
    hn_place_result_free(&result);
    hn_place_machine_free(&machine);
    return status;
}
