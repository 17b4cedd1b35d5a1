// SPDX-License-Identifier: Apache-2.0
// Element types, concrete shapes, reference-counted buffers, dense tensors.
//
// A tensor here is plain: row-major and dense (4-bit and 2-bit types are packed, first element in
// the low bits, as ONNX packs them). A string tensor's data is an array of hn_slice whose text the
// same buffer (or a parent that it keeps alive) holds. Other layouts exist only inside a plan.
#ifndef HN_IR_TENSOR_H
#define HN_IR_TENSOR_H
#include "base/base.h"

typedef enum hn_dtype {
    HN_NONE = 0,
#define HN_DTYPE(token, code, name, bits, class) HN_##token = code,
#include "ir/dtype.def"
#undef HN_DTYPE
    HN_DTYPE_END
} hn_dtype;

const char *hn_dtype_name(hn_dtype dtype);       // "f32"; "?" when out of range
hn_dtype hn_dtype_from_name(hn_slice name);      // HN_NONE when unknown
hn_dtype hn_dtype_from_onnx(int64_t code);       // HN_NONE when unknown
int hn_dtype_bits(hn_dtype dtype);               // 0 for strings
static inline size_t hn_dtype_bytes(hn_dtype dtype) { return (size_t)hn_dtype_bits(dtype) / 8; }
bool hn_dtype_is_float(hn_dtype dtype);          // every floating type
bool hn_dtype_is_int(hn_dtype dtype);            // signed and unsigned, not bool
bool hn_dtype_is_signed(hn_dtype dtype);

#define HN_MAX_RANK 8

typedef struct hn_shape {
    int rank;
    int64_t dims[HN_MAX_RANK]; // each >= 0
} hn_shape;

// Number of elements; false on overflow. A scalar (rank 0) has one.
bool hn_shape_count(const hn_shape *shape, int64_t *out_count);
// Bytes of a dense tensor; false on overflow. Sub-byte types round up to whole bytes.
bool hn_shape_bytes(const hn_shape *shape, hn_dtype dtype, size_t *out_bytes);
bool hn_shape_equal(const hn_shape *a, const hn_shape *b);
void hn_shape_print(hn_str *out, const hn_shape *shape); // "1x3x224x224"; "scalar"

// Bytes with a reference count: heap memory, or a view of a mapping that a parent keeps alive.
typedef struct hn_buffer hn_buffer;
hn_buffer *hn_buffer_new(size_t bytes);  // 64-byte aligned heap memory, not zeroed; NULL on failure
// Borrowed memory; release(user) runs when the last reference goes (release may be NULL).
hn_buffer *hn_buffer_wrap(const void *data, size_t bytes, void (*release)(void *user), void *user);
hn_buffer *hn_buffer_ref(hn_buffer *buffer); // takes NULL
void hn_buffer_unref(hn_buffer *buffer);     // takes NULL; thread-safe
void *hn_buffer_data(hn_buffer *buffer);
size_t hn_buffer_bytes(const hn_buffer *buffer);
bool hn_buffer_is_heap(const hn_buffer *buffer);

typedef struct hn_tensor {
    hn_dtype dtype;
    hn_shape shape;
    void *data;        // first element; weights are not to be written
    size_t bytes;
    hn_buffer *buffer; // keeps data alive (owned reference), or NULL: data is borrowed
} hn_tensor;

// A new heap tensor, not zeroed. Fails with HONE_ERR_LIMIT on overflow.
hn_status hn_tensor_new(hone_error *err, hn_dtype dtype, const hn_shape *shape,
                        hn_tensor *out_tensor);
void hn_tensor_free(hn_tensor *tensor); // drops the reference; the struct is zeroed
hn_tensor hn_tensor_ref(const hn_tensor *tensor); // shares the buffer
int64_t hn_tensor_count(const hn_tensor *tensor); // elements

// Conversions between storage formats; round to nearest even, NaN stays NaN (quiet).
float hn_f16_to_f32(uint16_t bits);
uint16_t hn_f32_to_f16(float value);
static inline float hn_bf16_to_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
uint16_t hn_f32_to_bf16(float value);
// Any float format of at most 16 bits; bits in the low end. Beyond the largest finite number:
// saturate gives that number, else infinity or, where the format has none, NaN. F8E8M0 rounds up.
double hn_small_to_f64(hn_dtype dtype, uint16_t bits);
uint16_t hn_f64_to_small(hn_dtype dtype, double value, bool saturate);
// One element as double / from double for any numeric dtype incl. sub-byte and 8-bit floats
// (integers beyond 2^53 lose digits: use hn_tensor_get_i64). Slow: for references, tests, folding.
double hn_tensor_get_f64(const hn_tensor *tensor, int64_t index);
int64_t hn_tensor_get_i64(const hn_tensor *tensor, int64_t index); // floats truncate
// Integers: round to even and saturate, NaN is 0. Floats of 8 and 4 bits saturate; 16-bit ones
// overflow to infinity. Bool: any value but 0 is true.
void hn_tensor_set_f64(hn_tensor *tensor, int64_t index, double value);
void hn_tensor_set_i64(hn_tensor *tensor, int64_t index, int64_t value); // narrow integers wrap
#endif
