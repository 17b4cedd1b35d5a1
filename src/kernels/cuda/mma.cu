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

// ---- shared memory: 16 bytes there while others work, and 8 x 8 blocks of T to lanes --------------
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void load4(u32 (&r)[4], const T *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
__device__ __forceinline__ void load4_turned(u32 (&r)[4], const T *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
