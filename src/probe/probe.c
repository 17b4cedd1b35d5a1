// SPDX-License-Identifier: Apache-2.0
// Opening probes by source string, and the thin layer between callers and providers. A joined
// source ("nvml+host") is a provider of its own whose devices are those of its parts in order.
#include <stdio.h>
#include "probe/probe.h"

#define PARTS_MAX 4

static const hn_probe_provider *const k_providers[] = {
#define HN_PROVIDER(name) &hn_probe_##name,
#include "probe/providers.def"
#undef HN_PROVIDER
};

// ---- joined sources ---------------------------------------------------------------------------
typedef struct joined {
    hn_probe base;
    hn_probe *parts[PARTS_MAX]; // owned
    int part_count;
    int next_event; // part asked first for the next event
} joined;

static hn_probe *part_of(const joined *all, int *device) {
    for (int i = 0; i < all->part_count; i++) {
        if (*device < all->parts[i]->device_count) return all->parts[i];
        *device -= all->parts[i]->device_count;
    }
    return NULL;
}

static void joined_close(hn_probe *probe) {
    joined *all = (joined *)probe;
    for (int i = 0; i < all->part_count; i++)
        hn_probe_close(all->parts[i]);
    hn_free(all->base.devices);
    hn_free(all);
}

static hone_status joined_sample(hone_error *err, hn_probe *probe, int device,
                                 hn_sample *out_sample) {
    joined *all = (joined *)probe;
    int inner = device;
    hn_probe *part = part_of(all, &inner);
    hone_status status = part->provider->sample(err, part, inner, out_sample);
    // The parts own what changes; the copy follows. One writer per device, as for samples.
    all->base.devices[device].lost = part->devices[inner].lost;
    memcpy(all->base.devices[device].absent, part->devices[inner].absent,
           sizeof part->devices[inner].absent);
    return status;
}

static void joined_refresh(hn_probe *probe, int device) {
    hn_probe *part = part_of((joined *)probe, &device);
    hn_probe_refresh(part, device);
}

static hone_status joined_processes(hone_error *err, hn_probe *probe, int device,
                                    hn_process *out_items, int max_items, int *out_count) {
    hn_probe *part = part_of((joined *)probe, &device);
    return hn_probe_processes(err, part, device, out_items, max_items, out_count);
}

static hone_status joined_wait_event(hone_error *err, hn_probe *probe, int timeout_ms,
                                     hn_event *out_event) {
    joined *all = (joined *)probe;
    int offset = 0, able = 0;
    for (int i = 0; i < all->part_count; i++)
        able += all->parts[i]->provider->wait_event != NULL;
    if (!able) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s has no events", probe->source);
    for (int i = 0; i < all->part_count; offset += all->parts[i++]->device_count) {
        hn_probe *part = all->parts[i];
        if (!part->provider->wait_event) continue;
        hone_status status =
            part->provider->wait_event(err, part, timeout_ms / able, out_event);
        if (status == HONE_OK && out_event->device >= 0) out_event->device += offset;
        if (status != HONE_ERR_TIMEOUT && status != HONE_ERR_UNSUPPORTED) return status;
    }
    HN_FAIL(err, HONE_ERR_TIMEOUT, "no event within %d ms", timeout_ms);
}

static void joined_copy_devices(joined *all) {
    int at = 0;
    for (int i = 0; i < all->part_count; i++) {
        for (int d = 0; d < all->parts[i]->device_count; d++) {
            hn_device_info *info = &all->base.devices[at + d];
            *info = all->parts[i]->devices[d];
            if (info->parent >= 0) info->parent += at;
        }
        at += all->parts[i]->device_count;
    }
}

static hone_status joined_reopen(hone_error *err, hn_probe *probe) {
    joined *all = (joined *)probe;
    hone_status first = HONE_OK;
    for (int i = 0; i < all->part_count; i++) {
        hone_status status = hn_probe_reopen(first == HONE_OK ? err : NULL, all->parts[i]);
        if (first == HONE_OK) first = status;
    }
    joined_copy_devices(all);
    return first;
}

static const hn_probe_provider k_joined = {
    .name = "joined", .close = joined_close, .sample = joined_sample,
    .processes = joined_processes, .wait_event = joined_wait_event, .reopen = joined_reopen,
    .refresh = joined_refresh,
};

// Takes over the parts, also on failure.
static hone_status join(hone_error *err, hn_probe **parts, int part_count, hn_probe **out_probe) {
    joined *all = hn_calloc(1, sizeof *all);
    size_t devices = 0;
    for (int i = 0; i < part_count; i++)
        devices += (size_t)parts[i]->device_count;
    hn_device_info *infos = hn_calloc(devices, sizeof *infos);
    if (!all || !infos) {
        for (int i = 0; i < part_count; i++)
            hn_probe_close(parts[i]);
        hn_free(all);
        hn_free(infos);
        HN_NOMEM(err, "probe");
    }
    *all = (joined){.base = {.provider = &k_joined, .device_count = (int)devices, .devices = infos},
                    .part_count = part_count};
    size_t source = 0, note = 0;
    for (int i = 0; i < part_count; i++) {
        all->parts[i] = parts[i];
        hn_probe *base = &all->base;
        source += (size_t)snprintf(base->source + source, sizeof base->source - source, "%s%s",
                                   i ? "+" : "", parts[i]->source);
        if (source >= sizeof base->source) source = sizeof base->source - 1;
        if (parts[i]->note[0])
            note += (size_t)snprintf(base->note + note, sizeof base->note - note, "%s%s",
                                     note ? "; " : "", parts[i]->note);
        if (note >= sizeof base->note) note = sizeof base->note - 1;
    }
    joined_copy_devices(all);
    *out_probe = &all->base;
    return HONE_OK;
}

// ---- opening ----------------------------------------------------------------------------------
static const hn_probe_provider *find_provider(const char *name, size_t length) {
    for (size_t i = 0; i < HN_COUNT_OF(k_providers); i++)
        if (strlen(k_providers[i]->name) == length &&
            memcmp(k_providers[i]->name, name, length) == 0)
            return k_providers[i];
    return NULL;
}

static hone_status open_one(hone_error *err, const char *source, size_t length,
                            hn_probe **out_probe) {
    const char *colon = memchr(source, ':', length);
    const hn_probe_provider *provider =
        find_provider(source, colon ? (size_t)(colon - source) : length);
    if (!provider || (colon != NULL) != provider->takes_arg) {
        hn_str known = {0};
        for (size_t i = 0; i < HN_COUNT_OF(k_providers); i++)
            hn_str_printf(&known, ", %s%s", k_providers[i]->name,
                          k_providers[i]->takes_arg ? ":FILE" : "");
        hone_status status = HN_SET(err, HONE_ERR_USAGE, "'%.*s' is no source of samples: auto%s",
                                    (int)length, source, hn_str_get(&known));
        hn_str_free(&known);
        return status;
    }
    const char *arg = colon ? colon + 1 : NULL;
    if (arg && *arg == '\0')
        HN_FAIL(err, HONE_ERR_USAGE, "'%s' needs the name of a file", source);
    hn_probe *probe;
    HN_TRY(provider->open(err, arg, &probe));
    if (!probe->source[0])
        snprintf(probe->source, sizeof probe->source, "%.*s", (int)length, source);
    *out_probe = probe;
    return HONE_OK;
}

// Of the cards' sources the one that reads SM activity, else the first that opens, else the host.
static hone_status open_auto(hone_error *err, hn_probe **out_probe) {
    static const char *const k_live[] = {"nvml", "dcgm"};
    hn_probe *kept = NULL;
    for (size_t i = 0; i < HN_COUNT_OF(k_live); i++) {
        hn_probe *probe;
        if (!find_provider(k_live[i], strlen(k_live[i])) ||
            open_one(NULL, k_live[i], strlen(k_live[i]), &probe) != HONE_OK)
            continue;
        bool activity = true;
        for (int d = 0; d < probe->device_count; d++)
            activity &= probe->devices[d].absent[HN_M_sm_active] == HN_ABSENT_NOT ||
                        probe->devices[d].absent[HN_M_sm_active] == HN_ABSENT_MIG;
        if (activity || !kept) {
            hn_probe_close(kept);
            kept = probe;
        } else {
            hn_probe_close(probe);
        }
        if (activity) break;
    }
    if (!kept) return open_one(err, "host", 4, out_probe);
    *out_probe = kept;
    return HONE_OK;
}

hn_status hn_probe_open(hone_error *err, const char *source, hn_probe **out_probe) {
    if (!source || !*source) source = "auto";
    hn_probe *parts[PARTS_MAX] = {0};
    int count = 0;
    hone_status status = HONE_OK;
    for (const char *at = source; at && status == HONE_OK;) {
        const char *plus = strchr(at, '+'), *colon = strchr(at, ':');
        if (plus && colon && colon < plus) plus = NULL; // a file's name may hold a plus
        size_t length = plus ? (size_t)(plus - at) : strlen(at);
        if (count == PARTS_MAX)
            status = HN_SET(err, HONE_ERR_USAGE, "'%s' joins more than %d sources", source,
                            PARTS_MAX);
        else if (length == 4 && memcmp(at, "auto", 4) == 0)
            status = open_auto(err, &parts[count]);
        else
            status = open_one(err, at, length, &parts[count]);
        if (status == HONE_OK) count++;
        at = plus ? plus + 1 : NULL;
    }
    if (status != HONE_OK) {
        for (int i = 0; i < count; i++)
            hn_probe_close(parts[i]);
        return status;
    }
    if (count > 1) return join(err, parts, count, out_probe);
    *out_probe = parts[0];
    return HONE_OK;
}

hn_status hn_probe_open_with_host(hone_error *err, const char *source, hn_probe **out_probe) {
    HN_TRY(hn_probe_open(err, source, out_probe));
    if ((source && *source && strcmp(source, "auto") != 0) || strcmp((*out_probe)->source, "host") == 0) return HONE_OK;
    hn_probe *parts[2] = {*out_probe, NULL}, *both = NULL;
    if (open_one(NULL, "host", 4, &parts[1]) != HONE_OK) return HONE_OK; // the cards alone
    hone_status status = join(err, parts, 2, &both);
    *out_probe = both;
    return status;
}

void hn_probe_close(hn_probe *probe) {
    if (probe) probe->provider->close(probe);
}

const char *hn_probe_source(const hn_probe *probe) { return probe->source; }
const char *hn_probe_note(const hn_probe *probe) { return probe->note; }
int hn_probe_device_count(const hn_probe *probe) { return probe->device_count; }

const hn_device_info *hn_probe_device(const hn_probe *probe, int device) {
    return device >= 0 && device < probe->device_count ? &probe->devices[device] : NULL;
}

static hone_status check_device(hone_error *err, const hn_probe *probe, int device) {
    if (device >= 0 && device < probe->device_count) return HONE_OK;
    HN_FAIL(err, HONE_ERR_USAGE, "%s has no device %d, only %d", probe->source, device,
            probe->device_count);
}

hn_status hn_probe_sample(hone_error *err, hn_probe *probe, int device, hn_sample *out_sample) {
    HN_TRY(check_device(err, probe, device));
    return probe->provider->sample(err, probe, device, out_sample);
}

hn_status hn_probe_processes(hone_error *err, hn_probe *probe, int device, hn_process *out_items,
                             int max_items, int *out_count) {
    HN_TRY(check_device(err, probe, device));
    if (!probe->provider->processes)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s lists no processes", probe->source);
    return probe->provider->processes(err, probe, device, out_items, max_items, out_count);
}

hn_status hn_probe_wait_event(hone_error *err, hn_probe *probe, int timeout_ms,
                              hn_event *out_event) {
    if (!probe->provider->wait_event)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s has no events", probe->source);
    return probe->provider->wait_event(err, probe, timeout_ms, out_event);
}

void hn_probe_refresh(hn_probe *probe, int device) {
    if (probe->provider->refresh && device >= 0 && device < probe->device_count)
        probe->provider->refresh(probe, device);
}

hn_status hn_probe_reopen(hone_error *err, hn_probe *probe) {
    return probe->provider->reopen ? probe->provider->reopen(err, probe) : HONE_OK;
}

int64_t hn_probe_clock_ns(const hn_probe *probe) {
    return probe->provider->clock_ns ? probe->provider->clock_ns(probe) : hn_clock_ns();
}

bool hn_probe_ended(const hn_probe *probe) {
    return probe->provider->ended && probe->provider->ended(probe);
}
