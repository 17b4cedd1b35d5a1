// SPDX-License-Identifier: Apache-2.0
// Convolutions of few inputs, DEPTH = channels * taps: the weights stay in registers, a warp gathers 16 output
// positions after another as rows of a product. Libraries pad the channels to 8 and more, and read and
// multiply all of it (32 outputs of 3x3x3 on 128^3 on an H200: 264 us; its output alone is 31).
// Output channels-last, with bias and the posts that `after` holds. Sizes of depth, height, width: D, H, W.
// POINT: one tap, and channels that lie together in the input: a lane takes 8 of them at once.
#define KD    ((DEPTH + 15) / 16)
#define ON    ((OUTPUTS + 7) / 8)
#define SPAN_D ((TAPS_D - 1) * DILATION_D)
#define SPAN_H ((TAPS_H - 1) * DILATION_H)
#define SPAN_W ((TAPS_W - 1) * DILATION_W)
#define TOTAL ((i64)IMAGES * OUT_D * OUT_H * OUT_W)
#define NONE  0x40000000

// Which number of the DEPTH is the j-th of a lane's four in step d. Any order will do that both operands have.
__device__ __forceinline__ int depth_of(int d, int j, int t) { return POINT ? d / 2 * 32 + t * 8 + d % 2 * 4 + j : d * 16 + j / 2 * 8 + t * 2 + j % 2; }

extern "C" __global__ void __launch_bounds__(256) hn_k_conv_few(const T *x, const T *w, const T *bias, T *y) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u32 b[KD][ON][2];
    float base[ON][2];
#pragma unroll
    for (int n = 0; n < ON; n++) {
#pragma unroll
        for (int d = 0; d < KD; d++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int k = depth_of(d, e * 2, t);
                const bool in = n * 8 + g < OUTPUTS;
                const T *row = w + (in ? n * 8 + g : 0) * DEPTH;
                b[d][n][e] = (in && k < DEPTH ? row[k].bits : 0) | (u32)(in && k + 1 < DEPTH ? row[k + 1].bits : 0) << 16;
            }
#pragma unroll
        for (int e = 0; e < 2; e++)
            base[n][e] = HAS_BIAS && n * 8 + t * 2 + e < OUTPUTS ? to_f32(bias[n * 8 + t * 2 + e]) : 0;
    }
    int offset[KD][4], place[KD][4]; // of this lane's inputs; place: steps along D, H, W, 10 bits each
#pragma unroll
    for (int d = 0; d < KD; d++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int k = depth_of(d, j, t), tap = k % (TAPS_D * TAPS_H * TAPS_W);
            const int dz = tap / (TAPS_H * TAPS_W) * DILATION_D, dy = tap / TAPS_W % TAPS_H * DILATION_H, dx = tap % TAPS_W * DILATION_W;
            offset[d][j] = k / (TAPS_D * TAPS_H * TAPS_W) * X_CHANNEL + dz * X_D + dy * X_H + dx * X_W;
            place[d][j] = k < DEPTH ? dz | dy << 10 | dx << 20 : NONE;
        }
    for (i64 tile = (i64)blockIdx.x * 8 + threadIdx.x / 32; tile * 16 < TOTAL; tile += (i64)gridDim.x * 8) {
        u32 a[KD][4];
#pragma unroll
        for (int d = 0; d < KD; d++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                a[d][j] = 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 position = tile * 16 + g + 8 * h;
            const u32 p = (u32)(position < TOTAL ? position : 0);
            const int z = (int)(p / (OUT_W * OUT_H) % OUT_D) * STRIDE_D - PAD_D, v = (int)(p / OUT_W % OUT_H) * STRIDE_H - PAD_H,
                      u = (int)(p % OUT_W) * STRIDE_W - PAD_W;
            const T *from = x + ((i64)(p / (OUT_W * OUT_H * OUT_D)) * X_IMAGE + (i64)z * X_D + (i64)v * X_H + (i64)u * X_W);
            const bool whole = position < TOTAL && z >= 0 && z + SPAN_D < IN_D && v >= 0 && v + SPAN_H < IN_H && u >= 0 && u + SPAN_W < IN_W;
#if POINT
#pragma unroll
            for (int d = 0; d < KD; d += 2) {
                vec<u32, 4> line = {};
                if (whole) line = *(const vec<u32, 4> *)(from + d * 16 + t * 8);
                a[d][h] = line.v[0];
                a[d][h + 2] = line.v[1];
                a[d + 1][h] = line.v[2];
                a[d + 1][h + 2] = line.v[3];
            }
            continue;
#endif
            if (__all_sync(~0u, whole)) { // most: nothing to check but what lies behind the last number
#pragma unroll
                for (int d = 0; d < KD; d++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        if (place[d][j] != NONE) a[d][h + j / 2 * 2] |= (u32)from[offset[d][j]].bits << (j % 2 * 16);
                continue;
            }
#pragma unroll
            for (int d = 0; d < KD; d++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int at = place[d][j];
                    const bool in = at != NONE && position < TOTAL && (u32)(z + (at & 1023)) < IN_D && (u32)(v + (at >> 10 & 1023)) < IN_H &&
                                    (u32)(u + (at >> 20)) < IN_W;
                    if (in) a[d][h + j / 2 * 2] |= (u32)from[offset[d][j]].bits << (j % 2 * 16);
                }
        }
        float c[ON][4];
        u32 out[2][ON];
#pragma unroll
        for (int n = 0; n < ON; n++) {
            c[n][0] = c[n][2] = base[n][0];
            c[n][1] = c[n][3] = base[n][1];
#pragma unroll
            for (int d = 0; d < KD; d++)
                mma(c[n], a[d], b[d][n][0], b[d][n][1]);
            out[0][n] = pair(after(c[n][0]), after(c[n][1]));
            out[1][n] = pair(after(c[n][2]), after(c[n][3]));
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 position = tile * 16 + g + 8 * h;
#if OUTPUTS % 32 == 0
            // Of four pairs of columns each, a lane gets those that lie together: 16 bytes.
#pragma unroll
            for (int n = 0; n < ON; n += 4) {
                vec<u32, 4> line;
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const int give = (t - r) & 3, get = (t + r) & 3;
                    const u32 mine = give == 0 ? out[h][n] : give == 1 ? out[h][n + 1] : give == 2 ? out[h][n + 2] : out[h][n + 3];
                    const u32 other = __shfl_sync(~0u, mine, (lane & ~3) | get);
#pragma unroll
                    for (int s = 0; s < 4; s++)
                        if (get == s) line.v[s] = other;
                }
                if (position < TOTAL) *(vec<u32, 4> *)(y + position * OUTPUTS + (n + t) * 8) = line;
            }
#else
#pragma unroll
            for (int n = 0; n < ON; n++)
                if (OUTPUTS % 2 == 0) {
                    if (position < TOTAL && n * 8 + t * 2 < OUTPUTS) *(u32 *)(y + position * OUTPUTS + n * 8 + t * 2) = out[h][n];
                } else {
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        if (position < TOTAL && n * 8 + t * 2 + e < OUTPUTS) y[position * OUTPUTS + n * 8 + t * 2 + e] = T{(u16)(out[h][n] >> (16 * e))};
                }
#endif
        }
    }
}
