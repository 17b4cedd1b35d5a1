// SPDX-License-Identifier: Apache-2.0
// Between float32 and 8-bit integers with one scale and zero point, one table an ISA level.
#ifndef HN_KERNELS_QUANT_H
#define HN_KERNELS_QUANT_H
#include <stdbool.h>
#include <stdint.h>

typedef struct hn_k_quant {
    // saturate(round_half_even(x / scale) + zero); NaN gives 0. is_signed: int8, else uint8.
    void (*quantise)(const float *x, void *out, int64_t n, float scale, int32_t zero, bool is_signed);
    // (x - zero) * scale
    void (*dequantise)(const void *x, float *out, int64_t n, float scale, int32_t zero,
                       bool is_signed);
    // To bfloat16, half to even; a NaN stays one.
    void (*to_bf16)(const float *x, uint16_t *out, int64_t n);
    // sums[w] += x[r][w], r < rows; rows are `stride` bytes apart.
    void (*sum_rows)(const void *x, int64_t rows, int64_t stride, int64_t width, int32_t *sums, bool is_signed);
    // out[i] = table[x[i]], 256 entries. In place is allowed.
    void (*lookup)(const uint8_t *x, const uint8_t *table, uint8_t *out, int64_t n);
} hn_k_quant;
// lookup with the byte permutations of AVX-512 VBMI.
void hn_k_lookup_vbmi(const uint8_t *x, const uint8_t *table, uint8_t *out, int64_t n);
extern const hn_k_quant hn_k_quant_ref, hn_k_quant_avx2, hn_k_quant_avx512;
#endif
