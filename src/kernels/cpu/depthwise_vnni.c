// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions with vpdpbusd, which adds four products of bytes to each of 16 sums.
//
// The four products are four rows of a window. Columns of 16 channels are turned once so that their four
// rows lie side by side; every window that looks at a column then takes it with one instruction.
#include <immintrin.h>
#include "kernels/cpu/depthwise.h"

// ---- 16 channels ----------------------------------------------------------------------------------
typedef struct rows4 {
    const uint8_t *at[4];
    int64_t step[4]; // bytes between columns; 0: outside, filled
} rows4;

// Four rows of 16 channels, 16 bytes each, to 16 channels of four bytes.
static inline __m512i turned(const rows4 *r, int64_t column, __mmask16 lanes, __m512i flip) {
    const __m512i gather = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m128i row[4];
    for (int i = 0; i < 4; i++)
        row[i] = _mm_maskz_loadu_epi8(lanes, r->at[i] + column * r->step[i]);
    __m512i z = _mm512_inserti32x4(_mm512_castsi128_si512(row[0]), row[1], 1);
    z = _mm512_inserti32x4(_mm512_inserti32x4(z, row[2], 2), row[3], 3);
    return _mm512_xor_si512(_mm512_shuffle_epi8(_mm512_permutexvar_epi32(gather, z), bytes), flip);
}

static void turn(const hn_k_depthwise *d, const uint8_t *const *rows, int64_t channel, __mmask16 lanes, int64_t begin,
                 int columns, __m512i *out) {
    __m512i flip = d->is_signed ? _mm512_set1_epi8((char)0x80) : _mm512_setzero_si512();
    __m512i outside = _mm512_xor_si512(_mm512_set1_epi8((char)d->fill[0]), flip);
    for (int g = 0; g < d->groups; g++, rows += 4) {
        rows4 r;
        for (int i = 0; i < 4; i++) {
            r.at[i] = rows[i] ? rows[i] + channel : d->fill;
            r.step[i] = rows[i] ? d->channels : 0;
        }
        for (int i = 0; i < columns; i++) {
            int64_t at = begin + i;
            *out++ = at >= 0 && at < d->in_width ? turned(&r, at, lanes, flip) : outside;
        }
    }
}

static inline void put(const hn_k_depthwise *d, __m512i sum, __m512 scale, __m512 shift, __mmask16 lanes, void *out,
                       int64_t at) {
    __m512 v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, shift);
    v = _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(d->low)), _mm512_set1_ps(d->high));
    if (d->real) {
        _mm512_mask_storeu_ps((float *)out + at, lanes, v);
        return;
    }
    __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(v), _mm512_set1_epi32(d->zero));
    _mm512_mask_cvtepi32_storeu_epi8((uint8_t *)out + at, lanes, q);
}

// groups and kernel are numbers in the calls, so that the weights stay in registers.
static inline __attribute__((always_inline)) void sums(const hn_k_depthwise *d, const __m512i *columns, int width,
                                                       int groups, int kernel, int64_t channel, __mmask16 lanes,
                                                       int64_t begin, int64_t count, void *out) {
    const __m512i *weights = (const __m512i *)d->weights + channel / HN_DEPTHWISE_LANES * groups * kernel;
    __m512i start = _mm512_loadu_si512(d->start + channel);
    __m512 scale = _mm512_loadu_ps(d->scale + channel), shift = _mm512_loadu_ps(d->shift + channel);
    for (int64_t i = 0; i < count; i++) {
        __m512i sum = start;
        const __m512i *at = columns + i * d->stride;
        for (int g = 0; g < groups; g++)
            for (int k = 0; k < kernel; k++)
                sum = _mm512_dpbusd_epi32(sum, at[g * width + k * d->dilation], weights[g * kernel + k]);
        put(d, sum, scale, shift, lanes, out, (begin + i) * d->channels + channel);
    }
}

// ---- 64 channels ----------------------------------------------------------------------------------
// Rows of 64 bytes to four registers: lane l of register j has channels 16 l + 4 j to 16 l + 4 j + 3.
static void turn_wide(const hn_k_depthwise *d, const uint8_t *const *rows, int64_t channel, __mmask64 lanes, int64_t begin,
                      int columns, __m512i *out) {
    __m512i flip = d->is_signed ? _mm512_set1_epi8((char)0x80) : _mm512_setzero_si512();
    for (int g = 0; g < d->groups; g++) {
        const uint8_t *at[4];
        int64_t step[4];
        for (int i = 0; i < 4; i++) {
            const uint8_t *row = rows[4 * g + i];
            at[i] = row ? row + channel : d->fill;
            step[i] = row ? d->channels : 0;
        }
        for (int i = 0; i < columns; i++, out += 4) {
            int64_t x = begin + i;
            bool inside = x >= 0 && x < d->in_width;
            __m512i row[4];
            for (int r = 0; r < 4; r++) {
                const uint8_t *from = inside ? at[r] + x * step[r] : d->fill;
                row[r] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(lanes, from), flip);
            }
            __m512i a = _mm512_unpacklo_epi8(row[0], row[1]), b = _mm512_unpackhi_epi8(row[0], row[1]);
            __m512i c = _mm512_unpacklo_epi8(row[2], row[3]), e = _mm512_unpackhi_epi8(row[2], row[3]);
            out[0] = _mm512_unpacklo_epi16(a, c);
            out[1] = _mm512_unpackhi_epi16(a, c);
            out[2] = _mm512_unpacklo_epi16(b, e);
            out[3] = _mm512_unpackhi_epi16(b, e);
        }
    }
}

// One of the four registers of every output: rounded, not yet moved or bounded.
static inline __attribute__((always_inline)) void sums_wide(const hn_k_depthwise *d, const __m512i *columns, int width,
                                                            int groups, int kernel, int64_t slot, const __m512i *weights,
                                                            int64_t count, __m512i *out) {
    __m512i start = _mm512_loadu_si512(d->start + slot);
    __m512 scale = _mm512_loadu_ps(d->scale + slot), shift = _mm512_loadu_ps(d->shift + slot);
    for (int64_t i = 0; i < count; i++, columns += 4 * d->stride) {
        __m512i sum = start;
        for (int g = 0; g < groups; g++)
            for (int k = 0; k < kernel; k++)
                sum = _mm512_dpbusd_epi32(sum, columns[4 * (g * width + k * d->dilation)], weights[4 * (g * kernel + k)]);
        out[4 * i] = _mm512_cvtps_epi32(_mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, shift));
    }
}

// Bounds of the integers are those of the numbers, rounded: rounding keeps the order.
static void pack(const hn_k_depthwise *d, const __m512i *sums, int64_t count, __mmask64 lanes, uint8_t *out) {
    int32_t bias = d->out_signed ? 128 : 0; // bounds are taken as unsigned bytes
    int32_t low = _mm_cvtss_si32(_mm_set_ss(d->low)) + d->zero + bias;
    int32_t high = _mm_cvtss_si32(_mm_set_ss(d->high)) + d->zero + bias;
    __m512i zero = _mm512_set1_epi16((short)(d->zero + bias)), back = _mm512_set1_epi8((char)bias);
    __m512i least = _mm512_set1_epi8((char)low), most = _mm512_set1_epi8((char)high);
    for (int64_t i = 0; i < count; i++, sums += 4, out += d->channels) {
        __m512i a = _mm512_adds_epi16(_mm512_packs_epi32(sums[0], sums[1]), zero);
        __m512i b = _mm512_adds_epi16(_mm512_packs_epi32(sums[2], sums[3]), zero);
        __m512i q = _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(a, b), least), most);
        _mm512_mask_storeu_epi8(out, lanes, _mm512_sub_epi8(q, back));
    }
}

static void block_wide(const hn_k_depthwise *d, const uint8_t *const *rows, int64_t channel, int64_t begin, int64_t count,
                       __m512i *columns, __m512i *results, uint8_t *out) {
    int64_t left = d->channels - channel;
    __mmask64 lanes = left >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1;
    int width = (int)((count - 1) * d->stride + (int64_t)(d->kernel - 1) * d->dilation + 1);
    turn_wide(d, rows, channel, lanes, begin * d->stride - d->pad, width, columns);
    const __m512i *weights = (const __m512i *)d->weights + channel / HN_DEPTHWISE_LANES * d->groups * d->kernel;
    for (int j = 0; j < 4; j++) {
        int64_t slot = channel + j * HN_DEPTHWISE_LANES;
        if (d->groups == 1 && d->kernel == 3)
            sums_wide(d, columns + j, width, 1, 3, slot, weights + j, count, results + j);
        else if (d->groups == 2 && d->kernel == 5)
            sums_wide(d, columns + j, width, 2, 5, slot, weights + j, count, results + j);
        else if (d->groups == 2 && d->kernel == 7)
            sums_wide(d, columns + j, width, 2, 7, slot, weights + j, count, results + j);
        else sums_wide(d, columns + j, width, d->groups, d->kernel, slot, weights + j, count, results + j);
    }
    pack(d, results, count, lanes, out + begin * d->channels + channel);
}

void hn_k_depthwise_vnni(const hn_k_depthwise *d, const uint8_t *const *rows, void *out) {
    __m512i columns[HN_DEPTHWISE_COLUMNS], results[HN_DEPTHWISE_COLUMNS];
    for (int64_t begin = 0; d->wide && begin < d->out_width; begin += d->tile_wide) {
        int64_t count = d->out_width - begin < d->tile_wide ? d->out_width - begin : d->tile_wide;
        for (int64_t c = 0; c < d->wide; c += HN_DEPTHWISE_WIDE)
            block_wide(d, rows, c, begin, count, columns, results, out);
    }
    for (int64_t begin = 0; d->wide < d->channels && begin < d->out_width; begin += d->tile) {
        int64_t count = d->out_width - begin < d->tile ? d->out_width - begin : d->tile;
        int width = (int)((count - 1) * d->stride + (int64_t)(d->kernel - 1) * d->dilation + 1);
        for (int64_t c = d->wide; c < d->channels; c += HN_DEPTHWISE_LANES) {
            int64_t left = d->channels - c;
            __mmask16 lanes = (__mmask16)(left >= 16 ? 0xffff : (1 << left) - 1);
            turn(d, rows, c, lanes, begin * d->stride - d->pad, width, columns);
            if (d->groups == 1 && d->kernel == 3) sums(d, columns, width, 1, 3, c, lanes, begin, count, out);
            else if (d->groups == 2 && d->kernel == 5) sums(d, columns, width, 2, 5, c, lanes, begin, count, out);
            else if (d->groups == 2 && d->kernel == 7) sums(d, columns, width, 2, 7, c, lanes, begin, count, out);
            else sums(d, columns, width, d->groups, d->kernel, c, lanes, begin, count, out);
        }
    }
}
