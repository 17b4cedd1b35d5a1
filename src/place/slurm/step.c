// SPDX-License-Identifier: Apache-2.0
// What the SPANK plug-in's helper does for one step: where to bind it, what it spent.
//
// Binding never widens what the step was given and never fails a step: a plan that cannot be made
// says why and binds nothing. The record is one line appended with one write, so that many steps of
// many nodes may share a log.
#include "place/slurm/slurm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>
#include "probe/energy.h"
#include "probe/probe.h"

// ---- plan -------------------------------------------------------------------------------------
static void refuse(hn_slurm_plan *plan, const char *reason) {
    *plan = (hn_slurm_plan){0};
    snprintf(plan->reason, sizeof plan->reason, "%s", reason);
}

// "0,1,3-4" or UUIDs: position of the card a word names, -1 unknown.
static int position_of(const hn_place_machine *machine, hn_slice word) {
    int64_t index;
    if (hn_parse_i64(word, &index) && index >= 0 && index < HN_PLACE_GPUS_MAX)
        return hn_place_gpu_find(machine, (int)index);
    for (size_t i = 0; i < machine->gpus.count; i++)
        if (machine->gpus.data[i].uuid && hn_slice_eq(word, machine->gpus.data[i].uuid))
            return (int)i;
    return -1;
}

static bool add_card(const hn_place_machine *machine, hn_slice word, hn_slurm_plan *plan) {
    int position = position_of(machine, word);
    if (position < 0) return false;
    const hn_place_gpu *gpu = &machine->gpus.data[position];
    if (!gpu->cpus_known || hn_place_cpuset_empty(&gpu->cpus)) return false;
    hn_place_cpuset_or(&plan->cpus, &gpu->cpus);
    // A node without CPUs is a card's own memory: nothing to bind tasks to.
    if (gpu->numa >= 0) hn_place_cpuset_add(&plan->mems, gpu->numa);
    return true;
}

void hn_slurm_plan_make(const hn_place_machine *machine, const char *gpus,
                        const hn_place_cpuset *allowed, const hn_place_cpuset *nodes,
                        hn_slurm_plan *out_plan) {
    *out_plan = (hn_slurm_plan){0};
    if (!gpus || !*gpus || strcmp(gpus, "NoDevFiles") == 0) {
        refuse(out_plan, "the step has no cards");
        return;
    }
    const char *at = gpus;
    while (*at) {
        size_t length = strcspn(at, ",");
        hn_slice word = hn_slice_trim((hn_slice){at, length}), low = word, high;
        const char *dash = memchr(word.data, '-', word.length);
        int64_t from, to;
        bool known;
        if (dash) {
            low.length = (size_t)(dash - word.data);
            high = (hn_slice){dash + 1, word.length - low.length - 1};
        }
        if (dash && hn_parse_i64(low, &from) && hn_parse_i64(high, &to) && to < HN_PLACE_GPUS_MAX) {
            known = from <= to;
            for (int64_t i = from; i <= to && known; i++) {
                char text[24];
                snprintf(text, sizeof text, "%lld", (long long)i);
                known = add_card(machine, (hn_slice){text, strlen(text)}, out_plan);
            }
        } else {
            known = add_card(machine, word, out_plan);
        }
        if (!known) {
            char reason[200];
            snprintf(reason, sizeof reason, "the CPUs near card '%.*s' are unknown",
                     (int)word.length, word.data);
            refuse(out_plan, reason);
            return;
        }
        at += length;
        if (*at == ',') at++;
    }
    hn_place_cpuset near = out_plan->cpus;
    hn_place_cpuset_and(&out_plan->cpus, allowed);
    if (hn_place_cpuset_empty(&out_plan->cpus)) {
        refuse(out_plan, "none of the CPUs near its cards is among those Slurm gave to the step");
        return;
    }
    if (nodes) hn_place_cpuset_and(&out_plan->mems, nodes);
    out_plan->bind = true;
    snprintf(out_plan->reason, sizeof out_plan->reason, "%d of %d CPUs near cards %s",
             hn_place_cpuset_count(&out_plan->cpus), hn_place_cpuset_count(&near), gpus);
}

// ---- record -----------------------------------------------------------------------------------
typedef struct lane {
    int device;
    hn_energy energy;
    double active_sum, util_sum;
    int64_t active_count, util_count, samples;
} lane;

static bool wanted(const hn_device_info *info, const char *gpus) {
    if (info->kind == HN_DEVICE_HOST) return !gpus || !*gpus;
    if (info->kind != HN_DEVICE_GPU) return false;
    if (!gpus || !*gpus) return true;
    if (!isfinite(info->gpu_index)) return false;
    char index[24];
    snprintf(index, sizeof index, "%d", (int)info->gpu_index);
    for (const char *at = gpus; *at;) {
        size_t n = strcspn(at, ",");
        if (n == strlen(index) && memcmp(at, index, n) == 0) return true;
        at += n;
        if (*at == ',') at++;
    }
    return false;
}

static void take_sample(hn_probe *probe, lane *item) {
    hn_sample sample;
    hone_error ignored = {0}; // a lost card or an ended recording is a gap, not a failure
    if (hn_probe_sample(&ignored, probe, item->device, &sample) != HONE_OK) return;
    item->samples++;
    hn_energy_add(&item->energy, &sample);
    if (hn_sample_has(&sample, HN_M_sm_active)) {
        item->active_sum += sample.value[HN_M_sm_active];
        item->active_count++;
    }
    if (hn_sample_has(&sample, HN_M_gpu_util)) {
        item->util_sum += sample.value[HN_M_gpu_util];
        item->util_count++;
    }
}

// Waits until the interval is over or the step ended; true when it ended.
static bool step_over(int fd, int64_t wait_ms) {
    struct pollfd item = {.fd = fd, .events = POLLIN};
    char junk[64];
    int ready = poll(&item, 1, wait_ms < 1 ? 1 : (int)wait_ms);
    if (ready <= 0) return ready < 0 && errno != EINTR;
    ssize_t got = read(fd, junk, sizeof junk);
    return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

static void put_word(hn_str *line, const char *key, const char *value) {
    hn_str_printf(line, " %s=", key);
    if (!value || !*value) value = "unknown";
    for (; *value; value++)
        hn_str_append_n(line, *value <= ' ' || *value == '=' ? "_" : value, 1);
}

static void put_number(hn_str *line, const char *key, double value, int digits) {
    if (isfinite(value))
        hn_str_printf(line, " %s=%.*f", key, digits, value);
    else
        hn_str_printf(line, " %s=unknown", key);
}

static void summary(const hn_slurm_record_options *o, const hn_probe *probe, const char *problem,
                    const lane *lanes, int count, int64_t took_ns, hn_str *line) {
    double joules = 0, active = 0, util = 0;
    int with_energy = 0, with_active = 0, with_util = 0;
    int64_t samples = 0, covered = 0, span = 0;
    hn_energy_method method = HN_ENERGY_NONE;
    for (int i = 0; i < count; i++) {
        const lane *l = &lanes[i];
        samples += l->samples;
        if (l->energy.method != HN_ENERGY_NONE && isfinite(l->energy.joules)) {
            joules += l->energy.joules;
            with_energy++;
            method = l->energy.method;
            covered += l->energy.covered_ns;
            span += l->energy.span_ns;
        }
        if (l->active_count) active += l->active_sum / (double)l->active_count, with_active++;
        if (l->util_count) util += l->util_sum / (double)l->util_count, with_util++;
    }
    char stamp[32];
    time_t now = (time_t)(hn_clock_wall_ns() / 1000000000);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &tm);
    hn_str_printf(line, "time=%s", stamp);
    put_word(line, "job", o->job);
    put_word(line, "step", o->step);
    put_word(line, "node", o->node);
    put_word(line, "gpus", o->gpus && *o->gpus ? o->gpus : "none");
    put_number(line, "seconds", (double)took_ns / 1e9, 2);
    // A sum over some cards of a step would read as the step's energy: it is all of them or
    // unknown.
    put_number(line, "energy_j", with_energy && with_energy == count ? joules : NAN, 1);
    put_word(line, "energy_by", with_energy ? hn_energy_method_text(method) : "none");
    put_number(line, "covered", span > 0 ? (double)covered / (double)span : NAN, 2);
    put_number(line, "sm_active", with_active ? active / with_active : NAN, 3);
    put_number(line, "gpu_util", with_util ? util / with_util : NAN, 1);
    hn_str_printf(line, " devices=%d samples=%lld", count, (long long)samples);
    put_word(line, "source", probe ? hn_probe_source(probe) : "none");
    if (o->note && *o->note) put_word(line, "bind", o->note);
    if (problem) put_word(line, "problem", problem);
    hn_str_append(line, "\n");
}

static hn_status append_line(hone_error *err, const char *path, const hn_str *line) {
    if (line->failed) HN_NOMEM(err, "the summary line");
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDOUT_FILENO : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) HN_FAIL(err, HONE_ERR_IO, "cannot append to '%s': %s", path, strerror(errno));
    ssize_t put = write(fd, line->data, line->length);
    int code = errno;
    if (!standard) close(fd);
    if (put != (ssize_t)line->length)
        HN_FAIL(err, HONE_ERR_IO, "cannot append to '%s': %s", path,
                put < 0 ? strerror(code) : "disk full");
    return HONE_OK;
}

hn_status hn_slurm_record(hone_error *err, const hn_slurm_record_options *options) {
    hn_probe *probe = NULL;
    hone_error why = {0};
    const char *problem = NULL;
    char text[sizeof why.text];
    lane *lanes = NULL;
    int count = 0;
    // Without telemetry the line is written all the same, with the reason in it.
    if (hn_probe_open(&why, options->source ? options->source : "", &probe) != HONE_OK) {
        probe = NULL;
        snprintf(text, sizeof text, "%s", why.text);
        problem = text;
    } else {
        int devices = hn_probe_device_count(probe);
        lanes = hn_calloc((size_t)devices + 1, sizeof *lanes);
        for (int d = 0; d < devices && lanes; d++) {
            const hn_device_info *info = hn_probe_device(probe, d);
            if (!wanted(info, options->gpus)) continue;
            lanes[count].device = d;
            hn_energy_start(&lanes[count].energy, info->kind);
            count++;
        }
        if (!count) problem = "the source has none of the step's cards";
    }
    int64_t start = hn_clock_ns(),
            interval = options->interval_ms > 0 ? options->interval_ms : 1000;
    int64_t next = start;
    bool over = false;
    while (!over) {
        for (int i = 0; i < count; i++)
            take_sample(probe, &lanes[i]);
        next += interval * 1000000;
        int64_t now = hn_clock_ns();
        if (next < now) next = now; // a slow reading is not made up for
        while (!over && (now = hn_clock_ns()) < next)
            over = step_over(options->stop_fd, (next - now) / 1000000);
    }
    for (int i = 0; i < count; i++)
        take_sample(probe, &lanes[i]);
    hn_str line = {0};
    summary(options, probe, problem, lanes, count, hn_clock_ns() - start, &line);
    hone_status status = append_line(err, options->log, &line);
    hn_str_free(&line);
    hn_free(lanes);
    hn_probe_close(probe);
    return status;
}
