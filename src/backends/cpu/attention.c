// SPDX-License-Identifier: Apache-2.0
// Attention as one step, of device graphs (hn.Attention) and of the standard operator where it has no
// cache, no cap and no window; and rotary embedding. Plain layouts; heads are found by strides, so that
// operands lie as the products left them.
#include "backends/cpu/cpu_int.h"
#include "ops/nn_int.h"
#include <math.h>

// Below this a fork and join costs more than the second thread saves; what a thread should have.
#define SERIAL_FLOPS 4e5
#define ROW_BLOCK    32

typedef struct attention_kernel {
    hn_kernel base;
    const hn_k_attention *k;
    int64_t batch, heads, kv_heads, queries, blocks;
    hn_heads q, keys, v, y;
    int64_t mask_batch, mask_head;
    hn_k_attention_head head; // what all heads share; pointers are those of the run
    bool has_mask, serial;
    cpu_posts posts;
} attention_kernel;

typedef struct attention_job {
    const attention_kernel *k;
    const float *q, *keys, *v, *mask;
    float *y, *packed;
} attention_job;

static int64_t packed_floats(const attention_kernel *k) { return k->head.padded * k->head.size; }

static void pack_heads(void *arg, int64_t begin, int64_t end) {
    const attention_job *job = arg;
    const attention_kernel *k = job->k;
    for (int64_t u = begin; u < end; u++) {
        int64_t b = u / k->kv_heads, h = u % k->kv_heads;
        k->k->pack(job->keys + k->keys.offset + b * k->keys.batch + h * k->keys.head, k->keys.row, k->head.keys,
                   k->head.size, job->packed + u * packed_floats(k), k->head.padded);
    }
}

static void do_blocks(void *arg, int64_t begin, int64_t end) {
    const attention_job *job = arg;
    const attention_kernel *k = job->k;
    int64_t group = k->heads / k->kv_heads;
    for (int64_t u = begin; u < end; u++) {
        int64_t block = u % k->blocks, h = u / k->blocks % k->heads, b = u / k->blocks / k->heads;
        hn_k_attention_head head = k->head;
        head.q = job->q + k->q.offset + b * k->q.batch + h * k->q.head;
        head.v = job->v + k->v.offset + b * k->v.batch + h / group * k->v.head;
        head.y = job->y + b * k->y.batch + h * k->y.head;
        head.packed = job->packed + (b * k->kv_heads + h / group) * packed_floats(k);
        head.mask = job->mask ? job->mask + b * k->mask_batch + h * k->mask_head : NULL;
        int64_t first = block * ROW_BLOCK, last = first + ROW_BLOCK;
        k->k->rows(&head, first, last < k->queries ? last : k->queries);
    }
}

static hone_status attention_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    attention_kernel *k = (attention_kernel *)kernel;
    attention_job job = {k, args->inputs[0], args->inputs[1], args->inputs[2],
                         k->has_mask ? args->inputs[3] : NULL, args->outputs[0], args->workspace};
    int64_t units = k->batch * k->kv_heads, blocks = k->batch * k->heads * k->blocks;
    if (k->serial) {
        pack_heads(&job, 0, units);
        do_blocks(&job, 0, blocks);
    } else {
        hn_parallel_for(units, 1, pack_heads, &job);
        hn_parallel_for(blocks, 1, do_blocks, &job);
    }
    if (k->posts.count) cpu_posts_run(&k->posts, args, args->outputs[0]);
    return HONE_OK;
}
static const hn_kernel_ops k_attention_ops = {sizeof(hn_kernel_ops), NULL, attention_run,
                                              cpu_kernel_destroy};

static bool floats(const hn_node *node) {
    cpu_value v;
    for (int i = 0; i < cpu_base_inputs(node); i++)
        if (node->inputs[i] && (!cpu_in(node, i, &v) || v.dtype != HN_F32 || v.count == 0)) return false;
    return cpu_out(node, 0, &v) && v.dtype == HN_F32 && v.count > 0;
}

static bool attention_read(const hn_node *node, attention_kernel *k) {
    hn_attention a;
    bool step = *node->domain != '\0';
    if (!floats(node) || !hn_attention_read(node, cpu_base_inputs(node), &a)) return false;
    k->batch = a.batch;
    k->heads = a.heads;
    k->kv_heads = a.kv_heads;
    k->queries = a.queries;
    k->q = a.q;
    k->keys = a.k;
    k->v = a.v;
    k->y = a.y;
    k->head.keys = a.keys;
    k->head.size = a.size;
    k->head.value_size = a.value_size;
    k->head.padded = (a.keys + 15) / 16 * 16;
    k->head.q_row = k->q.row;
    k->head.v_row = k->v.row;
    k->head.y_row = k->y.row;
    k->has_mask = a.has_mask;
    k->mask_batch = a.mask[0];
    k->mask_head = a.mask[1];
    k->head.mask_row = a.mask[2];
    k->head.mask_key = a.mask[3];
    k->head.last = !step && hn_node_int(node, "is_causal", 0) ? 0 : INT64_MAX;
    k->head.scale = hn_node_attr(node, "scale") ? hn_node_float(node, "scale", 1)
                                                : (float)(1 / sqrt((double)a.size));
    k->head.empty_rows = step ? (int)hn_op_int(node, "empty_rows") : 2;
    // Gathers of keys count in 32 bits.
    return a.keys <= HN_K_ATTENTION_MAX_KEYS && k->keys.row < INT32_MAX / 16;
}

hone_status own_attention_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                 hn_kernel **out_kernel) {
    attention_kernel *k = cpu_kernel_new(sizeof *k, &k_attention_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->k = cpu->attention;
    cpu_value y;
    if (!attention_read(what->node, k) || !cpu_out(what->node, 0, &y) ||
        !cpu_posts_init(cpu, what, 0, &y.shape, HN_LAYOUT_PLAIN, &k->base, &k->posts)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    k->blocks = (k->queries + ROW_BLOCK - 1) / ROW_BLOCK;
    double flops = 2.0 * (double)(k->batch * k->heads) * (double)k->queries * (double)k->head.keys *
                   (double)(k->head.size + k->head.value_size);
    int threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->serial = threads <= 1 || flops < SERIAL_FLOPS;
    k->base.workspace_bytes = (size_t)(k->batch * k->kv_heads * packed_floats(k)) * sizeof(float);
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- rotary embedding ---------------------------------------------------------------------------
typedef struct rotate_kernel {
    hn_kernel base;
    const hn_k_attention *k;
    int rank;                    // of the rows: without the last dim
    int64_t dims[HN_MAX_RANK], strides[2][HN_MAX_RANK], last[2]; // of cos and sin
    int64_t rows, half;
    bool serial;
} rotate_kernel;

typedef struct rotate_job {
    const rotate_kernel *k;
    const float *x, *tables[2];
    float *y;
} rotate_job;

static void rotate_rows(void *arg, int64_t begin, int64_t end) {
    const rotate_job *job = arg;
    const rotate_kernel *k = job->k;
    for (int64_t r = begin; r < end; r++) {
        int64_t at[2] = {0, 0}, rest = r;
        for (int d = k->rank - 1; d >= 0; d--) {
            int64_t i = rest % k->dims[d];
            rest /= k->dims[d];
            at[0] += i * k->strides[0][d];
            at[1] += i * k->strides[1][d];
        }
        k->k->rotate(job->x + r * 2 * k->half, job->tables[0] + at[0], k->last[0], job->tables[1] + at[1],
                     k->last[1], job->y + r * 2 * k->half, k->half);
    }
}

static hone_status rotate_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    rotate_kernel *k = (rotate_kernel *)kernel;
    rotate_job job = {k, args->inputs[0], {args->inputs[1], args->inputs[2]}, args->outputs[0]};
    if (k->serial) rotate_rows(&job, 0, k->rows);
    else hn_parallel_for(k->rows, hn_max_i64(1, 16384 / k->half), rotate_rows, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_rotate_ops = {sizeof(hn_kernel_ops), NULL, rotate_run, cpu_kernel_destroy};

hone_status own_rotate_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                              hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, t[2];
    if (node->post_count || !cpu_in(node, 0, &x) || x.dtype != HN_F32 || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    rotate_kernel *k = cpu_kernel_new(sizeof *k, &k_rotate_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->k = cpu->attention;
    k->rank = x.shape.rank - 1;
    k->half = x.shape.dims[k->rank] / 2;
    k->rows = x.count / (2 * k->half);
    memcpy(k->dims, x.shape.dims, (size_t)k->rank * sizeof *k->dims);
    int threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->serial = threads <= 1 || x.count < 32768;
    for (int i = 0; i < 2; i++) {
        if (!cpu_in(node, 1 + i, &t[i]) || t[i].dtype != HN_F32 || t[i].shape.rank > x.shape.rank) {
            hn_free(k);
            return HONE_ERR_UNSUPPORTED;
        }
        int64_t step = 1;
        for (int d = k->rank, s = t[i].shape.rank - 1; s >= 0; d--, s--) {
            int64_t stride = t[i].shape.dims[s] == 1 ? 0 : step;
            *(d == k->rank ? &k->last[i] : &k->strides[i][d]) = stride;
            step *= t[i].shape.dims[s];
        }
    }
    *out_kernel = &k->base;
    return HONE_OK;
}
