// SPDX-License-Identifier: Apache-2.0
// Rows of COUNT 16-bit elements as rows of WIDE (a multiple of 8), the rest 0: products of rows whose
// length is no multiple of 16 bytes run at a third of the speed.
extern "C" __global__ void __launch_bounds__(256) hn_k_pad_rows(const T *x, T *y HN_PARAMS) {
    const span i = (span)blockIdx.x * 256 + threadIdx.x;
    if (i >= (span)ROWS * (WIDE / 8)) return;
    const span row = i / (WIDE / 8);
    const int at = (int)(i % (WIDE / 8)) * 8;
    const T *from = x + row * COUNT + at;
    vec<T, 8> out;
#pragma unroll
    for (int e = 0; e < 8; e++)
        out.v[e] = at + e < COUNT ? from[e] : T{0};
    *(vec<T, 8> *)(y + row * WIDE + at) = out;
}
