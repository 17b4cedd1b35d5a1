// SPDX-License-Identifier: Apache-2.0
// Moving elements between strided places. Strides are in elements and may be 0 on the input side.
#ifndef HN_KERNELS_MOVE_H
#define HN_KERNELS_MOVE_H
#include <stddef.h>
#include <stdint.h>

// n elements of `bytes` (1, 2, 4, 8 or any other size).
void hn_k_move_row(const void *in, int64_t in_stride, void *out, int64_t out_stride, int64_t n,
                   size_t bytes);
// rows x cols elements. Transpositions (unit stride along rows on one side, along cols on the other)
// are done in square tiles.
void hn_k_move_plane(const void *in, int64_t in_row, int64_t in_col, void *out, int64_t out_row,
                     int64_t out_col, int64_t rows, int64_t cols, size_t bytes);
#endif
