// SPDX-License-Identifier: Apache-2.0
// hn.QConv in which every channel has its own window, channels-last, on CPUs with VNNI: sums are exact, scale,
// bias, Relu or Clip and the rounding to 8 bits follow in registers. Other posts are oneDNN's.
#include <math.h>
#include "backends/cpu/window.h"
#include "kernels/cpu/depthwise.h"

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, BIAS };

#define MAX_ROWS (HN_DEPTHWISE_TAPS * HN_DEPTHWISE_GROUPS)
#define GRAIN 65536         // products that a thread should have at least
#define MOST 0x1p29          // before rounding
#define NEAR_BYTES 24576    // of x, that the channels of one tile should not exceed

typedef struct q_depthwise {
    hn_kernel base;
    hn_k_depthwise d;
    window win; // three dims
    int64_t images;
    uint8_t fill[HN_DEPTHWISE_WIDE];
    void *block; // weights, start, scale, shift
    int64_t grain; // lines
    int threads;
} q_depthwise;

typedef struct job {
    const q_depthwise *k;
    const uint8_t *x;
    char *y;
} job;

static void lines(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const q_depthwise *k = j->k;
    const window *w = &k->win;
    int64_t line_bytes = w->in[2] * k->d.channels;
    int64_t out_bytes = w->out[2] * k->d.channels * (k->d.real ? (int64_t)sizeof(float) : 1);
    for (int64_t i = begin; i < end; i++) {
        const uint8_t *rows[MAX_ROWS] = {0};
        int64_t image = i / (w->out[0] * w->out[1]);
        int64_t z0 = i / w->out[1] % w->out[0] * w->stride[0] - w->pad_begin[0];
        int64_t y0 = i % w->out[1] * w->stride[1] - w->pad_begin[1];
        for (int64_t t = 0; t < w->kernel[0] * w->kernel[1]; t++) {
            int64_t z = z0 + t / w->kernel[1] * w->dilation[0], y = y0 + t % w->kernel[1] * w->dilation[1];
            if (z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1])
                rows[t] = j->x + ((image * w->in[0] + z) * w->in[1] + y) * line_bytes;
        }
        hn_k_depthwise_vnni(&k->d, rows, j->y + i * out_bytes);
    }
}

static hone_status run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    const q_depthwise *k = (const q_depthwise *)kernel;
    job j = {k, args->inputs[X], args->outputs[0]};
    int64_t count = k->images * k->win.out[0] * k->win.out[1];
    if (k->threads <= 1) lines(&j, 0, count);
    else hn_parallel_for(count, k->grain, lines, &j);
    return HONE_OK;
}

static void destroy(hn_kernel *kernel) {
    hn_free(((q_depthwise *)kernel)->block);
    cpu_kernel_destroy(kernel);
}
static const hn_kernel_ops k_ops = {sizeof(hn_kernel_ops), NULL, run, destroy};

// One constant number, or one a channel.
static bool numbers(const hn_node *node, int index, int64_t channels, double absent, int64_t at, double *out) {
    cpu_value v;
    *out = absent;
    if (index >= cpu_base_inputs(node) || !node->inputs[index]) return true;
    if (!cpu_in(node, index, &v) || !v.data || (v.count != 1 && v.count != channels)) return false;
    *out = hn_tensor_get_f64(v.value->constant, v.count == 1 ? 0 : at);
    return isfinite(*out);
}

static bool post_number(const hn_node *node, int index, double absent, double *out) {
    cpu_value v;
    *out = absent;
    if (index < 0) return true;
    if (!cpu_in(node, index, &v) || !v.data || v.count != 1) return false;
    *out = hn_tensor_get_f64(v.value->constant, 0);
    return isfinite(*out);
}

// Bounds, and what 8-bit results need; false where a post is not ours. *out_unit: scale of the result.
static bool posts_of(q_depthwise *k, const cpu_state *cpu, const hn_node *node, const cpu_value *y, double *out_unit) {
    double low = -INFINITY, high = INFINITY, unit = 1, zero = 0;
    for (int i = 0; i < node->post_count; i++) {
        const hn_post *post = &node->post[i];
        bool last = i == node->post_count - 1;
        if (post->op == cpu->op.Relu || post->op == cpu->op.Clip) {
            double a = post->op == cpu->op.Relu ? 0 : post->alpha, b = post->op == cpu->op.Relu ? INFINITY : post->beta;
            if (!(a <= b)) return false;
            low = fmin(fmax(low, a), b);
            high = fmin(fmax(high, a), b);
        } else if (post->op == cpu->op.QuantizeLinear && last) {
            if (!post_number(node, post->scale, 1, &unit) || !post_number(node, post->zero, 0, &zero) || !(unit > 0))
                return false;
            k->base.consumed |= post->scale >= 0 ? (uint64_t)1 << post->scale : 0;
            k->base.consumed |= post->zero >= 0 ? (uint64_t)1 << post->zero : 0;
        } else {
            return false;
        }
    }
    k->d.real = y->dtype == HN_F32;
    if (!k->d.real) {
        double least = y->dtype == HN_I8 ? -128 : 0;
        k->d.out_signed = y->dtype == HN_I8;
        low = fmin(fmax(low / unit, least - zero), least + 255 - zero);
        high = fmin(fmax(high / unit, least - zero), least + 255 - zero);
        k->d.zero = (int32_t)zero;
    }
    k->d.low = (float)low;
    k->d.high = (float)high;
    *out_unit = unit;
    return true;
}

// Weights without zero points, turned; the sums' starts, scales and shifts.
static bool fill_block(q_depthwise *k, const hn_node *node, const cpu_value *w, double unit) {
    hn_k_depthwise *d = &k->d;
    int64_t taps = k->win.kernel[0] * k->win.kernel[1], padded = hn_max_i64(d->wide, (d->channels + 15) / 16 * 16);
    size_t weights = (size_t)padded * (size_t)d->groups * (size_t)d->kernel * HN_DEPTHWISE_TAPS;
    size_t bytes = weights + (size_t)padded * (sizeof(int32_t) + 2 * sizeof(float));
    k->block = hn_malloc_aligned(bytes);
    if (!k->block) return false;
    memset(k->block, 0, bytes);
    k->base.own_bytes = bytes;
    int8_t *to = k->block;
    int32_t *start = (int32_t *)(to + weights);
    float *scale = (float *)(start + padded), *shift = scale + padded;
    double x_scale, x_zero;
    if (!numbers(node, X_SCALE, 1, 1, 0, &x_scale) || !numbers(node, X_ZERO, 1, 0, 0, &x_zero)) return false;
    memset(k->fill, (int)x_zero & 0xff, sizeof k->fill);
    int32_t zero = (int32_t)x_zero + (d->is_signed ? 128 : 0);
    for (int64_t c = 0; c < d->channels; c++) {
        int64_t slot = HN_DEPTHWISE_SLOT(d->wide, c);
        double w_scale, w_zero, bias;
        if (!numbers(node, W_SCALE, d->channels, 1, c, &w_scale) || !numbers(node, W_ZERO, d->channels, 0, c, &w_zero) ||
            !numbers(node, BIAS, d->channels, 0, c, &bias))
            return false;
        int32_t sum = 0;
        for (int64_t i = 0; i < taps * d->kernel; i++) {
            int64_t v = hn_tensor_get_i64(w->value->constant, c * taps * d->kernel + i) - (int64_t)w_zero;
            int64_t tap = i / d->kernel, column = i % d->kernel;
            if (v < -128 || v > 127) return false;
            int64_t at = tap / HN_DEPTHWISE_TAPS * d->kernel + column, all = (int64_t)d->groups * d->kernel;
            // Registers of a wide block stand side by side.
            at = c < d->wide ? (slot / 64 * all + at) * 4 + slot % 64 / 16 : slot / 16 * all + at;
            to[(at * 16 + slot % 16) * HN_DEPTHWISE_TAPS + tap % HN_DEPTHWISE_TAPS] = (int8_t)v;
            sum += (int32_t)v;
        }
        start[slot] = -zero * sum;
        scale[slot] = (float)(x_scale * w_scale / unit);
        shift[slot] = (float)(bias / unit);
        if (!(255.0 * 128 * (double)(taps * d->kernel) * fabs(scale[slot]) + fabs(shift[slot]) < MOST)) return false;
    }
    d->weights = to;
    d->start = start;
    d->scale = scale;
    d->shift = shift;
    return true;
}

static bool fits(q_depthwise *k, const hn_node *node, const cpu_value *x, const cpu_value *y, const cpu_value *w) {
    hn_k_depthwise *d = &k->d;
    window *win = &k->win;
    int64_t channels = x->shape.dims[1], group = hn_node_int(node, "group", 1);
    if (group != channels || y->shape.dims[1] != channels || w->shape.dims[0] != channels || w->shape.dims[1] != 1 ||
        !window_of(node, &x->shape, &y->shape, w->shape.dims + 2, win))
        return false;
    window_fill(win);
    int64_t extent = (win->kernel[2] - 1) * win->dilation[2] + 1, taps = win->kernel[0] * win->kernel[1];
    if (taps > MAX_ROWS || win->kernel[2] > HN_DEPTHWISE_COLUMNS || win->stride[2] > HN_DEPTHWISE_COLUMNS ||
        win->dilation[2] > HN_DEPTHWISE_COLUMNS)
        return false;
    d->groups = (int)((taps + HN_DEPTHWISE_TAPS - 1) / HN_DEPTHWISE_TAPS);
    if (d->groups * extent > HN_DEPTHWISE_COLUMNS) return false;
    d->channels = channels;
    d->in_width = win->in[2];
    d->out_width = win->out[2];
    d->kernel = (int)win->kernel[2];
    d->stride = (int)win->stride[2];
    d->dilation = (int)win->dilation[2];
    d->pad = win->pad_begin[2];
    d->is_signed = x->dtype == HN_I8;
    int64_t most = (HN_DEPTHWISE_COLUMNS / d->groups - extent) / d->stride + 1;
    int64_t wide = (HN_DEPTHWISE_COLUMNS / HN_DEPTHWISE_TAPS / d->groups - extent) / d->stride + 1;
    if (wide >= 4 && y->dtype != HN_F32) // beyond half a block the rest of it is not worth the 16s
        d->wide = (channels + HN_DEPTHWISE_WIDE / 2 - 1) / HN_DEPTHWISE_WIDE * HN_DEPTHWISE_WIDE;
    d->tile_wide = wide;
    int64_t near = NEAR_BYTES / (taps * channels * d->stride);
    d->tile = hn_max_i64(1, hn_min_i64(most, hn_max_i64(near, 4)));
    return true;
}

hone_status own_q_depthwise_select(hone_error *err, cpu_state *cpu, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, w, y;
    double unit;
    if (!cpu_in(node, X, &x) || !cpu_in(node, W, &w) || !w.data || !cpu_out(node, 0, &y) || x.shape.rank < 3 ||
        w.shape.rank != x.shape.rank || x.count == 0 || y.count == 0 || (w.dtype != HN_I8 && w.dtype != HN_U8) ||
        (x.dtype != HN_I8 && x.dtype != HN_U8) || (y.dtype != HN_F32 && y.dtype != HN_I8 && y.dtype != HN_U8))
        return HONE_ERR_UNSUPPORTED;
    q_depthwise *k = cpu_kernel_new(sizeof *k, &k_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    if (!fits(k, node, &x, &y, &w) || !posts_of(k, cpu, node, &y, &unit) || !fill_block(k, node, &w, unit)) {
        destroy(&k->base);
        return HONE_ERR_UNSUPPORTED;
    }
    k->d.fill = k->fill;
    k->images = x.shape.dims[0];
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    int64_t products = k->d.out_width * k->d.channels * k->d.groups * HN_DEPTHWISE_TAPS * k->d.kernel;
    k->grain = hn_max_i64(1, GRAIN / hn_max_i64(products, 1));
    k->base.consumed |= 0x7eu; // all base inputs but x
    k->base.in_layout[X] = cpu_same_bytes(&x.shape) ? cpu_hint(what, X) : HN_LAYOUT_CHANNELS_LAST;
    k->base.out_layout[0] = cpu_same_bytes(&y.shape) ? HN_LAYOUT_PLAIN : HN_LAYOUT_CHANNELS_LAST;
    *out_kernel = &k->base;
    return HONE_OK;
}
