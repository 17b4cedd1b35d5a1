// SPDX-License-Identifier: Apache-2.0
// What device graphs make of decomposed attention: hn.Attention and hn.RotateHalf.
//
// hn.Attention(q, k, v, [mask]): softmax(scale * q k^T + mask) v for each head. The bits of `packed` say
// how each operand lies: clear [B, heads, length, size], set [B, length, heads, size] (1: q, 2: k,
// 4: v, 8: the output). Rank 3 is one head, [B, length, size]. Fewer heads of k and v than of q are
// shared by groups. mask is float32 and broadcasts to [B, heads, queries, keys].
// empty_rows says what a row of weights without a number becomes: 0: it stays NaN; 1: zeros, as graphs
// say it by Where(IsNaN(w), 0, w); 2: zeros where -inf masks every key, else NaN stays.
//
// hn.RotateHalf(x, cos, sin): x * cos + turned(x) * sin, where turned swaps the halves of the last dim
// and negates the first: rotary embedding as exporters write it. cos and sin broadcast to x.
#include <math.h>
#include "ops/nn_int.h"

enum { PACK_Q = 1, PACK_K = 2, PACK_V = 4, PACK_Y = 8 };

typedef struct side {
    hn_dim batch, heads, length, size;
} side;

static bool side_of(const hn_type *type, bool packed, side *out) {
    const hn_dim *d = type->dims;
    if (type->rank == 3) *out = (side){d[0], 1, d[1], d[2]};
    else if (type->rank == 4 && packed) *out = (side){d[0], d[2], d[1], d[3]};
    else if (type->rank == 4) *out = (side){d[0], d[1], d[2], d[3]};
    else return false;
    return true;
}

hone_status hn_infer_attention_step(hone_error *err, hn_infer *ctx) {
    int64_t packed = hn_op_int(ctx->node, "packed");
    side s[3];
    int rank[3];
    for (int i = 0; i < 3; i++)
        HN_TRY(hn_expect_rank(err, ctx, i, 3, 4, &rank[i]));
    hn_infer_set(ctx, 0, HN_F32, -1, NULL);
    for (int i = 0; i < 3; i++)
        if (rank[i] < 0 || !side_of(hn_in_type(ctx, i), packed >> i & 1, &s[i])) return HONE_OK;
    if (rank[0] != rank[1] || rank[1] != rank[2])
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "query, key, value have ranks %d, %d, %d", rank[0],
                     rank[1], rank[2]);
    HN_TRY(hn_expect_same(err, ctx, "batch of query and key", s[0].batch, s[1].batch, NULL));
    HN_TRY(hn_expect_same(err, ctx, "batch of query and value", s[0].batch, s[2].batch, NULL));
    HN_TRY(hn_expect_same(err, ctx, "head size of query and key", s[0].size, s[1].size, NULL));
    HN_TRY(hn_expect_same(err, ctx, "length of key and value", s[1].length, s[2].length, NULL));
    HN_TRY(hn_expect_same(err, ctx, "heads of key and value", s[1].heads, s[2].heads, NULL));
    if (hn_dim_is_const(s[0].heads) && hn_dim_is_const(s[1].heads) &&
        (s[1].heads < 1 || s[0].heads % s[1].heads != 0))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%lld query heads share %lld key heads",
                     (long long)s[0].heads, (long long)s[1].heads);
    hn_dim scores[4] = {s[0].batch, s[0].heads, s[0].length, s[1].length};
    const hn_type *mask = hn_in_type(ctx, 3);
    for (int i = 0; mask && i < mask->rank; i++) {
        int at = 4 - mask->rank + i;
        if (at < 0) HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the mask has rank %d", mask->rank);
        if (mask->dims[i] != 1)
            HN_TRY(hn_expect_same(err, ctx, "dims of mask and scores", mask->dims[i], scores[at], NULL));
    }
    hn_dim flat[3] = {s[0].batch, s[0].length, s[2].size};
    hn_dim plain[4] = {s[0].batch, s[0].heads, s[0].length, s[2].size};
    hn_dim turned[4] = {s[0].batch, s[0].length, s[0].heads, s[2].size};
    hn_infer_set(ctx, 0, HN_F32, rank[0], rank[0] == 3 ? flat : packed & PACK_Y ? turned : plain);
    return HONE_OK;
}

// ---- reference ----------------------------------------------------------------------------------
typedef struct view {
    const double *data;
    int64_t batch, heads, length, size;
    bool packed;
} view;

static int64_t offset(const view *v, int64_t b, int64_t h, int64_t i) {
    return v->packed ? ((b * v->length + i) * v->heads + h) * v->size
                     : ((b * v->heads + h) * v->length + i) * v->size;
}

static view view_of(const hn_shape *shape, const double *data, bool packed) {
    const int64_t *d = shape->dims;
    if (shape->rank == 3) return (view){data, d[0], 1, d[1], d[2], false};
    return packed ? (view){data, d[0], d[2], d[1], d[3], true} : (view){data, d[0], d[1], d[2], d[3], false};
}

static double mask_at(const hn_tensor *mask, const double *data, const int64_t at[4]) {
    int64_t index = 0;
    for (int d = 0; d < mask->shape.rank; d++) {
        int64_t dim = mask->shape.dims[d];
        index = index * dim + (dim == 1 ? 0 : at[4 - mask->shape.rank + d]);
    }
    return data[index];
}

// Weights of one query in `row`.
static void weights(double *row, int64_t keys, int64_t empty_rows) {
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++)
        if (row[j] > top || isnan(row[j])) top = isnan(top) ? top : row[j];
    bool masked = top == -INFINITY;
    for (int64_t j = 0; j < keys; j++)
        sum += row[j] = exp(row[j] - top);
    bool zero = isnan(sum) && (empty_rows == 1 || (empty_rows == 2 && masked));
    for (int64_t j = 0; j < keys; j++)
        row[j] = zero ? 0 : row[j] / sum;
}

static hone_status step_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    int64_t packed = hn_op_int(call->node, "packed"), empty = hn_op_int(call->node, "empty_rows");
    double scale = (double)hn_op_float(call->node, "scale");
    const double *data[4];
    for (int i = 0; i < 4; i++)
        HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, i), &data[i]));
    view q = view_of(&hn_call_in(call, 0)->shape, data[0], packed & PACK_Q);
    view k = view_of(&hn_call_in(call, 1)->shape, data[1], packed & PACK_K);
    view v = view_of(&hn_call_in(call, 2)->shape, data[2], packed & PACK_V);
    const hn_tensor *mask = hn_call_in(call, 3);
    view out = {NULL, q.batch, q.heads, q.length, v.size, (packed & PACK_Y) != 0};
    double *y, *row;
    HN_TRY(hn_scratch_f64(err, scratch, q.batch * q.heads * q.length * v.size, &y));
    HN_TRY(hn_scratch_f64(err, scratch, k.length, &row));
    for (int64_t b = 0; b < q.batch; b++)
        for (int64_t h = 0; h < q.heads; h++)
            for (int64_t i = 0; i < q.length; i++) {
                int64_t group = h / (q.heads / k.heads);
                const double *query = q.data + offset(&q, b, h, i);
                for (int64_t j = 0; j < k.length; j++) {
                    const double *key = k.data + offset(&k, b, group, j);
                    double sum = 0;
                    for (int64_t d = 0; d < q.size; d++)
                        sum += query[d] * key[d];
                    row[j] = sum * scale;
                    if (mask) row[j] += mask_at(mask, data[3], (int64_t[]){b, h, i, j});
                }
                weights(row, k.length, empty);
                double *to = y + offset(&out, b, h, i);
                for (int64_t d = 0; d < v.size; d++)
                    to[d] = 0;
                for (int64_t j = 0; j < k.length; j++)
                    for (int64_t d = 0; d < v.size; d++)
                        to[d] += row[j] * v.data[offset(&v, b, group, j) + d];
            }
    hn_store_f64(hn_call_out(call, 0), y);
    return HONE_OK;
}
hone_status hn_ref_attention_step(hone_error *err, const hn_call *call) {
    return hn_ref_scratch(err, call, step_body);
}

// Both products; the softmax in between counts five a score.
void hn_cost_attention_step(const hn_node *node, hn_cost *out_cost) {
    const hn_value *q = hn_in(node, 0), *k = hn_in(node, 1), *v = hn_in(node, 2);
    int64_t packed = hn_op_int(node, "packed");
    side sq, sk, sv;
    if (!q || !k || !v || !side_of(&q->type, packed & PACK_Q, &sq) ||
        !side_of(&k->type, packed & PACK_K, &sk) || !side_of(&v->type, packed & PACK_V, &sv))
        return;
    out_cost->flops = (double)sq.batch * (double)sq.heads * (double)sq.length * (double)sk.length *
                      (2 * (double)sq.size + 2 * (double)sv.size + 5);
}

// ---- RotateHalf ---------------------------------------------------------------------------------
hone_status hn_infer_rotate_half(hone_error *err, hn_infer *ctx) {
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 1, HN_MAX_RANK, &rank));
    hn_infer_set(ctx, 0, HN_F32, -1, NULL);
    if (rank < 0) return HONE_OK;
    const hn_type *x = hn_in_type(ctx, 0);
    hn_dim size = x->dims[rank - 1];
    if (hn_dim_is_const(size) && size % 2)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the last dim, %lld, has no halves", (long long)size);
    for (int i = 1; i < 3; i++) {
        const hn_type *table = hn_in_type(ctx, i);
        for (int d = 0; table && d < table->rank; d++) {
            int at = rank - table->rank + d;
            if (at < 0) HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "input %d has rank %d", i, table->rank);
            if (table->dims[d] != 1)
                HN_TRY(hn_expect_same(err, ctx, "dims of data and table", table->dims[d], x->dims[at], NULL));
        }
    }
    hn_infer_set(ctx, 0, HN_F32, rank, x->dims);
    return HONE_OK;
}

// Element of a table that broadcasts to `shape`.
static double table_at(const hn_tensor *t, const hn_shape *shape, int64_t index) {
    int64_t at = 0, step = 1;
    for (int d = shape->rank - 1, k = t->shape.rank - 1; d >= 0; d--, k--) {
        int64_t i = index % shape->dims[d];
        index /= shape->dims[d];
        if (k < 0) continue;
        at += t->shape.dims[k] == 1 ? 0 : i * step;
        step *= t->shape.dims[k];
    }
    return hn_tensor_get_f64(t, at);
}

hone_status hn_ref_rotate_half(hone_error *err, const hn_call *call) {
    const hn_tensor *x = hn_call_in(call, 0), *cosines = hn_call_in(call, 1), *sines = hn_call_in(call, 2);
    hn_tensor *y = hn_call_out(call, 0);
    int64_t size = x->shape.dims[x->shape.rank - 1], half = size / 2, count = hn_tensor_count(x);
    (void)err;
    for (int64_t i = 0; y && i < count; i++) {
        double turned = i % size < half ? -hn_tensor_get_f64(x, i + half) : hn_tensor_get_f64(x, i - half);
        hn_tensor_set_f64(y, i, hn_tensor_get_f64(x, i) * table_at(cosines, &x->shape, i) +
                                    turned * table_at(sines, &x->shape, i));
    }
    return HONE_OK;
}
