// SPDX-License-Identifier: Apache-2.0
// C = ALPHA * A B + bias + rest of 16-bit floats by mma.sync: BM x BN outputs a block, BK of K at a time in STAGES
// pieces of shared memory. For machines without cuBLASLt or cuDNN; forms of sm_80.
//
// A is M x K, or K x M (TURN_A), rows LDA apart; B is K x N, or N x K (TURN_B); matrices of a batch (or groups of a
// convolution, GATHER) STEP_A, STEP_B, STEP_C elements apart. WIDE_A, WIDE_B: 16 bytes may be read at once.
#define BK      32
#define STAGES  3
#define THREADS (2 * BN) // warps of BM / 2 x 32 outputs
#define MT      (BM / 32)
#define A_KC    (!TURN_A)      // K lies together
#define B_KC    (TURN_B)
#define A_PIECE (A_KC ? BM * (BK + 8) : BK * (BM + 8))
#define B_PIECE (B_KC ? BN * (BK + 8) : BK * (BN + 8))
#define THREADS_N (BN / 32)

// LINES along M or N from `first` on, BK of K from k0 on; zeros outside.
template <bool KC, int LINES>
__device__ __forceinline__ void load_tile(T *to, const T *from, int stride, int first, int lines, int k0, int wide HN_TAKES) {
    constexpr int TOGETHER = KC ? BK : LINES, PIECES = TOGETHER / 8, COUNT = (KC ? LINES : BK) * PIECES;
#pragma unroll
    for (int n = 0; n < COUNT / THREADS; n++) {
        const int i = n * THREADS + threadIdx.x, r = i / PIECES, c = i % PIECES * 8;
        const int line = first + (KC ? r : c), k = k0 + (KC ? c : r);
        T *at = to + r * (TOGETHER + 8) + c;
        const T *p = from + (KC ? (i64)line * stride + k : (i64)k * stride + line);
        const bool in = line < lines && k < K;
        if (wide) {
            copy16(at, in ? p : from, in ? 16 : 0);
        } else {
#pragma unroll
            for (int e = 0; e < 8; e++)
                at[e] = in && (KC ? k + e < K : line + e < lines) ? p[e] : T{0};
        }
    }
}

#if GATHER
// The rows of A are what output positions see; a thread's rows stay the same.
__device__ __forceinline__ void load_seen(T *to, const T *x, const seen (&rows)[BM * BK / 8 / THREADS], int first, int k0 HN_TAKES) {
#pragma unroll
    for (int n = 0; n < BM * BK / 8 / THREADS; n++) {
        const int i = n * THREADS + threadIdx.x, r = i / (BK / 8), c = i % (BK / 8) * 8, k = k0 + c;
        T *at = to + r * (BK + 8) + c;
        if (WIDE_A) { // eight channels of one tap
            const i64 from = first + r < M && k < K ? column_of(rows[n], k HN_GIVES) : -1;
            copy16(at, from >= 0 ? x + from : x, from >= 0 ? 16 : 0);
        } else {
            for (int e = 0; e < 8; e++) {
                const i64 from = first + r < M && k + e < K ? column_of(rows[n], k + e HN_GIVES) : -1;
                at[e] = from >= 0 ? x[from] : T{0};
            }
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) hn_k_product(const T *a, const T *b, const T *bias, const T *rest, T *c HN_PARAMS) {
    extern __shared__ u128 hn_product_shared[];
    T *as = (T *)hn_product_shared, *bs = as + STAGES * A_PIECE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles_n = (N + BN - 1) / BN;
    const int m0 = (int)(blockIdx.x / tiles_n) * BM, n0 = (int)(blockIdx.x % tiles_n) * BN, batch = blockIdx.y;
    const int wm = warp / THREADS_N * (BM / 2), wn = warp % THREADS_N * 32;
    a += batch * STEP_A;
    b += batch * STEP_B;
    c += batch * STEP_C;
    rest += batch * STEP_C;
#if GATHER
    seen rows[BM * BK / 8 / THREADS];
#pragma unroll
    for (int n = 0; n < BM * BK / 8 / THREADS; n++) {
        const int m = m0 + (n * THREADS + (int)threadIdx.x) / (BK / 8);
        rows[n] = position_of(m < M ? m : 0 HN_GIVES);
    }
#define LOAD_A(STAGE, FROM) load_seen(as + (STAGE)*A_PIECE, a, rows, m0, FROM HN_GIVES)
#else
#define LOAD_A(STAGE, FROM) load_tile<A_KC, BM>(as + (STAGE)*A_PIECE, a, LDA, m0, M, FROM, WIDE_A HN_GIVES)
#endif
#define LOAD_B(STAGE, FROM) load_tile<B_KC, BN>(bs + (STAGE)*B_PIECE, b, LDB, n0, N, FROM, WIDE_B HN_GIVES)
    float sum[MT][4][4] = {};
    const int steps = (K + BK - 1) / BK;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            LOAD_A(s, s * BK);
            LOAD_B(s, s * BK);
        }
        asm volatile("cp.async.commit_group;");
    }
    for (int s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        if (s + STAGES - 1 < steps) {
            LOAD_A((s + STAGES - 1) % STAGES, (s + STAGES - 1) * BK);
            LOAD_B((s + STAGES - 1) % STAGES, (s + STAGES - 1) * BK);
        }
        asm volatile("cp.async.commit_group;");
        const T *at = as + s % STAGES * A_PIECE, *bt = bs + s % STAGES * B_PIECE;
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            u32 af[MT][4], bf[2][4];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                if (A_KC) load4(af[m], at + (wm + m * 16 + lane % 16) * (BK + 8) + k + lane / 16 * 8);
                else load4_turned(af[m], at + (k + lane / 16 * 8 + lane % 8) * (BM + 8) + wm + m * 16 + lane / 8 % 2 * 8);
            }
#pragma unroll
            for (int n = 0; n < 2; n++) {
                if (B_KC) load4(bf[n], bt + (wn + n * 16 + lane / 16 * 8 + lane % 8) * (BK + 8) + k + lane / 8 % 2 * 8);
                else load4_turned(bf[n], bt + (k + lane / 8 % 2 * 8 + lane % 8) * (BN + 8) + wn + n * 16 + lane / 16 * 8);
            }
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    mma(sum[m][n], af[m], bf[n / 2][n % 2 * 2], bf[n / 2][n % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = m0 + wm + m * 16 + lane / 4 + h * 8, column = n0 + wn + n * 8 + lane % 4 * 2;
                if (row >= M || column >= N) continue;
                T *to = c + (i64)row * LDC + column;
                float value[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    value[e] = (float)ALPHA * sum[m][n][2 * h + e];
                    if (HAS_BIAS && column + e < N) value[e] += to_f32(bias[batch * STEP_BIAS + column + e]);
                    if (HAS_REST && column + e < N) value[e] += to_f32(rest[(i64)row * LDC + column + e]);
                }
                const u32 both = pair(value[0], value[1]);
                if (column + 1 < N && LDC % 2 == 0 && STEP_C % 2 == 0) {
                    *(u32 *)to = both;
                } else {
                    to[0] = T{(u16)both};
                    if (column + 1 < N) to[1] = T{(u16)(both >> 16)};
                }
            }
}
