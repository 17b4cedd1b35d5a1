// SPDX-License-Identifier: Apache-2.0
// What the driver adds to the machine that sysfs shows: which cards this process may see and in which
// order, NVLink link by link, memory, MIG, processes, the fabric's state.
//
// Every call may be refused; what is refused stays as it was. Without the driver's library the machine is
// left as sysfs gave it, with one sentence on what is unknown for that reason.
#include <ctype.h>
#include <stdio.h>
#include "libs/nvml.h"
#include "place/live.h"

#define LINKS_MAX        36
#define FIELD_LINK_SPEED 90 // common speed of the active links, MB/s
#define CALL(api, name, ...) ((api)->name ? (api)->name(__VA_ARGS__) : HN_NVML_FUNCTION_NOT_FOUND)

typedef struct nvml_cards {
    const hn_nvml *api;
    hn_nvml_device handle[HN_PLACE_GPUS_MAX];
    char pci[HN_PLACE_GPUS_MAX][16]; // "0000:3b:00.0", "" unknown
    int count;
} nvml_cards;

// "00000000:3B:00.0" to sysfs's "0000:3b:00.0".
static void sysfs_address(const char *bus_id, char out[16]) {
    const char *tail = strchr(bus_id, ':');
    out[0] = '\0';
    if (!tail || tail - bus_id < 4 || strlen(tail) > 11) return;
    snprintf(out, 16, "%.4s%s", tail - 4, tail);
    for (char *at = out; *at; at++) *at = (char)tolower((unsigned char)*at);
}

static hn_status list_cards(hone_error *err, nvml_cards *cards) {
    unsigned count = 0;
    int result = cards->api->nvmlDeviceGetCount_v2(&count);
    if (result != HN_NVML_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE, result, "the driver does not count its cards: %s",
                       hn_nvml_result_text(result));
    for (unsigned i = 0; i < count && i < HN_PLACE_GPUS_MAX; i++) {
        hn_nvml_pci pci = {0};
        // A card that fell off the bus has no handle; it is in sysfs, and is left out here.
        if (cards->api->nvmlDeviceGetHandleByIndex_v2(i, &cards->handle[cards->count]) != HN_NVML_OK) continue;
        char *address = cards->pci[cards->count];
        address[0] = '\0';
        if (CALL(cards->api, nvmlDeviceGetPciInfo_v3, cards->handle[cards->count], &pci) == HN_NVML_OK) {
            pci.bus_id[sizeof pci.bus_id - 1] = '\0';
            sysfs_address(pci.bus_id, address);
        }
        cards->count++;
    }
    return HONE_OK;
}

// Replaces the cards by those that the driver shows, in its order; cells between devices that stay are
// kept.
static hn_status match_cards(hone_error *err, hn_place_machine *m, const nvml_cards *cards) {
    int from[HN_PLACE_DEVICES_MAX], old_count = m->device_count;
    hn_place_link *old = m->matrix;
    hn_place_gpu gpus[HN_PLACE_GPUS_MAX];
    size_t old_gpus = m->gpus.count;
    if (cards->count + (int)m->nics.count > HN_PLACE_DEVICES_MAX)
        HN_FAIL(err, HONE_ERR_LIMIT, "more than %d devices", HN_PLACE_DEVICES_MAX);
    for (int i = 0; i < cards->count; i++) {
        gpus[i] = hn_place_gpu_unknown(i);
        from[i] = -1;
        for (size_t g = 0; g < old_gpus && cards->pci[i][0]; g++) {
            if (!m->gpus.data[g].pci || strcmp(m->gpus.data[g].pci, cards->pci[i]) != 0) continue;
            gpus[i] = m->gpus.data[g];
            gpus[i].index = i;
            from[i] = (int)g;
        }
        if (!gpus[i].pci && cards->pci[i][0])
            gpus[i].pci = hn_arena_strdup(&m->arena, cards->pci[i]);
    }
    for (size_t k = 0; k < m->nics.count; k++) from[cards->count + (int)k] = (int)(old_gpus + k);
    m->gpus.count = 0;
    for (int i = 0; i < cards->count; i++)
        if (!hn_vec_push(&m->gpus, gpus[i])) HN_NOMEM(err, "cards");
    HN_TRY(hn_place_machine_alloc_matrix(err, m));
    for (int a = 0; a < m->device_count; a++)
        for (int b = 0; b < m->device_count; b++) {
            if (a == b) m->matrix[a * m->device_count + b].kind = HN_LINK_SELF;
            else if (from[a] >= 0 && from[b] >= 0)
                m->matrix[a * m->device_count + b] = old[from[a] * old_count + from[b]];
        }
    return HONE_OK;
}

static void add_ancestors(hn_place_machine *m, const nvml_cards *cards) {
    static const struct {
        unsigned level;
        hn_place_link_kind kind;
    } k_levels[] = {{0, HN_LINK_PIX},  {10, HN_LINK_PIX},  {20, HN_LINK_PXB},
                    {30, HN_LINK_PHB}, {40, HN_LINK_NODE}, {50, HN_LINK_SYS}};
    for (int a = 0; a < cards->count; a++)
        for (int b = 0; b < cards->count; b++) {
            unsigned level;
            if (a == b || CALL(cards->api, nvmlDeviceGetTopologyCommonAncestor, cards->handle[a],
                               cards->handle[b], &level) != HN_NVML_OK)
                continue;
            for (size_t i = 0; i < HN_COUNT_OF(k_levels); i++)
                if (k_levels[i].level == level)
                    m->matrix[a * m->device_count + b] = (hn_place_link){.kind = (uint8_t)k_levels[i].kind};
        }
}

// Links of one card: to other cards by their address, and to switches.
static void add_links(hn_place_machine *m, const nvml_cards *cards, int card, int to_switch[]) {
    int to_card[HN_PLACE_GPUS_MAX] = {0}, total = 0, active = 0;
    for (unsigned link = 0; link < LINKS_MAX; link++) {
        unsigned on = 0, type = ~0u;
        hn_nvml_pci pci = {0};
        char address[16];
        int result = CALL(cards->api, nvmlDeviceGetNvLinkState, cards->handle[card], link, &on);
        if (result != HN_NVML_OK) break;
        total++;
        if (on != 1) continue;
        active++;
        CALL(cards->api, nvmlDeviceGetNvLinkRemoteDeviceType, cards->handle[card], link, &type);
        if (type == 2) to_switch[card]++;
        if (type == 2 || CALL(cards->api, nvmlDeviceGetNvLinkRemotePciInfo_v2, cards->handle[card], link,
                              &pci) != HN_NVML_OK)
            continue;
        pci.bus_id[sizeof pci.bus_id - 1] = '\0';
        sysfs_address(pci.bus_id, address);
        for (int other = 0; other < cards->count && address[0]; other++)
            if (other != card && strcmp(cards->pci[other], address) == 0) to_card[other]++;
    }
    if (!total) return;
    m->gpus.data[card].nvlinks_total = total;
    m->gpus.data[card].nvlinks_active = active;
    for (int other = 0; other < cards->count; other++)
        if (to_card[other])
            m->matrix[card * m->device_count + other] =
                (hn_place_link){HN_LINK_NVLINK, (uint8_t)to_card[other]};
}

static void add_switched(hn_place_machine *m, const nvml_cards *cards, const int *to_switch) {
    for (int a = 0; a < cards->count; a++)
        for (int b = 0; b < cards->count; b++) {
            int links = to_switch[a] < to_switch[b] ? to_switch[a] : to_switch[b];
            if (a != b && links)
                m->matrix[a * m->device_count + b] = (hn_place_link){HN_LINK_NVLINK, (uint8_t)links};
        }
}

// Nominal speed class from what the links report: 20 (Pascal), 25 (Volta to Hopper), 50 (Blackwell).
static void add_link_speed(hn_place_machine *m, const nvml_cards *cards) {
    for (int i = 0; i < cards->count; i++) {
        hn_nvml_field_value value = {.field = FIELD_LINK_SPEED};
        if (CALL(cards->api, nvmlDeviceGetFieldValues, cards->handle[i], 1, &value) != HN_NVML_OK ||
            value.result != HN_NVML_OK)
            continue;
        unsigned mbps = value.value.u32;
        if (mbps > 15000 && mbps < 100000) m->link_gbs = mbps < 22000 ? 20 : mbps < 40000 ? 25 : 50;
        return;
    }
}

static void add_mig(hn_place_machine *m, const nvml_cards *cards, int i) {
    hn_place_gpu *gpu = &m->gpus.data[i];
    unsigned current, pending, slots = 0;
    hn_nvml_device instance;
    int result = CALL(cards->api, nvmlDeviceGetMigMode, cards->handle[i], &current, &pending);
    if (result == HN_NVML_NOT_SUPPORTED) gpu->mig = 0; // a card that cannot split is whole
    if (result != HN_NVML_OK) return;
    gpu->mig = current == 1;
    if (!gpu->mig || CALL(cards->api, nvmlDeviceGetMaxMigDeviceCount, cards->handle[i], &slots) != HN_NVML_OK)
        return;
    gpu->mig_instances = 0;
    for (unsigned k = 0; k < slots && k < 16; k++)
        gpu->mig_instances += CALL(cards->api, nvmlDeviceGetMigDeviceHandleByIndex, cards->handle[i], k,
                                   &instance) == HN_NVML_OK;
}

static void add_facts(hn_place_machine *m, const nvml_cards *cards, int i) {
    hn_place_gpu *gpu = &m->gpus.data[i];
    hn_nvml_device handle = cards->handle[i];
    char text[96] = "";
    unsigned number, count = 0;
    int major, minor;
    if (CALL(cards->api, nvmlDeviceGetName, handle, text, sizeof text) == HN_NVML_OK)
        gpu->name = hn_arena_strndup(&m->arena, text, strnlen(text, sizeof text));
    if (CALL(cards->api, nvmlDeviceGetUUID, handle, text, sizeof text) == HN_NVML_OK)
        gpu->uuid = hn_arena_strndup(&m->arena, text, strnlen(text, sizeof text));
    if (CALL(cards->api, nvmlDeviceGetCudaComputeCapability, handle, &major, &minor) == HN_NVML_OK)
        gpu->compute_major = major, gpu->compute_minor = minor;
    hn_nvml_memory_v2 memory = {.version = HN_NVML_VERSION(hn_nvml_memory_v2, 2)};
    hn_nvml_memory before;
    if (CALL(cards->api, nvmlDeviceGetMemoryInfo_v2, handle, &memory) == HN_NVML_OK) {
        gpu->memory_bytes = (int64_t)memory.total;
        gpu->memory_used_bytes = (int64_t)(memory.total - memory.free);
    } else if (CALL(cards->api, nvmlDeviceGetMemoryInfo, handle, &before) == HN_NVML_OK) {
        gpu->memory_bytes = (int64_t)before.total;
        gpu->memory_used_bytes = (int64_t)before.used;
    }
    if (CALL(cards->api, nvmlDeviceGetMaxPcieLinkGeneration, handle, &number) == HN_NVML_OK)
        gpu->pcie_generation = (int)number;
    if (CALL(cards->api, nvmlDeviceGetMaxPcieLinkWidth, handle, &number) == HN_NVML_OK)
        gpu->pcie_width = (int)number;
    // Defined on machines where the cards' memory is a NUMA node of its own.
    if (CALL(cards->api, nvmlDeviceGetNumaNodeId, handle, &number) == HN_NVML_OK && number < 4096)
        gpu->memory_numa = (int)number;
    int result = CALL(cards->api, nvmlDeviceGetComputeRunningProcesses_v3, handle, &count, NULL);
    if (result == HN_NVML_OK || result == HN_NVML_INSUFFICIENT_SIZE) gpu->busy = count > 0;
    add_mig(m, cards, i);
}

static void add_fabric(hn_place_machine *m, const nvml_cards *cards) {
    int devices[HN_PLACE_GPUS_MAX], count = 0;
    for (int i = 0; i < cards->count; i++) {
        hn_nvml_fabric fabric = {.version = HN_NVML_VERSION(hn_nvml_fabric, 2)};
        if (CALL(cards->api, nvmlDeviceGetGpuFabricInfoV, cards->handle[i], &fabric) == HN_NVML_OK &&
            (fabric.state == 1 || fabric.state == 2))
            devices[count++] = i;
    }
    if (count)
        hn_place_machine_advise(m,
                                "%s %s not registered with the NVLink fabric yet: the fabric manager (or IMEX) is "
                                "not ready, so NVLink and NVLS fail; wait for it before starting jobs",
                                hn_place_device_list(m, devices, count), count == 1 ? "is" : "are");
}

static hn_status read_driver(hone_error *err, hn_place_machine *m, const hn_nvml *api) {
    nvml_cards cards = {.api = api};
    int to_switch[HN_PLACE_GPUS_MAX] = {0};
    HN_TRY(list_cards(err, &cards));
    HN_TRY(match_cards(err, m, &cards));
    add_ancestors(m, &cards);
    for (int i = 0; i < cards.count; i++) {
        add_facts(m, &cards, i);
        add_links(m, &cards, i, to_switch);
    }
    add_switched(m, &cards, to_switch);
    add_link_speed(m, &cards);
    add_fabric(m, &cards);
    m->source = "live (driver and sysfs)";
    return HONE_OK;
}

hn_status hn_place_add_nvml(hone_error *err, hn_place_machine *machine) {
    hn_nvml api;
    hn_lib lib;
    hone_error why = {0};
    int result = HN_NVML_UNKNOWN;
    hone_status status = hn_lib_open(&why, &hn_nvml_spec, &api, &lib);
    if (status == HONE_OK) {
        result = api.nvmlInit_v2();
        if (result != HN_NVML_OK) {
            HN_SET(&why, HONE_ERR_UNSUPPORTED, "NVML does not start: %s", hn_nvml_result_text(result));
            hn_lib_close(&lib);
        }
    }
    if (result != HN_NVML_OK) {
        if (machine->gpus.count)
            hn_place_machine_advise(machine,
                                    "NVLink, memory, MIG and use of the cards are unknown, they come from sysfs "
                                    "alone: %s",
                                    why.text);
        return HONE_OK;
    }
    status = read_driver(err, machine, &api);
    api.nvmlShutdown();
    hn_lib_close(&lib);
    return status;
}
