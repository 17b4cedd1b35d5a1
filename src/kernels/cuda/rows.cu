// SPDX-License-Identifier: Apache-2.0
// What row kernels share: a row is worked on by GROUP threads (a warp, or the whole block), each with
// vectors of VEC elements. Told by the host: T, D (stored in, out), A (computed in), OUTER, COUNT,
// GROUP, THREADS, VEC.
#define ROWS_A_BLOCK (THREADS / GROUP)
#define CHUNK (GROUP * VEC)
#define ITERATIONS ((COUNT + CHUNK - 1) / CHUNK)

struct sum_of {
    static __device__ __forceinline__ A merge(A a, A b) { return a + b; }
};
struct max_of {
    static __device__ __forceinline__ A merge(A a, A b) { return a > b || a != a ? a : b; }
};

// Every thread of the group gets the result.
template <class OP> __device__ __forceinline__ A group_reduce(A value) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        value = OP::merge(value, __shfl_xor_sync(0xffffffffu, value, lane));
#if GROUP > 32
    __shared__ A parts[THREADS / 32];
    __syncthreads(); // a call before this one may still read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
#pragma unroll
    for (int w = 1; w < THREADS / 32; w++)
        value = OP::merge(value, parts[w]);
#endif
    return value;
}

__device__ __forceinline__ A convert(T x) { return computed<A>::of(x); }
