// SPDX-License-Identifier: Apache-2.0
// Strided moves: see move.h. One body a size, written as macros so that each has its own loop.
#include "kernels/cpu/move.h"
#include <stdbool.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

// ---- transpositions of 4-byte elements in registers ----------------------------------------------
// Rows lie side by side on the input, columns on the output. SSE2 is part of x86-64, and wider
// vectors would not help: the caches give one line at a time.
#ifdef __SSE2__
static inline __m128 load4(const uint32_t *p) { return _mm_loadu_ps((const float *)(const void *)p); }
static inline void store4(uint32_t *p, __m128 v) { _mm_storeu_ps((float *)(void *)p, v); }

static inline void block_4x4(const uint32_t *in, int64_t ic, uint32_t *out, int64_t or_) {
    __m128 a = load4(in), b = load4(in + ic), c = load4(in + 2 * ic), d = load4(in + 3 * ic);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    store4(out, a);
    store4(out + or_, b);
    store4(out + 2 * or_, c);
    store4(out + 3 * or_, d);
}

// Three columns to packed triples: the picture that most image models begin with.
static int64_t interleave_3(const uint32_t *in, int64_t ic, uint32_t *out, int64_t rows) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        __m128 a = load4(in + r), b = load4(in + ic + r), c = load4(in + 2 * ic + r);
        __m128 low = _mm_unpacklo_ps(a, b), high = _mm_unpackhi_ps(a, b); // a0 b0 a1 b1, a2 b2 a3 b3
        __m128 c0a1 = _mm_shuffle_ps(c, a, _MM_SHUFFLE(1, 1, 0, 0));
        __m128 b1c1 = _mm_shuffle_ps(b, c, _MM_SHUFFLE(1, 1, 1, 1));
        __m128 c2a3 = _mm_shuffle_ps(c, high, _MM_SHUFFLE(2, 2, 2, 2));
        __m128 b3c3 = _mm_shuffle_ps(high, c, _MM_SHUFFLE(3, 3, 3, 3));
        store4(out + 3 * r, _mm_shuffle_ps(low, c0a1, _MM_SHUFFLE(2, 0, 1, 0)));
        store4(out + 3 * r + 4, _mm_shuffle_ps(b1c1, high, _MM_SHUFFLE(1, 0, 2, 0)));
        store4(out + 3 * r + 8, _mm_shuffle_ps(c2a3, b3c3, _MM_SHUFFLE(2, 0, 2, 0)));
    }
    return r;
}

static void tile_edge(const uint32_t *in, int64_t ic, uint32_t *out, int64_t or_, int64_t rows,
                      int64_t cols) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[r * or_ + c] = in[r + c * ic];
}

static void transpose_tile(const uint32_t *in, int64_t ic, uint32_t *out, int64_t or_, int64_t rows,
                           int64_t cols) {
    int64_t whole_rows = rows & ~(int64_t)3, whole_cols = cols & ~(int64_t)3;
    for (int64_t r = 0; r < whole_rows; r += 4)
        for (int64_t c = 0; c < whole_cols; c += 4)
            block_4x4(in + r + c * ic, ic, out + r * or_ + c, or_);
    tile_edge(in + whole_cols * ic, ic, out + whole_cols, or_, whole_rows, cols - whole_cols);
    tile_edge(in + whole_rows, ic, out + whole_rows * or_, or_, rows - whole_rows, cols);
}

static bool transpose_4_bytes(const uint32_t *in, int64_t ic, uint32_t *out, int64_t or_, int64_t rows,
                              int64_t cols) {
    if (cols == 3 && or_ == 3) {
        int64_t done = interleave_3(in, ic, out, rows);
        tile_edge(in + done, ic, out + 3 * done, 3, rows - done, 3);
        return true;
    }
    if (cols < 4) return false;
    for (int64_t r = 0; r < rows; r += TILE)
        for (int64_t c = 0; c < cols; c += TILE)
            transpose_tile(in + r + c * ic, ic, out + r * or_ + c, or_, rows - r < TILE ? rows - r : TILE,
                           cols - c < TILE ? cols - c : TILE);
    return true;
}
#else
static bool transpose_4_bytes(const uint32_t *in, int64_t ic, uint32_t *out, int64_t or_, int64_t rows,
                              int64_t cols) {
    (void)in, (void)ic, (void)out, (void)or_, (void)rows, (void)cols;
    return false;
}
#endif

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
    if (bytes == 4 && in_row == 1 && out_col == 1 && transpose_4_bytes(in, in_col, out, out_row, rows, cols))
        return;
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
