// SPDX-License-Identifier: Apache-2.0
// Element-wise ops on other types than float32 (and float32 ones without a vector form): up to three
// operands, broadcast by strides, in the layout of the operand of full shape.
#include "backends/cpu/cpu_int.h"
#include "kernels/cpu/typed.h"

#define TYPED_GRAIN 16384

typedef struct typed_kernel {
    hn_kernel base;
    hn_k_typed_fn fn;
    int operands, rank, threads;
    int64_t dims[HN_MAX_RANK], strides[3][HN_MAX_RANK], count;
    int64_t in_bytes[3], out_bytes;
} typed_kernel;

typedef struct typed_job {
    const typed_kernel *k;
    const char *in[3];
    char *out;
} typed_job;

static void typed_range(void *arg, int64_t begin, int64_t end) {
    const typed_job *job = arg;
    const typed_kernel *k = job->k;
    int last = k->rank - 1;
    int64_t at[HN_MAX_RANK] = {0}, offset[3] = {0}, inner[3] = {0}, rest = begin;
    for (int d = last - 1; d >= 0; d--) {
        at[d] = rest % k->dims[d];
        rest /= k->dims[d];
        for (int o = 0; o < k->operands; o++)
            offset[o] += at[d] * k->strides[o][d];
    }
    for (int o = 0; o < k->operands; o++)
        inner[o] = k->strides[o][last];
    int64_t n = k->dims[last];
    for (int64_t i = begin; i < end; i++) {
        const void *in[3] = {NULL, NULL, NULL};
        for (int o = 0; o < k->operands; o++)
            in[o] = job->in[o] + offset[o] * k->in_bytes[o];
        k->fn(in, inner, job->out + i * n * k->out_bytes, n);
        for (int d = last - 1; d >= 0; d--) {
            for (int o = 0; o < k->operands; o++)
                offset[o] += k->strides[o][d];
            if (++at[d] < k->dims[d]) break;
            for (int o = 0; o < k->operands; o++)
                offset[o] -= k->dims[d] * k->strides[o][d];
            at[d] = 0;
        }
    }
}

// One run: split inside it.
static void typed_flat(void *arg, int64_t begin, int64_t end) {
    const typed_job *job = arg;
    const typed_kernel *k = job->k;
    const void *in[3] = {NULL, NULL, NULL};
    int64_t inner[3] = {0};
    for (int o = 0; o < k->operands; o++) {
        inner[o] = k->strides[o][0];
        in[o] = job->in[o] + begin * inner[o] * k->in_bytes[o];
    }
    k->fn(in, inner, job->out + begin * k->out_bytes, end - begin);
}

static hone_status typed_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    typed_kernel *k = (typed_kernel *)kernel;
    if (k->count == 0) return HONE_OK;
    typed_job job = {.k = k, .out = args->outputs[0]};
    for (int o = 0; o < k->operands; o++)
        job.in[o] = args->inputs[o];
    bool serial = k->threads <= 1 || k->count < 2 * TYPED_GRAIN;
    int64_t n = k->dims[k->rank - 1], rows = k->count / n;
    if (k->rank == 1) {
        if (serial) typed_flat(&job, 0, k->count);
        else hn_parallel_for(k->count, TYPED_GRAIN, typed_flat, &job);
    } else if (serial) {
        typed_range(&job, 0, rows);
    } else {
        hn_parallel_for(rows, hn_max_i64(1, TYPED_GRAIN / n), typed_range, &job);
    }
    return HONE_OK;
}
static const hn_kernel_ops k_typed_ops = {sizeof(hn_kernel_ops), NULL, typed_run,
                                          cpu_kernel_destroy};

// Reduces dims and strides of all operands to the fewest dims.
static bool typed_shape(typed_kernel *k, const hn_shape *out, hn_layout layout, const cpu_value *v,
                        const hn_layout *held) {
    int order[HN_MAX_RANK], n = 0;
    int64_t strides[3][HN_MAX_RANK];
    for (int o = 0; o < k->operands; o++) {
        const hn_shape *s = &v[o].shape;
        int64_t own[HN_MAX_RANK];
        int lead = out->rank - s->rank;
        if (lead < 0) return false;
        cpu_strides(s, held[o], own);
        for (int i = 0; i < out->rank; i++) {
            int64_t dim = i < lead ? 1 : s->dims[i - lead];
            if (dim != 1 && dim != out->dims[i]) return false;
            strides[o][i] = dim == 1 ? 0 : own[i - lead];
        }
    }
    cpu_physical(out->rank, layout, order);
    for (int i = 0; i < out->rank; i++) {
        int d = order[i];
        if (out->dims[d] == 1) continue;
        bool merge = n > 0;
        for (int o = 0; o < k->operands; o++)
            merge = merge && k->strides[o][n - 1] == strides[o][d] * out->dims[d];
        int at = merge ? n - 1 : n++;
        k->dims[at] = merge ? k->dims[at] * out->dims[d] : out->dims[d];
        for (int o = 0; o < k->operands; o++)
            k->strides[o][at] = strides[o][d];
    }
    if (n == 0) {
        k->dims[0] = 1;
        for (int o = 0; o < k->operands; o++)
            k->strides[o][0] = 0;
        n = 1;
    }
    k->rank = n;
    return true;
}

static hone_status typed_select(hone_error *err, const hn_select *what, hn_k_typed_fn fn,
                                int operands, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value v[3], y;
    hn_layout held[3], layout = HN_LAYOUT_PLAIN;
    if (!fn || node->post_count || !cpu_out(node, 0, &y)) return HONE_ERR_UNSUPPORTED;
    for (int o = 0; o < operands; o++) {
        if (!cpu_in(node, o, &v[o])) return HONE_ERR_UNSUPPORTED;
        held[o] = cpu_hint(what, o);
        if (held[o] == HN_LAYOUT_CHANNELS_LAST && hn_shape_equal(&v[o].shape, &y.shape))
            layout = HN_LAYOUT_CHANNELS_LAST;
    }
    typed_kernel *k = cpu_kernel_new(sizeof *k, &k_typed_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->fn = fn;
    k->operands = operands;
    k->count = y.count;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->out_bytes = (int64_t)hn_dtype_bytes(y.dtype);
    for (int o = 0; o < operands; o++) {
        k->in_bytes[o] = (int64_t)hn_dtype_bytes(v[o].dtype);
        if (hn_shape_equal(&v[o].shape, &y.shape)) held[o] = layout;
        k->base.in_layout[o] = held[o];
        if (hn_shape_equal(&v[o].shape, &y.shape) && k->in_bytes[o] == k->out_bytes)
            k->base.inplace_input[0] = o;
    }
    k->base.out_layout[0] = layout;
    if (!typed_shape(k, &y.shape, layout, v, held)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}

hone_status own_typed_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    (void)cpu;
    cpu_value v;
    const hn_node *node = what->node;
    bool where = !strcmp(node->op_type, "Where");
    int operands = cpu_base_inputs(node);
    if (operands > 3 || operands < 1 || !cpu_in(node, where ? 1 : 0, &v)) return HONE_ERR_UNSUPPORTED;
    // Max and Min are variadic: two operands or the reference.
    if (!where && operands > 2) return HONE_ERR_UNSUPPORTED;
    if (operands == 2) {
        cpu_value w;
        if (!cpu_in(node, 1, &w) || w.dtype != v.dtype) return HONE_ERR_UNSUPPORTED;
    }
    return typed_select(err, what, hn_k_typed_find(node->op_type, v.dtype), operands, out_kernel);
}

hone_status own_cast_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                            hn_kernel **out_kernel) {
    (void)cpu;
    cpu_value x, y;
    if (!cpu_in(what->node, 0, &x) || !cpu_out(what->node, 0, &y)) return HONE_ERR_UNSUPPORTED;
    return typed_select(err, what, hn_k_cast_find(x.dtype, y.dtype), 1, out_kernel);
}
