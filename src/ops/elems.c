// SPDX-License-Identifier: Apache-2.0
// Partial values: how the elements of small tensors pass through shape arithmetic.
//
// Elements are symbolic integers (hn_dim). Moving ops run their own reference over the handles;
// element-wise ops have a row here that says what they do to symbols. Float tensors take part while
// their elements are integers (scale factors, Cast in the middle of a size computation); a quotient
// is looked through by Floor, Ceil and Cast.
#include <math.h>
#include "ops/elementwise.h"

// ---- small helpers of inference ------------------------------------------------------------------
hn_status hn_infer_axis(hone_error *err, const hn_infer *ctx, int64_t axis, int rank,
                        int *out_axis) {
    if (!hn_axis_normalise(axis, rank, out_axis))
        HN_BAD_NODE(err, ctx->node, "axis %lld is outside of rank %d", (long long)axis, rank);
    return HONE_OK;
}

hn_status hn_infer_attr_ints(hone_error *err, const hn_infer *ctx, const char *name, int64_t *out,
                             int max, int *out_count) {
    int64_t count;
    const int64_t *list = hn_node_ints(ctx->node, name, &count);
    if (count > max)
        HN_BAD_NODE(err, ctx->node, "attribute '%s' has %lld numbers, at most %d are possible",
                    name, (long long)count, max);
    if (count) memcpy(out, list, (size_t)count * sizeof *out);
    *out_count = (int)count;
    return HONE_OK;
}

hn_status hn_infer_same_dtype(hone_error *err, const hn_infer *ctx, int first, int second) {
    const hn_value *a = hn_in(ctx->node, first), *b = hn_in(ctx->node, second);
    if (a && b && a->type.dtype && b->type.dtype && a->type.dtype != b->type.dtype)
        HN_BAD_NODE(err, ctx->node, "inputs %d and %d have different types, %s and %s", first,
                    second, hn_dtype_name(a->type.dtype), hn_dtype_name(b->type.dtype));
    return HONE_OK;
}

hn_dim hn_infer_product(hn_dims *dims, const hn_dim *list, int from, int to) {
    hn_dim product = 1;
    for (int d = from; d < to; d++)
        product = hn_dim_mul(dims, product, list[d]);
    return product;
}

// ---- reading ------------------------------------------------------------------------------------
static const hn_dim *constant_elems(hn_infer *ctx, const hn_value *value, int *out_count) {
    const hn_tensor *data = value->constant;
    if (!data || value->overridable || !hn_dtype_is_plain(data->dtype)) return NULL;
    int64_t count = hn_tensor_count(data);
    if (count > HN_ELEMS_MAX) return NULL;
    hn_dim *elems = hn_arena_array(&ctx->module->arena, (size_t)count + 1, sizeof *elems);
    if (!elems) return NULL;
    bool is_float = hn_dtype_is_float(data->dtype);
    for (int64_t i = 0; i < count; i++) {
        double number = is_float ? hn_tensor_get_f64(data, i) : 0;
        if (is_float && !(fabs(number) < 0x1p53 && number == floor(number))) return NULL;
        elems[i] = is_float ? (int64_t)number : hn_tensor_get_i64(data, i);
        if (!hn_dim_is_const(elems[i])) return NULL;
    }
    hn_value *owner = (hn_value *)(uintptr_t)value; // a cache on a value that is logically const
    owner->elems = elems;
    owner->elem_count = (int)count;
    *out_count = (int)count;
    return elems;
}

const hn_dim *hn_infer_elems(hn_infer *ctx, const hn_value *value, int *out_count) {
    if (!value) return NULL;
    const hn_dim *elems = hn_value_elems(ctx->module, value, out_count);
    if (!elems) elems = constant_elems(ctx, value, out_count);
    return elems && *out_count <= HN_ELEMS_MAX ? elems : NULL;
}

bool hn_infer_ints(hn_infer *ctx, const hn_value *value, int64_t *out, int max, int *out_count) {
    int count;
    const hn_dim *elems = hn_infer_elems(ctx, value, &count);
    if (!elems || count > max) return false;
    for (int i = 0; i < count; i++) {
        if (!hn_dim_is_const(elems[i])) return false;
        out[i] = elems[i];
    }
    *out_count = count;
    return true;
}

bool hn_infer_number(hn_infer *ctx, const hn_value *value, double *out) {
    if (!value) return false;
    int64_t number;
    int count;
    if (value->constant && !value->overridable && hn_dtype_is_plain(value->constant->dtype) &&
        hn_tensor_count(value->constant) == 1) {
        *out = hn_tensor_get_f64(value->constant, 0);
        return true;
    }
    if (!hn_infer_ints(ctx, value, &number, 1, &count) || count != 1) return false;
    *out = (double)number;
    return true;
}

// ---- moving -------------------------------------------------------------------------------------
static bool small_shape(const hn_value *value, hn_shape *out_shape, int64_t *out_count) {
    return hn_type_shape(&value->type, out_shape) && hn_shape_count(out_shape, out_count) &&
           *out_count <= HN_ELEMS_MAX;
}

#define MAX_IO 16

void hn_infer_move_elems(hn_infer *ctx, uint64_t data_mask, hn_ref_fn ref) {
    const hn_node *node = ctx->node;
    hn_tensor in[MAX_IO] = {{0}}, out[MAX_IO] = {{0}};
    const hn_tensor *in_list[MAX_IO];
    hn_tensor *out_list[MAX_IO];
    if (node->input_count > MAX_IO || node->output_count > MAX_IO) return;
    for (int i = 0; i < node->input_count; i++) {
        in_list[i] = NULL;
        if (!node->inputs[i]) continue;
        int count;
        int64_t total;
        if (!(data_mask >> i & 1) && node->inputs[i]->constant && !node->inputs[i]->overridable) {
            in_list[i] = node->inputs[i]->constant;
            continue;
        }
        const hn_dim *elems = hn_infer_elems(ctx, node->inputs[i], &count);
        if (!elems || !small_shape(node->inputs[i], &in[i].shape, &total) || total != count) return;
        for (int k = 0; !(data_mask >> i & 1) && k < count; k++)
            if (!hn_dim_is_const(elems[k])) return;
        in[i].dtype = HN_I64;
        in[i].data = (void *)(uintptr_t)elems;
        in[i].bytes = (size_t)count * 8;
        in_list[i] = &in[i];
    }
    int64_t memory[HN_ELEMS_MAX], used = 0;
    for (int i = 0; i < node->output_count; i++) {
        out_list[i] = NULL;
        if (!node->outputs[i]) continue;
        int64_t total;
        if (!small_shape(node->outputs[i], &out[i].shape, &total)) return;
        if (used + total > HN_ELEMS_MAX) return;
        out[i].dtype = HN_I64;
        out[i].data = memory + used;
        out[i].bytes = (size_t)total * 8;
        out_list[i] = &out[i];
        used += total;
    }
    hn_call call = {node, node->input_count, node->output_count, in_list, out_list, 0};
    if (ref(NULL, &call) != HONE_OK) return;
    for (int i = 0; i < node->output_count; i++)
        if (out_list[i]) hn_infer_set_elems(ctx, i, out[i].data, (int)(out[i].bytes / 8));
}

// ---- element-wise -------------------------------------------------------------------------------
// Result of one op on symbols; HN_DIM_FAILED where nothing can be said.
typedef hn_dim (*symbol_fn)(const hn_infer *ctx, const hn_dim *in);
#define NOTHING HN_DIM_FAILED

static void range(const hn_infer *ctx, hn_dim dim, int64_t *lo, int64_t *hi) {
    hn_dim_range(ctx->dims, dim, lo, hi);
}
static bool is_whole(const hn_infer *ctx) { // integer arithmetic, not float
    const hn_value *out = ctx->node->outputs[0];
    return out && !hn_dtype_is_float(out->type.dtype);
}
static hn_dim sym_add(const hn_infer *c, const hn_dim *in) {
    return hn_dim_add(c->dims, in[0], in[1]);
}
static hn_dim sym_sub(const hn_infer *c, const hn_dim *in) {
    return hn_dim_sub(c->dims, in[0], in[1]);
}
static hn_dim sym_mul(const hn_infer *c, const hn_dim *in) {
    return hn_dim_mul(c->dims, in[0], in[1]);
}
static hn_dim sym_min(const hn_infer *c, const hn_dim *in) {
    return hn_dim_min(c->dims, in[0], in[1]);
}
static hn_dim sym_max(const hn_infer *c, const hn_dim *in) {
    return hn_dim_max(c->dims, in[0], in[1]);
}
static hn_dim sym_same(const hn_infer *c, const hn_dim *in) {
    (void)c;
    return in[0];
}
static hn_dim sym_neg(const hn_infer *c, const hn_dim *in) { return hn_dim_sub(c->dims, 0, in[0]); }
static hn_dim sym_relu(const hn_infer *c, const hn_dim *in) {
    return hn_dim_max(c->dims, in[0], 0);
}
static hn_dim sym_div(const hn_infer *c, const hn_dim *in) {
    hn_dim quotient;
    int64_t lo, hi, lo2, hi2;
    range(c, in[0], &lo, &hi);
    range(c, in[1], &lo2, &hi2);
    if (lo2 <= 0) return NOTHING; // division by zero or truncation of negatives
    if (hn_dim_divide_exact(c->dims, in[0], in[1], &quotient)) return quotient;
    if (!is_whole(c) || lo < 0) return NOTHING;
    return hn_dim_floordiv(c->dims, in[0], in[1]);
}
static hn_dim sym_mod(const hn_infer *c, const hn_dim *in) {
    int64_t lo, hi, lo2, hi2;
    range(c, in[0], &lo, &hi);
    range(c, in[1], &lo2, &hi2);
    if (lo2 <= 0 || (lo < 0 && hn_op_int(c->node, "fmod")) || !is_whole(c)) return NOTHING;
    return hn_dim_mod(c->dims, in[0], in[1]);
}
static hn_dim sym_abs(const hn_infer *c, const hn_dim *in) {
    int64_t lo, hi;
    range(c, in[0], &lo, &hi);
    if (lo >= 0) return in[0];
    return hi <= 0 ? sym_neg(c, in) : NOTHING;
}
static hn_dim sym_clip(const hn_infer *c, const hn_dim *in) {
    hn_dim value = in[0];
    if (hn_in(c->node, 1)) value = hn_dim_max(c->dims, value, in[1]);
    if (hn_in(c->node, 2)) value = hn_dim_min(c->dims, value, in[2]);
    return value;
}
// An unknown truth value keeps the other elements useful.
static hn_dim truth(const hn_infer *c, int known) {
    return known >= 0 ? known : hn_dim_fresh(c->dims, 0, 1);
}
// Where the difference of the operands is known to lie.
static void difference(const hn_infer *c, const hn_dim *in, int64_t *lo, int64_t *hi) {
    range(c, hn_dim_sub(c->dims, in[0], in[1]), lo, hi);
}
static hn_dim sym_equal(const hn_infer *c, const hn_dim *in) {
    int64_t lo, hi;
    if (in[0] == in[1]) return 1;
    difference(c, in, &lo, &hi);
    return truth(c, lo > 0 || hi < 0 ? 0 : -1);
}
static hn_dim less(const hn_infer *c, hn_dim a, hn_dim b) {
    int64_t lo, hi;
    hn_dim in[2] = {a, b};
    difference(c, in, &lo, &hi);
    return truth(c, hi < 0 ? 1 : (lo >= 0 ? 0 : -1));
}
static hn_dim flip(const hn_infer *c, hn_dim value) { return hn_dim_sub(c->dims, 1, value); }
static hn_dim sym_less(const hn_infer *c, const hn_dim *in) { return less(c, in[0], in[1]); }
static hn_dim sym_greater(const hn_infer *c, const hn_dim *in) { return less(c, in[1], in[0]); }
static hn_dim sym_le(const hn_infer *c, const hn_dim *in) { return flip(c, less(c, in[1], in[0])); }
static hn_dim sym_ge(const hn_infer *c, const hn_dim *in) { return flip(c, less(c, in[0], in[1])); }
static hn_dim sym_not(const hn_infer *c, const hn_dim *in) { return flip(c, in[0]); }
static hn_dim sym_and(const hn_infer *c, const hn_dim *in) {
    return hn_dim_min(c->dims, in[0], in[1]);
}
static hn_dim sym_or(const hn_infer *c, const hn_dim *in) {
    return hn_dim_max(c->dims, in[0], in[1]);
}
static hn_dim sym_where(const hn_infer *c, const hn_dim *in) {
    if (hn_dim_is_const(in[0])) return in[0] ? in[1] : in[2];
    if (in[1] == in[2]) return in[1];
    int64_t lo, hi, lo2, hi2;
    range(c, in[1], &lo, &hi);
    range(c, in[2], &lo2, &hi2);
    return hn_dim_fresh(c->dims, hn_min_i64(lo, lo2), hn_max_i64(hi, hi2));
}
static hn_dim sym_cast(const hn_infer *c, const hn_dim *in) {
    hn_dtype to = c->node->outputs[0]->type.dtype;
    if (to == HN_BOOL) {
        hn_dim pair[2] = {in[0], 0};
        return flip(c, sym_equal(c, pair));
    }
    if (!hn_dim_is_const(in[0]))
        return to == HN_I64 || to == HN_I32 || to == HN_F32 || to == HN_F64 ? in[0] : NOTHING;
    hn_cell number = {.i = in[0]};
    int64_t memory = 0;
    hn_tensor probe = {to, {0}, &memory, 8, NULL};
    if (!hn_dtype_is_plain(to)) return NOTHING;
    hn_cells_store(&probe, 0, 1, HN_CLASS_I, &number);
    double back = hn_tensor_get_f64(&probe, 0);
    if (hn_dtype_is_float(to)) return back == (double)in[0] ? in[0] : NOTHING;
    return hn_tensor_get_i64(&probe, 0);
}

static const struct {
    hn_op op;
    symbol_fn fn;
} k_symbolic[] = {
    {HN_OP_ABS, sym_abs},
    {HN_OP_ADD, sym_add},
    {HN_OP_AND, sym_and},
    {HN_OP_CAST, sym_cast},
    {HN_OP_CAST_LIKE, sym_cast},
    {HN_OP_CEIL, sym_same},
    {HN_OP_CLIP, sym_clip},
    {HN_OP_DIV, sym_div},
    {HN_OP_EQUAL, sym_equal},
    {HN_OP_FLOOR, sym_same},
    {HN_OP_GREATER, sym_greater},
    {HN_OP_GREATER_OR_EQUAL, sym_ge},
    {HN_OP_LESS, sym_less},
    {HN_OP_LESS_OR_EQUAL, sym_le},
    {HN_OP_MAX, sym_max},
    {HN_OP_MIN, sym_min},
    {HN_OP_MOD, sym_mod},
    {HN_OP_MUL, sym_mul},
    {HN_OP_NEG, sym_neg},
    {HN_OP_NOT, sym_not},
    {HN_OP_OR, sym_or},
    {HN_OP_RELU, sym_relu},
    {HN_OP_ROUND, sym_same},
    {HN_OP_SUB, sym_sub},
    {HN_OP_SUM, sym_add},
    {HN_OP_WHERE, sym_where},
};

static symbol_fn find_symbolic(hn_op op) {
    for (size_t i = 0; i < HN_COUNT_OF(k_symbolic); i++)
        if (k_symbolic[i].op == op) return k_symbolic[i].fn;
    return NULL;
}

// All operands known numbers: the scalar function itself, if the result fits the type.
static hn_dim exact_integer(const hn_infer *ctx, const hn_dim *in, int count) {
    hn_dtype dtype = ctx->node->inputs[0]->type.dtype;
    if (dtype != HN_I64 && dtype != HN_I32) return NOTHING;
    double a, b;
    hn_scalar_params(ctx->node, &a, &b);
    hn_cell x = {.i = in[0]}, y = {.i = count > 1 ? in[1] : 0}, z;
    hn_binary_fn binary = hn_scalar_binary(ctx->node->op, HN_CLASS_I);
    hn_unary_fn unary = hn_scalar_unary(ctx->node->op, HN_CLASS_I);
    if (binary && count == 2)
        binary(&x, &y, &z, 1, (hn_cell){.i = (int64_t)a});
    else if (unary && count == 1)
        unary(&x, &z, 1, (hn_cell){.i = (int64_t)a}, (hn_cell){.i = (int64_t)b});
    else
        return NOTHING;
    if (dtype == HN_I32 && z.i != (int32_t)z.i) return NOTHING;
    return hn_dim_is_const(z.i) ? z.i : NOTHING;
}

static hn_dim apply(const hn_infer *ctx, symbol_fn fn, const hn_dim *in, int count) {
    bool known = true;
    for (int i = 0; i < count; i++)
        known = known && hn_dim_is_const(in[i]);
    if (known && count <= 2) {
        hn_dim exact = exact_integer(ctx, in, count);
        if (exact != NOTHING) return exact;
    }
    if (!fn) return NOTHING;
    hn_op op = ctx->node->op;
    if (op != HN_OP_MAX && op != HN_OP_MIN && op != HN_OP_SUM) return fn(ctx, in);
    hn_dim acc[2] = {in[0], 0};
    for (int i = 1; i < count; i++) {
        acc[1] = in[i];
        acc[0] = fn(ctx, acc);
    }
    return acc[0];
}

// ---- quotients of floats --------------------------------------------------------------------------
// x = N * 0.5 or N / 3 in floats, then Floor, Ceil or Cast: the quotient as numerator / denominator.
static bool float_ratio(double factor, int64_t *out_num, int64_t *out_den) {
    for (int64_t den = 1; den <= 64; den++) {
        double num = factor * (double)den;
        if (num != floor(num) || num <= 0 || num > 0x1p31) continue;
        *out_num = (int64_t)num;
        *out_den = den;
        return true;
    }
    return false;
}

static void quotient_elems(hn_infer *ctx) {
    const hn_node *node = ctx->node, *from = node->inputs[0]->producer;
    if (!from || from->input_count < 2 || !hn_dtype_is_float(node->inputs[0]->type.dtype)) return;
    bool ceil_up = node->op == HN_OP_CEIL;
    if (!ceil_up && node->op != HN_OP_FLOOR && node->op != HN_OP_CAST) return;
    if (node->op == HN_OP_CAST && !hn_dtype_is_int(node->outputs[0]->type.dtype)) return;
    if (from->op != HN_OP_MUL && from->op != HN_OP_DIV) return;
    int which = from->op == HN_OP_MUL && !hn_infer_elems(ctx, from->inputs[0], &(int){0});
    int count;
    double factor;
    int64_t num, den;
    const hn_dim *elems = hn_infer_elems(ctx, from->inputs[which], &count);
    if (!elems || !hn_infer_number(ctx, from->inputs[1 - which], &factor)) return;
    if (!float_ratio(factor, &num, &den)) return;
    if (from->op == HN_OP_DIV) {
        int64_t swap = num;
        num = den;
        den = swap;
    }
    hn_shape shape;
    int64_t total;
    if (!small_shape(node->outputs[0], &shape, &total) || total != count) return;
    hn_dim result[HN_ELEMS_MAX];
    for (int k = 0; k < count; k++) {
        int64_t lo, hi;
        range(ctx, elems[k], &lo, &hi);
        if (lo < 0) return;
        hn_dim scaled = hn_dim_mul(ctx->dims, elems[k], num);
        result[k] = ceil_up ? hn_dim_ceildiv(ctx->dims, scaled, den)
                            : hn_dim_floordiv(ctx->dims, scaled, den);
    }
    hn_infer_set_elems(ctx, 0, result, count);
}

#define MAX_OPERANDS 8

void hn_infer_scalar_elems(hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_value *out = hn_out(node, 0);
    const hn_dim *elems[MAX_OPERANDS];
    hn_shape shapes[MAX_OPERANDS], shape;
    int64_t total, index[HN_MAX_RANK] = {0};
    // CastLike looks at the type of its second operand only.
    int operands = node->op == HN_OP_CAST_LIKE ? 1 : node->input_count;
    if (!out || operands > MAX_OPERANDS || !small_shape(out, &shape, &total)) return;
    for (int i = 0; i < operands; i++) {
        int count;
        int64_t own;
        elems[i] = NULL;
        if (!node->inputs[i]) continue;
        elems[i] = hn_infer_elems(ctx, node->inputs[i], &count);
        if (!elems[i]) {
            if (i == 0) quotient_elems(ctx);
            return;
        }
        if (!small_shape(node->inputs[i], &shapes[i], &own) || own != count) return;
    }
    symbol_fn fn = find_symbolic(node->op);
    hn_dim result[HN_ELEMS_MAX];
    for (int64_t at = 0; at < total; at++) {
        hn_dim in[MAX_OPERANDS] = {0};
        for (int i = 0; i < operands; i++) {
            if (!elems[i]) continue;
            int64_t offset = 0;
            for (int d = 0, shift = shape.rank - shapes[i].rank; d < shapes[i].rank; d++)
                offset = offset * shapes[i].dims[d] +
                         (shapes[i].dims[d] == 1 ? 0 : index[d + shift]);
            in[i] = elems[i][offset];
        }
        result[at] = apply(ctx, fn, in, operands);
        if (result[at] == NOTHING) return;
        (void)hn_index_next(index, shape.dims, shape.rank);
    }
    hn_infer_set_elems(ctx, 0, result, (int)total);
}
