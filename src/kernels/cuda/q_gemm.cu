// SPDX-License-Identifier: Apache-2.0
// Products and convolutions of signed bytes on tensor cores (mma.sync m16n8k32, the form of sm_80), summed in
// 32 bits, with scales, bias and all fused steps in the epilogue. A convolution is a product whose rows are
// gathered on the way in: 16 channels of one position are a piece, pieces outside the image are zero.
//
// Told: BM, BN (the tile of a block), WM, WN (of a warp), STAGES, ROWS, COLS, DEPTH (of the weights' rows,
// bytes), CONV with C, IN0..2, OUT0..2, K1, K2, S0..2, D0..2, P0..2, VEC (outputs that lie together and are
// written as one), OUT, and the text of `element` and `finish`.
//
// Shared memory holds rows of 64 bytes, four pieces; piece p of row r lies at p ^ (r / 2 % 4), so that neither
// copies nor ldmatrix meet a bank twice.
#define WARPS_M (BM / WM)
#define WARPS_N (BN / WN)
#define THREADS (WARPS_M * WARPS_N * 32)
#define MI (WM / 16)
#define NI (WN / 8)
#define CHUNKS ((DEPTH + 63) / 64)
#define A_PIECES (BM * 4 / THREADS)
#define B_PIECES ((BN * 4 + THREADS - 1) / THREADS)
#define STAGE_BYTES ((BM + BN) * 64)
#define LDS_OUT (WN + 4)

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(u32 to, const void *from, bool in) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(in ? 16 : 0));
}
__device__ __forceinline__ void load4(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void mma8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 place(int row, int piece) { return (u32)(row * 64 + (piece ^ (row >> 1 & 3)) * 16); }

// A row of the product: where it lies, or which window of the image it is.
struct origin {
    int base;       // of the row, or of the image
    int a0, a1, a2; // the window's corner
    bool in;
};
__device__ __forceinline__ origin row_origin(i64 row) {
    origin o;
    o.in = row < ROWS;
    o.a0 = o.a1 = o.a2 = 0;
#if CONV
    i64 rest = o.in ? row : 0;
    o.a2 = (int)(rest % OUT2) * S2 - P2;
    rest /= OUT2;
    o.a1 = (int)(rest % OUT1) * S1 - P1;
    rest /= OUT1;
    o.a0 = (int)(rest % OUT0) * S0 - P0;
    o.base = (int)(rest / OUT0) * (IN0 * IN1 * IN2 * C);
#else
    o.base = (o.in ? (int)row : 0) * DEPTH;
#endif
    return o;
}
// Where 64 divides the channels a chunk is of one tap: the same for every thread.
__device__ __forceinline__ void copy_row_piece(u32 to, const i8 *x, const origin &o, int chunk, int piece) {
    const int k = chunk * 64 + piece * 16;
    bool in = o.in && k < DEPTH;
#if CONV
    const int tap = C % 64 ? k / C : chunk / ((C + 63) / 64), c = k - tap * C, k2 = tap % K2, k1 = tap / K2 % K1, k0 = tap / (K2 * K1);
    const int a0 = o.a0 + k0 * D0, a1 = o.a1 + k1 * D1, a2 = o.a2 + k2 * D2;
    in = in && a0 >= 0 && a0 < IN0 && a1 >= 0 && a1 < IN1 && a2 >= 0 && a2 < IN2;
    copy16(to, in ? x + (o.base + ((a0 * IN1 + a1) * IN2 + a2) * C + c) : x, in);
#else
    copy16(to, in ? x + (o.base + k) : x, in);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) hn_k_q_gemm(const i8 *x, const i8 *w, const float *scale, const float *bias,
                                                                 OUT *y OPERAND_ARGS) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;
    const int tiles_n = (COLS + BN - 1) / BN;
    // Blocks that run together share rows of x and columns of w: groups of 8 tiles of rows.
    const int group = 8 * tiles_n, tiles_m = (int)(((i64)ROWS + BM - 1) / BM), first = (int)(blockIdx.x / group) * 8;
    const int height = tiles_m - first < 8 ? tiles_m - first : 8, inside = (int)(blockIdx.x % group);
    const i64 row0 = (i64)(first + inside % height) * BM;
    const int col0 = inside / height * BN;
    const u32 base = shared_address(shared);
    origin rows[A_PIECES];
#pragma unroll
    for (int i = 0; i < A_PIECES; i++)
        rows[i] = row_origin(row0 + thread / 4 + i * (THREADS / 4));
    int sums[MI][NI][4] = {};

    auto fetch = [&](int chunk) {
        const u32 a = base + (u32)(chunk % STAGES) * STAGE_BYTES, b = a + BM * 64;
        const int piece = thread % 4, k = chunk * 64 + piece * 16;
#pragma unroll
        for (int i = 0; i < A_PIECES; i++)
            copy_row_piece(a + place(thread / 4 + i * (THREADS / 4), piece), x, rows[i], chunk, piece);
#pragma unroll
        for (int i = 0; i < B_PIECES; i++) {
            const int n = thread / 4 + i * (THREADS / 4);
            if (BN * 4 % THREADS && n >= BN) break;
            const bool in = col0 + n < COLS && k < DEPTH;
            copy16(b + place(n, piece), in ? w + (i64)(col0 + n) * DEPTH + k : w, in);
        }
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < CHUNKS) fetch(s);
        asm volatile("cp.async.commit_group;");
    }
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        if (chunk + STAGES - 1 < CHUNKS) fetch(chunk + STAGES - 1);
        asm volatile("cp.async.commit_group;");
        const u32 a = base + (u32)(chunk % STAGES) * STAGE_BYTES, b = a + BM * 64;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 left[MI][4], right[NI / 2][4];
#pragma unroll
            for (int m = 0; m < MI; m++)
                load4(left[m], a + place(warp_m + m * 16 + lane % 16, half * 2 + lane / 16));
#pragma unroll
            for (int n = 0; n < NI / 2; n++)
                load4(right[n], b + place(warp_n + n * 16 + lane / 16 * 8 + lane % 8, half * 2 + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < MI; m++)
#pragma unroll
                for (int n = 0; n < NI / 2; n++) {
                    mma8(sums[m][2 * n], left[m], right[n][0], right[n][1]);
                    mma8(sums[m][2 * n + 1], left[m], right[n][2], right[n][3]);
                }
        }
    }
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    // Each warp turns 16 rows of its sums round in shared memory, so that a lane has VEC neighbours of a row.
    int *own = (int *)shared + warp * 16 * LDS_OUT;
#pragma unroll
    for (int m = 0; m < MI; m++) {
        __syncwarp();
#pragma unroll
        for (int n = 0; n < NI; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(vec<int, 2> *)(own + (lane / 4 + h * 8) * LDS_OUT + n * 8 + lane % 4 * 2) = vec<int, 2>{sums[m][n][2 * h], sums[m][n][2 * h + 1]};
        __syncwarp();
#pragma unroll
        for (int n = 0; n < (16 * WN / VEC + 31) / 32; n++) {
            const int i = n * 32 + lane;
            if (16 * WN / VEC % 32 && i >= 16 * WN / VEC) break;
            const int r = i / (WN / VEC), c = i % (WN / VEC) * VEC, col = col0 + warp_n + c;
            const i64 row = row0 + warp_m + m * 16 + r;
            if (row >= ROWS || col >= COLS) continue;
            finish(own + r * LDS_OUT + c, row * COLS + col, col, scale, bias, y OPERAND_NAMES);
        }
    }
}
