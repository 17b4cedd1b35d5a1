// SPDX-License-Identifier: Apache-2.0
// What device graphs make of decomposed attention: hn.Attention and hn.RotateHalf.
//
// hn.Attention(q, k, v, [mask]): softmax(scale * q k^T + mask) v for each head. The bits of `packed` say
// how each operand lies: clear [B, heads, length, size], set [B, length, heads, size] (1: q, 2: k,
// 4: v, 8: the output). Rank 3 is one head, [B, length, size]. Fewer heads of k and v than of q are
// shared by groups. mask is float32 and broadcasts to [B, heads, queries, keys].
// empty_rows says what a row of weights without a number becomes: 0: it stays NaN; 1: zeros, as graphs
// say it by Where(IsNaN(w), 0, w); 2: zeros where -inf masks every key, else NaN stays.
// `view`, where it is given, replaces `packed`: batch, heads, key heads, queries, keys, size, value size,
// then offset and strides of batch, head, row (elements) of q, k, v, then the strides of the output,
// whose dims are `shape`: heads read from and written to where other values have them.
//
// hn.RotateHalf(x, cos, sin): x * cos + turned(x) * sin, where turned swaps the halves of the last dim
// and negates the first: rotary embedding as exporters write it. cos and sin broadcast to x.
#include <math.h>
#include "ops/nn_int.h"

enum { PACK_Y = 8 };

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

// The attributes as heads; false where there is no view.
static bool read_view(const hn_node *node, hn_attention *out) {
    int64_t count;
    const int64_t *v = hn_node_ints(node, "view", &count);
    if (!v || count != HN_ATTENTION_VIEW) return false;
    *out = (hn_attention){v[0], v[1], v[2], v[3], v[4], v[5], v[6], {v[7], v[8], v[9], v[10]},
                          {v[11], v[12], v[13], v[14]}, {v[15], v[16], v[17], v[18]}, {0, v[19], v[20], v[21]}, {0}, false};
    return true;
}

// Does every row lie inside of a value of `count` elements?
static bool inside(const hn_heads *h, const int64_t dims[4], int64_t count) {
    int64_t strides[] = {h->batch, h->head, h->row, 1}, last = h->offset;
    if (h->offset < 0) return false;
    for (int i = 0; i < 4; i++) {
        int64_t reach;
        if (dims[i] < 1 || strides[i] < 0 || !hn_mul_i64(dims[i] - 1, strides[i], &reach) || !hn_add_i64(last, reach, &last))
            return false;
    }
    return last < count;
}

static hone_status infer_view(hone_error *err, hn_infer *ctx, const hn_attention *a) {
    const hn_heads *sides[] = {&a->q, &a->k, &a->v, &a->y};
    int64_t dims[4][4] = {{a->batch, a->heads, a->queries, a->size},
                          {a->batch, a->kv_heads, a->keys, a->size},
                          {a->batch, a->kv_heads, a->keys, a->value_size},
                          {a->batch, a->heads, a->queries, a->value_size}};
    int64_t rank, count = 1;
    const int64_t *shape = hn_node_ints(ctx->node, "shape", &rank);
    hn_dim out[HN_MAX_RANK];
    bool good = shape && rank <= HN_MAX_RANK && a->kv_heads > 0 && a->heads % a->kv_heads == 0;
    for (int i = 0; i < rank && good; i++) {
        good = shape[i] > 0 && hn_mul_i64(count, shape[i], &count);
        out[i] = shape[i];
    }
    good = good && inside(sides[3], dims[3], count) && count == a->batch * a->heads * a->queries * a->value_size;
    for (int i = 0; i < 3 && good; i++) {
        hn_shape in;
        const hn_type *type = hn_in_type(ctx, i);
        if (!type || !hn_type_shape(type, &in)) continue;
        good = hn_shape_count(&in, &count) && inside(sides[i], dims[i], count);
    }
    if (!good) HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "its view reaches beyond its operands");
    hn_infer_set(ctx, 0, hn_in_type(ctx, 0)->dtype, (int)rank, out);
    return HONE_OK;
}

hone_status hn_infer_attention_step(hone_error *err, hn_infer *ctx) {
    hn_attention seen;
    if (read_view(ctx->node, &seen)) return infer_view(err, ctx, &seen);
    hn_dtype dtype = hn_in_type(ctx, 0) ? hn_in_type(ctx, 0)->dtype : HN_F32;
    int64_t packed = hn_op_int(ctx->node, "packed");
    side s[3];
    int rank[3];
    for (int i = 0; i < 3; i++)
        HN_TRY(hn_expect_rank(err, ctx, i, 3, 4, &rank[i]));
    hn_infer_set(ctx, 0, dtype, -1, NULL);
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
    hn_infer_set(ctx, 0, dtype, rank[0], rank[0] == 3 ? flat : packed & PACK_Y ? turned : plain);
    return HONE_OK;
}

// ---- reference ----------------------------------------------------------------------------------
static int64_t offset(const hn_heads *v, int64_t b, int64_t h, int64_t i) {
    return v->offset + b * v->batch + h * v->head + i * v->row;
}

// Rank 4 with the heads before or behind the rows; rank 3: `heads` of them in the last dim.
static bool heads_of(const hn_shape *shape, bool packed, int64_t heads, hn_heads *out, int64_t dims[4]) {
    const int64_t *d = shape->dims;
    if (shape->rank == 3) {
        if (heads < 1 || d[2] % heads) return false;
        memcpy(dims, (int64_t[]){d[0], heads, d[1], d[2] / heads}, 4 * sizeof *dims);
        *out = (hn_heads){0, d[1] * d[2], d[2] / heads, d[2]};
        return true;
    }
    if (shape->rank != 4) return false;
    int64_t h = packed ? d[2] : d[1], rows = packed ? d[1] : d[2];
    memcpy(dims, (int64_t[]){d[0], h, rows, d[3]}, 4 * sizeof *dims);
    *out = packed ? (hn_heads){0, rows * h * d[3], d[3], h * d[3]} : (hn_heads){0, h * rows * d[3], rows * d[3], d[3]};
    return true;
}

// The standard operator without what a step has not.
static bool plain_standard(const hn_node *node, int inputs) {
    for (int i = 4; i < inputs; i++)
        if (node->inputs[i]) return false;
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i]) return false;
    return hn_node_float(node, "softcap", 0) == 0 && hn_node_int(node, "left_window_size", -1) < 0 &&
           hn_node_int(node, "right_window_size", -1) < 0;
}

static bool read_shapes(const hn_node *node, const hn_shape shapes[4], hn_attention *out) {
    bool step = *node->domain != '\0';
    if (step && read_view(node, out)) return true;
    int64_t packed = step ? hn_op_int(node, "packed") : 0, d[4][4];
    int64_t q_heads = step ? 1 : hn_node_int(node, "q_num_heads", 0), kv_heads = step ? 1 : hn_node_int(node, "kv_num_heads", 0);
    *out = (hn_attention){0};
    hn_heads *sides[] = {&out->q, &out->k, &out->v, &out->y};
    for (int i = 0; i < 4; i++)
        if (!heads_of(&shapes[i], packed >> i & 1, i == 1 || i == 2 ? kv_heads : q_heads, sides[i], d[i])) return false;
    out->batch = d[0][0];
    out->heads = d[0][1];
    out->kv_heads = d[1][1];
    out->queries = d[0][2];
    out->keys = d[1][2];
    out->size = d[0][3];
    out->value_size = d[2][3];
    return d[0][3] == d[1][3] && d[1][2] == d[2][2] && d[1][1] == d[2][1] && d[1][1] > 0 && d[0][1] % d[1][1] == 0;
}

bool hn_attention_read(const hn_node *node, int inputs, hn_attention *out) {
    hn_shape shapes[4];
    bool step = *node->domain != '\0';
    if (inputs < 3 || (!step && !plain_standard(node, inputs))) return false;
    for (int i = 0; i < 4; i++) {
        const hn_value *v = i < 3 ? node->inputs[i] : node->outputs[0];
        if (!v || !hn_type_shape(&v->type, &shapes[i])) return false;
    }
    if (!read_shapes(node, shapes, out)) return false;
    const hn_value *mask = inputs > 3 ? node->inputs[3] : NULL;
    hn_shape m;
    if (!mask) return true;
    if (!hn_type_shape(&mask->type, &m) || m.rank > 4) return false;
    int64_t want[4] = {out->batch, out->heads, out->queries, out->keys}, stride = 1;
    for (int i = m.rank - 1, at = 3; i >= 0; i--, at--) {
        if (m.dims[i] != 1 && m.dims[i] != want[at]) return false;
        out->mask[at] = m.dims[i] == 1 ? 0 : stride;
        stride *= m.dims[i];
    }
    out->has_mask = true;
    return true;
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
    int64_t empty = hn_op_int(call->node, "empty_rows");
    double scale = (double)hn_op_float(call->node, "scale");
    const double *data[4];
    for (int i = 0; i < 4; i++)
        HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, i), &data[i]));
    const hn_tensor *mask = hn_call_in(call, 3);
    hn_shape shapes[4];
    hn_attention at;
    for (int i = 0; i < 4; i++)
        shapes[i] = i < 3 ? hn_call_in(call, i)->shape : hn_call_out(call, 0)->shape;
    if (!read_shapes(call->node, shapes, &at)) HN_FAIL_NODE(err, HONE_ERR_FORMAT, call->node, "its operands do not fit together");
    double *y, *row;
    HN_TRY(hn_scratch_f64(err, scratch, at.batch * at.heads * at.queries * at.value_size, &y));
    HN_TRY(hn_scratch_f64(err, scratch, at.keys, &row));
    for (int64_t b = 0; b < at.batch; b++)
        for (int64_t h = 0; h < at.heads; h++)
            for (int64_t i = 0; i < at.queries; i++) {
                int64_t group = h / (at.heads / at.kv_heads);
                const double *query = data[0] + offset(&at.q, b, h, i);
                for (int64_t j = 0; j < at.keys; j++) {
                    const double *key = data[1] + offset(&at.k, b, group, j);
                    double sum = 0;
                    for (int64_t d = 0; d < at.size; d++)
                        sum += query[d] * key[d];
                    row[j] = sum * scale;
                    if (mask) row[j] += mask_at(mask, data[3], (int64_t[]){b, h, i, j});
                }
                weights(row, at.keys, empty);
                double *to = y + offset(&at.y, b, h, i);
                for (int64_t d = 0; d < at.value_size; d++)
                    to[d] = 0;
                for (int64_t j = 0; j < at.keys; j++)
                    for (int64_t d = 0; d < at.value_size; d++)
                        to[d] += row[j] * data[2][offset(&at.v, b, group, j) + d];
            }
    hn_store_f64(hn_call_out(call, 0), y);
    return HONE_OK;
}
hone_status hn_ref_attention_step(hone_error *err, const hn_call *call) {
    return hn_ref_scratch(err, call, step_body);
}

// Both products; the softmax in between counts five a score.
void hn_cost_attention_step(const hn_node *node, hn_cost *out_cost) {
    hn_attention a;
    if (!hn_attention_read(node, 3, &a)) return;
    out_cost->flops = (double)a.batch * (double)a.heads * (double)a.queries * (double)a.keys * (2 * (double)a.size + 2 * (double)a.value_size + 5);
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
