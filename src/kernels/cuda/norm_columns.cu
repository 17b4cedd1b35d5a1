// SPDX-License-Identifier: Apache-2.0
// Instance normalisation of channels-last images: COUNT positions of INNER channels, OUTER images.
// First partial sums of SPLIT pieces of the positions (each shifted by the image's first value, so that
// squares do not cancel), then mean and inverse, then the result.
#define LANES (INNER / VEC)
#if HN_GENERIC
__device__ __forceinline__ A after(A value) { return value; }
#endif
__device__ __forceinline__ A convert(T x) { return computed<A>::of(x); }
extern __shared__ double hn_shared[]; // sums and squares, [2][ROWS][INNER]

extern "C" __global__ void __launch_bounds__(THREADS) hn_k_norm_partial(const T *x, A *partial HN_PARAMS) {
    // One block: a piece of one image; threads: channel vectors x rows side by side.
    const int lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    const i64 image = blockIdx.y;
    const int piece = blockIdx.x;
    const T *from = x + image * ((i64)COUNT * INNER);
    const int begin = (int)((i64)COUNT * piece / SPLIT), end = (int)((i64)COUNT * (piece + 1) / SPLIT);
    A sum[VEC] = {0}, squares[VEC] = {0}, shift[VEC];
    A *shared = (A *)hn_shared;
    if (first < ROWS) {
#pragma unroll
        for (int e = 0; e < VEC; e++)
            shift[e] = convert(from[lane * VEC + e]);
        for (int i = begin + first; i < end; i += ROWS) {
            const vec<T, VEC> in = *(const vec<T, VEC> *)(from + (i64)i * INNER + lane * VEC);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                const A apart = convert(in.v[e]) - shift[e];
                sum[e] += apart;
                squares[e] += apart * apart;
            }
        }
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            shared[first * INNER + lane * VEC + e] = sum[e];
            shared[(ROWS + first) * INNER + lane * VEC + e] = squares[e];
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * INNER; c += THREADS) {
        A total = 0;
        for (int r = 0; r < ROWS; r++)
            total += shared[(c / INNER * ROWS + r) * INNER + c % INNER];
        partial[((image * SPLIT + piece) * 2 + c / INNER) * INNER + c % INNER] = total;
    }
}

// scale_shift: what a value is multiplied by and what is added, by image and channel. A warp each.
extern "C" __global__ void __launch_bounds__(THREADS)
    hn_k_norm_finish(const T *x, const A *partial, const S *scale, const S *bias, A *scale_shift HN_PARAMS) {
    const span at = ((span)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (at >= (span)OUTER * INNER) return;
    const span image = at / INNER;
    const int c = (int)(at % INNER);
    double sum = 0, squares = 0;
    for (int piece = threadIdx.x % 32; piece < SPLIT; piece += 32) {
        sum += partial[((image * SPLIT + piece) * 2) * INNER + c];
        squares += partial[((image * SPLIT + piece) * 2 + 1) * INNER + c];
    }
    for (int step = 16; step; step /= 2) {
        sum += __shfl_xor_sync(~0u, sum, step);
        squares += __shfl_xor_sync(~0u, squares, step);
    }
    if (threadIdx.x % 32) return;
    const double shifted = sum / COUNT, variance = squares / COUNT - shifted * shifted;
    const double mean = shifted + (double)convert(x[image * ((i64)COUNT * INNER) + c]);
    const double factor = (double)computed<A>::of(scale[c]) / sqrt((variance > 0 || variance != variance ? variance : 0) + (double)EPSILON);
    scale_shift[at * 2] = (A)factor;
    scale_shift[at * 2 + 1] = (A)((double)computed<A>::of(bias[c]) - mean * factor);
}

extern "C" __global__ void __launch_bounds__(THREADS) hn_k_norm_apply(const T *x, const A *scale_shift, D *y HN_PARAMS) {
    const span at = ((span)blockIdx.x * THREADS + threadIdx.x) * VEC;
    if (at >= (span)OUTER * COUNT * INNER) return;
    const span image = at / ((span)COUNT * INNER);
    const int c = (int)(at % INNER);
    const vec<T, VEC> in = *(const vec<T, VEC> *)(x + at);
    const A *p = scale_shift + (image * INNER + c) * 2;
    vec<D, VEC> out;
#pragma unroll
    for (int e = 0; e < VEC; e++)
        out.v[e] = store<D>::of(after(convert(in.v[e]) * p[2 * e] + p[2 * e + 1]));
    *(vec<D, VEC> *)(y + at) = out;
}
