// SPDX-License-Identifier: Apache-2.0
// The part of DCGM's binary interface (versions 3 and 4) that hone uses, declared here so that a
// build needs no vendor header.
#ifndef HN_LIBS_DCGM_H
#define HN_LIBS_DCGM_H
#include <stdint.h>
#include "libs/libs.h"

#define HN_DCGM_CARDS_MAX     32
#define HN_DCGM_HIERARCHY_MAX (HN_DCGM_CARDS_MAX * 14)
enum { // results
    HN_DCGM_OK = 0,
    HN_DCGM_NOT_SUPPORTED = -6,
    HN_DCGM_NVML_ERROR = -8,
    HN_DCGM_UNKNOWN_FIELD = -13,
    HN_DCGM_NO_DATA = -14,
    HN_DCGM_NOT_WATCHED = -16,
    HN_DCGM_NO_PERMISSION = -17,
    HN_DCGM_GPU_IS_LOST = -18,
    HN_DCGM_RESET_REQUIRED = -19,
    HN_DCGM_FUNCTION_NOT_FOUND = -20,
    HN_DCGM_CONNECTION_NOT_VALID = -21,
    HN_DCGM_REQUIRES_ROOT = -29,
    HN_DCGM_MODULE_NOT_LOADED = -33,
    HN_DCGM_IN_USE = -34,
    HN_DCGM_PROFILING_NOT_SUPPORTED = -36,
    HN_DCGM_PROFILING_LIBRARY_ERROR = -37,
    HN_DCGM_PROFILING_MULTI_PASS = -38,
    HN_DCGM_PAUSED = -54,
};
enum { HN_DCGM_GPU = 1, HN_DCGM_GPU_INSTANCE = 4, HN_DCGM_COMPUTE_INSTANCE = 5 }; // entities
#define HN_DCGM_ALL_GPUS      ((uintptr_t)0x7fffffff)
#define HN_DCGM_ALL_INSTANCES ((uintptr_t)0x7ffffffd)
#define HN_DCGM_VERSION(type, n) (unsigned)(sizeof(type) | (unsigned long)(n) << 24)

typedef struct hn_dcgm_connect { // version 2
    unsigned version, persist, timeout_ms, is_unix_socket;
} hn_dcgm_connect;
typedef struct hn_dcgm_value { // version 1
    unsigned version;
    unsigned short field, type; // type 'i' int64, 'd' double, 's' text, 't' time
    int status;
    int64_t time_us; // since 1970
    union {
        int64_t i64;
        double f64;
        char text[256];
        char blob[4096];
    } value;
} hn_dcgm_value;
_Static_assert(sizeof(hn_dcgm_value) == 4120, "field value, version 1");
typedef struct hn_dcgm_pair {
    int kind;
    unsigned id;
} hn_dcgm_pair;
typedef struct hn_dcgm_hierarchy { // version 2
    unsigned version, count;
    struct {
        hn_dcgm_pair entity, parent;
        char gpu_uuid[128];
        unsigned nvml_index, gi, ci, profile, slices;
    } items[HN_DCGM_HIERARCHY_MAX];
} hn_dcgm_hierarchy;

typedef struct hn_dcgm {
#define HN_SYMBOL HN_LIB_FIELD
#include "libs/dcgm.def"
#undef HN_SYMBOL
} hn_dcgm;

extern const hn_lib_spec hn_dcgm_spec; // override: HONE_DCGM_LIB
const char *hn_dcgm_result_text(int result);
#endif
