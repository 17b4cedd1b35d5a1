// SPDX-License-Identifier: Apache-2.0
// Softmax attention of one head a block, the scores never in memory: WARPS warps of 16 queries each walk
// over the keys in tiles of BN, two tiles in shared memory (one computed on, one on its way). Products by
// mma.sync of 16-bit floats into float32, softmax online in base 2.
//
// Operands are found by strides (q, k, v, y: batch, head, row; elements), so that heads lie as the
// products left them. EMPTY: what a row of weights without a number becomes, see ops/attention_step.c.
#define THREADS (WARPS * 32)
#define LDK     (DK + 8) // 16 bytes more than a row: ldmatrix meets no bank twice
#define LDV     (DV + 8)
#define KD      (DK / 16)
#define VD      (DV / 8)
#define TILES   ((KEYS + BN - 1) / BN)
#if HN_GENERIC // the last tile is worked on whole
#define TAIL (BN / 16)
#define EDGE true
#else
#define TAIL ((KEYS - (TILES - 1) * BN + 15) / 16)
#define EDGE (KEYS % 16 != 0)
#endif
#define LOG2E   1.4426950408889634f

__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Rows [first, first + BN) of keys or values; what lies behind the last key or the head's size is zero.
template <int PADDED>
__device__ __forceinline__ void load_rows(T *to, const T *from, i64 stride, int first, int size, int vector HN_TAKES) {
    if (vector == 8) {
        constexpr int PIECES = PADDED / 8;
#pragma unroll
        for (int n = 0; n < (BN * PIECES + THREADS - 1) / THREADS; n++) {
            const int i = n * THREADS + threadIdx.x, r = i / PIECES, c = i % PIECES * 8;
            if (BN * PIECES % THREADS && i >= BN * PIECES) break;
            const bool in = first + r < KEYS && c < size;
            copy16(to + r * (PADDED + 8) + c, in ? from + (first + r) * stride + c : from, in ? 16 : 0);
        }
    } else {
        for (int i = threadIdx.x; i < BN * PADDED; i += THREADS) {
            const int r = i / PADDED, c = i % PADDED;
            to[r * (PADDED + 8) + c] = first + r < KEYS && c < size ? from[(first + r) * stride + c] : T{0};
        }
    }
}

__device__ __forceinline__ u32 query_pair(const T *row, int c, bool in HN_TAKES) {
    if (SIZE_K % 2 == 0 && VECTOR_Q >= 2) return in && c < SIZE_K ? *(const u32 *)(row + c) : 0;
    const u32 low = in && c < SIZE_K ? row[c].bits : 0, high = in && c + 1 < SIZE_K ? row[c + 1].bits : 0;
    return low | high << 16;
}

struct rows {
    float o[VD][4], top[2], sum[2]; // of two rows: lane / 4 and 8 further
};

template <int BLOCKS, bool AT_EDGE>
__device__ __forceinline__ void tile(rows &a, const u32 (&q)[KD][4], const T *k, const T *v, int first, int row, const M *mask HN_TAKES) {
    const int lane = threadIdx.x % 32;
    float s[2 * BLOCKS][4] = {};
#pragma unroll
    for (int d = 0; d < KD; d++)
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            u32 b[4];
            load4(b, k + (n * 16 + lane / 16 * 8 + lane % 8) * LDK + d * 16 + lane / 8 % 2 * 8);
            mma(s[2 * n], q[d], b[0], b[1]);
            mma(s[2 * n + 1], q[d], b[2], b[3]);
        }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = first + n * 8 + lane % 4 * 2 + e % 2, at = row + e / 2 * 8;
            if (!PLAIN_SCALE) s[n][e] *= (float)SCALE;
            const bool masked = MASK != 0 && column < KEYS && at < QUERIES;
            if (MASK == 1 && masked) s[n][e] += LOG2E * to_f32(mask[at * (i64)MASK_Q + column * (i64)MASK_K]); // added
            if (MASK == 2 && masked && !mask[at * (i64)MASK_Q + column * (i64)MASK_K].bits) s[n][e] = -HN_INF;    // true: seen
            if ((AT_EDGE && column >= KEYS) || (CAUSAL && column > at)) s[n][e] = -HN_INF;
        }
    u32 p[BLOCKS][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float high = -HN_INF;
#pragma unroll
        for (int n = 0; n < 2 * BLOCKS; n++)
            high = fmaxf(high, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        high = quad_max(high);
        const float top = fmaxf(a.top[h], PLAIN_SCALE ? high * (float)SCALE : high), base = top == -HN_INF ? 0 : top;
        const float shrink = exp2_of(a.top[h] - base);
        a.top[h] = top;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < 2 * BLOCKS; n++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[n][2 * h + e];
                x = exp2_of(PLAIN_SCALE ? x * (float)SCALE - base : x - base);
                sum += x;
            }
            p[n / 2][h + n % 2 * 2] = pair(s[n][2 * h], s[n][2 * h + 1]);
        }
        a.sum[h] = a.sum[h] * shrink + sum;
#pragma unroll
        for (int n = 0; n < VD; n++) {
            a.o[n][2 * h] *= shrink;
            a.o[n][2 * h + 1] *= shrink;
        }
    }
#pragma unroll
    for (int n = 0; n < BLOCKS; n++)
#pragma unroll
        for (int d = 0; d < VD / 2; d++) {
            u32 b[4];
            load4_turned(b, v + (n * 16 + lane / 8 % 2 * 8 + lane % 8) * LDV + d * 16 + lane / 16 * 8);
            mma(a.o[2 * d], p[n], b[0], b[1]);
            mma(a.o[2 * d + 1], p[n], b[2], b[3]);
        }
}

// What weights of nothing but zeros make of the values: zero, except where one is no number.
__device__ __noinline__ float zero_of(const T *v, int c HN_TAKES) {
    float sum = 0;
    for (int j = 0; j < KEYS && c < SIZE_V; j++)
        sum += 0 * to_f32(v[j * (i64)V_ROW + c]);
    return sum;
}

template <int WIDE> __device__ __forceinline__ void write_out(const T *piece, T *y, int row0 HN_TAKES) {
    const int lane = threadIdx.x % 32, pieces = SIZE_V / WIDE;
    for (int i = lane; i < 16 * pieces; i += 32) {
        const int r = i / pieces, c = i % pieces * WIDE;
        if (row0 + r < QUERIES) *(vec<T, WIDE> *)(y + (row0 + r) * (i64)Y_ROW + c) = *(vec<T, WIDE> *)(piece + r * LDV + c);
    }
}

// The 16 rows of a warp, brought into order in shared memory.
__device__ __forceinline__ void write_rows(rows &a, T *piece, const T *v, T *y, int row0 HN_TAKES) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float sum = quad_sum(a.sum[h]), scale = 1 / sum;
        const bool none = EMPTY == 1 ? !(sum > 0) : EMPTY == 2 ? sum == 0 : false;
#pragma unroll
        for (int n = 0; n < VD; n++) {
            const int c = n * 8 + lane % 4 * 2;
            *(u32 *)(piece + (lane / 4 + h * 8) * LDV + c) =
                EMPTY && none ? pair(zero_of(v, c HN_GIVES), zero_of(v, c + 1 HN_GIVES)) : pair(a.o[n][2 * h] * scale, a.o[n][2 * h + 1] * scale);
        }
    }
    __syncwarp();
    if (VECTOR_Y == 8) write_out<8>(piece, y, row0 HN_GIVES);
    else write_out<1>(piece, y, row0 HN_GIVES);
}

extern "C" __global__ void __launch_bounds__(THREADS) hn_k_attention(const T *q, const T *k, const T *v, const M *mask, T *y HN_PARAMS) {
    extern __shared__ u128 shared[];
    T *keys = (T *)shared, *values = keys + 2 * BN * LDK;
    const int Q_TILES = (QUERIES + WARPS * 16 - 1) / (WARPS * 16);
    const int head = blockIdx.x / Q_TILES % HEADS, batch = blockIdx.x / Q_TILES / HEADS, lane = threadIdx.x % 32;
    const int row0 = blockIdx.x % Q_TILES * (WARPS * 16) + threadIdx.x / 32 * 16, row = row0 + lane / 4;
    q += batch * (i64)Q_BATCH + head * (i64)Q_HEAD;
    k += batch * (i64)K_BATCH + head / GROUP * (i64)K_HEAD;
    v += batch * (i64)V_BATCH + head / GROUP * (i64)V_HEAD;
    y += batch * (i64)Y_BATCH + head * (i64)Y_HEAD;
    mask += batch * (i64)MASK_BATCH + head * (i64)MASK_HEAD;
    load_rows<DK>(keys, k, K_ROW, 0, SIZE_K, VECTOR_K HN_GIVES);
    load_rows<DV>(values, v, V_ROW, 0, SIZE_V, VECTOR_V HN_GIVES);
    asm volatile("cp.async.commit_group;");
    u32 fragment[KD][4];
#pragma unroll
    for (int d = 0; d < KD; d++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = row + e % 2 * 8;
            fragment[d][e] = query_pair(q + (r < QUERIES ? r * (i64)Q_ROW : 0), d * 16 + e / 2 * 8 + lane % 4 * 2, r < QUERIES HN_GIVES);
        }
    rows a = {{}, {-HN_INF, -HN_INF}, {0, 0}};
    const int last_row = (int)(blockIdx.x % Q_TILES + 1) * (WARPS * 16) - 1;
    const int tiles = CAUSAL && last_row / BN + 1 < TILES ? last_row / BN + 1 : TILES;
    for (int j = 0; j < tiles; j++) {
        const int now = j % 2;
        if (j + 1 < tiles) {
            load_rows<DK>(keys + (1 - now) * BN * LDK, k, K_ROW, (j + 1) * BN, SIZE_K, VECTOR_K HN_GIVES);
            load_rows<DV>(values + (1 - now) * BN * LDV, v, V_ROW, (j + 1) * BN, SIZE_V, VECTOR_V HN_GIVES);
            asm volatile("cp.async.commit_group;");
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        if (row0 < QUERIES) {
            const T *kt = keys + now * BN * LDK, *vt = values + now * BN * LDV;
            if (j == TILES - 1) tile<TAIL, EDGE>(a, fragment, kt, vt, j * BN, row, mask HN_GIVES);
            else tile<BN / 16, false>(a, fragment, kt, vt, j * BN, row, mask HN_GIVES);
        }
        __syncthreads();
    }
    if (row0 < QUERIES) write_rows(a, (T *)shared + threadIdx.x / 32 * 16 * LDV, v, y, row0 HN_GIVES);
}
