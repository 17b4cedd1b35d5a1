// SPDX-License-Identifier: Apache-2.0
// Element-wise ops: scalar functions made from scalar.def, and the loops that broadcast them.
//
// A reference loads chunks of cells of one class (double, int64, uint64), applies the row's function
// and stores: one loop serves every element type.
#include "ops/elementwise.h"
#include <math.h>

#define LOCAL_TYPE __attribute__((unused))
static int64_t hn_powi(int64_t base, int64_t exponent) {
    if (exponent < 0) {
        if (base == 1) return 1;
        return base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    }
    uint64_t result = 1, square = (uint64_t)base;
    for (uint64_t e = (uint64_t)exponent; e; e >>= 1, square *= square)
        if (e & 1) result *= square;
    return (int64_t)result;
}
static uint64_t hn_powu(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

#define TYPES_F                                                                                    \
    typedef double T LOCAL_TYPE;                                                                   \
    typedef double U LOCAL_TYPE;
#define TYPES_I                                                                                    \
    typedef int64_t T LOCAL_TYPE;                                                                  \
    typedef uint64_t U LOCAL_TYPE;
#define TYPES_U                                                                                    \
    typedef uint64_t T LOCAL_TYPE;                                                                 \
    typedef uint64_t U LOCAL_TYPE;
#define MEMBER_F f
#define MEMBER_I i
#define MEMBER_U u

#define HN_UNARY(class, token, ...)                                                                \
    static void unary_##class##_##token(const hn_cell *in, hn_cell *out, int count, hn_cell pa,    \
                                        hn_cell pb) {                                              \
        TYPES_##class const T a LOCAL_TYPE = pa.MEMBER_##class;                                    \
        const T b LOCAL_TYPE = pb.MEMBER_##class;                                                  \
        for (int k = 0; k < count; k++) {                                                          \
            const T x LOCAL_TYPE = in[k].MEMBER_##class;                                           \
            out[k].MEMBER_##class = (T)(__VA_ARGS__);                                              \
        }                                                                                          \
    }
#define HN_BINARY(class, token, ...)                                                               \
    static void binary_##class##_##token(const hn_cell *left, const hn_cell *right, hn_cell *out,  \
                                         int count, hn_cell pa) {                                  \
        TYPES_##class const T a LOCAL_TYPE = pa.MEMBER_##class;                                    \
        for (int k = 0; k < count; k++) {                                                          \
            const T x LOCAL_TYPE = left[k].MEMBER_##class, y LOCAL_TYPE = right[k].MEMBER_##class; \
            out[k].MEMBER_##class = (T)(__VA_ARGS__);                                              \
        }                                                                                          \
    }
#include "ops/scalar.def"

static const hn_unary_fn k_unary[HN_CLASSES][HN_OP_END] = {
#define HN_UNARY(class, token, ...) [HN_CLASS_##class][HN_OP_##token] = unary_##class##_##token,
#include "ops/scalar.def"
};
static const hn_binary_fn k_binary[HN_CLASSES][HN_OP_END] = {
#define HN_BINARY(class, token, ...) [HN_CLASS_##class][HN_OP_##token] = binary_##class##_##token,
#include "ops/scalar.def"
};

static const char *const k_text[HN_CLASSES][HN_OP_END] = {
#define HN_UNARY(class, token, ...)  [HN_CLASS_##class][HN_OP_##token] = #__VA_ARGS__,
#define HN_BINARY(class, token, ...) [HN_CLASS_##class][HN_OP_##token] = #__VA_ARGS__,
#include "ops/scalar.def"
};

hn_unary_fn hn_scalar_unary(hn_op op, hn_class class) {
    return op < HN_OP_END ? k_unary[class][op] : NULL;
}
hn_binary_fn hn_scalar_binary(hn_op op, hn_class class) {
    return op < HN_OP_END ? k_binary[class][op] : NULL;
}
const char *hn_scalar_text(hn_op op, hn_class class) { return op < HN_OP_END ? k_text[class][op] : NULL; }

typedef struct param_row {
    hn_op op;
    char slot, kind;
    const char *attribute;
} param_row;
#define SLOT_a 'a'
#define SLOT_b 'b'
#define KIND_f 'f'
#define KIND_i 'i'
#define KIND_s 's'
static const param_row k_params[] = {
#define HN_SCALAR_PARAM(token, slot, attribute, kind)                                              \
    {HN_OP_##token, SLOT_##slot, KIND_##kind, attribute},
#include "ops/scalar.def"
};

static double param_value(const hn_node *node, const param_row *row) {
    if (row->kind == 'f') return (double)hn_op_float(node, row->attribute);
    if (row->kind == 'i') return (double)hn_op_int(node, row->attribute);
    char name[32];
    const char *equals = strchr(row->attribute, '=');
    size_t length = (size_t)(equals - row->attribute);
    memcpy(name, row->attribute, length);
    name[length] = 0;
    return hn_slice_eq(hn_op_string(node, name), equals + 1);
}

void hn_scalar_params(const hn_node *node, double *out_a, double *out_b) {
    double a = 0, b = 0;
    for (size_t i = 0; i < HN_COUNT_OF(k_params); i++) {
        if (k_params[i].op != node->op) continue;
        *(k_params[i].slot == 'a' ? &a : &b) = param_value(node, &k_params[i]);
    }
    *out_a = a;
    *out_b = b;
}

// ---- inference ----------------------------------------------------------------------------------
hone_status hn_infer_unary(hone_error *err, hn_infer *ctx) {
    (void)err;
    hn_infer_like(ctx, 0, ctx->node->inputs[0]);
    hn_infer_scalar_elems(ctx);
    return HONE_OK;
}

hone_status hn_infer_predicate(hone_error *err, hn_infer *ctx) {
    (void)err;
    const hn_type *type = &ctx->node->inputs[0]->type;
    hn_infer_set(ctx, 0, HN_BOOL, type->rank, type->dims);
    hn_infer_scalar_elems(ctx);
    return HONE_OK;
}

static hn_status infer_broadcast(hone_error *err, hn_infer *ctx, int first, hn_dtype dtype) {
    const hn_node *node = ctx->node;
    hn_dim dims[HN_MAX_RANK];
    int rank;
    HN_TRY(hn_infer_broadcast(err, ctx, (const hn_value *const *)(node->inputs + first),
                              node->input_count - first, &rank, dims));
    hn_infer_set(ctx, 0, dtype, rank, dims);
    hn_infer_scalar_elems(ctx);
    return HONE_OK;
}

hone_status hn_infer_binary(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_dtype dtype = node->inputs[0] ? node->inputs[0]->type.dtype : HN_NONE;
    for (int i = 1; i < node->input_count && node->op != HN_OP_POW; i++) {
        HN_TRY(hn_infer_same_dtype(err, ctx, 0, i));
        if (!dtype && node->inputs[i]) dtype = node->inputs[i]->type.dtype;
    }
    return infer_broadcast(err, ctx, 0, dtype);
}

hone_status hn_infer_compare(hone_error *err, hn_infer *ctx) {
    HN_TRY(hn_infer_same_dtype(err, ctx, 0, 1));
    return infer_broadcast(err, ctx, 0, HN_BOOL);
}

hone_status hn_infer_prelu(hone_error *err, hn_infer *ctx) {
    HN_TRY(hn_infer_same_dtype(err, ctx, 0, 1));
    hn_dim dims[HN_MAX_RANK];
    int rank;
    HN_TRY(hn_infer_broadcast(err, ctx, (const hn_value *const *)ctx->node->inputs, 2, &rank, dims));
    const hn_type *type = &ctx->node->inputs[0]->type;
    for (int d = 0; rank >= 0 && d < rank; d++)
        if (rank != type->rank || (hn_dim_is_const(dims[d]) && hn_dim_is_const(type->dims[d]) &&
                                   dims[d] != type->dims[d]))
            HN_BAD_NODE(err, ctx->node, "the slope does not broadcast to the shape of the input");
    hn_infer_like(ctx, 0, ctx->node->inputs[0]);
    return HONE_OK;
}

hone_status hn_infer_where(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    hn_dtype condition = node->inputs[0]->type.dtype;
    if (condition != HN_NONE && condition != HN_BOOL)
        HN_BAD_NODE(err, node, "the condition has type %s where bool is due",
                    hn_dtype_name(condition));
    HN_TRY(hn_infer_same_dtype(err, ctx, 1, 2));
    hn_dtype dtype = node->inputs[1]->type.dtype;
    return infer_broadcast(err, ctx, 0, dtype ? dtype : node->inputs[2]->type.dtype);
}

hone_status hn_infer_clip(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    for (int i = 1; i < node->input_count; i++) {
        if (!node->inputs[i]) continue;
        HN_TRY(hn_infer_same_dtype(err, ctx, 0, i));
        const hn_type *type = &node->inputs[i]->type;
        if (type->rank > 1 || (type->rank == 1 && hn_dim_is_const(type->dims[0]) &&
                               type->dims[0] != 1))
            HN_BAD_NODE(err, node, "its %s is not a scalar", i == 1 ? "minimum" : "maximum");
    }
    return hn_infer_unary(err, ctx);
}

// ---- references ---------------------------------------------------------------------------------
static hn_status no_form(hone_error *err, const hn_call *call, hn_dtype dtype) {
    HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                 hn_dtype_name(dtype));
}

static void apply_unary(const hn_tensor *in, hn_tensor *out, hn_unary_fn fn, hn_class class,
                        hn_cell a, hn_cell b) {
    hn_cell x[HN_CHUNK], y[HN_CHUNK];
    int64_t total = hn_tensor_count(out);
    for (int64_t at = 0; at < total; at += HN_CHUNK) {
        int count = (int)hn_min_i64(HN_CHUNK, total - at);
        hn_cells_load(in, at, 1, count, class, x);
        fn(x, y, count, a, b);
        hn_cells_store(out, at, count, class, y);
    }
}

hone_status hn_ref_unary(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_class class = hn_dtype_class(in->dtype);
    hn_unary_fn fn = hn_scalar_unary(call->node->op, class);
    if (!fn || !hn_dtype_is_plain(in->dtype)) return no_form(err, call, in->dtype);
    double a, b;
    hn_scalar_params(call->node, &a, &b);
    apply_unary(in, call->outputs[0], fn, class, hn_cell_from_f64(class, a),
                hn_cell_from_f64(class, b));
    return HONE_OK;
}

hone_status hn_ref_clip(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_class class = hn_dtype_class(in->dtype);
    if (!hn_dtype_is_plain(in->dtype)) return no_form(err, call, in->dtype);
    hn_cell bounds[2] = {hn_dtype_lowest(in->dtype), hn_dtype_highest(in->dtype)};
    for (int i = 1; i < 3; i++) {
        const hn_tensor *bound = hn_call_in(call, i);
        if (!bound) continue;
        if (hn_tensor_count(bound) != 1)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "a bound has %lld elements",
                         (long long)hn_tensor_count(bound));
        hn_cells_load(bound, 0, 0, 1, class, &bounds[i - 1]);
    }
    apply_unary(in, call->outputs[0], hn_scalar_unary(call->node->op, class), class, bounds[0],
                bounds[1]);
    return HONE_OK;
}

// Every input folded into the first: for two of them the op itself, for more Sum and its like.
static void fold_row(const hn_call *call, const hn_walk *walk, int64_t at, hn_binary_fn fn,
                     hn_class class, hn_cell a) {
    hn_cell acc[HN_CHUNK], other[HN_CHUNK];
    bool mean = call->node->op == HN_OP_MEAN;
    for (int64_t done = 0; done < walk->row; done += HN_CHUNK) {
        int count = (int)hn_min_i64(HN_CHUNK, walk->row - done);
        for (int i = 0; i < call->input_count; i++) {
            int64_t step = hn_walk_step(walk, i);
            hn_cells_load(call->inputs[i], walk->offsets[i] + done * step, step, count, class,
                          i ? other : acc);
            if (i) fn(acc, other, acc, count, a);
        }
        for (int k = 0; mean && k < count; k++)
            acc[k].f /= call->input_count;
        hn_cells_store(call->outputs[0], at + done, count, class, acc);
    }
}

hone_status hn_ref_binary(hone_error *err, const hn_call *call) {
    hn_class class = call->node->op == HN_OP_MEAN ? HN_CLASS_F
                                                  : hn_dtype_class(call->inputs[0]->dtype);
    for (int i = 0; i < call->input_count; i++) {
        const hn_tensor *in = call->inputs[i];
        if (!in) HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "input %d is absent", i);
        if (!hn_dtype_is_plain(in->dtype)) return no_form(err, call, in->dtype);
        if (hn_dtype_class(in->dtype) == HN_CLASS_F) class = HN_CLASS_F;
    }
    hn_binary_fn fn = hn_scalar_binary(call->node->op, class);
    if (!fn) return no_form(err, call, call->inputs[0]->dtype);
    double a, b;
    hn_scalar_params(call->node, &a, &b);
    hn_walk walk;
    HN_TRY(hn_walk_init(err, &call->outputs[0]->shape, call->inputs, call->input_count, &walk));
    for (int64_t at = 0; hn_walk_next(&walk); at += walk.row)
        fold_row(call, &walk, at, fn, class, hn_cell_from_f64(class, a));
    hn_walk_free(&walk);
    return HONE_OK;
}

static hone_status where_items(hone_error *err, const hn_call *call) {
    hn_tensor *out = call->outputs[0];
    size_t item = hn_item_bytes(out);
    hn_walk walk;
    HN_TRY(hn_walk_init(err, &out->shape, call->inputs, 3, &walk));
    char *to = out->data;
    while (hn_walk_next(&walk)) {
        const uint8_t *condition = call->inputs[0]->data;
        condition += walk.offsets[0];
        const char *from[2];
        int64_t steps[2];
        for (int i = 0; i < 2; i++) { // 0: where false
            steps[i] = hn_walk_step(&walk, 2 - i) * (int64_t)item;
            from[i] = (const char *)call->inputs[2 - i]->data + walk.offsets[2 - i] * (int64_t)item;
        }
        int64_t step = hn_walk_step(&walk, 0);
        for (int64_t k = 0; k < walk.row; k++, to += item) {
            int pick = condition[k * step] != 0;
            memcpy(to, from[pick] + k * steps[pick], item);
        }
    }
    hn_walk_free(&walk);
    return HONE_OK;
}
hone_status hn_ref_where(hone_error *err, const hn_call *call) {
    return hn_move_call(err, call, where_items);
}
