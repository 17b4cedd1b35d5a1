// SPDX-License-Identifier: Apache-2.0
// The part of NVML's binary interface that hone uses, declared here so that a build needs no vendor
// header. Layouts are those of libnvidia-ml.so.1; sizes that travel in version words are asserted.
#ifndef HN_LIBS_NVML_H
#define HN_LIBS_NVML_H
#include <stdint.h>
#include "libs/libs.h"

typedef struct hn_nvml_device_s *hn_nvml_device;
typedef struct hn_nvml_event_set_s *hn_nvml_event_set;
typedef struct hn_nvml_gpm_sample_s *hn_nvml_gpm_sample;

enum { // results
    HN_NVML_OK = 0,
    HN_NVML_UNINITIALIZED = 1,
    HN_NVML_INVALID_ARGUMENT = 2,
    HN_NVML_NOT_SUPPORTED = 3,
    HN_NVML_NO_PERMISSION = 4,
    HN_NVML_NOT_FOUND = 6,
    HN_NVML_INSUFFICIENT_SIZE = 7,
    HN_NVML_DRIVER_NOT_LOADED = 9,
    HN_NVML_TIMEOUT = 10,
    HN_NVML_LIBRARY_NOT_FOUND = 12,
    HN_NVML_FUNCTION_NOT_FOUND = 13,
    HN_NVML_GPU_IS_LOST = 15,
    HN_NVML_RESET_REQUIRED = 16,
    HN_NVML_VERSION_MISMATCH = 18, // library and kernel module
    HN_NVML_NO_DATA = 21,
    HN_NVML_ARGUMENT_VERSION = 25,
    HN_NVML_DEPRECATED = 26,
    HN_NVML_GPU_NOT_FOUND = 28,
    HN_NVML_UNKNOWN = 999,
};
enum { HN_NVML_CLOCK_GRAPHICS, HN_NVML_CLOCK_SM, HN_NVML_CLOCK_MEM, HN_NVML_CLOCK_VIDEO };
enum { HN_NVML_AFFINITY_NODE, HN_NVML_AFFINITY_SOCKET };
enum { HN_NVML_THRESHOLD_SHUTDOWN, HN_NVML_THRESHOLD_SLOWDOWN };
#define HN_NVML_EVENT_XID       0x8ull
#define HN_NVML_VALUE_ABSENT    (~0ull) // usedGpuMemory that cannot be told
#define HN_NVML_VERSION(type, n) (unsigned)(sizeof(type) | (n) << 24)

typedef struct hn_nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} hn_nvml_pci;
typedef struct hn_nvml_attributes {
    unsigned sm_count, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
    unsigned long long memory_mib;
} hn_nvml_attributes;
typedef struct hn_nvml_fabric { // version 2
    unsigned version;
    unsigned char cluster_uuid[16];
    int status;
    unsigned clique;
    unsigned char state; // 0 not supported, 1 not started, 2 in progress, 3 completed
    unsigned health_mask;
} hn_nvml_fabric;
_Static_assert(sizeof(hn_nvml_fabric) == 0x24, "fabric info, version 2");
typedef union hn_nvml_value {
    double f64;
    unsigned u32;
    unsigned long ul;
    unsigned long long u64;
    long long i64;
    int i32;
    unsigned short u16;
} hn_nvml_value;
enum { HN_NVML_F64, HN_NVML_U32, HN_NVML_UL, HN_NVML_U64, HN_NVML_I64, HN_NVML_I32, HN_NVML_U16 };
typedef struct hn_nvml_field_value {
    unsigned field, scope;
    int64_t timestamp_us, latency_us;
    unsigned type;
    int result;
    hn_nvml_value value;
} hn_nvml_field_value;
_Static_assert(sizeof(hn_nvml_field_value) == 40, "field value");
typedef struct hn_nvml_utilization {
    unsigned gpu, memory;
} hn_nvml_utilization;
typedef struct hn_nvml_memory {
    unsigned long long total, free, used; // used counts what is reserved
} hn_nvml_memory;
typedef struct hn_nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} hn_nvml_memory_v2;
_Static_assert(sizeof(hn_nvml_memory_v2) == 0x28, "memory info, version 2");
typedef struct hn_nvml_bar1 {
    unsigned long long total, free, used;
} hn_nvml_bar1;
typedef struct hn_nvml_temperature {
    unsigned version, sensor;
    int celsius;
} hn_nvml_temperature;
typedef struct hn_nvml_margin {
    unsigned version;
    int celsius;
} hn_nvml_margin;
typedef struct hn_nvml_process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gi, ci; // ~0 = none
} hn_nvml_process;
_Static_assert(sizeof(hn_nvml_process) == 24, "process info, version 3");
typedef struct hn_nvml_process_util {
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm, memory, encoder, decoder;
} hn_nvml_process_util;
typedef struct hn_nvml_event {
    hn_nvml_device device;
    unsigned long long type, data;
    unsigned gi, ci;
} hn_nvml_event;
typedef struct hn_nvml_gpm_support {
    unsigned version, supported;
} hn_nvml_gpm_support;
typedef struct hn_nvml_gpm_metric {
    unsigned id;
    int result;
    double value;
    const char *info[3]; // short name, long name, unit
} hn_nvml_gpm_metric;
// The library's own array is as long as it knows metrics; only `count` items are touched.
#define HN_NVML_GPM_MAX 512
typedef struct hn_nvml_gpm_get {
    unsigned version, count;
    hn_nvml_gpm_sample first, second;
    hn_nvml_gpm_metric metrics[HN_NVML_GPM_MAX];
} hn_nvml_gpm_get;

typedef struct hn_nvml {
#define HN_SYMBOL HN_LIB_FIELD
#include "libs/nvml.def"
#undef HN_SYMBOL
} hn_nvml;

extern const hn_lib_spec hn_nvml_spec; // override: HONE_NVML_LIB
// The meaning of a result in our words.
const char *hn_nvml_result_text(int result);
#endif
