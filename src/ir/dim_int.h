// SPDX-License-Identifier: Apache-2.0
// What dim.c and dim_text.c share.
#ifndef HN_IR_DIM_INT_H
#define HN_IR_DIM_INT_H
#include "ir/dim.h"

// Bounds that keep every operation cheap on hostile files; beyond them a fresh symbol results.
#define DIM_MAX_TERMS  32 // of a sum
#define DIM_MAX_DEGREE 8  // of a product
#define DIM_MAX_DEPTH  64 // of opaque atoms inside each other

typedef enum dim_kind {
    DIM_SYMBOL,
    DIM_PRODUCT,
    DIM_FLOORDIV,
    DIM_MOD,
    DIM_MIN,
    DIM_MAX,
} dim_kind;

typedef struct dim_atom {
    dim_kind kind;
    int depth;
    const char *name;        // symbol; NULL: unnamed
    int64_t number;          // unnamed symbol
    hn_dim self;             // symbol: its handle
    const uint32_t *factors; // product: rising atom indices, none of them a product
    int factor_count;
    hn_dim a, b; // opaque operations
    int64_t lo, hi, divisor;
} dim_atom;

typedef struct dim_term {
    int64_t factor; // not 0
    uint32_t atom;
} dim_term;

typedef struct dim_expr {
    int64_t constant;
    int count; // > 0 when interned
    dim_term *terms;
} dim_expr;

typedef struct dim_table { // open addressing; index + 1, 0 is free
    uint32_t *index;
    size_t slots, used;
} dim_table;

struct hn_dims {
    hn_arena arena;
    HN_VEC(dim_expr) exprs;
    HN_VEC(dim_atom) atoms;
    HN_VEC(uint32_t) symbols; // atoms that are symbols, in order
    dim_table expr_table, atom_table;
    int64_t next_number;
};

const dim_expr *dim_expr_of(const hn_dims *dims, hn_dim dim);     // not for constants
const dim_atom *dim_symbol_atom(const hn_dims *dims, hn_dim dim); // NULL: no symbol
hn_dim dim_symbol_numbered(hn_dims *dims, int64_t number);        // the unnamed symbol ?number
#endif
