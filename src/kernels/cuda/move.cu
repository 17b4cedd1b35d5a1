// SPDX-License-Identifier: Apache-2.0
// Copies that change places. Told: U (the unit that moves), COUNT units, and what PLACE writes: from
// unit number i of the box the offsets `in` and `out` in units.
#if HN_GENERIC
#define PLACE                                                                                      \
    for (int d = RANK - 1; d >= 0; d--) {                                                          \
        const INDEX c = i % P.DIMS[d];                                                             \
        i /= P.DIMS[d];                                                                            \
        in += c * P.IN[d];                                                                         \
        out += c * P.OUT[d];                                                                       \
    }
#endif

#if TILED
// The box seen as OUTERS planes of A (together in the input) by B (together in the output): 32 x 32
// pieces through shared memory, so that both sides move whole lines.
extern "C" __global__ void __launch_bounds__(256) hn_k_move(const U *from, U *to HN_PARAMS) {
    __shared__ U tile[32][33];
    const u32 tiles_a = (DIM_A + 31) / 32, tiles_b = (DIM_B + 31) / 32;
    u32 block = blockIdx.x;
    const u32 b0 = block % tiles_b * 32;
    block /= tiles_b;
    const u32 a0 = block % tiles_a * 32;
    INDEX i = block / tiles_a, in = 0, out = 0;
    PLACE
    const u32 x = threadIdx.x % 32, y = threadIdx.x / 32;
#pragma unroll
    for (u32 k = 0; k < 32; k += 8)
        if (a0 + x < DIM_A && b0 + y + k < DIM_B)
            tile[y + k][x] = from[in + (INDEX)(a0 + x) + (INDEX)(b0 + y + k) * IN_B];
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < 32; k += 8)
        if (b0 + x < DIM_B && a0 + y + k < DIM_A)
            to[out + (INDEX)(a0 + y + k) * OUT_A + (INDEX)(b0 + x)] = tile[x][y + k];
}
#else
extern "C" __global__ void __launch_bounds__(256) hn_k_move(const U *from, U *to HN_PARAMS) {
    INDEX i = (INDEX)blockIdx.x * 256 + threadIdx.x, in = 0, out = 0;
    if (i >= COUNT) return;
    PLACE
    to[out] = from[in];
}
#endif
