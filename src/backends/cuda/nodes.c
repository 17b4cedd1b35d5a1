// SPDX-License-Identifier: Apache-2.0
// Element types, vectors and layouts: what every select function asks first.
#include "backends/cuda/cuda_int.h"
#include "config/config.h"

const char *cuda_ctype(hn_dtype dtype) {
    switch (dtype) {
    case HN_F32: return "f32";
    case HN_F16: return "f16";
    case HN_BF16: return "bf16";
    case HN_F64: return "f64";
    case HN_I8: return "i8";
    case HN_I16: return "i16";
    case HN_I32: return "i32";
    case HN_I64: return "i64";
    case HN_U8: return "u8";
    case HN_U16: return "u16";
    case HN_U32: return "u32";
    case HN_U64: return "u64";
    case HN_BOOL: return "b8";
    default: return NULL;
    }
}

bool cuda_is_float16(hn_dtype dtype) { return dtype == HN_F16 || dtype == HN_BF16; }

int cuda_vector(int64_t n, size_t element_bytes, int bytes) {
    int v = bytes / (int)element_bytes;
    while (v > 1 && n % v)
        v /= 2;
    return v < 1 ? 1 : v;
}

int cuda_form_vector(const cuda_device *d, int64_t n, size_t element_bytes, int bytes) {
    int v = cuda_vector(n, element_bytes, bytes);
    return !cuda_is_generic(d) ? v : n % 4 ? 1 : 4;
}

hn_layout cuda_hint(const hn_select *what, int index) { return cuda_to_device(what->in_layout[index]); }

bool cuda_band(const hn_shape *shape, hn_layout device_layout, const bool *reduced, int64_t band[3]) {
    return cpu_band(shape, cuda_to_host(device_layout), reduced, band);
}

bool cuda_tf32(const hn_select *what) { return what->tf32 || hn_config_get()->cuda_tf32; }
