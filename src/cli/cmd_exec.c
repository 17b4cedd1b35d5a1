// SPDX-License-Identifier: Apache-2.0
// hone exec: runs a command at its place, measures it, says what bound it.
#include "cli/cli.h"
#include <errno.h>
#include <stdio.h>
#include "fleet/exec_store.h"
#include "fleet/segment.h"
#include "place/job.h"

#define DEVICES_MAX 256

typedef struct setup {
    bool place, share, mig, quiet;
    int64_t cards, nics, cpus, tp, pp, dp;
    double memory_gib, hz, units;
    const char *source, *json, *progress, *phases, *html, *record, *title, *name, *unit;
    hn_exec_store store;
    char job_text[24]; // its number in the history
    hn_place_job job; // claim_fd -1 and all zero without --place
    bool placed;
    bool watch[DEVICES_MAX];
} setup;

static hone_status check_numbers(hone_error *err, const setup *s) {
    const struct range {
        const char *name;
        int64_t value, high;
    } ranges[] = {{"gpus", s->cards, 64}, {"nics", s->nics, 256}, {"cpus", s->cpus, 4096},
                  {"tp", s->tp, 64},      {"pp", s->pp, 64},      {"dp", s->dp, 64}};
    for (size_t i = 0; i < HN_COUNT_OF(ranges); i++)
        if (ranges[i].value < 0 || ranges[i].value > ranges[i].high)
            HN_FAIL(err, HONE_ERR_USAGE, "--%s must be from 0 to %lld", ranges[i].name, (long long)ranges[i].high);
    if (!(s->memory_gib >= 0 && s->memory_gib <= 1e6))
        HN_FAIL(err, HONE_ERR_USAGE, "--memory-gib must be from 0 to 1000000");
    if (!(s->hz >= 0.01 && s->hz <= 100)) HN_FAIL(err, HONE_ERR_USAGE, "--hz must be from 0.01 to 100");
    if (!isnan(s->units) && !(s->units > 0)) HN_FAIL(err, HONE_ERR_USAGE, "--units must be above 0");
    if (!isnan(s->units) && s->progress)
        HN_FAIL(err, HONE_ERR_USAGE, "--units and --progress exclude each other");
    bool wants = s->cards || s->nics || s->cpus || s->tp || s->pp || s->dp || s->memory_gib > 0 || s->share || s->mig;
    if (wants && !s->place)
        HN_FAIL(err, HONE_ERR_USAGE, "--gpus, --cpus and the like say what --place shall find: give --place too");
    bool of_cards = s->nics || s->tp || s->pp || s->dp || s->memory_gib > 0 || s->share || s->mig;
    if (of_cards && !s->cards)
        HN_FAIL(err, HONE_ERR_USAGE, "--nics, --tp, --pp, --dp, --memory-gib, --share and --mig are about cards: give --gpus too");
    return HONE_OK;
}

static hone_status place(hone_error *err, setup *s) {
    hn_place_launcher launcher;
    hn_place_request request = {
        .cards = (int)s->cards, .nics = (int)s->nics, .cpus = (int)s->cpus, .tp = (int)s->tp,
        .pp = (int)s->pp, .dp = (int)s->dp, .memory_bytes = (int64_t)(s->memory_gib * (1 << 30)),
        .share_busy = s->share, .mig = s->mig, .choices = 1};
    hn_place_launcher_detect(&launcher);
    if (s->cards == 0 && launcher.local_rank >= 0) {
        // Its ranks share the CPUs by the launcher's rule or by none; without cards there is no better.
        if (!s->quiet)
            fprintf(stderr, "hone: this is local rank %d of %s: without --gpus its place is left as it is\n",
                    launcher.local_rank, launcher.name);
        return HONE_OK;
    }
    HN_TRY(hn_place_job_open(err, &request, &s->job));
    s->placed = true;
    return HONE_OK;
}

static void tell_place(const setup *s) {
    hn_str text = {0};
    if (!s->placed || s->quiet) return;
    hn_place_job_text(&s->job, &text);
    fprintf(stderr, "hone: placed on %s", hn_str_get(&text));
    hn_str_free(&text);
}

static int bind_child(void *user) {
    const setup *s = user;
    return hn_place_binding_apply(&s->job.binding);
}

// What was asked for must work; what was not asked for is used where it is there.
static hone_status open_probe(hone_error *err, const setup *s, hn_probe **out_probe) {
    hone_error ignored = {0};
    *out_probe = NULL;
    if (strcmp(s->source, "none") == 0) return HONE_OK;
    if (s->source[0]) return hn_exec_open_probe(err, s->source, out_probe);
    if (hn_exec_open_probe(&ignored, "auto", out_probe) != HONE_OK) {
        *out_probe = NULL;
        return HONE_OK;
    }
    char both[300];
    const char *found = hn_probe_source(*out_probe);
    if (strstr(found, "host")) return HONE_OK;
    // The host tells why cards wait.
    snprintf(both, sizeof both, "%s+host", found);
    hn_probe *joined;
    if (hn_exec_open_probe(&ignored, both, &joined) == HONE_OK) {
        hn_probe_close(*out_probe);
        *out_probe = joined;
    }
    return HONE_OK;
}

static bool names_card(const char *list, const hn_device_info *info) {
    while (*list) {
        hn_slice token = hn_slice_trim((hn_slice){list, strcspn(list, ",")});
        int64_t index;
        if (hn_parse_i64(token, &index) ? (double)index == info->gpu_index
                                        : token.length > 4 && strncmp(info->uuid, token.data, token.length) == 0)
            return true;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return false;
}

// Cards that the command cannot see are none of its business. Recordings are of other machines.
static const bool *choose_devices(setup *s, const hn_probe *probe) {
    const char *visible = hn_config_env("CUDA_VISIBLE_DEVICES"), *source = hn_probe_source(probe);
    for (size_t i = 0; s->placed && i < s->job.binding.env.count; i++)
        if (strcmp(s->job.binding.env.data[i].name, "CUDA_VISIBLE_DEVICES") == 0)
            visible = s->job.binding.env.data[i].value;
    int count = hn_probe_device_count(probe), kept = 0;
    if (!visible || count > DEVICES_MAX || strchr(source, ':')) return NULL;
    for (int d = 0; d < count; d++) {
        const hn_device_info *info = hn_probe_device(probe, d);
        const hn_device_info *card = info->kind == HN_DEVICE_MIG && info->parent >= 0
                                         ? hn_probe_device(probe, info->parent) : info;
        s->watch[d] = info->kind == HN_DEVICE_HOST || names_card(visible, info) || names_card(visible, card);
        kept += s->watch[d] && info->kind != HN_DEVICE_HOST;
    }
    return kept ? s->watch : NULL;
}

static hone_status write_page(hone_error *err, const char *path, hn_str *page) {
    hone_status status = page->failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (report)")
                                      : hn_file_write(err, path, page->data, page->length);
    hn_str_free(page);
    return status;
}

// The history is beside the point of a run: where it cannot be written, that is said and no more.
static void remember(setup *s, const hn_exec_result *result, const hn_exec_totals *totals, const char *report) {
    hone_error why = {0};
    if (hn_exec_store_end(&why, &s->store, result, totals, report) != HONE_OK)
        hn_log(HN_LOG_WARN, "the job is not in the history: %s", why.text);
}

static hone_status report(hone_error *err, setup *s, const hn_exec_request *request,
                          const hn_exec_result *result, const char *source) {
    hn_exec_totals totals;
    hn_str text = {0}, page = {0};
    hone_status status = HONE_OK;
    hn_exec_totals_make(result, s->units, &totals);
    if (!s->quiet) {
        if (result->child_errno)
            fprintf(stderr, "hone: the binding was not applied in full: %s\n", strerror(result->child_errno));
        hn_exec_text(request, result, &totals, &text);
        fputs(hn_str_get(&text), stderr);
    }
    hn_str_free(&text);
    json_t *root = hn_exec_json(request, result, &totals, source);
    json_object_set_new(root, "place", s->placed ? hn_place_job_json(&s->job) : json_null());
    hn_place_json_append(root, &page);
    json_decref(root);
    remember(s, result, &totals, page.failed ? NULL : hn_str_get(&page));
    if (s->json) status = write_page(err, s->json, &page);
    else hn_str_free(&page);
    if (status == HONE_OK && s->html) {
        page = (hn_str){0};
        hn_exec_html(request, result, &totals, source, s->title ? s->title : s->name ? s->name : "", &page);
        status = write_page(err, s->html, &page);
    }
    return status;
}

// Enters the job, so that its processes are known as its own while it runs.
static void begin_job(setup *s, char *const *argv, const char *source) {
    hone_error why = {0};
    s->store = (hn_exec_store){.name = s->name, .unit = s->unit, .source = source};
    if (hn_exec_store_begin(&why, &s->store, argv) != HONE_OK) {
        hn_log(HN_LOG_WARN, "the job is not in the history: %s", why.text);
        hn_exec_store_close(&s->store);
    }
    if (s->store.history) snprintf(s->job_text, sizeof s->job_text, "%lld", (long long)s->store.job);
}

// The history's row names the probe's source: it is closed first.
static void drop_job(setup *s, hn_probe *probe) {
    hn_exec_store_close(&s->store);
    hn_probe_close(probe);
}

static hone_status run_command(hone_error *err, setup *s, hn_probe *probe, char **argv, int *out_exit) {
    hn_exec_request request = {.argv = argv, .probe = probe, .hz = s->hz, .progress = s->progress,
                               .phases = s->phases, .record = s->record};
    HN_VEC(hn_exec_env) env = {0};
    hn_exec_result result;
    begin_job(s, argv, probe ? hn_probe_source(probe) : NULL);
    if (s->job_text[0] && !hn_vec_push(&env, ((hn_exec_env){"HONE_JOB", s->job_text}))) {
        drop_job(s, probe);
        HN_NOMEM(err, "environment");
    }
    if (s->placed) {
        for (size_t i = 0; i < s->job.binding.env.count; i++) {
            hn_exec_env pair = {s->job.binding.env.data[i].name, s->job.binding.env.data[i].value};
            if (hn_vec_push(&env, pair)) continue;
            hn_vec_free(&env);
            drop_job(s, probe);
            HN_NOMEM(err, "environment");
        }
        request.in_child = bind_child;
        request.user = s;
    }
    request.env = env.data;
    request.env_count = env.count;
    if (probe) request.watch = choose_devices(s, probe);
    hone_status status = hn_exec_run(err, &request, &result);
    hn_vec_free(&env);
    if (status != HONE_OK) {
        drop_job(s, probe);
        return status;
    }
    *out_exit = result.exit_status;
    if (result.phases.count == 0 && !result.stuck)
        (void)!hn_segments_find(result.tracks, result.track_count, result.start_ns, &result.phases);
    if (result.start_errno) {
        hn_exec_totals totals;
        hn_exec_totals_make(&result, NAN, &totals);
        remember(s, &result, &totals, NULL);
        fprintf(stderr, "hone: '%s' cannot be run: %s\n", argv[0],
                result.start_errno == ENOENT ? "there is no such command" : strerror(result.start_errno));
    } else {
        status = report(err, s, &request, &result, probe ? hn_probe_source(probe) : NULL);
    }
    if (status == HONE_OK && result.record_error.status != HONE_OK) {
        *err = result.record_error;
        status = err->status;
    }
    if (!result.stuck) hn_probe_close(probe);
    hn_exec_result_free(&result);
    return status;
}

hone_status hn_cmd_exec(hone_error *err, int argc, char **argv, int *out_exit) {
    setup s = {.hz = 10, .units = NAN, .source = "", .job = {.claim_fd = -1}};
    const hn_option options[] = {
        {"source", "SOURCE", HN_OPT_STR, &s.source,
         "telemetry: auto, nvml, dcgm, host, nvml+host, replay:FILE, text:FILE, none (the best that is here)"},
        {"hz", "N", HN_OPT_F64, &s.hz, "samples a second and device, 0.01 to 100 (10)"},
        {"units", "N", HN_OPT_F64, &s.units, "units of work (samples, tokens) that the command does in all"},
        {"progress", "REGEX", HN_OPT_STR, &s.progress,
         "POSIX expression on the output's lines: group 1 is the units done so far; without a group a line is a unit"},
        {"phases", "REGEX", HN_OPT_STR, &s.phases,
         "POSIX expression on the output's lines: group 1 is the name of the phase that begins"},
        {"name", "NAME", HN_OPT_STR, &s.name, "what the job is called in the history, for hone energy"},
        {"unit", "WORD", HN_OPT_STR, &s.unit, "what its units are: sample, token, ..."},
        {"json", "FILE", HN_OPT_STR, &s.json, "also write the report as JSON"},
        {"html", "FILE", HN_OPT_STR, &s.html, "also write it as a page with plots over time"},
        {"title", "TEXT", HN_OPT_STR, &s.title, "heading of the page"},
        {"record", "FILE", HN_OPT_STR, &s.record, "also write what was read, for replay and hone report; .gz is compressed"},
        {"quiet", NULL, HN_OPT_FLAG, &s.quiet, "print no report"},
        {"place", NULL, HN_OPT_FLAG, &s.place, "choose cards, CPUs and memory, beside other jobs of hone, and bind"},
        {"gpus", "N", HN_OPT_I64, &s.cards, "with --place: cards (0: CPUs alone)"},
        {"nics", "N", HN_OPT_I64, &s.nics, "with --place: network adapters"},
        {"cpus", "N", HN_OPT_I64, &s.cpus, "with --place: CPUs in all; 0: those local to its cards, or free of one cache"},
        {"memory-gib", "N", HN_OPT_F64, &s.memory_gib, "with --place: free memory needed on each card"},
        {"tp", "N", HN_OPT_I64, &s.tp, "with --place: tensor-parallel size"},
        {"pp", "N", HN_OPT_I64, &s.pp, "with --place: pipeline stages"},
        {"dp", "N", HN_OPT_I64, &s.dp, "with --place: data-parallel replicas"},
        {"share", NULL, HN_OPT_FLAG, &s.share, "with --place: cards in use may be taken when there are no others"},
        {"mig", NULL, HN_OPT_FLAG, &s.mig, "with --place: one MIG instance"},
    };
    int own = 0, count;
    while (own < argc && strcmp(argv[own], "--") != 0) own++;
    HN_TRY(hn_cli_parse(err, own, argv, options, HN_COUNT_OF(options), NULL, 0, &count));
    if (own + 1 >= argc) HN_FAIL(err, HONE_ERR_USAGE, "exec needs a command after --: hone exec [options] -- COMMAND");
    HN_TRY(check_numbers(err, &s));
    if (s.record && strcmp(s.source, "none") == 0)
        HN_FAIL(err, HONE_ERR_USAGE, "--record needs readings, and --source none has none");
    hn_probe *probe;
    HN_TRY(open_probe(err, &s, &probe));
    hone_status status = s.place ? place(err, &s) : HONE_OK;
    if (status == HONE_OK) {
        tell_place(&s);
        status = run_command(err, &s, probe, argv + own + 1, out_exit);
    } else {
        hn_probe_close(probe);
    }
    hn_exec_store_close(&s.store);
    hn_place_job_close(&s.job);
    return status;
}
