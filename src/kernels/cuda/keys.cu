// SPDX-License-Identifier: Apache-2.0
// The order of TopK, ArgMax and their like: an item is an element's key and its place, larger items come
// first. NaN stands above all numbers, whichever end is asked for; both zeros are one. Told: T, KIND (0
// floating point, 1 signed, 2 unsigned), WIDE (keys of 64 bits), LARGEST, LAST_WINS (of equal elements).
#if WIDE
typedef u64 key;
struct item {
    u64 k, place;
};
__device__ __forceinline__ bool before(const item a, const item b) { return a.k > b.k || (a.k == b.k && a.place > b.place); }
__device__ __forceinline__ item other(const item a, int step) {
    return item{__shfl_xor_sync(0xffffffffu, a.k, step), __shfl_xor_sync(0xffffffffu, a.place, step)};
}
__device__ __forceinline__ item none() { return item{0, 0}; }
#else
typedef u32 key;
typedef u64 item;
__device__ __forceinline__ bool before(item a, item b) { return a > b; }
__device__ __forceinline__ item other(item a, int step) { return __shfl_xor_sync(0xffffffffu, a, step); }
__device__ __forceinline__ item none() { return 0; }
#endif

__device__ __forceinline__ key key_of(T x) {
    const key top = ~(key)0, sign = (key)1 << (sizeof(key) * 8 - 1);
    key k;
#if KIND == 0
#if WIDE
    const double v = to_f64(x);
    if (v != v) return top;
    k = (key)__double_as_longlong(v == 0 ? 0. : v);
#else
    const float v = to_f32(x);
    if (v != v) return top;
    k = __float_as_uint(v == 0 ? 0.f : v);
#endif
    k = k & sign ? ~k : k | sign;
#elif KIND == 1
    k = (key)to_i64(x) ^ sign;
#else
    k = (key)to_u64(x);
#endif
    return LARGEST ? k : (key)(top - k);
}

__device__ __forceinline__ item item_of(T x, u32 at) {
    const u32 place = LAST_WINS ? at : ~at;
#if WIDE
    return item{key_of(x), place};
#else
    return (u64)key_of(x) << 32 | place;
#endif
}
__device__ __forceinline__ u32 place_of(const item a) {
#if WIDE
    const u32 place = (u32)a.place;
#else
    const u32 place = (u32)a;
#endif
    return LAST_WINS ? place : ~place;
}
