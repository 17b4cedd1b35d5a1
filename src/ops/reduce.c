// SPDX-License-Identifier: Apache-2.0
// Reductions, ArgMax and ArgMin, TopK, CumSum and CumProd.
//
// Sums run in double or in exact 64-bit integers, in index order. Reductions over nothing give their
// neutral element; NaN wins in Max, Min, ArgMax and ArgMin, as in numpy.
#include "ops/reduce.h"
#include <math.h>
#include <stdlib.h>
#include "ops/move.h"

// ---- inference ----------------------------------------------------------------------------------
// Which dims go: a mask; *out_known false when the axes are not known yet.
static hn_status reduce_mask(hone_error *err, hn_infer *ctx, int rank, uint32_t *out_mask,
                             bool *out_known) {
    const hn_value *axes = hn_in(ctx->node, 1);
    int64_t list[HN_MAX_RANK];
    int count = 0;
    uint32_t mask = 0;
    *out_known = !axes || hn_infer_ints(ctx, axes, list, HN_MAX_RANK, &count);
    if (!*out_known) return HONE_OK;
    for (int i = 0; i < count; i++) {
        int axis;
        HN_TRY(hn_infer_axis(err, ctx, list[i], rank, &axis));
        if (mask >> axis & 1) HN_BAD_NODE(err, ctx->node, "axis %d is given twice", axis);
        mask |= 1u << axis;
    }
    if (!count && !hn_op_int(ctx->node, "noop_with_empty_axes")) mask = (1u << rank) - 1;
    *out_mask = mask;
    return HONE_OK;
}

static void reduce_elems(hn_infer *ctx) {
    int count;
    const hn_dim *elems = hn_infer_elems(ctx, ctx->node->inputs[0], &count);
    hn_op op = ctx->node->op;
    if (!elems || hn_dtype_is_float(ctx->node->inputs[0]->type.dtype)) return;
    bool product = op == HN_OP_REDUCE_PROD;
    if (!count && !product && op != HN_OP_REDUCE_SUM) return;
    hn_dim result = count && !product ? elems[0] : product;
    for (int i = product ? 0 : 1; i < count; i++) {
        if (product) result = hn_dim_mul(ctx->dims, result, elems[i]);
        else if (op == HN_OP_REDUCE_SUM) result = hn_dim_add(ctx->dims, result, elems[i]);
        else if (op == HN_OP_REDUCE_MAX) result = hn_dim_max(ctx->dims, result, elems[i]);
        else if (op == HN_OP_REDUCE_MIN) result = hn_dim_min(ctx->dims, result, elems[i]);
        else return;
    }
    hn_infer_set_elems(ctx, 0, &result, 1);
}

hone_status hn_infer_reduce(hone_error *err, hn_infer *ctx) {
    const hn_node *node = ctx->node;
    const hn_type *type = &node->inputs[0]->type;
    bool keep = hn_op_int(node, "keepdims") != 0, known;
    hn_dim dims[HN_MAX_RANK];
    uint32_t mask = 0;
    int rank = 0;
    if (type->rank < 0) {
        hn_infer_unknown(ctx, 0, type->dtype, -1);
        return HONE_OK;
    }
    HN_TRY(reduce_mask(err, ctx, type->rank, &mask, &known));
    if (!known) {
        const hn_type *axes = &node->inputs[1]->type;
        bool counted = axes->rank == 1 && hn_dim_is_const(axes->dims[0]) && axes->dims[0] > 0 &&
                       axes->dims[0] <= type->rank;
        int left = counted ? type->rank - (int)axes->dims[0] : -1;
        hn_infer_unknown(ctx, 0, type->dtype, keep ? type->rank : left);
        return HONE_OK;
    }
    for (int d = 0; d < type->rank; d++)
        if (!(mask >> d & 1)) dims[rank++] = type->dims[d];
        else if (keep) dims[rank++] = 1;
    hn_infer_set(ctx, 0, type->dtype, rank, dims);
    if (type->rank == 1 && mask) reduce_elems(ctx);
    return HONE_OK;
}

void hn_cost_reduce(const hn_node *node, hn_cost *out_cost) {
    hn_shape shape;
    int64_t count = 0;
    if (hn_type_shape(&node->inputs[0]->type, &shape)) (void)hn_shape_count(&shape, &count);
    out_cost->flops = (double)count; // one addition an element read; bytes are the default's
}

// ---- Reduce* ------------------------------------------------------------------------------------
typedef enum { SUM, MEAN, PRODUCT, LARGEST, SMALLEST, ABS_SUM, SQUARES, NORM, LOG_SUM, LOG_SUM_EXP } reduce_kind;

static const struct {
    hn_op op;
    reduce_kind kind;
    bool in_double; // integers too: the result is not an integer
} k_reduce[] = {
    {HN_OP_REDUCE_L1, ABS_SUM, false},
    {HN_OP_REDUCE_L2, NORM, true},
    {HN_OP_REDUCE_LOG_SUM, LOG_SUM, true},
    {HN_OP_REDUCE_LOG_SUM_EXP, LOG_SUM_EXP, true},
    {HN_OP_REDUCE_MAX, LARGEST, false},
    {HN_OP_REDUCE_MEAN, MEAN, false},
    {HN_OP_REDUCE_MIN, SMALLEST, false},
    {HN_OP_REDUCE_PROD, PRODUCT, false},
    {HN_OP_REDUCE_SUM, SUM, false},
    {HN_OP_REDUCE_SUM_SQUARE, SQUARES, false},
};

typedef struct reduce_state {
    reduce_kind kind;
    hn_class class;
    hn_cell acc;
    double top; // LOG_SUM_EXP: acc is the sum of exp(x - top)
} reduce_state;

static void reduce_start(reduce_state *s, hn_dtype dtype) {
    s->acc = (hn_cell){0};
    s->top = -INFINITY;
    if (s->kind == PRODUCT) s->acc = hn_cell_from_f64(s->class, 1);
    if (s->kind == LARGEST) s->acc = hn_dtype_lowest(dtype);
    if (s->kind == SMALLEST) s->acc = hn_dtype_highest(dtype);
}

static void add_exponential(reduce_state *s, double x) {
    if (x == -INFINITY) return;
    if (x > s->top) {
        s->acc.f = s->acc.f * (s->top == -INFINITY ? 0 : exp(s->top - x)) + 1;
        s->top = x;
    } else {
        s->acc.f += x == s->top ? 1 : exp(x - s->top); // NaN ends here and stays
    }
}

static void reduce_floats(reduce_state *s, const hn_cell *x, int count) {
    for (int k = 0; k < count; k++) {
        double v = x[k].f, *acc = &s->acc.f;
        switch (s->kind) {
        case PRODUCT: *acc *= v; break;
        case LARGEST: *acc = v > *acc || v != v ? v : *acc; break;
        case SMALLEST: *acc = v < *acc || v != v ? v : *acc; break;
        case ABS_SUM: *acc += fabs(v); break;
        case SQUARES:
        case NORM: *acc += v * v; break;
        case LOG_SUM_EXP: add_exponential(s, v); break;
        default: *acc += v;
        }
    }
}

static void reduce_integers(reduce_state *s, const hn_cell *x, int count) {
    bool is_signed = s->class == HN_CLASS_I;
    for (int k = 0; k < count; k++) {
        uint64_t v = x[k].u, *acc = &s->acc.u;
        bool less = is_signed ? x[k].i < s->acc.i : v < *acc;
        switch (s->kind) {
        case PRODUCT: *acc *= v; break;
        case LARGEST: *acc = less ? *acc : v; break;
        case SMALLEST: *acc = less ? v : *acc; break;
        case ABS_SUM: *acc += is_signed && x[k].i < 0 ? 0 - v : v; break;
        case SQUARES: *acc += v * v; break;
        default: *acc += v;
        }
    }
}

static hn_cell reduce_finish(const reduce_state *s, int64_t count) {
    hn_cell acc = s->acc;
    switch (s->kind) {
    case MEAN:
        if (s->class == HN_CLASS_F) acc.f /= (double)count;
        else if (s->class == HN_CLASS_I) acc.i = count ? acc.i / count : 0;
        else acc.u = count ? acc.u / (uint64_t)count : 0;
        break;
    case NORM: acc.f = sqrt(acc.f); break;
    case LOG_SUM: acc.f = log(acc.f); break;
    case LOG_SUM_EXP: acc.f = s->top == -INFINITY && acc.f == 0 ? -INFINITY : s->top + log(acc.f); break;
    default: break;
    }
    return acc;
}

// The dims that stay and those that go, with their steps in the input.
typedef struct reduce_plan {
    int kept, gone;
    int64_t kept_dims[HN_MAX_RANK], kept_steps[HN_MAX_RANK];
    int64_t gone_dims[HN_MAX_RANK], gone_steps[HN_MAX_RANK];
    int64_t gone_count;
} reduce_plan;

static void plan_reduction(const hn_shape *shape, uint32_t mask, reduce_plan *p) {
    int64_t strides[HN_MAX_RANK];
    hn_strides(shape, strides);
    *p = (reduce_plan){.gone_count = 1};
    for (int d = 0; d < shape->rank; d++) {
        bool go = mask >> d & 1;
        int at = go ? p->gone++ : p->kept++;
        (go ? p->gone_dims : p->kept_dims)[at] = shape->dims[d];
        (go ? p->gone_steps : p->kept_steps)[at] = strides[d];
        if (go) p->gone_count = (int64_t)((uint64_t)p->gone_count * (uint64_t)shape->dims[d]);
    }
}

static int64_t place(const int64_t *index, const int64_t *steps, int rank) {
    int64_t offset = 0;
    for (int d = 0; d < rank; d++)
        offset += index[d] * steps[d];
    return offset;
}

static void reduce_one(reduce_state *s, const hn_tensor *in, const reduce_plan *p, int64_t base) {
    int64_t index[HN_MAX_RANK] = {0};
    int outer = p->gone ? p->gone - 1 : 0;
    int64_t row = p->gone ? p->gone_dims[outer] : 1, step = p->gone ? p->gone_steps[outer] : 0;
    hn_cell cells[HN_CHUNK];
    if (!p->gone_count) return;
    do {
        int64_t start = base + place(index, p->gone_steps, outer);
        for (int64_t done = 0; done < row; done += HN_CHUNK) {
            int count = (int)hn_min_i64(HN_CHUNK, row - done);
            hn_cells_load(in, start + done * step, step, count, s->class, cells);
            if (s->class == HN_CLASS_F) reduce_floats(s, cells, count);
            else reduce_integers(s, cells, count);
        }
    } while (hn_index_next(index, p->gone_dims, outer));
}

static hn_status call_mask(hone_error *err, const hn_call *call, uint32_t *out_mask) {
    const hn_tensor *axes = hn_call_in(call, 1);
    int rank = call->inputs[0]->shape.rank;
    int64_t count = axes ? hn_tensor_count(axes) : 0;
    *out_mask = !count && !hn_op_int(call->node, "noop_with_empty_axes") ? (1u << rank) - 1 : 0;
    for (int64_t i = 0; i < count; i++) {
        int axis;
        HN_TRY(hn_call_axis(err, call, hn_tensor_get_i64(axes, i), rank, &axis));
        *out_mask |= 1u << axis;
    }
    return HONE_OK;
}

hone_status hn_ref_reduce(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    uint32_t mask;
    reduce_plan plan;
    size_t row = 0;
    while (row < HN_COUNT_OF(k_reduce) - 1 && k_reduce[row].op != call->node->op)
        row++;
    if (!hn_dtype_is_plain(in->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                     hn_dtype_name(in->dtype));
    HN_TRY(call_mask(err, call, &mask));
    plan_reduction(&in->shape, mask, &plan);
    reduce_state state = {.kind = k_reduce[row].kind,
                          .class = k_reduce[row].in_double ? HN_CLASS_F : hn_dtype_class(in->dtype)};
    int64_t index[HN_MAX_RANK] = {0}, total = hn_tensor_count(out);
    for (int64_t at = 0; at < total; at++) {
        reduce_start(&state, in->dtype);
        reduce_one(&state, in, &plan, place(index, plan.kept_steps, plan.kept));
        hn_cell result = reduce_finish(&state, plan.gone_count);
        hn_cells_store(out, at, 1, state.class, &result);
        (void)hn_index_next(index, plan.kept_dims, plan.kept);
    }
    return HONE_OK;
}

// ---- ArgMax, ArgMin -----------------------------------------------------------------------------
hone_status hn_infer_arg_extreme(hone_error *err, hn_infer *ctx) {
    const hn_type *type = &ctx->node->inputs[0]->type;
    bool keep = hn_op_int(ctx->node, "keepdims") != 0;
    hn_dim dims[HN_MAX_RANK];
    int axis, rank = 0;
    if (type->rank < 0) {
        hn_infer_unknown(ctx, 0, HN_I64, -1);
        return HONE_OK;
    }
    HN_TRY(hn_infer_axis(err, ctx, hn_op_int(ctx->node, "axis"), type->rank, &axis));
    for (int d = 0; d < type->rank; d++)
        if (d != axis) dims[rank++] = type->dims[d];
        else if (keep) dims[rank++] = 1;
    hn_infer_set(ctx, 0, HN_I64, rank, dims);
    return HONE_OK;
}

// Does b come before a: strictly larger (or smaller), NaN before every number.
static bool beats(hn_class class, bool largest, hn_cell b, hn_cell a) {
    if (class == HN_CLASS_I) return largest ? b.i > a.i : b.i < a.i;
    if (class == HN_CLASS_U) return largest ? b.u > a.u : b.u < a.u;
    if (a.f != a.f || b.f != b.f) return b.f != b.f && a.f == a.f;
    return largest ? b.f > a.f : b.f < a.f;
}

hone_status hn_ref_arg_extreme(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    int axis;
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), in->shape.rank, &axis));
    bool last = hn_op_int(call->node, "select_last_index") != 0;
    bool largest = call->node->op == HN_OP_ARG_MAX;
    hn_class class = hn_dtype_class(in->dtype);
    int64_t dim = in->shape.dims[axis], inner = hn_span(&in->shape, axis + 1, in->shape.rank);
    int64_t total = hn_tensor_count(call->outputs[0]), *out = call->outputs[0]->data;
    if (total && !dim) HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "axis %d is empty", axis);
    if (!hn_dtype_is_plain(in->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                     hn_dtype_name(in->dtype));
    for (int64_t at = 0; at < total; at++) {
        int64_t start = at / inner * dim * inner + at % inner, best = 0;
        hn_cell top, cell;
        hn_cells_load(in, start, 0, 1, class, &top);
        for (int64_t i = 1; i < dim; i++) {
            hn_cells_load(in, start + i * inner, 0, 1, class, &cell);
            if (beats(class, largest, cell, top) || (last && !beats(class, largest, top, cell))) {
                top = cell;
                best = i;
            }
        }
        out[at] = best;
    }
    return HONE_OK;
}

// ---- TopK ---------------------------------------------------------------------------------------
hone_status hn_infer_top_k(hone_error *err, hn_infer *ctx) {
    hn_type type = ctx->node->inputs[0]->type;
    int axis, count;
    if (type.rank >= 0) {
        HN_TRY(hn_infer_axis(err, ctx, hn_op_int(ctx->node, "axis"), type.rank, &axis));
        const hn_dim *k = hn_infer_elems(ctx, ctx->node->inputs[1], &count);
        hn_dim dim = type.dims[axis];
        if (k && count == 1 && hn_dim_is_const(*k) && (*k < 0 || (hn_dim_is_const(dim) && *k > dim)))
            HN_BAD_NODE(err, ctx->node, "k is %lld for an axis of %lld", (long long)*k,
                        (long long)(hn_dim_is_const(dim) ? dim : -1));
        type.dims[axis] = k && count == 1 ? *k : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    }
    hn_infer_set(ctx, 0, type.dtype, type.rank, type.dims);
    hn_infer_set(ctx, 1, HN_I64, type.rank, type.dims);
    return HONE_OK;
}

typedef struct top_item {
    hn_cell cell;
    int64_t index;
} top_item;
typedef struct top_order {
    hn_class class;
    bool largest;
} top_order;

// Equal values keep the lower index first.
static int compare_top(const void *left, const void *right, void *user) {
    const top_item *a = left, *b = right;
    const top_order *order = user;
    if (beats(order->class, order->largest, a->cell, b->cell)) return -1;
    if (beats(order->class, order->largest, b->cell, a->cell)) return 1;
    return (a->index > b->index) - (a->index < b->index);
}

hone_status hn_ref_top_k(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *values = hn_call_out(call, 0), *indices = hn_call_out(call, 1);
    const hn_tensor *any = values ? values : indices;
    int axis;
    if (!any) return HONE_OK;
    HN_TRY(hn_call_axis(err, call, hn_op_int(call->node, "axis"), in->shape.rank, &axis));
    int64_t dim = in->shape.dims[axis], k = any->shape.dims[axis];
    int64_t inner = hn_span(&in->shape, axis + 1, in->shape.rank);
    if (!hn_dtype_is_plain(in->dtype))
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "the operator does not take %s",
                     hn_dtype_name(in->dtype));
    if (k > dim)
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "k is %lld for an axis of %lld", (long long)k,
                     (long long)dim);
    if (!hn_tensor_count(any)) return HONE_OK;
    top_order order = {hn_dtype_class(in->dtype), hn_op_int(call->node, "largest") != 0};
    top_item *items = hn_realloc_array(NULL, (size_t)dim, sizeof *items);
    if (!items) HN_NOMEM(err, "TopK");
    int64_t lines = hn_tensor_count(any) / k;
    for (int64_t line = 0; line < lines; line++) {
        int64_t from = line / inner * dim * inner + line % inner;
        int64_t to = line / inner * k * inner + line % inner;
        for (int64_t i = 0; i < dim; i++) {
            items[i].index = i;
            hn_cells_load(in, from + i * inner, 0, 1, order.class, &items[i].cell);
        }
        qsort_r(items, (size_t)dim, sizeof *items, compare_top, &order);
        for (int64_t i = 0; i < k; i++) {
            if (values) hn_cells_store(values, to + i * inner, 1, order.class, &items[i].cell);
            if (indices) ((int64_t *)indices->data)[to + i * inner] = items[i].index;
        }
    }
    hn_free(items);
    return HONE_OK;
}

// ---- CumSum, CumProd ----------------------------------------------------------------------------
hone_status hn_infer_cumulative(hone_error *err, hn_infer *ctx) {
    const hn_value *in = ctx->node->inputs[0];
    int64_t axis;
    int count, checked;
    if (in->type.rank >= 0 && hn_infer_ints(ctx, ctx->node->inputs[1], &axis, 1, &count) && count == 1)
        HN_TRY(hn_infer_axis(err, ctx, axis, in->type.rank, &checked));
    hn_infer_like(ctx, 0, in);
    return HONE_OK;
}

hone_status hn_ref_cumulative(hone_error *err, const hn_call *call) {
    const hn_tensor *in = call->inputs[0];
    hn_tensor *out = call->outputs[0];
    int axis;
    if (hn_tensor_count(call->inputs[1]) != 1 || !hn_dtype_is_plain(in->dtype))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "the axis is not one number, or %s is not a number",
                     hn_dtype_name(in->dtype));
    HN_TRY(hn_call_axis(err, call, hn_tensor_get_i64(call->inputs[1], 0), in->shape.rank, &axis));
    bool exclusive = hn_op_int(call->node, "exclusive") != 0;
    bool reverse = hn_op_int(call->node, "reverse") != 0;
    bool product = call->node->op == HN_OP_CUM_PROD;
    hn_class class = hn_dtype_class(in->dtype);
    int64_t dim = in->shape.dims[axis], inner = hn_span(&in->shape, axis + 1, in->shape.rank);
    int64_t lines = dim ? hn_tensor_count(in) / dim : 0;
    for (int64_t line = 0; line < lines; line++) {
        hn_cell acc = hn_cell_from_f64(class, product), x;
        for (int64_t i = 0; i < dim; i++) {
            int64_t at = line / inner * dim * inner + line % inner;
            at += (reverse ? dim - 1 - i : i) * inner;
            hn_cells_load(in, at, 0, 1, class, &x);
            if (exclusive) hn_cells_store(out, at, 1, class, &acc);
            if (class == HN_CLASS_F) acc.f = product ? acc.f * x.f : acc.f + x.f;
            else acc.u = product ? acc.u * x.u : acc.u + x.u;
            if (!exclusive) hn_cells_store(out, at, 1, class, &acc);
        }
    }
    return HONE_OK;
}
