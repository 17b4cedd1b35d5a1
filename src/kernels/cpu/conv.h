// SPDX-License-Identifier: Apache-2.0
// Convolution on float32 in plain order: vectors lie along the last spatial dim, so that few channels
// cost nothing, and each tap of the window is one load from a place that a table tells.
#ifndef HN_KERNELS_CONV_H
#define HN_KERNELS_CONV_H
#include <stdint.h>

#define HN_K_CONV_BLOCK 8 // output channels side by side in the packed weights

typedef struct hn_k_conv {
    // y[c * y_channel + i] = max(low, bias[c] + sum over taps of w[tap * HN_K_CONV_BLOCK + c] *
    // x[offset[tap] + i]) for c < channels (at most HN_K_CONV_BLOCK) and i < n. bias may be NULL.
    // Reads and writes nothing beyond; NaN passes.
    void (*row)(const float *x, const int32_t *offset, int64_t taps, const float *w, const float *bias,
                float low, float *y, int64_t y_channel, int channels, int64_t n);
} hn_k_conv;
extern const hn_k_conv hn_k_conv_ref, hn_k_conv_avx2, hn_k_conv_avx512;
#endif
