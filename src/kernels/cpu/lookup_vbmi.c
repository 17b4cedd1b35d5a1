// SPDX-License-Identifier: Apache-2.0
// A table of 256 bytes in four registers: two permutations of 128 bytes each and a choice by the top bit.
#include <immintrin.h>
#include "kernels/cpu/quant.h"

void hn_k_lookup_vbmi(const uint8_t *x, const uint8_t *table, uint8_t *out, int64_t n) {
    __m512i a = _mm512_loadu_si512(table), b = _mm512_loadu_si512(table + 64);
    __m512i c = _mm512_loadu_si512(table + 128), d = _mm512_loadu_si512(table + 192);
    for (int64_t i = 0; i < n; i += 64) {
        __mmask64 lanes = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        __m512i v = _mm512_maskz_loadu_epi8(lanes, x + i);
        __m512i low = _mm512_permutex2var_epi8(a, v, b), high = _mm512_permutex2var_epi8(c, v, d);
        _mm512_mask_storeu_epi8(out + i, lanes, _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high));
    }
}
