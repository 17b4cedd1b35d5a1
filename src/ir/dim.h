// SPDX-License-Identifier: Apache-2.0
// Symbolic integers: interned affine expressions over symbols, with ranges and divisibility.
//
// An hn_dim is a constant or a handle into a table; equal expressions have equal handles, so `==`
// is the comparison that can be proven (different handles may still have equal values). Products
// of symbols, floor divisions, remainders, minima and maxima become terms with their own ranges.
// What grows too large or overflows becomes a fresh unknown symbol: less known, never wrong. Used for tensor dims (>= 0) and for the elements of small integer tensors that shape
// arithmetic passes around (any sign). A table is not thread-safe.
#ifndef HN_IR_DIM_H
#define HN_IR_DIM_H
#include "base/base.h"

typedef int64_t hn_dim; // constants are themselves; handles lie in the lowest 2^32 values
#define HN_DIM_HANDLES ((int64_t)1 << 32)
static inline bool hn_dim_is_const(hn_dim dim) { return dim >= INT64_MIN + HN_DIM_HANDLES; }

typedef struct hn_dims hn_dims;
hn_dims *hn_dims_new(void); // NULL when out of memory
void hn_dims_free(hn_dims *dims);
hn_dims *hn_dims_clone(const hn_dims *dims); // equal handles mean the same; NULL: out of memory

// The symbol of that name (range 0..INT64_MAX unless narrowed). NULL name: a fresh unnamed symbol.
// On out of memory every constructor returns HN_DIM_FAILED, which propagates through operations.
#define HN_DIM_FAILED INT64_MIN
hn_dim hn_dim_symbol(hn_dims *dims, const char *name);
hn_dim hn_dim_fresh(hn_dims *dims, int64_t lo, int64_t hi);
// Replaces what is known of a symbol, before anything was built from it.
void hn_dim_set_range(hn_dims *dims, hn_dim symbol, int64_t lo, int64_t hi, int64_t divisor);
void hn_dim_narrow(hn_dims *dims, hn_dim symbol, int64_t lo, int64_t hi, int64_t divisor);

hn_dim hn_dim_add(hn_dims *dims, hn_dim a, hn_dim b);
hn_dim hn_dim_sub(hn_dims *dims, hn_dim a, hn_dim b);
hn_dim hn_dim_mul(hn_dims *dims, hn_dim a, hn_dim b);
hn_dim hn_dim_floordiv(hn_dims *dims, hn_dim a, hn_dim b); // b == 0: a fresh unknown
hn_dim hn_dim_ceildiv(hn_dims *dims, hn_dim a, hn_dim b);
hn_dim hn_dim_mod(hn_dims *dims, hn_dim a, hn_dim b);      // sign of b
hn_dim hn_dim_min(hn_dims *dims, hn_dim a, hn_dim b);
hn_dim hn_dim_max(hn_dims *dims, hn_dim a, hn_dim b);

void hn_dim_range(const hn_dims *dims, hn_dim dim, int64_t *out_lo, int64_t *out_hi);
int64_t hn_dim_divisor(const hn_dims *dims, hn_dim dim); // largest proven divisor; 0 for constant 0
// Exact quotient a / b where it is proven (2*N*4 / N = 8), used by Reshape's -1. False otherwise.
bool hn_dim_divide_exact(hn_dims *dims, hn_dim a, hn_dim b, hn_dim *out_quotient);

// Value under a binding of the symbols: lookup(user, symbol handle, &value) -> false if unbound.
typedef bool (*hn_dim_lookup)(void *user, hn_dim symbol, int64_t *out_value);
bool hn_dim_eval(const hn_dims *dims, hn_dim dim, hn_dim_lookup lookup, void *user,
                 int64_t *out_value);
const char *hn_dim_symbol_name(const hn_dims *dims, hn_dim symbol); // "" when unnamed or no symbol

// Symbols in the order they were made.
size_t hn_dims_symbol_count(const hn_dims *dims);
hn_dim hn_dims_symbol_at(const hn_dims *dims, size_t index);
bool hn_dim_is_symbol(const hn_dims *dims, hn_dim dim);

// Text: "2*N+1", "(N+1)//2", "min(N,8)", "?7" for unnamed symbol 7; names that are no identifiers
// stand in double quotes. Parsing reads what printing wrote.
void hn_dim_print(hn_str *out, const hn_dims *dims, hn_dim dim);
hn_status hn_dim_parse(hone_error *err, hn_dims *dims, hn_slice text, hn_dim *out_dim);
// Reads one expression at the start of *rest and moves *rest behind it.
hn_status hn_dim_parse_prefix(hone_error *err, hn_dims *dims, hn_slice *rest, hn_dim *out_dim);
#endif
