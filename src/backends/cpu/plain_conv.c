// SPDX-License-Identifier: Apache-2.0
// Convolution in plain order, for nodes that are to keep it (hn_node.plain) and for all where oneDNN is
// not there. It is ahead where channels are few, where one side of the layer is plain anyhow, and behind
// where channels are many: which it is the strategy `layout` measures.
//
// Where the window leaves the input or steps over columns, an image is first copied with zeros around it
// and each row sorted by column modulo stride, so that every tap reads a run of floats.
#include "backends/cpu/window.h"
#include <math.h>

#define CHUNK 768 // columns of a 1x1 window's one long row that are one item of work

typedef struct plain_conv {
    hn_kernel base;
    const hn_k_conv *k;
    window win; // three dims
    int64_t images, groups, in_channels, out_channels; // channels of a group
    int64_t size[2], phases, run, taps;  // of what is read: outer two dims, runs a row, columns a run
    int64_t blocks, columns, row_chunks; // blocks of output channels; columns of an item
    bool copies;
    int32_t *offset;       // by tap, in one block behind the struct
    unsigned char *used;   // by phase: some tap reads it
    const float *weights;  // by group, block, tap, channel
    bool has_bias;
    float low;
    int threads;
    cpu_posts posts;
} plain_conv;

typedef struct plain_job {
    const plain_conv *k;
    const float *x, *bias; // x: of the image, as the taps read it
    float *y;
    const float *from;     // of the image, as it came
    float *to;
} plain_job;

static int64_t plane_of(const plain_conv *k) { return k->size[0] * k->size[1] * k->phases * k->run; }

// Rows of the copy: channels x size[0] x size[1].
static void copy_rows(void *arg, int64_t begin, int64_t end) {
    const plain_job *job = arg;
    const plain_conv *k = job->k;
    const window *w = &k->win;
    int64_t pitch = k->phases * k->run, lead = w->pad_begin[2];
    for (int64_t i = begin; i < end; i++) {
        int64_t y = i % k->size[1] - w->pad_begin[1], z = i / k->size[1] % k->size[0] - w->pad_begin[0];
        int64_t channel = i / (k->size[1] * k->size[0]);
        float *to = job->to + i * pitch;
        if (y < 0 || y >= w->in[1] || z < 0 || z >= w->in[0]) {
            memset(to, 0, (size_t)pitch * sizeof *to);
            continue;
        }
        const float *from = job->from + ((channel * w->in[0] + z) * w->in[1] + y) * w->in[2];
        if (k->phases == 1) {
            int64_t n = hn_min_i64(w->in[2], k->run - lead);
            memset(to, 0, (size_t)lead * sizeof *to);
            memcpy(to + lead, from, (size_t)n * sizeof *to);
            memset(to + lead + n, 0, (size_t)(k->run - lead - n) * sizeof *to);
            continue;
        }
        for (int64_t p = 0; p < k->phases; p++, to += k->run) {
            if (!k->used[p]) continue;
            for (int64_t q = 0; q < k->run; q++) {
                int64_t column = q * k->phases + p - lead;
                to[q] = column >= 0 && column < w->in[2] ? from[column] : 0;
            }
        }
    }
}

// Items: rows of the output (or pieces of them), each by all blocks of channels in turn.
static void conv_items(void *arg, int64_t begin, int64_t end) {
    const plain_job *job = arg;
    const plain_conv *k = job->k;
    const window *w = &k->win;
    int64_t pitch = k->phases * k->run, plane = w->out[0] * w->out[1] * w->out[2];
    int64_t per_row = k->groups * k->blocks;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i % k->blocks, g = i / k->blocks % k->groups, row = i / per_row;
        int64_t column = row % k->row_chunks * k->columns, line = row / k->row_chunks;
        int64_t y = line % w->out[1], z = line / w->out[1];
        int64_t first = b * HN_K_CONV_BLOCK, channel = g * k->out_channels + first;
        int64_t n = hn_min_i64(k->columns, w->out[2] - column);
        const float *x = job->x + g * k->in_channels * plane_of(k) +
                         (z * w->stride[0] * k->size[1] + y * w->stride[1]) * pitch + column;
        k->k->row(x, k->offset, k->taps, k->weights + (g * k->blocks + b) * k->taps * HN_K_CONV_BLOCK,
                  job->bias ? job->bias + channel : NULL, k->low,
                  job->y + channel * plane + line * w->out[2] + column, plane,
                  (int)hn_min_i64(k->out_channels - first, HN_K_CONV_BLOCK), n);
    }
}

static void spread(const plain_conv *k, int64_t total, hn_range_fn fn, plain_job *job) {
    if (k->threads <= 1) fn(job, 0, total);
    else hn_parallel_for(total, 1, fn, job);
}

static hone_status plain_conv_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    plain_conv *k = (plain_conv *)kernel;
    const window *w = &k->win;
    int64_t in_channels = k->groups * k->in_channels;
    int64_t in = in_channels * w->in[0] * w->in[1] * w->in[2];
    int64_t out = k->groups * k->out_channels * w->out[0] * w->out[1] * w->out[2];
    int64_t items = w->out[0] * w->out[1] * k->row_chunks * k->groups * k->blocks;
    for (int64_t image = 0; image < k->images; image++) {
        plain_job job = {.k = k,
                         .from = (const float *)args->inputs[0] + image * in,
                         .to = args->workspace,
                         .bias = k->has_bias ? args->inputs[2] : NULL,
                         .y = (float *)args->outputs[0] + image * out};
        if (k->copies) spread(k, in_channels * k->size[0] * k->size[1], copy_rows, &job);
        job.x = k->copies ? job.to : job.from;
        spread(k, items, conv_items, &job);
    }
    if (k->posts.count) cpu_posts_run(&k->posts, args, args->outputs[0]);
    return HONE_OK;
}
static const hn_kernel_ops k_plain_conv_ops = {sizeof(hn_kernel_ops), NULL, plain_conv_run, cpu_kernel_destroy};

// ---- making it ----------------------------------------------------------------------------------
typedef struct pack_job {
    const plain_conv *k;
    const float *w;
} pack_job;

static hone_status pack_form(hone_error *err, void *user, void *out) {
    (void)err;
    const pack_job *job = user;
    const plain_conv *k = job->k;
    float *to = out;
    for (int64_t g = 0; g < k->groups; g++)
        for (int64_t b = 0; b < k->blocks; b++)
            for (int64_t t = 0; t < k->taps; t++)
                for (int64_t c = 0; c < HN_K_CONV_BLOCK; c++, to++) {
                    int64_t channel = b * HN_K_CONV_BLOCK + c;
                    if (channel < k->out_channels) *to = job->w[(g * k->out_channels + channel) * k->taps + t];
                }
    return HONE_OK;
}

static hn_status pack(hone_error *err, const hn_select *what, plain_conv *k, const cpu_value *w) {
    char form[128];
    snprintf(form, sizeof form, "plain groups %lld out %lld taps %lld block %d", (long long)k->groups,
             (long long)k->out_channels, (long long)k->taps, HN_K_CONV_BLOCK);
    pack_job job = {k, w->data};
    hn_prepared_ask ask = {.kind = "cpu plain convolution",
                           .form = form,
                           .source = {cpu_source(w)},
                           .bytes = (size_t)(k->groups * k->blocks * k->taps * HN_K_CONV_BLOCK) * sizeof(float),
                           .make = pack_form,
                           .user = &job};
    hn_prepared *prepared;
    HN_TRY(cpu_prepare(err, what, &k->base, &ask, &prepared));
    k->weights = hn_prepared_data(prepared);
    return HONE_OK;
}

static int64_t reach(const window *w, int dim) {
    return (w->out[dim] - 1) * w->stride[dim] + (w->kernel[dim] - 1) * w->dilation[dim] + 1;
}

// A window of one point that goes everywhere: all is one row.
static bool is_pointwise(const window *w) {
    for (int i = 0; i < 3; i++)
        if (w->kernel[i] != 1 || w->stride[i] != 1 || w->in[i] != w->out[i]) return false;
    return true;
}

// Sizes of what the taps read; false where offsets do not fit.
static bool geometry(plain_conv *k) {
    window *w = &k->win;
    k->columns = w->out[2];
    if (is_pointwise(w)) {
        w->in[2] = w->out[2] = w->out[0] * w->out[1] * w->out[2];
        w->in[0] = w->in[1] = w->out[0] = w->out[1] = 1;
        k->columns = hn_min_i64(w->out[2], CHUNK);
    }
    k->row_chunks = (w->out[2] + k->columns - 1) / k->columns;
    k->copies = w->stride[2] != 1;
    for (int i = 0; i < 3; i++)
        k->copies = k->copies || w->pad_begin[i] || reach(w, i) > w->in[i];
    k->size[0] = k->copies ? reach(w, 0) : w->in[0];
    k->size[1] = k->copies ? reach(w, 1) : w->in[1];
    k->phases = w->stride[2];
    k->run = k->copies ? (hn_max_i64(reach(w, 2), w->pad_begin[2]) + k->phases - 1) / k->phases : w->in[2];
    int64_t floats, plane;
    return !__builtin_mul_overflow(k->size[0], k->size[1], &plane) &&
           !__builtin_mul_overflow(plane, k->phases * k->run, &plane) &&
           !__builtin_mul_overflow(plane, k->groups * k->in_channels, &floats) && floats < INT32_MAX / 2;
}

static void fill_offsets(plain_conv *k) {
    const window *w = &k->win;
    int32_t *to = k->offset;
    for (int64_t c = 0; c < k->in_channels; c++)
        for (int64_t z = 0; z < w->kernel[0]; z++)
            for (int64_t y = 0; y < w->kernel[1]; y++)
                for (int64_t x = 0; x < w->kernel[2]; x++) {
                    int64_t row = (c * k->size[0] + z * w->dilation[0]) * k->size[1] + y * w->dilation[1];
                    int64_t column = x * w->dilation[2], phase = column % k->phases;
                    *to++ = (int32_t)((row * k->phases + phase) * k->run + column / k->phases);
                    k->used[phase] = 1;
                }
}

static hn_status finish(hone_error *err, cpu_state *cpu, const hn_select *what, plain_conv *k, const cpu_value *w,
                        const hn_shape *out) {
    const hn_node *node = what->node;
    bool relu = node->post_count && node->post[0].op == cpu->op.Relu && node->post[0].input < 0;
    k->low = relu ? 0 : -INFINITY;
    if (!cpu_posts_init(cpu, what, relu, out, HN_LAYOUT_PLAIN, &k->base, &k->posts)) return HONE_ERR_UNSUPPORTED;
    double flops = 2.0 * (double)(k->images * k->groups * k->out_channels) *
                   (double)(k->win.out[0] * k->win.out[1] * k->win.out[2]) * (double)k->taps;
    k->threads = flops < 4e5 ? 1 : what->threads > 0 ? what->threads : hn_parallel_threads();
    if (k->copies)
        k->base.workspace_bytes = (size_t)(k->groups * k->in_channels * plane_of(k)) * sizeof(float);
    k->base.consumed |= 1u << 1;
    return pack(err, what, k, w);
}

hone_status own_plain_conv_select(hone_error *err, cpu_state *cpu, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, w, bias, y;
    window win;
    bool has_bias = cpu_base_inputs(node) > 2 && node->inputs[2];
    if ((!node->plain && cpu->dnnl) || node->compute != HN_NONE || !cpu_in(node, 0, &x) ||
        !cpu_in(node, 1, &w) || !cpu_out(node, 0, &y) || x.dtype != HN_F32 || w.dtype != HN_F32 || !w.data ||
        !x.count || !w.count || !y.count || (has_bias && (!cpu_in(node, 2, &bias) || bias.dtype != HN_F32)) ||
        w.shape.rank != x.shape.rank || !window_of(node, &x.shape, &y.shape, w.shape.dims + 2, &win))
        return HONE_ERR_UNSUPPORTED;
    window_normalise(&win);
    window_fill(&win);
    int64_t groups = hn_node_int(node, "group", 1);
    int64_t taps = w.shape.dims[1] * win.kernel[0] * win.kernel[1] * win.kernel[2];
    for (int i = 0; i < 3; i++)
        if (win.pad_begin[i] < 0) return HONE_ERR_UNSUPPORTED;
    if (groups < 1 || taps > INT32_MAX / 8 || win.stride[2] > INT32_MAX / 8) return HONE_ERR_UNSUPPORTED;
    plain_conv *k = cpu_kernel_new(sizeof *k + (size_t)taps * sizeof(int32_t) + (size_t)win.stride[2],
                                   &k_plain_conv_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->k = cpu->conv;
    k->win = win;
    k->images = x.shape.dims[0];
    k->groups = groups;
    k->in_channels = w.shape.dims[1];
    k->out_channels = w.shape.dims[0] / groups;
    k->blocks = (k->out_channels + HN_K_CONV_BLOCK - 1) / HN_K_CONV_BLOCK;
    k->taps = taps;
    k->has_bias = has_bias;
    k->offset = (int32_t *)(k + 1);
    k->used = (unsigned char *)(k->offset + taps);
    hone_status status = geometry(k) ? HONE_OK : HONE_ERR_UNSUPPORTED;
    if (status == HONE_OK) fill_offsets(k);
    if (cpu_same_bytes(&x.shape)) k->base.in_layout[0] = cpu_hint(what, 0);
    if (status == HONE_OK) status = finish(err, cpu, what, k, &w, &y.shape);
    if (status != HONE_OK) {
        cpu_kernel_destroy(&k->base);
        return status;
    }
    k->base.variant = "own:plain_conv";
    *out_kernel = &k->base;
    return HONE_OK;
}
