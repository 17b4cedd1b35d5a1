// SPDX-License-Identifier: Apache-2.0
// Tensors: see tensor.h. All small float formats share one exact encoder and decoder driven by a
// row of parameters, so that no format has rounding of its own; float16 and bfloat16 have fast
// bit-level forms beside it, and a test compares the two over every bit pattern.
#include "ir/tensor.h"
#include <math.h>
#include <stdatomic.h>

typedef enum dtype_class {
    CLASS_float,
    CLASS_sint,
    CLASS_uint,
    CLASS_bool,
    CLASS_other
} dtype_class;

static const struct {
    const char *name;
    int bits;
    dtype_class class;
} DTYPES[HN_DTYPE_END] = {
#define HN_DTYPE(token, code, name, bits, class) [HN_##token] = {name, bits, CLASS_##class},
#include "ir/dtype.def"
#undef HN_DTYPE
};

static bool known(hn_dtype dtype) {
    return dtype > HN_NONE && dtype < HN_DTYPE_END;
}

const char *hn_dtype_name(hn_dtype dtype) {
    return known(dtype) && DTYPES[dtype].name ? DTYPES[dtype].name : "?";
}

hn_dtype hn_dtype_from_name(hn_slice name) {
    for (int i = 1; i < HN_DTYPE_END; i++)
        if (DTYPES[i].name && hn_slice_eq(name, DTYPES[i].name)) return (hn_dtype)i;
    return HN_NONE;
}

hn_dtype hn_dtype_from_onnx(int64_t code) {
    if (code <= 0 || code >= HN_DTYPE_END || !DTYPES[code].name) return HN_NONE;
    return (hn_dtype)code;
}

int hn_dtype_bits(hn_dtype dtype) {
    return known(dtype) ? DTYPES[dtype].bits : 0;
}
bool hn_dtype_is_float(hn_dtype dtype) {
    return known(dtype) && DTYPES[dtype].class == CLASS_float;
}
bool hn_dtype_is_int(hn_dtype dtype) {
    return known(dtype) && (DTYPES[dtype].class == CLASS_sint || DTYPES[dtype].class == CLASS_uint);
}
bool hn_dtype_is_signed(hn_dtype dtype) {
    return known(dtype) &&
           (DTYPES[dtype].class == CLASS_sint || DTYPES[dtype].class == CLASS_float);
}

// ---- shapes -------------------------------------------------------------------------------------

bool hn_shape_count(const hn_shape *shape, int64_t *out_count) {
    if (shape->rank < 0 || shape->rank > HN_MAX_RANK) return false;
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0) return false;
        if (shape->dims[i] == 0) count = 0;
    }
    for (int i = 0; i < shape->rank && count; i++)
        if (!hn_mul_i64(count, shape->dims[i], &count)) return false;
    *out_count = count;
    return true;
}

bool hn_shape_bytes(const hn_shape *shape, hn_dtype dtype, size_t *out_bytes) {
    int64_t count, bits;
    if (!known(dtype) || !hn_shape_count(shape, &count)) return false;
    if (dtype == HN_STRING) return hn_mul_size((size_t)count, sizeof(hn_slice), out_bytes);
    if (!hn_mul_i64(count, hn_dtype_bits(dtype), &bits) || !hn_add_i64(bits, 7, &bits))
        return false;
    *out_bytes = (size_t)bits / 8;
    return true;
}

bool hn_shape_equal(const hn_shape *a, const hn_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

void hn_shape_print(hn_str *out, const hn_shape *shape) {
    if (shape->rank == 0) hn_str_append(out, "scalar");
    for (int i = 0; i < shape->rank; i++)
        hn_str_printf(out, "%s%lld", i ? "x" : "", (long long)shape->dims[i]);
}

// ---- buffers ------------------------------------------------------------------------------------

struct hn_buffer {
    atomic_size_t references;
    void *data;
    size_t bytes;
    void (*release)(void *user);
    void *user;
    bool heap;
};

static hn_buffer *buffer_make(void *data, size_t bytes) {
    hn_buffer *buffer = hn_calloc(1, sizeof *buffer);
    if (!buffer) return NULL;
    atomic_init(&buffer->references, 1);
    buffer->data = data;
    buffer->bytes = bytes;
    return buffer;
}

hn_buffer *hn_buffer_new(size_t bytes) {
    void *data = hn_malloc_aligned(bytes);
    hn_buffer *buffer = data ? buffer_make(data, bytes) : NULL;
    if (!buffer) {
        hn_free(data);
        return NULL;
    }
    buffer->heap = true;
    return buffer;
}

hn_buffer *hn_buffer_wrap(const void *data, size_t bytes, void (*release)(void *user), void *user) {
    hn_buffer *buffer = buffer_make((void *)(uintptr_t)data, bytes);
    if (!buffer) return NULL;
    buffer->release = release;
    buffer->user = user;
    return buffer;
}

hn_buffer *hn_buffer_ref(hn_buffer *buffer) {
    if (buffer) atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

void hn_buffer_unref(hn_buffer *buffer) {
    if (!buffer || atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) != 1)
        return;
    if (buffer->heap) hn_free(buffer->data);
    if (buffer->release) buffer->release(buffer->user);
    hn_free(buffer);
}

void *hn_buffer_data(hn_buffer *buffer) {
    return buffer->data;
}
size_t hn_buffer_bytes(const hn_buffer *buffer) {
    return buffer->bytes;
}
bool hn_buffer_is_heap(const hn_buffer *buffer) {
    return buffer->heap;
}

// ---- tensors ------------------------------------------------------------------------------------

hn_status hn_tensor_new(hone_error *err, hn_dtype dtype, const hn_shape *shape,
                        hn_tensor *out_tensor) {
    size_t bytes;
    if (!hn_shape_bytes(shape, dtype, &bytes) || bytes > PTRDIFF_MAX) {
        hn_str text = {0};
        hn_shape_print(&text, shape);
        HN_SET(err, HONE_ERR_LIMIT, "a tensor of %s %s is too large for this machine",
               hn_dtype_name(dtype), hn_str_get(&text));
        hn_str_free(&text);
        return HONE_ERR_LIMIT;
    }
    hn_buffer *buffer = hn_buffer_new(bytes);
    if (!buffer) HN_FAIL(err, HONE_ERR_NOMEM, "out of memory (a tensor of %zu bytes)", bytes);
    *out_tensor = (hn_tensor){dtype, *shape, buffer->data, bytes, buffer};
    return HONE_OK;
}

void hn_tensor_free(hn_tensor *tensor) {
    hn_buffer_unref(tensor->buffer);
    *tensor = (hn_tensor){0};
}

hn_tensor hn_tensor_ref(const hn_tensor *tensor) {
    hn_buffer_ref(tensor->buffer);
    return *tensor;
}

int64_t hn_tensor_count(const hn_tensor *tensor) {
    int64_t count;
    return hn_shape_count(&tensor->shape, &count) ? count : 0;
}

// ---- float16 and bfloat16 -----------------------------------------------------------------------

float hn_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31;
    uint32_t mantissa = bits & 0x3ff, wide;
    if (exponent == 31) {
        wide = sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0);
    } else if (exponent) {
        wide = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        float value = (float)mantissa * 0x1p-24f; // exact: subnormals are multiples of 2^-24
        return sign ? -value : value;
    }
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t hn_f32_to_f16(float value) {
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    uint16_t sign = (uint16_t)((wide >> 16) & 0x8000);
    uint32_t magnitude = wide & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x477ff000u) return sign | 0x7c00; // 65520 and up round to infinity
    if (magnitude >= 0x38800000u) {                     // normal: re-bias, then round to even
        uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1);
        return (uint16_t)(sign | rounded >> 13);
    }
    if (magnitude < 0x33000000u) return sign; // below half of the smallest subnormal
    uint32_t shift = 126 - (magnitude >> 23); // value = full * 2^(e-150) = q * 2^-24
    uint32_t full = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t q = full >> shift, rest = full & ((1u << shift) - 1), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (q & 1))) q++;
    return (uint16_t)(sign | q);
}

uint16_t hn_f32_to_bf16(float value) {
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    if ((wide & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(wide >> 16 | 0x40);
    return (uint16_t)((wide + 0x7fffu + ((wide >> 16) & 1)) >> 16);
}

// ---- every small float --------------------------------------------------------------------------

// What the bit patterns above the largest finite number mean.
typedef enum { TOP_INF_NAN, TOP_NAN, TOP_NEGATIVE_ZERO_NAN, TOP_FINITE } small_top;

typedef struct small_float {
    int exponent_bits, mantissa_bits, bias;
    uint32_t max_finite; // bits of the largest finite number
    uint32_t nan;        // bits of the quiet NaN (0: has none)
    small_top top;
} small_float;

static bool small_format(hn_dtype dtype, small_float *out) {
    switch (dtype) {
    case HN_F16:
        *out = (small_float){5, 10, 15, 0x7bff, 0x7e00, TOP_INF_NAN};
        return true;
    case HN_BF16:
        *out = (small_float){8, 7, 127, 0x7f7f, 0x7fc0, TOP_INF_NAN};
        return true;
    case HN_F8E4M3FN:
        *out = (small_float){4, 3, 7, 0x7e, 0x7f, TOP_NAN};
        return true;
    case HN_F8E4M3FNUZ:
        *out = (small_float){4, 3, 8, 0x7f, 0x80, TOP_NEGATIVE_ZERO_NAN};
        return true;
    case HN_F8E5M2:
        *out = (small_float){5, 2, 15, 0x7b, 0x7f, TOP_INF_NAN};
        return true;
    case HN_F8E5M2FNUZ:
        *out = (small_float){5, 2, 16, 0x7f, 0x80, TOP_NEGATIVE_ZERO_NAN};
        return true;
    case HN_F4E2M1:
        *out = (small_float){2, 1, 1, 0x7, 0, TOP_FINITE};
        return true;
    default:
        return false;
    }
}

static double small_decode(const small_float *f, uint32_t bits) {
    uint32_t sign_bit = 1u << (f->exponent_bits + f->mantissa_bits);
    uint32_t magnitude = bits & (sign_bit - 1);
    bool negative = (bits & sign_bit) != 0;
    if (f->top == TOP_NEGATIVE_ZERO_NAN && bits == f->nan) return NAN;
    if (magnitude > f->max_finite) {
        if (f->top == TOP_INF_NAN && magnitude == f->max_finite + 1)
            return negative ? -INFINITY : INFINITY;
        return NAN;
    }
    int exponent = (int)(magnitude >> f->mantissa_bits);
    uint32_t mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
    if (exponent) mantissa |= 1u << f->mantissa_bits;
    double value = ldexp((double)mantissa, (exponent ? exponent : 1) - f->bias - f->mantissa_bits);
    return negative ? -value : value;
}

// Round to nearest even straight from double, so there is no double rounding.
static uint32_t small_encode(const small_float *f, double value, bool saturate) {
    uint32_t sign_bit = 1u << (f->exponent_bits + f->mantissa_bits);
    uint32_t sign = signbit(value) ? sign_bit : 0;
    if (isnan(value)) {
        if (f->top == TOP_FINITE) return f->max_finite; // 4-bit floats have no NaN
        return f->top == TOP_NEGATIVE_ZERO_NAN ? f->nan : sign | f->nan;
    }
    double magnitude = fabs(value);
    uint32_t bits = UINT32_MAX;
    int least = 1 - f->bias; // exponent of the smallest normal number
    if (isfinite(magnitude)) {
        int exponent = magnitude > 0 ? ilogb(magnitude) : least;
        if (exponent < least) exponent = least;
        if (exponent <= f->bias + 1) {
            double steps = nearbyint(ldexp(magnitude, f->mantissa_bits - exponent));
            bits = ((uint32_t)(exponent - least) << f->mantissa_bits) + (uint32_t)steps;
        }
    }
    if (bits > f->max_finite) {
        if (saturate || f->top == TOP_FINITE)
            bits = f->max_finite;
        else if (f->top == TOP_INF_NAN)
            bits = f->max_finite + 1;
        else
            return f->top == TOP_NEGATIVE_ZERO_NAN ? f->nan : sign | f->nan;
    }
    if (bits == 0 && f->top == TOP_NEGATIVE_ZERO_NAN) return 0; // there is no negative zero
    return sign | bits;
}

static double e8m0_decode(uint8_t bits) {
    return bits == 255 ? NAN : ldexp(1.0, bits - 127);
}

// Powers of two only; ONNX's default rounding for them is up.
static uint8_t e8m0_encode(double value) {
    if (isnan(value)) return 255;
    if (!(value > 0x1p-127)) return 0;
    int exponent;
    double fraction = frexp(value, &exponent); // in [0.5, 1)
    if (isinf(value) || exponent > 128) return 254;
    if (fraction == 0.5) exponent--;
    return (uint8_t)(exponent + 127 > 254 ? 254 : exponent + 127);
}

double hn_small_to_f64(hn_dtype dtype, uint16_t bits) {
    small_float format;
    if (dtype == HN_F8E8M0) return e8m0_decode((uint8_t)bits);
    return small_format(dtype, &format) ? small_decode(&format, bits) : NAN;
}

uint16_t hn_f64_to_small(hn_dtype dtype, double value, bool saturate) {
    small_float format;
    if (dtype == HN_F8E8M0) return e8m0_encode(value);
    return small_format(dtype, &format) ? (uint16_t)small_encode(&format, value, saturate) : 0;
}

// ---- single elements ----------------------------------------------------------------------------

// Raw bits of an element of at most 16 bits.
static uint16_t get_bits(const hn_tensor *tensor, int bits, int64_t index) {
    const uint8_t *bytes = tensor->data;
    if (bits == 16) {
        uint16_t wide;
        memcpy(&wide, bytes + index * 2, sizeof wide);
        return wide;
    }
    if (bits == 8) return bytes[index];
    int per_byte = 8 / bits;
    return (uint16_t)(bytes[index / per_byte] >> (index % per_byte * bits) & ((1 << bits) - 1));
}

static void set_bits(hn_tensor *tensor, int bits, int64_t index, uint16_t value) {
    uint8_t *bytes = tensor->data;
    if (bits == 16) {
        memcpy(bytes + index * 2, &value, sizeof value);
    } else if (bits == 8) {
        bytes[index] = (uint8_t)value;
    } else {
        int per_byte = 8 / bits, shift = (int)(index % per_byte) * bits;
        uint8_t mask = (uint8_t)(((1 << bits) - 1) << shift);
        uint8_t *byte = &bytes[index / per_byte];
        *byte = (uint8_t)((*byte & ~mask) | ((value << shift) & mask));
    }
}

// Integer content; false for floats, strings and complex numbers. u64 comes as its bits.
static bool get_integer(const hn_tensor *tensor, int64_t index, int64_t *out) {
    hn_dtype dtype = tensor->dtype;
    if (!hn_dtype_is_int(dtype) && dtype != HN_BOOL) return false;
    int bits = hn_dtype_bits(dtype);
    uint64_t raw;
    if (bits == 64) {
        memcpy(&raw, (const char *)tensor->data + index * 8, 8);
    } else if (bits == 32) {
        uint32_t narrow;
        memcpy(&narrow, (const char *)tensor->data + index * 4, 4);
        raw = narrow;
    } else {
        raw = get_bits(tensor, bits, index);
    }
    if (dtype == HN_BOOL)
        raw = raw != 0;
    else if (bits < 64 && hn_dtype_is_signed(dtype) && raw >> (bits - 1))
        raw |= ~0ull << bits;
    *out = (int64_t)raw;
    return true;
}

double hn_tensor_get_f64(const hn_tensor *tensor, int64_t index) {
    int64_t integer;
    if (get_integer(tensor, index, &integer))
        return tensor->dtype == HN_U64 ? (double)(uint64_t)integer : (double)integer;
    float f32;
    double f64;
    switch (tensor->dtype) {
    case HN_F32:
        memcpy(&f32, (const char *)tensor->data + index * 4, sizeof f32);
        return f32;
    case HN_C64: // real part
        memcpy(&f32, (const char *)tensor->data + index * 8, sizeof f32);
        return f32;
    case HN_F64:
        memcpy(&f64, (const char *)tensor->data + index * 8, sizeof f64);
        return f64;
    case HN_C128:
        memcpy(&f64, (const char *)tensor->data + index * 16, sizeof f64);
        return f64;
    case HN_STRING:
    case HN_NONE:
        return NAN;
    default:
        return hn_small_to_f64(tensor->dtype,
                               get_bits(tensor, hn_dtype_bits(tensor->dtype), index));
    }
}

// Truncates towards zero, saturates, NaN is 0.
static int64_t double_to_i64(double value) {
    if (isnan(value)) return 0;
    if (value >= 0x1p63) return INT64_MAX;
    if (value < -0x1p63) return INT64_MIN;
    return (int64_t)value;
}

int64_t hn_tensor_get_i64(const hn_tensor *tensor, int64_t index) {
    int64_t integer;
    if (get_integer(tensor, index, &integer)) return integer;
    return double_to_i64(hn_tensor_get_f64(tensor, index));
}

static void set_integer(hn_tensor *tensor, int64_t index, int64_t value) {
    int bits = hn_dtype_bits(tensor->dtype);
    if (bits == 64) {
        memcpy((char *)tensor->data + index * 8, &value, 8);
    } else if (bits == 32) {
        uint32_t narrow = (uint32_t)(uint64_t)value;
        memcpy((char *)tensor->data + index * 4, &narrow, 4);
    } else {
        set_bits(tensor, bits, index, (uint16_t)(uint64_t)value);
    }
}

static void set_float(hn_tensor *tensor, int64_t index, double value) {
    float f32 = (float)value, pair[2] = {f32, 0};
    double wide_pair[2] = {value, 0};
    char *base = tensor->data;
    switch (tensor->dtype) {
    case HN_F32:
        memcpy(base + index * 4, &f32, sizeof f32);
        break;
    case HN_F64:
        memcpy(base + index * 8, &value, sizeof value);
        break;
    case HN_C64:
        memcpy(base + index * 8, pair, sizeof pair);
        break;
    case HN_C128:
        memcpy(base + index * 16, wide_pair, sizeof wide_pair);
        break;
    case HN_STRING:
    case HN_NONE:
        break;
    case HN_F16:
    case HN_BF16:
        set_bits(tensor, 16, index, hn_f64_to_small(tensor->dtype, value, false));
        break;
    default: // 8- and 4-bit floats saturate, as ONNX casts do by default
        set_bits(tensor, hn_dtype_bits(tensor->dtype), index,
                 hn_f64_to_small(tensor->dtype, value, true));
    }
}

void hn_tensor_set_f64(hn_tensor *tensor, int64_t index, double value) {
    hn_dtype dtype = tensor->dtype;
    if (dtype == HN_BOOL) {
        set_integer(tensor, index, value != 0);
    } else if (!hn_dtype_is_int(dtype)) {
        set_float(tensor, index, value);
    } else {
        int bits = hn_dtype_bits(dtype);
        bool is_signed = hn_dtype_is_signed(dtype);
        double low = is_signed ? -ldexp(1.0, bits - 1) : 0.0;
        double end = ldexp(1.0, is_signed ? bits - 1 : bits); // first value beyond
        double rounded = isnan(value) ? 0.0 : nearbyint(value);
        int64_t result;
        if (rounded >= end) {
            uint64_t top = bits == 64 ? ~0ull : (1ull << bits) - 1;
            result = (int64_t)(is_signed ? top >> 1 : top);
        } else if (rounded < low) {
            result = is_signed ? (int64_t)(~0ull << (bits - 1)) : 0;
        } else {
            result = is_signed ? (int64_t)rounded : (int64_t)(uint64_t)rounded;
        }
        set_integer(tensor, index, result);
    }
}

void hn_tensor_set_i64(hn_tensor *tensor, int64_t index, int64_t value) {
    hn_dtype dtype = tensor->dtype;
    if (dtype == HN_BOOL) {
        set_integer(tensor, index, value != 0);
    } else if (hn_dtype_is_int(dtype)) {
        set_integer(tensor, index, value);
    } else if (dtype == HN_F32) {
        float direct = (float)value; // by way of double it would round twice
        memcpy((char *)tensor->data + index * 4, &direct, sizeof direct);
    } else {
        // Odd rounding to 52 bits keeps the later rounding to a small format exact.
        if (dtype != HN_F64 && (value >= (1ll << 53) || value <= -(1ll << 53)))
            value = (int64_t)(((uint64_t)value & ~0xfffull) | ((value & 0xfff) ? 0x1000u : 0));
        set_float(tensor, index, (double)value);
    }
}
