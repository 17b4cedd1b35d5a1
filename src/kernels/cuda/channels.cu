// SPDX-License-Identifier: Apache-2.0
// Images of few channels, in any layout, as channels-last ones of WIDE channels, the others 0. Told: T,
// CHANNELS, WIDE, POSITIONS of an image, IMAGES, and the strides of image, channel and position.
extern "C" __global__ void __launch_bounds__(256) hn_k_channels(const T *x, T *y HN_PARAMS) {
    const span i = (span)blockIdx.x * 256 + threadIdx.x;
    if (i >= (span)IMAGES * POSITIONS) return;
    const T *from = x + i / POSITIONS * STRIDE_IMAGE + i % POSITIONS * STRIDE_POSITION;
    vec<T, WIDE> out;
#pragma unroll
    for (int c = 0; c < WIDE; c++)
        out.v[c] = c < CHANNELS ? from[(i64)c * STRIDE_CHANNEL] : T{0};
    *(vec<T, WIDE> *)(y + (i64)i * WIDE) = out;
}
