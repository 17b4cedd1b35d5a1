// SPDX-License-Identifier: Apache-2.0
// The invalid flag of IEEE 754 in this thread: up since an operation had no meaningful result or met a
// NaN in a comparison, a maximum or a minimum. It stays up until it is cleared.
#ifndef HN_BASE_INVALID_H
#define HN_BASE_INVALID_H
#include <stdbool.h>
#if defined(__SSE__)
#include <xmmintrin.h>
// fenv.h would save and load the x87 state as well, which costs more than small kernels.
static inline bool hn_invalid_test(void) { return (_mm_getcsr() & _MM_EXCEPT_INVALID) != 0; }
static inline void hn_invalid_clear(void) {
    if (hn_invalid_test()) _mm_setcsr(_mm_getcsr() & ~(unsigned)_MM_EXCEPT_INVALID);
}
static inline void hn_invalid_set(void) { _mm_setcsr(_mm_getcsr() | _MM_EXCEPT_INVALID); }
#else
#include <fenv.h>
static inline bool hn_invalid_test(void) { return fetestexcept(FE_INVALID) != 0; }
static inline void hn_invalid_clear(void) { feclearexcept(FE_INVALID); }
static inline void hn_invalid_set(void) { feraiseexcept(FE_INVALID); }
#endif
#endif
