// SPDX-License-Identifier: Apache-2.0
// The tensor cores' 16x8x16 product of 16-bit floats (IS_BF16: which) into float32, the form of sm_80, and
// what goes into it. A lane holds rows lane / 4 and 8 further, columns lane % 4 * 2 and the one behind.
#if IS_BF16
#define MMA  "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#define PAIR "cvt.rn.bf16x2.f32"
#else
#define MMA  "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#define PAIR "cvt.rn.f16x2.f32"
#endif
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(MMA " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 pair(float low, float high) {
    u32 r;
    asm(PAIR " %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
