// SPDX-License-Identifier: Apache-2.0
// Convolutions of 8-bit data in which every channel has its own window, channels-last.
#ifndef HN_KERNELS_DEPTHWISE_H
#define HN_KERNELS_DEPTHWISE_H
#include <stdbool.h>
#include <stdint.h>

#define HN_DEPTHWISE_LANES 16 // channels worked on together; or
#define HN_DEPTHWISE_WIDE 64  // these
#define HN_DEPTHWISE_TAPS 4   // rows of a window that one instruction takes
#define HN_DEPTHWISE_GROUPS 4 // of such rows: windows are at most 16 rows high
#define HN_DEPTHWISE_COLUMNS 256 // registers of 16 channels and 4 rows that lie ready at a time (16 KiB)

// The place of a channel in weights, start, scale and shift. Below d->wide 64 channels are turned together, and
// the four registers they come to hold every fourth four channels.
#define HN_DEPTHWISE_SLOT(wide, c) \
    ((c) < (wide) ? (c) / 64 * 64 + (c) % 16 / 4 * 16 + (c) % 64 / 16 * 4 + (c) % 4 : (c))

typedef struct hn_k_depthwise {
    int64_t channels, in_width, out_width;
    int64_t wide;                  // channels in blocks of 64 (the last may be filled up); 8-bit results only
    int groups;                    // of HN_DEPTHWISE_TAPS rows; the last one filled up with weights of 0
    int kernel, stride, dilation;  // along the width; see tile
    int64_t pad;                   // in front of the line
    // Outputs worked on at a time, and the same in blocks of 64. groups times the columns that they look at is at
    // most HN_DEPTHWISE_COLUMNS, and a quarter of it.
    int64_t tile, tile_wide;
    const int8_t *weights;         // [slot / 16][groups][kernel][16][4], in wide blocks [/ 64][groups][kernel][4][16][4]
    const int32_t *start;          // sums begin with minus zero point times sum of weights
    const float *scale, *shift;    // of sums; all three to whole blocks
    float low, high;               // bounds of sum * scale + shift; both lie below 2^30
    const uint8_t *fill;           // 64 bytes: the zero point of x
    bool is_signed;                // x is int8
    bool real;                     // the result is float32, else an 8-bit integer:
    bool out_signed;               // int8
    int32_t zero;                  // what is added after rounding (half to even)
} hn_k_depthwise;

// One line of results. rows: 4 * groups lines of x ([in_width][channels]), NULL: outside of the image.
// Sums are exact; |sum * scale + shift| < 2^30. AVX-512 VNNI.
void hn_k_depthwise_vnni(const hn_k_depthwise *d, const uint8_t *const *rows, void *out);
#endif
