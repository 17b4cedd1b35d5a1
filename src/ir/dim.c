// SPDX-License-Identifier: Apache-2.0
// Symbolic integers: see dim.h; their text form is in dim_text.c.
//
// An expression is constant + sum of coefficient * atom, atoms in rising order, interned. An atom
// is a symbol, a product of atoms, or an opaque operation on two expressions; atoms are interned
// too and refer to older ones only. So equal polynomials have equal handles, and ranges can be
// recomputed in one sweep when a symbol is narrowed. INT64_MIN and INT64_MAX as bounds mean
// "unbounded" and stick in sums and products.
#include "ir/dim_int.h"

static bool limits_hit(size_t count) {
    return count >= (size_t)HN_DIM_HANDLES - 2;
}
static hn_dim handle_of(uint32_t index) {
    return INT64_MIN + 1 + (int64_t)index;
}

const dim_expr *dim_expr_of(const hn_dims *dims, hn_dim dim) {
    return &dims->exprs.data[(uint64_t)dim - (uint64_t)INT64_MIN - 1];
}

// ---- interval arithmetic ------------------------------------------------------------------------

static int64_t clamp(__int128 value) {
    if (value > INT64_MAX) return INT64_MAX;
    if (value < INT64_MIN) return INT64_MIN;
    return (int64_t)value;
}

static bool unbounded(int64_t bound) {
    return bound == INT64_MAX || bound == INT64_MIN;
}

static int64_t bound_add(int64_t a, int64_t b) {
    if (unbounded(a)) return a;
    if (unbounded(b)) return b;
    return clamp((__int128)a + b);
}

static int64_t bound_mul(int64_t a, int64_t b) {
    if (a == 0 || b == 0) return 0;
    if (unbounded(a) || unbounded(b)) return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
    return clamp((__int128)a * b);
}

static int64_t floor_div(int64_t a, int64_t b) { // b != 0, not INT64_MIN / -1
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t floor_mod(int64_t a, int64_t b) { // sign of b
    if (b == -1) return 0;
    int64_t rest = a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t bound_div(int64_t a, int64_t b) {
    if (unbounded(a)) return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
    if (unbounded(b)) return a == 0 || (a < 0) == (b < 0) ? 0 : -1;
    return floor_div(a, b);
}

typedef struct interval {
    int64_t lo, hi;
} interval;
static const interval EVERYTHING = {INT64_MIN, INT64_MAX};

static interval hull(int64_t (*op)(int64_t, int64_t), interval a, interval b) {
    int64_t corner[] = {op(a.lo, b.lo), op(a.lo, b.hi), op(a.hi, b.lo), op(a.hi, b.hi)};
    interval out = {corner[0], corner[0]};
    for (int i = 1; i < 4; i++) {
        out.lo = hn_min_i64(out.lo, corner[i]);
        out.hi = hn_max_i64(out.hi, corner[i]);
    }
    return out;
}

static interval range_of(const hn_dims *dims, hn_dim dim) {
    if (hn_dim_is_const(dim)) return (interval){dim, dim};
    if (dim == HN_DIM_FAILED) return EVERYTHING;
    const dim_expr *e = dim_expr_of(dims, dim);
    interval sum = {e->constant, e->constant};
    for (int i = 0; i < e->count; i++) {
        const dim_atom *atom = &dims->atoms.data[e->terms[i].atom];
        int64_t c = e->terms[i].factor;
        interval part = hull(bound_mul, (interval){atom->lo, atom->hi}, (interval){c, c});
        sum.lo =
            sum.lo == INT64_MIN || part.lo == INT64_MIN ? INT64_MIN : bound_add(sum.lo, part.lo);
        sum.hi =
            sum.hi == INT64_MAX || part.hi == INT64_MAX ? INT64_MAX : bound_add(sum.hi, part.hi);
    }
    return sum;
}

static int64_t gcd(int64_t a, int64_t b) {
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x > INT64_MAX ? 1 : (int64_t)x;
}

int64_t hn_dim_divisor(const hn_dims *dims, hn_dim dim) {
    if (hn_dim_is_const(dim)) return gcd(dim, 0);
    if (dim == HN_DIM_FAILED) return 1;
    const dim_expr *e = dim_expr_of(dims, dim);
    int64_t divisor = gcd(e->constant, 0);
    for (int i = 0; i < e->count; i++) {
        int64_t part;
        if (!hn_mul_i64(e->terms[i].factor, dims->atoms.data[e->terms[i].atom].divisor, &part))
            part = e->terms[i].factor;
        divisor = gcd(divisor, part);
    }
    return divisor;
}

void hn_dim_range(const hn_dims *dims, hn_dim dim, int64_t *out_lo, int64_t *out_hi) {
    interval range = range_of(dims, dim);
    *out_lo = range.lo;
    *out_hi = range.hi;
}

// Range and divisor of an atom from those of what it is made of.
static void atom_derive(const hn_dims *dims, dim_atom *atom) {
    interval out = {atom->lo, atom->hi}, a = EVERYTHING, b = EVERYTHING;
    int64_t divisor = 1;
    if (atom->kind == DIM_PRODUCT) {
        out = (interval){1, 1};
        bool square = atom->factor_count % 2 == 0; // x*x*y*y is never negative
        for (int i = 0; i < atom->factor_count; i++) {
            const dim_atom *factor = &dims->atoms.data[atom->factors[i]];
            out = hull(bound_mul, out, (interval){factor->lo, factor->hi});
            if (!hn_mul_i64(divisor, factor->divisor, &divisor)) divisor = factor->divisor;
            if (i % 2 && atom->factors[i] != atom->factors[i - 1]) square = false;
        }
        if (square && out.lo < 0) out.lo = 0;
    } else if (atom->kind != DIM_SYMBOL) {
        a = range_of(dims, atom->a);
        b = range_of(dims, atom->b);
    }
    switch (atom->kind) {
    case DIM_SYMBOL:
        return;
    case DIM_PRODUCT:
        break;
    case DIM_FLOORDIV:
        out = b.lo > 0 || b.hi < 0 ? hull(bound_div, a, b) : EVERYTHING;
        if (hn_dim_is_const(atom->b) && atom->b) {
            int64_t of_a = hn_dim_divisor(dims, atom->a);
            if (of_a && of_a % atom->b == 0) divisor = gcd(of_a / atom->b, 0);
        }
        break;
    case DIM_MOD:
        if (b.lo > 0)
            out = (interval){0, b.hi == INT64_MAX ? b.hi : b.hi - 1};
        else if (b.hi < 0)
            out = (interval){b.lo == INT64_MIN ? b.lo : b.lo + 1, 0};
        if (b.lo > 0 && a.lo >= 0) out.hi = hn_min_i64(out.hi, a.hi);
        divisor = gcd(hn_dim_divisor(dims, atom->a), hn_dim_divisor(dims, atom->b));
        break;
    case DIM_MIN:
        out = (interval){hn_min_i64(a.lo, b.lo), hn_min_i64(a.hi, b.hi)};
        divisor = gcd(hn_dim_divisor(dims, atom->a), hn_dim_divisor(dims, atom->b));
        break;
    case DIM_MAX:
        out = (interval){hn_max_i64(a.lo, b.lo), hn_max_i64(a.hi, b.hi)};
        divisor = gcd(hn_dim_divisor(dims, atom->a), hn_dim_divisor(dims, atom->b));
        break;
    }
    atom->lo = out.lo;
    atom->hi = out.hi;
    atom->divisor = divisor ? divisor : 1;
}

// ---- interning ----------------------------------------------------------------------------------

static bool table_grow(dim_table *table, uint64_t (*hash)(const hn_dims *, uint32_t),
                       const hn_dims *dims) {
    if (table->used * 2 < table->slots) return true;
    size_t slots = table->slots ? table->slots * 2 : 64;
    uint32_t *grown = hn_calloc(slots, sizeof *grown);
    if (!grown) return false;
    for (size_t i = 0; i < table->slots; i++) {
        if (!table->index[i]) continue;
        size_t at = hash(dims, table->index[i] - 1) & (slots - 1);
        while (grown[at])
            at = (at + 1) & (slots - 1);
        grown[at] = table->index[i];
    }
    hn_free(table->index);
    table->index = grown;
    table->slots = slots;
    return true;
}

static uint64_t expr_hash(const hn_dims *dims, uint32_t index) {
    const dim_expr *e = &dims->exprs.data[index];
    uint64_t h = hn_hash_bytes(&e->constant, sizeof e->constant, HN_HASH_SEED);
    for (int i = 0; i < e->count; i++) {
        h = hn_hash_bytes(&e->terms[i].factor, sizeof e->terms[i].factor, h);
        h = hn_hash_bytes(&e->terms[i].atom, sizeof e->terms[i].atom, h);
    }
    return h;
}

static bool expr_equal(const dim_expr *a, const dim_expr *b) {
    if (a->constant != b->constant || a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (a->terms[i].factor != b->terms[i].factor || a->terms[i].atom != b->terms[i].atom)
            return false;
    return true;
}

// The handle of an expression, interned. Plain constants become themselves.
static hn_dim expr_intern(hn_dims *dims, const dim_expr *wanted) {
    if (wanted->count == 0)
        return hn_dim_is_const(wanted->constant) ? wanted->constant
                                                 : hn_dim_fresh(dims, INT64_MIN, INT64_MAX);
    if (!table_grow(&dims->expr_table, expr_hash, dims) || limits_hit(dims->exprs.count) ||
        !hn_vec_push(&dims->exprs, *wanted))
        return HN_DIM_FAILED;
    uint32_t added = (uint32_t)dims->exprs.count - 1;
    dim_table *table = &dims->expr_table;
    size_t at = expr_hash(dims, added) & (table->slots - 1);
    for (; table->index[at]; at = (at + 1) & (table->slots - 1)) {
        if (!expr_equal(&dims->exprs.data[table->index[at] - 1], wanted)) continue;
        dims->exprs.count--;
        return handle_of(table->index[at] - 1);
    }
    dim_term *terms = hn_arena_array(&dims->arena, (size_t)wanted->count, sizeof *terms);
    if (!terms) {
        dims->exprs.count--;
        return HN_DIM_FAILED;
    }
    memcpy(terms, wanted->terms, (size_t)wanted->count * sizeof *terms);
    dims->exprs.data[added].terms = terms;
    table->index[at] = added + 1;
    table->used++;
    return handle_of(added);
}

static uint64_t atom_hash(const hn_dims *dims, uint32_t index) {
    const dim_atom *a = &dims->atoms.data[index];
    uint64_t h = hn_hash_bytes(&a->kind, sizeof a->kind, HN_HASH_SEED);
    if (a->kind == DIM_SYMBOL) {
        h = hn_hash_bytes(&a->number, sizeof a->number, h);
        return a->name ? hn_hash_bytes(a->name, strlen(a->name), h) : h;
    }
    if (a->kind == DIM_PRODUCT)
        return hn_hash_bytes(a->factors, (size_t)a->factor_count * sizeof *a->factors, h);
    h = hn_hash_bytes(&a->a, sizeof a->a, h);
    return hn_hash_bytes(&a->b, sizeof a->b, h);
}

static bool atom_equal(const dim_atom *x, const dim_atom *y) {
    if (x->kind != y->kind) return false;
    if (x->kind == DIM_SYMBOL) {
        if (!x->name || !y->name) return !x->name && !y->name && x->number == y->number;
        return strcmp(x->name, y->name) == 0;
    }
    if (x->kind == DIM_PRODUCT)
        return x->factor_count == y->factor_count &&
               memcmp(x->factors, y->factors, (size_t)x->factor_count * sizeof *x->factors) == 0;
    return x->a == y->a && x->b == y->b;
}

// Index of an atom, interned; its range is derived when it is new. False: out of memory.
static bool atom_intern(hn_dims *dims, const dim_atom *wanted, uint32_t *out_index) {
    if (!table_grow(&dims->atom_table, atom_hash, dims) || limits_hit(dims->atoms.count) ||
        !hn_vec_push(&dims->atoms, *wanted))
        return false;
    uint32_t added = (uint32_t)dims->atoms.count - 1;
    dim_table *table = &dims->atom_table;
    size_t at = atom_hash(dims, added) & (table->slots - 1);
    for (; table->index[at]; at = (at + 1) & (table->slots - 1)) {
        if (!atom_equal(&dims->atoms.data[table->index[at] - 1], wanted)) continue;
        dims->atoms.count--;
        *out_index = table->index[at] - 1;
        return true;
    }
    dim_atom *atom = &dims->atoms.data[added];
    bool ok = true;
    if (atom->name) ok = (atom->name = hn_arena_strdup(&dims->arena, atom->name)) != NULL;
    if (atom->factor_count) {
        uint32_t *copy = hn_arena_array(&dims->arena, (size_t)atom->factor_count, sizeof *copy);
        if (copy) memcpy(copy, wanted->factors, (size_t)atom->factor_count * sizeof *copy);
        atom->factors = copy;
        ok = ok && copy;
    }
    if (ok && atom->kind == DIM_SYMBOL) ok = hn_vec_push(&dims->symbols, added);
    if (!ok) {
        dims->atoms.count--;
        return false;
    }
    atom_derive(dims, atom);
    table->index[at] = added + 1;
    table->used++;
    *out_index = added;
    return true;
}

static hn_dim atom_handle(hn_dims *dims, const dim_atom *wanted) {
    uint32_t index;
    if (!atom_intern(dims, wanted, &index)) return HN_DIM_FAILED;
    dim_term term = {1, index};
    hn_dim handle = expr_intern(dims, &(dim_expr){0, 1, &term});
    dims->atoms.data[index].self = handle;
    return handle;
}

static int depth_of(const hn_dims *dims, hn_dim dim) {
    if (hn_dim_is_const(dim)) return 0;
    const dim_expr *e = dim_expr_of(dims, dim);
    int depth = 0;
    for (int i = 0; i < e->count; i++) {
        int of_atom = dims->atoms.data[e->terms[i].atom].depth;
        if (of_atom > depth) depth = of_atom;
    }
    return depth;
}

static hn_dim unknown(hn_dims *dims) {
    return hn_dim_fresh(dims, INT64_MIN, INT64_MAX);
}

static hn_dim opaque(hn_dims *dims, dim_kind kind, hn_dim a, hn_dim b) {
    int da = depth_of(dims, a), db = depth_of(dims, b);
    int depth = (da > db ? da : db) + 1;
    if (depth > DIM_MAX_DEPTH) return unknown(dims);
    return atom_handle(dims, &(dim_atom){.kind = kind, .a = a, .b = b, .depth = depth});
}

// ---- tables and symbols -------------------------------------------------------------------------

hn_dims *hn_dims_new(void) {
    return hn_calloc(1, sizeof(hn_dims));
}

void hn_dims_free(hn_dims *dims) {
    if (!dims) return;
    hn_vec_free(&dims->exprs);
    hn_vec_free(&dims->atoms);
    hn_vec_free(&dims->symbols);
    hn_free(dims->expr_table.index);
    hn_free(dims->atom_table.index);
    hn_arena_free(&dims->arena);
    hn_free(dims);
}

hn_dims *hn_dims_clone(const hn_dims *dims) {
    hn_dims *copy = hn_dims_new();
    if (!copy) return NULL;
    copy->next_number = dims->next_number;
    bool ok = true;
    // Same order of interning: same handles.
    for (size_t i = 0; ok && i < dims->atoms.count; i++) {
        uint32_t index;
        dim_atom atom = dims->atoms.data[i];
        ok = atom_intern(copy, &atom, &index) && index == i;
        // An expression made before this atom has older atoms only, so the copy has it already.
        for (size_t j = copy->exprs.count; ok && j < dims->exprs.count; j++) {
            const dim_expr *e = &dims->exprs.data[j];
            bool known = true;
            for (int k = 0; k < e->count; k++)
                known = known && e->terms[k].atom <= i;
            if (!known) break;
            ok = expr_intern(copy, e) == handle_of((uint32_t)j);
        }
    }
    ok = ok && copy->exprs.count == dims->exprs.count;
    if (!ok) {
        hn_dims_free(copy);
        return NULL;
    }
    return copy;
}

hn_dim dim_symbol_numbered(hn_dims *dims, int64_t number) {
    if (number >= dims->next_number) dims->next_number = number + 1;
    return atom_handle(
        dims, &(dim_atom){.kind = DIM_SYMBOL, .number = number, .hi = INT64_MAX, .divisor = 1});
}

hn_dim hn_dim_symbol(hn_dims *dims, const char *name) {
    if (!name || !*name) return dim_symbol_numbered(dims, dims->next_number);
    return atom_handle(
        dims, &(dim_atom){.kind = DIM_SYMBOL, .name = name, .hi = INT64_MAX, .divisor = 1});
}

hn_dim hn_dim_fresh(hn_dims *dims, int64_t lo, int64_t hi) {
    hn_dim dim = hn_dim_symbol(dims, NULL);
    if (dim != HN_DIM_FAILED) {
        dim_atom *atom = &dims->atoms.data[dim_expr_of(dims, dim)->terms[0].atom];
        atom->lo = lo;
        atom->hi = hi;
    }
    return dim;
}

const dim_atom *dim_symbol_atom(const hn_dims *dims, hn_dim dim) {
    if (hn_dim_is_const(dim) || dim == HN_DIM_FAILED) return NULL;
    const dim_expr *e = dim_expr_of(dims, dim);
    if (e->count != 1 || e->constant || e->terms[0].factor != 1) return NULL;
    const dim_atom *atom = &dims->atoms.data[e->terms[0].atom];
    return atom->kind == DIM_SYMBOL ? atom : NULL;
}

bool hn_dim_is_symbol(const hn_dims *dims, hn_dim dim) {
    return dim_symbol_atom(dims, dim) != NULL;
}

const char *hn_dim_symbol_name(const hn_dims *dims, hn_dim symbol) {
    const dim_atom *atom = dim_symbol_atom(dims, symbol);
    return atom && atom->name ? atom->name : "";
}

size_t hn_dims_symbol_count(const hn_dims *dims) {
    return dims->symbols.count;
}

hn_dim hn_dims_symbol_at(const hn_dims *dims, size_t index) {
    return dims->atoms.data[dims->symbols.data[index]].self;
}

void hn_dim_set_range(hn_dims *dims, hn_dim symbol, int64_t lo, int64_t hi, int64_t divisor) {
    if (!dim_symbol_atom(dims, symbol)) return;
    dim_atom *atom = &dims->atoms.data[dim_expr_of(dims, symbol)->terms[0].atom];
    atom->lo = lo;
    atom->hi = hi;
    atom->divisor = divisor > 0 ? divisor : 1;
}

void hn_dim_narrow(hn_dims *dims, hn_dim symbol, int64_t lo, int64_t hi, int64_t divisor) {
    if (!dim_symbol_atom(dims, symbol)) return;
    dim_atom *atom = &dims->atoms.data[dim_expr_of(dims, symbol)->terms[0].atom];
    atom->lo = hn_max_i64(atom->lo, lo);
    atom->hi = hn_min_i64(atom->hi, hi);
    int64_t both;
    if (divisor > 1 && hn_mul_i64(atom->divisor, divisor / gcd(atom->divisor, divisor), &both))
        atom->divisor = both;
    for (size_t i = 0; i < dims->atoms.count; i++)
        atom_derive(dims, &dims->atoms.data[i]);
}

// ---- sums and products --------------------------------------------------------------------------

// Working form of an expression: room for its terms.
typedef struct dim_sum {
    int64_t constant;
    int count;
    bool overflow;
    dim_term terms[2 * DIM_MAX_TERMS];
} dim_sum;

static void sum_start(const hn_dims *dims, hn_dim dim, dim_sum *sum) {
    *sum = (dim_sum){0};
    if (hn_dim_is_const(dim)) {
        sum->constant = dim;
        return;
    }
    const dim_expr *e = dim_expr_of(dims, dim);
    sum->constant = e->constant;
    sum->count = e->count;
    memcpy(sum->terms, e->terms, (size_t)e->count * sizeof *e->terms);
}

static void sum_add_term(dim_sum *sum, int64_t factor, uint32_t atom) {
    int at = 0;
    while (at < sum->count && sum->terms[at].atom < atom)
        at++;
    if (at < sum->count && sum->terms[at].atom == atom) {
        if (!hn_add_i64(sum->terms[at].factor, factor, &sum->terms[at].factor))
            sum->overflow = true;
        if (sum->terms[at].factor) return;
        sum->count--;
        memmove(&sum->terms[at], &sum->terms[at + 1],
                (size_t)(sum->count - at) * sizeof *sum->terms);
    } else if (factor) {
        if (sum->count == DIM_MAX_TERMS) {
            sum->overflow = true;
            return;
        }
        memmove(&sum->terms[at + 1], &sum->terms[at],
                (size_t)(sum->count - at) * sizeof *sum->terms);
        sum->terms[at] = (dim_term){factor, atom};
        sum->count++;
    }
}

// sum += dim * factor
static void sum_add_scaled(const hn_dims *dims, dim_sum *sum, hn_dim dim, int64_t factor) {
    dim_sum other;
    int64_t part;
    sum_start(dims, dim, &other);
    if (!hn_mul_i64(other.constant, factor, &part) ||
        !hn_add_i64(sum->constant, part, &sum->constant))
        sum->overflow = true;
    for (int i = 0; i < other.count; i++) {
        if (!hn_mul_i64(other.terms[i].factor, factor, &part))
            sum->overflow = true;
        else
            sum_add_term(sum, part, other.terms[i].atom);
    }
}

static hn_dim sum_finish(hn_dims *dims, dim_sum *sum) {
    if (sum->overflow) return unknown(dims);
    return expr_intern(dims, &(dim_expr){sum->constant, sum->count, sum->terms});
}

#define EITHER_FAILED(a, b) ((a) == HN_DIM_FAILED || (b) == HN_DIM_FAILED)

static hn_dim add_scaled(hn_dims *dims, hn_dim a, hn_dim b, int64_t factor) {
    dim_sum sum;
    sum_start(dims, a, &sum);
    sum_add_scaled(dims, &sum, b, factor);
    return sum_finish(dims, &sum);
}

hn_dim hn_dim_add(hn_dims *dims, hn_dim a, hn_dim b) {
    if (EITHER_FAILED(a, b)) return HN_DIM_FAILED;
    return add_scaled(dims, a, b, 1);
}

hn_dim hn_dim_sub(hn_dims *dims, hn_dim a, hn_dim b) {
    if (EITHER_FAILED(a, b)) return HN_DIM_FAILED;
    return add_scaled(dims, a, b, -1);
}

// The prime factors of an atom: itself, or a product's list.
static int atom_factors(const hn_dims *dims, const uint32_t *atom, const uint32_t **out) {
    const dim_atom *a = &dims->atoms.data[*atom];
    *out = a->kind == DIM_PRODUCT ? a->factors : atom;
    return a->kind == DIM_PRODUCT ? a->factor_count : 1;
}

// 1: made, 0: too large, -1: out of memory.
static int atom_product(hn_dims *dims, uint32_t x, uint32_t y, uint32_t *out) {
    const uint32_t *fx, *fy;
    int nx = atom_factors(dims, &x, &fx), ny = atom_factors(dims, &y, &fy);
    if (nx + ny > DIM_MAX_DEGREE) return 0;
    uint32_t merged[DIM_MAX_DEGREE];
    int depth = 0;
    for (int i = 0, j = 0; i + j < nx + ny;) {
        uint32_t next = j == ny || (i < nx && fx[i] <= fy[j]) ? fx[i++] : fy[j++];
        merged[i + j - 1] = next;
        if (dims->atoms.data[next].depth > depth) depth = dims->atoms.data[next].depth;
    }
    if (depth + 1 > DIM_MAX_DEPTH) return 0;
    dim_atom atom = {
        .kind = DIM_PRODUCT, .factors = merged, .factor_count = nx + ny, .depth = depth + 1};
    return atom_intern(dims, &atom, out) ? 1 : -1;
}

hn_dim hn_dim_mul(hn_dims *dims, hn_dim a, hn_dim b) {
    if (EITHER_FAILED(a, b)) return HN_DIM_FAILED;
    if (hn_dim_is_const(a)) {
        hn_dim swap = a;
        a = b;
        b = swap;
    }
    dim_sum sum = {0}, left, right;
    if (hn_dim_is_const(b)) {
        sum_add_scaled(dims, &sum, a, b);
        return sum_finish(dims, &sum);
    }
    sum_start(dims, a, &left);
    sum_start(dims, b, &right);
    // (l0 + l)(r0 + r) = l0*b + l*r0 + l*r
    sum_add_scaled(dims, &sum, b, left.constant);
    for (int i = 0; i < left.count && !sum.overflow; i++) {
        int64_t factor;
        if (!hn_mul_i64(left.terms[i].factor, right.constant, &factor))
            sum.overflow = true;
        else
            sum_add_term(&sum, factor, left.terms[i].atom);
        for (int j = 0; j < right.count && !sum.overflow; j++) {
            uint32_t atom;
            int made = atom_product(dims, left.terms[i].atom, right.terms[j].atom, &atom);
            if (made < 0) return HN_DIM_FAILED;
            if (!made || !hn_mul_i64(left.terms[i].factor, right.terms[j].factor, &factor))
                sum.overflow = true;
            else
                sum_add_term(&sum, factor, atom);
        }
    }
    return sum_finish(dims, &sum);
}

// ---- division -----------------------------------------------------------------------------------

// Quotient of two monomials, factor and atoms; false if it is none. atom UINT32_MAX: the
// constant 1.
static bool monomial_divide(hn_dims *dims, dim_term a, dim_term b, hn_dim *out) {
    if (b.factor == 0 || (a.factor == INT64_MIN && b.factor == -1) || a.factor % b.factor)
        return false;
    const uint32_t *fa = NULL, *fb = NULL;
    int na = a.atom == UINT32_MAX ? 0 : atom_factors(dims, &a.atom, &fa);
    int nb = b.atom == UINT32_MAX ? 0 : atom_factors(dims, &b.atom, &fb);
    uint32_t rest[DIM_MAX_DEGREE];
    int count = 0, j = 0;
    for (int i = 0; i < na; i++) {
        if (j < nb && fb[j] == fa[i])
            j++;
        else
            rest[count++] = fa[i];
    }
    if (j < nb) return false;
    hn_dim quotient = a.factor / b.factor;
    for (int i = 0; i < count; i++) {
        dim_term term = {1, rest[i]};
        quotient = hn_dim_mul(dims, quotient, expr_intern(dims, &(dim_expr){0, 1, &term}));
    }
    *out = quotient;
    return quotient != HN_DIM_FAILED;
}

// The term of highest atom number; a constant has atom UINT32_MAX.
static dim_term leading(const hn_dims *dims, hn_dim dim) {
    if (hn_dim_is_const(dim)) return (dim_term){dim, UINT32_MAX};
    const dim_expr *e = dim_expr_of(dims, dim);
    return e->terms[e->count - 1];
}

// Polynomial long division; the quotient is right whenever the remainder ends at 0, whatever the
// order of monomials, so the bound on the steps can only lose quotients.
bool hn_dim_divide_exact(hn_dims *dims, hn_dim a, hn_dim b, hn_dim *out_quotient) {
    if (EITHER_FAILED(a, b) || b == 0) return false;
    hn_dim quotient = 0, rest = a;
    for (int step = 0; step < 2 * DIM_MAX_TERMS && rest != 0; step++) {
        hn_dim part;
        if (!monomial_divide(dims, leading(dims, rest), leading(dims, b), &part)) return false;
        quotient = hn_dim_add(dims, quotient, part);
        rest = hn_dim_sub(dims, rest, hn_dim_mul(dims, part, b));
        if (EITHER_FAILED(quotient, rest)) return false;
    }
    if (rest != 0) return false;
    *out_quotient = quotient;
    return true;
}

// Splits dim into divisor * quotient + rest, with the rest's factors in [0, divisor).
static void split(const hn_dims *dims, hn_dim dim, int64_t divisor, dim_sum *out_quotient,
                  dim_sum *out_rest) {
    dim_sum sum;
    sum_start(dims, dim, &sum);
    *out_quotient = *out_rest = (dim_sum){0};
    out_quotient->constant = floor_div(sum.constant, divisor);
    out_rest->constant = floor_mod(sum.constant, divisor);
    for (int i = 0; i < sum.count; i++) {
        int64_t whole = floor_div(sum.terms[i].factor, divisor);
        sum_add_term(out_quotient, whole, sum.terms[i].atom);
        sum_add_term(out_rest, floor_mod(sum.terms[i].factor, divisor), sum.terms[i].atom);
    }
}

static hn_dim floordiv_const(hn_dims *dims, hn_dim a, int64_t b) {
    dim_sum quotient_sum, rest_sum;
    split(dims, a, b, &quotient_sum, &rest_sum);
    hn_dim quotient = sum_finish(dims, &quotient_sum), rest = sum_finish(dims, &rest_sum);
    if (EITHER_FAILED(quotient, rest)) return HN_DIM_FAILED;
    interval range = range_of(dims, rest);
    if (range.lo >= 0 && range.hi < b) return quotient;
    if (!hn_dim_is_const(rest)) {
        // (x // c + k) // b = (x + k*c) // (c*b): chains of strided windows collapse.
        const dim_expr *e = dim_expr_of(dims, rest);
        const dim_atom *inner = &dims->atoms.data[e->terms[0].atom];
        int64_t product, shift;
        if (e->count == 1 && e->terms[0].factor == 1 && inner->kind == DIM_FLOORDIV &&
            hn_dim_is_const(inner->b) && inner->b > 0 && hn_mul_i64(inner->b, b, &product) &&
            hn_mul_i64(e->constant, inner->b, &shift) && hn_dim_is_const(shift)) {
            hn_dim moved = hn_dim_add(dims, inner->a, shift);
            return hn_dim_add(dims, quotient, hn_dim_floordiv(dims, moved, product));
        }
    }
    return hn_dim_add(dims, quotient, opaque(dims, DIM_FLOORDIV, rest, b));
}

hn_dim hn_dim_floordiv(hn_dims *dims, hn_dim a, hn_dim b) {
    hn_dim quotient;
    if (EITHER_FAILED(a, b)) return HN_DIM_FAILED;
    if (b == 0) return unknown(dims);
    if (hn_dim_is_const(b) && b < 0) {
        a = hn_dim_sub(dims, 0, a);
        b = -b;
        if (a == HN_DIM_FAILED) return HN_DIM_FAILED;
    }
    if (hn_dim_is_const(a) && hn_dim_is_const(b)) return floor_div(a, b);
    if (hn_dim_divide_exact(dims, a, b, &quotient)) return quotient;
    if (hn_dim_is_const(b)) return floordiv_const(dims, a, b);
    interval ra = range_of(dims, a), rb = range_of(dims, b);
    if (ra.lo >= 0 && rb.lo > 0 && ra.hi < rb.lo) return 0;
    return opaque(dims, DIM_FLOORDIV, a, b);
}

hn_dim hn_dim_ceildiv(hn_dims *dims, hn_dim a, hn_dim b) {
    if (EITHER_FAILED(a, b)) return HN_DIM_FAILED;
    if (hn_dim_is_const(b) && b > 0) return hn_dim_floordiv(dims, hn_dim_add(dims, a, b - 1), b);
    return hn_dim_sub(dims, 0, hn_dim_floordiv(dims, hn_dim_sub(dims, 0, a), b));
}

hn_dim hn_dim_mod(hn_dims *dims, hn_dim a, hn_dim b) {
    hn_dim quotient;
    if (EITHER_FAILED(a, b)) return HN_DIM_FAILED;
    if (b == 0) return unknown(dims);
    if (hn_dim_is_const(a) && hn_dim_is_const(b)) return floor_mod(a, b);
    if (hn_dim_divide_exact(dims, a, b, &quotient)) return 0;
    if (hn_dim_is_const(b) && b > 0) {
        dim_sum whole, rest;
        int64_t divisor = hn_dim_divisor(dims, a);
        if (divisor && divisor % b == 0) return 0;
        split(dims, a, b, &whole, &rest);
        a = sum_finish(dims, &rest);
        if (a == HN_DIM_FAILED) return a;
    }
    interval ra = range_of(dims, a), rb = range_of(dims, b);
    if (ra.lo >= 0 && rb.lo > 0 && ra.hi < rb.lo) return a;
    return opaque(dims, DIM_MOD, a, b);
}

// Absorption: min(x, c) is never above x, max(x, c) never below. The extreme of `whole` and `part`
// where part is an operand of whole; HN_DIM_FAILED if it is not.
static hn_dim absorb(const hn_dims *dims, dim_kind kind, hn_dim whole, hn_dim part) {
    if (hn_dim_is_const(whole)) return HN_DIM_FAILED;
    const dim_expr *e = dim_expr_of(dims, whole);
    if (e->count != 1 || e->constant || e->terms[0].factor != 1) return HN_DIM_FAILED;
    const dim_atom *atom = &dims->atoms.data[e->terms[0].atom];
    if ((atom->kind != DIM_MIN && atom->kind != DIM_MAX) || (atom->a != part && atom->b != part))
        return HN_DIM_FAILED;
    return atom->kind == kind ? whole : part;
}

static hn_dim extreme(hn_dims *dims, dim_kind kind, hn_dim a, hn_dim b) {
    if (EITHER_FAILED(a, b)) return HN_DIM_FAILED;
    hn_dim absorbed = absorb(dims, kind, a, b);
    if (absorbed == HN_DIM_FAILED) absorbed = absorb(dims, kind, b, a);
    if (absorbed != HN_DIM_FAILED) return absorbed;
    hn_dim difference = hn_dim_sub(dims, a, b);
    if (difference == HN_DIM_FAILED) return difference;
    interval range = range_of(dims, difference);
    if (range.lo >= 0) return kind == DIM_MAX ? a : b;
    if (range.hi <= 0) return kind == DIM_MAX ? b : a;
    return a < b ? opaque(dims, kind, a, b) : opaque(dims, kind, b, a);
}

hn_dim hn_dim_min(hn_dims *dims, hn_dim a, hn_dim b) {
    return extreme(dims, DIM_MIN, a, b);
}
hn_dim hn_dim_max(hn_dims *dims, hn_dim a, hn_dim b) {
    return extreme(dims, DIM_MAX, a, b);
}

// ---- evaluation ---------------------------------------------------------------------------------

static bool atom_eval(const hn_dims *dims, uint32_t index, hn_dim_lookup lookup, void *user,
                      int64_t *out) {
    const dim_atom *atom = &dims->atoms.data[index];
    int64_t a = 1, b;
    if (atom->kind == DIM_SYMBOL) return lookup(user, atom->self, out);
    if (atom->kind == DIM_PRODUCT) {
        for (int i = 0; i < atom->factor_count; i++)
            if (!atom_eval(dims, atom->factors[i], lookup, user, &b) || !hn_mul_i64(a, b, &a))
                return false;
        *out = a;
        return true;
    }
    if (!hn_dim_eval(dims, atom->a, lookup, user, &a)) return false;
    if (!hn_dim_eval(dims, atom->b, lookup, user, &b)) return false;
    switch (atom->kind) {
    case DIM_FLOORDIV:
    case DIM_MOD:
        if (b == 0 || (a == INT64_MIN && b == -1)) return false;
        *out = atom->kind == DIM_MOD ? floor_mod(a, b) : floor_div(a, b);
        return true;
    case DIM_MIN:
        *out = hn_min_i64(a, b);
        return true;
    default:
        *out = hn_max_i64(a, b);
        return true;
    }
}

bool hn_dim_eval(const hn_dims *dims, hn_dim dim, hn_dim_lookup lookup, void *user,
                 int64_t *out_value) {
    if (hn_dim_is_const(dim)) {
        *out_value = dim;
        return true;
    }
    if (dim == HN_DIM_FAILED) return false;
    const dim_expr *e = dim_expr_of(dims, dim);
    int64_t sum = e->constant, value;
    for (int i = 0; i < e->count; i++)
        if (!atom_eval(dims, e->terms[i].atom, lookup, user, &value) ||
            !hn_mul_i64(value, e->terms[i].factor, &value) || !hn_add_i64(sum, value, &sum))
            return false;
    *out_value = sum;
    return true;
}
