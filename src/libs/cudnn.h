// SPDX-License-Identifier: Apache-2.0
// cuDNN 9's graph interface through dlopen; the numbers are those of its public headers.
#ifndef HN_LIBS_CUDNN_H
#define HN_LIBS_CUDNN_H
#include "libs/cuda.h"

typedef struct hn_dnn_handle_s *hn_dnn_handle;
typedef void *hn_dnn_desc;

enum { HN_DNN_OK = 0 };
enum { // descriptors
    HN_DNN_POINTWISE = 0,
    HN_DNN_CONVOLUTION = 1,
    HN_DNN_ENGINE = 2,
    HN_DNN_ENGINE_CONFIG = 3,
    HN_DNN_HEURISTIC = 4,
    HN_DNN_PLAN = 5,
    HN_DNN_OP_CONV = 10,
    HN_DNN_OP_CONV_DATA = 12,
    HN_DNN_OP_POINTWISE = 13,
    HN_DNN_GRAPH = 15,
    HN_DNN_PACK = 16,
    HN_DNN_TENSOR = 17,
    HN_DNN_DEVICE = 38,
};
enum { // types of attribute values
    HN_DNN_T_HANDLE = 0,
    HN_DNN_T_DATA_TYPE = 1,
    HN_DNN_T_BOOL = 2,
    HN_DNN_T_I64 = 3,
    HN_DNN_T_F32 = 4,
    HN_DNN_T_F64 = 5,
    HN_DNN_T_POINTER = 6,
    HN_DNN_T_CONV_MODE = 7,
    HN_DNN_T_HEUR_MODE = 8,
    HN_DNN_T_NAN = 10,
    HN_DNN_T_NOTE = 11,
    HN_DNN_T_POINTWISE_MODE = 14,
    HN_DNN_T_DESC = 15,
    HN_DNN_T_CHAR = 24,
};
enum { // attributes
    HN_DNN_A_POINTWISE_MODE = 0,
    HN_DNN_A_POINTWISE_MATH = 1,
    HN_DNN_A_POINTWISE_NAN = 2,
    HN_DNN_A_RELU_LOWER = 3,
    HN_DNN_A_RELU_UPPER = 4,
    HN_DNN_A_RELU_SLOPE = 5,
    HN_DNN_A_ELU_ALPHA = 6,
    HN_DNN_A_SWISH_BETA = 8,
    HN_DNN_A_CONV_COMPUTE = 100,
    HN_DNN_A_CONV_MODE = 101,
    HN_DNN_A_CONV_DILATIONS = 102,
    HN_DNN_A_CONV_STRIDES = 103,
    HN_DNN_A_CONV_POST = 104,
    HN_DNN_A_CONV_PRE = 105,
    HN_DNN_A_CONV_DIMS = 106,
    HN_DNN_A_HEUR_MODE = 200,
    HN_DNN_A_HEUR_GRAPH = 201,
    HN_DNN_A_HEUR_RESULTS = 202,
    HN_DNN_A_HEUR_DEVICE = 204,
    HN_DNN_A_CONFIG_ENGINE = 300,
    HN_DNN_A_PLAN_HANDLE = 400,
    HN_DNN_A_PLAN_CONFIG = 401,
    HN_DNN_A_PLAN_WORKSPACE = 402,
    HN_DNN_A_PLAN_JSON = 405,
    HN_DNN_A_FWD_ALPHA = 700,
    HN_DNN_A_FWD_BETA = 701,
    HN_DNN_A_FWD_CONV = 702,
    HN_DNN_A_FWD_W = 703,
    HN_DNN_A_FWD_X = 704,
    HN_DNN_A_FWD_Y = 705,
    HN_DNN_A_DATA_ALPHA = 706,
    HN_DNN_A_DATA_BETA = 707,
    HN_DNN_A_DATA_CONV = 708,
    HN_DNN_A_DATA_W = 709,
    HN_DNN_A_DATA_DX = 710,
    HN_DNN_A_DATA_DY = 711,
    HN_DNN_A_PW_DESC = 750,
    HN_DNN_A_PW_X = 751,
    HN_DNN_A_PW_B = 752,
    HN_DNN_A_PW_Y = 753,
    HN_DNN_A_GRAPH_HANDLE = 800,
    HN_DNN_A_GRAPH_OPS = 801,
    HN_DNN_A_TENSOR_ALIGN = 900,
    HN_DNN_A_TENSOR_TYPE = 901,
    HN_DNN_A_TENSOR_DIMS = 902,
    HN_DNN_A_TENSOR_STRIDES = 903,
    HN_DNN_A_TENSOR_ID = 906,
    HN_DNN_A_TENSOR_VIRTUAL = 907,
    HN_DNN_A_PACK_IDS = 1000,
    HN_DNN_A_PACK_POINTERS = 1001,
    HN_DNN_A_PACK_WORKSPACE = 1003,
    HN_DNN_A_ENGINE_NOTES = 1303,
    HN_DNN_A_ENGINE_INDEX = 1301,
    HN_DNN_A_DEVICE_JSON = 2702,
};
enum { HN_DNN_F32 = 0, HN_DNN_F64 = 1, HN_DNN_F16 = 2, HN_DNN_I8 = 3, HN_DNN_I32 = 4, HN_DNN_BF16 = 9 };
enum { HN_DNN_CROSS_CORRELATION = 1 };
enum { HN_DNN_NAN_PROPAGATE = 1 };
enum { HN_DNN_HEUR_INSTANT = 0, HN_DNN_HEUR_B = 1, HN_DNN_HEUR_FALLBACK = 2, HN_DNN_HEUR_A = 3 };
enum { HN_DNN_NOTE_TENSOR_CORE = 0, HN_DNN_NOTE_DOWN_CONVERT = 1, HN_DNN_NOTE_NONDETERMINISTIC = 4 };
enum {
    HN_DNN_PW_ADD = 0,
    HN_DNN_PW_MUL = 1,
    HN_DNN_PW_MIN = 2,
    HN_DNN_PW_MAX = 3,
    HN_DNN_PW_SUB = 9,
    HN_DNN_PW_RELU = 100,
    HN_DNN_PW_TANH = 101,
    HN_DNN_PW_SIGMOID = 102,
    HN_DNN_PW_ELU = 103,
    HN_DNN_PW_GELU = 104,
    HN_DNN_PW_SWISH = 106,
};

typedef struct hn_cudnn {
#define HN_SYMBOL HN_LIB_FIELD
#include "libs/cudnn.def"
#undef HN_SYMBOL
} hn_cudnn;

extern const hn_lib_spec hn_cudnn_spec; // override: HONE_CUDNN_LIB
hn_status hn_cudnn_get(hone_error *err, const hn_cudnn **out_api); // once in the process
#endif
