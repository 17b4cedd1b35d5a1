// SPDX-License-Identifier: Apache-2.0
// What a machine is doing and what it spends: one interface over NVML, DCGM, the host, recordings
// and the text of other tools.
//
// A probe is a list of devices (cards, MIG instances, the host), each with facts (info.def) and with
// samples (metrics.def). Every value has a validity bit: what a device does not support, what the
// driver refuses and what a text leaves blank is absent, never 0.
//
// Threads: hn_probe_sample and hn_probe_processes may run at the same time for different devices,
// not for one device. They allocate nothing. Everything else is for one thread at a time, except
// hn_probe_wait_event, which has its own.
#ifndef HN_PROBE_H
#define HN_PROBE_H
#include <math.h>
#include "base/base.h"

// Column nvml_field of metrics.def: a field of a scope (power: 1 module, 2 memory; NVLink: all
// links), and how often it is read. Some calls cost milliseconds of CPU time (bench/probe measures
// them): what is not read anew keeps its last value in the sample.
#define HN_NVML_SCOPE(field, scope) ((field) | (scope) << 16)
#define HN_NVML_ALL                 0xfff
#define HN_NVML_SECOND(field)       ((field) | 1 << 29) // once a second at most
#define HN_NVML_RARE(field)         ((field) | 1 << 30) // every few seconds at most

// ---- metrics ----------------------------------------------------------------------------------
typedef enum hn_metric {
#define HN_METRIC(token, ...) HN_M_##token,
#include "probe/metrics.def"
#undef HN_METRIC
    HN_METRIC_COUNT
} hn_metric;

typedef enum hn_metric_kind { HN_KIND_gauge, HN_KIND_counter } hn_metric_kind;
typedef enum hn_metric_scope { HN_SCOPE_gpu, HN_SCOPE_host } hn_metric_scope;

typedef struct hn_metric_row {
    const char *token, *unit;
    hn_metric_kind kind;
    hn_metric_scope scope;
    int nvml_field;
    double nvml_scale;
    int gpm;
    double gpm_scale;
    int dcgm;
    const char *legacy; // "" if dcgm-exporter has no such name
    double legacy_scale;
    const char *hone;
    double hone_scale;
    int period_ms;
    const char *help;
} hn_metric_row;
extern const hn_metric_row hn_metric_rows[HN_METRIC_COUNT];

// Row by token, legacy or hone name; HN_METRIC_COUNT if there is none.
hn_metric hn_metric_by_token(hn_slice token);
hn_metric hn_metric_by_legacy(hn_slice name);
hn_metric hn_metric_by_hone(hn_slice name);
hn_metric hn_metric_by_dcgm(int field);

// Shortest text that reads back as the same double; no exponent for whole numbers below 1e15.
#define HN_METRIC_TEXT_BYTES 32
const char *hn_metric_text(double value, char out[HN_METRIC_TEXT_BYTES]);

// Bits of the metric `reasons`.
enum {
    HN_REASON_IDLE = 0x1,
    HN_REASON_APP_CLOCKS = 0x2,
    HN_REASON_POWER_CAP = 0x4,
    HN_REASON_HW_SLOWDOWN = 0x8,
    HN_REASON_SYNC_BOOST = 0x10,
    HN_REASON_SW_THERMAL = 0x20,
    HN_REASON_HW_THERMAL = 0x40,
    HN_REASON_POWER_BRAKE = 0x80,
    HN_REASON_DISPLAY = 0x100,
};
// What holds the clocks down, in words; only idle and clock settings are not faults. "" if nothing.
const char *hn_reasons_text(uint64_t reasons, char *out, size_t bytes);
#define HN_REASON_FAULTS                                                                           \
    (HN_REASON_HW_SLOWDOWN | HN_REASON_SW_THERMAL | HN_REASON_HW_THERMAL | HN_REASON_POWER_BRAKE)

// ---- samples ----------------------------------------------------------------------------------
#define HN_METRIC_WORDS ((HN_METRIC_COUNT + 63) / 64)
typedef struct hn_sample {
    int64_t t_ns;    // the probe's clock (hn_probe_clock_ns) when the reading was complete
    int64_t wall_ns; // wall clock of the same moment
    int64_t cost_ns; // how long the reading took, 0 for recordings and texts
    int64_t energy_t_ns; // when the energy counter was read: reading it is dear, so it may be older
    uint64_t valid[HN_METRIC_WORDS];
    double value[HN_METRIC_COUNT];
} hn_sample;

static inline bool hn_sample_has(const hn_sample *sample, hn_metric metric) {
    return (sample->valid[metric / 64] >> (metric % 64)) & 1;
}
// The value, or `otherwise` (NAN, say) where there is none.
static inline double hn_sample_or(const hn_sample *sample, hn_metric metric, double otherwise) {
    return hn_sample_has(sample, metric) ? sample->value[metric] : otherwise;
}
// NaN and infinity are no values.
static inline void hn_sample_put(hn_sample *sample, hn_metric metric, double value) {
    if (!isfinite(value)) return;
    sample->value[metric] = value;
    if (metric == HN_M_energy_mj || metric == HN_M_rapl_package_mj) sample->energy_t_ns = sample->t_ns;
    sample->valid[metric / 64] |= UINT64_C(1) << (metric % 64);
}
static inline void hn_sample_drop(hn_sample *sample, hn_metric metric) {
    sample->valid[metric / 64] &= ~(UINT64_C(1) << (metric % 64));
}

// ---- devices ----------------------------------------------------------------------------------
#define HN_INFO_BYTES 96
typedef char hn_info_str[HN_INFO_BYTES];
typedef double hn_info_num;
typedef enum hn_device_kind { HN_DEVICE_GPU, HN_DEVICE_MIG, HN_DEVICE_HOST } hn_device_kind;

// Why a metric is absent on a device.
typedef enum hn_absent {
    HN_ABSENT_NOT = 0,        // it is there
    HN_ABSENT_UNSUPPORTED,    // the device or this source does not have it
    HN_ABSENT_PERMISSION,     // needs rights this process lacks
    HN_ABSENT_LIBRARY,        // needs a library or function that is not here
    HN_ABSENT_MIG,            // not defined for a card split by MIG
    HN_ABSENT_ERROR,          // the driver answered with an error
} hn_absent;
const char *hn_absent_text(hn_absent why);

typedef struct hn_device_info {
    hn_device_kind kind;
    int parent; // device number of the card a MIG instance belongs to, else -1
    bool lost;  // fell off the bus; samples fail with HONE_ERR_DEVICE_LOST
#define HN_INFO(name, type, help) hn_info_##type name;
#include "probe/info.def"
#undef HN_INFO
    // Per metric: why it is absent (filled at open and after the first sample).
    uint8_t absent[HN_METRIC_COUNT];
} hn_device_info;
void hn_device_info_init(hn_device_info *info, hn_device_kind kind); // all facts unknown
// A name for tables and messages: "gpu 3", "gpu 3 mig 1/0", "host".
const char *hn_device_label(const hn_device_info *info, char *out, size_t bytes);

typedef struct hn_info_row {
    const char *name, *help;
    bool is_num;
    size_t offset; // in hn_device_info
} hn_info_row;
extern const hn_info_row hn_info_rows[];
extern const size_t hn_info_row_count;
const hn_info_row *hn_info_by_name(hn_slice name);
// Sets one fact from text; a numeric fact is left unknown if the text is no number.
void hn_info_set(hn_device_info *info, const hn_info_row *row, hn_slice text);

// Appends one JSON object: the facts that are known, and metric tokens with values. For info:
// {"kind":"gpu","name":...,"absent":{"sm_active":"..."}}; for samples {"power_w":612.3,...}.
void hn_device_info_json(hn_str *out, const hn_device_info *info, bool with_absent);
void hn_sample_json(hn_str *out, const hn_sample *sample);
// JSON string with quotes and escapes; bytes that are not UTF-8 become U+FFFD.
void hn_json_string(hn_str *out, const char *text, size_t length);

typedef enum hn_process_type { HN_PROCESS_COMPUTE = 1, HN_PROCESS_GRAPHICS = 2 } hn_process_type;
typedef struct hn_process {
    int64_t pid;
    int type;                // HN_PROCESS_* bits
    int64_t used_bytes;      // card memory, -1 = not told (MIG, containers)
    double sm_util;          // per cent, NAN = not told
    int64_t gi_id, ci_id;    // MIG, -1 = none
    char name[64];           // of the executable, "" = not readable
} hn_process;

typedef enum hn_event_kind { HN_EVENT_XID = 1, HN_EVENT_LOST, HN_EVENT_BACK, HN_EVENT_PHASE } hn_event_kind;
typedef struct hn_event {
    hn_event_kind kind;
    int device;  // -1 = all
    int64_t t_ns, wall_ns;
    int64_t xid;
    char text[64]; // name of the phase
} hn_event;

// ---- the probe --------------------------------------------------------------------------------
typedef struct hn_probe hn_probe;

// source: "" or "auto" (the cards with the fullest reading that works here; where there is no card,
// the host), "nvml", "dcgm", "host", "replay:FILE[?speed=X][&loop=1][&cards=N]" (speed 0: every sample is
// the next row; cards: so many, repeating the recorded ones), "text:FILE" (what nvidia-smi, dcgm-exporter and others print). Live sources may be
// joined: "nvml+host". Errors: HONE_ERR_USAGE for a source nobody knows, HONE_ERR_UNSUPPORTED where
// driver or library is absent or no card is there, HONE_ERR_FORMAT, HONE_ERR_IO for files.
hn_status hn_probe_open(hone_error *err, const char *source, hn_probe **out_probe);
// The same, but "" and "auto" are joined with the host where they find cards: what feeds them is told too.
hn_status hn_probe_open_with_host(hone_error *err, const char *source, hn_probe **out_probe);
void hn_probe_close(hn_probe *probe); // takes NULL
const char *hn_probe_source(const hn_probe *probe); // as opened, "auto" resolved
int hn_probe_device_count(const hn_probe *probe);
const hn_device_info *hn_probe_device(const hn_probe *probe, int device); // borrowed
// A sentence on what is lost on this source and why ("" if nothing), for logs and the doctor.
const char *hn_probe_note(const hn_probe *probe);

// Reads all metrics of a device. HONE_ERR_DEVICE_LOST once it fell off the bus (other devices go
// on); HONE_ERR_TIMEOUT from a recording that has ended.
hn_status hn_probe_sample(hone_error *err, hn_probe *probe, int device, hn_sample *out_sample);
// Makes the next sample of a device read everything anew, also what is read seldom for its cost (the
// energy counter): call it where a measured span begins and ends.
void hn_probe_refresh(hn_probe *probe, int device);
// Processes on a device (a card with MIG also lists those of its instances).
hn_status hn_probe_processes(hone_error *err, hn_probe *probe, int device, hn_process *out_items,
                             int max_items, int *out_count);
// Waits for the next event. HONE_ERR_TIMEOUT if none came, HONE_ERR_UNSUPPORTED if the source has
// none. To be called by one thread.
hn_status hn_probe_wait_event(hone_error *err, hn_probe *probe, int timeout_ms, hn_event *out_event);
// Shuts the library down and opens it again, after a driver or host engine restart; lost devices may
// come back, device numbers stay. No other call may run meanwhile.
hn_status hn_probe_reopen(hone_error *err, hn_probe *probe);
// Time base of samples: the monotonic clock, or a recording's own time.
int64_t hn_probe_clock_ns(const hn_probe *probe);
bool hn_probe_ended(const hn_probe *probe); // a recording that was played to its end

// ---- for providers ----------------------------------------------------------------------------
typedef struct hn_probe_provider {
    const char *name;
    bool takes_arg; // "name:ARG"
    hone_status (*open)(hone_error *err, const char *arg, hn_probe **out_probe);
    void (*close)(hn_probe *probe);
    hone_status (*sample)(hone_error *err, hn_probe *probe, int device, hn_sample *out_sample);
    // NULL where the source has none:
    hone_status (*processes)(hone_error *err, hn_probe *probe, int device, hn_process *out_items,
                             int max_items, int *out_count);
    hone_status (*wait_event)(hone_error *err, hn_probe *probe, int timeout_ms, hn_event *out_event);
    hone_status (*reopen)(hone_error *err, hn_probe *probe);
    void (*refresh)(hn_probe *probe, int device);
    int64_t (*clock_ns)(const hn_probe *probe);
    bool (*ended)(const hn_probe *probe);
} hn_probe_provider;

// First member of every provider's own struct.
struct hn_probe {
    const hn_probe_provider *provider;
    int device_count;
    hn_device_info *devices; // owned by the provider, address stable while open
    char source[256];
    char note[256];
};
#define HN_PROVIDER(name) extern const hn_probe_provider hn_probe_##name;
#include "probe/providers.def"
#undef HN_PROVIDER
#endif
