// SPDX-License-Identifier: Apache-2.0
// NVRTC through dlopen: CUDA C to machine code of any architecture, with no card in the machine.
#ifndef HN_LIBS_NVRTC_H
#define HN_LIBS_NVRTC_H
#include "libs/libs.h"

typedef struct hn_nvrtc_program_s *hn_nvrtc_program;

typedef struct hn_nvrtc {
#define HN_SYMBOL HN_LIB_FIELD
#include "libs/nvrtc.def"
#undef HN_SYMBOL
} hn_nvrtc;

extern const hn_lib_spec hn_nvrtc_spec; // override: HONE_NVRTC_LIB
hn_status hn_nvrtc_get(hone_error *err, const hn_nvrtc **out_api); // once in the process
#endif
