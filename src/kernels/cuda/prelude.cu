// SPDX-License-Identifier: Apache-2.0
// What every kernel of ours begins with: element types, conversions, vectors. No toolkit header.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct b8 { u8 bits; };
struct alignas(16) u128 { u32 part[4]; };
// Two forms of every text. For a node: names of shapes are macros of numbers. Generic (HN_GENERIC, made by
// the build): they are fields of the last parameter, which device functions hand on; no total reaches 2^31.
#ifndef HN_GENERIC
#define HN_GENERIC 0
#define HN_PARAMS // behind a kernel's last parameter
#define HN_TAKES  // behind a device function's last parameter
#define HN_GIVES  // behind the last argument of its call
typedef long long span; // counts elements
#define HN_LOOP
#define HN_LOOP4 _Pragma("unroll 4")
#else
typedef int span;
#define HN_LOOP  _Pragma("unroll 1") // generic forms stay short
#define HN_LOOP4 _Pragma("unroll 1")
#endif
#define HN_INF __int_as_float(0x7f800000)
#define HN_NAN __int_as_float(0x7fffffff)

// ---- to the type computed in --------------------------------------------------------------------
__device__ __forceinline__ float to_f32(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float to_f32(b8 x) { return x.bits ? 1.f : 0.f; }
__device__ __forceinline__ float to_f32(float x) { return x; }
template <class S> __device__ __forceinline__ float to_f32(S x) { return (float)x; }
__device__ __forceinline__ double to_f64(f16 x) { return (double)to_f32(x); }
__device__ __forceinline__ double to_f64(bf16 x) { return (double)to_f32(x); }
__device__ __forceinline__ double to_f64(b8 x) { return x.bits ? 1. : 0.; }
template <class S> __device__ __forceinline__ double to_f64(S x) { return (double)x; }
// From floating point to integers: towards zero, saturating, NaN is 0.
__device__ __forceinline__ i64 to_i64(double x) {
    return x != x ? 0 : x >= 9223372036854775808. ? 0x7fffffffffffffffll : x <= -9223372036854775808. ? -0x7fffffffffffffffll - 1 : (i64)x;
}
__device__ __forceinline__ u64 to_u64(double x) {
    return x != x || x <= 0 ? 0 : x >= 18446744073709551616. ? 0xffffffffffffffffull : (u64)x;
}
__device__ __forceinline__ i64 to_i64(float x) { return to_i64((double)x); }
__device__ __forceinline__ u64 to_u64(float x) { return to_u64((double)x); }
__device__ __forceinline__ i64 to_i64(f16 x) { return to_i64((double)to_f32(x)); }
__device__ __forceinline__ u64 to_u64(f16 x) { return to_u64((double)to_f32(x)); }
__device__ __forceinline__ i64 to_i64(bf16 x) { return to_i64((double)to_f32(x)); }
__device__ __forceinline__ u64 to_u64(bf16 x) { return to_u64((double)to_f32(x)); }
__device__ __forceinline__ i64 to_i64(b8 x) { return x.bits != 0; }
__device__ __forceinline__ u64 to_u64(b8 x) { return x.bits != 0; }
template <class S> __device__ __forceinline__ i64 to_i64(S x) { return (i64)x; }
template <class S> __device__ __forceinline__ u64 to_u64(S x) { return (u64)x; }

template <class A> struct computed;
template <> struct computed<float> { template <class S> static __device__ __forceinline__ float of(S x) { return to_f32(x); } };
template <> struct computed<double> { template <class S> static __device__ __forceinline__ double of(S x) { return to_f64(x); } };
template <> struct computed<i64> { template <class S> static __device__ __forceinline__ i64 of(S x) { return to_i64(x); } };
template <> struct computed<u64> { template <class S> static __device__ __forceinline__ u64 of(S x) { return to_u64(x); } };

// ---- to storage ---------------------------------------------------------------------------------
template <class D> struct store;
template <> struct store<f16> {
    static __device__ __forceinline__ f16 of(float x) {
        f16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        return y;
    }
    static __device__ __forceinline__ f16 of(double x) { return of((float)x); }
    static __device__ __forceinline__ f16 of(i64 x) { return of((float)x); }
    static __device__ __forceinline__ f16 of(u64 x) { return of((float)x); }
};
template <> struct store<bf16> {
    static __device__ __forceinline__ bf16 of(float x) {
        bf16 y;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        return y;
    }
    static __device__ __forceinline__ bf16 of(double x) { return of((float)x); }
    static __device__ __forceinline__ bf16 of(i64 x) { return of((float)x); }
    static __device__ __forceinline__ bf16 of(u64 x) { return of((float)x); }
};
template <> struct store<b8> {
    template <class S> static __device__ __forceinline__ b8 of(S x) { return b8{(u8)(x != 0)}; }
};
template <> struct store<f32> {
    template <class S> static __device__ __forceinline__ f32 of(S x) { return (f32)x; }
};
template <> struct store<f64> {
    template <class S> static __device__ __forceinline__ f64 of(S x) { return (f64)x; }
};
#define HN_STORE_INT(D, LOW, HIGH)                                                                 \
    template <> struct store<D> {                                                                  \
        static __device__ __forceinline__ D of(i64 x) { return (D)x; }                             \
        static __device__ __forceinline__ D of(u64 x) { return (D)x; }                             \
        static __device__ __forceinline__ D of(double x) {                                         \
            return x != x ? (D)0 : x <= (double)(LOW) ? (D)(LOW) : x >= (double)(HIGH) ? (D)(HIGH) : (D)x; \
        }                                                                                          \
        static __device__ __forceinline__ D of(float x) {                                          \
            if (sizeof(D) > 2) return of((double)x);                                               \
            return x != x ? (D)0 : x <= (float)(LOW) ? (D)(LOW) : x >= (float)(HIGH) ? (D)(HIGH) : (D)x; \
        }                                                                                          \
    };
HN_STORE_INT(i8, -128, 127)
HN_STORE_INT(i16, -32768, 32767)
HN_STORE_INT(i32, -2147483647 - 1, 2147483647)
HN_STORE_INT(u8, 0, 255)
HN_STORE_INT(u16, 0, 65535)
HN_STORE_INT(u32, 0, 4294967295u)
template <> struct store<i64> {
    template <class S> static __device__ __forceinline__ i64 of(S x) { return to_i64(x); }
};
template <> struct store<u64> {
    template <class S> static __device__ __forceinline__ u64 of(S x) { return to_u64(x); }
};

// ---- vectors: up to 16 bytes move as one ---------------------------------------------------------
template <class S, int N> struct alignas(sizeof(S) * N > 16 ? 16 : sizeof(S) * N) vec { S v[N]; };

// ---- what formulas of the op table call ----------------------------------------------------------
__device__ inline i64 hn_powi(i64 base, i64 exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    u64 result = 1, square = (u64)base;
    for (u64 e = (u64)exponent; e; e >>= 1, square *= square)
        if (e & 1) result *= square;
    return (i64)result;
}
__device__ inline u64 hn_powu(u64 base, u64 exponent) {
    u64 result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}
