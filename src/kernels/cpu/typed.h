// SPDX-License-Identifier: Apache-2.0
// Element-wise functions beyond float32 arithmetic: comparisons, logic, integers, Where, Cast.
//
// One inner loop a function and element type; strides are in elements, 0 broadcasts. Portable C: the
// compiler makes vector code of the loops with unit strides.
#ifndef HN_KERNELS_TYPED_H
#define HN_KERNELS_TYPED_H
#include <stdint.h>
#include "ir/tensor.h"

// in[i] with strides s[i]; out is contiguous.
typedef void (*hn_k_typed_fn)(const void *const *in, const int64_t *s, void *out, int64_t n);

// NULL where there is none. Names are ONNX's ("Equal", "Add", "Where", "Not"); dtype is the first
// data operand's (the second input of Where).
hn_k_typed_fn hn_k_typed_find(const char *op, hn_dtype dtype);
hn_k_typed_fn hn_k_cast_find(hn_dtype from, hn_dtype to);
#endif
