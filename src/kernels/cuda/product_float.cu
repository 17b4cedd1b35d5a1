// SPDX-License-Identifier: Apache-2.0
// The same as product.cu in float32 and float64, which tensor cores would round: 64 x 64 outputs a block of 256
// threads, 4 x 4 a thread, 16 of K at a time.
#define LINE 68 // of 64, so that columns meet other banks

extern "C" __global__ void __launch_bounds__(256) hn_k_product_float(const T *a, const T *b, const T *bias, const T *rest, T *c HN_PARAMS) {
    __shared__ A as[16][LINE], bs[16][LINE];
    const int tiles_n = (N + 63) / 64, m0 = (int)(blockIdx.x / tiles_n) * 64, n0 = (int)(blockIdx.x % tiles_n) * 64, batch = blockIdx.y;
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    a += batch * STEP_A;
    b += batch * STEP_B;
    c += batch * STEP_C;
    rest += batch * STEP_C;
    A sum[4][4] = {};
#if GATHER
    seen rows[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int m = m0 + (int)(threadIdx.x + 256 * j) / 16;
        rows[j] = position_of(m < M ? m : 0 HN_GIVES);
    }
#endif
    for (int k0 = 0; k0 < K; k0 += 16) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = threadIdx.x + 256 * j;
#if GATHER
            const int k = i % 16, m = i / 16;
            const i64 from = m0 + m < M && k0 + k < K ? column_of(rows[j], k0 + k HN_GIVES) : -1;
            as[k][m] = from >= 0 ? a[from] : (T)0;
#else
            const int k = TURN_A ? i / 64 : i % 16, m = TURN_A ? i % 64 : i / 16;
            const bool in = m0 + m < M && k0 + k < K;
            as[k][m] = !in ? (T)0 : TURN_A ? a[(i64)(k0 + k) * LDA + m0 + m] : a[(i64)(m0 + m) * LDA + k0 + k];
#endif
            const int kb = TURN_B ? i % 16 : i / 64, n = TURN_B ? i / 16 : i % 64;
            const bool in_b = n0 + n < N && k0 + kb < K;
            bs[kb][n] = !in_b ? (T)0 : TURN_B ? b[(i64)(n0 + n) * LDB + k0 + kb] : b[(i64)(k0 + kb) * LDB + n0 + n];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
            A x[4], y[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                x[e] = as[k][row + e];
                y[e] = bs[k][column + e];
            }
#pragma unroll
            for (int m = 0; m < 4; m++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    sum[m][n] += x[m] * y[n];
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if (m0 + row + m >= M || n0 + column + n >= N) continue;
            A value = (A)ALPHA * sum[m][n];
            if (HAS_BIAS) value += bias[batch * STEP_BIAS + n0 + column + n];
            if (HAS_REST) value += rest[(i64)(m0 + row + m) * LDC + n0 + column + n];
            c[(i64)(m0 + row + m) * LDC + n0 + column + n] = value;
        }
}
