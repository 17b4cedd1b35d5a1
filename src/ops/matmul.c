// SPDX-License-Identifier: Apache-2.0
// Matrix products: MatMul, Gemm, MatMulInteger, Einsum, Det.
//
// Integer products wrap as two's complement (computed unsigned); floats accumulate in double.
#include <math.h>
#include "ops/nn_int.h"

// ---- MatMul shapes ------------------------------------------------------------------------------
// Numpy rules: 1-D operands are a row (left) or a column (right), whose dim is dropped again;
// leading dims broadcast.
hone_status hn_infer_matmul_at(hone_error *err, hn_infer *ctx, int left, int right,
                               hn_dtype dtype) {
    int a_rank, b_rank;
    HN_TRY(hn_expect_rank(err, ctx, left, 1, HN_MAX_RANK, &a_rank));
    HN_TRY(hn_expect_rank(err, ctx, right, 1, HN_MAX_RANK, &b_rank));
    if (a_rank < 0 || b_rank < 0) {
        hn_infer_set(ctx, 0, dtype, -1, NULL);
        return HONE_OK;
    }
    const hn_type *a = hn_in_type(ctx, left), *b = hn_in_type(ctx, right);
    hn_dim inner = b->dims[b_rank == 1 ? 0 : b_rank - 2];
    HN_TRY(hn_expect_same(err, ctx, "inner dims of the product", a->dims[a_rank - 1], inner, NULL));
    // The leading dims as types of their own, so that broadcasting is decided in one place.
    hn_value lead_a = {.type = {.rank = hn_max_i64(a_rank - 2, 0) }};
    hn_value lead_b = {.type = {.rank = hn_max_i64(b_rank - 2, 0) }};
    for (int i = 0; i < lead_a.type.rank; i++) lead_a.type.dims[i] = a->dims[i];
    for (int i = 0; i < lead_b.type.rank; i++) lead_b.type.dims[i] = b->dims[i];
    const hn_value *leads[] = {&lead_a, &lead_b};
    hn_dim dims[HN_MAX_RANK + 2];
    int rank;
    HN_TRY(hn_infer_broadcast(err, ctx, leads, 2, &rank, dims));
    if (a_rank > 1) dims[rank++] = a->dims[a_rank - 2];
    if (b_rank > 1) dims[rank++] = b->dims[b_rank - 1];
    hn_infer_set(ctx, 0, dtype, rank, dims);
    return HONE_OK;
}

HN_INFER_FN(hn_infer_matmul) {
    const hn_type *a = hn_in_type(ctx, 0), *b = hn_in_type(ctx, 1);
    hn_dtype dtype = a ? a->dtype : HN_NONE;
    if (a && b && a->dtype && b->dtype && a->dtype != b->dtype)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "operands of types %s and %s",
                     hn_dtype_name(a->dtype), hn_dtype_name(b->dtype));
    return hn_infer_matmul_at(err, ctx, 0, 1, dtype);
}
HN_INFER_FN(hn_infer_matmul_integer) {
    HN_TRY(hn_expect_8bit(err, ctx, 0));
    HN_TRY(hn_expect_8bit(err, ctx, 1));
    return hn_infer_matmul_at(err, ctx, 0, 1, HN_I32);
}
HN_INFER_FN(hn_infer_qlinear_matmul) {
    const hn_type *zero = hn_in_type(ctx, 7);
    HN_TRY(hn_expect_8bit(err, ctx, 0));
    HN_TRY(hn_expect_8bit(err, ctx, 3));
    return hn_infer_matmul_at(err, ctx, 0, 3, zero ? zero->dtype : HN_NONE);
}

bool hn_product_shape(hn_shape *a, hn_shape *b, bool trans_a, bool trans_b, int64_t *out_m, int64_t *out_k,
                      int64_t *out_n) {
    if (a->rank < 1 || b->rank < 1) return false;
    if (a->rank == 1) {
        a->dims[1] = a->dims[0];
        a->dims[0] = 1;
        a->rank = 2;
    }
    if (b->rank == 1) {
        b->dims[1] = 1;
        b->rank = 2;
    }
    *out_m = a->dims[a->rank - (trans_a ? 1 : 2)];
    *out_k = a->dims[a->rank - (trans_a ? 2 : 1)];
    *out_n = b->dims[b->rank - (trans_b ? 2 : 1)];
    return b->dims[b->rank - (trans_b ? 1 : 2)] == *out_k;
}

void hn_matmul_plan_make(const hn_tensor *a, const hn_tensor *b, hn_matmul_plan *out_plan) {
    hn_matmul_plan plan = {.rows = 1, .columns = 1, .batches = 1};
    const hn_shape *sa = &a->shape, *sb = &b->shape;
    plan.inner = sa->dims[sa->rank - 1];
    if (sa->rank > 1) plan.rows = sa->dims[sa->rank - 2];
    if (sb->rank > 1) plan.columns = sb->dims[sb->rank - 1];
    int lead_a = sa->rank > 2 ? sa->rank - 2 : 0, lead_b = sb->rank > 2 ? sb->rank - 2 : 0;
    plan.lead = lead_a > lead_b ? lead_a : lead_b;
    int64_t step_a = 1, step_b = 1;
    for (int i = plan.lead - 1; i >= 0; i--) {
        int ia = i - (plan.lead - lead_a), ib = i - (plan.lead - lead_b);
        int64_t da = ia < 0 ? 1 : sa->dims[ia], db = ib < 0 ? 1 : sb->dims[ib];
        plan.dims[i] = da == 1 ? db : da;
        plan.step_a[i] = da == 1 ? 0 : step_a;
        plan.step_b[i] = db == 1 ? 0 : step_b;
        step_a *= da;
        step_b *= db;
        plan.batches *= plan.dims[i];
    }
    *out_plan = plan;
}

void hn_matmul_plan_at(const hn_matmul_plan *plan, int64_t batch, int64_t *out_a, int64_t *out_b) {
    int64_t a = 0, b = 0;
    for (int i = plan->lead - 1; i >= 0; i--) {
        a += batch % plan->dims[i] * plan->step_a[i];
        b += batch % plan->dims[i] * plan->step_b[i];
        batch /= plan->dims[i];
    }
    *out_a = a;
    *out_b = b;
}

// c[rows][columns] += a[rows][inner] b[inner][columns]
static void product_f64(const double *a, const double *b, double *c, int64_t rows, int64_t inner,
                        int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < inner; k++) {
            double value = a[i * inner + k];
            for (int64_t j = 0; j < columns; j++) c[i * columns + j] += value * b[k * columns + j];
        }
}

static void product_i64(const int64_t *a, const int64_t *b, int64_t *c, int64_t rows, int64_t inner,
                        int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < inner; k++) {
            uint64_t value = (uint64_t)a[i * inner + k];
            for (int64_t j = 0; j < columns; j++)
                c[i * columns + j] = (int64_t)((uint64_t)c[i * columns + j] +
                                               value * (uint64_t)b[k * columns + j]);
        }
}

static hone_status matmul_f64(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *ta = hn_call_in(call, 0), *tb = hn_call_in(call, 1);
    hn_tensor *ty = hn_call_out(call, 0);
    const double *a, *b;
    double *y;
    hn_matmul_plan plan;
    hn_matmul_plan_make(ta, tb, &plan);
    HN_TRY(hn_load_f64(err, scratch, ta, &a));
    HN_TRY(hn_load_f64(err, scratch, tb, &b));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    for (int64_t i = 0; i < plan.batches; i++) {
        int64_t at_a, at_b;
        hn_matmul_plan_at(&plan, i, &at_a, &at_b);
        product_f64(a + at_a * plan.rows * plan.inner, b + at_b * plan.inner * plan.columns,
                    y + i * plan.rows * plan.columns, plan.rows, plan.inner, plan.columns);
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}

// a and b are the operands as integers, zero points already taken off.
static hone_status matmul_i64(hone_error *err, const hn_call *call, hn_arena *scratch,
                              const hn_tensor *ta, const hn_tensor *tb, const int64_t *a,
                              const int64_t *b) {
    hn_tensor *ty = hn_call_out(call, 0);
    int64_t *y;
    hn_matmul_plan plan;
    hn_matmul_plan_make(ta, tb, &plan);
    HN_TRY(hn_scratch_i64(err, scratch, hn_tensor_count(ty), &y));
    for (int64_t i = 0; i < plan.batches; i++) {
        int64_t at_a, at_b;
        hn_matmul_plan_at(&plan, i, &at_a, &at_b);
        product_i64(a + at_a * plan.rows * plan.inner, b + at_b * plan.inner * plan.columns,
                    y + i * plan.rows * plan.columns, plan.rows, plan.inner, plan.columns);
    }
    hn_store_i64(ty, y);
    return HONE_OK;
}

static hone_status matmul_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *ta = hn_call_in(call, 0), *tb = hn_call_in(call, 1);
    if (hn_dtype_is_float(ta->dtype)) return matmul_f64(err, call, scratch);
    const int64_t *a, *b;
    HN_TRY(hn_load_i64(err, scratch, ta, &a));
    HN_TRY(hn_load_i64(err, scratch, tb, &b));
    return matmul_i64(err, call, scratch, ta, tb, a, b);
}
HN_REF_FN(hn_ref_matmul) { return hn_ref_scratch(err, call, matmul_body); }

// Zero points and scales of a left operand go by row, of a right one by column: one value, a vector,
// or one vector a matrix of the batch. Index of the value for element `i` of the operand.
hone_status hn_matmul_param_check(hone_error *err, const hn_node *node, const hn_tensor *operand,
                                  const hn_tensor *param, bool by_row) {
    if (!param) return HONE_OK;
    int64_t count = hn_tensor_count(param), total = hn_tensor_count(operand);
    int rank = operand->shape.rank;
    int64_t rows = rank > 1 ? operand->shape.dims[rank - 2] : 1;
    int64_t columns = operand->shape.dims[rank - 1];
    if (!by_row && rank == 1) { // a column vector
        rows = columns;
        columns = 1;
    }
    int64_t line = by_row ? rows : columns;
    int64_t matrices = rows > 0 && columns > 0 ? total / (rows * columns) : 0;
    if (count != 1 && count != line && count != matrices * line)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "%lld scales or zero points for %lld %s",
                     (long long)count, (long long)line, by_row ? "rows" : "columns");
    return HONE_OK;
}

int64_t hn_matmul_param_at(const hn_tensor *operand, const hn_tensor *param, bool by_row,
                           int64_t i) {
    int64_t count = hn_tensor_count(param);
    if (count == 1) return 0;
    int rank = operand->shape.rank;
    int64_t rows = rank > 1 ? operand->shape.dims[rank - 2] : 1;
    int64_t columns = operand->shape.dims[rank - 1];
    if (!by_row && rank == 1) {
        rows = columns;
        columns = 1;
    }
    int64_t line = by_row ? i / columns % rows : i % columns;
    int64_t length = by_row ? rows : columns;
    return count == length ? line : i / (rows * columns) * length + line;
}

static hone_status load_centred(hone_error *err, const hn_call *call, hn_arena *scratch,
                                const hn_tensor *operand, const hn_tensor *zero, bool by_row,
                                const int64_t **out_values) {
    const int64_t *values, *zeros;
    HN_TRY(hn_matmul_param_check(err, call->node, operand, zero, by_row));
    HN_TRY(hn_load_i64(err, scratch, operand, &values));
    HN_TRY(hn_load_i64(err, scratch, zero, &zeros));
    int64_t *centred = (int64_t *)(uintptr_t)values; // our own copy
    for (int64_t i = 0; zero && i < hn_tensor_count(operand); i++)
        centred[i] -= zeros[hn_matmul_param_at(operand, zero, by_row, i)];
    *out_values = centred;
    return HONE_OK;
}

static hone_status matmul_integer_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *ta = hn_call_in(call, 0), *tb = hn_call_in(call, 1);
    const int64_t *a, *b;
    HN_TRY(load_centred(err, call, scratch, ta, hn_call_in(call, 2), true, &a));
    HN_TRY(load_centred(err, call, scratch, tb, hn_call_in(call, 3), false, &b));
    return matmul_i64(err, call, scratch, ta, tb, a, b);
}
HN_REF_FN(hn_ref_matmul_integer) { return hn_ref_scratch(err, call, matmul_integer_body); }

// ---- Gemm ---------------------------------------------------------------------------------------
HN_INFER_FN(hn_infer_gemm) {
    int a_rank, b_rank, c_rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 2, 2, &a_rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 2, 2, &b_rank));
    HN_TRY(hn_expect_rank(err, ctx, 2, 0, 2, &c_rank));
    const hn_type *a = hn_in_type(ctx, 0), *b = hn_in_type(ctx, 1), *c = hn_in_type(ctx, 2);
    if (a_rank < 0 || b_rank < 0) {
        hn_infer_set(ctx, 0, a ? a->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    int ta = hn_op_int(ctx->node, "transA") != 0, tb = hn_op_int(ctx->node, "transB") != 0;
    hn_dim dims[2] = {a->dims[ta], b->dims[1 - tb]};
    HN_TRY(hn_expect_same(err, ctx, "inner dims of the product", a->dims[1 - ta], b->dims[tb],
                          NULL));
    for (int i = 0; i < c_rank; i++) {
        hn_dim dim = c->dims[i];
        if (dim == 1) continue;
        HN_TRY(hn_expect_same(err, ctx, "dims of C and the product", dim, dims[2 - c_rank + i],
                              NULL));
    }
    hn_infer_set(ctx, 0, a->dtype, 2, dims);
    return HONE_OK;
}

// Element (i, j) of C broadcast to the product's shape; flat index.
static int64_t gemm_c_index(const hn_shape *c, int64_t i, int64_t j) {
    int64_t columns = c->rank > 0 ? c->dims[c->rank - 1] : 1, rows = c->rank > 1 ? c->dims[0] : 1;
    return (rows == 1 ? 0 : i) * columns + (columns == 1 ? 0 : j);
}

static hone_status gemm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *ta = hn_call_in(call, 0), *tb = hn_call_in(call, 1), *tc = hn_call_in(call, 2);
    hn_tensor *ty = hn_call_out(call, 0);
    bool trans_a = hn_op_int(call->node, "transA") != 0, trans_b = hn_op_int(call->node, "transB") != 0;
    double alpha = (double)hn_op_float(call->node, "alpha");
    double beta = (double)hn_op_float(call->node, "beta");
    int64_t rows = ty->shape.dims[0], columns = ty->shape.dims[1];
    int64_t inner = ta->shape.dims[trans_a ? 0 : 1];
    int64_t row_a = trans_a ? 1 : inner, step_a = trans_a ? rows : 1;
    int64_t column_b = trans_b ? inner : 1, step_b = trans_b ? 1 : columns;
    if (!hn_dtype_is_float(ta->dtype) && alpha == 1 && beta == 1) { // exact, wrapping
        const int64_t *a, *b, *c;
        int64_t *y;
        HN_TRY(hn_load_i64(err, scratch, ta, &a));
        HN_TRY(hn_load_i64(err, scratch, tb, &b));
        HN_TRY(hn_load_i64(err, scratch, tc, &c));
        HN_TRY(hn_scratch_i64(err, scratch, rows * columns, &y));
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                uint64_t sum = c ? (uint64_t)c[gemm_c_index(&tc->shape, i, j)] : 0;
                for (int64_t k = 0; k < inner; k++)
                    sum += (uint64_t)a[i * row_a + k * step_a] *
                           (uint64_t)b[j * column_b + k * step_b];
                y[i * columns + j] = (int64_t)sum;
            }
        hn_store_i64(ty, y);
        return HONE_OK;
    }
    const double *a, *b, *c;
    double *y;
    HN_TRY(hn_load_f64(err, scratch, ta, &a));
    HN_TRY(hn_load_f64(err, scratch, tb, &b));
    HN_TRY(hn_load_f64(err, scratch, tc, &c));
    HN_TRY(hn_scratch_f64(err, scratch, rows * columns, &y));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += a[i * row_a + k * step_a] * b[j * column_b + k * step_b];
            // beta 0 means that C is not read: its NaN does not pass.
            y[i * columns + j] =
                alpha * sum + (c && beta != 0 ? beta * c[gemm_c_index(&tc->shape, i, j)] : 0);
        }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_gemm) { return hn_ref_scratch(err, call, gemm_body); }

// ---- Det ----------------------------------------------------------------------------------------
HN_INFER_FN(hn_infer_det) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 2, HN_MAX_RANK, &rank));
    const hn_type *x = hn_in_type(ctx, 0);
    if (rank < 0) {
        hn_infer_set(ctx, 0, x ? x->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    HN_TRY(hn_expect_same(err, ctx, "sides of the matrix", x->dims[rank - 1], x->dims[rank - 2],
                          NULL));
    hn_infer_set(ctx, 0, x->dtype, rank - 2, x->dims);
    return HONE_OK;
}

// Elimination with partial pivoting; destroys m.
static double determinant(double *m, int64_t n) {
    double det = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(m[i * n + k]) > fabs(m[pivot * n + k])) pivot = i;
        if (m[pivot * n + k] == 0) return 0;
        for (int64_t j = 0; pivot != k && j < n; j++) {
            double swap = m[k * n + j];
            m[k * n + j] = m[pivot * n + j];
            m[pivot * n + j] = swap;
        }
        det *= pivot != k ? -m[k * n + k] : m[k * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            double factor = m[i * n + k] / m[k * n + k];
            for (int64_t j = k; j < n; j++) m[i * n + j] -= factor * m[k * n + j];
        }
    }
    return det;
}

static hone_status det_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0);
    hn_tensor *ty = hn_call_out(call, 0);
    int64_t n = tx->shape.dims[tx->shape.rank - 1], count = hn_tensor_count(ty);
    const double *x;
    double *y, *m;
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_scratch_f64(err, scratch, count, &y));
    HN_TRY(hn_scratch_f64(err, scratch, n * n, &m));
    for (int64_t i = 0; i < count; i++) {
        if (n > 0) memcpy(m, x + i * n * n, sizeof *m * (size_t)(n * n));
        y[i] = determinant(m, n);
    }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_det) { return hn_ref_scratch(err, call, det_body); }

// ---- cost ---------------------------------------------------------------------------------------
HN_COST_FN(hn_cost_matmul) { // Gemm and its integer forms too
    const hn_value *a = hn_in(node, 0), *y = hn_out(node, 0);
    if (!a || !y || a->type.rank < 1) return;
    double flops = 2;
    for (int i = 0; i < y->type.rank; i++) flops *= (double)y->type.dims[i];
    int inner = hn_node_int(node, "transA", 0) != 0 ? 0 : a->type.rank - 1;
    out_cost->flops = flops * (double)a->type.dims[inner];
}
HN_COST_FN(hn_cost_det) {
    const hn_value *x = hn_in(node, 0);
    if (!x || x->type.rank < 2) return;
    double flops = 2.0 / 3 * (double)x->type.dims[x->type.rank - 1];
    for (int i = 0; i < x->type.rank; i++) flops *= (double)x->type.dims[i];
    out_cost->flops = flops;
}
