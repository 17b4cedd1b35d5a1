// SPDX-License-Identifier: Apache-2.0
// NVML provider: opening, MIG instances, events, processes. Devices are each card followed by its
// MIG instances, in the driver's order; a card that cannot be reached keeps its place and is lost.
#include <stdio.h>
#include "probe/nvml_int.h"
#include "probe/sys.h"

static void add_device(hn_nvml_probe *self, hn_device_kind kind, unsigned gpu_index, int parent,
                       hn_nvml_device handle) {
    int device = self->base.device_count++;
    hn_device_info *info = &self->devices[device];
    hn_nvml_card *card = &self->cards[device];
    // The words of the watching thread survive a reopening.
    card->handle = handle;
    card->is_mig = kind == HN_DEVICE_MIG;
    card->mig_on = false;
    card->parent = parent >= 0 ? self->cards[parent].handle : NULL;
    for (int t = 0; t < HN_NVML_TIERS; t++)
        card->tiers[t] = (hn_nvml_tier){0};
    memset(card->pcie, 0, sizeof card->pcie);
    hn_device_info_init(info, kind);
    info->parent = parent;
    info->gpu_index = gpu_index;
    atomic_store(&card->lost, handle == NULL);
    info->lost = handle == NULL;
    if (!handle) return;
    hn_nvml_read_facts(self, device);
    hn_nvml_discover(self, device);
}

static void add_mig_instances(hn_nvml_probe *self, int parent) {
    hn_nvml_card *card = &self->cards[parent];
    unsigned max = 0;
    if (!card->mig_on || HN_NVML_CALL(self, nvmlDeviceGetMaxMigDeviceCount, card->handle, &max) !=
                             HN_NVML_OK)
        return;
    for (unsigned i = 0; i < max && self->base.device_count < HN_NVML_DEVICES_MAX; i++) {
        hn_nvml_device handle = NULL;
        // Slots may be empty in any order.
        if (HN_NVML_CALL(self, nvmlDeviceGetMigDeviceHandleByIndex, card->handle, i, &handle) !=
                HN_NVML_OK ||
            !handle)
            continue;
        add_device(self, HN_DEVICE_MIG, (unsigned)self->devices[parent].gpu_index, parent, handle);
        int device = self->base.device_count - 1;
        memcpy(self->devices[device].pci_bus_id, self->devices[parent].pci_bus_id, HN_INFO_BYTES);
        self->devices[device].cc_major = self->devices[parent].cc_major;
        self->devices[device].cc_minor = self->devices[parent].cc_minor;
    }
}

static void write_note(hn_nvml_probe *self, unsigned cards) {
    int without_activity = 0, refused = 0, lost = 0;
    for (int d = 0; d < self->base.device_count; d++) {
        const hn_device_info *info = &self->devices[d];
        lost += info->lost;
        if (info->kind != HN_DEVICE_GPU || info->lost) continue;
        without_activity += info->absent[HN_M_sm_active] == HN_ABSENT_UNSUPPORTED ||
                            info->absent[HN_M_sm_active] == HN_ABSENT_LIBRARY;
        refused += info->absent[HN_M_sm_active] == HN_ABSENT_PERMISSION;
    }
    char *note = self->base.note;
    size_t bytes = sizeof self->base.note;
    int on_bus = hn_sys_nvidia_cards();
    *note = '\0';
    if (lost)
        snprintf(note, bytes, "%d of %u cards cannot be reached", lost, cards);
    else if (on_bus > (int)cards)
        snprintf(note, bytes, "the PCI bus shows %d cards, the driver %u", on_bus, cards);
    else if (without_activity)
        snprintf(note, bytes,
                 "%d of %u cards have no SM, tensor and DRAM activity through NVML (before Hopper): "
                 "the source dcgm reads it",
                 without_activity, cards);
    else if (refused)
        snprintf(note, bytes, "activity counters of %d cards need administrator rights", refused);
}

// Opens or reopens everything behind the table.
static hone_status start(hone_error *err, hn_nvml_probe *self) {
    int result = self->api.nvmlInit_v2();
    if (result != HN_NVML_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_UNSUPPORTED, result, "NVML does not start: %s",
                       hn_nvml_result_text(result));
    self->initialised = true;
    unsigned cards = 0;
    result = self->api.nvmlDeviceGetCount_v2(&cards);
    if (result != HN_NVML_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE, result, "NVML cannot count the cards: %s",
                       hn_nvml_result_text(result));
    if (cards == 0)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the NVIDIA driver is loaded but sees no card");
    if (cards > HN_NVML_CARDS_MAX) cards = HN_NVML_CARDS_MAX;
    self->base.device_count = 0;
    for (unsigned i = 0; i < cards && self->base.device_count < HN_NVML_DEVICES_MAX; i++) {
        hn_nvml_device handle = NULL;
        if (self->api.nvmlDeviceGetHandleByIndex_v2(i, &handle) != HN_NVML_OK) handle = NULL;
        add_device(self, HN_DEVICE_GPU, i, -1, handle);
        if (handle) add_mig_instances(self, self->base.device_count - 1);
    }
    hn_sleep_ns(HN_NVML_GPM_WINDOW_NS + 10000000);
    for (int d = 0; d < self->base.device_count; d++)
        if (self->cards[d].handle) hn_nvml_discover_gpm(self, d);
    self->events_cards = 0;
    if (HN_NVML_CALL(self, nvmlEventSetCreate, &self->events) == HN_NVML_OK)
        for (int d = 0; d < self->base.device_count; d++)
            if (!self->cards[d].is_mig && self->cards[d].handle)
                self->events_cards +=
                    HN_NVML_CALL(self, nvmlDeviceRegisterEvents, self->cards[d].handle,
                                 HN_NVML_EVENT_XID, self->events) == HN_NVML_OK;
    write_note(self, cards);
    return HONE_OK;
}

static void stop(hn_nvml_probe *self) {
    for (int d = 0; d < self->base.device_count; d++)
        hn_nvml_forget(self, d);
    if (self->events) (void)HN_NVML_CALL(self, nvmlEventSetFree, self->events);
    self->events = NULL;
    if (self->initialised) self->api.nvmlShutdown();
    self->initialised = false;
}

static void nvml_close(hn_probe *probe) {
    hn_nvml_probe *self = (hn_nvml_probe *)probe;
    stop(self);
    hn_lib_close(&self->lib);
    hn_free(self->cards);
    hn_free(self);
}

static hone_status nvml_open(hone_error *err, const char *arg, hn_probe **out_probe) {
    (void)arg;
    hn_nvml_probe *self = hn_calloc(1, sizeof *self);
    if (!self) HN_NOMEM(err, "nvml");
    self->base.provider = &hn_probe_nvml;
    self->base.devices = self->devices;
    self->cards = hn_calloc(HN_NVML_DEVICES_MAX, sizeof *self->cards);
    hone_status status = self->cards ? HONE_OK : HN_SET(err, HONE_ERR_NOMEM, "out of memory (nvml)");
    if (status == HONE_OK) status = hn_lib_open(err, &hn_nvml_spec, &self->api, &self->lib);
    if (status == HONE_OK) status = start(err, self);
    if (status != HONE_OK) {
        nvml_close(&self->base);
        return status;
    }
    *out_probe = &self->base;
    return HONE_OK;
}

static void nvml_refresh(hn_probe *probe, int device) {
    atomic_store(&((hn_nvml_probe *)probe)->cards[device].refresh, true);
}

static hone_status nvml_reopen(hone_error *err, hn_probe *probe) {
    hn_nvml_probe *self = (hn_nvml_probe *)probe;
    int before = self->base.device_count;
    stop(self);
    hone_status status = start(err, self);
    // Cards that are gone keep their numbers, as lost.
    if (status != HONE_OK) self->base.device_count = 0;
    for (int d = self->base.device_count; d < before; d++) {
        self->devices[d].lost = true;
        self->cards[d].handle = NULL;
        atomic_store(&self->cards[d].lost, true);
    }
    if (self->base.device_count < before) self->base.device_count = before;
    return status;
}

// ---- events -----------------------------------------------------------------------------------
static int device_of(const hn_nvml_probe *self, const hn_nvml_event *event) {
    for (int d = 0; d < self->base.device_count; d++)
        if (self->cards[d].handle == event->device && !self->cards[d].is_mig) return d;
    return -1;
}

// Cards that a sample found lost and nobody was told of.
static bool tell_lost(hn_nvml_probe *self, hn_event *out_event) {
    for (int d = 0; d < self->base.device_count; d++) {
        hn_nvml_card *card = &self->cards[d];
        if (!atomic_load(&card->lost) || atomic_exchange(&card->lost_told, true)) continue;
        *out_event = (hn_event){.kind = HN_EVENT_LOST, .device = d, .t_ns = hn_clock_ns(),
                                .wall_ns = hn_clock_wall_ns()};
        return true;
    }
    return false;
}

static hone_status nvml_wait_event(hone_error *err, hn_probe *probe, int timeout_ms,
                                   hn_event *out_event) {
    hn_nvml_probe *self = (hn_nvml_probe *)probe;
    if (self->events_cards > 0) atomic_store(&self->watching, true);
    if (tell_lost(self, out_event)) return HONE_OK;
    if (self->events_cards == 0) {
        hn_sleep_ns((int64_t)timeout_ms * 1000000); // losses are told all the same
        if (tell_lost(self, out_event)) return HONE_OK;
        HN_FAIL(err, HONE_ERR_TIMEOUT, "no event within %d ms", timeout_ms);
    }
    hn_nvml_event event;
    int result = HN_NVML_CALL(self, nvmlEventSetWait_v2, self->events, &event, (unsigned)timeout_ms);
    if (result == HN_NVML_TIMEOUT) {
        if (tell_lost(self, out_event)) return HONE_OK;
        HN_FAIL(err, HONE_ERR_TIMEOUT, "no event within %d ms", timeout_ms);
    }
    if (result == HN_NVML_GPU_IS_LOST) { // of which card is not said: samples will tell
        hn_sleep_ns((int64_t)timeout_ms * 1000000);
        HN_FAIL_VENDOR(err, HONE_ERR_TIMEOUT, result, "a card was lost while waiting for events");
    }
    if (result != HN_NVML_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE, result, "waiting for events failed: %s",
                       hn_nvml_result_text(result));
    int device = device_of(self, &event);
    *out_event = (hn_event){.kind = HN_EVENT_XID, .device = device, .t_ns = hn_clock_ns(),
                            .wall_ns = hn_clock_wall_ns(), .xid = (int64_t)event.data};
    if (device >= 0) {
        atomic_store(&self->cards[device].last_xid, (int)event.data);
        atomic_fetch_add(&self->cards[device].xid_events, 1);
        if (event.data == 79) atomic_store(&self->cards[device].lost, true); // fell off the bus
    }
    return HONE_OK;
}

// ---- processes --------------------------------------------------------------------------------
static void process_name(int64_t pid, char *out, size_t bytes) {
    char path[HN_SYS_PATH_BYTES];
    out[0] = '\0';
    if (hn_sys_path(path, "/proc/%lld/comm", (long long)pid)) hn_sys_line(path, out, bytes);
}

static int list_processes(hn_nvml_probe *self, hn_nvml_card *card, bool graphics,
                          hn_process *out_items, int max_items, int *count) {
    unsigned got = HN_NVML_PROCESSES_MAX;
    int result =
        graphics ? HN_NVML_CALL(self, nvmlDeviceGetGraphicsRunningProcesses_v3, card->handle, &got,
                                card->process_items)
                 : HN_NVML_CALL(self, nvmlDeviceGetComputeRunningProcesses_v3, card->handle, &got,
                                card->process_items);
    if (result != HN_NVML_OK) return result;
    for (unsigned i = 0; i < got && i < HN_NVML_PROCESSES_MAX; i++) {
        const hn_nvml_process *from = &card->process_items[i];
        hn_process *to = NULL;
        for (int k = 0; k < *count && !to; k++)
            if (out_items[k].pid == from->pid && out_items[k].gi_id == (from->gi == ~0u ? -1 : (int64_t)from->gi))
                to = &out_items[k];
        if (!to) {
            if (*count == max_items) break;
            to = &out_items[(*count)++];
            *to = (hn_process){.pid = from->pid,
                               .used_bytes = -1,
                               .sm_util = NAN,
                               .gi_id = from->gi == ~0u ? -1 : (int64_t)from->gi,
                               .ci_id = from->ci == ~0u ? -1 : (int64_t)from->ci};
            process_name(to->pid, to->name, sizeof to->name);
        }
        to->type |= graphics ? HN_PROCESS_GRAPHICS : HN_PROCESS_COMPUTE;
        if (from->used_bytes != HN_NVML_VALUE_ABSENT && from->used_bytes <= INT64_MAX)
            to->used_bytes = (int64_t)from->used_bytes;
    }
    return result;
}

static hone_status nvml_processes(hone_error *err, hn_probe *probe, int device,
                                  hn_process *out_items, int max_items, int *out_count) {
    hn_nvml_probe *self = (hn_nvml_probe *)probe;
    hn_nvml_card *card = &self->cards[device];
    if (atomic_load(&card->lost) || !card->handle)
        HN_FAIL(err, HONE_ERR_DEVICE_LOST, "gpu %.0f: the card fell off the bus",
                self->devices[device].gpu_index);
    int count = 0;
    int result = list_processes(self, card, false, out_items, max_items, &count);
    int second = list_processes(self, card, true, out_items, max_items, &count);
    if (result != HN_NVML_OK && second != HN_NVML_OK)
        HN_FAIL_VENDOR(err, result == HN_NVML_GPU_IS_LOST ? HONE_ERR_DEVICE_LOST : HONE_ERR_UNSUPPORTED,
                       result, "gpu %.0f lists no processes: %s", self->devices[device].gpu_index,
                       hn_nvml_result_text(result));
    unsigned utils = HN_NVML_PROCESSES_MAX;
    if (HN_NVML_CALL(self, nvmlDeviceGetProcessUtilization, card->handle, card->util_items, &utils,
                     card->util_since_us) == HN_NVML_OK)
        for (unsigned i = 0; i < utils && i < HN_NVML_PROCESSES_MAX; i++) {
            const hn_nvml_process_util *util = &card->util_items[i];
            for (int k = 0; k < count; k++)
                if (out_items[k].pid == util->pid && util->sm <= 100) out_items[k].sm_util = util->sm;
            if (util->timestamp_us > card->util_since_us) card->util_since_us = util->timestamp_us;
        }
    *out_count = count;
    return HONE_OK;
}

const hn_probe_provider hn_probe_nvml = {
    .name = "nvml", .open = nvml_open, .close = nvml_close, .sample = hn_nvml_sample,
    .processes = nvml_processes, .wait_event = nvml_wait_event, .reopen = nvml_reopen,
    .refresh = nvml_refresh};
