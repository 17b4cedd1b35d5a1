// SPDX-License-Identifier: Apache-2.0
// cuBLASLt through dlopen. Loading costs 80 to 700 ms and 150 MB: asked for at the first product only.
#ifndef HN_LIBS_CUBLASLT_H
#define HN_LIBS_CUBLASLT_H
#include "libs/cuda.h"

typedef struct hn_lt_handle_s *hn_lt_handle;
typedef struct hn_lt_desc_s *hn_lt_desc;
typedef struct hn_lt_layout_s *hn_lt_layout;
typedef struct hn_lt_preference_s *hn_lt_preference;
typedef struct hn_lt_algo {
    uint64_t data[8];
} hn_lt_algo;
typedef struct hn_lt_result {
    hn_lt_algo algo;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} hn_lt_result;
_Static_assert(sizeof(hn_lt_result) == 96, "cublasLtMatmulHeuristicResult_t");

enum { HN_LT_OK = 0, HN_LT_ALLOC_FAILED = 3, HN_LT_NOT_SUPPORTED = 15 };
enum { HN_CUDA_R_32F = 0, HN_CUDA_R_64F = 1, HN_CUDA_R_16F = 2, HN_CUDA_R_8I = 3, HN_CUDA_R_32I = 10, HN_CUDA_R_16BF = 14 };
enum { HN_LT_COMPUTE_32F = 68, HN_LT_COMPUTE_64F = 70, HN_LT_COMPUTE_32I = 72, HN_LT_COMPUTE_32F_TF32 = 77 };
enum { HN_LT_DESC_TRANSA = 3, HN_LT_DESC_TRANSB = 4, HN_LT_DESC_EPILOGUE = 7, HN_LT_DESC_BIAS_POINTER = 8 };
enum { HN_LT_LAYOUT_BATCH_COUNT = 5, HN_LT_LAYOUT_BATCH_STRIDE = 6 };
enum { HN_LT_PREF_WORKSPACE = 1, HN_LT_PREF_ALIGN_A = 5, HN_LT_PREF_ALIGN_D = 8 };
enum { HN_LT_EPILOGUE_DEFAULT = 1, HN_LT_EPILOGUE_RELU = 2, HN_LT_EPILOGUE_BIAS = 4, HN_LT_EPILOGUE_GELU = 32 };

typedef struct hn_cublaslt {
#define HN_SYMBOL HN_LIB_FIELD
#include "libs/cublaslt.def"
#undef HN_SYMBOL
} hn_cublaslt;

extern const hn_lib_spec hn_cublaslt_spec; // override: HONE_CUBLASLT_LIB
hn_status hn_cublaslt_get(hone_error *err, const hn_cublaslt **out_api); // once in the process
#endif
