// SPDX-License-Identifier: Apache-2.0
// Attention (opset 25 form, a superset of 23 and 24), RotaryEmbedding, LinearAttention.
//
// Heads lie either in a dim of their own (rank 4) or packed in the last dim (rank 3): a head_view
// gives the same indexing for both. A query row that no key may serve gives zeros, not NaN.
#include <math.h>
#include "ops/nn_int.h"

// ---- shapes -------------------------------------------------------------------------------------
// Batch, heads, length, head size of a value, as dims.
typedef struct head_dims {
    hn_dim batch, heads, length, size;
} head_dims;

static hone_status split_heads(hone_error *err, const hn_infer *ctx, const hn_type *type,
                               int64_t heads, head_dims *out_dims) {
    if (type->rank == 4) {
        *out_dims = (head_dims){type->dims[0], type->dims[1], type->dims[2], type->dims[3]};
        return HONE_OK;
    }
    if (heads < 1 || heads > INT32_MAX)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "rank 3 needs the number of heads");
    if (hn_dim_is_const(type->dims[2]) && type->dims[2] % heads != 0)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "a width of %lld in %lld heads",
                     (long long)type->dims[2], (long long)heads);
    *out_dims = (head_dims){type->dims[0], heads, type->dims[1],
                            hn_dim_floordiv(ctx->dims, type->dims[2], heads)};
    return HONE_OK;
}

static hone_status check_group(hone_error *err, const hn_infer *ctx, hn_dim query, hn_dim key) {
    if (hn_dim_is_const(query) && hn_dim_is_const(key) && (key < 1 || query % key != 0))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "%lld query heads share %lld key heads",
                     (long long)query, (long long)key);
    return HONE_OK;
}

// Past caches agree with the new keys; *out_total is the length of both together.
static hone_status check_past(hone_error *err, const hn_infer *ctx, const head_dims *key,
                              const head_dims *value, hn_dim *out_total) {
    const hn_type *past[2] = {hn_in_type(ctx, 4), hn_in_type(ctx, 5)};
    const head_dims *now[2] = {key, value};
    *out_total = key->length;
    if (!past[0] != !past[1])
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "only one of past_key and past_value is given");
    for (int i = 0; i < 2; i++) {
        int rank;
        HN_TRY(hn_expect_rank(err, ctx, 4 + i, 4, 4, &rank));
        if (!past[i]) continue;
        if (rank < 0) {
            *out_total = hn_dim_fresh(ctx->dims, 0, INT64_MAX);
            continue;
        }
        HN_TRY(hn_expect_same(err, ctx, "batch of the past", past[i]->dims[0], now[i]->batch, NULL));
        HN_TRY(hn_expect_same(err, ctx, "heads of the past", past[i]->dims[1], now[i]->heads, NULL));
        HN_TRY(hn_expect_same(err, ctx, "head size of the past", past[i]->dims[3], now[i]->size,
                              NULL));
        hn_dim total = hn_dim_add(ctx->dims, past[i]->dims[2], now[i]->length);
        if (i == 1) HN_TRY(hn_expect_same(err, ctx, "lengths of the past", total, *out_total, &total));
        *out_total = total;
    }
    return HONE_OK;
}

static hone_status check_mask(hone_error *err, const hn_infer *ctx, const hn_dim *scores) {
    const hn_type *mask = hn_in_type(ctx, 3);
    int rank;
    HN_TRY(hn_expect_rank(err, ctx, 3, 1, 4, &rank));
    for (int i = 0; i < rank; i++) {
        hn_dim have = mask->dims[i], want = scores[4 - rank + i];
        if (have == 1) continue;
        if (i == rank - 1 && hn_dim_is_const(have) && hn_dim_is_const(want) && have < want)
            continue; // padded with -inf
        HN_TRY(hn_expect_same(err, ctx, "dims of the mask and the scores", have, want, NULL));
    }
    return HONE_OK;
}

HN_INFER_FN(hn_infer_attention) {
    int rank[3];
    for (int i = 0; i < 3; i++) HN_TRY(hn_expect_rank(err, ctx, i, 3, 4, &rank[i]));
    const hn_type *q = hn_in_type(ctx, 0), *k = hn_in_type(ctx, 1), *v = hn_in_type(ctx, 2);
    hn_dtype dtype = q ? q->dtype : HN_NONE, value_dtype = v ? v->dtype : HN_NONE;
    hn_infer_set(ctx, 0, dtype, -1, NULL);
    hn_infer_set(ctx, 1, dtype, -1, NULL);
    hn_infer_set(ctx, 2, value_dtype, -1, NULL);
    hn_infer_set(ctx, 3, dtype, -1, NULL);
    if (rank[0] < 0 || rank[1] < 0 || rank[2] < 0) return HONE_OK;
    if (rank[0] != rank[1] || rank[1] != rank[2])
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "query, key, value have ranks %d, %d, %d",
                     rank[0], rank[1], rank[2]);
    int64_t q_heads = hn_node_int(ctx->node, "q_num_heads", 0);
    int64_t kv_heads = hn_node_int(ctx->node, "kv_num_heads", 0);
    head_dims dq, dk, dv;
    HN_TRY(split_heads(err, ctx, q, q_heads, &dq));
    HN_TRY(split_heads(err, ctx, k, kv_heads, &dk));
    HN_TRY(split_heads(err, ctx, v, kv_heads, &dv));
    HN_TRY(check_group(err, ctx, dq.heads, dk.heads));
    HN_TRY(hn_expect_same(err, ctx, "batch of query and key", dq.batch, dk.batch, &dq.batch));
    HN_TRY(hn_expect_same(err, ctx, "batch of query and value", dq.batch, dv.batch, &dq.batch));
    HN_TRY(hn_expect_same(err, ctx, "head size of query and key", dq.size, dk.size, NULL));
    HN_TRY(hn_expect_same(err, ctx, "heads of key and value", dk.heads, dv.heads, NULL));
    HN_TRY(hn_expect_same(err, ctx, "length of key and value", dk.length, dv.length, NULL));
    hn_dim total;
    HN_TRY(check_past(err, ctx, &dk, &dv, &total));
    hn_dim scores[4] = {dq.batch, dq.heads, dq.length, total};
    HN_TRY(check_mask(err, ctx, scores));
    if (hn_in(ctx->node, 6)) {
        int one;
        HN_TRY(hn_expect_rank(err, ctx, 6, 1, 1, &one));
        if (one == 1)
            HN_TRY(hn_expect_same(err, ctx, "batch of nonpad_kv_seqlen",
                                  hn_in_type(ctx, 6)->dims[0], dq.batch, NULL));
    }
    hn_dim wide[4] = {dq.batch, dq.heads, dq.length, dv.size};
    hn_dim packed[3] = {dq.batch, dq.length, hn_dim_mul(ctx->dims, dq.heads, dv.size)};
    hn_infer_set(ctx, 0, dtype, rank[0], rank[0] == 4 ? wide : packed);
    hn_infer_set(ctx, 1, dtype, 4, (hn_dim[]){dk.batch, dk.heads, total, dk.size});
    hn_infer_set(ctx, 2, value_dtype, 4, (hn_dim[]){dv.batch, dv.heads, total, dv.size});
    hn_infer_set(ctx, 3, dtype, 4, scores);
    return HONE_OK;
}

// ---- reference ----------------------------------------------------------------------------------
typedef struct head_view {
    const double *data;
    int64_t batch, heads, length, size;
    bool packed; // [batch][length][heads * size] instead of [batch][heads][length][size]
} head_view;

static head_view view_of(const hn_tensor *tensor, const double *data, int64_t heads) {
    const int64_t *d = tensor->shape.dims;
    if (tensor->shape.rank == 4) return (head_view){data, d[0], d[1], d[2], d[3], false};
    return (head_view){data, d[0], heads, d[1], d[2] / heads, true};
}

static int64_t head_offset(const head_view *v, int64_t b, int64_t h, int64_t i) {
    return v->packed ? ((b * v->length + i) * v->heads + h) * v->size
                     : ((b * v->heads + h) * v->length + i) * v->size;
}

typedef struct attention {
    head_view q, k, v;        // k and v: past and new together
    const hn_tensor *mask_tensor;
    const double *mask;
    bool mask_is_bool;
    const int64_t *nonpad;
    double scale, softcap;
    bool causal;
    int64_t offset;           // keys before the first query (nonpad overrides it by batch)
    int64_t left, right;      // window bounds, -1: none
    int64_t mode;             // what output 3 holds
} attention;

// Additive bias of key j for query i; -inf: not attended.
static double attention_bias(const attention *a, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t offset = a->nonpad ? a->nonpad[b] - a->q.length : a->offset;
    if (a->nonpad && j >= a->nonpad[b]) return -INFINITY;
    if (a->causal && j > i + offset) return -INFINITY;
    if (a->left >= 0 && j < i + offset - a->left) return -INFINITY;
    if (a->right >= 0 && j - a->right > i + offset) return -INFINITY;
    if (!a->mask) return 0;
    const hn_shape *shape = &a->mask_tensor->shape;
    int64_t want[4] = {b, h, i, j}, at = 0;
    for (int d = 0; d < shape->rank; d++) {
        int64_t index = want[4 - shape->rank + d], dim = shape->dims[d];
        if (d == shape->rank - 1 && index >= dim) return -INFINITY; // padded, never broadcast
        at = at * dim + (dim == 1 ? 0 : index);
    }
    if (a->mask_is_bool) return a->mask[at] != 0 ? 0 : -INFINITY;
    return a->mask[at];
}

// One query row: scores (kept in `row`), softmax, weighted sum of the values into out.
static void attention_row(const attention *a, int64_t b, int64_t h, int64_t i, double *row,
                          double *debug, double *out) {
    int64_t keys = a->k.length, group = h / (a->q.heads / a->k.heads);
    const double *q = a->q.data + head_offset(&a->q, b, h, i);
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        const double *k = a->k.data + head_offset(&a->k, b, group, j);
        double score = 0;
        for (int64_t d = 0; d < a->q.size; d++) score += q[d] * k[d];
        score *= a->scale;
        if (debug && a->mode == 0) debug[j] = score;
        if (a->softcap > 0) score = a->softcap * tanh(score / a->softcap);
        if (debug && a->mode == 1) debug[j] = score;
        score += attention_bias(a, b, h, i, j);
        if (debug && a->mode == 2) debug[j] = score;
        row[j] = score;
        if (score > top || isnan(score)) top = score;
    }
    for (int64_t j = 0; j < keys; j++) {
        row[j] = top == -INFINITY ? 0 : exp(row[j] - top);
        sum += row[j];
    }
    for (int64_t d = 0; d < a->v.size; d++) out[d] = 0;
    for (int64_t j = 0; j < keys; j++) {
        double weight = sum == 0 ? 0 : row[j] / sum;
        if (debug && a->mode == 3) debug[j] = weight;
        const double *v = a->v.data + head_offset(&a->v, b, group, j);
        for (int64_t d = 0; weight != 0 && d < a->v.size; d++) out[d] += weight * v[d];
    }
}

// Past and new values in one [batch][heads][length][size] block, which is also the present output.
static hone_status join_past(hone_error *err, const hn_call *call, hn_arena *scratch, int input,
                             int past_input, int64_t heads, head_view *out_view) {
    const hn_tensor *now = hn_call_in(call, input), *past = hn_call_in(call, past_input);
    const double *data, *old;
    HN_TRY(hn_load_f64(err, scratch, now, &data));
    HN_TRY(hn_load_f64(err, scratch, past, &old));
    head_view v = view_of(now, data, heads), all = v;
    int64_t before = past ? past->shape.dims[2] : 0;
    double *joined;
    all.length += before;
    all.packed = false;
    HN_TRY(hn_scratch_f64(err, scratch, all.batch * all.heads * all.length * all.size, &joined));
    all.data = joined;
    for (int64_t b = 0; b < v.batch; b++)
        for (int64_t h = 0; h < v.heads; h++)
            for (int64_t i = 0; i < all.length; i++)
                for (int64_t d = 0; d < v.size; d++)
                    joined[head_offset(&all, b, h, i) + d] =
                        i < before ? old[((b * v.heads + h) * before + i) * v.size + d]
                                   : data[head_offset(&v, b, h, i - before) + d];
    *out_view = all;
    return HONE_OK;
}

static hone_status attention_read(hone_error *err, const hn_call *call, hn_arena *scratch,
                                  attention *a) {
    const hn_node *node = call->node;
    int64_t kv_heads = hn_node_int(node, "kv_num_heads", 0);
    const double *q;
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 0), &q));
    a->q = view_of(hn_call_in(call, 0), q, hn_node_int(node, "q_num_heads", 0));
    HN_TRY(join_past(err, call, scratch, 1, 4, kv_heads, &a->k));
    HN_TRY(join_past(err, call, scratch, 2, 5, kv_heads, &a->v));
    a->mask_tensor = hn_call_in(call, 3);
    HN_TRY(hn_load_f64(err, scratch, a->mask_tensor, &a->mask));
    a->mask_is_bool = a->mask_tensor && a->mask_tensor->dtype == HN_BOOL;
    HN_TRY(hn_load_i64(err, scratch, hn_call_in(call, 6), &a->nonpad));
    a->offset = hn_call_in(call, 4) ? hn_call_in(call, 4)->shape.dims[2] : 0;
    a->scale = hn_node_attr(node, "scale") ? (double)hn_node_float(node, "scale", 1)
                                           : 1 / sqrt((double)a->q.size);
    a->softcap = (double)hn_node_float(node, "softcap", 0);
    a->causal = hn_node_int(node, "is_causal", 0) != 0;
    a->left = hn_node_int(node, "left_window_size", -1);
    a->right = hn_node_int(node, "right_window_size", -1);
    a->mode = hn_node_int(node, "qk_matmul_output_mode", 0);
    for (int64_t b = 0; a->nonpad && b < a->q.batch; b++)
        if (a->nonpad[b] < 0 || a->nonpad[b] > a->k.length)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, node, "nonpad_kv_seqlen holds %lld of %lld keys",
                         (long long)a->nonpad[b], (long long)a->k.length);
    return HONE_OK;
}

static hone_status attention_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    attention a = {0};
    HN_TRY(attention_read(err, call, scratch, &a));
    hn_tensor *ty = hn_call_out(call, 0), *tdebug = hn_call_out(call, 3);
    int64_t rows = a.q.batch * a.q.heads * a.q.length;
    double *y, *row, *debug = NULL;
    HN_TRY(hn_scratch_f64(err, scratch, rows * a.v.size, &y));
    HN_TRY(hn_scratch_f64(err, scratch, a.k.length, &row));
    if (tdebug) HN_TRY(hn_scratch_f64(err, scratch, rows * a.k.length, &debug));
    head_view out = a.q;
    out.size = a.v.size;
    for (int64_t b = 0; b < a.q.batch; b++)
        for (int64_t h = 0; h < a.q.heads; h++)
            for (int64_t i = 0; i < a.q.length; i++) {
                int64_t r = (b * a.q.heads + h) * a.q.length + i;
                attention_row(&a, b, h, i, row, debug ? debug + r * a.k.length : NULL,
                              y + head_offset(&out, b, h, i));
            }
    hn_store_f64(ty, y);
    hn_store_f64(hn_call_out(call, 1), a.k.data);
    hn_store_f64(hn_call_out(call, 2), a.v.data);
    hn_store_f64(tdebug, debug);
    return HONE_OK;
}
HN_REF_FN(hn_ref_attention) { return hn_ref_scratch(err, call, attention_body); }

// Both products; the softmax in between counts five a score.
HN_COST_FN(hn_cost_attention) {
    const hn_value *q = hn_in(node, 0), *k = hn_in(node, 1), *v = hn_in(node, 2);
    const hn_value *past = hn_in(node, 4);
    if (!q || !k || !v || q->type.rank < 3) return;
    bool wide = q->type.rank == 4;
    double batch = (double)q->type.dims[0];
    double queries = (double)q->type.dims[wide ? 2 : 1], keys = (double)k->type.dims[wide ? 2 : 1];
    if (past && past->type.rank == 4) keys += (double)past->type.dims[2];
    double heads = wide ? (double)q->type.dims[1] : (double)hn_node_int(node, "q_num_heads", 1);
    double kv_heads = wide ? 1 : (double)hn_node_int(node, "kv_num_heads", 1);
    double q_size = wide ? (double)q->type.dims[3] : (double)q->type.dims[2] / heads;
    double v_size = wide ? (double)v->type.dims[3] : (double)v->type.dims[2] / kv_heads;
    out_cost->flops = batch * heads * queries * keys * (2 * q_size + 2 * v_size + 5);
}

// ---- RotaryEmbedding ----------------------------------------------------------------------------
HN_INFER_FN(hn_infer_rotary) {
    int rank, cache_rank;
    HN_TRY(hn_expect_rank(err, ctx, 0, 3, 4, &rank));
    const hn_type *x = hn_in_type(ctx, 0);
    hn_infer_first(ctx, 0, HN_NONE);
    int64_t rotate = hn_node_int(ctx->node, "rotary_embedding_dim", 0);
    if (rotate < 0 || rotate % 2 != 0)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "rotary_embedding_dim is %lld",
                     (long long)rotate);
    bool by_position = hn_in(ctx->node, 3) != NULL;
    for (int i = 1; i <= 2; i++)
        HN_TRY(hn_expect_rank(err, ctx, i, by_position ? 2 : 3, by_position ? 2 : 3, &cache_rank));
    HN_TRY(hn_expect_rank(err, ctx, 3, 2, 2, &cache_rank));
    if (rank < 0) return HONE_OK;
    head_dims dims;
    HN_TRY(split_heads(err, ctx, x, hn_node_int(ctx->node, "num_heads", 0), &dims));
    hn_dim half = rotate ? rotate / 2 : hn_dim_floordiv(ctx->dims, dims.size, 2);
    if (hn_dim_is_const(dims.size) && (rotate > dims.size || (!rotate && dims.size % 2)))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "a head of %lld cannot be rotated",
                     (long long)dims.size);
    for (int i = 1; i <= 2; i++) {
        const hn_type *cache = hn_in_type(ctx, i);
        if (!cache || cache->rank < 0) continue;
        HN_TRY(hn_expect_same(err, ctx, "width of the cache and half the rotation",
                              cache->dims[cache->rank - 1], half, NULL));
        if (by_position) continue;
        HN_TRY(hn_expect_same(err, ctx, "batch of the cache", cache->dims[0], dims.batch, NULL));
        HN_TRY(hn_expect_same(err, ctx, "length of the cache", cache->dims[1], dims.length, NULL));
    }
    const hn_type *ids = hn_in_type(ctx, 3);
    if (ids && ids->rank == 2) {
        HN_TRY(hn_expect_same(err, ctx, "batch of the positions", ids->dims[0], dims.batch, NULL));
        HN_TRY(hn_expect_same(err, ctx, "length of the positions", ids->dims[1], dims.length, NULL));
    }
    return HONE_OK;
}

static hone_status rotary_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_tensor *tx = hn_call_in(call, 0), *tids = hn_call_in(call, 3);
    hn_tensor *ty = hn_call_out(call, 0);
    const double *x, *cosine, *sine;
    const int64_t *ids;
    double *y;
    HN_TRY(hn_load_f64(err, scratch, tx, &x));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 1), &cosine));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &sine));
    HN_TRY(hn_load_i64(err, scratch, tids, &ids));
    HN_TRY(hn_scratch_f64(err, scratch, hn_tensor_count(ty), &y));
    head_view v = view_of(tx, x, hn_node_int(call->node, "num_heads", 0));
    int64_t rotate = hn_node_int(call->node, "rotary_embedding_dim", 0);
    bool interleaved = hn_node_int(call->node, "interleaved", 0) != 0;
    if (rotate == 0) rotate = v.size;
    int64_t half = rotate / 2, rows = hn_call_in(call, 1)->shape.dims[0];
    for (int64_t b = 0; b < v.batch; b++)
        for (int64_t i = 0; i < v.length; i++) {
            int64_t line = b * v.length + i;
            int64_t place = ids ? ids[line] : line;
            if (ids && (place < 0 || place >= rows))
                HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "position %lld of %lld",
                             (long long)place, (long long)rows);
            for (int64_t h = 0; h < v.heads; h++) {
                int64_t at = head_offset(&v, b, h, i);
                for (int64_t d = rotate; d < v.size; d++) y[at + d] = x[at + d];
                for (int64_t d = 0; d < half; d++) {
                    int64_t first = at + (interleaved ? 2 * d : d);
                    int64_t second = interleaved ? first + 1 : first + half;
                    double c = cosine[place * half + d], s = sine[place * half + d];
                    y[first] = c * x[first] - s * x[second];
                    y[second] = s * x[first] + c * x[second];
                }
            }
        }
    hn_store_f64(ty, y);
    return HONE_OK;
}
HN_REF_FN(hn_ref_rotary) { return hn_ref_scratch(err, call, rotary_body); }

// ---- LinearAttention ----------------------------------------------------------------------------
HN_INFER_FN(hn_infer_linear_attention) {
    int rank[6];
    for (int i = 0; i < 6; i++) HN_TRY(hn_expect_rank(err, ctx, i, i == 3 ? 4 : 3, i == 3 ? 4 : 3, &rank[i]));
    const hn_type *q = hn_in_type(ctx, 0), *past = hn_in_type(ctx, 3);
    if (rank[0] < 0 || rank[1] < 0 || rank[2] < 0) {
        hn_infer_set(ctx, 0, q ? q->dtype : HN_NONE, -1, NULL);
        return HONE_OK;
    }
    int64_t q_heads = hn_node_int(ctx->node, "q_num_heads", 0);
    int64_t kv_heads = hn_node_int(ctx->node, "kv_num_heads", 0);
    head_dims dq, dk, dv;
    HN_TRY(split_heads(err, ctx, q, q_heads, &dq));
    HN_TRY(split_heads(err, ctx, hn_in_type(ctx, 1), kv_heads, &dk));
    HN_TRY(split_heads(err, ctx, hn_in_type(ctx, 2), kv_heads, &dv));
    HN_TRY(check_group(err, ctx, q_heads, kv_heads));
    HN_TRY(hn_expect_same(err, ctx, "head size of query and key", dq.size, dk.size, NULL));
    for (int i = 1; i < 6; i++) {
        if (i == 3 || rank[i] < 0) continue;
        HN_TRY(hn_expect_same(err, ctx, "batch", hn_in_type(ctx, i)->dims[0], dq.batch, NULL));
        HN_TRY(hn_expect_same(err, ctx, "length", hn_in_type(ctx, i)->dims[1], dq.length, NULL));
    }
    hn_dim decay = rank[4] < 0 ? kv_heads : hn_in_type(ctx, 4)->dims[2];
    hn_dim beta = rank[5] < 0 ? 1 : hn_in_type(ctx, 5)->dims[2];
    if (hn_dim_is_const(decay) && decay != kv_heads)
        HN_TRY(hn_expect_same(err, ctx, "width of decay and key", decay, hn_in_type(ctx, 1)->dims[2], NULL));
    if (hn_dim_is_const(beta) && beta != 1)
        HN_TRY(hn_expect_same(err, ctx, "width of beta and heads", beta, kv_heads, NULL));
    hn_dim state[4] = {dq.batch, kv_heads, dk.size, dv.size};
    for (int i = 0; rank[3] == 4 && i < 4; i++)
        HN_TRY(hn_expect_same(err, ctx, "dims of the past state", past->dims[i], state[i], NULL));
    hn_infer_set(ctx, 0, q->dtype, 3,
                 (hn_dim[]){dq.batch, dq.length, hn_dim_mul(ctx->dims, dv.size, q_heads)});
    hn_infer_set(ctx, 1, past ? past->dtype : q->dtype, 4, state);
    return HONE_OK;
}

typedef struct linear_attention {
    head_view q, k, v;
    const double *decay, *beta;
    int64_t decay_width, beta_width;
    bool gated, delta;
    double scale;
} linear_attention;

// One step of one key head: decay, write k (x) v, then read for every query head of the group.
static void linear_step(const linear_attention *a, int64_t b, int64_t h, int64_t t, double *state,
                        double *write, double *y) {
    int64_t keys = a->k.size, values = a->v.size, line = b * a->k.length + t;
    const double *k = a->k.data + head_offset(&a->k, b, h, t);
    const double *v = a->v.data + head_offset(&a->v, b, h, t);
    bool by_key = a->gated && a->decay_width != a->k.heads;
    for (int64_t d = 0; a->gated && d < keys; d++) {
        double gate = exp(a->decay[line * a->decay_width + (by_key ? h * keys + d : h)]);
        for (int64_t m = 0; m < values; m++) state[d * values + m] *= gate;
    }
    for (int64_t m = 0; m < values; m++) {
        write[m] = v[m];
        if (!a->delta) continue;
        double found = 0;
        for (int64_t d = 0; d < keys; d++) found += state[d * values + m] * k[d];
        write[m] = a->beta[line * a->beta_width + (a->beta_width == 1 ? 0 : h)] * (v[m] - found);
    }
    for (int64_t d = 0; d < keys; d++)
        for (int64_t m = 0; m < values; m++) state[d * values + m] += k[d] * write[m];
    int64_t group = a->q.heads / a->k.heads;
    for (int64_t g = h * group; g < (h + 1) * group; g++) {
        const double *q = a->q.data + head_offset(&a->q, b, g, t);
        for (int64_t m = 0; m < values; m++) {
            double sum = 0;
            for (int64_t d = 0; d < keys; d++) sum += q[d] * state[d * values + m];
            y[(line * a->q.heads + g) * values + m] = a->scale * sum;
        }
    }
}

static hone_status linear_attention_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    const hn_node *node = call->node;
    int64_t q_heads = hn_node_int(node, "q_num_heads", 1), kv_heads = hn_node_int(node, "kv_num_heads", 1);
    hn_slice rule = hn_op_string(node, "update_rule");
    linear_attention a = {0};
    a.gated = hn_slice_eq(rule, "gated") || hn_slice_eq(rule, "gated_delta");
    a.delta = hn_slice_eq(rule, "delta") || hn_slice_eq(rule, "gated_delta");
    if (!a.gated && !a.delta && !hn_slice_eq(rule, "linear"))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "update_rule is '%.*s'", (int)rule.length, rule.data);
    const hn_tensor *tdecay = hn_call_in(call, 4), *tbeta = hn_call_in(call, 5);
    if ((tdecay != NULL) != a.gated || (tbeta != NULL) != a.delta)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "decay or beta does not fit the update_rule");
    const double *q, *k, *v, *past;
    double *state, *write, *y;
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 0), &q));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 1), &k));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 2), &v));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 3), &past));
    HN_TRY(hn_load_f64(err, scratch, tdecay, &a.decay));
    HN_TRY(hn_load_f64(err, scratch, tbeta, &a.beta));
    a.q = view_of(hn_call_in(call, 0), q, q_heads);
    a.k = view_of(hn_call_in(call, 1), k, kv_heads);
    a.v = view_of(hn_call_in(call, 2), v, kv_heads);
    a.decay_width = tdecay ? tdecay->shape.dims[2] : 0;
    a.beta_width = tbeta ? tbeta->shape.dims[2] : 0;
    a.scale = (double)hn_op_float(node, "scale");
    if (a.scale == 0) a.scale = 1 / sqrt((double)a.k.size);
    int64_t block = a.k.size * a.v.size, blocks = a.k.batch * kv_heads;
    HN_TRY(hn_scratch_f64(err, scratch, blocks * block, &state));
    HN_TRY(hn_scratch_f64(err, scratch, a.v.size, &write));
    HN_TRY(hn_scratch_f64(err, scratch, a.q.batch * a.q.length * q_heads * a.v.size, &y));
    if (past && blocks * block > 0) memcpy(state, past, sizeof *state * (size_t)(blocks * block));
    for (int64_t b = 0; b < a.k.batch; b++)
        for (int64_t h = 0; h < kv_heads; h++)
            for (int64_t t = 0; t < a.k.length; t++)
                linear_step(&a, b, h, t, state + (b * kv_heads + h) * block, write, y);
    hn_store_f64(hn_call_out(call, 0), y);
    hn_store_f64(hn_call_out(call, 1), state);
    return HONE_OK;
}
HN_REF_FN(hn_ref_linear_attention) { return hn_ref_scratch(err, call, linear_attention_body); }

HN_COST_FN(hn_cost_linear_attention) {
    const hn_value *q = hn_in(node, 0), *v = hn_in(node, 2);
    double q_heads = (double)hn_node_int(node, "q_num_heads", 1);
    double kv_heads = (double)hn_node_int(node, "kv_num_heads", 1);
    if (!q || !v || q->type.rank != 3 || v->type.rank != 3) return;
    double block = (double)q->type.dims[2] / q_heads * (double)v->type.dims[2] / kv_heads;
    out_cost->flops = (double)q->type.dims[0] * (double)q->type.dims[1] * block *
                      (2 * q_heads + 5 * kv_heads); // read a query head; decay, look up, write
}
