// SPDX-License-Identifier: Apache-2.0
// The CUDA driver API through dlopen: no toolkit header is needed to build, no driver to start.
//
// The driver that a CUDA generation needs at least is in hn_cuda_oldest_driver; what a result means in
// our words and our status codes is in cuda.c, in one place.
#ifndef HN_LIBS_CUDA_H
#define HN_LIBS_CUDA_H
#include <stdint.h>
#include "libs/libs.h"

typedef struct hn_cu_context_s *hn_cu_context;
typedef struct hn_cu_stream_s *hn_cu_stream;
typedef struct hn_cu_event_s *hn_cu_event;
typedef struct hn_cu_module_s *hn_cu_module;
typedef struct hn_cu_function_s *hn_cu_function;
typedef struct hn_cu_graph_s *hn_cu_graph;
typedef struct hn_cu_graph_exec_s *hn_cu_graph_exec;
typedef struct hn_cu_node_s *hn_cu_node;
typedef struct hn_cu_edge {
    unsigned char from_port, to_port, type, reserved[5]; // all 0: the whole of one before the other
} hn_cu_edge;
typedef uint64_t hn_cu_ptr;

enum {
    HN_CU_OK = 0,
    HN_CU_INVALID_VALUE = 1,
    HN_CU_OUT_OF_MEMORY = 2,
    HN_CU_NOT_INITIALIZED = 3,
    HN_CU_NO_DEVICE = 100,
    HN_CU_INVALID_DEVICE = 101,
    HN_CU_INVALID_IMAGE = 200,
    HN_CU_NO_BINARY_FOR_GPU = 209,
    HN_CU_ECC_UNCORRECTABLE = 214,
    HN_CU_UNSUPPORTED_PTX = 222,
    HN_CU_NOT_FOUND = 500,
    HN_CU_ILLEGAL_ADDRESS = 700,
    HN_CU_LAUNCH_OUT_OF_RESOURCES = 701,
    HN_CU_LAUNCH_TIMEOUT = 702,
    HN_CU_ASSERT = 710,
    HN_CU_HARDWARE_STACK_ERROR = 714,
    HN_CU_ILLEGAL_INSTRUCTION = 715,
    HN_CU_MISALIGNED_ADDRESS = 716,
    HN_CU_INVALID_PC = 718,
    HN_CU_LAUNCH_FAILED = 719,
    HN_CU_SYSTEM_NOT_READY = 802,
    HN_CU_SYSTEM_DRIVER_MISMATCH = 803,
    HN_CU_UNKNOWN = 999,
};
// Device attributes.
enum {
    HN_CU_ATTR_SHARED_PER_BLOCK_OPTIN = 97,
    HN_CU_ATTR_SM_COUNT = 16,
    HN_CU_ATTR_CLOCK_KHZ = 13,
    HN_CU_ATTR_MEMORY_CLOCK_KHZ = 36,
    HN_CU_ATTR_MEMORY_BUS_BITS = 37,
    HN_CU_ATTR_L2_BYTES = 38,
    HN_CU_ATTR_THREADS_PER_SM = 39,
    HN_CU_ATTR_CC_MAJOR = 75,
    HN_CU_ATTR_CC_MINOR = 76,
};
enum { // function attributes
    HN_CU_FUNC_SHARED_BYTES = 1,
    HN_CU_FUNC_LOCAL_BYTES = 3,
    HN_CU_FUNC_REGISTERS = 4,
    HN_CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    HN_CU_EVENT_NO_TIMING = 2,
};
#define HN_CU_STREAM_NON_BLOCKING 1u
#define HN_CU_HOST_PORTABLE 1u
#define HN_CU_HOST_DEVICE_MAP 2u
#define HN_CU_CAPTURE_THREAD_LOCAL 1

typedef struct hn_cuda {
#define HN_SYMBOL HN_LIB_FIELD
#include "libs/cuda.def"
#undef HN_SYMBOL
} hn_cuda;

extern const hn_lib_spec hn_cuda_spec; // override: HONE_CUDA_LIB
// Loads and initialises the driver once in the process (cuInit included).
hn_status hn_cuda_get(hone_error *err, const hn_cuda **out_api);
hone_status hn_cuda_status(int result);      // ours for the driver's
const char *hn_cuda_result_text(int result); // in our words
bool hn_cuda_sticky(int result);             // the context is lost: nothing more runs in this process
// "525.60" for 12; NULL for a generation we do not know.
const char *hn_cuda_oldest_driver(int generation);
#define HN_CUDA_OLDEST 11 // generation of the oldest driver that will do
#endif
