// SPDX-License-Identifier: Apache-2.0
// Typed element-wise loops: see typed.h. Integer arithmetic wraps; integer division rounds towards
// zero and gives 0 for a zero divisor (undefined in ONNX, but no trap).
#include "kernels/cpu/typed.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef float f32;
typedef double f64;
typedef int64_t i64;
typedef int32_t i32;
typedef uint8_t u8;
typedef int8_t i8;
typedef uint8_t boolean;

#define BINARY(name, in_t, out_t, expr)                                                            \
    static void name##_##in_t(const void *const *in, const int64_t *s, void *out_, int64_t n) {    \
        const in_t *a_ = in[0], *b_ = in[1];                                                       \
        out_t *out = out_;                                                                         \
        int64_t sa = s[0], sb = s[1];                                                              \
        if (sa == 1 && sb == 1) {                                                                  \
            for (int64_t i = 0; i < n; i++) {                                                      \
                in_t a = a_[i], b = b_[i];                                                         \
                out[i] = (out_t)(expr);                                                            \
            }                                                                                      \
        } else if (sa == 1 && sb == 0) {                                                           \
            in_t b = *b_;                                                                          \
            for (int64_t i = 0; i < n; i++) {                                                      \
                in_t a = a_[i];                                                                    \
                out[i] = (out_t)(expr);                                                            \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                in_t a = a_[i * sa], b = b_[i * sb];                                               \
                out[i] = (out_t)(expr);                                                            \
            }                                                                                      \
        }                                                                                          \
    }
#define UNARY(name, in_t, out_t, expr)                                                             \
    static void name##_##in_t(const void *const *in, const int64_t *s, void *out_, int64_t n) {    \
        const in_t *a_ = in[0];                                                                    \
        out_t *out = out_;                                                                         \
        int64_t sa = s[0];                                                                         \
        if (sa == 1) {                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                      \
                in_t a = a_[i];                                                                    \
                out[i] = (out_t)(expr);                                                            \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                in_t a = a_[i * sa];                                                               \
                out[i] = (out_t)(expr);                                                            \
            }                                                                                      \
        }                                                                                          \
    }
#define WHERE(type)                                                                                \
    static void where_##type(const void *const *in, const int64_t *s, void *out_, int64_t n) {     \
        const u8 *c = in[0];                                                                       \
        const type *a = in[1], *b = in[2];                                                         \
        type *out = out_;                                                                          \
        int64_t sc = s[0], sa = s[1], sb = s[2];                                                   \
        if (sc == 1 && sa == 1 && sb == 0) {                                                       \
            type other = *b;                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                out[i] = c[i] ? a[i] : other;                                                      \
        } else if (sc == 1 && sa == 0 && sb == 1) {                                                \
            type other = *a;                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                out[i] = c[i] ? other : b[i];                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                out[i] = c[i * sc] ? a[i * sa] : b[i * sb];                                        \
        }                                                                                          \
    }

#define COMPARE(type)                                                                              \
    BINARY(equal, type, u8, a == b)                                                                \
    BINARY(less, type, u8, a < b)                                                                  \
    BINARY(less_equal, type, u8, a <= b)                                                           \
    BINARY(greater, type, u8, a > b)                                                               \
    BINARY(greater_equal, type, u8, a >= b)
COMPARE(f32)
COMPARE(i64)
COMPARE(i32)
COMPARE(u8)

#define INTEGER(type, wide)                                                                        \
    BINARY(add, type, type, (wide)a + (wide)b)                                                     \
    BINARY(sub, type, type, (wide)a - (wide)b)                                                     \
    BINARY(mul, type, type, (wide)a *(wide)b)                                                      \
    BINARY(div, type, type, b == 0 ? 0 : b == (type)-1 ? (type)(0 - (wide)a) : a / b)              \
    BINARY(max, type, type, a > b ? a : b)                                                         \
    BINARY(min, type, type, a < b ? a : b)
INTEGER(i64, uint64_t)
INTEGER(i32, uint32_t)

BINARY(pow, f32, f32, powf(a, b))
BINARY(and, u8, u8, (a != 0) & (b != 0))
BINARY(or, u8, u8, (a != 0) | (b != 0))
BINARY(xor, u8, u8, (a != 0) ^ (b != 0))
UNARY(not, u8, u8, !a)
UNARY(is_nan, f32, u8, a != a)
UNARY(sin, f32, f32, sinf(a))
UNARY(cos, f32, f32, cosf(a))
UNARY(floor, f32, f32, floorf(a))
UNARY(ceil, f32, f32, ceilf(a))
UNARY(round, f32, f32, rintf(a))
UNARY(sign, f32, f32, a > 0 ? 1.f : a < 0 ? -1.f : a)
UNARY(atan, f32, f32, atanf(a))
WHERE(f32)
WHERE(i64)
WHERE(i32)
WHERE(u8)

typedef struct typed_row {
    const char *op;
    hn_dtype dtype;
    hn_k_typed_fn fn;
} typed_row;

#define COMPARE_ROWS(type, dtype)                                                                  \
    {"Equal", dtype, equal_##type}, {"Less", dtype, less_##type},                                  \
        {"LessOrEqual", dtype, less_equal_##type}, {"Greater", dtype, greater_##type},             \
        {"GreaterOrEqual", dtype, greater_equal_##type}
#define INTEGER_ROWS(type, dtype)                                                                  \
    {"Add", dtype, add_##type}, {"Sub", dtype, sub_##type}, {"Mul", dtype, mul_##type},            \
        {"Div", dtype, div_##type}, {"Max", dtype, max_##type}, {"Min", dtype, min_##type}

static const typed_row k_rows[] = {
    COMPARE_ROWS(f32, HN_F32), COMPARE_ROWS(i64, HN_I64), COMPARE_ROWS(i32, HN_I32),
    COMPARE_ROWS(u8, HN_U8),
    {"Equal", HN_BOOL, equal_u8},
    INTEGER_ROWS(i64, HN_I64), INTEGER_ROWS(i32, HN_I32),
    {"Pow", HN_F32, pow_f32},
    {"And", HN_BOOL, and_u8}, {"Or", HN_BOOL, or_u8}, {"Xor", HN_BOOL, xor_u8},
    {"Not", HN_BOOL, not_u8}, {"IsNaN", HN_F32, is_nan_f32},
    {"Sin", HN_F32, sin_f32}, {"Cos", HN_F32, cos_f32}, {"Floor", HN_F32, floor_f32},
    {"Ceil", HN_F32, ceil_f32}, {"Round", HN_F32, round_f32}, {"Sign", HN_F32, sign_f32},
    {"Atan", HN_F32, atan_f32},
    {"Where", HN_F32, where_f32}, {"Where", HN_I64, where_i64}, {"Where", HN_I32, where_i32},
    {"Where", HN_U8, where_u8}, {"Where", HN_I8, where_u8}, {"Where", HN_BOOL, where_u8},
};

hn_k_typed_fn hn_k_typed_find(const char *op, hn_dtype dtype) {
    for (size_t i = 0; i < sizeof k_rows / sizeof *k_rows; i++)
        if (k_rows[i].dtype == dtype && !strcmp(k_rows[i].op, op)) return k_rows[i].fn;
    return NULL;
}

// ---- Cast ---------------------------------------------------------------------------------------
// Only pairs whose meaning C shares with ONNX for every value; float to integer is left to the
// reference, which defines what happens out of range.
#define CAST(from, to, expr)                                                                       \
    static void cast_##from##_##to(const void *const *in, const int64_t *s, void *out_,            \
                                   int64_t n) {                                                    \
        const from *a_ = in[0];                                                                    \
        to *out = out_;                                                                            \
        (void)s; /* one run */                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                          \
            from a = a_[i];                                                                        \
            out[i] = (to)(expr);                                                                   \
        }                                                                                          \
    }
CAST(u8, f32, a)
CAST(i8, f32, a)
CAST(boolean, f32, a != 0)
CAST(boolean, i64, a != 0)
CAST(boolean, i32, a != 0)
CAST(i32, f32, a)
CAST(i64, f32, a)
CAST(i32, i64, a)
CAST(i64, i32, a)
CAST(u8, i32, a)
CAST(u8, i64, a)
CAST(f32, boolean, a != 0)
CAST(i64, boolean, a != 0)
CAST(i32, boolean, a != 0)
CAST(f32, f64, a)
CAST(f64, f32, a)

static const struct {
    hn_dtype from, to;
    hn_k_typed_fn fn;
} k_casts[] = {
    {HN_U8, HN_F32, cast_u8_f32},         {HN_I8, HN_F32, cast_i8_f32},
    {HN_BOOL, HN_F32, cast_boolean_f32},  {HN_BOOL, HN_I64, cast_boolean_i64},
    {HN_BOOL, HN_I32, cast_boolean_i32},  {HN_I32, HN_F32, cast_i32_f32},
    {HN_I64, HN_F32, cast_i64_f32},       {HN_I32, HN_I64, cast_i32_i64},
    {HN_I64, HN_I32, cast_i64_i32},       {HN_U8, HN_I32, cast_u8_i32},
    {HN_U8, HN_I64, cast_u8_i64},         {HN_F32, HN_BOOL, cast_f32_boolean},
    {HN_I64, HN_BOOL, cast_i64_boolean},  {HN_I32, HN_BOOL, cast_i32_boolean},
    {HN_F32, HN_F64, cast_f32_f64},       {HN_F64, HN_F32, cast_f64_f32},
};

hn_k_typed_fn hn_k_cast_find(hn_dtype from, hn_dtype to) {
    for (size_t i = 0; i < sizeof k_casts / sizeof *k_casts; i++)
        if (k_casts[i].from == from && k_casts[i].to == to) return k_casts[i].fn;
    return NULL;
}
