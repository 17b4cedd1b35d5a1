// SPDX-License-Identifier: Apache-2.0
// DCGM provider: what NVML cannot read on Volta to Ampere (SM, tensor and DRAM activity), plus all
// device fields, for cards and MIG GPU instances. A running host engine is asked first; without one
// an engine is started inside this process.
//
// Watches are ours and are taken back at closing: profiling counters held by a dead process have
// frozen cards. Values older than STALE_US leave the sample. Where the engine reads 0 activity on a
// card that is busy for a minute, the collector is at fault: the watch is taken anew.
#include <stdatomic.h>
#include <stdio.h>
#include "config/config.h"
#include "libs/dcgm.h"
#include "probe/collector.h"

#define DEVICES_MAX   256
#define PERIOD_US     100000 // the profiling module's floor
#define KEEP_S        2.0
#define STALE_US      10000000
#define CONNECT_MS    500
#define FIRST_DATA_NS INT64_C(300000000)

typedef struct entity {
    int kind, id; // HN_DCGM_GPU or HN_DCGM_GPU_INSTANCE, the engine's id
    hn_dcgm_value *values; // owned, one a field
    int64_t zero_since_ns; // activity 0 although busy; 0 = not
} entity;

typedef struct dcgm_probe {
    hn_probe base;
    hn_dcgm api;
    hn_lib lib;
    bool initialised, embedded, connected;
    uintptr_t handle, group[2]; // field groups: device fields, profiling fields; 0 = none
    unsigned short fields[HN_METRIC_COUNT];
    hn_metric metrics[HN_METRIC_COUNT];
    int field_count;
    int profiling; // result of watching the profiling fields
    uint64_t watched[HN_METRIC_WORDS];
    hn_device_info devices[DEVICES_MAX];
    entity *entities; // owned, DEVICES_MAX
    _Atomic bool rewatching; // one device's thread takes the watch anew
} dcgm_probe;

#define CALL(self, name, ...)                                                                      \
    ((self)->api.name ? (self)->api.name(__VA_ARGS__) : HN_DCGM_FUNCTION_NOT_FOUND)

static bool is_profiling(int field) { return field >= 1001 && field <= 1100; }

// ---- values -----------------------------------------------------------------------------------
// Blank numbers of each type stand for "none".
static double number_of(const hn_dcgm_value *value) {
    if (value->status != HN_DCGM_OK) return NAN;
    if (value->type == 'd')
        return value->value.f64 >= 140737488355328.0 || !isfinite(value->value.f64) ? NAN : value->value.f64;
    if (value->type != 'i' && value->type != 't') return NAN;
    int64_t v = value->value.i64;
    if (v >= 0x7ffffffffffffff0 || (v >= 0x7ffffff0 && v <= 0x7fffffff)) return NAN;
    return (double)v;
}

static hn_absent why_absent(int status) {
    switch (status) {
    case HN_DCGM_OK: return HN_ABSENT_NOT;
    case HN_DCGM_NO_PERMISSION:
    case HN_DCGM_REQUIRES_ROOT: return HN_ABSENT_PERMISSION;
    case HN_DCGM_MODULE_NOT_LOADED:
    case HN_DCGM_FUNCTION_NOT_FOUND: return HN_ABSENT_LIBRARY;
    case HN_DCGM_NOT_SUPPORTED:
    case HN_DCGM_UNKNOWN_FIELD:
    case HN_DCGM_NOT_WATCHED:
    case HN_DCGM_NO_DATA:
    case HN_DCGM_PROFILING_NOT_SUPPORTED: return HN_ABSENT_UNSUPPORTED;
    default: return HN_ABSENT_ERROR;
    }
}

// ---- watches ----------------------------------------------------------------------------------
static int watch(dcgm_probe *self, int which, const unsigned short *fields, int count,
                 long long period_us) {
    unsigned short copy[HN_METRIC_COUNT];
    memcpy(copy, fields, (size_t)count * sizeof *copy);
    int result = self->api.dcgmFieldGroupCreate(self->handle, count, copy,
                                                which ? "hone-profiling" : "hone-device", &self->group[which]);
    if (result != HN_DCGM_OK) {
        self->group[which] = 0;
        return result;
    }
    result = self->api.dcgmWatchFields(self->handle, HN_DCGM_ALL_GPUS, self->group[which], period_us, KEEP_S, 2);
    if (result == HN_DCGM_OK) // no instances is no failure
        (void)self->api.dcgmWatchFields(self->handle, HN_DCGM_ALL_INSTANCES, self->group[which], period_us, KEEP_S, 2);
    if (result == HN_DCGM_OK) return result;
    (void)self->api.dcgmFieldGroupDestroy(self->handle, self->group[which]);
    self->group[which] = 0;
    return result;
}

static void unwatch(dcgm_probe *self, int which) {
    if (!self->group[which]) return;
    (void)self->api.dcgmUnwatchFields(self->handle, HN_DCGM_ALL_GPUS, self->group[which]);
    (void)self->api.dcgmUnwatchFields(self->handle, HN_DCGM_ALL_INSTANCES, self->group[which]);
    (void)self->api.dcgmFieldGroupDestroy(self->handle, self->group[which]);
    self->group[which] = 0;
}

// Counters exclude one another before Hopper: fewer are tried until a set can be read together.
static void watch_profiling(dcgm_probe *self) {
    static const unsigned short k_core[] = {1002, 1004, 1005, 1001, 1003, 1009, 1010, 1011, 1012};
    static const int k_core_sets[] = {9, 5, 3};
    unsigned short all[HN_METRIC_COUNT] = {0};
    int count = 0;
    for (int i = 0; i < self->field_count; i++)
        if (is_profiling(self->fields[i])) all[count++] = self->fields[i];
    self->profiling = watch(self, 1, all, count, PERIOD_US);
    const unsigned short *kept = all;
    for (size_t i = 0; self->profiling == HN_DCGM_PROFILING_MULTI_PASS && i < HN_COUNT_OF(k_core_sets); i++) {
        kept = k_core;
        count = k_core_sets[i];
        self->profiling = watch(self, 1, k_core, count, PERIOD_US);
    }
    for (int i = 0; self->profiling == HN_DCGM_OK && i < count; i++) {
        hn_metric metric = hn_metric_by_dcgm(kept[i]);
        self->watched[metric / 64] |= UINT64_C(1) << (metric % 64);
    }
}

static hone_status watch_all(hone_error *err, dcgm_probe *self) {
    unsigned short device_fields[HN_METRIC_COUNT] = {0};
    int count = 0;
    memset(self->watched, 0, sizeof self->watched);
    for (int i = 0; i < self->field_count; i++) {
        if (is_profiling(self->fields[i])) continue;
        device_fields[count++] = self->fields[i];
        self->watched[self->metrics[i] / 64] |= UINT64_C(1) << (self->metrics[i] % 64);
    }
    int result = watch(self, 0, device_fields, count, PERIOD_US);
    if (result != HN_DCGM_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE, result, "DCGM does not watch the cards: %s",
                       hn_dcgm_result_text(result));
    watch_profiling(self);
    (void)self->api.dcgmUpdateAllFields(self->handle, 1);
    return HONE_OK;
}

// ---- facts ------------------------------------------------------------------------------------
static void read_facts(dcgm_probe *self, int device) {
    static const struct {
        unsigned short field;
        const char *name;
    } k_facts[] = {{50, "name"},   {53, "serial"}, {54, "uuid"},       {55, "minor"},   {57, "pci_bus_id"},
                   {1, "driver"},  {52, "gpu_index"}, {66, "persistence"}, {85, "vbios"},
                   {113, "max_sm_clock_mhz"}, {114, "max_mem_clock_mhz"}, {158, "temp_slowdown_c"},
                   {159, "temp_shutdown_c"}, {161, "power_limit_min_w"}, {162, "power_limit_max_w"},
                   {163, "power_limit_default_w"}, {235, "pcie_gen_max"}, {236, "pcie_width_max"},
                   {300, "ecc"}, {301, "ecc_pending"}, {63, ""}, {67, ""}, {5, ""}};
    hn_device_info *info = &self->devices[device];
    entity *e = &self->entities[device];
    unsigned short fields[HN_COUNT_OF(k_facts)];
    for (size_t i = 0; i < HN_COUNT_OF(k_facts); i++)
        fields[i] = k_facts[i].field;
    hn_dcgm_value *values = e->values; // as long as the metric fields, which are more
    _Static_assert(HN_COUNT_OF(k_facts) < HN_METRIC_COUNT, "values hold the facts");
    if (self->api.dcgmEntityGetLatestValues(self->handle, HN_DCGM_GPU, e->id, fields, HN_COUNT_OF(k_facts), values) != HN_DCGM_OK)
        return;
    for (size_t i = 0; i < HN_COUNT_OF(k_facts); i++) {
        double number = number_of(&values[i]);
        const hn_info_row *row = hn_info_by_name((hn_slice){k_facts[i].name, strlen(k_facts[i].name)});
        values[i].value.text[255] = values[i].type == 's' ? '\0' : values[i].value.text[255];
        const char *text = values[i].status == HN_DCGM_OK && values[i].type == 's' &&
                                   strncmp(values[i].value.text, "<<<", 3) != 0
                               ? values[i].value.text
                               : "";
        if (row && row->is_num && isfinite(number))
            *(double *)((char *)info + row->offset) = number;
        else if (row && !row->is_num && *text)
            hn_info_set(info, row, (hn_slice){text, strlen(text)});
        if (k_facts[i].field == 63 && number > 0) { // major in the upper half, of 32 or of 64 bits
            int64_t both = (int64_t)number;
            int shift = both >> 32 ? 32 : 16;
            info->cc_major = (double)(both >> shift);
            info->cc_minor = (double)(both & 0xffff);
        }
        if (k_facts[i].field == 67 && isfinite(number))
            snprintf(info->mig_mode, sizeof info->mig_mode, "%s", number == 1 ? "Enabled" : "Disabled");
        if (k_facts[i].field == 5 && number > 0)
            snprintf(info->cuda, sizeof info->cuda, "%.0f.%.0f", floor(number / 1000), floor(fmod(number, 1000) / 10));
    }
}

// Facts are fields too and need a watch of their own; it is taken back when they were read.
static void watch_facts(dcgm_probe *self, uintptr_t *group) {
    unsigned short fields[] = {50, 53, 54, 55, 57, 1, 52, 66, 85, 113, 114, 158, 159, 161, 162, 163, 235, 236, 300, 301, 63, 67, 5};
    *group = 0;
    if (self->api.dcgmFieldGroupCreate(self->handle, (int)HN_COUNT_OF(fields), fields, "hone-facts", group) != HN_DCGM_OK) {
        *group = 0;
        return;
    }
    (void)self->api.dcgmWatchFields(self->handle, HN_DCGM_ALL_GPUS, *group, 30000000, 60, 1);
    (void)self->api.dcgmUpdateAllFields(self->handle, 1);
}

static int add_entity(dcgm_probe *self, int kind, int id, int parent) {
    if (self->base.device_count == DEVICES_MAX) return -1;
    int device = self->base.device_count++;
    entity *e = &self->entities[device];
    if (!e->values) e->values = hn_calloc(HN_METRIC_COUNT, sizeof *e->values);
    if (!e->values) return self->base.device_count--, -1;
    e->kind = kind;
    e->id = id;
    e->zero_since_ns = 0;
    hn_device_info_init(&self->devices[device], kind == HN_DCGM_GPU ? HN_DEVICE_GPU : HN_DEVICE_MIG);
    self->devices[device].parent = parent;
    return device;
}

static void add_instances(dcgm_probe *self, const hn_dcgm_hierarchy *tree, int parent) {
    for (unsigned i = 0; tree && i < tree->count && i < HN_DCGM_HIERARCHY_MAX; i++) {
        if (tree->items[i].entity.kind != HN_DCGM_GPU_INSTANCE || tree->items[i].parent.kind != HN_DCGM_GPU ||
            (int)tree->items[i].parent.id != self->entities[parent].id)
            continue;
        int device = add_entity(self, HN_DCGM_GPU_INSTANCE, (int)tree->items[i].entity.id, parent);
        if (device < 0) return;
        const hn_device_info *card = &self->devices[parent];
        hn_device_info *info = &self->devices[device];
        char uuid[HN_INFO_BYTES]; // a copy: the compiler cannot see that the two devices differ
        memcpy(uuid, card->uuid, sizeof uuid);
        info->gpu_index = card->gpu_index;
        info->gi_id = tree->items[i].gi;
        info->cc_major = card->cc_major;
        info->cc_minor = card->cc_minor;
        memcpy(info->name, card->name, sizeof info->name);
        memcpy(info->pci_bus_id, card->pci_bus_id, sizeof info->pci_bus_id);
        snprintf(info->uuid, sizeof info->uuid, "%.80s/%u", uuid, tree->items[i].gi);
    }
}

static hone_status add_devices(hone_error *err, dcgm_probe *self) {
    unsigned ids[HN_DCGM_CARDS_MAX];
    int count = 0;
    int result = self->api.dcgmGetAllSupportedDevices(self->handle, ids, &count);
    if (result != HN_DCGM_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE, result, "DCGM cannot list the cards: %s", hn_dcgm_result_text(result));
    if (count <= 0) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "DCGM runs but sees no card that it supports");
    uintptr_t facts;
    watch_facts(self, &facts);
    hn_dcgm_hierarchy *tree = hn_calloc(1, sizeof *tree);
    if (tree) tree->version = HN_DCGM_VERSION(hn_dcgm_hierarchy, 2);
    if (!tree || CALL(self, dcgmGetGpuInstanceHierarchy, self->handle, tree) != HN_DCGM_OK) {
        hn_free(tree);
        tree = NULL;
    }
    self->base.device_count = 0;
    for (int i = 0; i < count && i < HN_DCGM_CARDS_MAX; i++) {
        int device = add_entity(self, HN_DCGM_GPU, (int)ids[i], -1);
        if (device < 0) break;
        self->devices[device].gpu_index = ids[i];
        read_facts(self, device);
        add_instances(self, tree, device);
    }
    hn_free(tree);
    if (facts) {
        (void)self->api.dcgmUnwatchFields(self->handle, HN_DCGM_ALL_GPUS, facts);
        (void)self->api.dcgmFieldGroupDestroy(self->handle, facts);
    }
    return HONE_OK;
}

// ---- opening ----------------------------------------------------------------------------------
static hone_status connect_engine(hone_error *err, dcgm_probe *self) {
    const char *address = hn_config_env("HONE_DCGM_HOST");
    hn_dcgm_connect parameters = {.version = HN_DCGM_VERSION(hn_dcgm_connect, 2), .timeout_ms = CONNECT_MS};
    int result = CALL(self, dcgmConnect_v2, address && *address ? address : "localhost", &parameters, &self->handle);
    if (result == HN_DCGM_OK) {
        self->connected = true;
        return HONE_OK;
    }
    if (address && *address)
        HN_FAIL_VENDOR(err, HONE_ERR_UNSUPPORTED, result, "no DCGM host engine answers at %s (HONE_DCGM_HOST): %s",
                       address, hn_dcgm_result_text(result));
    result = CALL(self, dcgmStartEmbedded, 1, &self->handle);
    if (result != HN_DCGM_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_UNSUPPORTED, result,
                       "no DCGM host engine runs here (nv-hostengine) and none could be started: %s",
                       hn_dcgm_result_text(result));
    self->embedded = true;
    return HONE_OK;
}

static void note_profiling(dcgm_probe *self) {
    char *note = self->base.note;
    size_t bytes = sizeof self->base.note;
    *note = '\0';
    if (self->profiling != HN_DCGM_OK)
        snprintf(note, bytes, "no SM, tensor and DRAM activity: %s", hn_dcgm_result_text(self->profiling));
}

static hone_status start(hone_error *err, dcgm_probe *self) {
    int result = self->api.dcgmInit();
    if (result != HN_DCGM_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_UNSUPPORTED, result, "DCGM does not start: %s", hn_dcgm_result_text(result));
    self->initialised = true;
    HN_TRY(connect_engine(err, self));
    HN_TRY(add_devices(err, self));
    HN_TRY(watch_all(err, self));
    note_profiling(self);
    // Profiling needs two periods for its first value; then it is known what each card has.
    if (self->profiling == HN_DCGM_OK) hn_sleep_ns(FIRST_DATA_NS);
    for (int d = 0; d < self->base.device_count; d++) {
        hn_sample first;
        (void)!self->base.provider->sample(NULL, &self->base, d, &first);
    }
    return HONE_OK;
}

static void stop(dcgm_probe *self) {
    if (self->connected || self->embedded) {
        unwatch(self, 1);
        unwatch(self, 0);
    }
    if (self->connected) (void)CALL(self, dcgmDisconnect, self->handle);
    if (self->embedded) (void)CALL(self, dcgmStopEmbedded, self->handle);
    self->connected = self->embedded = false;
    if (self->initialised) self->api.dcgmShutdown();
    self->initialised = false;
}

static void dcgm_close(hn_probe *probe) {
    dcgm_probe *self = (dcgm_probe *)probe;
    stop(self);
    hn_lib_close(&self->lib);
    for (int d = 0; self->entities && d < DEVICES_MAX; d++)
        hn_free(self->entities[d].values);
    hn_free(self->entities);
    hn_free(self);
}

static hone_status dcgm_open(hone_error *err, const char *arg, hn_probe **out_probe) {
    (void)arg;
    dcgm_probe *self = hn_calloc(1, sizeof *self);
    if (!self) HN_NOMEM(err, "dcgm");
    self->base.provider = &hn_probe_dcgm;
    self->base.devices = self->devices;
    self->entities = hn_calloc(DEVICES_MAX, sizeof *self->entities);
    for (int m = 0; m < HN_METRIC_COUNT; m++)
        if (hn_metric_rows[m].dcgm) {
            self->metrics[self->field_count] = (hn_metric)m;
            self->fields[self->field_count++] = (unsigned short)hn_metric_rows[m].dcgm;
        }
    hone_status status = self->entities ? HONE_OK : HN_SET(err, HONE_ERR_NOMEM, "out of memory (dcgm)");
    if (status == HONE_OK) status = hn_lib_open(err, &hn_dcgm_spec, &self->api, &self->lib);
    if (status == HONE_OK) status = start(err, self);
    if (status != HONE_OK) {
        dcgm_close(&self->base);
        return status;
    }
    *out_probe = &self->base;
    return HONE_OK;
}

static hone_status dcgm_reopen(hone_error *err, hn_probe *probe) {
    dcgm_probe *self = (dcgm_probe *)probe;
    int before = self->base.device_count;
    stop(self);
    hone_status status = start(err, self);
    if (status != HONE_OK) stop(self);
    for (int d = status == HONE_OK ? self->base.device_count : 0; d < before; d++)
        self->devices[d].lost = true;
    if (self->base.device_count < before) self->base.device_count = before;
    return status;
}

// ---- samples ----------------------------------------------------------------------------------
static void check_collector(dcgm_probe *self, entity *e, const hn_sample *s) {
    if (!hn_collector_fault(&e->zero_since_ns, s) || atomic_exchange(&self->rewatching, true)) return;
    hn_log(HN_LOG_WARN, "dcgm: activity of a busy card reads 0 for a minute: watching it anew");
    unwatch(self, 1);
    watch_profiling(self);
    atomic_store(&self->rewatching, false);
}

static hone_status dcgm_sample(hone_error *err, hn_probe *probe, int device, hn_sample *out_sample) {
    dcgm_probe *self = (dcgm_probe *)probe;
    entity *e = &self->entities[device];
    hn_device_info *info = &self->devices[device];
    if (info->lost) HN_FAIL(err, HONE_ERR_DEVICE_LOST, "gpu %.0f: DCGM does not list the card any more", info->gpu_index);
    hn_sample s = {0};
    int64_t start_ns = hn_clock_ns();
    for (int i = 0; i < self->field_count; i++)
        e->values[i].version = HN_DCGM_VERSION(hn_dcgm_value, 1), e->values[i].status = HN_DCGM_NO_DATA;
    int result = self->api.dcgmEntityGetLatestValues(self->handle, e->kind, e->id, self->fields,
                                                     (unsigned)self->field_count, e->values);
    if (result == HN_DCGM_GPU_IS_LOST || result == HN_DCGM_RESET_REQUIRED) {
        info->lost = true;
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE_LOST, result, "gpu %.0f: %s", info->gpu_index, hn_dcgm_result_text(result));
    }
    if (result != HN_DCGM_OK)
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE, result, "gpu %.0f: %s", info->gpu_index, hn_dcgm_result_text(result));
    s.wall_ns = hn_clock_wall_ns();
    int lost = 0, stale = 0, good = 0;
    for (int i = 0; i < self->field_count; i++) {
        hn_metric metric = self->metrics[i];
        const hn_dcgm_value *value = &e->values[i];
        bool watched = (self->watched[metric / 64] >> (metric % 64)) & 1;
        double number = watched ? number_of(value) : NAN;
        lost += value->status == HN_DCGM_GPU_IS_LOST;
        if (isfinite(number) && value->time_us < s.wall_ns / 1000 - STALE_US) {
            stale++;
            continue;
        }
        if (metric == HN_M_mem_temp_c && number <= 0) number = NAN; // 0 = no such sensor
        if (!isfinite(number)) {
            if (info->absent[metric] != HN_ABSENT_NOT)
                info->absent[metric] = (uint8_t)(is_profiling(self->fields[i]) && self->profiling != HN_DCGM_OK
                                                     ? why_absent(self->profiling)
                                                 : value->status == HN_DCGM_OK ? HN_ABSENT_UNSUPPORTED
                                                                               : why_absent(value->status));
            continue;
        }
        good++;
        hn_sample_put(&s, metric, number / hn_metric_rows[metric].legacy_scale);
        info->absent[metric] = HN_ABSENT_NOT;
    }
    if (lost && !good) {
        info->lost = true;
        HN_FAIL_VENDOR(err, HONE_ERR_DEVICE_LOST, HN_DCGM_GPU_IS_LOST, "gpu %.0f: the card fell off the bus", info->gpu_index);
    }
    if (!good && stale)
        HN_FAIL(err, HONE_ERR_DEVICE, "gpu %.0f: DCGM's values are older than %d s: the host engine does not collect",
                info->gpu_index, STALE_US / 1000000);
    s.t_ns = hn_clock_ns();
    s.cost_ns = s.t_ns - start_ns;
    check_collector(self, e, &s);
    *out_sample = s;
    return HONE_OK;
}

const hn_probe_provider hn_probe_dcgm = {.name = "dcgm", .open = dcgm_open, .close = dcgm_close,
                                         .sample = dcgm_sample, .reopen = dcgm_reopen};
