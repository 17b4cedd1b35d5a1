// SPDX-License-Identifier: Apache-2.0
// MaxPool on float32 in channels-last order: the one that needs no oneDNN and in which NaN wins, as
// in the reference.
//
// An output row is filled with the lowest value and then raised tap by tap, each tap with as long a
// run as the stride allows: the whole row at stride 1, else the channels of one point.
#include <math.h>
#include "backends/cpu/window.h"

typedef struct max_pool {
    hn_kernel base;
    window win; // three dims, outer ones filled up with 1
    int64_t images, channels;
    hn_k_binary_fn max;
    int threads;
    cpu_posts posts;
} max_pool;

typedef struct max_pool_job {
    const max_pool *k;
    const float *x;
    float *y;
} max_pool_job;

// Raises the output row `to` by the input row `from` seen through column kx of the window.
static void raise_row(const max_pool *k, const float *from, float *to, int64_t kx) {
    const window *w = &k->win;
    int64_t c = k->channels, shift = kx * w->dilation[2] - w->pad_begin[2], stride = w->stride[2];
    int64_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;
    int64_t end = w->in[2] - shift <= 0 ? 0 : (w->in[2] - shift - 1) / stride + 1;
    end = hn_min_i64(end, w->out[2]);
    if (first >= end) return;
    to += first * c;
    from += (first * stride + shift) * c;
    if (stride == 1) {
        k->max(to, from, to, (end - first) * c);
        return;
    }
    for (int64_t i = first; i < end; i++, to += c, from += stride * c)
        k->max(to, from, to, c);
}

// Rows of the output: images x out[0] x out[1].
static void max_pool_rows(void *arg, int64_t begin, int64_t end) {
    const max_pool_job *job = arg;
    const max_pool *k = job->k;
    const window *w = &k->win;
    int64_t row = w->out[2] * k->channels;
    for (int64_t i = begin; i < end; i++) {
        int64_t y = i % w->out[1], z = i / w->out[1] % w->out[0],
                image = i / (w->out[1] * w->out[0]);
        float *to = job->y + i * row;
        for (int64_t e = 0; e < row; e++)
            to[e] = -INFINITY;
        for (int64_t kz = 0; kz < w->kernel[0]; kz++) {
            int64_t in_z = z * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0];
            if (in_z < 0 || in_z >= w->in[0]) continue;
            for (int64_t ky = 0; ky < w->kernel[1]; ky++) {
                int64_t in_y = y * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
                if (in_y < 0 || in_y >= w->in[1]) continue;
                int64_t line = (image * w->in[0] + in_z) * w->in[1] + in_y;
                const float *from = job->x + line * w->in[2] * k->channels;
                for (int64_t kx = 0; kx < w->kernel[2]; kx++)
                    raise_row(k, from, to, kx);
            }
        }
    }
}

static hone_status max_pool_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    max_pool *k = (max_pool *)kernel;
    max_pool_job job = {k, args->inputs[0], args->outputs[0]};
    const window *w = &k->win;
    int64_t rows = k->images * w->out[0] * w->out[1];
    if (k->threads <= 1)
        max_pool_rows(&job, 0, rows);
    else
        hn_parallel_for(rows, 1, max_pool_rows, &job);
    if (k->posts.count) cpu_posts_run(&k->posts, args, job.y);
    return HONE_OK;
}
static const hn_kernel_ops k_max_pool_ops = {sizeof(hn_kernel_ops), NULL, max_pool_run,
                                             cpu_kernel_destroy};

hone_status own_max_pool_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    window w;
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.dtype != HN_F32 || x.count == 0 ||
        y.count == 0 || (node->output_count > 1 && node->outputs[1]) ||
        !window_of(node, &x.shape, &y.shape, NULL, &w))
        return HONE_ERR_UNSUPPORTED;
    max_pool *k = cpu_kernel_new(sizeof *k, &k_max_pool_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    window_normalise(&w);
    window_fill(&w);
    k->win = w;
    k->images = x.shape.dims[0];
    k->channels = x.shape.dims[1];
    k->max = cpu->ew->binary[HN_K_BINARY_max][0];
    double taps = (double)w.kernel[0] * (double)w.kernel[1] * (double)w.kernel[2];
    k->threads = (double)y.count * taps < 65536 ? 1
                 : what->threads > 0            ? what->threads
                                                : hn_parallel_threads();
    k->base.in_layout[0] = cpu_same_bytes(&x.shape) ? cpu_hint(what, 0) : HN_LAYOUT_CHANNELS_LAST;
    k->base.out_layout[0] = cpu_same_bytes(&y.shape) ? HN_LAYOUT_PLAIN : HN_LAYOUT_CHANNELS_LAST;
    if (!cpu_posts_init(cpu, what, 0, &y.shape, HN_LAYOUT_CHANNELS_LAST, &k->base, &k->posts)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}
