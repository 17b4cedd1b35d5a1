// SPDX-License-Identifier: Apache-2.0
// A convolution as a product (GATHER): row m of the first operand is what output position m sees, its column k
// the k % CHANNELS-th channel of tap k / CHANNELS, of a channels-last image. Sizes of depth, height, width: D, H, W.
#if GATHER
struct seen {
    i64 at;      // of the position's first tap, elements
    int z, y, x; // of the same tap
};
__device__ __forceinline__ seen position_of(int m HN_TAKES) {
    const int z = m / (OUT_W * OUT_H) % OUT_D * STRIDE_D - PAD_D, y = m / OUT_W % OUT_H * STRIDE_H - PAD_H, x = m % OUT_W * STRIDE_W - PAD_W;
    return {(i64)(m / (OUT_W * OUT_H * OUT_D)) * X_IMAGE + (i64)z * X_D + (i64)y * X_H + (i64)x * X_W, z, y, x};
}
// Offset of column k, or -1 where the tap lies outside.
__device__ __forceinline__ i64 column_of(const seen &s, int k HN_TAKES) {
    const int tap = k / CHANNELS, c = k - tap * CHANNELS;
    const int dz = tap / (TAPS_H * TAPS_W) * DILATION_D, dy = tap / TAPS_W % TAPS_H * DILATION_H, dx = tap % TAPS_W * DILATION_W;
    const bool in = (u32)(s.z + dz) < (u32)IN_D && (u32)(s.y + dy) < (u32)IN_H && (u32)(s.x + dx) < (u32)IN_W;
    return in ? s.at + (i64)dz * X_D + (i64)dy * X_H + (i64)dx * X_W + c : -1;
}
#endif
