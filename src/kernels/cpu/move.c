// SPDX-License-Identifier: Apache-2.0
// Strided moves: see move.h. One body a size, written as macros so that each has its own loop.
#include "kernels/cpu/move.h"
#include <string.h>

#define TILE 16 // 16 x 16 floats are 16 lines in, 16 lines out: both stay in the first cache

#define DEFINE_MOVES(type)                                                                         \
    static void row_##type(const type *in, int64_t is, type *out, int64_t os, int64_t n) {         \
        if (os == 1 && is == 0) {                                                                  \
            type value = *in;                                                                      \
            for (int64_t i = 0; i < n; i++)                                                        \
                out[i] = value;                                                                    \
        } else if (os == 1) {                                                                      \
            for (int64_t i = 0; i < n; i++)                                                        \
                out[i] = in[i * is];                                                               \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                out[i * os] = in[i * is];                                                          \
        }                                                                                          \
    }                                                                                              \
    static void tile_##type(const type *in, int64_t ir, int64_t ic, type *out, int64_t or_,        \
                            int64_t oc, int64_t rows, int64_t cols) {                              \
        for (int64_t r = 0; r < rows; r++)                                                         \
            for (int64_t c = 0; c < cols; c++)                                                     \
                out[r * or_ + c * oc] = in[r * ir + c * ic];                                       \
    }                                                                                              \
    static void plane_##type(const type *in, int64_t ir, int64_t ic, type *out, int64_t or_,       \
                             int64_t oc, int64_t rows, int64_t cols) {                             \
        if (cols <= 4) { /* few columns: each is a row of its own */                               \
            tile_##type(in, ir, ic, out, or_, oc, rows, cols);                                     \
            return;                                                                                \
        }                                                                                          \
        if (ic == 1 || ir != 1) { /* no transposition: row by row */                               \
            for (int64_t r = 0; r < rows; r++)                                                     \
                row_##type(in + r * ir, ic, out + r * or_, oc, cols);                              \
            return;                                                                                \
        }                                                                                          \
        for (int64_t r = 0; r < rows; r += TILE)                                                   \
            for (int64_t c = 0; c < cols; c += TILE)                                               \
                tile_##type(in + r * ir + c * ic, ir, ic, out + r * or_ + c * oc, or_, oc,         \
                            rows - r < TILE ? rows - r : TILE, cols - c < TILE ? cols - c : TILE); \
    }

DEFINE_MOVES(uint8_t)
DEFINE_MOVES(uint16_t)
DEFINE_MOVES(uint32_t)
DEFINE_MOVES(uint64_t)

void hn_k_move_row(const void *in, int64_t in_stride, void *out, int64_t out_stride, int64_t n,
                   size_t bytes) {
    if (in_stride == 1 && out_stride == 1) {
        memcpy(out, in, (size_t)n * bytes);
        return;
    }
    switch (bytes) {
    case 1: row_uint8_t(in, in_stride, out, out_stride, n); break;
    case 2: row_uint16_t(in, in_stride, out, out_stride, n); break;
    case 4: row_uint32_t(in, in_stride, out, out_stride, n); break;
    case 8: row_uint64_t(in, in_stride, out, out_stride, n); break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)out + i * out_stride * (int64_t)bytes,
                   (const char *)in + i * in_stride * (int64_t)bytes, bytes);
    }
}

void hn_k_move_plane(const void *in, int64_t in_row, int64_t in_col, void *out, int64_t out_row,
                     int64_t out_col, int64_t rows, int64_t cols, size_t bytes) {
    switch (bytes) {
    case 1: plane_uint8_t(in, in_row, in_col, out, out_row, out_col, rows, cols); break;
    case 2: plane_uint16_t(in, in_row, in_col, out, out_row, out_col, rows, cols); break;
    case 4: plane_uint32_t(in, in_row, in_col, out, out_row, out_col, rows, cols); break;
    case 8: plane_uint64_t(in, in_row, in_col, out, out_row, out_col, rows, cols); break;
    default:
        for (int64_t r = 0; r < rows; r++)
            hn_k_move_row((const char *)in + r * in_row * (int64_t)bytes, in_col,
                          (char *)out + r * out_row * (int64_t)bytes, out_col, cols, bytes);
    }
}
